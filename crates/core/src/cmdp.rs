//! Finite constrained Markov decision processes.
//!
//! A [`Cmdp`] holds `T(s'|s,a)` in compressed rows, one row per pair `(s,a)`, row `s·A + a`. Arrays over pairs are
//! flat, `[S*A]`, in the same order. Values and occupancies are `(1−γ)`-normalised everywhere, so that every
//! expectation is an average per step.
//!
//! # How an episode ends
//!
//! A step may end the episode. Its row then carries an *end probability* beside its successors, and
//! [`EpisodeEnd`] says what an end means:
//!
//! | | flow out of the end | value of the end | use |
//! |---|---|---|---|
//! | [`EpisodeEnd::Absorb`] | none: what is left of the discounted time is spent without reward or cost | 0 | `γ < 1`, terminals stop bootstrapping |
//! | [`EpisodeEnd::Restart`] | back to `p0` | `p0ᵀν` | the restart chain, the exact reading of per-episode limits at `γ = 1` |
//!
//! Keeping the end out of the successor lists keeps rows sparse: in the restart chain every ending row would
//! otherwise hold the whole of `p0`.

use serde::{Deserialize, Serialize};

/// By how much the probabilities of one row, or of `p0`, may miss a sum of one. They are sums of at most a few
/// thousand doubles, each written with at least 9 digits.
pub const SUM_TOLERANCE: f64 = 1e-8;

/// What it means that a step ends the episode; see the module's table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EpisodeEnd {
    /// The process stays in a state without reward, cost or way out, which is not one of the `S` states.
    #[default]
    Absorb,
    /// The next state is drawn from `p0`.
    Restart,
}

/// `T(s'|s,a)` in compressed rows, and the probability that the step ends the episode.
///
/// Row `s·A + a` has successors `next_state[row_start[row]..row_start[row+1]]`, strictly increasing, with the
/// `probability` beside them. Rows sum to one together with `end_probability`.
#[derive(Clone, Debug, PartialEq)]
pub struct Transitions {
    states: usize,
    actions: usize,
    row_start: Vec<usize>,
    next_state: Vec<u32>,
    probability: Vec<f64>,
    end_probability: Vec<f64>,
}

impl Transitions {
    /// Builds rows from `(s, a, s', p)` in any order; repeated successors of a pair add up, zeros are dropped.
    ///
    /// # Errors
    /// [`CmdpError`] if an index is out of range or a probability is negative or not finite. Row sums are checked
    /// by [`Cmdp::new`], after ends are known.
    pub fn from_triples(
        states: usize,
        actions: usize,
        triples: impl IntoIterator<Item = (usize, usize, usize, f64)>,
    ) -> Result<Self, CmdpError> {
        check_size(states, actions)?;
        let mut entries = Vec::new();
        for (state, action, next, probability) in triples {
            if state >= states || action >= actions || next >= states {
                return Err(CmdpError::Index { state, action, next, states, actions });
            }
            if !probability.is_finite() || probability < 0.0 {
                return Err(CmdpError::Probability { state, action, next, probability });
            }
            if probability > 0.0 {
                // `check_size` bounds states·actions by u32.
                entries.push((state * actions + action, next as u32, probability));
            }
        }
        entries.sort_by_key(|&(pair, next, _)| (pair, next));
        let mut rows = Self {
            states,
            actions,
            row_start: vec![0; states * actions + 1],
            next_state: Vec::with_capacity(entries.len()),
            probability: Vec::with_capacity(entries.len()),
            end_probability: Vec::new(),
        };
        let mut last = None;
        for (pair, next, probability) in entries {
            if last == Some((pair, next)) {
                *rows.probability.last_mut().expect("a previous entry was pushed") += probability;
            } else {
                rows.next_state.push(next);
                rows.probability.push(probability);
                last = Some((pair, next));
            }
            rows.row_start[pair + 1] = rows.next_state.len();
        }
        for pair in 0..states * actions {
            rows.row_start[pair + 1] = rows.row_start[pair + 1].max(rows.row_start[pair]);
        }
        Ok(rows)
    }

