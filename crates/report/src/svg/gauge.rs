//! An estimate and its upper bound against a limit, on one line.

use super::axis::{Axis, Mapping};
use super::canvas::text_width;
use super::frame::{self, Area, Stroke};
use super::theme::{self, TEXT};
use super::{Canvas, Chart, Figure};
use crate::number::significant;

/// A dot for the estimate, a bar to its upper bound, and the limit as a line; beyond it the ground is shaded.
///
/// ```
/// use coptidice_report::svg::{Chart, LimitGauge};
/// let figure = LimitGauge::new("cost per step", 0.1, 0.083, Some(0.097)).figure();
/// assert!(figure.description().contains("limit 0.1"));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct LimitGauge {
    label: String,
    limit: f64,
    estimate: f64,
    upper_bound: Option<f64>,
    width: f64,
}

impl LimitGauge {
    /// A gauge in the unit that `label` names.
    #[must_use]
    pub fn new(label: impl Into<String>, limit: f64, estimate: f64, upper_bound: Option<f64>) -> Self {
        Self { label: label.into(), limit, estimate, upper_bound, width: 420.0 }
    }
}

impl Chart for LimitGauge {
    fn figure(&self) -> Figure {
        let axis = Axis::linear(self.label.as_str()).including(0.0);
        let values = [self.limit, self.estimate, self.upper_bound.unwrap_or(self.estimate)];
        let range = axis.fit(&values, true);
        let area = Area { left: 14.0, top: 24.0, width: self.width - 28.0, height: 26.0 };
        let x = Mapping::new(&axis, range, area.left, area.right());
        let mut canvas = Canvas::default();
        if axis.can_show(self.limit) {
            self.draw_beyond(&mut canvas, area, x.at(self.limit));
        }
        frame::draw_x_axis(&mut canvas, area, x, &axis.ticks(range, 5), true);
        let middle = area.top + area.height / 2.0;
        if axis.can_show(self.estimate) {
            let at = x.at(self.estimate);
            if let Some(bound) = self.upper_bound.filter(|b| axis.can_show(*b)) {
                let end = x.at(bound);
                let stroke = Stroke { color: 0, width: 3.0, dashed: false, opacity: 0.55 };
                stroke.line(&mut canvas, (at, middle), (end, middle));
                Stroke { opacity: 1.0, width: 2.5, ..stroke }.line(
                    &mut canvas,
                    (end, middle - 7.0),
                    (end, middle + 7.0),
                );
            }
            frame::draw_marker(&mut canvas, 0, 0, at, middle);
        }
        if axis.can_show(self.limit) {
            let at = x.at(self.limit);
            frame::dashed_rule(&mut canvas, (at, area.top - 5.0), (at, area.bottom()));
            let text = format!("limit {}", significant(self.limit, 4));
            let half = text_width(&text, TEXT) / 2.0;
            let center = at.clamp(half + 4.0, self.width - half - 4.0);
            frame::label(&mut canvas, true, center, area.top - 9.0).attr("text-anchor", "middle").text(&text);
        }
        frame::label(&mut canvas, false, area.left + area.width / 2.0, area.bottom() + 34.0)
            .attr("text-anchor", "middle")
            .text(&self.label);
        let show = |v| significant(v, 4);
        let bound = self.upper_bound.map_or(String::new(), |b| format!(", upper bound {}", show(b)));
        let text =
            format!("{}: estimate {}{bound}, limit {}.", self.label, show(self.estimate), show(self.limit));
        Figure::new(&self.label, &text, (self.width, area.bottom() + 40.0), canvas)
    }
}

impl LimitGauge {
    fn draw_beyond(&self, canvas: &mut Canvas, area: Area, from: f64) {
        let from = from.clamp(area.left, area.right());
        let (slot, tone) = theme::series(1);
        canvas
            .element("rect")
            .attr("class", &format!("cd-f{slot}"))
            .attr("fill", tone.light)
            .attr("fill-opacity", "0.13")
            .num("x", from)
            .num("y", area.top)
            .num("width", area.right() - from)
            .num("height", area.height)
            .empty();
    }
}
