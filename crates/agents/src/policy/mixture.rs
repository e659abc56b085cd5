//! The mixture head: each action dimension is an independent mixture of `M` Gaussians.
//!
//! ```text
//! log π(a|s) = Σ_i [ logsumexp_m (l_im − z_im²/2 − ln σ_im) − logsumexp_m l_im − ½ ln 2π ]
//! z_im = (a_i − μ_im)/σ_im ,   σ_im = softplus(r_im) + min_scale
//! ```
//!
//! With responsibilities `ρ_m` (softmax of the first bracket over `m`) and weights `p_m = softmax(l)_m`:
//!
//! ```text
//! ∂/∂l_m = ρ_m − p_m      ∂/∂μ_m = ρ_m z_m/σ_m      ∂/∂r_m = ρ_m (z_m² − 1)/σ_m · sigmoid(r_m)
//! ```
//!
//! One sample's outputs are `[3][A][M]`: logits `l`, locations `μ`, raw scales `r`. [`LANES`] samples are worked on
//! side by side. `−ln σ` is kept as a factor `1/σ` outside the exponential, which is safe because
//! `σ ≥ min_scale ≥ 1e-6` bounds it, and saves a logarithm per component.

use super::lanes::{LANES, Lanes, gather, map, scatter, zip};
use coptidice_nn::{Kernel, math, run_vectorised};

/// Most components per dimension: working storage lives on the stack.
pub(super) const MAX_COMPONENTS: usize = 64;

/// `½ ln 2π`.
const HALF_LN_2PI: f32 = 0.918_938_5;

/// Shape of a mixture head; see [`super::Head::Mixture`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Mixture {
    pub(super) action_dim: usize,
    pub(super) components: usize,
    pub(super) min_scale: f32,
}

/// What one action dimension of [`LANES`] samples needs for its density and gradient, by component.
pub(super) struct Workspace {
    /// `exp(l − max l)`.
    prior: [Lanes; MAX_COMPONENTS],
    /// First `l − z²/2`, then `exp(l − z²/2 − max)/σ`.
    joint: [Lanes; MAX_COMPONENTS],
    /// `(a − μ)/σ`.
    z: [Lanes; MAX_COMPONENTS],
    /// `1/σ`.
    inverse_scale: [Lanes; MAX_COMPONENTS],
    /// `dσ/dr = sigmoid(r)`.
    scale_slope: [Lanes; MAX_COMPONENTS],
}

impl Workspace {
    pub(super) fn new() -> Self {
        let zero = [[0.0; LANES]; MAX_COMPONENTS];
        Self { prior: zero, joint: zero, z: zero, inverse_scale: zero, scale_slope: zero }
    }
}

/// Sums over the components of one dimension, needed again by the gradient.
struct Sums {
    prior: Lanes,
    joint: Lanes,
    log_density: Lanes,
}

impl Mixture {
    #[inline(always)]
    fn outputs(self) -> usize {
        3 * self.action_dim * self.components
    }

    /// Log-densities of up to [`LANES`] samples: `outputs` is `[rows, 3*A*M]`, `actions` `[rows, A]`.
    pub(super) fn log_density(self, outputs: &[f32], actions: &[f32], work: &mut Workspace) -> Lanes {
        run_vectorised::<Density, _>((self, outputs, actions, work))
    }

    /// [`Self::log_density`], and `d_out = factor · ∂ log π / ∂ outputs` (`[rows, 3*A*M]`, overwritten).
    pub(super) fn log_density_and_gradient(
        self,
        outputs: &[f32],
        actions: &[f32],
        factor: &Lanes,
        d_out: &mut [f32],
        work: &mut Workspace,
    ) -> Lanes {
        run_vectorised::<DensityAndGradient, _>((self, outputs, actions, factor, d_out, work))
    }

