//! What a training run is asked to do.
//!
//! A user writes a [`RawConfig`] (TOML; every field optional, unknown fields refused). Together with the
//! facts of the log it becomes, once, a [`TrainConfig`] in which everything is decided. A validated configuration is
//! written back as TOML that reads to itself, defaults included.

mod noise;
mod preset;
mod raw;
mod size;
#[cfg(test)]
mod tests;

use coptidice_core::{CostLimit, Divergence, EpisodeHorizon, LimitError, ProcessReading};
use coptidice_data::{EpisodeEnd, Transitions};
use coptidice_nn::{BlockSpec, Precision};
use coptidice_ope::fqe;
use serde::{Deserialize, Serialize};

use crate::coptidice::losses::BoundLoss;
use crate::policy::Acting;
use crate::registry::Algorithm;

pub use preset::Preset;
pub use raw::{
    NoBf16, RawConfig, RawCritic, RawEvaluation, RawGradientPenalty, RawHorizon, RawLimit, RawNetworks,
    RawProjection, RawSelection, RawStateWeight,
};

/// A cost and its limit.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(into = "RawLimit")]
pub struct LimitConfig {
    /// Name of the cost in the log.
    pub cost: String,
    /// The limit with its unit.
    pub limit: CostLimit,
}

/// One-sided gradient penalty `coefficient * mean(max(0, |grad| - bound)^2)` on `nu` and `chi`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct GradientPenalty {
    /// Weight of the penalty; 0 switches it off.
    pub coefficient: f32,
    /// Norm up to which a gradient is free, value units per (normalised) observation unit.
    pub bound: f32,
}

/// How rewards are scaled before training.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum RewardScale {
    /// Multiplied by this number.
    Factor(f64),
    /// A rule.
    Rule(ScaleRule),
}

/// A rule that finds the factor of the rewards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ScaleRule {
    /// Left as they are.
    None,
    /// Divided by their standard deviation in the log (left as they are where it is zero).
    Std,
}

/// How the policy is drawn from the occupancy ratios.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Extraction {
    /// Behaviour cloning weighted by `w` (`eq:weighted_bc`).
    WeightedBc,
    /// The same with weights divided by their fitted mean at the state; see [`StateWeight`].
    StateNormalized,
    /// Closeness to the log weighted by `w`, and the value of the policy's own action under reward less priced
    /// costs; see [`Critic`]. Continuous policies are single Gaussians.
    CriticGuided,
    /// The policy nearest, from its own side, to a model of the log's actions times `w` of a fitted advantage; see
    /// [`Projection`]. Continuous policies are single Gaussians.
    InformationProjection,
    /// A model of the log's actions, of which the policy does the one that a critic of reward less priced costs likes
    /// best; see [`Critic`] and [`Selection`].
    GuidedSelection,
}

impl Extraction {
    /// The name used in configurations.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Extraction::WeightedBc => "weighted_bc",
            Extraction::StateNormalized => "state_normalized",
            Extraction::CriticGuided => "critic_guided",
            Extraction::InformationProjection => "information_projection",
            Extraction::GuidedSelection => "guided_selection",
        }
    }
}

/// Which successors of a state and action the dual's advantage is taken of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Successors {
    /// The logged one, as in the paper. Right where the process is not noisy; else lucky actions are taken for good ones.
    Sampled,
    /// Their mean, by a network fitted to the advantages of the samples.
    Averaged,
}

/// Weights of `extraction = "state_normalized"`: `min(w/(h(s) + floor), clip)` with `h(s)` fitted to `E[w given s]`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct StateWeight {
    /// Added to `h(s)`.
    pub floor: f32,
    /// Largest weight.
    pub clip: f32,
}

/// The critic of `extraction = "critic_guided"` and, but for `guidance` and `least_weight`, of `"guided_selection"`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Critic {
    /// Critics, 2 to 16. The policy follows their mean; each step's targets are those of the stricter of two.
    pub ensemble: usize,
    /// Discount of the critic's values, in `[0, 1)`. They serve to compare actions, so that it may be below the dual's.
    pub discount: f64,
    /// Logged steps between a sample and the state that its target is bootstrapped from, at least 1. More of them
    /// tell actions apart where one alone changes little, and value what the log did next.
    pub lookahead: usize,
    /// Weight of the critic, in standard deviations of its values between actions, against closeness to the log, in squares of half
    /// the action's range.
    pub guidance: f32,
    /// What stands for `w` where it is less in the closeness to the log. Where the optimum hardly goes the policy would
    /// otherwise follow nothing but a critic, at actions that nobody took.
    pub least_weight: f32,
    /// Rate at which the target networks follow, in `(0, 1]`.
    pub target_rate: f32,
    /// Deviation of the noise on the action that a target is taken at, in halves of the action's range.
    pub smoothing: f32,
}

