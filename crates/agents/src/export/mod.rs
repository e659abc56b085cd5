//! Policies in the form other programs run: `policy.onnx`.
//!
//! The file needs nothing of this library: normalisation, network, head, choice of action and clipping to the action's
//! bounds are all inside. See [`to_onnx`] for inputs and outputs.

mod graph;
mod onnx;
mod proto;

#[cfg(test)]
mod tests;

pub use onnx::{exported_acting, save_onnx, to_onnx};
