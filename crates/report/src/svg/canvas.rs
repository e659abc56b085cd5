//! Writing SVG: elements, escaping, and numbers that come out the same everywhere.

use std::fmt::Write as _;

/// An SVG document in the making.
#[derive(Debug, Default)]
pub(crate) struct Canvas {
    out: String,
}

/// An element whose attributes are being written.
#[must_use = "an element must be ended by empty, text or open"]
pub(crate) struct Element<'a> {
    canvas: &'a mut Canvas,
    tag: &'static str,
}

impl Canvas {
    pub(crate) fn element(&mut self, tag: &'static str) -> Element<'_> {
        self.out.push('<');
        self.out.push_str(tag);
        Element { canvas: self, tag }
    }

    /// Ends an element that was opened.
    pub(crate) fn close(&mut self, tag: &'static str) {
        self.out.push_str("</");
        self.out.push_str(tag);
        self.out.push_str(">\n");
    }

    pub(crate) fn finish(self) -> String {
        self.out
    }
}

impl Element<'_> {
    /// A text attribute.
    pub(crate) fn attr(self, name: &str, value: &str) -> Self {
        self.canvas.out.push(' ');
        self.canvas.out.push_str(name);
        self.canvas.out.push_str("=\"");
        self.canvas.out.push_str(&escape(value));
        self.canvas.out.push('"');
        self
    }

    /// A length or coordinate, to a hundredth of a unit.
    pub(crate) fn num(self, name: &str, value: f64) -> Self {
        let text = coordinate(value);
        self.attr(name, &text)
    }

    /// `<tag …/>`
    pub(crate) fn empty(self) {
        self.canvas.out.push_str("/>\n");
    }

    /// `<tag …>text</tag>`
    pub(crate) fn text(self, text: &str) {
        self.canvas.out.push('>');
        self.canvas.out.push_str(&escape(text));
        self.canvas.close(self.tag);
    }

    /// `<tag …>`, to be closed by [`Canvas::close`].
    pub(crate) fn open(self) {
        self.canvas.out.push_str(">\n");
    }
}

/// The points of a path or polyline.
pub(crate) fn points(points: &[(f64, f64)]) -> String {
    let mut out = String::with_capacity(points.len() * 12);
    for (i, &(x, y)) in points.iter().enumerate() {
        if i > 0 {
            out.push(' ');
        }
        let _ = write!(out, "{},{}", coordinate(x), coordinate(y));
    }
    out
}

/// At most two decimals, no trailing zeros, no negative zero. Coordinates stay within ±1e6: what lies farther out
/// is far outside any picture, and renderers keep single precision.
pub(crate) fn coordinate(value: f64) -> String {
    let value = if value.is_nan() { 0.0 } else { value.clamp(-1e6, 1e6) };
    let text = format!("{value:.2}");
    match crate::number::trim_zeros(&text) {
        "-0" => "0".to_owned(),
        trimmed => trimmed.to_owned(),
    }
}

/// Text for an element or attribute of HTML or XML. Characters that XML cannot hold become U+FFFD.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\t' | '\n' | '\r' => out.push(c),
            '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            _ => out.push(c),
        }
    }
    out
}

/// About how wide `text` is at `size`, from the widths of a Helvetica-like face. Layout only leaves room by it.
pub(crate) fn text_width(text: &str, size: f64) -> f64 {
    let em: f64 = text
        .chars()
        .map(|c| match c {
            'i' | 'j' | 'l' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' => 0.26,
            'f' | 't' | 'r' | ' ' | '(' | ')' | '[' | ']' | '/' | '-' => 0.33,
            'm' | 'M' | 'W' | 'w' | '%' | '@' => 0.85,
            '⁰' | '¹' | '²' | '³' | '⁴'..='⁹' | '⁻' => 0.38,
            'A'..='Z' => 0.68,
            c if c.is_ascii() => 0.56,
            // East Asian text and emoji take a full square.
            '\u{1100}'..='\u{115f}' | '\u{2e80}'..='\u{d7ff}' | '\u{f900}'..='\u{ffef}' | '\u{1f000}'.. => {
                1.0
            }
            _ => 0.6,
        })
        .sum();
    // A tenth more for the wider faces that a reader's system may have instead.
    em * size * 1.1
}

/// `text` cut to `width` with an ellipsis, where it does not fit.
pub(crate) fn fit_text(text: &str, size: f64, width: f64) -> String {
    if text_width(text, size) <= width {
        return text.to_owned();
    }
    let mut out = String::new();
    for c in text.chars() {
        out.push(c);
        if text_width(&out, size) + text_width("…", size) > width {
            out.pop();
            break;
        }
    }
    out.push('…');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coordinates_are_short_and_finite() {
        assert_eq!(coordinate(1.0), "1");
        assert_eq!(coordinate(-0.001), "0");
        assert_eq!(coordinate(12.345_678), "12.35");
        assert_eq!(coordinate(f64::NAN), "0");
        assert_eq!(coordinate(f64::INFINITY), "1000000");
    }

    #[test]
    fn text_cannot_leave_its_place() {
        assert_eq!(
            escape("<a href='x'>&\"\u{1b}[2J\0"),
            "&lt;a href=&#39;x&#39;&gt;&amp;&quot;\u{fffd}[2J\u{fffd}"
        );
        let cut = fit_text("a very long name indeed", 12.0, 60.0);
        assert!(cut.ends_with('…') && text_width(&cut, 12.0) <= 60.0);
        assert_eq!(fit_text("short", 12.0, 60.0), "short");
    }
}
