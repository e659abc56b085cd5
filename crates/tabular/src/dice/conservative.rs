//! The cost multipliers: `λ` such that every cost (or its bound) meets its limit, with complementarity.
//!
//! For the naive program `λ` is part of the convex dual. For the conservative one the conditions are
//! `0 ≤ λ_k ⟂ ĉ_k − ℓ_k(w_λ) ≥ 0` (`eq:nu_lambda_tau_chi_optimization`), solved by Newton's method: by the envelope
//! theorem `dℓ_k/dλ_j = Σ_p ∂ℓ_k/∂w_p · dw_p/dλ_j`, where `dw/dλ_j` costs one solve with the Hessian of the dual.
//! The bound is never below the mean cost, so the search starts from the naive solution.

use super::bound::{BoundSolver, BoundState, BoundValue};
use super::dual::{Dual, Sensitivity};
use super::{BoundProblem, CostBound, Effort};
use crate::linalg::spd::solve_small;
use crate::outcome::Outcome;

/// How closely a bound must meet its limit, cost units per step, relative to `1 + |limit|`. The bounds are exact to
/// about 1e-13, and a multiplier errs by this over the slope, which is about 0.01 to 1 for costs of order one.
const LIMIT_TOLERANCE: f64 = 1e-11;

/// Minimises over `ν`, `μ` and `λ ≥ 0`, and decides feasibility when `λ` runs away.
pub(super) fn minimise_naive(dual: &mut Dual, effort: Effort) -> Outcome {
    let outcome = dual.minimise(true, effort.lambda_cap, effort.newton_steps);
    if outcome.is_solved() || dual.limits.is_empty() {
        return outcome;
    }
    if proven_infeasible(dual) || dual.lambda.iter().any(|&l| l > effort.lambda_cap) {
        return Outcome::Infeasible;
    }
    outcome
}

/// Whether some limit lies below the least cost attainable in the data's support.
fn proven_infeasible(dual: &Dual) -> bool {
    dual.r.gamma < 1.0 && (0..dual.limits.len()).any(|k| dual.least_cost(k) > dual.limits[k] + 1e-12)
}

/// The dual and the bounds of all costs, along `λ`.
struct Search<'a, 'b> {
    dual: &'a mut Dual,
    problem: &'a BoundProblem<'b>,
    solver: BoundSolver<'b>,
    states: Vec<BoundState>,
    values: Vec<BoundValue>,
    /// `∂ℓ_k/∂w`, `[K][reduced pairs]`.
    gradients: Vec<Vec<f64>>,
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
    let naive = minimise_naive(dual, effort);
    let k = dual.limits.len();
    let pairs = problem.samples.pairs();
    let mut place = vec![u32::MAX; pairs];
    for (i, &pair) in dual.r.pairs.iter().enumerate() {
        place[pair as usize] = i as u32;
    }
    let reduced = dual.r.pair_count();
    let mut search = Search {
        solver: BoundSolver::new(problem.samples),
        states: vec![BoundState::default(); k],
        values: Vec::new(),
        gradients: vec![vec![0.0; reduced]; k],
        w: vec![0.0; pairs],
        place,
        effort,
        dual,
        problem,
    };
    search.bounds();
    let outcome = match naive {
        Outcome::Solved | Outcome::AlmostSolved if k == 1 => search.root(naive),
        Outcome::Solved | Outcome::AlmostSolved if k > 1 => search.complementarity(naive),
        other => other,
    };
    let bounds =
        search.values.into_iter().zip(search.states).map(|(v, s)| CostBound::new(v, s.chi)).collect();
    (outcome, bounds)
}

impl Search<'_, '_> {
    /// Bounds and their gradients at the current `w`.
    fn bounds(&mut self) {
        self.w.fill(self.problem.weight_floor);
        for (i, &pair) in self.dual.r.pairs.iter().enumerate() {
            self.w[pair as usize] = self.dual.w[i].max(self.problem.weight_floor);
        }
        self.values.clear();
        for k in 0..self.states.len() {
            let (cost, epsilon) = (self.problem.cost(k), self.problem.epsilon);
            let value =
                self.solver.solve(&self.w, cost, epsilon, &mut self.states[k], self.effort.bound_steps);
            self.values.push(value);
            let gradient = &mut self.gradients[k];
            gradient.fill(0.0);
            for (pair, slope) in self.solver.weight_gradient() {
                if let Some(g) = gradient.get_mut(self.place[pair] as usize) {
                    *g = slope;
                }
            }
        }
    }

    /// `ĉ_k − ℓ_k`.
    fn slack(&self, k: usize) -> f64 {
        self.dual.limits[k] - self.values[k].value
    }

    fn tolerance(&self, k: usize) -> f64 {
        LIMIT_TOLERANCE * (1.0 + self.dual.limits[k].abs())
    }

