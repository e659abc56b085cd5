//! The CMDP estimated from logs, its constraints, and readings of policies on it.

use coptidice_core::{
    Cmdp, CmdpError, CmdpParts, CostLimit, EpisodeEnd, EpisodeHorizon, Occupancy, Policy, ProcessReading,
    Transitions,
};

use super::{CostReading, LogError, LogOptions, Logs, Objective, Reading, keeps};
use crate::counts::Counts;
use crate::dice::DiceError;
use crate::evaluation::{Evaluation, Evaluator};
use crate::linalg::spd::dot;
use crate::lp;

/// Deviation of outcomes, relative to the largest reward or value, that is no noise: they are differences of such
/// numbers, each with the rounding of a linear solve and of a mean over many rows.
const ROUNDING: f64 = 1e-14;

/// The estimated CMDP and what goes with it.
pub(super) struct Estimate {
    pub(super) model: Cmdp,
    /// `Ĉ` without credits, `[K][S*A]`.
    pub(super) costs: Vec<Vec<f64>>,
    /// Credits of every step and of last steps.
    pub(super) step_credits: Vec<Option<f64>>,
    pub(super) credits: Vec<f64>,
    pub(super) constraint_limits: Vec<f64>,
    /// What a unit of each constrained cost is in the unit of its limit ([`CostReading::scale`]).
    pub(super) scales: Vec<Option<f64>>,
    /// Limits per episode that the discount turns into a constraint only for one policy at a time.
    pub(super) converted: Vec<bool>,
    /// At `γ < 1`, where episodes end: the restart chain of the same estimates, in which totals per episode are read.
    pub(super) episodes: Option<Cmdp>,
    /// `n(s,a)`.
    pub(super) counts: Vec<f64>,
    pub(super) dead_ends: Vec<u32>,
}

impl Estimate {
    pub(super) fn new(logs: &Logs<'_>, gamma: f64, limits: &[CostLimit]) -> Result<Self, LogError> {
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
        let reading = match (gamma >= 1.0, any_end) {
            (true, _) => ProcessReading::RestartChain,
            (false, true) => ProcessReading::Terminating { gamma },
            (false, false) => ProcessReading::Continuing { gamma },
        };
        let mut step_credits = Vec::new();
        let mut credits = Vec::new();
        let mut constraint_limits = Vec::new();
        let mut scales = Vec::new();
        let mut converted = Vec::new();
        for (index, limit) in limits.iter().enumerate() {
            let varying = limit.is_on_varying_totals();
            converted.push(varying && gamma < 1.0);
            if varying && gamma < 1.0 {
                step_credits.push(None);
                credits.push(0.0);
                constraint_limits.push(f64::NAN);
                scales.push(None);
                continue;
            }
            let constraint = limit.constraint(reading).map_err(|source| LogError::Limit { index, source })?;
            step_credits.push(constraint.step_credit);
            credits.push(constraint.last_step_credit);
            constraint_limits.push(constraint.limit);
            scales.push(match limit {
                _ if constraint.step_credit.is_some() || varying => None,
                CostLimit::PerEpisode { horizon, .. } => Some(horizon.mean_steps()),
                CostLimit::PerStep { .. } => Some(1.0),
            });
        }
        if limits.len() != logs.costs.len() {
            return Err(DiceError::Limits { limits: limits.len(), costs: logs.costs.len() }.into());
        }
        let mean = |total: &[f64]| total.iter().enumerate().map(|(p, &x)| x / n(p)).collect::<Vec<f64>>();
        let end_probability = mean(&sums.end);
        let costs: Vec<Vec<f64>> = sums.costs.iter().map(|c| mean(c)).collect();
        let credited: Vec<Vec<f64>> = costs
            .iter()
            .zip(step_credits.iter().zip(&credits))
            .map(|(cost, (&step, &last))| {
                cost.iter().zip(&end_probability).map(|(&c, &e)| c - step.unwrap_or(0.0) - last * e).collect()
            })
            .collect();
        let mut initial = vec![0.0; states];
        for &start in logs.episode_starts {
            initial[logs.state[start] as usize] += 1.0 / logs.episode_starts.len() as f64;
        }
        let reward = mean(&sums.reward);
        let transitions = Transitions::from_triples(states, actions, triples.chain(silent))?
            .with_end_probability(end_probability)?;
        let episodes = (gamma < 1.0 && any_end).then(|| {
            Cmdp::new(CmdpParts {
                episode_end: EpisodeEnd::Restart,
                reward: reward.clone(),
                costs: costs.clone(),
                initial: initial.clone(),
                gamma: 1.0,
                transitions: transitions.clone(),
            })
        });
        let model = Cmdp::new(CmdpParts {
            episode_end: if gamma >= 1.0 { EpisodeEnd::Restart } else { EpisodeEnd::Absorb },
            reward,
            costs: credited,
            initial,
            gamma,
            transitions,
        })?;
        let episodes = episodes.transpose()?;
        let counts = sums.count;
        Ok(Self {
            model,
            costs,
            step_credits,
            credits,
            constraint_limits,
            scales,
            converted,
            episodes,
            counts,
            dead_ends,
        })
    }

