//! The part of a CMDP that the data supports (`eq:lp_empirical`), renumbered.
//!
//! A pair can carry flow only if `d^D(s,a) > 0` and none of its successors is a dead end, that is a state in which
//! no pair can carry flow. States that cannot be reached from `p0` through such pairs have occupancy zero. Both
//! are left out: the dual has neither a gradient nor curvature there.

use std::ops::Range;

use coptidice_core::Cmdp;

use crate::linalg::flow::{Pairs, Tables};

/// Reachable states `0..n` and supported pairs, grouped by state.
pub(crate) struct Reduced {
    /// Original state of each reduced state.
    pub(crate) states: Vec<u32>,
    /// Original pair of each reduced pair.
    pub(crate) pairs: Vec<u32>,
    /// Reduced state of each reduced pair.
    pub(crate) owner: Vec<u32>,
    /// First pair of each state, `[n+1]`.
    pub(crate) state_start: Vec<usize>,
    /// Successor rows.
    succ_start: Vec<usize>,
    succ: Vec<u32>,
    succ_probability: Vec<f64>,
    /// Rows `a_p = γT(·|s,a) − 1{s}` without the restart, strictly increasing index.
    row_start: Vec<usize>,
    row_index: Vec<u32>,
    row_value: Vec<f64>,
    /// Probability that the step ends the episode.
    pub(crate) end: Vec<f64>,
    /// `d^D`.
    pub(crate) data: Vec<f64>,
    /// `R`.
    pub(crate) reward: Vec<f64>,
    /// `C_k`.
    pub(crate) costs: Vec<Vec<f64>>,
    /// `p0`.
    pub(crate) initial: Vec<f64>,
    /// Whether ended episodes start anew and some do end.
    pub(crate) restarts: bool,
    pub(crate) gamma: f64,
    /// `Σ d^D` of the pairs left out.
    pub(crate) left_out: f64,
}

impl Reduced {
    /// `None` when `p0` itself has mass on a dead end: then no occupancy in the data's support exists.
    pub(crate) fn new(m: &Cmdp, data: &[f64]) -> Option<Self> {
        let (states, actions) = (m.states(), m.actions());
        let mut live: Vec<bool> = data.iter().map(|&d| d > 0.0).collect();
        let mut dead = vec![false; states];
        loop {
            let mut changed = false;
            for s in 0..states {
                if !dead[s] && !live[s * actions..(s + 1) * actions].iter().any(|&l| l) {
                    dead[s] = true;
                    changed = true;
                }
            }
            if !changed {
                break;
            }
            for (pair, l) in live.iter_mut().enumerate() {
                *l = *l && !m.row(pair).0.iter().any(|&t| dead[t as usize]);
            }
        }
        if (0..states).any(|s| dead[s] && m.initial()[s] > 0.0) {
            return None;
        }
        let mut reached: Vec<bool> = m.initial().iter().map(|&p| p > 0.0).collect();
        let mut queue: Vec<usize> = (0..states).filter(|&s| reached[s]).collect();
        while let Some(s) = queue.pop() {
            for pair in (s * actions..(s + 1) * actions).filter(|&p| live[p]) {
                for &t in m.row(pair).0 {
                    if !std::mem::replace(&mut reached[t as usize], true) {
                        queue.push(t as usize);
                    }
                }
            }
        }
        Some(Self::collect(m, data, &live, &reached))
    }