    /// Adds the probability `[S*A]` that a step ends the episode. All zero is the same as none.
    ///
    /// # Errors
    /// If the shape is wrong or a value lies outside `[0, 1]`.
    pub fn with_end_probability(mut self, end_probability: Vec<f64>) -> Result<Self, CmdpError> {
        check_len("end probability", end_probability.len(), self.states * self.actions)?;
        for (pair, &p) in end_probability.iter().enumerate() {
            if !(0.0..=1.0 + SUM_TOLERANCE).contains(&p) {
                return Err(CmdpError::EndProbability {
                    state: pair / self.actions,
                    action: pair % self.actions,
                    probability: p,
                });
            }
        }
        let ends = end_probability.iter().any(|&p| p > 0.0);
        self.end_probability = if ends { end_probability } else { Vec::new() };
        Ok(self)
    }

    /// Successors of a pair and their probabilities.
    #[must_use]
    pub fn row(&self, pair: usize) -> (&[u32], &[f64]) {
        let range = self.row_start[pair]..self.row_start[pair + 1];
        (&self.next_state[range.clone()], &self.probability[range])
    }

    /// Probability that the step from `pair` ends the episode.
    #[must_use]
    pub fn end_probability(&self, pair: usize) -> f64 {
        self.end_probability.get(pair).copied().unwrap_or(0.0)
    }

    /// Whether any step can end the episode.
    #[must_use]
    pub fn has_ends(&self) -> bool {
        !self.end_probability.is_empty()
    }

    /// Number of stored successors over all rows.
    #[must_use]
    pub fn stored(&self) -> usize {
        self.next_state.len()
    }
}

/// Everything a [`Cmdp`] is made of, by name.
#[derive(Clone, Debug, PartialEq)]
pub struct CmdpParts {
    /// Transition rows; they fix `S` and `A`.
    pub transitions: Transitions,
    /// Meaning of an ended episode.
    pub episode_end: EpisodeEnd,
    /// `R(s,a)`, `[S*A]`, reward units per step.
    pub reward: Vec<f64>,
    /// `C_k(s,a)`, `[K][S*A]`, cost units per step. May be empty.
    pub costs: Vec<Vec<f64>>,
    /// `p0`, `[S]`.
    pub initial: Vec<f64>,
    /// Discount in `(0, 1]`.
    pub gamma: f64,
}

/// A validated finite CMDP.
#[derive(Clone, Debug, PartialEq)]
pub struct Cmdp {
    parts: CmdpParts,
}

impl Cmdp {
    /// Checks shapes, finiteness, row sums, `p0` and `gamma`.
    ///
    /// # Errors
    /// The first defect found, with its place.
    pub fn new(parts: CmdpParts) -> Result<Self, CmdpError> {
        let t = &parts.transitions;
        let pairs = t.states * t.actions;
        check_len("reward", parts.reward.len(), pairs)?;
        check_finite("reward", &parts.reward, t.actions)?;
        for cost in &parts.costs {
            check_len("cost", cost.len(), pairs)?;
            check_finite("cost", cost, t.actions)?;
        }
        if !(parts.gamma > 0.0 && parts.gamma <= 1.0) {
            return Err(CmdpError::Gamma(parts.gamma));
        }
        if parts.gamma == 1.0 && t.has_ends() && parts.episode_end == EpisodeEnd::Absorb {
            return Err(CmdpError::UndiscountedEnds);
        }
        check_len("initial distribution", parts.initial.len(), t.states)?;
        let sum: f64 = parts.initial.iter().sum();
        if parts.initial.iter().any(|&p| !(p.is_finite() && p >= 0.0)) || (sum - 1.0).abs() > SUM_TOLERANCE {
            return Err(CmdpError::Initial { sum });
        }
        for pair in 0..pairs {
            let sum = t.row(pair).1.iter().sum::<f64>() + t.end_probability(pair);
            if (sum - 1.0).abs() > SUM_TOLERANCE {
                return Err(CmdpError::RowSum { state: pair / t.actions, action: pair % t.actions, sum });
            }
        }
        Ok(Self { parts })
    }

