//! Means and their standard errors.

/// The mean; NaN of no values.
#[must_use]
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Standard error of the mean, `s/√n` with the unbiased variance; none for fewer than two values.
///
/// ```
/// use coptidice_core::statistics::standard_error;
/// // Deviations ±1 of two values: s² = 2, so s/√2 = 1.
/// assert_eq!(standard_error(&[1.0, 3.0]), Some(1.0));
/// assert_eq!(standard_error(&[1.0]), None);
/// ```
#[must_use]
pub fn standard_error(values: &[f64]) -> Option<f64> {
    let n = values.len() as f64;
    let centre = mean(values);
    let squares: f64 = values.iter().map(|value| (value - centre).powi(2)).sum();
    (values.len() > 1).then(|| (squares / (n - 1.0) / n).sqrt())
}
