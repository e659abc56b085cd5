//! The passes of one chunk of rows through all blocks, on one thread.

use crate::cache::{Buffers, Chunk};
use crate::kernels::{self, NormState, NormSums, NormTangentInputs};
use crate::product::{View, multiply};
use crate::spec::{Block, Linear};

impl Linear {
    fn weight_view<'p>(&self, params: &'p [f32]) -> View<'p> {
        let weight = &params[self.weight..][..self.input * self.output];
        View::row_major(weight, self.output, self.input, self.input)
    }

    fn bias_of<'p>(&self, params: &'p [f32]) -> &'p [f32] {
        &params[self.bias..][..self.output]
    }

    /// `out = x W^T`, `x: [rows, input]`.
    fn apply(&self, params: &[f32], x: &[f32], out: &mut [f32], rows: usize) {
        let x = View::row_major(x, rows, self.input, self.input);
        multiply(&mut out[..rows * self.output], x, self.weight_view(params).transposed(), false);
    }

    /// `d_x = d_z W` or `d_x += d_z W`.
    fn pull_back(&self, params: &[f32], d_z: &[f32], d_x: &mut [f32], rows: usize, accumulate: bool) {
        let d_z = View::row_major(d_z, rows, self.output, self.output);
        multiply(&mut d_x[..rows * self.input], d_z, self.weight_view(params), accumulate);
    }
}

/// The forward pass: `x: [rows, input]`, `out: [rows, output]`.
pub(crate) fn forward(
    blocks: &[Block],
    params: &[f32],
    x: &[f32],
    out: &mut [f32],
    chunk: &mut Chunk,
    rows: usize,
) {
    chunk.rows = rows;
    let last = blocks.len() - 1;
    for (index, block) in blocks.iter().enumerate() {
        let (before, rest) = chunk.layers.split_at_mut(index);
        let x = before.last().map_or(x, |layer| &layer.forward.output);
        let buffers = &mut rest[0].forward;
        let len = rows * block.width();
        let mut normalised = &mut buffers.normalised[..];
        if !normalised.is_empty() {
            normalised = &mut normalised[..len];
        }
        let state = NormState { normalised, inverse_std: &mut buffers.inverse_std };
        match block {
            Block::Dense { linear, norm: None, activation } => {
                let output = if index == last { &mut *out } else { &mut buffers.output[..len] };
                linear.apply(params, x, output, rows);
                kernels::bias_activation(output, linear.bias_of(params), *activation);
            }
            Block::Dense { linear, norm: Some(norm), activation } => {
                let output = &mut buffers.output[..len];
                linear.apply(params, x, output, rows);
                let (gain, shift) =
                    (&params[norm.weight..][..linear.output], &params[norm.bias..][..linear.output]);
                let bias = linear.bias_of(params);
                kernels::bias_norm_activation(output, state, None, bias, gain, shift, *activation);
            }
            Block::Residual { inner, outer, norm } => {
                let hidden = &mut buffers.hidden[..rows * inner.output];
                inner.apply(params, x, hidden, rows);
                kernels::bias_activation(hidden, inner.bias_of(params), crate::Activation::Relu);
                let output = &mut buffers.output[..len];
                outer.apply(params, hidden, output, rows);
                let (gain, shift) =
                    (&params[norm.weight..][..outer.output], &params[norm.bias..][..outer.output]);
                let bias = outer.bias_of(params);
                kernels::bias_norm_activation(
                    output,
                    state,
                    Some(x),
                    bias,
                    gain,
                    shift,
                    crate::Activation::Identity,
                );
            }
        }
    }
}

/// The backward pass from `d_out: [rows, output]`; fills every block's adjoints and row sums, and writes
/// `d_x: [rows, input]` if that is not empty.
pub(crate) fn backward(
    blocks: &[Block],
    params: &[f32],
    d_out: &[f32],
    d_x: &mut [f32],
    chunk: &mut Chunk,
    rows: usize,
) {
    let last = blocks.len() - 1;
    for (index, block) in blocks.iter().enumerate().rev() {
        let (before, rest) = chunk.layers.split_at_mut(index);
        let Buffers { forward, adjoint, sums, .. } = &mut rest[0];
        let len = rows * block.width();
        sums.clear();
        let d_output = if index == last { d_out } else { &adjoint.output[..len] };
        let d_linear = &mut adjoint.linear[..len];
        match block {
            Block::Dense { norm: None, .. } if index == last => {
                d_linear.copy_from_slice(d_output);
                kernels::add_rows(&mut sums.bias, d_linear);
            }
            Block::Dense { norm: None, activation, .. } => {
                let output = &forward.output[..len];
                kernels::activation_adjoint(d_linear, d_output, output, &mut sums.bias, *activation);
            }
            Block::Dense { norm: Some(norm), .. } | Block::Residual { norm, .. } => {
                let activation = match block {
                    Block::Dense { activation, .. } => *activation,
                    Block::Residual { .. } => crate::Activation::Identity,
                };
                kernels::norm_adjoint(
                    d_linear,
                    d_output,
                    &forward.output,
                    &forward.normalised,
                    &forward.inverse_std,
                    &params[norm.weight..][..block.width()],
                    NormSums { bias: &mut sums.bias, gain: &mut sums.gain, shift: &mut sums.shift },
                    activation,
                );
            }
        }
        let d_x = match before.last_mut() {
            Some(layer) => &mut layer.adjoint.output[..],
            None => &mut *d_x,
        };
        match block {
            Block::Dense { linear, .. } => {
                if !d_x.is_empty() {
                    linear.pull_back(params, d_linear, d_x, rows, false);
                }
            }
            Block::Residual { inner, outer, .. } => {
                let d_hidden = &mut adjoint.hidden[..rows * inner.output];
                outer.pull_back(params, d_linear, d_hidden, rows, false);
                kernels::relu_mask(d_hidden, &forward.hidden);
                kernels::add_rows(&mut sums.inner_bias, d_hidden);
                if !d_x.is_empty() {
                    d_x[..len].copy_from_slice(d_linear);
                    inner.pull_back(params, d_hidden, d_x, rows, true);
                }
            }
        }
    }
}

