//! `policy.onnx`: the policy as a graph of standard operators (opset 17).

use super::graph::{Attribute, Graph};
use super::proto::{DataType, GraphProto, ModelProto, OperatorSetIdProto, StringStringEntryProto};
use crate::policy::{
    Acting, Head, METADATA_KEY, Policy, PolicyAbout, PolicyDefect, PolicyError, write_whole,
};
use coptidice_nn::{Activation, BlockSpec};
use prost::Message;
use std::path::Path;

/// The first operator set with layer normalisation.
const OPSET: i64 = 17;

/// The format version that came with it.
const IR_VERSION: i64 = 8;

/// Added to the variance by the network's layer normalisation.
const NORM_EPSILON: f32 = 1e-5;

/// A protocol buffer has at most 2 GiB; this leaves 16 MiB for all but the weights.
const MAX_WEIGHT_BYTES: u64 = (1 << 31) - (1 << 24);

/// What `acting` becomes in an exported graph, which draws nothing: `Component` and `Sample` become `Mean`.
#[must_use]
pub fn exported_acting(acting: Acting) -> Acting {
    match acting {
        Acting::Mode => Acting::Mode,
        Acting::Mean | Acting::Component | Acting::Sample => Acting::Mean,
    }
}

/// The policy as the content of an ONNX file.
///
/// | name | shape | type | |
/// |---|---|---|---|
/// | input `observation` | `[N, O]` | float | as logged; normalised inside |
/// | output `action` | `[N, A]` | float | continuous actions, clipped to the bounds |
/// | output `action` | `[N]` | int64 | finitely many actions: index of the most probable |
/// | output `probabilities` | `[N, actions]` | float | finitely many actions only |
///
/// `N` is free. The graph acts deterministically, by [`exported_acting`] of the policy's own way ([`Policy::with_acting`]
/// changes that). The metadata has the entries `acting` (of the graph), `policy_acting`, `note` where these differ, `algorithm`, `seed`, `steps`,
/// `data_fingerprint`, `library_version`, `observation_names`, `action_names` and `cost_names` (JSON lists), for every
/// limit `limit.COST` in words with `limit.COST.per_step` and `limit.COST.per_episode` as numbers, and the whole
/// description of `policy.safetensors` under its key. The same policy gives the same bytes.
///
/// # Errors
/// [`PolicyDefect::TooLarge`] for more weights than the format can hold.
pub fn to_onnx(policy: &Policy) -> Result<Vec<u8>, PolicyDefect> {
    let bytes = policy.params().len() as u64 * 4;
    if bytes > MAX_WEIGHT_BYTES {
        return Err(PolicyDefect::TooLarge { format: "ONNX", bytes, limit: MAX_WEIGHT_BYTES });
    }
    let model = ModelProto {
        ir_version: Some(IR_VERSION),
        producer_name: Some("coptidice".to_owned()),
        producer_version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        doc_string: Some(
            "A policy learned offline from logged data under cost limits. Feed observations as they were logged; \
             normalisation and clipping of the action are inside. Limits and their units are in the metadata."
                .to_owned(),
        ),
        graph: Some(graph(policy, exported_acting(policy.acting()))),
        opset_import: vec![OperatorSetIdProto { domain: Some(String::new()), version: Some(OPSET) }],
        metadata_props: metadata(policy)?,
    };
    Ok(model.encode_to_vec())
}

/// Writes [`to_onnx`] to `path`, replacing a file there in one step.
///
/// # Errors
/// [`PolicyError`] with the path and what stands in the way.
pub fn save_onnx(policy: &Policy, path: &Path) -> Result<(), PolicyError> {
    let bytes =
        to_onnx(policy).map_err(|defect| PolicyError::Unwritable { path: path.to_owned(), defect })?;
    write_whole(path, &bytes)
}

