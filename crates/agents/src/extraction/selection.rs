//! Guided selection: what is done is decided when acting.
//!
//! No policy is drawn from `w`. Two things are learned, and put together by the policy that acts
//! ([`crate::policy::Selector`]): a model `beta(a|s)` of the log's actions, by maximum likelihood, and critics `Q_r` and
//! `Q_{c_k}`. The policy takes a few likely actions of `beta` and does the one of the largest `Q_r - prices'Q_c`, so that
//! several ways are never averaged and nothing is learned by climbing a critic away from the log. Prices are those of a
//! guided extraction ([`super::prices`]); they stand in the policy's file, where they can be changed without training anew.
//!
//! The critics ([`super::critic`]) value *the policy that acts*: the action at a target's next state is chosen from the
//! same candidates, by the slowly following parameters of the first critic, which are also what is exported (as with
//! Ghasemipour et al. 2021, "EMaQ", where the candidates are fresh draws, and one critic is of reward alone).
//!
//! # Fixed candidates
//!
//! Continuous candidates are quantiles of `beta` that are drawn once for a run, so that acting is a function of the
//! observation. They are a Latin hypercube: of each dimension, the `m` quantiles of the component, and the `m` quantiles of
//! the normal value, are the middles of `m` equal parts, in an order of their own.

use coptidice_core::rng::stream;
use coptidice_nn::{NnError, Pool};
use rand::RngExt as _;

use super::PolicyTrainer;
use super::critic::Critics;
use crate::advantage::Space;
use crate::learner::StateMut;
use crate::policy::{Candidates, Normalizer, Selector};
use crate::problem::Problem;
use crate::sampler::Batch;

/// The critics that select, in training.
pub(super) struct Selection {
    critics: Critics,
    candidates: Candidates,
    /// `[B]`: the log's samples count alike.
    ones: Vec<f32>,
    /// `[K]`: the prices in single precision, as the policy has them.
    prices: Vec<f32>,
    figures: [f64; 3],
}

impl Selection {
    /// Mean squared error of the critics and the spread of values between actions, as of the guided extraction, and how
    /// much more the selected actions are worth than the mean candidate at the states ahead (in spreads).
    pub(super) const FIGURES: [&'static str; 3] = ["loss/critic", "critic/spread", "selection/gain"];

    pub(super) fn new(problem: &Problem<'_>) -> Result<Self, NnError> {
        let config = problem.config;
        let candidates = match Space::of(problem) {
            Space::Continuous { middle, half } => Candidates::Drawn {
                draws: hypercube(config.selection.candidates, middle.len(), config.seed),
                action: Normalizer { mean: middle, scale: half.iter().map(|half| 1.0 / half).collect() },
            },
            Space::Discrete { .. } => Candidates::Likely { threshold: config.selection.threshold },
        };
        Ok(Selection {
            critics: Critics::new(problem)?,
            candidates,
            ones: vec![1.0; config.batch_size],
            prices: vec![0.0; problem.costs.len()],
            figures: [0.0; 3],
        })
    }

    /// One step of the critics and of `beta`; returns the loss of `beta` before it. `prices` is `[K]`, scaled reward per
    /// scaled cost.
    pub(super) fn step(
        &mut self,
        batch: &Batch,
        prices: &[f64],
        policy: &mut PolicyTrainer,
        pool: &Pool,
    ) -> f64 {
        for (mine, price) in self.prices.iter_mut().zip(prices) {
            *mine = *price as f32;
        }
        let gain = self.critics.step_selecting(batch, prices, &self.prices, &self.candidates, policy, pool);
        let spread = self.critics.spread(prices);
        self.figures = [self.critics.figures()[0], spread, gain / spread];
        policy.step(batch, &self.ones, pool)
    }

    /// What the policy selects by at `prices`.
    pub(super) fn selector(&self, prices: &[f64]) -> Selector {
        let (network, params) = self.critics.exported();
        Selector {
            network: network.clone(),
            params: params.to_vec(),
            prices: prices.iter().map(|&price| price as f32).collect(),
            candidates: self.candidates.clone(),
        }
    }

    pub(super) fn set_pace(&mut self, pace: f32) {
        self.critics.set_pace(pace);
    }

    pub(super) fn figures(&self) -> &[f64] {
        &self.figures
    }

    pub(super) fn visit_state(&mut self, visit: &mut dyn FnMut(&str, StateMut<'_>)) {
        self.critics.visit_state(visit);
    }
}

/// `[m * A]` pairs of the quantile of a component and a normal value.
fn hypercube(candidates: usize, dims: usize, seed: u64) -> Vec<[f32; 2]> {
    let mut rng = stream(seed, "candidates", 0);
    let mut draws = vec![[0.0; 2]; candidates * dims];
    let mut order: Vec<usize> = (0..candidates).collect();
    for dim in 0..dims {
        for part in 0..2 {
            for last in (1..candidates).rev() {
                order.swap(last, rng.random_range(0..=last));
            }
            for (j, &place) in order.iter().enumerate() {
                let quantile = (place as f64 + 0.5) / candidates as f64;
                draws[j * dims + dim][part] = if part == 0 { quantile } else { normal(quantile) } as f32;
            }
        }
    }
    draws
}

/// The standard normal value below which a share `quantile`, in `(0, 1)`, lies.
fn normal(quantile: f64) -> f64 {
    let (mut low, mut high) = (-9.0_f64, 9.0);
    // Halves 18 down to the spacing of numbers near 1e-2.
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        let below = 0.5 * libm::erfc(-middle / std::f64::consts::SQRT_2);
        if below < quantile { low = middle } else { high = middle }
    }
    0.5 * (low + high)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of the standard normal distribution from tables, to their seven digits.
    #[test]
    fn normal_values_are_those_of_tables() {
        for (quantile, value) in
            [(0.5, 0.0), (0.975, 1.959_964_0), (0.1, -1.281_551_6), (0.0005, -3.290_526_7)]
        {
            assert!((normal(quantile) - value).abs() < 1e-7, "{quantile}: {}", normal(quantile));
        }
    }

    #[test]
    fn every_column_of_the_hypercube_holds_every_quantile_once() {
        let draws = hypercube(16, 3, 5);
        for column in 0..6 {
            let mut values: Vec<f32> =
                draws.as_flattened().chunks(6).map(|candidate| candidate[column]).collect();
            values.sort_unstable_by(f32::total_cmp);
            for (place, value) in values.into_iter().enumerate() {
                let quantile = (place as f64 + 0.5) / 16.0;
                let expected = if column % 2 == 0 { quantile } else { normal(quantile) };
                assert_eq!(value, expected as f32);
            }
        }
        assert_ne!(draws, hypercube(16, 3, 6), "another seed, another order");
    }
}
