//! Distributions of values on fixed atoms (Bellemare et al. 2017, "A distributional perspective on reinforcement
//! learning").
//!
//! A value lies in `[low, high]`, and its distribution on `M` equally spaced atoms `z_j` there. What a network puts out
//! are logits `[B, M]`.

use coptidice_nn::{Kernel, math, run_vectorised};

/// Partial sums kept side by side, so that sums vectorise; fixed, so that they are the same on every machine.
const LANES: usize = 16;

/// The atoms.
#[derive(Clone, Debug)]
pub(super) struct Support {
    /// `z_0 < ... < z_{M-1}`.
    atoms: Vec<f32>,
    spacing: f32,
}

impl Support {
    /// `atoms >= 2` atoms from `low` to `high > low`.
    pub(super) fn new(low: f32, high: f32, atoms: usize) -> Self {
        let spacing = (high - low) / (atoms - 1) as f32;
        let atoms = (0..atoms).map(|j| low + spacing * j as f32).collect();
        Support { atoms, spacing }
    }

    /// `M`.
    pub(super) fn len(&self) -> usize {
        self.atoms.len()
    }

    /// `softmax` of logits `[B, M]` into `probabilities` of the same shape, and their means into `means`, `[B]`.
    pub(super) fn distributions(&self, logits: &[f32], probabilities: &mut [f32], means: &mut [f32]) {
        run_vectorised::<Distributions, _>((&self.atoms[..], logits, probabilities, means));
    }

    /// The distribution of `reward + discount * Z` for `Z` distributed as `next`, `[M]`, brought back to the atoms: what
    /// falls between two of them is shared so that its mean stays, what falls outside goes to the end. Written to
    /// `target`, `[M]`.
    pub(super) fn project(&self, next: &[f32], reward: f32, discount: f32, target: &mut [f32]) {
        target.fill(0.0);
        let last = self.atoms.len() - 1;
        let low = self.atoms[0];
        for (&z, &p) in self.atoms.iter().zip(next) {
            let place = ((reward + discount * z - low) / self.spacing).clamp(0.0, last as f32);
            let below = (place as usize).min(last - 1);
            let share = place - below as f32;
            target[below] += p * (1.0 - share);
            target[below + 1] += p * share;
        }
    }
}

/// Cross-entropy `-mean_b sum_j target_bj log p_bj` of distributions `[B, M]`, for reports, and its derivative with respect
/// to the logits that `probabilities` are the softmax of, into `d_logits`.
pub(super) fn cross_entropy(
    target: &[f32],
    probabilities: &[f32],
    batch: usize,
    d_logits: &mut [f32],
) -> f64 {
    let scale = 1.0 / batch as f32;
    let mut loss = 0.0;
    for ((d, &m), &p) in d_logits.iter_mut().zip(target).zip(probabilities) {
        *d = scale * (p - m);
        if m > 0.0 {
            loss -= f64::from(m) * f64::from(math::ln(p.max(f32::MIN_POSITIVE)));
        }
    }
    loss / batch as f64
}

#[inline(always)]
fn reduce(values: &[f32], start: f32, f: impl Fn(f32, f32) -> f32) -> f32 {
    let mut lanes = [start; LANES];
    let (whole, rest) = values.as_chunks::<LANES>();
    for values in whole {
        for (lane, &value) in lanes.iter_mut().zip(values) {
            *lane = f(*lane, value);
        }
    }
    for (lane, &value) in lanes.iter_mut().zip(rest) {
        *lane = f(*lane, value);
    }
    lanes.iter().fold(start, |a, &b| f(a, b))
}

struct Distributions;

impl Kernel<(&[f32], &[f32], &mut [f32], &mut [f32])> for Distributions {
    type Output = ();

