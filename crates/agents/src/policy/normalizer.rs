//! Normalisation of observations, column by column: `x → (x − mean)·scale`.

use serde::{Deserialize, Serialize};

/// Maps each column of an observation to about zero mean and unit spread on the logs it was fitted to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Normalizer {
    /// Subtracted from each column, `[O]`, in the observation's units.
    pub mean: Vec<f32>,
    /// Multiplied onto each column afterwards, `[O]`: one over the standard deviation.
    pub scale: Vec<f32>,
}

/// Observations no normaliser can be fitted to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NormalizerError {
    /// No rows.
    #[error("there are no observations to fit the normaliser to")]
    Empty,
    /// A column's mean or spread is not a finite single-precision number.
    #[error(
        "observation column {column} has values that are not finite or too large to normalise; repair the data"
    )]
    NotFinite {
        /// The column, from 0.
        column: usize,
    },
}

impl Normalizer {
    /// A column whose standard deviation is below this fraction of its mean is constant to within single-precision
    /// rounding (6e-8 per value): amplifying what is left would feed rounding noise to the network.
    const CONSTANT: f64 = 1e-6;

    /// Leaves `columns` columns as they are.
    #[must_use]
    pub fn identity(columns: usize) -> Self {
        Self { mean: vec![0.0; columns], scale: vec![1.0; columns] }
    }

    /// Fits mean and standard deviation of `count` rows of `columns` values, given by `row`.
    ///
    /// Two passes in double precision, in row order. A constant column gets its mean subtracted and scale 1: it is
    /// zero on the logs, and a later departure from the constant reaches the network in the column's own units.
    ///
    /// # Errors
    /// [`NormalizerError`] if there are no rows or a column is not finite.
    pub fn fit<'a>(
        columns: usize,
        count: usize,
        row: impl Fn(usize) -> &'a [f32],
    ) -> Result<Self, NormalizerError> {
        if count == 0 {
            return Err(NormalizerError::Empty);
        }
        let mut mean = vec![0.0_f64; columns];
        for i in 0..count {
            for (mean, &x) in mean.iter_mut().zip(row(i)) {
                *mean += f64::from(x);
            }
        }
        mean.iter_mut().for_each(|mean| *mean /= count as f64);
        let mut variance = vec![0.0_f64; columns];
        for i in 0..count {
            for ((variance, &mean), &x) in variance.iter_mut().zip(&mean).zip(row(i)) {
                *variance += (f64::from(x) - mean).powi(2);
            }
        }
        let scale: Vec<f32> = variance
            .iter()
            .zip(&mean)
            .map(|(&variance, &mean)| {
                let deviation = (variance / count as f64).sqrt();
                if deviation <= Self::CONSTANT * mean.abs() || deviation < f64::from(f32::MIN_POSITIVE) {
                    1.0
                } else {
                    (1.0 / deviation) as f32
                }
            })
            .collect();
        let mean: Vec<f32> = mean.into_iter().map(|mean| mean as f32).collect();
        match mean.iter().zip(&scale).position(|(m, s)| !(m.is_finite() && s.is_finite() && *s > 0.0)) {
            Some(column) => Err(NormalizerError::NotFinite { column }),
            None => Ok(Self { mean, scale }),
        }
    }

    /// Number of columns.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.mean.len()
    }

    /// Normalises rows of observations, `[B * O]`, into `out` of the same length.
    ///
    /// # Panics
    /// If the lengths differ or are not whole rows.
    pub fn apply(&self, observations: &[f32], out: &mut [f32]) {
        assert_eq!(observations.len(), out.len(), "input and output differ in length");
        assert_eq!(observations.len() % self.columns(), 0, "observations are not whole rows");
        for (x, out) in observations.chunks_exact(self.columns()).zip(out.chunks_exact_mut(self.columns())) {
            for (((out, &x), &mean), &scale) in out.iter_mut().zip(x).zip(&self.mean).zip(&self.scale) {
                *out = (x - mean) * scale;
            }
        }
    }

    /// [`Normalizer::apply`] in place.
    ///
    /// # Panics
    /// If the observations are not whole rows.
    pub fn apply_in_place(&self, observations: &mut [f32]) {
        assert_eq!(observations.len() % self.columns(), 0, "observations are not whole rows");
        for row in observations.chunks_exact_mut(self.columns()) {
            for ((x, &mean), &scale) in row.iter_mut().zip(&self.mean).zip(&self.scale) {
                *x = (*x - mean) * scale;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fit(rows: &[[f32; 2]]) -> Result<Normalizer, NormalizerError> {
        Normalizer::fit(2, rows.len(), |i| &rows[i])
    }

    #[test]
    fn fitted_columns_get_zero_mean_and_unit_spread() {
        let rows = [[1.0, 1000.0], [2.0, 1002.0], [3.0, 1001.0], [6.0, 1005.0]];
        let normalizer = fit(&rows).unwrap();
        let mut out = [0.0; 8];
        normalizer.apply(rows.as_flattened(), &mut out);
        for column in 0..2 {
            let values: Vec<f64> = out.iter().skip(column).step_by(2).map(|&x| f64::from(x)).collect();
            let mean = values.iter().sum::<f64>() / 4.0;
            let variance = values.iter().map(|x| x * x).sum::<f64>() / 4.0 - mean * mean;
            // f32 rounding of values around 1000 is 6e-5, and the spread is 1.9.
            assert!(mean.abs() < 1e-4 && (variance - 1.0).abs() < 1e-4, "{column}: {mean} {variance}");
        }
        let mut in_place = rows.as_flattened().to_vec();
        normalizer.apply_in_place(&mut in_place);
        assert_eq!(in_place, out);
    }

    #[test]
    fn a_constant_column_is_centred_and_keeps_its_units() {
        let rows = [[0.1, 0.0], [0.1, 0.0], [0.1, 0.0]];
        let normalizer = fit(&rows).unwrap();
        assert_eq!(normalizer.scale, [1.0, 1.0]);
        let mut out = [9.0; 2];
        normalizer.apply(&[0.1, 7.0], &mut out);
        assert_eq!(out, [0.0, 7.0]);
    }

    #[test]
    fn nonsense_is_refused() {
        assert_eq!(fit(&[]), Err(NormalizerError::Empty));
        assert_eq!(fit(&[[0.0, f32::NAN], [1.0, 1.0]]), Err(NormalizerError::NotFinite { column: 1 }));
        assert_eq!(fit(&[[f32::INFINITY, 0.0]]), Err(NormalizerError::NotFinite { column: 0 }));
    }
}
