//! The dual of the divergence-regularised program, by a semismooth Newton method.
//!
//! # Problem
//!
//! `min over ν, λ ≥ 0 (and μ at γ = 1)` of `eq:min_objective` (`eq:min_objective_gamma1`):
//!
//! ```text
//! L = Σ_p α d_p g(e_p/α) + (1−γ)p0ᵀν + λᵀĉ [+ μ]
//! e_p = R_p − λᵀC_p + a_pᵀν [− μ],   a_p = γT(·|s,a) − 1{s},   w_p = g'(e_p/α)
//! ```
//!
//! `L` is convex with a Lipschitz gradient: the flow residual in `ν`, `ĉ_k − Σdwc_k` in `λ_k`, `1 − Σdw` in `μ`.
//! The generalised Hessian is `Σ κ_p a_p a_pᵀ` with `κ_p = d_p w'(e_p/α)/α`, bordered by `λ` and `μ`.
//!
//! # What makes it fast and safe
//!
//! * For `chi2`, `w' = 0` wherever `w = 0`: the Hessian vanishes in states without an active pair, and plain Newton
//!   fails at small `α`. Here the pair with the largest `e` of every state always counts as active. Its rows are
//!   those of `I − γP` for a policy, so that the matrix is positive definite. The direction stays a descent
//!   direction, and it is the exact Newton direction wherever the flow is already right: the added rows belong to
//!   states without flow, whose `ν` can follow at no cost. Where flow is missing, the pair's curvature is that of the
//!   secant to the point where it takes up the flow, which may lie far beyond its kink.
//! * It starts from the values of the best policy, where `e ≤ 0` with equality for one pair of each state.
//! * The line search is exact: along a line the derivative of `L` costs one pass over the pairs.
//!
//! At `γ = 1` `ν` is determined up to a constant, fixed by holding it at one state. Where episodes restart, the value
//! of an end, `p0ᵀν`, is an unknown of its own in the border, with its definition as a constraint: the matrix stays
//! as sparse as the transitions.

use coptidice_core::Divergence;

use super::reduced::Reduced;
use crate::linalg::spd::{Spd, dot};
use crate::lp::{LpSolver, interior_point};
use crate::outcome::Outcome;
use crate::policy_iteration::PolicySearch;

/// Curvature below which the leading pair of a state is not let fall, relative to `d/α`, where `w` is exponential:
/// keeps underflowing rows factorable without slowing Newton steps at states that matter.
const EXPONENTIAL_FLOOR: f64 = 1e-14;

/// Least curvature of a secant, relative to that of an active pair.
const SHALLOWEST_SECANT: f64 = 1e-8;

/// Relative increase of the diagonal of the border's corner.
const CORNER_LIFT: f64 = 1e-9;

/// Newton steps after which a start is given up for that of the best policy. From there 5 to 25 are the rule.
const RESTART: usize = 30;

/// Steps that polish, at most: from the tolerance to rounding Newton's method takes one or two.
const POLISH: usize = 4;

/// Multipliers, their images, and the workspace of the Newton method.
pub(crate) struct Dual {
    pub(crate) r: Reduced,
    pub(crate) divergence: Divergence,
    pub(crate) alpha: f64,
    pub(crate) limits: Vec<f64>,
    pub(crate) nu: Vec<f64>,
    pub(crate) mu: f64,
    pub(crate) lambda: Vec<f64>,
    /// `e_p`.
    pub(crate) e: Vec<f64>,
    /// `w_p`.
    pub(crate) w: Vec<f64>,
    /// `d_p w'/α`, leading pairs raised.
    kappa: Vec<f64>,
    de: Vec<f64>,
    flow: Vec<f64>,
    spd: Spd,
    search: PolicySearch,
    /// State that holds `ν` at `γ = 1`.
    pin: Option<usize>,
    /// Newton steps since creation.
    pub(crate) steps: usize,
}

/// Border of one Newton system: which scalar unknown each column is.
#[derive(Clone, Copy, PartialEq)]
enum Column {
    Mu,
    Lambda(usize),
    /// Value of an ended episode, where episodes restart.
    EndValue,
    /// Multiplier of `end value = p0ᵀν`.
    EndFlow,
}

