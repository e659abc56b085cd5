//! Tasks of the real-world reinforcement learning suite, in the form in which the paper uses them: 1000 steps,
//! no early end, undiscounted returns, no noise, delays or perturbations; one safety constraint each.
//!
//! Logs attach a step's cost to the state before the action, evaluation to the state after it
//! ([`crate::CostTiming`]).

mod cartpole;
mod dynamics;

pub use cartpole::CartPole;
