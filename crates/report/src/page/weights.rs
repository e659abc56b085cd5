//! How the occupancy ratio `w = d^π / d^D` is distributed over the logged transitions.

use super::section::{Card, Section};
use crate::bins::{Bins, Summary};
use crate::number::{count, percent, significant};
use crate::svg::Histogram;
use crate::table::Status;

/// `(Σw)² / Σw²`: how many equally weighted samples carry as much information (Kish). Between 1 and the number of
/// samples with a positive weight; NaN where no weight is positive.
#[must_use]
pub fn effective_sample_size(weights: &[f64]) -> f64 {
    // Scaling by the largest keeps squares finite.
    let largest = weights.iter().copied().fold(0.0, f64::max);
    let (mut sum, mut squares) = (0.0, 0.0);
    for w in weights.iter().map(|w| w / largest) {
        sum += w;
        squares += w * w;
    }
    sum * sum / squares
}

/// The ratios of a sample of logged transitions.
///
/// ```
/// use coptidice_report::page::WeightSummary;
/// let summary = WeightSummary::of(&[0.0, 0.5, 1.5, 2.0]);
/// assert_eq!(summary.mean, 1.0);
/// assert_eq!(summary.share_zero, 0.25);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct WeightSummary {
    /// How many transitions.
    pub samples: u64,
    /// `E_{d^D}[w]`: one where the optimum is a distribution.
    pub mean: f64,
    /// The largest ratio.
    pub max: f64,
    /// Share of transitions with a ratio of zero (up to 1e-9).
    pub share_zero: f64,
    /// [`effective_sample_size`].
    pub effective_sample_size: f64,
    bins: Bins,
}

impl WeightSummary {
    /// Summarises ratios, one for each transition.
    #[must_use]
    pub fn of(weights: &[f64]) -> Self {
        // The numerical zero of clipped ratios is not a magnitude to draw.
        let (zero, shown): (Vec<f64>, Vec<f64>) = weights.iter().partition(|w| **w <= 1e-9);
        let summary = Summary::of(weights);
        let mut drawn = shown;
        drawn.extend(zero.iter().map(|_| 0.0));
        Self {
            samples: weights.len() as u64,
            mean: summary.map_or(f64::NAN, |s| s.mean),
            max: summary.map_or(f64::NAN, |s| s.max),
            share_zero: zero.len() as f64 / weights.len().max(1) as f64,
            effective_sample_size: effective_sample_size(weights),
            bins: Bins::logarithmic(&drawn, 4),
        }
    }

    /// Effective sample size over samples.
    #[must_use]
    pub fn effective_share(&self) -> f64 {
        self.effective_sample_size / self.samples.max(1) as f64
    }
}

impl From<&WeightSummary> for Section {
    fn from(summary: &WeightSummary) -> Self {
        let section = Section::new("Occupancy ratio w")
            .paragraph(
                "w says how much more often the optimum would visit a logged transition than the logs do. A mean far \
                 from 1 means that the flow equations are not met; a small effective sample size means that few \
                 transitions carry the result.",
            )
            .cards([
                Card::new("mean of w", significant(summary.mean, 4), "1 at an exact optimum; less where terminals end a discounted process"),
                Card::new("largest w", significant(summary.max, 4), ""),
                Card::new("w = 0", percent(summary.share_zero), "of transitions"),
                Card::new(
                    "effective sample size",
                    significant(summary.effective_sample_size.round(), 4),
                    format!(
                        "{} of {} transitions",
                        percent(summary.effective_share()),
                        count(summary.samples)
                    ),
                ),
            ]);
        let section = if summary.effective_share() < 0.01 {
            section.callout(
                Status::Warning,
                "The effective sample size is below 1% of the transitions: estimates rest on few of them. A larger \
                 alpha, or a larger epsilon, makes the result more careful.",
            )
        } else {
            section
        };
        section.chart(
            &Histogram::new("Occupancy ratio over logged transitions", "w", summary.bins.clone())
                .counting("transitions")
                .mark(1.0, "as in the logs"),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effective_sample_size_is_kishs() {
        assert_eq!(effective_sample_size(&[2.0; 10]), 10.0);
        assert_eq!(effective_sample_size(&[0.0, 0.0, 5.0]), 1.0);
        assert_eq!(effective_sample_size(&[1e200, 1e200]), 2.0);
        // (1 + 3)² / (1 + 9)
        assert!((effective_sample_size(&[1.0, 3.0]) - 1.6).abs() < 1e-15);
        assert!(effective_sample_size(&[]).is_nan());
        assert!(effective_sample_size(&[0.0]).is_nan());
    }

    #[test]
    fn clipped_zeros_are_zeros() {
        let summary = WeightSummary::of(&[1e-10, 1.0, 2.0]);
        assert_eq!(summary.bins.excluded().not_positive, 1);
        assert!(summary.bins.edges()[0] > 0.1);
    }
}
