//! A log made ready for learners: what is scaled, which costs are constrained, how the process is read.
//!
//! # How the process is read
//!
//! | | `gamma < 1`, continuing | `gamma = 1`, restart chain |
//! |---|---|---|
//! | inside an episode | `s'` is the logged next state | the same |
//! | terminal | nothing follows: `s'` counts 0 | `s'` is a fresh initial state |
//! | time-out, or the log was cut there | `s'` is the logged next state: only the recording ended; the row is left out where none was recorded | `s'` is a fresh initial state |
//!
//! Initial states are the first observations of the episodes, drawn independently of the transition.
//!
//! Learners see scaled rewards and normalised observations; costs keep their units, less the credit that a limit per
//! episode of varying length grants to every last step, or one per step to every step of a process that ends under a
//! discount (`coptidice_core::limits`).

use coptidice_core::CostConstraint;
use coptidice_data::{Actions, EpisodeEnd, Transitions};

use crate::config::{ConfigError, LogFacts, RewardScale, ScaleRule, TrainConfig};
use crate::estimate::{CostEstimate, EstimateLimit};
use crate::policy::{ActionUnit, Normalizer};
use crate::registry::Algorithm;

/// The rows that training draws from: all of the log, less those whose `s'` is needed and was not recorded
/// ([`Transitions::next_unknown`]). In the restart chain the step after a last step is a fresh episode's first, and
/// behaviour cloning looks at no `s'`: there nothing is left out.
#[derive(Clone, Debug)]
pub struct TrainingRows<'a> {
    logged: usize,
    left_out: &'a [usize],
}

impl<'a> TrainingRows<'a> {
    fn of(config: &TrainConfig, data: &'a Transitions) -> Self {
        let bootstraps = config.gamma < 1.0 && config.algo != Algorithm::Bc;
        TrainingRows { logged: data.len(), left_out: if bootstraps { data.next_unknown() } else { &[] } }
    }

    /// Number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.logged - self.left_out.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The log's row that is the `k`-th here, `k` below [`TrainingRows::len`].
    #[must_use]
    pub fn row(&self, k: usize) -> usize {
        if self.left_out.is_empty() {
            return k;
        }
        // Of the rows left out, the `j`-th (from 0) stands before the `k`-th kept one where `left_out[j] - j <= k`.
        let (mut low, mut high) = (0, self.left_out.len());
        while low < high {
            let middle = low.midpoint(high);
            if self.left_out[middle] - middle <= k { low = middle + 1 } else { high = middle }
        }
        k + low
    }

    /// Whether the log's row `row` is among them.
    #[must_use]
    pub fn contains(&self, row: usize) -> bool {
        self.left_out.binary_search(&row).is_err()
    }
}

/// A cost as it enters training.
#[derive(Clone, Debug, PartialEq)]
pub struct ConstrainedCost {
    /// Its name in the log.
    pub name: String,
    /// Its column among the log's costs.
    pub column: usize,
    /// The constraint on the occupancy, cost units per step.
    pub constraint: CostConstraint,
    /// The limit, cost units per step; of an episode of the mean logged length where the constraint is on an
    /// episode's total. It says how large the limit is.
    pub limit_per_step: f64,
    /// Factor of the cost in training: one over the largest absolute value of a logged cost, with its credit or without
    /// (1 where all are zero), so that `lambda` and `tau` start in proportion whatever the cost's units.
    pub scale: f64,
    /// One over the largest absolute value of the cost as logged (1 where it is always zero): its factor where it is
    /// priced and not constrained.
    pub logged_scale: f64,
}

impl ConstrainedCost {
    /// The cost of a logged row as it is constrained, less its credit; scaled.
    pub(crate) fn constrained(&self, data: &Transitions, row: usize) -> f64 {
        let credit = self.constraint.credit(data.ends_episode(row));
        (f64::from(data.costs(row)[self.column]) - credit) * self.scale
    }

    /// The same as it is priced: as logged. A credit belongs to the constraint, at the dual's price, which is zero where
    /// the constraint does not bind. At any other price it would pay for steps that cost nothing, or for ending.
    pub(crate) fn priced(&self, data: &Transitions, row: usize) -> f64 {
        f64::from(data.costs(row)[self.column]) * self.logged_scale
    }

