//! What a given policy earns and costs, by logs: the estimate, and how far the logs leave it open.

use std::collections::BTreeMap;

use coptidice_core::{CostLimit, Occupancy, Policy};
use serde::{Deserialize, Serialize};

use super::estimate::Estimate;
use super::{LogError, Logs, Reading};
use crate::baselines::{
    BootstrapBounds, BootstrapConfig, BoundSide, Interval, bootstrap_bounds, coindice_bound_with_ends,
    likelihood_radius,
};
use crate::evaluation::Evaluator;
use crate::outcome::Outcome;

/// How to appraise.
#[derive(Clone, Debug)]
pub struct AppraisalOptions {
    /// Discount in `(0, 1]`.
    pub gamma: f64,
    /// One limit per cost.
    pub limits: Vec<CostLimit>,
    /// Probability that an interval is meant to cover.
    pub confidence: f64,
    /// Resamples of the bootstrap; zero for none.
    pub resamples: usize,
    /// Seed of the resampling.
    pub seed: u64,
}

/// A value with its bounds, units per step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bounded {
    /// On the CMDP estimated from the logs.
    pub estimate: f64,
    /// CoinDICE's bounds: over all models near the data (`eq:coindice_objective`).
    pub coindice: (f64, f64),
    /// How the search for them ended.
    pub outcome: Outcome,
    /// Percentiles over resampled episodes. A pair that no drawn episode has keeps what the whole log says of it: as a
    /// pair of which nothing is known it would hold the policy for ever, at no cost. That leaves out the spread of what
    /// was logged in one or two episodes only.
    pub bootstrap: Option<Interval>,
    /// The estimate if the pairs that were never logged, which count for nothing in it, were as dear as the dearest
    /// that was.
    pub cautious: f64,
}

/// Mass on pairs never logged that is rounding and no more.
const UNSUPPORTED_ROUNDING: f64 = 1e-9;

impl Appraisal {
    /// Whether the policy keeps to what was logged. No bound holds of one that does not: the logs say nothing of where
    /// it goes.
    #[must_use]
    pub fn is_supported(&self) -> bool {
        self.unsupported <= UNSUPPORTED_ROUNDING
    }

    /// Whether the estimate of a cost is within its limit, whatever the pairs never logged may cost within reason
    /// ([`Bounded::cautious`]).
    #[must_use]
    pub fn within_limit(&self, cost: usize) -> bool {
        let reading = &self.policy.costs[cost];
        reading.in_limit_unit().is_some() && self.costs[cost].cautious <= reading.constraint_limit
    }

    /// Whether the upper bound of a cost is within its limit.
    #[must_use]
    pub fn within_limit_with_confidence(&self, cost: usize) -> bool {
        let bounded = &self.costs[cost];
        self.is_supported()
            && self.within_limit(cost)
            && bounded.outcome.is_usable()
            && bounded.coindice.1 <= self.policy.costs[cost].constraint_limit
    }
}

/// A policy by the logs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Appraisal {
    /// The policy on the estimated CMDP.
    pub policy: Reading,
    /// The behaviour, as cloned from the logs, on the estimated CMDP.
    pub behaviour: Reading,
    /// `V_R`.
    pub reward: Bounded,
    /// What each limit constrains, `[K]`; to be compared with [`super::CostReading::constraint_limit`].
    pub costs: Vec<Bounded>,
    /// Mass of the policy's occupancy on pairs that were never logged: what the logs say nothing about.
    pub unsupported: f64,
}

