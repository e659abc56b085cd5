//! What a run of C-DMPO is asked to do.

use coptidice_nn::{Activation, BlockSpec, Precision};
use serde::{Deserialize, Serialize};

use super::improvement::MOST_SAMPLES;
use crate::config::ConfigError;

/// Settings of a run. Every field has a default; unknown fields are refused.
///
/// Rewards and values are averages per step: a value is `(1 - gamma)` times the discounted sum, and lies in
/// `reward_range` (a cost's in `cost_range`) where every step's reward does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CdmpoConfig {
    /// Limit on the average of each cost per step.
    pub limit: f64,
    /// Seed of every random stream.
    pub seed: u64,
    /// Environment steps after which the run ends, with the episode that is going on then.
    pub steps: u64,
    /// Threads, 0 for one per core; they change the speed, never the result.
    pub threads: usize,
    /// Precision of the products in the networks.
    pub precision: Precision,
    /// Environment steps before the first update.
    pub warmup_steps: u64,
    /// Environment steps for which an action is held while learning, as the learner's one step. Where steps are short one
    /// action alone changes little; held, it is told apart from others sooner. The policy that comes of it acts at every
    /// step.
    pub hold: usize,
    /// Environment steps for each update of the networks, made when an episode has ended.
    pub steps_per_update: f64,
    /// Learner's steps that the replay buffer has room for, and one for every episode in it; the newest are kept.
    pub replay_capacity: usize,
    /// Samples `B` of an update.
    pub batch_size: usize,
    /// Actions `N` drawn at each of its states.
    pub action_samples: usize,
    /// Learner's steps of reward before a target trusts the critic.
    pub n_step: usize,
    /// Discount of an environment step, in `[0, 1)`.
    pub gamma: f64,
    /// Least and largest reward of a step. Values beyond are taken for the end of the range.
    pub reward_range: [f64; 2],
    /// Least and largest cost of a step.
    pub cost_range: [f64; 2],
    /// Atoms `M` of the distributions of values.
    pub atoms: usize,
    /// Adam's rate for the critics.
    pub learning_rate: f32,
    /// Adam's rate for the policy.
    pub policy_learning_rate: f32,
    /// Largest step of the logarithms of temperatures and prices of divergences in an update.
    pub dual_rate: f32,
    /// Updates between two copies of the networks to their targets.
    pub target_every: u64,
    /// Bound of the E-step, KL of the reweighting by value.
    pub action_kl: f64,
    /// Bound of the reweighting that keeps actions inside their range.
    pub range_kl: f64,
    /// Bound of the M-step on each dimension's location.
    pub location_kl: f64,
    /// Bound of the M-step on each dimension's deviation.
    pub deviation_kl: f64,
    /// Temperatures at the start, reward per step.
    pub initial_temperature: f64,
    /// Price of the location's divergence at the start.
    pub initial_location_price: f64,
    /// Price of the deviation's divergence at the start.
    pub initial_deviation_price: f64,
    /// The policy's deviation at the start, halves of the action's range.
    pub initial_deviation: f64,
    /// Smallest deviation, action units.
    pub min_scale: f32,
    /// Multiplier of every cost at the start, reward per unit of cost.
    pub lambda_start: f64,
    /// Largest multiplier.
    pub lambda_max: f64,
    /// How much a multiplier moves for each unit of cost over its limit in a step.
    pub multiplier_rate: f64,
    /// Blocks of the policy network.
    pub policy: Vec<BlockSpec>,
    /// Blocks of each critic.
    pub critic: Vec<BlockSpec>,
    /// Environment steps between checkpoints.
    pub checkpoint_every: u64,
    /// Checkpoints to go on from that are kept, the newest. The policies of all stay.
    pub keep_checkpoints: usize,
}

/// A layer with normalisation, then one without.
fn blocks(width: usize) -> Vec<BlockSpec> {
    vec![
        BlockSpec::Dense { width, layer_norm: true, activation: Activation::Tanh },
        BlockSpec::Dense { width, layer_norm: false, activation: Activation::Elu },
    ]
}

impl Default for CdmpoConfig {
    fn default() -> Self {
        CdmpoConfig {
            limit: 0.1,
            seed: 0,
            steps: 100_000,
            threads: 1,
            precision: Precision::F32,
            warmup_steps: 2_000,
            hold: 4,
            steps_per_update: 5.0,
            replay_capacity: 1_000_000,
            batch_size: 128,
            action_samples: 12,
            n_step: 3,
            gamma: 0.995,
            reward_range: [0.0, 1.0],
            cost_range: [0.0, 1.0],
            atoms: 51,
            learning_rate: 5e-4,
            policy_learning_rate: 5e-4,
            dual_rate: 1e-2,
            target_every: 50,
            action_kl: 0.1,
            range_kl: 1e-3,
            location_kl: 0.01,
            deviation_kl: 1e-4,
            initial_temperature: 0.05,
            initial_location_price: 3.0,
            initial_deviation_price: 10.0,
            initial_deviation: 0.7,
            min_scale: 0.01,
            lambda_start: 0.0,
            lambda_max: 100.0,
            multiplier_rate: 3e-5,
            policy: blocks(256),
            critic: blocks(256),
            checkpoint_every: 10_000,
            keep_checkpoints: 2,
        }
    }
}

