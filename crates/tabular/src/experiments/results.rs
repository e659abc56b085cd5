//! Results of an experiment: one row for each setting, size and algorithm.

use std::io::Write as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::aggregate::mean_and_error;
use super::cell::CellResult;
use super::{Algorithm, ExperimentConfig, ExperimentError};
use crate::outcome::Outcome;

/// By how much a cost may exceed the limit and still keep it, cost units per step: what the programs' solutions and
/// the floor of the policies leave.
const VIOLATION_TOLERANCE: f64 = 1e-7;

/// Means over runs. Values are per step; `*_stderr` are standard errors of the means.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResultRow {
    /// Name of the experiment.
    pub experiment: String,
    /// Row of the figure.
    pub row: String,
    /// Cost asked of the behaviour.
    pub behaviour_cost: f64,
    /// Limit given to the algorithm.
    pub limit: f64,
    /// Number of trajectories.
    pub trajectories: usize,
    /// Name of the algorithm.
    pub algorithm: String,
    /// Number of runs.
    pub runs: u64,
    /// Mean of `(V_R(π) − V_R(π_D))/(V_R(π*) − V_R(π_D))`.
    pub normalized_reward_mean: f64,
    /// Its standard error.
    pub normalized_reward_stderr: f64,
    /// Mean of `V_R(π)`.
    pub reward_mean: f64,
    /// Mean of `V_C(π)`.
    pub cost_mean: f64,
    /// Its standard error.
    pub cost_stderr: f64,
    /// Share of the runs in which `V_C(π)` exceeds the limit.
    pub share_violating: f64,
    /// Standard error of the reward; not part of `results.csv`.
    #[serde(skip)]
    pub reward_stderr: f64,
    /// Runs in which no policy met the limit by the algorithm's own account; not part of `results.csv`.
    #[serde(skip)]
    pub infeasible: u64,
    /// Runs in which the program ended at an iteration limit; not part of `results.csv`.
    #[serde(skip)]
    pub unsolved: u64,
}

/// All rows, and what the behaviours were like.
#[derive(Clone, Debug, PartialEq)]
pub struct Results {
    /// What they are results of.
    pub config: ExperimentConfig,
    /// Number of runs.
    pub runs: u64,
    /// Settings in order, sizes within, algorithms within.
    pub rows: Vec<ResultRow>,
    /// Mean `V_R(π*)`, per step.
    pub optimal_reward: f64,
    /// Mean `(V_R(π_D), V_C(π_D))` of each setting, per step.
    pub behaviours: Vec<(f64, f64)>,
}

impl Results {
    /// Averages the cells of runs in order, `[runs][settings][sizes]`.
    pub(super) fn new(config: &ExperimentConfig, cells: &[CellResult]) -> Self {
        let settings = config.experiment.settings();
        let (sizes, per_run) = (config.trajectories.len(), config.cells_per_run());
        let runs = cells.len() / per_run;
        let column = |place: usize| cells.iter().skip(place).step_by(per_run);
        let mut rows = Vec::with_capacity(per_run * Algorithm::ALL.len());
        for (i, setting) in settings.iter().enumerate() {
            for (j, &trajectories) in config.trajectories.iter().enumerate() {
                for algorithm in Algorithm::ALL {
                    let results = || column(i * sizes + j).map(move |c| &c.algorithms[algorithm as usize]);
                    let count =
                        |keep: &dyn Fn(Outcome) -> bool| results().filter(|a| keep(a.outcome)).count() as u64;
                    let normalized = column(i * sizes + j).map(|c| c.normalized_reward(algorithm));
                    let (normalized_reward_mean, normalized_reward_stderr) = mean_and_error(normalized);
                    let (reward_mean, reward_stderr) = mean_and_error(results().map(|a| a.reward));
                    let (cost_mean, cost_stderr) = mean_and_error(results().map(|a| a.cost));
                    let violating =
                        results().filter(|a| a.cost > setting.limit + VIOLATION_TOLERANCE).count();
                    rows.push(ResultRow {
                        experiment: config.experiment.name().to_owned(),
                        row: setting.row.clone(),
                        behaviour_cost: setting.data.behaviour_cost(),
                        limit: setting.limit,
                        trajectories,
                        algorithm: algorithm.name().to_owned(),
                        runs: runs as u64,
                        normalized_reward_mean,
                        normalized_reward_stderr,
                        reward_mean,
                        cost_mean,
                        cost_stderr,
                        share_violating: violating as f64 / runs.max(1) as f64,
                        reward_stderr,
                        infeasible: count(&|o| o == Outcome::Infeasible),
                        unsolved: count(&|o| {
                            matches!(
                                o,
                                Outcome::IterationLimit | Outcome::AlmostSolved | Outcome::Unconfirmed
                            )
                        }),
                    });
                }
            }
        }
        let behaviours = (0..settings.len()).map(|i| {
            let mean = |value: fn(&CellResult) -> f64| mean_and_error(column(i * sizes).map(value)).0;
            (mean(|c| c.behaviour_reward), mean(|c| c.behaviour_cost))
        });
        Self {
            config: config.clone(),
            runs: runs as u64,
            rows,
            optimal_reward: mean_and_error(column(0).map(|c| c.optimal_reward)).0,
            behaviours: behaviours.collect(),
        }
    }

    /// The row of a setting (its position), size (its position) and algorithm.
    #[must_use]
    pub fn row(&self, setting: usize, size: usize, algorithm: Algorithm) -> &ResultRow {
        let per_size = Algorithm::ALL.len();
        &self.rows[(setting * self.config.trajectories.len() + size) * per_size + algorithm as usize]
    }

    /// `results.csv`: the columns of [`ResultRow`] in order, numbers in the shortest form that reads back the same.
    ///
    /// # Errors
    /// [`ExperimentError::Io`].
    pub fn write_csv(&self, path: &Path) -> Result<(), ExperimentError> {
        let failed = |source| ExperimentError::Io { path: path.to_owned(), source };
        let temporary = path.with_extension("csv.tmp");
        let mut writer = csv::Writer::from_writer(Vec::new());
        for row in &self.rows {
            writer.serialize(row).map_err(|e| failed(std::io::Error::other(e)))?;
        }
        let bytes = writer.into_inner().map_err(|e| failed(e.into_error()))?;
        let mut file = std::fs::File::create(&temporary).map_err(failed)?;
        file.write_all(&bytes).map_err(failed)?;
        file.sync_all().map_err(failed)?;
        std::fs::rename(&temporary, path).map_err(failed)
    }
}
