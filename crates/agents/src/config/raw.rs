//! A configuration as it is written, before it is checked.

use coptidice_core::{CostLimit, Divergence, EpisodeHorizon, LimitUnit};
use coptidice_nn::{BlockSpec, Precision};
use serde::{Deserialize, Serialize};

use super::size::check_size;
use super::{
    ConfigError, Extraction, LimitConfig, LogFacts, Preset, RewardScale, Selection, Successors, TrainConfig,
};
use crate::coptidice::losses::BoundLoss;
use crate::policy::{Acting, MAX_CANDIDATES};
use crate::registry::Algorithm;

/// A configuration as it is written. Fields that are left out take the value of `preset`, but for
/// `networks.mixture_components` (1 under the extractions that draw a single Gaussian), `acting` (`select` under
/// `extraction = "guided_selection"`) and `critic.discount` (`gamma` below 1).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawConfig {
    /// The algorithm: `bc`, `optidice` or `coptidice` (default).
    pub algo: Option<Algorithm>,
    /// The set of defaults: `fast` (default) or `paper`.
    pub preset: Option<Preset>,
    /// Gradient steps, at least 1.
    pub steps: Option<u64>,
    /// Share of the steps in which the dual trains, above 0 and at most 1. At 1 the policy is drawn along with it;
    /// below, in the remaining steps, from the dual that was found. Behaviour cloning has no dual.
    pub dual_share: Option<f64>,
    /// How much more evenly than logged states are drawn in the policy's own steps, from 0 to 1.
    pub balance: Option<f64>,
    /// What the policy of a guided extraction pays for costs above the dual's price: so many standard deviations of the
    /// reward for as much cost as the limit allows; 0 or above.
    pub caution: Option<f64>,
    /// Samples per step, at least 2; at most so many that networks and batch take about 8 GiB of memory.
    pub batch_size: Option<usize>,
    /// Seed of every random stream, below 2^63.
    pub seed: Option<u64>,
    /// Threads, 0 for one per core, at most 1024. They change the speed, never the result.
    pub threads: Option<usize>,
    /// Precision of the products in the networks that are trained: `f32` (default) or `bf16`, up to twice as fast.
    /// Sums, parameters and everything else are in `f32` either way. Where the processor lacks AVX512-BF16, `bf16`
    /// becomes `f32`; [`RawConfig::no_bf16`] tells.
    pub precision: Option<Precision>,
    /// Discount in `(0, 1]`. Below 1 the process is read as continuing: values are bootstrapped through time-outs and
    /// stop at terminals. At 1 the last step of an episode leads back to a fresh initial state.
    pub gamma: Option<f64>,
    /// Weight of the divergence from the log, units of the scaled reward; larger stays closer to the log.
    pub alpha: Option<f64>,
    /// Radius (KL) of the cost's upper bound; larger is more cautious. 0 constrains the plain estimate instead.
    pub epsilon: Option<f64>,
    /// The divergence: `chi2`, `softchi` or `kl`.
    pub divergence: Option<Divergence>,
    /// Adam's rate for `nu` and `chi`, and for what extraction fits beside them.
    pub learning_rate: Option<f32>,
    /// Adam's rate for the policy.
    pub policy_learning_rate: Option<f32>,
    /// Adam's rate for `log lambda`, `log tau` and `mu`: the most by which each can move in one step.
    pub multiplier_learning_rate: Option<f32>,
    /// Where `lambda` is stopped, scaled reward per unit of cost. Reaching it means that the limit cannot be kept
    /// on this log at this `alpha`, and ends the run as diverged.
    pub lambda_max: Option<f64>,
    /// Form of the cost bound: `paper`, `reweighted` (as the paper's, with `lambda` driven by the cost under the tilted
    /// weights), or `reference` for the form of the authors' published code.
    pub bound_loss: Option<BoundLoss>,
    /// Which successors the dual's advantage is taken of: `sampled` or `averaged`.
    pub successors: Option<Successors>,
    /// Whether `nu` and `chi` start at the constant that meets the flow on average, instead of near 0. Values are of
    /// the size `1/(1-gamma)`; from 0 the first thousands of steps go into getting there.
    pub start_at_mean: Option<bool>,
    /// Whether observations are shifted and scaled to mean 0 and standard deviation 1. Exported with the policy.
    pub normalize_observations: Option<bool>,
    /// Scaling of rewards: `"none"`, `"std"` or a positive factor. Reported figures are in the log's own units.
    pub reward_scale: Option<RewardScale>,
    /// How the policy is drawn from the occupancy ratios: `weighted_bc`, `state_normalized`, `critic_guided`,
    /// `information_projection` or `guided_selection`.
    pub extraction: Option<Extraction>,
    /// Rate of the exponential average of the policy's weights, in `[0, 1)`. The average is what is exported;
    /// 0 exports the last weights.
    pub policy_average_rate: Option<f32>,
    /// How the exported policy acts: `mean`, `mode`, `component` or `sample`; under `extraction = "guided_selection"`
    /// (where it is the default) also `select`. Where it is given it is not chosen.
    pub acting: Option<Acting>,
    /// The last policy, and earlier ones to fall back on where it is estimated to exceed a limit; 1 to 64 in all.
    pub finalists: Option<usize>,
    /// Whether the way of acting is chosen by what is estimated of each.
    pub choose_acting: Option<bool>,
    /// Share of the episodes held out of training for the policy's evaluation, in `[0, 1)`.
    pub holdout: Option<f64>,
    /// Steps between checkpoints, at least 1.
    pub checkpoint_every: Option<u64>,
    /// Checkpoints kept, at least 1.
    pub keep_checkpoints: Option<usize>,
    /// Steps over which metrics are averaged and then reported, at least 1.
    pub log_every: Option<u64>,
    /// Gradient penalty of `nu` and `chi`.
    pub gradient_penalty: Option<RawGradientPenalty>,
    /// Weights of the state-normalised extraction; refused under another.
    pub state_weight: Option<RawStateWeight>,
    /// The critic of the guided extractions; refused under others.
    pub critic: Option<RawCritic>,
    /// What the information projection projects onto; refused under another extraction.
    pub projection: Option<RawProjection>,
    /// Evaluation of the policy after training.
    pub evaluation: Option<RawEvaluation>,
    /// Candidates of the guided selection; refused under another extraction.
    pub selection: Option<RawSelection>,
    /// The networks.
    pub networks: Option<RawNetworks>,
    /// Costs and their limits. Algorithms that keep no limit report the costs all the same.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<RawLimit>,
}

