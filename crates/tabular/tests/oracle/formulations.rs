//! The programs in the primal, handed to Clarabel.

use clarabel::algebra::CscMatrix;
use clarabel::solver::{
    DefaultSettings, DefaultSolver, IPSolver as _, SolverStatus, SupportedConeT,
    SupportedConeT::ExponentialConeT, SupportedConeT::NonnegativeConeT, SupportedConeT::ZeroConeT,
};

use crate::instances::Instance;

/// Entries of a program `min ½xᵀPx + qᵀx, Ax + s = b, s ∈ cones`, row by row.
#[derive(Default)]
struct Program {
    quadratic: Vec<f64>,
    linear: Vec<f64>,
    entries: Vec<(usize, usize, f64)>,
    right: Vec<f64>,
    cones: Vec<SupportedConeT<f64>>,
}

impl Program {
    fn row(&mut self, entries: &[(usize, f64)], right: f64) {
        let row = self.right.len();
        self.entries.extend(entries.iter().map(|&(column, value)| (row, column, value)));
        self.right.push(right);
    }

    /// `(x, optimal value)`, or the status if there is none.
    fn solve(&self) -> Result<(Vec<f64>, f64), SolverStatus> {
        let n = self.linear.len();
        let diagonal = (0..n).filter(|&i| self.quadratic[i] != 0.0);
        let (places, values): (Vec<usize>, Vec<f64>) = diagonal.map(|i| (i, self.quadratic[i])).unzip();
        let quadratic = CscMatrix::new_from_triplets(n, n, places.clone(), places, values);
        let rows = self.entries.iter().map(|e| e.0).collect();
        let columns = self.entries.iter().map(|e| e.1).collect();
        let values = self.entries.iter().map(|e| e.2).collect();
        let matrix = CscMatrix::new_from_triplets(self.right.len(), n, rows, columns, values);
        let settings = DefaultSettings::<f64> {
            verbose: false,
            tol_gap_abs: 1e-10,
            tol_gap_rel: 1e-10,
            tol_feas: 1e-10,
            ..DefaultSettings::default()
        };
        let mut solver =
            DefaultSolver::new(&quadratic, &self.linear, &matrix, &self.right, &self.cones, settings)
                .unwrap();
        solver.solve();
        match solver.solution.status {
            SolverStatus::Solved | SolverStatus::AlmostSolved => {
                Ok((solver.solution.x.clone(), solver.solution.obj_val))
            }
            status => Err(status),
        }
    }
}

/// Rows of `eq:lp_flow_constraint` (and normalisation) for `d = scale·x`, `x` starting at `column`, and of the
/// limits; `z` is an extra variable for the flow through ends where episodes restart.
fn add_flow(program: &mut Program, i: &Instance, scale: &[f64], z: usize) {
    let m = &i.model;
    let (gamma, pairs) = (m.gamma(), m.pairs());
    let ended = |pair| m.transitions().end_probability(pair);
    for s in 0..m.states() {
        let mut row = Vec::new();
        for pair in 0..pairs {
            let (next, probability) = m.row(pair);
            let inflow: f64 =
                next.iter().zip(probability).filter(|(t, _)| **t as usize == s).map(|(_, p)| gamma * p).sum();
            let own = if pair / m.actions() == s { 1.0 } else { 0.0 };
            row.push((pair, scale[pair] * (own - inflow)));
        }
        if m.restarts() {
            row.push((z, -m.initial()[s]));
        }
        program.row(&row, (1.0 - gamma) * m.initial()[s]);
    }
    let mut equalities = m.states();
    if m.restarts() {
        let mut row: Vec<(usize, f64)> = (0..pairs).map(|p| (p, -gamma * ended(p) * scale[p])).collect();
        row.push((z, 1.0));
        program.row(&row, 0.0);
        equalities += 1;
    }
    if gamma >= 1.0 {
        program.row(&(0..pairs).map(|p| (p, scale[p])).collect::<Vec<_>>(), 1.0);
        equalities += 1;
    }
    program.cones.push(ZeroConeT(equalities));
    for (cost, &limit) in m.costs().iter().zip(&i.limits) {
        program.row(&(0..pairs).map(|p| (p, scale[p] * cost[p])).collect::<Vec<_>>(), limit);
    }
    (0..pairs).for_each(|p| program.row(&[(p, -1.0)], 0.0));
    program.cones.push(NonnegativeConeT(i.limits.len() + pairs));
}

