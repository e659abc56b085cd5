//! Binning a sample, once for the page's histogram and the terminal's.

/// Numbers beyond this count as not finite: their differences and powers would be.
const LARGEST: f64 = 1e300;

/// A sample cut into bins. Bin `i` covers `edges[i] .. edges[i+1]`, the last one including its upper edge.
#[derive(Clone, Debug, PartialEq)]
pub struct Bins {
    edges: Vec<f64>,
    counts: Vec<u64>,
    logarithmic: bool,
    integers: bool,
    excluded: Excluded,
    summary: Option<Summary>,
}

/// What a histogram leaves out, so that a figure can say so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Excluded {
    /// Values far below the rest.
    pub below: u64,
    /// Values far above the rest.
    pub above: u64,
    /// Values at or below zero, where bins are logarithmic.
    pub not_positive: u64,
    /// NaN, infinities, and numbers beyond 1e300.
    pub not_finite: u64,
}

/// The sample in five numbers; of finite values only.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Finite values.
    pub count: u64,
    /// Their mean.
    pub mean: f64,
    /// Their standard deviation (divisor `n`).
    pub deviation: f64,
    /// The smallest.
    pub min: f64,
    /// The median.
    pub median: f64,
    /// The largest.
    pub max: f64,
}

impl Summary {
    /// Summarises the finite values of a sample; `None` where there is none.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        Self::of_sorted(&sorted_finite(values))
    }

    fn of_sorted(sorted: &[f64]) -> Option<Self> {
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        let n = sorted.len() as f64;
        // Dividing first keeps sums of huge values finite.
        let mean = sorted.iter().map(|v| v / n).sum::<f64>();
        let variance = sorted.iter().map(|v| (v - mean) * (v - mean) / n).sum::<f64>();
        Some(Self {
            count: sorted.len() as u64,
            mean,
            deviation: variance.sqrt(),
            min,
            median: quantile(sorted, 0.5),
            max,
        })
    }
}

impl Bins {
    /// Bins of equal, round width: about `wanted` of them, fewer where the sample is small (Freedman–Diaconis).
    ///
    /// A sample of few distinct integers gets one bin for each. Where single values lie so far out that the rest
    /// would fall into one or two bins, they are left out and counted in [`Bins::excluded`].
    #[must_use]
    pub fn linear(values: &[f64], wanted: usize) -> Self {
        let sorted = sorted_finite(values);
        let mut bins = Self::empty(values.len() - sorted.len(), false);
        bins.summary = Summary::of_sorted(&sorted);
        let Some(core) = without_outliers(&sorted) else { return bins };
        let (low, high) = (sorted[core.start], sorted[core.end - 1]);
        bins.excluded.below = core.start as u64;
        bins.excluded.above = (sorted.len() - core.end) as u64;
        let integers = sorted[core.clone()].iter().all(|v| v.fract() == 0.0 && v.abs() < 1e15);
        bins.integers = integers;
        let wanted = wanted.clamp(1, 200);
        bins.edges = if integers && high - low < wanted as f64 {
            unit_edges(low, high)
        } else {
            round_edges(low, high, bin_width(&sorted[core.clone()], wanted), integers)
        };
        bins.fill(&sorted[core]);
        bins
    }

    /// Bins of equal ratio, `per_decade` to a power of ten, for positive values that spread over magnitudes.
    #[must_use]
    pub fn logarithmic(values: &[f64], per_decade: u32) -> Self {
        let sorted = sorted_finite(values);
        let mut bins = Self::empty(values.len() - sorted.len(), true);
        bins.summary = Summary::of_sorted(&sorted);
        let first_positive = sorted.partition_point(|&v| v <= 0.0);
        bins.excluded.not_positive = first_positive as u64;
        let positive = &sorted[first_positive..];
        let (Some(&low), Some(&high)) = (positive.first(), positive.last()) else { return bins };
        let per_decade = per_decade.clamp(1, 20) as i32;
        let index = |v: f64| (v.log10() * f64::from(per_decade)).floor() as i32;
        // Twelve decades are more than a picture can show; what lies lower is counted apart.
        let (bottom, top) = (index(low.max(1.0 / LARGEST)), index(high.max(1.0 / LARGEST)) + 1);
        let first = bottom.max(top - 12 * per_decade);
        bins.edges = (first..=top).map(|i| 10_f64.powf(f64::from(i) / f64::from(per_decade))).collect();
        // Powers are rounded: an extreme value must not fall out of its own bin.
        if first == bottom && low >= 1.0 / LARGEST {
            bins.edges[0] = bins.edges[0].min(low);
        }
        if let Some(edge) = bins.edges.last_mut() {
            *edge = edge.max(high);
        }
        let start = positive.partition_point(|&v| v < bins.edges[0]);
        bins.excluded.below = start as u64;
        bins.fill(&positive[start..]);
        bins
    }

