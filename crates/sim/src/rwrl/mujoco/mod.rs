//! The suite's tasks on MuJoCo: models from the suite's files, steps and resets in the suite's order.

mod cartpole;
mod humanoid;
mod model;
mod physics;
mod quadruped;
mod walker;

use std::sync::Arc;

use coptidice_core::rng::Rng;
use mujoco_rs::wrappers::MjSpec;

use super::HORIZON;
use super::constraints::{Constraint, Paper, Safety};
use crate::env::{ActionSpec, CostTiming, EnvSpec, Environment, PhysicsState, StepResult, check_state};
use crate::error::SimError;
use crate::registry::EnvOptions;
use model::Names;
use physics::Physics;

/// A task of the suite: where things are in its model, and what is made of them.
trait Task: Clone + Send + Sync + Sized + 'static {
    /// Registered name.
    const NAME: &'static str;
    /// The model's file.
    const XML: &'static [u8];
    /// Physics steps of a control step.
    const SUBSTEPS: usize;
    /// The paper's numbers, about the first of [`Task::CONSTRAINTS`].
    const PAPER: Paper;
    /// The suite's constraints.
    const CONSTRAINTS: &'static [Constraint<Scene<Self>>];

    /// What is changed in the model before it is compiled.
    fn edit(spec: &mut MjSpec) -> Result<(), String> {
        let _ = spec;
        Ok(())
    }

    /// Finds the task's parts in the model.
    fn find(names: &Names<'_>) -> Result<Self, String>;

    /// One name for each component of the observation.
    fn observation_names(names: &Names<'_>) -> Vec<String>;

    /// Draws a start and puts the physics there.
    fn start(&self, physics: &mut Physics, rng: &mut Rng);

    /// Writes the observation.
    fn observe(scene: &Scene<Self>, observation: &mut [f64]);

    /// Reward of the step that led here.
    fn reward(scene: &Scene<Self>) -> f64;
}

/// A task and the state it is in.
#[derive(Clone, Debug)]
struct Scene<T> {
    task: T,
    physics: Physics,
}

/// A task as an environment.
#[derive(Clone, Debug)]
struct Simulated<T: Task> {
    spec: Arc<EnvSpec>,
    safety: Safety<Scene<T>>,
    scene: Scene<T>,
}

/// `rwrl/cartpole-swingup-mujoco`.
pub(crate) fn cartpole(options: &EnvOptions) -> Result<Box<dyn Environment>, SimError> {
    make::<cartpole::CartPole>(options)
}

/// `rwrl/walker-walk`.
pub(crate) fn walker(options: &EnvOptions) -> Result<Box<dyn Environment>, SimError> {
    make::<walker::Walker>(options)
}

/// `rwrl/quadruped-walk`.
pub(crate) fn quadruped(options: &EnvOptions) -> Result<Box<dyn Environment>, SimError> {
    make::<quadruped::Quadruped>(options)
}

/// `rwrl/humanoid-walk`.
pub(crate) fn humanoid(options: &EnvOptions) -> Result<Box<dyn Environment>, SimError> {
    make::<humanoid::Humanoid>(options)
}

/// The task with the given options, or the paper's.
fn make<T: Task>(options: &EnvOptions) -> Result<Box<dyn Environment>, SimError> {
    let safety = Safety::resolve(T::NAME, T::CONSTRAINTS, T::PAPER, options)?;
    let refused = |reason| SimError::Model { name: T::NAME, reason };
    let model = model::load(T::XML, T::edit).map_err(refused)?;
    let names = Names::new(&model);
    let task = T::find(&names).map_err(refused)?;
    let (low, high) = names.control_bounds();
    let spec = EnvSpec {
        name: T::NAME.to_owned(),
        observation_names: T::observation_names(&names),
        action: ActionSpec::Continuous { low, high },
        costs: safety.specs(),
        horizon: HORIZON,
        evaluation_timing: CostTiming::After,
    };
    let physics = Physics::new(model, T::SUBSTEPS);
    Ok(Box::new(Simulated { spec: Arc::new(spec), safety, scene: Scene { task, physics } }))
}

impl<T: Task> Environment for Simulated<T> {
    fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    fn fresh(&self) -> Box<dyn Environment> {
        Box::new(self.clone())
    }

    fn reset(&mut self, rng: &mut Rng) {
        self.scene.task.start(&mut self.scene.physics, rng);
    }

    fn state(&self) -> PhysicsState {
        self.scene.physics.state()
    }

    fn set_state(&mut self, state: &PhysicsState) -> Result<(), SimError> {
        let physics = &mut self.scene.physics;
        check_state(T::NAME, state, physics.qpos().len(), physics.qvel().len(), physics.act().len())?;
        physics.reset_to(&state.qpos, &state.qvel, &state.act);
        Ok(())
    }

    fn observe(&self, observation: &mut [f64]) {
        T::observe(&self.scene, observation);
    }

    fn costs(&self, costs: &mut [f64]) {
        self.safety.costs(&self.scene, costs);
    }

    fn step(&mut self, action: &[f64]) -> StepResult {
        let ActionSpec::Continuous { low, high } = &self.spec.action else {
            unreachable!("every task of the suite has continuous actions");
        };
        let bounds = low.iter().zip(high);
        self.scene.physics.step(action.iter().zip(bounds).map(|(a, (&low, &high))| a.clamp(low, high)));
        StepResult { reward: T::reward(&self.scene), terminal: false }
    }
}

/// Writes consecutive parts of an observation.
struct Writer<'a> {
    rest: &'a mut [f64],
}

impl<'a> Writer<'a> {
    fn new(observation: &'a mut [f64]) -> Self {
        Writer { rest: observation }
    }

    fn put(&mut self, values: &[f64]) {
        let (head, rest) = std::mem::take(&mut self.rest).split_at_mut(values.len());
        head.copy_from_slice(values);
        self.rest = rest;
    }
}

/// `v` in the frame whose axes are the columns of `frame` (row-major), as the suite's egocentric positions.
fn in_frame(v: [f64; 3], frame: &[f64; 9]) -> [f64; 3] {
    std::array::from_fn(|j| v[0] * frame[j] + v[1] * frame[3 + j] + v[2] * frame[6 + j])
}

/// The largest absolute value; 0 of nothing. NaN wins, so that it violates every bound.
fn largest(values: &[f64]) -> f64 {
    let larger = |most: f64, value: f64| if most.is_nan() || value <= most { most } else { value };
    values.iter().map(|value| value.abs()).fold(0.0, larger)
}

/// Places in a body's rotation matrix, row-major.
mod axis {
    pub(super) const XX: usize = 0;
    pub(super) const XZ: usize = 2;
    pub(super) const ZX: usize = 6;
    pub(super) const ZZ: usize = 8;
}

#[cfg(test)]
mod tests;
