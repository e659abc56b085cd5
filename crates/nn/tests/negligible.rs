//! Numbers too small to matter count as zero, so that none is left that processors are slow to work with.

mod common;

use common::{dense, normal, parameters};
use coptidice_core::rng::stream;
use coptidice_nn::{Activation, Adam, BlockSpec, Network, NetworkSpec, Pool};

const BATCH: usize = 40;

fn gradients(scale: impl Fn(usize) -> f32) -> Vec<f32> {
    let blocks = vec![
        dense(30, true, Activation::Tanh),
        dense(20, false, Activation::Elu),
        BlockSpec::Residual { width: 25 },
    ];
    let network = Network::new(NetworkSpec { input: 7, blocks, output: 3 }).expect("widths are positive");
    let params = parameters(&network, 2);
    let pool = Pool::new(1).expect("one thread starts");
    let mut cache = network.cache(BATCH);
    let x = normal(&mut stream(0, "x", 0), BATCH * 7, 1.0);
    let mut d_out = normal(&mut stream(0, "d", 0), BATCH * 3, 1.0);
    for (row, d) in d_out.chunks_mut(3).enumerate() {
        d.iter_mut().for_each(|d| *d *= scale(row));
    }
    let (mut grads, mut d_x) = (vec![0.0; params.len()], vec![0.0; x.len()]);
    network.forward(&params, &x, BATCH, &mut cache, &pool);
    network.backward(&params, &x, &d_out, BATCH, &mut cache, &mut grads, Some(&mut d_x), &pool);
    grads.append(&mut d_x);
    grads
}

#[test]
fn samples_of_negligible_weight_count_as_nothing() {
    let among_others = gradients(|row| if row % 2 == 0 { 1.0 } else { 1e-36 });
    assert!(among_others == gradients(|row| if row % 2 == 0 { 1.0 } else { 0.0 }));
    assert!(gradients(|_| 1e-36).iter().all(|&g| g == 0.0));
}

#[test]
fn weights_of_all_magnitudes_leave_no_subnormal_number() {
    let small = gradients(|row| 10.0_f32.powi(-(row as i32)));
    assert!(!small.iter().any(|g| g.is_subnormal()));
    let smaller = gradients(|row| 1e-20 * 10.0_f32.powi(-(row as i32)));
    assert!(!smaller.iter().any(|g| g.is_subnormal()));
    // What is not negligible is kept in full.
    let first = gradients(|row| if row < 9 { 1e-20 * 10.0_f32.powi(-(row as i32)) } else { 0.0 });
    let largest = first.iter().fold(0.0_f32, |top, g| top.max(g.abs()));
    assert!(first.iter().zip(&smaller).all(|(a, b)| (a - b).abs() <= 1e-6 * largest));
}

#[test]
fn moments_without_gradients_reach_zero() {
    let pool = Pool::new(1).expect("one thread starts");
    let mut adam = Adam::new(2, 1e-3);
    let mut params = [0.5, 0.5];
    adam.update(&mut params, &[1.0, 1e-22], &pool);
    for _ in 0..70_000 {
        assert!(!adam.first.iter().chain(&adam.second).any(|moment| moment.is_subnormal()));
        adam.update(&mut params, &[0.0; 2], &pool);
    }
    assert_eq!((&adam.first[..], &adam.second[..]), (&[0.0; 2][..], &[0.0; 2][..]));
}
