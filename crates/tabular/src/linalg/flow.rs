//! `(I − γP_π)x = b` and `(I − γP_π)ᵀx = b` for a policy on a CMDP with `γ < 1`.
//!
//! Small chains are factorised (dense LU). Large ones are solved by BiCGSTAB, and should that stall, by the
//! fixed-point iteration `x ← b + γP_πx`, a contraction, so that an answer always comes.

use std::ops::Range;

use coptidice_core::Cmdp;
use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::lu::partial_pivoting as lu;
use faer::perm::PermRef;
use faer::{MatMut, MatRef, Par};

use super::DENSE_LIMIT;
use super::spd::dot;

/// Relative residual at which an iterative solution is accepted: close to what LU gives at this size.
const RESIDUAL: f64 = 1e-14;

/// What a chain of pairs must offer: a whole [`Cmdp`], or the part of it that the data supports.
pub(crate) trait Pairs {
    /// Number of states.
    fn states(&self) -> usize;
    /// The pairs of a state.
    fn pairs_of(&self, state: usize) -> Range<usize>;
    /// Successors of a pair and their probabilities.
    fn successors(&self, pair: usize) -> (&[u32], &[f64]);
    /// Probability that the step ends the episode.
    fn end(&self, pair: usize) -> f64;
    /// `p0`.
    fn initial(&self) -> &[f64];
    /// Whether ended episodes start anew.
    fn restarts(&self) -> bool;
    /// Discount.
    fn gamma(&self) -> f64;
}

/// Rewards and costs of the same pairs.
pub(crate) trait Tables: Pairs {
    /// `R`.
    fn reward(&self) -> &[f64];
    /// `C`, one table for each cost.
    fn costs(&self) -> &[Vec<f64>];
}

impl Tables for Cmdp {
    fn reward(&self) -> &[f64] {
        Cmdp::reward(self)
    }
    fn costs(&self) -> &[Vec<f64>] {
        Cmdp::costs(self)
    }
}

impl Pairs for Cmdp {
    fn states(&self) -> usize {
        Cmdp::states(self)
    }
    fn pairs_of(&self, state: usize) -> Range<usize> {
        state * self.actions()..(state + 1) * self.actions()
    }
    fn successors(&self, pair: usize) -> (&[u32], &[f64]) {
        self.row(pair)
    }
    fn end(&self, pair: usize) -> f64 {
        self.transitions().end_probability(pair)
    }
    fn initial(&self) -> &[f64] {
        Cmdp::initial(self)
    }
    fn restarts(&self) -> bool {
        Cmdp::restarts(self)
    }
    fn gamma(&self) -> f64 {
        Cmdp::gamma(self)
    }
}

/// Workspace for one number of states.
pub(crate) struct FlowSystem {
    n: usize,
    dense: Option<Dense>,
    chain: Chain,
}

struct Dense {
    factor: Vec<f64>,
    forward: Vec<usize>,
    inverse: Vec<usize>,
    memory: MemBuffer,
}

/// `γP_π` in compressed rows, and the restart as a rank-one term `γ·end·p0ᵀ`.
#[derive(Default)]
struct Chain {
    row_start: Vec<usize>,
    next: Vec<u32>,
    weight: Vec<f64>,
    end: Vec<f64>,
    initial: Vec<f64>,
}

impl FlowSystem {
    /// Workspace for `n` states.
    pub(crate) fn new(n: usize) -> Self {
        let dense = (n <= DENSE_LIMIT).then(|| {
            let request = lu::factor::lu_in_place_scratch::<usize, f64>(n, n, Par::Seq, Default::default())
                .or(lu::solve::solve_in_place_scratch::<usize, f64>(n, 1, Par::Seq))
                .or(lu::solve::solve_transpose_in_place_scratch::<usize, f64>(n, 1, Par::Seq));
            Dense {
                factor: vec![0.0; n * n],
                forward: vec![0; n],
                inverse: vec![0; n],
                memory: MemBuffer::new(request),
            }
        });
        Self { n, dense, chain: Chain::default() }
    }

    /// Loads the chain of a policy: `chosen(s)` lists `(pair, probability)` of state `s`.
    pub(crate) fn load<M: Pairs, I: Iterator<Item = (usize, f64)>>(
        &mut self,
        m: &M,
        chosen: impl Fn(usize) -> I,
    ) {
        if let Some(dense) = &mut self.dense {
            dense.load(m, chosen);
        } else {
            self.chain.load(m, chosen);
        }
    }

    /// Solves `(I − γP)x = b` in place. `x` may start from a guess only in the iterative case.
    pub(crate) fn solve(&mut self, b: &mut [f64]) {
        match &mut self.dense {
            Some(d) => d.solve(b, false),
            None => self.chain.iterate(b, false),
        }
    }

    /// Solves `(I − γP)ᵀx = b` in place.
    pub(crate) fn solve_transposed(&mut self, b: &mut [f64]) {
        match &mut self.dense {
            Some(d) => d.solve(b, true),
            None => self.chain.iterate(b, true),
        }
    }

    /// Number of states.
    pub(crate) fn order(&self) -> usize {
        self.n
    }
}