/// Appraises a policy.
///
/// # Errors
/// [`LogError`] when the logs or the options pose no problem.
pub fn appraise(logs: &Logs<'_>, policy: &Policy, options: &AppraisalOptions) -> Result<Appraisal, LogError> {
    logs.check()?;
    let mut estimate = Estimate::new(logs, options.gamma, &options.limits)?;
    estimate.check_ends(&options.limits)?;
    let m = estimate.model.clone();
    let mut evaluator = Evaluator::new(m.states());
    let uniform = Policy::uniform(m.states(), m.actions())?;
    let behaviour = Policy::from_mass(&uniform, &estimate.counts)?;
    let (of_policy, of_behaviour) = (evaluator.evaluate(&m, policy)?, evaluator.evaluate(&m, &behaviour)?);
    estimate.convert_limits(&mut evaluator, policy, &options.limits)?;
    let data = Occupancy::normalized(m.states(), m.actions(), estimate.counts.clone())?;
    let radius = likelihood_radius(options.confidence, logs.state.len());
    let bootstrap = (options.resamples > 0).then(|| resample(logs, policy, options)).transpose()?;
    let mass = of_policy.occupancy.iter().zip(&estimate.counts);
    let unsupported: f64 = mass.filter(|(_, n)| **n == 0.0).map(|(d, _)| d).sum();
    let bounded = |value: f64, table: &[f64], [step_credit, credit]: [f64; 2], spread: Option<Interval>| {
        let bound = |side| coindice_bound_with_ends(&m, &data, policy, table, -credit, radius, side);
        let (low, high) = (bound(BoundSide::Lower)?, bound(BoundSide::Upper)?);
        let outcome = if low.outcome.is_solved() { high.outcome } else { low.outcome };
        let seen = (0..table.len()).filter(|&pair| estimate.counts[pair] > 0.0);
        let dearest = seen
            .map(|pair| table[pair] - credit * m.transitions().end_probability(pair))
            .fold(f64::NEG_INFINITY, f64::max);
        // In the value these pairs have their step's credit already.
        let cautious = value + unsupported * (dearest + step_credit);
        let coindice = (low.value, high.value);
        Ok::<_, LogError>(Bounded { estimate: value, coindice, outcome, bootstrap: spread, cautious })
    };
    let reward = bounded(of_policy.reward, m.reward(), [0.0; 2], bootstrap.as_ref().map(|b| b.reward))?;
    let less_step_credits = estimate.less_step_credits();
    let cost = |k: usize| {
        let spread = bootstrap.as_ref().map(|b| b.costs[k]);
        let credits = [estimate.step_credits[k].unwrap_or(0.0), estimate.credits[k]];
        bounded(of_policy.costs[k], &less_step_credits[k], credits, spread)
    };
    let costs = (0..m.cost_count()).map(cost).collect::<Result<_, _>>()?;
    let limits = &options.limits;
    Ok(Appraisal {
        reward,
        costs,
        unsupported,
        policy: estimate.reading(&mut evaluator, policy, &of_policy, limits, &[])?,
        behaviour: estimate.reading(&mut evaluator, &behaviour, &of_behaviour, limits, &[])?,
    })
}

/// Percentiles over resampled episodes.
fn resample(
    logs: &Logs<'_>,
    policy: &Policy,
    options: &AppraisalOptions,
) -> Result<BootstrapBounds, LogError> {
    let config =
        BootstrapConfig { resamples: options.resamples, confidence: options.confidence, seed: options.seed };
    let mut of_pair: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for row in 0..logs.state.len() {
        of_pair.entry(pair_of(logs, row)).or_default().push(row);
    }
    let model = |chosen: &[usize]| {
        let columns = Chosen::new(logs, chosen, &of_pair);
        Ok(Estimate::new(&columns.logs(logs), options.gamma, &options.limits)?.model)
    };
    bootstrap_bounds::<LogError>(logs.episode_starts.len(), model, policy, config)
}

fn pair_of(logs: &Logs<'_>, row: usize) -> usize {
    logs.state[row] as usize * logs.actions + logs.action[row] as usize
}

/// Rows of chosen episodes, each as often as it is chosen; behind them all rows of the pairs that these lack.
struct Chosen {
    starts: Vec<usize>,
    state: Vec<u32>,
    action: Vec<u32>,
    reward: Vec<f64>,
    costs: Vec<Vec<f64>>,
    next_state: Vec<u32>,
    terminal: Vec<bool>,
}

impl Chosen {
    fn new(logs: &Logs<'_>, chosen: &[usize], of_pair: &BTreeMap<usize, Vec<usize>>) -> Self {
        let mut starts = Vec::with_capacity(chosen.len());
        let mut rows: Vec<usize> = Vec::with_capacity(logs.state.len());
        for &episode in chosen {
            starts.push(rows.len());
            let end = logs.episode_starts.get(episode + 1).copied().unwrap_or(logs.state.len());
            rows.extend(logs.episode_starts[episode]..end);
        }
        let mut drawn = vec![false; logs.states * logs.actions];
        rows.iter().for_each(|&row| drawn[pair_of(logs, row)] = true);
        let lacking = of_pair.iter().filter(|(pair, _)| !drawn[**pair]);
        rows.extend(lacking.flat_map(|(_, of_log)| of_log));
        let numbers = |column: &[f64]| rows.iter().map(|&row| column[row]).collect::<Vec<f64>>();
        let indices = |column: &[u32]| rows.iter().map(|&row| column[row]).collect::<Vec<u32>>();
        Self {
            state: indices(logs.state),
            action: indices(logs.action),
            next_state: indices(logs.next_state),
            reward: numbers(logs.reward),
            costs: logs.costs.iter().map(|cost| numbers(cost)).collect(),
            terminal: rows.iter().map(|&row| logs.terminal[row]).collect(),
            starts,
        }
    }

    fn logs(&self, of: &Logs<'_>) -> Logs<'_> {
        Logs {
            states: of.states,
            actions: of.actions,
            episode_starts: &self.starts,
            state: &self.state,
            action: &self.action,
            reward: &self.reward,
            costs: &self.costs,
            next_state: &self.next_state,
            terminal: &self.terminal,
        }
    }
}