    /// The worst of the dual's and the bounds' outcomes.
    fn combined(&self, dual: Outcome) -> Outcome {
        let order = [Outcome::IterationLimit, Outcome::Infeasible, Outcome::AlmostSolved];
        let all = || std::iter::once(dual).chain(self.values.iter().map(|v| v.outcome));
        order.into_iter().find(|o| all().any(|x| x == *o)).unwrap_or(Outcome::Solved)
    }

    /// `dℓ_k/dλ` along one sensitivity.
    fn slope(&self, k: usize, along: &Sensitivity) -> f64 {
        self.gradients[k].iter().zip(&along.d_w).map(|(&g, &dw)| g * dw).sum()
    }

    /// One cost: a bracketed Newton search. The bound decreases in `λ`.
    fn root(&mut self, naive: Outcome) -> Outcome {
        let mut outcome = naive;
        let (mut low, mut high) = (self.dual.lambda[0], f64::INFINITY);
        if self.slack(0) >= 0.0 && low == 0.0 {
            return self.combined(outcome);
        }
        for _ in 0..self.effort.lambda_steps {
            let slack = self.slack(0);
            if slack.abs() <= self.tolerance(0) || (high.is_finite() && high - low <= 1e-14 * high) {
                return self.combined(outcome);
            }
            let lambda = self.dual.lambda[0];
            if slack < 0.0 {
                low = lambda;
            } else {
                high = lambda;
            }
            if low > self.effort.lambda_cap {
                return Outcome::Infeasible;
            }
            let along = self.dual.sensitivity(0);
            let newton = along.as_ref().map_or(f64::NAN, |a| lambda + slack / self.slope(0, a));
            let inside = newton > low && newton < high && newton <= 10.0 * lambda + 10.0;
            let next = match (inside, high.is_finite()) {
                (true, _) => newton,
                (false, true) => 0.5 * (low + high),
                (false, false) => 10.0 * low + 1.0,
            };
            match &along {
                Some(a) if inside => self.dual.move_lambda(0, next, a),
                _ => self.dual.lambda[0] = next,
            }
            outcome = self.dual.minimise(false, f64::INFINITY, self.effort.newton_steps);
            self.bounds();
        }
        Outcome::IterationLimit
    }

    /// Several costs: Newton's method on the complementarity conditions, active by `λ_k > slack_k`.
    fn complementarity(&mut self, naive: Outcome) -> Outcome {
        let mut outcome = naive;
        let k = self.states.len();
        for _ in 0..self.effort.lambda_steps {
            let residual = |s: &Self, k: usize| {
                if s.dual.lambda[k] > 0.0 { s.slack(k).abs() } else { (-s.slack(k)).max(0.0) }
            };
            if (0..k).all(|i| residual(self, i) <= self.tolerance(i)) {
                return self.combined(outcome);
            }
            if self.dual.lambda.iter().any(|&l| l > self.effort.lambda_cap) {
                return Outcome::Infeasible;
            }
            let along: Option<Vec<Sensitivity>> = (0..k).map(|i| self.dual.sensitivity(i)).collect();
            let Some(along) = along else { return Outcome::IterationLimit };
            let step = self.active_step(&along);
            for (i, a) in along.iter().enumerate() {
                let next = (self.dual.lambda[i] + step[i]).max(0.0);
                self.dual.move_lambda(i, next, a);
            }
            outcome = self.dual.minimise(false, f64::INFINITY, self.effort.newton_steps);
            self.bounds();
        }
        Outcome::IterationLimit
    }

    /// The Newton step on the limits that are active, found by dropping those whose multiplier would turn negative.
    fn active_step(&self, along: &[Sensitivity]) -> Vec<f64> {
        let k = along.len();
        let lambda = &self.dual.lambda;
        let mut active: Vec<usize> = (0..k).filter(|&i| lambda[i] > 0.0 || self.slack(i) < 0.0).collect();
        loop {
            let m = active.len();
            let mut jacobian = vec![0.0; m * m];
            let mut right = vec![0.0; m];
            for (i, &row) in active.iter().enumerate() {
                for (j, &column) in active.iter().enumerate() {
                    jacobian[i * m + j] = self.slope(row, &along[column]);
                }
                right[i] = self.slack(row);
                // Limits dropped before go to λ = 0, which moves the others' bounds.
                for column in (0..k).filter(|c| !active.contains(c)) {
                    right[i] += self.slope(row, &along[column]) * lambda[column];
                }
            }
            let solved = solve_small(&mut jacobian, &mut right) && right.iter().all(|x| x.is_finite());
            let mut step: Vec<f64> = lambda.iter().map(|&l| -l).collect();
            for (i, &row) in active.iter().enumerate() {
                // Without a usable Jacobian, raise what is violated.
                let fallback = if self.slack(row) < 0.0 { lambda[row] + 1.0 } else { -0.5 * lambda[row] };
                step[row] = if solved { right[i].min(9.0 * lambda[row] + 10.0) } else { fallback };
            }
            let turned = active.iter().position(|&i| lambda[i] + step[i] < 0.0 && self.slack(i) > 0.0);
            match turned {
                Some(place) if m > 1 => drop(active.remove(place)),
                _ => return step,
            }
        }
    }
}
