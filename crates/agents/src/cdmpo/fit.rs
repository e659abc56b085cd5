//! The M-step: a Gaussian policy fitted to the reweighted actions within trust regions of its own (Abdolmaleki et al. 2018,
//! "Relative entropy regularized policy iteration", sections on decoupled updates).
//!
//! With `target` the policy that drew the actions, of location `m'` and deviation `s'`, and `m`, `s` those in training,
//!
//! ```text
//! J = mean_b sum_i [ (p_i KL_m - sum_n weights_bn log N(a_bni; m_i, s'_i)) / (W_b + p_i)
//!                  + (d_i KL_s - sum_n weights_bn log N(a_bni; m'_i, s_i)) / (W_b + d_i) ]
//!
//! KL_m = KL(N(m', s') || N(m, s')) = (m - m')^2 / (2 s'^2)
//! KL_s = KL(N(m', s') || N(m', s)) = log(s/s') + s'^2/(2 s^2) - 1/2
//! ```
//!
//! Location and deviation are fitted apart, so that the one may move while the other keeps its spread to explore. The
//! prices `p`, `d` of the divergences rise while these exceed their bounds. `W_b = sum_n weights_bn`: the division leaves
//! every term's minimum where it is and its slope of one size whatever the price, as the optimiser, which remembers slopes,
//! needs it.
//!
//! Network outputs are those of [`crate::policy::Head::Mixture`] with one component: `[3, A]` logits (of no effect),
//! locations, raw scales, deviation = `softplus(raw) + min_scale`.

use coptidice_nn::math::{sigmoid, softplus};

/// The shape of the policy's outputs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gaussian {
    /// `A`.
    pub(super) action_dim: usize,
    /// Smallest deviation.
    pub(super) min_scale: f32,
}

impl Gaussian {
    /// Outputs per sample.
    pub(super) fn outputs(self) -> usize {
        3 * self.action_dim
    }

    /// Location of dimension `i`.
    pub(super) fn location(self, outputs: &[f32], i: usize) -> f32 {
        outputs[self.action_dim + i]
    }

    /// Deviation of dimension `i`.
    pub(super) fn deviation(self, outputs: &[f32], i: usize) -> f32 {
        softplus(outputs[2 * self.action_dim + i]) + self.min_scale
    }

    /// The raw scale of a deviation above `min_scale`.
    pub(super) fn raw_scale(self, deviation: f32) -> f32 {
        // Inverse of softplus; ln(e^x - 1) = x + ln(1 - e^-x).
        let x = deviation - self.min_scale;
        x + (-(-x).exp_m1()).ln()
    }