    /// `Ĉ` less the credit of every step, without those of last steps, `[K][S*A]`.
    pub(super) fn less_step_credits(&self) -> Vec<Vec<f64>> {
        let tables = self.costs.iter().zip(&self.step_credits);
        tables.map(|(table, credit)| table.iter().map(|c| c - credit.unwrap_or(0.0)).collect()).collect()
    }

    /// Refuses limits on totals of episodes of which none ends. Resampled logs may have none: they only give values per
    /// step.
    pub(super) fn check_ends(&self, limits: &[CostLimit]) -> Result<(), LogError> {
        match limits.iter().position(CostLimit::is_on_varying_totals) {
            Some(index) if !self.model.transitions().has_ends() => Err(LogError::NoEnds { index }),
            _ => Ok(()),
        }
    }

    /// `d^D` of a known behaviour: nothing is known of what the other pairs lead to, and where episodes end below
    /// `γ = 1` occupancies lack the mass that has ended.
    pub(super) fn occupancy_of(
        &self,
        evaluator: &mut Evaluator,
        behaviour: &Policy,
    ) -> Result<Vec<f64>, LogError> {
        let logged = behaviour.probabilities().iter().zip(&self.counts);
        let logged: Vec<f64> = logged.map(|(&p, &n)| if n > 0.0 { p } else { 0.0 }).collect();
        let policy = Policy::from_mass(behaviour, &logged)?;
        let mut mass = evaluator.evaluate(&self.model, &policy)?.occupancy;
        mass.iter_mut().zip(&self.counts).filter(|(_, n)| **n == 0.0).for_each(|(d, _)| *d = 0.0);
        Ok(Occupancy::normalized(self.model.states(), self.model.actions(), mass)?.mass().to_vec())
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
        behaviour_reward: f64,
    ) -> Result<f64, LogError> {
        let mut parts = self.model.clone().into_parts();
        // Differences of values have a limit as γ → 1; at this discount they are within 1e-6 of it. They are those of
        // rewards less their mean, whose values are not a million times as large.
        let centre = if parts.gamma < 1.0 { 0.0 } else { behaviour_reward };
        // A pair without rows stays in its state for ever.
        let logged = parts.reward.iter_mut().zip(&self.counts).filter(|(_, n)| **n > 0.0);
        logged.for_each(|(r, _)| *r -= centre);
        parts.gamma = parts.gamma.min(1.0 - 1e-6);
        let discounted = Cmdp::new(parts)?;
        let values = evaluator.state_values(&discounted, behaviour, discounted.reward())?;
        let end_value = discounted.end_value(&values);
        let gamma = discounted.gamma();
        let outcome = |row: usize| {
            let ends = logs.terminal[row] || self.dead_ends.binary_search(&logs.next_state[row]).is_ok();
            let next = if ends { end_value } else { values[logs.next_state[row] as usize] };
            logs.reward[row] - centre + gamma * next - values[logs.state[row] as usize]
        };
        let pair = |row: usize| logs.state[row] as usize * logs.actions + logs.action[row] as usize;
        let rows = logs.state.len();
        let mut means = vec![0.0; self.counts.len()];
        for row in 0..rows {
            means[pair(row)] += outcome(row) / self.counts[pair(row)];
        }
        let seen = self.counts.iter().filter(|n| **n > 0.0).count();
        // Where every pair was seen once nothing is known of the deviation within; all of it is taken.
        let (known, freedom) = if rows > seen { (1.0, rows - seen) } else { (0.0, rows) };
        let squares: f64 = (0..rows).map(|row| (outcome(row) - known * means[pair(row)]).powi(2)).sum();
        let error = (squares / freedom as f64 * seen as f64 / rows as f64).sqrt();
        // Deterministic logs have no noise to guard against; what remains is the paper's choice.
        let size = logs.reward.iter().chain(&values).fold(0.0_f64, |x, v| x.max(v.abs()));
        Ok(if error > ROUNDING * size { error } else { 1.0 / logs.episode_starts.len() as f64 })
    }

