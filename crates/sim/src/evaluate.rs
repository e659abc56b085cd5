//! What a policy earns and costs when it is deployed in a simulator.
//!
//! All figures are undiscounted. With `C(i)` the cost of episode `i` and `T(i)` its steps,
//!
//! | figure | definition |
//! |---|---|
//! | cost per episode | `mean C(i)` |
//! | cost per step | `Σ C(i) / Σ T(i)`, the long-run average of the process restarted at every end; what a limit per step bounds |
//! | share over the limit | share of episodes with `C(i) > L` for a limit per episode, `C(i)/T(i) > l` for one per step |
//!
//! Standard errors are those of independent episodes: `s/√n` of the mean, and for the ratio of the delta
//! method, `√(Σ (C(i) − c·T(i))² / (n − 1) / n) / mean T`, which is `s/√n/T` where all last `T` steps. One
//! episode has none.

use coptidice_core::CostLimit;
use coptidice_core::statistics::{mean, standard_error};
use serde::{Deserialize, Serialize};

use crate::env::{CostTiming, EnvSpec, Environment};
use crate::error::SimError;
use crate::rollout::{CrewSource, EpisodeSink, Episodes, StepView, run_episodes};

/// How to evaluate.
#[derive(Clone, Debug, PartialEq)]
pub struct EvaluateOptions {
    /// Which episodes.
    pub episodes: Episodes,
    /// One limit for each cost, or the environment's own.
    pub limits: Option<Vec<CostLimit>>,
    /// Which state of a step pays, or the environment's own choice.
    pub timing: Option<CostTiming>,
    /// Keep the observations of the first so many episodes.
    pub record_paths: usize,
}

impl EvaluateOptions {
    /// Under the environment's own limits and timing, recording nothing.
    #[must_use]
    pub fn new(episodes: usize, seed: u64) -> Self {
        EvaluateOptions {
            episodes: Episodes::new(episodes, seed),
            limits: None,
            timing: None,
            record_paths: 0,
        }
    }
}

/// Figures of an evaluation. The scalars about cost are those of the first cost; `costs` has all.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// The environment.
    pub environment: String,
    /// Number of episodes.
    pub episodes: usize,
    /// Steps of all episodes together.
    pub steps: u64,
    /// Mean undiscounted return of an episode.
    pub return_mean: f64,
    /// Its standard error; none for one episode.
    pub return_stderr: Option<f64>,
    /// Cost per step of the first cost; none where the environment has no cost.
    pub cost_per_step: Option<f64>,
    /// Cost per episode of the first cost.
    pub cost_per_episode: Option<f64>,
    /// Share of episodes over the first cost's limit.
    pub share_over_limit: Option<f64>,
    /// Which state of a step paid.
    pub cost_timing: CostTiming,
    /// All costs, `[K]`.
    pub costs: Vec<CostFigures>,
    /// Every episode, in order.
    pub per_episode: Vec<EpisodeFigures>,
    /// Observations of the first episodes, as many as were asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<EpisodePath>,
}

/// Figures of one cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CostFigures {
    /// Name of the cost.
    pub name: String,
    /// The limit, with its unit.
    pub limit: CostLimit,
    /// Cost per step.
    pub per_step: f64,
    /// Its standard error; none for one episode.
    pub per_step_stderr: Option<f64>,
    /// Cost per episode.
    pub per_episode: f64,
    /// Its standard error; none for one episode.
    pub per_episode_stderr: Option<f64>,
    /// Share of episodes over the limit.
    pub share_over_limit: f64,
    /// Whether the cost, per step or per episode as the limit says, is at most the limit.
    pub within_limit: bool,
}

/// Figures of one episode.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EpisodeFigures {
    /// Undiscounted return.
    #[serde(rename = "return")]
    pub total_reward: f64,
    /// Undiscounted total of each cost, `[K]`.
    pub costs: Vec<f64>,
    /// Steps.
    pub steps: usize,
    /// Whether it ended in a terminal, not at the horizon.
    pub terminal: bool,
}

/// What one episode looked like.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EpisodePath {
    /// Number of the episode.
    pub episode: u64,
    /// The observations, `[T + 1][O]`.
    pub observations: Vec<Vec<f32>>,
}

struct EvaluationSink {
    timing: CostTiming,
    figures: EpisodeFigures,
    path: Option<EpisodePath>,
}

