//! Densities and the loss's gradient against definitions written down in double precision.

use super::{mixture, uniform};
use crate::policy::{ActionBatch, Head, HeadError};
use coptidice_core::rng::stream;
use coptidice_nn::Pool;
use proptest::prelude::*;
use rand::RngExt;

/// The definition: a product over dimensions of `Σ_m softmax(l)_m N(a; μ_m, σ_m)`, in logarithms.
fn mixture_reference(action_dim: usize, components: usize, outputs: &[f64], action: &[f64]) -> f64 {
    let block = action_dim * components;
    let mut total = 0.0;
    for dim in 0..action_dim {
        let at = |part: usize, m: usize| outputs[part * block + dim * components + m];
        let log_sum = |values: &[f64]| {
            let top = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            top + values.iter().map(|v| (v - top).exp()).sum::<f64>().ln()
        };
        let logits: Vec<f64> = (0..components).map(|m| at(0, m)).collect();
        let joint: Vec<f64> = (0..components)
            .map(|m| {
                let scale = (at(2, m).exp().ln_1p()) + 1e-4_f32 as f64;
                let z = (action[dim] - at(1, m)) / scale;
                logits[m] - 0.5 * z * z - scale.ln() - 0.5 * (2.0 * std::f64::consts::PI).ln()
            })
            .collect();
        total += log_sum(&joint) - log_sum(&logits);
    }
    total
}

fn categorical_reference(outputs: &[f64], action: usize) -> f64 {
    outputs[action] - outputs.iter().map(|l| l.exp()).sum::<f64>().ln()
}

fn double(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&x| f64::from(x)).collect()
}

/// A batch of a head: outputs, continuous and discrete actions (one of them used), weights.
struct Case {
    head: Head,
    outputs: Vec<f32>,
    continuous: Vec<f32>,
    discrete: Vec<u32>,
    weights: Vec<f32>,
}

impl Case {
    fn new(head: Head, batch: usize, seed: u64) -> Self {
        let mut rng = stream(seed, "head test", 0);
        let outputs = uniform(&mut rng, -2.0, 2.0, batch * head.outputs());
        let continuous = uniform(&mut rng, -2.0, 2.0, batch * head.action_width());
        let discrete = (0..batch).map(|_| rng.random_range(0..head.outputs() as u32)).collect();
        let weights = uniform(&mut rng, 0.0, 3.0, batch);
        Self { head, outputs, continuous, discrete, weights }
    }

    fn actions(&self) -> ActionBatch<'_> {
        if self.head.is_discrete() {
            ActionBatch::Discrete(&self.discrete)
        } else {
            ActionBatch::Continuous(&self.continuous)
        }
    }

    fn log_prob(&self, pool: &Pool) -> Vec<f32> {
        let mut values = vec![f32::NAN; self.weights.len()];
        self.head.log_prob(&self.outputs, self.actions(), &mut values, pool);
        values
    }

    fn loss(&self, pool: &Pool) -> (f64, Vec<f32>) {
        let mut gradient = vec![f32::NAN; self.outputs.len()];
        let value = self.head.weighted_nll(&self.outputs, self.actions(), &self.weights, &mut gradient, pool);
        (value, gradient)
    }

    /// `log π` of one row by definition, from outputs that may have been moved.
    fn reference(&self, row: usize, outputs: &[f64]) -> f64 {
        match self.head {
            Head::Mixture { action_dim, components, .. } => {
                let action = double(&self.continuous[row * action_dim..(row + 1) * action_dim]);
                mixture_reference(action_dim, components, outputs, &action)
            }
            Head::Categorical { .. } => categorical_reference(outputs, self.discrete[row] as usize),
        }
    }

    fn row(&self, row: usize) -> Vec<f64> {
        let width = self.head.outputs();
        double(&self.outputs[row * width..(row + 1) * width])
    }
}

fn heads() -> [Head; 5] {
    [
        mixture(1, 1),
        mixture(3, 5),
        mixture(21, 5),
        Head::Categorical { actions: 2 },
        Head::Categorical { actions: 9 },
    ]
}

#[test]
fn log_prob_is_the_definition() {
    let pool = Pool::new(1).unwrap();
    for head in heads() {
        let case = Case::new(head, 37, 1);
        for (row, value) in case.log_prob(&pool).into_iter().enumerate() {
            let truth = case.reference(row, &case.row(row));
            // Outputs within ±2 give |z| ≤ 4/softplus(−2) = 32 and terms z²/2 ≤ 500 per dimension; each carries a
            // handful of roundings of 6e-8.
            let tolerance = 5e-7 * (truth.abs() + 5.0 * head.action_width() as f64);
            assert!((f64::from(value) - truth).abs() < tolerance, "{head:?} row {row}: {value} {truth}");
        }
    }
}

