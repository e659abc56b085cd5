//! The policy that collects the data (the paper's data-collection policy construction, algorithm 2).
//!
//! # Problem
//!
//! Wanted is a policy that is worse than the optimum by a known share and whose cost is known:
//!
//! ```text
//! π_soft(·|s) ∝ exp(Q*(s,·)/temperature)
//! π_D = argmin D_f(d^π ‖ d^π_soft)   s.t.  E_d[C] ≤ limit
//! ```
//!
//! with the temperature raised from 1e-6 by factors of 1/0.9 until `V_R(π_D) ≤ 0.9 V* + 0.1 V_unif`. `V*` and `Q*`
//! are those of the optimal policy *under the behaviour's limit*. The projection is COptiDICE without reward and
//! with `α = 1`; as in the reference, `d^π_soft` gets 1e-6 on every pair, which is what makes it feasible at all
//! while `π_soft` is close to deterministic.
//!
//! # What the floor does
//!
//! At the first temperatures `π_soft` is the reward-greedy policy. If its cost exceeds the limit, the projection has
//! to move mass onto pairs that hold nothing but the floor, at the smallest *divergence*, whatever the reward. Where
//! that lands below the target, the loop of the definition ends at its first step. `V_R(π_D)` is therefore not
//! monotone in the temperature, and the first crossing is what defines the policy: no bisection finds it.
//!
//! # Method
//!
//! `V_R(π_D)` is followed along the sequence. Temperatures at which `π_soft` is still the same to rounding are
//! skipped, and steps are lengthened while the value is so far above the target that nothing observed could cross it
//! ([`LARGEST_DROP`]); a long step that ends below is taken back and walked one by one.

use coptidice_core::{Cmdp, Divergence, Policy};
use serde::{Deserialize, Serialize};

use super::GenerateError;
use crate::case::{POLICY_FLOOR, known_behaviour_occupancy};
use crate::dice::{Effort, Problem, Solution, coptidice_naive};
use crate::evaluation::Evaluator;
use crate::lp::LpSolver;
use crate::outcome::Outcome;

/// Temperature of the first, unprojected policy.
const COLDEST: f64 = 1e-6;
/// Factor from one temperature to the next, inverted.
const COOLING: f64 = 0.9;
/// Temperatures tried: the last is 1e-6/0.9^400 = 2e12, at which `π_soft` is uniform.
const TEMPERATURES: usize = 400;

/// Steepest fall of the reward from one temperature to the next that is reckoned with, reward units per step. The
/// steepest among 400 behaviours on random CMDPs was half of it.
const LARGEST_DROP: f64 = 0.02;
/// Most temperatures passed over at once.
const LONGEST_STRIDE: usize = 4;

/// What the behaviour shall be like.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BehaviourConfig {
    /// Cost of the behaviour, cost units per step.
    pub limit: f64,
    /// Share `x` of the target `x·V* + (1−x)·V_unif`.
    #[serde(default = "default_optimality")]
    pub optimality: f64,
}

fn default_optimality() -> f64 {
    0.9
}

impl BehaviourConfig {
    /// The paper's 0.9-optimal behaviour with this cost.
    #[must_use]
    pub fn with_limit(limit: f64) -> Self {
        Self { limit, optimality: default_optimality() }
    }
}

/// A policy that collects data, and its values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Behaviour {
    /// `π_D`.
    pub policy: Policy,
    /// `V_R(π_D)`, per step.
    pub reward: f64,
    /// `V_C(π_D)`, per step.
    pub cost: f64,
}

/// Workspace for building behaviours on CMDPs of one size.
pub struct BehaviourBuilder {
    evaluator: Evaluator,
    lp: LpSolver,
}

impl BehaviourBuilder {
    /// Workspace for `states` states.
    #[must_use]
    pub fn new(states: usize) -> Self {
        Self { evaluator: Evaluator::new(states), lp: LpSolver::new(states) }
    }

    /// Builds the behaviour of algorithm 2 on a CMDP with one cost and `γ < 1`.
    ///
    /// # Errors
    /// If the limit is below every policy's cost, the CMDP has another number of costs, or no temperature reaches
    /// the target.
    pub fn build(&mut self, m: &Cmdp, config: BehaviourConfig) -> Result<Behaviour, GenerateError> {
        let optimum = self.lp.solve(m, &[config.limit])?;
        if optimum.outcome != Outcome::Solved {
            return Err(GenerateError::Behaviour { limit: config.limit, outcome: optimum.outcome });
        }
        let uniform = Policy::uniform(m.states(), m.actions())?;
        let best = optimum.policy(&uniform, POLICY_FLOOR)?;
        let q = self.action_values(m, &best)?;
        let optimal = self.evaluator.evaluate(m, &best)?.reward;
        let worst = self.evaluator.evaluate(m, &uniform)?.reward;
        let target = config.optimality * optimal + (1.0 - config.optimality) * worst;

        let coldest = softmax(&uniform, &q, COLDEST)?;
        let found = self.evaluator.evaluate(m, &coldest)?;
        if found.reward <= target {
            return Ok(Behaviour { policy: coldest, reward: found.reward, cost: found.costs[0] });
        }
        let limit = config.limit;
        let scan = Scan {
            evaluator: &mut self.evaluator,
            m,
            free: &unrewarded(m)?,
            q: &q,
            uniform: &uniform,
            limit,
            start: None,
        };
        scan.first_below(target, &coldest)
    }

