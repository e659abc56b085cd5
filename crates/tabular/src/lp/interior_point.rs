//! The linear program handed to Clarabel as it stands.
//!
//! Variables `d ≥ 0` over pairs, and where episodes restart the flow `z` through the end. Rows: Bellman flow, the
//! end's flow, normalisation at `γ = 1`, limits.

use clarabel::algebra::CscMatrix;
use clarabel::solver::{
    DefaultSettings, DefaultSolver, IPSolver as _, SolverStatus, SupportedConeT,
    SupportedConeT::NonnegativeConeT, SupportedConeT::ZeroConeT,
};
use coptidice_core::{Cmdp, CmdpError};

use super::LpSolution;
use crate::linalg::spd::dot;
use crate::outcome::{Certificate, Outcome};

/// Duality gap, relative, that counts as solved.
const GAP: f64 = 1e-9;

/// A sparse matrix by entries, and the cones of its rows.
#[derive(Default)]
struct Rows {
    row: Vec<usize>,
    column: Vec<usize>,
    value: Vec<f64>,
    right: Vec<f64>,
}

impl Rows {
    fn push(&mut self, row: usize, column: usize, value: f64) {
        self.row.push(row);
        self.column.push(column);
        self.value.push(value);
    }
}

/// Solves the linear program by an interior-point method; any `γ`.
pub(crate) fn solve(m: &Cmdp, limits: &[f64]) -> Result<LpSolution, CmdpError> {
    super::check(m, limits)?;
    let (n, pairs, k) = (m.states(), m.pairs(), limits.len());
    let variables = pairs + usize::from(m.restarts());
    let (rows, cones) = program(m, limits);
    let mut objective = vec![0.0; variables];
    for (q, &r) in objective.iter_mut().zip(m.reward()) {
        *q = -r;
    }
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
    let mut solver = DefaultSolver::new(&quadratic, &objective, &matrix, &rows.right, &cones, settings)
        .expect("shapes agree by construction");
    solver.solve();
    let answer = &solver.solution;
    let infeasible =
        matches!(answer.status, SolverStatus::PrimalInfeasible | SolverStatus::AlmostPrimalInfeasible);
    if infeasible {
        return Ok(LpSolution::without_flow(Outcome::Infeasible, pairs, k));
    }
    let occupancy: Vec<f64> = answer.x[..pairs].iter().map(|&d| d.max(0.0)).collect();
    let reward = dot(&occupancy, m.reward());
    let costs: Vec<f64> = m.costs().iter().map(|c| dot(&occupancy, c)).collect();
    let lambda: Vec<f64> = answer.z[height - pairs - k..height - pairs].iter().map(|&l| l.max(0.0)).collect();
    let excess = costs.iter().zip(limits).map(|(c, l)| c - l).fold(0.0, f64::max);
    let complementarity = (0..k).map(|i| lambda[i] * (limits[i] - costs[i]).abs()).fold(0.0, f64::max);
    let certificate = Certificate {
        objective: reward,
        dual_objective: -answer.obj_val_dual,
        flow_residual: super::flow_residual(m, &occupancy),
        expected_ratio: occupancy.iter().sum(),
        limit_excess: excess,
        complementarity,
        iterations: answer.iterations as usize,
    };
    let size = GAP * (1.0 + reward.abs());
    let outcome = match certificate.worst() {
        worst if worst <= size => Outcome::Solved,
        worst if worst <= 1e3 * size => Outcome::AlmostSolved,
        _ => Outcome::IterationLimit,
    };
    debug_assert!(n > 0);
    Ok(LpSolution { outcome, occupancy, reward, costs, lambda, certificate })
}

fn program(m: &Cmdp, limits: &[f64]) -> (Rows, Vec<SupportedConeT<f64>>) {
    let (n, pairs, gamma) = (m.states(), m.pairs(), m.gamma());
    let mut rows =
        Rows { right: m.initial().iter().map(|&p| (1.0 - gamma) * p).collect(), ..Rows::default() };
    for pair in 0..pairs {
        rows.push(pair / m.actions(), pair, 1.0);
        let (next, probability) = m.row(pair);
        for (&s, &p) in next.iter().zip(probability) {
            rows.push(s as usize, pair, -gamma * p);
        }
    }
    if m.restarts() {
        for (s, &p) in m.initial().iter().enumerate().filter(|(_, p)| **p > 0.0) {
            rows.push(s, pairs, -p);
        }
        let row = rows.right.len();
        rows.right.push(0.0);
        rows.push(row, pairs, 1.0);
        for pair in 0..pairs {
            let end = m.transitions().end_probability(pair);
            if end > 0.0 {
                rows.push(row, pair, -gamma * end);
            }
        }
    }
    if gamma >= 1.0 {
        let row = rows.right.len();
        rows.right.push(1.0);
        (0..pairs).for_each(|pair| rows.push(row, pair, 1.0));
    }
    let equalities = rows.right.len();
    debug_assert!(equalities >= n);
    for (cost, &limit) in m.costs().iter().zip(limits) {
        let row = rows.right.len();
        rows.right.push(limit);
        for (pair, &c) in cost.iter().enumerate().filter(|(_, c)| **c != 0.0) {
            rows.push(row, pair, c);
        }
    }
    for pair in 0..pairs {
        rows.push(rows.right.len() + pair, pair, -1.0);
    }
    rows.right.resize(rows.right.len() + pairs, 0.0);
    (rows, vec![ZeroConeT(equalities), NonnegativeConeT(limits.len()), NonnegativeConeT(pairs)])
}
