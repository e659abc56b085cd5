//! Distributions over logged samples `x = (s0, s, a, s')`, the data of the cost bound.
//!
//! `s0` is drawn independently of `(s,a,s')`, so that a distribution over samples is the product of `p0` and of a
//! distribution over triples, and so is its tilted form (`eq:cost_ub_weights`).

use coptidice_core::{Cmdp, CmdpError};

/// Mass of every triple `(s,a,s')`, and of every pair's steps that end the episode. Need not sum to one: the
/// bound is defined for any positive measure, and one kind of data adds a floor to every triple.
#[derive(Clone, Debug, PartialEq)]
pub struct Samples {
    pub(crate) states: usize,
    pub(crate) actions: usize,
    pub(crate) row_start: Vec<usize>,
    pub(crate) next: Vec<u32>,
    pub(crate) mass: Vec<f64>,
    /// `[S*A]`, or empty when no step ends.
    pub(crate) end_mass: Vec<f64>,
    pub(crate) initial: Vec<(u32, f64)>,
    pub(crate) gamma: f64,
    pub(crate) restarts: bool,
}

impl Samples {
    /// `d^D(s,a)·T(s'|s,a)` for the transitions of `m`.
    ///
    /// # Errors
    /// [`CmdpError::Shape`] if `data_occupancy` has another shape than the CMDP.
    pub fn from_model(m: &Cmdp, data_occupancy: &[f64]) -> Result<Self, CmdpError> {
        Self::with_floor(m, data_occupancy, 0.0)
    }

    /// As [`Self::from_model`], with `floor` added to all `S·A·S` triples, seen or not (the paper's own program
    /// adds 1e-10 and does not normalise).
    ///
    /// # Errors
    /// [`CmdpError::Shape`] if `data_occupancy` has another shape than the CMDP.
    pub fn with_floor(m: &Cmdp, data_occupancy: &[f64], floor: f64) -> Result<Self, CmdpError> {
        if data_occupancy.len() != m.pairs() {
            let (expected, found) = (m.pairs(), data_occupancy.len());
            return Err(CmdpError::Shape { what: "data occupancy", expected, found });
        }
        let mut samples = Self {
            states: m.states(),
            actions: m.actions(),
            row_start: vec![0],
            next: Vec::new(),
            mass: Vec::new(),
            end_mass: Vec::new(),
            initial: m
                .initial()
                .iter()
                .enumerate()
                .filter(|(_, p)| **p > 0.0)
                .map(|(s, &p)| (s as u32, p))
                .collect(),
            gamma: m.gamma(),
            restarts: m.restarts(),
        };
        for (pair, &d) in data_occupancy.iter().enumerate() {
            let (next, probability) = m.row(pair);
            if floor > 0.0 {
                let row = samples.mass.len();
                samples.next.extend(0..m.states() as u32);
                samples.mass.resize(row + m.states(), floor);
                for (&s, &p) in next.iter().zip(probability) {
                    samples.mass[row + s as usize] += d * p;
                }
            } else if d > 0.0 {
                samples.next.extend_from_slice(next);
                samples.mass.extend(probability.iter().map(|&p| d * p));
            }
            samples.row_start.push(samples.next.len());
        }
        if m.transitions().has_ends() {
            let ends = data_occupancy.iter().enumerate();
            samples.end_mass = ends.map(|(pair, &d)| d * m.transitions().end_probability(pair)).collect();
        }
        Ok(samples)
    }

    /// Number of pairs `S·A`.
    #[must_use]
    pub fn pairs(&self) -> usize {
        self.states * self.actions
    }

    /// Number of triples with mass.
    #[must_use]
    pub fn stored(&self) -> usize {
        self.next.len()
    }

    pub(crate) fn row(&self, pair: usize) -> (&[u32], &[f64]) {
        let range = self.row_start[pair]..self.row_start[pair + 1];
        (&self.next[range.clone()], &self.mass[range])
    }

    pub(crate) fn end(&self, pair: usize) -> f64 {
        self.end_mass.get(pair).copied().unwrap_or(0.0)
    }
}
