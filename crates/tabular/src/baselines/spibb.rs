//! C-SPIBB: safe policy improvement with baseline bootstrapping (Laroche et al. 2019) under cost limits (the paper's
//! appendix "Experimental Settings").
//!
//! # Problem
//!
//! A pair seen fewer than `N_wedge` times is *bootstrapped*: there the policy repeats the behaviour,
//!
//! ```text
//! π(a|s) = π_b(a|s)  wherever n(s,a) < N_wedge
//! ```
//!
//! and among such policies the best on the maximum-likelihood CMDP is sought. The paper does this for
//! `R − λᵀC` and steps `λ` along `V̂_C(π) − ĉ`. Those steps circle around the multiplier at which the limit is met;
//! here it is met exactly.
//!
//! # Method
//!
//! What a policy of the class may choose in state `s` is where to put the mass `m(s) = 1 − Σ_bootstrapped π_b(a|s)`
//! among the other actions. That is a choice of action in another CMDP,
//!
//! ```text
//! T'(·|s,a) = Σ_bootstrapped π_b(b|s)·T(·|s,b) + m(s)·T(·|s,a)         (R', C' likewise)
//! ```
//!
//! so that the constrained optimum is that CMDP's linear program, and its solution, a mixture of at most `K + 1`
//! deterministic choices, is read back as `π(a|s) = π_b(a|s)` for bootstrapped and `m(s)·π'(a|s)` for other actions.
//! States that this policy does not reach on the model, but may reach when deployed, get the greedy choice for
//! `R − λᵀC`, as policy iteration would leave them.
//! Where no policy of the class meets the limit, `λ` would grow without bound: what remains is the policy of least
//! excess.

use coptidice_core::{Cmdp, CmdpError, CmdpParts, Policy, Transitions};
use serde::{Deserialize, Serialize};

use crate::lp::{self, LpSolution, LpSolver};
use crate::outcome::Outcome;
use crate::policy_iteration::optimal_policy;

/// The paper's `N_wedge`.
pub const PAPER_WEDGE: f64 = 5.0;

/// A policy of the class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SpibbSolution {
    /// `Solved`, or `Infeasible` with the policy of least excess.
    pub outcome: Outcome,
    /// `π`, on the CMDP's own actions.
    pub policy: Policy,
    /// `V̂_R(π)` on the model, per step.
    pub reward: f64,
    /// `V̂_C(π)` on the model, `[K]`, per step.
    pub costs: Vec<f64>,
    /// Multipliers of the limits, `[K]`.
    pub lambda: Vec<f64>,
}

/// Workspace for C-SPIBB on models of one number of states.
pub struct Spibb {
    lp: LpSolver,
}

impl Spibb {
    /// Workspace for `states` states.
    #[must_use]
    pub fn new(states: usize) -> Self {
        Self { lp: LpSolver::new(states) }
    }

    /// The best policy that repeats `behaviour` on pairs with `visits` (`[S*A]`) below `wedge`, with costs on `model`
    /// within `limits`.
    ///
    /// # Errors
    /// [`CmdpError`] if shapes differ or a limit is not finite.
    pub fn solve(
        &mut self,
        model: &Cmdp,
        visits: &[f64],
        behaviour: &Policy,
        wedge: f64,
        limits: &[f64],
    ) -> Result<SpibbSolution, CmdpError> {
        Ok(self.solve_for(model, visits, behaviour, wedge, limits, false)?.0)
    }

    /// The same for the reward per episode in a restart chain at `γ = 1`; returns the reward per episode too.
    ///
    /// # Errors
    /// As [`Self::solve`], and [`CmdpError::Gamma`] where episodes do not restart.
    pub fn solve_per_episode(
        &mut self,
        model: &Cmdp,
        visits: &[f64],
        behaviour: &Policy,
        wedge: f64,
        limits: &[f64],
    ) -> Result<(SpibbSolution, f64), CmdpError> {
        self.solve_for(model, visits, behaviour, wedge, limits, true)
    }

    fn solve_for(
        &mut self,
        model: &Cmdp,
        visits: &[f64],
        behaviour: &Policy,
        wedge: f64,
        limits: &[f64],
        per_episode: bool,
    ) -> Result<(SpibbSolution, f64), CmdpError> {
        for (what, found) in [("visits", visits.len()), ("behaviour", behaviour.probabilities().len())] {
            if found != model.pairs() {
                return Err(CmdpError::Shape { what, expected: model.pairs(), found });
            }
        }
        let class = Class::new(model, visits, behaviour, wedge);
        let mut reduced = class.cmdp(model)?;
        let choices = class.distinct_choices();
        let (mut solution, mut ratio) = (None, 0.0);
        if per_episode {
            let (found, per_end) = lp::solve_per_episode(&reduced, limits, &choices)?;
            (solution, ratio) = (Some(found), per_end);
            reduced = lp::less_at_ends(&reduced, ratio)?;
        }
        let mut solution = match solution {
            Some(solution) => solution,
            None => self.program(&reduced, limits, &choices)?,
        };
        let outcome = solution.outcome;
        if outcome == Outcome::Infeasible {
            solution = self.least_excess(&reduced, limits, &choices)?;
        }
        let choice = greedy_elsewhere(&reduced, &solution)?;
        let policy = class.policy(&choice)?;
        let (reward, costs, lambda) = (solution.reward, solution.costs, solution.lambda);
        Ok((SpibbSolution { outcome, policy, reward, costs, lambda }, ratio))
    }

