//! Time of one action, of both presets' networks. A control loop acts one observation at a time: the fast preset's
//! policy is held to 50 microseconds, without allocation.

use coptidice_agents::policy::{Acting, Head, Normalizer, Policy, PolicyAbout, PolicyParts};
use coptidice_core::rng::stream;
use coptidice_nn::{Activation, BlockSpec, Network, NetworkSpec};
use criterion::{Criterion, criterion_group, criterion_main};
use std::hint::black_box;

fn dense(width: usize, layer_norm: bool, activation: Activation) -> BlockSpec {
    BlockSpec::Dense { width, layer_norm, activation }
}

fn policy(observation: usize, action_dim: usize, blocks: Vec<BlockSpec>) -> Policy {
    let head = Head::Mixture { action_dim, components: 5, min_scale: 1e-4 };
    let network = Network::new(NetworkSpec { input: observation, blocks, output: head.outputs() })
        .expect("the widths are positive");
    Policy::new(PolicyParts {
        params: network.init(&mut stream(0, "bench", 0)),
        network,
        head,
        normalizer: Normalizer::identity(observation),
        acting: Acting::Mean,
        action_low: vec![-1.0; action_dim],
        action_high: vec![1.0; action_dim],
        about: PolicyAbout::new("bench", 0, 0, "none"),
    })
    .expect("the parts fit")
}

fn act(criterion: &mut Criterion) {
    let fast = || vec![dense(128, true, Activation::Tanh), dense(128, false, Activation::Relu)];
    let mut paper = vec![dense(300, true, Activation::Tanh), dense(1024, false, Activation::Identity)];
    paper.extend(vec![BlockSpec::Residual { width: 1024 }; 4]);
    let cases = [
        ("fast, 14 observations, 1 action", policy(14, 1, fast())),
        ("fast, 67 observations, 21 actions", policy(67, 21, fast())),
        ("paper, 67 observations, 21 actions", policy(67, 21, paper)),
    ];
    for (name, policy) in cases {
        for acting in [Acting::Mean, Acting::Sample] {
            let mut actor = policy.actor_with(acting);
            let observation = vec![0.3; policy.observation_width()];
            let mut action = vec![0.0; policy.action_width()];
            let mut rng = stream(0, "bench", 1);
            criterion.bench_function(&format!("{name}, {acting}"), |bencher| {
                bencher.iter(|| {
                    actor.act(black_box(&observation), &mut rng, &mut action).expect("a finite observation");
                    black_box(&action);
                });
            });
        }
    }
}

criterion_group!(benches, act);
criterion_main!(benches);
