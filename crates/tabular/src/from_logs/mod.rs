//! A policy from the logs of a finite CMDP.
//!
//! # Reading of the logs
//!
//! `T̂`, `R̂` and `Ĉ` are frequencies and means over the rows of each pair, `p̂0` is that of the first states of
//! episodes. A terminal row ends the episode: at `γ = 1` it leads back to `p̂0` (the restart chain), below one to a
//! state without reward or cost. The last row of an episode that is not terminal is a time-out: it cuts the log,
//! not the process. A state that is entered but in which no row starts cannot be continued from; entering it is
//! counted as an end, and such states are listed in [`LogSolution::dead_ends`].
//!
//! `d^D` is the empirical distribution of pairs, or the occupancy of a known behaviour on the estimated CMDP, kept to
//! the pairs that were logged and normalised there.
//!
//! # Objective and strength of the divergence
//!
//! At `γ = 1` the paper's objective is reward per *step*, which favours short episodes. Where limits are given per
//! episode the reward is, by default, meant per episode too ([`Objective`]): `max E_d[R]/E_d[1{end}]`, found as the
//! fixed point of `ρ` in `max E_d[R − ρ·1{end}]` (Dinkelbach 1967), each a program as before.
//!
//! `α` weighs the distance from the data against estimated gains. Its default is the standard error of those gains:
//! with `y = r + γV(s')` for the behaviour's values `V`, the pooled deviation of `y` within a pair times
//! `√(pairs/rows)`. Below it the program chases noise: with the paper's `1/episodes` on a log of 8,000 episodes over
//! 11,000 pairs, the policy's true cost was six times its limit; with the standard error it kept it.
//!
//! # Limits per episode under a discount
//!
//! Where `γ < 1` and lengths vary, a limit on the total of an episode is no linear constraint on the discounted
//! occupancy. It is met by iteration: the limit on the discounted cost is the limit per episode times the present
//! policy's ratio of discounted to undiscounted cost, first the behaviour's and then the solution's, until it
//! settles. Where the behaviour's ratio puts the limit out of reach, that of a policy which keeps it takes its place.
//! What the policy costs per episode on the estimated CMDP is reported beside it.
//!
//! # Limits that cannot be kept
//!
//! A limit below what every logged step costs ends the solve at once, [`Outcome::Infeasible`]. What was solved is
//! valued anew, and where its policy or its bound exceeds a limit after all, or the policy is not where the program has
//! its mass, the outcome is [`Outcome::Unconfirmed`]: on a restart chain a policy that never ends an episode meets any
//! limit per episode, and at `γ = 1` a program may share mass among closed classes as no policy does. Where the linear
//! program has a policy within the limits but no policy's upper bound is, the outcome is [`Outcome::BoundOverLimit`].
//!
//! # The policy
//!
//! `π(a|s) ∝ d(s,a)` where the solution has mass. Elsewhere the behaviour's choice is kept: the known behaviour, or
//! the logged frequencies. States in which nothing was ever logged have a known behaviour's row, or else a uniform
//! one; [`LogSolution::sources`] says which states are which.

mod appraisal;
mod estimate;

pub use appraisal::{Appraisal, AppraisalOptions, Bounded, appraise};

use coptidice_core::{
    Cmdp, CmdpError, CostConstraint, CostLimit, Divergence, EpisodeHorizon, LimitError, Policy,
};
use serde::{Deserialize, Serialize};

use crate::baselines::{Spibb, SpibbSolution};
use crate::dice::units::{largest, unit};
use crate::dice::{self, BoundProblem, DiceError, Effort, Problem, Samples, Solution};
use crate::evaluation::{Evaluation, Evaluator};
use crate::generate::GenerateError;
use crate::linalg::spd::dot;
use crate::lp::{self, LpSolution};
use crate::outcome::{Certificate, Outcome};
use estimate::Estimate;

/// Share of a state's data mass below which the solution is taken not to visit it: an exact zero plus rounding.
const VISITED: f64 = 1e-8;

/// Most pairs of a state and an action: a table of one number for each takes 128 MiB, and there are about a dozen.
const MAX_PAIRS: usize = 1 << 24;

