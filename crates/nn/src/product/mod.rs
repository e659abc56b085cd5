//! Matrix products, for the shapes a network has. One thread does one product; callers cut them up.
//!
//! The right side of a product stands in *panels*, as wide as a few vector registers and at most [`DEPTH`] terms
//! deep; the left side is taken in *tiles* of a few rows. The innermost kernel multiplies a tile with a panel, its
//! sums in registers from the first term to the last; the panel stays in the second-level cache while all tiles pass.
//! Each element is summed in an order that depends on the number of terms alone, not on how rows are shared among
//! threads.
//!
//! Why not a library: those at hand lay the right side out again in every call and allocate for it, while a network's
//! weights serve all rows of a batch, whatever pieces it is cut in; and none has a way to half-precision products.
//!
//! [`Form`] says how operands stand in the products. Everything around a product is in single precision: it rounds its
//! operands to its form as it lays them out.

mod half;
mod single;
mod tile;

use bytemuck::{Pod, Zeroable};
pub(crate) use half::Half;
use pulp::Arch;
use std::cell::RefCell;
use tile::{LINE, fetch};

/// How the operands of a product are rounded; sums are in single precision.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Form {
    /// Not at all.
    Single,
    /// To bfloat16.
    Half(Half),
}

impl Form {
    /// The scratch of its products on this thread.
    fn scratch(self) -> &'static std::thread::LocalKey<RefCell<Scratch>> {
        match self {
            Form::Single => &SCRATCH,
            Form::Half(_) => &HALF_SCRATCH,
        }
    }
}

/// Most terms summed in registers: a tile of that depth fits the first-level cache, a panel the second.
pub(crate) const DEPTH: usize = 1024;
/// Rows of the left side that pass one after the other: they stay near while panels change.
const ROWS: usize = 258;
/// The most rows of a tile in any instruction set.
pub(crate) const TALLEST: usize = 6;
/// The widest panel of any instruction set; buffers for panels are padded to it.
const WIDEST: usize = 64;
/// Rows copied at a time when tiles are gathered from columns.
const STRIP: usize = 32;

/// Sixteen values that start on a cache line.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([f32; 16]);

/// A zeroed buffer that starts on a cache line. Its pages are touched when first used.
#[derive(Debug)]
pub(crate) struct Aligned(Vec<Line>);

impl Aligned {
    pub(crate) fn zeroed(len: usize) -> Self {
        Self(bytemuck::zeroed_vec(len.div_ceil(16)))
    }

    pub(crate) fn as_slice(&self) -> &[f32] {
        bytemuck::cast_slice(&self.0)
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [f32] {
        bytemuck::cast_slice_mut(&mut self.0)
    }
}

/// Where a thread gathers tiles, a panel, and results at the edge of a matrix.
struct Scratch {
    tiles: Aligned,
    panel: Aligned,
    edge: Aligned,
}

impl Scratch {
    fn new(tiles: usize) -> RefCell<Self> {
        let panel = Aligned::zeroed(WIDEST * DEPTH);
        RefCell::new(Scratch {
            tiles: Aligned::zeroed(tiles),
            panel,
            edge: Aligned::zeroed(TALLEST * WIDEST),
        })
    }
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = Scratch::new(ROWS.next_multiple_of(TALLEST) * DEPTH);
    /// A scratch for each form: what one leaves at the edges is, read as the other, full of numbers below the smallest
    /// normal one.
    static HALF_SCRATCH: RefCell<Scratch> = Scratch::new(half::MOST_WORDS);
}

/// Makes this thread's scratch, which is otherwise made by its first product.
pub(crate) fn prepare_thread() {
    SCRATCH.with_borrow(|_| ());
    HALF_SCRATCH.with_borrow(|_| ());
}

/// Terms of each block of a product but the last: blocks of about equal size.
fn block_of(depth: usize) -> usize {
    depth.div_ceil(depth.div_ceil(DEPTH))
}

/// Room for a `[depth, width]` matrix in panels.
pub(crate) fn packed_len(depth: usize, width: usize) -> usize {
    depth * width.next_multiple_of(WIDEST)
}

struct Pack<'a> {
    packed: &'a mut [f32],
    weights: &'a [f32],
    output: usize,
    input: usize,
    transposed: bool,
}

/// Lays the weights `[output, input]` out in panels, as the right side of [`multiply`]: transposed
/// (`depth = input`, for `x W^T`) or as they are (`depth = output`, for `d W`).
pub(crate) fn pack(
    form: Form,
    packed: &mut [f32],
    weights: &[f32],
    output: usize,
    input: usize,
    transposed: bool,
) {
    assert_eq!(weights.len(), output * input);
    let task = Pack { packed, weights, output, input, transposed };
    match form {
        Form::Single => Arch::new().dispatch(task),
        Form::Half(half) => HALF_SCRATCH.with_borrow_mut(|scratch| half.pack(task, scratch)),
    }
}

struct Multiply<'a> {
    out: &'a mut [f32],
    x: &'a [f32],
    packed: &'a [f32],
    rows: usize,
    depth: usize,
    width: usize,
    accumulate: bool,
    scratch: &'a mut Scratch,
}

/// `out = x B` or `out += x B`; `x: [rows, depth]`, `out: [rows, width]`, `B` from [`pack`] in the same form.
pub(crate) fn multiply(
    form: Form,
    out: &mut [f32],
    x: &[f32],
    packed: &[f32],
    rows: usize,
    depth: usize,
    width: usize,
    accumulate: bool,
) {
    form.scratch().with_borrow_mut(|scratch| {
        let task = Multiply { out, x, packed, rows, depth, width, accumulate, scratch };
        match form {
            Form::Single => Arch::new().dispatch(task),
            Form::Half(half) => half.multiply(task),
        }
    });
}

