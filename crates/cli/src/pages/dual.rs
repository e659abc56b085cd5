//! What the dual says of its own optimum.

use coptidice_agents::CostEstimate;
use coptidice_report::metrics::History;
use serde::{Deserialize, Serialize};

use super::late;
use crate::failure::Failure;
use crate::run_directory::{LimitEntry, RunDirectory, read_json};

/// `estimates.json` of a run directory: expectations under the learned occupancy over the whole log.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct DualEstimates {
    pub(crate) mean_weight: f64,
    pub(super) reward_per_step: f64,
    /// In the restart chain.
    pub(super) episodes_per_step: Option<f64>,
    pub(super) costs: Vec<CostEstimate>,
    /// Rows of the log that the means are over, and the stride at which they were visited.
    pub(super) rows_visited: usize,
    pub(super) stride: usize,
}

impl DualEstimates {
    /// Reward of a step: over the whole log, or of a run that has not come to its end by its metrics.
    pub(crate) fn reward(dual: Option<&Self>, history: &History) -> Option<f64> {
        let of_metrics = || Some(late(history, "reward")? / late(history, "w/mean").unwrap_or(1.0));
        dual.map(|dual| dual.reward_per_step).or_else(of_metrics)
    }

    /// Of a run; `None` where there is no dual, or it has not come to its end.
    pub(crate) fn of(run: &RunDirectory) -> Result<Option<Self>, Failure> {
        if run.estimates().exists() { read_json(&run.estimates()).map(Some) } else { Ok(None) }
    }
}

/// What the dual says of one cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DualCost {
    /// Whether the figures are totals of an episode; averages of a step otherwise.
    pub(crate) per_episode: bool,
    pub(crate) estimate: f64,
    /// Where one was computed.
    pub(crate) upper_bound: Option<f64>,
}

impl DualCost {
    /// By what share of a limit a dual that has settled may be seen above it, in means over some batches.
    const SETTLED: f64 = 0.1;

    /// Whether the cost, or its upper bound where one was computed, is over the limit by more than that.
    pub(crate) fn exceeds(&self, limit: &LimitEntry) -> bool {
        let value = if self.per_episode { limit.per_episode } else { limit.per_step };
        let held = self.upper_bound.map_or(self.estimate, |bound| bound.max(self.estimate));
        held > value + Self::SETTLED * value.abs()
    }

    /// Whether the cost itself is.
    pub(crate) fn estimate_exceeds(&self, limit: &LimitEntry) -> bool {
        DualCost { upper_bound: None, ..*self }.exceeds(limit)
    }

    /// The estimate over the whole log from `dual`, where it has come to its end, and from the metrics how far the bound
    /// is above it; of a run that has not, the estimate is the metrics', too.
    pub(crate) fn of(limit: &LimitEntry, history: &History, dual: Option<&DualEstimates>) -> Option<Self> {
        let cost = late(history, &format!("cost/{}", limit.cost))?;
        let compared = late(history, &format!("compared/{}", limit.cost));
        let mass = late(history, "w/mean").unwrap_or(1.0);
        // Of as much mass as there is: of a step, then.
        let of_step = |cost: f64| if mass > 0.0 { cost / mass } else { 0.0 };
        let known = dual.and_then(|dual| dual.costs.iter().find(|known| known.name == limit.cost));
        if !limit.on_totals {
            let estimate = known.map_or(of_step(cost), |known| known.per_step);
            let upper_bound = compared.map(|bound| estimate + of_step(bound - cost));
            return Some(DualCost { per_episode: false, estimate, upper_bound });
        }
        // Metrics are of E[w (c - limit 1{last})], a small difference of large numbers, at parameters that move: a total of
        // an episode cannot be had from them. Of the bound on it there is nothing else: it is held below 0.
        let estimate = known?.per_episode?;
        let dual = dual?;
        let ends = dual.episodes_per_step.filter(|&ends| ends > 0.0)? / dual.mean_weight;
        let upper_bound = compared.map(|bound| estimate.max(limit.per_episode + of_step(bound) / ends));
        Some(DualCost { per_episode: true, estimate, upper_bound })
    }
}
