//! The line a reader came for: what was made, what its limits are, and whether it keeps them.

use super::section::figure_context;
use crate::number::significant;
use crate::svg::{Chart, LimitGauge};
use crate::table::Status;
use coptidice_core::{CostLimit, LimitUnit};
use minijinja::{Value, context};

/// A cost limit in both units.
#[derive(Clone, Debug, PartialEq)]
pub struct LimitReading {
    /// The cost's name.
    pub cost: String,
    /// The unit in which the limit was given, and in which it is judged.
    pub unit: LimitUnit,
    /// The limit per step.
    pub per_step: f64,
    /// The limit per episode.
    pub per_episode: f64,
    /// Steps of an episode, by which the two differ.
    pub mean_steps: f64,
}

impl LimitReading {
    /// Reads a limit in both units, for episodes of `mean_steps` on average.
    #[must_use]
    pub fn new(cost: impl Into<String>, limit: CostLimit, mean_steps: f64) -> Self {
        let (per_step, per_episode) = limit.both_readings(mean_steps);
        let (unit, mean_steps) = match limit {
            CostLimit::PerStep { .. } => (LimitUnit::Step, mean_steps),
            CostLimit::PerEpisode { horizon, .. } => (LimitUnit::Episode, horizon.mean_steps()),
        };
        Self { cost: cost.into(), unit, per_step, per_episode, mean_steps }
    }

    /// The limit in the unit in which it was given.
    #[must_use]
    pub fn value(&self) -> f64 {
        match self.unit {
            LimitUnit::Step => self.per_step,
            LimitUnit::Episode => self.per_episode,
        }
    }

    /// "0.1 per step (100 per episode of 1000 steps)", the given unit first.
    #[must_use]
    pub fn text(&self) -> String {
        let show = |v| significant(v, 4);
        let steps = show(self.mean_steps);
        match self.unit {
            LimitUnit::Step => {
                format!(
                    "{} per step ({} per episode of {steps} steps)",
                    show(self.per_step),
                    show(self.per_episode)
                )
            }
            LimitUnit::Episode => {
                format!(
                    "{} per episode ({} per step at {steps} steps)",
                    show(self.per_episode),
                    show(self.per_step)
                )
            }
        }
    }

    /// A value of the limit's unit, in both units.
    fn both(&self, value: f64) -> String {
        let show = |v| significant(v, 4);
        match self.unit {
            LimitUnit::Step => {
                format!("{} per step ({} per episode)", show(value), show(value * self.mean_steps))
            }
            LimitUnit::Episode => {
                format!("{} per episode ({} per step)", show(value), show(value / self.mean_steps))
            }
        }
    }
}

/// Where a figure comes from, and so what it is worth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Evidence {
    /// The optimiser's estimate of its optimum, from the logs it was fitted to. The extracted policy may differ.
    Optimum,
    /// The policy, by values fitted to logs.
    Fitted {
        /// Whether the policy was trained on other episodes.
        held_out: bool,
    },
    /// The policy on the model that was estimated from the logs.
    Model,
    /// The policy on the known model.
    Exact,
    /// The policy in a simulator.
    Simulated {
        /// How many episodes were run.
        episodes: u64,
    },
    /// The policy on logs that were held out, by off-policy evaluation.
    HeldOut {
        /// Confidence of the upper bound, in (0, 1).
        confidence: f64,
    },
}

impl Evidence {
    fn text(self) -> String {
        match self {
            Evidence::Optimum => "estimated at the optimum, from the logs trained on".to_owned(),
            Evidence::Fitted { held_out: true } => {
                "the policy, by fitted Q evaluation on held-out episodes".to_owned()
            }
            Evidence::Fitted { held_out: false } => {
                "the policy, by fitted Q evaluation on the logs trained on".to_owned()
            }
            Evidence::Model => "on the model estimated from the logs".to_owned(),
            Evidence::Exact => "exact, on the known model".to_owned(),
            Evidence::Simulated { episodes: 1 } => "measured in 1 simulated episode".to_owned(),
            Evidence::Simulated { episodes } => {
                format!("measured in {} simulated episodes", crate::number::count(episodes))
            }
            Evidence::HeldOut { confidence } => {
                format!("from held-out logs, bound at {} confidence", crate::number::percent(confidence))
            }
        }
    }
}

/// How a cost stands to its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The estimate and its upper bound keep the limit; or a measured or exact cost does.
    Kept,
    /// The estimate keeps the limit, but its upper bound does not, or there is none.
    EstimateOnly,
    /// The estimate exceeds the limit.
    Exceeded,
    /// The estimate or its bound is not a number.
    Unknown,
}

impl Standing {
    fn status(self) -> Status {
        match self {
            Standing::Kept => Status::Good,
            Standing::EstimateOnly | Standing::Unknown => Status::Warning,
            Standing::Exceeded => Status::Bad,
        }
    }
}

