//! Random CMDPs, the policies that collect data on them, and the trajectories those policies leave behind.
//!
//! | paper | here |
//! |---|---|
//! | random CMDP generation, appendix "Experimental Settings" | [`RandomCmdpConfig::draw`] |
//! | data-collection policy, algorithm 2 | [`BehaviourBuilder::build`] |
//! | limited action support, algorithm 3 | [`limited_support_behaviour`] |
//! | trajectories of at most 50 steps | [`TrajectorySampler`] |
//! | maximum-likelihood CMDP | [`estimated_model`] |

mod behaviour;
mod error;
mod estimate;
mod limited;
mod random_cmdp;
mod trajectories;

pub use behaviour::{Behaviour, BehaviourBuilder, BehaviourConfig};
pub use error::GenerateError;
pub use estimate::estimated_model;
pub use limited::limited_support_behaviour;
pub use random_cmdp::{FreeAction, INITIAL_STATE, RandomCmdp, RandomCmdpConfig};
pub use trajectories::{Episodes, StepRecord, TrajectorySampler, count_episodes, counts_of_table};