    /// Sum of the cost over the log, in the log's units.
    pub(crate) fn total(&self, data: &Transitions) -> f64 {
        (0..data.len()).map(|row| f64::from(data.costs(row)[self.column])).sum()
    }

    /// Right-hand side of the constraint, scaled cost per step.
    #[must_use]
    pub fn scaled_limit(&self) -> f64 {
        self.constraint.limit * self.scale
    }

    /// The limit as estimates are held against it: where the constraint is on an episode's total, that is.
    #[must_use]
    pub fn limit(&self) -> EstimateLimit {
        match self.constraint.last_step_credit {
            0.0 => EstimateLimit::PerStep { limit: self.limit_per_step },
            limit => EstimateLimit::PerEpisode { limit, per_step: self.limit_per_step },
        }
    }

    /// By how much an estimate exceeds the limit, cost units per step; not positive where it keeps it.
    #[must_use]
    pub fn excess(&self, estimate: &CostEstimate) -> f64 {
        let limit = self.limit();
        let over = estimate.in_unit_of(&limit) - limit.value();
        match limit {
            EstimateLimit::PerStep { .. } => over,
            EstimateLimit::PerEpisode { limit, per_step } => over / limit.abs() * per_step.abs(),
        }
    }
}

/// A log and a configuration, made ready for a learner.
#[derive(Clone, Debug)]
pub struct Problem<'a> {
    /// The configuration.
    pub config: &'a TrainConfig,
    /// The log.
    pub data: &'a Transitions,
    /// Its rows that training draws from.
    pub rows: TrainingRows<'a>,
    /// Normalisation of observations; the identity where it is switched off.
    pub normalizer: Normalizer,
    /// Factor of the rewards.
    pub reward_scale: f64,
    /// Standard deviation of the scaled rewards.
    pub reward_deviation: f64,
    /// Costs with a limit, in the order of the configuration.
    pub costs: Vec<ConstrainedCost>,
    /// Mean of the scaled rewards: where `mu` starts.
    pub mean_reward: f64,
    /// Mean of the scaled costs, less their credit, `[K]`.
    pub mean_costs: Vec<f64>,
    /// Mean of `1 - gamma` where the process goes on, of 1 where it ends: what a constant value function loses in a
    /// step, as a share of itself. 0 at `gamma = 1`.
    pub mean_loss: f64,
    /// Size up to which a value function of this problem may reasonably grow.
    pub value_scale: ValueScale,
    /// In what training counts continuous actions; in their own units where there is none.
    pub action_unit: Option<ActionUnit>,
}

/// Bounds from which a runaway is told.
#[derive(Clone, Debug, PartialEq)]
pub struct ValueScale {
    /// Steps over which values add up: `1/(1-gamma)`, or the mean episode at `gamma = 1`, at least 10.
    pub horizon: f64,
    /// Largest absolute scaled reward.
    pub reward: f64,
    /// Largest absolute scaled cost, its credit included, `[K]`.
    pub costs: Vec<f64>,
}

/// A log that cannot be trained on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProblemError {
    /// A number that is not finite.
    #[error("row {row}: {column} is {value}, not a finite number; repair the log first")]
    NotFinite {
        /// The column.
        column: &'static str,
        /// The row.
        row: usize,
        /// What stands there.
        value: String,
    },
    /// The log holds no transition.
    #[error("the log holds no transition")]
    Empty,
    /// No row has the next state that training needs.
    #[error(
        "no step of the log has a recorded next state, which gamma below 1 needs; record next states, or set gamma = 1"
    )]
    NoNextState,
}

