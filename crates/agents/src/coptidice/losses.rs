//! The losses of the paper's section 3.3, as functions on slices, with their gradients.
//!
//! # Symbols and shapes
//!
//! A batch holds `B` samples `x = (s0, s, a, r, c, s')` and `K` costs. Networks are evaluated on the `3B` states
//! `s, s', s0` in that order, so `nu` is `[3B]` and `chi` is `[3B, K]` (row-major, costs last). `rewards` and the
//! advantage are `[B]`, `costs` is `[B, K]`, and `discounts` is `[B]`: `gamma`, or 0 where `s'` is terminal.
//! `limits` is `[K]`, the right-hand sides of the cost constraints, per step.
//!
//! # Numerical safety
//!
//! Network outputs arrive in `f32`; everything here is computed in `f64` and accumulated in a fixed order.
//! * `ell/tau` may be anything: the exponentials are taken after subtracting the largest term, so that the sum lies
//!   in `[1, B]`, and `tau` never falls below [`TAU_FLOOR`]. As `tau -> 0` the bound tends to the largest `ell`.
//! * `w` of the `kl` divergence grows like `exp(e/alpha)` and may overflow. It is not clipped, because that would
//!   change the problem that is solved: a value that is not finite reaches the losses and stops the run.

use coptidice_core::Divergence;
use serde::{Deserialize, Serialize};

/// Added to `exp(log tau)`, cost units per step: keeps `ell/tau` finite.
pub const TAU_FLOOR: f64 = 1e-6;

/// Which estimate of the cost bound is descended, and which figure drives `lambda`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BoundLoss {
    /// `eq:J_tau_phi` and `eq:J_lambda` as they stand in the paper.
    Paper,
    /// `chi` and `tau` descend `eq:J_tau_phi`; `lambda` follows the cost under the tilted weights, the paper's reading
    /// of the bound as `E[omega w C]`, and never less than the plain estimate. The two readings agree at the optimum
    /// of `chi` and `tau`. Before it, `eq:J_tau_phi` bounds nothing (where the flow is not yet met it is unbounded
    /// below), and a `lambda` that follows it can vanish before the cost is under its limit.
    Reweighted,
    /// The form found in the authors' published learner: `chi` descends the reweighted mean of `ell` with gradients
    /// through the weights, and `lambda` follows the self-normalised estimate of the cost under those weights.
    Reference,
}

/// One batch as the losses see it. Shapes in the module's documentation.
#[derive(Clone, Copy)]
pub struct Samples<'a> {
    /// `[B]`, reward units per step.
    pub rewards: &'a [f32],
    /// `[B, K]`, cost units per step.
    pub costs: &'a [f32],
    /// `[B]`, `gamma` times the continuation of the episode.
    pub discounts: &'a [f32],
    /// The discount of the problem, in `(0, 1]`.
    pub gamma: f64,
}

impl Samples<'_> {
    fn len(&self) -> usize {
        self.rewards.len()
    }

    /// `c_k` of sample `b`.
    fn cost(&self, b: usize, k: usize, costs: usize) -> f64 {
        f64::from(self.costs[b * costs + k])
    }
}

/// What [`flow_loss`] found.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FlowLoss {
    /// `L(lambda, nu)` of `eq:min_objective`, with `mu` that of `eq:min_objective_gamma1`, on this batch.
    pub value: f64,
    /// Mean of `w`; 1 at the optimum (less where terminals end the discounted process early).
    pub mean_w: f64,
    /// `dL/dmu = 1 - mean(w)` (`eq:min_objective_gamma1`).
    pub d_mu: f64,
}

