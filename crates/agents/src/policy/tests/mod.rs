//! Tests of policies; also builds the random policies that the export's tests use.

mod acting;
mod batch;
mod file;
mod head;
mod selector;

use super::{Acting, Candidates, Head, LimitAbout, Normalizer, Policy, PolicyAbout, PolicyParts, Selector};
use coptidice_core::limits::EpisodeHorizon;
use coptidice_core::rng::{Rng, stream};
use coptidice_core::{CostLimit, LimitUnit};
use coptidice_nn::{Activation, BlockSpec, Network, NetworkSpec};
use rand::RngExt;

/// Every kind of block and activation in 40 units.
pub(crate) fn mixed_blocks() -> Vec<BlockSpec> {
    vec![
        BlockSpec::Dense { width: 40, layer_norm: true, activation: Activation::Tanh },
        BlockSpec::Residual { width: 24 },
        BlockSpec::Dense { width: 32, layer_norm: false, activation: Activation::Elu },
        BlockSpec::Dense { width: 16, layer_norm: false, activation: Activation::Identity },
        BlockSpec::Dense { width: 16, layer_norm: false, activation: Activation::Relu },
    ]
}

pub(crate) fn uniform(rng: &mut Rng, low: f32, high: f32, count: usize) -> Vec<f32> {
    (0..count).map(|_| low + (high - low) * rng.random::<f32>()).collect()
}

pub(crate) fn mixture(action_dim: usize, components: usize) -> Head {
    Head::Mixture { action_dim, components, min_scale: 1e-4 }
}

/// A policy with random weights, biases, gains and normaliser, and an account of itself with a limit.
pub(crate) fn random_policy(observation: usize, blocks: Vec<BlockSpec>, head: Head, seed: u64) -> Policy {
    let mut rng = stream(seed, "random policy", 0);
    let network = Network::new(NetworkSpec { input: observation, blocks, output: head.outputs() }).unwrap();
    let mut params = network.init(&mut rng);
    // Biases and gains start at 0 and 1; move everything, so that no term can be forgotten unnoticed.
    for param in &mut params {
        *param += 0.1 * (rng.random::<f32>() - 0.5);
    }
    let bounded = if head.is_discrete() { 0 } else { head.action_width() };
    let mut about = PolicyAbout::new("coptidice", u64::MAX, 1000, "0123abcd");
    about.observation_names = (0..observation).map(|i| format!("x{i} \"μ\"")).collect();
    about.cost_names = vec!["speeding".to_owned(), "tailgating".to_owned()];
    let limit = CostLimit::new(100.0 / 3.0, LimitUnit::Episode, EpisodeHorizon::Fixed(300.0)).unwrap();
    about.limits = vec![LimitAbout::new("tailgating", limit, 300.0)];
    Policy::new(PolicyParts {
        normalizer: Normalizer {
            mean: uniform(&mut rng, -1.0, 1.0, observation),
            scale: uniform(&mut rng, 0.5, 2.0, observation),
        },
        network,
        params,
        head,
        acting: Acting::Mean,
        action_low: uniform(&mut rng, -0.6, -0.1, bounded),
        action_high: uniform(&mut rng, 0.1, 0.6, bounded),
        action_unit: None,
        selector: None,
        about,
    })
    .unwrap()
}

/// `policy` with a random critic of `costs` costs, seven candidates (or all but unlikely ones), and acting by them.
pub(crate) fn selecting(policy: &Policy, costs: usize, seed: u64) -> Policy {
    let mut rng = stream(seed, "random selector", 0);
    let (head, columns) = (policy.head(), policy.observation_width());
    let width = head.action_width();
    let (input, output, candidates) = if head.is_discrete() {
        (columns, head.outputs() * (1 + costs), Candidates::Likely { threshold: 0.3 })
    } else {
        let draws = (0..7 * width).map(|_| [0.999 * rng.random::<f32>(), 4.0 * rng.random::<f32>() - 2.0]);
        let draws = draws.collect();
        let action = Normalizer {
            mean: uniform(&mut rng, -0.2, 0.2, width),
            scale: uniform(&mut rng, 1.0, 4.0, width),
        };
        (columns + width, 1 + costs, Candidates::Drawn { draws, action })
    };
    let network = Network::new(NetworkSpec { input, blocks: mixed_blocks(), output }).unwrap();
    let mut params = network.init(&mut rng);
    for param in &mut params {
        *param += 0.1 * (rng.random::<f32>() - 0.5);
    }
    let selector = Selector { network, params, prices: uniform(&mut rng, 0.0, 1.0, costs), candidates };
    let parts = policy.to_parts();
    Policy::new(PolicyParts { selector: Some(selector), acting: Acting::Select, ..parts }).unwrap()
}
