//! The passes of one chunk of rows through all blocks, on one thread.

use crate::Activation;
use crate::cache::{Buffers, Chunk, Sums};
use crate::kernels::{self, NormForward, NormParams, NormState, NormSums, NormTangents};
use crate::precision::form_of;
use crate::product::{Form, multiply, pack};
use crate::spec::{Block, Linear};

/// Parameters, and the weights of each affine map as laid out for the pass: transposed for the forward passes, as
/// they are for the backward passes.
#[derive(Clone, Copy)]
pub(crate) struct Weights<'a> {
    pub(crate) params: &'a [f32],
    pub(crate) packed: &'a [f32],
    pub(crate) form: Form,
}

impl Linear {
    pub(crate) fn bias_of<'p>(&self, params: &'p [f32]) -> &'p [f32] {
        &params[self.bias..][..self.output]
    }

    /// Lays its weights out, from the beginning of `packed` on: transposed for [`Linear::apply`], as they are for
    /// [`Linear::pull_back`].
    pub(crate) fn pack(&self, params: &[f32], packed: &mut [f32], transposed: bool, form: Form) {
        let weights = &params[self.weight..][..self.input * self.output];
        pack(form_of(self, form), packed, weights, self.output, self.input, transposed);
    }

    /// `out = x W^T`, `x: [rows, input]`.
    fn apply(&self, weights: Weights<'_>, x: &[f32], out: &mut [f32], rows: usize) {
        let packed = &weights.packed[self.packed..self.packed_end()];
        let form = form_of(self, weights.form);
        multiply(form, &mut out[..rows * self.output], x, packed, rows, self.input, self.output, false);
    }

    /// `d_x = d_z W` or `d_x += d_z W`.
    fn pull_back(&self, weights: Weights<'_>, d_z: &[f32], d_x: &mut [f32], rows: usize, accumulate: bool) {
        let packed = &weights.packed[self.packed..self.packed_end()];
        let form = form_of(self, weights.form);
        multiply(form, &mut d_x[..rows * self.input], d_z, packed, rows, self.output, self.input, accumulate);
    }
}

/// The vectors of a normalised block.
pub(crate) fn norm_params<'p>(block: &Block, params: &'p [f32]) -> Option<NormParams<'p>> {
    let (Block::Dense { linear, .. } | Block::Residual { outer: linear, .. }) = block;
    block.norm().map(|norm| NormParams {
        bias: linear.bias_of(params),
        gain: &params[norm.weight..][..linear.output],
        shift: &params[norm.bias..][..linear.output],
    })
}

fn norm_sums(sums: &mut Sums, width: usize) -> NormSums<'_> {
    let Sums { bias, gain, shift, .. } = sums;
    NormSums { bias: &mut bias[..width], gain: &mut gain[..width], shift: &mut shift[..width] }
}

/// The forward pass: `x: [rows, input]`, `out: [rows, output]`.
pub(crate) fn forward(
    blocks: &[Block],
    weights: Weights<'_>,
    x: &[f32],
    out: &mut [f32],
    chunk: &mut Chunk,
    rows: usize,
) {
    chunk.rows = rows;
    let params = weights.params;
    let last = blocks.len() - 1;
    for (index, block) in blocks.iter().enumerate() {
        let (before, rest) = chunk.layers.split_at_mut(index);
        let x = before.last().map_or(x, |layer| &layer.forward.output);
        let buffers = &mut rest[0].forward;
        let len = rows * block.width();
        let output = if index == last { &mut *out } else { &mut buffers.output[..len] };
        let (skip, bias) = match block {
            Block::Dense { linear, .. } => {
                linear.apply(weights, x, output, rows);
                (None, linear.bias_of(params))
            }
            Block::Residual { inner, outer, .. } => {
                let hidden = &mut buffers.hidden[..rows * inner.output];
                inner.apply(weights, x, hidden, rows);
                kernels::bias_activation(hidden, inner.bias_of(params), Activation::Relu);
                outer.apply(weights, hidden, output, rows);
                (Some(x), outer.bias_of(params))
            }
        };
        match norm_params(block, params) {
            None => kernels::bias_activation(output, bias, block.activation()),
            Some(norm) => {
                let normalised = &mut buffers.normalised[..len];
                let state = NormState { normalised, inverse_std: &mut buffers.inverse_std };
                kernels::bias_norm_activation(output, state, skip, norm, block.activation());
            }
        }
    }
}

