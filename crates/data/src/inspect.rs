//! What is in a log.

use std::path::Path;

use serde::Serialize;

use crate::check::{CheckOptions, validate};
use crate::error::DataError;
use crate::histogram::Histogram;
use crate::problem::Problem;
use crate::read::{Log, ReadOptions};
use crate::transitions::{Actions, Transitions};

/// A summary of a log. Serialised it is the object that `coptidice data inspect --json` prints; the distributions are
/// for drawing.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Inspection {
    /// Number of transitions.
    pub transitions: usize,
    /// Number of episodes.
    pub episodes: usize,
    /// Components of an observation.
    pub observation_dim: usize,
    /// What the actions are.
    pub action: ActionSummary,
    /// The costs, in their order.
    pub costs: Vec<CostSummary>,
    /// The reward.
    pub reward: Means,
    /// Problems, errors first.
    pub problems: Vec<Problem>,
    /// Over the episodes.
    #[serde(skip)]
    pub distributions: Distributions,
}

/// What the actions of a log are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase", tag = "kind")]
pub enum ActionSummary {
    /// Real vectors.
    Continuous {
        /// Components.
        dim: usize,
    },
    /// Members of a finite set.
    Discrete {
        /// Number of different actions.
        count: usize,
    },
}

/// Means of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Means {
    /// Per step.
    pub mean: f64,
    /// Of the undiscounted totals of the episodes.
    pub episode_mean: f64,
}

/// A cost and its means.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CostSummary {
    /// Its name.
    pub name: String,
    /// Its means.
    #[serde(flatten)]
    pub means: Means,
}

/// Distributions over the episodes of a log.
#[derive(Clone, Debug, PartialEq)]
pub struct Distributions {
    /// Steps.
    pub length: Histogram,
    /// Undiscounted total reward.
    pub reward: Histogram,
    /// Undiscounted total of each cost.
    pub costs: Vec<Histogram>,
}

/// Bins of a picture.
const BINS: usize = 16;

/// Reads and summarises the log at `path`. Problems are listed, none is refused.
///
/// # Errors
/// If the path holds no log.
pub fn inspect(path: &Path, options: &ReadOptions, check: &CheckOptions) -> Result<Inspection, DataError> {
    let Log { transitions, problems, .. } = validate(path, options, check)?;
    Ok(Inspection::of(&transitions, problems))
}

impl Inspection {
    /// Summarises a log that was read already.
    #[must_use]
    pub fn of(log: &Transitions, problems: Vec<Problem>) -> Self {
        let rewards = episode_totals(log, |row| log.reward(row));
        let costs: Vec<Vec<f64>> =
            (0..log.cost_count()).map(|k| episode_totals(log, |row| log.costs(row)[k])).collect();
        let lengths: Vec<f64> = log.episodes().iter().map(|episode| episode.len as f64).collect();
        let means = |totals: &[f64]| {
            let sum: f64 = totals.iter().sum();
            Means { mean: sum / log.len() as f64, episode_mean: sum / totals.len() as f64 }
        };
        Inspection {
            transitions: log.len(),
            episodes: log.episodes().len(),
            observation_dim: log.observation_dim(),
            action: match log.actions() {
                Actions::Continuous { dim, .. } => ActionSummary::Continuous { dim: *dim },
                Actions::Discrete { count, .. } => ActionSummary::Discrete { count: *count },
            },
            costs: log
                .cost_names()
                .iter()
                .zip(&costs)
                .map(|(name, totals)| CostSummary { name: name.clone(), means: means(totals) })
                .collect(),
            reward: means(&rewards),
            problems,
            distributions: Distributions {
                length: Histogram::new(&lengths, BINS),
                reward: Histogram::new(&rewards, BINS),
                costs: costs.iter().map(|totals| Histogram::new(totals, BINS)).collect(),
            },
        }
    }
}

/// Undiscounted total over each episode.
fn episode_totals(log: &Transitions, value: impl Fn(usize) -> f32) -> Vec<f64> {
    log.episodes().iter().map(|episode| episode.rows().map(|row| f64::from(value(row))).sum()).collect()
}