    /// `Q(s,a)`, `[S*A]`, normalised: per step.
    fn action_values(&mut self, m: &Cmdp, policy: &Policy) -> Result<Vec<f64>, GenerateError> {
        let v = self.evaluator.state_values(m, policy, m.reward())?;
        let end = m.end_value(&v);
        let q = |pair| (1.0 - m.gamma()) * (m.reward()[pair] + m.gamma() * m.expect_next(pair, &v, end));
        Ok((0..m.pairs()).map(q).collect())
    }
}

/// The projected policies along the temperatures.
struct Scan<'a> {
    evaluator: &'a mut Evaluator,
    m: &'a Cmdp,
    /// The same without reward.
    free: &'a Cmdp,
    q: &'a [f64],
    uniform: &'a Policy,
    limit: f64,
    /// Multipliers of the projection before, to start the next from.
    start: Option<Solution>,
}

impl Scan<'_> {
    /// The policy at the first temperature at which the reward is at most `target`; temperature `k` is `1e-6/0.9^k`.
    fn first_below(mut self, target: f64, coldest: &Policy) -> Result<Behaviour, GenerateError> {
        let mut at = self.projected(1)?;
        let mut k = 1;
        if at.reward > target {
            // Until the softmax changes, so does nothing.
            while k < TEMPERATURES && same(&self.softmax(k + 1)?, coldest) {
                k += 1;
            }
        }
        while at.reward > target {
            if k >= TEMPERATURES {
                return Err(GenerateError::Target { target, reward: at.reward });
            }
            let stride = (((at.reward - target) / LARGEST_DROP) as usize).clamp(1, LONGEST_STRIDE);
            let stride = stride.min(TEMPERATURES - k);
            let mut next = self.projected(k + stride)?;
            if next.reward <= target && stride > 1 {
                next = self.projected(k + 1)?;
                k += 1;
            } else {
                k += stride;
            }
            at = next;
        }
        Ok(at)
    }

    fn softmax(&self, k: usize) -> Result<Policy, GenerateError> {
        softmax(self.uniform, self.q, COLDEST / COOLING.powi(k as i32))
    }

    /// `π_D` at temperature `k`.
    fn projected(&mut self, k: usize) -> Result<Behaviour, GenerateError> {
        let soft = self.softmax(k)?;
        let data = known_behaviour_occupancy(self.evaluator, self.m, &soft)?;
        let problem = Problem {
            model: self.free,
            data_occupancy: &data,
            limits: &[self.limit],
            divergence: Divergence::Chi2,
            alpha: 1.0,
        };
        let solution = coptidice_naive(&problem, self.start.as_ref(), Effort::default())?;
        if !solution.outcome.is_usable() {
            return Err(GenerateError::Behaviour { limit: self.limit, outcome: solution.outcome });
        }
        let policy = solution.policy(self.uniform, POLICY_FLOOR)?;
        self.start = Some(solution);
        let found = self.evaluator.evaluate(self.m, &policy)?;
        Ok(Behaviour { policy, reward: found.reward, cost: found.costs[0] })
    }
}

fn unrewarded(m: &Cmdp) -> Result<Cmdp, GenerateError> {
    let mut parts = m.clone().into_parts();
    parts.reward.fill(0.0);
    Ok(Cmdp::new(parts)?)
}

fn same(a: &Policy, b: &Policy) -> bool {
    a.probabilities().iter().zip(b.probabilities()).all(|(x, y)| (x - y).abs() < 1e-13)
}

