//! The optimiser and the running average of parameters.

use crate::Pool;
use crate::kernels::{self, AdamRates};
use serde::{Deserialize, Serialize};

/// Elements handled by one thread at a time.
const CHUNK: usize = 1 << 14;

/// Adam (Kingma and Ba 2015, algorithm 1) with bias correction; `epsilon` is added outside the square root.
///
/// Every field is public so that a checkpoint can hold it; `first` and `second` are laid out like the parameters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Adam {
    /// Size of a step.
    pub learning_rate: f32,
    /// Decay of the first moment, 0.9.
    pub beta1: f32,
    /// Decay of the second moment, 0.999.
    pub beta2: f32,
    /// Added to the root of the second moment, 1e-8.
    pub epsilon: f32,
    /// Updates made so far.
    pub step: u64,
    /// Running mean of the gradient.
    pub first: Vec<f32>,
    /// Running mean of the squared gradient.
    pub second: Vec<f32>,
}

impl Adam {
    /// An optimiser of `len` parameters that has made no step, with the usual decays.
    #[must_use]
    pub fn new(len: usize, learning_rate: f32) -> Self {
        let (first, second) = (vec![0.0; len], vec![0.0; len]);
        Self { learning_rate, beta1: 0.9, beta2: 0.999, epsilon: 1e-8, step: 0, first, second }
    }

    /// One step down the gradient.
    ///
    /// # Panics
    /// If `params` or `grads` differ in length from the moments.
    pub fn update(&mut self, params: &mut [f32], grads: &[f32], pool: &Pool) {
        assert_eq!(grads.len(), self.first.len(), "gradients of another optimiser");
        let rates = self.next_rates(params.len());
        pool.install(|| update(params, grads, &mut self.first, &mut self.second, rates, pool));
    }

    /// Counts a step of `len` parameters and gives its rates.
    pub(crate) fn next_rates(&mut self, len: usize) -> AdamRates {
        assert_eq!(len, self.first.len(), "parameters of another optimiser");
        assert_eq!(self.second.len(), self.first.len(), "moments of unequal length");
        self.step += 1;
        let exponent = i32::try_from(self.step).unwrap_or(i32::MAX);
        let correction1 = 1.0 - f64::from(self.beta1).powi(exponent);
        let correction2 = 1.0 - f64::from(self.beta2).powi(exponent);
        AdamRates {
            beta1: self.beta1,
            beta2: self.beta2,
            step: (f64::from(self.learning_rate) / correction1) as f32,
            inverse_root: (1.0 / correction2.sqrt()) as f32,
            epsilon: self.epsilon,
        }
    }
}

fn update(
    params: &mut [f32],
    grads: &[f32],
    first: &mut [f32],
    second: &mut [f32],
    rates: AdamRates,
    pool: &Pool,
) {
    if params.len() <= CHUNK {
        return kernels::adam(params, grads, first, second, rates);
    }
    let half = (params.len() / 2).next_multiple_of(CHUNK);
    let (params, other_params) = params.split_at_mut(half);
    let (grads, other_grads) = grads.split_at(half);
    let (first, other_first) = first.split_at_mut(half);
    let (second, other_second) = second.split_at_mut(half);
    pool.join(
        || update(params, grads, first, second, rates, pool),
        || update(other_params, other_grads, other_first, other_second, rates, pool),
    );
}

/// `average += rate * (params - average)`.
///
/// # Panics
/// If the lengths differ.
pub fn exponential_average(average: &mut [f32], params: &[f32], rate: f32, pool: &Pool) {
    assert_eq!(average.len(), params.len(), "averages of other parameters");
    if average.len() > CHUNK {
        let half = (average.len() / 2).next_multiple_of(CHUNK);
        let (average, other_average) = average.split_at_mut(half);
        let (params, other_params) = params.split_at(half);
        pool.join(
            || exponential_average(average, params, rate, pool),
            || exponential_average(other_average, other_params, rate, pool),
        );
        return;
    }
    kernels::average(average, params, rate);
}