/// A remark: products were to be in bf16, and will be in f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoBf16;

impl std::fmt::Display for NoBf16 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("precision = \"bf16\" needs AVX512-BF16, which this processor lacks: training in f32")
    }
}

/// See [`super::GradientPenalty`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawGradientPenalty {
    /// Weight of the penalty; 0 switches it off.
    pub coefficient: Option<f32>,
    /// Norm of the gradient up to which nothing is charged.
    pub bound: Option<f32>,
}

/// See [`super::StateWeight`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawStateWeight {
    /// Added to the fitted mean of `w`; positive.
    pub floor: Option<f32>,
    /// Largest weight; positive.
    pub clip: Option<f32>,
}

/// See [`super::Critic`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawCritic {
    /// Critics, 2 to 16: the policy follows their mean, targets are those of the stricter of two.
    pub ensemble: Option<usize>,
    /// Discount of the critic's values, in `[0, 1)`; by default .99, or `gamma` where that is less.
    pub discount: Option<f64>,
    /// Logged steps between a sample and the state its target is bootstrapped from, at least 1.
    pub lookahead: Option<usize>,
    /// Weight of the critic against closeness to the log; 0 or above. Refused under the guided selection, which has none.
    pub guidance: Option<f32>,
    /// Least weight of a sample in the closeness to the log; 0 or above. Refused under the guided selection.
    pub least_weight: Option<f32>,
    /// Rate at which the target networks follow, in `(0, 1]`.
    pub target_rate: Option<f32>,
    /// Deviation of the noise on target actions, in halves of the action's range; 0 or above.
    pub smoothing: Option<f32>,
}