    /// The linear program over choices. At `γ = 1` it is the interior point's, which has no use for copies of a
    /// choice, nor for parts of the model that `p0` does not lead to.
    fn program(&mut self, reduced: &Cmdp, limits: &[f64], choices: &[f64]) -> Result<LpSolution, CmdpError> {
        if reduced.gamma() < 1.0 {
            self.lp.solve(reduced, limits)
        } else {
            lp::solve_in_support(reduced, limits, choices)
        }
    }

    /// Least total excess over the limits, as `λ → ∞` equally for all: reward is no object.
    fn least_excess(
        &mut self,
        reduced: &Cmdp,
        limits: &[f64],
        choices: &[f64],
    ) -> Result<LpSolution, CmdpError> {
        let mut parts = reduced.clone().into_parts();
        parts.reward =
            (0..reduced.pairs()).map(|pair| -reduced.costs().iter().map(|c| c[pair]).sum::<f64>()).collect();
        parts.costs.clear();
        let mut found = self.program(&Cmdp::new(parts)?, &[], choices)?;
        let mean = |table: &[f64]| found.occupancy.iter().zip(table).map(|(&d, &x)| d * x).sum::<f64>();
        found.reward = mean(reduced.reward());
        found.costs = reduced.costs().iter().map(|c| mean(c)).collect();
        found.lambda = vec![f64::INFINITY; limits.len()];
        Ok(found)
    }
}

/// The solution's policy where it goes, the greedy one for `R − λᵀC` (for `−ΣC` where `λ` is infinite) elsewhere.
fn greedy_elsewhere(m: &Cmdp, solution: &LpSolution) -> Result<Policy, CmdpError> {
    let bounded = solution.lambda.iter().all(|l| l.is_finite());
    let table: Vec<f64> = (0..m.pairs())
        .map(|pair| {
            let costs = m.costs().iter().map(|c| c[pair]).zip(&solution.lambda);
            if bounded {
                m.reward()[pair] - costs.map(|(c, &l)| l * c).sum::<f64>()
            } else {
                -costs.map(|(c, _)| c).sum::<f64>()
            }
        })
        .collect();
    let greedy = if m.gamma() < 1.0 {
        optimal_policy(m, &table)?
    } else {
        // Differences of values have a limit as γ → 1; at this discount they are within 1e-6 of it.
        let mut parts = m.clone().into_parts();
        parts.gamma = 1.0 - 1e-6;
        optimal_policy(&Cmdp::new(parts)?, &table)?
    };
    Policy::from_mass(&greedy.policy, &solution.occupancy)
}

/// The class of admissible policies.
struct Class<'a> {
    behaviour: &'a Policy,
    bootstrapped: Vec<bool>,
    /// `m(s)`: zero where every action is bootstrapped.
    free: Vec<f64>,
}

impl<'a> Class<'a> {
    fn new(model: &Cmdp, visits: &[f64], behaviour: &'a Policy, wedge: f64) -> Self {
        let bootstrapped: Vec<bool> = visits.iter().map(|&n| n < wedge).collect();
        let free = (0..model.states()).map(|s| {
            let rows = behaviour.row(s).iter().zip(&bootstrapped[s * model.actions()..]);
            // Summed over the free actions, so that it is exactly zero where there are none.
            rows.filter(|(_, b)| !**b).map(|(&p, _)| p).sum()
        });
        Self { behaviour, free: free.collect(), bootstrapped }
    }

    /// The action whose place a choice of `action` takes: itself if free, else the first free one of the state.
    fn stand_in(&self, state: usize, action: usize) -> Option<usize> {
        let actions = self.behaviour.actions();
        let row = &self.bootstrapped[state * actions..(state + 1) * actions];
        if row[action] { row.iter().position(|b| !b) } else { Some(action) }
    }

