//! What can be wrong with a request to generate.

use coptidice_core::CmdpError;

use crate::dice::DiceError;
use crate::outcome::Outcome;

/// A request that nothing can be generated from.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum GenerateError {
    /// A setting outside its range.
    #[error("setting `{field}`: {why}")]
    Setting {
        /// Name of the field.
        field: &'static str,
        /// What to give instead.
        why: &'static str,
    },
    /// No state can be reached from the start.
    #[error("no state but the first can be reached; give more states or a larger connectivity")]
    NothingReachable,
    /// Costs under which the limit binds were not found.
    #[error(
        "in {draws} draws of the costs the best policy never cost as much as the limit {limit}; give a smaller limit"
    )]
    NeverBinds {
        /// Limit asked for, cost units per step.
        limit: f64,
        /// Draws made.
        draws: u32,
    },
    /// No behaviour meets the limit.
    #[error("a behaviour with cost {limit} per step: {outcome}; give a limit that some policy meets")]
    Behaviour {
        /// Limit asked for, cost units per step.
        limit: f64,
        /// What the solver says.
        outcome: Outcome,
    },
    /// No temperature makes the behaviour as poor as asked for.
    #[error(
        "the behaviour earns {reward} at the highest temperature, above the target {target}; raise `optimality`"
    )]
    Target {
        /// Reward to fall to, per step.
        target: f64,
        /// Reward of the last policy, per step.
        reward: f64,
    },
    /// The projection could not be posed.
    #[error(transparent)]
    Dice(#[from] DiceError),
    /// The parts do not fit each other.
    #[error(transparent)]
    Cmdp(#[from] CmdpError),
}
