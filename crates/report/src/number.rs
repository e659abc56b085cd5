//! Numbers as people read them: in figures, tables and sentences.
//!
//! A true minus sign is used, a comma groups thousands from 10,000 on, and powers of ten are written out
//! (`1.2×10⁻⁵`), so that the same text serves a page, an SVG and a terminal.

/// `value` with `digits` significant digits and no trailing zeros.
///
/// Digits before the decimal point are never dropped. Below 1e-4 and from 1e7 on a power of ten is used.
///
/// ```
/// use coptidice_report::number::significant;
/// assert_eq!(significant(0.083_21, 3), "0.0832");
/// assert_eq!(significant(-1234.56, 3), "−1235");
/// assert_eq!(significant(200_000.0, 3), "200,000");
/// assert_eq!(significant(1.25e-6, 3), "1.25×10⁻⁶");
/// assert_eq!(significant(f64::NAN, 3), "not a number");
/// ```
#[must_use]
pub fn significant(value: f64, digits: u32) -> String {
    if let Some(word) = not_finite(value) {
        return word.to_owned();
    }
    if value == 0.0 {
        return "0".to_owned();
    }
    let digits = digits.max(1) as usize;
    // Rust's own rounding of the mantissa settles the exponent, also where rounding carries (9.996 → 10.0).
    let scientific = format!("{:.*e}", digits - 1, value.abs());
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let text = if (-4..7).contains(&exponent) {
        let decimals = (digits as i32 - 1 - exponent).max(0) as usize;
        group(trim_zeros(&format!("{:.*}", decimals, value.abs())))
    } else {
        format!("{}×10{}", trim_zeros(mantissa), superscript(exponent))
    };
    if value < 0.0 { format!("−{text}") } else { text }
}

/// `value` with exactly `decimals` digits after the point, for columns that line up.
///
/// ```
/// use coptidice_report::number::fixed;
/// assert_eq!(fixed(-0.0001, 2), "0.00");
/// assert_eq!(fixed(12_345.678, 1), "12,345.7");
/// ```
#[must_use]
pub fn fixed(value: f64, decimals: usize) -> String {
    if let Some(word) = not_finite(value) {
        return word.to_owned();
    }
    let text = group(&format!("{:.*}", decimals, value.abs()));
    let is_zero = text.bytes().all(|b| matches!(b, b'0' | b'.'));
    if value < 0.0 && !is_zero { format!("−{text}") } else { text }
}

/// A whole number with grouped thousands.
///
/// ```
/// assert_eq!(coptidice_report::number::count(200_000), "200,000");
/// ```
#[must_use]
pub fn count(value: u64) -> String {
    group(&value.to_string())
}

/// A count of things, which takes an `s` but for one.
///
/// ```
/// assert_eq!(coptidice_report::number::counted(1, "remark"), "1 remark");
/// assert_eq!(coptidice_report::number::counted(0, "remark"), "0 remarks");
/// ```
#[must_use]
pub fn counted(value: u64, thing: &str) -> String {
    format!("{} {thing}{}", count(value), if value == 1 { "" } else { "s" })
}

/// A share in `[0, 1]` as a percentage. A share that is not zero never reads as zero, nor one below 1 as all.
///
/// ```
/// use coptidice_report::number::percent;
/// assert_eq!(percent(0.125), "12.5%");
/// assert_eq!(percent(0.00002), "<0.1%");
/// assert_eq!(percent(0.99999), ">99.9%");
/// ```
#[must_use]
pub fn percent(share: f64) -> String {
    if let Some(word) = not_finite(share) {
        return word.to_owned();
    }
    if share > 0.0 && share < 0.0005 {
        return "<0.1%".to_owned();
    }
    if share < 1.0 && share > 0.9995 {
        return ">99.9%".to_owned();
    }
    format!("{}%", trim_zeros(&format!("{:.1}", share * 100.0)))
}

