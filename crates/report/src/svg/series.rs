//! Series of points, and reference lines.

use super::axis::Axis;

/// A named line through points, with or without an interval about each.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    pub(crate) name: String,
    pub(crate) points: Vec<Point>,
    pub(crate) color: Option<usize>,
    pub(crate) interval: Interval,
    pub(crate) dashed: bool,
    pub(crate) faint: bool,
    pub(crate) markers: bool,
    /// Computed from another series of the same figure, whose omissions are reported there.
    pub(crate) derived: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Point {
    pub(crate) x: f64,
    pub(crate) y: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interval {
    None,
    Band,
    Bars,
}

impl Series {
    /// A line through `(x, y)`. Points that are not finite interrupt it.
    #[must_use]
    pub fn new(name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        let points = points.into_iter().map(|(x, y)| Point { x, y, low: y, high: y }).collect();
        Self {
            name: name.into(),
            points,
            color: None,
            interval: Interval::None,
            dashed: false,
            faint: false,
            markers: false,
            derived: false,
        }
    }

    /// A line through values by training step.
    #[must_use]
    pub fn by_step(name: impl Into<String>, points: &[(u64, f64)]) -> Self {
        Self::new(name, points.iter().map(|&(step, value)| (step as f64, value)))
    }

    /// Shades `(low, high)` about the points, in their order. Points beyond the last interval get none.
    #[must_use]
    pub fn band(mut self, intervals: impl IntoIterator<Item = (f64, f64)>) -> Self {
        for (point, (low, high)) in self.points.iter_mut().zip(intervals) {
            (point.low, point.high) = (low, high);
        }
        self.interval = Interval::Band;
        self
    }

    /// Error bars of these half-lengths about the points, in their order. Points beyond the last get none.
    #[must_use]
    pub fn error_bars(mut self, errors: impl IntoIterator<Item = f64>) -> Self {
        for (point, error) in self.points.iter_mut().zip(errors) {
            (point.low, point.high) = (point.y - error, point.y + error);
        }
        self.interval = Interval::Bars;
        self
    }

    /// Takes this colour of the palette (0–5, or [`super::NEUTRAL`]) instead of the series' turn.
    #[must_use]
    pub fn color(mut self, index: usize) -> Self {
        self.color = Some(index);
        self
    }

    /// Dashes the line.
    #[must_use]
    pub fn dashed(mut self) -> Self {
        self.dashed = true;
        self
    }

    /// Draws it thin and pale: raw values behind their average. It gets no entry in the legend.
    #[must_use]
    pub fn faint(mut self) -> Self {
        self.faint = true;
        self
    }

    /// Marks each point, with a shape of its own for each series.
    #[must_use]
    pub fn markers(mut self) -> Self {
        self.markers = true;
        self
    }

    /// The exponential moving average of this series, corrected for its start (Kingma and Ba's bias correction), so
    /// that a value weighs `decay` times the one after it. Values that are not finite are passed over.
    #[must_use]
    pub fn averaged(&self, decay: f64) -> Self {
        let decay = if decay.is_finite() { decay.clamp(0.0, 0.9999) } else { 0.0 };
        let (mut sum, mut weight) = (0.0, 0.0);
        let mut points = Vec::with_capacity(self.points.len());
        for point in self.points.iter().filter(|p| p.y.is_finite()) {
            sum = decay * sum + (1.0 - decay) * point.y;
            weight = decay * weight + (1.0 - decay);
            let y = sum / weight;
            points.push(Point { x: point.x, y, low: y, high: y });
        }
        Self { points, interval: Interval::None, faint: false, derived: true, ..self.clone() }
    }

    /// Everything the vertical axis should reach.
    pub(crate) fn heights(&self) -> impl Iterator<Item = f64> + '_ {
        let with_interval = self.interval != Interval::None;
        self.points.iter().flat_map(move |p| {
            let ends = with_interval.then_some([p.low, p.high]);
            std::iter::once(p.y).chain(ends.into_iter().flatten())
        })
    }

    /// Runs of consecutive points that can be drawn.
    pub(crate) fn runs(&self, x: &Axis, y: &Axis) -> Vec<&[Point]> {
        self.points.split(|p| !(x.can_show(p.x) && y.can_show(p.y))).filter(|run| !run.is_empty()).collect()
    }
}

/// At most about `2 * columns` points that draw the same picture: of each column's points the lowest and the
/// highest, in order, with the first and the last point kept.
pub(crate) fn thin_out(run: &[Point], columns: usize) -> Vec<Point> {
    if run.len() <= 3 * columns {
        return run.to_vec();
    }
    let mut kept = Vec::with_capacity(2 * columns + 2);
    let (first, last) = (run[0], run[run.len() - 1]);
    kept.push(first);
    for column in 0..columns {
        let start = column * run.len() / columns;
        let chunk = &run[start..(column + 1) * run.len() / columns];
        let by_height = |a: &(usize, &Point), b: &(usize, &Point)| a.1.y.total_cmp(&b.1.y);
        let lowest = chunk.iter().enumerate().min_by(by_height);
        let highest = chunk.iter().enumerate().max_by(by_height);
        if let (Some((i, low)), Some((j, high))) = (lowest, highest) {
            kept.extend(if i <= j { [*low, *high] } else { [*high, *low] });
        }
    }
    kept.push(last);
    kept.dedup();
    kept
}

/// A value to compare with: a limit, a target, the behaviour's own level.
#[derive(Clone, Debug, PartialEq)]
pub struct Reference {
    pub(crate) value: f64,
    pub(crate) label: String,
}

impl Reference {
    /// A dashed line at `value`; lines of one label share an entry in the legend.
    #[must_use]
    pub fn new(value: f64, label: impl Into<String>) -> Self {
        Self { value, label: label.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_stay_gaps() {
        let series = Series::new("s", [(0.0, 1.0), (1.0, f64::NAN), (2.0, 3.0), (3.0, -1.0), (4.0, 2.0)]);
        let lengths =
            |y: &Axis| series.runs(&Axis::linear(""), y).iter().map(|r| r.len()).collect::<Vec<_>>();
        assert_eq!(lengths(&Axis::linear("")), [1, 3]);
        assert_eq!(lengths(&Axis::logarithmic("")), [1, 1, 1]);
    }

    #[test]
    fn thinning_keeps_ends_and_extremes() {
        let mut points: Vec<_> = (0..100_000).map(|i| (f64::from(i), f64::from(i % 7))).collect();
        points[54_321].1 = 1e9;
        let series = Series::new("s", points);
        let thin = thin_out(&series.points, 300);
        assert!(thin.len() <= 602);
        assert_eq!((thin[0].x, thin[thin.len() - 1].x), (0.0, 99_999.0));
        assert!(thin.iter().any(|p| p.y == 1e9));
        assert!(thin.windows(2).all(|p| p[0].x <= p[1].x));
    }

    #[test]
    fn averages_start_at_the_first_value() {
        let average = Series::new("s", [(0.0, 4.0), (1.0, f64::NAN), (2.0, 0.0)]).averaged(0.5);
        assert_eq!(average.points.len(), 2);
        assert_eq!(average.points[0].y, 4.0);
        // Weights 1/2 and 1 (the newer), normalised.
        assert!((average.points[1].y - 4.0 / 3.0).abs() < 1e-15);
    }
}