    /// One for the first of each state's choices that do the same, zero for its copies, `[S*A]`.
    fn distinct_choices(&self) -> Vec<f64> {
        let actions = self.behaviour.actions();
        let kept = (0..self.bootstrapped.len()).map(|pair| {
            let (state, action) = (pair / actions, pair % actions);
            match self.stand_in(state, action) {
                Some(stand_in) => stand_in == action,
                None => action == 0,
            }
        });
        kept.map(|kept| f64::from(u8::from(kept))).collect()
    }

    /// Adds up `table` over what a choice of `action` in `state` does: bootstrapped actions, and the free mass.
    fn mixed(&self, table: &[f64], state: usize, action: usize) -> f64 {
        self.parts(state, action).map(|(pair, p)| p * table[pair]).sum()
    }

    /// Pairs and their probabilities under a choice.
    fn parts(&self, state: usize, action: usize) -> impl Iterator<Item = (usize, f64)> {
        let base = state * self.behaviour.actions();
        let boot = self.behaviour.row(state).iter().enumerate();
        let boot = boot.filter(move |(b, p)| self.bootstrapped[base + b] && **p > 0.0);
        let free = self.stand_in(state, action).map(|a| (base + a, self.free[state]));
        boot.map(move |(b, &p)| (base + b, p)).chain(free.filter(|(_, p)| *p > 0.0))
    }

    /// The CMDP of choices.
    fn cmdp(&self, model: &Cmdp) -> Result<Cmdp, CmdpError> {
        let (states, actions) = (model.states(), model.actions());
        let choices = (0..states).flat_map(|s| (0..actions).map(move |a| (s, a)));
        let mut triples = Vec::new();
        let mut end = vec![0.0; model.pairs()];
        for (s, a) in choices.clone() {
            for (pair, p) in self.parts(s, a) {
                let (next, probability) = model.row(pair);
                triples.extend(next.iter().zip(probability).map(|(&t, &q)| (s, a, t as usize, p * q)));
                end[s * actions + a] += p * model.transitions().end_probability(pair);
            }
        }
        let table = |x: &[f64]| choices.clone().map(|(s, a)| self.mixed(x, s, a)).collect::<Vec<f64>>();
        Cmdp::new(CmdpParts {
            transitions: Transitions::from_triples(states, actions, triples)?.with_end_probability(end)?,
            episode_end: model.episode_end(),
            reward: table(model.reward()),
            costs: model.costs().iter().map(|c| table(c)).collect(),
            initial: model.initial().to_vec(),
            gamma: model.gamma(),
        })
    }

