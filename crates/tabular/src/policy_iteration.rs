//! Howard's policy iteration for one table of rewards, `γ < 1`.
//!
//! The solvers use it for starting points, for the pricing step of the linear program and for feasibility.

use coptidice_core::{Cmdp, CmdpError, Policy};

use crate::linalg::flow::{FlowSystem, Pairs};

/// An action is changed only when it gains more than this, relative to the size of the values. Rounding of the
/// linear solves is a few 1e-16 times the condition number, at most `2/(1−γ)`.
const GAIN: f64 = 1e-12;

/// The best deterministic policy for a table over pairs.
#[derive(Clone, Debug, PartialEq)]
pub struct OptimalPolicy {
    /// One action per state.
    pub policy: Policy,
    /// State values `[S]`, not normalised.
    pub state_values: Vec<f64>,
    /// `(1−γ)p0ᵀv`, per step.
    pub value: f64,
}

/// Maximises `E_{d^π}[table]` over policies.
///
/// # Errors
/// [`CmdpError::Shape`] if the table has another shape, [`CmdpError::Gamma`] at `γ = 1` (use the linear program).
pub fn optimal_policy(m: &Cmdp, table: &[f64]) -> Result<OptimalPolicy, CmdpError> {
    if table.len() != m.pairs() {
        return Err(CmdpError::Shape { what: "table", expected: m.pairs(), found: table.len() });
    }
    if m.gamma() >= 1.0 {
        return Err(CmdpError::Gamma(m.gamma()));
    }
    let mut search = PolicySearch::new(m.states());
    let value = search.improve(m, table);
    let choice: Vec<usize> = search.choice.iter().map(|&pair| pair as usize % m.actions()).collect();
    Ok(OptimalPolicy {
        policy: Policy::deterministic(m.actions(), &choice)?,
        state_values: search.values,
        value,
    })
}

/// Workspace: the current deterministic policy as one pair per state, and its values.
pub(crate) struct PolicySearch {
    system: FlowSystem,
    /// The pair chosen in each state.
    pub(crate) choice: Vec<u32>,
    /// State values of the choice.
    pub(crate) values: Vec<f64>,
    /// Improvements made by the last call.
    pub(crate) iterations: usize,
}

impl PolicySearch {
    pub(crate) fn new(states: usize) -> Self {
        Self { system: FlowSystem::new(states), choice: Vec::new(), values: Vec::new(), iterations: 0 }
    }

    /// Improves `choice` (or a greedy start, if it has not been set) to optimality; returns `(1−γ)p0ᵀv`.
    pub(crate) fn improve<M: Pairs>(&mut self, m: &M, table: &[f64]) -> f64 {
        let n = m.states();
        if self.choice.len() != n {
            self.choice.clear();
            self.choice.extend((0..n).map(|s| {
                let best = m.pairs_of(s).max_by(|&i, &j| table[i].total_cmp(&table[j]));
                best.expect("every state has a pair") as u32
            }));
        }
        self.iterations = 0;
        loop {
            self.evaluate(m, table);
            self.iterations += 1;
            // Each improvement is strict by `GAIN`, so no policy repeats; the cap only guards against a bad
            // conditioned solve.
            if !self.greedy(m, table) || self.iterations > 10 * n + 100 {
                break;
            }
        }
        (1.0 - m.gamma()) * m.initial().iter().zip(&self.values).map(|(&p, &v)| p * v).sum::<f64>()
    }

    /// State values of the current choice.
    fn evaluate<M: Pairs>(&mut self, m: &M, table: &[f64]) {
        let choice = &self.choice;
        self.system.load(m, |s| std::iter::once((choice[s] as usize, 1.0)));
        self.values.clear();
        self.values.extend(choice.iter().map(|&pair| table[pair as usize]));
        self.system.solve(&mut self.values);
    }

    /// Occupancy of states under the current choice, whose chain is still loaded.
    pub(crate) fn state_occupancy<M: Pairs>(&mut self, m: &M) -> Vec<f64> {
        let mut d: Vec<f64> = m.initial().iter().map(|&p| (1.0 - m.gamma()) * p).collect();
        self.system.solve_transposed(&mut d);
        d
    }

    fn greedy<M: Pairs>(&mut self, m: &M, table: &[f64]) -> bool {
        let restart = if m.restarts() { crate::linalg::spd::dot(m.initial(), &self.values) } else { 0.0 };
        let scale = self.values.iter().fold(0.0_f64, |x, v| x.max(v.abs())).max(1e-300);
        let mut changed = false;
        for s in 0..m.states() {
            let mut best = (self.choice[s], self.values[s] + GAIN * scale);
            for pair in m.pairs_of(s) {
                let (next, probability) = m.successors(pair);
                let mut expected = m.end(pair) * restart;
                for (&t, &p) in next.iter().zip(probability) {
                    expected += p * self.values[t as usize];
                }
                let q = table[pair] + m.gamma() * expected;
                if q > best.1 {
                    best = (pair as u32, q);
                }
            }
            if best.0 != self.choice[s] {
                self.choice[s] = best.0;
                changed = true;
            }
        }
        changed
    }
}
