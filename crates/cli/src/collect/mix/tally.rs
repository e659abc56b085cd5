//! What the episodes of a mixture earned and cost.

use coptidice_sim::EpisodeRecord;
use serde::Serialize;

/// One part of the episodes. Means are of the log: none where it has no episode.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Part {
    /// Number of episodes.
    pub(crate) episodes: usize,
    /// Policies they are of.
    pub(crate) policies: usize,
    /// Mean undiscounted return.
    pub(crate) return_mean: Option<f64>,
    /// Mean of each cost over the steps, `[K]`.
    pub(crate) cost_per_step: Option<Vec<f64>>,
}

/// Sums over both parts, by whether their episodes keep the limit.
pub(super) struct Tally {
    sums: [Sums; 2],
}

#[derive(Default)]
struct Sums {
    episodes: usize,
    steps: usize,
    reward: f64,
    /// `[K]`.
    costs: Vec<f64>,
}

impl Tally {
    pub(super) fn new(costs: usize) -> Self {
        let sums = || Sums { costs: vec![0.0; costs], ..Sums::default() };
        Tally { sums: [sums(), sums()] }
    }

    /// Counts an episode.
    pub(super) fn add(&mut self, safe: bool, record: &EpisodeRecord) {
        let sums = &mut self.sums[usize::from(safe)];
        sums.episodes += 1;
        sums.steps += record.len();
        sums.reward += record.total_reward();
        for (k, sum) in sums.costs.iter_mut().enumerate() {
            *sum += record.mean_cost(k) * record.len() as f64;
        }
    }

    /// What one part came to, which `policies` policies have a part in.
    pub(super) fn part(&self, safe: bool, policies: usize) -> Part {
        let sums = &self.sums[usize::from(safe)];
        let per_episode = |total: f64| (sums.episodes > 0).then(|| total / sums.episodes as f64);
        let per_step = |total: &f64| total / sums.steps as f64;
        Part {
            episodes: sums.episodes,
            policies,
            return_mean: per_episode(sums.reward),
            cost_per_step: (sums.steps > 0).then(|| sums.costs.iter().map(per_step).collect()),
        }
    }
}
