//! Passes whose products are in bfloat16. What the products do is tested beside them; here, that every pass takes them
//! where it should. Without AVX512-BF16 there is nothing to test.

mod common;

use common::{dense, normal, parameters};
use coptidice_core::rng::{Rng, stream};
use coptidice_nn::{Activation, BlockSpec, Network, NetworkSpec, NnError, Penalty, Pool, Precision};
use rand::RngExt;

struct Passes {
    out: Vec<f32>,
    grads: Vec<f32>,
    d_x: Vec<f32>,
    penalty: Penalty,
    penalty_grads: Vec<f32>,
}

fn passes(
    network: &Network,
    params: &[f32],
    x: &[f32],
    d_out: &[f32],
    bound: f32,
    precision: Precision,
) -> Passes {
    let batch = x.len() / network.spec().input;
    let pool = Pool::new(2).expect("two threads start");
    let mut cache = network.cache_in(batch, precision).expect("the processor has the precision");
    let (mut grads, mut d_x) = (vec![0.0; params.len()], vec![0.0; x.len()]);
    let out = network.forward(params, x, batch, &mut cache, &pool).to_vec();
    network.backward(params, x, d_out, batch, &mut cache, &mut grads, Some(&mut d_x), &pool);
    let mut penalty_grads = vec![0.0; params.len()];
    let penalty =
        network.gradient_penalty(params, x, batch, 1.0, bound, &mut cache, &mut penalty_grads, &pool);
    Passes { out, grads, d_x, penalty, penalty_grads }
}

/// Small integers are exact in bfloat16 (up to 256), and so are their products and sums in single precision: both
/// precisions must give the same, to the bit.
#[test]
fn what_bf16_holds_exactly_stays_exact() {
    if !Precision::Bf16.is_available() {
        return;
    }
    let blocks = vec![
        dense(40, false, Activation::Relu),
        dense(70, false, Activation::Relu),
        dense(33, false, Activation::Identity),
    ];
    let network = Network::new(NetworkSpec { input: 3, blocks, output: 2 }).unwrap();
    let mut rng = stream(0, "integers", 0);
    let mut integers = |len: usize, share: f32| -> Vec<f32> {
        let draw = |rng: &mut Rng| if rng.random::<f32>() < share { 1.0 } else { 0.0 };
        (0..len).map(|_| draw(&mut rng) - draw(&mut rng)).collect()
    };
    // Few weights are not zero, so that what passes through stays small.
    let params = integers(network.parameter_count(), 0.06);
    let (x, d_out) = (integers(150 * 3, 0.7), integers(150 * 2, 0.7));
    let single = passes(&network, &params, &x, &d_out, f32::INFINITY, Precision::F32);
    let half = passes(&network, &params, &x, &d_out, f32::INFINITY, Precision::Bf16);
    assert!(single.out.iter().all(|o| o.abs() <= 256.0) && single.out.iter().any(|&o| o != 0.0));
    assert!(single.grads.iter().any(|g| g.abs() > 10.0), "something passes through");
    assert_eq!(single.out, half.out);
    assert_eq!(single.grads, half.grads);
    assert_eq!(single.d_x, half.d_x);
    assert_eq!(single.penalty.max_norm, half.penalty.max_norm);
}

/// Each product inside rounds two operands by up to 2^-8 of them. Backwards through five products and the gradient's own,
/// that is at most 12/256 of the whole if all were to point the same way; the tangents take as many again, and layer
/// normalisation and the derivatives of the activations may amplify what comes in. A tenth (a fifth for the penalty) is far
/// from what a missing or a wrong term would do, and errors that do not conspire stay far below.
#[test]
fn derivatives_are_those_of_single_precision_within_rounding() {
    if !Precision::Bf16.is_available() {
        return;
    }
    let blocks = vec![
        dense(130, true, Activation::Tanh),
        dense(131, false, Activation::Elu),
        BlockSpec::Residual { width: 133 },
    ];
    let network = Network::new(NetworkSpec { input: 5, blocks, output: 1 }).unwrap();
    let params = parameters(&network, 5);
    let mut rng = stream(5, "bf16", 0);
    let batch = 150;
    let (x, d_out) = (normal(&mut rng, batch * 5, 1.0), normal(&mut rng, batch, 1.0));
    let single = passes(&network, &params, &x, &d_out, 1.0, Precision::F32);
    let half = passes(&network, &params, &x, &d_out, 1.0, Precision::Bf16);
    assert!(single.penalty.exceeding > 100, "{:?}", single.penalty);
    for (what, ours, exact, allowed) in [
        ("out", &half.out, &single.out, 0.1),
        ("grads", &half.grads, &single.grads, 0.1),
        ("d_x", &half.d_x, &single.d_x, 0.1),
        ("penalty grads", &half.penalty_grads, &single.penalty_grads, 0.2),
    ] {
        let error: f32 = ours.iter().zip(exact).map(|(o, e)| (o - e) * (o - e)).sum::<f32>().sqrt();
        let size = exact.iter().map(|e| e * e).sum::<f32>().sqrt();
        assert!(error > 0.0 && error < allowed * size, "{what}: {error} of {size}");
    }
}

#[test]
fn a_processor_without_bf16_is_told_from_one_with_it() {
    let network = Network::new(NetworkSpec { input: 1, blocks: Vec::new(), output: 1 }).unwrap();
    match network.cache_in(1, Precision::Bf16) {
        Ok(_) => assert!(Precision::Bf16.is_available()),
        Err(error) => assert_eq!((error, Precision::Bf16.is_available()), (NnError::NoBf16, false)),
    }
    assert!(Precision::F32.is_available() && network.cache_in(1, Precision::F32).is_ok());
}