    /// Number of states `S`.
    #[must_use]
    pub fn states(&self) -> usize {
        self.parts.transitions.states
    }

    /// Number of actions `A`.
    #[must_use]
    pub fn actions(&self) -> usize {
        self.parts.transitions.actions
    }

    /// Number of pairs `S·A`.
    #[must_use]
    pub fn pairs(&self) -> usize {
        self.states() * self.actions()
    }

    /// Number of costs `K`.
    #[must_use]
    pub fn cost_count(&self) -> usize {
        self.parts.costs.len()
    }

    /// Discount in `(0, 1]`.
    #[must_use]
    pub fn gamma(&self) -> f64 {
        self.parts.gamma
    }

    /// `R(s,a)`, `[S*A]`.
    #[must_use]
    pub fn reward(&self) -> &[f64] {
        &self.parts.reward
    }

    /// `C_k(s,a)`, `[S*A]`.
    #[must_use]
    pub fn cost(&self, k: usize) -> &[f64] {
        &self.parts.costs[k]
    }

    /// All costs, `[K][S*A]`.
    #[must_use]
    pub fn costs(&self) -> &[Vec<f64>] {
        &self.parts.costs
    }

    /// `p0`, `[S]`.
    #[must_use]
    pub fn initial(&self) -> &[f64] {
        &self.parts.initial
    }

    /// Transition rows.
    #[must_use]
    pub fn transitions(&self) -> &Transitions {
        &self.parts.transitions
    }

    /// Successors of a pair and their probabilities.
    #[must_use]
    pub fn row(&self, pair: usize) -> (&[u32], &[f64]) {
        self.parts.transitions.row(pair)
    }

    /// Meaning of an ended episode.
    #[must_use]
    pub fn episode_end(&self) -> EpisodeEnd {
        self.parts.episode_end
    }

    /// Whether ended episodes start anew from `p0`, and some do end.
    #[must_use]
    pub fn restarts(&self) -> bool {
        self.parts.episode_end == EpisodeEnd::Restart && self.parts.transitions.has_ends()
    }

    /// Whether no action leaves the state.
    #[must_use]
    pub fn is_absorbing(&self, state: usize) -> bool {
        (0..self.actions()).all(|a| {
            let (next, _) = self.row(state * self.actions() + a);
            let ends = self.parts.transitions.end_probability(state * self.actions() + a) > 0.0;
            !ends && next.iter().all(|&s| s as usize == state)
        })
    }

    /// `Σ_s' T(s'|s,a) ν(s')`, ended episodes counted with `end_value` (0, or `p0ᵀν` in the restart chain).
    #[must_use]
    pub fn expect_next(&self, pair: usize, nu: &[f64], end_value: f64) -> f64 {
        let (next, probability) = self.row(pair);
        let mut sum = 0.0;
        for (&s, &p) in next.iter().zip(probability) {
            sum += p * nu[s as usize];
        }
        sum + self.parts.transitions.end_probability(pair) * end_value
    }

    /// The value of an ended episode under state values `nu`.
    #[must_use]
    pub fn end_value(&self, nu: &[f64]) -> f64 {
        if self.restarts() { self.initial().iter().zip(nu).map(|(&p, &v)| p * v).sum() } else { 0.0 }
    }

    /// Takes the parts out again, to change and revalidate them.
    #[must_use]
    pub fn into_parts(self) -> CmdpParts {
        self.parts
    }
}