/// A mean with its standard error, both rounded to the error's second digit.
///
/// ```
/// use coptidice_report::number::mean_with_error;
/// assert_eq!(mean_with_error(545.234, 12.71), "545 ± 13");
/// assert_eq!(mean_with_error(0.083_24, 0.0041), "0.0832 ± 0.0041");
/// assert_eq!(mean_with_error(0.083_24, f64::NAN), "0.08324");
/// ```
#[must_use]
pub fn mean_with_error(mean: f64, error: f64) -> String {
    if !(mean.is_finite() && error.is_finite() && error > 0.0) {
        return significant(mean, 4);
    }
    let decimals = 1 - error.log10().floor() as i32;
    if (0..=6).contains(&decimals) || (decimals < 0 && error < 1e7) {
        let decimals = decimals.max(0) as usize;
        format!("{} ± {}", fixed(mean, decimals), fixed(error, decimals))
    } else {
        format!("{} ± {}", significant(mean, 4), significant(error, 2))
    }
}

/// The power of ten as superscript digits.
pub(crate) fn superscript(exponent: i32) -> String {
    exponent
        .to_string()
        .chars()
        .map(|c| match c {
            '-' => '⁻',
            '1' => '¹',
            '2' => '²',
            '3' => '³',
            '0' | '4'..='9' => char::from_u32(0x2070 + (c as u32 - '0' as u32)).unwrap_or(c),
            other => other,
        })
        .collect()
}

/// What to print for a number that is none.
fn not_finite(value: f64) -> Option<&'static str> {
    if value.is_nan() {
        Some("not a number")
    } else if value == f64::INFINITY {
        Some("∞")
    } else if value == f64::NEG_INFINITY {
        Some("−∞")
    } else {
        None
    }
}

pub(crate) fn trim_zeros(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

/// Commas between groups of three digits, from five digits on.
fn group(text: &str) -> String {
    let (whole, fraction) = text.split_at(text.find('.').unwrap_or(text.len()));
    if whole.len() < 5 {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len() + whole.len() / 3);
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out.push_str(fraction);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rounding_that_carries_keeps_its_size() {
        assert_eq!(significant(9.996, 3), "10");
        assert_eq!(significant(9_999_999.0, 3), "1×10⁷");
        assert_eq!(significant(0.000_099_99, 3), "0.0001");
        assert_eq!(significant(0.1, 4), "0.1");
        assert_eq!(significant(-3.0e12, 2), "−3×10¹²");
        assert_eq!(superscript(-1_234_567_890), "⁻¹²³⁴⁵⁶⁷⁸⁹⁰");
    }

    #[test]
    fn shares_never_hide_an_exception() {
        assert_eq!(percent(0.0), "0%");
        assert_eq!(percent(1.0), "100%");
        assert_eq!(percent(0.0004), "<0.1%");
        assert_eq!(percent(0.9996), ">99.9%");
    }

    #[test]
    fn errors_of_any_size_are_printed() {
        assert_eq!(mean_with_error(1e9, 2.3e8), "1×10⁹ ± 2.3×10⁸");
        assert_eq!(mean_with_error(12.0, 0.0), "12");
        assert_eq!(mean_with_error(123_456.0, 1200.0), "123,456 ± 1200");
        assert_eq!(mean_with_error(f64::INFINITY, 1.0), "∞");
    }

    proptest! {
        /// The printed number, read back, is the value to half a unit of its last digit.
        #[test]
        fn printed_numbers_are_near(value in prop::num::f64::NORMAL, digits in 1_u32..8) {
            let text = significant(value, digits);
            let plain = text.replace('−', "-").replace(',', "");
            let (mantissa, exponent) = match plain.split_once("×10") {
                Some((m, e)) => {
                    let digits: String = e.chars().map(|c| match c {
                        '⁻' => '-', '¹' => '1', '²' => '2', '³' => '3',
                        c => char::from_digit(c as u32 - 0x2070, 10).unwrap(),
                    }).collect();
                    (m.to_owned(), digits)
                }
                None => (plain.clone(), "0".to_owned()),
            };
            let read: f64 = format!("{mantissa}e{exponent}").parse().unwrap();
            prop_assert!((read - value).abs() <= 0.501 * 10_f64.powi(1 - digits as i32) * value.abs());
        }
    }
}
