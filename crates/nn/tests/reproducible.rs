//! The same bits for any number of threads, and whatever was in the buffers before.

mod common;

use common::{dense, normal, parameters};
use coptidice_core::rng::stream;
use coptidice_nn::{Activation, Adam, BlockSpec, Network, NetworkSpec, Pool, Precision, exponential_average};

fn network() -> Network {
    let blocks = vec![
        dense(300, true, Activation::Tanh),
        dense(290, false, Activation::Elu),
        BlockSpec::Residual { width: 310 },
    ];
    Network::new(NetworkSpec { input: 7, blocks, output: 3 }).expect("widths are positive")
}

/// What this processor has.
fn precisions() -> impl Iterator<Item = Precision> {
    [Precision::F32, Precision::Bf16].into_iter().filter(|precision| precision.is_available())
}

/// Three training steps with everything in them; returns all that came out.
fn train(precision: Precision, threads: usize, max_batch: usize, batches: &[usize]) -> Vec<u32> {
    let network = network();
    let pool = Pool::new(threads).expect("a few threads start");
    let mut params = parameters(&network, 2);
    let mut averaged = vec![0.0; params.len()];
    let mut adam = Adam::new(params.len(), 1e-3);
    let mut cache = network.cache_in(max_batch, precision).expect("available");
    let mut results: Vec<f32> = Vec::new();
    for (step, &batch) in batches.iter().enumerate() {
        let mut rng = stream(step as u64, "batch", 0);
        let x = normal(&mut rng, batch * 7, 1.0);
        let d_out = normal(&mut rng, batch * 3, 0.01);
        let (mut grads, mut d_x) = (vec![0.0; params.len()], vec![0.0; x.len()]);
        results.extend(network.forward(&params, &x, batch, &mut cache, &pool));
        network.backward(&params, &x, &d_out, batch, &mut cache, &mut grads, Some(&mut d_x), &pool);
        let penalty = network.gradient_penalty(&params, &x, batch, 0.1, 7.0, &mut cache, &mut grads, &pool);
        assert!(batch < 20 || (penalty.exceeding > 0 && penalty.exceeding < batch), "{penalty:?}");
        results.extend([penalty.value as f32, penalty.max_norm, penalty.exceeding as f32]);
        adam.update(&mut params, &grads, &pool);
        exponential_average(&mut averaged, &params, 0.1, &pool);
        results.extend(&grads);
        results.extend(&d_x);
    }
    results.extend(&params);
    results.extend(&averaged);
    results.iter().map(|r| r.to_bits()).collect()
}

#[test]
fn threads_do_not_change_a_bit() {
    let batches = [700, 40, 513];
    for precision in precisions() {
        let one = train(precision, 1, 700, &batches);
        for threads in [2, 3, 5] {
            assert!(
                one == train(precision, threads, 700, &batches),
                "{precision:?}: {threads} threads differ"
            );
        }
    }
}

#[test]
fn the_size_of_the_cache_does_not_change_a_bit() {
    let batches = [300, 200, 300];
    for precision in precisions() {
        assert!(train(precision, 2, 300, &batches) == train(precision, 2, 2000, &batches));
    }
}