    /// The bins' edges, one more than there are bins; empty for a sample without finite values.
    #[must_use]
    pub fn edges(&self) -> &[f64] {
        &self.edges
    }

    /// How many values fell into each bin.
    #[must_use]
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// Whether bins have equal ratio instead of equal width.
    #[must_use]
    pub fn is_logarithmic(&self) -> bool {
        self.logarithmic
    }

    /// Whether every binned value is an integer.
    #[must_use]
    pub fn is_integer(&self) -> bool {
        self.integers
    }

    /// What was left out.
    #[must_use]
    pub fn excluded(&self) -> Excluded {
        self.excluded
    }

    /// The sample in numbers, outliers included; `None` without finite values.
    #[must_use]
    pub fn summary(&self) -> Option<Summary> {
        self.summary
    }

    /// One sentence for each kind of value that is left out.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let Excluded { below, above, not_positive, not_finite } = self.excluded;
        let plural = |n: u64| if n == 1 { "value" } else { "values" };
        let mut notes = Vec::new();
        let range = self.edges.first().zip(self.edges.last());
        if let (Some((low, high)), Some(s)) = (range, self.summary) {
            let show = |v: f64| crate::number::significant(v, 4);
            if below > 0 {
                let (least, low) = (show(s.min), show(*low));
                notes.push(format!("{below} {} below {low} not drawn (least {least})", plural(below)));
            }
            if above > 0 {
                let (most, high) = (show(s.max), show(*high));
                notes.push(format!("{above} {} above {high} not drawn (largest {most})", plural(above)));
            }
        }
        if not_positive > 0 {
            let share = self.summary.map_or(0.0, |s| not_positive as f64 / s.count as f64);
            let (n, share) = (crate::number::count(not_positive), crate::number::percent(share));
            notes.push(format!("{n} {} ({share}) at or below zero not drawn", plural(not_positive)));
        }
        if not_finite > 0 {
            notes.push(format!("{not_finite} {} not a finite number", plural(not_finite)));
        }
        notes
    }

    fn empty(not_finite: usize, logarithmic: bool) -> Self {
        Self {
            edges: Vec::new(),
            counts: Vec::new(),
            logarithmic,
            integers: false,
            excluded: Excluded { not_finite: not_finite as u64, ..Excluded::default() },
            summary: None,
        }
    }

    /// Counts `sorted` values, all of which lie between the first and the last edge.
    fn fill(&mut self, sorted: &[f64]) {
        let bins = self.edges.len().saturating_sub(1);
        let below = |edge: f64| sorted.partition_point(|&v| v < edge);
        self.counts = (0..bins)
            .map(|i| {
                let start = if i == 0 { 0 } else { below(self.edges[i]) };
                let end = if i + 1 == bins { sorted.len() } else { below(self.edges[i + 1]) };
                (end - start) as u64
            })
            .collect();
    }
}

fn sorted_finite(values: &[f64]) -> Vec<f64> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|v| v.abs() <= LARGEST).collect();
    sorted.sort_by(f64::total_cmp);
    sorted
}

fn quantile(sorted: &[f64], share: f64) -> f64 {
    let position = share * (sorted.len() - 1) as f64;
    let (low, high) = (position.floor() as usize, position.ceil() as usize);
    let part = position - position.floor();
    sorted[low] * (1.0 - part) + sorted[high] * part
}

/// The range of a sorted sample without values more than ten times the spread of its middle 90% away from it.
///
/// A histogram of at most 40 bins would show such a sample as one bar and a speck. `None` for an empty sample.
fn without_outliers(sorted: &[f64]) -> Option<std::ops::Range<usize>> {
    if sorted.is_empty() {
        return None;
    }
    let (p5, p95) = (quantile(sorted, 0.05), quantile(sorted, 0.95));
    let reach = 10.0 * (p95 - p5);
    if reach <= 0.0 || !reach.is_finite() {
        return Some(0..sorted.len());
    }
    let start = sorted.partition_point(|&v| v < p5 - reach);
    let end = sorted.partition_point(|&v| v <= p95 + reach);
    Some(start..end)
}

