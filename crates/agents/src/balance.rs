//! Drawing states more evenly than the log visits them.
//!
//! A policy is a conditional distribution: the states on which it is fitted may be drawn from anywhere, and the log's
//! own frequencies are a poor choice where a task passes through states quickly that it must not get wrong (a swing-up
//! lasts a twentieth of an episode of balancing). Rows are drawn with probability in proportion to
//!
//! ```text
//! n(s)^-balance,   n(s) = number of rows in the cell of s
//! ```
//!
//! where cells are cubes of [`CELL`] standard deviations a side. `balance = 0` draws rows as they were logged, and
//! `balance = 1` cells alike. Where observations have many components almost every row has a cell of its own, and rows
//! are drawn almost as logged again.

use std::collections::HashMap;

use coptidice_core::rng::splitmix;

use crate::policy::{Normalizer, NormalizerError};
use crate::problem::TrainingRows;

/// Side of a cell, standard deviations of the logged observations. A choice of scale, not of precision: values from
/// .1 to .5 tell a swing-up from balancing alike.
const CELL: f32 = 0.25;

/// Rows with their probabilities.
#[derive(Clone, Debug)]
pub(crate) struct Balance {
    /// `[rows]`: running sums of the weights.
    sums: Vec<f64>,
}

impl Balance {
    /// # Errors
    /// If observations are not finite.
    pub(crate) fn new(
        data: &coptidice_data::Transitions,
        rows: &TrainingRows<'_>,
        power: f64,
    ) -> Result<Self, NormalizerError> {
        let dim = data.observation_dim();
        let normalizer = Normalizer::fit(dim, data.len(), |row| data.observation(row))?;
        let mut normalised = vec![0.0; dim];
        let mut counts: HashMap<u64, u32> = HashMap::new();
        let cells: Vec<u64> = (0..rows.len())
            .map(|k| {
                normalizer.apply(data.observation(rows.row(k)), &mut normalised);
                let cell = cell(&normalised);
                *counts.entry(cell).or_default() += 1;
                cell
            })
            .collect();
        let mut sum = 0.0;
        let sums = cells.iter().map(|cell| {
            sum += f64::from(counts[cell]).powf(-power);
            sum
        });
        Ok(Balance { sums: sums.collect() })
    }

    /// The position in `rows` that belongs to `u`, uniform on `[0, 1)`.
    pub(crate) fn position(&self, u: f64) -> usize {
        let last = self.sums.len() - 1;
        self.sums.partition_point(|&sum| sum <= u * self.sums[last]).min(last)
    }
}

/// A number for the cell of a normalised state. That two cells share one among `n` has a chance of about `n^2 / 2^65`:
/// 3e-8 for a million.
fn cell(state: &[f32]) -> u64 {
    state.iter().fold(0, |hash, &x| splitmix(hash ^ (x / CELL).floor() as i64 as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::Problem;
    use crate::testing;
    use coptidice_data::{ActionSpace, Schema, Step, StepAction, TransitionsBuilder};

    /// One hundred rows: 64 in one place, 32 spread over two others of 16, and 4 that stand alone.
    fn log() -> coptidice_data::Transitions {
        let schema = Schema {
            observation_dim: 2,
            action: ActionSpace::discrete(1),
            cost_names: vec!["first".to_owned(), "second".to_owned()],
            propensity: false,
        };
        let mut builder = TransitionsBuilder::new(schema).unwrap();
        for row in 0..100_usize {
            let place = match row {
                0..64 => [0.0, 0.0],
                64..80 => [10.0, 0.0],
                80..96 => [0.0, 10.0],
                _ => [30.0, 10.0 * (row - 96) as f32],
            };
            builder
                .push(&Step {
                    observation: &place,
                    action: StepAction::Discrete(0),
                    reward: row as f32,
                    costs: &[0.0; 2],
                    next_observation: &place,
                    terminal: false,
                    timeout: row == 99,
                    propensity: None,
                })
                .unwrap();
        }
        builder.finish().unwrap()
    }

    /// Under the power 1/2 a place of `n` rows has `n n^(-1/2) = sqrt(n)` of the weight: 8, 4, 4, and 1 for each of
    /// four. With `u` on a grid of 2000 the shares are exact up to one in 2000 for each of the places' ends.
    #[test]
    fn places_are_drawn_by_the_root_of_their_rows() {
        let data = log();
        let config = testing::config(&data, "algo = \"bc\"\n");
        let problem = Problem::new(&config, &data).unwrap();
        let shares = |power: f64| {
            let balance = Balance::new(&data, &problem.rows, power).unwrap();
            let mut found = [0.0_f64; 7];
            for i in 0..2000 {
                let row = balance.position(f64::from(i) / 2000.0);
                found[match row {
                    0..64 => 0,
                    64..80 => 1,
                    80..96 => 2,
                    row => row - 93,
                }] += 1.0 / 2000.0;
            }
            found
        };
        for (power, weights) in [
            (0.5, [8.0, 4.0, 4.0, 1.0, 1.0, 1.0, 1.0]),
            (0.0, [64.0, 16.0, 16.0, 1.0, 1.0, 1.0, 1.0]),
            (1.0, [1.0; 7]),
        ] {
            let total: f64 = weights.iter().sum();
            for (found, weight) in shares(power).iter().zip(weights) {
                assert!((found - weight / total).abs() <= 1.1e-3, "{power}: {found} for {}", weight / total);
            }
        }
    }
}
