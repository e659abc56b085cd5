//! Every pass against the independent `f64` evaluation in `common`.

mod common;

use common::{Dual, assert_close, evaluate, input_gradient, lift, lift_along, normal, parameters, zoo};
use coptidice_core::rng::stream;
use coptidice_nn::{Activation, BlockSpec, Network, NetworkSpec, Pool};

/// `f32` has a relative precision of 6e-8. The longest chain here is about ten operations per layer and six layers,
/// each able to amplify by a few units (layer normalisation divides by a deviation below one), and a gradient sums up to a
/// few hundred products: 2e-5 of the largest entry is a wide bound for rounding and far below the effect of any
/// missing or wrong term.
const TOLERANCE: f64 = 2e-5;

fn basis(len: usize, index: usize) -> Vec<f64> {
    let mut direction = vec![0.0; len];
    direction[index] = 1.0;
    direction
}

/// The reference is itself checked: its derivatives against central differences of its values.
#[test]
fn reference_derivatives_agree_with_finite_differences() {
    for network in zoo() {
        let params = parameters(&network, 1);
        let x = normal(&mut stream(1, "x", 0), network.spec().input, 1.0);
        let step = 1e-5;
        for index in (0..params.len()).step_by(3) {
            let value_at = |offset: f64| {
                let mut params = lift(&params);
                params[index].v += offset;
                let sum: f64 = evaluate(&network, &params, &lift(&x)).iter().map(|o| o.v).sum();
                let gradient: Vec<f64> = input_gradient(&network, &params, &x).iter().map(|g| g.0).collect();
                (sum, gradient)
            };
            let (low, high) = (value_at(-step), value_at(step));
            let params = lift_along(&params, &basis(params.len(), index));
            let out = evaluate(&network, &params, &lift(&x));
            let exact: f64 = out.iter().map(|o| o.a).sum();
            let difference = (high.0 - low.0) / (2.0 * step);
            // Truncation is of order step^2 = 1e-10, rounding 1e-16 / step = 1e-11, both times derivatives of order 10.
            assert!((exact - difference).abs() < 1e-7, "{exact} {difference}");
            for (i, (_, mixed)) in input_gradient(&network, &params, &x).iter().enumerate() {
                let difference = (high.1[i] - low.1[i]) / (2.0 * step);
                assert!((mixed - difference).abs() < 1e-6, "{mixed} {difference}");
            }
        }
    }
}

#[test]
fn forward_and_backward_agree_with_the_reference() {
    let pool = Pool::new(1).unwrap();
    for (seed, network) in zoo().into_iter().enumerate() {
        let (batch, input, output) = (7, network.spec().input, network.spec().output);
        let params = parameters(&network, seed as u64);
        let mut rng = stream(seed as u64, "batch", 0);
        let x = normal(&mut rng, batch * input, 1.0);
        let d_out = normal(&mut rng, batch * output, 1.0);
        let mut cache = network.cache(batch + 2);

        let out = network.forward(&params, &x, batch, &mut cache, &pool).to_vec();
        let loss = |params: &[Dual], x: &[Dual]| {
            let out: Vec<Dual> = x.chunks(input).flat_map(|x| evaluate(&network, params, x)).collect();
            let weighted = out.iter().zip(&d_out).map(|(&o, &d)| o * Dual::from(f64::from(d)));
            (weighted.fold(Dual::default(), |sum, o| sum + o), out)
        };
        let expected: Vec<f64> = loss(&lift(&params), &lift(&x)).1.iter().map(|o| o.v).collect();
        assert_close("out", &out, &expected, TOLERANCE);

        // Gradients are added: start from something.
        let start = normal(&mut rng, params.len(), 0.1);
        let mut grads = start.clone();
        let mut d_x = vec![f32::NAN; x.len()];
        network.backward(&params, &x, &d_out, batch, &mut cache, &mut grads, Some(&mut d_x), &pool);
        let expected: Vec<f64> = (0..params.len())
            .map(|index| {
                let params = lift_along(&params, &basis(params.len(), index));
                f64::from(start[index]) + loss(&params, &lift(&x)).0.a
            })
            .collect();
        assert_close("grads", &grads, &expected, TOLERANCE);
        let expected: Vec<f64> = (0..x.len())
            .map(|index| loss(&lift(&params), &lift_along(&x, &basis(x.len(), index))).0.a)
            .collect();
        assert_close("d_x", &d_x, &expected, TOLERANCE);

        let mut grads_alone = start.clone();
        network.backward(&params, &x, &d_out, batch, &mut cache, &mut grads_alone, None, &pool);
        assert_eq!(grads, grads_alone);

        let (mut added, mut replaced) = (vec![0.0; params.len()], vec![f32::NAN; params.len()]);
        network.backward(&params, &x, &d_out, batch, &mut cache, &mut added, None, &pool);
        network.backward_overwrite(&params, &x, &d_out, batch, &mut cache, &mut replaced, None, &pool);
        assert_eq!(added, replaced);
    }
}