impl Dual {
    pub(crate) fn new(r: Reduced, divergence: Divergence, alpha: f64, limits: &[f64]) -> Self {
        let (n, pairs) = (r.n(), r.pair_count());
        let pin =
            (r.gamma >= 1.0).then(|| (0..n).max_by(|&i, &j| r.initial[i].total_cmp(&r.initial[j]))).flatten();
        Self {
            divergence,
            alpha,
            limits: limits.to_vec(),
            nu: Vec::new(),
            mu: 0.0,
            lambda: vec![0.0; limits.len()],
            e: vec![0.0; pairs],
            w: vec![0.0; pairs],
            kappa: vec![0.0; pairs],
            de: vec![0.0; pairs],
            flow: vec![0.0; n],
            spd: Spd::new(n, r.row_indices()),
            search: PolicySearch::new(n),
            pin,
            steps: 0,
            r,
        }
    }

    /// Sets `ν` to the values of the best policy for `R − λᵀC`.
    pub(crate) fn start(&mut self) {
        let table: Vec<f64> = (0..self.r.pair_count()).map(|p| self.scalarized(p)).collect();
        // Average-reward values are the limit of discounted ones less their mean; at this discount they differ by
        // 1e-6 of their size, and the linear solves still carry ten digits.
        let gamma = self.r.gamma;
        if gamma >= 1.0 {
            self.r.gamma = 1.0 - 1e-6;
        }
        let value = self.search.improve(&self.r, &table);
        self.r.gamma = gamma;
        self.nu.clone_from(&self.search.values);
        if gamma >= 1.0 {
            self.mu = value;
            self.center();
        }
    }

    /// Starts from multipliers found before, `ν` over all states of the CMDP.
    pub(crate) fn start_from(&mut self, nu: &[f64], mu: f64, lambda: &[f64]) {
        self.nu = self.r.states.iter().map(|&s| nu[s as usize]).collect();
        self.mu = mu;
        self.lambda.copy_from_slice(lambda);
        if self.r.gamma >= 1.0 {
            self.center();
        }
    }

    /// Fixes the constant that is free at `γ = 1`.
    fn center(&mut self) {
        let free = self.pin.map_or(0.0, |s| self.nu[s]);
        self.nu.iter_mut().for_each(|v| *v -= free);
    }

    /// Goes back to what [`Self::multipliers`] gave.
    pub(crate) fn restore(&mut self, (nu, mu, lambda): &(Vec<f64>, f64, Vec<f64>)) {
        self.nu.clone_from(nu);
        self.mu = *mu;
        self.lambda.clone_from(lambda);
    }

    /// The multipliers, to come back to.
    pub(crate) fn multipliers(&self) -> (Vec<f64>, f64, Vec<f64>) {
        (self.nu.clone(), self.mu, self.lambda.clone())
    }

    fn scalarized(&self, p: usize) -> f64 {
        let penalty: f64 = self.lambda.iter().zip(&self.r.costs).map(|(&l, c)| l * c[p]).sum();
        self.r.reward[p] - penalty
    }

    /// Value of an ended episode, `p0ᵀν` where episodes restart.
    fn end_value(&self, nu: &[f64]) -> f64 {
        if self.r.restarts { dot(&self.r.initial, nu) } else { 0.0 }
    }

    /// Recomputes `e`, `w` and the flow residual from the multipliers.
    pub(crate) fn refresh(&mut self) {
        let end_value = self.end_value(&self.nu);
        for p in 0..self.r.pair_count() {
            self.e[p] = self.scalarized(p) - self.mu + self.r.apply_row(p, &self.nu, end_value);
            self.w[p] = self.divergence.weight(self.e[p] / self.alpha);
        }
        self.refresh_flow();
    }

    /// Gradient of `L` in `ν`: inflow less outflow of every state under `d = d^D w`.
    fn refresh_flow(&mut self) {
        let mut through_end = 0.0;
        self.flow.fill(0.0);
        for p in 0..self.r.pair_count() {
            let mass = self.r.data[p] * self.w[p];
            if mass != 0.0 {
                let (index, value) = self.r.row(p);
                for (&i, &v) in index.iter().zip(value) {
                    self.flow[i as usize] += mass * v;
                }
                through_end += mass * self.r.gamma * self.r.end[p];
            }
        }
        let source = (1.0 - self.r.gamma) + if self.r.restarts { through_end } else { 0.0 };
        for (f, &p0) in self.flow.iter_mut().zip(&self.r.initial) {
            *f += source * p0;
        }
    }

    /// `E_d[C_k]`.
    pub(crate) fn mean_cost(&self, k: usize) -> f64 {
        self.cost_of(k, &self.w)
    }

