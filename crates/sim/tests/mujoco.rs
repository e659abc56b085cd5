//! The tasks on MuJoCo against recorded traces of the real suite, and their rollouts.
#![cfg(feature = "mujoco")]
#![expect(clippy::unwrap_used, reason = "a test that cannot set up its input has to stop")]

use std::path::PathBuf;

use coptidice_core::rng::Rng;
use coptidice_sim::{EnvOptions, Episodes, Trace, collect, make, make_with, replay};
use rand::RngExt;

fn trace(name: &str) -> Trace {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/rwrl").join(name);
    Trace::read_npz(&path).unwrap()
}

const RECORDED: [(&str, &str, usize); 5] = [
    ("cartpole.npz", "rwrl/cartpole-swingup-mujoco", 400),
    ("cartpole-stops.npz", "rwrl/cartpole-swingup-mujoco", 600),
    ("walker.npz", "rwrl/walker-walk", 80),
    ("quadruped.npz", "rwrl/quadruped-walk", 80),
    ("humanoid.npz", "rwrl/humanoid-walk", 80),
];

/// The same library does the same arithmetic, so that what differs is in observations and rewards: sums of a few terms
/// in another order, 1e-16 of values up to some hundreds. 1e-9 is what users of the traces are promised.
#[test]
fn agree_with_the_real_suite() {
    for (file, name, steps) in RECORDED {
        let result = replay(&trace(file), make(name).unwrap().as_ref()).unwrap();
        assert_eq!((result.steps, result.cost_mismatches), (steps, 0), "{name}");
        assert!(result.max_abs_observation < 1e-9 && result.max_abs_reward < 1e-9, "{name}: {result:?}");
    }
}

/// What the agreement rests on can be told apart by it: a trace whose first velocity is another by 1e-6 does not agree,
/// and a constraint other than the paper's does not give the recorded costs.
#[test]
fn a_small_difference_is_noticed() {
    for (file, name, _) in RECORDED {
        let mut changed = trace(file);
        changed.start.qvel[0] += 1e-6;
        let result = replay(&changed, make(name).unwrap().as_ref()).unwrap();
        assert!(result.max_abs_observation > 1e-8, "{name}: {result:?}");
    }
    let options = EnvOptions { safety_coeff: Some(0.05), ..EnvOptions::default() };
    let tight = make_with("rwrl/walker-walk", &options).unwrap();
    assert!(replay(&trace("walker.npz"), tight.as_ref()).unwrap().cost_mismatches > 10);
}

/// Uniform over the action's bounds.
fn random_actor(low: Vec<f64>, high: Vec<f64>) -> impl Fn(&[f32], &mut Rng, &mut [f32]) + Sync {
    move |_: &[f32], rng: &mut Rng, action: &mut [f32]| {
        for ((a, low), high) in action.iter_mut().zip(&low).zip(&high) {
            *a = rng.random_range(*low..=*high) as f32;
        }
    }
}

fn bounds(name: &str) -> (Vec<f64>, Vec<f64>) {
    match &make(name).unwrap().spec().action {
        coptidice_sim::ActionSpec::Continuous { low, high } => (low.clone(), high.clone()),
        coptidice_sim::ActionSpec::Discrete { .. } => panic!("the suite's actions are continuous"),
    }
}

#[test]
fn logs_do_not_depend_on_threads() {
    for (_, name, _) in RECORDED {
        let env = make(name).unwrap();
        let (low, high) = bounds(name);
        let fingerprint = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let actor = random_actor(low.clone(), high.clone());
            pool.install(|| collect(env.as_ref(), &actor, Episodes::new(3, 2)).unwrap().fingerprint())
        };
        assert_eq!(fingerprint(1), fingerprint(3), "{name}");
    }
}