#[test]
fn penalty_and_its_gradient_agree_with_the_reference() {
    let pool = Pool::new(1).unwrap();
    for (seed, network) in zoo().into_iter().enumerate() {
        let (batch, input) = (9, network.spec().input);
        let params = parameters(&network, seed as u64);
        let x = normal(&mut stream(seed as u64, "penalty batch", 0), batch * input, 1.5);
        let mut norms: Vec<f64> = x
            .chunks(input)
            .map(|x| {
                input_gradient(&network, &lift(&params), x).iter().map(|g| g.0 * g.0).sum::<f64>().sqrt()
            })
            .collect();
        norms.sort_by(f64::total_cmp);
        let largest = norms[batch - 1];
        // All over the bound, some over it, none over it. A network without curvature has one norm for all samples.
        for (bound, expected) in [(0.0, batch), (0.5 * (norms[3] + norms[4]), 5), (largest * 1.01, 0)] {
            let exceeding = norms.iter().filter(|&&norm| norm > bound + 1e-5 * largest).count();
            if norms[3] * 1.0001 < norms[4] {
                assert_eq!(exceeding, expected);
            } else if expected == 5 {
                continue;
            }
            let coefficient = 0.7;
            let start = normal(&mut stream(3, "start", 0), params.len(), 0.01);
            let mut grads = start.clone();
            let mut cache = network.cache(batch);
            let got = network.gradient_penalty(
                &params,
                &x,
                batch,
                coefficient,
                bound as f32,
                &mut cache,
                &mut grads,
                &pool,
            );
            assert_eq!(got.exceeding, exceeding);
            assert!((f64::from(got.max_norm) - largest).abs() <= TOLERANCE * largest);
            let (mut value, coefficient) = (0.0, f64::from(coefficient));
            let bound = f64::from(bound as f32);
            let expected: Vec<f64> = (0..params.len())
                .map(|index| {
                    let params = lift_along(&params, &basis(params.len(), index));
                    let (v, slope) = common::penalty(&network, &params, &x, batch, coefficient, bound);
                    value = v;
                    f64::from(start[index]) + slope
                })
                .collect();
            assert!((got.value - value).abs() <= 4.0 * TOLERANCE * (value + coefficient * bound * largest));
            assert_close("penalty grads", &grads, &expected, 2.0 * TOLERANCE);
            if exceeding == 0 {
                assert_eq!((got.value, &grads), (0.0, &start));
            }
        }
    }
}

#[test]
fn a_norm_that_is_no_number_is_not_passed_over() {
    let pool = Pool::new(1).unwrap();
    for network in zoo() {
        let (batch, input) = (300, network.spec().input);
        let params = parameters(&network, 1);
        let mut x = normal(&mut stream(1, "not a number", 0), batch * input, 1.0);
        x[7 * input] = f32::NAN;
        // Where the input gradient is the same everywhere, no sample's is NaN.
        let mut d_x = vec![0.0; x.len()];
        let mut cache = network.cache(batch);
        network.forward(&params, &x, batch, &mut cache, &pool);
        let ones = vec![1.0; batch * network.spec().output];
        network.input_gradient(&params, &x, &ones, batch, &mut cache, &mut d_x, &pool);
        let expected = d_x.iter().any(|d| d.is_nan());
        let mut grads = vec![0.0; params.len()];
        let penalty = network.gradient_penalty(&params, &x, batch, 1.0, 1e9, &mut cache, &mut grads, &pool);
        assert_eq!(penalty.exceeding, usize::from(expected));
        assert_eq!((penalty.value.is_nan(), penalty.max_norm.is_nan()), (expected, expected));
        assert_eq!(grads.iter().any(|g| g.is_nan()), expected);
    }
}

/// A batch that is cut into pieces, and layers wide enough for cut weights, along random directions.
#[test]
fn cut_batches_agree_with_the_reference() {
    let spec = NetworkSpec {
        input: 5,
        blocks: vec![
            common::dense(130, true, Activation::Tanh),
            common::dense(131, false, Activation::Elu),
            BlockSpec::Residual { width: 133 },
        ],
        output: 1,
    };
    let network = Network::new(spec).unwrap();
    let params = parameters(&network, 5);
    let pool = Pool::new(2).unwrap();
    let mut rng = stream(5, "cut", 0);
    let batch = 150;
    let x = normal(&mut rng, batch * 5, 1.0);
    let d_out = normal(&mut rng, batch, 1.0);
    let mut cache = network.cache(batch);
    let mut grads = vec![0.0; params.len()];
    network.forward(&params, &x, batch, &mut cache, &pool);
    network.backward(&params, &x, &d_out, batch, &mut cache, &mut grads, None, &pool);
    let mut penalty_grads = vec![0.0; params.len()];
    let bound = 4.0;
    let penalty =
        network.gradient_penalty(&params, &x, batch, 1.0, bound, &mut cache, &mut penalty_grads, &pool);
    assert!(penalty.exceeding > 10 && penalty.exceeding < batch - 10, "{penalty:?}");
    let direction: Vec<f64> = normal(&mut rng, params.len(), 1.0).into_iter().map(f64::from).collect();
    let along = |grads: &[f32]| grads.iter().zip(&direction).map(|(&g, d)| f64::from(g) * d).sum::<f64>();
    let size = |grads: &[f32]| grads.iter().map(|&g| f64::from(g).powi(2)).sum::<f64>().sqrt();
    let lifted = lift_along(&params, &direction);
    let expected: f64 = x
        .chunks(5)
        .zip(&d_out)
        .map(|(x, &d)| f64::from(d) * evaluate(&network, &lifted, &lift(x))[0].a)
        .sum();
    // The derivative along a random direction of unit entries is about the gradient's norm.
    assert!((along(&grads) - expected).abs() < TOLERANCE * size(&grads), "{} {expected}", along(&grads));
    let (value, expected) = common::penalty(&network, &lifted, &x, batch, 1.0, f64::from(bound));
    assert!((penalty.value - value).abs() < TOLERANCE * value, "{} {value}", penalty.value);
    assert!((along(&penalty_grads) - expected).abs() < TOLERANCE * size(&penalty_grads));
}
