//! The units in which programs are solved.
//!
//! A reward in cents and one in millions pose the same program, and so do costs in grams and in tonnes: with `R = r R'`,
//! `α = r α'`, `C_k = c_k C'_k` and `ĉ_k = c_k ĉ'_k` the same `w` is optimal, and
//!
//! ```text
//! ν = r ν',  μ = r μ',  λ_k = (r/c_k) λ'_k,  objectives r times, bounds, τ_k, χ_k and ζ_k times c_k.
//! ```
//!
//! Tolerances are set for rewards and costs of order one, so the solvers see `R'` and `C'`. Units are powers of 1024:
//! multiplying by them is exact, and what is within a factor of 32 of one stays as it was given.

use std::borrow::Cow;

use super::reduced::Reduced;
use super::tilt::BoundedCost;
use super::{CostBound, Solution};

/// `r` and `c`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Units {
    reward: f64,
    costs: Vec<f64>,
}

impl Units {
    /// Those of a program as it is given.
    pub(super) fn given(costs: usize) -> Self {
        Self { reward: 1.0, costs: vec![1.0; costs] }
    }

    /// By the largest reward, or `α` if that is larger, and the largest of each cost; turns `r` into them.
    pub(super) fn apply(r: &mut Reduced, alpha: f64) -> Self {
        let reward = unit(largest(&r.reward).max(alpha));
        let costs: Vec<f64> = r.costs.iter().map(|c| unit(largest(c))).collect();
        r.reward.iter_mut().for_each(|x| *x /= reward);
        for (cost, unit) in r.costs.iter_mut().zip(&costs) {
            cost.iter_mut().for_each(|x| *x /= unit);
        }
        Self { reward, costs }
    }

    pub(super) fn reward(&self) -> f64 {
        self.reward
    }

    pub(super) fn cost(&self, k: usize) -> f64 {
        self.costs[k]
    }

    /// Unit of `λ_k`.
    pub(super) fn multiplier(&self, k: usize) -> f64 {
        self.reward / self.costs[k]
    }

    /// Limits, credits: one number per cost.
    pub(super) fn per_cost(&self, values: &[f64]) -> Vec<f64> {
        values.iter().zip(&self.costs).map(|(x, c)| x / c).collect()
    }

    /// Cost tables.
    pub(super) fn tables<'a>(&self, tables: &'a [Vec<f64>]) -> Cow<'a, [Vec<f64>]> {
        if self.costs.iter().all(|&c| c == 1.0) {
            return Cow::Borrowed(tables);
        }
        let scaled = tables.iter().zip(&self.costs).map(|(t, c)| t.iter().map(|x| x / c).collect());
        Cow::Owned(scaled.collect())
    }

    /// `ν`, `μ`, `λ` of a solution in the problem's own units.
    pub(super) fn multipliers(&self, start: &Solution) -> (Vec<f64>, f64, Vec<f64>) {
        let nu = start.nu.iter().map(|v| v / self.reward).collect();
        let lambda = start.lambda.iter().enumerate().map(|(k, l)| l / self.multiplier(k)).collect();
        (nu, start.mu / self.reward, lambda)
    }

    /// Bounds back in the problem's own units.
    pub(super) fn bounds(&self, bounds: Vec<CostBound>) -> Vec<CostBound> {
        bounds.into_iter().zip(&self.costs).map(|(b, &c)| b.times(c)).collect()
    }
}

/// The largest magnitude.
pub(crate) fn largest(values: &[f64]) -> f64 {
    values.iter().fold(0.0, |x, v| x.max(v.abs()))
}

impl BoundedCost<'_> {
    /// Its unit, by the pairs that `w` gives weight to.
    pub(super) fn unit(&self, w: &[f64]) -> f64 {
        let of_pair = |c: f64| c.abs().max((c - self.last_step_credit).abs());
        let weighed = self.cost.iter().zip(w).filter(|(_, w)| **w > 0.0);
        unit(weighed.fold(0.0, |x, (&c, _)| x.max(of_pair(c))))
    }
}

/// The power of 1024 nearest to a size by its logarithm; one for zero.
pub(crate) fn unit(size: f64) -> f64 {
    if size <= 0.0 {
        return 1.0;
    }
    // Beyond these, which no reward or cost of a kind gets to, the unit or its inverse would not be a normal number.
    let exponent = (size.log2() / 10.0).round().clamp(-100.0, 100.0);
    2.0_f64.powi(10 * exponent as i32)
}
