//! `result.json` of `tabular solve`, and what it says on a terminal.

use coptidice_core::{CostLimit, EpisodeHorizon, LimitUnit};
use coptidice_tabular::from_logs::{CostReading, LogOptions, LogSolution, Objective, Reading, RowSource};
use coptidice_tabular::{Certificate, Outcome};
use serde::Serialize;

use super::logs::FiniteLog;
use crate::finite_policy::Label;

/// Everything about a solution but the policy itself.
#[derive(Serialize)]
pub(crate) struct SolveResult {
    /// Version of this program.
    pub(crate) coptidice: &'static str,
    /// The log, as named on the command line.
    pub(crate) log: String,
    pub(crate) transitions: usize,
    pub(crate) episodes: usize,
    pub(crate) states: usize,
    pub(crate) actions: usize,
    pub(crate) algorithm: &'static str,
    pub(crate) outcome: Outcome,
    pub(crate) gamma: f64,
    /// What was maximised: reward per step or per episode.
    pub(crate) objective: Objective,
    /// Weight of the divergence, reward units.
    pub(crate) alpha: f64,
    /// KL radius of the cost bound; zero without a bound.
    pub(crate) epsilon: f64,
    /// Reward of the policy and of the logged behaviour, on the CMDP estimated from the log.
    pub(crate) reward: RewardResult,
    pub(crate) costs: Vec<CostResult>,
    pub(crate) steps_per_episode: Option<f64>,
    /// Residuals and duality gap of the program; absent for algorithms without one.
    pub(crate) certificate: Option<Certificate>,
    /// States whose row of the policy is the solution's.
    pub(crate) states_from_solution: usize,
    /// States that the solution does not visit: the logged behaviour's choice is kept.
    pub(crate) states_from_behaviour: usize,
    /// States in which nothing was logged: uniform, or a known behaviour's row.
    pub(crate) states_unseen: Vec<Label>,
    /// States that were entered but never acted in; entering them counts as an end.
    pub(crate) dead_ends: Vec<Label>,
    /// State-action pairs that were never logged; the policy avoids them in every state in which anything was.
    pub(crate) pairs_unseen: usize,
    /// What holds for states that the log does not name at all.
    pub(crate) states_elsewhere: &'static str,
    /// Name of the policy's file; absent where there is no policy to deploy.
    pub(crate) policy: Option<&'static str>,
}

/// A reward in both units.
#[derive(Serialize)]
pub(crate) struct RewardResult {
    pub(crate) per_step: f64,
    pub(crate) per_episode: Option<f64>,
    pub(crate) behaviour_per_step: f64,
    pub(crate) behaviour_per_episode: Option<f64>,
}

/// A cost against its limit.
#[derive(Serialize)]
pub(crate) struct CostResult {
    pub(crate) name: String,
    pub(crate) limit: f64,
    pub(crate) limit_unit: LimitUnit,
    pub(crate) limit_per_step: f64,
    pub(crate) limit_per_episode: f64,
    pub(crate) lambda: Option<f64>,
    pub(crate) per_step: f64,
    pub(crate) per_episode: Option<f64>,
    /// Upper bound in the limit's unit, where the algorithm has one.
    pub(crate) upper_bound: Option<f64>,
    /// Temperature of the bound.
    pub(crate) tau: Option<f64>,
    pub(crate) behaviour_per_step: f64,
    pub(crate) behaviour_per_episode: Option<f64>,
}

impl SolveResult {
    pub(crate) fn new(
        name: String,
        algorithm: &'static str,
        log: &FiniteLog,
        options: &LogOptions<'_>,
        solution: &LogSolution,
    ) -> Self {
        let from = |source| solution.sources.iter().filter(|s| **s == source).count();
        let unseen = log.states.iter().zip(&solution.sources).filter(|(_, s)| **s == RowSource::Unseen);
        let logs = log.as_logs();
        let mut seen = vec![false; logs.states * logs.actions];
        for (&s, &a) in logs.state.iter().zip(logs.action) {
            seen[s as usize * logs.actions + a as usize] = true;
        }
        let (estimate, behaviour) = (&solution.estimate, &solution.behaviour);
        SolveResult {
            coptidice: env!("CARGO_PKG_VERSION"),
            log: name,
            transitions: log.len(),
            episodes: log.episodes(),
            states: log.states.len(),
            actions: log.actions.len(),
            algorithm,
            outcome: solution.outcome,
            gamma: options.gamma,
            objective: solution.objective,
            alpha: solution.alpha,
            epsilon: solution.epsilon,
            reward: RewardResult {
                per_step: estimate.reward_per_step,
                per_episode: estimate.reward_per_episode,
                behaviour_per_step: behaviour.reward_per_step,
                behaviour_per_episode: behaviour.reward_per_episode,
            },
            costs: (0..log.limits.len()).map(|k| cost(k, log, solution)).collect(),
            steps_per_episode: estimate.steps_per_episode,
            certificate: solution.certificate,
            states_from_solution: from(RowSource::Solution),
            states_from_behaviour: from(RowSource::Behaviour),
            states_unseen: unseen.map(|(name, _)| name.clone()).collect(),
            dead_ends: solution.dead_ends.iter().map(|&s| log.states[s as usize].clone()).collect(),
            pairs_unseen: seen.iter().filter(|seen| !**seen).count(),
            states_elsewhere: "states that do not occur in the log are not in the policy",
            policy: solution.outcome.is_usable().then_some("policy.json"),
        }
    }
}

fn cost(k: usize, log: &FiniteLog, solution: &LogSolution) -> CostResult {
    let (estimate, behaviour) = (&solution.estimate.costs[k], &solution.behaviour.costs[k]);
    let limit = log.limits[k];
    let (limit_per_step, limit_per_episode) = limit.both_readings(log.mean_steps());
    let bound = solution.solution.as_ref().and_then(|s| s.bounds.get(k));
    CostResult {
        name: log.cost_names[k].clone(),
        limit: limit.value(),
        limit_unit: limit.unit(),
        limit_per_step,
        limit_per_episode,
        lambda: solution.lambda.get(k).copied(),
        per_step: estimate.per_step,
        per_episode: estimate.per_episode,
        upper_bound: in_unit(estimate, &solution.estimate, estimate.upper_bound),
        tau: bound.map(|b| b.tau),
        behaviour_per_step: behaviour.per_step,
        behaviour_per_episode: behaviour.per_episode,
    }
}

/// A value of the constrained quantity in the unit of the limit.
///
/// Per episode of varying length at `γ = 1` the constraint is on `E_d[C − L·1{end}]`, so that a bound `b` of it
/// bounds the mean of an episode by `L + b·(steps per episode)`. Otherwise the constrained cost is proportional to
/// the total of an episode.
pub(crate) fn in_unit(reading: &CostReading, all: &Reading, value: Option<f64>) -> Option<f64> {
    let value = value?;
    match (reading.scale, reading.limit) {
        (Some(scale), _) => Some(value * scale),
        (None, CostLimit::PerStep { limit }) => Some(limit + value / all.mass),
        (None, CostLimit::PerEpisode { limit, horizon: EpisodeHorizon::Fixed(steps) }) => {
            Some(limit + value / all.mass * steps)
        }
        (None, CostLimit::PerEpisode { limit, .. }) => Some(limit + value * all.steps_per_episode?),
    }
}

/// The estimate of a cost in the unit of its limit; not a number where the policy never ends an episode.
pub(crate) fn estimate_in_unit(reading: &CostReading) -> f64 {
    reading.in_limit_unit().unwrap_or(f64::NAN)
}