impl EpisodeSink for EvaluationSink {
    fn step(&mut self, step: &StepView<'_>) {
        let costs = match self.timing {
            CostTiming::Before => step.costs_before,
            CostTiming::After => step.costs_after,
        };
        self.figures.total_reward += step.reward;
        for (total, &cost) in self.figures.costs.iter_mut().zip(costs) {
            *total += cost;
        }
        self.figures.steps += 1;
        self.figures.terminal |= step.terminal;
        if let Some(path) = &mut self.path {
            if path.observations.is_empty() {
                path.observations.push(step.observation.to_vec());
            }
            path.observations.push(step.next_observation.to_vec());
        }
    }
}

/// Runs a policy and measures it, on all threads of the current rayon pool.
///
/// # Errors
/// If no episode is asked for, the limits are not one for each cost, or an episode fails.
pub fn evaluate(
    env: &dyn Environment,
    crews: &impl CrewSource,
    options: &EvaluateOptions,
) -> Result<Evaluation, SimError> {
    let spec = env.spec();
    let limits = options.limits.clone().unwrap_or_else(|| spec.default_limits());
    if limits.len() != spec.costs.len() {
        return Err(SimError::LimitCount {
            name: spec.name.clone(),
            costs: spec.costs.len(),
            limits: limits.len(),
        });
    }
    let timing = options.timing.unwrap_or(spec.evaluation_timing);
    let recorded = options.episodes.first + options.record_paths as u64;
    let sinks = run_episodes(env, crews, options.episodes, |episode| EvaluationSink {
        timing,
        figures: EpisodeFigures {
            total_reward: 0.0,
            costs: vec![0.0; spec.costs.len()],
            steps: 0,
            terminal: false,
        },
        path: (episode < recorded).then(|| EpisodePath { episode, ..EpisodePath::default() }),
    })?;
    let (figures, paths): (Vec<_>, Vec<_>) = sinks.into_iter().map(|sink| (sink.figures, sink.path)).unzip();
    let mut evaluation = Evaluation::from_episodes(spec, &limits, timing, figures);
    evaluation.paths = paths.into_iter().flatten().collect();
    Ok(evaluation)
}

impl Evaluation {
    /// The figures of episodes that were run already: at least one, with as many costs as there are limits.
    fn from_episodes(
        spec: &EnvSpec,
        limits: &[CostLimit],
        timing: CostTiming,
        per_episode: Vec<EpisodeFigures>,
    ) -> Self {
        let costs: Vec<CostFigures> = spec
            .cost_names()
            .into_iter()
            .zip(limits)
            .enumerate()
            .map(|(k, (name, &limit))| CostFigures::new(name, limit, k, &per_episode))
            .collect();
        let returns: Vec<f64> = per_episode.iter().map(|episode| episode.total_reward).collect();
        let first = costs.first();
        Evaluation {
            environment: spec.name.clone(),
            episodes: per_episode.len(),
            steps: per_episode.iter().map(|episode| episode.steps as u64).sum(),
            return_mean: mean(&returns),
            return_stderr: standard_error(&returns),
            cost_per_step: first.map(|cost| cost.per_step),
            cost_per_episode: first.map(|cost| cost.per_episode),
            share_over_limit: first.map(|cost| cost.share_over_limit),
            cost_timing: timing,
            costs,
            per_episode,
            paths: Vec::new(),
        }
    }

    /// Whether every cost is at most its limit.
    #[must_use]
    pub fn within_limits(&self) -> bool {
        self.costs.iter().all(|cost| cost.within_limit)
    }
}

impl CostFigures {
    fn new(name: String, limit: CostLimit, k: usize, episodes: &[EpisodeFigures]) -> Self {
        let totals: Vec<f64> = episodes.iter().map(|episode| episode.costs[k]).collect();
        let steps: Vec<f64> = episodes.iter().map(|episode| episode.steps as f64).collect();
        let (per_episode, mean_steps) = (mean(&totals), mean(&steps));
        let per_step = per_episode / mean_steps;
        let residuals: Vec<f64> = totals.iter().zip(&steps).map(|(c, t)| c - per_step * t).collect();
        let over = |total: f64, steps: f64| match limit {
            CostLimit::PerStep { limit } => total / steps > limit,
            CostLimit::PerEpisode { limit, .. } => total > limit,
        };
        let count = totals.iter().zip(&steps).filter(|&(&total, &steps)| over(total, steps)).count();
        CostFigures {
            name,
            limit,
            per_step,
            per_step_stderr: standard_error(&residuals).map(|error| error / mean_steps),
            per_episode,
            per_episode_stderr: standard_error(&totals),
            share_over_limit: count as f64 / episodes.len() as f64,
            within_limit: match limit {
                CostLimit::PerStep { limit } => per_step <= limit,
                CostLimit::PerEpisode { limit, .. } => per_episode <= limit,
            },
        }
    }
}