/// A step down the gradient in one go, against the gradient and then the step; with buffers of its own, and with those of
/// another network too, each larger than the other somewhere, which that one has used before.
#[test]
fn steps_in_one_go_and_shared_buffers_do_not_change_a_bit() {
    let blocks = vec![dense(40, false, Activation::Relu), BlockSpec::Residual { width: 500 }];
    let other = Network::new(NetworkSpec { input: 9, blocks, output: 5 }).expect("widths are positive");
    let network = network();
    let start = parameters(&network, 2);
    for precision in precisions() {
        let cache = || network.cache_in(700, precision).expect("available");
        for (threads, batch) in [(1, 90), (2, 700)] {
            let pool = Pool::new(threads).expect("a few threads start");
            let mut rng = stream(1, "steps", 0);
            let (x, d_out) = (normal(&mut rng, batch * 7, 1.0), normal(&mut rng, batch * 3, 0.01));
            let (mut params, mut grads) = (start.clone(), vec![0.0; start.len()]);
            let (mut adam, mut apart) = (Adam::new(params.len(), 1e-3), cache());
            for _ in 0..2 {
                network.forward(&params, &x, batch, &mut apart, &pool);
                network.backward_overwrite(&params, &x, &d_out, batch, &mut apart, &mut grads, None, &pool);
                adam.update(&mut params, &grads, &pool);
            }
            let mut shared = Network::cache_of(&[&other, &network], 700, precision).expect("available");
            let (theirs, their_x) = (parameters(&other, 3), normal(&mut rng, batch * 9, 1.0));
            let mut their_grads = vec![0.0; theirs.len()];
            for (cache, is_shared) in [(&mut cache(), false), (&mut shared, true)] {
                let (mut again, mut adam_again) = (start.clone(), Adam::new(start.len(), 1e-3));
                for _ in 0..2 {
                    if is_shared {
                        let d_out = &their_x[..batch * 5];
                        other.forward(&theirs, &their_x, batch, cache, &pool);
                        other.backward(&theirs, &their_x, d_out, batch, cache, &mut their_grads, None, &pool);
                        other.gradient_penalty(
                            &theirs,
                            &their_x,
                            batch,
                            0.1,
                            0.0,
                            cache,
                            &mut their_grads,
                            &pool,
                        );
                    }
                    network.forward(&again, &x, batch, cache, &pool);
                    network.descend(&mut again, &x, &d_out, batch, cache, &mut adam_again, &pool);
                }
                assert!(network.last_gradient(cache) == grads);
                assert!(again == params && adam_again == adam, "{precision:?}, {threads} threads");
            }
        }
    }
}

#[test]
fn wrong_lengths_are_refused() {
    let network = network();
    let pool = Pool::new(1).unwrap();
    let params = parameters(&network, 1);
    let refused = |work: &dyn Fn()| std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_err();
    assert!(!refused(&|| drop(
        network.forward(&params, &[0.0; 14], 2, &mut network.cache(2), &pool).to_vec()
    )));
    assert!(refused(&|| drop(
        network.forward(&params, &[0.0; 13], 2, &mut network.cache(2), &pool).to_vec()
    )));
    assert!(refused(&|| drop(
        network.forward(&params, &[0.0; 21], 3, &mut network.cache(2), &pool).to_vec()
    )));
    assert!(refused(&|| drop(
        network.forward(&params[1..], &[0.0; 14], 2, &mut network.cache(2), &pool).to_vec()
    )));
}

/// `init`: deviation, truncation, and vectors.
#[test]
fn initial_parameters_are_truncated_normal() {
    let network = network();
    let params = network.init(&mut stream(3, "init", 0));
    assert_eq!(params, network.init(&mut stream(3, "init", 0)));
    for slice in network.layout() {
        let values = &params[slice.offset..slice.offset + slice.len];
        match slice.shape[..] {
            [_, fan_in] => {
                let scale = 1.0 / (fan_in as f64).sqrt();
                let mean = values.iter().map(|&v| f64::from(v)).sum::<f64>() / slice.len as f64;
                let square = values.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>() / slice.len as f64;
                // The variance of a standard normal truncated at two is 0.774; four standard errors of both estimates.
                let allowed = 4.0 / (slice.len as f64).sqrt();
                assert!(mean.abs() < allowed * scale, "{}", slice.name);
                assert!((square / (scale * scale) - 0.774).abs() < allowed, "{}", slice.name);
                assert!(values.iter().all(|&v| f64::from(v.abs()) <= 2.0 * scale * (1.0 + 1e-6)));
            }
            _ => {
                let expected = if slice.name.ends_with("norm.weight") { 1.0 } else { 0.0 };
                assert!(values.iter().all(|&v| v == expected), "{}", slice.name);
            }
        }
    }
}

/// The layout covers the vector without gaps, and its length is the one announced.
#[test]
fn layout_covers_the_parameters() {
    for network in common::zoo() {
        let mut end = 0;
        for slice in network.layout() {
            assert_eq!((slice.offset, slice.len), (end, slice.shape.iter().product()));
            end += slice.len;
        }
        assert_eq!((end, end), (network.parameter_count(), network.spec().parameter_count()));
        let text = serde_json::to_string(network.spec()).unwrap();
        assert_eq!(&serde_json::from_str::<NetworkSpec>(&text).unwrap(), network.spec());
    }
}