/// The backward pass from `d_out: [rows, output]`; fills every block's adjoints and row sums, and writes
/// `d_x: [rows, input]` if that is not empty. With `keep`, the derivatives with respect to the blocks' outputs are kept
/// for the tangent passes.
pub(crate) fn backward(
    blocks: &[Block],
    weights: Weights<'_>,
    d_out: &[f32],
    d_x: &mut [f32],
    chunk: &mut Chunk,
    rows: usize,
    keep: bool,
) {
    let last = blocks.len() - 1;
    for (index, block) in blocks.iter().enumerate().rev() {
        let (before, rest) = chunk.layers.split_at_mut(index);
        let Buffers { forward, adjoint, d_output, sums, .. } = &mut rest[0];
        let (width, len) = (block.width(), rows * block.width());
        sums.clear();
        let d = &mut adjoint.linear[..len];
        if index == last {
            kernels::copy_settled(d, d_out);
        }
        if keep {
            d_output[..len].copy_from_slice(d);
        }
        match (norm_params(block, weights.params), block.activation()) {
            (Some(norm), activation) => {
                kernels::norm_adjoint(d, forward.of(norm.gain), norm_sums(sums, width), activation);
            }
            (None, Activation::Identity) => kernels::add_rows(&mut sums.bias[..width], d),
            (None, activation) => {
                kernels::activation_adjoint(d, &forward.output, &mut sums.bias[..width], activation);
            }
        }
        let d_x = match before.last_mut() {
            Some(layer) => &mut layer.adjoint.linear[..],
            None => &mut *d_x,
        };
        match block {
            Block::Dense { linear, .. } => {
                if !d_x.is_empty() {
                    linear.pull_back(weights, d, d_x, rows, false);
                }
            }
            Block::Residual { inner, outer, .. } => {
                let d_hidden = &mut adjoint.hidden[..rows * inner.output];
                outer.pull_back(weights, d, d_hidden, rows, false);
                let d_bias = &mut sums.inner_bias[..inner.output];
                kernels::relu_adjoint(d_hidden, &forward.hidden, d_bias);
                if !d_x.is_empty() {
                    d_x[..len].copy_from_slice(d);
                    inner.pull_back(weights, d_hidden, d_x, rows, true);
                }
            }
        }
    }
}

/// The forward tangent along `chunk.t_x`, on the chunk's (gathered) rows.
pub(crate) fn tangent_forward(blocks: &[Block], weights: Weights<'_>, chunk: &mut Chunk) {
    let rows = chunk.rows;
    // The tangent of the last affine map has no part in the gradient.
    for (index, block) in blocks[..blocks.len() - 1].iter().enumerate() {
        let (before, rest) = chunk.layers.split_at_mut(index);
        let t_x = before.last().map_or(&chunk.t_x, |layer| &layer.tangent.output);
        let Buffers { forward, tangent, .. } = &mut rest[0];
        let len = rows * block.width();
        let t_output = &mut tangent.output[..len];
        match block {
            Block::Dense { linear, .. } => linear.apply(weights, t_x, t_output, rows),
            Block::Residual { inner, outer, .. } => {
                let t_hidden = &mut tangent.hidden[..rows * inner.output];
                inner.apply(weights, t_x, t_hidden, rows);
                kernels::activation_tangent(t_hidden, &forward.hidden, Activation::Relu);
                outer.apply(weights, t_hidden, t_output, rows);
                kernels::add(t_output, &t_x[..len]);
            }
        }
        let activation = block.activation();
        match norm_params(block, weights.params) {
            None => kernels::activation_tangent(t_output, &forward.output, activation),
            Some(norm) => kernels::norm_tangent(
                t_output,
                &mut tangent.normalised,
                &mut tangent.ratio,
                forward.of(norm.gain),
                activation,
            ),
        }
    }
}

/// The tangent of the backward pass. The adjoint of the output is constant, so its tangent is zero and the pass
/// starts below the last affine map; its bias has no part.
pub(crate) fn tangent_backward(blocks: &[Block], weights: Weights<'_>, chunk: &mut Chunk) {
    let rows = chunk.rows;
    let last = blocks.len() - 1;
    chunk.layers[last].sums.clear();
    for (index, block) in blocks[..last].iter().enumerate().rev() {
        let (before, rest) = chunk.layers.split_at_mut(index);
        let Buffers { forward, adjoint, d_output, tangent, sums } = &mut rest[0];
        let (width, len) = (block.width(), rows * block.width());
        sums.clear();
        let t_d = &mut tangent.adjoint.linear[..len];
        if index + 1 == last {
            t_d.fill(0.0);
        }
        let activation = block.activation();
        match norm_params(block, weights.params) {
            None => kernels::activation_adjoint_tangent(
                t_d,
                d_output,
                &forward.output,
                &tangent.output,
                &mut sums.bias[..width],
                activation,
            ),
            Some(norm) => {
                let tangents = NormTangents {
                    d_output,
                    d_linear: &adjoint.linear,
                    t_output: &tangent.output,
                    t_normalised: &tangent.normalised,
                    t_ratio: &tangent.ratio,
                };
                let forward = forward.of(norm.gain);
                kernels::norm_adjoint_tangent(
                    t_d,
                    forward,
                    &tangents,
                    norm_sums(sums, width),
                    &mut chunk.row,
                    activation,
                );
            }
        }
        let t_d_x = before.last_mut().map(|layer| &mut layer.tangent.adjoint.linear);
        match block {
            Block::Dense { linear, .. } => {
                if let Some(t_d_x) = t_d_x {
                    linear.pull_back(weights, t_d, t_d_x, rows, false);
                }
            }
            Block::Residual { inner, outer, .. } => {
                let t_d_hidden = &mut tangent.adjoint.hidden[..rows * inner.output];
                outer.pull_back(weights, t_d, t_d_hidden, rows, false);
                let d_bias = &mut sums.inner_bias[..inner.output];
                kernels::relu_adjoint(t_d_hidden, &forward.hidden, d_bias);
                if let Some(t_d_x) = t_d_x {
                    t_d_x[..len].copy_from_slice(t_d);
                    inner.pull_back(weights, t_d_hidden, t_d_x, rows, true);
                }
            }
        }
    }
}

impl crate::cache::Forward {
    /// What the adjoints of a normalised block read.
    fn of<'a>(&'a self, gain: &'a [f32]) -> NormForward<'a> {
        let (output, normalised, inverse_std) = (&self.output, &self.normalised, &self.inverse_std);
        NormForward { output, normalised, inverse_std, gain }
    }
}