/// A cost against its limit.
#[derive(Clone, Debug, PartialEq)]
pub struct CostReading {
    /// The limit.
    pub limit: LimitReading,
    /// The cost, in the limit's own unit.
    pub estimate: f64,
    /// Its upper bound, in the limit's own unit.
    pub upper_bound: Option<f64>,
    /// Where the figures come from.
    pub evidence: Evidence,
    /// By how much a figure may exceed the limit and count as at it, in the limit's own unit: the error of the
    /// computation, not of the estimate. A constraint that binds is met only up to that.
    pub tolerance: f64,
}

impl CostReading {
    /// How the cost stands to its limit.
    #[must_use]
    pub fn standing(&self) -> Standing {
        let keeps = |value: f64| value <= self.limit.value() + self.tolerance;
        let measured =
            matches!(self.evidence, Evidence::Model | Evidence::Exact | Evidence::Simulated { .. });
        match self.upper_bound {
            _ if self.estimate.is_nan() => Standing::Unknown,
            _ if !keeps(self.estimate) => Standing::Exceeded,
            Some(bound) if bound.is_nan() => Standing::Unknown,
            Some(bound) if keeps(bound) => Standing::Kept,
            None if measured => Standing::Kept,
            _ => Standing::EstimateOnly,
        }
    }

    /// The judgement in a few words.
    #[must_use]
    pub fn judgement(&self) -> String {
        let at_limit = |value: f64| value > self.limit.value();
        let slack = || format!(" (to within {})", significant(self.tolerance, 2));
        match (self.standing(), self.upper_bound) {
            (Standing::Kept, Some(bound)) if at_limit(bound) || at_limit(self.estimate) => {
                format!("estimate and upper bound keep the limit{}", slack())
            }
            (Standing::Kept, Some(_)) => "estimate and upper bound keep the limit".to_owned(),
            (Standing::Kept, None) if at_limit(self.estimate) => format!("keeps the limit{}", slack()),
            (Standing::Kept, None) => "keeps the limit".to_owned(),
            (Standing::EstimateOnly, Some(_)) => {
                "estimate keeps the limit, its upper bound does not".to_owned()
            }
            (Standing::EstimateOnly, None) => {
                "estimate keeps the limit; no upper bound was computed".to_owned()
            }
            (Standing::Exceeded, _) => "exceeds the limit".to_owned(),
            (Standing::Unknown, _) => "cannot be judged: a figure is not a number".to_owned(),
        }
    }

    /// The figures in a sentence, in both units.
    #[must_use]
    pub fn sentence(&self) -> String {
        let bound =
            self.upper_bound.map_or(String::new(), |b| format!(", upper bound {}", self.limit.both(b)));
        format!(
            "{}{bound}; limit {}; {}.",
            self.limit.both(self.estimate),
            self.limit.text(),
            self.evidence.text()
        )
    }

    fn context(&self) -> Value {
        let status = self.standing().status();
        let gauge = LimitGauge::new(
            format!("{} per {}", self.limit.cost, self.limit.unit),
            self.limit.value(),
            self.estimate,
            self.upper_bound,
        );
        context! {
            cost => self.limit.cost.as_str(),
            judgement => self.judgement(),
            sentence => self.sentence(),
            status => status.class(),
            symbol => status.symbol(),
            gauge => figure_context(&gauge.figure()),
        }
    }
}

/// What was made and how its costs stand.
///
/// ```
/// use coptidice_core::{CostLimit, EpisodeHorizon, LimitUnit};
/// use coptidice_report::page::{CostReading, Evidence, LimitReading, Standing, Verdict};
/// let limit = CostLimit::new(0.1, LimitUnit::Step, EpisodeHorizon::Fixed(1000.0))?;
/// let reading = CostReading {
///     limit: LimitReading::new("violation", limit, 1000.0),
///     estimate: 0.083,
///     upper_bound: Some(0.0971),
///     evidence: Evidence::Optimum,
///     tolerance: 1e-3,
/// };
/// assert_eq!(reading.standing(), Standing::Kept);
/// let verdict = Verdict::new("COptiDICE, 20,000 steps, seed 0").cost(reading);
/// # Ok::<(), coptidice_core::LimitError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    made: String,
    costs: Vec<CostReading>,
    remarks: Vec<String>,
}

impl Verdict {
    /// A verdict on what was `made`, without any limit yet.
    #[must_use]
    pub fn new(made: impl Into<String>) -> Self {
        Self { made: made.into(), costs: Vec::new(), remarks: Vec::new() }
    }

    /// Adds a cost and its limit. One cost may be read several times, by different evidence.
    #[must_use]
    pub fn cost(mut self, reading: CostReading) -> Self {
        self.costs.push(reading);
        self
    }

    /// Adds a remark.
    #[must_use]
    pub fn remark(mut self, text: impl Into<String>) -> Self {
        self.remarks.push(text.into());
        self
    }

    /// The worst standing of all readings, as a status; neutral without any.
    #[must_use]
    pub fn status(&self) -> Status {
        self.costs.iter().map(|c| c.standing().status()).max().unwrap_or(Status::Neutral)
    }

