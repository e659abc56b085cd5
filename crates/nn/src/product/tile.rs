//! The innermost kernel: tiles of the left side times a panel of the right side, in registers.

/// How the terms of a product stand in memory and are summed.
///
/// # Safety
/// `Words` are `LANES` times a `Word` and `Sums` are `LANES` times an `f32`, side by side and any bits.
pub(super) unsafe trait Arithmetic: Copy {
    /// What both sides are made of: one term or several neighbouring ones. Four bytes.
    type Word: Copy;
    /// A register of words, one for each column.
    type Words: Copy;
    /// A register of sums in single precision, one for each column.
    type Sums: Copy;
    /// Columns in a register.
    const LANES: usize;
    /// A word of zeros.
    const ZERO: Self::Word;

    /// Sums of nothing.
    fn zero(self) -> Self::Sums;
    /// The same word for every column.
    fn splat(self, word: Self::Word) -> Self::Words;
    /// Adds the products of the words' terms to the sums.
    fn multiply_add(self, left: Self::Words, right: Self::Words, sums: Self::Sums) -> Self::Sums;
    /// Adds sums.
    fn add(self, left: Self::Sums, right: Self::Sums) -> Self::Sums;
}

/// `rows` rows of the left side, `step` apart, or where tiles were gathered one tile after the other; they give the
/// rows from `top` on of the result.
#[derive(Clone, Copy)]
pub(super) struct Tiles<'a, W> {
    pub(super) data: &'a [W],
    pub(super) step: usize,
    pub(super) rows: usize,
    pub(super) top: usize,
}

/// The columns from `first` on of a result `[.., width]`, as many as a panel is wide.
pub(super) struct Place<'a> {
    pub(super) out: &'a mut [f32],
    pub(super) edge: &'a mut [f32],
    pub(super) width: usize,
    pub(super) first: usize,
    pub(super) add: bool,
}