/// A defect of a CMDP, a policy or an occupancy, with its place.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CmdpError {
    /// No states or actions, or more pairs than indices.
    #[error("{states} states and {actions} actions: both must be positive and their product below 2^32")]
    Size {
        /// Number of states given.
        states: usize,
        /// Number of actions given.
        actions: usize,
    },
    /// An array of the wrong length.
    #[error("{what} has {found} entries where {expected} are needed")]
    Shape {
        /// Which array.
        what: &'static str,
        /// Length needed.
        expected: usize,
        /// Length given.
        found: usize,
    },
    /// A transition out of range.
    #[error("transition ({state}, {action}) -> {next} lies outside {states} states x {actions} actions")]
    Index {
        /// State of the pair.
        state: usize,
        /// Action of the pair.
        action: usize,
        /// Successor.
        next: usize,
        /// Number of states.
        states: usize,
        /// Number of actions.
        actions: usize,
    },
    /// A transition probability that is negative or not finite.
    #[error("transition ({state}, {action}) -> {next} has probability {probability}; give a number >= 0")]
    Probability {
        /// State of the pair.
        state: usize,
        /// Action of the pair.
        action: usize,
        /// Successor.
        next: usize,
        /// Value given.
        probability: f64,
    },
    /// An end probability outside `[0, 1]`.
    #[error("pair ({state}, {action}) ends the episode with probability {probability}, outside [0, 1]")]
    EndProbability {
        /// State of the pair.
        state: usize,
        /// Action of the pair.
        action: usize,
        /// Value given.
        probability: f64,
    },
    /// A row that does not sum to one.
    #[error(
        "transitions from state {state} under action {action} sum to {sum}, not 1; normalise them, or give the missing mass to an absorbing state"
    )]
    RowSum {
        /// State of the pair.
        state: usize,
        /// Action of the pair.
        action: usize,
        /// Sum found.
        sum: f64,
    },
    /// A reward, cost, policy or occupancy entry that is not a usable number.
    #[error("{what} of state {state} under action {action} is {value}; give a finite number")]
    NotFinite {
        /// Which array.
        what: &'static str,
        /// State of the pair.
        state: usize,
        /// Action of the pair.
        action: usize,
        /// Value given.
        value: f64,
    },
    /// A discount outside `(0, 1]`.
    #[error("gamma = {0} lies outside (0, 1]")]
    Gamma(f64),
    /// `γ = 1` with ends that absorb: every average would be zero.
    #[error("gamma = 1 with episodes that end: use the restart chain (EpisodeEnd::Restart), or gamma < 1")]
    UndiscountedEnds,
    /// `p0` negative, not finite, or not summing to one.
    #[error("initial distribution has negative entries or sums to {sum}, not 1")]
    Initial {
        /// Sum found.
        sum: f64,
    },
    /// A policy row that is no distribution.
    #[error("the policy's probabilities in state {state} are negative or sum to {sum}, not 1")]
    PolicyRow {
        /// State.
        state: usize,
        /// Sum found.
        sum: f64,
    },
    /// An occupancy with negative entries or no mass.
    #[error(
        "occupancy of state {state} under action {action} is {value}; occupancies are finite, >= 0 and sum to a positive number"
    )]
    Occupancy {
        /// State of the pair.
        state: usize,
        /// Action of the pair.
        action: usize,
        /// Value given.
        value: f64,
    },
}

pub(crate) fn check_size(states: usize, actions: usize) -> Result<(), CmdpError> {
    let pairs = states.checked_mul(actions);
    match pairs {
        Some(n) if n > 0 && u32::try_from(n).is_ok() => Ok(()),
        _ => Err(CmdpError::Size { states, actions }),
    }
}

pub(crate) fn check_len(what: &'static str, found: usize, expected: usize) -> Result<(), CmdpError> {
    if found == expected { Ok(()) } else { Err(CmdpError::Shape { what, expected, found }) }
}

