//! The CMDP linear program (`eq:lp_objective` with `α = 0`): the most reward under the cost limits.
//!
//! * `γ < 1`: [`decomposition`], column generation over deterministic policies. The master has `K + 1` rows; its
//!   columns are priced by policy iteration on `R − λᵀC`. The answer mixes at most `K + 1` policies, is exact to
//!   the rounding of the linear solves, and comes with the dual bound of its last pricing step.
//! * `γ = 1`: [`interior_point`], Clarabel on the program itself, normalisation included. It also serves as the
//!   independent check of the first.

pub(crate) mod decomposition;
pub(crate) mod interior_point;

use coptidice_core::{Cmdp, CmdpError, Policy};
use serde::{Deserialize, Serialize};

use crate::outcome::{Certificate, Outcome};

pub use decomposition::LpSolver;

/// Solution of the linear program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LpSolution {
    /// How the solve ended.
    pub outcome: Outcome,
    /// `d`, `[S*A]`.
    pub occupancy: Vec<f64>,
    /// `E_d[R]`, reward units per step.
    pub reward: f64,
    /// `E_d[C_k]`, `[K]`, cost units per step.
    pub costs: Vec<f64>,
    /// Multipliers of the limits, `[K]`.
    pub lambda: Vec<f64>,
    /// What proves it.
    pub certificate: Certificate,
}

impl LpSolution {
    /// `π(a|s) ∝ d(s,a) + floor`; states without any mass get `fallback`'s row.
    ///
    /// # Errors
    /// [`CmdpError::Shape`] if `fallback` has another shape.
    pub fn policy(&self, fallback: &Policy, floor: f64) -> Result<Policy, CmdpError> {
        let mass: Vec<f64> = self.occupancy.iter().map(|&d| d + floor).collect();
        Policy::from_mass(fallback, &mass)
    }

    pub(crate) fn without_flow(outcome: Outcome, pairs: usize, costs: usize) -> Self {
        Self {
            outcome,
            occupancy: vec![0.0; pairs],
            reward: 0.0,
            costs: vec![0.0; costs],
            lambda: vec![0.0; costs],
            certificate: Certificate { flow_residual: 1.0, ..Certificate::default() },
        }
    }
}

/// Solves the linear program; `limits` are in cost units per step. [`LpSolver`] saves the workspace when there are
/// many of one size.
///
/// # Errors
/// [`CmdpError::Shape`] if the number of limits is not that of costs, [`CmdpError::NotFinite`] if one is not finite.
pub fn solve(m: &Cmdp, limits: &[f64]) -> Result<LpSolution, CmdpError> {
    check(m, limits)?;
    if m.gamma() < 1.0 {
        LpSolver::new(m.states()).solve(m, limits)
    } else {
        interior_point::solve(m, limits)
    }
}

pub(crate) fn check(m: &Cmdp, limits: &[f64]) -> Result<(), CmdpError> {
    if limits.len() != m.cost_count() {
        return Err(CmdpError::Shape { what: "limits", expected: m.cost_count(), found: limits.len() });
    }
    match limits.iter().find(|l| !l.is_finite()) {
        Some(&value) => Err(CmdpError::NotFinite { what: "limit", state: 0, action: 0, value }),
        None => Ok(()),
    }
}

/// Largest violation of `eq:lp_flow_constraint` by an occupancy.
pub(crate) fn flow_residual(m: &Cmdp, occupancy: &[f64]) -> f64 {
    let mut balance: Vec<f64> = m.initial().iter().map(|&p| (1.0 - m.gamma()) * p).collect();
    let mut ended = 0.0;
    for (pair, &d) in occupancy.iter().enumerate() {
        balance[pair / m.actions()] -= d;
        let (next, probability) = m.row(pair);
        for (&s, &p) in next.iter().zip(probability) {
            balance[s as usize] += m.gamma() * d * p;
        }
        ended += m.gamma() * d * m.transitions().end_probability(pair);
    }
    if m.restarts() {
        for (b, &p) in balance.iter_mut().zip(m.initial()) {
            *b += ended * p;
        }
    }
    let flow = balance.iter().fold(0.0_f64, |x, b| x.max(b.abs()));
    if m.gamma() < 1.0 { flow } else { flow.max((occupancy.iter().sum::<f64>() - 1.0).abs()) }
}
