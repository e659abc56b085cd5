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
//! `d^D` is the empirical distribution of pairs, or the occupancy of a known behaviour on the estimated CMDP.
//!
//! # The policy
//!
//! `π(a|s) ∝ d(s,a)` where the solution has mass. Elsewhere the behaviour's choice is kept: the known behaviour, or
//! the logged frequencies. States in which nothing was ever logged have a known behaviour's row, or else a uniform
//! one; [`LogSolution::sources`] says which states are which.

use coptidice_core::{
    Cmdp, CmdpError, CmdpParts, CostLimit, Divergence, EpisodeEnd, EpisodeHorizon, LimitError, Policy,
    ProcessReading, Transitions,
};
use serde::{Deserialize, Serialize};

use crate::counts::Counts;
use crate::dice::{self, BoundProblem, DiceError, Effort, Problem, Samples, Solution};
use crate::evaluation::{Evaluation, Evaluator};
use crate::linalg::spd::dot;
use crate::lp;
use crate::outcome::{Certificate, Outcome};

/// Share of a state's data mass below which the solution is taken not to visit it: an exact zero plus rounding.
const VISITED: f64 = 1e-8;

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
    /// Behaviour cloning: the logged frequencies.
    Bc,
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
    /// Weight of the divergence; default one over the number of episodes.
    pub alpha: Option<f64>,
    /// KL radius of the bound; default a tenth over the number of episodes.
    pub epsilon: Option<f64>,
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
    /// Mean per step.
    pub per_step: f64,
    /// Mean per episode; only in the restart chain, where episodes have an end.
    pub per_episode: Option<f64>,
    /// What is held below `constraint_limit`: the mean per step, less the credit of last steps.
    pub constrained: f64,
    /// Its upper bound for the solution's `w`, where one was asked for.
    pub upper_bound: Option<f64>,
    /// Right-hand side of the constraint, per step.
    pub constraint_limit: f64,
}

/// Values of a policy on the estimated CMDP.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// Mean reward per step.
    pub reward_per_step: f64,
    /// Mean reward per episode, restart chain only.
    pub reward_per_episode: Option<f64>,
    /// Mean episode length in steps, restart chain only.
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
    /// `α` used.
    pub alpha: f64,
    /// `ε` used; zero where no bound was asked for.
    pub epsilon: f64,
    /// `λ`, `[K]`.
    pub lambda: Vec<f64>,
    /// The solution of the program; absent for behaviour cloning and the linear program.
    pub solution: Option<Solution>,
    /// What proves the solution; absent for behaviour cloning.
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
    /// The estimated CMDP is defective.
    #[error(transparent)]
    Cmdp(#[from] CmdpError),
    /// The program is defective.
    #[error(transparent)]
    Dice(#[from] DiceError),
}

impl Logs<'_> {
    /// The lengths of episodes as a horizon: fixed when they are all equal.
    #[must_use]
    pub fn horizon(&self) -> EpisodeHorizon {
        let ends = self.episode_starts.iter().skip(1).copied().chain([self.state.len()]);
        let mut lengths = self.episode_starts.iter().zip(ends).map(|(&start, end)| end - start);
        let first = lengths.next().unwrap_or(0);
        if lengths.all(|l| l == first) {
            return EpisodeHorizon::Fixed(first as f64);
        }
        EpisodeHorizon::Varying { logged_mean: self.state.len() as f64 / self.episode_starts.len() as f64 }
    }

    fn check(&self) -> Result<(), LogError> {
        let n = self.state.len();
        if n == 0 || self.episode_starts.is_empty() {
            return Err(LogError::Empty);
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
        }
        Ok(())
    }
}

/// The estimated CMDP and what goes with it.
struct Estimate {
    model: Cmdp,
    /// `Ĉ` without credits, `[K][S*A]`.
    costs: Vec<Vec<f64>>,
    credits: Vec<f64>,
    constraint_limits: Vec<f64>,
    counts: Vec<f64>,
    dead_ends: Vec<u32>,
}

