//! Stationary distribution correction estimation on finite CMDPs: OptiDICE, COptiDICE without and with the cost
//! bound, and the cost bound alone.
//!
//! All three divergences, any number of costs, `γ` up to and including one. Every solution carries a
//! [`Certificate`]; an infeasible limit is an [`Outcome`], not an error.
//!
//! | function | paper | what it solves |
//! |---|---|---|
//! | [`optidice`] | `eq:nu_lambda_optimization`, `λ = 0` | reward only |
//! | [`coptidice_naive`] | `eq:min_objective` | limits on the estimated costs |
//! | [`coptidice`] | `eq:nu_lambda_tau_chi_optimization` | limits on the upper bounds of the costs |
//! | [`cost_bound`] | `eq:cost_ub_min_objective` | the upper bound of one cost for a given `w` |

mod bound;
mod conservative;
mod dual;
mod exponential;
pub(crate) mod reduced;
mod samples;
mod tilt;
pub(crate) mod units;

pub use samples::Samples;

use coptidice_core::{Cmdp, CmdpError, Divergence, Policy};
use serde::{Deserialize, Serialize};

use crate::outcome::{Certificate, Outcome};
use bound::{BoundSolver, BoundState, BoundValue};
use dual::Dual;
use reduced::Reduced;
use tilt::BoundedCost;
use units::Units;

/// A program to solve.
#[derive(Clone, Copy, Debug)]
pub struct Problem<'a> {
    /// The CMDP, usually estimated from counts. `R` and `C` are read from it.
    pub model: &'a Cmdp,
    /// `d^D`, `[S*A]`, non-negative. Pairs with zero mass are outside the support: they get `w = 0`.
    pub data_occupancy: &'a [f64],
    /// `ĉ`, `[K]`, cost units per step.
    pub limits: &'a [f64],
    /// `f`.
    pub divergence: Divergence,
    /// Weight of the divergence, reward units per step, positive.
    pub alpha: f64,
}

/// What the cost bound needs beside the problem.
#[derive(Clone, Copy, Debug)]
pub struct BoundProblem<'a> {
    /// `p`, the distribution over logged samples.
    pub samples: &'a Samples,
    /// KL radius, non-negative. Zero means no bound: the naive program.
    pub epsilon: f64,
    /// `w` is raised to this before it enters the bound (the paper's own program uses 1e-10).
    pub weight_floor: f64,
    /// Costs as the samples carry them, `[K][S*A]`; [`Cmdp::costs`] unless ends carry a credit.
    pub costs: &'a [Vec<f64>],
    /// `[K]`, subtracted from the cost of steps that end the episode; see
    /// [`coptidice_core::CostConstraint::last_step_credit`].
    pub last_step_credits: &'a [f64],
}

/// Limits of the iterations. The defaults are far above what is ever needed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Effort {
    /// Newton steps for one minimisation over `ν`.
    pub newton_steps: usize,
    /// Newton steps over `ν` for one program, whatever its limits are moved to on the way.
    pub total_steps: usize,
    /// Newton steps for one bound.
    pub bound_steps: usize,
    /// Values of `λ` tried.
    pub lambda_steps: usize,
    /// A multiplier beyond this is taken as a sign of infeasibility, which is then decided exactly where possible. In
    /// reward units per cost unit where both are of order one; it grows and shrinks with them by powers of 1024.
    pub lambda_cap: f64,
}

/// Largest complementarity, relative to the size of the objective, that goes by "solved". At prices of thousands the dual
/// tells costs apart less closely than that takes.
const WORST_SOLVED: f64 = 1e-8;

/// Largest residual of a certificate that still goes by "almost solved".
const WORST_ALMOST: f64 = 1e-3;

impl Default for Effort {
    fn default() -> Self {
        Self { newton_steps: 500, total_steps: 20_000, bound_steps: 300, lambda_steps: 100, lambda_cap: 1e7 }
    }
}