/// What `extraction = "information_projection"` projects onto.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Projection {
    /// What stands for `w` where it is less under `divergence = "chi2"`, the one whose weights can be 0; in `(0, 1)`. An
    /// action that the dual rules out keeps so much of its logged probability, before normalisation.
    pub floor: f32,
    /// Gaussians per action dimension of the model of the log's continuous actions.
    pub behaviour_components: usize,
}

/// Candidates of `extraction = "guided_selection"`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Selection {
    /// Continuous actions: how many actions of the model are looked at, at quantiles fixed for the run.
    pub candidates: usize,
    /// Finitely many actions: how probable an action must be to be looked at, as a share of the most probable one's
    /// probability, in `(0, 1]`.
    pub threshold: f32,
}

/// The networks, without their last linear layer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Networks {
    /// Gaussians per action dimension of a continuous policy; a discrete one has none.
    pub mixture_components: usize,
    /// Smallest standard deviation of a Gaussian, action units; those of [`crate::policy::ActionUnit`] where actions have
    /// one.
    pub min_scale: f32,
    /// Blocks of `nu` and of `chi`.
    pub value: Vec<BlockSpec>,
    /// Blocks of the policy.
    pub policy: Vec<BlockSpec>,
}

/// A validated configuration. Built by [`RawConfig::validate`].
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct TrainConfig {
    /// The algorithm.
    pub algo: Algorithm,
    /// The set of defaults that the other fields started from.
    pub preset: Preset,
    /// Gradient steps.
    pub steps: u64,
    /// Share of the steps in which the dual trains. Where it is 1 the policy is drawn along with it; otherwise the
    /// policy is drawn in the remaining steps, from the dual as it stood at the end of its own.
    pub dual_share: f64,
    /// Samples per step.
    pub batch_size: usize,
    /// Seed of every random stream.
    pub seed: u64,
    /// Threads; they change the speed, never the result.
    pub threads: usize,
    /// Precision of the networks' products: what was asked for, if this processor has it.
    pub precision: Precision,
    /// Discount in `(0, 1]`; 1 is the restart chain.
    pub gamma: f64,
    /// Weight of the divergence, units of the scaled reward.
    pub alpha: f64,
    /// Radius (KL) of the cost bound; 0 constrains the plain estimate.
    pub epsilon: f64,
    /// The divergence.
    pub divergence: Divergence,
    /// Adam's rate for `nu` and `chi`.
    pub learning_rate: f32,
    /// Adam's rate for the policy.
    pub policy_learning_rate: f32,
    /// Adam's rate for `log lambda`, `log tau` and `mu`.
    pub multiplier_learning_rate: f32,
    /// Where `lambda` is stopped, scaled reward per unit of cost; reaching it ends the run as diverged.
    pub lambda_max: f64,
    /// Which successors the dual's advantage, and `w`, is taken of.
    pub successors: Successors,
    /// Form of the cost bound's loss.
    pub bound_loss: BoundLoss,
    /// Whether `nu` and `chi` start at the constant that meets the flow on average (they start near 0 otherwise).
    pub start_at_mean: bool,
    /// Whether observations are shifted and scaled to mean 0 and standard deviation 1.
    pub normalize_observations: bool,
    /// Scaling of rewards.
    pub reward_scale: RewardScale,
    /// How much more evenly than logged states are drawn in the policy's own steps: rows are drawn in proportion to
    /// the power `-balance` of the number of rows in their neighbourhood. 0 draws them as logged.
    pub balance: f64,
    /// How the policy is drawn from `w`.
    pub extraction: Extraction,
    /// What the policy of a guided extraction pays for costs: so many standard deviations of the reward for one of a cost
    /// that averages its limit.
    pub caution: f64,
    /// Weights of the state-normalised extraction.
    pub state_weight: StateWeight,
    /// The critic of the guided extraction.
    pub critic: Critic,
    /// The information projection's target.
    pub projection: Projection,
    /// The guided selection's candidates.
    pub selection: Selection,
    /// Rate of the exponential average of the policy's weights, which is what is exported; 0 exports the last ones.
    pub policy_average_rate: f32,
    /// The last policy, and earlier ones of the last half of the policy's steps to fall back on where the last is
    /// estimated to exceed a limit: 1 to 64, 1 for the last alone. Policies that select, or have no steps of
    /// their own, have no earlier ones.
    pub finalists: usize,
    /// How the exported policy acts, unless that is chosen.
    pub acting: Acting,
    /// Whether the way of acting is the one that is estimated to keep the limits and earn most.
    pub choose_acting: bool,
    /// Fitted Q evaluation of the policy after training; none at 0 rounds. In every round it takes at most a hundredth of
    /// training's own number of steps.
    pub evaluation: fqe::Settings,
    /// Share of the episodes that training does not see and evaluation looks at instead; 0 evaluates on what was
    /// trained on.
    pub holdout: f64,
    /// Steps between checkpoints.
    pub checkpoint_every: u64,
    /// Checkpoints kept, the newest; at least 1.
    pub keep_checkpoints: usize,
    /// Steps over which metrics are averaged.
    pub log_every: u64,
    /// Gradient penalty of `nu` and `chi`.
    pub gradient_penalty: GradientPenalty,
    /// The networks.
    pub networks: Networks,
    /// Costs and their limits, `K` of them.
    pub limits: Vec<LimitConfig>,
}