/// `J_nu` (`eq:J_theta`; with `mu`, `eq:min_objective_gamma1`) and its gradient.
///
/// With `e = r - lambda'c + gamma nu(s') - nu(s) - mu` and `g` the conjugate of `f` over `w >= 0`, the loss is
/// `mean(alpha g(e/alpha)) + (1 - gamma) mean(nu(s0)) + lambda'limits + mu`. By the envelope theorem its derivative
/// in `e` is `w = g'(e/alpha)` (`eq:w_closed_form_solution`), so that `w` is all the gradient needs.
/// `lambda` and `limits` are `[K]`; `mu` is zero when `gamma < 1`. Writes `e` and `w`, `[B]`, and `d_nu` `[3B]`.
///
/// `e` of a sample is that of a single successor. The problem's is its mean over successors, and `g` being convex, the
/// mean of `g` over single ones is larger where the process is noisy (by Jensen's inequality): its minimum prefers actions
/// that were lucky. `fitted` are estimates of that mean, `[B]`. With them `g` and `w` are taken at the estimates, and since
/// `w(E[e]) E[grad e]` is the gradient of `g(E[e])`, so far as they are right `d_nu` is on average that of the problem.
pub fn flow_loss(
    samples: Samples<'_>,
    nu: &[f32],
    lambda: &[f64],
    limits: &[f64],
    mu: f64,
    alpha: f64,
    divergence: Divergence,
    fitted: Option<&[f32]>,
    advantages: &mut [f32],
    w: &mut [f32],
    d_nu: &mut [f32],
) -> FlowLoss {
    let size = samples.len();
    let per_sample = 1.0 / size as f64;
    let from_start = (1.0 - samples.gamma) * per_sample;
    let (mut conjugates, mut weights, mut starts) = (0.0, 0.0, 0.0);
    for b in 0..size {
        let e = advantage(samples, nu, lambda, mu, b);
        let y = fitted.map_or(e, |fitted| f64::from(fitted[b])) / alpha;
        let weight = divergence.weight(y);
        conjugates += alpha * divergence.conjugate(y);
        weights += weight;
        starts += f64::from(nu[2 * size + b]);
        advantages[b] = e as f32;
        w[b] = weight as f32;
        d_nu[b] = (-weight * per_sample) as f32;
        d_nu[size + b] = (weight * f64::from(samples.discounts[b]) * per_sample) as f32;
        d_nu[2 * size + b] = from_start as f32;
    }
    let mean_w = weights * per_sample;
    let multipliers: f64 = lambda.iter().zip(limits).map(|(l, limit)| l * limit).sum();
    FlowLoss {
        value: conjugates * per_sample + from_start * starts + multipliers + mu,
        mean_w,
        d_mu: 1.0 - mean_w,
    }
}

/// `e(s,a)` of sample `b` from a single successor (below `eq:minmax_objective_offline`).
fn advantage(samples: Samples<'_>, nu: &[f32], lambda: &[f64], mu: f64, b: usize) -> f64 {
    let (size, costs) = (samples.len(), lambda.len());
    let mut e = f64::from(samples.rewards[b]) - mu - f64::from(nu[b]);
    e += f64::from(samples.discounts[b]) * f64::from(nu[size + b]);
    for (k, multiplier) in lambda.iter().enumerate() {
        e -= multiplier * samples.cost(b, k, costs);
    }
    e
}

/// What [`bound_loss`] found for one cost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bound {
    /// `J_{tau,chi}` of `eq:J_tau_phi`: an upper bound of the mean cost, cost units per step.
    pub value: f64,
    /// The loss whose gradient was written: `value`, or in the reference form the reweighted mean of `ell`.
    pub descended: f64,
    /// `KL(p || data)` of the tilted weights (`eq:cost_ub_weights`); `epsilon` at the optimum in `tau`.
    pub kl: f64,
    /// Mean of `omega w c`, the cost under the tilted weights.
    pub reweighted_cost: f64,
    /// Derivative of `eq:J_tau_phi` in `tau`: `epsilon - kl`.
    pub d_tau: f64,
    /// Derivative in `zeta`: `1 - E_p[w]`; 0 where there is none.
    pub d_zeta: f64,
}

impl Bound {
    /// The figure that `lambda` compares with the limit (`eq:J_lambda`); `plain` is the estimate `E[w c]`.
    #[must_use]
    pub fn cost(&self, form: BoundLoss, plain: f64) -> f64 {
        match form {
            BoundLoss::Paper => self.value,
            BoundLoss::Reweighted => self.reweighted_cost.max(plain),
            BoundLoss::Reference => self.reweighted_cost,
        }
    }
}

