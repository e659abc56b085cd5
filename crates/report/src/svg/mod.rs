//! Figures as SVG: the few kinds of chart that reports and the paper's experiments need.
//!
//! | chart | for |
//! |---|---|
//! | [`LineChart`] | learning curves, with bands, error bars and limits |
//! | [`PanelGrid`] | rows and columns of such panels with shared axes: the paper's figures |
//! | [`BarChart`] | one number for each of a few policies, against a limit |
//! | [`Histogram`] | a sample's distribution |
//! | [`PathMap`] | paths over a plane with round regions |
//! | [`LimitGauge`] | an estimate and its upper bound against a limit, on one line |
//!
//! Own code rather than a plotting library: those at hand fix one theme when the file is written, while a report has
//! to read well in light and dark surroundings, on paper, on a phone, and to a screen reader.
//!
//! A figure is a pure function of its data: the same data give the same bytes. What cannot be drawn (a value that is
//! not a number, or not positive on a logarithmic axis) is left out and said so in [`Figure::notes`].

mod axis;
mod bars;
mod canvas;
mod frame;
mod gauge;
mod grid;
mod histogram;
mod legend;
mod line;
mod map;
mod series;
pub(crate) mod theme;
pub(crate) mod ticks;

pub use axis::Axis;
pub use bars::{Bar, BarChart};
pub use gauge::LimitGauge;
pub use grid::{GridPanel, GridRow, PanelGrid};
pub use histogram::Histogram;
pub use line::LineChart;
pub use map::{Disc, DiscKind, PathGroup, PathMap};
pub use series::{Reference, Series};
pub use theme::NEUTRAL;

pub(crate) use canvas::{Canvas, escape};
pub(crate) use theme::style_sheet;

use std::io;
use std::path::Path;

/// A finished picture.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    title: String,
    description: String,
    notes: Vec<String>,
    width: f64,
    height: f64,
    body: String,
}

/// What can be drawn.
pub trait Chart {
    /// Draws it.
    fn figure(&self) -> Figure;
}

impl Figure {
    pub(crate) fn new(title: &str, description: &str, size: (f64, f64), canvas: Canvas) -> Self {
        Self {
            title: title.to_owned(),
            description: description.to_owned(),
            notes: Vec::new(),
            width: size.0,
            height: size.1,
            body: canvas.finish(),
        }
    }

    pub(crate) fn with_notes(mut self, notes: Vec<String>) -> Self {
        self.notes = notes;
        self
    }

    /// Adds a remark for the reader.
    #[must_use]
    pub fn noted(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    /// What the figure shows, in a few words. Not drawn: a page puts it into the caption.
    #[must_use]
    pub fn title(&self) -> &str {
        &self.title
    }

    /// What the figure shows, for those who cannot see it.
    #[must_use]
    pub fn description(&self) -> &str {
        &self.description
    }

    /// What a reader should know beside the title, a remark each: what could not be drawn, what pale lines are.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Width in figure units (CSS pixels at natural size).
    #[must_use]
    pub fn width(&self) -> f64 {
        self.width
    }

    /// The `<svg>` element for use inside HTML that includes the shared style sheet.
    #[must_use]
    pub fn inline(&self) -> String {
        self.render("", "", false)
    }

    /// A file of its own: background and style sheet included.
    #[must_use]
    pub fn standalone(&self) -> String {
        let style = format!("<style>{}</style>\n", style_sheet());
        let svg = self.render(" xmlns=\"http://www.w3.org/2000/svg\"", &style, true);
        format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{svg}")
    }

    /// Writes [`Figure::standalone`] to `path`, whole or not at all.
    ///
    /// # Errors
    /// Whatever the file system says.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        crate::files::write_whole(path, self.standalone().as_bytes())
    }

    fn render(&self, namespace: &str, style: &str, ground: bool) -> String {
        let mut description = self.description.clone();
        for note in &self.notes {
            description.push(' ');
            description.push_str(note);
            description.push('.');
        }
        let (width, height) = (canvas::coordinate(self.width), canvas::coordinate(self.height));
        let mut out = format!(
            "<svg{namespace} role=\"img\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
             font-family=\"{}\" font-size=\"{}\">\n<title>{}</title>\n<desc>{}</desc>\n{style}",
            escape(theme::FONT),
            canvas::coordinate(theme::TEXT),
            escape(&self.title),
            escape(&description),
        );
        if ground {
            let fill = theme::BACKGROUND.light;
            out.push_str(&format!(
                "<rect class=\"cd-ground\" width=\"{width}\" height=\"{height}\" fill=\"{fill}\"/>\n"
            ));
        }
        out.push_str(&self.body);
        out.push_str("</svg>\n");
        out
    }
}
