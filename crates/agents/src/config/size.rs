//! Networks and batches that no machine should be asked for.

use coptidice_nn::BlockSpec;

use super::raw::range;
use super::{ConfigError, Extraction, TrainConfig};
use crate::registry::Algorithm;

/// Widest layer.
const MOST_UNITS: usize = 1 << 14;
/// Most blocks of a network.
const MOST_BLOCKS: usize = 100;
/// Most memory that networks and batch may take by [`bytes`]: 8 GiB.
const MOST_BYTES: f64 = 8.0 * GIB;
const GIB: f64 = (1_u64 << 30) as f64;

/// Refuses widths of nothing, and what would not fit into memory.
pub(super) fn check_size(config: &TrainConfig) -> Result<(), ConfigError> {
    for (field, blocks) in
        [("networks.value", &config.networks.value), ("networks.policy", &config.networks.policy)]
    {
        range(blocks.len() <= MOST_BLOCKS, field, &format!("{} blocks", blocks.len()), "at most 100 blocks")?;
        for (number, block) in blocks.iter().enumerate() {
            let value = format!("block {} of width {}", number + 1, width(block));
            range((1..=MOST_UNITS).contains(&width(block)), field, &value, "widths of 1 to 16384")?;
        }
    }
    let sized = |value: &dyn std::fmt::Display, bytes: f64| format!("{value} (about {:.0} GiB)", bytes / GIB);
    let smallest = bytes(config, 2);
    range(
        smallest <= MOST_BYTES,
        "networks",
        &sized(&"these blocks", smallest),
        "blocks with which training takes at most 8 GiB of memory",
    )?;
    let all = bytes(config, config.batch_size);
    range(
        all <= MOST_BYTES,
        "batch_size",
        &sized(&config.batch_size, all),
        "a batch with which training takes at most 8 GiB of memory",
    )
}

fn width(block: &BlockSpec) -> usize {
    match *block {
        BlockSpec::Dense { width, .. } | BlockSpec::Residual { width } => width,
    }
}

/// Numbers that are kept of a unit for each state: its value before and after the activation, its normalised value, its
/// gradient. Training took at most 0.9 of this sum where it was measured; networks that are used one after another share
/// their buffers.
const PER_UNIT: f64 = 4.0;

/// About what training holds in memory besides the log, bytes: [`PER_UNIT`] numbers of every unit for each state that
/// its network sees in a batch; of every weight itself, its gradient, moments and averages. What depends on the log,
/// the first and last layers' weights and the rows of the batch, is small beside it and left out.
fn bytes(config: &TrainConfig, batch: usize) -> f64 {
    let members = config.critic.ensemble as f64;
    // Of critics, and of what is fitted beside the policy: value networks, policy networks.
    let (guided, fitted, behaviour) = match (config.algo, config.extraction) {
        (Algorithm::Bc, _) | (_, Extraction::WeightedBc) => (0.0, 0.0, 0.0),
        (_, Extraction::CriticGuided | Extraction::GuidedSelection) => (members, 0.0, 0.0),
        (_, Extraction::StateNormalized) => (0.0, 1.0, 0.0),
        (_, Extraction::InformationProjection) => (0.0, 1.0, 1.0),
    };
    let dual = if config.algo == Algorithm::Bc { 0.0 } else { 1.0 };
    let (value_units, value_weights) = counts(&config.networks.value);
    let (policy_units, policy_weights) = counts(&config.networks.policy);
    // nu and chi at s, s', s0 and where gradients are penalised; critics at logged, next and own actions.
    let value_states = dual * 2.0 * 4.0 + guided * 3.0 + fitted;
    let policy_states = 1.0 + guided.min(1.0) * 2.0 + behaviour;
    let units = PER_UNIT * batch as f64 * (value_states * value_units + policy_states * policy_units);
    // Weights, gradients and two moments; the critics' targets; the policy's average.
    let value_copies = dual * 2.0 * 4.0 + guided * 5.0 + fitted * 4.0;
    let weights = value_copies * value_weights + (5.0 + behaviour * 4.0) * policy_weights;
    4.0 * (units + weights)
}

/// Units of a network, and weights between its blocks.
fn counts(blocks: &[BlockSpec]) -> (f64, f64) {
    let (mut units, mut weights, mut before) = (0.0, 0.0, 0.0);
    for block in blocks {
        let width = width(block) as f64;
        match block {
            BlockSpec::Dense { .. } => {
                units += width;
                weights += before * width;
                before = width;
            }
            BlockSpec::Residual { .. } => {
                units += width + before;
                weights += 2.0 * before * width;
            }
        }
    }
    (units, weights)
}