/// The cost bound of every cost (`eq:J_tau_phi`), summed over costs, and its gradient.
///
/// With `ell = w (c_k + gamma chi_k(s') - chi_k(s)) + (1 - gamma) chi_k(s0)`, `w` being a constant here, the loss of
/// cost `k` is `tau log mean exp(ell/tau) + tau epsilon`. Its derivative in `ell_b` is the tilted probability `p_b`
/// (`eq:cost_ub_weights`), in `tau` it is `epsilon - KL(p || uniform)`.
/// The reference form descends `sum_b p_b ell_b` with gradients through `p`:
/// `p_b (1 + (ell_b - sum p ell)/tau)`; its derivative in `tau` is the same.
///
/// At `gamma = 1` the flow constraints leave the mass of the measure open that the bound ranges over, and one that holds a
/// large `w` more often costs more whatever it costs. There `E_p[w] = 1` is a constraint of its own, as it is for `nu`
/// (`mu`): with its multiplier `zeta`, `[K]`, `ell` is `w (c_k + chi_k(s') - chi_k(s) - zeta_k) + zeta_k`. Below, the
/// constraint follows from the others, and `zeta` is empty.
///
/// `w` is `[B]`, `chi` `[3B, K]`, `tau` `[K]`. Writes `d_chi` `[3B, K]` and `bounds` `[K]`; `ell` `[B]` is scratch.
pub fn bound_loss(
    samples: Samples<'_>,
    w: &[f32],
    chi: &[f32],
    tau: &[f64],
    zeta: &[f64],
    epsilon: f64,
    form: BoundLoss,
    ell: &mut [f64],
    d_chi: &mut [f32],
    bounds: &mut [Bound],
) {
    let (size, costs) = (samples.len(), tau.len());
    for k in 0..costs {
        let tau = tau[k];
        let zeta = zeta.get(k).copied();
        bound_terms(samples, w, chi, zeta.unwrap_or(0.0), k, costs, ell);
        let top = ell.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let mass: f64 = ell.iter().map(|l| ((l - top) / tau).exp()).sum();
        let tilted = |l: f64| ((l - top) / tau).exp() / mass;
        let mean_ell: f64 = ell.iter().map(|&l| tilted(l) * l).sum();
        let log_mean = (mass / size as f64).ln();
        // KL = mean_p(log p + log B) = (mean_p(ell) - top)/tau - log(mass/B), and cannot be negative.
        let kl = ((mean_ell - top) / tau - log_mean).max(0.0);
        let (mut reweighted_cost, mut d_zeta) = (0.0, 0.0);
        for b in 0..size {
            let p = tilted(ell[b]);
            let weight = f64::from(w[b]);
            reweighted_cost += p * weight * samples.cost(b, k, costs);
            let d_ell = match form {
                BoundLoss::Paper | BoundLoss::Reweighted => p,
                BoundLoss::Reference => p * (1.0 + (ell[b] - mean_ell) / tau),
            };
            d_zeta += d_ell * (1.0 - weight);
            d_chi[b * costs + k] = (-d_ell * weight) as f32;
            d_chi[(size + b) * costs + k] = (d_ell * weight * f64::from(samples.discounts[b])) as f32;
            d_chi[(2 * size + b) * costs + k] = (d_ell * (1.0 - samples.gamma)) as f32;
        }
        let value = top + tau * log_mean + tau * epsilon;
        let descended = match form {
            BoundLoss::Paper | BoundLoss::Reweighted => value,
            BoundLoss::Reference => mean_ell,
        };
        let d_zeta = zeta.map_or(0.0, |_| d_zeta);
        bounds[k] = Bound { value, descended, kl, reweighted_cost, d_tau: epsilon - kl, d_zeta };
    }
}

/// `ell` of every sample for cost `k` (exponent of `eq:cost_ub_min_objective`, cost units per step).
fn bound_terms(
    samples: Samples<'_>,
    w: &[f32],
    chi: &[f32],
    zeta: f64,
    k: usize,
    costs: usize,
    ell: &mut [f64],
) {
    let size = samples.len();
    let at = |row: usize| f64::from(chi[row * costs + k]);
    for b in 0..size {
        let step = samples.cost(b, k, costs) + f64::from(samples.discounts[b]) * at(size + b) - at(b);
        ell[b] = f64::from(w[b]) * (step - zeta) + (1.0 - samples.gamma) * at(2 * size + b) + zeta;
    }
}

/// `J_lambda = lambda'(limit - cost)` (`eq:J_lambda`) and its derivative in `log lambda`, `[K]` each.
/// `costs` is what the constraint is checked with: the upper bound, or the plain estimate `mean(w c)`.
pub fn multiplier_loss(lambda: &[f64], limits: &[f64], costs: &[f64], d_log_lambda: &mut [f64]) -> f64 {
    let mut value = 0.0;
    for k in 0..lambda.len() {
        let term = lambda[k] * (limits[k] - costs[k]);
        d_log_lambda[k] = term;
        value += term;
    }
    value
}

#[cfg(test)]
#[path = "losses_tests.rs"]
mod tests;