/// Largest reward or cost in magnitude: values sum up to millions of them, and are squared.
const LARGEST: f64 = 1e100;

/// Logged transitions, row by row. Rows of an episode are contiguous and in the order of time.
#[derive(Clone, Copy, Debug)]
pub struct Logs<'a> {
    /// Number of states `S`.
    pub states: usize,
    /// Number of actions `A`.
    pub actions: usize,
    /// First row of each episode, increasing from 0.
    pub episode_starts: &'a [usize],
    /// `[N]`.
    pub state: &'a [u32],
    /// `[N]`.
    pub action: &'a [u32],
    /// `[N]`.
    pub reward: &'a [f64],
    /// `[K][N]`.
    pub costs: &'a [Vec<f64>],
    /// `[N]`; not looked at in terminal rows.
    pub next_state: &'a [u32],
    /// `[N]`, the process ended with this row.
    pub terminal: &'a [bool],
}

/// What to do with the logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogAlgorithm {
    /// COptiDICE with the cost bound.
    Coptidice,
    /// COptiDICE without it.
    Naive,
    /// OptiDICE: limits ignored.
    Optidice,
    /// Linear program on the estimated CMDP, pairs never logged excluded.
    Lp,
    /// C-SPIBB: the linear program among policies that repeat the behaviour on rarely logged pairs.
    Spibb,
    /// Behaviour cloning: the logged frequencies.
    Bc,
}

impl LogAlgorithm {
    /// Whether it does anything about limits.
    #[must_use]
    pub fn keeps_limits(self) -> bool {
        !matches!(self, LogAlgorithm::Optidice | LogAlgorithm::Bc)
    }
}

/// What is maximised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Objective {
    /// Reward per step, discounted if `γ < 1`.
    PerStep,
    /// Undiscounted reward per episode; needs `γ = 1` and episodes that end.
    PerEpisode,
}

/// Settings; `None` stands for the default named.
#[derive(Clone, Debug)]
pub struct LogOptions<'a> {
    /// Algorithm.
    pub algorithm: LogAlgorithm,
    /// Discount in `(0, 1]`.
    pub gamma: f64,
    /// One limit per cost.
    pub limits: Vec<CostLimit>,
    /// `f`.
    pub divergence: Divergence,
    /// What is maximised; default per episode where `γ = 1`, episodes end and some limit is per episode, and per
    /// step otherwise.
    pub objective: Option<Objective>,
    /// Weight of the divergence, reward units; default the standard error of estimated gains (see the module).
    pub alpha: Option<f64>,
    /// KL radius of the bound; default a tenth over the number of episodes.
    pub epsilon: Option<f64>,
    /// Pairs logged less often than this are C-SPIBB's to leave alone (`N_wedge`).
    pub wedge: f64,
    /// The policy that made the logs, where it is known.
    pub behaviour: Option<&'a Policy>,
    /// Iteration limits.
    pub effort: Effort,
}

/// Where a state's row of the policy comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RowSource {
    /// The solution visits the state.
    Solution,
    /// It does not; the behaviour's choice is kept.
    Behaviour,
    /// Nothing was logged there: a known behaviour's row, or uniform.
    Unseen,
}

/// One cost of a policy on the estimated CMDP.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CostReading {
    /// The limit asked for.
    pub limit: CostLimit,
    /// Mean of a step, of those that are taken: what has ended counts for nothing.
    pub per_step: f64,
    /// Mean total of an episode, undiscounted; where episodes have an end. Under a limit for episodes of a fixed
    /// length, the total of that many steps.
    pub per_episode: Option<f64>,
    /// What is held below `constraint_limit`: the mean per step, less the credit of last steps, or of all.
    pub constrained: f64,
    /// Its upper bound for the solution's `w`, where one was asked for.
    pub upper_bound: Option<f64>,
    /// Right-hand side of the constraint, per step.
    pub constraint_limit: f64,
    /// What a unit of `constrained` is in the unit of the limit. `None` where a credit stands for the limit: of last steps
    /// for one per episode in the restart chain, where a unit is one in every step of an episode, above the limit; of all
    /// steps where a discounted process ends, where a unit of a step is one over [`Reading::mass`], above the limit.
    pub scale: Option<f64>,
}

