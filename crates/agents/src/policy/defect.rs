//! What can be wrong with a policy, its file, or an observation given to it.

use super::HeadError;
use coptidice_nn::NnError;
use std::path::PathBuf;

/// A policy file that cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// The operating system refused.
    #[error("{action} {path}", path = path.display())]
    Io {
        /// What was being done: "cannot read", "cannot write".
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file too large to be a policy.
    #[error("{path} is larger than {limit} bytes, too large for a policy; give the policy.safetensors of a run", path = path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Largest size read.
        limit: u64,
    },
    /// The content is no usable policy.
    #[error("{path} is not a usable policy", path = path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        defect: PolicyDefect,
    },
    /// A policy that is sound but cannot be written in this form.
    #[error("the policy cannot be written to {path}", path = path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// What stands in the way.
        #[source]
        defect: PolicyDefect,
    },
}

/// What makes a policy, in memory or in a file, unusable.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PolicyDefect {
    /// A unit of actions that is none.
    #[error("action.half of dimension {dimension} is {half}; it must be above 0")]
    ActionUnit {
        /// The action's dimension.
        dimension: usize,
        /// What was found, action units.
        half: f32,
    },
    /// Not the format at all: wrong magic, cut short, overlapping tensors.
    #[error("not a safetensors file: {reason}; it may be damaged or of another kind")]
    NotSafetensors {
        /// What the reader said.
        reason: String,
    },
    /// The header is larger than any policy's.
    #[error(
        "the file's header claims {bytes} bytes, more than the {limit} a policy's can have; the file is damaged"
    )]
    HeaderTooLarge {
        /// Size claimed.
        bytes: u64,
        /// Largest accepted.
        limit: u64,
    },
    /// More weights than a format, or this library's reader, takes.
    #[error(
        "{bytes} bytes of weights are more than the {limit} that {format} files hold; train a smaller network"
    )]
    TooLarge {
        /// "ONNX" or "policy".
        format: &'static str,
        /// Size of the weights.
        bytes: u64,
        /// Largest size.
        limit: u64,
    },
    /// Weights of something else.
    #[error("a safetensors file without the entry {key:?}: not written by this library")]
    NotAPolicy {
        /// The metadata entry looked for.
        key: &'static str,
    },
    /// Written by a version with another format.
    #[error(
        "policy format {found}, but this version of the library reads format {supported}; use the version that wrote it"
    )]
    UnknownVersion {
        /// Version in the file.
        found: u64,
        /// Version read here.
        supported: u64,
    },
    /// The metadata entry is not what it should be.
    #[error("the policy's metadata cannot be understood: {reason}")]
    Metadata {
        /// What the reader said, with line and column.
        reason: String,
    },
    /// A network that cannot be built.
    #[error("the policy's network is impossible")]
    Network(#[from] NnError),
    /// A head that cannot be.
    #[error("the policy's head is impossible")]
    Head(#[from] HeadError),
    /// Network and head disagree.
    #[error("the network gives {network} outputs where the head takes {head}")]
    Outputs {
        /// Outputs of the network.
        network: usize,
        /// Outputs the head takes.
        head: usize,
    },
    /// A tensor is not there.
    #[error("tensor {tensor:?} is missing; the file is incomplete")]
    MissingTensor {
        /// Its name.
        tensor: String,
    },
    /// A tensor that no policy of this shape has.
    #[error("tensor {tensor:?} does not belong to this policy")]
    UnexpectedTensor {
        /// Its name.
        tensor: String,
    },
    /// A tensor of another shape.
    #[error("tensor {tensor:?} has shape {found:?} where {expected:?} is needed")]
    TensorShape {
        /// Its name.
        tensor: String,
        /// Shape needed.
        expected: Vec<usize>,
        /// Shape found.
        found: Vec<usize>,
    },
    /// A tensor that is not of 32-bit floats.
    #[error("tensor {tensor:?} is of type {found}; F32 is needed")]
    TensorType {
        /// Its name.
        tensor: String,
        /// Type found.
        found: String,
    },
    /// NaN or infinity among the weights.
    #[error(
        "element {index} of tensor {tensor:?} is not a finite number; training diverged or the file is damaged"
    )]
    NotFinite {
        /// Name of the tensor.
        tensor: String,
        /// Index of the element, row-major.
        index: usize,
    },
    /// A normaliser that would erase or flip a column.
    #[error("the normaliser's scale of column {column} is {scale}; it must be positive")]
    Scale {
        /// The column, from 0.
        column: usize,
        /// Its scale.
        scale: f32,
    },
    /// Action bounds in the wrong order.
    #[error("action dimension {dimension} is bounded to [{low}, {high}], which is empty")]
    Bounds {
        /// The dimension, from 0.
        dimension: usize,
        /// Lower bound.
        low: f32,
        /// Upper bound.
        high: f32,
    },
    /// Names that do not fit the shapes.
    #[error("{found} {what} names where {expected} are needed (or none)")]
    Names {
        /// "observation" or "action".
        what: &'static str,
        /// Number needed.
        expected: usize,
        /// Number found.
        found: usize,
    },
    /// Acting by selection needs something to select by.
    #[error(
        "acting by select needs a selector, which only policies of extraction = \"guided_selection\" have"
    )]
    NoSelector,
    /// A selector that cannot be, or not with this head.
    #[error("the policy's selector is impossible: {reason}")]
    Selector {
        /// What is wrong.
        reason: &'static str,
    },
    /// The selector's network is of another policy.
    #[error(
        "the selector's network takes {} numbers and gives {}, where {} and {} are needed",
        found.0, found.1, expected.0, expected.1
    )]
    SelectorNetwork {
        /// Inputs and outputs needed.
        expected: (usize, usize),
        /// Inputs and outputs found.
        found: (usize, usize),
    },
    /// A limit on a cost nobody named.
    #[error("a limit on {cost:?}, which is not among the costs' names")]
    UnknownCost {
        /// The cost.
        cost: String,
    },
    /// A limit that is not a number.
    #[error("the limit on {cost:?} is not finite")]
    Limit {
        /// The cost.
        cost: String,
    },
}

