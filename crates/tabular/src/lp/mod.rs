//! The CMDP linear program (`eq:lp_objective` with `α = 0`): the most reward under the cost limits.
//!
//! * `γ < 1`: `decomposition`, column generation over deterministic policies. The master has `K + 1` rows; its
//!   columns are priced by policy iteration on `R − λᵀC`. The answer mixes at most `K + 1` policies, is exact to
//!   the rounding of the linear solves, and comes with the dual bound of its last pricing step.
//! * `γ = 1`: `interior_point`, Clarabel on the program itself, normalisation included. It also serves as the
//!   independent check of the first.

pub(crate) mod decomposition;
pub(crate) mod interior_point;

use coptidice_core::{Cmdp, CmdpError, Policy};
use serde::{Deserialize, Serialize};

use crate::dice::reduced::Reduced;
use crate::dice::units::{largest, unit};
use crate::linalg::spd::dot;
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
}

/// What a method returns, over the pairs it was given.
pub(crate) struct Answer {
    /// The method's own view; [`finish`] lowers `Solved` where the residuals say otherwise.
    pub(crate) outcome: Outcome,
    pub(crate) occupancy: Vec<f64>,
    pub(crate) lambda: Vec<f64>,
    pub(crate) dual_objective: f64,
    pub(crate) iterations: usize,
}

/// Residual, relative to the size of the objective and of occupancies, that counts as solved.
const SOLVED: f64 = 1e-9;

/// Solves the linear program; `limits` are in cost units per step. [`LpSolver`] saves the workspace when there are
/// many of one size.
///
/// # Errors
/// [`CmdpError::Shape`] if the number of limits is not that of costs, [`CmdpError::NotFinite`] if one is not finite.
pub fn solve(m: &Cmdp, limits: &[f64]) -> Result<LpSolution, CmdpError> {
    check(m, limits)?;
    if m.gamma() < 1.0 {
        return LpSolver::new(m.states()).solve(m, limits);
    }
    Ok(finish(m, limits, interior_point::solve(m, limits)))
}

/// As [`solve`], restricted to pairs with `support(s,a) > 0` (`eq:lp_empirical` with `α = 0`). Where nothing can
/// start from `p0` within the support the outcome is [`Outcome::Infeasible`].
///
/// # Errors
/// As [`solve`], and [`CmdpError::Shape`] if the support has another shape.
pub fn solve_in_support(m: &Cmdp, limits: &[f64], support: &[f64]) -> Result<LpSolution, CmdpError> {
    check(m, limits)?;
    if support.len() != m.pairs() {
        return Err(CmdpError::Shape { what: "support", expected: m.pairs(), found: support.len() });
    }
    let mut occupancy = vec![0.0; m.pairs()];
    let Some(reduced) = Reduced::new(m, support) else {
        let answer = Answer {
            outcome: Outcome::Infeasible,
            occupancy,
            lambda: vec![0.0; limits.len()],
            dual_objective: f64::NEG_INFINITY,
            iterations: 0,
        };
        return Ok(finish(m, limits, answer));
    };
    let mut answer = if m.gamma() < 1.0 {
        LpSolver::new(reduced.n()).solve_tables(&reduced, limits)
    } else {
        interior_point::solve(&reduced, limits)
    };
    for (&pair, &d) in reduced.pairs.iter().zip(&answer.occupancy) {
        occupancy[pair as usize] = d;
    }
    answer.occupancy = occupancy;
    Ok(finish(m, limits, answer))
}

/// As [`solve_in_support`] for the reward per *episode*, `max E_d[R]/E_d[1{end}]`, in a restart chain at `γ = 1`.
/// Returns the optimal ratio `ρ` too; the solution is that of the program with reward `R − ρ·1{end}`.
///
/// # Errors
/// As [`solve_in_support`], and [`CmdpError::Gamma`] where episodes do not restart.
pub fn solve_per_episode(m: &Cmdp, limits: &[f64], support: &[f64]) -> Result<(LpSolution, f64), CmdpError> {
    check(m, limits)?;
    if support.len() != m.pairs() {
        return Err(CmdpError::Shape { what: "support", expected: m.pairs(), found: support.len() });
    }
    if m.gamma() < 1.0 || !m.restarts() {
        return Err(CmdpError::Gamma(m.gamma()));
    }
    let Some(reduced) = Reduced::new(m, support) else {
        return Ok((solve_in_support(m, limits, support)?, 0.0));
    };
    let (mut answer, ratio) = interior_point::solve_per_episode(&reduced, limits);
    let mut occupancy = vec![0.0; m.pairs()];
    for (&pair, &d) in reduced.pairs.iter().zip(&answer.occupancy) {
        occupancy[pair as usize] = d;
    }
    answer.occupancy = occupancy;
    // Where all episodes earn the same nothing but rounding is left of the rewards.
    let size = largest(m.reward()).max(ratio.abs());
    Ok((finish_in_size(&less_at_ends(m, ratio)?, limits, answer, size), ratio))
}

/// The CMDP with reward `R − ρ·1{end}`.
pub(crate) fn less_at_ends(m: &Cmdp, ratio: f64) -> Result<Cmdp, CmdpError> {
    let mut parts = m.clone().into_parts();
    for (pair, r) in parts.reward.iter_mut().enumerate() {
        *r -= ratio * parts.transitions.end_probability(pair);
    }
    Cmdp::new(parts)
}

/// Values, residuals and the outcome they warrant.
fn finish(m: &Cmdp, limits: &[f64], answer: Answer) -> LpSolution {
    finish_in_size(m, limits, answer, largest(m.reward()))
}

/// The same where the objective's terms are of another size than what is left of the rewards.
fn finish_in_size(m: &Cmdp, limits: &[f64], answer: Answer, reward_size: f64) -> LpSolution {
    let Answer { mut outcome, occupancy, lambda, dual_objective, iterations } = answer;
    let reward = dot(&occupancy, m.reward());
    let costs: Vec<f64> = m.costs().iter().map(|c| dot(&occupancy, c)).collect();
    let pairs_of = || costs.iter().zip(limits);
    let certificate = Certificate {
        objective: reward,
        dual_objective,
        flow_residual: flow_residual(m, &occupancy),
        expected_ratio: occupancy.iter().sum(),
        limit_excess: pairs_of().map(|(c, l)| c - l).fold(0.0, f64::max),
        complementarity: pairs_of().zip(&lambda).map(|((c, l), x)| x * (l - c).abs()).fold(0.0, f64::max),
        iterations,
    };
    if outcome == Outcome::Solved {
        // Each residual relative to what it is a difference of, and in the unit of its table.
        let excess_of =
            |((c, l), table): ((&f64, &f64), &Vec<f64>)| (c - l) / (unit(largest(table)) + l.abs());
        let excess = pairs_of().zip(m.costs()).map(excess_of).fold(0.0, f64::max);
        let of_objective =
            certificate.duality_gap().max(certificate.complementarity) / (unit(reward_size) + reward.abs());
        outcome = match excess.max(of_objective).max(certificate.flow_residual) {
            worst if worst <= SOLVED => Outcome::Solved,
            worst if worst <= 1e3 * SOLVED => Outcome::AlmostSolved,
            _ => Outcome::IterationLimit,
        };
    }
    LpSolution { outcome, occupancy, reward, costs, lambda, certificate }
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