fn graph(policy: &Policy, acting: Acting) -> GraphProto {
    let about = policy.about();
    let columns = policy.observation_width();
    let mut graph =
        Graph::with_input("observation", columns, described("As logged", &about.observation_names));
    let normalizer = policy.normalizer();
    let mean = graph.floats("normalizer.mean", &[columns], &normalizer.mean);
    let scale = graph.floats("normalizer.scale", &[columns], &normalizer.scale);
    let centred = graph.node("Sub", "centred", &["observation", &mean], &[]);
    let normalized = graph.node("Mul", "normalized", &[&centred, &scale], &[]);
    let outputs = network(&mut graph, policy, normalized);
    match policy.head() {
        Head::Mixture { action_dim, components, .. } => {
            mixture(&mut graph, policy, acting, &outputs, action_dim, components);
            let doc = described("Clipped to the logged range", &about.action_names);
            graph.output("action", DataType::Float, &[action_dim], doc);
        }
        Head::Categorical { actions } => {
            graph.node("Softmax", "probabilities", &[&outputs], &[Attribute::Int("axis", 1)]);
            let attributes = [Attribute::Int("axis", 1), Attribute::Int("keepdims", 0)];
            graph.node("ArgMax", "action", &[&outputs], &attributes);
            let doc = described("Index of the most probable action", &about.action_names);
            graph.output("action", DataType::Int64, &[], doc);
            let doc = described("Probability of every action", &about.action_names);
            graph.output("probabilities", DataType::Float, &[actions], doc);
        }
    }
    graph.finish("policy")
}

/// The network's blocks, from the value `input` to the value returned.
fn network(graph: &mut Graph, policy: &Policy, input: String) -> String {
    let mut x = input;
    let blocks = &policy.network().spec().blocks;
    for (index, block) in blocks.iter().enumerate() {
        let name = format!("layers.{index}");
        x = match *block {
            BlockSpec::Dense { layer_norm, activation, .. } => {
                let mut y = affine(graph, policy, &name, &x);
                if layer_norm {
                    y = norm(graph, policy, &name, &y);
                }
                activate(graph, activation, &format!("{name}.activation"), y)
            }
            BlockSpec::Residual { .. } => {
                let inner = affine(graph, policy, &format!("{name}.inner"), &x);
                let hidden = activate(graph, Activation::Relu, &format!("{name}.inner.activation"), inner);
                let outer = affine(graph, policy, &format!("{name}.outer"), &hidden);
                let sum = graph.node("Add", &format!("{name}.sum"), &[&x, &outer], &[]);
                norm(graph, policy, &name, &sum)
            }
        };
    }
    affine(graph, policy, &format!("layers.{}", blocks.len()), &x)
}

/// `x Wᵀ + b` with the parameters `name.weight` and `name.bias`.
fn affine(graph: &mut Graph, policy: &Policy, name: &str, x: &str) -> String {
    let weight = parameter(graph, policy, &format!("{name}.weight"));
    let bias = parameter(graph, policy, &format!("{name}.bias"));
    graph.node("Gemm", &format!("{name}.affine"), &[x, &weight, &bias], &[Attribute::Int("transB", 1)])
}

fn norm(graph: &mut Graph, policy: &Policy, name: &str, x: &str) -> String {
    let weight = parameter(graph, policy, &format!("{name}.norm.weight"));
    let bias = parameter(graph, policy, &format!("{name}.norm.bias"));
    let attributes = [Attribute::Int("axis", -1), Attribute::Float("epsilon", NORM_EPSILON)];
    graph.node("LayerNormalization", &format!("{name}.normalized"), &[x, &weight, &bias], &attributes)
}

fn activate(graph: &mut Graph, activation: Activation, name: &str, x: String) -> String {
    match activation {
        Activation::Identity => x,
        Activation::Relu => graph.node("Relu", name, &[&x], &[]),
        Activation::Elu => graph.node("Elu", name, &[&x], &[Attribute::Float("alpha", 1.0)]),
        Activation::Tanh => graph.node("Tanh", name, &[&x], &[]),
    }
}

/// One of the network's tensors as a constant of the graph.
fn parameter(graph: &mut Graph, policy: &Policy, name: &str) -> String {
    let slice = policy
        .network()
        .layout()
        .iter()
        .find(|slice| slice.name == name)
        .expect("the network names its tensors after the blocks of its own description");
    let values = &policy.params()[slice.offset..slice.offset + slice.len];
    graph.floats(&format!("network.{name}"), &slice.shape, values)
}