/// A part of the sum in [`outer`]: `d: [rows, ..]` with its rows `stride` apart, `x: [rows, width]`; at most [`DEPTH`]
/// rows.
#[derive(Clone, Copy)]
pub(crate) struct Part<'a> {
    pub(crate) d: &'a [f32],
    pub(crate) x: &'a [f32],
    pub(crate) rows: usize,
}

struct Outer<'a, 'p> {
    out: &'a mut [f32],
    parts: &'a dyn Fn(usize) -> Option<Part<'p>>,
    height: usize,
    stride: usize,
    width: usize,
    accumulate: bool,
    scratch: &'a mut Scratch,
}

/// `out = sum of d^T x` over the parts, or `out +=` that: the gradient of weights. `out: [height, width]`, of each row
/// of a `d` the first `height` values.
pub(crate) fn outer<'a>(
    form: Form,
    out: &mut [f32],
    parts: &dyn Fn(usize) -> Option<Part<'a>>,
    height: usize,
    stride: usize,
    width: usize,
    accumulate: bool,
) {
    form.scratch().with_borrow_mut(|scratch| {
        let task = Outer { out, parts, height, stride, width, accumulate, scratch };
        match form {
            Form::Single => Arch::new().dispatch(task),
            Form::Half(half) => half.outer(task),
        }
    });
}

impl Outer<'_, '_> {
    /// Calls `block(task, parts, terms)` for as many parts at a time as fit together; a word holds `per_word` terms, and
    /// a part has a whole number of words.
    #[inline(always)]
    fn in_blocks(mut self, per_word: usize, mut block: impl FnMut(&mut Self, std::ops::Range<usize>, usize)) {
        assert_eq!(self.out.len(), self.height * self.width);
        assert!(self.height <= self.stride);
        let mut from = 0;
        while (self.parts)(from).is_some() {
            let (mut to, mut terms) = (from, 0);
            while let Some(part) = (self.parts)(to) {
                assert!(part.rows <= DEPTH && part.x.len() >= part.rows * self.width);
                let rows = part.rows.next_multiple_of(per_word);
                if terms + rows > DEPTH {
                    break;
                }
                terms += rows;
                to += 1;
            }
            if terms > 0 {
                block(&mut self, from..to, terms);
                self.accumulate = true;
            }
            from = to;
        }
        if !self.accumulate {
            self.out.fill(0.0);
        }
    }
}

/// Asks for up to `columns` columns from `first` on of the parts' rows `[.., width]`, `rows` rows with each call. A panel is
/// gathered from rows that are far apart, which the processor does not foresee.
#[inline(always)]
fn fetch_columns<'p>(
    parts: impl Iterator<Item = Part<'p>>,
    first: usize,
    columns: usize,
    width: usize,
    rows: usize,
) -> impl FnMut() {
    let lines = columns.min(width.saturating_sub(first)).div_ceil(LINE);
    let start = move |part: Part<'p>| {
        let x = part.x.as_ptr();
        (0..part.rows).map(move |row| x.wrapping_add(row * width + first))
    };
    let mut starts = parts.flat_map(start);
    move || {
        for start in starts.by_ref().take(if lines > 0 { rows } else { 0 }) {
            for line in 0..lines {
                fetch::<_, false>(start.wrapping_add(line * LINE));
            }
        }
    }
}

/// Side of the squares that are transposed at a time.
const SQUARE: usize = 16;

/// Rows of `terms` words, `stride` apart, become columns of a panel.
#[inline(always)]
fn transpose<W: Pod>(panel: &mut [W], width: usize, source: &[W], rows: usize, terms: usize, stride: usize) {
    let whole = |len: usize| len - len % SQUARE;
    for term in (0..whole(terms)).step_by(SQUARE) {
        for row in (0..whole(rows)).step_by(SQUARE) {
            let mut square = [[W::zeroed(); SQUARE]; SQUARE];
            for i in 0..SQUARE {
                square[i].copy_from_slice(&source[(row + i) * stride + term..][..SQUARE]);
            }
            for j in 0..SQUARE {
                let target = &mut panel[(term + j) * width + row..][..SQUARE];
                for i in 0..SQUARE {
                    target[i] = square[i][j];
                }
            }
        }
    }
    let mut rest = |rows: std::ops::Range<usize>, terms: std::ops::Range<usize>| {
        for row in rows {
            for term in terms.clone() {
                panel[term * width + row] = source[row * stride + term];
            }
        }
    };
    rest(0..whole(rows), whole(terms)..terms);
    rest(whole(rows)..rows, 0..terms);
}

/// Columns of `d: [depth, rows]` become tiles of `terms` terms, at term `at`.
#[inline(always)]
fn gather_tiles<W: Copy, const TILE: usize>(
    tiles: &mut [W],
    d: &[W],
    depth: usize,
    rows: usize,
    stride: usize,
    at: usize,
    terms: usize,
) {
    for from in (0..depth).step_by(STRIP) {
        let strip = STRIP.min(depth - from);
        for row in (0..rows).step_by(TILE) {
            let tile_rows = TILE.min(rows - row);
            let target = &mut tiles[row * terms + (at + from) * TILE..][..strip * TILE];
            let source = &d[from * stride + row..];
            for (term, target) in target.as_chunks_mut::<TILE>().0.iter_mut().enumerate() {
                let source = &source[term * stride..][..tile_rows];
                if tile_rows == TILE {
                    target.copy_from_slice(&source[..TILE]);
                } else {
                    target[..tile_rows].copy_from_slice(source);
                }
            }
        }
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod half_tests;
#[cfg(test)]
mod tests;