/// `max E_d[R] − α E_{d^D}[(w−1)²/2]` in `w` (`eq:lp_objective` for chi-square). `α = 0` is the LP.
pub(crate) fn primal(i: &Instance, alpha: f64) -> Result<(Vec<f64>, f64), SolverStatus> {
    let pairs = i.model.pairs();
    let variables = pairs + usize::from(i.model.restarts());
    let mut program =
        Program { quadratic: vec![0.0; variables], linear: vec![0.0; variables], ..Program::default() };
    for p in 0..pairs {
        program.quadratic[p] = alpha * i.data[p];
        program.linear[p] = -i.data[p] * (i.model.reward()[p] + alpha);
    }
    add_flow(&mut program, i, &i.data, pairs);
    let (w, value) = program.solve()?;
    Ok((w[..pairs].to_vec(), -value - alpha / 2.0))
}

/// The cost bound as a maximisation over the measure itself (`eq:cost_ub_objective`), an exponential-cone program:
/// `max Σ q_n u_n, Σ q_n ln(q_n/p_n) ≤ ε` with the flow of `q·w` balanced, and at `γ = 1` normalised. Every sample has a
/// fixed initial state,
/// so that `s0` needs no measure of its own; at `γ = 1` it has no part in the program. A step without a next state ends
/// the episode.
pub(crate) fn bound_primal(
    i: &Instance,
    samples: &[(usize, Option<usize>, f64)],
    w: &[f64],
    cost: &[f64],
    epsilon: f64,
) -> Option<f64> {
    let m = &i.model;
    let n = samples.len();
    // Variables q_n, then t_n ≥ q_n ln(q_n/p_n): (−t_n, q_n, p_n) ∈ K_exp.
    let mut program = Program { quadratic: vec![0.0; 2 * n], linear: vec![0.0; 2 * n], ..Program::default() };
    for (k, &(pair, _, _)) in samples.iter().enumerate() {
        program.linear[k] = -w[pair] * cost[pair];
    }
    program.row(&(0..n).map(|k| (k, 1.0)).collect::<Vec<_>>(), 1.0);
    for s in 0..m.states() {
        let mut row = Vec::new();
        for (k, &(pair, next, _)) in samples.iter().enumerate() {
            let out = if pair / m.actions() == s { w[pair] } else { 0.0 };
            let share = match next {
                Some(next) => f64::from(u8::from(next == s)),
                None if m.restarts() => m.initial()[s],
                None => 0.0,
            };
            row.push((k, out - m.gamma() * w[pair] * share));
        }
        program.row(&row, (1.0 - m.gamma()) * m.initial()[s]);
    }
    let normalised = usize::from(m.gamma() >= 1.0);
    if normalised == 1 {
        // To what `w` has under `p`, which for a solution of the program is one to its own exactness.
        let mean = samples.iter().map(|&(pair, _, p)| p * w[pair]).sum();
        program.row(&samples.iter().enumerate().map(|(k, s)| (k, w[s.0])).collect::<Vec<_>>(), mean);
    }
    program.cones.push(ZeroConeT(1 + m.states() + normalised));
    program.row(&(0..n).map(|k| (n + k, 1.0)).collect::<Vec<_>>(), epsilon);
    program.cones.push(NonnegativeConeT(1));
    for (k, &(_, _, p)) in samples.iter().enumerate() {
        program.row(&[(n + k, 1.0)], 0.0);
        program.row(&[(k, -1.0)], 0.0);
        program.row(&[], p);
        program.cones.push(ExponentialConeT());
    }
    program.solve().ok().map(|(_, value)| -value)
}

/// The samples of a model: pair, next state or end, mass. With a floor under the mass of every next state.
pub(crate) fn samples_of(i: &Instance, floor: f64) -> Vec<(usize, Option<usize>, f64)> {
    let m = &i.model;
    let mut list = Vec::new();
    for pair in 0..m.pairs() {
        let (next, probability) = m.row(pair);
        for t in 0..m.states() {
            let p: f64 =
                next.iter().zip(probability).filter(|(s, _)| **s as usize == t).map(|(_, p)| p).sum();
            list.push((pair, Some(t), i.data[pair] * p + floor));
        }
        list.push((pair, None, i.data[pair] * m.transitions().end_probability(pair)));
    }
    list.retain(|sample| sample.2 > 0.0);
    list
}
