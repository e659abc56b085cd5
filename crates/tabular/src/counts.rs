//! From counts to the maximum-likelihood CMDP.

use coptidice_core::{CmdpError, StateId, Transitions};

/// Above this many triples counts are kept as a sorted list instead of a table.
const TABLE_LIMIT: usize = 1 << 20;

/// How often each `(s,a,s')` was seen.
#[derive(Clone, Debug, PartialEq)]
pub struct Counts {
    states: usize,
    actions: usize,
    /// `(pair, s', n)`, sorted, `n > 0`.
    entries: Vec<(u32, u32, f64)>,
    pair_totals: Vec<f64>,
}

impl Counts {
    /// Counts steps `(s, a, s')`.
    ///
    /// # Errors
    /// [`CmdpError::Index`] if a step lies outside, [`CmdpError::Size`] if there is nothing to count over.
    pub fn from_steps(
        states: usize,
        actions: usize,
        steps: impl IntoIterator<Item = (u32, u32, u32)>,
    ) -> Result<Self, CmdpError> {
        Self::from_weighted(states, actions, steps.into_iter().map(|(s, a, t)| (s, a, t, 1.0)))
    }

    /// Adds up `(s, a, s', n)`.
    ///
    /// # Errors
    /// As [`Self::from_steps`], and [`CmdpError::Probability`] if `n` is negative or not finite.
    pub fn from_weighted(
        states: usize,
        actions: usize,
        steps: impl IntoIterator<Item = (u32, u32, u32, f64)>,
    ) -> Result<Self, CmdpError> {
        let pairs = states.checked_mul(actions).filter(|&p| p > 0 && u32::try_from(p).is_ok());
        let Some(pairs) = pairs else { return Err(CmdpError::Size { states, actions }) };
        let table_size = pairs.saturating_mul(states);
        let mut table = vec![0.0; if table_size <= TABLE_LIMIT { table_size } else { 0 }];
        let mut list = Vec::new();
        for (s, a, t, n) in steps {
            let (state, action, next) = (s as usize, a as usize, t as usize);
            if state >= states || action >= actions || next >= states {
                return Err(CmdpError::Index { state, action, next, states, actions });
            }
            if !n.is_finite() || n < 0.0 {
                return Err(CmdpError::Probability { state, action, next, probability: n });
            }
            let pair = state * actions + action;
            if table.is_empty() {
                list.push((pair as u32, t, n));
            } else {
                table[pair * states + next] += n;
            }
        }
        let mut entries: Vec<(u32, u32, f64)> = Vec::new();
        if table.is_empty() {
            list.sort_by_key(|&(pair, t, _)| (pair, t));
            for (pair, t, n) in list {
                match entries.last_mut() {
                    Some(last) if (last.0, last.1) == (pair, t) => last.2 += n,
                    _ => entries.push((pair, t, n)),
                }
            }
        } else {
            let seen = table.iter().enumerate().filter(|(_, n)| **n > 0.0);
            entries.extend(seen.map(|(i, &n)| ((i / states) as u32, (i % states) as u32, n)));
        }
        entries.retain(|e| e.2 > 0.0);
        let mut pair_totals = vec![0.0; pairs];
        for &(pair, _, n) in &entries {
            pair_totals[pair as usize] += n;
        }
        Ok(Self { states, actions, entries, pair_totals })
    }

    /// `n(s,a)`, `[S*A]`.
    #[must_use]
    pub fn pair_totals(&self) -> &[f64] {
        &self.pair_totals
    }

    /// `(pair, s', n)`, sorted.
    #[must_use]
    pub fn entries(&self) -> &[(u32, u32, f64)] {
        &self.entries
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

    /// Sum of all counts.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.pair_totals.iter().sum()
    }

    /// `T̂(s'|s,a) = n(s,a,s')/n(s,a)`; pairs never seen lead to `unseen`.
    ///
    /// # Errors
    /// [`CmdpError::Index`] if `unseen` is not a state.
    pub fn maximum_likelihood(&self, unseen: StateId) -> Result<Transitions, CmdpError> {
        let actions = self.actions;
        let seen = self.entries.iter().map(|&(pair, t, n)| {
            let pair = pair as usize;
            (pair / actions, pair % actions, t as usize, n / self.pair_totals[pair])
        });
        let never = self.pair_totals.iter().enumerate().filter(|(_, n)| **n == 0.0);
        let default = never.map(|(pair, _)| (pair / actions, pair % actions, unseen.index(), 1.0));
        Transitions::from_triples(self.states, actions, seen.chain(default))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_become_frequencies() {
        let counts = Counts::from_steps(3, 2, [(0, 1, 1), (0, 1, 2), (0, 1, 1), (2, 0, 2)]).unwrap();
        assert_eq!(counts.total(), 4.0);
        assert_eq!(counts.pair_totals(), &[0.0, 3.0, 0.0, 0.0, 1.0, 0.0]);
        let t = counts.maximum_likelihood(StateId(2)).unwrap();
        assert_eq!(t.row(1), (&[1, 2][..], &[2.0 / 3.0, 1.0 / 3.0][..]));
        assert_eq!(t.row(0), (&[2][..], &[1.0][..]));
        assert!(counts.maximum_likelihood(StateId(3)).is_err());
    }

    #[test]
    fn table_and_list_agree() {
        // 120·100·120 triples exceed the table; the same steps are counted in a small one.
        let steps = [(5, 3, 7), (1, 0, 2), (5, 3, 7), (5, 3, 1)];
        let large = Counts::from_steps(120, 100, steps).unwrap();
        let small = Counts::from_steps(8, 4, steps).unwrap();
        let names = |c: &Counts| -> Vec<_> {
            let a = c.actions() as u32;
            c.entries().iter().map(|&(p, t, n)| (p / a, p % a, t, n)).collect()
        };
        assert_eq!(names(&large), names(&small));
        assert_eq!(names(&small)[2], (5, 3, 7, 2.0));
    }

    #[test]
    fn steps_outside_are_refused() {
        assert!(matches!(Counts::from_steps(2, 2, [(2, 0, 0)]), Err(CmdpError::Index { state: 2, .. })));
        assert!(matches!(Counts::from_steps(0, 2, []), Err(CmdpError::Size { .. })));
        assert!(Counts::from_weighted(1, 1, [(0, 0, 0, f64::NAN)]).is_err());
    }
}