/// The upper bound of one cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CostBound {
    /// How the minimisation ended; [`Outcome::Infeasible`] when no measure within the radius balances the flow.
    pub outcome: Outcome,
    /// The bound `ℓ_k(τ, χ; w)`, cost units per step.
    pub value: f64,
    /// `τ_k`; zero when the radius is not used up.
    pub tau: f64,
    /// `χ_k`, `[S]`. Not unique.
    pub chi: Vec<f64>,
    /// `ζ_k`, the multiplier of `E_p̃[w] = 1`, which is a condition of its own at `γ = 1`; zero below.
    pub zeta: f64,
    /// `KL(p̃‖p)`.
    pub kl: f64,
    /// `E_p̃[wC_k]`, the primal objective; the gap to `value` certifies it.
    pub tilted_cost: f64,
    /// Largest violation by `p̃w` of the flow (`eq:cost_ub_flow_constraint`), and of `E_p̃[w] = 1` at `γ = 1`.
    pub flow_residual: f64,
    /// Newton steps.
    pub iterations: usize,
}

impl CostBound {
    fn new(value: BoundValue, BoundState { chi, zeta, .. }: BoundState) -> Self {
        let BoundValue { outcome, value, tau, kl, tilted_cost, flow_residual, iterations } = value;
        Self { outcome, value, tau, chi, zeta, kl, tilted_cost, flow_residual, iterations }
    }

    /// The bound of `unit` times the cost.
    fn times(mut self, unit: f64) -> Self {
        self.value *= unit;
        self.tau *= unit;
        self.tilted_cost *= unit;
        self.zeta *= unit;
        self.chi.iter_mut().for_each(|x| *x *= unit);
        self
    }
}

/// Solution of one of the programs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Solution {
    /// How the solve ended.
    pub outcome: Outcome,
    /// `w`, `[S*A]`.
    pub w: Vec<f64>,
    /// `d^D w`, `[S*A]`.
    pub occupancy: Vec<f64>,
    /// `ν`, `[S]`; zero in states that the data's support does not reach.
    pub nu: Vec<f64>,
    /// `μ`; zero unless `γ = 1`.
    pub mu: f64,
    /// `λ`, `[K]`.
    pub lambda: Vec<f64>,
    /// `E_d[C_k]`, `[K]`, cost units per step.
    pub costs: Vec<f64>,
    /// Upper bounds of the costs, `[K]`; empty where none were asked for.
    pub bounds: Vec<CostBound>,
    /// What proves the solution. Limit residuals refer to the bounds where there are any; `dual_objective` is that
    /// of the program for `R − λᵀC` with the limits moved to the costs attained.
    pub certificate: Certificate,
}

impl Solution {
    /// `π(a|s) ∝ d(s,a) + floor`; states without any mass get `fallback`'s row.
    ///
    /// # Errors
    /// [`CmdpError::Shape`] if `fallback` has another shape.
    pub fn policy(&self, fallback: &Policy, floor: f64) -> Result<Policy, CmdpError> {
        let mass: Vec<f64> = self.occupancy.iter().map(|&d| d + floor).collect();
        Policy::from_mass(fallback, &mass)
    }
}

/// An unusable problem.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum DiceError {
    /// A shape or an occupancy entry is wrong.
    #[error(transparent)]
    Cmdp(#[from] CmdpError),
    /// `alpha` is not a positive number.
    #[error("alpha = {0}; give a positive number (1/number of trajectories is the paper's choice)")]
    Alpha(f64),
    /// `epsilon` is negative or not finite.
    #[error("epsilon = {0}; give a number >= 0 (0.1/number of trajectories is the paper's choice)")]
    Epsilon(f64),
    /// Number of limits and of costs differ.
    #[error("{limits} limits for {costs} costs; give one limit per cost")]
    Limits {
        /// Limits given.
        limits: usize,
        /// Costs of the CMDP.
        costs: usize,
    },
    /// A limit is NaN or infinite.
    #[error("the limit of cost {index} is {value}; give a finite number")]
    LimitValue {
        /// Which cost.
        index: usize,
        /// Value given.
        value: f64,
    },
    /// Samples of another shape, or with another discount, than the CMDP.
    #[error("samples over {0} pairs, gamma = {1} do not belong to this CMDP")]
    Samples(usize, f64),
}

