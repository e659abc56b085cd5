//! One episode after another in an environment of one's own.

use coptidice_core::rng::Rng;

use super::{Actor, StepView};
use crate::env::Environment;
use crate::error::SimError;

/// An environment with the buffers that an episode needs.
pub(super) struct Lane {
    env: Box<dyn Environment>,
    episode: u64,
    step: usize,
    wide: Vec<f64>,
    observation: Vec<f32>,
    next_observation: Vec<f32>,
    wide_action: Vec<f64>,
    costs: Vec<f64>,
    next_costs: Vec<f64>,
}

impl Lane {
    /// Another environment with the parameters of this one.
    pub(super) fn new(env: &dyn Environment) -> Self {
        let env = env.fresh();
        let (observation, action, costs) =
            (env.spec().observation_dim(), env.spec().action.width(), env.spec().costs.len());
        Lane {
            env,
            episode: 0,
            step: 0,
            wide: vec![0.0; observation],
            observation: vec![0.0; observation],
            next_observation: vec![0.0; observation],
            wide_action: vec![0.0; action],
            costs: vec![0.0; costs],
            next_costs: vec![0.0; costs],
        }
    }

    /// The present observation, `[O]`.
    pub(super) fn observation(&self) -> &[f32] {
        &self.observation
    }

    /// Starts an episode. `episode` only names it in errors.
    pub(super) fn begin(&mut self, episode: u64, rng: &mut Rng) -> Result<(), SimError> {
        (self.episode, self.step) = (episode, 0);
        self.env.reset(rng);
        self.read()?;
        self.proceed();
        Ok(())
    }

    /// Does `action`, `[A]`, which is clipped first, and shows the step to `visit`. Whether the episode is over.
    pub(super) fn step(
        &mut self,
        action: &mut [f32],
        visit: impl FnOnce(&StepView<'_>),
    ) -> Result<bool, SimError> {
        let (episode, step, spec) = (self.episode, self.step, self.env.spec());
        let horizon = spec.horizon;
        if let Some(component) = spec.action.misfit(action) {
            return Err(SimError::Action { episode, step, component, value: action[component] });
        }
        spec.action.clip(action);
        for (wide, &narrow) in self.wide_action.iter_mut().zip(&*action) {
            *wide = f64::from(narrow);
        }
        let result = self.env.step(&self.wide_action);
        self.read()?;
        let timeout = !result.terminal && step + 1 == horizon;
        visit(&StepView {
            step,
            observation: &self.observation,
            action,
            reward: result.reward,
            costs_before: &self.costs,
            costs_after: &self.next_costs,
            next_observation: &self.next_observation,
            terminal: result.terminal,
            timeout,
        });
        self.step += 1;
        self.proceed();
        Ok(result.terminal || timeout)
    }

    /// What came next is the present.
    fn proceed(&mut self) {
        std::mem::swap(&mut self.observation, &mut self.next_observation);
        std::mem::swap(&mut self.costs, &mut self.next_costs);
    }

    /// Reads the current state into the `next` buffers.
    fn read(&mut self) -> Result<(), SimError> {
        self.env.observe(&mut self.wide);
        self.env.costs(&mut self.next_costs);
        if self.wide.iter().any(|value| !value.is_finite()) {
            return Err(SimError::Diverged { episode: self.episode, step: self.step });
        }
        for (narrow, &wide) in self.next_observation.iter_mut().zip(&self.wide) {
            *narrow = wide as f32;
        }
        Ok(())
    }
}

/// Runs episodes one at a time.
pub struct EpisodeRunner {
    lane: Lane,
    action: Vec<f32>,
}

impl std::fmt::Debug for EpisodeRunner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EpisodeRunner").field("env", &self.lane.env.spec().name).finish_non_exhaustive()
    }
}

impl EpisodeRunner {
    /// Runs episodes in another environment with the parameters of this one.
    #[must_use]
    pub fn new(env: &dyn Environment) -> Self {
        EpisodeRunner { lane: Lane::new(env), action: vec![0.0; env.spec().action.width()] }
    }

    /// Runs one episode to its terminal or its horizon and shows every step to `visit`.
    ///
    /// # Errors
    /// If the actor returns something that is no action, or the simulation leaves the finite numbers.
    pub fn run(
        &mut self,
        episode: u64,
        actor: &mut impl Actor,
        env_rng: &mut Rng,
        actor_rng: &mut Rng,
        mut visit: impl FnMut(&StepView<'_>),
    ) -> Result<(), SimError> {
        let Self { lane, action } = self;
        lane.begin(episode, env_rng)?;
        actor.begin_episode(episode, lane.observation(), actor_rng);
        loop {
            actor.act(lane.observation(), actor_rng, action);
            if lane.step(action, &mut visit)? {
                return Ok(());
            }
        }
    }
}
