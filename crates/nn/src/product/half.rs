//! Products of operands rounded to bfloat16 (eight significant bits, the exponents of single precision), by the
//! instructions of AVX512-BF16.
//!
//! A word is two neighbouring terms. For each of its columns `vdpbf16ps` multiplies two words term by term (exact in
//! single precision: eight times eight bits), and adds to a sum first the product of the second terms, then that of the
//! first, rounding to nearest each time; numbers below the smallest normal one, 2^-126, count as zero. Rounding to bfloat16 is to nearest, ties to even, and of numbers
//! below 2^-126 to zero.

#[cfg(target_arch = "x86_64")]
pub(crate) use x86::Half;
#[cfg(target_arch = "x86_64")]
pub(super) use x86::MOST_WORDS;

/// Words of scratch.
#[cfg(not(target_arch = "x86_64"))]
pub(super) const MOST_WORDS: usize = 0;

/// Not here.
#[cfg(not(target_arch = "x86_64"))]
#[derive(Debug, Clone, Copy)]
pub(crate) enum Half {}

#[cfg(not(target_arch = "x86_64"))]
impl Half {
    pub(crate) fn detect() -> Option<Self> {
        None
    }

    pub(super) fn pack(self, _: super::Pack<'_>, _: &mut super::Scratch) {
        match self {}
    }

    pub(super) fn multiply(self, _: super::Multiply<'_>) {
        match self {}
    }

