//! What several tests of this program need.

use coptidice_agents::policy::{
    Acting, Candidates, Head, Normalizer, Policy, PolicyAbout, PolicyParts, Selector,
};
use coptidice_core::rng::stream;
use coptidice_nn::{Activation, BlockSpec, Network, NetworkSpec};
use coptidice_sim::{ActionSpec, Environment};

fn network(input: usize, output: usize) -> Network {
    let blocks = vec![
        BlockSpec::Dense { width: 24, layer_norm: true, activation: Activation::Tanh },
        BlockSpec::Dense { width: 19, layer_norm: false, activation: Activation::Relu },
    ];
    Network::new(NetworkSpec { input, blocks, output }).expect("widths are positive")
}

/// A policy of random parameters for an environment of continuous actions, with something to select by.
pub(crate) fn policy(env: &dyn Environment, seed: u64, acting: Acting) -> Policy {
    let spec = env.spec();
    let ActionSpec::Continuous { low, high } = &spec.action else { panic!("{} is discrete", spec.name) };
    let (observation, action) = (spec.observation_dim(), low.len());
    let head = Head::Mixture { action_dim: action, components: 3, min_scale: 1e-2 };
    let (acts, critic) = (network(observation, head.outputs()), network(observation + action, 2));
    let selector = Selector {
        params: critic.init(&mut stream(seed, "test critic", 0)),
        network: critic,
        prices: vec![0.5],
        candidates: Candidates::Drawn {
            draws: [[0.2, -1.0], [0.5, 0.3], [0.9, 1.5]].repeat(action),
            action: Normalizer::identity(action),
        },
    };
    let narrow = |bounds: &[f64]| bounds.iter().map(|&bound| bound as f32).collect();
    Policy::new(PolicyParts {
        params: acts.init(&mut stream(seed, "test policy", 0)),
        network: acts,
        head,
        normalizer: Normalizer::identity(observation),
        acting,
        action_low: narrow(low),
        action_high: narrow(high),
        action_unit: None,
        selector: Some(selector),
        about: PolicyAbout::new("test", seed, 0, "none"),
    })
    .expect("the parts fit")
}