impl TrainConfig {
    /// The configuration as TOML that [`RawConfig::from_toml`] reads back to the same.
    ///
    /// # Errors
    /// If a value has no TOML form; a validated configuration has none such.
    pub fn to_toml(&self) -> Result<String, ConfigError> {
        toml::to_string(self).map_err(|error| ConfigError::Write(error.to_string()))
    }

    /// The steps in which the dual trains.
    #[must_use]
    pub fn dual_steps(&self) -> u64 {
        if self.dual_share >= 1.0 { self.steps } else { (self.dual_share * self.steps as f64) as u64 }
    }

    /// Whether the policy has steps of its own, after the dual's.
    #[must_use]
    pub fn draws_afterwards(&self) -> bool {
        self.dual_share < 1.0 && self.algo != Algorithm::Bc
    }

    /// The steps before the policy's first.
    #[must_use]
    pub fn steps_before_policy(&self) -> u64 {
        if self.draws_afterwards() { self.dual_steps() } else { 0 }
    }

    /// Whether a critic is trained.
    #[must_use]
    pub(crate) fn has_critic(&self) -> bool {
        let with = matches!(self.extraction, Extraction::CriticGuided | Extraction::GuidedSelection);
        with && self.algo != Algorithm::Bc
    }

    /// Whether the policy may select its actions.
    #[must_use]
    pub(crate) fn selects(&self) -> bool {
        self.extraction == Extraction::GuidedSelection && self.algo != Algorithm::Bc
    }

    /// Whether a continuous policy is a single Gaussian.
    #[must_use]
    pub(crate) fn draws_one_gaussian(&self) -> bool {
        let single = matches!(self.extraction, Extraction::CriticGuided | Extraction::InformationProjection);
        single && self.algo != Algorithm::Bc
    }

    /// How the log is read for cost limits: the restart chain at `gamma = 1`; else discounted, continuing through time-outs,
    /// and ending in terminals where any was logged.
    #[must_use]
    pub fn reading(&self, facts: &LogFacts) -> ProcessReading {
        if self.gamma == 1.0 {
            ProcessReading::RestartChain
        } else if facts.any_terminal {
            ProcessReading::Terminating { gamma: self.gamma }
        } else {
            ProcessReading::Continuing { gamma: self.gamma }
        }
    }
}

/// Between these lies the discount that a log's episodes suggest: below the one nothing adds up, above the other value
/// functions grow beyond what a run of the usual length finds.
const LEAST_GAMMA: f64 = 0.9;
const LARGEST_GAMMA: f64 = 0.9995;

/// What a configuration needs to know of a log.
#[derive(Clone, Debug, PartialEq)]
pub struct LogFacts {
    /// Names of the logged costs.
    pub cost_names: Vec<String>,
    /// Length of the logged episodes; episodes that were cut do not count unless there are no others. Where all ended in
    /// a terminal it varies with the policy, however equal the lengths.
    pub horizon: EpisodeHorizon,
    /// Whether every episode (that was not cut) ended in a terminal.
    pub always_terminal: bool,
    /// Whether some episode ended in a terminal: under a discount occupancies then lack the mass of what would come after.
    pub any_terminal: bool,
    /// Whether actions are ids of a finite set.
    pub discrete: bool,
    /// Whether the same action in the same state came out otherwise in a twentieth of the rows and more. Of states that
    /// never recur exactly it is not known, and false.
    pub noisy: bool,
}

