//! Learners that turn logged transitions into a policy, and the policies they leave.
//!
//! # The problem
//!
//! From a log of transitions, find the policy that earns most while each cost stays under its limit when the policy is
//! deployed. The learners work in the space of occupancy ratios `w = d / d^D` (the paper's section 3): networks `nu`
//! and `chi` and the multipliers `lambda`, `tau`, `mu` minimise a convex dual on samples `x = (s0, s, a, r, c, s')`,
//! and the policy is drawn from `w`. Symbols are those of `coptidice_core`'s glossary.
//!
//! # The way through
//!
//! [`RawConfig`] (as written) and [`LogFacts`] make a [`TrainConfig`] (checked); [`train`] runs it on a log, reports to
//! an [`Observer`], keeps checkpoints, and ends in a [`TrainOutcome`]. Every algorithm is a folder with an entry in
//! [`registry`].

mod advantage;
mod balance;
mod bc;
pub mod cdmpo;
mod checkpoint;
pub mod config;
pub mod coptidice;
mod deploy;
mod estimate;
mod evaluation;
pub mod export;
mod extraction;
mod feasibility;
pub mod learner;
mod optidice;
pub mod policy;
pub mod problem;
pub mod registry;
pub mod sampler;
#[cfg(test)]
mod testing;
mod train;
mod trained;

pub use checkpoint::{CheckpointError, checkpoints};
pub use config::{ConfigError, LogFacts, RawConfig, TrainConfig};
pub use estimate::{CostEstimate, EstimateLimit, Estimates};
pub use evaluation::{Gap, PolicyEstimate, PolicyEvaluation};
pub use feasibility::{InfeasibleLimit, infeasible_limit};
pub use registry::Algorithm;
pub use train::{Observer, TrainError, TrainIo, TrainOutcome, policy_at, train};
