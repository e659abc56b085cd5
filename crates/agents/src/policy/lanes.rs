//! Elementary functions on [`LANES`] single-precision numbers at once.
//!
//! The loss of a policy head needs several exponentials and logarithms per mixture component; one call of the C
//! library each would take longer than the matrix products of a small network. These versions are straight-line
//! arithmetic without branches or tables, which the compiler turns into vector code. They use only `+ − × ÷`,
//! never a fused multiply-add, so their results are the same bits on every machine and instruction set.
//! Errors (relative for `exp` and `ln_1p`, against double precision) are below 3e-7; the tests hold them to it.

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

/// `eˣ`: 0 below about −87.3, capped (finite) above 88.3; NaN stays NaN.
///
/// `x = k ln 2 + r` with `|r| ≤ ln 2 / 2`, the Taylor polynomial of degree 7 for `eʳ` (truncation
/// `r⁸/8! ≤ 5.2e-9`), and `2ᵏ` written into the exponent bits.
#[inline(always)]
pub(super) fn exp(x: f32) -> f32 {
    // ln 2 in two pieces, the first with trailing zeros, so that k·LN2_HIGH is exact.
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    // 1.5·2²³: adding and subtracting it rounds to the nearest integer.
    const ROUND: f32 = 12_582_912.0;
    const LOWEST: f32 = -87.3;
    // `clamp` keeps NaN.
    let clamped = x.clamp(LOWEST, 88.3);
    let shifted = clamped * std::f32::consts::LOG2_E + ROUND;
    let k = shifted - ROUND;
    let r = (clamped - k * LN2_HIGH) - k * LN2_LOW;
    let mut p = 1.0 / 5040.0;
    for c in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
        p = p * r + c;
    }
    // The integer k sits in the low bits of `shifted`; −126 ≤ k ≤ 127 after the clamp.
    let power = f32::from_bits((shifted.to_bits() << 23).wrapping_add(1.0_f32.to_bits()));
    let value = p * power;
    if x < LOWEST { 0.0 } else { value }
}

/// `ln x` for normal `x > 0`; anything else gives a number without meaning, NaN gives NaN.
///
/// `x = 2ᵏ m` with `m` in `[√½, √2)` and the series of `2 artanh t`, `t = (m − 1)/(m + 1)`, `|t| ≤ 0.172`,
/// to `t⁹` (truncation `2 t¹¹/11 ≤ 7e-10`).
#[inline(always)]
pub(super) fn ln(x: f32) -> f32 {
    const SQRT_HALF_BITS: u32 = 0x3f35_04f3;
    let shifted = x.to_bits().wrapping_sub(SQRT_HALF_BITS);
    let k = (shifted as i32) >> 23;
    let m = f32::from_bits((shifted & 0x007f_ffff).wrapping_add(SQRT_HALF_BITS));
    let t = (m - 1.0) / (m + 1.0);
    let t2 = t * t;
    let mut p = 1.0 / 9.0;
    for c in [1.0 / 7.0, 0.2, 1.0 / 3.0] {
        p = p * t2 + c;
    }
    let value = k as f32 * std::f32::consts::LN_2 + (2.0 * t + 2.0 * t * t2 * p);
    if x.is_nan() { x } else { value }
}

/// `ln(1 + x)` for `0 ≤ x ≤ 1`, with full relative precision near zero.
///
/// `2 artanh t` with `t = x/(2 + x) ≤ 1/3`, to `t¹⁵` (relative truncation `t¹⁶/17 ≤ 1.4e-9`).
#[inline(always)]
pub(super) fn ln_1p(x: f32) -> f32 {
    let t = x / (2.0 + x);
    let t2 = t * t;
    let mut p = 1.0 / 15.0;
    for c in [1.0 / 13.0, 1.0 / 11.0, 1.0 / 9.0, 1.0 / 7.0, 0.2, 1.0 / 3.0] {
        p = p * t2 + c;
    }
    2.0 * t + 2.0 * t * t2 * p
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every function is a handful of roundings (6e-8 each) beside a truncation below 1e-8.
    const TOLERANCE: f64 = 3e-7;

    #[test]
    fn exp_is_accurate_over_its_whole_range() {
        let mut x = -87.3_f32;
        while x < 88.3 {
            let truth = f64::from(x).exp();
            assert!((f64::from(exp(x)) / truth - 1.0).abs() < TOLERANCE, "exp({x})");
            x += 0.0137;
        }
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(-100.0), 0.0);
        assert!(exp(1e30).is_finite());
        assert!(exp(f32::NAN).is_nan());
    }

    #[test]
    fn ln_is_accurate_over_its_whole_range() {
        let mut x = f32::MIN_POSITIVE;
        while x < 1e38 {
            let truth = f64::from(x).ln();
            // Near x = 1 the logarithm vanishes and only the absolute error counts.
            assert!((f64::from(ln(x)) - truth).abs() < TOLERANCE * truth.abs().max(1.0), "ln({x})");
            x *= 1.0037;
        }
        assert_eq!(ln(1.0), 0.0);
        assert!(ln(f32::NAN).is_nan());
    }

    #[test]
    fn ln_1p_keeps_relative_precision_near_zero() {
        for i in 0..4000 {
            let x = (-f64::from(i) * 0.02).exp() as f32;
            let truth = f64::from(x).ln_1p();
            assert!((f64::from(ln_1p(x)) / truth - 1.0).abs() < TOLERANCE, "ln_1p({x})");
        }
        assert_eq!(ln_1p(0.0), 0.0);
    }
}
