//! Functions of one value, free of branches so that loops over them vectorise (see [`crate::vectorised`]).
//!
//! Each reduces its argument to a small interval and sums a series there to the precision of `f32`; the error is a
//! few units in the last place. NaN stays NaN.

use std::f32::consts::{LN_2, LOG2_E, SQRT_2};

/// `ln 2` in two parts, the first with trailing zeros so that small multiples of it are exact.
const LN_2_HIGH: f32 = 0.693_359_4;
const LN_2_LOW: f32 = -2.121_944_4e-4;
/// Adding and subtracting it rounds to an integer, which then stands in the low bits: 1.5 * 2^23.
const ROUNDER: f32 = 12_582_912.0;

/// `2^n` for an integer `n` in `-126..=127` given as `n + ROUNDER`.
#[inline(always)]
fn power_of_two(rounded: f32) -> f32 {
    f32::from_bits(rounded.to_bits().wrapping_add(127) << 23)
}

/// `(e^r - 1 - r) / r^2` for `|r| <= ln(2) / 2`: the series; the first term left out is below 2^-26 of the whole.
#[inline(always)]
fn exp_tail(r: f32) -> f32 {
    let tail = 1.0 / 720.0 + r * (1.0 / 5040.0);
    let tail = 1.0 / 120.0 + r * tail;
    let tail = 1.0 / 24.0 + r * tail;
    let tail = 1.0 / 6.0 + r * tail;
    0.5 + r * tail
}

/// `x` as `n ln 2 + r`: (`n + ROUNDER`, `r`).
#[inline(always)]
fn reduce(x: f32) -> (f32, f32) {
    let rounded = x * LOG2_E + ROUNDER;
    let n = rounded - ROUNDER;
    (rounded, (x - n * LN_2_HIGH) - n * LN_2_LOW)
}

/// `x` within bounds; NaN stays.
#[inline(always)]
fn bounded(x: f32, low: f32, high: f32) -> f32 {
    let x = if x < low { low } else { x };
    if x > high { high } else { x }
}

/// `e^x`.
#[must_use]
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    // Beyond, the result is 0 or infinite; two factors reach all exponents in between.
    let (rounded, r) = reduce(bounded(x, -104.0, 89.0));
    let p = 1.0 + (r + r * r * exp_tail(r));
    let n = rounded - ROUNDER;
    let half = n * 0.5 + ROUNDER;
    let other = n - (half - ROUNDER) + ROUNDER;
    p * power_of_two(half) * power_of_two(other)
}

/// `e^x - 1` for `x <= 0`, without cancellation near 0.
#[must_use]
#[inline(always)]
pub fn exp_m1_negative(x: f32) -> f32 {
    // e^-18 is below the precision of 1.
    let (rounded, r) = reduce(bounded(x, -18.0, 0.0));
    let p = r + r * r * exp_tail(r);
    let scale = power_of_two(rounded);
    scale * p + (scale - 1.0)
}

/// `tanh(x)`.
#[must_use]
#[inline(always)]
pub fn tanh(x: f32) -> f32 {
    let t = exp_m1_negative(-2.0 * x.abs());
    (-t / (t + 2.0)).copysign(x)
}

/// `1 / (1 + e^-x)`, the derivative of [`softplus`].
#[must_use]
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    let e = exp(-x.abs());
    let small = e / (1.0 + e);
    if x < 0.0 { small } else { 1.0 - small }
}

/// `2 atanh(s) = ln((1 + s) / (1 - s))` for `|s| <= 1/3`: the series; the first term left out is below 2^-25 of the
/// whole.
#[inline(always)]
fn two_atanh(s: f32) -> f32 {
    let z = s * s;
    let tail = 1.0 / 13.0 + z * (1.0 / 15.0);
    let tail = 1.0 / 11.0 + z * tail;
    let tail = 1.0 / 9.0 + z * tail;
    let tail = 1.0 / 7.0 + z * tail;
    let tail = 1.0 / 5.0 + z * tail;
    let tail = 1.0 / 3.0 + z * tail;
    2.0 * s + 2.0 * s * z * tail
}

/// `ln(x)` for `x >= 0`; NaN below. Values under the smallest normal number, 1.2e-38, count as it; 0 gives minus infinity.
#[must_use]
#[inline(always)]
pub fn ln(x: f32) -> f32 {
    // The exponent such that the mantissa lies within sqrt(1/2)..sqrt(2).
    let normal = if x < f32::MIN_POSITIVE { f32::MIN_POSITIVE } else { x };
    let bits = normal.to_bits();
    let exponent = (bits >> 23) as i32 - 127;
    let mantissa = f32::from_bits((bits & 0x007f_ffff) | 0x3f80_0000);
    let above = mantissa > SQRT_2;
    let m = if above { 0.5 * mantissa } else { mantissa };
    let n = exponent as f32 + if above { 1.0 } else { 0.0 };
    let value = two_atanh((m - 1.0) / (m + 1.0)) + n * LN_2_LOW + n * LN_2_HIGH;
    let value = if x == 0.0 { f32::NEG_INFINITY } else { value };
    let value = if x == f32::INFINITY { x } else { value };
    if x < 0.0 || x.is_nan() { f32::NAN } else { value }
}

