//! Value and occupancy of a policy.
//!
//! For `γ < 1` the state occupancy solves `(I − γP_πᵀ)d = (1−γ)p0`. For `γ = 1` it is the long-run share of time
//! spent in each state from `p0`: the stationary distribution of every closed class, weighted with the probability
//! of being absorbed there.

mod average;

use coptidice_core::{Cmdp, CmdpError, Policy};

use crate::linalg::flow::FlowSystem;
pub(crate) use average::Reach;

/// Occupancy and values of a policy, all `(1−γ)`-normalised: averages per step.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluation {
    /// `d^π`, `[S*A]`. Sums to one unless episodes end by absorption; the rest is spent after the end.
    pub occupancy: Vec<f64>,
    /// `V_R(π)`, reward units per step.
    pub reward: f64,
    /// `V_C(π)`, `[K]`, cost units per step.
    pub costs: Vec<f64>,
}

/// Workspace for evaluating policies on CMDPs of one size.
pub struct Evaluator {
    system: FlowSystem,
}

impl Evaluator {
    /// Workspace for `states` states.
    #[must_use]
    pub fn new(states: usize) -> Self {
        Self { system: FlowSystem::new(states) }
    }

    /// Occupancy and values of `policy` on `m`.
    ///
    /// # Errors
    /// [`CmdpError::Shape`] if the policy has another shape than the CMDP.
    pub fn evaluate(&mut self, m: &Cmdp, policy: &Policy) -> Result<Evaluation, CmdpError> {
        self.check(m, policy)?;
        let states = if m.gamma() < 1.0 {
            self.load(m, policy);
            let mut d: Vec<f64> = m.initial().iter().map(|&p| (1.0 - m.gamma()) * p).collect();
            self.system.solve_transposed(&mut d);
            d
        } else {
            average::state_occupancy(m, policy)
        };
        let mut occupancy = vec![0.0; m.pairs()];
        for (s, &d) in states.iter().enumerate() {
            for (a, &p) in policy.row(s).iter().enumerate() {
                // Rounding may leave −1e-18 in states that cannot be reached.
                occupancy[s * m.actions() + a] = (d * p).max(0.0);
            }
        }
        let mean = |table: &[f64]| occupancy.iter().zip(table).map(|(&d, &x)| d * x).sum::<f64>();
        let (reward, costs) = (mean(m.reward()), m.costs().iter().map(|c| mean(c)).collect());
        Ok(Evaluation { occupancy, reward, costs })
    }

    /// State values `v = r_π + γP_πv`, `[S]`, of a table `r` over pairs, in units of `r` (not normalised; multiply
    /// by `1−γ` for an average per step).
    ///
    /// # Errors
    /// [`CmdpError::Shape`] on other shapes, [`CmdpError::Gamma`] at `γ = 1`, where the sum does not converge.
    pub fn state_values(&mut self, m: &Cmdp, policy: &Policy, table: &[f64]) -> Result<Vec<f64>, CmdpError> {
        self.check(m, policy)?;
        if table.len() != m.pairs() {
            return Err(CmdpError::Shape { what: "table", expected: m.pairs(), found: table.len() });
        }
        if m.gamma() >= 1.0 {
            return Err(CmdpError::Gamma(m.gamma()));
        }
        self.load(m, policy);
        let rows = policy.probabilities().chunks(m.actions()).zip(table.chunks(m.actions()));
        let mut v: Vec<f64> = rows.map(|(p, r)| p.iter().zip(r).map(|(&x, &y)| x * y).sum()).collect();
        self.system.solve(&mut v);
        Ok(v)
    }

    fn load(&mut self, m: &Cmdp, policy: &Policy) {
        let actions = m.actions();
        self.system.load(m, |s| {
            let row = policy.row(s).iter().enumerate();
            row.filter(|(_, p)| **p > 0.0).map(move |(a, &p)| (s * actions + a, p))
        });
    }

    fn check(&self, m: &Cmdp, policy: &Policy) -> Result<(), CmdpError> {
        let found = policy.probabilities().len();
        if policy.states() != m.states() || found != m.pairs() {
            return Err(CmdpError::Shape { what: "policy", expected: m.pairs(), found });
        }
        if self.system.order() != m.states() {
            return Err(CmdpError::Shape {
                what: "evaluator",
                expected: m.states(),
                found: self.system.order(),
            });
        }
        Ok(())
    }
}