impl Problem<'_> {
    fn check(&self) -> Result<(), DiceError> {
        let m = self.model;
        if self.data_occupancy.len() != m.pairs() {
            let (expected, found) = (m.pairs(), self.data_occupancy.len());
            return Err(CmdpError::Shape { what: "data occupancy", expected, found }.into());
        }
        if let Some(pair) = self.data_occupancy.iter().position(|d| !(d.is_finite() && *d >= 0.0)) {
            let value = self.data_occupancy[pair];
            return Err(CmdpError::Occupancy {
                state: pair / m.actions(),
                action: pair % m.actions(),
                value,
            }
            .into());
        }
        if !(self.alpha.is_finite() && self.alpha > 0.0) {
            return Err(DiceError::Alpha(self.alpha));
        }
        if self.limits.len() != m.cost_count() {
            return Err(DiceError::Limits { limits: self.limits.len(), costs: m.cost_count() });
        }
        match self.limits.iter().position(|l| !l.is_finite()) {
            Some(index) => Err(DiceError::LimitValue { index, value: self.limits[index] }),
            None => Ok(()),
        }
    }

    /// The dual in units of its own.
    fn dual(&self) -> Option<(Dual, Units)> {
        let mut reduced = Reduced::new(self.model, self.data_occupancy)?;
        let units = Units::apply(&mut reduced, self.alpha);
        let (alpha, limits) = (self.alpha / units.reward(), units.per_cost(self.limits));
        Some((Dual::new(reduced, self.divergence, alpha, &limits), units))
    }

    fn dual_from(&self, start: Option<&Solution>) -> Result<Option<(Dual, Units)>, DiceError> {
        let mut dual = self.dual();
        if let (Some((dual, units)), Some(start)) = (&mut dual, start) {
            let (expected, found) = (self.model.states(), start.nu.len());
            if found != expected {
                return Err(CmdpError::Shape { what: "start", expected, found }.into());
            }
            if start.lambda.len() != self.limits.len() {
                return Err(DiceError::Limits { limits: start.lambda.len(), costs: self.limits.len() });
            }
            let (nu, mu, lambda) = units.multipliers(start);
            dual.start_from(&nu, mu, &lambda);
        }
        Ok(dual)
    }

    /// Nothing can start from `p0` within the support.
    fn unsupported(&self) -> Solution {
        let (pairs, k) = (self.model.pairs(), self.limits.len());
        Solution {
            outcome: Outcome::Infeasible,
            w: vec![0.0; pairs],
            occupancy: vec![0.0; pairs],
            nu: vec![0.0; self.model.states()],
            mu: 0.0,
            lambda: vec![0.0; k],
            costs: vec![0.0; k],
            bounds: Vec::new(),
            certificate: Certificate { flow_residual: 1.0, ..Certificate::default() },
        }
    }

    fn solution(&self, dual: &Dual, units: &Units, outcome: Outcome, bounds: Vec<CostBound>) -> Solution {
        let (pairs, states) = (self.model.pairs(), self.model.states());
        let (mut w, mut occupancy, mut nu) = (vec![0.0; pairs], vec![0.0; pairs], vec![0.0; states]);
        for (i, &pair) in dual.r.pairs.iter().enumerate() {
            w[pair as usize] = dual.w[i];
            occupancy[pair as usize] = dual.w[i] * dual.r.data[i];
        }
        for (i, &s) in dual.r.states.iter().enumerate() {
            nu[s as usize] = dual.nu[i] * units.reward();
        }
        let k = 0..self.limits.len();
        Solution {
            outcome,
            w,
            occupancy,
            nu,
            mu: dual.mu * units.reward(),
            lambda: k.clone().map(|k| dual.lambda[k] * units.multiplier(k)).collect(),
            costs: k.map(|k| dual.mean_cost(k) * units.cost(k)).collect(),
            certificate: certificate(dual, units, &bounds),
            bounds: units.bounds(bounds),
        }
    }
}

