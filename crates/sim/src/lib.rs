//! Simulated constrained MDPs, rollouts on all cores, evaluation of policies, and the recording of logs.
//!
//! | module | |
//! |---|---|
//! | [`env`] | the [`Environment`] trait and the conventions about costs |
//! | [`registry`] | environments by name: [`make`] |
//! | [`rwrl`] | tasks of the real-world suite |
//! | [`hazard`] | navigation past a hazard, and logs of it |
//! | [`rollout`] | episodes side by side, the same whatever the number of threads |
//! | [`evaluate`](mod@evaluate) | returns, costs and their standard errors |
//! | [`collect`](mod@collect) | rollouts as logs |
//! | [`trace`] | comparison with recorded traces of another simulator |
//!
//! ```
//! use coptidice_core::rng::Rng;
//! use coptidice_sim::{EvaluateOptions, evaluate, make};
//!
//! let env = make("nav/hazard")?;
//! let push_right = |_observation: &[f32], _rng: &mut Rng, action: &mut [f32]| action.copy_from_slice(&[1.0, 0.0]);
//! let figures = evaluate(env.as_ref(), &push_right, &EvaluateOptions::new(10, 1))?;
//! assert!(figures.cost_per_step > Some(0.02), "straight through costs more than the limit");
//! # Ok::<(), coptidice_sim::SimError>(())
//! ```

pub mod collect;
pub mod env;
pub mod error;
pub mod evaluate;
pub mod hazard;
pub mod registry;
pub mod rollout;
pub mod rwrl;
pub mod tolerance;
pub mod trace;

pub use collect::{CollectedLog, EpisodeRecord, collect, record_episodes};
pub use env::{ActionSpec, CostSpec, CostTiming, EnvSpec, Environment, PhysicsState, StepResult};
pub use error::SimError;
pub use evaluate::{CostFigures, EpisodeFigures, EpisodePath, EvaluateOptions, Evaluation, evaluate};
pub use registry::{EnvOptions, make, make_with};
pub use rollout::{
    Actor, Crew, CrewSource, EpisodeRunner, EpisodeSink, Episodes, OneByOne, PerRow, PerThread, StepView,
    run_episodes,
};
pub use trace::{Replay, Trace, TraceError, replay};