    /// `Σ d^D x C_k`, of ratios or of changes of ratios `x` over the supported pairs.
    pub(crate) fn cost_of(&self, k: usize, x: &[f64]) -> f64 {
        (0..self.r.pair_count()).map(|p| self.r.data[p] * x[p] * self.r.costs[k][p]).sum()
    }

    /// `Σ d^D w`.
    pub(crate) fn total(&self) -> f64 {
        dot(&self.r.data, &self.w)
    }

    /// Largest violation of the Bellman flow (and of normalisation at `γ = 1`).
    pub(crate) fn flow_residual(&self) -> f64 {
        let flow = self.flow.iter().fold(0.0_f64, |x, f| x.max(f.abs()));
        if self.r.gamma >= 1.0 { flow.max((1.0 - self.total()).abs()) } else { flow }
    }

    /// The rounding of `w = weight(e/α)` bounds how exactly flow can balance: `e` is a difference of numbers of the
    /// size of `ν`, so `d·w` carries about `d·w'·|ν|·2⁻⁵²/α`, and a state's balance adds a few such terms.
    /// Multipliers that run away must not carry the tolerance with them: it stays below 1e-9.
    pub(crate) fn tolerance(&self) -> f64 {
        let size = self.nu.iter().fold(1.0_f64, |x, v| x.max(v.abs()));
        let slope = |p: usize| self.r.data[p] * self.divergence.weight_derivative(self.e[p] / self.alpha);
        let steepest = (0..self.r.pair_count()).map(slope).fold(0.0_f64, f64::max);
        (16.0 * f64::EPSILON * size / self.alpha * steepest).clamp(1e-12, 1e-9)
    }

    /// Minimises over `ν` (and `μ`), and over `λ ≥ 0` too when `free_lambda`. A `λ_k` beyond `lambda_cap` ends the
    /// search with [`Outcome::IterationLimit`], for the caller to decide about feasibility.
    pub(crate) fn minimise(&mut self, free_lambda: bool, lambda_cap: f64, max_steps: usize) -> Outcome {
        if self.nu.len() != self.r.n() {
            self.start();
        }
        self.refresh();
        let mut best = f64::INFINITY;
        let mut stalled = 0;
        for step in 0..max_steps {
            let slack = self.limit_slack(free_lambda);
            let residual = self.residual(&slack);
            let tolerance = self.tolerance();
            if residual <= tolerance {
                return Outcome::Solved;
            }
            stalled = if residual < 0.5 * best { 0 } else { stalled + 1 };
            best = best.min(residual);
            if stalled > 60 && residual <= 1e3 * tolerance {
                return Outcome::AlmostSolved;
            }
            if self.lambda.iter().any(|&l| l > lambda_cap) {
                return Outcome::IterationLimit;
            }
            if step % RESTART == RESTART - 1 && step < 4 * RESTART {
                // Multipliers of another problem can leave most states without an active pair, from where progress
                // is slow; the best policy's values never do.
                self.start();
                self.refresh();
                continue;
            }
            if !self.step(free_lambda.then_some(&slack)) {
                let slack = self.limit_slack(free_lambda);
                let residual = self.residual(&slack);
                return match residual {
                    r if r <= self.tolerance() => Outcome::Solved,
                    r if r <= 1e3 * self.tolerance() => Outcome::AlmostSolved,
                    _ => Outcome::IterationLimit,
                };
            }
        }
        Outcome::IterationLimit
    }

    /// Newton steps at the present `λ`, after the tolerance has been met, for as long as they halve the flow residual.
    /// Returns whether any did.
    pub(crate) fn polish(&mut self) -> bool {
        let (mut best, mut better) = (self.flow_residual(), false);
        for _ in 0..POLISH {
            let multipliers = self.multipliers();
            if !(self.step(None) && self.flow_residual() < 0.5 * best) {
                self.restore(&multipliers);
                self.refresh();
                break;
            }
            (best, better) = (self.flow_residual(), true);
        }
        better
    }

    /// `ĉ_k − E_d[C_k]`, the gradient in `λ`; empty when `λ` is held.
    fn limit_slack(&self, free_lambda: bool) -> Vec<f64> {
        if free_lambda {
            (0..self.lambda.len()).map(|k| self.limits[k] - self.mean_cost(k)).collect()
        } else {
            Vec::new()
        }
    }

    /// Largest first-order residual: flow, and for each limit the slack where `λ_k > 0`, the excess where `λ_k = 0`.
    fn residual(&self, slack: &[f64]) -> f64 {
        let limits =
            self.lambda.iter().zip(slack).map(|(&l, &s)| if l > 0.0 { s.abs() } else { (-s).max(0.0) });
        limits.fold(self.flow_residual(), f64::max)
    }