    /// One dimension's density; leaves the parts of its gradient in `work`.
    #[inline(always)]
    fn dimension(self, dim: usize, outputs: &[f32], actions: &[f32], work: &mut Workspace) -> Sums {
        let stride = self.outputs();
        let block = self.action_dim * self.components;
        let action = gather(actions, self.action_dim, dim);
        let mut prior_max = [f32::NEG_INFINITY; LANES];
        let mut joint_max = [f32::NEG_INFINITY; LANES];
        for m in 0..self.components {
            let at = dim * self.components + m;
            let logit = gather(outputs, stride, at);
            let loc = gather(outputs, stride, block + at);
            let raw = gather(outputs, stride, 2 * block + at);
            let scale = map(&raw, |r| math::softplus(r) + self.min_scale);
            work.scale_slope[m] = map(&raw, math::sigmoid);
            work.inverse_scale[m] = map(&scale, |s| 1.0 / s);
            let distance = zip(&action, &loc, |a, l| a - l);
            work.z[m] = zip(&distance, &work.inverse_scale[m], |d, i| d * i);
            work.joint[m] = zip(&logit, &work.z[m], |l, z| l - 0.5 * z * z);
            work.prior[m] = logit;
            prior_max = zip(&prior_max, &logit, f32::max);
            joint_max = zip(&joint_max, &work.joint[m], f32::max);
        }
        let mut prior_sum = [0.0; LANES];
        let mut joint_sum = [0.0; LANES];
        for m in 0..self.components {
            work.prior[m] = zip(&work.prior[m], &prior_max, |l, top| math::exp(l - top));
            prior_sum = zip(&prior_sum, &work.prior[m], |s, p| s + p);
            let exponential = zip(&work.joint[m], &joint_max, |j, top| math::exp(j - top));
            work.joint[m] = zip(&exponential, &work.inverse_scale[m], |e, i| e * i);
            joint_sum = zip(&joint_sum, &work.joint[m], |s, j| s + j);
        }
        let joint_log = map(&joint_sum, math::ln);
        let prior_log = map(&prior_sum, math::ln);
        let top = zip(&joint_max, &prior_max, |j, p| j - p);
        let rest = zip(&joint_log, &prior_log, |j, p| j - p - HALF_LN_2PI);
        Sums { prior: prior_sum, joint: joint_sum, log_density: zip(&top, &rest, |t, r| t + r) }
    }

    /// `d_out = factor · ∂ log π / ∂ outputs` of one dimension, from what [`Self::dimension`] left in `work`.
    #[inline(always)]
    fn dimension_gradient(
        self,
        dim: usize,
        factor: &Lanes,
        sums: &Sums,
        d_out: &mut [f32],
        work: &Workspace,
    ) {
        let stride = self.outputs();
        let block = self.action_dim * self.components;
        let per_prior = zip(factor, &sums.prior, |f, s| f / s);
        let per_joint = zip(factor, &sums.joint, |f, s| f / s);
        for m in 0..self.components {
            let responsibility = zip(&per_joint, &work.joint[m], |f, j| f * j);
            let weight = zip(&per_prior, &work.prior[m], |f, p| f * p);
            let pull = zip(&responsibility, &work.inverse_scale[m], |r, i| r * i);
            let d_logit = zip(&responsibility, &weight, |r, p| r - p);
            let d_loc = zip(&pull, &work.z[m], |p, z| p * z);
            let spread = zip(&work.z[m], &work.scale_slope[m], |z, s| (z * z - 1.0) * s);
            let d_raw = zip(&pull, &spread, |p, s| p * s);
            let at = dim * self.components + m;
            scatter(&d_logit, d_out, stride, at);
            scatter(&d_loc, d_out, stride, block + at);
            scatter(&d_raw, d_out, stride, 2 * block + at);
        }
    }
}

/// [`Mixture::log_density`], compiled for each instruction set.
struct Density;

impl<'a> Kernel<(Mixture, &'a [f32], &'a [f32], &'a mut Workspace)> for Density {
    type Output = Lanes;

    #[inline(always)]
    fn run((head, outputs, actions, work): (Mixture, &'a [f32], &'a [f32], &'a mut Workspace)) -> Lanes {
        let mut total = [0.0; LANES];
        for dim in 0..head.action_dim {
            let sums = head.dimension(dim, outputs, actions, work);
            total = zip(&total, &sums.log_density, |t, d| t + d);
        }
        total
    }
}

/// [`Mixture::log_density_and_gradient`], compiled for each instruction set.
struct DensityAndGradient;

type GradientArguments<'a> = (Mixture, &'a [f32], &'a [f32], &'a Lanes, &'a mut [f32], &'a mut Workspace);

impl<'a> Kernel<GradientArguments<'a>> for DensityAndGradient {
    type Output = Lanes;

    #[inline(always)]
    fn run((head, outputs, actions, factor, d_out, work): GradientArguments<'a>) -> Lanes {
        let mut total = [0.0; LANES];
        for dim in 0..head.action_dim {
            let sums = head.dimension(dim, outputs, actions, work);
            total = zip(&total, &sums.log_density, |t, d| t + d);
            head.dimension_gradient(dim, factor, &sums, d_out, work);
        }
        total
    }
}
