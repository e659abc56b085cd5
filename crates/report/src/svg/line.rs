//! Lines over a common horizontal axis.

use super::axis::{Axis, Mapping};
use super::frame::{self, Area};
use super::legend::{self, Entry, Sample};
use super::series::{Reference, Series};
use super::{Canvas, Chart, Figure};
use crate::number::significant;

/// A chart of one or several series.
///
/// ```
/// use coptidice_report::svg::{Axis, Chart, LineChart, Reference, Series};
/// let steps = [(0.0, 0.3), (100.0, 0.12), (200.0, 0.09)];
/// let figure = LineChart::new("Cost", Axis::linear("training step"), Axis::linear("cost per step"))
///     .series(Series::new("estimate", steps))
///     .reference(Reference::new(0.1, "limit 0.1"))
///     .figure();
/// assert!(figure.standalone().contains("limit 0.1"));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct LineChart {
    title: String,
    x: Axis,
    y: Axis,
    series: Vec<Series>,
    references: Vec<Reference>,
    size: (f64, f64),
}

impl LineChart {
    /// An empty chart of the usual size (420 by 260 units).
    #[must_use]
    pub fn new(title: impl Into<String>, x: Axis, y: Axis) -> Self {
        Self { title: title.into(), x, y, series: Vec::new(), references: Vec::new(), size: (420.0, 260.0) }
    }

    /// Adds a series. It takes the palette's next colour unless it names one.
    #[must_use]
    pub fn series(mut self, series: Series) -> Self {
        self.series.push(series);
        self
    }

    /// Adds a value to compare with; the vertical axis will reach it.
    #[must_use]
    pub fn reference(mut self, reference: Reference) -> Self {
        self.y = self.y.including(reference.value);
        self.references.push(reference);
        self
    }

    /// Sets the size in figure units, at least 160 by 120.
    #[must_use]
    pub fn size(mut self, width: f64, height: f64) -> Self {
        self.size = (width.clamp(160.0, 4000.0), height.clamp(120.0, 4000.0));
        self
    }

    /// The palette index and the marker of each series.
    fn looks(&self) -> Vec<(usize, usize)> {
        let mut next = 0;
        self.series
            .iter()
            .enumerate()
            .map(|(i, s)| {
                let color = s.color.unwrap_or_else(|| {
                    next += 1;
                    next - 1
                });
                (color, i)
            })
            .collect()
    }

    fn description(&self) -> String {
        let mut text = format!("Line chart of {} by {}.", or_value(&self.y.label), or_value(&self.x.label));
        for series in self.series.iter().filter(|s| !s.faint) {
            text.push(' ');
            text.push_str(&describe(series));
        }
        for r in &self.references {
            text.push_str(&format!(
                " Reference line: {} at {}.",
                or_value(&r.label),
                significant(r.value, 4)
            ));
        }
        text
    }
}

fn or_value(label: &str) -> &str {
    if label.is_empty() { "value" } else { label }
}

/// A series in a sentence: where it starts and ends, and how far it reaches.
pub(crate) fn describe(series: &Series) -> String {
    let finite: Vec<_> = series.points.iter().filter(|p| p.x.is_finite() && p.y.is_finite()).collect();
    let show = |v| significant(v, 4);
    let (Some(first), Some(last)) = (finite.first(), finite.last()) else {
        return format!("{}: no data.", or_value(&series.name));
    };
    let low = finite.iter().map(|p| p.y).fold(f64::INFINITY, f64::min);
    let high = finite.iter().map(|p| p.y).fold(f64::NEG_INFINITY, f64::max);
    format!(
        "{}: {} at {}, {} at {}; lowest {}, highest {}.",
        or_value(&series.name),
        show(first.y),
        show(first.x),
        show(last.y),
        show(last.x),
        show(low),
        show(high)
    )
}

/// What of these series cannot be shown on axes with the vertical range `(low, high)`, one sentence for each reason.
pub(crate) fn omissions(series: &[Series], x: &Axis, y: &Axis, (low, high): (f64, f64)) -> Vec<String> {
    let (mut not_finite, mut not_positive, mut outside) = (0_usize, 0_usize, 0_usize);
    for point in series.iter().filter(|s| !s.derived).flat_map(|s| &s.points) {
        if !(point.x.is_finite() && point.y.is_finite()) {
            not_finite += 1;
        } else if !(x.can_show(point.x) && y.can_show(point.y)) {
            not_positive += 1;
        } else if point.y < low || point.y > high {
            outside += 1;
        }
    }
    [
        (not_finite, "not a finite number"),
        (not_positive, "without a place on a logarithmic axis"),
        (outside, "outside the vertical range"),
    ]
    .into_iter()
    .filter(|(n, _)| *n > 0)
    .map(|(n, why)| format!("{n} value{} {why}", if n == 1 { "" } else { "s" }))
    .collect()
}