/// `ln(1 + e^x)`.
#[must_use]
#[inline(always)]
pub fn softplus(x: f32) -> f32 {
    let u = exp(-x.abs());
    let positive = if x > 0.0 { x } else { 0.0 };
    // ln(1 + u) for u in 0..=1; u is NaN where x is.
    positive + two_atanh(u / (2.0 + u))
}

const _: () = assert!(LN_2_HIGH + LN_2_LOW == LN_2);

#[cfg(test)]
mod tests {
    use super::*;

    /// Largest error against the `f64` function, in units of the last place of the exact value.
    fn largest_error(f: impl Fn(f32) -> f32, exact: impl Fn(f64) -> f64, from: f32, to: f32) -> f64 {
        let steps = 200_000;
        (0..=steps)
            .map(|i| from + (to - from) * (i as f32 / steps as f32))
            .map(|x| {
                let exact = exact(f64::from(x));
                let unit = (exact.abs() * f64::from(f32::EPSILON) / 2.0).max(1e-45);
                (f64::from(f(x)) - exact).abs() / unit
            })
            .fold(0.0, f64::max)
    }

    /// A unit is half the spacing at the low end of a binade; rounding alone gives up to 1, each of the few roundings
    /// behind the last one adds about as much.
    #[test]
    fn errors_are_a_few_units_in_the_last_place() {
        assert!(largest_error(exp, f64::exp, -87.0, 88.7) < 3.0);
        assert!(largest_error(exp_m1_negative, f64::exp_m1, -17.0, -1e-6) < 4.0);
        assert!(largest_error(tanh, f64::tanh, -12.0, 12.0) < 6.0);
        assert!(largest_error(tanh, f64::tanh, -1e-3, 1e-3) < 6.0);
        assert!(largest_error(ln, f64::ln, 1e-6, 0.99) < 4.0);
        assert!(largest_error(ln, f64::ln, 1.01, 1e6) < 4.0);
        assert!(largest_error(softplus, |x| x.exp().ln_1p(), -80.0, 80.0) < 5.0);
        assert!(largest_error(sigmoid, |x| 1.0 / (1.0 + (-x).exp()), -80.0, 80.0) < 5.0);
    }

    #[test]
    fn limits_and_nan() {
        assert_eq!((exp(-200.0), exp(200.0), exp(0.0)), (0.0, f32::INFINITY, 1.0));
        assert_eq!((tanh(50.0), tanh(-50.0), tanh(0.0)), (1.0, -1.0, 0.0));
        assert_eq!((exp_m1_negative(-1e9), exp_m1_negative(0.0)), (-1.0, 0.0));
        assert_eq!((ln(0.0), ln(1.0), ln(f32::INFINITY)), (f32::NEG_INFINITY, 0.0, f32::INFINITY));
        assert_eq!((softplus(-200.0), softplus(200.0)), (0.0, 200.0));
        assert_eq!((sigmoid(-200.0), sigmoid(200.0), sigmoid(0.0)), (0.0, 1.0, 0.5));
        for f in [exp, exp_m1_negative, tanh, ln, softplus, sigmoid] {
            assert!(f(f32::NAN).is_nan());
        }
        assert!(ln(-1.0).is_nan());
    }

    struct Apply;

    impl crate::Kernel<(fn(f32) -> f32, &mut [f32], &[f32])> for Apply {
        type Output = ();

        #[inline(always)]
        fn run((f, out, x): (fn(f32) -> f32, &mut [f32], &[f32])) {
            out.iter_mut().zip(x).for_each(|(y, &x)| *y = f(x));
        }
    }

    #[test]
    fn vectorised_loops_give_the_same_bits() {
        let x: Vec<f32> = (0..1000).map(|i| (i as f32 - 500.0) * 0.05).collect();
        for f in [exp, exp_m1_negative, tanh, ln, softplus, sigmoid] {
            let alone: Vec<u32> = x.iter().map(|&x| f(x).to_bits()).collect();
            let mut together = vec![0.0; x.len()];
            crate::run_vectorised::<Apply, _>((f, &mut together[..], &x[..]));
            let together: Vec<u32> = together.iter().map(|y| y.to_bits()).collect();
            let differ = alone.iter().zip(&together).filter(|(a, b)| a != b).count();
            // NaN may differ in its sign.
            let nan = together.iter().filter(|&&y| f32::from_bits(y).is_nan()).count();
            assert!(differ <= nan);
        }
    }
}
