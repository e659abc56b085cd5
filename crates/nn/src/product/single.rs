//! Products of single-precision operands. The code is written once over `pulp`'s vectors, compiled for each instruction
//! set, and chosen at run time.

use super::tile::{Arithmetic, Place, Tiles};
use super::{Multiply, Outer, Pack, ROWS, Scratch, block_of, fetch_columns, gather_tiles, transpose};
use pulp::{Simd, WithSimd};

/// A word is a term; products and sums are fused.
#[derive(Clone, Copy)]
struct Singles<S>(S);

// SAFETY: `S::f32s` are `F32_LANES` values.
unsafe impl<S: Simd> Arithmetic for Singles<S> {
    type Word = f32;
    type Words = S::f32s;
    type Sums = S::f32s;
    const LANES: usize = S::F32_LANES;
    const ZERO: f32 = 0.0;

    #[inline(always)]
    fn zero(self) -> S::f32s {
        self.0.splat_f32s(0.0)
    }

    #[inline(always)]
    fn splat(self, word: f32) -> S::f32s {
        self.0.splat_f32s(word)
    }

    #[inline(always)]
    fn multiply_add(self, left: S::f32s, right: S::f32s, sums: S::f32s) -> S::f32s {
        self.0.mul_add_e_f32s(left, right, sums)
    }

    #[inline(always)]
    fn add(self, left: S::f32s, right: S::f32s) -> S::f32s {
        self.0.add_f32s(left, right)
    }
}

/// Calls `$run::<S, rows of a tile, registers of a panel's width>` with as large a tile as the registers hold.
macro_rules! with_tile {
    ($simd:ident, $run:ident, $argument:expr) => {
        match S::F32_LANES {
            16 => $run::<S, 6, 4>($simd, $argument),
            8 => $run::<S, 6, 2>($simd, $argument),
            4 => $run::<S, 6, 4>($simd, $argument),
            _ => $run::<S, 2, 4>($simd, $argument),
        }
    };
}

impl WithSimd for Pack<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        with_tile!(simd, run_pack, self);
    }
}

#[inline(always)]
fn run_pack<S: Simd, const TILE: usize, const VECTORS: usize>(_simd: S, task: Pack<'_>) {
    let Pack { packed, weights, output, input, transposed } = task;
    let panel = VECTORS * S::F32_LANES;
    let (depth, width) = if transposed { (input, output) } else { (output, input) };
    let padded = width.next_multiple_of(panel);
    for from in (0..depth).step_by(block_of(depth)) {
        let terms = block_of(depth).min(depth - from);
        for first in (0..width).step_by(panel) {
            let columns = panel.min(width - first);
            let target = &mut packed[from * padded + first * terms..][..terms * panel];
            if transposed {
                transpose(target, panel, &weights[first * input + from..], columns, terms, input);
            } else {
                copy_rows::<S, VECTORS>(target, &weights[from * input + first..], terms, columns, input);
            }
        }
    }
}

/// Copies rows of `columns` values, `stride` apart, into a panel.
#[inline(always)]
fn copy_rows<S: Simd, const VECTORS: usize>(
    panel: &mut [f32],
    source: &[f32],
    rows: usize,
    columns: usize,
    stride: usize,
) {
    let lanes = S::F32_LANES;
    let width = VECTORS * lanes;
    assert!(panel.len() >= rows * width && columns <= width && columns <= stride);
    assert!(rows > 0 && source.len() >= (rows - 1) * stride + columns);
    if columns < width {
        for row in 0..rows {
            panel[row * width..][..columns].copy_from_slice(&source[row * stride..][..columns]);
        }
        return;
    }
    for row in 0..rows {
        for v in 0..VECTORS {
            // SAFETY: `width` values from `row * stride` on lie in the source and from `row * width` on in the panel.
            unsafe {
                let from = source.as_ptr().add(row * stride + v * lanes).cast::<S::f32s>();
                let to = panel.as_mut_ptr().add(row * width + v * lanes).cast::<S::f32s>();
                to.write_unaligned(from.read_unaligned());
            }
        }
    }
}

impl WithSimd for Multiply<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        with_tile!(simd, run_multiply, self);
    }
}

#[inline(always)]
fn run_multiply<S: Simd, const TILE: usize, const VECTORS: usize>(simd: S, task: Multiply<'_>) {
    // A tile's sums are independent: a row on its own gets the same ones without the rows that fill a tile up.
    if task.rows == 1 {
        multiply_tiles::<S, 1, VECTORS>(simd, task);
    } else {
        multiply_tiles::<S, TILE, VECTORS>(simd, task);
    }
}

