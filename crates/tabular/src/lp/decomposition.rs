//! Column generation (Dantzig–Wolfe) for `γ < 1`.
//!
//! Every occupancy is a mixture of the occupancies of deterministic policies (Altman 1999), so that the program is
//! `max Σ x_j R_j` over mixtures `x` with `Σ x_j C_kj ≤ ĉ_k`. Its basis has `K + 1` columns. Given the multipliers
//! `λ` of the limits, the policy that enters is the best one for `R − λᵀC`; when it gains nothing, the mixture is
//! optimal. For one cost this is the secant method on the Lagrangian.
//!
//! Feasibility comes first (phase one): the same with the excess over the limits in place of the reward.

use coptidice_core::{Cmdp, CmdpError};

use super::{Answer, LpSolution};
use crate::dice::units::largest;
use crate::linalg::flow::Tables;
use crate::linalg::spd::{dot, solve_small};
use crate::outcome::Outcome;
use crate::policy_iteration::PolicySearch;

/// Gain, relative to the size of the objective, below which a column does not enter. Values of policies are exact
/// to about 1e-14.
const GAIN: f64 = 1e-12;

/// The power of two next to the largest number of a table: a unit in which the table is of order one, and in which nothing
/// is rounded.
fn unit(table: &[f64]) -> f64 {
    let size = largest(table);
    if size > 0.0 { size.log2().round().exp2() } else { 1.0 }
}

/// Workspace for CMDPs of one number of states.
pub struct LpSolver {
    search: PolicySearch,
    states: usize,
}

/// A column of the master program.
enum Column {
    /// A deterministic policy, its occupancy of states, reward and costs.
    Policy { choice: Vec<u32>, states: Vec<f64>, reward: f64, costs: Vec<f64> },
    /// Slack of a limit.
    Slack(usize),
    /// Excess over a limit, to be driven out in phase one.
    Excess(usize),
}

impl Column {
    fn reward(&self, phase_one: bool) -> f64 {
        match self {
            Column::Policy { reward, .. } if !phase_one => *reward,
            Column::Excess(_) if phase_one => -1.0,
            _ => 0.0,
        }
    }

    /// Coefficient in row `k` of the limits, or in the convexity row `k = K`.
    fn coefficient(&self, k: usize, cost_count: usize) -> f64 {
        match self {
            Column::Policy { costs, .. } => {
                if k < cost_count {
                    costs[k]
                } else {
                    1.0
                }
            }
            Column::Slack(i) => f64::from(u8::from(*i == k)),
            Column::Excess(i) => -f64::from(u8::from(*i == k)),
        }
    }
}

/// The basis, its weights and multipliers. Every cost is in a unit of its own, so that one of billions does not drown
/// another.
struct Master {
    basis: Vec<Column>,
    weights: Vec<f64>,
    /// Multipliers of the limits, then of convexity.
    multipliers: Vec<f64>,
    limits: Vec<f64>,
    /// Units of the costs, `[K]`.
    units: Vec<f64>,
}

impl Master {
    fn rows(&self) -> usize {
        self.limits.len() + 1
    }

    /// Recomputes multipliers; `false` when the basis is singular.
    fn refresh(&mut self, phase_one: bool) -> bool {
        let (rows, k) = (self.rows(), self.limits.len());
        let mut forward = vec![0.0; rows * rows];
        let mut transposed = vec![0.0; rows * rows];
        for (j, column) in self.basis.iter().enumerate() {
            for i in 0..rows {
                forward[i * rows + j] = column.coefficient(i, k);
                transposed[j * rows + i] = column.coefficient(i, k);
            }
        }
        self.weights = self.limits.iter().copied().chain([1.0]).collect();
        self.multipliers = self.basis.iter().map(|c| c.reward(phase_one)).collect();
        solve_small(&mut forward, &mut self.weights) && solve_small(&mut transposed, &mut self.multipliers)
    }

    /// Replaces the basic column that leaves when `entering` grows; `false` if none does.
    fn pivot(&mut self, entering: Column) -> bool {
        let (rows, k) = (self.rows(), self.limits.len());
        let mut matrix = vec![0.0; rows * rows];
        let mut direction: Vec<f64> = (0..rows).map(|i| entering.coefficient(i, k)).collect();
        for (j, column) in self.basis.iter().enumerate() {
            for i in 0..rows {
                matrix[i * rows + j] = column.coefficient(i, k);
            }
        }
        if !solve_small(&mut matrix, &mut direction) {
            return false;
        }
        let leaving = (0..rows).filter(|&j| direction[j] > 1e-12).min_by(|&i, &j| {
            let ratio = |j: usize| self.weights[j].max(0.0) / direction[j];
            // Among ties an excess leaves first, so that phase one ends without them.
            let rank = |j: usize| !matches!(self.basis[j], Column::Excess(_));
            ratio(i).total_cmp(&ratio(j)).then(rank(i).cmp(&rank(j)))
        });
        match leaving {
            Some(j) => {
                self.basis[j] = entering;
                true
            }
            None => false,
        }
    }

    fn excess(&self) -> f64 {
        let basic = self.basis.iter().zip(&self.weights);
        basic.map(|(c, &x)| if matches!(c, Column::Excess(_)) { x.max(0.0) } else { 0.0 }).sum()
    }
}

impl LpSolver {
    /// Workspace for `states` states.
    #[must_use]
    pub fn new(states: usize) -> Self {
        Self { search: PolicySearch::new(states), states }
    }

