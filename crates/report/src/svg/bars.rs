//! One number for each of a few things.

use super::axis::{Axis, Mapping};
use super::canvas::{fit_text, text_width};
use super::frame::{self, Area};
use super::series::Reference;
use super::theme::{self, TEXT};
use super::{Canvas, Chart, Figure};
use crate::number::{mean_with_error, significant};

/// One bar.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    label: String,
    value: f64,
    error: Option<f64>,
    color: Option<usize>,
}

impl Bar {
    /// A bar from zero to `value`.
    #[must_use]
    pub fn new(label: impl Into<String>, value: f64) -> Self {
        Self { label: label.into(), value, error: None, color: None }
    }

    /// Adds an error bar of this half-length, such as a standard error.
    #[must_use]
    pub fn error(mut self, error: f64) -> Self {
        self.error = Some(error);
        self
    }

    /// Takes this colour of the palette (all bars have the first one otherwise).
    #[must_use]
    pub fn color(mut self, index: usize) -> Self {
        self.color = Some(index);
        self
    }

    fn text(&self) -> String {
        match self.error {
            Some(error) => mean_with_error(self.value, error),
            None => significant(self.value, 4),
        }
    }
}

/// Horizontal bars, which leave room for names, with the values written out.
///
/// ```
/// use coptidice_report::svg::{Bar, BarChart, Chart, Reference};
/// let figure = BarChart::new("Cost per step", "cost per step")
///     .bar(Bar::new("bc", 0.21).error(0.01))
///     .bar(Bar::new("coptidice", 0.015).error(0.002))
///     .reference(Reference::new(0.02, "limit 0.02"))
///     .figure();
/// assert!(figure.description().contains("coptidice: 0.0150 ± 0.0020"));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct BarChart {
    title: String,
    axis: Axis,
    bars: Vec<Bar>,
    references: Vec<Reference>,
    width: f64,
}

const ROW: f64 = 30.0;

impl BarChart {
    /// An empty chart, 420 units wide and as high as its bars need.
    #[must_use]
    pub fn new(title: impl Into<String>, label: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            axis: Axis::linear(label).including(0.0),
            bars: Vec::new(),
            references: Vec::new(),
            width: 420.0,
        }
    }

    /// Adds a bar below the others.
    #[must_use]
    pub fn bar(mut self, bar: Bar) -> Self {
        self.bars.push(bar);
        self
    }

    /// Adds a value to compare with.
    #[must_use]
    pub fn reference(mut self, reference: Reference) -> Self {
        self.axis = self.axis.including(reference.value);
        self.references.push(reference);
        self
    }

    /// Sets the width in figure units, at least 240.
    #[must_use]
    pub fn width(mut self, width: f64) -> Self {
        self.width = width.clamp(240.0, 4000.0);
        self
    }

    fn description(&self) -> String {
        let mut text = format!("Bar chart of {}.", self.axis.label);
        for bar in &self.bars {
            text.push_str(&format!(" {}: {}.", bar.label, bar.text()));
        }
        for r in &self.references {
            text.push_str(&format!(" Reference line: {} at {}.", r.label, significant(r.value, 4)));
        }
        text
    }
}

impl Chart for BarChart {
    fn figure(&self) -> Figure {
        let names = self.bars.iter().map(|b| text_width(&b.label, TEXT)).fold(0.0, f64::max);
        let left = (names + 12.0).min(self.width * 0.36);
        let top = if self.references.is_empty() { 6.0 } else { 22.0 };
        // Values are written at the right, clear of bars and error bars.
        let values = self.bars.iter().map(|b| text_width(&b.text(), TEXT)).fold(0.0, f64::max);
        let area = Area {
            left,
            top,
            width: (self.width - left - values - 22.0).max(60.0),
            height: ROW * self.bars.len().max(1) as f64,
        };
        let ends: Vec<f64> = self
            .bars
            .iter()
            .flat_map(|b| [b.value, b.value + b.error.unwrap_or(0.0), b.value - b.error.unwrap_or(0.0)])
            .collect();
        let range = self.axis.fit(&ends, true);
        let x = Mapping::new(&self.axis, range, area.left, area.right());
        let x_ticks = self.axis.ticks(range, ((area.width / 45.0) as usize).clamp(2, 6));
        let height = area.bottom() + if self.axis.label.is_empty() { 24.0 } else { 42.0 };

        let mut canvas = Canvas::default();
        for tick in &x_ticks {
            frame::rule(
                &mut canvas,
                "cd-grid",
                (x.at(tick.value), area.top),
                (x.at(tick.value), area.bottom()),
            );
        }
        frame::draw_x_axis(&mut canvas, area, x, &x_ticks, true);
        for (i, bar) in self.bars.iter().enumerate() {
            self.draw_bar(&mut canvas, bar, area, area.top + ROW * (i as f64 + 0.5), x);
        }
        for r in self.references.iter().filter(|r| self.axis.can_show(r.value)) {
            let at = x.at(r.value);
            frame::dashed_rule(&mut canvas, (at, area.top - 4.0), (at, area.bottom()));
            let half = text_width(&r.label, TEXT) / 2.0;
            let middle = at.min(self.width - half - 4.0).max(half + 4.0);
            frame::label_over(&mut canvas, middle, area.top - 9.0)
                .attr("text-anchor", "middle")
                .text(&r.label);
        }
        frame::draw_x_label(&mut canvas, area, height - 6.0, &self.axis.label);
        let not_finite = self.bars.iter().filter(|b| !self.axis.can_show(b.value)).count();
        let notes = match not_finite {
            0 => Vec::new(),
            1 => vec!["1 value not a finite number".to_owned()],
            n => vec![format!("{n} values not a finite number")],
        };
        Figure::new(&self.title, &self.description(), (self.width, height), canvas).with_notes(notes)
    }
}

impl BarChart {
    fn draw_bar(&self, canvas: &mut Canvas, bar: &Bar, area: Area, middle: f64, x: Mapping) {
        let name = fit_text(&bar.label, TEXT, area.left - 12.0);
        frame::label(canvas, true, area.left - 8.0, middle + 4.0).attr("text-anchor", "end").text(&name);
        frame::label(canvas, true, area.right() + 10.0, middle + 4.0).text(&bar.text());
        if !self.axis.can_show(bar.value) {
            return;
        }
        let (slot, tone) = theme::series(bar.color.unwrap_or(0));
        let (zero, end) = (x.at(0.0), x.at(bar.value));
        canvas
            .element("rect")
            .attr("class", &format!("cd-f{slot}"))
            .attr("fill", tone.light)
            .attr("fill-opacity", "0.85")
            .num("x", zero.min(end))
            .num("y", middle - 9.0)
            .num("width", (end - zero).abs().max(1.0))
            .num("height", 18.0)
            .empty();
        if let Some(error) = bar.error.filter(|e| e.is_finite() && *e > 0.0) {
            let (low, high) = (x.at(bar.value - error), x.at(bar.value + error));
            frame::rule(canvas, "cd-rule", (low, middle), (high, middle));
            for end in [low, high] {
                frame::rule(canvas, "cd-rule", (end, middle - 3.5), (end, middle + 3.5));
            }
        }
    }
}
