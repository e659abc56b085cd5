//! `policy.onnx`: the policy as a graph of standard operators (opset 17).

use super::graph::{Attribute, Graph};
use super::proto::{DataType, GraphProto, ModelProto, OperatorSetIdProto, StringStringEntryProto};
use crate::policy::{
    Acting, Candidates, Head, METADATA_KEY, Policy, PolicyAbout, PolicyDefect, PolicyError, Selector,
    write_whole,
};
use coptidice_nn::{Activation, BlockSpec, Network};
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
        Acting::Mode | Acting::Select => acting,
        Acting::Mean | Acting::Component | Acting::Sample => Acting::Mean,
    }
}

/// The policy as the content of an ONNX file.
///
/// | name | shape | type | |
/// |---|---|---|---|
/// | input `observation` | `[N, O]` | float | as logged; normalised inside |
/// | output `action` | `[N, A]` | float | continuous actions, clipped to the bounds |
/// | output `action` | `[N]` | int64 | finitely many actions: index of the most probable, or of the selected one |
/// | output `probabilities` | `[N, actions]` | float | finitely many actions only: the head's, before any selection |
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
    let selecting = policy.selector().filter(|_| policy.acting() == Acting::Select);
    let weights = policy.params().len() + selecting.map_or(0, |selector| selector.params.len());
    let bytes = weights as u64 * 4;
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
    let weights = Weights { network: policy.network(), params: policy.params(), owner: "" };
    let outputs = network(&mut graph, weights, normalized.clone());
    let selector = policy.selector().filter(|_| acting == Acting::Select);
    match policy.head() {
        Head::Mixture { action_dim, .. } => {
            let parts = mixture_parts(&mut graph, policy, &outputs);
            match selector {
                Some(selector) => select(&mut graph, policy, selector, &parts, &normalized),
                None => {
                    let chosen = mixture(&mut graph, acting, &parts);
                    let chosen = leave(&mut graph, policy, chosen);
                    clip(&mut graph, policy, &chosen, ["raised", "action"], Units::Action);
                }
            }
            let doc = described("Clipped to the logged range", &about.action_names);
            graph.output("action", DataType::Float, &[action_dim], doc);
        }
        Head::Categorical { actions } => {
            graph.node("Softmax", "probabilities", &[&outputs], &[Attribute::Int("axis", 1)]);
            let (ranked, what) = match selector {
                Some(selector) => (
                    select_likely(&mut graph, selector, actions, &outputs, normalized),
                    "Index of the selected action",
                ),
                None => (outputs, "Index of the most probable action"),
            };
            let attributes = [Attribute::Int("axis", 1), Attribute::Int("keepdims", 0)];
            graph.node("ArgMax", "action", &[&ranked], &attributes);
            let doc = described(what, &about.action_names);
            graph.output("action", DataType::Int64, &[], doc);
            let doc = described("Probability of every action", &about.action_names);
            graph.output("probabilities", DataType::Float, &[actions], doc);
        }
    }
    graph.finish("policy")
}

/// A network and its parameters. What belongs to it is named after its owner.
#[derive(Clone, Copy)]
struct Weights<'a> {
    network: &'a Network,
    params: &'a [f32],
    owner: &'static str,
}

/// The network's blocks, from the value `input` to the value returned.
fn network(graph: &mut Graph, weights: Weights<'_>, input: String) -> String {
    let mut x = input;
    let blocks = &weights.network.spec().blocks;
    for (index, block) in blocks.iter().enumerate() {
        let name = format!("layers.{index}");
        let activation_name = |part: &str| format!("{}{name}{part}.activation", weights.owner);
        x = match *block {
            BlockSpec::Dense { layer_norm, activation, .. } => {
                let mut y = affine(graph, weights, &name, &x);
                if layer_norm {
                    y = norm(graph, weights, &name, &y);
                }
                activate(graph, activation, &activation_name(""), y)
            }
            BlockSpec::Residual { .. } => {
                let inner = affine(graph, weights, &format!("{name}.inner"), &x);
                let hidden = activate(graph, Activation::Relu, &activation_name(".inner"), inner);
                let outer = affine(graph, weights, &format!("{name}.outer"), &hidden);
                let sum = graph.node("Add", &format!("{}{name}.sum", weights.owner), &[&x, &outer], &[]);
                norm(graph, weights, &name, &sum)
            }
        };
    }
    affine(graph, weights, &format!("layers.{}", blocks.len()), &x)
}