#[test]
fn loss_is_the_weighted_mean() {
    let pool = Pool::new(1).unwrap();
    for head in heads() {
        let case = Case::new(head, 37, 2);
        let truth: f64 = (0..37)
            .map(|row| -f64::from(case.weights[row]) * case.reference(row, &case.row(row)) / 37.0)
            .sum();
        assert!((case.loss(&pool).0 - truth).abs() < 1e-6 * truth.abs(), "{head:?}");
    }
}

/// Central differences of the definition in double precision: truncation `h²/6` times third derivatives (≤ 1e4
/// at the smallest scales here) and rounding `1e-16·|log π|/h` are below 1e-6 of the derivatives' size.
#[test]
fn gradient_is_the_derivative_of_the_definition() {
    let (pool, h) = (Pool::new(1).unwrap(), 1e-6);
    for head in heads() {
        let case = Case::new(head, 19, 3);
        let gradient = case.loss(&pool).1;
        for row in 0..19 {
            let outputs = case.row(row);
            for at in 0..outputs.len() {
                let moved = |by: f64| {
                    let mut outputs = outputs.clone();
                    outputs[at] += by;
                    case.reference(row, &outputs)
                };
                let slope = (moved(h) - moved(-h)) / (2.0 * h);
                let truth = -f64::from(case.weights[row]) / 19.0 * slope;
                let found = f64::from(gradient[row * outputs.len() + at]);
                // Single precision: z carries 2e-7, its square in the exponent up to 500 times that.
                assert!(
                    (found - truth).abs() < 2e-4 * truth.abs() + 2e-6,
                    "{head:?} [{row},{at}]: {found} {truth}"
                );
            }
        }
    }
}

/// `∫ π(a|s) da = 1`, by the trapezoidal rule, which converges faster than any power for smooth densities.
#[test]
fn density_integrates_to_one() {
    let pool = Pool::new(1).unwrap();
    let head = mixture(1, 3);
    let outputs = [0.3, -1.0, 0.5, -1.5, 0.2, 2.0, -1.0, 0.0, 0.5];
    let (points, low, step) = (4001, -12.0_f32, 0.006_f32);
    let actions: Vec<f32> = (0..points).map(|i| low + i as f32 * step).collect();
    let mut density = vec![0.0; points];
    head.log_prob(&outputs.repeat(points), ActionBatch::Continuous(&actions), &mut density, &pool);
    let integral: f64 = density.iter().map(|&d| f64::from(d).exp()).sum::<f64>() * f64::from(step);
    assert!((integral - 1.0).abs() < 1e-5, "{integral}");
}

#[test]
fn a_gaussian_is_minimal_at_the_moments() {
    // One component, one dimension: the NLL's gradient vanishes at the weighted mean and standard deviation.
    let pool = Pool::new(1).unwrap();
    let (actions, weights) = ([0.0_f32, 1.0, 4.0], [1.0_f32, 2.0, 1.0]);
    let mean = 6.0 / 4.0;
    let deviation = ((2.25 + 2.0 * 0.25 + 6.25) / 4.0_f64).sqrt();
    let raw = ((deviation - 1e-4).exp() - 1.0).ln() as f32;
    let outputs = [0.0, mean, raw].repeat(3);
    let mut gradient = [9.0; 9];
    let head = mixture(1, 1);
    head.weighted_nll(&outputs, ActionBatch::Continuous(&actions), &weights, &mut gradient, &pool);
    for part in 0..3 {
        let sum: f32 = gradient.iter().skip(part).step_by(3).sum();
        assert!(sum.abs() < 1e-6, "{part}: {sum}");
    }
}

