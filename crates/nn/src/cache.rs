//! Buffers of the passes. The rows of a batch are cut into chunks at places that depend on the batch alone; each
//! chunk owns its buffers, goes through all layers on one thread, and meets the others only where gradients of
//! parameters are summed.

use crate::product::{Aligned, Form};
use crate::spec::{Block, Linear};

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

/// All buffers of the forward, backward and penalty passes of one network, or of several that are used one after another,
/// for batches up to a size fixed at its creation. Made by [`crate::Network::cache`] and its like. Pages are touched when
/// first used, so passes that are never run cost no memory.
#[derive(Debug)]
pub struct Cache {
    /// Of the products inside the network.
    pub(crate) form: Form,
    pub(crate) max_batch: usize,
    widths: Vec<Widths>,
    pub(crate) chunks: Vec<Chunk>,
    /// The weights of all affine maps, laid out for the pass that runs; or once that is done, the gradient, laid out as the
    /// parameters are.
    pub(crate) packed: Aligned,
    /// The weights in the other orientation: the penalty needs both at once.
    pub(crate) packed_too: Aligned,
    /// Result of the last forward pass, `[max_batch * output]`.
    pub(crate) output: Vec<f32>,
    /// Gradient with respect to the input in the penalty, `[max_batch * input]`.
    pub(crate) input_gradient: Vec<f32>,
}

/// Values per row in the buffers of a block.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Widths {
    output: usize,
    norm: usize,
    hidden: usize,
}

impl Widths {
    pub(crate) fn of(block: &Block) -> Self {
        let (output, hidden) = (block.width(), block.hidden());
        Self { output, norm: if block.has_norm() { output } else { 0 }, hidden }
    }

    /// The larger of each.
    fn max(self, other: Self) -> Self {
        Self {
            output: self.output.max(other.output),
            norm: self.norm.max(other.norm),
            hidden: self.hidden.max(other.hidden),
        }
    }
}

/// A network's blocks and the width of its input.
pub(crate) type Shape<'a> = (&'a [Block], usize);

impl Cache {
    pub(crate) fn new(networks: &[Shape<'_>], max_batch: usize, form: Form) -> Self {
        // Smaller batches may be cut into fewer and longer pieces than the largest one.
        let rows = max_batch.min(CHUNK_ROWS);
        let chunks = cut(max_batch).chunks.max(max_batch.min(2));
        let layers = networks.iter().map(|(blocks, _)| blocks.len()).max().unwrap_or(0);
        let widest = |layer: usize| {
            let of = |(blocks, _): &Shape<'_>| blocks.get(layer).map(Widths::of).unwrap_or_default();
            networks.iter().map(of).fold(Widths::default(), Widths::max)
        };
        let widths: Vec<Widths> = (0..layers).map(widest).collect();
        let most = |of: &dyn Fn(&Shape<'_>) -> usize| networks.iter().map(of).max().unwrap_or(0);
        let input = most(&|(_, input)| *input);
        let output = most(&|(blocks, _)| blocks.last().map_or(0, Block::width));
        let room = most(&|(blocks, _)| {
            let end = |linear: Linear| linear.packed_end().max(linear.bias + linear.output);
            let norm_end = |block: &Block| block.norm().map_or(0, |norm| norm.bias + block.width());
            blocks
                .iter()
                .map(|block| norm_end(block).max(block.linears().map(end).max().unwrap_or(0)))
                .max()
                .unwrap_or(0)
        });
        Self {
            form,
            max_batch,
            chunks: (0..chunks).map(|_| Chunk::new(&widths, input, rows)).collect(),
            widths,
            output: vec![0.0; max_batch * output],
            packed: Aligned::zeroed(room),
            packed_too: Aligned::zeroed(room),
            input_gradient: vec![0.0; max_batch * input],
        }
    }

    /// The largest batch that fits.
    #[must_use]
    pub fn max_batch(&self) -> usize {
        self.max_batch
    }

    /// Whether a network's passes over `batch` rows fit.
    pub(crate) fn fits(&self, (blocks, input): Shape<'_>, batch: usize) -> bool {
        let fits = |(block, widths): (&Block, &Widths)| Widths::of(block).max(*widths) == *widths;
        batch <= self.max_batch
            && batch * input <= self.input_gradient.len()
            && blocks.last().map_or(0, |last| batch * last.width()) <= self.output.len()
            && blocks.len() <= self.widths.len()
            && blocks.iter().zip(&self.widths).all(fits)
    }
}

/// Buffers of one piece of the batch.
#[derive(Debug, Clone)]
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
    pub(crate) fn new(widths: &[Widths], input: usize, rows: usize) -> Self {
        Self {
            layers: widths.iter().map(|widths| Buffers::new(*widths, rows)).collect(),
            rows: 0,
            x: vec![0.0; rows * input],
            t_x: vec![0.0; rows * input],
            row: vec![0.0; widths.iter().map(|widths| widths.output).max().unwrap_or(0)],
            penalty: ChunkPenalty::default(),
        }
    }
}

/// Buffers of one block for the rows of one chunk; those a block has no use for are empty.
#[derive(Debug, Clone)]
pub(crate) struct Buffers {
    pub(crate) forward: Forward,
    pub(crate) adjoint: Adjoint,
    /// The derivative with respect to the block's output, kept for the penalty only.
    pub(crate) d_output: Vec<f32>,
    pub(crate) tangent: Tangent,
    /// Row sums: gradients of the bias, the norm's gain and shift, the inner bias.
    pub(crate) sums: Sums,
}

#[derive(Debug, Clone)]
pub(crate) struct Forward {
    pub(crate) output: Vec<f32>,
    pub(crate) normalised: Vec<f32>,
    pub(crate) inverse_std: Vec<f32>,
    pub(crate) hidden: Vec<f32>,
}

/// Derivatives of the loss.
#[derive(Debug, Clone)]
pub(crate) struct Adjoint {
    /// With respect to the (outer) affine map's result; on the way there, to the block's output.
    pub(crate) linear: Vec<f32>,
    /// With respect to the inner affine map's result.
    pub(crate) hidden: Vec<f32>,
}

#[derive(Debug, Clone)]
pub(crate) struct Tangent {
    pub(crate) output: Vec<f32>,
    pub(crate) normalised: Vec<f32>,
    pub(crate) ratio: Vec<f32>,
    pub(crate) hidden: Vec<f32>,
    pub(crate) adjoint: Adjoint,
}

#[derive(Debug, Clone)]
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
    fn new(widths: Widths, rows: usize) -> Self {
        let zeros = |width: usize| vec![0.0_f32; rows * width];
        let Widths { output: width, norm, hidden } = widths;
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
        for max_batch in [1, 5, 127, 128, 511, 512, 513, 1023, 1024, 1025, 3000] {
            let cache = Cache::new(&[], max_batch, Form::Single);
            for batch in 1..=max_batch {
                let cut = cut(batch);
                assert!(cut.rows * cut.chunks >= batch && (cut.chunks - 1) * cut.rows < batch);
                assert!(cut.chunks <= cache.chunks.len() && cut.rows <= CHUNK_ROWS.min(max_batch), "{batch}");
            }
        }
    }
}