/// See [`super::Projection`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawProjection {
    /// Least weight under `divergence = "chi2"`, in `(0, 1)`.
    pub floor: Option<f32>,
    /// Gaussians per action dimension of the model of the log's actions, 1 to 64.
    pub behaviour_components: Option<usize>,
}

/// See [`coptidice_ope::fqe::Settings`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawEvaluation {
    /// Rounds of regression; 0 switches evaluation off.
    pub rounds: Option<u32>,
    /// Most gradient steps in each, at least 1.
    pub steps: Option<u32>,
    /// Width of the trace of continuous actions, in halves of the action's range; 0 or above.
    pub similarity: Option<f64>,
}

/// See [`super::Selection`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawSelection {
    /// Candidates of a continuous policy, 1 to 1024.
    pub candidates: Option<usize>,
    /// Least probability of a candidate among finitely many actions, as a share of the largest; in `(0, 1]`.
    pub threshold: Option<f32>,
}

/// See [`super::Networks`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawNetworks {
    /// Blocks of `nu`, of `chi` and of what extraction fits, before a last linear layer.
    pub value: Option<Vec<BlockSpec>>,
    /// Blocks of the policy, before a last linear layer.
    pub policy: Option<Vec<BlockSpec>>,
    /// Gaussians per action dimension of a continuous policy, 1 to 64; 1 is a single Gaussian. Discrete policies are
    /// no mixtures and take no notice.
    pub mixture_components: Option<usize>,
    /// Smallest standard deviation of a Gaussian, action units.
    pub min_scale: Option<f32>,
}

/// One cost limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawLimit {
    /// Name of the cost; may be left out where the log has one cost only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<String>,
    /// The limit, cost units per `unit`.
    pub limit: f64,
    /// `step` (average cost of one step) or `episode` (undiscounted total of one episode).
    pub unit: Option<LimitUnit>,
    /// Steps of an episode, for a limit per episode: a number, `"logged"` (default) to take the logged lengths, or
    /// `{ logged_mean = M }` for lengths that vary with the policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub horizon: Option<RawHorizon>,
}

/// See [`RawLimit::horizon`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum RawHorizon {
    /// Every episode lasts this many steps.
    Steps(f64),
    /// `"logged"`.
    Word(LoggedWord),
    /// Lengths vary.
    Varying {
        /// Mean logged length, steps.
        logged_mean: f64,
    },
}

/// The word `logged`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LoggedWord {
    /// As in the log.
    Logged,
}

impl From<LimitConfig> for RawLimit {
    fn from(config: LimitConfig) -> Self {
        let horizon = match config.limit {
            CostLimit::PerStep { .. } => None,
            CostLimit::PerEpisode { horizon: EpisodeHorizon::Fixed(steps), .. } => {
                Some(RawHorizon::Steps(steps))
            }
            CostLimit::PerEpisode { horizon: EpisodeHorizon::Varying { logged_mean }, .. } => {
                Some(RawHorizon::Varying { logged_mean })
            }
        };
        let (limit, unit) = (config.limit.value(), Some(config.limit.unit()));
        RawLimit { cost: Some(config.cost), limit, unit, horizon }
    }
}

