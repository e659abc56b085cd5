//! Buffers of the passes. The rows of a batch are cut into chunks at places that depend on the batch alone; each
//! chunk owns its buffers, goes through all layers on one thread, and meets the others only where gradients of
//! parameters are summed.

use crate::product::{Aligned, Form, packed_len};
use crate::spec::Block;

/// The most rows a chunk holds: one block of terms in the products that sum over rows.
const CHUNK_ROWS: usize = 256;

/// How a batch is cut: `chunks` pieces of `rows` rows, the last maybe shorter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cut {
    pub(crate) chunks: usize,
    pub(crate) rows: usize,
}

/// Cuts a batch; a function of its size alone, so that results do not depend on the number of threads.
pub(crate) fn cut(batch: usize) -> Cut {
    // Two pieces at least where a piece keeps a matrix product efficient, so that two threads have work.
    let wanted = batch.div_ceil(CHUNK_ROWS).max(if batch >= 128 { 2 } else { 1 });
    let rows = batch.div_ceil(wanted).max(1);
    Cut { chunks: batch.div_ceil(rows), rows }
}

/// All buffers of a network's forward, backward and penalty passes, for batches up to a size fixed at its creation.
/// Made by [`crate::Network::cache`], used only with that network. Pages are touched when first used, so passes
/// that are never run cost no memory.
#[derive(Debug)]
pub struct Cache {
    /// Of the products inside the network.
    pub(crate) form: Form,
    pub(crate) max_batch: usize,
    pub(crate) output_width: usize,
    pub(crate) chunks: Vec<Chunk>,
    /// Each affine map's weights, laid out for the pass that runs.
    pub(crate) packed: Vec<Aligned>,
    /// The weights in the other orientation: the penalty needs both at once.
    pub(crate) packed_too: Vec<Aligned>,
    /// Result of the last forward pass, `[max_batch * output]`.
    pub(crate) output: Vec<f32>,
    /// Gradient with respect to the input in the penalty, `[max_batch * input]`.
    pub(crate) input_gradient: Vec<f32>,
}

impl Cache {
    pub(crate) fn new(blocks: &[Block], input: usize, max_batch: usize, form: Form) -> Self {
        // Smaller batches may be cut into fewer and longer pieces than the largest one.
        let rows = max_batch.min(CHUNK_ROWS);
        let chunks = cut(max_batch).chunks.max(max_batch.min(2));
        let linears = || blocks.iter().flat_map(Block::linears);
        let packed = || {
            let len = |input, output| packed_len(input, output).max(packed_len(output, input));
            linears().map(|linear| Aligned::zeroed(len(linear.input, linear.output))).collect()
        };
        let output_width = blocks.last().map_or(0, Block::width);
        Self {
            form,
            max_batch,
            output_width,
            chunks: (0..chunks).map(|_| Chunk::new(blocks, input, rows)).collect(),
            output: vec![0.0; max_batch * output_width],
            packed: packed(),
            packed_too: packed(),
            input_gradient: vec![0.0; max_batch * input],
        }
    }

    /// The largest batch that fits.
    #[must_use]
    pub fn max_batch(&self) -> usize {
        self.max_batch
    }

    /// The result of the last forward pass over `batch` rows, `[batch * output]`.
    ///
    /// # Panics
    /// If `batch` exceeds [`Cache::max_batch`].
    #[must_use]
    pub fn output(&self, batch: usize) -> &[f32] {
        &self.output[..batch * self.output_width]
    }
}

/// Buffers of one piece of the batch.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) layers: Vec<Buffers>,
    /// Rows of the last pass (in the penalty: rows over the bound).
    pub(crate) rows: usize,
    /// Input rows over the bound, gathered, and the directions of their tangents.
    pub(crate) x: Vec<f32>,
    pub(crate) t_x: Vec<f32>,
    /// Room for the widest row.
    pub(crate) row: Vec<f32>,
    pub(crate) penalty: ChunkPenalty,
}

/// A chunk's part of the penalty.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ChunkPenalty {
    /// Sum over rows of `max(0, norm - bound)^2`.
    pub(crate) excess: f64,
    pub(crate) max_norm: f32,
}