/// Occupancy and values of `policy` on `m`; [`Evaluator`] saves the workspace when there are many.
///
/// # Errors
/// As [`Evaluator::evaluate`].
pub fn evaluate(m: &Cmdp, policy: &Policy) -> Result<Evaluation, CmdpError> {
    Evaluator::new(m.states()).evaluate(m, policy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use approx::assert_relative_eq;
    use coptidice_core::{CmdpParts, EpisodeEnd, Transitions};

    /// Two states; action 0 stays, action 1 moves on. Reward 1 in state 1.
    fn two_state(gamma: f64) -> Cmdp {
        let t =
            Transitions::from_triples(2, 2, [(0, 0, 0, 1.0), (0, 1, 1, 1.0), (1, 0, 1, 1.0), (1, 1, 0, 1.0)]);
        Cmdp::new(CmdpParts {
            transitions: t.unwrap(),
            episode_end: EpisodeEnd::Absorb,
            reward: vec![0.0, 0.0, 1.0, 1.0],
            costs: vec![vec![1.0, 0.0, 0.0, 0.0]],
            initial: vec![1.0, 0.0],
            gamma,
        })
        .unwrap()
    }

    #[test]
    fn closed_form_of_two_states() {
        let m = two_state(0.9);
        // Leave state 0 with probability q each step, then stay: d(0) = (1−γ)/(1−γ(1−q)).
        let q = 0.3;
        let policy = Policy::new(2, 2, vec![1.0 - q, q, 1.0, 0.0]).unwrap();
        let e = evaluate(&m, &policy).unwrap();
        let d0 = 0.1 / (1.0 - 0.9 * (1.0 - q));
        assert_relative_eq!(e.reward, 1.0 - d0, max_relative = 1e-13);
        assert_relative_eq!(e.costs[0], d0 * (1.0 - q), max_relative = 1e-13);
        assert_relative_eq!(e.occupancy.iter().sum::<f64>(), 1.0, max_relative = 1e-13);
        let v = Evaluator::new(2).state_values(&m, &policy, m.reward()).unwrap();
        assert_relative_eq!(0.1 * v[0], e.reward, max_relative = 1e-13);
        assert_relative_eq!(v[1], 10.0, max_relative = 1e-13);
    }

    #[test]
    fn undiscounted_average_of_an_ergodic_chain_and_of_two_closed_classes() {
        let m = two_state(1.0);
        // Leave 0 with .3, leave 1 with .1: stationary (1/4, 3/4).
        let policy = Policy::new(2, 2, vec![0.7, 0.3, 0.9, 0.1]).unwrap();
        let e = evaluate(&m, &policy).unwrap();
        assert_relative_eq!(e.reward, 0.75, max_relative = 1e-13);
        // Both states closed: only the one where p0 lies is ever visited.
        let stay = Policy::deterministic(2, &[0, 0]).unwrap();
        assert_eq!(evaluate(&m, &stay).unwrap().reward, 0.0);
        assert!(Evaluator::new(2).state_values(&m, &stay, m.reward()).is_err());
    }

    /// Transient start that splits 1:3 between two absorbing states.
    #[test]
    fn undiscounted_mass_is_split_by_absorption_probability() {
        let t = Transitions::from_triples(
            3,
            1,
            [(0, 0, 0, 0.6), (0, 0, 1, 0.1), (0, 0, 2, 0.3), (1, 0, 1, 1.0), (2, 0, 2, 1.0)],
        );
        let m = Cmdp::new(CmdpParts {
            transitions: t.unwrap(),
            episode_end: EpisodeEnd::Absorb,
            reward: vec![0.0, 1.0, 2.0],
            costs: vec![],
            initial: vec![1.0, 0.0, 0.0],
            gamma: 1.0,
        })
        .unwrap();
        let e = evaluate(&m, &Policy::uniform(3, 1).unwrap()).unwrap();
        assert_relative_eq!(e.reward, 0.25 + 1.5, max_relative = 1e-12);
    }

    /// Restart chain: a one-step episode with probability 1/2, otherwise another step. Mean length 2, so an end
    /// happens in every second step.
    #[test]
    fn restart_chain_counts_ends_per_step() {
        let t = Transitions::from_triples(1, 1, [(0, 0, 0, 0.5)])
            .unwrap()
            .with_end_probability(vec![0.5])
            .unwrap();
        let make = |gamma, episode_end| {
            Cmdp::new(CmdpParts {
                transitions: t.clone(),
                episode_end,
                reward: vec![1.0],
                costs: vec![],
                initial: vec![1.0],
                gamma,
            })
            .unwrap()
        };
        let policy = Policy::uniform(1, 1).unwrap();
        assert_relative_eq!(evaluate(&make(1.0, EpisodeEnd::Restart), &policy).unwrap().reward, 1.0);
        assert_relative_eq!(
            evaluate(&make(0.8, EpisodeEnd::Restart), &policy).unwrap().reward,
            1.0,
            max_relative = 1e-14
        );
        // Absorbed: Σ (1−γ)γ^t 2^{-t} = .2/.6.
        assert_relative_eq!(
            evaluate(&make(0.8, EpisodeEnd::Absorb), &policy).unwrap().reward,
            1.0 / 3.0,
            max_relative = 1e-13
        );
    }

    #[test]
    fn wrong_shapes_are_refused() {
        let m = two_state(0.9);
        assert!(evaluate(&m, &Policy::uniform(3, 2).unwrap()).is_err());
        assert!(Evaluator::new(3).evaluate(&m, &Policy::uniform(2, 2).unwrap()).is_err());
        let uniform = Policy::uniform(2, 2).unwrap();
        assert!(Evaluator::new(2).state_values(&m, &uniform, &[0.0]).is_err());
    }
}