impl CostReading {
    /// The cost in the unit of its limit, which is what the limit is held against; `None` per episode where the
    /// policy never ends one.
    #[must_use]
    pub fn in_limit_unit(&self) -> Option<f64> {
        match self.limit {
            CostLimit::PerStep { .. } => Some(self.per_step),
            CostLimit::PerEpisode { .. } => self.per_episode,
        }
    }
}

/// Values of a policy on the estimated CMDP.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// Mean reward of a step, of those that are taken: what has ended counts for nothing.
    pub reward_per_step: f64,
    /// Mass of the steps that are taken: 1, less where episodes end under a discount.
    pub mass: f64,
    /// Mean total reward of an episode, undiscounted; where episodes have an end.
    pub reward_per_episode: Option<f64>,
    /// Mean episode length in steps; where episodes have an end.
    pub steps_per_episode: Option<f64>,
    /// One for each cost.
    pub costs: Vec<CostReading>,
}

/// A policy from logs, with what is known about it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LogSolution {
    /// How the solve ended.
    pub outcome: Outcome,
    /// The policy, over all states and actions.
    pub policy: Policy,
    /// Where each state's row comes from, `[S]`.
    pub sources: Vec<RowSource>,
    /// States entered but never acted in; entering them is counted as an end.
    pub dead_ends: Vec<u32>,
    /// What was maximised.
    pub objective: Objective,
    /// `ρ`: reward per episode that the objective takes off each end; zero for [`Objective::PerStep`].
    pub reward_offset: f64,
    /// `α` used.
    pub alpha: f64,
    /// `ε` used; zero where no bound was asked for.
    pub epsilon: f64,
    /// `λ`, `[K]`.
    pub lambda: Vec<f64>,
    /// The solution of the program; only of the three that have a divergence.
    pub solution: Option<Solution>,
    /// What proves the solution; absent for behaviour cloning and C-SPIBB.
    pub certificate: Option<Certificate>,
    /// The returned policy on the estimated CMDP.
    pub estimate: Reading,
    /// The behaviour on the estimated CMDP.
    pub behaviour: Reading,
}

