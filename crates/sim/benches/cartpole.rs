//! Steps per second of the native environments, and of whole evaluations.

use coptidice_core::rng::{Rng, stream};
use coptidice_sim::{EvaluateOptions, evaluate, make};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

fn steps(c: &mut Criterion) {
    let mut group = c.benchmark_group("steps");
    for name in ["rwrl/cartpole-swingup", "nav/hazard"] {
        let mut env = make(name).expect("the name is registered");
        let horizon = env.spec().horizon;
        let width = env.spec().action.width();
        group.throughput(Throughput::Elements(horizon as u64));
        group.bench_function(name, |b| {
            b.iter(|| {
                env.reset(&mut stream(0, "bench", 0));
                let action = [0.5, -0.25];
                (0..horizon).map(|_| env.step(&action[..width]).reward).sum::<f64>()
            });
        });
    }
    group.finish();
}

fn evaluation(c: &mut Criterion) {
    let mut group = c.benchmark_group("evaluation");
    for name in ["rwrl/cartpole-swingup", "nav/hazard"] {
        let env = make(name).expect("the name is registered");
        let actor = |observation: &[f32], _: &mut Rng, action: &mut [f32]| action.fill(-observation[0]);
        let episodes = 32;
        group.throughput(Throughput::Elements((episodes * env.spec().horizon) as u64));
        group.bench_function(name, |b| {
            b.iter(|| evaluate(env.as_ref(), &actor, &EvaluateOptions::new(episodes, 0)));
        });
    }
    group.finish();
}

criterion_group!(benches, steps, evaluation);
criterion_main!(benches);