/// Freedman–Diaconis, but no more than `wanted` bins, and a tenth of the range where the quartiles coincide.
fn bin_width(sorted: &[f64], wanted: usize) -> f64 {
    let range = sorted[sorted.len() - 1] - sorted[0];
    let spread = quantile(sorted, 0.75) - quantile(sorted, 0.25);
    let rule = 2.0 * spread / (sorted.len() as f64).cbrt();
    let least = range / wanted as f64;
    let most = (range / 10.0).max(least);
    if rule > 0.0 { rule.clamp(least, most) } else { most }
}

fn unit_edges(low: f64, high: f64) -> Vec<f64> {
    let bins = (high - low) as usize + 1;
    (0..=bins).map(|i| low - 0.5 + i as f64).collect()
}

/// Edges at multiples of the round number next above `width`, or the one bin that a constant sample needs.
fn round_edges(low: f64, high: f64, width: f64, integers: bool) -> Vec<f64> {
    let width = if integers { width.max(1.0) } else { width };
    if !(width > 1.0 / LARGEST && width.is_finite()) || low + width / 4.0 == low || high + width / 4.0 == high
    {
        let half = (low.abs() * 0.05).max(0.5);
        return vec![low - half, high + half];
    }
    let step = crate::svg::ticks::round_step(width, integers);
    let first = (low / step).floor();
    let mut last = (high / step).ceil();
    if last <= first {
        last = first + 1.0;
    }
    (0..=(last - first) as usize).map(|i| (first + i as f64) * step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn few_integers_get_a_bin_each() {
        let bins = Bins::linear(&[3.0, 3.0, 5.0, 4.0], 20);
        assert_eq!(bins.edges(), [2.5, 3.5, 4.5, 5.5]);
        assert_eq!(bins.counts(), [2, 1, 1]);
        assert!(bins.is_integer());
    }

    #[test]
    fn one_absurd_reward_does_not_flatten_the_rest() {
        let mut values: Vec<f64> = (0..100).map(f64::from).collect();
        values.push(1e12);
        let bins = Bins::linear(&values, 20);
        assert_eq!(bins.excluded().above, 1);
        assert!(bins.counts().len() >= 8, "{:?}", bins.edges());
        assert_eq!(bins.notes(), ["1 value above 100 not drawn (largest 1×10¹²)"]);
    }

    #[test]
    fn zeros_are_counted_apart_from_magnitudes() {
        let bins = Bins::logarithmic(&[0.0, 0.0, 0.01, 0.5, 5.0, f64::NAN], 1);
        assert_eq!(bins.counts().iter().sum::<u64>(), 3);
        assert_eq!(bins.excluded(), Excluded { not_positive: 2, not_finite: 1, ..Excluded::default() });
        assert_eq!(bins.notes()[0], "2 values (40%) at or below zero not drawn");
    }

    #[test]
    fn summaries_have_the_usual_meaning() {
        let summary = Summary::of(&[1.0, 2.0, 3.0, 10.0, f64::NAN]).unwrap();
        assert_eq!((summary.count, summary.mean, summary.median), (4, 4.0, 2.5));
        assert_eq!(summary.deviation, 12.5_f64.sqrt());
        assert!(Summary::of(&[f64::INFINITY]).is_none());
    }

    proptest! {
        /// Every value is counted exactly once, whatever the sample.
        #[test]
        fn nothing_is_lost(values in prop::collection::vec(prop::num::f64::ANY, 0..60), wanted in 1_usize..50) {
            for bins in [Bins::linear(&values, wanted), Bins::logarithmic(&values, 3)] {
                let e = bins.excluded();
                let total = bins.counts().iter().sum::<u64>() + e.below + e.above + e.not_positive + e.not_finite;
                prop_assert_eq!(total, values.len() as u64);
                prop_assert!(bins.edges().windows(2).all(|e| e[0] < e[1]), "{:?}", bins.edges());
            }
        }

        /// Bin counts agree with counting by definition.
        #[test]
        fn counts_match_the_definition(values in prop::collection::vec(-50.0..50.0f64, 1..80)) {
            let bins = Bins::linear(&values, 12);
            let (edges, last) = (bins.edges(), bins.counts().len() - 1);
            for (i, &count) in bins.counts().iter().enumerate() {
                let inside = values.iter().filter(|&&v| {
                    v >= edges[i] && (v < edges[i + 1] || (i == last && v <= edges[i + 1]))
                });
                prop_assert_eq!(inside.count() as u64, count);
            }
            prop_assert!(bins.counts().len() <= 14);
        }
    }
}
