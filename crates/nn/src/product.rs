//! Matrix products, for the shapes a network has. One thread does one product; callers cut them up.
//!
//! A product `C = A B` runs over blocks of at most [`DEPTH`] terms. Within a block, `B` stands in *panels* as wide
//! as two vector registers, `A` in *tiles* of as many rows as the accumulators allow; the innermost kernel adds
//! the product of a tile and a panel to a part of `C` that stays in registers. Each element of `C` is therefore
//! summed in an order that depends on the number of terms alone, not on how rows are shared among threads.
//!
//! Why not a library: those at hand lay the right side out again in every call and allocate for it, while a network's weights
//! serve all rows of a batch, whatever pieces it is cut in; and none has a way to half-precision products. The kernel
//! is written once over `pulp`'s vectors, compiled for each instruction set, and chosen at run time.

use bytemuck::{Pod, Zeroable};
use pulp::{Arch, Simd, WithSimd};
use std::cell::RefCell;

/// Most terms of a block: a panel of that depth fits the first-level cache.
pub(crate) const DEPTH: usize = 256;
/// Most rows of a block of `A`: a multiple of every tile's rows, and with [`DEPTH`] terms half of a small
/// second-level cache.
const ROWS: usize = 264;
/// The widest panel of any instruction set; buffers for panels are padded to it.
const WIDEST: usize = 32;
/// The largest tile times the widest panel.
const LARGEST_TILE: usize = 12 * WIDEST;

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

/// Where a thread gathers its tiles, a panel, and results at the edge of a matrix.
struct Scratch {
    tiles: Aligned,
    panel: Aligned,
    edge: Aligned,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch {
        tiles: Aligned::zeroed(ROWS * DEPTH),
        panel: Aligned::zeroed(WIDEST * DEPTH),
        edge: Aligned::zeroed(LARGEST_TILE),
    });
}

/// Makes this thread's scratch, which is otherwise made by its first product.
pub(crate) fn prepare_thread() {
    SCRATCH.with_borrow(|_| ());
}

/// Terms of each block of a product but the last: blocks of about equal size.
fn block_of(depth: usize) -> usize {
    depth.div_ceil(depth.div_ceil(DEPTH))
}

/// Room for a `[depth, width]` matrix in panels.
pub(crate) fn packed_len(depth: usize, width: usize) -> usize {
    depth * width.next_multiple_of(WIDEST)
}

/// Lays the weights `[output, input]` out in panels, as the right side of [`multiply`]: transposed
/// (`depth = input`, for `x W^T`) or as they are (`depth = output`, for `d W`).
pub(crate) fn pack(packed: &mut [f32], weights: &[f32], output: usize, input: usize, transposed: bool) {
    assert_eq!(weights.len(), output * input);
    Arch::new().dispatch(Pack { packed, weights, output, input, transposed });
}

/// `out = x B` or `out += x B`; `x: [rows, depth]`, `out: [rows, width]`, `B` from [`pack`].
pub(crate) fn multiply(
    out: &mut [f32],
    x: &[f32],
    packed: &[f32],
    rows: usize,
    depth: usize,
    width: usize,
    accumulate: bool,
) {
    assert_eq!(out.len(), rows * width);
    assert!(x.len() >= rows * depth && depth > 0);
    SCRATCH.with_borrow_mut(|scratch| {
        Arch::new().dispatch(Multiply { out, x, packed, rows, depth, width, accumulate, scratch });
    });
}

/// `out = d^T x` or `out += d^T x`, the gradient of weights: `d: [depth, rows]` with its rows `stride` apart, `x: [depth, width]`,
/// `out: [rows, width]`.
pub(crate) fn outer(
    out: &mut [f32],
    d: &[f32],
    x: &[f32],
    depth: usize,
    rows: usize,
    stride: usize,
    width: usize,
    accumulate: bool,
) {
    assert_eq!(out.len(), rows * width);
    assert!(
        depth > 0 && rows <= stride && d.len() >= (depth - 1) * stride + rows && x.len() >= depth * width
    );
    SCRATCH.with_borrow_mut(|scratch| {
        Arch::new().dispatch(Outer { out, d, x, depth, rows, stride, width, accumulate, scratch });
    });
}

/// Calls `$run::<S, rows of a tile, registers of a panel's width>` with as large a tile as the registers hold.
macro_rules! with_tile {
    ($simd:ident, $run:ident, $argument:expr) => {
        match S::F32_LANES {
            16 => $run::<S, 12, 2>($simd, $argument),
            8 => $run::<S, 6, 2>($simd, $argument),
            4 => $run::<S, 8, 2>($simd, $argument),
            _ => $run::<S, 2, 4>($simd, $argument),
        }
    };
}

