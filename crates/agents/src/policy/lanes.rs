//! Arithmetic on [`LANES`] samples side by side.
//!
//! The loss of a policy head needs several exponentials and logarithms per mixture component. The functions of
//! [`coptidice_nn::math`] have no branches, so that loops over a fixed number of samples become vector code when they
//! are inlined into a [`coptidice_nn::Kernel`]; results are the same bits on every machine.

/// How many samples are worked on side by side: one AVX-512 register, or four SSE registers.
pub(super) const LANES: usize = 16;

/// One number for each of [`LANES`] samples.
pub(super) type Lanes = [f32; LANES];

/// Applies `f` to every lane.
#[inline(always)]
pub(super) fn map(x: &Lanes, f: impl Fn(f32) -> f32) -> Lanes {
    let mut out = [0.0; LANES];
    for (out, &x) in out.iter_mut().zip(x) {
        *out = f(x);
    }
    out
}

/// Applies `f` lane by lane to two vectors.
#[inline(always)]
pub(super) fn zip(x: &Lanes, y: &Lanes, f: impl Fn(f32, f32) -> f32) -> Lanes {
    let mut out = [0.0; LANES];
    for ((out, &x), &y) in out.iter_mut().zip(x).zip(y) {
        *out = f(x, y);
    }
    out
}

/// Column `at` of up to [`LANES`] rows of length `stride`; missing rows read as zero.
#[inline(always)]
pub(super) fn gather(rows: &[f32], stride: usize, at: usize) -> Lanes {
    let mut out = [0.0; LANES];
    for (out, row) in out.iter_mut().zip(rows.chunks_exact(stride)) {
        *out = row[at];
    }
    out
}

/// Writes column `at` of the rows there are.
#[inline(always)]
pub(super) fn scatter(values: &Lanes, rows: &mut [f32], stride: usize, at: usize) {
    for (&value, row) in values.iter().zip(rows.chunks_exact_mut(stride)) {
        row[at] = value;
    }
}