/// Logs or options that pose no problem.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum LogError {
    /// No rows or no episodes.
    #[error("the log has no transitions")]
    Empty,
    /// More pairs of a state and an action than tables are made for.
    #[error(
        "{states} states and {actions} actions are {} pairs, more than the 16777216 that fit: a column of numbers that \
         hardly repeat is no state or action of a finite CMDP; name another, or round it",
        (*states as u128) * (*actions as u128)
    )]
    TooManyPairs {
        /// States that occur.
        states: usize,
        /// Actions that occur.
        actions: usize,
    },
    /// Columns of different length.
    #[error("column {column} has {found} rows where {expected} are needed")]
    Column {
        /// Which column.
        column: &'static str,
        /// Rows of the others.
        expected: usize,
        /// Rows of this one.
        found: usize,
    },
    /// Episode starts that are not increasing from 0.
    #[error("episode {episode} starts at row {start}; starts increase from 0 and lie within the log")]
    EpisodeStart {
        /// Which episode.
        episode: usize,
        /// Its start.
        start: usize,
    },
    /// A reward or cost that is not finite.
    #[error("{column} in row {row} is {value}; repair or drop the row")]
    NotFinite {
        /// Which column.
        column: &'static str,
        /// Which row.
        row: usize,
        /// Value found.
        value: f64,
    },
    /// A reward or cost beyond what sums of squares hold.
    #[error(
        "{column} in row {row} is {value:e}; numbers beyond 1e100 cannot be summed and squared: give another unit"
    )]
    TooLarge {
        /// Which column.
        column: &'static str,
        /// Which row.
        row: usize,
        /// Value found.
        value: f64,
    },
    /// A limit that cannot be turned into a constraint.
    #[error("limit of cost {index}: {source}")]
    Limit {
        /// Which cost.
        index: usize,
        /// Why not.
        source: LimitError,
    },
    /// A limit per episode where lengths vary and no episode is known to end.
    #[error(
        "limit of cost {index}: a limit per episode needs episodes that end, but lengths vary and no row is \
         terminal; mark terminal rows, or give the limit per step"
    )]
    NoEnds {
        /// Which cost.
        index: usize,
    },
    /// Totals per episode are asked for, and the logged behaviour has none.
    #[error(
        "by this log the behaviour's episodes never end: its steps lead to states from which no logged step leads to a \
         terminal row; mark the rows that end, drop the episodes that stop short of it, or give limits and objective \
         per step"
    )]
    NeverEnds,
    /// Reward per episode where episodes do not end, or discounted.
    #[error("reward per episode needs gamma = 1 and rows marked terminal; maximise reward per step instead")]
    Objective,
    /// The estimated CMDP is defective.
    #[error(transparent)]
    Cmdp(#[from] CmdpError),
    /// The program is defective.
    #[error(transparent)]
    Dice(#[from] DiceError),
    /// The resampling is defective.
    #[error(transparent)]
    Resampling(#[from] GenerateError),
}

impl Logs<'_> {
    /// The horizon that the lengths of episodes show, and whether any ended by itself.
    #[must_use]
    pub fn horizon(&self) -> EpisodeHorizon {
        let ends = self.episode_starts.iter().skip(1).copied().chain([self.state.len()]);
        let lengths = self.episode_starts.iter().zip(ends).map(|(&start, end)| end - start);
        EpisodeHorizon::of_lengths(&lengths.collect::<Vec<usize>>(), self.terminal.contains(&true))
    }

    /// Refuses logs that pose no problem; every function that takes logs does so first.
    ///
    /// # Errors
    /// [`LogError`], with the place.
    pub fn check(&self) -> Result<(), LogError> {
        let n = self.state.len();
        if n == 0 || self.episode_starts.is_empty() {
            return Err(LogError::Empty);
        }
        let (states, actions) = (self.states, self.actions);
        if states.checked_mul(actions).is_none_or(|pairs| pairs > MAX_PAIRS) {
            return Err(LogError::TooManyPairs { states, actions });
        }
        let columns = [
            ("action", self.action.len()),
            ("reward", self.reward.len()),
            ("next_state", self.next_state.len()),
            ("terminal", self.terminal.len()),
        ];
        let costs = self.costs.iter().map(|c| ("cost", c.len()));
        if let Some((column, found)) = columns.into_iter().chain(costs).find(|(_, len)| *len != n) {
            return Err(LogError::Column { column, expected: n, found });
        }
        let mut previous = None;
        for (episode, &start) in self.episode_starts.iter().enumerate() {
            if start >= n || previous.map_or(start != 0, |p| start <= p) {
                return Err(LogError::EpisodeStart { episode, start });
            }
            previous = Some(start);
        }
        let numbers =
            std::iter::once(("reward", self.reward)).chain(self.costs.iter().map(|c| ("cost", &c[..])));
        for (column, values) in numbers {
            if let Some(row) = values.iter().position(|v| !v.is_finite()) {
                return Err(LogError::NotFinite { column, row, value: values[row] });
            }
            if let Some(row) = values.iter().position(|v| v.abs() > LARGEST) {
                return Err(LogError::TooLarge { column, row, value: values[row] });
            }
        }
        Ok(())
    }
}

/// Estimates the CMDP, solves it and reads off a policy.
///
/// # Errors
/// [`LogError`] when the logs or the options pose no problem. Limits that cannot be met are an outcome.
pub fn solve(logs: &Logs<'_>, options: &LogOptions<'_>) -> Result<LogSolution, LogError> {
    logs.check()?;
    let mut estimate = Estimate::new(logs, options.gamma, &options.limits)?;
    estimate.check_ends(&options.limits)?;
    let m = estimate.model.clone();
    let mut evaluator = Evaluator::new(m.states());
    let uniform = Policy::uniform(m.states(), m.actions())?;
    let behaviour = Policy::from_mass(options.behaviour.unwrap_or(&uniform), &estimate.counts)?;
    let behaviour = options.behaviour.cloned().unwrap_or(behaviour);
    let behaviour_evaluation = evaluator.evaluate(&m, &behaviour)?;
    let data_occupancy = match options.behaviour {
        Some(_) => estimate.occupancy_of(&mut evaluator, &behaviour)?,
        None => estimate.counts.iter().map(|&n| n / logs.state.len() as f64).collect(),
    };
    let episodes = logs.episode_starts.len() as f64;
    let alpha = match options.alpha {
        Some(alpha) => alpha,
        None => estimate.standard_error(logs, &behaviour, &mut evaluator, behaviour_evaluation.reward)?,
    };
    let bounded = options.algorithm == LogAlgorithm::Coptidice;
    let epsilon = if bounded { options.epsilon.unwrap_or(0.1 / episodes) } else { 0.0 };
    let objective = estimate.objective(options)?;
    let converting = estimate.converted.contains(&true);
    if converting || objective == Objective::PerEpisode {
        estimate.check_behaviour(&mut evaluator, &behaviour, &behaviour_evaluation)?;
    }
    estimate.convert_limits(&mut evaluator, &behaviour, &options.limits)?;
    let mut program = Program {
        options,
        limits: estimate.constraint_limits.clone(),
        costs: estimate.less_step_credits(),
        credits: &estimate.credits.clone(),
        counts: &estimate.counts.clone(),
        behaviour: &behaviour,
        model: m.clone(),
        data_occupancy: &data_occupancy,
        alpha,
        epsilon,
        start: None,
        ready: None,
    };
    let out_of_reach = options.algorithm.keeps_limits() && out_of_reach(logs, &estimate, &options.limits);
    let reward_offset = match objective {
        _ if out_of_reach => 0.0,
        Objective::PerStep => 0.0,
        Objective::PerEpisode => program.settle_offset(&estimate, &behaviour_evaluation)?,
    };
    let mut found = match program.ready.take() {
        _ if out_of_reach => Found::nothing(m.pairs(), options.limits.len()),
        Some(found) => found,
        None => program.solve(options.algorithm)?,
    };
    let limits = &options.limits;
    let (mut policy, mut sources) = read_off(&estimate, &behaviour, &found.occupancy, &data_occupancy);
    let settling = converting && options.algorithm.keeps_limits() && !out_of_reach;
    // The limits last met, and the best policy so far that keeps those per episode.
    let (mut met, mut best): (Option<Vec<f64>>, Option<(f64, Found)>) = (None, None);
    for _ in 0..if settling { LIMIT_ROUNDS } else { 0 } {
        if found.outcome.is_usable() {
            met = Some(program.limits.clone());
            let change = estimate.convert_limits(&mut evaluator, &policy, limits)?;
            if let Some(reward) = estimate.reward_if_kept(&mut evaluator, &policy, limits)?
                && best.as_ref().is_none_or(|(best, _)| reward > *best)
            {
                best = Some((reward, found.clone()));
            }
            if change <= LIMIT_TOLERANCE {
                break;
            }
            program.limits.clone_from(&estimate.constraint_limits);
            program.start = found.solution.take();
        } else if found.outcome != Outcome::Infeasible {
            break;
        } else if let Some(met) = &met {
            // The last policy's ratio went too far.
            program.limits.iter_mut().zip(met).for_each(|(l, m)| *l = 0.5 * (*l + m));
        } else if best.is_some()
            || !estimate.convert_by_keeping(&mut evaluator, limits, &data_occupancy, &behaviour)?
            || program.limits == estimate.constraint_limits
        {
            break;
        } else {
            program.limits.clone_from(&estimate.constraint_limits);
        }
        found = program.solve(options.algorithm)?;
        (policy, sources) = read_off(&estimate, &behaviour, &found.occupancy, &data_occupancy);
    }
    if settling {
        let kept =
            found.outcome.is_usable() && estimate.reward_if_kept(&mut evaluator, &policy, limits)?.is_some();
        if let (false, Some((_, earlier))) = (kept, best) {
            found = earlier;
            (policy, sources) = read_off(&estimate, &behaviour, &found.occupancy, &data_occupancy);
        }
        estimate.convert_limits(&mut evaluator, &policy, limits)?;
    }
    if found.outcome == Outcome::Infeasible && bounded && !out_of_reach {
        let without_bound = lp::solve_in_support(&program.model, &program.limits, &data_occupancy)?;
        if without_bound.outcome.is_usable() {
            found.outcome = Outcome::BoundOverLimit;
        }
    }
    let evaluation = evaluator.evaluate(&m, &policy)?;
    // Where there is no solution, what the search left behind bounds nothing.
    let solution = found.solution.iter().filter(|_| found.outcome.is_usable());
    let bounds: Vec<f64> = solution.flat_map(|s| s.bounds.iter().map(|b| b.value)).collect();
    let read = estimate.reading(&mut evaluator, &policy, &evaluation, limits, &bounds)?;
    let logged = estimate.reading(&mut evaluator, &behaviour, &behaviour_evaluation, limits, &[])?;
    let solved = found.outcome.is_usable();
    let kept = || !options.algorithm.keeps_limits() || keeps(&read, &logged, &estimate.converted);
    let as_promised = || {
        let pairs = found.occupancy.iter().zip(&evaluation.occupancy);
        options.algorithm == LogAlgorithm::Bc || pairs.map(|(d, e)| (d - e).abs()).sum::<f64>() <= PROMISE
    };
    let outcome = if solved && !(kept() && as_promised()) { Outcome::Unconfirmed } else { found.outcome };
    Ok(LogSolution {
        outcome,
        sources,
        dead_ends: estimate.dead_ends.clone(),
        objective,
        reward_offset,
        alpha,
        epsilon,
        lambda: found.lambda,
        certificate: found.certificate,
        solution: found.solution,
        estimate: read,
        behaviour: logged,
        policy,
    })
}

/// Whether some limit is below what every logged step costs: no policy within the log keeps it.
fn out_of_reach(logs: &Logs<'_>, estimate: &Estimate, limits: &[CostLimit]) -> bool {
    // Where the process ends under a discount.
    let loses_mass = estimate.episodes.is_some();
    limits.iter().enumerate().any(|(k, limit)| {
        let least = logs.costs[k].iter().copied().fold(f64::INFINITY, f64::min);
        let constraint = match *limit {
            // Its constraint is that of one policy; on the total of an episode it is the same for all.
            CostLimit::PerEpisode { limit, .. } if estimate.converted[k] => {
                CostConstraint { last_step_credit: limit, ..CostConstraint::default() }
            }
            _ => CostConstraint {
                limit: estimate.constraint_limits[k],
                step_credit: estimate.step_credits[k],
                last_step_credit: estimate.credits[k],
            },
        };
        constraint.out_of_reach(least, loses_mass)
    })
}

/// How far a policy's cost may be over its limit, or over the bound that was to hold it, relative to the largest of
/// them and the behaviour's cost: a hundred times what programs are solved to.
const KEPT_TOLERANCE: f64 = 1e-6;

/// How far a policy's occupancy may be, in total, from that of the program it was read from. More shows that the program
/// was free to say where mass is that no policy brings there: among several closed classes at `γ = 1`.
const PROMISE: f64 = 1e-4;

/// Whether a policy, as read on the estimated CMDP, keeps every limit, and every bound bounds its own estimate.
///
/// Constraints on a restart chain hold of a policy that never ends its episodes, whatever the limit: what counts is
/// the total of an episode.
fn keeps(found: &Reading, behaviour: &Reading, converted: &[bool]) -> bool {
    found.costs.iter().zip(&behaviour.costs).zip(converted).all(|((cost, logged), &converted)| {
        // What settles by iteration, settles to its own tolerance.
        let tolerance = if converted { 2.0 * LIMIT_TOLERANCE } else { KEPT_TOLERANCE };
        let bounded = cost.upper_bound.is_none_or(|bound| {
            let size = bound.abs().max(cost.constrained.abs()).max(logged.constrained.abs());
            cost.constrained - bound <= KEPT_TOLERANCE * size
                && bound - cost.constraint_limit <= tolerance * size.max(cost.constraint_limit.abs())
        });
        // The very figure that is reported.
        let Some(value) = cost.in_limit_unit() else { return false };
        let limit = cost.limit.value();
        let size = logged.in_limit_unit().unwrap_or(0.0);
        bounded && value - limit <= tolerance * value.abs().max(limit.abs()).max(size.abs())
    })
}

/// Solutions found while limits per episode settle under a discount, at most, after the first.
const LIMIT_ROUNDS: usize = 12;
/// Relative change at which they have settled: well below what is known of costs.
const LIMIT_TOLERANCE: f64 = 1e-3;

/// `π ∝ d` where the solution has mass; the behaviour's row elsewhere.
fn read_off(
    estimate: &Estimate,
    behaviour: &Policy,
    occupancy: &[f64],
    data_occupancy: &[f64],
) -> (Policy, Vec<RowSource>) {
    let actions = behaviour.actions();
    let mut mass = occupancy.to_vec();
    let mut sources = Vec::with_capacity(behaviour.states());
    for s in 0..behaviour.states() {
        let range = s * actions..(s + 1) * actions;
        let here: f64 = occupancy[range.clone()].iter().sum();
        let data: f64 = data_occupancy[range.clone()].iter().sum();
        let source = if here > VISITED * data {
            RowSource::Solution
        } else if estimate.counts[range.clone()].iter().any(|&n| n > 0.0) {
            RowSource::Behaviour
        } else {
            RowSource::Unseen
        };
        if source != RowSource::Solution {
            mass[range].fill(0.0);
        }
        sources.push(source);
    }
    let policy = Policy::from_mass(behaviour, &mass).expect("occupancies are non-negative and of this shape");
    (policy, sources)
}

/// The program that the options ask for.
struct Program<'a> {
    options: &'a LogOptions<'a>,
    limits: Vec<f64>,
    costs: Vec<Vec<f64>>,
    credits: &'a [f64],
    counts: &'a [f64],
    behaviour: &'a Policy,
    /// The estimated CMDP, its reward less `ρ` at ends.
    model: Cmdp,
    data_occupancy: &'a [f64],
    alpha: f64,
    epsilon: f64,
    /// Solution for another `ρ`, to start from.
    start: Option<Solution>,
    /// The answer, where it came with `ρ`.
    ready: Option<Found>,
}

