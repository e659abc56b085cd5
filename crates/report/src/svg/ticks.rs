//! Where an axis carries marks, and what they say.

use crate::number::{superscript, trim_zeros};

/// A mark on an axis.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tick {
    pub(crate) value: f64,
    /// Empty for a minor mark.
    pub(crate) label: String,
}

/// The smallest of 1, 2, 2.5, 5 times a power of ten that is at least `width`; without 2.5 where steps are to be
/// whole numbers.
pub(crate) fn round_step(width: f64, whole: bool) -> f64 {
    let power = 10_f64.powi(width.log10().floor() as i32);
    let steps: &[f64] = if whole { &[1.0, 2.0, 5.0] } else { &[1.0, 2.0, 2.5, 5.0] };
    // The tolerance is for a width that is itself round but for its last bits.
    steps.iter().map(|s| s * power).find(|&s| s >= width * (1.0 - 1e-9)).unwrap_or(10.0 * power)
}

/// Marks at round numbers in `[low, high]`, at most about `wanted`.
pub(crate) fn linear(low: f64, high: f64, wanted: usize) -> Vec<Tick> {
    let step = round_step((high - low) / wanted.max(1) as f64, false);
    // The tolerance keeps an end that is a multiple of the step but for rounding.
    let first = (low / step - 1e-6).ceil() as i64;
    let last = (high / step + 1e-6).floor() as i64;
    let values: Vec<f64> = (first..=last).take(200).map(|i| i as f64 * step).collect();
    let labels = linear_labels(&values, step);
    values.into_iter().zip(labels).map(|(value, label)| Tick { value, label }).collect()
}

/// `[low, high]` widened to whole steps of the marks it will get.
pub(crate) fn widen(low: f64, high: f64, wanted: usize) -> (f64, f64) {
    let step = round_step((high - low) / wanted.max(1) as f64, false);
    ((low / step + 1e-6).floor() * step, (high / step - 1e-6).ceil() * step)
}

/// Marks at powers of ten and, where there are few of those, at 2 and 5 times them; other multiples get no label.
/// A range too short for three labels is marked like a linear one.
pub(crate) fn logarithmic(low: f64, high: f64, wanted: usize) -> Vec<Tick> {
    let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    let decades = high.log10() - low.log10();
    let every = ((decades / wanted.max(1) as f64).ceil() as i32).max(1);
    let labelled: &[u32] = if decades < 1.7 { &[1, 2, 5] } else { &[1] };
    let mut ticks = Vec::new();
    for exponent in first..=last {
        for digit in 1..=9_u32 {
            let value = f64::from(digit) * 10_f64.powi(exponent);
            let shown = labelled.contains(&digit) && exponent.rem_euclid(every) == 0;
            if value < low * (1.0 - 1e-9) || value > high * (1.0 + 1e-9) || (!shown && every > 1) {
                continue;
            }
            let label = if shown { power_label(digit, exponent) } else { String::new() };
            ticks.push(Tick { value, label });
        }
    }
    // Within part of a decade, round differences say more.
    let labelled = ticks.iter().filter(|t| !t.label.is_empty()).count();
    if decades < 1.7 && labelled < 3 { linear(low, high, wanted) } else { ticks }
}

/// Marks at the given places, each labelled.
pub(crate) fn at(values: &[f64]) -> Vec<Tick> {
    values.iter().map(|&value| Tick { value, label: single_label(value) }).collect()
}

/// `digit × 10^exponent`, written out where it is short.
fn power_label(digit: u32, exponent: i32) -> String {
    match exponent {
        -3..=3 => single_label(f64::from(digit) * 10_f64.powi(exponent)),
        _ if digit == 1 => format!("10{}", superscript(exponent)),
        _ => format!("{digit}×10{}", superscript(exponent)),
    }
}

fn single_label(value: f64) -> String {
    crate::number::significant(value, 6)
}