impl RawConfig {
    /// Reads TOML.
    ///
    /// # Errors
    /// [`ConfigError::Parse`] with the place.
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        toml::from_str(text).map_err(|error| ConfigError::Parse(error.to_string()))
    }

    /// Whether a precision is asked for that this processor does not have. [`RawConfig::validate`] then takes `f32`.
    #[must_use]
    pub fn no_bf16(&self) -> Option<NoBf16> {
        self.precision.filter(|precision| !precision.is_available()).map(|_| NoBf16)
    }

    /// Fills in the preset, resolves costs and units against the log, and checks every value.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn validate(self, facts: &LogFacts) -> Result<TrainConfig, ConfigError> {
        let algo = self.algo.unwrap_or(Algorithm::Coptidice);
        let preset = self.preset.unwrap_or(Preset::Fast);
        let mut config = preset.defaults(algo);
        config.limits =
            self.limits.iter().map(|limit| resolve(limit, facts)).collect::<Result<Vec<_>, _>>()?;
        if preset == Preset::Fast {
            config.gamma = facts.default_gamma(&config.limits);
            config.successors = facts.default_successors();
        }
        self.override_defaults(&mut config)?;
        check(&config, facts)?;
        Ok(config)
    }

    fn override_defaults(self, config: &mut TrainConfig) -> Result<(), ConfigError> {
        macro_rules! take {
            ($source:expr => $target:expr; $($field:ident)*) => {
                $(if let Some(value) = $source.$field { $target.$field = value; })*
            };
        }
        config.choose_acting &= self.acting.is_none();
        let default_caution = config.caution;
        take!(self => config; steps dual_share balance caution batch_size seed threads precision gamma alpha epsilon divergence learning_rate
            policy_learning_rate multiplier_learning_rate lambda_max successors bound_loss start_at_mean
            normalize_observations reward_scale extraction policy_average_rate acting finalists choose_acting holdout checkpoint_every keep_checkpoints log_every);
        if !config.precision.is_available() {
            config.precision = Precision::F32;
        }
        if let Some(evaluation) = self.evaluation {
            take!(evaluation => config.evaluation; rounds steps similarity);
        }
        if let Some(penalty) = self.gradient_penalty {
            take!(penalty => config.gradient_penalty; coefficient bound);
        }
        // What is written back holds the defaults of every extraction; they say nothing and are no mistake. Behaviour
        // cloning looks at nothing but the networks, and shares its settings with others in a sweep.
        let unused = |table, needed, changed| {
            let chosen = config.extraction;
            if config.algo != Algorithm::Bc && chosen != needed && changed {
                return Err(ConfigError::Unused { table, chosen, needed });
            }
            Ok(())
        };
        if !config.has_critic() {
            unused("caution", Extraction::CriticGuided, config.caution != default_caution)?;
        }
        let mut weight = config.state_weight;
        if let Some(given) = self.state_weight {
            take!(given => weight; floor clip);
        }
        unused("state_weight", Extraction::StateNormalized, weight != config.state_weight)?;
        let mut default_critic = config.critic;
        default_critic.discount = default_critic.discount.min(config.gamma);
        let mut critic = default_critic;
        if let Some(given) = self.critic {
            take!(given => critic; ensemble discount lookahead guidance least_weight target_rate smoothing);
        }
        if config.has_critic() && config.extraction != Extraction::CriticGuided {
            let guidance = critic.guidance != default_critic.guidance;
            unused("critic.guidance", Extraction::CriticGuided, guidance)?;
            let least = critic.least_weight != default_critic.least_weight;
            unused("critic.least_weight", Extraction::CriticGuided, least)?;
        } else {
            unused("critic", Extraction::CriticGuided, critic != default_critic)?;
        }
        let mut projection = config.projection;
        if let Some(given) = self.projection {
            take!(given => projection; floor behaviour_components);
        }
        unused("projection", Extraction::InformationProjection, projection != config.projection)?;
        let mut selection = config.selection;
        if let Some(given) = self.selection {
            take!(given => selection; candidates threshold);
        }
        unused("selection", Extraction::GuidedSelection, selection != config.selection)?;
        (config.state_weight, config.critic, config.projection) = (weight, critic, projection);
        config.selection = selection;
        if config.selects() && self.acting.is_none() {
            config.acting = Acting::Select;
        }
        if config.draws_one_gaussian() {
            config.networks.mixture_components = 1;
        }
        if let Some(networks) = self.networks {
            take!(networks => config.networks; value policy mixture_components min_scale);
        }
        Ok(())
    }
}