impl Estimate {
    fn new(logs: &Logs<'_>, options: &LogOptions<'_>) -> Result<Self, LogError> {
        let (states, actions) = (logs.states, logs.actions);
        let mut acted = vec![false; states];
        let mut entered = vec![false; states];
        for (row, &s) in logs.state.iter().enumerate() {
            if let Some(flag) = acted.get_mut(s as usize) {
                *flag = true;
            }
            match entered.get_mut(logs.next_state[row] as usize) {
                Some(flag) if !logs.terminal[row] => *flag = true,
                _ => {}
            }
        }
        let dead_ends: Vec<u32> =
            (0..states).filter(|&s| entered[s] && !acted[s]).map(|s| s as u32).collect();
        let ends = |row: usize| logs.terminal[row] || dead_ends.binary_search(&logs.next_state[row]).is_ok();
        let steps = (0..logs.state.len()).filter(|&row| !ends(row));
        let counts = Counts::from_steps(
            states,
            actions,
            steps.map(|row| (logs.state[row], logs.action[row], logs.next_state[row])),
        )?;
        let sums = Sums::new(logs, ends)?;
        let n = |pair: usize| sums.count[pair].max(1.0);
        let triples = counts.entries().iter().map(|&(pair, t, c)| {
            let pair = pair as usize;
            (pair / actions, pair % actions, t as usize, c / n(pair))
        });
        // Pairs never logged get a row, as every row must sum to one; having no data they carry no flow.
        let silent = (0..states * actions)
            .filter(|&p| sums.count[p] == 0.0)
            .map(|p| (p / actions, p % actions, p / actions, 1.0));
        let any_end = sums.end.iter().any(|&e| e > 0.0);
        let reading = match (options.gamma >= 1.0, any_end) {
            (true, _) => ProcessReading::RestartChain,
            (false, true) => ProcessReading::Terminating { gamma: options.gamma },
            (false, false) => ProcessReading::Continuing { gamma: options.gamma },
        };
        let mut credits = Vec::new();
        let mut constraint_limits = Vec::new();
        for (index, limit) in options.limits.iter().enumerate() {
            if let (CostLimit::PerEpisode { horizon: EpisodeHorizon::Varying { .. }, .. }, false) =
                (limit, any_end)
            {
                return Err(LogError::NoEnds { index });
            }
            let constraint = limit.constraint(reading).map_err(|source| LogError::Limit { index, source })?;
            credits.push(constraint.last_step_credit);
            constraint_limits.push(constraint.limit);
        }
        if options.limits.len() != logs.costs.len() {
            return Err(DiceError::Limits { limits: options.limits.len(), costs: logs.costs.len() }.into());
        }
        let mean = |total: &[f64]| total.iter().enumerate().map(|(p, &x)| x / n(p)).collect::<Vec<f64>>();
        let end_probability = mean(&sums.end);
        let costs: Vec<Vec<f64>> = sums.costs.iter().map(|c| mean(c)).collect();
        let credited = costs.iter().zip(&credits).map(|(cost, &credit)| {
            cost.iter().zip(&end_probability).map(|(&c, &e)| c - credit * e).collect()
        });
        let mut initial = vec![0.0; states];
        for &start in logs.episode_starts {
            initial[logs.state[start] as usize] += 1.0 / logs.episode_starts.len() as f64;
        }
        let model = Cmdp::new(CmdpParts {
            episode_end: if options.gamma >= 1.0 { EpisodeEnd::Restart } else { EpisodeEnd::Absorb },
            reward: mean(&sums.reward),
            costs: credited.collect(),
            initial,
            gamma: options.gamma,
            transitions: Transitions::from_triples(states, actions, triples.chain(silent))?
                .with_end_probability(end_probability)?,
        })?;
        Ok(Self { model, costs, credits, constraint_limits, counts: sums.count, dead_ends })
    }

    /// Values of a policy from its evaluation.
    fn reading(&self, e: &Evaluation, limits: &[CostLimit], bounds: &[f64]) -> Reading {
        let t = self.model.transitions();
        let ends: f64 = e.occupancy.iter().enumerate().map(|(p, &d)| d * t.end_probability(p)).sum();
        let per_episode = |x: f64| (self.model.restarts() && ends > 0.0).then(|| x / ends);
        let cost = |k: usize| {
            let per_step = dot(&e.occupancy, &self.costs[k]);
            CostReading {
                limit: limits[k],
                per_step,
                per_episode: per_episode(per_step),
                constrained: e.costs[k],
                upper_bound: bounds.get(k).copied(),
                constraint_limit: self.constraint_limits[k],
            }
        };
        Reading {
            reward_per_step: e.reward,
            reward_per_episode: per_episode(e.reward),
            steps_per_episode: per_episode(1.0),
            costs: (0..limits.len()).map(cost).collect(),
        }
    }
}

/// Sums over the rows of each pair.
struct Sums {
    count: Vec<f64>,
    reward: Vec<f64>,
    costs: Vec<Vec<f64>>,
    end: Vec<f64>,
}

impl Sums {
    fn new(logs: &Logs<'_>, ends: impl Fn(usize) -> bool) -> Result<Self, CmdpError> {
        let (states, actions) = (logs.states, logs.actions);
        let pairs = states * actions;
        let zeros = || vec![0.0; pairs];
        let mut sums = Self {
            count: zeros(),
            reward: zeros(),
            costs: logs.costs.iter().map(|_| zeros()).collect(),
            end: zeros(),
        };
        for row in 0..logs.state.len() {
            let (state, action) = (logs.state[row] as usize, logs.action[row] as usize);
            if state >= states || action >= actions {
                let next = logs.next_state[row] as usize;
                return Err(CmdpError::Index { state, action, next, states, actions });
            }
            let pair = state * actions + action;
            sums.count[pair] += 1.0;
            sums.reward[pair] += logs.reward[row];
            for (sum, cost) in sums.costs.iter_mut().zip(logs.costs) {
                sum[pair] += cost[row];
            }
            sums.end[pair] += f64::from(u8::from(ends(row)));
        }
        Ok(sums)
    }
}

