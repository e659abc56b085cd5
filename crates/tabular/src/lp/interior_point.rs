//! The linear program handed to Clarabel as it stands.
//!
//! Variables `d ≥ 0` over pairs, and where episodes restart the flow `z` through the end. Rows: Bellman flow, the
//! end's flow, normalisation at `γ = 1`, limits.

use clarabel::algebra::CscMatrix;
use clarabel::solver::{
    DefaultSettings, DefaultSolver, IPSolver as _, SolverStatus, SupportedConeT,
    SupportedConeT::NonnegativeConeT, SupportedConeT::ZeroConeT,
};

use super::Answer;
use crate::linalg::flow::Tables;
use crate::outcome::Outcome;

/// A sparse matrix by entries, and the cones of its rows.
#[derive(Default)]
struct Rows {
    row: Vec<usize>,
    column: Vec<usize>,
    value: Vec<f64>,
    right: Vec<f64>,
    /// What the rows of limits are divided by: their largest coefficient. The method's own scaling spans eight orders, and
    /// a limit per episode can stand beside costs a billion times smaller.
    scales: Vec<f64>,
}

impl Rows {
    fn push(&mut self, row: usize, column: usize, value: f64) {
        self.row.push(row);
        self.column.push(column);
        self.value.push(value);
    }

    /// Adds the limit `Σ coefficients·d ≤ limit`.
    fn limit(&mut self, coefficients: impl Iterator<Item = f64> + Clone, limit: f64) {
        let largest = coefficients.clone().fold(0.0_f64, |x, c| x.max(c.abs()));
        let scale = if largest > 0.0 { largest } else { 1.0 };
        let row = self.right.len();
        self.right.push(limit / scale);
        self.scales.push(scale);
        for (pair, c) in coefficients.enumerate().filter(|(_, c)| *c != 0.0) {
            self.push(row, pair, c / scale);
        }
    }
}

/// Excess over limits, relative to `1 + |limit|`, above which they cannot be met: a hundred times what the least
/// excess is found to.
const LEAST_EXCESS: f64 = 1e-9;

/// Solves the linear program by an interior-point method; any `γ`, any set of pairs.
pub(crate) fn solve<M: Tables>(m: &M, limits: &[f64]) -> Answer {
    let (limits, free) = lowered(m, limits);
    let limits = &limits[..];
    let variables = m.reward().len() + usize::from(m.restarts());
    let (mut answer, status) = optimise(m, program(m, limits), &earned(m, variables));
    if !matches!(status, SolverStatus::Solved | SolverStatus::PrimalInfeasible) {
        answer.outcome = match answer.outcome {
            _ if cannot_be_met(m, limits) => Outcome::Infeasible,
            Outcome::Infeasible => Outcome::IterationLimit,
            other => other,
        };
    }
    clear(&mut answer.lambda, &free);
    answer
}

/// Limits that no occupancy can reach, lowered to just above what any pair costs, and which they are. Beside numbers a
/// billion times as large as costs, the method's own tolerances, which are relative, would let anything pass.
fn lowered<M: Tables>(m: &M, limits: &[f64]) -> (Vec<f64>, Vec<bool>) {
    let most = |cost: &[f64]| {
        let (low, high) = cost.iter().fold((0.0_f64, 0.0_f64), |(low, high), &c| (low.min(c), high.max(c)));
        // Occupancies may have less mass than one, never more: the most is not below zero.
        high + if high > low { high - low } else { 1.0 }
    };
    let mosts: Vec<f64> = m.costs().iter().map(|c| most(c)).collect();
    let free = limits.iter().zip(&mosts).map(|(limit, most)| limit > most).collect();
    (limits.iter().zip(&mosts).map(|(limit, most)| limit.min(*most)).collect(), free)
}

/// Limits out of reach have no price.
fn clear(lambda: &mut [f64], free: &[bool]) {
    lambda.iter_mut().zip(free).filter(|(_, free)| **free).for_each(|(l, _)| *l = 0.0);
}