#[test]
fn impossible_networks_and_pools_are_errors() {
    use coptidice_nn::NnError;
    let spec = |input, width, output| NetworkSpec {
        input,
        blocks: vec![dense(width, false, Activation::Relu), BlockSpec::Residual { width }],
        output,
    };
    for (spec, place) in [(spec(0, 1, 1), "input"), (spec(1, 0, 1), "block 0"), (spec(1, 1, 0), "output")] {
        assert_eq!(Network::new(spec).unwrap_err(), NnError::ZeroWidth { place: place.into() });
    }
    for width in [1 << 20, usize::MAX] {
        let error = Network::new(spec(1 << 12, width, 1)).unwrap_err();
        assert!(matches!(error, NnError::TooLarge { .. }), "{error}");
    }
    assert_eq!(Pool::new(0).unwrap_err(), NnError::NoThreads);
}

/// Adam against the published recursion in `f64`.
#[test]
fn adam_follows_the_recursion() {
    let pool = Pool::new(1).unwrap();
    let mut params = [0.5_f32, -1.0, 2.0];
    let mut adam = Adam::new(3, 0.01);
    let (mut p, mut m, mut v) = ([0.5_f64, -1.0, 2.0], [0.0; 3], [0.0; 3]);
    for step in 1..=200 {
        let grads: [f32; 3] =
            std::array::from_fn(|i| ((step * (i + 1)) as f32 * 0.37).sin() * 10.0_f32.powi(1 - 4 * i as i32));
        adam.update(&mut params, &grads, &pool);
        for i in 0..3 {
            let g = f64::from(grads[i]);
            m[i] = 0.9 * m[i] + 0.1 * g;
            v[i] = 0.999 * v[i] + 0.001 * g * g;
            let root = (v[i] / (1.0 - 0.999_f64.powi(step as i32))).sqrt();
            p[i] -= 0.01 * m[i] / (1.0 - 0.9_f64.powi(step as i32)) / (root + 1e-8);
            // Each step moves by at most about 0.01 with a relative error of a few 6e-8, and rounds a value below 4.
            assert!((f64::from(params[i]) - p[i]).abs() < 5e-7 * step as f64, "{i} at {step}");
        }
    }
    assert_eq!(adam.step, 200);
    let text = serde_json::to_string(&adam).unwrap();
    assert_eq!(serde_json::from_str::<Adam>(&text).unwrap(), adam);
}

/// Rows in passes of any size, with weights laid out before, against one pass over all of them: 1 takes a tile of its own,
/// 6 and 12 fill tiles on processors with wide registers, the others leave rows over, and 300 are more than one chunk of
/// a batch. The residual block has more terms than one panel.
#[test]
fn a_row_does_not_depend_on_the_rows_beside_it() {
    let blocks = vec![
        dense(300, true, Activation::Tanh),
        dense(70, false, Activation::Elu),
        BlockSpec::Residual { width: 1100 },
    ];
    let network = Network::new(NetworkSpec { input: 7, blocks, output: 3 }).expect("widths are positive");
    let params = parameters(&network, 4);
    let (batch, pool) = (300, Pool::new(2).expect("two threads start"));
    let x = normal(&mut stream(0, "rows", 0), batch * 7, 1.0);
    let mut cache = network.cache(batch);
    let all = network.forward(&params, &x, batch, &mut cache, &pool).to_vec();
    let (weights, mut room) = (network.forward_weights(&params), network.forward_room(1));
    for rows in [1, 2, 5, 6, 7, 12, 64, 131, 300] {
        let mut out = vec![f32::NAN; batch * 3];
        for (x, out) in x.chunks(rows * 7).zip(out.chunks_mut(rows * 3)) {
            network.forward_with(&params, &weights, x, out, &mut room);
        }
        assert!(out.iter().map(|o| o.to_bits()).eq(all.iter().map(|o| o.to_bits())), "{rows} rows at a time");
    }
    network.forward_with(&params, &weights, &[], &mut [], &mut room);
}
