//! The network on one sample.

use crate::Activation;
use crate::kernels::{self, NormState};
use crate::passes::norm_params;
use crate::spec::{Block, Linear};

fn apply(linear: &Linear, params: &[f32], x: &[f32], out: &mut [f32]) {
    let weight = &params[linear.weight..][..linear.input * linear.output];
    kernels::rows_dot(out, weight, x);
}

pub(crate) fn forward_one(
    blocks: &[Block],
    params: &[f32],
    x: &[f32],
    out: &mut [f32],
    scratch: &mut Vec<f32>,
) {
    let widest = blocks.iter().map(|block| block.width().max(block.hidden())).max().unwrap_or(0).max(x.len());
    scratch.resize(4 * widest, 0.0);
    let (current, rest) = scratch.split_at_mut(widest);
    let (next, rest) = rest.split_at_mut(widest);
    let (hidden, normalised) = rest.split_at_mut(widest);
    let (mut current, mut next) = (current, next);
    current[..x.len()].copy_from_slice(x);
    for block in blocks {
        let width = block.width();
        let mut inverse_std = [0.0];
        let state = NormState { normalised: &mut normalised[..width], inverse_std: &mut inverse_std };
        let output = &mut next[..width];
        let norm = norm_params(block, params);
        match block {
            Block::Dense { linear, activation, .. } => {
                apply(linear, params, &current[..linear.input], output);
                match norm {
                    None => kernels::bias_activation(output, linear.bias_of(params), *activation),
                    Some(norm) => kernels::bias_norm_activation(output, state, None, norm, *activation),
                }
            }
            Block::Residual { inner, outer, .. } => {
                let hidden = &mut hidden[..inner.output];
                apply(inner, params, &current[..inner.input], hidden);
                kernels::bias_activation(hidden, inner.bias_of(params), Activation::Relu);
                apply(outer, params, hidden, output);
                if let Some(norm) = norm {
                    let skip = Some(&current[..width]);
                    kernels::bias_norm_activation(output, state, skip, norm, Activation::Identity);
                }
            }
        }
        std::mem::swap(&mut current, &mut next);
    }
    let outputs = out.len();
    out.copy_from_slice(&current[..outputs]);
}