impl Place<'_> {
    /// All tiles times the panel `b`; meanwhile fetches what is at `next`, and calls `ahead` before each tile.
    #[inline(always)]
    pub(super) fn times_panel<
        A: Arithmetic,
        const TILE: usize,
        const VECTORS: usize,
        const GATHERED: bool,
    >(
        &mut self,
        arithmetic: A,
        tiles: Tiles<'_, A::Word>,
        b: &[A::Word],
        words: usize,
        next: *const A::Word,
        ahead: &mut impl FnMut(),
    ) {
        let lanes = A::LANES;
        // A last panel may be narrow: only the registers that hold something are worked on.
        match (self.width - self.first).div_ceil(lanes).min(VECTORS) {
            1 => self
                .tiles_times_panel::<A, TILE, VECTORS, 1, GATHERED>(arithmetic, tiles, b, words, next, ahead),
            2 => self
                .tiles_times_panel::<A, TILE, VECTORS, 2, GATHERED>(arithmetic, tiles, b, words, next, ahead),
            3 => self
                .tiles_times_panel::<A, TILE, VECTORS, 3, GATHERED>(arithmetic, tiles, b, words, next, ahead),
            _ => self.tiles_times_panel::<A, TILE, VECTORS, VECTORS, GATHERED>(
                arithmetic, tiles, b, words, next, ahead,
            ),
        }
    }

    #[inline(always)]
    fn tiles_times_panel<
        A: Arithmetic,
        const TILE: usize,
        const VECTORS: usize,
        const USED: usize,
        const GATHERED: bool,
    >(
        &mut self,
        arithmetic: A,
        tiles: Tiles<'_, A::Word>,
        b: &[A::Word],
        words: usize,
        next: *const A::Word,
        ahead: &mut impl FnMut(),
    ) {
        let panel = VECTORS * A::LANES;
        let columns = panel.min(self.width - self.first);
        let used = USED * A::LANES;
        let whole_tiles = tiles.rows.next_multiple_of(TILE);
        assert!(b.len() >= words * panel && self.edge.len() >= TILE * used && USED <= VECTORS);
        let needed =
            if GATHERED { whole_tiles * words } else { (whole_tiles.max(1) - 1) * tiles.step + words };
        assert!(whole_tiles == 0 || tiles.data.len() >= needed);
        assert!(self.out.len() >= (tiles.top + tiles.rows) * self.width);
        for row in (0..tiles.rows).step_by(TILE) {
            let tile_rows = TILE.min(tiles.rows - row);
            let tile = tiles.data[row * if GATHERED { words } else { tiles.step }..].as_ptr();
            let next = next.wrapping_add(row / TILE * words.div_ceil(FETCH_EVERY) * LINE);
            let corner = (tiles.top + row) * self.width + self.first;
            let whole = tile_rows == TILE && columns == used;
            ahead();
            let (c, stride) = if whole {
                (self.out[corner..].as_mut_ptr(), self.width)
            } else {
                (self.edge.as_mut_ptr(), used)
            };
            // SAFETY: the tile's values and the panel's lie in their slices (asserted above). `c` has TILE rows of `used`
            // values: in `out` if those are all inside it, else in `edge`.
            unsafe {
                kernel::<A, TILE, VECTORS, USED, GATHERED>(
                    arithmetic,
                    words,
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

/// Words between two fetches.
const FETCH_EVERY: usize = 8;
/// Values on a cache line.
pub(super) const LINE: usize = 16;

/// Asks for a cache line, into the first level or the second. A hint: any address is allowed.
#[inline(always)]
pub(super) fn fetch<T, const FIRST_LEVEL: bool>(address: *const T) {
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
/// `step` apart, or it is gathered word by word. Meanwhile fetches the lines of `c`, and if the panels lie one after the
/// other (where tiles are not gathered) from `next` on one line for every eight words.
///
/// # Safety
/// The tile must be readable for `TILE` rows of `words` values; `b` for `words` rows of `VECTORS` registers; `c`
/// readable and writable where it says.
#[inline(always)]
unsafe fn kernel<
    A: Arithmetic,
    const TILE: usize,
    const VECTORS: usize,
    const USED: usize,
    const GATHERED: bool,
>(
    arithmetic: A,
    words: usize,
    tile: *const A::Word,
    step: usize,
    b: *const A::Word,
    c: *mut f32,
    stride: usize,
    add: bool,
    next: *const A::Word,
) {
    let lanes = A::LANES;
    let mut sums = [[arithmetic.zero(); USED]; TILE];
    for (line, from) in (0..words).step_by(FETCH_EVERY).enumerate() {
        if line < TILE {
            for v in 0..USED {
                fetch::<_, true>(c.wrapping_add(line * stride + v * lanes));
            }
        }
        if !GATHERED {
            fetch::<_, false>(next.wrapping_add(line * LINE));
        }
        // Written out: a loop's counters and addresses would take a sixth of the slots that multiply-adds need.
        macro_rules! add_words {
            ($($ahead:literal)*) => {
                // SAFETY: by the caller's contract, the words being below `words`.
                $(unsafe {
                    let word = from + $ahead;
                    add_word::<A, TILE, VECTORS, USED, GATHERED>(arithmetic, word, tile, step, b, &mut sums);
                })*
            };
        }
        if words - from >= FETCH_EVERY {
            add_words!(0 1 2 3 4 5 6 7);
        } else {
            for word in from..words {
                // SAFETY: as above.
                unsafe {
                    add_word::<A, TILE, VECTORS, USED, GATHERED>(arithmetic, word, tile, step, b, &mut sums)
                };
            }
        }
    }
    for r in 0..TILE {
        for v in 0..USED {
            // SAFETY: inside `c`, by the caller's contract.
            unsafe {
                let target = c.add(r * stride + v * lanes).cast::<A::Sums>();
                let sum = if add { arithmetic.add(target.read_unaligned(), sums[r][v]) } else { sums[r][v] };
                target.write_unaligned(sum);
            }
        }
    }
}

/// Adds one word of the tile's columns times the panel's row to the sums.
///
/// # Safety
/// As for [`kernel`]; `word` must be below its `words`.
#[inline(always)]
unsafe fn add_word<
    A: Arithmetic,
    const TILE: usize,
    const VECTORS: usize,
    const USED: usize,
    const GATHERED: bool,
>(
    arithmetic: A,
    word: usize,
    tile: *const A::Word,
    step: usize,
    b: *const A::Word,
    sums: &mut [[A::Sums; USED]; TILE],
) {
    let lanes = A::LANES;
    let mut right = [arithmetic.splat(A::ZERO); USED];
    for v in 0..USED {
        // SAFETY: inside the panel, by the caller's contract.
        right[v] = unsafe { b.add((word * VECTORS + v) * lanes).cast::<A::Words>().read_unaligned() };
    }
    for r in 0..TILE {
        let place = if GATHERED { word * TILE + r } else { r * step + word };
        // SAFETY: inside the tile, by the caller's contract.
        let left = arithmetic.splat(unsafe { *tile.add(place) });
        for v in 0..USED {
            sums[r][v] = arithmetic.multiply_add(left, right[v], sums[r][v]);
        }
    }
}
