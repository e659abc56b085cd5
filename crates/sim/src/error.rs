//! What can go wrong in a simulation.

use coptidice_data::BuildError;

/// A simulation that cannot start or go on.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SimError {
    /// No environment of that name.
    #[error("there is no environment {name:?}; known are {}", known.join(", "))]
    UnknownEnvironment {
        /// What was asked for.
        name: String,
        /// The registered names.
        known: Vec<&'static str>,
    },
    /// An option that the environment does not have.
    #[error("environment {name} has no option {option}; leave it out")]
    UnknownOption {
        /// The environment.
        name: &'static str,
        /// The option.
        option: &'static str,
    },
    /// An option with a value that makes no sense.
    #[error("option {option} of environment {name} is {value}; it has to be a positive number")]
    OptionValue {
        /// The environment.
        name: &'static str,
        /// The option.
        option: &'static str,
        /// Its value.
        value: f64,
    },
    /// The task has no such constraint.
    #[error("{name} has no constraint {constraint:?}; there are {}", known.join(", "))]
    UnknownConstraint {
        /// The environment.
        name: &'static str,
        /// What was asked for.
        constraint: String,
        /// What can be asked for.
        known: Vec<&'static str>,
    },
    /// A constraint was asked for twice.
    #[error("constraint {constraint} of {name} is asked for twice; once is enough")]
    RepeatedConstraint {
        /// The environment.
        name: &'static str,
        /// The constraint.
        constraint: String,
    },
    /// The program was built without the simulator.
    #[error(
        "{name} runs on MuJoCo, which this program was built without; run `cargo xtask mujoco` in the source \
         tree, then build with `--features mujoco`"
    )]
    NeedsMujoco {
        /// The environment.
        name: &'static str,
    },
    /// The simulator refuses the task's model.
    #[error("the model of {name} cannot be used: {reason}; run `cargo xtask mujoco` and build again")]
    Model {
        /// The environment.
        name: &'static str,
        /// What the simulator says.
        reason: String,
    },
    /// The policy was made for another environment.
    #[error(
        "{name} has {what}s of {environment} components, the policy's have {policy}; \
         evaluate it on the environment that its logs came from"
    )]
    Shape {
        /// The environment.
        name: String,
        /// `observation` or `action`.
        what: &'static str,
        /// Components on the policy's side.
        policy: usize,
        /// Components on the environment's side.
        environment: usize,
    },
    /// A state that the environment cannot be in.
    #[error(
        "{what} of {name} has to be {expected} finite numbers; got {found} numbers, or one that is not finite"
    )]
    State {
        /// The environment.
        name: String,
        /// `qpos`, `qvel` or `act`.
        what: &'static str,
        /// Numbers found.
        found: usize,
        /// Numbers expected.
        expected: usize,
    },
    /// The actor returned something that is no action.
    #[error(
        "episode {episode}, step {step}: component {component} of the action is {value}, which is no action"
    )]
    Action {
        /// Number of the episode.
        episode: u64,
        /// Step in the episode.
        step: usize,
        /// Component of the action.
        component: usize,
        /// Its value.
        value: f32,
    },
    /// The simulation left the finite numbers.
    #[error("episode {episode}, step {step}: the simulated state is no longer finite")]
    Diverged {
        /// Number of the episode.
        episode: u64,
        /// Step in the episode.
        step: usize,
    },
    /// Nothing to simulate.
    #[error("0 episodes asked for; ask for at least 1")]
    NoEpisodes,
    /// One limit for each cost is needed.
    #[error("{name} has {costs} cost(s), but {limits} limit(s) were given; give one for each")]
    LimitCount {
        /// The environment.
        name: String,
        /// Costs of the environment.
        costs: usize,
        /// Limits given.
        limits: usize,
    },
    /// A share outside 0 to 1.
    #[error("the share of safe episodes is {0}; it has to be between 0 and 1")]
    Share(f64),
    /// The rows do not make a log.
    #[error(transparent)]
    Log(#[from] BuildError),
}