/// What proves the dual's present solution and its bounds, which are in the dual's units, in `units`.
fn certificate(dual: &Dual, units: &Units, bounds: &[CostBound]) -> Certificate {
    let (objective, mut dual_objective) = dual.objectives();
    let (mut limit_excess, mut complementarity) = (0.0_f64, 0.0_f64);
    for (k, &limit) in dual.limits.iter().enumerate() {
        let cost = dual.mean_cost(k);
        let limited = bounds.get(k).map_or(cost, |b| b.value);
        limit_excess = limit_excess.max((limited - limit) * units.cost(k));
        complementarity = complementarity.max(dual.lambda[k] * (limit - limited).abs());
        if !bounds.is_empty() {
            dual_objective += dual.lambda[k] * (cost - limit);
        }
    }
    Certificate {
        objective: objective * units.reward(),
        dual_objective: dual_objective * units.reward(),
        flow_residual: dual.flow_residual(),
        expected_ratio: dual.total(),
        limit_excess,
        complementarity: complementarity * units.reward(),
        iterations: dual.steps,
    }
}

impl BoundProblem<'_> {
    fn check(&self, m: &Cmdp) -> Result<(), DiceError> {
        if !(self.epsilon.is_finite() && self.epsilon >= 0.0) {
            return Err(DiceError::Epsilon(self.epsilon));
        }
        let s = self.samples;
        if s.pairs() != m.pairs() || s.states != m.states() || s.gamma != m.gamma() {
            return Err(DiceError::Samples(s.pairs(), s.gamma));
        }
        let k = m.cost_count();
        if self.costs.len() != k || self.last_step_credits.len() != k {
            let limits = self.costs.len().min(self.last_step_credits.len());
            return Err(DiceError::Limits { limits, costs: k });
        }
        match self.costs.iter().find(|c| c.len() != m.pairs()) {
            Some(c) => Err(CmdpError::Shape { what: "cost", expected: m.pairs(), found: c.len() }.into()),
            None => Ok(()),
        }
    }

    fn cost(&self, k: usize) -> BoundedCost<'_> {
        BoundedCost { cost: &self.costs[k], last_step_credit: self.last_step_credits[k] }
    }
}

/// OptiDICE: reward less divergence, costs ignored. `lambda` in the solution is zero.
///
/// # Errors
/// [`DiceError`] on an unusable problem.
pub fn optidice(problem: &Problem<'_>, effort: Effort) -> Result<Solution, DiceError> {
    problem.check()?;
    let Some((mut dual, units)) = problem.dual() else { return Ok(problem.unsupported()) };
    let outcome = dual.minimise(false, effort.lambda_cap, effort.newton_steps);
    let mut solution = problem.solution(&dual, &units, outcome, Vec::new());
    // Limits play no part: neither do their residuals.
    (solution.certificate.limit_excess, solution.certificate.complementarity) = (0.0, 0.0);
    Ok(solution)
}

/// Naive COptiDICE: limits on the costs as estimated from the data.
///
/// `start` holds the multipliers of a similar problem (same numbers of states and costs) to start from; the
/// solution does not depend on it, the number of steps does: where the program is not solved from there, it is solved anew
/// without.
///
/// # Errors
/// [`DiceError`] on an unusable problem.
pub fn coptidice_naive(
    problem: &Problem<'_>,
    start: Option<&Solution>,
    effort: Effort,
) -> Result<Solution, DiceError> {
    problem.check()?;
    let Some((mut dual, units)) = problem.dual_from(start)? else { return Ok(problem.unsupported()) };
    let outcome = conservative::minimise_naive(&mut dual, effort);
    if start.is_some() && misled(outcome) {
        return coptidice_naive(problem, None, effort);
    }
    Ok(problem.solution(&dual, &units, outcome, Vec::new()))
}

