//! The cost multipliers: `λ` such that every cost (or its bound) meets its limit, with complementarity.
//!
//! For the naive program `λ` is part of the convex dual. The conservative conditions,
//! `0 ≤ λ_k ⟂ ĉ_k − ℓ_k(w_λ) ≥ 0` (`eq:nu_lambda_tau_chi_optimization`), are those of the naive program with
//! tightened limits: with the margin `m_k = ℓ_k − E_d[C_k]` of its own solution, limits `t_k = ĉ_k − m_k` give
//! `λ_k > 0 ⟹ ℓ_k = ĉ_k` and `λ_k = 0 ⟹ ℓ_k ≤ ĉ_k`. So the unknowns are the limits `t`, not `λ`: at small `α` costs
//! are a staircase in `λ`, flat and steep by turns, but the bound moves with the cost itself, nearly one to one.
//!
//! One cost: a bracketed Newton search for `ℓ(t) = ĉ`, with `dℓ/dt = (dℓ/dλ)/(dE_d[C]/dλ)` by the envelope theorem
//! (`dw/dλ` costs one solve with the Hessian of the dual). Several costs: Broyden's method on `m(t) = ĉ − t`.

use super::bound::{BoundSolver, BoundState, BoundValue};
use super::dual::Dual;
use super::{BoundProblem, CostBound, Effort};
use crate::linalg::spd::dot;
use crate::outcome::Outcome;

/// How closely a bound must meet its limit, cost units per step, relative to `1 + |limit|`. The bounds are exact to
/// about 1e-13, and a multiplier errs by this over the slope, which is about 0.01 to 1 for costs of order one.
const LIMIT_TOLERANCE: f64 = 1e-11;

/// The bound moves with the cost, which the dual meets only as closely as its own tolerance says: at small `α` that
/// is coarser. Asking for less than this multiple of it would be asking for luck.
const DUAL_TOLERANCES: f64 = 4.0;

/// Outflow of a state, relative to the flow residual, up to which it is taken for a part of it: what is out of balance
/// stays about in a state for a few steps.
const STRAY: f64 = 10.0;

/// Share of a step towards tighter limits below which they are taken to lie beyond what any policy meets.
const SHORTEST_STEP: f64 = 1e-7;

/// Newton steps after which feasibility is decided before going on.
const PATIENCE: usize = 100;

/// Minimises over `ν`, `μ` and `λ ≥ 0`. When that takes long, the linear program decides whether the limits can be
/// met at all: if not, the dual is unbounded and `λ` would run away.
pub(super) fn minimise_naive(dual: &mut Dual, effort: Effort) -> Outcome {
    let left = |dual: &Dual| effort.total_steps.saturating_sub(dual.steps);
    let steps = effort.newton_steps.min(PATIENCE).min(left(dual));
    let outcome = dual.minimise(true, effort.lambda_cap, steps);
    if outcome.is_solved() || dual.limits.is_empty() {
        return outcome;
    }
    if dual.infeasible() {
        return Outcome::Infeasible;
    }
    let steps = effort.newton_steps.min(left(dual));
    dual.minimise(true, f64::INFINITY, steps)
}

/// The dual and the bounds of all costs, along tightened limits.
struct Search<'a, 'b> {
    dual: &'a mut Dual,
    problem: &'a BoundProblem<'b>,
    solver: BoundSolver<'b>,
    states: Vec<BoundState>,
    values: Vec<BoundValue>,
    /// `ĉ`.
    limits: Vec<f64>,
    /// `ν`, `μ`, `λ` of the last limits that could be met. Those of limits that cannot run away.
    reached: Option<(Vec<f64>, f64, Vec<f64>)>,
    w: Vec<f64>,
    place: Vec<u32>,
    effort: Effort,
}

/// COptiDICE with the cost bound.
pub(super) fn solve(
    dual: &mut Dual,
    problem: &BoundProblem<'_>,
    effort: Effort,
) -> (Outcome, Vec<CostBound>) {
    let limits = dual.limits.clone();
    let pairs = problem.samples.pairs();
    let mut place = vec![u32::MAX; pairs];
    for (i, &pair) in dual.r.pairs.iter().enumerate() {
        place[pair as usize] = i as u32;
    }
    let mut search = Search {
        solver: BoundSolver::new(problem.samples),
        states: vec![BoundState::default(); limits.len()],
        values: Vec::new(),
        w: vec![0.0; pairs],
        place,
        effort,
        limits: limits.clone(),
        reached: None,
        dual,
        problem,
    };
    let naive = search.at_limits();
    let usable = naive.is_usable();
    let outcome = match limits.len() {
        _ if !usable => naive,
        0 => naive,
        1 => search.one_limit(naive),
        _ => search.several_limits(naive),
    };
    let bounds =
        search.values.into_iter().zip(search.states).map(|(v, s)| CostBound::new(v, s.chi)).collect();
    dual.limits = limits;
    (outcome, bounds)
}