/// Its answer.
#[derive(Clone)]
struct Found {
    outcome: Outcome,
    occupancy: Vec<f64>,
    lambda: Vec<f64>,
    certificate: Option<Certificate>,
    solution: Option<Solution>,
}

impl Found {
    /// No policy: limits are out of reach.
    fn nothing(pairs: usize, limits: usize) -> Self {
        Found {
            outcome: Outcome::Infeasible,
            occupancy: vec![0.0; pairs],
            lambda: vec![0.0; limits],
            certificate: None,
            solution: None,
        }
    }

    fn linear(answer: LpSolution) -> Self {
        Found {
            outcome: answer.outcome,
            occupancy: answer.occupancy,
            lambda: answer.lambda,
            certificate: Some(answer.certificate),
            solution: None,
        }
    }

    fn spibb(m: &Cmdp, answer: SpibbSolution) -> Result<Self, CmdpError> {
        Ok(Found {
            outcome: answer.outcome,
            occupancy: Evaluator::new(m.states()).evaluate(m, &answer.policy)?.occupancy,
            lambda: answer.lambda,
            certificate: None,
            solution: None,
        })
    }
}

/// Change of `ρ`, relative, at which the objective per episode has settled. It enters the reward, and with it the
/// solution, multiplied by the share of ends.
const OFFSET_TOLERANCE: f64 = 1e-7;