impl Chunk {
    fn new(blocks: &[Block], input: usize, rows: usize) -> Self {
        Self {
            layers: blocks.iter().map(|block| Buffers::new(block, rows)).collect(),
            rows: 0,
            x: vec![0.0; rows * input],
            t_x: vec![0.0; rows * input],
            row: vec![0.0; blocks.iter().map(Block::width).max().unwrap_or(0)],
            penalty: ChunkPenalty::default(),
        }
    }
}

/// Buffers of one block for the rows of one chunk; those a block has no use for are empty.
#[derive(Debug)]
pub(crate) struct Buffers {
    pub(crate) forward: Forward,
    pub(crate) adjoint: Adjoint,
    /// The derivative with respect to the block's output, kept for the penalty only.
    pub(crate) d_output: Vec<f32>,
    pub(crate) tangent: Tangent,
    /// Row sums: gradients of the bias, the norm's gain and shift, the inner bias.
    pub(crate) sums: Sums,
}

#[derive(Debug)]
pub(crate) struct Forward {
    pub(crate) output: Vec<f32>,
    pub(crate) normalised: Vec<f32>,
    pub(crate) inverse_std: Vec<f32>,
    pub(crate) hidden: Vec<f32>,
}

/// Derivatives of the loss.
#[derive(Debug)]
pub(crate) struct Adjoint {
    /// With respect to the (outer) affine map's result; on the way there, to the block's output.
    pub(crate) linear: Vec<f32>,
    /// With respect to the inner affine map's result.
    pub(crate) hidden: Vec<f32>,
}

#[derive(Debug)]
pub(crate) struct Tangent {
    pub(crate) output: Vec<f32>,
    pub(crate) normalised: Vec<f32>,
    pub(crate) ratio: Vec<f32>,
    pub(crate) hidden: Vec<f32>,
    pub(crate) adjoint: Adjoint,
}

#[derive(Debug)]
pub(crate) struct Sums {
    pub(crate) bias: Vec<f32>,
    pub(crate) gain: Vec<f32>,
    pub(crate) shift: Vec<f32>,
    pub(crate) inner_bias: Vec<f32>,
}

impl Sums {
    pub(crate) fn clear(&mut self) {
        for sum in [&mut self.bias, &mut self.gain, &mut self.shift, &mut self.inner_bias] {
            sum.fill(0.0);
        }
    }
}

impl Buffers {
    fn new(block: &Block, rows: usize) -> Self {
        let zeros = |width: usize| vec![0.0_f32; rows * width];
        let (width, hidden) = (block.width(), block.hidden());
        let norm = if block.has_norm() { width } else { 0 };
        let adjoint = || Adjoint { linear: zeros(width), hidden: zeros(hidden) };
        let per_row = || zeros(norm.min(1));
        Self {
            forward: Forward {
                output: zeros(width),
                normalised: zeros(norm),
                inverse_std: per_row(),
                hidden: zeros(hidden),
            },
            adjoint: adjoint(),
            d_output: zeros(width),
            tangent: Tangent {
                output: zeros(width),
                normalised: zeros(norm),
                ratio: per_row(),
                hidden: zeros(hidden),
                adjoint: adjoint(),
            },
            sums: Sums {
                bias: vec![0.0; width],
                gain: vec![0.0; norm],
                shift: vec![0.0; norm],
                inner_bias: vec![0.0; hidden],
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_batch_up_to_the_largest_fits_its_cache() {
        let blocks = [];
        for max_batch in [1, 5, 127, 128, 511, 512, 513, 1023, 1024, 1025, 3000] {
            let cache = Cache::new(&blocks, 1, max_batch, Form::Single);
            for batch in 1..=max_batch {
                let cut = cut(batch);
                assert!(cut.rows * cut.chunks >= batch && (cut.chunks - 1) * cut.rows < batch);
                assert!(cut.chunks <= cache.chunks.len() && cut.rows <= CHUNK_ROWS.min(max_batch), "{batch}");
            }
        }
    }
}