/// COptiDICE: limits on the upper bounds of the costs, `λ` solved to the root.
///
/// [`Outcome::Infeasible`] where no policy keeps the limits on the costs themselves, which the linear program proves;
/// or where prices, however high, do not bring the bounds down to them: the costs are the least there are, and some
/// bound is over its limit all the same.
///
/// `start` as in [`coptidice_naive`]; the naive solution of the same problem is the best one.
///
/// # Errors
/// [`DiceError`] on an unusable problem.
pub fn coptidice(
    problem: &Problem<'_>,
    bound: &BoundProblem<'_>,
    start: Option<&Solution>,
    effort: Effort,
) -> Result<Solution, DiceError> {
    problem.check()?;
    bound.check(problem.model)?;
    let Some((mut dual, units)) = problem.dual_from(start)? else { return Ok(problem.unsupported()) };
    let (costs, credits) = (units.tables(bound.costs), units.per_cost(bound.last_step_credits));
    let in_units = BoundProblem { costs: &costs, last_step_credits: &credits, ..*bound };
    let (outcome, bounds) = conservative::solve(&mut dual, &in_units, effort);
    let certificate = certificate(&dual, &Units::given(bound.costs.len()), &bounds);
    let outcome = match outcome {
        // Next to what can be met at all, multipliers run away and steps stop; what they leave proves nothing.
        Outcome::AlmostSolved if certificate.worst() > WORST_ALMOST => Outcome::IterationLimit,
        Outcome::Solved
            if certificate.complementarity > WORST_SOLVED * (1.0 + certificate.objective.abs()) =>
        {
            Outcome::AlmostSolved
        }
        other => other,
    };
    if start.is_some() && misled(outcome) {
        return coptidice(problem, bound, None, effort);
    }
    Ok(problem.solution(&dual, &units, outcome, bounds))
}

/// Whether an outcome may be that of the start, and not of the program.
fn misled(outcome: Outcome) -> bool {
    !matches!(outcome, Outcome::Solved | Outcome::Infeasible)
}

/// The upper bound of cost `k` for a given `w` `[S*A]`.
///
/// # Errors
/// [`DiceError`] on an unusable problem.
pub fn cost_bound(
    model: &Cmdp,
    bound: &BoundProblem<'_>,
    k: usize,
    w: &[f64],
    effort: Effort,
) -> Result<CostBound, DiceError> {
    bound.check(model)?;
    if w.len() != model.pairs() {
        return Err(CmdpError::Shape { what: "w", expected: model.pairs(), found: w.len() }.into());
    }
    if k >= bound.costs.len() {
        return Err(DiceError::Limits { limits: k + 1, costs: bound.costs.len() });
    }
    if let Some(pair) = w.iter().position(|x| !(x.is_finite() && *x >= 0.0)) {
        let (state, action) = (pair / model.actions(), pair % model.actions());
        return Err(CmdpError::Occupancy { state, action, value: w[pair] }.into());
    }
    let w: Vec<f64> = w.iter().map(|&x| x.max(bound.weight_floor)).collect();
    let unit = bound.cost(k).unit(&w);
    let cost: Vec<f64> = bound.costs[k].iter().map(|c| c / unit).collect();
    let cost = BoundedCost { cost: &cost, last_step_credit: bound.last_step_credits[k] / unit };
    let mut state = BoundState::default();
    let mut solver = BoundSolver::new(bound.samples);
    let value = solver.solve(&w, cost, bound.epsilon, &mut state, effort.bound_steps);
    Ok(CostBound::new(value, state).times(unit))
}
