//! Gradients of the weights: products over all rows of the batch, cut into pieces of the flat vector.

use crate::cache::{Chunk, Sums};
use crate::kernels::{self, AdamRates};
use crate::precision::form_of;
use crate::product::{self, Form, TALLEST, outer};
use crate::spec::{Block, Linear};
use crate::{Adam, Pool};
use std::ops::Range;

/// The most rows of a weight's gradient that make a piece: enough to use a panel of the right side often. In half the
/// bytes twice as many fit.
fn piece_rows(form: Form) -> usize {
    match form {
        Form::Single => 258,
        Form::Half(_) => 516,
    }
}
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

/// The pieces of all weights, in the order of the flat vector; a function of shapes and form alone.
pub(crate) fn pieces(blocks: &[Block], form: Form) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut add = |block, affine, linear: Linear| {
        // Two pieces at least, so that two threads have work, and whole tiles in all but the last.
        let wanted = linear.output.div_ceil(piece_rows(form_of(&linear, form))).max(2);
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

/// One vector's gradient, summed over the rows of a chunk.
type RowSums<'a> = dyn Fn(&Chunk) -> &[f32] + 'a;

/// Parameters and moments beside the gradient, from `base` of the flat vector on, for one step of Adam.
struct Descent<'a> {
    base: usize,
    grads: &'a mut [f32],
    params: &'a mut [f32],
    first: &'a mut [f32],
    second: &'a mut [f32],
    rates: AdamRates,
}

impl Descent<'_> {
    /// What is before `middle` of the flat vector, and the rest.
    fn split_at(&mut self, middle: usize) -> (Descent<'_>, Descent<'_>) {
        let Self { base, rates, .. } = *self;
        let (grads, other_grads) = self.grads.split_at_mut(middle - base);
        let (params, other_params) = self.params.split_at_mut(middle - base);
        let (first, other_first) = self.first.split_at_mut(middle - base);
        let (second, other_second) = self.second.split_at_mut(middle - base);
        (
            Descent { base, grads, params, first, second, rates },
            Descent {
                base: middle,
                grads: other_grads,
                params: other_params,
                first: other_first,
                second: other_second,
                rates,
            },
        )
    }

    /// The step of the parameters at `range` of the flat vector, whose gradient stands there.
    fn step(&mut self, range: Range<usize>) {
        let range = range.start - self.base..range.end - self.base;
        let grads = &self.grads[range.clone()];
        let (first, second) = (&mut self.first[range.clone()], &mut self.second[range.clone()]);
        kernels::adam(&mut self.params[range], grads, first, second, self.rates);
    }
}

impl Sources<'_> {
    /// Adds the gradients of all weights, then those of all vectors from the chunks' row sums.
    pub(crate) fn add_to(self, grads: &mut [f32], pieces: &[Piece], pool: &Pool) {
        self.add_pieces(pieces, grads, 0, pool);
        self.each_vector(|range, of| self.add_vector(&mut grads[range], of));
    }

    /// Forms the gradient in `grads` and goes down it, each piece while it is near.
    pub(crate) fn descend(
        self,
        grads: &mut [f32],
        params: &mut [f32],
        adam: &mut Adam,
        pieces: &[Piece],
        pool: &Pool,
    ) {
        let rates = adam.next_rates(params.len());
        let (first, second) = (&mut adam.first[..], &mut adam.second[..]);
        let mut all = Descent { base: 0, grads, params, first, second, rates };
        self.descend_pieces(pieces, &mut all, pool);
        self.each_vector(|range, of| {
            self.add_vector(&mut all.grads[range.clone()], of);
            all.step(range);
        });
    }

    fn descend_pieces(self, pieces: &[Piece], descent: &mut Descent<'_>, pool: &Pool) {
        match pieces {
            [] => {}
            [piece] => {
                let base = descent.base;
                self.add_piece(piece, &mut descent.grads[piece.start() - base..piece.end() - base]);
                descent.step(piece.start()..piece.end());
            }
            _ => {
                let (left, right) = pieces.split_at(half_the_work(pieces));
                let (mut left_descent, mut right_descent) = descent.split_at(right[0].start());
                pool.join(
                    || self.descend_pieces(left, &mut left_descent, pool),
                    || self.descend_pieces(right, &mut right_descent, pool),
                );
            }
        }
    }

    /// Calls `work(place, which of the chunks' sums)` for every vector.
    fn each_vector(self, mut work: impl FnMut(Range<usize>, &RowSums<'_>)) {
        for (index, block) in self.blocks.iter().enumerate() {
            let mut at = |offset: usize, len: usize, of: fn(&Sums) -> &[f32]| {
                work(offset..offset + len, &|chunk| &of(&chunk.layers[index].sums)[..len]);
            };
            match *block {
                Block::Dense { linear, .. } => at(linear.bias, linear.output, |sums| &sums.bias),
                Block::Residual { inner, outer, .. } => {
                    at(inner.bias, inner.output, |sums| &sums.inner_bias);
                    at(outer.bias, outer.output, |sums| &sums.bias);
                }
            }
            if let Some(norm) = block.norm() {
                at(norm.weight, block.width(), |sums| &sums.gain);
                at(norm.bias, block.width(), |sums| &sums.shift);
            }
        }
    }

    fn add_vector(self, target: &mut [f32], of: &RowSums<'_>) {
        if self.overwrite {
            target.fill(0.0);
        }
        for chunk in self.chunks.iter().filter(|chunk| chunk.rows > 0) {
            kernels::add(target, of(chunk));
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