/// From the outputs `[N, 3*A*M]` to the value `action` `[N, A]`.
fn mixture(
    graph: &mut Graph,
    policy: &Policy,
    acting: Acting,
    outputs: &str,
    action_dim: usize,
    components: usize,
) {
    let (dims, components) = (action_dim as i64, components as i64);
    let block = dims * components;
    let grid = graph.integers("head.grid", &[-1, dims, components]);
    let columns = graph.integers("head.columns", &[1]);
    let mut part = |name: &str, first: i64| {
        let from = graph.integers(&format!("head.{name}.from"), &[first]);
        let to = graph.integers(&format!("head.{name}.to"), &[first + block]);
        let inputs = [outputs, &from, &to, &columns];
        let flat = graph.node("Slice", &format!("head.{name}.flat"), &inputs, &[]);
        graph.node("Reshape", &format!("head.{name}"), &[&flat, &grid], &[])
    };
    let logits = part("logits", 0);
    let locations = part("locations", block);
    let chosen = if acting == Acting::Mode {
        let attributes = [Attribute::Int("axis", 2), Attribute::Int("keepdims", 1)];
        let component = graph.node("ArgMax", "head.component", &[&logits], &attributes);
        let inputs = [locations.as_str(), &component];
        let picked = graph.node("GatherElements", "head.picked", &inputs, &[Attribute::Int("axis", 2)]);
        let flat = graph.integers("head.flat", &[-1, dims]);
        graph.node("Reshape", "head.chosen", &[&picked, &flat], &[])
    } else {
        let weights = graph.node("Softmax", "head.weights", &[&logits], &[Attribute::Int("axis", 2)]);
        let weighted = graph.node("Mul", "head.weighted", &[&weights, &locations], &[]);
        let axes = graph.integers("head.axes", &[2]);
        graph.node("ReduceSum", "head.chosen", &[&weighted, &axes], &[Attribute::Int("keepdims", 0)])
    };
    let low = graph.floats("action.low", &[action_dim], policy.action_low());
    let high = graph.floats("action.high", &[action_dim], policy.action_high());
    let raised = graph.node("Max", "raised", &[&chosen, &low], &[]);
    graph.node("Min", "action", &[&raised, &high], &[]);
}

/// A value's description with its columns' names, where there are any.
fn described(what: &str, names: &[String]) -> String {
    if names.is_empty() { format!("{what}.") } else { format!("{what}: {}.", names.join(", ")) }
}

fn metadata(policy: &Policy) -> Result<Vec<StringStringEntryProto>, PolicyDefect> {
    let acting = policy.acting();
    let exported = exported_acting(acting);
    let mut entries = vec![
        (METADATA_KEY.to_owned(), policy.description()?),
        ("acting".to_owned(), exported.to_string()),
        ("policy_acting".to_owned(), acting.to_string()),
    ];
    if exported != acting {
        let note = format!(
            "the policy acts by {acting}; this file draws nothing and gives the {exported}, \
             whose return and costs may differ"
        );
        entries.push(("note".to_owned(), note));
    }
    entries.extend(account(policy.about())?);
    Ok(entries
        .into_iter()
        .map(|(key, value)| StringStringEntryProto { key: Some(key), value: Some(value) })
        .collect())
}

/// Where the policy comes from and its limits, entry by entry.
fn account(about: &PolicyAbout) -> Result<Vec<(String, String)>, PolicyDefect> {
    let list = |names: &[String]| {
        serde_json::to_string(names).map_err(|error| PolicyDefect::Metadata { reason: error.to_string() })
    };
    let mut entries = vec![
        ("algorithm".to_owned(), about.algorithm.clone()),
        ("seed".to_owned(), about.seed.to_string()),
        ("steps".to_owned(), about.steps.to_string()),
        ("data_fingerprint".to_owned(), about.data_fingerprint.clone()),
        ("library_version".to_owned(), about.library_version.clone()),
        ("observation_names".to_owned(), list(&about.observation_names)?),
        ("action_names".to_owned(), list(&about.action_names)?),
        ("cost_names".to_owned(), list(&about.cost_names)?),
    ];
    for limit in &about.limits {
        let key = format!("limit.{}", limit.cost);
        entries.push((key.clone(), limit.to_string()));
        entries.push((format!("{key}.per_step"), limit.per_step.to_string()));
        entries.push((format!("{key}.per_episode"), limit.per_episode.to_string()));
    }
    Ok(entries)
}