/// `∝ exp(q/temperature)` in every state.
fn softmax(shape: &Policy, q: &[f64], temperature: f64) -> Result<Policy, GenerateError> {
    let mut mass = vec![0.0; q.len()];
    for (mass, q) in mass.chunks_mut(shape.actions()).zip(q.chunks(shape.actions())) {
        let best = q.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        for (x, &q) in mass.iter_mut().zip(q) {
            *x = ((q - best) / temperature).exp();
        }
    }
    Ok(Policy::from_mass(shape, &mass)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::RandomCmdpConfig;
    use crate::linalg::spd::dot;

    /// What the definition needs, found by walking through every temperature.
    struct Walk {
        temperature: usize,
        behaviour: Behaviour,
        largest_drop: f64,
    }

    fn walk(m: &Cmdp, limit: f64) -> (f64, Walk) {
        let mut builder = BehaviourBuilder::new(m.states());
        let uniform = Policy::uniform(m.states(), m.actions()).unwrap();
        let best = builder.lp.solve(m, &[limit]).unwrap().policy(&uniform, POLICY_FLOOR).unwrap();
        let q = builder.action_values(m, &best).unwrap();
        let optimal = builder.evaluator.evaluate(m, &best).unwrap().reward;
        let target = 0.9 * optimal + 0.1 * builder.evaluator.evaluate(m, &uniform).unwrap().reward;
        let free = unrewarded(m).unwrap();
        let evaluator = &mut builder.evaluator;
        let mut scan = Scan { evaluator, m, free: &free, q: &q, uniform: &uniform, limit, start: None };
        let (mut before, mut largest_drop) = (f64::NEG_INFINITY, 0.0_f64);
        for temperature in 1.. {
            let behaviour = scan.projected(temperature).unwrap();
            largest_drop = largest_drop.max(before - behaviour.reward);
            before = behaviour.reward;
            if behaviour.reward <= target {
                return (target, Walk { temperature, behaviour, largest_drop });
            }
        }
        unreachable!()
    }

    fn compare(runs: std::ops::Range<u64>) -> (usize, usize) {
        let (mut first, mut all) = (0, 0);
        for run in runs {
            let m = RandomCmdpConfig::default().draw(31, run).unwrap().cmdp;
            for limit in [0.09, 0.11] {
                let (target, walked) = walk(&m, limit);
                assert!(walked.largest_drop < LARGEST_DROP, "{}", walked.largest_drop);
                let built = BehaviourBuilder::new(50).build(&m, BehaviourConfig::with_limit(limit)).unwrap();
                assert!(built.reward <= target);
                // Started from other multipliers, so equal up to the accuracy of the projection.
                let same = built.policy.probabilities().iter().zip(walked.behaviour.policy.probabilities());
                let far = same.map(|(x, y)| (x - y).abs()).fold(0.0, f64::max);
                assert!(far < 1e-6, "run {run}, limit {limit}, temperature {}: {far}", walked.temperature);
                assert!(built.cost <= limit + 1e-6, "{}", built.cost);
                first += usize::from(walked.temperature == 1);
                all += 1;
            }
        }
        (first, all)
    }

    #[test]
    fn strides_find_what_walking_finds() {
        compare(0..3);
    }

    /// 400 behaviours: several end at the first temperature, several later.
    #[test]
    #[ignore = "half a minute"]
    fn strides_find_what_walking_finds_many_times() {
        let (first, all) = compare(0..200);
        assert!(first > all / 10 && first < all * 9 / 10, "{first} of {all}");
    }

    /// What the builder reports of a policy is what the policy does.
    #[test]
    fn behaviour_is_evaluated_as_it_is() {
        let m = RandomCmdpConfig::default().draw(31, 7).unwrap().cmdp;
        let built = BehaviourBuilder::new(50).build(&m, BehaviourConfig::with_limit(0.11)).unwrap();
        let e = Evaluator::new(50).evaluate(&m, &built.policy).unwrap();
        assert_eq!((e.reward, e.costs[0]), (built.reward, built.cost));
        assert!((dot(&e.occupancy, m.reward()) - e.reward).abs() < 1e-14);
    }

    /// Here a state that the softmax hardly visits needs 1500 times its floor: `e` has far to climb.
    #[test]
    fn far_multipliers_are_reached() {
        let m = RandomCmdpConfig::default().draw(0, 6964).unwrap().cmdp;
        let built = BehaviourBuilder::new(50).build(&m, BehaviourConfig::with_limit(0.11)).unwrap();
        assert!((built.cost - 0.11).abs() < 1e-6, "{}", built.cost);
    }

    #[test]
    fn impossible_behaviours_are_refused() {
        let m = RandomCmdpConfig::default().draw(31, 0).unwrap().cmdp;
        let mut builder = BehaviourBuilder::new(50);
        let negative = builder.build(&m, BehaviourConfig::with_limit(-0.1));
        assert!(matches!(negative, Err(GenerateError::Behaviour { outcome: Outcome::Infeasible, .. })));
        let poor = BehaviourConfig { limit: 0.09, optimality: -20.0 };
        assert!(matches!(builder.build(&m, poor), Err(GenerateError::Target { .. })));
    }
}
