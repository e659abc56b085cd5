//! How a sample is distributed.

use super::axis::{Axis, Mapping};
use super::frame::{self, Area};
use super::theme;
use super::ticks;
use super::{Canvas, Chart, Figure};
use crate::bins::Bins;
use crate::number::{count, significant};

/// A histogram of binned values.
///
/// ```
/// use coptidice_report::bins::Bins;
/// use coptidice_report::svg::{Chart, Histogram};
/// let costs = [0.0, 3.0, 3.0, 12.0, 40.0];
/// let figure = Histogram::new("Cost per episode", "cost", Bins::linear(&costs, 20)).mark(25.0, "limit 25").figure();
/// assert!(figure.description().contains("5 values"));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    title: String,
    label: String,
    counted: String,
    bins: Bins,
    marks: Vec<(f64, String)>,
    color: usize,
    size: (f64, f64),
}

impl Histogram {
    /// A histogram of the usual size (420 by 220 units); `label` says what is binned.
    #[must_use]
    pub fn new(title: impl Into<String>, label: impl Into<String>, bins: Bins) -> Self {
        Self {
            title: title.into(),
            label: label.into(),
            counted: "count".to_owned(),
            bins,
            marks: Vec::new(),
            color: 0,
            size: (420.0, 220.0),
        }
    }

    /// Names what is counted, as in "episodes".
    #[must_use]
    pub fn counting(mut self, what: impl Into<String>) -> Self {
        self.counted = what.into();
        self
    }

    /// Marks a value, such as a limit, with a labelled line. The axis reaches it unless it is several times as far
    /// out as the data.
    #[must_use]
    pub fn mark(mut self, value: f64, label: impl Into<String>) -> Self {
        self.marks.push((value, label.into()));
        self
    }

    /// Takes this colour of the palette.
    #[must_use]
    pub fn color(mut self, index: usize) -> Self {
        self.color = index;
        self
    }

    /// Sets the size in figure units, at least 160 by 120.
    #[must_use]
    pub fn size(mut self, width: f64, height: f64) -> Self {
        self.size = (width.clamp(160.0, 4000.0), height.clamp(120.0, 4000.0));
        self
    }

    fn axis(&self) -> Axis {
        if self.bins.is_logarithmic() {
            Axis::logarithmic(self.label.as_str())
        } else {
            Axis::linear(self.label.as_str())
        }
    }

    /// The range of the bins, extended to marks that are not far away.
    fn range(&self, axis: &Axis) -> (f64, f64) {
        let edges = self.bins.edges();
        let (Some(&first), Some(&last)) = (edges.first(), edges.last()) else { return axis.fit(&[], false) };
        let (mut low, mut high) = (first, last);
        for &(value, _) in self.marks.iter().filter(|(v, _)| axis.can_show(*v)) {
            let near = if axis.logarithmic {
                value > first / 100.0 && value < last * 100.0
            } else {
                value > first - 2.0 * (last - first) && value < last + 2.0 * (last - first)
            };
            if near {
                low = low.min(value);
                high = high.max(value);
            }
        }
        (low, high)
    }

    fn description(&self) -> String {
        let Some(s) = self.bins.summary() else { return format!("Histogram of {}: no data.", self.label) };
        let show = |v| significant(v, 4);
        let mut text = format!(
            "Histogram of {} over {} values: mean {}, standard deviation {}, median {}, from {} to {}.",
            self.label,
            count(s.count),
            show(s.mean),
            show(s.deviation),
            show(s.median),
            show(s.min),
            show(s.max)
        );
        for (value, label) in &self.marks {
            text.push_str(&format!(" Marked: {label} at {}.", show(*value)));
        }
        text
    }
}

impl Chart for Histogram {
    fn figure(&self) -> Figure {
        let (width, height) = self.size;
        let axis = self.axis();
        let range = self.range(&axis);
        let highest = self.bins.counts().iter().copied().max().unwrap_or(0);
        let (top, bottom) = (28.0, if self.label.is_empty() { 24.0 } else { 40.0 });
        let count_axis = Axis::linear(self.counted.as_str());
        // Room above the highest bar for the labels of marks.
        let head = if self.marks.is_empty() { 1.03 } else { 1.15 };
        let count_range = ticks::widen(0.0, (highest as f64 * head).max(1.0), 8);
        let mut y_ticks = count_axis.ticks(count_range, 4);
        y_ticks.retain(|t| t.value.fract().abs() < 1e-9);
        let left = frame::label_room(&y_ticks) + 2.0;
        let area = Area { left, top, width: width - left - 16.0, height: height - top - bottom };
        let x_ticks = axis.ticks(range, ((area.width / 70.0) as usize).clamp(2, 8));
        let x = Mapping::new(&axis, range, area.left, area.right());
        let y = Mapping::new(&count_axis, count_range, area.bottom(), area.top);

        let mut canvas = Canvas::default();
        frame::label(&mut canvas, false, 6.0, 14.0).text(&self.counted);
        frame::draw_y_axis(&mut canvas, area, y, &y_ticks, true);
        self.draw_bars(&mut canvas, x, y);
        frame::draw_x_axis(&mut canvas, area, x, &x_ticks, true);
        self.draw_marks(&mut canvas, area, &axis, x);
        frame::draw_x_label(&mut canvas, area, height - 6.0, &self.label);
        if self.bins.edges().is_empty() {
            frame::draw_no_data(&mut canvas, area);
        }
        Figure::new(&self.title, &self.description(), self.size, canvas).with_notes(self.bins.notes())
    }
}

impl Histogram {
    fn draw_bars(&self, canvas: &mut Canvas, x: Mapping, y: Mapping) {
        let (slot, tone) = theme::series(self.color);
        let class = format!("cd-f{slot}");
        let base = y.at(0.0);
        for (edges, &n) in self.bins.edges().windows(2).zip(self.bins.counts()) {
            if n == 0 {
                continue;
            }
            let (left, right) = (x.at(edges[0]), x.at(edges[1]));
            // A gap between bars where there is room for one; a single entry stays visible beside a thousand.
            let gap = if right - left > 4.0 { 1.0 } else { 0.0 };
            let bar = (base - y.at(n as f64)).max(1.0);
            canvas
                .element("rect")
                .attr("class", &class)
                .attr("fill", tone.light)
                .attr("fill-opacity", "0.85")
                .num("x", left + gap / 2.0)
                .num("y", base - bar)
                .num("width", (right - left - gap).max(0.5))
                .num("height", bar)
                .open();
            let values = if n == 1 { "value" } else { "values" };
            let (from, to) = (significant(edges[0], 4), significant(edges[1], 4));
            canvas.element("title").text(&format!("{} {values} from {from} to {to}", count(n)));
            canvas.close("rect");
        }
    }

    fn draw_marks(&self, canvas: &mut Canvas, area: Area, axis: &Axis, x: Mapping) {
        for (i, (value, label)) in self.marks.iter().filter(|(v, _)| axis.can_show(*v)).enumerate() {
            let at = x.at(*value);
            if at < area.left - 0.5 || at > area.right() + 0.5 {
                continue;
            }
            frame::dashed_rule(canvas, (at, area.top), (at, area.bottom()));
            // The label stands on the side with more room, each a line lower than the one before.
            let baseline = area.top + 11.0 + 15.0 * i as f64;
            let (text_x, anchor) =
                if at > area.left + area.width * 0.6 { (at - 5.0, "end") } else { (at + 5.0, "start") };
            frame::label_over(canvas, text_x, baseline).attr("text-anchor", anchor).text(label);
        }
    }
}
