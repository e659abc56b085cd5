//! `(I − γP_π)x = b` and `(I − γP_π)ᵀx = b` for a policy on a CMDP with `γ < 1`.
//!
//! Small chains are factorised (dense LU). Others are solved by BiCGSTAB, and should that stall, factorised as far as
//! memory allows, beyond that by the fixed-point iteration `x ← b + γP_πx`, a contraction, so that an answer always
//! comes.

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

/// Largest number of states for which a chain is factorised at once. For one right-hand side on a random chain with 16
/// successors a state, LU and BiCGSTAB take as long at 100 states; at 400 LU takes 25 times as long, at 1200 75 times
/// (`dense_or_iterative` below). Above it a factor is what is left when iterations stall.
pub(crate) const FACTOR_LIMIT: usize = 100;

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
    chain: Chain,
    /// Kept from the start up to [`FACTOR_LIMIT`] states, made when needed up to [`DENSE_LIMIT`].
    dense: Option<Dense>,
    /// Whether `dense` holds the factor of `chain`.
    factored: bool,
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
        let dense = (n <= FACTOR_LIMIT).then(|| Dense::new(n));
        Self { n, chain: Chain::default(), dense, factored: false }
    }

    /// Loads the chain of a policy: `chosen(s)` lists `(pair, probability)` of state `s`.
    pub(crate) fn load<M: Pairs, I: Iterator<Item = (usize, f64)>>(
        &mut self,
        m: &M,
        chosen: impl Fn(usize) -> I,
    ) {
        self.chain.load(m, chosen);
        self.factored = false;
        if self.n <= FACTOR_LIMIT {
            self.factor();
        }
    }

    /// Solves `(I − γP)x = b` in place.
    pub(crate) fn solve(&mut self, b: &mut [f64]) {
        self.solve_either(b, false);
    }

    /// Solves `(I − γP)ᵀx = b` in place.
    pub(crate) fn solve_transposed(&mut self, b: &mut [f64]) {
        self.solve_either(b, true);
    }

    fn solve_either(&mut self, b: &mut [f64], transposed: bool) {
        if !self.factored {
            let (mut x, mut residual) = (vec![0.0; self.n], b.to_vec());
            let target = RESIDUAL * dot(b, b).sqrt();
            let found = self.chain.bicgstab_rounds(&mut x, &mut residual, target, transposed);
            if found || self.n > DENSE_LIMIT {
                if !found {
                    self.chain.sweep(b, &mut x, &mut residual, target, transposed);
                }
                b.copy_from_slice(&x);
                return;
            }
            self.factor();
        }
        if let Some(dense) = &mut self.dense {
            dense.solve(b, transposed);
        }
    }

    fn factor(&mut self) {
        self.dense.get_or_insert_with(|| Dense::new(self.n)).load(&self.chain);
        self.factored = true;
    }

    /// Number of states.
    pub(crate) fn order(&self) -> usize {
        self.n
    }
}

impl Dense {
    fn new(n: usize) -> Self {
        let request = lu::factor::lu_in_place_scratch::<usize, f64>(n, n, Par::Seq, Default::default())
            .or(lu::solve::solve_in_place_scratch::<usize, f64>(n, 1, Par::Seq))
            .or(lu::solve::solve_transpose_in_place_scratch::<usize, f64>(n, 1, Par::Seq));
        Dense {
            factor: vec![0.0; n * n],
            forward: vec![0; n],
            inverse: vec![0; n],
            memory: MemBuffer::new(request),
        }
    }