    /// The whole verdict as one line: for a page's head and for a terminal.
    #[must_use]
    pub fn line(&self) -> String {
        match self.costs.as_slice() {
            [] => format!("{}: no cost limit was set", self.made),
            [only] => format!("{}: {} {}", self.made, only.limit.cost, only.judgement()),
            many => {
                let kept = many.iter().filter(|c| c.standing() == Standing::Kept).count();
                format!("{}: {kept} of {} cost readings keep their limits", self.made, many.len())
            }
        }
    }

    pub(super) fn context(&self) -> Value {
        let mut remarks = self.remarks.clone();
        // Neither the optimum nor a fit is the policy at work: say so wherever there is nothing else.
        let only =
            |of: fn(Evidence) -> bool| !self.costs.is_empty() && self.costs.iter().all(|c| of(c.evidence));
        if only(|evidence| evidence == Evidence::Optimum) {
            remarks.push(
                "These figures are the optimiser's own, at its optimum and on the logs it was fitted to. They are \
                 no measurement of the policy that was extracted: evaluate it, or bound its cost on held-out logs, \
                 before it is used."
                    .to_owned(),
            );
        } else if only(|evidence| matches!(evidence, Evidence::Optimum | Evidence::Fitted { .. })) {
            remarks.push(
                "These figures are of the optimiser's optimum and of values fitted for the policy. Both are no \
                 measurement of the policy: where it does what the logs do not hold they can be far off. Evaluate it, \
                 or bound its cost on held-out logs, before it is used."
                    .to_owned(),
            );
        }
        context! {
            line => self.line(),
            status => self.status().class(),
            symbol => match self.status() { Status::Neutral => "i", status => status.symbol() },
            costs => self.costs.iter().map(CostReading::context).collect::<Vec<_>>(),
            remarks,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coptidice_core::EpisodeHorizon;

    fn reading(estimate: f64, upper_bound: Option<f64>, evidence: Evidence) -> CostReading {
        let limit = CostLimit::new(0.1, LimitUnit::Step, EpisodeHorizon::Fixed(1000.0)).unwrap();
        CostReading {
            limit: LimitReading::new("cost", limit, 1000.0),
            estimate,
            upper_bound,
            evidence,
            tolerance: 0.001,
        }
    }

    #[test]
    fn only_a_kept_bound_is_good() {
        let optimum = |e, b| reading(e, b, Evidence::Optimum).standing();
        assert_eq!(optimum(0.08, Some(0.09)), Standing::Kept);
        assert_eq!(optimum(0.08, Some(0.1009)), Standing::Kept);
        assert_eq!(optimum(0.08, Some(0.12)), Standing::EstimateOnly);
        assert_eq!(optimum(0.08, Some(f64::INFINITY)), Standing::EstimateOnly);
        assert_eq!(optimum(0.08, None), Standing::EstimateOnly);
        assert_eq!(optimum(0.11, Some(0.12)), Standing::Exceeded);
        assert_eq!(optimum(f64::NAN, Some(0.05)), Standing::Unknown);
        assert_eq!(optimum(0.05, Some(f64::NAN)), Standing::Unknown);
        let fitted = Evidence::Fitted { held_out: true };
        assert_eq!(reading(0.08, None, fitted).standing(), Standing::EstimateOnly, "a fit is no measurement");
        assert_eq!(reading(0.2, None, fitted).standing(), Standing::Exceeded);
        let simulated = Evidence::Simulated { episodes: 50 };
        assert_eq!(reading(0.08, None, simulated).standing(), Standing::Kept);
        assert_eq!(reading(0.08, Some(0.11), simulated).standing(), Standing::EstimateOnly);
        assert_eq!(
            reading(0.08, None, Evidence::HeldOut { confidence: 0.95 }).standing(),
            Standing::EstimateOnly
        );
    }

    #[test]
    fn the_worst_reading_decides() {
        let verdict = Verdict::new("x").cost(reading(0.08, Some(0.09), Evidence::Optimum)).cost(reading(
            0.2,
            None,
            Evidence::Simulated { episodes: 1 },
        ));
        assert_eq!(verdict.status(), Status::Bad);
        assert_eq!(verdict.line(), "x: 1 of 2 cost readings keep their limits");
        assert_eq!(Verdict::new("x").status(), Status::Neutral);
    }

    #[test]
    fn both_units_are_spoken() {
        let text = reading(0.083, Some(0.0971), Evidence::Optimum).sentence();
        assert_eq!(
            text,
            "0.083 per step (83 per episode), upper bound 0.0971 per step (97.1 per episode); limit 0.1 per step \
             (100 per episode of 1000 steps); estimated at the optimum, from the logs trained on."
        );
        let limit =
            CostLimit::new(25.0, LimitUnit::Episode, EpisodeHorizon::Varying { logged_mean: 50.0 }).unwrap();
        // The mean length passed in is that of the logs as well; the limit's own wins.
        assert_eq!(LimitReading::new("c", limit, 1.0).text(), "25 per episode (0.5 per step at 50 steps)");
    }
}
