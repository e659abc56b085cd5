//! Episodes of an environment under an actor, several at once, with results that do not depend on how many
//! threads there are.
//!
//! Episode `i` of a seed draws its start (and whatever else the environment draws) from the stream `(seed,
//! "episode", i)` and its actions from `(seed, "actor", i)`. So an episode is a function of the seed, its
//! number and the actor, two actors meet the same starts, and results are gathered in the order of episodes.

use coptidice_core::rng::{Rng, stream};
use rayon::prelude::*;

use crate::env::Environment;
use crate::error::SimError;

/// Chooses actions in one episode at a time.
///
/// An actor may keep scratch and, from [`Actor::begin_episode`] on, a memory of the episode; what it does may
/// depend on nothing older, or results would depend on which thread ran which episode.
pub trait Actor {
    /// Called with the first observation `[O]` of an episode, before [`Actor::act`] is called with the same.
    fn begin_episode(&mut self, observation: &[f32], rng: &mut Rng) {
        let _ = (observation, rng);
    }

    /// Writes the action for an observation `[O]`: `[A]`, or an id in one component. Continuous components are
    /// clipped to the environment's bounds afterwards.
    fn act(&mut self, observation: &[f32], rng: &mut Rng, action: &mut [f32]);
}

impl<F: FnMut(&[f32], &mut Rng, &mut [f32])> Actor for F {
    fn act(&mut self, observation: &[f32], rng: &mut Rng, action: &mut [f32]) {
        self(observation, rng, action);
    }
}

/// Makes an actor for each thread. A closure `Fn(&[f32], &mut Rng, &mut [f32]) + Sync` without memory is one;
/// [`PerThread`] wraps a function that makes actors with scratch or memory.
pub trait ActorSource: Sync {
    /// What it makes; may borrow from the source.
    type Actor<'a>: Actor
    where
        Self: 'a;

    /// A new actor.
    fn actor(&self) -> Self::Actor<'_>;
}

impl<F: Fn(&[f32], &mut Rng, &mut [f32]) + Sync> ActorSource for F {
    type Actor<'a>
        = &'a F
    where
        F: 'a;

    fn actor(&self) -> &F {
        self
    }
}

/// A function that makes actors, as a source of them.
#[derive(Clone, Copy, Debug)]
pub struct PerThread<F>(pub F);

impl<A: Actor, F: Fn() -> A + Sync> ActorSource for PerThread<F> {
    type Actor<'a>
        = A
    where
        F: 'a;

    fn actor(&self) -> A {
        (self.0)()
    }
}

/// Which episodes to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Episodes {
    /// How many.
    pub count: usize,
    /// Seed.
    pub seed: u64,
    /// Number of the first; others follow. Lets a run be split without changing it.
    pub first: u64,
}

impl Episodes {
    /// Episodes `0..count`.
    #[must_use]
    pub fn new(count: usize, seed: u64) -> Self {
        Episodes { count, seed, first: 0 }
    }
}

/// One step as it happened.
#[derive(Clone, Copy, Debug)]
pub struct StepView<'a> {
    /// Number of the step in its episode, from 0.
    pub step: usize,
    /// `s`, `[O]`.
    pub observation: &'a [f32],
    /// The action applied, clipped: `[A]`, or an id in one component.
    pub action: &'a [f32],
    /// Reward.
    pub reward: f64,
    /// Costs of `s`, `[K]`: [`crate::CostTiming::Before`].
    pub costs_before: &'a [f64],
    /// Costs of `s'`, `[K]`: [`crate::CostTiming::After`].
    pub costs_after: &'a [f64],
    /// `s'`, `[O]`.
    pub next_observation: &'a [f32],
    /// The process ended in `s'`.
    pub terminal: bool,
    /// The episode was cut here by the horizon, without a terminal.
    pub timeout: bool,
}

/// An environment with the buffers that an episode needs.
pub struct EpisodeRunner {
    env: Box<dyn Environment>,
    wide: Vec<f64>,
    observation: Vec<f32>,
    next_observation: Vec<f32>,
    action: Vec<f32>,
    wide_action: Vec<f64>,
    costs: Vec<f64>,
    next_costs: Vec<f64>,
}

