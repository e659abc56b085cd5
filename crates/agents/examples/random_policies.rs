//! Writes random policies with their actions, for checking exported files with another program.
//!
//! ```text
//! cargo run --release --example random_policies -p coptidice-agents -- FOLDER
//! python3 scripts/check_onnx.py FOLDER/*
//! ```
//!
//! One folder per network, head and way of acting, with `policy.safetensors`, `policy.onnx` and `expected.safetensors`:
//! `observation` `[N, O]` and `action` `[N, A]` (or `[N, 1]`, indices) as this library computes them.

use coptidice_agents::export::{exported_acting, save_onnx};
use coptidice_agents::policy::{
    Acting, ActionUnit, Candidates, Head, Normalizer, Policy, PolicyAbout, PolicyParts, Selector,
};
use coptidice_core::rng::{Rng, stream};
use coptidice_nn::{Activation, BlockSpec, Network, NetworkSpec, Pool};
use rand::RngExt;
use safetensors::tensor::{Dtype, TensorView};
use std::error::Error;
use std::path::Path;

const ROWS: usize = 257;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).ok_or("usage: random_policies FOLDER")?;
    let pool = Pool::new(1)?;
    let heads = [
        ("unimodal", 5, Head::Mixture { action_dim: 1, components: 1, min_scale: 1e-4 }),
        ("mixture", 67, Head::Mixture { action_dim: 21, components: 5, min_scale: 1e-4 }),
        ("discrete", 14, Head::Categorical { actions: 6 }),
    ];
    for (network_name, blocks) in [("fast", fast()), ("paper", paper()), ("every_block", every_block())] {
        for (head_name, observation, head) in heads {
            for acting in Acting::ALL {
                let name = format!("{network_name}-{head_name}-{acting}");
                let policy = random(observation, &blocks, head, acting)?;
                write(&Path::new(&folder).join(name), &policy, &pool)?;
            }
        }
    }
    Ok(())
}

fn dense(width: usize, layer_norm: bool, activation: Activation) -> BlockSpec {
    BlockSpec::Dense { width, layer_norm, activation }
}

fn fast() -> Vec<BlockSpec> {
    vec![dense(128, true, Activation::Tanh), dense(128, false, Activation::Relu)]
}

fn paper() -> Vec<BlockSpec> {
    let mut blocks = vec![dense(300, true, Activation::Tanh), dense(1024, false, Activation::Identity)];
    blocks.extend(vec![BlockSpec::Residual { width: 1024 }; 4]);
    blocks
}

fn every_block() -> Vec<BlockSpec> {
    vec![
        dense(40, true, Activation::Tanh),
        BlockSpec::Residual { width: 24 },
        dense(32, false, Activation::Elu),
        dense(16, true, Activation::Relu),
        dense(16, false, Activation::Identity),
    ]
}

fn uniform(rng: &mut Rng, low: f32, high: f32, count: usize) -> Vec<f32> {
    (0..count).map(|_| low + (high - low) * rng.random::<f32>()).collect()
}

fn random(
    observation: usize,
    blocks: &[BlockSpec],
    head: Head,
    acting: Acting,
) -> Result<Policy, Box<dyn Error>> {
    let mut rng = stream(1, "random policies", 0);
    let spec = NetworkSpec { input: observation, blocks: blocks.to_vec(), output: head.outputs() };
    let network = Network::new(spec)?;
    let mut params = network.init(&mut rng);
    // Biases, gains and shifts too: what stays at 0 or 1 could be forgotten unnoticed.
    for param in &mut params {
        *param += 0.02 * (rng.random::<f32>() - 0.5);
    }
    let bounded = if head.is_discrete() { 0 } else { head.action_width() };
    // Those that draw from several components count their actions in a unit of their own.
    let outside =
        if matches!(head, Head::Mixture { components, .. } if components > 1) { 1000.0 } else { 1.0 };
    let action_unit = (outside > 1.0).then(|| ActionUnit {
        middle: uniform(&mut rng, -100.0, 100.0, bounded),
        half: vec![outside; bounded],
    });
    let selector = match acting {
        Acting::Select => Some(selector(observation, blocks, head, &mut rng)?),
        _ => None,
    };
    Ok(Policy::new(PolicyParts {
        network,
        params,
        head,
        normalizer: Normalizer {
            mean: uniform(&mut rng, -1.0, 1.0, observation),
            scale: uniform(&mut rng, 0.5, 2.0, observation),
        },
        acting,
        action_low: uniform(&mut rng, -1.0, -0.5, bounded).iter().map(|low| outside * low).collect(),
        action_high: uniform(&mut rng, 0.5, 1.0, bounded).iter().map(|high| outside * high).collect(),
        action_unit,
        selector,
        about: PolicyAbout::new("random", 1, 0, "none"),
    })?)
}

/// A random critic of two costs, with nine candidates or all that are likely.
fn selector(
    observation: usize,
    blocks: &[BlockSpec],
    head: Head,
    rng: &mut Rng,
) -> Result<Selector, Box<dyn Error>> {
    let width = head.action_width();
    let (input, output, candidates) = if head.is_discrete() {
        (observation, 3 * head.outputs(), Candidates::Likely { threshold: 0.5 })
    } else {
        let (quantiles, normals) = (uniform(rng, 0.0, 0.999, 9 * width), uniform(rng, -2.0, 2.0, 9 * width));
        let draws = quantiles.into_iter().zip(normals).map(|(quantile, normal)| [quantile, normal]).collect();
        let (mean, scale) = (uniform(rng, -0.2, 0.2, width), uniform(rng, 0.5, 2.0, width));
        (observation + width, 3, Candidates::Drawn { draws, action: Normalizer { mean, scale } })
    };
    let network = Network::new(NetworkSpec { input, blocks: blocks.to_vec(), output })?;
    Ok(Selector { params: network.init(rng), network, prices: uniform(rng, 0.0, 1.0, 2), candidates })
}

fn write(folder: &Path, policy: &Policy, pool: &Pool) -> Result<(), Box<dyn Error>> {
    std::fs::create_dir_all(folder)?;
    policy.save(&folder.join("policy.safetensors"))?;
    save_onnx(policy, &folder.join("policy.onnx"))?;
    let columns = policy.observation_width();
    let observations = uniform(&mut stream(2, "observations", 0), -2.0, 2.0, ROWS * columns);
    let actions = policy.act_batch(&observations, exported_acting(policy.acting()), 0, pool)?;
    let bytes = |values: &[f32]| values.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    let (observations, actions) = (bytes(&observations), bytes(&actions));
    let views = [
        ("observation", TensorView::new(Dtype::F32, vec![ROWS, columns], &observations)?),
        ("action", TensorView::new(Dtype::F32, vec![ROWS, policy.action_width()], &actions)?),
    ];
    std::fs::write(folder.join("expected.safetensors"), safetensors::serialize(views, None)?)?;
    Ok(())
}
