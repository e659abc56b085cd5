//! Small pictures of distributions.

/// Counts of values in bins of equal width.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    /// Left edge of the first bin.
    pub low: f64,
    /// Right edge of the last bin, which includes it.
    pub high: f64,
    /// Values in each bin.
    pub counts: Vec<u64>,
    /// Mean of the values counted; NaN if there are none.
    pub mean: f64,
    /// NaN and infinite values, which are in no bin.
    pub not_counted: u64,
}

impl Histogram {
    /// Counts `values` in at most `bins` bins, at least 1: fewer if the values are few whole numbers.
    #[must_use]
    pub fn new(values: &[f64], bins: usize) -> Self {
        let finite = || values.iter().copied().filter(|value| value.is_finite());
        let low = finite().fold(f64::INFINITY, f64::min);
        let high = finite().fold(f64::NEG_INFINITY, f64::max);
        let counted = finite().count();
        let not_counted = (values.len() - counted) as u64;
        if counted == 0 {
            return Histogram { low: 0.0, high: 0.0, counts: vec![0], mean: f64::NAN, not_counted };
        }
        let whole = finite().all(|value| value.fract() == 0.0);
        let bins = match high - low {
            0.0 => 1,
            range if whole && range < bins as f64 => range as usize + 1,
            _ => bins.max(1),
        };
        let mut counts = vec![0; bins];
        for value in finite() {
            let position = (value - low) / (high - low) * bins as f64;
            // The highest value belongs to the last bin; a single value gives 0/0, which casts to 0.
            counts[(position as usize).min(bins - 1)] += 1;
        }
        Histogram { low, high, counts, mean: finite().sum::<f64>() / counted as f64, not_counted }
    }

    /// Left edges of the bins, and the right edge of the last.
    #[must_use]
    pub fn edges(&self) -> Vec<f64> {
        let bins = self.counts.len();
        (0..=bins).map(|bin| self.low + (self.high - self.low) * bin as f64 / bins as f64).collect()
    }

    /// One line for each bin, with bars of at most `width` characters.
    #[must_use]
    pub fn to_text(&self, width: usize) -> String {
        const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
        let edges: Vec<String> = self.edges().iter().map(|&edge| short(edge)).collect();
        let edge_width = edges.iter().map(|edge| edge.chars().count()).max().unwrap_or(0);
        let most = self.counts.iter().copied().max().unwrap_or(0).max(1);
        let mut text = String::new();
        for (bin, &count) in self.counts.iter().enumerate() {
            let eighths = (count as u128 * width as u128 * 8).div_ceil(u128::from(most)) as usize;
            let bar = format!("{}{}", "█".repeat(eighths / 8), EIGHTHS[eighths % 8]);
            let range = if self.low == self.high {
                format!("{:>edge_width$}", edges[0])
            } else {
                format!("{:>edge_width$} … {:>edge_width$}", edges[bin], edges[bin + 1])
            };
            text.push_str(&format!("{range} │{bar} {count}\n"));
        }
        if self.not_counted > 0 {
            text.push_str(&format!("NaN or infinite: {}\n", self.not_counted));
        }
        text
    }
}

/// About four significant digits.
fn short(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude != 0.0 && !(1e-3..1e6).contains(&magnitude) {
        format!("{value:.2e}")
    } else if value.fract() == 0.0 {
        format!("{value:.0}")
    } else if magnitude >= 100.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.3}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_fall_into_their_bins() {
        let histogram = Histogram::new(&[0.0, 0.1, 0.55, 1.0, f64::NAN], 4);
        assert_eq!(histogram.counts, [2, 0, 1, 1]);
        assert_eq!(histogram.edges(), [0.0, 0.25, 0.5, 0.75, 1.0]);
        assert_eq!(histogram.not_counted, 1);
        assert!((histogram.mean - 1.65 / 4.0).abs() < 1e-15);
        assert_eq!(
            Histogram::new(&[1.0, 3.0, 3.0], 20).counts,
            [1, 0, 2],
            "few whole numbers get a bin each"
        );
        assert_eq!(Histogram::new(&[7.5; 3], 20).counts, [3]);
        assert_eq!(Histogram::new(&[], 20).counts, [0]);
    }

    #[test]
    fn the_picture_shows_the_counts() {
        let text = Histogram::new(&[1.0, 2.0, 2.0], 10).to_text(4);
        assert_eq!(text, "1 … 1.500 │██ 1\n1.500 …     2 │████ 2\n".replace("1 … 1.500", "    1 … 1.500"));
        assert_eq!(Histogram::new(&[5.0, 5.0], 10).to_text(2), "5 │██ 2\n");
    }
}