/// `x Wᵀ + b` with the parameters `name.weight` and `name.bias`.
fn affine(graph: &mut Graph, weights: Weights<'_>, name: &str, x: &str) -> String {
    let weight = parameter(graph, weights, &format!("{name}.weight"));
    let bias = parameter(graph, weights, &format!("{name}.bias"));
    graph.node(
        "Gemm",
        &format!("{}{name}.affine", weights.owner),
        &[x, &weight, &bias],
        &[Attribute::Int("transB", 1)],
    )
}

fn norm(graph: &mut Graph, weights: Weights<'_>, name: &str, x: &str) -> String {
    let weight = parameter(graph, weights, &format!("{name}.norm.weight"));
    let bias = parameter(graph, weights, &format!("{name}.norm.bias"));
    let attributes = [Attribute::Int("axis", -1), Attribute::Float("epsilon", NORM_EPSILON)];
    graph.node(
        "LayerNormalization",
        &format!("{}{name}.normalized", weights.owner),
        &[x, &weight, &bias],
        &attributes,
    )
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
fn parameter(graph: &mut Graph, weights: Weights<'_>, name: &str) -> String {
    let slice = weights
        .network
        .layout()
        .iter()
        .find(|slice| slice.name == name)
        .expect("the network names its tensors after the blocks of its own description");
    let values = &weights.params[slice.offset..slice.offset + slice.len];
    graph.floats(&format!("{}network.{name}", weights.owner), &slice.shape, values)
}

/// Values of a mixture, `[N, A, M]` each.
struct Mixture {
    logits: String,
    locations: String,
    raw_scales: String,
    dims: i64,
    components: i64,
    min_scale: f32,
}

/// The outputs `[N, 3*A*M]` taken apart.
fn mixture_parts(graph: &mut Graph, policy: &Policy, outputs: &str) -> Mixture {
    let (dims, components, min_scale) = match policy.head() {
        Head::Mixture { action_dim, components, min_scale } => {
            (action_dim as i64, components as i64, min_scale)
        }
        Head::Categorical { actions } => (1, actions as i64, 0.0),
    };
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
    let (logits, locations) = (part("logits", 0), part("locations", block));
    let raw_scales =
        if policy.acting() == Acting::Select { part("raw_scales", 2 * block) } else { String::new() };
    Mixture { logits, locations, raw_scales, dims, components, min_scale }
}

/// From the mixture to the unclipped action `[N, A]` of its mean or mode.
fn mixture(graph: &mut Graph, acting: Acting, parts: &Mixture) -> String {
    let Mixture { logits, locations, dims, .. } = parts;
    if acting == Acting::Mode {
        let attributes = [Attribute::Int("axis", 2), Attribute::Int("keepdims", 1)];
        let component = graph.node("ArgMax", "head.component", &[logits], &attributes);
        let inputs = [locations.as_str(), &component];
        let picked = graph.node("GatherElements", "head.picked", &inputs, &[Attribute::Int("axis", 2)]);
        let flat = graph.integers("head.flat", &[-1, *dims]);
        graph.node("Reshape", "head.chosen", &[&picked, &flat], &[])
    } else {
        let weights = graph.node("Softmax", "head.weights", &[logits], &[Attribute::Int("axis", 2)]);
        let weighted = graph.node("Mul", "head.weighted", &[&weights, locations], &[]);
        let axes = graph.integers("head.axes", &[2]);
        graph.node("ReduceSum", "head.chosen", &[&weighted, &axes], &[Attribute::Int("keepdims", 0)])
    }
}

/// In what actions are counted.
#[derive(Clone, Copy, PartialEq)]
enum Units {
    Action,
    Head,
}

/// Clips actions, `[..., A]`, by way of a value `raised` to the value `name`.
fn clip(
    graph: &mut Graph,
    policy: &Policy,
    actions: &str,
    [raised, name]: [&str; 2],
    units: Units,
) -> String {
    let dims = [policy.action_width()];
    let inside = policy.action_unit().filter(|_| units == Units::Head);
    let mut bound = |name: &str, values: &[f32]| match inside {
        Some(unit) => {
            let mut values = values.to_vec();
            unit.enter(&mut values);
            graph.floats(&format!("head.{name}"), &dims, &values)
        }
        None => graph.floats(name, &dims, values),
    };
    let low = bound("action.low", policy.action_low());
    let high = bound("action.high", policy.action_high());
    let raised = graph.node("Max", raised, &[actions, &low], &[]);
    graph.node("Min", name, &[&raised, &high], &[])
}

/// From what the head counts to actions, `[N, A]`, unclipped.
fn leave(graph: &mut Graph, policy: &Policy, actions: String) -> String {
    let Some(unit) = policy.action_unit() else { return actions };
    let dims = [policy.action_width()];
    let middle = graph.floats("action.middle", &dims, &unit.middle);
    let half = graph.floats("action.half", &dims, &unit.half);
    let wide = graph.node("Mul", "action.wide", &[&actions, &half], &[]);
    graph.node("Add", "action.there", &[&middle, &wide], &[])
}

/// From the mixture to the value `action` `[N, A]`, the selected one of `m` candidates.
fn select(graph: &mut Graph, policy: &Policy, selector: &Selector, parts: &Mixture, normalized: &str) {
    let Candidates::Drawn { draws, action } = &selector.candidates else { return };
    let (dims, columns) = (parts.dims, policy.observation_width() as i64);
    let (a, m) = (dims as usize, draws.len() / dims as usize);
    let candidates = candidates(graph, policy, parts, draws);
    let mean = graph.floats("selector.action.mean", &[a], &action.mean);
    let scale = graph.floats("selector.action.scale", &[a], &action.scale);
    let centred = graph.node("Sub", "selector.action.centred", &[&candidates, &mean], &[]);
    let mapped = graph.node("Mul", "selector.action.normalized", &[&centred, &scale], &[]);
    // Adding zeros repeats the observation for every candidate.
    let one_row = graph.integers("selector.one_row", &[-1, 1, columns]);
    let observation = graph.node("Reshape", "selector.observation", &[normalized, &one_row], &[]);
    let zeros = graph.floats("selector.zeros", &[m, columns as usize], &vec![0.0; m * columns as usize]);
    let repeated = graph.node("Add", "selector.repeated", &[&observation, &zeros], &[]);
    let joined = graph.node("Concat", "selector.joined", &[&repeated, &mapped], &[Attribute::Int("axis", 2)]);
    let flat = graph.integers("selector.flat", &[-1, columns + dims]);
    let inputs = graph.node("Reshape", "selector.inputs", &[&joined, &flat], &[]);
    let worth = worth(graph, selector, inputs, m);
    let attributes = [Attribute::Int("axis", 1), Attribute::Int("keepdims", 1)];
    let best = graph.node("ArgMax", "selector.best", &[&worth], &attributes);
    let single = graph.integers("selector.single", &[-1, 1, 1]);
    let best = graph.node("Reshape", "selector.best.single", &[&best, &single], &[]);
    let same = graph.integers("selector.same", &vec![0; a]);
    let best = graph.node("Add", "selector.best.each", &[&best, &same], &[]);
    let inputs = [candidates.as_str(), &best];
    let picked = graph.node("GatherElements", "selector.picked", &inputs, &[Attribute::Int("axis", 1)]);
    let shape = graph.integers("selector.action.shape", &[-1, dims]);
    if policy.action_unit().is_none() {
        graph.node("Reshape", "action", &[&picked, &shape], &[]);
        return;
    }
    let chosen = graph.node("Reshape", "selector.chosen", &[&picked, &shape], &[]);
    let chosen = leave(graph, policy, chosen);
    clip(graph, policy, &chosen, ["raised", "action"], Units::Action);
}

/// The candidates at fixed quantiles, clipped, `[N, m, A]`.
fn candidates(graph: &mut Graph, policy: &Policy, parts: &Mixture, draws: &[[f32; 2]]) -> String {
    let (dims, components) = (parts.dims as usize, parts.components as usize);
    let m = draws.len() / dims;
    let column = |part: usize| draws.iter().map(|draw| draw[part]).collect::<Vec<f32>>();
    // Which component: the first whose cumulative probability exceeds the quantile. Those that do are the last ones;
    // subtracting from each the one before it leaves a 1 in the first one's place.
    let weights = graph.node("Softmax", "head.weights", &[&parts.logits], &[Attribute::Int("axis", 2)]);
    let axis = graph.integer("candidates.axis", 2);
    let cumulative = graph.node("CumSum", "candidates.cumulative", &[&weights, &axis], &[]);
    let grid = graph.integers("candidates.grid", &[-1, 1, parts.dims, parts.components]);
    let spread = |graph: &mut Graph, name: &str, value: &str| {
        graph.node("Reshape", &format!("candidates.{name}"), &[value, &grid], &[])
    };
    let cumulative = spread(graph, "cumulative.spread", &cumulative);
    let locations = spread(graph, "locations", &parts.locations);
    let raw_scales = spread(graph, "raw_scales", &parts.raw_scales);
    let quantiles = graph.floats("candidates.quantiles", &[m, dims, 1], &column(0));
    let exceeds = graph.node("Greater", "candidates.exceeds", &[&cumulative, &quantiles], &[]);
    let exceeds = graph.node(
        "Cast",
        "candidates.exceeds.number",
        &[&exceeds],
        &[Attribute::Int("to", DataType::Float as i64)],
    );
    let mut steps = vec![0.0; components * components];
    for c in 0..components {
        steps[c * components + c] = 1.0;
        if c > 0 {
            steps[(c - 1) * components + c] = -1.0;
        }
    }
    let steps = graph.floats("candidates.steps", &[components, components], &steps);
    let chosen = graph.node("MatMul", "candidates.chosen", &[&exceeds, &steps], &[]);
    let last = graph.integers("candidates.last", &[3]);
    let picked = |graph: &mut Graph, name: &str, values: &str| {
        let masked = graph.node("Mul", &format!("candidates.{name}.masked"), &[&chosen, values], &[]);
        let name = format!("candidates.{name}.picked");
        graph.node("ReduceSum", &name, &[&masked, &last], &[Attribute::Int("keepdims", 0)])
    };
    let location = picked(graph, "locations", &locations);
    let raw_scale = picked(graph, "raw_scales", &raw_scales);
    let min_scale = graph.floats("head.min_scale", &[1], &[parts.min_scale]);
    let soft = graph.node("Softplus", "candidates.soft", &[&raw_scale], &[]);
    let scale = graph.node("Add", "candidates.scale", &[&soft, &min_scale], &[]);
    let normals = graph.floats("candidates.normals", &[m, dims], &column(1));
    let departure = graph.node("Mul", "candidates.departure", &[&scale, &normals], &[]);
    let unclipped = graph.node("Add", "candidates.unclipped", &[&location, &departure], &[]);
    clip(graph, policy, &unclipped, ["candidates.raised", "candidates"], Units::Head)
}

/// The logged actions' worth where they are likely, and the least number elsewhere, `[N, actions]`.
fn select_likely(
    graph: &mut Graph,
    selector: &Selector,
    actions: usize,
    outputs: &str,
    normalized: String,
) -> String {
    let Candidates::Likely { threshold } = selector.candidates else { return outputs.to_owned() };
    let worth = worth(graph, selector, normalized, actions);
    let attributes = [Attribute::Int("axis", 1), Attribute::Int("keepdims", 1)];
    let top = graph.node("ArgMax", "candidates.top.index", &[outputs], &attributes);
    let inputs = [outputs, &top];
    let top = graph.node("GatherElements", "candidates.top", &inputs, &[Attribute::Int("axis", 1)]);
    let below = graph.floats("candidates.below", &[1], &[threshold.ln()]);
    let least = graph.node("Add", "candidates.least", &[&top, &below], &[]);
    let likely = graph.node("GreaterOrEqual", "candidates.likely", &[outputs, &least], &[]);
    let never = graph.floats("candidates.never", &[1], &[f32::MIN]);
    graph.node("Where", "candidates.worth", &[&likely, &worth, &never], &[])
}

/// `Q_r - prices'Q_c` of `count` alternatives at every observation, `[N, count]`, from the critic's inputs.
fn worth(graph: &mut Graph, selector: &Selector, inputs: String, count: usize) -> String {
    let weights = Weights { network: &selector.network, params: &selector.params, owner: "selector." };
    let values = network(graph, weights, inputs);
    let each = selector.prices.len() + 1;
    let rows = graph.integers("selector.rows", &[-1, each as i64]);
    let values = graph.node("Reshape", "selector.values", &[&values, &rows], &[]);
    let signs: Vec<f32> = std::iter::once(1.0).chain(selector.prices.iter().map(|price| -price)).collect();
    let signs = graph.floats("selector.signs", &[each, 1], &signs);
    let worth = graph.node("MatMul", "selector.worth.flat", &[&values, &signs], &[]);
    let shape = graph.integers("selector.worth.shape", &[-1, count as i64]);
    graph.node("Reshape", "selector.worth", &[&worth, &shape], &[])
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