impl std::fmt::Debug for EpisodeRunner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EpisodeRunner").field("env", &self.env.spec().name).finish_non_exhaustive()
    }
}

impl EpisodeRunner {
    /// Runs episodes in another environment with the parameters of this one.
    #[must_use]
    pub fn new(env: &dyn Environment) -> Self {
        let env = env.fresh();
        let (observation, action, costs) =
            (env.spec().observation_dim(), env.spec().action.width(), env.spec().costs.len());
        EpisodeRunner {
            env,
            wide: vec![0.0; observation],
            observation: vec![0.0; observation],
            next_observation: vec![0.0; observation],
            action: vec![0.0; action],
            wide_action: vec![0.0; action],
            costs: vec![0.0; costs],
            next_costs: vec![0.0; costs],
        }
    }

    /// Runs one episode to its terminal or its horizon and shows every step to `visit`. `episode` only names it
    /// in errors.
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
        let horizon = self.env.spec().horizon;
        self.env.reset(env_rng);
        self.read(episode, 0)?;
        std::mem::swap(&mut self.observation, &mut self.next_observation);
        std::mem::swap(&mut self.costs, &mut self.next_costs);
        actor.begin_episode(&self.observation, actor_rng);
        for step in 0..horizon {
            actor.act(&self.observation, actor_rng, &mut self.action);
            let spec = &self.env.spec().action;
            if let Some(component) = spec.misfit(&self.action) {
                return Err(SimError::Action { episode, step, component, value: self.action[component] });
            }
            spec.clip(&mut self.action);
            for (wide, &narrow) in self.wide_action.iter_mut().zip(&self.action) {
                *wide = f64::from(narrow);
            }
            let result = self.env.step(&self.wide_action);
            self.read(episode, step)?;
            visit(&StepView {
                step,
                observation: &self.observation,
                action: &self.action,
                reward: result.reward,
                costs_before: &self.costs,
                costs_after: &self.next_costs,
                next_observation: &self.next_observation,
                terminal: result.terminal,
                timeout: !result.terminal && step + 1 == horizon,
            });
            if result.terminal {
                break;
            }
            std::mem::swap(&mut self.observation, &mut self.next_observation);
            std::mem::swap(&mut self.costs, &mut self.next_costs);
        }
        Ok(())
    }

    /// Reads the current state into the `next` buffers.
    fn read(&mut self, episode: u64, step: usize) -> Result<(), SimError> {
        self.env.observe(&mut self.wide);
        self.env.costs(&mut self.next_costs);
        if self.wide.iter().any(|value| !value.is_finite()) {
            return Err(SimError::Diverged { episode, step });
        }
        for (narrow, &wide) in self.next_observation.iter_mut().zip(&self.wide) {
            *narrow = wide as f32;
        }
        Ok(())
    }
}

/// Collects what is wanted of one episode.
pub trait EpisodeSink: Send {
    /// Takes a step.
    fn step(&mut self, step: &StepView<'_>);
}

/// Runs episodes on all threads of the current rayon pool and returns one sink for each, in order. `sink` gets
/// the number of the episode.
///
/// # Errors
/// [`SimError::NoEpisodes`], or the error of the first episode that failed.
pub fn run_episodes<S: EpisodeSink>(
    env: &dyn Environment,
    actors: &impl ActorSource,
    episodes: Episodes,
    sink: impl Fn(u64) -> S + Sync,
) -> Result<Vec<S>, SimError> {
    if episodes.count == 0 {
        return Err(SimError::NoEpisodes);
    }
    let results: Vec<Result<S, SimError>> = (0..episodes.count)
        .into_par_iter()
        .map_init(
            || (EpisodeRunner::new(env), actors.actor()),
            |(runner, actor), offset| {
                let episode = episodes.first + offset as u64;
                let mut sink = sink(episode);
                let mut env_rng = stream(episodes.seed, "episode", episode);
                let mut actor_rng = stream(episodes.seed, "actor", episode);
                runner.run(episode, actor, &mut env_rng, &mut actor_rng, |step| sink.step(step))?;
                Ok(sink)
            },
        )
        .collect();
    results.into_iter().collect()
}