/// An observation no action can be chosen for. The policy is never asked to guess.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ActError {
    /// Wrong number of values.
    #[error("{found} observed values where the policy takes {expected}")]
    ObservationLength {
        /// Columns of the policy, times the observations at once.
        expected: usize,
        /// Values given.
        found: usize,
    },
    /// Values that are not whole rows.
    #[error("{found} values are not whole observations of {columns} columns")]
    Rows {
        /// Columns of the policy.
        columns: usize,
        /// Values given.
        found: usize,
    },
    /// NaN or infinity.
    #[error("column {column} of observation {row} is {value}; a policy acts on finite numbers only")]
    NotFinite {
        /// The observation, from 0.
        row: usize,
        /// The column, from 0.
        column: usize,
        /// The value.
        value: f32,
    },
    /// The action's buffer has the wrong length.
    #[error("room for {found} values where actions take {expected}")]
    ActionLength {
        /// Numbers per action, times the actions at once.
        expected: usize,
        /// Room given.
        found: usize,
    },
    /// The observation is so far from the logs that the network overflows.
    #[error("observation {row} is so far from the logged ones that the network's output is not finite")]
    Overflow {
        /// The observation, from 0.
        row: usize,
    },
    /// Logged actions that are not of the policy's kind, number or range.
    #[error("the actions do not fit the policy: {reason}")]
    Actions {
        /// What does not fit.
        reason: String,
    },
    /// Asked to select without anything to select by.
    #[error(
        "acting by select needs a selector, which only policies of extraction = \"guided_selection\" have"
    )]
    NoSelector,
    /// Asked for indices or probabilities of actions where actions are continuous.
    #[error("continuous actions have no indices or probabilities; use act and log_prob")]
    Continuous,
}

impl ActError {
    /// The same of a row that comes after `rows` others.
    pub(super) fn after(self, rows: usize) -> Self {
        match self {
            ActError::NotFinite { row, column, value } => {
                ActError::NotFinite { row: rows + row, column, value }
            }
            ActError::Overflow { row } => ActError::Overflow { row: rows + row },
            other => other,
        }
    }
}
