//! What every environment offers, and the two ways of attaching a cost to a step.

use coptidice_core::CostLimit;
use coptidice_core::rng::Rng;
use serde::{Deserialize, Serialize};

use crate::error::SimError;

/// A simulated constrained MDP.
///
/// An environment is a state with parameters; [`Environment::fresh`] makes another one with the same
/// parameters, so that episodes can run side by side. All randomness comes from the stream given to
/// [`Environment::reset`], so an episode is a function of that stream and of the actions.
///
/// Costs belong to *states*: [`Environment::costs`] is defined right after a reset and after every step.
/// A step joins two states, and [`CostTiming`] says which of them pays.
pub trait Environment: Send + Sync {
    /// Shapes, bounds, cost names, horizon.
    fn spec(&self) -> &EnvSpec;

    /// Another environment with the same parameters. Its state is unspecified until it is reset.
    fn fresh(&self) -> Box<dyn Environment>;

    /// Starts an episode.
    fn reset(&mut self, rng: &mut Rng);

    /// The state in generalised coordinates.
    fn state(&self) -> PhysicsState;

    /// Puts the environment into a given state, as if it had just been reset into it.
    ///
    /// # Errors
    /// [`SimError::State`] if the lengths are not those of this environment, or a value is not finite.
    fn set_state(&mut self, state: &PhysicsState) -> Result<(), SimError>;

    /// Writes the observation of the current state, `[observation_dim]`.
    fn observe(&self, observation: &mut [f64]);

    /// Writes the costs of the current state, `[K]`.
    fn costs(&self, costs: &mut [f64]);

    /// Applies an action, `[action_dim]`, for one control step. Components outside the bounds are clipped to
    /// them; a discrete action is its id in the one component. Components have to be finite, and nothing stops
    /// a caller from going on after `terminal` or the horizon: rollouts do both checks.
    fn step(&mut self, action: &[f64]) -> StepResult;
}

/// What a step returns. Costs are read from [`Environment::costs`] before or after it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepResult {
    /// Reward of the step.
    pub reward: f64,
    /// Whether the process ended in the new state. The horizon is a time-out, not a terminal.
    pub terminal: bool,
}

/// A state in generalised coordinates.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PhysicsState {
    /// Positions.
    pub qpos: Vec<f64>,
    /// Velocities.
    pub qvel: Vec<f64>,
    /// Actuator activations; empty where actuators have no state.
    pub act: Vec<f64>,
}

/// Which of the two states of a step `s → s'` pays the step's cost.
///
/// Over an episode of `T` steps, with `c(t)` the cost of the `t`-th state, the first sums `c(0) … c(T−1)` and
/// the second `c(1) … c(T)`: they differ by `c(T) − c(0)`, at most one step's cost, and agree per step as `T`
/// grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CostTiming {
    /// `C(s, a) = c(s)`: the state in which the action was taken. Every log is written so, because a CMDP's
    /// cost is a function of state and action, known before the next state is.
    Before,
    /// `c(s')`: the state that the action led to. The real-world suite's tasks are evaluated so.
    After,
}

/// What an action is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "kind")]
pub enum ActionSpec {
    /// A vector of reals between bounds.
    Continuous {
        /// Smallest values, `[A]`.
        low: Vec<f64>,
        /// Largest values, `[A]`.
        high: Vec<f64>,
    },
    /// An id in `0..count`, carried as a number in one component.
    Discrete {
        /// Size of the set.
        count: usize,
    },
}

impl ActionSpec {
    /// Components between −1 and 1.
    #[must_use]
    pub fn unit(dim: usize) -> Self {
        ActionSpec::Continuous { low: vec![-1.0; dim], high: vec![1.0; dim] }
    }

    /// Numbers needed for one action: `A`, or 1 for an id.
    #[must_use]
    pub fn width(&self) -> usize {
        match self {
            ActionSpec::Continuous { low, .. } => low.len(),
            ActionSpec::Discrete { .. } => 1,
        }
    }

    /// Clips a continuous action `[A]` to the bounds; a discrete one is left alone.
    pub fn clip(&self, action: &mut [f32]) {
        if let ActionSpec::Continuous { low, high } = self {
            for ((a, &low), &high) in action.iter_mut().zip(low).zip(high) {
                *a = a.clamp(low as f32, high as f32);
            }
        }
    }

    /// The first component that is no action: not finite, or not an id of the set.
    #[must_use]
    pub fn misfit(&self, action: &[f32]) -> Option<usize> {
        action.iter().position(|&a| match self {
            ActionSpec::Continuous { .. } => !a.is_finite(),
            ActionSpec::Discrete { count } => !(a >= 0.0 && a < *count as f32 && a.fract() == 0.0),
        })
    }
}

/// One cost of an environment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CostSpec {
    /// Name, used as the column's name in logs.
    pub name: String,
    /// When a step costs.
    pub description: String,
    /// The limit used where the user gives none.
    pub default_limit: CostLimit,
    /// The per-step threshold of the paper's experiments, where the paper has this task.
    pub paper_threshold: Option<f64>,
}

/// Shapes, bounds and conventions of an environment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EnvSpec {
    /// Registered name, as in `rwrl/cartpole-swingup`.
    pub name: String,
    /// One name for each component of the observation, in order.
    pub observation_names: Vec<String>,
    /// What an action is.
    pub action: ActionSpec,
    /// The costs, `[K]`, in order.
    pub costs: Vec<CostSpec>,
    /// Steps after which an episode is cut by a time-out.
    pub horizon: usize,
    /// Which state pays when a policy is evaluated.
    pub evaluation_timing: CostTiming,
}

impl EnvSpec {
    /// Components of an observation.
    #[must_use]
    pub fn observation_dim(&self) -> usize {
        self.observation_names.len()
    }

    /// The names of the costs, `[K]`.
    #[must_use]
    pub fn cost_names(&self) -> Vec<String> {
        self.costs.iter().map(|cost| cost.name.clone()).collect()
    }

    /// The default limits, `[K]`.
    #[must_use]
    pub fn default_limits(&self) -> Vec<CostLimit> {
        self.costs.iter().map(|cost| cost.default_limit).collect()
    }

    /// Whether a policy of these shapes can act here.
    ///
    /// # Errors
    /// [`SimError::Shape`] naming what differs.
    pub fn check_shapes(&self, observation_dim: usize, action_width: usize) -> Result<(), SimError> {
        let check = |what, policy: usize, environment: usize| {
            if policy == environment {
                Ok(())
            } else {
                Err(SimError::Shape { name: self.name.clone(), what, policy, environment })
            }
        };
        check("observation", observation_dim, self.observation_dim())?;
        check("action", action_width, self.action.width())
    }
}

/// Checks a state's lengths and values against what an environment has.
pub(crate) fn check_state(
    name: &str,
    state: &PhysicsState,
    qpos: usize,
    qvel: usize,
    act: usize,
) -> Result<(), SimError> {
    for (what, values, expected) in
        [("qpos", &state.qpos, qpos), ("qvel", &state.qvel, qvel), ("act", &state.act, act)]
    {
        if values.len() != expected || values.iter().any(|v| !v.is_finite()) {
            return Err(SimError::State { name: name.to_owned(), what, found: values.len(), expected });
        }
    }
    Ok(())
}

/// Owned strings of a list of names.
pub(crate) fn names(list: &[&str]) -> Vec<String> {
    list.iter().map(|&name| name.to_owned()).collect()
}