impl Search<'_, '_> {
    /// Solves the naive program at the dual's present limits and bounds its costs.
    fn at_limits(&mut self) -> Outcome {
        let outcome = minimise_naive(self.dual, self.effort);
        if let (Outcome::Infeasible | Outcome::IterationLimit, Some(reached)) = (outcome, &self.reached) {
            self.dual.restore(reached);
            self.dual.refresh();
            return outcome;
        }
        self.reached = Some(self.dual.multipliers());
        self.load_weights();
        self.values.clear();
        for k in 0..self.states.len() {
            let (cost, epsilon) = (self.problem.cost(k), self.problem.epsilon);
            let steps = self.effort.bound_steps;
            let mut value = self.solver.solve(&self.w, cost, epsilon, &mut self.states[k], steps);
            if !value.outcome.is_solved() {
                // A start from another solution can mislead; the least-squares start does not depend on it.
                self.states[k] = BoundState::default();
                value = self.solver.solve(&self.w, cost, epsilon, &mut self.states[k], steps);
            }
            self.values.push(value);
        }
        outcome
    }

    /// `w` as it enters the bounds. A state that hardly more flows out of than the flow is out of balance by has no
    /// flow: left in, the bounds would have to balance what nothing balances.
    fn load_weights(&mut self) {
        let (r, stray) = (&self.dual.r, STRAY * self.dual.flow_residual());
        self.w.fill(self.problem.weight_floor);
        for s in 0..r.n() {
            let pairs = r.state_start[s]..r.state_start[s + 1];
            if pairs.clone().map(|p| r.data[p] * self.dual.w[p]).sum::<f64>() > stray {
                for p in pairs {
                    self.w[r.pairs[p] as usize] = self.dual.w[p].max(self.problem.weight_floor);
                }
            }
        }
    }

    /// `ĉ_k − ℓ_k`.
    fn slack(&self, k: usize) -> f64 {
        self.limits[k] - self.values[k].value
    }

    /// Violation of `0 ≤ λ_k ⟂ ĉ_k − ℓ_k ≥ 0`.
    fn residual(&self, k: usize) -> f64 {
        if self.dual.lambda[k] > 0.0 { self.slack(k).abs() } else { (-self.slack(k)).max(0.0) }
    }

    fn tolerance(&self, k: usize) -> f64 {
        let reachable = DUAL_TOLERANCES * self.dual.tolerance();
        (LIMIT_TOLERANCE * (1.0 + self.limits[k].abs())).max(reachable)
    }

    /// The worst of the dual's and the bounds' outcomes.
    fn combined(&self, dual: Outcome) -> Outcome {
        let order = [Outcome::IterationLimit, Outcome::Infeasible, Outcome::AlmostSolved];
        let all = || std::iter::once(dual).chain(self.values.iter().map(|v| v.outcome));
        order.into_iter().find(|o| all().any(|x| x == *o)).unwrap_or(Outcome::Solved)
    }

    /// `dℓ/dt` of the only cost, which must be the one last bounded; one where it cannot be had.
    fn slope(&mut self) -> f64 {
        let Some(d_w) = self.dual.sensitivity(0) else { return 1.0 };
        let mut of_bound = 0.0;
        for (pair, slope) in self.solver.weight_gradient() {
            if let Some(dw) = d_w.get(self.place[pair] as usize) {
                of_bound += slope * dw;
            }
        }
        let r = &self.dual.r;
        let of_cost: f64 = (0..r.pair_count()).map(|p| r.data[p] * d_w[p] * r.costs[0][p]).sum();
        let slope = of_bound / of_cost;
        // At a kink the one-sided derivatives of cost and bound may disagree; the bracket does the rest.
        if slope.is_finite() { slope.clamp(0.2, 5.0) } else { 1.0 }
    }