impl CdmpoConfig {
    /// Reads and checks a configuration.
    ///
    /// # Errors
    /// [`ConfigError`] naming the field.
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        let table = text.parse().map_err(|error: toml::de::Error| ConfigError::Parse(error.to_string()))?;
        Self::from_table(table)
    }

    /// Reads a table. Errors name fields, not lines, of which a table has none.
    ///
    /// # Errors
    /// As [`CdmpoConfig::from_toml`].
    pub fn from_table(table: toml::Table) -> Result<Self, ConfigError> {
        let read = table.try_into::<CdmpoConfig>();
        let config = read.map_err(|error| ConfigError::Parse(error.message().to_owned()))?;
        config.check()?;
        Ok(config)
    }

    /// The configuration as TOML that [`CdmpoConfig::from_toml`] reads back to the same.
    ///
    /// # Errors
    /// If a value has no TOML form; a checked configuration has none such.
    pub fn to_toml(&self) -> Result<String, ConfigError> {
        toml::to_string(self).map_err(|error| ConfigError::Write(error.to_string()))
    }

    /// Checks every value.
    ///
    /// # Errors
    /// [`ConfigError::Range`] naming the first that is out of range.
    pub fn check(&self) -> Result<(), ConfigError> {
        let positive = |x: f64| x > 0.0 && x.is_finite();
        let range = |r: [f64; 2]| r[0].is_finite() && r[1].is_finite() && r[0] < r[1];
        let rate = |r: f32| r > 0.0 && r <= 1.0;
        let count = |n: usize, most: usize| (1..=most).contains(&n);
        let text = |r: [f64; 2]| format!("{r:?}");
        let rules: [(&'static str, String, bool, &'static str); 32] = [
            (
                "limit",
                self.limit.to_string(),
                self.limit.is_finite() && self.limit >= 0.0,
                "a number, at least 0",
            ),
            ("seed", self.seed.to_string(), self.seed < 1 << 63, "0 to 2^63 - 1"),
            ("steps", self.steps.to_string(), (1..1 << 53).contains(&self.steps), "at least 1"),
            ("threads", self.threads.to_string(), self.threads <= 1024, "0 to 1024"),
            ("warmup_steps", self.warmup_steps.to_string(), self.warmup_steps >= 1, "at least 1"),
            ("hold", self.hold.to_string(), count(self.hold, 1000), "1 to 1000"),
            (
                "steps_per_update",
                self.steps_per_update.to_string(),
                positive(self.steps_per_update),
                "above 0",
            ),
            (
                "replay_capacity",
                self.replay_capacity.to_string(),
                (2..=1 << 30).contains(&self.replay_capacity),
                "2 to 2^30",
            ),
            ("batch_size", self.batch_size.to_string(), count(self.batch_size, 1 << 16), "1 to 65536"),
            (
                "action_samples",
                self.action_samples.to_string(),
                count(self.action_samples, MOST_SAMPLES),
                "1 to 256",
            ),
            ("n_step", self.n_step.to_string(), count(self.n_step, 1000), "1 to 1000"),
            ("gamma", self.gamma.to_string(), (0.0..1.0).contains(&self.gamma), "at least 0 and below 1"),
            (
                "reward_range",
                text(self.reward_range),
                range(self.reward_range),
                "two numbers, the lower first",
            ),
            ("cost_range", text(self.cost_range), range(self.cost_range), "two numbers, the lower first"),
            ("atoms", self.atoms.to_string(), (2..=4096).contains(&self.atoms), "2 to 4096"),
            ("learning_rate", self.learning_rate.to_string(), rate(self.learning_rate), "above 0, at most 1"),
            (
                "policy_learning_rate",
                self.policy_learning_rate.to_string(),
                rate(self.policy_learning_rate),
                "above 0, at most 1",
            ),
            ("dual_rate", self.dual_rate.to_string(), rate(self.dual_rate), "above 0, at most 1"),
            ("target_every", self.target_every.to_string(), self.target_every >= 1, "at least 1"),
            ("action_kl", self.action_kl.to_string(), positive(self.action_kl), "above 0"),
            ("range_kl", self.range_kl.to_string(), positive(self.range_kl), "above 0"),
            ("location_kl", self.location_kl.to_string(), positive(self.location_kl), "above 0"),
            ("deviation_kl", self.deviation_kl.to_string(), positive(self.deviation_kl), "above 0"),
            (
                "initial_temperature",
                self.initial_temperature.to_string(),
                positive(self.initial_temperature),
                "above 0",
            ),
            (
                "initial_location_price",
                self.initial_location_price.to_string(),
                positive(self.initial_location_price),
                "above 0",
            ),
            (
                "initial_deviation_price",
                self.initial_deviation_price.to_string(),
                positive(self.initial_deviation_price),
                "above 0",
            ),
            (
                "initial_deviation",
                self.initial_deviation.to_string(),
                positive(self.initial_deviation) && self.initial_deviation <= 10.0,
                "above 0, at most 10",
            ),
            ("lambda_start", self.lambda_start.to_string(), self.lambda_start >= 0.0, "at least 0"),
            (
                "lambda_max",
                self.lambda_max.to_string(),
                (self.lambda_start..1e9).contains(&self.lambda_max),
                "at least lambda_start, below 1e9",
            ),
            (
                "multiplier_rate",
                self.multiplier_rate.to_string(),
                (0.0..=1.0).contains(&self.multiplier_rate),
                "0 to 1",
            ),
            ("checkpoint_every", self.checkpoint_every.to_string(), self.checkpoint_every >= 1, "at least 1"),
            ("keep_checkpoints", self.keep_checkpoints.to_string(), self.keep_checkpoints >= 1, "at least 1"),
        ];
        match rules.into_iter().find(|(.., fits, _)| !fits) {
            None => Ok(()),
            Some((field, value, _, allowed)) => Err(ConfigError::Range { field, value, allowed }),
        }
    }
}
