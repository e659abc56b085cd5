//! What is in a log.

use std::path::Path;

use serde::Serialize;

use crate::check::{CheckOptions, validate};
use crate::error::DataError;
use crate::problem::Problem;
use crate::read::{Log, ReadOptions};
use crate::transitions::{Actions, Transitions};

/// A summary of a log. Serialised it is the object that `coptidice data inspect --json` prints.
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
                .enumerate()
                .map(|(k, name)| CostSummary {
                    name: name.clone(),
                    means: means(&log.episode_totals(|row| log.costs(row)[k])),
                })
                .collect(),
            reward: means(&log.episode_totals(|row| log.reward(row))),
            problems,
        }
    }
}
