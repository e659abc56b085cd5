//! Tasks of the real-world reinforcement learning suite, in the form in which the paper uses them: 1000 steps,
//! no early end, undiscounted returns, no noise, delays or perturbations.
//!
//! | name | simulator | constraints, the paper's first |
//! |---|---|---|
//! | `rwrl/cartpole-swingup` | native: [`CartPole`] | `slider_position`, `slider_acceleration`, `balance_velocity` |
//! | `rwrl/cartpole-swingup-mujoco` | MuJoCo | the same |
//! | `rwrl/walker-walk` | MuJoCo | `joint_velocity`, `joint_angle`, `dangerous_fall`, `torso_upright` |
//! | `rwrl/quadruped-walk` | MuJoCo | `joint_angle`, `joint_velocity`, `upright`, `foot_force` |
//! | `rwrl/humanoid-walk` | MuJoCo | `joint_angle`, `joint_velocity`, `upright`, `dangerous_fall`, `foot_force` |
//!
//! The tasks on MuJoCo need the feature `mujoco`; without it asking for one is an error that says how to get it.
//! Each task's module documents its observation, reward, constraints and start.
//!
//! **Costs.** A state costs 1 where it violates a constraint. `safety_coeff`, `c` in the tables, scales all of
//! them: 1 gives the suite's own limits, less is tighter. By default the paper's constraint is the one cost, with
//! the paper's coefficient and threshold; [`crate::EnvOptions`] chooses others, or all.
//!
//! Logs attach a step's cost to the state before the action, evaluation to the state after it
//! ([`crate::CostTiming`]).

mod cartpole;
mod constraints;
mod dynamics;
#[cfg(feature = "mujoco")]
pub(crate) mod mujoco;

pub use cartpole::CartPole;

/// Control steps of an episode, of every task.
const HORIZON: usize = 1000;
