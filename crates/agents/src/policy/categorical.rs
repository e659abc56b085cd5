//! The categorical head: one logit per action, `log π(a|s) = l_a − logsumexp l`, `∂/∂l_j = 1{j = a} − π(j|s)`.

use super::lanes::{LANES, Lanes, gather, map, scatter, zip};
use coptidice_nn::math;

/// Log-probabilities of up to [`LANES`] samples: `outputs` is `[rows, count]`, `actions` `[rows]`.
///
/// # Panics
/// If an action is not below `count`.
#[inline(always)]
pub(super) fn log_probability(count: usize, outputs: &[f32], actions: &[u32]) -> Lanes {
    let (top, sum) = maximum_and_sum(count, outputs);
    let chosen = chosen_logits(count, outputs, actions);
    finish(&chosen, &top, &sum)
}

/// [`log_probability`], and `d_out = factor · ∂ log π / ∂ outputs` (`[rows, count]`, overwritten).
#[inline(always)]
pub(super) fn log_probability_and_gradient(
    count: usize,
    outputs: &[f32],
    actions: &[u32],
    factor: &Lanes,
    d_out: &mut [f32],
) -> Lanes {
    let (top, sum) = maximum_and_sum(count, outputs);
    let chosen = chosen_logits(count, outputs, actions);
    let per_sum = zip(factor, &sum, |f, s| -f / s);
    for at in 0..count {
        let exponential = zip(&gather(outputs, count, at), &top, |l, t| math::exp(l - t));
        scatter(&zip(&per_sum, &exponential, |f, e| f * e), d_out, count, at);
    }
    for ((row, &action), &factor) in d_out.chunks_exact_mut(count).zip(actions).zip(factor) {
        row[action as usize] += factor;
    }
    finish(&chosen, &top, &sum)
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
