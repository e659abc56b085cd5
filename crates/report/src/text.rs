//! Small pictures for a terminal.

use crate::bins::Bins;
use crate::number::{count, significant};

/// A row of eight-step blocks, one for each value; a value that is not finite leaves a blank.
///
/// Longer series are averaged into `width` groups.
///
/// ```
/// assert_eq!(coptidice_report::text::sparkline(&[0.0, 1.0, 2.0, 3.0, f64::NAN, 7.0], 10), "▁▂▃▄ █");
/// ```
#[must_use]
pub fn sparkline(values: &[f64], width: usize) -> String {
    const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let groups = values.len().min(width.max(1));
    let means: Vec<f64> = (0..groups)
        .map(|i| mean(&values[i * values.len() / groups..(i + 1) * values.len() / groups]))
        .collect();
    let finite = means.iter().copied().filter(|v| v.is_finite());
    let (low, high) = finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
    means
        .iter()
        .map(|&v| {
            if !v.is_finite() {
                ' '
            } else if high > low {
                // Halves first: the span of two huge numbers need not be finite.
                let share = (v / 2.0 - low / 2.0) / (high / 2.0 - low / 2.0);
                BLOCKS[((share * 7.0).round() as usize).min(7)]
            } else {
                BLOCKS[3]
            }
        })
        .collect()
}

/// The mean of the finite values, NaN where there is none.
fn mean(values: &[f64]) -> f64 {
    let finite: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
    if finite.is_empty() {
        return f64::NAN;
    }
    finite.iter().map(|v| v / finite.len() as f64).sum()
}

/// A histogram of horizontal bars, `width` columns in all, one line for each bin, then one for each note.
///
/// ```
/// use coptidice_report::{bins::Bins, text};
/// let lengths = [1.0, 2.0, 2.0, 2.0, 3.0, 3.0];
/// assert_eq!(
///     text::histogram(&Bins::linear(&lengths, 10), 20),
///     "1 ┤█████           1\n\
///      2 ┤███████████████ 3\n\
///      3 ┤██████████      2\n"
/// );
/// ```
#[must_use]
pub fn histogram(bins: &Bins, width: usize) -> String {
    let labels: Vec<String> = bins.edges().windows(2).map(|e| range_label(bins, e[0], e[1])).collect();
    let counts: Vec<String> = bins.counts().iter().map(|&n| count(n)).collect();
    let widest = |texts: &[String]| texts.iter().map(|t| t.chars().count()).max().unwrap_or(0);
    let (label_width, count_width) = (widest(&labels), widest(&counts));
    let room = width.saturating_sub(label_width + count_width + 3).max(8);
    let most = bins.counts().iter().copied().max().unwrap_or(0).max(1);
    let mut out = String::new();
    for ((label, number), &n) in labels.iter().zip(&counts).zip(bins.counts()) {
        let bar = bar(n as f64 / most as f64, room);
        out.push_str(&format!("{label:>label_width$} ┤{bar:<room$} {number:>count_width$}\n"));
    }
    if bins.edges().is_empty() {
        out.push_str("no data\n");
    }
    for note in bins.notes() {
        out.push_str(&note);
        out.push('\n');
    }
    out
}

/// The counts of a histogram on one line.
#[must_use]
pub fn histogram_line(bins: &Bins) -> String {
    let counts: Vec<f64> = bins.counts().iter().map(|&n| n as f64).collect();
    let most = counts.iter().copied().fold(0.0, f64::max).max(1.0);
    // Empty bins are blank, so that a single value far out is seen to stand apart.
    counts
        .iter()
        .map(|&n| match (n, (n / most * 8.0).ceil() as u32) {
            (0.0, _) => ' ',
            (_, eighths) => char::from_u32(0x2580 + eighths.clamp(1, 8)).unwrap_or(' '),
        })
        .collect()
}

/// A bar of `share` of `room` columns, to an eighth of a column. What is not zero is seen.
fn bar(share: f64, room: usize) -> String {
    if share <= 0.0 {
        return String::new();
    }
    let eighths = ((share * room as f64 * 8.0).round() as usize).clamp(1, room * 8);
    let mut bar = "█".repeat(eighths / 8);
    if let Some(part) = char::from_u32(0x2590 - (eighths % 8) as u32).filter(|_| !eighths.is_multiple_of(8)) {
        bar.push(part);
    }
    bar
}

fn range_label(bins: &Bins, low: f64, high: f64) -> String {
    let show = |v| significant(v, 4);
    // A bin that holds one integer is named by it.
    if bins.is_integer() && high - low == 1.0 && low.fract() != 0.0 {
        show(low + 0.5)
    } else {
        format!("{} … {}", show(low), show(high))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn long_series_are_averaged() {
        let values: Vec<f64> = (0..80).map(f64::from).collect();
        assert_eq!(sparkline(&values, 8), "▁▂▃▄▅▆▇█");
        assert_eq!(sparkline(&[], 8), "");
        assert_eq!(sparkline(&[5.0, 5.0], 8), "▄▄");
    }

    #[test]
    fn one_line_shows_gaps() {
        let bins = Bins::linear(&[1.0, 1.0, 1.0, 1.0, 4.0], 10);
        assert_eq!(histogram_line(&bins), "█  ▂");
    }

    proptest! {
        /// Whatever the sample and the width, lines are of one width, which is the one asked for where it can be.
        #[test]
        fn lines_are_as_wide_as_asked(values in prop::collection::vec(-1e6..1e6f64, 1..50), width in 50_usize..90) {
            let text = histogram(&Bins::linear(&values, 12), width);
            let bars: Vec<_> = text.lines().filter(|l| l.contains('┤')).map(|l| l.chars().count()).collect();
            prop_assert!(bars.windows(2).all(|w| w[0] == w[1]), "{text}");
            prop_assert!(bars.iter().all(|&w| w <= width));
        }

        #[test]
        fn any_numbers_make_a_line(values in prop::collection::vec(prop::num::f64::ANY, 0..50), width in 0_usize..20) {
            prop_assert!(sparkline(&values, width).chars().count() <= width.max(1));
        }
    }
}