/// The forward tangent along `chunk.t_x`, on the chunk's (gathered) rows.
pub(crate) fn tangent_forward(blocks: &[Block], params: &[f32], chunk: &mut Chunk) {
    let rows = chunk.rows;
    // The tangent of the last affine map has no part in the gradient.
    for (index, block) in blocks[..blocks.len() - 1].iter().enumerate() {
        let (before, rest) = chunk.layers.split_at_mut(index);
        let t_x = before.last().map_or(&chunk.t_x, |layer| &layer.tangent.output);
        let Buffers { forward, tangent, .. } = &mut rest[0];
        let len = rows * block.width();
        let t_output = &mut tangent.output[..len];
        let (norm, activation) = match block {
            Block::Dense { linear, norm, activation } => {
                linear.apply(params, t_x, t_output, rows);
                (*norm, *activation)
            }
            Block::Residual { inner, outer, norm } => {
                let t_hidden = &mut tangent.hidden[..rows * inner.output];
                inner.apply(params, t_x, t_hidden, rows);
                kernels::relu_mask(t_hidden, &forward.hidden);
                outer.apply(params, t_hidden, t_output, rows);
                for (t, skip) in t_output.iter_mut().zip(t_x) {
                    *t += skip;
                }
                (Some(*norm), crate::Activation::Identity)
            }
        };
        match norm {
            None => kernels::activation_tangent(t_output, &forward.output, activation),
            Some(norm) => kernels::norm_tangent(
                t_output,
                &mut tangent.normalised,
                &mut tangent.ratio,
                &forward.output,
                &forward.normalised,
                &forward.inverse_std,
                &params[norm.weight..][..block.width()],
                activation,
            ),
        }
    }
}

/// The tangent of the backward pass. The adjoint of the output is constant, so its tangent is zero and the pass
/// starts below the last affine map; its bias has no part.
pub(crate) fn tangent_backward(blocks: &[Block], params: &[f32], chunk: &mut Chunk) {
    let rows = chunk.rows;
    for layer in &mut chunk.layers {
        layer.sums.clear();
    }
    let last = blocks.len() - 1;
    for (index, block) in blocks[..last].iter().enumerate().rev() {
        let (before, rest) = chunk.layers.split_at_mut(index);
        let Buffers { forward, adjoint, tangent, sums } = &mut rest[0];
        let len = rows * block.width();
        if index + 1 == last {
            tangent.adjoint.output[..len].fill(0.0);
        }
        let t_d_linear = &mut tangent.adjoint.linear[..len];
        match block {
            Block::Dense { norm: None, activation, .. } => kernels::activation_adjoint_tangent(
                t_d_linear,
                &tangent.adjoint.output,
                &adjoint.output,
                &forward.output,
                &tangent.output,
                &mut sums.bias,
                *activation,
            ),
            Block::Dense { norm: Some(norm), .. } | Block::Residual { norm, .. } => {
                let activation = match block {
                    Block::Dense { activation, .. } => *activation,
                    Block::Residual { .. } => crate::Activation::Identity,
                };
                let inputs = NormTangentInputs {
                    t_d_output: &tangent.adjoint.output,
                    d_output: &adjoint.output,
                    d_linear: &adjoint.linear,
                    output: &forward.output,
                    t_output: &tangent.output,
                    normalised: &forward.normalised,
                    t_normalised: &tangent.normalised,
                    inverse_std: &forward.inverse_std,
                    t_ratio: &tangent.ratio,
                    gain: &params[norm.weight..][..block.width()],
                };
                let sums = NormSums { bias: &mut sums.bias, gain: &mut sums.gain, shift: &mut sums.shift };
                kernels::norm_adjoint_tangent(t_d_linear, &inputs, sums, activation);
            }
        }
        let t_d_x = before.last_mut().map(|layer| &mut layer.tangent.adjoint.output);
        match block {
            Block::Dense { linear, .. } => {
                if let Some(t_d_x) = t_d_x {
                    linear.pull_back(params, t_d_linear, t_d_x, rows, false);
                }
            }
            Block::Residual { inner, outer, .. } => {
                let t_d_hidden = &mut tangent.adjoint.hidden[..rows * inner.output];
                outer.pull_back(params, t_d_linear, t_d_hidden, rows, false);
                kernels::relu_mask(t_d_hidden, &forward.hidden);
                kernels::add_rows(&mut sums.inner_bias, t_d_hidden);
                if let Some(t_d_x) = t_d_x {
                    t_d_x[..len].copy_from_slice(t_d_linear);
                    inner.pull_back(params, t_d_hidden, t_d_x, rows, true);
                }
            }
        }
    }
}
