//! The E-step: a better distribution over sampled actions, no further from the policy than a bound (Abdolmaleki et al.
//! 2018, "Maximum a posteriori policy optimisation").
//!
//! At each of `B` states `N` actions are drawn from the policy, with values `q_bn`. The best reweighting within
//! `mean_b KL(weights_b || uniform) <= bound` is
//!
//! ```text
//! weights_bn = exp(q_bn/t) / sum_m exp(q_bm/t)
//! ```
//!
//! at the temperature `t` that minimises the convex dual
//!
//! ```text
//! g(t) = t bound + t mean_b log (1/N) sum_n exp(q_bn/t) ,     dg/dt = bound - mean_b KL(weights_b || uniform)
//! ```

/// What a reweighting found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Reweighting {
    /// The dual `g`.
    pub(super) dual: f64,
    /// `mean_b KL(weights_b || uniform)`.
    pub(super) kl: f64,
}

/// **Adds** the weights of `values`, `[B, N]`, to `weights`; `temperature > 0`.
pub(super) fn reweight(
    values: &[f32],
    samples: usize,
    temperature: f64,
    bound: f64,
    weights: &mut [f32],
) -> Reweighting {
    let batch = values.len() / samples;
    let (mut log_means, mut kl) = (0.0, 0.0);
    let inverse = (1.0 / temperature) as f32;
    let mut exponentials = [0.0_f32; MOST_SAMPLES];
    let exponentials = &mut exponentials[..samples];
    for (values, weights) in values.chunks_exact(samples).zip(weights.chunks_exact_mut(samples)) {
        let top = values.iter().fold(f32::NEG_INFINITY, |top, &q| top.max(q));
        let (mut sum, mut weighted) = (0.0_f64, 0.0_f64);
        for (e, &q) in exponentials.iter_mut().zip(values) {
            let below = (q - top) * inverse;
            *e = coptidice_nn::math::exp(below);
            sum += f64::from(*e);
            weighted += f64::from(*e) * f64::from(below);
        }
        let scale = (1.0 / sum) as f32;
        for (weight, &e) in weights.iter_mut().zip(&*exponentials) {
            *weight += scale * e;
        }
        // Both relative to the largest value.
        let log_mean = (sum / samples as f64).ln();
        kl += weighted / sum - log_mean;
        log_means += f64::from(top) / temperature + log_mean;
    }
    let mean = 1.0 / batch as f64;
    Reweighting { dual: temperature * (bound + mean * log_means), kl: mean * kl }
}

/// Most actions that are drawn at a state.
pub(super) const MOST_SAMPLES: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use coptidice_core::rng::stream;
    use rand::RngExt as _;

    fn values(batch: usize, samples: usize) -> Vec<f32> {
        let mut rng = stream(4, "values", 0);
        (0..batch * samples).map(|_| rng.random_range(-1.0..1.0)).collect()
    }

    /// By bisection on the derivative, which rises with the temperature.
    fn best_temperature(values: &[f32], samples: usize, bound: f64) -> (f64, Vec<f32>) {
        let (mut low, mut high) = (1e-4_f64, 1e4_f64);
        for _ in 0..80 {
            let middle = (low * high).sqrt();
            let found = reweight(values, samples, middle, bound, &mut vec![0.0; values.len()]);
            if found.kl > bound {
                low = middle;
            } else {
                high = middle;
            }
        }
        let mut weights = vec![0.0; values.len()];
        reweight(values, samples, low, bound, &mut weights);
        (low, weights)
    }

    /// Central differences in log t: their error is of order h^2 = 1e-6; values of the exponential are right to 1e-7, which
    /// a difference divides by h = 1e-3.
    #[test]
    fn the_duals_derivative_is_that_of_its_value() {
        let values = values(6, 8);
        let mut weights = vec![0.0; 48];
        for temperature in [0.1_f64, 0.5, 3.0] {
            let mut dual = |log: f64| reweight(&values, 8, log.exp(), 0.1, &mut weights).dual;
            let (log, h) = (temperature.ln(), 1e-3);
            let slope = (dual(log + h) - dual(log - h)) / (2.0 * h);
            let found = reweight(&values, 8, temperature, 0.1, &mut weights);
            let claimed = temperature * (0.1 - found.kl);
            assert!((claimed - slope).abs() < 3e-4 * (1.0 + temperature), "{claimed} {slope}");
        }
    }

    /// The divergence is computed anew from the weights, whose single precision gives 1e-6.
    #[test]
    fn weights_at_the_duals_minimum_use_the_bound_up() {
        let values = values(10, 16);
        for bound in [0.01, 0.1, 1.0] {
            let (_, weights) = best_temperature(&values, 16, bound);
            let term = |&w: &f32| f64::from(w) * (16.0 * f64::from(w).max(1e-300)).ln();
            let kl = weights.iter().map(term).sum::<f64>() / 10.0;
            assert!((kl - bound).abs() < 1e-5, "{kl} {bound}");
            for weights in weights.chunks_exact(16) {
                assert!((weights.iter().sum::<f32>() - 1.0).abs() < 1e-6);
            }
        }
    }

    /// At one state with two actions the best weight within the bound is found by trying all in steps of 1e-5; the dual's
    /// value there is the optimum's (strong duality), to about that step.
    #[test]
    fn no_other_weights_within_the_bound_are_better() {
        for bound in [0.01, 0.05, 0.3] {
            let values = [0.3_f32, -0.2];
            let kl = |w: f64| w * (2.0 * w).ln() + (1.0 - w) * (2.0 * (1.0 - w)).ln();
            let tried = (1..100_000).map(|i| f64::from(i) * 1e-5).filter(|&w| kl(w) <= bound);
            let best = tried.fold(0.0, f64::max);
            let (temperature, weights) = best_temperature(&values, 2, bound);
            assert!((f64::from(weights[0]) - best).abs() < 5e-5, "{} {best}", weights[0]);
            let dual = reweight(&values, 2, temperature, bound, &mut [0.0; 2]).dual;
            let optimum = 0.3 * best - 0.2 * (1.0 - best);
            assert!((dual - optimum).abs() < 5e-5, "{dual} {optimum}");
        }
    }
}