impl Program<'_> {
    /// Finds `ρ`, the reward per episode of the solution for `R − ρ·1{end}`, and leaves it in the model.
    fn settle_offset(&mut self, estimate: &Estimate, behaviour: &Evaluation) -> Result<f64, LogError> {
        let mut offset = behaviour.reward / estimate.ends(&behaviour.occupancy);
        let algorithm = match self.options.algorithm {
            LogAlgorithm::Bc => return Ok(offset),
            // Linear programs have the ratio for their objective.
            LogAlgorithm::Lp => {
                let (answer, ratio) =
                    lp::solve_per_episode(&estimate.model, &self.limits, self.data_occupancy)?;
                self.set_offset(estimate, ratio)?;
                self.ready = Some(Found::linear(answer));
                return Ok(ratio);
            }
            LogAlgorithm::Spibb => {
                let (m, wedge) = (&estimate.model, self.options.wedge);
                let (answer, ratio) = Spibb::new(m.states()).solve_per_episode(
                    m,
                    self.counts,
                    self.behaviour,
                    wedge,
                    &self.limits,
                )?;
                self.set_offset(estimate, ratio)?;
                self.ready = Some(Found::spibb(&self.model, answer)?);
                return Ok(ratio);
            }
            // The bound tightens limits a little; `ρ` is found without it.
            LogAlgorithm::Coptidice => LogAlgorithm::Naive,
            other => other,
        };
        let size = unit(largest(estimate.model.reward()));
        for _ in 0..20 {
            self.set_offset(estimate, offset)?;
            let found = self.solve(algorithm)?;
            let ends = estimate.ends(&found.occupancy);
            if !found.outcome.is_usable() {
                // The bound only tightens limits: nothing better would come of it.
                self.ready = Some(found);
                break;
            }
            if ends.is_nan() || ends <= 0.0 {
                break;
            }
            let next = dot(&found.occupancy, estimate.model.reward()) / ends;
            self.start = found.solution;
            let settled = (next - offset).abs() <= OFFSET_TOLERANCE * (size + next.abs());
            offset = next;
            if settled {
                break;
            }
        }
        self.set_offset(estimate, offset)?;
        Ok(offset)
    }

    /// A ratio that is not finite is that of a policy which never ends; it changes nothing.
    fn set_offset(&mut self, estimate: &Estimate, offset: f64) -> Result<(), LogError> {
        if !offset.is_finite() {
            return Ok(());
        }
        self.model = lp::less_at_ends(&estimate.model, offset)?;
        Ok(())
    }

    fn solve(&self, algorithm: LogAlgorithm) -> Result<Found, LogError> {
        let (m, limits) = (&self.model, self.limits.as_slice());
        let problem = Problem {
            model: m,
            data_occupancy: self.data_occupancy,
            limits,
            divergence: self.options.divergence,
            alpha: self.alpha,
        };
        let effort = self.options.effort;
        let solution = match algorithm {
            LogAlgorithm::Bc => {
                return Ok(Found {
                    outcome: Outcome::Solved,
                    occupancy: self.data_occupancy.to_vec(),
                    lambda: vec![0.0; limits.len()],
                    certificate: None,
                    solution: None,
                });
            }
            LogAlgorithm::Lp => {
                return Ok(Found::linear(lp::solve_in_support(m, limits, self.data_occupancy)?));
            }
            LogAlgorithm::Spibb => {
                let mut solver = Spibb::new(m.states());
                let wedge = self.options.wedge;
                return Ok(Found::spibb(m, solver.solve(m, self.counts, self.behaviour, wedge, limits)?)?);
            }
            LogAlgorithm::Optidice => dice::optidice(&problem, effort)?,
            LogAlgorithm::Naive => dice::coptidice_naive(&problem, self.start.as_ref(), effort)?,
            LogAlgorithm::Coptidice => {
                let samples = Samples::from_model(m, self.data_occupancy)?;
                let bound = BoundProblem {
                    samples: &samples,
                    epsilon: self.epsilon,
                    weight_floor: 0.0,
                    costs: &self.costs,
                    last_step_credits: self.credits,
                };
                dice::coptidice(&problem, &bound, self.start.as_ref(), effort)?
            }
        };
        // Where the search ended far from any solution its weights may be beyond all numbers.
        let finite = solution.occupancy.iter().all(|d| d.is_finite());
        Ok(Found {
            outcome: match solution.outcome {
                outcome if outcome.is_usable() && !finite => Outcome::IterationLimit,
                outcome => outcome,
            },
            occupancy: if finite { solution.occupancy.clone() } else { vec![0.0; m.pairs()] },
            lambda: solution.lambda.clone(),
            certificate: Some(solution.certificate),
            solution: Some(solution),
        })
    }
}