impl LineChart {
    /// The legend: every line where there are several, and the references.
    fn entries(&self, looks: &[(usize, usize)]) -> Vec<Entry<'_>> {
        let named = self.series.iter().zip(looks).filter(|(s, _)| !s.faint && !s.name.is_empty());
        let mut entries: Vec<Entry<'_>> = named
            .map(|(s, &(color, shape))| Entry {
                name: &s.name,
                sample: Sample::Series { color, dashed: s.dashed, marker: s.markers.then_some(shape) },
            })
            .collect();
        // One series needs no entry: the axis or the title names it.
        if entries.len() == 1 {
            entries.clear();
        }
        entries.extend(legend::references(self.references.iter()));
        entries
    }

    /// Draws what stands above the plot and returns where that begins.
    fn draw_head(&self, canvas: &mut Canvas, entries: &[Entry<'_>]) -> f64 {
        let mut top = 6.0;
        if !entries.is_empty() {
            let width = self.size.0 - 12.0;
            legend::draw(canvas, entries, 6.0, top, width);
            top += legend::height(entries, width) + 4.0;
        }
        if !self.y.label.is_empty() {
            frame::label(canvas, false, 6.0, top + 10.0).text(&self.y.label);
            top += 16.0;
        }
        top + 6.0
    }
}

impl Chart for LineChart {
    fn figure(&self) -> Figure {
        let (width, height) = self.size;
        let looks = self.looks();
        let xs: Vec<f64> = self.series.iter().flat_map(|s| s.points.iter().map(|p| p.x)).collect();
        let ys: Vec<f64> = self.series.iter().flat_map(Series::heights).collect();
        let (x_range, y_range) = (self.x.fit(&xs, false), self.y.fit(&ys, true));

        let mut canvas = Canvas::default();
        let top = self.draw_head(&mut canvas, &self.entries(&looks));
        let bottom = if self.x.label.is_empty() { 24.0 } else { 40.0 };
        let plot_height = (height - top - bottom).max(20.0);
        let y_ticks = self.y.ticks(y_range, ((plot_height / 38.0) as usize).clamp(2, 6));
        let left = frame::label_room(&y_ticks) + 2.0;
        let area = Area { left, top, width: (width - left - 16.0).max(20.0), height: plot_height };
        let x_ticks = self.x.ticks(x_range, ((area.width / 70.0) as usize).clamp(2, 8));
        let x = Mapping::new(&self.x, x_range, area.left, area.right());
        let y = Mapping::new(&self.y, y_range, area.bottom(), area.top);

        frame::draw_y_axis(&mut canvas, area, y, &y_ticks, true);
        frame::draw_x_axis(&mut canvas, area, x, &x_ticks, true);
        frame::draw_x_label(&mut canvas, area, height - 6.0, &self.x.label);
        draw_contents(&mut canvas, area, &self.series, &looks, &self.references, (&self.x, x), (&self.y, y));
        if xs.is_empty() {
            frame::draw_no_data(&mut canvas, area);
        }
        let notes = omissions(&self.series, &self.x, &self.y, y_range);
        Figure::new(&self.title, &self.description(), self.size, canvas).with_notes(notes)
    }
}

/// Everything inside the axes, back to front. Each series comes with its colour and its marker's shape.
pub(crate) fn draw_contents(
    canvas: &mut Canvas,
    area: Area,
    series: &[Series],
    looks: &[(usize, usize)],
    references: &[Reference],
    x: (&Axis, Mapping),
    y: (&Axis, Mapping),
) {
    area.clip(canvas);
    for (s, &(color, _)) in series.iter().zip(looks) {
        frame::draw_series(canvas, s, color, x, y, area.width as usize);
    }
    Area::unclip(canvas);
    for (s, &look) in series.iter().zip(looks).filter(|(s, _)| s.markers) {
        frame::draw_markers(canvas, s, look, area, x, y);
    }
    frame::draw_references(canvas, references, area, y);
}
