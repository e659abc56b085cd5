//! Matrix products, for the shapes a network has. One thread does one product; callers cut them up.
//!
//! The right side of a product stands in *panels*, as wide as a few vector registers and at most [`DEPTH`] terms
//! deep; the left side is taken in *tiles* of a few rows. The innermost kernel multiplies a tile with a panel, its
//! sums in registers from the first term to the last; the panel stays in the second-level cache while all tiles pass.
//! Each element is summed in an order that depends on the number of terms alone, not on how rows are shared among
//! threads.
//!
//! Why not a library: those at hand lay the right side out again in every call and allocate for it, while a network's
//! weights serve all rows of a batch, whatever pieces it is cut in; and none has a way to half-precision products. The
//! kernel is written once over `pulp`'s vectors, compiled for each instruction set, and chosen at run time.

use bytemuck::{Pod, Zeroable};
use pulp::{Arch, Simd, WithSimd};
use std::cell::RefCell;

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

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch {
        tiles: Aligned::zeroed(ROWS.next_multiple_of(TALLEST) * DEPTH),
        panel: Aligned::zeroed(WIDEST * DEPTH),
        edge: Aligned::zeroed(TALLEST * WIDEST),
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
    SCRATCH.with_borrow_mut(|scratch| {
        Arch::new().dispatch(Multiply { out, x, packed, rows, depth, width, accumulate, scratch });
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

/// `out = sum of d^T x` over the parts, or `out +=` that: the gradient of weights. `out: [height, width]`, of each row
/// of a `d` the first `height` values.
pub(crate) fn outer<'a>(
    out: &mut [f32],
    parts: &dyn Fn(usize) -> Option<Part<'a>>,
    height: usize,
    stride: usize,
    width: usize,
    accumulate: bool,
) {
    SCRATCH.with_borrow_mut(|scratch| {
        Arch::new().dispatch(Outer { out, parts, height, stride, width, accumulate, scratch });
    });
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
            if transposed {
                transpose(target, panel, &weights[first * input + from..], columns, terms, input);
            } else {
                copy_rows::<S, VECTORS>(target, &weights[from * input + first..], terms, columns, input);
            }
        }
    }
}

/// Side of the squares that are transposed at a time.
const SQUARE: usize = 16;

/// Rows of `terms` values, `stride` apart, become columns of a panel.
#[inline(always)]
fn transpose(panel: &mut [f32], width: usize, source: &[f32], rows: usize, terms: usize, stride: usize) {
    let whole = |len: usize| len - len % SQUARE;
    for term in (0..whole(terms)).step_by(SQUARE) {
        for row in (0..whole(rows)).step_by(SQUARE) {
            let mut square = [[0.0_f32; SQUARE]; SQUARE];
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
    assert_eq!(out.len(), rows * width);
    assert!(x.len() >= rows * depth && depth > 0);
    let panel = VECTORS * S::F32_LANES;
    let padded = width.next_multiple_of(panel);
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
                place.times_panel::<S, TILE, VECTORS, false>(simd, whole, b, terms, next);
                let last = Tiles { data: spare, step: terms, rows: rest, top: rows - rest };
                place.times_panel::<S, TILE, VECTORS, false>(simd, last, b, terms, next);
            }
        }
    }
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

impl WithSimd for Outer<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        with_tile!(simd, run_outer, self);
    }
}

#[inline(always)]
fn run_outer<S: Simd, const TILE: usize, const VECTORS: usize>(simd: S, mut task: Outer<'_, '_>) {
    assert_eq!(task.out.len(), task.height * task.width);
    assert!(task.height <= task.stride);
    let mut from = 0;
    while (task.parts)(from).is_some() {
        // As many parts as fit are summed together.
        let (mut to, mut terms) = (from, 0);
        while let Some(part) = (task.parts)(to) {
            assert!(part.rows <= DEPTH && part.x.len() >= part.rows * task.width);
            if terms + part.rows > DEPTH {
                break;
            }
            terms += part.rows;
            to += 1;
        }
        if terms > 0 {
            outer_block::<S, TILE, VECTORS>(simd, &mut task, from..to, terms);
            task.accumulate = true;
        }
        from = to;
    }
    if !task.accumulate {
        task.out.fill(0.0);
    }
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
    let Scratch { tiles, panel: b, edge } = &mut *task.scratch;
    let (tiles, b, edge) = (tiles.as_mut_slice(), b.as_mut_slice(), edge.as_mut_slice());
    let parts = || range.clone().filter_map(|index| (task.parts)(index)).filter(|part| part.rows > 0);
    for top in (0..task.height).step_by(ROWS) {
        let rows = ROWS.min(task.height - top);
        let mut at = 0;
        for part in parts() {
            gather_tiles::<TILE>(tiles, &part.d[top..], part.rows, rows, stride, at, terms);
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
            place.times_panel::<S, TILE, VECTORS, true>(simd, left, &b[..terms * panel], terms, next);
        }
    }
}

