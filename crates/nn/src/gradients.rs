//! Gradients of the weights: products over all rows of the batch, cut into pieces of the flat vector.

use crate::Pool;
use crate::cache::{Chunk, Sums};
use crate::kernels;
use crate::precision::form_of;
use crate::product::{self, Form, TALLEST, outer};
use crate::spec::{Block, Linear};

/// The most rows of a weight's gradient that make a piece: enough to use a panel of the right side often.
const PIECE_ROWS: usize = 258;
/// The least, unless the weight has fewer.
const FEWEST_ROWS: usize = 66;

/// Which affine map of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Affine {
    Dense,
    Inner,
    Outer,
}

/// Rows `from..to` of one weight's gradient.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Piece {
    block: usize,
    affine: Affine,
    linear: Linear,
    from: usize,
    to: usize,
}

impl Piece {
    fn start(&self) -> usize {
        self.linear.weight + self.from * self.linear.input
    }

    fn end(&self) -> usize {
        self.linear.weight + self.to * self.linear.input
    }
}

/// The pieces of all weights, in the order of the flat vector; a function of the shapes alone.
pub(crate) fn pieces(blocks: &[Block]) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut add = |block, affine, linear: Linear| {
        // Two pieces at least, so that two threads have work, and whole tiles in all but the last.
        let wanted = linear.output.div_ceil(PIECE_ROWS).max(2);
        let rows = linear.output.div_ceil(wanted).next_multiple_of(TALLEST).max(FEWEST_ROWS);
        for from in (0..linear.output).step_by(rows) {
            pieces.push(Piece { block, affine, linear, from, to: linear.output.min(from + rows) });
        }
    };
    for (index, block) in blocks.iter().enumerate() {
        match block {
            Block::Dense { linear, .. } => add(index, Affine::Dense, *linear),
            Block::Residual { inner, outer, .. } => {
                add(index, Affine::Inner, *inner);
                add(index, Affine::Outer, *outer);
            }
        }
    }
    pieces
}

/// How many of the first pieces, not none and not all, are about as much work as the others.
fn half_the_work(pieces: &[Piece]) -> usize {
    let work = |piece: &Piece| (piece.to - piece.from) * piece.linear.input;
    let total: usize = pieces.iter().map(work).sum();
    let mut before = 0;
    for (index, piece) in pieces.iter().enumerate() {
        // A piece belongs to the half in which more of it lies.
        if index > 0 && 2 * before + work(piece) > total {
            return index;
        }
        before += work(piece);
    }
    pieces.len() - 1
}

/// The rows of the network's input that belong to each chunk.
#[derive(Clone, Copy)]
pub(crate) enum Inputs<'a> {
    /// After a backward pass: the batch, cut every `rows` rows of `width` values.
    Batch { x: &'a [f32], rows: usize, width: usize },
    /// After a tangent pass: the chunks hold their rows, and both terms of the product rule are summed.
    Tangent,
}

/// All that gradients are summed from.
#[derive(Clone, Copy)]
pub(crate) struct Sources<'a> {
    pub(crate) blocks: &'a [Block],
    pub(crate) chunks: &'a [Chunk],
    pub(crate) inputs: Inputs<'a>,
    pub(crate) form: Form,
    /// Whether what stands in the gradients is replaced.
    pub(crate) overwrite: bool,
}

impl Sources<'_> {
    /// Adds the gradients of all weights, then those of all vectors from the chunks' row sums.
    pub(crate) fn add_to(self, grads: &mut [f32], pieces: &[Piece], pool: &Pool) {
        self.add_pieces(pieces, grads, 0, pool);
        for (index, block) in self.blocks.iter().enumerate() {
            let mut add = |offset: usize, len: usize, of: fn(&Sums) -> &[f32]| {
                let target = &mut grads[offset..offset + len];
                if self.overwrite {
                    target.fill(0.0);
                }
                for chunk in self.chunks.iter().filter(|chunk| chunk.rows > 0) {
                    kernels::add(target, of(&chunk.layers[index].sums));
                }
            };
            match *block {
                Block::Dense { linear, .. } => add(linear.bias, linear.output, |sums| &sums.bias),
                Block::Residual { inner, outer, .. } => {
                    add(inner.bias, inner.output, |sums| &sums.inner_bias);
                    add(outer.bias, outer.output, |sums| &sums.bias);
                }
            }
            if let Some(norm) = block.norm() {
                add(norm.weight, block.width(), |sums| &sums.gain);
                add(norm.bias, block.width(), |sums| &sums.shift);
            }
        }
    }

    /// `grads` starts at `base` of the flat vector and covers all `pieces`.
    fn add_pieces(self, pieces: &[Piece], grads: &mut [f32], base: usize, pool: &Pool) {
        match pieces {
            [] => {}
            [piece] => self.add_piece(piece, &mut grads[piece.start() - base..piece.end() - base]),
            _ => {
                let (left, right) = pieces.split_at(half_the_work(pieces));
                let middle = right[0].start();
                let (left_grads, right_grads) = grads.split_at_mut(middle - base);
                pool.join(
                    || self.add_pieces(left, left_grads, base, pool),
                    || self.add_pieces(right, right_grads, middle, pool),
                );
            }
        }
    }

    fn add_piece(self, piece: &Piece, grads: &mut [f32]) {
        let Linear { input, output, .. } = piece.linear;
        let parts = |index: usize| self.part(piece, index);
        let form = form_of(&piece.linear, self.form);
        outer(form, grads, &parts, piece.to - piece.from, output, input, !self.overwrite);
    }

    /// Part `index` of a piece's sum: one for each chunk; after a tangent pass two, `ḋ_z^T x` and `d_z^T ẋ`.
    fn part(&self, piece: &Piece, index: usize) -> Option<product::Part<'_>> {
        let (chunk_index, dotted) = match self.inputs {
            Inputs::Batch { .. } => (index, Dotted::Nothing),
            Inputs::Tangent => {
                (index / 2, if index.is_multiple_of(2) { Dotted::Adjoint } else { Dotted::Input })
            }
        };
        let chunk = self.chunks.get(chunk_index)?;
        let layer = &chunk.layers[piece.block];
        let before = piece.block.checked_sub(1).map(|block| &chunk.layers[block]);
        let x = match (dotted, piece.affine, before, self.inputs) {
            (Dotted::Input, Affine::Outer, ..) => &layer.tangent.hidden,
            (Dotted::Input, _, Some(before), _) => &before.tangent.output,
            (Dotted::Input, _, None, _) => &chunk.t_x[..],
            (_, Affine::Outer, ..) => &layer.forward.hidden,
            (_, _, Some(before), _) => &before.forward.output,
            (_, _, None, Inputs::Batch { x, rows, width }) => &x[chunk_index * rows * width..],
            (_, _, None, Inputs::Tangent) => &chunk.x[..],
        };
        let adjoint = if dotted == Dotted::Adjoint { &layer.tangent.adjoint } else { &layer.adjoint };
        let d = if piece.affine == Affine::Inner { &adjoint.hidden } else { &adjoint.linear };
        // The last affine map's adjoint is constant.
        let constant = dotted == Dotted::Adjoint && piece.block + 1 == self.blocks.len();
        let rows = if constant { 0 } else { chunk.rows };
        Some(product::Part { d: &d[piece.from..], x, rows })
    }
}

/// Which factor of a product is replaced by its tangent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Dotted {
    Nothing,
    Adjoint,
    Input,
}