/// Whether every occupancy exceeds some limit. The method detects that by a ray along which its variables grow; next
/// to what can be met at all they outgrow its numbers first. The least excess over all limits at once is a program
/// that always has an answer, and its dual value bounds it from below.
fn cannot_be_met<M: Tables>(m: &M, limits: &[f64]) -> bool {
    let (mut rows, cones) = program(m, limits);
    let pairs = m.reward().len();
    let excess = pairs + usize::from(m.restarts());
    let first = rows.right.len() - pairs - limits.len();
    for (k, limit) in limits.iter().enumerate() {
        let scale = rows.scales[k];
        rows.push(first + k, excess, -(1.0 + limit.abs()) / scale);
    }
    let mut objective = vec![0.0; excess + 1];
    objective[excess] = 1.0;
    let (answer, status) = optimise(m, (rows, cones), &objective);
    status == SolverStatus::Solved && -answer.dual_objective > LEAST_EXCESS
}

/// The most that any occupancy has of a table over pairs, bounded from above; `None` where it was not found.
pub(crate) fn most<M: Tables>(m: &M, table: &[f64]) -> Option<f64> {
    let mut objective: Vec<f64> = table.iter().map(|x| -x).collect();
    objective.resize(table.len() + usize::from(m.restarts()), 0.0);
    let (answer, status) = optimise(m, program(m, &[]), &objective);
    (status == SolverStatus::Solved).then_some(answer.dual_objective)
}

/// Minus the reward, over the variables of the program.
fn earned<M: Tables>(m: &M, variables: usize) -> Vec<f64> {
    let mut objective: Vec<f64> = m.reward().iter().map(|r| -r).collect();
    objective.resize(variables, 0.0);
    objective
}

/// The same at `γ = 1` where episodes restart, for the reward per episode: `x = d/E_d[1{end}]` makes the ratio linear
/// (Charnes and Cooper 1962). Returns `d` and the ratio. The dual objective is that of `R` less the ratio at ends.
pub(crate) fn solve_per_episode<M: Tables>(m: &M, limits: &[f64]) -> (Answer, f64) {
    let (limits, free) = lowered(m, limits);
    let limits = &limits[..];
    let objective = earned(m, m.reward().len());
    let (mut answer, _) = optimise(m, program_per_episode(m, limits), &objective);
    clear(&mut answer.lambda, &free);
    let ratio: f64 = answer.occupancy.iter().zip(m.reward()).map(|(&x, &r)| x * r).sum();
    let total: f64 = answer.occupancy.iter().sum();
    if answer.outcome == Outcome::Infeasible || !(total > 0.0 && total.is_finite()) {
        return (answer, 0.0);
    }
    answer.occupancy.iter_mut().for_each(|x| *x /= total);
    answer.dual_objective = (answer.dual_objective - ratio) / total;
    (answer, ratio)
}

/// Minimises over `d ≥ 0` and, beyond the pairs, free variables.
fn optimise<M: Tables>(
    m: &M,
    (rows, cones): (Rows, Vec<SupportedConeT<f64>>),
    objective: &[f64],
) -> (Answer, SolverStatus) {
    let (pairs, variables) = (m.reward().len(), objective.len());
    let height = rows.right.len();
    let matrix = CscMatrix::new_from_triplets(height, variables, rows.row, rows.column, rows.value);
    let settings = DefaultSettings::<f64> {
        verbose: false,
        tol_gap_abs: 1e-11,
        tol_gap_rel: 1e-11,
        tol_feas: 1e-11,
        max_iter: 200,
        ..DefaultSettings::default()
    };
    let quadratic = CscMatrix::zeros((variables, variables));
    // In a unit of its own, as the limits' rows.
    let largest = objective.iter().fold(0.0_f64, |x, c| x.max(c.abs()));
    let unit = if largest > 0.0 { largest } else { 1.0 };
    let scaled: Vec<f64> = objective.iter().map(|c| c / unit).collect();
    let mut solver = DefaultSolver::new(&quadratic, &scaled, &matrix, &rows.right, &cones, settings)
        .expect("shapes agree by construction");
    solver.solve();
    let answer = &solver.solution;
    let outcome = match answer.status {
        SolverStatus::PrimalInfeasible | SolverStatus::AlmostPrimalInfeasible => Outcome::Infeasible,
        SolverStatus::MaxIterations | SolverStatus::MaxTime => Outcome::IterationLimit,
        // Whether it is solved is decided by the residuals.
        _ => Outcome::Solved,
    };
    let prices = &answer.z[height - pairs - rows.scales.len()..height - pairs];
    let found = Answer {
        outcome,
        occupancy: answer.x[..pairs].iter().map(|&d| d.max(0.0)).collect(),
        lambda: prices.iter().zip(&rows.scales).map(|(&l, scale)| unit * l.max(0.0) / scale).collect(),
        dual_objective: -unit * answer.obj_val_dual,
        iterations: answer.iterations as usize,
    };
    (found, answer.status)
}

