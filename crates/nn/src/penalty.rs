//! The gradient penalty on one chunk: first-order pass, selection of the rows over the bound, tangent passes.

use crate::cache::{Buffers, Chunk, ChunkPenalty};
use crate::passes;
use crate::passes::Weights;
use crate::spec::Block;

/// The weights as the forward passes and as the backward passes take them.
#[derive(Clone, Copy)]
pub(crate) struct Orientations<'a> {
    pub(crate) forward: Weights<'a>,
    pub(crate) backward: Weights<'a>,
}

/// Leaves in the chunk the rows over the bound (all buffers gathered, in order) with their tangents, and its part
/// of the penalty. `gradient: [rows, input]` receives the derivatives of the summed outputs.
pub(crate) fn chunk_pass(
    blocks: &[Block],
    weights: Orientations<'_>,
    x: &[f32],
    gradient: &mut [f32],
    chunk: &mut Chunk,
    rows: usize,
    bound: f32,
    scale: f32,
) {
    let Orientations { forward, backward } = weights;
    let width = x.len() / rows;
    let last = blocks.len() - 1;
    let outputs = rows * blocks[last].width();
    // The last block's buffer receives the outputs, which are not needed, then the ones that start the backward pass.
    let mut out = std::mem::take(&mut chunk.layers[last].forward.output);
    passes::forward(blocks, forward, x, &mut out[..outputs], chunk, rows);
    out[..outputs].fill(1.0);
    passes::backward(blocks, backward, &out[..outputs], gradient, chunk, rows, true);
    chunk.layers[last].forward.output = out;

    let mut totals = ChunkPenalty::default();
    let mut kept = 0;
    for row in 0..rows {
        let g = &gradient[row * width..][..width];
        let norm = g.iter().map(|g| g * g).sum::<f32>().sqrt();
        totals.max_norm = larger(totals.max_norm, norm);
        // What is no number is over every bound, and shows in the penalty and in its gradient.
        if norm > bound || norm.is_nan() {
            let excess = norm - bound;
            totals.excess += f64::from(excess) * f64::from(excess);
            let factor = scale * excess / norm;
            for (t, g) in chunk.t_x[kept * width..][..width].iter_mut().zip(g) {
                *t = factor * g;
            }
            chunk.x[kept * width..][..width].copy_from_slice(&x[row * width..][..width]);
            for (layer, block) in chunk.layers.iter_mut().zip(blocks) {
                move_row(layer, block, row, kept);
            }
            kept += 1;
        }
    }
    chunk.penalty = totals;
    chunk.rows = kept;
    if kept > 0 {
        passes::tangent_forward(blocks, forward, chunk);
        passes::tangent_backward(blocks, backward, chunk);
    }
}

/// The larger of two; NaN if either is.
pub(crate) fn larger(a: f32, b: f32) -> f32 {
    if a.is_nan() || a > b { a } else { b }
}

/// Moves what the tangent passes read of row `from` to row `to <= from`.
fn move_row(layer: &mut Buffers, block: &Block, from: usize, to: usize) {
    if from == to {
        return;
    }
    let (width, hidden) = (block.width(), block.hidden());
    let norm = if block.has_norm() { width } else { 0 };
    let Buffers { forward, adjoint, d_output, .. } = layer;
    for (buffer, width) in [
        (&mut forward.output, width),
        (&mut forward.normalised, norm),
        (&mut forward.inverse_std, norm.min(1)),
        (&mut forward.hidden, hidden),
        (d_output, width),
        (&mut adjoint.linear, width),
        (&mut adjoint.hidden, hidden),
    ] {
        buffer.copy_within(from * width..(from + 1) * width, to * width);
    }
}