struct Pack<'a> {
    packed: &'a mut [f32],
    weights: &'a [f32],
    output: usize,
    input: usize,
    transposed: bool,
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
            if columns < panel {
                target.fill(0.0);
            }
            if transposed {
                for column in 0..columns {
                    let source = &weights[(first + column) * input + from..][..terms];
                    for (row, &weight) in target.chunks_exact_mut(panel).zip(source) {
                        row[column] = weight;
                    }
                }
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

impl WithSimd for Multiply<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        with_tile!(simd, run_multiply, self);
    }
}

#[inline(always)]
fn run_multiply<S: Simd, const TILE: usize, const VECTORS: usize>(simd: S, task: Multiply<'_>) {
    let Multiply { out, x, packed, rows, depth, width, accumulate, scratch } = task;
    let panel = VECTORS * S::F32_LANES;
    let padded = width.next_multiple_of(panel);
    let tiles = scratch.tiles.as_mut_slice();
    for top in (0..rows).step_by(ROWS) {
        let block_rows = ROWS.min(rows - top);
        let out = &mut out[top * width..][..block_rows * width];
        for from in (0..depth).step_by(block_of(depth)) {
            let terms = block_of(depth).min(depth - from);
            for row in 0..block_rows {
                let source = &x[(top + row) * depth + from..][..terms];
                tiles[row * DEPTH..][..terms].copy_from_slice(source);
            }
            let add = accumulate || from > 0;
            for first in (0..width).step_by(panel) {
                let b = &packed[from * padded + first * terms..][..terms * panel];
                let edge = scratch.edge.as_mut_slice();
                times_panel::<S, TILE, VECTORS, false>(
                    simd, out, tiles, b, edge, block_rows, terms, first, width, add,
                );
            }
        }
    }
}

struct Outer<'a> {
    out: &'a mut [f32],
    d: &'a [f32],
    x: &'a [f32],
    depth: usize,
    rows: usize,
    stride: usize,
    width: usize,
    accumulate: bool,
    scratch: &'a mut Scratch,
}

impl WithSimd for Outer<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        with_tile!(simd, run_outer, self);
    }
}

#[inline(always)]
fn run_outer<S: Simd, const TILE: usize, const VECTORS: usize>(simd: S, task: Outer<'_>) {
    let Outer { out, d, x, depth, rows, stride, width, accumulate, scratch } = task;
    let panel = VECTORS * S::F32_LANES;
    let tiles = scratch.tiles.as_mut_slice();
    let b = scratch.panel.as_mut_slice();
    for top in (0..rows).step_by(ROWS) {
        let block_rows = ROWS.min(rows - top);
        let out = &mut out[top * width..][..block_rows * width];
        for from in (0..depth).step_by(block_of(depth)) {
            let terms = block_of(depth).min(depth - from);
            for row in (0..block_rows).step_by(TILE) {
                let tile_rows = TILE.min(block_rows - row);
                let tile = &mut tiles[row * DEPTH..][..TILE * DEPTH];
                let source = &d[from * stride + top + row..];
                if tile_rows == TILE {
                    for (term, target) in tile.as_chunks_mut::<TILE>().0[..terms].iter_mut().enumerate() {
                        target.copy_from_slice(&source[term * stride..][..TILE]);
                    }
                } else {
                    for term in 0..terms {
                        tile[term * TILE..][..tile_rows]
                            .copy_from_slice(&source[term * stride..][..tile_rows]);
                    }
                }
            }
            for first in (0..width).step_by(panel) {
                let columns = panel.min(width - first);
                copy_rows::<S, VECTORS>(b, &x[from * width + first..], terms, columns, width);
                let edge = scratch.edge.as_mut_slice();
                let add = accumulate || from > 0;
                times_panel::<S, TILE, VECTORS, true>(
                    simd, out, tiles, b, edge, block_rows, terms, first, width, add,
                );
            }
        }
    }
}

