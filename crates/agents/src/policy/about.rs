//! What a policy says of itself: it travels with the weights in both files.

use super::PolicyDefect;
use coptidice_core::CostLimit;
use serde::{Deserialize, Serialize};

/// Where a policy comes from and what it was trained to keep.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyAbout {
    /// The learner's name in the registry.
    pub algorithm: String,
    /// Seed of the training run.
    pub seed: u64,
    /// Gradient steps taken.
    pub steps: u64,
    /// Fingerprint of the logged data.
    pub data_fingerprint: String,
    /// Version of this library that wrote the policy.
    pub library_version: String,
    /// Names of the observation's columns, `[O]`, or empty if the data had none.
    pub observation_names: Vec<String>,
    /// Names of the action's dimensions (continuous) or of the actions (discrete), or empty.
    pub action_names: Vec<String>,
    /// Names of the costs, `[K]`.
    pub cost_names: Vec<String>,
    /// The limits trained for; a cost without one was unconstrained.
    pub limits: Vec<LimitAbout>,
}

/// A cost limit as given, and its two readings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitAbout {
    /// Name of the cost, one of [`PolicyAbout::cost_names`].
    pub cost: String,
    /// The limit with the unit it was given in.
    pub limit: CostLimit,
    /// The limit read as average cost of one step.
    pub per_step: f64,
    /// The limit read as total cost of one episode of `episode_steps`.
    pub per_episode: f64,
    /// Steps of an episode, on average over the logs where lengths vary.
    pub episode_steps: f64,
}

impl LimitAbout {
    /// Writes a limit out in both readings, for episodes of `episode_steps` steps.
    #[must_use]
    pub fn new(cost: impl Into<String>, limit: CostLimit, episode_steps: f64) -> Self {
        let (per_step, per_episode) = limit.both_readings(episode_steps);
        Self { cost: cost.into(), limit, per_step, per_episode, episode_steps }
    }
}

impl std::fmt::Display for LimitAbout {
    /// The limit as given, then its other reading.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { per_step, per_episode, episode_steps, .. } = self;
        match self.limit {
            CostLimit::PerStep { .. } => {
                write!(f, "{per_step} per step (= {per_episode} per episode of {episode_steps} steps)")
            }
            CostLimit::PerEpisode { .. } => {
                write!(f, "{per_episode} per episode of {episode_steps} steps (= {per_step} per step)")
            }
        }
    }
}

impl PolicyAbout {
    /// An account of a training run, with this library's version and no names, costs or limits yet.
    #[must_use]
    pub fn new(
        algorithm: impl Into<String>,
        seed: u64,
        steps: u64,
        data_fingerprint: impl Into<String>,
    ) -> Self {
        Self {
            algorithm: algorithm.into(),
            seed,
            steps,
            data_fingerprint: data_fingerprint.into(),
            library_version: env!("CARGO_PKG_VERSION").to_owned(),
            observation_names: Vec::new(),
            action_names: Vec::new(),
            cost_names: Vec::new(),
            limits: Vec::new(),
        }
    }

    /// Checks names against the policy's shapes, and that limits are of named costs and finite.
    pub(super) fn check(&self, observation_columns: usize, actions: usize) -> Result<(), PolicyDefect> {
        let names = [
            ("observation", &self.observation_names, observation_columns),
            ("action", &self.action_names, actions),
        ];
        for (what, names, expected) in names {
            if !names.is_empty() && names.len() != expected {
                return Err(PolicyDefect::Names { what, expected, found: names.len() });
            }
        }
        for limit in &self.limits {
            if !self.cost_names.contains(&limit.cost) {
                return Err(PolicyDefect::UnknownCost { cost: limit.cost.clone() });
            }
            let given = match limit.limit {
                CostLimit::PerStep { limit } => limit,
                CostLimit::PerEpisode { limit, horizon } => limit + horizon.mean_steps(),
            };
            // A sum is finite only if its terms are.
            if !(given + limit.per_step + limit.per_episode + limit.episode_steps).is_finite() {
                return Err(PolicyDefect::Limit { cost: limit.cost.clone() });
            }
        }
        Ok(())
    }
}