#[test]
fn extremes_stay_finite() {
    let pool = Pool::new(1).unwrap();
    let head = mixture(1, 2);
    let rows: [[f32; 6]; 6] = [
        [80.0, -80.0, 0.0, 0.0, 0.0, 0.0],
        [-1e4, 1e4, 5.0, -5.0, -1e4, -1e4],
        [0.0, 0.0, 1e3, -1e3, -200.0, 200.0],
        [1e30, -1e30, 0.0, 0.0, 0.0, 0.0],
        [0.0, 0.0, 0.0, 0.0, 1e6, 1e6],
        [0.0, 0.0, 0.0, 0.0, -90.0, -90.0],
    ];
    let actions = [0.0, 5.0, 1e3, -1.0, 1e5, 0.0];
    let mut gradient = [f32::NAN; 36];
    let mut values = [f32::NAN; 6];
    let batch = ActionBatch::Continuous(&actions);
    let loss = head.weighted_nll(rows.as_flattened(), batch, &[1.0; 6], &mut gradient, &pool);
    head.log_prob(rows.as_flattened(), batch, &mut values, &pool);
    assert!(
        loss.is_finite() && gradient.iter().chain(&values).all(|x| x.is_finite()),
        "{gradient:?} {values:?}"
    );
    // In the second row the component at the action has weight e^−20000, the other is 1e5 deviations away (−5e9).
    let truth = -2e4 - 1e-4_f64.ln() - 0.5 * (2.0 * std::f64::consts::PI).ln();
    assert!((f64::from(values[1]) / truth - 1.0).abs() < 1e-6, "{} {truth}", values[1]);

    let head = Head::Categorical { actions: 2 };
    let mut gradient = [f32::NAN; 4];
    let loss = head.weighted_nll(
        &[1e4, -1e4, -1e4, 1e4],
        ActionBatch::Discrete(&[0, 0]),
        &[1.0; 2],
        &mut gradient,
        &pool,
    );
    assert_eq!((loss, gradient), (1e4, [0.0, 0.0, -0.5, 0.5]));
}

#[test]
fn a_diverged_network_shows_in_the_loss() {
    let pool = Pool::new(1).unwrap();
    let mut gradient = [0.0; 3];
    let nan = [f32::NAN, 0.0, 0.0];
    let loss =
        mixture(1, 1).weighted_nll(&nan, ActionBatch::Continuous(&[0.0]), &[1.0], &mut gradient, &pool);
    assert!(loss.is_nan());
}

#[test]
fn impossible_heads_are_refused() {
    assert_eq!(mixture(0, 5).validated(), Err(HeadError::NoActions));
    assert_eq!(mixture(1, 0).validated(), Err(HeadError::Components(0)));
    assert_eq!(mixture(1, 65).validated(), Err(HeadError::Components(65)));
    assert_eq!(Head::Categorical { actions: 0 }.validated(), Err(HeadError::NoActions));
    assert!(matches!(mixture(usize::MAX, 1).validated(), Err(HeadError::TooManyActions { .. })));
    let flat = Head::Mixture { action_dim: 1, components: 1, min_scale: 0.0 };
    assert_eq!(flat.validated(), Err(HeadError::MinScale(0.0)));
    let nan = Head::Mixture { action_dim: 1, components: 1, min_scale: f32::NAN };
    assert!(matches!(nan.validated(), Err(HeadError::MinScale(_))));
    assert_eq!(mixture(1, 64).validated(), Ok(mixture(1, 64)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// The same bits for any number of threads, and for a sample alone as within a batch.
    #[test]
    fn results_depend_on_nothing_but_the_sample(batch in 1..700_usize, which in 0..5_usize, seed in any::<u64>()) {
        let case = Case::new(heads()[which], batch, seed);
        let (one, three) = (Pool::new(1).unwrap(), Pool::new(3).unwrap());
        let bits = |values: &[f32]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        let ((loss, gradient), (loss3, gradient3)) = (case.loss(&one), case.loss(&three));
        prop_assert_eq!(loss.to_bits(), loss3.to_bits());
        prop_assert_eq!(bits(&gradient), bits(&gradient3));
        let values = case.log_prob(&one);
        prop_assert_eq!(bits(&values), bits(&case.log_prob(&three)));

        let row = (seed % batch as u64) as usize;
        let (width, action_width) = (case.head.outputs(), case.head.action_width());
        let alone = Case {
            head: case.head,
            outputs: case.outputs[row * width..(row + 1) * width].to_vec(),
            continuous: case.continuous[row * action_width..(row + 1) * action_width].to_vec(),
            discrete: vec![case.discrete[row]],
            weights: vec![case.weights[row]],
        };
        prop_assert_eq!(alone.log_prob(&one)[0].to_bits(), values[row].to_bits());
    }

    /// Logits are defined up to a constant: their gradient sums to zero in each dimension.
    #[test]
    fn logit_gradients_sum_to_zero(seed in any::<u64>()) {
        let pool = Pool::new(1).unwrap();
        let case = Case::new(mixture(2, 4), 5, seed);
        let gradient = case.loss(&pool).1;
        for row in gradient.chunks(24) {
            for dim in row[..8].chunks(4) {
                prop_assert!(dim.iter().sum::<f32>().abs() < 1e-6);
            }
        }
    }
}