    fn one_limit(&mut self, naive: Outcome) -> Outcome {
        let mut outcome = naive;
        let least = if self.dual.r.gamma < 1.0 { self.dual.least_cost(0) } else { f64::NEG_INFINITY };
        let (mut low, mut high) = (least, f64::INFINITY);
        // Whether the limit is met at the lower end.
        let mut met = false;
        let mut moved = true;
        for _ in 0..self.effort.lambda_steps {
            if self.residual(0) <= self.tolerance(0) {
                return self.combined(outcome);
            }
            if self.dual.steps >= self.effort.total_steps {
                break;
            }
            let usable = outcome.is_usable();
            let target = self.dual.limits[0].min(self.dual.mean_cost(0));
            if !usable {
                (low, met) = (self.dual.limits[0], false);
            } else if self.slack(0) < 0.0 {
                high = target;
            } else {
                (low, met) = (target, true);
            }
            if met && !moved && high - low <= DUAL_TOLERANCES * self.dual.tolerance() {
                // The dual does not tell the limits left apart. That is not close enough where the bound moves much
                // more than one to one.
                return match self.combined(outcome) {
                    Outcome::Solved => Outcome::AlmostSolved,
                    other => other,
                };
            }
            if high - low <= 1e-13 * (1.0 + high.abs()) {
                // Even the least cost has a bound above the limit, if it is the bound. Where the limit was met at the
                // lower end the bound jumps over it, and nothing is proved.
                let proved = !met && self.values[0].outcome.is_usable();
                return if proved { Outcome::Infeasible } else { Outcome::IterationLimit };
            }
            let newton = if usable { target + self.slack(0) / self.slope() } else { f64::NAN };
            let inside = newton > low && newton < high;
            self.dual.limits[0] = match (inside, low.is_finite()) {
                (true, _) => newton,
                (false, true) if high.is_finite() => 0.5 * (low + high),
                (false, true) => low + 1.0,
                (false, false) => high - 2.0 * (1.0 + (high - self.limits[0]).abs()),
            };
            let before = self.dual.steps;
            outcome = self.at_limits();
            moved = self.dual.steps > before;
        }
        Outcome::IterationLimit
    }

    /// Broyden's method for the margins. Where a step leads to limits that no policy meets, it is shortened; when
    /// every step, however short, leads beyond what can be met, so do the limits asked for.
    fn several_limits(&mut self, naive: Outcome) -> Outcome {
        let mut outcome = naive;
        let k = self.limits.len();
        // Approximate inverse of the derivative of t ↦ ĉ − m(t) − t, starting from that of constant margins.
        let mut inverse: Vec<f64> = (0..k * k).map(|i| if i % (k + 1) == 0 { -1.0 } else { 0.0 }).collect();
        let mut last: Option<(Vec<f64>, Vec<f64>)> = None;
        let (mut length, mut successes) = (1.0, 0);
        for _ in 0..self.effort.lambda_steps {
            if (0..k).all(|i| self.residual(i) <= self.tolerance(i)) {
                return self.combined(outcome);
            }
            let t = self.dual.limits.clone();
            let defect: Vec<f64> = (0..k)
                .map(|i| self.limits[i] - (self.values[i].value - self.dual.mean_cost(i)) - t[i])
                .collect();
            if let Some((old_t, old_defect)) = &last {
                let dt: Vec<f64> = t.iter().zip(old_t).map(|(a, b)| a - b).collect();
                let df: Vec<f64> = defect.iter().zip(old_defect).map(|(a, b)| a - b).collect();
                broyden(&mut inverse, &dt, &df);
            }
            let step: Vec<f64> = (0..k).map(|i| -dot(&inverse[i * k..(i + 1) * k], &defect)).collect();
            loop {
                for i in 0..k {
                    self.dual.limits[i] = t[i] + length * step[i];
                }
                outcome = self.at_limits();
                if outcome.is_usable() {
                    successes += 1;
                    break;
                }
                (length, successes) = (0.5 * length, 0);
                if self.dual.steps >= self.effort.total_steps {
                    return Outcome::IterationLimit;
                }
                if length < SHORTEST_STEP {
                    // Only the linear program can say so.
                    return outcome;
                }
            }
            if successes > 3 {
                length = f64::min(1.0, 2.0 * length);
            }
            last = Some((t, defect));
        }
        Outcome::IterationLimit
    }
}

/// Broyden's good update of an inverse Jacobian: `B += (dt − B df)(dtᵀB)/(dtᵀB df)`.
fn broyden(inverse: &mut [f64], dt: &[f64], df: &[f64]) {
    let k = dt.len();
    let mapped: Vec<f64> = inverse.chunks(k).map(|row| dot(row, df)).collect();
    let left: Vec<f64> = (0..k).map(|j| (0..k).map(|i| dt[i] * inverse[i * k + j]).sum()).collect();
    let denominator = dot(dt, &mapped);
    if denominator.abs() > 1e-3 * dot(dt, dt) {
        for i in 0..k {
            for j in 0..k {
                inverse[i * k + j] += (dt[i] - mapped[i]) * left[j] / denominator;
            }
        }
    }
}
