//! Occupancies: distributions over pairs `(s,a)`.

use serde::{Deserialize, Serialize};

use crate::cmdp::{CmdpError, check_len, check_size};
use crate::policy::Policy;

/// A distribution over pairs, `[S*A]`, non-negative, summing to one: `d^π` or `d^D`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Occupancy {
    states: usize,
    actions: usize,
    mass: Vec<f64>,
}

impl Occupancy {
    /// Normalises `mass` to one.
    ///
    /// # Errors
    /// If the shape is wrong, an entry is negative or not finite, or all are zero.
    pub fn normalized(states: usize, actions: usize, mut mass: Vec<f64>) -> Result<Self, CmdpError> {
        check_size(states, actions)?;
        check_len("occupancy", mass.len(), states * actions)?;
        if let Some(pair) = mass.iter().position(|m| !(m.is_finite() && *m >= 0.0)) {
            return Err(CmdpError::Occupancy {
                state: pair / actions,
                action: pair % actions,
                value: mass[pair],
            });
        }
        let total: f64 = mass.iter().sum();
        if !(total.is_finite() && total > 0.0) {
            return Err(CmdpError::Occupancy { state: 0, action: 0, value: mass[0] });
        }
        for m in &mut mass {
            *m /= total;
        }
        Ok(Self { states, actions, mass })
    }

    /// Number of states.
    #[must_use]
    pub fn states(&self) -> usize {
        self.states
    }

    /// Number of actions.
    #[must_use]
    pub fn actions(&self) -> usize {
        self.actions
    }

    /// The table, `[S*A]`.
    #[must_use]
    pub fn mass(&self) -> &[f64] {
        &self.mass
    }

    /// `E_d[x]` for a table `x` over pairs.
    ///
    /// # Panics
    /// If `x` has another shape.
    #[must_use]
    pub fn expectation(&self, x: &[f64]) -> f64 {
        assert_eq!(x.len(), self.mass.len(), "a table over pairs");
        self.mass.iter().zip(x).map(|(&d, &v)| d * v).sum()
    }

    /// Mass of each state, `[S]`.
    #[must_use]
    pub fn state_mass(&self) -> Vec<f64> {
        self.mass.chunks(self.actions).map(|row| row.iter().sum()).collect()
    }

    /// `π(a|s) = d(s,a)/Σ_a' d(s,a')`; states without mass get `fallback`'s row.
    ///
    /// # Errors
    /// If shapes differ.
    pub fn policy(&self, fallback: &Policy) -> Result<Policy, CmdpError> {
        Policy::from_mass(fallback, &self.mass)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normalises_and_averages() {
        let d = Occupancy::normalized(2, 2, vec![1.0, 1.0, 2.0, 0.0]).unwrap();
        assert_eq!(d.mass(), &[0.25, 0.25, 0.5, 0.0]);
        assert_eq!(d.state_mass(), &[0.5, 0.5]);
        assert_eq!(d.expectation(&[4.0, 0.0, 2.0, 100.0]), 2.0);
        let policy = d.policy(&Policy::uniform(2, 2).unwrap()).unwrap();
        assert_eq!(policy.probabilities(), &[0.5, 0.5, 1.0, 0.0]);
    }

    #[test]
    fn nonsense_is_refused() {
        assert!(Occupancy::normalized(1, 2, vec![0.0, 0.0]).is_err());
        assert!(Occupancy::normalized(1, 2, vec![1.0, -0.1]).is_err());
        assert!(Occupancy::normalized(1, 2, vec![1.0]).is_err());
        assert!(Occupancy::normalized(1, 2, vec![1.0, f64::NAN]).is_err());
    }
}