/// Columns `first..` of a block of `out`, as many as the panel `b` is wide: all tiles of rows times the panel.
#[inline(always)]
fn times_panel<S: Simd, const TILE: usize, const VECTORS: usize, const TERM_MAJOR: bool>(
    simd: S,
    out: &mut [f32],
    tiles: &[f32],
    b: &[f32],
    edge: &mut [f32],
    rows: usize,
    terms: usize,
    first: usize,
    width: usize,
    add: bool,
) {
    let panel = VECTORS * S::F32_LANES;
    let columns = panel.min(width - first);
    assert!(b.len() >= terms * panel && terms <= DEPTH && edge.len() >= TILE * panel);
    assert!(tiles.len() >= rows.next_multiple_of(TILE) * DEPTH && out.len() >= rows * width);
    for row in (0..rows).step_by(TILE) {
        let tile_rows = TILE.min(rows - row);
        let tile = tiles[row * DEPTH..].as_ptr();
        // Each tile fetches its share of the panel that follows.
        let next =
            b.as_ptr().wrapping_add(terms * panel + row / TILE * terms.div_ceil(PREFETCH_EVERY) * LINE);
        if tile_rows == TILE && columns == panel {
            let corner = out[row * width + first..].as_mut_ptr();
            // SAFETY: the tile has TILE * DEPTH values and the panel terms * panel (asserted above); TILE rows of `panel`
            // values, `width` apart, from `corner` on lie in `out`.
            unsafe {
                kernel::<S, TILE, VECTORS, TERM_MAJOR>(
                    simd,
                    terms,
                    tile,
                    b.as_ptr(),
                    corner,
                    width,
                    add,
                    next,
                )
            };
            continue;
        }
        // SAFETY: as above, with the result in `edge`, which has TILE * panel values.
        unsafe {
            kernel::<S, TILE, VECTORS, TERM_MAJOR>(
                simd,
                terms,
                tile,
                b.as_ptr(),
                edge.as_mut_ptr(),
                panel,
                false,
                next,
            );
        }
        for r in 0..tile_rows {
            let target = &mut out[(row + r) * width + first..][..columns];
            let source = &edge[r * panel..][..columns];
            if add {
                for (t, s) in target.iter_mut().zip(source) {
                    *t += s;
                }
            } else {
                target.copy_from_slice(source);
            }
        }
    }
}

/// Terms between two prefetches.
const PREFETCH_EVERY: usize = 8;
/// Values on a cache line.
const LINE: usize = 16;

/// Asks for a cache line, into the first level or the second. A hint: any address is allowed.
#[inline(always)]
fn prefetch<const FIRST_LEVEL: bool>(address: *const f32) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _MM_HINT_T1, _mm_prefetch};
        // SAFETY: a prefetch reads nothing and never faults; SSE is part of x86-64.
        unsafe {
            if FIRST_LEVEL {
                _mm_prefetch::<_MM_HINT_T0>(address.cast());
            } else {
                _mm_prefetch::<_MM_HINT_T1>(address.cast());
            }
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// `c = tile panel` or `c += tile panel`, `c: [TILE, VECTORS registers]` with rows `stride` apart.
///
/// Meanwhile fetches the lines of `c`, and from `next` on one line for every eight terms.
///
/// # Safety
/// `tile` must be readable for `TILE * DEPTH` values if row-major, `TILE * terms` if `TERM_MAJOR`, with
/// `terms <= DEPTH`; `b` for `terms` times the panel's width; `c` readable and writable where it says.
#[inline(always)]
unsafe fn kernel<S: Simd, const TILE: usize, const VECTORS: usize, const TERM_MAJOR: bool>(
    simd: S,
    terms: usize,
    tile: *const f32,
    b: *const f32,
    c: *mut f32,
    stride: usize,
    add: bool,
    next: *const f32,
) {
    let lanes = S::F32_LANES;
    let (row_step, term_step) = if TERM_MAJOR { (1, TILE) } else { (DEPTH, 1) };
    let mut sums = [[simd.splat_f32s(0.0); VECTORS]; TILE];
    for (line, from) in (0..terms).step_by(PREFETCH_EVERY).enumerate() {
        if line < TILE {
            prefetch::<true>(c.wrapping_add(line * stride));
            prefetch::<true>(c.wrapping_add(line * stride + (VECTORS - 1) * lanes));
        }
        prefetch::<false>(next.wrapping_add(line * LINE));
        for term in from..terms.min(from + PREFETCH_EVERY) {
            let mut right = [simd.splat_f32s(0.0); VECTORS];
            for v in 0..VECTORS {
                // SAFETY: inside the panel, by the caller's contract.
                right[v] = unsafe { b.add((term * VECTORS + v) * lanes).cast::<S::f32s>().read_unaligned() };
            }
            for r in 0..TILE {
                // SAFETY: inside the tile, by the caller's contract.
                let left = simd.splat_f32s(unsafe { *tile.add(term * term_step + r * row_step) });
                for v in 0..VECTORS {
                    sums[r][v] = simd.mul_add_e_f32s(left, right[v], sums[r][v]);
                }
            }
        }
    }
    for r in 0..TILE {
        for v in 0..VECTORS {
            // SAFETY: inside `c`, by the caller's contract.
            unsafe {
                let target = c.add(r * stride + v * lanes).cast::<S::f32s>();
                let sum = if add { simd.add_f32s(target.read_unaligned(), sums[r][v]) } else { sums[r][v] };
                target.write_unaligned(sum);
            }
        }
    }
}

#[cfg(test)]
#[path = "product_tests.rs"]
mod tests;