/// Labels with as many digits as tell neighbours apart, in one unit along the axis: plain, k, M, or a power of ten.
fn linear_labels(values: &[f64], step: f64) -> Vec<String> {
    let largest = values.iter().fold(0.0_f64, |m, v| m.max(v.abs()));
    let (unit, suffix) = if largest >= 1e9 || (largest > 0.0 && largest < 1e-3) {
        let exponent = largest.log10().floor() as i32;
        (10_f64.powi(exponent), format!("×10{}", superscript(exponent)))
    } else if largest >= 1e6 {
        (1e6, "M".to_owned())
    } else if largest >= 1e4 {
        (1e3, "k".to_owned())
    } else {
        (1.0, String::new())
    };
    let decimals = decimals_of(step / unit);
    values
        .iter()
        .map(|&value| {
            if value == 0.0 {
                return "0".to_owned();
            }
            let text = format!("{:.*}", decimals, (value / unit).abs());
            // Within a scaled unit "1k, 1.5k, 2k" reads better than "1.0k"; a plain axis keeps its decimals.
            let text = if suffix.is_empty() { &text } else { trim_zeros(&text) };
            format!("{}{text}{suffix}", if value < 0.0 { "−" } else { "" })
        })
        .collect()
}

/// Decimals needed to write multiples of `step`, which is 1, 2, 2.5 or 5 times a power of ten.
fn decimals_of(step: f64) -> usize {
    (0..12)
        .find(|&d| {
            let scaled = step * 10_f64.powi(d);
            (scaled - scaled.round()).abs() < 1e-6 * scaled.max(1.0) && scaled.round() >= 1.0
        })
        .unwrap_or(12) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn labels(ticks: &[Tick]) -> Vec<&str> {
        ticks.iter().map(|t| t.label.as_str()).filter(|l| !l.is_empty()).collect()
    }

    #[test]
    fn linear_marks_are_round() {
        assert_eq!(labels(&linear(0.0, 0.3, 4)), ["0", "0.1", "0.2", "0.3"]);
        assert_eq!(labels(&linear(0.0, 1.0, 4)), ["0", "0.25", "0.50", "0.75", "1.00"]);
        assert_eq!(labels(&linear(0.0, 20_000.0, 4)), ["0", "5k", "10k", "15k", "20k"]);
        assert_eq!(labels(&linear(-1.0, 1.0, 4)), ["−1.0", "−0.5", "0", "0.5", "1.0"]);
        assert_eq!(labels(&linear(0.0, 4e-5, 4)), ["0", "1×10⁻⁵", "2×10⁻⁵", "3×10⁻⁵", "4×10⁻⁵"]);
        assert_eq!(labels(&linear(0.0, 2.5e6, 3)), ["0", "1M", "2M"]);
    }

    #[test]
    fn logarithmic_marks_are_powers() {
        assert_eq!(labels(&logarithmic(10.0, 2000.0, 6)), ["10", "100", "1000"]);
        assert_eq!(labels(&logarithmic(0.1, 1.0, 6)), ["0.1", "0.2", "0.5", "1"]);
        assert_eq!(labels(&logarithmic(1e-8, 1.0, 4)), ["10⁻⁸", "10⁻⁶", "10⁻⁴", "0.01", "1"]);
    }

    proptest! {
        /// Marks lie in the range, rise, differ in their labels, and are neither too few nor too many.
        #[test]
        fn marks_fit_the_range(low in -1e6..1e6f64, span in 1e-6..1e6f64, wanted in 2_usize..9) {
            prop_assume!(span > low.abs() * 1e-6);
            let high = low + span;
            let ticks = linear(low, high, wanted);
            prop_assert!(!ticks.is_empty() && ticks.len() <= wanted + 1);
            prop_assert!(ticks.windows(2).all(|t| t[0].value < t[1].value && t[0].label != t[1].label));
            let slack = span * 1e-5;
            prop_assert!(ticks.iter().all(|t| t.value >= low - slack && t.value <= high + slack));
            let (wide_low, wide_high) = widen(low, high, wanted);
            prop_assert!(wide_low <= low + slack && wide_high >= high - slack);
        }
    }
}