fn resolve(raw: &RawLimit, facts: &LogFacts) -> Result<LimitConfig, ConfigError> {
    let known = || facts.cost_names.clone();
    let cost = match (&raw.cost, facts.cost_names.as_slice()) {
        (Some(name), names) if names.contains(name) => name.clone(),
        (Some(name), _) => return Err(ConfigError::UnknownCost { name: name.clone(), known: known() }),
        (None, [only]) => only.clone(),
        (None, _) => return Err(ConfigError::UnnamedCost { limit: raw.limit, known: known() }),
    };
    let unit = raw.unit.ok_or(ConfigError::NoUnit { limit: raw.limit })?;
    let horizon = match raw.horizon {
        None | Some(RawHorizon::Word(LoggedWord::Logged)) => facts.horizon,
        Some(RawHorizon::Steps(steps)) => EpisodeHorizon::Fixed(steps),
        Some(RawHorizon::Varying { logged_mean }) => EpisodeHorizon::Varying { logged_mean },
    };
    Ok(LimitConfig { cost, limit: CostLimit::new(raw.limit, unit, horizon)? })
}

/// An error unless `good`.
pub(super) fn range(
    good: bool,
    field: &'static str,
    value: &dyn std::fmt::Display,
    allowed: &'static str,
) -> Result<(), ConfigError> {
    if good { Ok(()) } else { Err(ConfigError::Range { field, value: value.to_string(), allowed }) }
}

fn check(config: &TrainConfig, facts: &LogFacts) -> Result<(), ConfigError> {
    const POSITIVE: &str = "a finite number above 0";
    const COUNT: &str = "at least 1";
    range(config.steps >= 1, "steps", &config.steps, COUNT)?;
    range(config.threads <= 1024, "threads", &config.threads, "0 for one per core, or a number up to 1024")?;
    range(
        config.dual_share > 0.0 && config.dual_share <= 1.0,
        "dual_share",
        &config.dual_share,
        "a share of the steps, above 0 and at most 1",
    )?;
    range((0.0..=1.0).contains(&config.balance), "balance", &config.balance, "a number from 0 to 1")?;
    range(
        config.caution >= 0.0 && config.caution.is_finite(),
        "caution",
        &config.caution,
        "a finite number, 0 or above",
    )?;
    range(config.batch_size >= 2, "batch_size", &config.batch_size, "at least 2 samples")?;
    range(i64::try_from(config.seed).is_ok(), "seed", &config.seed, "a number below 2^63")?;
    range(config.gamma > 0.0 && config.gamma <= 1.0, "gamma", &config.gamma, "a number in (0, 1]")?;
    range(positive(config.alpha), "alpha", &config.alpha, POSITIVE)?;
    range(
        config.epsilon >= 0.0 && config.epsilon.is_finite(),
        "epsilon",
        &config.epsilon,
        "a finite number, 0 or above",
    )?;
    for (field, rate) in [
        ("learning_rate", config.learning_rate),
        ("policy_learning_rate", config.policy_learning_rate),
        ("multiplier_learning_rate", config.multiplier_learning_rate),
        ("networks.min_scale", config.networks.min_scale),
        ("gradient_penalty.bound", config.gradient_penalty.bound),
    ] {
        range(positive(f64::from(rate)), field, &rate, POSITIVE)?;
    }
    let coefficient = config.gradient_penalty.coefficient;
    range(
        coefficient >= 0.0 && coefficient.is_finite(),
        "gradient_penalty.coefficient",
        &coefficient,
        "a finite number, 0 or above",
    )?;
    range(
        config.lambda_max > 1.0 && config.lambda_max.is_finite(),
        "lambda_max",
        &config.lambda_max,
        "a finite number above 1",
    )?;
    if let RewardScale::Factor(factor) = config.reward_scale {
        range(positive(factor), "reward_scale", &factor, "\"none\", \"std\" or a finite number above 0")?;
    }
    let average = config.policy_average_rate;
    range((0.0..1.0).contains(&average), "policy_average_rate", &average, "a number in [0, 1)")?;
    range(config.checkpoint_every >= 1, "checkpoint_every", &config.checkpoint_every, COUNT)?;
    range(config.keep_checkpoints >= 1, "keep_checkpoints", &config.keep_checkpoints, COUNT)?;
    range(config.log_every >= 1, "log_every", &config.log_every, COUNT)?;
    let components = config.networks.mixture_components;
    range((1..=64).contains(&components), "networks.mixture_components", &components, "1 to 64")?;
    let single = !config.draws_one_gaussian() || facts.discrete || components == 1;
    range(
        single,
        "networks.mixture_components",
        &components,
        "1 with extraction = \"critic_guided\" or \"information_projection\"; where the number comes from the \
         config.toml of a run with another extraction, set networks.mixture_components = 1 as well",
    )?;
    range(
        (0.0..1.0).contains(&config.holdout),
        "holdout",
        &config.holdout,
        "a share of the episodes in [0, 1)",
    )?;
    range(config.evaluation.steps >= 1, "evaluation.steps", &config.evaluation.steps, COUNT)?;
    let similarity = config.evaluation.similarity;
    range(
        similarity >= 0.0 && similarity.is_finite(),
        "evaluation.similarity",
        &similarity,
        "a finite number, 0 or above",
    )?;
    check_size(config)?;
    check_extraction(config)?;
    check_limits(config, facts)
}

