//! The cost multipliers: `λ` such that every cost (or its bound) meets its limit, with complementarity.
//!
//! For the naive program `λ` is part of the convex dual. The conservative conditions,
//! `0 ≤ λ_k ⟂ ĉ_k − ℓ_k(w_λ) ≥ 0` (`eq:nu_lambda_tau_chi_optimization`), are those of the naive program with
//! tightened limits: with the margin `m_k = ℓ_k − E_d[C_k]` of its own solution, limits `t_k = ĉ_k − m_k` give
//! `λ_k > 0 ⟹ ℓ_k = ĉ_k` and `λ_k = 0 ⟹ ℓ_k ≤ ĉ_k`. So the unknowns are the limits `t`, not `λ`: at small `α` costs
//! are a staircase in `λ`, flat and steep by turns, but the bound moves with the cost itself, nearly one to one.
//!
//! The derivatives of bounds and costs in `λ` are exact, by the envelope theorem: `dw/dλ` costs one solve with the
//! Hessian of the dual.
//!
//! | costs | module | method |
//! |---|---|---|
//! | one | [`one_limit`] | a bracketed Newton search for `ℓ(t) = ĉ` |
//! | several | [`several_limits`] | Newton's method for `t + m(t) = ĉ` |
//! | several, where that does not get there | [`excess`] | a search over prices that finds the least excess over all limits at once, and decides whether it is zero |

mod excess;
mod one_limit;
mod several_limits;

use super::bound::{BoundSolver, BoundState, BoundValue};
use super::dual::Dual;
use super::{BoundProblem, CostBound, Effort};
use crate::outcome::Outcome;

/// How closely a bound must meet its limit, cost units per step, relative to `1 + |limit|`. The bounds are exact to
/// about 1e-13, and a multiplier errs by this over the slope, which is about 0.01 to 1 for costs of order one.
const LIMIT_TOLERANCE: f64 = 1e-11;

/// `λ_k` times the slack of a limit that counts as none, reward units per step: what objectives are exact to.
const OBJECTIVE_TOLERANCE: f64 = 1e-9;

/// What bounds are exact to at best, relative to [`LIMIT_TOLERANCE`].
const EXACTEST: f64 = 1e-2;

/// The bound moves with the cost, which the dual meets only as closely as its own tolerance says: at small `α` that
/// is coarser. Asking for less than this multiple of it would be asking for luck.
const DUAL_TOLERANCES: f64 = 4.0;

/// Outflow of a state, relative to the flow residual, up to which it is taken for a part of it: what is out of balance
/// stays about in a state for a few steps.
const STRAY: f64 = 10.0;

/// Difference between a bound and the tilted cost, relative to `1 + |bound|`, above which the flow is not balanced as
/// closely as multipliers ask for.
const GAP: f64 = 1e-9;

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
    /// `w` as it enters the bounds, `[S*A]`.
    w: Vec<f64>,
    /// Place of each pair among the supported ones, `[S*A]`.
    place: Vec<u32>,
    /// `∂ℓ_k/∂w` over the supported pairs, of the bounds last found.
    gradients: Vec<Vec<f64>>,
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
        gradients: vec![vec![0.0; dual.r.pair_count()]; limits.len()],
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
    let bounds = search.values.into_iter().zip(search.states).map(|(v, s)| CostBound::new(v, s)).collect();
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
        self.bound_costs();
        outcome
    }

    /// Bounds the costs of the dual's present `w`. Tilted measures have to balance what `w` leaves out of balance, at
    /// multipliers of 1e5 and more. Where that shows, another step of the dual at the same prices puts it right.
    fn bound_costs(&mut self) {
        self.bound_present_costs();
        let doubtful = |v: &BoundValue| {
            let gap = (v.value - v.tilted_cost).abs();
            !v.outcome.is_solved() || gap > GAP * (1.0 + v.value.abs())
        };
        if self.values.iter().any(doubtful) && self.dual.polish() {
            self.bound_present_costs();
        }
    }

    fn bound_present_costs(&mut self) {
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
            if !value.outcome.is_solved() {
                // Multipliers that ran away would lead the next solve, of another `w`, to where exponents have no digits.
                self.states[k].beta = 0.0;
            }
            self.values.push(value);
            self.gradients[k].fill(0.0);
            for (pair, slope) in self.solver.weight_gradient() {
                if let Some(g) = self.gradients[k].get_mut(self.place[pair] as usize) {
                    *g = slope;
                }
            }
        }
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
        let close = LIMIT_TOLERANCE * (1.0 + self.limits[k].abs());
        // A bound is exact to its own gap at best: where the radius is not used up that is what a small `τ` leaves.
        let gap = match self.values.get(k) {
            Some(v) if v.outcome.is_solved() => (v.value - v.tilted_cost).abs(),
            _ => 0.0,
        };
        let exact = gap.min(GAP * (1.0 + self.limits[k].abs()));
        // Slack counts by its price.
        close.min(OBJECTIVE_TOLERANCE / self.dual.lambda[k]).max(EXACTEST * close).max(reachable).max(exact)
    }

    /// Whether every bound is within its limit and no slack is worth anything: where a bound jumps over its limit, as it
    /// does at `γ = 1` where prices of nothing first tell pairs apart, that is all there is to find.
    fn is_complementary(&self, worth: f64) -> bool {
        self.values.iter().all(|v| v.outcome.is_usable())
            && (0..self.limits.len()).all(|k| {
                let slack = self.slack(k);
                slack >= -self.tolerance(k) && self.dual.lambda[k] * slack <= worth
            })
    }

    /// Whether every cost meets its limit in its bound, with complementarity.
    fn meets_limits(&self) -> bool {
        (0..self.limits.len()).all(|k| self.residual(k) <= self.tolerance(k))
    }

    /// The worst of the dual's and the bounds' outcomes. That no measure near the data balances this `w` says nothing of
    /// the limits.
    fn combined(&self, dual: Outcome) -> Outcome {
        let order = [Outcome::IterationLimit, Outcome::Infeasible, Outcome::AlmostSolved];
        let of_bound = |v: &BoundValue| match v.outcome {
            Outcome::Infeasible => Outcome::IterationLimit,
            other => other,
        };
        let all = || std::iter::once(dual).chain(self.values.iter().map(of_bound));
        order.into_iter().find(|o| all().any(|x| x == *o)).unwrap_or(Outcome::Solved)
    }
}