impl LogFacts {
    /// The discount that fits the log and the limits.
    ///
    /// What is asked for is an average of a step, or the total of an episode, under the policy that starts anew whenever an
    /// episode is over: the restart chain. Where the process ends by itself, or a limit is on the totals of episodes of
    /// varying length, that is read undiscounted (1). Where only the recording ends episodes the last logged steps say
    /// nothing of an end, and an undiscounted optimum would merely avoid them, and with them every restart: the chain is
    /// read as one that starts anew after every step with the chance `1 - gamma`. At `1 - 1/T` that is after `T` steps on
    /// average, as in the log, and its averages per step are the normalised discounted sums of the paper.
    #[must_use]
    pub fn default_gamma(&self, limits: &[LimitConfig]) -> f64 {
        if self.always_terminal || limits.iter().any(|limit| limit.limit.is_on_varying_totals()) {
            1.0
        } else {
            (1.0 - 1.0 / self.horizon.mean_steps()).clamp(LEAST_GAMMA, LARGEST_GAMMA)
        }
    }

    /// Which successors fit the log: their mean where it shows that there are several.
    #[must_use]
    pub fn default_successors(&self) -> Successors {
        if self.noisy { Successors::Averaged } else { Successors::Sampled }
    }

    /// Reads the facts off a log.
    #[must_use]
    pub fn of(data: &Transitions) -> Self {
        let (horizon, always_terminal) = Self::episodes(data);
        LogFacts {
            cost_names: data.cost_names().to_vec(),
            horizon,
            always_terminal,
            any_terminal: data.episodes().iter().any(|episode| episode.end == EpisodeEnd::Terminal),
            discrete: data.actions().is_discrete(),
            noisy: noise::is_noisy(data),
        }
    }

    /// [`LogFacts::horizon`] and [`LogFacts::always_terminal`] alone, for which no row need be read.
    pub(crate) fn episodes(data: &Transitions) -> (EpisodeHorizon, bool) {
        let whole = data.episodes().iter().filter(|e| e.end != EpisodeEnd::Cut);
        let mut lengths: Vec<usize> = whole.clone().map(|e| e.len).collect();
        let always_terminal = !lengths.is_empty() && whole.clone().all(|e| e.end == EpisodeEnd::Terminal);
        if lengths.is_empty() {
            lengths = data.episodes().iter().map(|e| e.len).collect();
        }
        (EpisodeHorizon::of_lengths(&lengths, always_terminal), always_terminal)
    }
}

/// What costs there are to choose from.
fn known_costs(known: &[String]) -> String {
    if known.is_empty() {
        "the log has no column that is taken for a cost: name one when reading it (--cost), or add one"
            .to_owned()
    } else {
        format!("it has {}: name one", known.join(", "))
    }
}

/// A configuration that cannot be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// Not TOML, a field of the wrong type, or an unknown field.
    #[error("the configuration cannot be read: {0}")]
    Parse(String),
    /// The configuration has no TOML form.
    #[error("the configuration cannot be written: {0}")]
    Write(String),
    /// A value outside its range.
    #[error("{field} = {value} is outside its range; use {allowed}")]
    Range {
        /// Name of the field.
        field: &'static str,
        /// What was given.
        value: String,
        /// What may be given.
        allowed: &'static str,
    },
    /// Settings of an extraction that was not chosen.
    #[error(
        "[{table}] is set, but extraction = \"{}\" does not look at it; leave it out, or set extraction = \"{}\"",
        chosen.name(), needed.name()
    )]
    Unused {
        /// Name of the table.
        table: &'static str,
        /// The extraction that was chosen.
        chosen: Extraction,
        /// The one that the settings are for.
        needed: Extraction,
    },
    /// The algorithm keeps limits and none was given.
    #[error("{algo} needs at least one cost limit; give --limit and --limit-unit, or train optidice")]
    NoLimit {
        /// The algorithm.
        algo: Algorithm,
    },
    /// The log has no such cost.
    #[error("the log has no cost {name:?}; {}", known_costs(known))]
    UnknownCost {
        /// The name that was given.
        name: String,
        /// The names there are.
        known: Vec<String>,
    },
    /// A limit does not say to which of several costs it belongs.
    #[error("limit {limit} does not name its cost; {}", known_costs(known))]
    UnnamedCost {
        /// The limit that was given.
        limit: f64,
        /// The costs of the log.
        known: Vec<String>,
    },
    /// Two limits of one cost.
    #[error("cost {name:?} has two limits; keep one")]
    TwoLimits {
        /// The cost.
        name: String,
    },
    /// A limit without its unit.
    #[error("limit {limit} has no unit; say step (average cost of a step) or episode (total of an episode)")]
    NoUnit {
        /// The limit that was given.
        limit: f64,
    },
    /// The limit cannot become a constraint.
    #[error(transparent)]
    Limit(#[from] LimitError),
}
