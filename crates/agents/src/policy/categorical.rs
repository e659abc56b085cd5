//! The categorical head: one logit per action, `log π(a|s) = l_a − logsumexp l`, `∂/∂l_j = 1{j = a} − π(j|s)`.

use super::lanes::{LANES, Lanes, gather, map, scatter, zip};
use coptidice_nn::{Kernel, math, run_vectorised};

/// Log-probabilities of up to [`LANES`] samples: `outputs` is `[rows, count]`, `actions` `[rows]`.
///
/// # Panics
/// If an action is not below `count`.
pub(super) fn log_probability(count: usize, outputs: &[f32], actions: &[u32]) -> Lanes {
    run_vectorised::<Probability, _>((count, outputs, actions))
}

/// [`log_probability`], and `d_out = factor · ∂ log π / ∂ outputs` (`[rows, count]`, overwritten).
pub(super) fn log_probability_and_gradient(
    count: usize,
    outputs: &[f32],
    actions: &[u32],
    factor: &Lanes,
    d_out: &mut [f32],
) -> Lanes {
    run_vectorised::<ProbabilityAndGradient, _>((count, outputs, actions, factor, d_out))
}

/// [`log_probability`], compiled for each instruction set.
struct Probability;

impl<'a> Kernel<(usize, &'a [f32], &'a [u32])> for Probability {
    type Output = Lanes;

    #[inline(always)]
    fn run((count, outputs, actions): (usize, &'a [f32], &'a [u32])) -> Lanes {
        let (top, sum) = maximum_and_sum(count, outputs);
        finish(&chosen_logits(count, outputs, actions), &top, &sum)
    }
}

/// [`log_probability_and_gradient`], compiled for each instruction set.
struct ProbabilityAndGradient;

type GradientArguments<'a> = (usize, &'a [f32], &'a [u32], &'a Lanes, &'a mut [f32]);

impl<'a> Kernel<GradientArguments<'a>> for ProbabilityAndGradient {
    type Output = Lanes;

    #[inline(always)]
    fn run((count, outputs, actions, factor, d_out): GradientArguments<'a>) -> Lanes {
        let (top, sum) = maximum_and_sum(count, outputs);
        let per_sum = zip(factor, &sum, |f, s| -f / s);
        for at in 0..count {
            let exponential = zip(&gather(outputs, count, at), &top, |l, t| math::exp(l - t));
            scatter(&zip(&per_sum, &exponential, |f, e| f * e), d_out, count, at);
        }
        for ((row, &action), &factor) in d_out.chunks_exact_mut(count).zip(actions).zip(factor) {
            row[action as usize] += factor;
        }
        finish(&chosen_logits(count, outputs, actions), &top, &sum)
    }
}

#[inline(always)]
fn maximum_and_sum(count: usize, outputs: &[f32]) -> (Lanes, Lanes) {
    let mut top = [f32::NEG_INFINITY; LANES];
    for at in 0..count {
        top = zip(&top, &gather(outputs, count, at), f32::max);
    }
    let mut sum = [0.0; LANES];
    for at in 0..count {
        let exponential = zip(&gather(outputs, count, at), &top, |l, t| math::exp(l - t));
        sum = zip(&sum, &exponential, |s, e| s + e);
    }
    (top, sum)
}

#[inline(always)]
fn chosen_logits(count: usize, outputs: &[f32], actions: &[u32]) -> Lanes {
    let mut chosen = [0.0; LANES];
    for ((chosen, row), &action) in chosen.iter_mut().zip(outputs.chunks_exact(count)).zip(actions) {
        *chosen = row[action as usize];
    }
    chosen
}

#[inline(always)]
fn finish(chosen: &Lanes, top: &Lanes, sum: &Lanes) -> Lanes {
    let above = zip(chosen, top, |c, t| c - t);
    zip(&above, &map(sum, math::ln), |a, l| a - l)
}