    fn collect(m: &Cmdp, data: &[f64], live: &[bool], reached: &[bool]) -> Self {
        let actions = m.actions();
        let mut place = vec![u32::MAX; m.states()];
        let mut r = Self {
            states: Vec::new(),
            pairs: Vec::with_capacity(live.len()),
            owner: Vec::with_capacity(live.len()),
            state_start: vec![0],
            succ_start: vec![0],
            succ: Vec::with_capacity(m.transitions().stored()),
            succ_probability: Vec::with_capacity(m.transitions().stored()),
            row_start: vec![0],
            row_index: Vec::with_capacity(m.transitions().stored() + live.len()),
            row_value: Vec::with_capacity(m.transitions().stored() + live.len()),
            end: Vec::new(),
            data: Vec::with_capacity(live.len()),
            reward: Vec::with_capacity(live.len()),
            costs: vec![Vec::with_capacity(live.len()); m.cost_count()],
            initial: Vec::new(),
            restarts: m.restarts(),
            gamma: m.gamma(),
            left_out: 0.0,
        };
        for s in (0..m.states()).filter(|&s| reached[s]) {
            place[s] = r.states.len() as u32;
            r.states.push(s as u32);
            r.initial.push(m.initial()[s]);
        }
        for s in 0..m.states() {
            for pair in s * actions..(s + 1) * actions {
                if reached[s] && live[pair] {
                    r.push_pair(m, data, &place, pair);
                } else {
                    r.left_out += data[pair];
                }
            }
            if reached[s] {
                r.state_start.push(r.pairs.len());
            }
        }
        r
    }

    fn push_pair(&mut self, m: &Cmdp, data: &[f64], place: &[u32], pair: usize) {
        let owner = place[pair / m.actions()];
        let (next, probability) = m.row(pair);
        let mut own_pending = true;
        for (&t, &p) in next.iter().zip(probability) {
            let t = place[t as usize];
            self.succ.push(t);
            self.succ_probability.push(p);
            if own_pending && t >= owner {
                own_pending = false;
                self.row_index.push(owner);
                self.row_value.push(if t == owner { self.gamma * p - 1.0 } else { -1.0 });
                if t == owner {
                    continue;
                }
            }
            self.row_index.push(t);
            self.row_value.push(self.gamma * p);
        }
        if own_pending {
            self.row_index.push(owner);
            self.row_value.push(-1.0);
        }
        self.succ_start.push(self.succ.len());
        self.row_start.push(self.row_index.len());
        self.pairs.push(pair as u32);
        self.owner.push(owner);
        self.end.push(m.transitions().end_probability(pair));
        self.data.push(data[pair]);
        self.reward.push(m.reward()[pair]);
        for (k, c) in self.costs.iter_mut().enumerate() {
            c.push(m.cost(k)[pair]);
        }
    }

    /// The row `a_p` over reduced states.
    pub(crate) fn row(&self, p: usize) -> (&[u32], &[f64]) {
        let range = self.row_start[p]..self.row_start[p + 1];
        (&self.row_index[range.clone()], &self.row_value[range])
    }

    /// `a_pᵀ ν`, plus `γ·end·end_value`.
    pub(crate) fn apply_row(&self, p: usize, nu: &[f64], end_value: f64) -> f64 {
        let (index, value) = self.row(p);
        let mut sum = self.gamma * self.end[p] * end_value;
        for (&i, &v) in index.iter().zip(value) {
            sum += v * nu[i as usize];
        }
        sum
    }

    /// Number of reduced states.
    pub(crate) fn n(&self) -> usize {
        self.states.len()
    }

    /// Number of reduced pairs.
    pub(crate) fn pair_count(&self) -> usize {
        self.pairs.len()
    }

    /// All rows' index lists, for the sparsity pattern of the normal matrix.
    pub(crate) fn row_indices(&self) -> impl Iterator<Item = &[u32]> {
        (0..self.pair_count()).map(|p| self.row(p).0)
    }
}

impl Pairs for Reduced {
    fn states(&self) -> usize {
        self.n()
    }
    fn pairs_of(&self, state: usize) -> Range<usize> {
        self.state_start[state]..self.state_start[state + 1]
    }
    fn successors(&self, pair: usize) -> (&[u32], &[f64]) {
        let range = self.succ_start[pair]..self.succ_start[pair + 1];
        (&self.succ[range.clone()], &self.succ_probability[range])
    }
    fn end(&self, pair: usize) -> f64 {
        self.end[pair]
    }
    fn initial(&self) -> &[f64] {
        &self.initial
    }
    fn restarts(&self) -> bool {
        self.restarts
    }
    fn gamma(&self) -> f64 {
        self.gamma
    }
}

impl Tables for Reduced {
    fn reward(&self) -> &[f64] {
        &self.reward
    }
    fn costs(&self) -> &[Vec<f64>] {
        &self.costs
    }
}