impl<'a> Problem<'a> {
    /// Checks the log and computes what training needs from all of it.
    ///
    /// # Errors
    /// [`ProblemError`] for numbers that are not finite; [`ConfigError`] for a limit that cannot become a
    /// constraint under this reading of the process.
    pub fn new(config: &'a TrainConfig, data: &'a Transitions) -> Result<Self, crate::TrainError> {
        if data.is_empty() {
            return Err(ProblemError::Empty.into());
        }
        check_finite(data)?;
        let rows = TrainingRows::of(config, data);
        if rows.is_empty() {
            return Err(ProblemError::NoNextState.into());
        }
        let facts = LogFacts::of(data);
        let costs = constrained_costs(config, data, &facts)?;
        let normalizer = if config.normalize_observations {
            Normalizer::fit(data.observation_dim(), data.len(), |i| data.observation(i))?
        } else {
            Normalizer::identity(data.observation_dim())
        };
        let (mean, deviation) = moments(data.rewards());
        let reward_scale = match config.reward_scale {
            RewardScale::Factor(factor) => factor,
            RewardScale::Rule(ScaleRule::None) => 1.0,
            RewardScale::Rule(ScaleRule::Std) if deviation > 0.0 => 1.0 / deviation,
            RewardScale::Rule(ScaleRule::Std) => 1.0,
        };
        let mean_costs = costs.iter().map(|cost| mean_cost(cost, data)).collect();
        let action_unit = match data.actions() {
            Actions::Continuous { dim, values } => ActionUnit::of(values, *dim),
            Actions::Discrete { .. } => None,
        };
        let value_scale = ValueScale {
            horizon: horizon(config, &facts),
            reward: largest(data.rewards().iter().copied()) * reward_scale,
            costs: costs.iter().map(|cost| 1.0 + cost.constraint.credit(true).abs() * cost.scale).collect(),
        };
        Ok(Problem {
            config,
            data,
            normalizer,
            reward_scale,
            reward_deviation: deviation * reward_scale,
            costs,
            mean_reward: mean * reward_scale,
            mean_costs,
            mean_loss: mean_loss(config.gamma, data, &rows),
            value_scale,
            action_unit,
            rows,
        })
    }

    /// The same problem, scaled as it is, with other episodes to look at.
    pub(crate) fn on<'d>(&self, data: &'d Transitions) -> Problem<'d>
    where
        'a: 'd,
    {
        Problem {
            data,
            rows: TrainingRows::of(self.config, data),
            normalizer: self.normalizer.clone(),
            costs: self.costs.clone(),
            mean_costs: self.mean_costs.clone(),
            value_scale: self.value_scale.clone(),
            action_unit: self.action_unit.clone(),
            ..*self
        }
    }

    /// Middle and half width of the logged range of every component, `[A]` each; empty for discrete actions.
    pub(crate) fn action_scale(&self) -> (Vec<f32>, Vec<f32>) {
        let (low, high) = self.action_range();
        Self::scale_of(&low, &high)
    }

    /// The same in what training counts actions in.
    pub(crate) fn trained_action_scale(&self) -> (Vec<f32>, Vec<f32>) {
        let (mut low, mut high) = self.action_range();
        if let Some(unit) = &self.action_unit {
            unit.enter(&mut low);
            unit.enter(&mut high);
        }
        Self::scale_of(&low, &high)
    }

    fn scale_of(low: &[f32], high: &[f32]) -> (Vec<f32>, Vec<f32>) {
        let ends = || low.iter().zip(high);
        let middle = ends().map(|(l, h)| 0.5 * (l + h)).collect();
        // An action that never varies has no range; its own unit serves.
        (middle, ends().map(|(l, h)| if h > l { 0.5 * (h - l) } else { 1.0 }).collect())
    }

    /// Smallest and largest logged action of every component, `[A]` each; empty for discrete actions.
    #[must_use]
    pub fn action_range(&self) -> (Vec<f32>, Vec<f32>) {
        let Actions::Continuous { dim, values } = self.data.actions() else {
            return (Vec::new(), Vec::new());
        };
        let (mut low, mut high) = (vec![f32::INFINITY; *dim], vec![f32::NEG_INFINITY; *dim]);
        for action in values.chunks_exact(*dim) {
            for ((low, high), &value) in low.iter_mut().zip(&mut high).zip(action) {
                *low = low.min(value);
                *high = high.max(value);
            }
        }
        (low, high)
    }
}

fn horizon(config: &TrainConfig, facts: &LogFacts) -> f64 {
    let steps = if config.gamma < 1.0 { 1.0 / (1.0 - config.gamma) } else { facts.horizon.mean_steps() };
    steps.max(10.0)
}