    /// Values of a policy from its evaluation.
    pub(super) fn reading(
        &self,
        evaluator: &mut Evaluator,
        policy: &Policy,
        e: &Evaluation,
        limits: &[CostLimit],
        bounds: &[f64],
    ) -> Result<Reading, LogError> {
        let totals = self.totals(evaluator, policy, e)?;
        let total = |table: &[f64]| totals.as_ref().map(|t| dot(&t.occupancy, table) / t.ends);
        // Under a discount what comes after an end has no mass.
        let mass = if self.episodes.is_some() { e.occupancy.iter().sum() } else { 1.0 };
        let cost = |k: usize| CostReading {
            limit: limits[k],
            per_step: dot(&e.occupancy, &self.costs[k]) / mass,
            per_episode: match limits[k] {
                CostLimit::PerEpisode { horizon: EpisodeHorizon::Fixed(steps), .. } => {
                    Some(dot(&e.occupancy, &self.costs[k]) / mass * steps)
                }
                _ => total(&self.costs[k]),
            },
            constrained: e.costs[k],
            upper_bound: bounds.get(k).copied(),
            constraint_limit: self.constraint_limits[k],
            scale: self.scales[k],
        };
        Ok(Reading {
            reward_per_step: e.reward / mass,
            mass,
            reward_per_episode: total(self.model.reward()),
            steps_per_episode: totals.as_ref().map(|t| t.occupancy.iter().sum::<f64>() / t.ends),
            costs: (0..limits.len()).map(cost).collect(),
        })
    }

    /// The occupancy in the restart chain, undiscounted, in which totals per episode are read; `None` where episodes
    /// do not end under this policy.
    fn totals(
        &self,
        evaluator: &mut Evaluator,
        policy: &Policy,
        e: &Evaluation,
    ) -> Result<Option<Totals>, LogError> {
        let occupancy = match &self.episodes {
            Some(chain) => evaluator.evaluate(chain, policy)?.occupancy,
            None if self.model.restarts() => e.occupancy.clone(),
            None => return Ok(None),
        };
        let ends = self.ends(&occupancy);
        Ok((ends > LEAST_ENDS && ends.is_finite()).then_some(Totals { occupancy, ends }))
    }