    /// Curvatures, the leading pair of every state raised to those of an active one.
    fn curvature(&mut self) {
        let floor = if self.divergence == Divergence::Chi2 { 1.0 } else { EXPONENTIAL_FLOOR };
        for s in 0..self.r.n() {
            let pairs = self.r.state_start[s]..self.r.state_start[s + 1];
            let mut leading = pairs.start;
            for p in pairs {
                let scale = self.r.data[p] / self.alpha;
                self.kappa[p] = scale * self.divergence.weight_derivative(self.e[p] / self.alpha);
                if self.e[p] > self.e[leading] {
                    leading = p;
                }
            }
            let least = floor * self.r.data[leading] / self.alpha;
            if self.kappa[leading] < least {
                self.kappa[leading] = self.secant(s, leading, least);
            }
        }
    }

    /// Curvature given to a leading pair that is not active, at most `active`, that of an active one.
    ///
    /// Where flow is missing on the way out of the state, its `e` has to climb to the kink before the pair takes any
    /// up. A step with the curvature beyond the kink is too short by that climb, for ever where the data have much of
    /// the pair; the secant to where the pair takes up all the flow is not.
    fn secant(&self, state: usize, leading: usize, active: f64) -> f64 {
        let climb = -1.0 - self.e[leading] / self.alpha;
        let missing = self.flow[state];
        if self.divergence != Divergence::Chi2 || climb <= 0.0 || missing <= 0.0 {
            return active;
        }
        let taken_up = missing / (active * self.alpha);
        active * (taken_up / (climb + taken_up)).max(SHALLOWEST_SECANT)
    }

    /// Assembles and factorises the normal matrix of the current curvatures.
    fn factor(&mut self) -> bool {
        self.curvature();
        let mut floor = 0.0;
        for _ in 0..8 {
            self.spd.clear();
            let mut largest = 0.0_f64;
            for p in 0..self.r.pair_count() {
                if self.kappa[p] > 0.0 {
                    let (index, value) = self.r.row(p);
                    self.spd.add_outer(index, value, self.kappa[p]);
                    largest = largest.max(self.kappa[p]);
                }
            }
            if let Some(s) = self.pin {
                self.spd.add_diagonal(s, largest);
            }
            if self.spd.factor(floor) {
                return true;
            }
            floor = (floor * 100.0).max(1e-14 * largest);
        }
        false
    }

    /// Border columns of the unknowns `columns`: `[n × (m+1)]`, the last one left for the right-hand side; and the
    /// corner `[m × m]`.
    fn border(&self, columns: &[Column]) -> (Vec<f64>, Vec<f64>) {
        let (n, m) = (self.r.n(), columns.len());
        let mut border = vec![0.0; n * (m + 1)];
        let mut corner = vec![0.0; m * m];
        for (j, column) in columns.iter().enumerate() {
            if *column == Column::EndFlow {
                for (x, &p0) in border[j * n..(j + 1) * n].iter_mut().zip(&self.r.initial) {
                    *x = -p0;
                }
            }
        }
        for p in 0..self.r.pair_count() {
            let kappa = self.kappa[p];
            if kappa == 0.0 {
                continue;
            }
            let (index, value) = self.r.row(p);
            for (j, column) in columns.iter().enumerate() {
                let cj = self.coefficient(*column, p);
                if cj == 0.0 {
                    continue;
                }
                let target = &mut border[j * n..(j + 1) * n];
                for (&i, &v) in index.iter().zip(value) {
                    target[i as usize] += kappa * cj * v;
                }
                for (l, other) in columns.iter().enumerate() {
                    corner[j * m + l] += kappa * cj * self.coefficient(*other, p);
                }
            }
        }
        // With fewer active pairs than unknowns the Hessian is singular along multipliers; lifting the corner, well
        // above the rounding of its Schur complement, turns such a direction into a long step for the line search.
        for j in 0..m {
            corner[j * m + j] *= 1.0 + CORNER_LIFT;
        }
        if let (Some(i), Some(j)) = (
            columns.iter().position(|c| *c == Column::EndValue),
            columns.iter().position(|c| *c == Column::EndFlow),
        ) {
            corner[i * m + j] = 1.0;
            corner[j * m + i] = 1.0;
        }
        (border, corner)
    }

