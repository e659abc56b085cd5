//! The CMDP estimated from logs, its constraints, and readings of policies on it.

use coptidice_core::{
    Cmdp, CmdpError, CmdpParts, CostLimit, EpisodeEnd, EpisodeHorizon, Policy, ProcessReading, Transitions,
};

use super::{CostReading, LogError, LogOptions, Logs, Objective, Reading};
use crate::counts::Counts;
use crate::dice::DiceError;
use crate::evaluation::{Evaluation, Evaluator};
use crate::linalg::spd::dot;

/// The estimated CMDP and what goes with it.
pub(super) struct Estimate {
    pub(super) model: Cmdp,
    /// `Ĉ` without credits, `[K][S*A]`.
    pub(super) costs: Vec<Vec<f64>>,
    pub(super) credits: Vec<f64>,
    pub(super) constraint_limits: Vec<f64>,
    /// `n(s,a)`.
    pub(super) counts: Vec<f64>,
    pub(super) dead_ends: Vec<u32>,
}

impl Estimate {
    pub(super) fn new(logs: &Logs<'_>, options: &LogOptions<'_>) -> Result<Self, LogError> {
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

    /// The objective asked for, or its default.
    pub(super) fn objective(&self, options: &LogOptions<'_>) -> Result<Objective, LogError> {
        let per_episode = options.limits.iter().any(|l| matches!(l, CostLimit::PerEpisode { .. }));
        match options.objective {
            Some(Objective::PerEpisode) if !self.model.restarts() => Err(LogError::Objective),
            Some(objective) => Ok(objective),
            None if self.model.restarts() && per_episode => Ok(Objective::PerEpisode),
            None => Ok(Objective::PerStep),
        }
    }

    /// `1{end}` per step under an occupancy.
    pub(super) fn ends(&self, occupancy: &[f64]) -> f64 {
        let t = self.model.transitions();
        occupancy.iter().enumerate().map(|(p, &d)| d * t.end_probability(p)).sum()
    }

    /// Standard error of the estimated gain of a pair: pooled deviation of `r + γV(s')` within pairs, times
    /// `√(pairs/rows)`, the root mean square of `1/√n` over the data.
    pub(super) fn standard_error(
        &self,
        logs: &Logs<'_>,
        behaviour: &Policy,
        evaluator: &mut Evaluator,
    ) -> Result<f64, LogError> {
        let mut parts = self.model.clone().into_parts();
        // Differences of values have a limit as γ → 1; at this discount they are within 1e-6 of it.
        parts.gamma = parts.gamma.min(1.0 - 1e-6);
        let discounted = Cmdp::new(parts)?;
        let values = evaluator.state_values(&discounted, behaviour, discounted.reward())?;
        let end_value = discounted.end_value(&values);
        let gamma = discounted.gamma();
        let outcome = |row: usize| {
            let ends = logs.terminal[row] || self.dead_ends.binary_search(&logs.next_state[row]).is_ok();
            let next = if ends { end_value } else { values[logs.next_state[row] as usize] };
            logs.reward[row] + gamma * next - values[logs.state[row] as usize]
        };
        let pair = |row: usize| logs.state[row] as usize * logs.actions + logs.action[row] as usize;
        let rows = logs.state.len();
        let (mut sums, mut squares) = (vec![0.0; self.counts.len()], 0.0);
        for row in 0..rows {
            let y = outcome(row);
            sums[pair(row)] += y;
            squares += y * y;
        }
        let seen = self.counts.iter().filter(|n| **n > 0.0).count();
        let explained: f64 =
            sums.iter().zip(&self.counts).filter(|(_, n)| **n > 0.0).map(|(s, n)| s * s / n).sum();
        // Where every pair was seen once nothing is known of the deviation within; all of it is taken.
        let within =
            if rows > seen { (squares - explained) / (rows - seen) as f64 } else { squares / rows as f64 };
        let error = (within.max(0.0) * seen as f64 / rows as f64).sqrt();
        // Deterministic logs have no noise to guard against; what remains is the paper's choice.
        Ok(if error > 0.0 { error } else { 1.0 / logs.episode_starts.len() as f64 })
    }

    /// Values of a policy from its evaluation.
    pub(super) fn reading(&self, e: &Evaluation, limits: &[CostLimit], bounds: &[f64]) -> Reading {
        let ends = self.ends(&e.occupancy);
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