impl Dense {
    fn load<M: Pairs, I: Iterator<Item = (usize, f64)>>(&mut self, m: &M, chosen: impl Fn(usize) -> I) {
        let (n, gamma) = (m.states(), m.gamma());
        let restart = m.restarts();
        self.factor.fill(0.0);
        // Column s of the stored matrix is row s of I − γP: the transpose is what is factored.
        for (s, row) in self.factor.chunks_mut(n).enumerate() {
            let mut end = 0.0;
            for (pair, p) in chosen(s) {
                let (next, probability) = m.successors(pair);
                for (&t, &q) in next.iter().zip(probability) {
                    row[t as usize] -= gamma * p * q;
                }
                end += p * m.end(pair);
            }
            if restart && end > 0.0 {
                for (x, &p0) in row.iter_mut().zip(m.initial()) {
                    *x -= gamma * end * p0;
                }
            }
            row[s] += 1.0;
        }
        lu::factor::lu_in_place(
            MatMut::from_column_major_slice_mut(&mut self.factor, n, n),
            &mut self.forward,
            &mut self.inverse,
            Par::Seq,
            MemStack::new(&mut self.memory),
            Default::default(),
        );
    }

    fn solve(&mut self, b: &mut [f64], transposed: bool) {
        let n = b.len();
        let factor = MatRef::from_column_major_slice(&self.factor, n, n);
        let permutation = PermRef::new_checked(&self.forward, &self.inverse, n);
        let rhs = MatMut::from_column_major_slice_mut(b, n, 1);
        let stack = MemStack::new(&mut self.memory);
        if transposed {
            lu::solve::solve_in_place(factor, factor, permutation, rhs, Par::Seq, stack);
        } else {
            lu::solve::solve_transpose_in_place(factor, factor, permutation, rhs, Par::Seq, stack);
        }
    }
}

impl Chain {
    fn load<M: Pairs, I: Iterator<Item = (usize, f64)>>(&mut self, m: &M, chosen: impl Fn(usize) -> I) {
        self.row_start.clear();
        self.row_start.push(0);
        self.next.clear();
        self.weight.clear();
        self.end.clear();
        self.initial.clear();
        if m.restarts() {
            self.initial.extend_from_slice(m.initial());
        }
        for s in 0..m.states() {
            let mut end = 0.0;
            for (pair, p) in chosen(s) {
                let (next, probability) = m.successors(pair);
                self.next.extend_from_slice(next);
                self.weight.extend(probability.iter().map(|&q| m.gamma() * p * q));
                end += m.gamma() * p * m.end(pair);
            }
            self.end.push(end);
            self.row_start.push(self.next.len());
        }
    }

    /// `y = (I − γP)x`, or the transpose.
    fn apply(&self, x: &[f64], y: &mut [f64], transposed: bool) {
        y.copy_from_slice(x);
        for s in 0..x.len() {
            let range = self.row_start[s]..self.row_start[s + 1];
            for (&t, &w) in self.next[range.clone()].iter().zip(&self.weight[range]) {
                if transposed {
                    y[t as usize] -= w * x[s];
                } else {
                    y[s] -= w * x[t as usize];
                }
            }
        }
        if !self.initial.is_empty() {
            let (from, to) = if transposed { (&self.end, &self.initial) } else { (&self.initial, &self.end) };
            let through = dot(from, x);
            for (yi, &ti) in y.iter_mut().zip(to) {
                *yi -= through * ti;
            }
        }
    }

    fn iterate(&self, b: &mut [f64], transposed: bool) {
        let n = b.len();
        let target = RESIDUAL * dot(b, b).sqrt();
        let mut x = vec![0.0; n];
        let mut residual = b.to_vec();
        for _ in 0..6 {
            self.bicgstab(&mut x, &mut residual, target, transposed);
            if dot(&residual, &residual).sqrt() <= target {
                break;
            }
        }
        // Contraction: each sweep multiplies the error by γ in the maximum (or, transposed, the sum) norm.
        let mut image = vec![0.0; n];
        for _ in 0..100_000 {
            if dot(&residual, &residual).sqrt() <= 4.0 * target {
                break;
            }
            for (xi, &r) in x.iter_mut().zip(&residual) {
                *xi += r;
            }
            self.apply(&x, &mut image, transposed);
            for i in 0..n {
                residual[i] = b[i] - image[i];
            }
        }
        b.copy_from_slice(&x);
    }

    /// BiCGSTAB (van der Vorst 1992) from `x`, with `residual = b − Mx` kept true on return.
    fn bicgstab(&self, x: &mut [f64], residual: &mut [f64], target: f64, transposed: bool) {
        let n = x.len();
        let b: Vec<f64> = {
            let mut image = vec![0.0; n];
            self.apply(x, &mut image, transposed);
            image.iter().zip(residual.iter()).map(|(&i, &r)| i + r).collect()
        };
        let shadow = residual.to_vec();
        let mut direction = residual.to_vec();
        let (mut v, mut t) = (vec![0.0; n], vec![0.0; n]);
        let mut rho = dot(&shadow, residual);
        for _ in 0..500 {
            self.apply(&direction, &mut v, transposed);
            let a = rho / dot(&shadow, &v);
            if !a.is_finite() {
                break;
            }
            for i in 0..n {
                residual[i] -= a * v[i];
            }
            self.apply(residual, &mut t, transposed);
            let denominator = dot(&t, &t);
            let omega = if denominator > 0.0 { dot(&t, residual) / denominator } else { 0.0 };
            for i in 0..n {
                x[i] += a * direction[i] + omega * residual[i];
                residual[i] -= omega * t[i];
            }
            if dot(residual, residual).sqrt() <= 0.5 * target || omega == 0.0 {
                break;
            }
            let next = dot(&shadow, residual);
            let beta = next / rho * (a / omega);
            rho = next;
            for i in 0..n {
                direction[i] = residual[i] + beta * (direction[i] - omega * v[i]);
            }
        }
        self.apply(x, &mut t, transposed);
        for i in 0..n {
            residual[i] = b[i] - t[i];
        }
    }
}
