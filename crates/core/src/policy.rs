//! Policies on finite CMDPs.

use serde::{Deserialize, Serialize};

use crate::cmdp::{CmdpError, SUM_TOLERANCE, check_len, check_size};

/// `π(a|s)`, `[S*A]`, each state's row a distribution.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "RawPolicy", into = "RawPolicy")]
pub struct Policy {
    states: usize,
    actions: usize,
    probabilities: Vec<f64>,
}

/// The serialised form, `{"states","actions","probabilities":[[..],..]}`.
#[derive(Serialize, Deserialize)]
struct RawPolicy {
    states: usize,
    actions: usize,
    probabilities: Vec<Vec<f64>>,
}

impl TryFrom<RawPolicy> for Policy {
    type Error = CmdpError;

    fn try_from(raw: RawPolicy) -> Result<Self, CmdpError> {
        check_len("policy", raw.probabilities.len(), raw.states)?;
        for row in &raw.probabilities {
            check_len("policy row", row.len(), raw.actions)?;
        }
        Policy::new(raw.states, raw.actions, raw.probabilities.concat())
    }
}

impl From<Policy> for RawPolicy {
    fn from(policy: Policy) -> Self {
        let probabilities = policy.probabilities.chunks(policy.actions).map(<[f64]>::to_vec).collect();
        RawPolicy { states: policy.states, actions: policy.actions, probabilities }
    }
}

impl Policy {
    /// A policy from its table.
    ///
    /// # Errors
    /// If the shape is wrong or a row is no distribution.
    pub fn new(states: usize, actions: usize, probabilities: Vec<f64>) -> Result<Self, CmdpError> {
        check_size(states, actions)?;
        check_len("policy", probabilities.len(), states * actions)?;
        for (state, row) in probabilities.chunks(actions).enumerate() {
            let sum: f64 = row.iter().sum();
            if row.iter().any(|&p| p.is_nan() || p < 0.0) || (sum - 1.0).abs() > SUM_TOLERANCE || sum.is_nan()
            {
                return Err(CmdpError::PolicyRow { state, sum });
            }
        }
        Ok(Self { states, actions, probabilities })
    }

    /// Every action equally likely.
    ///
    /// # Errors
    /// If there are no states or actions.
    pub fn uniform(states: usize, actions: usize) -> Result<Self, CmdpError> {
        check_size(states, actions)?;
        Ok(Self { states, actions, probabilities: vec![1.0 / actions as f64; states * actions] })
    }

    /// One action per state.
    ///
    /// # Errors
    /// If `choice` is empty or names an action that does not exist.
    pub fn deterministic(actions: usize, choice: &[usize]) -> Result<Self, CmdpError> {
        check_size(choice.len(), actions)?;
        let mut probabilities = vec![0.0; choice.len() * actions];
        for (state, &action) in choice.iter().enumerate() {
            if action >= actions {
                return Err(CmdpError::Index { state, action, next: 0, states: choice.len(), actions });
            }
            probabilities[state * actions + action] = 1.0;
        }
        Ok(Self { states: choice.len(), actions, probabilities })
    }

    /// `π(a|s) ∝ mass(s,a)` for a table of non-negative masses; states without any mass get `fallback`'s row.
    ///
    /// # Errors
    /// If shapes differ or a mass is negative or not finite.
    pub fn from_mass(fallback: &Policy, mass: &[f64]) -> Result<Self, CmdpError> {
        check_len("mass", mass.len(), fallback.probabilities.len())?;
        let actions = fallback.actions;
        if let Some(pair) = mass.iter().position(|m| !(m.is_finite() && *m >= 0.0)) {
            return Err(CmdpError::Occupancy {
                state: pair / actions,
                action: pair % actions,
                value: mass[pair],
            });
        }
        let mut probabilities = fallback.probabilities.clone();
        for (row, m) in probabilities.chunks_mut(actions).zip(mass.chunks(actions)) {
            let sum: f64 = m.iter().sum();
            if sum > 0.0 {
                for (p, &x) in row.iter_mut().zip(m) {
                    *p = x / sum;
                }
            }
        }
        Ok(Self { states: fallback.states, actions, probabilities })
    }

    /// `(1−share)·self + share·other`, state by state.
    ///
    /// # Errors
    /// If shapes differ.
    pub fn mixed(&self, other: &Policy, share: f64) -> Result<Self, CmdpError> {
        check_len("other policy", other.probabilities.len(), self.probabilities.len())?;
        let probabilities =
            self.probabilities.iter().zip(&other.probabilities).map(|(&p, &q)| (1.0 - share) * p + share * q);
        Policy::new(self.states, self.actions, probabilities.collect())
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

    /// `π(·|s)`, `[A]`.
    #[must_use]
    pub fn row(&self, state: usize) -> &[f64] {
        &self.probabilities[state * self.actions..(state + 1) * self.actions]
    }

    /// The whole table, `[S*A]`.
    #[must_use]
    pub fn probabilities(&self) -> &[f64] {
        &self.probabilities
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_must_be_distributions() {
        assert!(Policy::new(1, 2, vec![0.5, 0.5]).is_ok());
        for bad in [vec![0.5, 0.4], vec![1.5, -0.5], vec![f64::NAN, 1.0]] {
            assert!(matches!(Policy::new(1, 2, bad), Err(CmdpError::PolicyRow { state: 0, .. })));
        }
        assert!(matches!(Policy::new(2, 2, vec![1.0, 0.0]), Err(CmdpError::Shape { .. })));
        assert!(Policy::deterministic(2, &[0, 2]).is_err());
    }

    #[test]
    fn masses_become_conditionals_and_empty_states_fall_back() {
        let fallback = Policy::deterministic(2, &[1, 1]).unwrap();
        let policy = Policy::from_mass(&fallback, &[3.0, 1.0, 0.0, 0.0]).unwrap();
        assert_eq!(policy.probabilities(), &[0.75, 0.25, 0.0, 1.0]);
        assert!(Policy::from_mass(&fallback, &[3.0, -1.0, 0.0, 0.0]).is_err());
        let half = policy.mixed(&Policy::uniform(2, 2).unwrap(), 0.5).unwrap();
        assert_eq!(half.row(1), &[0.25, 0.75]);
    }

    #[test]
    fn json_has_nested_rows_and_is_checked() {
        let policy = Policy::deterministic(2, &[1, 0]).unwrap();
        let json = serde_json::to_string(&policy).unwrap();
        assert_eq!(json, r#"{"states":2,"actions":2,"probabilities":[[0.0,1.0],[1.0,0.0]]}"#);
        assert_eq!(serde_json::from_str::<Policy>(&json).unwrap(), policy);
        assert!(
            serde_json::from_str::<Policy>(r#"{"states":1,"actions":2,"probabilities":[[0.0,0.5]]}"#)
                .is_err()
        );
    }
}