fn check_finite(what: &'static str, values: &[f64], actions: usize) -> Result<(), CmdpError> {
    match values.iter().position(|v| !v.is_finite()) {
        None => Ok(()),
        Some(pair) => Err(CmdpError::NotFinite {
            what,
            state: pair / actions,
            action: pair % actions,
            value: values[pair],
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two states, two actions; state 1 absorbs.
    fn parts() -> CmdpParts {
        let t = Transitions::from_triples(
            2,
            2,
            [
                (0, 0, 1, 0.5),
                (0, 0, 0, 0.25),
                (0, 0, 0, 0.25),
                (0, 1, 1, 1.0),
                (1, 0, 1, 1.0),
                (1, 1, 1, 1.0),
            ],
        )
        .unwrap();
        CmdpParts {
            transitions: t,
            episode_end: EpisodeEnd::Absorb,
            reward: vec![1.0, 0.0, 0.0, 0.0],
            costs: vec![vec![0.0; 4]],
            initial: vec![1.0, 0.0],
            gamma: 0.9,
        }
    }

    #[test]
    fn rows_are_sorted_and_merged() {
        let m = Cmdp::new(parts()).unwrap();
        assert_eq!(m.row(0), (&[0, 1][..], &[0.5, 0.5][..]));
        assert_eq!((m.is_absorbing(0), m.is_absorbing(1)), (false, true));
        assert_eq!(m.expect_next(0, &[2.0, 4.0], 7.0), 3.0);
    }

    #[test]
    fn rows_without_entries_keep_their_place() {
        let t = Transitions::from_triples(3, 1, [(1, 0, 2, 1.0)]).unwrap();
        assert_eq!(t.row(0).0.len(), 0);
        assert_eq!(t.row(1).0, &[2]);
        assert_eq!(t.row(2).0.len(), 0);
        let t = t.with_end_probability(vec![1.0, 0.0, 1.0]).unwrap();
        let p = CmdpParts {
            transitions: t,
            episode_end: EpisodeEnd::Restart,
            reward: vec![0.0; 3],
            costs: vec![],
            initial: vec![0.0, 1.0, 0.0],
            gamma: 1.0,
        };
        let m = Cmdp::new(p).unwrap();
        assert!(m.restarts());
        assert_eq!(m.end_value(&[1.0, 5.0, 9.0]), 5.0);
        assert_eq!(m.expect_next(2, &[1.0, 5.0, 9.0], 5.0), 5.0);
    }

    #[test]
    fn defects_are_named() {
        let broken = |change: fn(&mut CmdpParts)| {
            let mut p = parts();
            change(&mut p);
            Cmdp::new(p).unwrap_err()
        };
        assert!(matches!(broken(|p| p.gamma = 0.0), CmdpError::Gamma(_)));
        assert!(matches!(broken(|p| p.gamma = f64::NAN), CmdpError::Gamma(_)));
        assert!(matches!(
            broken(|p| p.reward[2] = f64::INFINITY),
            CmdpError::NotFinite { state: 1, action: 0, .. }
        ));
        assert!(matches!(
            broken(|p| p.costs[0].truncate(3)),
            CmdpError::Shape { what: "cost", expected: 4, found: 3 }
        ));
        assert!(matches!(broken(|p| p.initial[1] = 0.5), CmdpError::Initial { .. }));
        let short = Transitions::from_triples(2, 2, [(0, 0, 1, 0.5)]).unwrap();
        let error = broken(|p| p.transitions = Transitions::from_triples(2, 2, [(0, 0, 1, 0.5)]).unwrap());
        assert!(matches!(error, CmdpError::RowSum { state: 0, action: 0, .. }), "{error}");
        let ends = short.with_end_probability(vec![0.5, 1.0, 1.0, 1.0]).unwrap();
        let undiscounted = CmdpParts { transitions: ends, gamma: 1.0, ..parts() };
        assert_eq!(Cmdp::new(undiscounted), Err(CmdpError::UndiscountedEnds));
        assert!(matches!(Transitions::from_triples(0, 2, []), Err(CmdpError::Size { .. })));
        assert!(matches!(
            Transitions::from_triples(1, 1, [(0, 0, 1, 1.0)]),
            Err(CmdpError::Index { next: 1, .. })
        ));
        assert!(matches!(
            Transitions::from_triples(1, 1, [(0, 0, 0, -1.0)]),
            Err(CmdpError::Probability { .. })
        ));
    }
}