    #[inline(always)]
    fn run((atoms, logits, probabilities, means): (&[f32], &[f32], &mut [f32], &mut [f32])) {
        let width = atoms.len();
        let rows = logits.chunks_exact(width).zip(probabilities.chunks_exact_mut(width));
        for ((logits, probabilities), mean) in rows.zip(means) {
            let top = reduce(logits, f32::NEG_INFINITY, |a, b| if a > b { a } else { b });
            for (p, &logit) in probabilities.iter_mut().zip(logits) {
                *p = math::exp(logit - top);
            }
            let scale = 1.0 / reduce(probabilities, 0.0, |a, b| a + b);
            let mut lanes = [0.0; LANES];
            let (whole, rest) = probabilities.as_chunks_mut::<LANES>();
            let (whole_atoms, rest_atoms) = atoms.as_chunks::<LANES>();
            for (p, z) in whole.iter_mut().zip(whole_atoms) {
                for ((lane, p), &z) in lanes.iter_mut().zip(p).zip(z) {
                    *p *= scale;
                    *lane += *p * z;
                }
            }
            for ((lane, p), &z) in lanes.iter_mut().zip(rest).zip(rest_atoms) {
                *p *= scale;
                *lane += *p * z;
            }
            *mean = lanes.iter().sum();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coptidice_core::rng::{Rng, stream};
    use rand::RngExt as _;

    fn distribution(rng: &mut Rng, atoms: usize) -> Vec<f32> {
        let draws: Vec<f32> = (0..atoms).map(|_| rng.random_range(0.0..1.0)).collect();
        let sum: f32 = draws.iter().sum();
        draws.iter().map(|draw| draw / sum).collect()
    }

    /// Every atom gets from every moved atom in proportion to how near it is, zero from one spacing away on: a sum over all
    /// pairs, in double precision. Sums of 20 terms of single precision differ by less than 20 roundings of 1.2e-7.
    #[test]
    fn a_projection_is_the_sum_over_all_pairs_of_atoms() {
        let mut rng = stream(1, "projection", 0);
        let (low, high, atoms) = (-0.5_f64, 1.5_f64, 20);
        let support = Support::new(low as f32, high as f32, atoms);
        let spacing = (high - low) / (atoms - 1) as f64;
        for _ in 0..200 {
            let next = distribution(&mut rng, atoms);
            let (reward, discount) = (rng.random_range(-1.0..1.0_f32), rng.random_range(0.0..1.0_f32));
            let mut target = vec![9.0; atoms];
            support.project(&next, reward, discount, &mut target);
            for (i, &found) in target.iter().enumerate() {
                let here = low + spacing * i as f64;
                let wanted: f64 = (0..atoms)
                    .map(|j| {
                        let z = low + spacing * j as f64;
                        let moved = (f64::from(reward) + f64::from(discount) * z).clamp(low, high);
                        f64::from(next[j]) * (1.0 - (moved - here).abs() / spacing).max(0.0)
                    })
                    .sum();
                assert!((f64::from(found) - wanted).abs() < 5e-6, "{found} {wanted}");
            }
        }
    }

    /// While nothing falls outside; means are of at most 1, over 20 atoms.
    #[test]
    fn a_projection_keeps_the_mean() {
        let mut rng = stream(2, "projection", 0);
        let support = Support::new(0.0, 1.0, 20);
        let mean = |p: &[f32]| p.iter().zip(&support.atoms).map(|(p, z)| p * z).sum::<f32>();
        for _ in 0..50 {
            let next = distribution(&mut rng, 20);
            let (discount, mut target) = (rng.random_range(0.0..0.5_f32), vec![0.0; 20]);
            support.project(&next, 0.4, discount, &mut target);
            assert!((mean(&target) - (0.4 + discount * mean(&next))).abs() < 5e-6);
            assert!((target.iter().sum::<f32>() - 1.0).abs() < 5e-6);
        }
    }

    /// Against the derivative of `-(1/B) sum m (l - log sum exp l)` by central differences in double precision: their error
    /// is of order h^2 = 1e-8, the rounding of single precision 1e-7.
    #[test]
    fn the_derivative_of_the_cross_entropy_is_that_of_the_logits() {
        let mut rng = stream(3, "entropy", 0);
        let (batch, atoms) = (3, 19);
        let support = Support::new(0.0, 1.0, atoms);
        let logits: Vec<f32> = (0..batch * atoms).map(|_| rng.random_range(-2.0..2.0)).collect();
        let target: Vec<f32> = (0..batch).flat_map(|_| distribution(&mut rng, atoms)).collect();
        let (mut p, mut means, mut d) = (vec![0.0; 57], vec![0.0; 3], vec![0.0; 57]);
        support.distributions(&logits, &mut p, &mut means);
        let loss = cross_entropy(&target, &p, batch, &mut d);
        let direct = |logits: &[f64]| -> f64 {
            let rows = logits.chunks_exact(atoms).zip(target.chunks_exact(atoms));
            let row = |(l, m): (&[f64], &[f32])| {
                let log_sum = l.iter().map(|l| l.exp()).sum::<f64>().ln();
                l.iter().zip(m).map(|(l, &m)| f64::from(m) * (log_sum - l)).sum::<f64>()
            };
            rows.map(row).sum::<f64>() / batch as f64
        };
        let wide: Vec<f64> = logits.iter().map(|&l| f64::from(l)).collect();
        assert!((loss - direct(&wide)).abs() < 1e-5);
        for i in 0..wide.len() {
            let at = |h: f64| {
                let mut moved = wide.clone();
                moved[i] += h;
                direct(&moved)
            };
            let slope = (at(1e-4) - at(-1e-4)) / 2e-4;
            assert!((f64::from(d[i]) - slope).abs() < 1e-6, "{} {slope}", d[i]);
        }
        let mean: f64 = p[..atoms].iter().enumerate().map(|(j, &p)| f64::from(p) * j as f64 / 18.0).sum();
        assert!((f64::from(means[0]) - mean).abs() < 1e-6);
    }
}