    fn load(&mut self, chain: &Chain) {
        let n = chain.end.len();
        self.factor.fill(0.0);
        // Column s of the stored matrix is row s of I − γP: the transpose is what is factored.
        for (s, row) in self.factor.chunks_mut(n).enumerate() {
            let range = chain.row_start[s]..chain.row_start[s + 1];
            for (&t, &w) in chain.next[range.clone()].iter().zip(&chain.weight[range]) {
                row[t as usize] -= w;
            }
            if chain.end[s] > 0.0 {
                for (x, &p0) in row.iter_mut().zip(&chain.initial) {
                    *x -= chain.end[s] * p0;
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

    /// BiCGSTAB from `x`, begun anew where it stalls. Returns whether the residual's norm came down to four times
    /// `target`.
    fn bicgstab_rounds(&self, x: &mut [f64], residual: &mut [f64], target: f64, transposed: bool) -> bool {
        for _ in 0..6 {
            self.bicgstab(x, residual, target, transposed);
            if dot(residual, residual).sqrt() <= target {
                break;
            }
        }
        dot(residual, residual).sqrt() <= 4.0 * target
    }

    /// `x ← b + γP_πx` until the residual's norm is at most four times `target`: each sweep multiplies the error by γ
    /// in the maximum (or, transposed, the sum) norm.
    fn sweep(&self, b: &[f64], x: &mut [f64], residual: &mut [f64], target: f64, transposed: bool) {
        let mut image = vec![0.0; b.len()];
        for _ in 0..100_000 {
            if dot(residual, residual).sqrt() <= 4.0 * target {
                break;
            }
            for (xi, &r) in x.iter_mut().zip(residual.iter()) {
                *xi += r;
            }
            self.apply(x, &mut image, transposed);
            for ((r, &bi), &image) in residual.iter_mut().zip(b).zip(&image) {
                *r = bi - image;
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linalg::median_milliseconds;
    use rand::RngExt as _;

    /// A random chain: one action in each state, 16 successors.
    struct Random {
        successors: Vec<[u32; 16]>,
        gamma: f64,
    }

    impl Random {
        fn new(n: usize, gamma: f64) -> Self {
            let mut rng = coptidice_core::rng::stream(3, "chain", n as u64);
            let successors = (0..n).map(|_| std::array::from_fn(|_| rng.random_range(0..n as u32)));
            Self { successors: successors.collect(), gamma }
        }
    }

    impl Pairs for Random {
        fn states(&self) -> usize {
            self.successors.len()
        }
        fn pairs_of(&self, state: usize) -> Range<usize> {
            state..state + 1
        }
        fn successors(&self, pair: usize) -> (&[u32], &[f64]) {
            (&self.successors[pair], &[1.0 / 16.0; 16])
        }
        fn end(&self, _: usize) -> f64 {
            0.0
        }
        fn initial(&self) -> &[f64] {
            &[]
        }
        fn restarts(&self) -> bool {
            false
        }
        fn gamma(&self) -> f64 {
            self.gamma
        }
    }

    fn right_hand_side(n: usize) -> Vec<f64> {
        (0..n).map(|i| (i as f64).sin()).collect()
    }

    fn solution(system: &mut FlowSystem, chain: &Random, transposed: bool) -> Vec<f64> {
        let mut x = right_hand_side(chain.states());
        system.load(chain, |s| std::iter::once((s, 1.0)));
        if transposed {
            system.solve_transposed(&mut x);
        } else {
            system.solve(&mut x);
        }
        x
    }

    /// By iterations alone.
    fn iterated(chain: &Random, transposed: bool) -> Vec<f64> {
        let mut loaded = Chain::default();
        loaded.load(chain, |s| std::iter::once((s, 1.0)));
        let b = right_hand_side(chain.states());
        let (mut x, mut residual) = (vec![0.0; b.len()], b.clone());
        let target = RESIDUAL * dot(&b, &b).sqrt();
        if !loaded.bicgstab_rounds(&mut x, &mut residual, target, transposed) {
            loaded.sweep(&b, &mut x, &mut residual, target, transposed);
        }
        x
    }

    #[test]
    fn iterations_and_factors_agree() {
        let n = 60;
        assert!(n <= FACTOR_LIMIT);
        for gamma in [0.0, 0.9, 0.999] {
            let chain = Random::new(n, gamma);
            for transposed in [false, true] {
                let dense = solution(&mut FlowSystem::new(n), &chain, transposed);
                let found = iterated(&chain, transposed);
                let scale = dense.iter().fold(0.0_f64, |a, x| a.max(x.abs()));
                for (a, b) in dense.iter().zip(&found) {
                    // Residuals of 4e-14 of the right-hand side's norm, at most 8, times at most 1/(1-gamma).
                    assert!((a - b).abs() < 4e-13 / (1.0 - gamma) * scale.max(1.0), "{gamma}: {a} {b}");
                }
            }
        }
    }

    /// A long walk along a line, which BiCGSTAB does not get to the end of, is factorised.
    #[test]
    fn a_chain_on_which_iterations_stall_is_factorised() {
        let n = 1100;
        assert!((FACTOR_LIMIT..=DENSE_LIMIT).contains(&n));
        let successors = (0..n as u32).map(|s| [(s + 1) % n as u32; 16]).collect();
        let chain = Random { successors, gamma: 0.999_999_999 };
        let mut system = FlowSystem::new(n);
        let x = solution(&mut system, &chain, false);
        assert!(system.factored);
        // x_s = b_s + gamma x_{s+1}; values reach 1e9 / 1100 times the sum of b, rounded at 2^-53 of that.
        let b = right_hand_side(n);
        let largest = x.iter().fold(0.0_f64, |a, x| a.max(x.abs()));
        for s in 0..n {
            let defect = x[s] - b[s] - chain.gamma * x[(s + 1) % n];
            assert!(defect.abs() < 1e-12 * largest, "{s}: {defect} of {largest}");
        }
    }

    /// What the choice between both rests on: prints milliseconds of loading a chain and one solution.
    #[test]
    #[ignore = "prints times; run it in release, nothing else running"]
    fn dense_or_iterative() {
        for n in [50, 100, 200, 400, 800, 1200, 1600, 2400] {
            for gamma in [0.95, 0.999] {
                let chain = Random::new(n, gamma);
                let mut factor = Dense::new(n);
                let dense = median_milliseconds(|| {
                    let mut loaded = Chain::default();
                    loaded.load(&chain, |s| std::iter::once((s, 1.0)));
                    factor.load(&loaded);
                    let mut x = right_hand_side(n);
                    factor.solve(&mut x, false);
                });
                let iterative = median_milliseconds(|| {
                    std::hint::black_box(iterated(&chain, false));
                });
                println!("{n} states, gamma {gamma}: dense {dense:.3} ms, iterative {iterative:.3} ms");
            }
        }
    }
}
