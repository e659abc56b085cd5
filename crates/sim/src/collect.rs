//! Recording logs: rollouts written as transitions.
//!
//! A row's cost is that of the state *before* its action ([`crate::CostTiming::Before`]), whatever timing the
//! environment is evaluated with, and an episode cut by the horizon ends in a time-out, through which values
//! are bootstrapped.

use coptidice_data::{ActionSpace, Schema, Step, StepAction, Transitions, TransitionsBuilder};

use crate::env::{ActionSpec, EnvSpec, Environment};
use crate::error::SimError;
use crate::rollout::{CrewSource, EpisodeSink, Episodes, StepView, run_episodes};

/// Episodes run side by side before they are handed on, which bounds the memory.
const CHUNK: usize = 64;

/// One recorded episode of `T` steps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EpisodeRecord {
    observation_dim: usize,
    action_width: usize,
    cost_count: usize,
    /// `[T + 1, O]`.
    observations: Vec<f32>,
    /// `[T, A]`, or ids `[T]`.
    actions: Vec<f32>,
    rewards: Vec<f64>,
    /// Costs of the states before the actions, `[T, K]`.
    costs: Vec<f64>,
    terminal: bool,
    timeout: bool,
}

impl EpisodeRecord {
    /// An empty record with the shapes of an environment.
    #[must_use]
    pub fn new(spec: &EnvSpec) -> Self {
        EpisodeRecord {
            observation_dim: spec.observation_dim(),
            action_width: spec.action.width(),
            cost_count: spec.costs.len(),
            ..EpisodeRecord::default()
        }
    }

    /// Steps, `T`.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rewards.len()
    }

    /// Whether nothing was recorded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rewards.is_empty()
    }

    /// Observation before step `t`, `[O]`; for `t = T` the last one.
    #[must_use]
    pub fn observation(&self, t: usize) -> &[f32] {
        &self.observations[t * self.observation_dim..(t + 1) * self.observation_dim]
    }

    /// Action of step `t`, `[A]`, or an id in one component.
    #[must_use]
    pub fn action(&self, t: usize) -> &[f32] {
        &self.actions[t * self.action_width..(t + 1) * self.action_width]
    }

    /// Costs of the state before step `t`, `[K]`.
    #[must_use]
    pub fn costs(&self, t: usize) -> &[f64] {
        &self.costs[t * self.cost_count..(t + 1) * self.cost_count]
    }

    /// Rewards, `[T]`.
    #[must_use]
    pub fn rewards(&self) -> &[f64] {
        &self.rewards
    }

    /// Undiscounted return.
    #[must_use]
    pub fn total_reward(&self) -> f64 {
        self.rewards.iter().sum()
    }

    /// Mean over the steps of cost `k`.
    #[must_use]
    pub fn mean_cost(&self, k: usize) -> f64 {
        (0..self.len()).map(|t| self.costs(t)[k]).sum::<f64>() / self.len() as f64
    }
}

impl EpisodeSink for EpisodeRecord {
    fn step(&mut self, step: &StepView<'_>) {
        if self.is_empty() {
            self.observations.extend_from_slice(step.observation);
        }
        self.observations.extend_from_slice(step.next_observation);
        self.actions.extend_from_slice(step.action);
        self.rewards.push(step.reward);
        self.costs.extend_from_slice(step.costs_before);
        self.terminal = step.terminal;
        self.timeout = step.timeout;
    }
}

/// A log under construction, of one environment's episodes.
#[derive(Clone, Debug)]
pub struct CollectedLog {
    builder: TransitionsBuilder,
    discrete: bool,
    costs: Vec<f32>,
}

impl CollectedLog {
    /// An empty log of an environment.
    ///
    /// # Errors
    /// If two costs of the environment share a name.
    pub fn new(spec: &EnvSpec) -> Result<Self, SimError> {
        let action = match &spec.action {
            ActionSpec::Continuous { low, .. } => ActionSpace::Continuous { dim: low.len() },
            ActionSpec::Discrete { count } => ActionSpace::discrete(*count),
        };
        let discrete = matches!(action, ActionSpace::Discrete { .. });
        let schema = Schema {
            observation_dim: spec.observation_dim(),
            action,
            cost_names: spec.cost_names(),
            propensity: false,
        };
        Ok(CollectedLog { builder: TransitionsBuilder::new(schema)?, discrete, costs: Vec::new() })
    }

    /// Appends an episode.
    ///
    /// # Errors
    /// If its shapes are not the environment's.
    pub fn push(&mut self, episode: &EpisodeRecord) -> Result<(), SimError> {
        let last = episode.len().saturating_sub(1);
        for t in 0..episode.len() {
            self.costs.clear();
            self.costs.extend(episode.costs(t).iter().map(|&cost| cost as f32));
            let action = episode.action(t);
            self.builder.push(&Step {
                observation: episode.observation(t),
                action: if self.discrete {
                    StepAction::Discrete(action[0] as u32)
                } else {
                    StepAction::Continuous(action)
                },
                reward: episode.rewards[t] as f32,
                costs: &self.costs,
                next_observation: episode.observation(t + 1),
                terminal: t == last && episode.terminal,
                timeout: t == last && episode.timeout,
                propensity: None,
            })?;
        }
        self.builder.end_episode();
        Ok(())
    }

    /// The log.
    ///
    /// # Errors
    /// If it is empty.
    pub fn finish(self) -> Result<Transitions, SimError> {
        Ok(self.builder.finish()?)
    }
}

/// Runs episodes on all threads of the current rayon pool and shows each to `visit`, in order. Only a fixed
/// number is held in memory at a time.
///
/// # Errors
/// If no episode is asked for, an episode fails, or `visit` does.
pub fn record_episodes<E: From<SimError>>(
    env: &dyn Environment,
    crews: &impl CrewSource,
    episodes: Episodes,
    mut visit: impl FnMut(u64, &EpisodeRecord) -> Result<(), E>,
) -> Result<(), E> {
    if episodes.count == 0 {
        return Err(SimError::NoEpisodes.into());
    }
    let mut done = 0;
    while done < episodes.count {
        let count = CHUNK.min(episodes.count - done);
        let first = episodes.first + done as u64;
        let chunk = Episodes { count, first, ..episodes };
        let records = run_episodes(env, crews, chunk, |_| EpisodeRecord::new(env.spec()))?;
        for (offset, record) in records.iter().enumerate() {
            visit(first + offset as u64, record)?;
        }
        done += count;
    }
    Ok(())
}

/// Runs episodes and returns them as a log.
///
/// # Errors
/// If no episode is asked for, or one fails.
pub fn collect(
    env: &dyn Environment,
    crews: &impl CrewSource,
    episodes: Episodes,
) -> Result<Transitions, SimError> {
    let mut log = CollectedLog::new(env.spec())?;
    record_episodes(env, crews, episodes, |_, record| log.push(record))?;
    log.finish()
}