#[inline(always)]
fn multiply_tiles<S: Simd, const TILE: usize, const VECTORS: usize>(simd: S, task: Multiply<'_>) {
    let Multiply { out, x, packed, rows, depth, width, accumulate, scratch } = task;
    assert_eq!(out.len(), rows * width);
    assert!(x.len() >= rows * depth && depth > 0);
    let panel = VECTORS * S::F32_LANES;
    let padded = width.next_multiple_of(panel);
    let arithmetic = Singles(simd);
    let edge = scratch.edge.as_mut_slice();
    for top in (0..rows).step_by(ROWS) {
        let rows = ROWS.min(rows - top);
        let out = &mut out[top * width..][..rows * width];
        for from in (0..depth).step_by(block_of(depth)) {
            let terms = block_of(depth).min(depth - from);
            // Whole tiles are read where they lie, the last rows from a copy that has a tile's size.
            let (left, rest) = (&x[top * depth + from..], rows % TILE);
            let spare = &mut scratch.tiles.as_mut_slice()[..TILE * terms];
            for r in 0..rest {
                let source = &left[(rows - rest + r) * depth..][..terms];
                spare[r * terms..][..terms].copy_from_slice(source);
            }
            for first in (0..width).step_by(panel) {
                let b = &packed[from * padded + first * terms..][..terms * panel];
                let mut place = Place { out: &mut *out, edge, width, first, add: accumulate || from > 0 };
                let next = b.as_ptr().wrapping_add(terms * panel);
                let whole = Tiles { data: left, step: depth, rows: rows - rest, top: 0 };
                place.times_panel::<_, TILE, VECTORS, false>(arithmetic, whole, b, terms, next, &mut || ());
                let last = Tiles { data: spare, step: terms, rows: rest, top: rows - rest };
                place.times_panel::<_, TILE, VECTORS, false>(arithmetic, last, b, terms, next, &mut || ());
            }
        }
    }
}

impl WithSimd for Outer<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        with_tile!(simd, run_outer, self);
    }
}

#[inline(always)]
fn run_outer<S: Simd, const TILE: usize, const VECTORS: usize>(simd: S, task: Outer<'_, '_>) {
    task.in_blocks(
        1,
        #[inline(always)]
        |task, range, terms| outer_block::<S, TILE, VECTORS>(simd, task, range, terms),
    );
}

/// The parts `range`, `terms` rows together.
#[inline(always)]
fn outer_block<S: Simd, const TILE: usize, const VECTORS: usize>(
    simd: S,
    task: &mut Outer<'_, '_>,
    range: std::ops::Range<usize>,
    terms: usize,
) {
    let (width, stride, add) = (task.width, task.stride, task.accumulate);
    let panel = VECTORS * S::F32_LANES;
    let Scratch { tiles, panel: b, edge, .. } = &mut *task.scratch;
    let (tiles, b, edge) = (tiles.as_mut_slice(), b.as_mut_slice(), edge.as_mut_slice());
    let parts = || range.clone().filter_map(|index| (task.parts)(index)).filter(|part| part.rows > 0);
    for top in (0..task.height).step_by(ROWS) {
        let rows = ROWS.min(task.height - top);
        let mut at = 0;
        for part in parts() {
            gather_tiles::<_, TILE>(tiles, &part.d[top..], part.rows, rows, stride, at, terms);
            at += part.rows;
        }
        let out = &mut task.out[top * width..][..rows * width];
        for first in (0..width).step_by(panel) {
            let columns = panel.min(width - first);
            let mut at = 0;
            for part in parts() {
                copy_rows::<S, VECTORS>(&mut b[at * panel..], &part.x[first..], part.rows, columns, width);
                at += part.rows;
            }
            let left = Tiles { data: tiles, step: 0, rows, top: 0 };
            let mut place = Place { out: &mut *out, edge, width, first, add };
            let next = b.as_ptr();
            let (b, calls) = (&b[..terms * panel], rows.div_ceil(TILE));
            let ahead = &mut fetch_columns(parts(), first + panel, panel, width, terms.div_ceil(calls));
            place.times_panel::<_, TILE, VECTORS, true>(Singles(simd), left, b, terms, next, ahead);
        }
    }
}
