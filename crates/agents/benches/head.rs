//! Time of the policy's loss and its gradient from the network's outputs. It has to vanish beside the network's own
//! passes (1.5 ms for the fast preset's policy at 512 samples on one core).

use coptidice_agents::policy::{ActionBatch, Head};
use coptidice_nn::Pool;
use criterion::{Criterion, criterion_group, criterion_main};
use std::hint::black_box;

fn loss(criterion: &mut Criterion) {
    let pool = Pool::new(1).expect("one thread is the caller's");
    let mixture = |action_dim| Head::Mixture { action_dim, components: 5, min_scale: 1e-4 };
    let cases = [
        ("512 samples, 6 actions x 5 components", mixture(6), 512),
        ("1024 samples, 21 actions x 5 components", mixture(21), 1024),
        ("512 samples, 8 discrete actions", Head::Categorical { actions: 8 }, 512),
    ];
    for (name, head, batch) in cases {
        let outputs: Vec<f32> = (0..batch * head.outputs()).map(|i| (i as f32 * 0.37).sin()).collect();
        let continuous: Vec<f32> =
            (0..batch * head.action_width()).map(|i| (i as f32 * 0.73).sin()).collect();
        let discrete: Vec<u32> = (0..batch).map(|i| i as u32 % 8).collect();
        let weights = vec![1.0; batch];
        let mut d_out = vec![0.0; outputs.len()];
        let actions = if head.is_discrete() {
            ActionBatch::Discrete(&discrete)
        } else {
            ActionBatch::Continuous(&continuous)
        };
        criterion.bench_function(&format!("loss, {name}"), |bencher| {
            bencher.iter(|| {
                black_box(head.weighted_nll(black_box(&outputs), actions, &weights, &mut d_out, &pool))
            });
        });
    }
}

criterion_group!(benches, loss);
criterion_main!(benches);