/// Estimates the CMDP, solves it and reads off a policy.
///
/// # Errors
/// [`LogError`] when the logs or the options pose no problem. Limits that cannot be met are an outcome.
pub fn solve(logs: &Logs<'_>, options: &LogOptions<'_>) -> Result<LogSolution, LogError> {
    logs.check()?;
    let estimate = Estimate::new(logs, options)?;
    let m = &estimate.model;
    let mut evaluator = Evaluator::new(m.states());
    let uniform = Policy::uniform(m.states(), m.actions())?;
    let behaviour = Policy::from_mass(options.behaviour.unwrap_or(&uniform), &estimate.counts)?;
    let behaviour = options.behaviour.cloned().unwrap_or(behaviour);
    let behaviour_evaluation = evaluator.evaluate(m, &behaviour)?;
    let data_occupancy = match options.behaviour {
        Some(_) => behaviour_evaluation.occupancy.clone(),
        None => estimate.counts.iter().map(|&n| n / logs.state.len() as f64).collect(),
    };
    let episodes = logs.episode_starts.len() as f64;
    let alpha = options.alpha.unwrap_or(1.0 / episodes);
    let bounded = options.algorithm == LogAlgorithm::Coptidice;
    let epsilon = if bounded { options.epsilon.unwrap_or(0.1 / episodes) } else { 0.0 };
    let program = Program { options, estimate: &estimate, data_occupancy: &data_occupancy, alpha, epsilon };
    let found = program.solve()?;
    let (policy, sources) = read_off(&estimate, &behaviour, &found.occupancy, &data_occupancy);
    let evaluation = evaluator.evaluate(m, &policy)?;
    let bounds: Vec<f64> = found.solution.iter().flat_map(|s| s.bounds.iter().map(|b| b.value)).collect();
    Ok(LogSolution {
        outcome: found.outcome,
        sources,
        dead_ends: estimate.dead_ends.clone(),
        alpha,
        epsilon,
        lambda: found.lambda,
        certificate: found.certificate,
        solution: found.solution,
        estimate: estimate.reading(&evaluation, &options.limits, &bounds),
        behaviour: estimate.reading(&behaviour_evaluation, &options.limits, &[]),
        policy,
    })
}

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
    estimate: &'a Estimate,
    data_occupancy: &'a [f64],
    alpha: f64,
    epsilon: f64,
}

/// Its answer.
struct Found {
    outcome: Outcome,
    occupancy: Vec<f64>,
    lambda: Vec<f64>,
    certificate: Option<Certificate>,
    solution: Option<Solution>,
}

impl Program<'_> {
    fn solve(&self) -> Result<Found, LogError> {
        let (m, limits) = (&self.estimate.model, &self.estimate.constraint_limits);
        let problem = Problem {
            model: m,
            data_occupancy: self.data_occupancy,
            limits,
            divergence: self.options.divergence,
            alpha: self.alpha,
        };
        let effort = self.options.effort;
        let solution = match self.options.algorithm {
            LogAlgorithm::Bc => {
                return Ok(Found {
                    outcome: Outcome::Solved,
                    occupancy: self.estimate.counts.clone(),
                    lambda: vec![0.0; limits.len()],
                    certificate: None,
                    solution: None,
                });
            }
            LogAlgorithm::Lp => {
                let answer = lp::solve_in_support(m, limits, self.data_occupancy)?;
                return Ok(Found {
                    outcome: answer.outcome,
                    occupancy: answer.occupancy,
                    lambda: answer.lambda,
                    certificate: Some(answer.certificate),
                    solution: None,
                });
            }
            LogAlgorithm::Optidice => dice::optidice(&problem, effort)?,
            LogAlgorithm::Naive => dice::coptidice_naive(&problem, None, effort)?,
            LogAlgorithm::Coptidice => {
                let samples = Samples::from_model(m, self.data_occupancy)?;
                let bound = BoundProblem {
                    samples: &samples,
                    epsilon: self.epsilon,
                    weight_floor: 0.0,
                    costs: &self.estimate.costs,
                    last_step_credits: &self.estimate.credits,
                };
                dice::coptidice(&problem, &bound, None, effort)?
            }
        };
        Ok(Found {
            outcome: solution.outcome,
            occupancy: solution.occupancy.clone(),
            lambda: solution.lambda.clone(),
            certificate: Some(solution.certificate),
            solution: Some(solution),
        })
    }
}