    /// Reads a policy over choices back as one over actions.
    fn policy(&self, choice: &Policy) -> Result<Policy, CmdpError> {
        let actions = choice.actions();
        let mut probabilities = vec![0.0; self.bootstrapped.len()];
        for s in 0..choice.states() {
            for (a, &x) in choice.row(s).iter().enumerate() {
                for (pair, p) in self.parts(s, a).filter(|_| x > 0.0) {
                    probabilities[pair] += x * p;
                }
            }
            // Sums of at most 2A products.
            let row = &mut probabilities[s * actions..(s + 1) * actions];
            let total: f64 = row.iter().sum();
            row.iter_mut().for_each(|p| *p /= total);
        }
        Policy::new(choice.states(), actions, probabilities)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counts::Counts;
    use crate::evaluation::evaluate;
    use crate::generate::{RandomCmdpConfig, TrajectorySampler, counts_of_table, estimated_model};
    use coptidice_core::{EpisodeEnd, StateId, rng};

    fn sampled(index: u64, states: usize, episodes: usize) -> (Cmdp, Counts, Policy) {
        let config = RandomCmdpConfig {
            states,
            actions: 3,
            connectivity: 3,
            limit: 0.02,
            ..RandomCmdpConfig::default()
        };
        let drawn = config.draw(8, index).unwrap();
        let mass: Vec<f64> = (0..states * 3).map(|i| 1.0 + (i * 5 % 7) as f64).collect();
        let behaviour = Policy::from_mass(&Policy::uniform(states, 3).unwrap(), &mass).unwrap();
        let mut table = vec![0; states * 3 * states];
        let sampler = TrajectorySampler::new(&drawn.cmdp, &behaviour).unwrap();
        sampler.count_into(&mut rng::stream(8, "spibb", index), episodes, 30, &mut table);
        let counts = counts_of_table(states, 3, &table).unwrap();
        let model = estimated_model(&drawn.cmdp, &counts, StateId(states as u32 - 1)).unwrap();
        (model, counts, behaviour)
    }

    /// Every deterministic choice of the class by enumeration, and every mixture of two of them: none that meets
    /// the limit earns more. (One limit: the optimum mixes at most two.)
    #[test]
    fn best_of_the_class_by_enumeration() {
        for index in 0..4 {
            let (model, counts, behaviour) = sampled(index, 5, 6);
            let visits = counts.pair_totals();
            let mut rivals = vec![vec![]];
            for s in 0..5 {
                let free: Vec<usize> = (0..3).filter(|a| visits[s * 3 + a] >= 5.0).collect();
                let choices = if free.is_empty() { vec![usize::MAX] } else { free };
                rivals = rivals
                    .into_iter()
                    .flat_map(|r: Vec<usize>| choices.iter().map(move |&c| [r.clone(), vec![c]].concat()))
                    .collect();
            }
            let values: Vec<(f64, f64)> = rivals
                .iter()
                .map(|choice| {
                    let mut p = behaviour.probabilities().to_vec();
                    for (s, &c) in choice.iter().enumerate().filter(|(_, c)| **c != usize::MAX) {
                        let free: f64 =
                            (0..3).filter(|a| visits[s * 3 + a] >= 5.0).map(|a| p[s * 3 + a]).sum();
                        for a in (0..3).filter(|a| visits[s * 3 + a] >= 5.0) {
                            p[s * 3 + a] = if a == c { free } else { 0.0 };
                        }
                    }
                    let e = evaluate(&model, &Policy::new(5, 3, p).unwrap()).unwrap();
                    (e.reward, e.costs[0])
                })
                .collect();
            let dear = values.iter().map(|v| v.1).fold(0.0, f64::max);
            let cheap = values.iter().map(|v| v.1).fold(1.0, f64::min);
            let limit = 0.5 * (dear + cheap);
            let mut best = f64::NEG_INFINITY;
            for (i, a) in values.iter().enumerate() {
                if a.1 <= limit {
                    best = best.max(a.0);
                }
                for b in values[i + 1..].iter().filter(|b| (a.1 - limit) * (b.1 - limit) < 0.0) {
                    let share = (limit - b.1) / (a.1 - b.1);
                    best = best.max(share * a.0 + (1.0 - share) * b.0);
                }
            }
            let found = Spibb::new(5).solve(&model, visits, &behaviour, 5.0, &[limit]).unwrap();
            assert_eq!(found.outcome, Outcome::Solved);
            let e = evaluate(&model, &found.policy).unwrap();
            assert!((e.reward - best).abs() < 1e-10, "{} against {best}", e.reward);
            assert!(e.costs[0] <= limit + 1e-10);
            assert!((e.reward - found.reward).abs() < 1e-10 && (e.costs[0] - found.costs[0]).abs() < 1e-10);
            // Below the cheapest of the class nothing is feasible, and the cheapest is what is left.
            if cheap > 0.0 {
                let none = Spibb::new(5).solve(&model, visits, &behaviour, 5.0, &[0.5 * cheap]).unwrap();
                assert_eq!(none.outcome, Outcome::Infeasible);
                assert!((evaluate(&model, &none.policy).unwrap().costs[0] - cheap).abs() < 1e-10);
            }
        }
    }

    #[test]
    fn rare_pairs_repeat_the_behaviour() {
        let (model, counts, behaviour) = sampled(9, 12, 20);
        let found = Spibb::new(12).solve(&model, counts.pair_totals(), &behaviour, 5.0, &[0.05]).unwrap();
        let mut rare = 0;
        for (pair, &n) in counts.pair_totals().iter().enumerate().filter(|(_, n)| **n < 5.0) {
            rare += 1;
            let (p, q) = (found.policy.probabilities()[pair], behaviour.probabilities()[pair]);
            assert!((p - q).abs() < 1e-12, "pair {pair}, seen {n} times");
        }
        assert!(rare > 3 && rare < 36);
        // With an endless wedge nothing may change; with none, it is the linear program.
        let all =
            Spibb::new(12).solve(&model, counts.pair_totals(), &behaviour, f64::INFINITY, &[1.0]).unwrap();
        let same = all.policy.probabilities().iter().zip(behaviour.probabilities());
        assert!(same.clone().all(|(p, q)| (p - q).abs() < 1e-12));
        let free = Spibb::new(12).solve(&model, counts.pair_totals(), &behaviour, 0.0, &[0.05]).unwrap();
        assert!((free.reward - crate::lp::solve(&model, &[0.05]).unwrap().reward).abs() < 1e-10);
    }

    #[test]
    fn wrong_shapes_are_refused() {
        let (model, counts, behaviour) = sampled(0, 5, 6);
        assert!(Spibb::new(5).solve(&model, &[1.0], &behaviour, 5.0, &[1.0]).is_err());
        let other = Policy::uniform(5, 2).unwrap();
        assert!(Spibb::new(5).solve(&model, counts.pair_totals(), &other, 5.0, &[1.0]).is_err());
        assert!(Spibb::new(5).solve(&model, counts.pair_totals(), &behaviour, 5.0, &[]).is_err());
        assert_eq!(model.episode_end(), EpisodeEnd::Absorb);
    }
}