/// Columns of `d: [depth, rows]` become tiles of `terms` terms, at term `at`.
#[inline(always)]
fn gather_tiles<const TILE: usize>(
    tiles: &mut [f32],
    d: &[f32],
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

/// `rows` rows of the left side, `step` apart, or where tiles were gathered one tile after the other; they give the
/// rows from `top` on of the result.
#[derive(Clone, Copy)]
struct Tiles<'a> {
    data: &'a [f32],
    step: usize,
    rows: usize,
    top: usize,
}

/// The columns from `first` on of a result `[.., width]`, as many as a panel is wide.
struct Place<'a> {
    out: &'a mut [f32],
    edge: &'a mut [f32],
    width: usize,
    first: usize,
    add: bool,
}

impl Place<'_> {
    /// All tiles times the panel `b`; meanwhile fetches what is at `next`.
    #[inline(always)]
    fn times_panel<S: Simd, const TILE: usize, const VECTORS: usize, const GATHERED: bool>(
        &mut self,
        simd: S,
        tiles: Tiles<'_>,
        b: &[f32],
        terms: usize,
        next: *const f32,
    ) {
        let lanes = S::F32_LANES;
        // A last panel may be narrow: only the registers that hold something are worked on.
        match (self.width - self.first).div_ceil(lanes).min(VECTORS) {
            1 => self.tiles_times_panel::<S, TILE, VECTORS, 1, GATHERED>(simd, tiles, b, terms, next),
            2 => self.tiles_times_panel::<S, TILE, VECTORS, 2, GATHERED>(simd, tiles, b, terms, next),
            3 => self.tiles_times_panel::<S, TILE, VECTORS, 3, GATHERED>(simd, tiles, b, terms, next),
            _ => self.tiles_times_panel::<S, TILE, VECTORS, VECTORS, GATHERED>(simd, tiles, b, terms, next),
        }
    }

    #[inline(always)]
    fn tiles_times_panel<
        S: Simd,
        const TILE: usize,
        const VECTORS: usize,
        const USED: usize,
        const GATHERED: bool,
    >(
        &mut self,
        simd: S,
        tiles: Tiles<'_>,
        b: &[f32],
        terms: usize,
        next: *const f32,
    ) {
        let panel = VECTORS * S::F32_LANES;
        let columns = panel.min(self.width - self.first);
        let used = USED * S::F32_LANES;
        let whole_tiles = tiles.rows.next_multiple_of(TILE);
        assert!(b.len() >= terms * panel && self.edge.len() >= TILE * used && USED <= VECTORS);
        let needed =
            if GATHERED { whole_tiles * terms } else { (whole_tiles.max(1) - 1) * tiles.step + terms };
        assert!(whole_tiles == 0 || tiles.data.len() >= needed);
        assert!(self.out.len() >= (tiles.top + tiles.rows) * self.width);
        for row in (0..tiles.rows).step_by(TILE) {
            let tile_rows = TILE.min(tiles.rows - row);
            let tile = tiles.data[row * if GATHERED { terms } else { tiles.step }..].as_ptr();
            let next = next.wrapping_add(row / TILE * terms.div_ceil(FETCH_EVERY) * LINE);
            let corner = (tiles.top + row) * self.width + self.first;
            let whole = tile_rows == TILE && columns == used;
            let (c, stride) = if whole {
                (self.out[corner..].as_mut_ptr(), self.width)
            } else {
                (self.edge.as_mut_ptr(), used)
            };
            // SAFETY: the tile's values and the panel's lie in their slices (asserted above). `c` has TILE rows of `used`
            // values: in `out` if those are all inside it, else in `edge`.
            unsafe {
                kernel::<S, TILE, VECTORS, USED, GATHERED>(
                    simd,
                    terms,
                    tile,
                    tiles.step,
                    b.as_ptr(),
                    c,
                    stride,
                    self.add && whole,
                    next,
                );
            }
            if !whole {
                self.take_edge(corner, tile_rows, columns, used);
            }
        }
    }

    /// Moves what belongs to the result from the edge.
    #[inline(always)]
    fn take_edge(&mut self, corner: usize, rows: usize, columns: usize, used: usize) {
        for r in 0..rows {
            let target = &mut self.out[corner + r * self.width..][..columns];
            let source = &self.edge[r * used..][..columns];
            if self.add {
                for (t, s) in target.iter_mut().zip(source) {
                    *t += s;
                }
            } else {
                target.copy_from_slice(source);
            }
        }
    }
}