    /// `J` and its derivative with respect to `outputs`, `[B, 3A]`, into `d_out`.
    ///
    /// `actions` is `[B, N, A]`, `weights` `[B, N]`; `prices` holds `p` and then `d`, `[2A]`, and the mean divergences are
    /// written to `divergences` in the same order.
    pub(super) fn fit(
        self,
        outputs: &[f32],
        target: &[f32],
        actions: &[f32],
        weights: &[f32],
        prices: &[f64],
        d_out: &mut [f32],
        divergences: &mut [f64],
    ) -> f64 {
        let (dims, width) = (self.action_dim, self.outputs());
        let batch = outputs.len() / width;
        let samples = weights.len() / batch;
        let mean = 1.0 / batch as f64;
        let mut loss = 0.0;
        d_out.fill(0.0);
        divergences.fill(0.0);
        for b in 0..batch {
            let (outputs, target) = (&outputs[b * width..][..width], &target[b * width..][..width]);
            let actions = &actions[b * samples * dims..][..samples * dims];
            let weights = &weights[b * samples..][..samples];
            let d_out = &mut d_out[b * width..][..width];
            let total: f64 = weights.iter().map(|&w| f64::from(w)).sum();
            for i in 0..dims {
                let (old, scale) = (self.location(target, i), f64::from(self.deviation(target, i)));
                // Weighted moments of the actions about the old location, in old deviations.
                let (mut first, mut second) = (0.0, 0.0);
                for (&w, a) in weights.iter().zip(actions.iter().skip(i).step_by(dims)) {
                    let z = f64::from(a - old) / scale;
                    first += f64::from(w) * z;
                    second += f64::from(w) * z * z;
                }
                let moved = f64::from(self.location(outputs, i) - old) / scale;
                let ratio = f64::from(self.deviation(outputs, i)) / scale;
                let (price, price_of_scale) = (prices[i], prices[dims + i]);
                let location_kl = 0.5 * moved * moved;
                let scale_kl = ratio.ln() + 0.5 / (ratio * ratio) - 0.5;
                divergences[i] += mean * location_kl;
                divergences[dims + i] += mean * scale_kl;
                // Log-densities but for constants of the old policy.
                let near = 0.5 * (second - 2.0 * first * moved + total * moved * moved);
                let spread = 0.5 * second / (ratio * ratio) + total * ratio.ln();
                let (share, share_of_scale) = (1.0 / (total + price), 1.0 / (total + price_of_scale));
                loss += share * (near + price * location_kl);
                loss += share_of_scale * (spread + price_of_scale * scale_kl);
                let d_moved = moved - share * first;
                let d_ratio = 1.0 / ratio - share_of_scale * (second + price_of_scale) / ratio.powi(3);
                d_out[dims + i] = (mean * d_moved / scale) as f32;
                let slope = f64::from(sigmoid(outputs[2 * dims + i]));
                d_out[2 * dims + i] = (mean * d_ratio / scale * slope) as f32;
            }
        }
        mean * loss
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coptidice_core::rng::stream;
    use rand::RngExt as _;

    const SHAPE: Gaussian = Gaussian { action_dim: 2, min_scale: 0.01 };
    const BATCH: usize = 3;
    const SAMPLES: usize = 5;

    fn log_density(a: f64, location: f64, deviation: f64) -> f64 {
        let z = (a - location) / deviation;
        -0.5 * z * z - deviation.ln() - 0.5 * (2.0 * std::f64::consts::PI).ln()
    }

    /// `KL(N(m, s) || N(m', s'))` by the trapezoid rule on twelve deviations to both sides.
    fn divergence(from: (f64, f64), to: (f64, f64)) -> f64 {
        let (n, width) = (4000, 12.0 * from.1);
        let step = 2.0 * width / f64::from(n);
        let at = |i: i32| from.0 - width + step * f64::from(i);
        let term = |x: f64| {
            let log = log_density(x, from.0, from.1);
            log.exp() * (log - log_density(x, to.0, to.1))
        };
        (0..=n).map(|i| step * term(at(i))).sum()
    }

    struct Case {
        outputs: Vec<f64>,
        target: Vec<f32>,
        actions: Vec<f32>,
        weights: Vec<f32>,
        prices: [f64; 4],
    }

    fn case() -> Case {
        let mut rng = stream(5, "fit", 0);
        let mut draw = |n: usize, low: f32, high: f32| -> Vec<f32> {
            (0..n).map(|_| rng.random_range(low..high)).collect()
        };
        Case {
            outputs: draw(18, -0.5, 0.5).iter().map(|&x| f64::from(x)).collect(),
            target: draw(18, -0.5, 0.5),
            actions: draw(30, -1.5, 1.5),
            weights: draw(15, 0.0, 1.0),
            prices: [0.7, 1.1, 2.0, 0.3],
        }
    }

    /// The loss as the module's documentation has it, from densities, with the divergences by integration.
    fn direct(case: &Case, outputs: &[f64]) -> (f64, [f64; 4]) {
        let deviation = |raw: f64| raw.exp().ln_1p() + f64::from(SHAPE.min_scale);
        let (mut loss, mut divergences) = (0.0, [0.0; 4]);
        for b in 0..BATCH {
            let total: f64 = case.weights[5 * b..5 * b + 5].iter().map(|&w| f64::from(w)).sum();
            for i in 0..2 {
                let share = [i, 2 + i].map(|j| 1.0 / (total + case.prices[j]));
                let of = |j: usize| (outputs[6 * b + j + i], f64::from(case.target[6 * b + j + i]));
                let ((m, old_m), (raw, old_raw)) = (of(2), of(4));
                let (s, old_s) = (deviation(raw), deviation(old_raw));
                for n in 0..SAMPLES {
                    let (w, a) = (case.weights[5 * b + n], case.actions[10 * b + 2 * n + i]);
                    let logs = share[0] * log_density(f64::from(a), m, old_s)
                        + share[1] * log_density(f64::from(a), old_m, s);
                    loss -= f64::from(w) * logs / 3.0;
                }
                let moved = [(m, old_s), (old_m, s)].map(|to| divergence((old_m, old_s), to) / 3.0);
                for (j, kl) in [i, 2 + i].into_iter().zip(moved) {
                    divergences[j] += kl;
                    loss += case.prices[j] * kl / (total + case.prices[j]);
                }
            }
        }
        (loss, divergences)
    }

    fn fit(case: &Case) -> (f64, Vec<f32>, [f64; 4]) {
        let outputs: Vec<f32> = case.outputs.iter().map(|&x| x as f32).collect();
        let (mut d, mut divergences) = (vec![0.0; 18], [0.0; 4]);
        let Case { target, actions, weights, prices, .. } = case;
        let loss = SHAPE.fit(&outputs, target, actions, weights, prices, &mut d, &mut divergences);
        (loss, d, divergences)
    }

    /// Central differences with h = 1e-4 leave errors of order 1e-8 times third derivatives, at most about 100 here; outputs
    /// in single precision leave 1e-6 of a gradient that is at most about 10. The trapezoid rule is exact beyond that for
    /// smooth integrands that vanish at both ends.
    #[test]
    fn the_gradient_and_the_divergences_are_those_of_the_densities() {
        let case = case();
        let (_, d, divergences) = fit(&case);
        let (_, wanted) = direct(&case, &case.outputs);
        for (found, wanted) in divergences.iter().zip(wanted) {
            assert!((found - wanted).abs() < 1e-6, "{found} {wanted}");
        }
        for i in 0..18 {
            let at = |h: f64| {
                let mut moved = case.outputs.clone();
                moved[i] += h;
                direct(&case, &moved).0
            };
            let slope = (at(1e-4) - at(-1e-4)) / 2e-4;
            assert!((f64::from(d[i]) - slope).abs() < 2e-5, "{i}: {} {slope}", d[i]);
        }
    }

    /// The loss is that of the densities up to a constant: the same difference between two sets of outputs.
    #[test]
    fn the_loss_differs_from_the_densities_by_a_constant() {
        let (a, mut b) = (case(), case());
        b.outputs.iter_mut().for_each(|x| *x *= -0.7);
        let found = fit(&a).0 - fit(&b).0;
        let wanted = direct(&a, &a.outputs).0 - direct(&b, &b.outputs).0;
        assert!((found - wanted).abs() < 1e-5, "{found} {wanted}");
    }

    #[test]
    fn raw_scales_give_the_deviations_they_were_made_for() {
        for deviation in [0.02_f32, 0.5, 3.0, 40.0] {
            let outputs = [0.0, 0.0, 0.0, 0.0, SHAPE.raw_scale(deviation), 0.0];
            assert!((SHAPE.deviation(&outputs, 0) - deviation).abs() < 1e-5 * deviation.max(1.0));
        }
    }
}
