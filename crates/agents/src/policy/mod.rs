//! Policies: what learners leave behind, and what acts.
//!
//! # The problem
//!
//! A policy `π(a|s)` is a network from normalised observations to the outputs of a [`Head`], which parametrise a
//! distribution over actions, with, where there is one, a [`Selector`] that chooses among its likely actions. Learners
//! fit it by weighted behaviour cloning (`eq:weighted_bc`), among others; users load it from
//! `policy.safetensors`, act with it step by step ([`Actor`]) or over a file of observations
//! ([`Policy::act_batch`]), and ask for the probability of logged actions ([`Policy::log_prob`]).
//!
//! | symbol | shape | meaning |
//! |---|---|---|
//! | `observation` | `[O]` | as logged; the policy normalises it |
//! | `outputs` | `[B * head.outputs()]` | the network's outputs, row by row |
//! | `action` | `[A]`, or `[1]` | continuous action, clipped to the logged range; or the index of an action |
//! | `weights` | `[B]`, ≥ 0 | occupancy ratios `w` of the samples |

mod about;
mod acting;
mod actor;
mod categorical;
mod defect;
mod file;
mod head;
mod lanes;
mod learned;
mod mixture;
mod normalizer;
mod selector;
mod unit;

#[cfg(test)]
pub(crate) mod tests;

pub use about::{LimitAbout, PolicyAbout};
pub use acting::{Acting, UnknownActing};
pub use actor::Actor;
pub use defect::{ActError, PolicyDefect, PolicyError};
pub(crate) use file::write_whole;
pub use file::{FORMAT_VERSION, METADATA_KEY};
pub use head::{ActionBatch, Head, HeadError};
pub use learned::{Policy, PolicyParts};
pub use normalizer::{Normalizer, NormalizerError};
pub(crate) use selector::likely;
pub use selector::{Candidates, MAX_CANDIDATES, Selector};
pub use unit::ActionUnit;
pub(crate) use unit::map_to_range;