    /// Solves the linear program of a CMDP with `γ < 1`.
    ///
    /// # Errors
    /// [`CmdpError::Shape`] on another number of states or limits, [`CmdpError::NotFinite`] on such a limit,
    /// [`CmdpError::Gamma`] at `γ = 1`.
    pub fn solve(&mut self, m: &Cmdp, limits: &[f64]) -> Result<LpSolution, CmdpError> {
        super::check(m, limits)?;
        if m.states() != self.states {
            return Err(CmdpError::Shape { what: "solver", expected: m.states(), found: self.states });
        }
        if m.gamma() >= 1.0 {
            return Err(CmdpError::Gamma(m.gamma()));
        }
        let answer = self.solve_tables(m, limits);
        Ok(super::finish(m, limits, answer))
    }

    /// The same for any set of pairs; the occupancy is over those pairs.
    pub(crate) fn solve_tables<M: Tables>(&mut self, m: &M, limits: &[f64]) -> Answer {
        self.search.choice.clear();
        let units: Vec<f64> = m.costs().iter().map(|c| unit(c)).collect();
        let limits: Vec<f64> =
            limits.iter().zip(&units).map(|(l, u)| (l / u).clamp(f64::MIN, f64::MAX)).collect();
        let first = self.price(m, &vec![0.0; limits.len()], &units, true).1;
        let mut basis: Vec<Column> = Vec::with_capacity(limits.len() + 1);
        if let Column::Policy { costs, .. } = &first {
            let rows = costs.iter().zip(&limits).enumerate();
            basis.extend(rows.map(|(k, (c, l))| if c <= l { Column::Slack(k) } else { Column::Excess(k) }));
        }
        basis.push(first);
        let mut master = Master { basis, weights: Vec::new(), multipliers: Vec::new(), limits, units };
        let (outcome, bound, iterations) = self.iterate(m, &mut master);
        let mut occupancy = vec![0.0; m.reward().len()];
        for (column, &weight) in master.basis.iter().zip(&master.weights) {
            if let Column::Policy { choice, states, .. } = column {
                for (&pair, &d) in choice.iter().zip(states) {
                    occupancy[pair as usize] += weight.max(0.0) * d.max(0.0);
                }
            }
        }
        let prices = master.multipliers.iter().zip(&master.units);
        let lambda = prices.map(|(&l, unit)| l.max(0.0) / unit).collect();
        Answer { outcome, occupancy, lambda, dual_objective: bound, iterations }
    }

    /// Pivots until no column gains. Returns the outcome, the dual bound and the number of pivots.
    fn iterate<M: Tables>(&mut self, m: &M, master: &mut Master) -> (Outcome, f64, usize) {
        let k = master.limits.len();
        let mut phase_one = master.basis.iter().any(|c| matches!(c, Column::Excess(_)));
        let limit = 200 + 50 * (k + 1);
        let scale_of = |table: &[f64]| table.iter().fold(0.0_f64, |x, v| x.max(v.abs()));
        let reward_scale = scale_of(m.reward()).max(1e-300);
        for iteration in 0..limit {
            if !master.refresh(phase_one) {
                return (Outcome::IterationLimit, f64::INFINITY, iteration);
            }
            if phase_one && master.excess() <= GAIN {
                phase_one = false;
                continue;
            }
            let lambda = &master.multipliers[..k];
            // Costs are of order one: multipliers weigh in the objective as they are.
            let least = if phase_one { GAIN } else { GAIN * reward_scale };
            let slack =
                (0..k).min_by(|&i, &j| lambda[i].total_cmp(&lambda[j])).filter(|&i| lambda[i] < -least);
            let entering = if let Some(i) = slack {
                Column::Slack(i)
            } else {
                let lambda: Vec<f64> = lambda.iter().map(|&l| l.max(0.0)).collect();
                let (value, column) = self.price(m, &lambda, &master.units, !phase_one);
                let scale = if phase_one { 1.0 } else { reward_scale + scale_of(&lambda) };
                if value <= master.multipliers[k] + GAIN * scale {
                    let bound = value + dot(&lambda, &master.limits);
                    return (if phase_one { Outcome::Infeasible } else { Outcome::Solved }, bound, iteration);
                }
                column
            };
            if !master.pivot(entering) {
                return (Outcome::IterationLimit, f64::INFINITY, iteration);
            }
        }
        (Outcome::IterationLimit, f64::INFINITY, limit)
    }

    /// The best deterministic policy for `R − λᵀC` (or `−λᵀC`), and its value there.
    fn price<M: Tables>(&mut self, m: &M, lambda: &[f64], units: &[f64], with_reward: bool) -> (f64, Column) {
        let mut table = if with_reward { m.reward().to_vec() } else { vec![0.0; m.reward().len()] };
        for ((&l, unit), cost) in lambda.iter().zip(units).zip(m.costs()).filter(|((l, _), _)| **l != 0.0) {
            let price = l / unit;
            for (x, &c) in table.iter_mut().zip(cost) {
                *x -= price * c;
            }
        }
        let value = self.search.improve(m, &table);
        let states = self.search.state_occupancy(m);
        let choice = self.search.choice.clone();
        let mean =
            |table: &[f64]| states.iter().zip(&choice).map(|(&d, &pair)| d * table[pair as usize]).sum();
        let costs = m.costs().iter().zip(units).map(|(c, unit)| mean(c) / unit).collect();
        let reward = mean(m.reward());
        (value, Column::Policy { choice, states, reward, costs })
    }
}