fn program<M: Tables>(m: &M, limits: &[f64]) -> (Rows, Vec<SupportedConeT<f64>>) {
    let (pairs, gamma) = (m.reward().len(), m.gamma());
    let mut rows =
        Rows { right: m.initial().iter().map(|&p| (1.0 - gamma) * p).collect(), ..Rows::default() };
    for s in 0..m.states() {
        for pair in m.pairs_of(s) {
            rows.push(s, pair, 1.0);
            let (next, probability) = m.successors(pair);
            for (&t, &p) in next.iter().zip(probability) {
                rows.push(t as usize, pair, -gamma * p);
            }
        }
    }
    if m.restarts() {
        for (s, &p) in m.initial().iter().enumerate().filter(|(_, p)| **p > 0.0) {
            rows.push(s, pairs, -p);
        }
        let row = rows.right.len();
        rows.right.push(0.0);
        rows.push(row, pairs, 1.0);
        for pair in (0..pairs).filter(|&pair| m.end(pair) > 0.0) {
            rows.push(row, pair, -gamma * m.end(pair));
        }
    }
    if gamma >= 1.0 {
        let row = rows.right.len();
        rows.right.push(1.0);
        (0..pairs).for_each(|pair| rows.push(row, pair, 1.0));
    }
    let equalities = rows.right.len();
    for (cost, &limit) in m.costs().iter().zip(limits) {
        rows.limit(cost.iter().copied(), limit);
    }
    for pair in 0..pairs {
        rows.push(rows.right.len() + pair, pair, -1.0);
    }
    rows.right.resize(rows.right.len() + pairs, 0.0);
    (rows, vec![ZeroConeT(equalities), NonnegativeConeT(limits.len()), NonnegativeConeT(pairs)])
}

/// Over visits per episode: inflow `p0` and no normalisation, limits times the length of an episode.
fn program_per_episode<M: Tables>(m: &M, limits: &[f64]) -> (Rows, Vec<SupportedConeT<f64>>) {
    let pairs = m.reward().len();
    let mut rows = Rows { right: m.initial().to_vec(), ..Rows::default() };
    for s in 0..m.states() {
        for pair in m.pairs_of(s) {
            rows.push(s, pair, 1.0);
            let (next, probability) = m.successors(pair);
            for (&t, &p) in next.iter().zip(probability) {
                rows.push(t as usize, pair, -p);
            }
        }
    }
    let equalities = rows.right.len();
    for (cost, &limit) in m.costs().iter().zip(limits) {
        rows.limit(cost.iter().map(|c| c - limit), 0.0);
    }
    for pair in 0..pairs {
        rows.push(rows.right.len() + pair, pair, -1.0);
    }
    rows.right.resize(rows.right.len() + pairs, 0.0);
    (rows, vec![ZeroConeT(equalities), NonnegativeConeT(limits.len()), NonnegativeConeT(pairs)])
}