    /// The reward per step of a policy that keeps every limit by the estimate.
    pub(super) fn reward_if_kept(
        &self,
        evaluator: &mut Evaluator,
        policy: &Policy,
        limits: &[CostLimit],
    ) -> Result<Option<f64>, LogError> {
        let evaluation = evaluator.evaluate(&self.model, policy)?;
        let read = self.reading(evaluator, policy, &evaluation, limits, &[])?;
        Ok(keeps(&read, &read, &self.converted).then_some(evaluation.reward))
    }

    /// Refuses a behaviour that never ends its episodes, whose totals would be measured by.
    pub(super) fn check_behaviour(
        &self,
        evaluator: &mut Evaluator,
        behaviour: &Policy,
        e: &Evaluation,
    ) -> Result<(), LogError> {
        self.totals(evaluator, behaviour, e)?.map(|_| ()).ok_or(LogError::NeverEnds)
    }

    /// Converts limits by a policy that keeps them: the best per episode without a discount, where there is one. Its
    /// own discounted costs are then within reach. Limits on discounted costs per step are not looked at.
    pub(super) fn convert_by_keeping(
        &mut self,
        evaluator: &mut Evaluator,
        limits: &[CostLimit],
        support: &[f64],
        behaviour: &Policy,
    ) -> Result<bool, LogError> {
        let Some(chain) = &self.episodes else { return Ok(false) };
        let mut parts = chain.clone().into_parts();
        let mut right = Vec::with_capacity(limits.len());
        parts.costs.clear();
        for (k, limit) in limits.iter().enumerate() {
            if let (CostLimit::PerEpisode { limit, .. }, true) = (limit, self.converted[k]) {
                let t = &parts.transitions;
                let credited =
                    self.costs[k].iter().enumerate().map(|(p, c)| c - limit * t.end_probability(p));
                parts.costs.push(credited.collect());
                right.push(0.0);
            }
        }
        let (answer, _) = lp::solve_per_episode(&Cmdp::new(parts)?, &right, support)?;
        if !answer.outcome.is_usable() {
            return Ok(false);
        }
        let policy = Policy::from_mass(behaviour, &answer.occupancy)?;
        self.convert_limits(evaluator, &policy, limits)?;
        Ok(true)
    }

    /// Turns limits per episode into limits on discounted costs by what one policy's discounted cost is to its cost
    /// per episode: exact for that policy. Returns the largest relative change.
    pub(super) fn convert_limits(
        &mut self,
        evaluator: &mut Evaluator,
        policy: &Policy,
        limits: &[CostLimit],
    ) -> Result<f64, LogError> {
        let mut change = 0.0_f64;
        if !self.converted.contains(&true) {
            return Ok(change);
        }
        let e = evaluator.evaluate(&self.model, policy)?;
        let Some(totals) = self.totals(evaluator, policy, &e)? else { return Ok(change) };
        for k in (0..limits.len()).filter(|&k| self.converted[k]) {
            let CostLimit::PerEpisode { limit, .. } = limits[k] else { continue };
            let (discounted, total) = (e.costs[k], dot(&totals.occupancy, &self.costs[k]) / totals.ends);
            let ratio = if discounted > 0.0 && total > 0.0 {
                discounted / total
            } else {
                // A policy without this cost: that of a cost of one in every step.
                e.occupancy.iter().sum::<f64>() * totals.ends / totals.occupancy.iter().sum::<f64>()
            };
            let (before, next) = (self.constraint_limits[k], limit * ratio);
            change = change.max(if before.is_finite() {
                (next - before).abs() / next.abs().max(1e-300)
            } else {
                f64::INFINITY
            });
            self.constraint_limits[k] = next;
            self.scales[k] = Some(1.0 / ratio);
        }
        Ok(change)
    }
}

/// Ends per step below which a policy is taken never to end: an episode of 1e12 steps. Solvers leave such traces of
/// actions that their solution does not take.
const LEAST_ENDS: f64 = 1e-12;

/// Visits of the restart chain.
struct Totals {
    occupancy: Vec<f64>,
    /// Ends per step.
    ends: f64,
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
