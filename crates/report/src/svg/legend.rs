//! Which series is which.

use super::canvas::{Canvas, text_width};
use super::frame::{Stroke, draw_marker};
use super::theme::{self, TEXT};

/// What a legend says of one series.
#[derive(Clone, Debug)]
pub(crate) struct Entry<'a> {
    pub(crate) name: &'a str,
    pub(crate) color: usize,
    pub(crate) dashed: bool,
    pub(crate) marker: Option<usize>,
}

const ROW: f64 = 18.0;
const SAMPLE: f64 = 22.0;
const GAP: f64 = 16.0;

fn widths<'a>(entries: &'a [Entry<'_>]) -> impl Iterator<Item = f64> + 'a {
    entries.iter().map(|e| SAMPLE + 6.0 + text_width(e.name, TEXT) + GAP)
}

/// Entries by rows that fit into `width`.
fn rows(entries: &[Entry<'_>], width: f64) -> Vec<std::ops::Range<usize>> {
    let mut rows = Vec::new();
    let (mut start, mut used) = (0, 0.0);
    for (i, w) in widths(entries).enumerate() {
        if i > start && used + w - GAP > width {
            rows.push(start..i);
            (start, used) = (i, 0.0);
        }
        used += w;
    }
    if start < entries.len() {
        rows.push(start..entries.len());
    }
    rows
}

/// The height that [`draw`] will take.
pub(crate) fn height(entries: &[Entry<'_>], width: f64) -> f64 {
    rows(entries, width).len() as f64 * ROW
}

/// Draws the legend with its upper left corner at `(left, top)`.
pub(crate) fn draw(canvas: &mut Canvas, entries: &[Entry<'_>], left: f64, top: f64, width: f64) {
    let all: Vec<f64> = widths(entries).collect();
    for (line, range) in rows(entries, width).into_iter().enumerate() {
        let middle = top + line as f64 * ROW + ROW / 2.0;
        let mut x = left;
        for i in range {
            let entry = &entries[i];
            Stroke { color: entry.color, width: 2.0, dashed: entry.dashed, opacity: 1.0 }
                .line(canvas, (x, middle), (x + SAMPLE, middle));
            if let Some(shape) = entry.marker {
                draw_marker(canvas, shape, entry.color, x + SAMPLE / 2.0, middle, None);
            }
            canvas
                .element("text")
                .attr("class", "cd-ink")
                .attr("fill", theme::INK.light)
                .num("x", x + SAMPLE + 6.0)
                .num("y", middle + 4.0)
                .text(entry.name);
            x += all[i];
        }
    }
}