    pub(super) fn outer(self, _: super::Outer<'_, '_>) {
        match self {}
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::super::tile::{Arithmetic, Place, Tiles};
    use super::super::{
        Aligned, Multiply, Outer, Pack, Scratch, block_of, fetch_columns, gather_tiles, transpose,
    };
    use std::arch::x86_64::{
        __m512, __m512bh, __m512i, _mm512_add_ps, _mm512_cvtne2ps_pbh, _mm512_dpbf16_ps, _mm512_loadu_ps,
        _mm512_loadu_si512, _mm512_permutexvar_epi16, _mm512_set1_epi32, _mm512_setzero_ps,
        _mm512_storeu_si512,
    };

    /// Rows of a tile, and registers of a panel's width.
    const TILE: usize = 6;
    const VECTORS: usize = 4;
    const LANES: usize = 16;
    /// Columns of a panel.
    const PANEL: usize = VECTORS * LANES;
    /// Rows of the left side that pass one after the other: as many bytes as in single precision.
    const ROWS: usize = 2 * super::super::ROWS;
    /// Words of the left side's longest row, with a line more so that rows do not all fall into one set of the cache.
    const STEP: usize = super::super::DEPTH / 2 + LANES;
    /// Words interleaved at a time when tiles are gathered.
    const STRIP: usize = 16;

    /// Words of scratch: the left side of a product, or its tiles behind a strip.
    pub(in super::super) const MOST_WORDS: usize = ROWS * (STEP + STRIP);

    /// The processor has the instructions.
    #[derive(Debug, Clone, Copy)]
    pub(crate) struct Half(());

    impl Half {
        /// Looks whether the processor has the instructions.
        pub(crate) fn detect() -> Option<Self> {
            let found = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512bf16");
            found.then_some(Self(()))
        }

        pub(in super::super) fn pack(self, task: Pack<'_>, scratch: &mut Scratch) {
            // SAFETY: a `Half` is made only where the instructions were found.
            unsafe { pack(self, task, scratch) }
        }

        pub(in super::super) fn multiply(self, task: Multiply<'_>) {
            // SAFETY: as above.
            unsafe { multiply(self, task) }
        }

        pub(in super::super) fn outer(self, task: Outer<'_, '_>) {
            // SAFETY: as above.
            unsafe { outer(self, task) }
        }

        /// `target[i] = (source[2i], source[2i + 1])`; what is missing at the end is zero.
        #[inline(always)]
        fn neighbours(self, target: &mut [u32], source: &[f32]) {
            assert_eq!(target.len(), source.len().div_ceil(2));
            let (blocks, rest) = source.as_chunks::<{ 2 * LANES }>();
            let (targets, target_rest) = target.split_at_mut(blocks.len() * LANES);
            for (target, block) in targets.as_chunks_mut::<LANES>().0.iter_mut().zip(blocks) {
                let (first, second) = block.split_at(LANES);
                self.round(target, first, second, false);
            }
            if !rest.is_empty() {
                let (mut padded, mut words) = ([0.0; 2 * LANES], [0; LANES]);
                padded[..rest.len()].copy_from_slice(rest);
                self.round(&mut words, &padded[..LANES], &padded[LANES..], false);
                target_rest.copy_from_slice(&words[..target_rest.len()]);
            }
        }

        /// `target[i] = (even[i], odd[i])`; without `odd`, zero stands there.
        #[inline(always)]
        fn interleave(self, target: &mut [u32], even: &[f32], odd: Option<&[f32]>) {
            assert_eq!(target.len(), even.len());
            assert!(odd.is_none_or(|odd| odd.len() == even.len()));
            let nothing = [0.0; LANES];
            for from in (0..even.len()).step_by(LANES) {
                let to = (from + LANES).min(even.len());
                if to - from == LANES {
                    let odd = odd.map_or(&nothing[..], |odd| &odd[from..to]);
                    self.round(
                        (&mut target[from..to]).try_into().expect("as long"),
                        &even[from..to],
                        odd,
                        true,
                    );
                } else {
                    let (mut first, mut second, mut words) = ([0.0; LANES], [0.0; LANES], [0; LANES]);
                    first[..to - from].copy_from_slice(&even[from..to]);
                    if let Some(odd) = odd {
                        second[..to - from].copy_from_slice(&odd[from..to]);
                    }
                    self.round(&mut words, &first, &second, true);
                    target[from..to].copy_from_slice(&words[..to - from]);
                }
            }
        }

        /// Rounds `first`, then `second`; or one of each in turn.
        #[inline(always)]
        fn round(self, target: &mut [u32; LANES], first: &[f32], second: &[f32], in_turn: bool) {
            assert!(first.len() == LANES && second.len() == LANES);
            // SAFETY: all lengths are those of a register; a `Half` is made only where the instructions were found.
            unsafe {
                let (first, second) = (_mm512_loadu_ps(first.as_ptr()), _mm512_loadu_ps(second.as_ptr()));
                let rounded: __m512i = std::mem::transmute(_mm512_cvtne2ps_pbh(second, first));
                let rounded = if in_turn {
                    let order = _mm512_loadu_si512((&raw const IN_TURN).cast());
                    _mm512_permutexvar_epi16(order, rounded)
                } else {
                    rounded
                };
                _mm512_storeu_si512(target.as_mut_ptr().cast(), rounded);
            }
        }
    }

    /// The halves of a register, one of each in turn.
    static IN_TURN: [u16; 2 * LANES] = {
        let mut order = [0; 2 * LANES];
        let mut i = 0;
        while i < LANES {
            order[2 * i] = i as u16;
            order[2 * i + 1] = (LANES + i) as u16;
            i += 1;
        }
        order
    };

    // SAFETY: both registers are sixteen times four bytes.
    unsafe impl Arithmetic for Half {
        type Word = u32;
        type Words = __m512i;
        type Sums = __m512;
        const LANES: usize = LANES;
        const ZERO: u32 = 0;

        #[inline(always)]
        fn zero(self) -> __m512 {
            // SAFETY: a `Half` is made only where the instructions were found.
            unsafe { _mm512_setzero_ps() }
        }

        #[inline(always)]
        fn splat(self, word: u32) -> __m512i {
            // SAFETY: as above.
            unsafe { _mm512_set1_epi32(word.cast_signed()) }
        }

        #[inline(always)]
        fn multiply_add(self, left: __m512i, right: __m512i, sums: __m512) -> __m512 {
            // SAFETY: as above; registers of the same size.
            unsafe {
                let [left, right] =
                    [left, right].map(|words| std::mem::transmute::<__m512i, __m512bh>(words));
                _mm512_dpbf16_ps(sums, left, right)
            }
        }

        #[inline(always)]
        fn add(self, left: __m512, right: __m512) -> __m512 {
            // SAFETY: as above.
            unsafe { _mm512_add_ps(left, right) }
        }
    }

    fn words_of(buffer: &mut Aligned) -> &mut [u32] {
        bytemuck::cast_slice_mut(buffer.as_mut_slice())
    }

    /// Where the block of terms `from..` of a packed matrix begins, in words. Blocks but the last are of equal length.
    fn words_before(from: usize, depth: usize) -> usize {
        from / block_of(depth) * block_of(depth).div_ceil(2)
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
    fn pack(half: Half, task: Pack<'_>, scratch: &mut Scratch) {
        let Pack { packed, weights, output, input, transposed } = task;
        let packed: &mut [u32] = bytemuck::cast_slice_mut(packed);
        let rounded = words_of(&mut scratch.tiles);
        let (depth, width) = if transposed { (input, output) } else { (output, input) };
        let padded = width.next_multiple_of(PANEL);
        for from in (0..depth).step_by(block_of(depth)) {
            let terms = block_of(depth).min(depth - from);
            let words = terms.div_ceil(2);
            for first in (0..width).step_by(PANEL) {
                let columns = PANEL.min(width - first);
                let target =
                    &mut packed[words_before(from, depth) * padded + first * words..][..words * PANEL];
                if transposed {
                    for column in 0..columns {
                        let source = &weights[(first + column) * input + from..][..terms];
                        half.neighbours(&mut rounded[column * STEP..][..words], source);
                    }
                    transpose(target, PANEL, rounded, columns, words, STEP);
                } else {
                    let source = &weights[from * input + first..];
                    interleave_rows(half, target, PANEL, source, terms, columns, input);
                }
            }
        }
    }

    /// Pairs of rows of `columns` values, `stride` apart, become rows of words, `step` apart.
    #[inline(always)]
    fn interleave_rows(
        half: Half,
        target: &mut [u32],
        step: usize,
        source: &[f32],
        rows: usize,
        columns: usize,
        stride: usize,
    ) {
        for row in (0..rows).step_by(2) {
            let even = &source[row * stride..][..columns];
            let odd = (row + 1 < rows).then(|| &source[(row + 1) * stride..][..columns]);
            half.interleave(&mut target[row / 2 * step..][..columns], even, odd);
        }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
    fn multiply(half: Half, task: Multiply<'_>) {
        let Multiply { out, x, packed, rows, depth, width, accumulate, scratch } = task;
        assert_eq!(out.len(), rows * width);
        assert!(x.len() >= rows * depth && depth > 0);
        let packed: &[u32] = bytemuck::cast_slice(packed);
        let padded = width.next_multiple_of(PANEL);
        let (left, edge) = (words_of(&mut scratch.tiles), scratch.edge.as_mut_slice());
        for top in (0..rows).step_by(ROWS) {
            let rows = ROWS.min(rows - top);
            let out = &mut out[top * width..][..rows * width];
            for from in (0..depth).step_by(block_of(depth)) {
                let terms = block_of(depth).min(depth - from);
                let words = terms.div_ceil(2);
                for row in 0..rows {
                    let source = &x[(top + row) * depth + from..][..terms];
                    half.neighbours(&mut left[row * STEP..][..words], source);
                }
                for first in (0..width).step_by(PANEL) {
                    let b = &packed[words_before(from, depth) * padded + first * words..][..words * PANEL];
                    let mut place = Place { out: &mut *out, edge, width, first, add: accumulate || from > 0 };
                    let next = b.as_ptr().wrapping_add(words * PANEL);
                    let tiles = Tiles { data: left, step: STEP, rows, top: 0 };
                    place.times_panel::<_, TILE, VECTORS, false>(half, tiles, b, words, next, &mut || ());
                }
            }
        }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
    fn outer(half: Half, task: Outer<'_, '_>) {
        task.in_blocks(
            2,
            #[inline(always)]
            |task, range, terms| outer_block(half, task, range, terms / 2),
        );
    }

    /// The parts `range`, `words` pairs of rows together.
    #[inline(always)]
    fn outer_block(half: Half, task: &mut Outer<'_, '_>, range: std::ops::Range<usize>, words: usize) {
        let (width, stride, add) = (task.width, task.stride, task.accumulate);
        let Scratch { tiles, panel, edge } = &mut *task.scratch;
        let (tiles, b) = (words_of(tiles), words_of(panel));
        let (strip, tiles) = tiles.split_at_mut(STRIP * ROWS);
        let edge = edge.as_mut_slice();
        let parts = || range.clone().filter_map(|index| (task.parts)(index)).filter(|part| part.rows > 0);
        for top in (0..task.height).step_by(ROWS) {
            let rows = ROWS.min(task.height - top);
            let mut at = 0;
            for part in parts() {
                for from in (0..part.rows).step_by(2 * STRIP) {
                    let terms = (2 * STRIP).min(part.rows - from);
                    let source = &part.d[from * stride + top..];
                    interleave_rows(half, strip, ROWS, source, terms, rows, stride);
                    gather_tiles::<_, TILE>(tiles, strip, terms.div_ceil(2), rows, ROWS, at, words);
                    at += terms.div_ceil(2);
                }
            }
            let out = &mut task.out[top * width..][..rows * width];
            for first in (0..width).step_by(PANEL) {
                let columns = PANEL.min(width - first);
                let mut at = 0;
                for part in parts() {
                    interleave_rows(
                        half,
                        &mut b[at * PANEL..],
                        PANEL,
                        &part.x[first..],
                        part.rows,
                        columns,
                        width,
                    );
                    at += part.rows.div_ceil(2);
                }
                let left = Tiles { data: tiles, step: 0, rows, top: 0 };
                let mut place = Place { out: &mut *out, edge, width, first, add };
                let next = b.as_ptr();
                let (b, calls) = (&b[..words * PANEL], rows.div_ceil(TILE));
                let ahead =
                    &mut fetch_columns(parts(), first + PANEL, PANEL, width, (2 * words).div_ceil(calls));
                place.times_panel::<_, TILE, VECTORS, true>(half, left, b, words, next, ahead);
            }
        }
    }
}