    /// Derivative of `e_p` in a scalar unknown.
    fn coefficient(&self, column: Column, p: usize) -> f64 {
        match column {
            Column::Mu => -1.0,
            Column::Lambda(k) => -self.r.costs[k][p],
            Column::EndValue => self.r.gamma * self.r.end[p],
            Column::EndFlow => 0.0,
        }
    }

    /// The scalar unknowns that every Newton system has.
    fn standing_columns(&self) -> Vec<Column> {
        let mut columns = Vec::with_capacity(3 + self.lambda.len());
        if self.r.gamma >= 1.0 {
            columns.push(Column::Mu);
        }
        if self.r.restarts {
            columns.extend([Column::EndValue, Column::EndFlow]);
        }
        columns
    }

    /// One Newton step with exact line search. `false` when no descent is left.
    fn step(&mut self, slack: Option<&Vec<f64>>) -> bool {
        self.steps += 1;
        if !self.factor() {
            return false;
        }
        let n = self.r.n();
        let mut held: Vec<bool> = match slack {
            Some(slack) => self.lambda.iter().zip(slack).map(|(&l, &s)| l == 0.0 && s >= 0.0).collect(),
            None => vec![true; self.lambda.len()],
        };
        loop {
            let mut columns = self.standing_columns();
            columns.extend((0..held.len()).filter(|&k| !held[k]).map(Column::Lambda));
            let (mut border, corner) = self.border(&columns);
            for (x, &f) in border[columns.len() * n..].iter_mut().zip(&self.flow) {
                *x = -f;
            }
            let mut z: Vec<f64> = columns
                .iter()
                .map(|c| match c {
                    Column::Mu => self.total() - 1.0,
                    Column::Lambda(k) => slack.map_or(0.0, |s| -s[*k]),
                    Column::EndValue | Column::EndFlow => 0.0,
                })
                .collect();
            self.spd.solve_bordered(columns.len(), &mut border, &corner, &mut z);
            let mut d_lambda = vec![0.0; self.lambda.len()];
            let mut d_mu = 0.0;
            for (c, &value) in columns.iter().zip(&z) {
                match c {
                    Column::Mu => d_mu = value,
                    Column::Lambda(k) => d_lambda[*k] = value,
                    Column::EndValue | Column::EndFlow => {}
                }
            }
            // A multiplier at zero that would turn negative is held, and the direction found again.
            if let Some(k) = (0..held.len()).find(|&k| !held[k] && self.lambda[k] == 0.0 && d_lambda[k] < 0.0)
            {
                held[k] = true;
                continue;
            }
            let d_nu = &border[columns.len() * n..];
            return self.search_line(d_nu, d_mu, &d_lambda);
        }
    }

    /// Minimises `L` along a direction, `λ ≥ 0` kept, and moves there.
    fn search_line(&mut self, d_nu: &[f64], d_mu: f64, d_lambda: &[f64]) -> bool {
        let end = self.end_value(d_nu);
        for p in 0..self.r.pair_count() {
            let penalty: f64 = d_lambda.iter().zip(&self.r.costs).map(|(&l, c)| l * c[p]).sum();
            self.de[p] = self.r.apply_row(p, d_nu, end) - penalty - d_mu;
        }
        let linear = (1.0 - self.r.gamma) * dot(&self.r.initial, d_nu)
            + dot(&self.limits, d_lambda)
            + if self.r.gamma >= 1.0 { d_mu } else { 0.0 };
        let (divergence, alpha) = (self.divergence, self.alpha);
        let slope = |t: f64| {
            let mut sum = linear;
            for p in 0..self.de.len() {
                sum += self.r.data[p] * divergence.weight((self.e[p] + t * self.de[p]) / alpha) * self.de[p];
            }
            if sum.is_nan() { f64::INFINITY } else { sum }
        };
        let bound = self
            .lambda
            .iter()
            .zip(d_lambda)
            .filter(|(_, d)| **d < 0.0)
            .map(|(&l, &d)| -l / d)
            .fold(f64::INFINITY, f64::min);
        let Some(t) = line_minimum(slope, bound) else { return false };
        for (v, &d) in self.nu.iter_mut().zip(d_nu) {
            *v += t * d;
        }
        self.mu += t * d_mu;
        for (l, &d) in self.lambda.iter_mut().zip(d_lambda) {
            let next = *l + t * d;
            *l = if d < 0.0 && -*l / d <= t { 0.0 } else { next.max(0.0) };
        }
        self.refresh();
        true
    }