fn check_extraction(config: &TrainConfig) -> Result<(), ConfigError> {
    let (weight, critic, projection) = (config.state_weight, config.critic, config.projection);
    range(
        config.selects() || config.acting != Acting::Select,
        "acting",
        &config.acting,
        "mean, mode, component or sample; select goes with extraction = \"guided_selection\"",
    )?;
    let Selection { candidates, threshold } = config.selection;
    range((1..=MAX_CANDIDATES).contains(&candidates), "selection.candidates", &candidates, "1 to 1024")?;
    range(
        threshold > 0.0 && threshold <= 1.0,
        "selection.threshold",
        &threshold,
        "a number above 0 and at most 1",
    )?;
    let floor = projection.floor;
    range(floor > 0.0 && floor < 1.0, "projection.floor", &floor, "a number above 0 and below 1")?;
    let components = projection.behaviour_components;
    range((1..=64).contains(&components), "projection.behaviour_components", &components, "1 to 64")?;
    for (field, value) in [("state_weight.floor", weight.floor), ("state_weight.clip", weight.clip)] {
        range(positive(f64::from(value)), field, &value, "a finite number above 0")?;
    }
    range((1..=64).contains(&config.finalists), "finalists", &config.finalists, "1 to 64")?;
    range((2..=16).contains(&critic.ensemble), "critic.ensemble", &critic.ensemble, "2 to 16")?;
    range((0.0..1.0).contains(&critic.discount), "critic.discount", &critic.discount, "a number in [0, 1)")?;
    range(
        (1..=1_000_000).contains(&critic.lookahead),
        "critic.lookahead",
        &critic.lookahead,
        "a number of steps from 1 to 1000000",
    )?;
    let rate = critic.target_rate;
    range(rate > 0.0 && rate <= 1.0, "critic.target_rate", &rate, "a number in (0, 1]")?;
    for (field, value) in [
        ("critic.guidance", critic.guidance),
        ("critic.least_weight", critic.least_weight),
        ("critic.smoothing", critic.smoothing),
    ] {
        range(value >= 0.0 && value.is_finite(), field, &value, "a finite number, 0 or above")?;
    }
    Ok(())
}

fn positive(value: f64) -> bool {
    value > 0.0 && value.is_finite()
}

fn check_limits(config: &TrainConfig, facts: &LogFacts) -> Result<(), ConfigError> {
    let mut names: Vec<&str> = config.limits.iter().map(|limit| limit.cost.as_str()).collect();
    names.sort_unstable();
    if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(ConfigError::TwoLimits { name: pair[0].to_owned() });
    }
    if config.algo.keeps_limits() {
        if config.limits.is_empty() {
            return Err(ConfigError::NoLimit { algo: config.algo });
        }
        for limit in &config.limits {
            limit.limit.constraint(config.reading(facts))?;
        }
    }
    Ok(())
}