fn constrained_costs(
    config: &TrainConfig,
    data: &Transitions,
    facts: &LogFacts,
) -> Result<Vec<ConstrainedCost>, ConfigError> {
    let find = |name: &String| {
        facts
            .cost_names
            .iter()
            .position(|known| known == name)
            .ok_or_else(|| ConfigError::UnknownCost { name: name.clone(), known: facts.cost_names.clone() })
    };
    config
        .limits
        .iter()
        .map(|limit| {
            let column = find(&limit.cost)?;
            let (limit_per_step, _) = limit.limit.both_readings(facts.horizon.mean_steps());
            let constraint = match limit.limit.constraint(config.reading(facts)) {
                Ok(constraint) => constraint,
                // Only reported, never enforced: the plain reading per step will do.
                Err(_) if !config.algo.keeps_limits() => {
                    CostConstraint { limit: limit_per_step, ..CostConstraint::default() }
                }
                Err(error) => return Err(error.into()),
            };
            let one_over = |top: f64| if top > 0.0 { 1.0 / top } else { 1.0 };
            let logged = |row: usize| f64::from(data.costs(row)[column]);
            let credited = |row: usize| logged(row) - constraint.credit(data.ends_episode(row));
            let rows = || 0..data.len();
            let logged_top = rows().map(|row| logged(row).abs()).fold(0.0, f64::max);
            // A credit for an episode's total is as large as that.
            let top = rows().map(|row| credited(row).abs()).fold(logged_top, f64::max);
            Ok(ConstrainedCost {
                name: limit.cost.clone(),
                column,
                constraint,
                limit_per_step,
                scale: one_over(top),
                logged_scale: one_over(logged_top),
            })
        })
        .collect()
}

/// Mean of a scaled cost, less its credit.
fn mean_cost(cost: &ConstrainedCost, data: &Transitions) -> f64 {
    let constraint = &cost.constraint;
    let credit = constraint.step_credit.unwrap_or(0.0) * data.len() as f64
        + constraint.last_step_credit * data.episodes().len() as f64;
    (cost.total(data) - credit) * cost.scale / data.len() as f64
}

/// See [`Problem::mean_loss`].
fn mean_loss(gamma: f64, data: &Transitions, rows: &TrainingRows<'_>) -> f64 {
    if gamma == 1.0 {
        return 0.0;
    }
    let ends = data.episodes().iter().filter(|episode| episode.end == EpisodeEnd::Terminal).count() as f64;
    1.0 - gamma * (1.0 - ends / rows.len() as f64)
}

fn check_finite(data: &Transitions) -> Result<(), ProblemError> {
    let first_bad = |column, values: &[f32], width: usize| match values.iter().position(|v| !v.is_finite()) {
        Some(place) => Err(ProblemError::NotFinite {
            column,
            row: place / width.max(1),
            value: values[place].to_string(),
        }),
        None => Ok(()),
    };
    first_bad("observation", data.observations(), data.observation_dim())?;
    first_bad("reward", data.rewards(), 1)?;
    if let Actions::Continuous { dim, values } = data.actions() {
        first_bad("action", values, *dim)?;
    }
    for row in 0..data.len() {
        let within = |error: ProblemError| match error {
            ProblemError::NotFinite { column, value, .. } => ProblemError::NotFinite { column, row, value },
            other => other,
        };
        first_bad("cost", data.costs(row), 1).map_err(within)?;
        if !data.terminal(row) && data.next_unknown().binary_search(&row).is_err() {
            first_bad("next observation", data.next_observation(row), 1).map_err(within)?;
        }
    }
    Ok(())
}

/// Mean and standard deviation (of the population), accumulated in `f64`, in two passes.
fn moments(values: &[f32]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().map(|&v| f64::from(v)).sum::<f64>() / count;
    let variance = values.iter().map(|&v| (f64::from(v) - mean).powi(2)).sum::<f64>() / count;
    (mean, variance.sqrt())
}

fn largest(values: impl Iterator<Item = f32>) -> f64 {
    f64::from(values.fold(0.0_f32, |top, v| top.max(v.abs())))
}