/// Terms between two fetches.
const FETCH_EVERY: usize = 8;
/// Values on a cache line.
const LINE: usize = 16;

/// Asks for a cache line, into the first level or the second. A hint: any address is allowed.
#[inline(always)]
fn fetch<const FIRST_LEVEL: bool>(address: *const f32) {
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

/// `c = tile panel` or `c += tile panel`, `c: [TILE, USED registers]` with rows `stride` apart; the tile's rows are
/// `step` apart, or it is gathered term by term. Meanwhile fetches the lines of `c`, and if the panels lie one after the
/// other (where tiles are not gathered) from `next` on one line for every eight terms.
///
/// # Safety
/// The tile must be readable for `TILE` rows of `terms` values; `b` for `terms` rows of `VECTORS` registers; `c`
/// readable and writable where it says.
#[inline(always)]
unsafe fn kernel<
    S: Simd,
    const TILE: usize,
    const VECTORS: usize,
    const USED: usize,
    const GATHERED: bool,
>(
    simd: S,
    terms: usize,
    tile: *const f32,
    step: usize,
    b: *const f32,
    c: *mut f32,
    stride: usize,
    add: bool,
    next: *const f32,
) {
    let lanes = S::F32_LANES;
    let mut sums = [[simd.splat_f32s(0.0); USED]; TILE];
    for (line, from) in (0..terms).step_by(FETCH_EVERY).enumerate() {
        if line < TILE {
            for v in 0..USED {
                fetch::<true>(c.wrapping_add(line * stride + v * lanes));
            }
        }
        if !GATHERED {
            fetch::<false>(next.wrapping_add(line * LINE));
        }
        // Written out: a loop's counters and addresses would take a sixth of the slots that multiply-adds need.
        macro_rules! add_terms {
            ($($ahead:literal)*) => {
                // SAFETY: by the caller's contract, the terms being below `terms`.
                $(unsafe {
                    let term = from + $ahead;
                    add_term::<S, TILE, VECTORS, USED, GATHERED>(simd, term, tile, step, b, &mut sums);
                })*
            };
        }
        if terms - from >= FETCH_EVERY {
            add_terms!(0 1 2 3 4 5 6 7);
        } else {
            for term in from..terms {
                // SAFETY: as above.
                unsafe { add_term::<S, TILE, VECTORS, USED, GATHERED>(simd, term, tile, step, b, &mut sums) };
            }
        }
    }
    for r in 0..TILE {
        for v in 0..USED {
            // SAFETY: inside `c`, by the caller's contract.
            unsafe {
                let target = c.add(r * stride + v * lanes).cast::<S::f32s>();
                let sum = if add { simd.add_f32s(target.read_unaligned(), sums[r][v]) } else { sums[r][v] };
                target.write_unaligned(sum);
            }
        }
    }
}

/// Adds one term of the tile's columns times the panel's row to the sums.
///
/// # Safety
/// As for [`kernel`]; `term` must be below its `terms`.
#[inline(always)]
unsafe fn add_term<
    S: Simd,
    const TILE: usize,
    const VECTORS: usize,
    const USED: usize,
    const GATHERED: bool,
>(
    simd: S,
    term: usize,
    tile: *const f32,
    step: usize,
    b: *const f32,
    sums: &mut [[S::f32s; USED]; TILE],
) {
    let lanes = S::F32_LANES;
    let mut right = [simd.splat_f32s(0.0); USED];
    for v in 0..USED {
        // SAFETY: inside the panel, by the caller's contract.
        right[v] = unsafe { b.add((term * VECTORS + v) * lanes).cast::<S::f32s>().read_unaligned() };
    }
    for r in 0..TILE {
        let place = if GATHERED { term * TILE + r } else { r * step + term };
        // SAFETY: inside the tile, by the caller's contract.
        let left = simd.splat_f32s(unsafe { *tile.add(place) });
        for v in 0..USED {
            sums[r][v] = simd.mul_add_e_f32s(left, right[v], sums[r][v]);
        }
    }
}

#[cfg(test)]
#[path = "product_tests.rs"]
mod tests;
