//! Axes: what they measure, how far they reach, and where a value lies on them.

use super::ticks::{self, Tick};

/// One axis of a chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    pub(crate) label: String,
    pub(crate) logarithmic: bool,
    range: Option<(f64, f64)>,
    include: Vec<f64>,
    marks: Option<Vec<f64>>,
    robust: bool,
}

impl Axis {
    /// An axis of equal differences.
    #[must_use]
    pub fn linear(label: impl Into<String>) -> Self {
        Self {
            label: label.into(),
            logarithmic: false,
            range: None,
            include: Vec::new(),
            marks: None,
            robust: false,
        }
    }

    /// An axis of equal ratios. What is not positive cannot be drawn on it.
    #[must_use]
    pub fn logarithmic(label: impl Into<String>) -> Self {
        Self { logarithmic: true, ..Self::linear(label) }
    }

    /// Fixes the range instead of fitting it to the data. A range that is empty or not finite is ignored, and so is
    /// one that is not positive on a logarithmic axis.
    #[must_use]
    pub fn range(mut self, low: f64, high: f64) -> Self {
        if low < high && self.can_show(low) && self.can_show(high) {
            self.range = Some((low, high));
        }
        self
    }

    /// Makes the fitted range reach to `value`.
    #[must_use]
    pub fn including(mut self, value: f64) -> Self {
        self.include.push(value);
        self
    }

    /// Puts the labelled marks at these values.
    #[must_use]
    pub fn marks(mut self, values: impl IntoIterator<Item = f64>) -> Self {
        self.marks = Some(values.into_iter().collect());
        self
    }

    /// Fits the range to the middle 90% of the values where single ones would flatten the rest, as the first losses
    /// of a training do. How many lie outside is said in the figure's notes.
    #[must_use]
    pub fn robust(mut self) -> Self {
        self.robust = true;
        self
    }

    /// Whether a value has a place on this axis.
    pub(crate) fn can_show(&self, value: f64) -> bool {
        value.abs() <= HUGE && (!self.logarithmic || value > 1.0 / HUGE)
    }

    /// The range for these values. `pad` leaves air and widens to round numbers, as a vertical axis does.
    pub(crate) fn fit(&self, values: &[f64], pad: bool) -> (f64, f64) {
        if let Some((low, high)) = self.range {
            return (low, high);
        }
        let mut shown: Vec<f64> = values.iter().copied().filter(|&v| self.can_show(v)).collect();
        shown.sort_by(f64::total_cmp);
        let included = self.include.iter().copied().filter(|&v| self.can_show(v));
        let ends = shown.first().copied().zip(shown.last().copied());
        let Some((mut low, mut high)) = ends.or_else(|| included.clone().next().map(|v| (v, v))) else {
            return if self.logarithmic { (1.0, 10.0) } else { (0.0, 1.0) };
        };
        if self.robust && shown.len() >= 20 {
            let cut = shown.len() / 20;
            let (inner_low, inner_high) = (shown[cut], shown[shown.len() - 1 - cut]);
            if inner_high > inner_low && self.span(low, high) > 5.0 * self.span(inner_low, inner_high) {
                (low, high) = (inner_low, inner_high);
            }
        }
        for value in included {
            low = low.min(value);
            high = high.max(value);
        }
        if self.logarithmic { widen_log(low, high, pad) } else { self.widen_linear(low, high, pad) }
    }

    fn span(&self, low: f64, high: f64) -> f64 {
        if self.logarithmic { high.ln() - low.ln() } else { high - low }
    }

