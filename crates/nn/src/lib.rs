//! The network engine: multilayer perceptrons with explicit forward, backward and second-order passes, and Adam.
//!
//! # The problem
//!
//! Training evaluates a few small networks on batches and moves their parameters down a gradient. The networks are
//! known in advance, so there is no graph: each block has a forward pass, its adjoint, and the tangents of both
//! (for the exact gradient of a penalty on the input gradient).
//!
//! | symbol | shape | meaning |
//! |---|---|---|
//! | `params`, `grads` | `[P]` | all parameters of a network, flat, laid out as [`Network::layout`] says |
//! | `x` | `[B * input]` | a batch, row-major, one sample per row |
//! | `out`, `d_out` | `[B * output]` | the result and the loss's derivative with respect to it |
//!
//! # Threads and reproducibility
//!
//! Work is cut at places that depend on shapes alone and sums are taken in a fixed order, so results are the same
//! bits for any number of threads of a [`Pool`] on one machine. They may differ in the last bits between
//! processors, whose matrix kernels differ.

mod acting;
mod adam;
mod cache;
mod error;
mod gradients;
mod kernels;
pub mod math;
mod network;
mod passes;
mod penalty;
mod pool;
mod precision;
mod product;
mod simd;
mod spec;

pub use acting::{ForwardRoom, ForwardWeights};
pub use adam::{Adam, exponential_average};
pub use cache::Cache;
pub use error::NnError;
pub use network::{Network, Penalty};
pub use pool::Pool;
pub use precision::Precision;
pub use simd::{Kernel, run_vectorised, vectorised};
pub use spec::{Activation, BlockSpec, MAX_PARAMETERS, NetworkSpec, ParamSlice};