    /// `dw/dλ_k`, `[pairs]`, at a minimum over `ν` and `μ`.
    pub(crate) fn sensitivity(&mut self, k: usize) -> Option<Vec<f64>> {
        if !self.factor() {
            return None;
        }
        let n = self.r.n();
        let mut columns = self.standing_columns();
        let m = columns.len();
        columns.push(Column::Lambda(k));
        let (mut border, corner) = self.border(&columns);
        // The λ column becomes the right-hand side: [H B; Bᵀ C]·d = −∂²L/∂(ν,z)∂λ_k.
        border.truncate(n * (m + 1));
        for x in &mut border[m * n..] {
            *x = -*x;
        }
        let mut z: Vec<f64> = (0..m).map(|j| -corner[j * (m + 1) + m]).collect();
        let standing: Vec<f64> = (0..m * m).map(|i| corner[i / m * (m + 1) + i % m]).collect();
        self.spd.solve_bordered(m, &mut border, &standing, &mut z);
        let d_nu = border[m * n..].to_vec();
        let d_mu = if self.r.gamma >= 1.0 { z[0] } else { 0.0 };
        let end = self.end_value(&d_nu);
        let d_w = (0..self.r.pair_count())
            .map(|p| {
                let de = self.r.apply_row(p, &d_nu, end) - self.r.costs[k][p] - d_mu;
                self.divergence.weight_derivative(self.e[p] / self.alpha) / self.alpha * de
            })
            .collect();
        Some(d_w)
    }

    /// Smallest `Σ_k v_k E_d[C_k]` in the data's support; `None` where the linear program finds none.
    pub(crate) fn least_cost(&self, weights: &[f64]) -> Option<f64> {
        let table: Vec<f64> = (0..self.r.pair_count())
            .map(|p| -weights.iter().zip(&self.r.costs).map(|(v, c)| v * c[p]).sum::<f64>())
            .collect();
        if self.r.gamma < 1.0 {
            return Some(-PolicySearch::new(self.r.n()).improve(&self.r, &table));
        }
        interior_point::most(&self.r, &table).map(|value| -value)
    }

    /// Whether no occupancy in the data's support meets all limits, by the linear program.
    pub(crate) fn infeasible(&self) -> bool {
        let answer = if self.r.gamma < 1.0 {
            LpSolver::new(self.r.n()).solve_tables(&self.r, &self.limits)
        } else {
            interior_point::solve(&self.r, &self.limits)
        };
        answer.outcome == Outcome::Infeasible
    }

    /// `(primal, dual)` objectives, pairs left out included with `w = 0`.
    pub(crate) fn objectives(&self) -> (f64, f64) {
        let (mut primal, mut dual) = (0.0, (1.0 - self.r.gamma) * dot(&self.r.initial, &self.nu));
        for p in 0..self.r.pair_count() {
            let (d, w) = (self.r.data[p], self.w[p]);
            primal += d * (w * self.r.reward[p] - self.alpha * self.divergence.f(w));
            dual += d * self.alpha * self.divergence.conjugate(self.e[p] / self.alpha);
        }
        dual += dot(&self.lambda, &self.limits) + if self.r.gamma >= 1.0 { self.mu } else { 0.0 };
        let left_out = self.r.left_out * self.alpha * self.divergence.f(0.0);
        (primal - left_out, dual - left_out)
    }
}

/// Zero of the increasing function `slope` in `(0, bound]`, to a tenth of its value at 0; `bound` itself if the
/// slope is still negative there. `None` if the direction does not descend.
fn line_minimum(slope: impl Fn(f64) -> f64, bound: f64) -> Option<f64> {
    let start = slope(0.0);
    if start >= 0.0 || !start.is_finite() {
        return None;
    }
    let enough = 0.1 * start.abs();
    let mut high = bound.min(1.0);
    let mut at_high = slope(high);
    let (mut low, mut at_low) = (0.0, start);
    while at_high < -enough && high < bound && high < 1e12 {
        (low, at_low) = (high, at_high);
        high = (high * 4.0).min(bound);
        at_high = slope(high);
    }
    if at_high <= enough {
        return Some(high);
    }
    for _ in 0..60 {
        let secant = low + (high - low) * at_low / (at_low - at_high);
        let width = high - low;
        let t = if secant.is_finite() {
            secant.clamp(low + 0.02 * width, high - 0.02 * width)
        } else {
            low + 0.1 * width
        };
        let at_t = slope(t);
        if at_t.abs() <= enough {
            return Some(t);
        }
        if at_t < 0.0 {
            (low, at_low) = (t, at_t);
        } else {
            (high, at_high) = (t, at_t);
        }
    }
    (low > 0.0).then_some(low)
}