    fn widen_linear(&self, low: f64, high: f64, pad: bool) -> (f64, f64) {
        let size = low.abs().max(high.abs());
        if size < 1.0 / HUGE {
            return (0.0, 1.0);
        }
        if high - low <= size * 1e-9 {
            // A constant: give it a range in which it runs through the middle.
            return (low - size * 0.1, high + size * 0.1);
        }
        if !pad {
            return (low, high);
        }
        let air = 0.04 * (high - low);
        // Data that begin at zero keep zero for their floor, and so do included values.
        let bottom = if low == 0.0 || self.include.contains(&low) { low } else { low - air };
        let top = if high == 0.0 { high } else { high + air };
        let bottom = if low > 0.0 { bottom.max(0.0) } else { bottom };
        ticks::widen(bottom, top, 8)
    }

    pub(crate) fn ticks(&self, (low, high): (f64, f64), wanted: usize) -> Vec<Tick> {
        match &self.marks {
            Some(values) => {
                let inside = |v: &f64| *v >= low && *v <= high;
                ticks::at(&values.iter().copied().filter(inside).collect::<Vec<_>>())
            }
            None if self.logarithmic => ticks::logarithmic(low, high, wanted),
            None => ticks::linear(low, high, wanted),
        }
    }
}

/// Beyond this, differences and ratios of numbers need not be finite.
const HUGE: f64 = 1e150;

fn widen_log(low: f64, high: f64, pad: bool) -> (f64, f64) {
    if high.ln() - low.ln() < 1e-9 {
        return (low / 2.0, high * 2.0);
    }
    let air = if pad { (0.04 * (high.ln() - low.ln())).exp() } else { 1.0 };
    (low / air, high * air)
}

/// Where values lie on the page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mapping {
    logarithmic: bool,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Mapping {
    /// Puts `low` at `from` and `high` at `to`.
    pub(crate) fn new(axis: &Axis, (low, high): (f64, f64), from: f64, to: f64) -> Self {
        Self { logarithmic: axis.logarithmic, low, high, from, to }
    }

    pub(crate) fn at(&self, value: f64) -> f64 {
        let share = if self.logarithmic {
            // Differences of logarithms: the ratio of a range of 300 decades and its padding overflows.
            (value.ln() - self.low.ln()) / (self.high.ln() - self.low.ln())
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.from + share * (self.to - self.from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ranges_are_what_a_reader_expects() {
        let fit = |axis: &Axis, values: &[f64]| axis.fit(values, true);
        assert_eq!(fit(&Axis::linear(""), &[0.0, 0.083]), (0.0, 0.1));
        assert_eq!(fit(&Axis::linear("").including(0.0), &[3.0, 4.0]), (0.0, 5.0));
        assert_eq!(fit(&Axis::linear(""), &[]), (0.0, 1.0));
        assert_eq!(fit(&Axis::linear(""), &[5.0]), (4.5, 5.5));
        assert_eq!(fit(&Axis::linear("").range(0.0, 2.0), &[1.0, 3.0, f64::NAN]), (0.0, 2.0));
        let mut losses = vec![1e6];
        losses.extend((0..99).map(f64::from));
        assert_eq!(fit(&Axis::linear("").robust(), &losses), (0.0, 100.0));
        assert!(fit(&Axis::linear(""), &losses).1 >= 1e6);
    }

    proptest! {
        /// Whatever the data, ranges are proper and finite, and every drawable value maps to a finite place.
        #[test]
        fn any_data_can_be_placed(
            values in prop::collection::vec(prop::num::f64::ANY, 0..40),
            log in any::<bool>(), robust in any::<bool>(), pad in any::<bool>(),
        ) {
            let mut axis = if log { Axis::logarithmic("x") } else { Axis::linear("x") };
            axis.robust = robust;
            let (low, high) = axis.fit(&values, pad);
            prop_assert!(low < high && low.is_finite() && high.is_finite(), "{low} {high}");
            let map = Mapping::new(&axis, (low, high), 0.0, 100.0);
            for &v in values.iter().filter(|&&v| axis.can_show(v)) {
                prop_assert!(map.at(v).is_finite());
            }
            for tick in axis.ticks((low, high), 5) {
                prop_assert!((-0.1..=100.1).contains(&map.at(tick.value)), "{tick:?}");
            }
        }
    }
}
