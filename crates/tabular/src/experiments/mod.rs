//! The paper's experiments on random CMDPs (section 4.1 and the appendices on thresholds, limited exploration and
//! mixtures).
//!
//! | experiment | rows | behaviours | varied |
//! |---|---|---|---|
//! | [`Experiment::Fig1`] | one | cost .09, .11 | number of trajectories |
//! | [`Experiment::Thresholds`] | limits .08 to .12 | cost .09, .11; the same data as above | and the limit |
//! | [`Experiment::Support`] | first 1, 2, 3 actions | limited to them, cost at most .09, .11 | and the support |
//! | [`Experiment::Mixture`] | 80/20, 20/80 | shares of the trajectories of the two behaviours | and the shares |
//!
//! A *run* is one random CMDP with its behaviours; a *cell* is one run, setting and number of trajectories, solved by
//! all five algorithms and evaluated on the true CMDP. Each size gets trajectories of its own (fresh, not nested), as
//! in the reference.
//!
//! # The same numbers, however they are computed
//!
//! A run is a function of `(seed, run)`; every random stream in it has its own name. Results are kept per run and
//! added up in the order of runs with compensated sums, so that neither threads nor shards nor interruptions change
//! a digit. [`run`] writes chunks of runs under a name that contains the hash of everything they depend on
//! ([`store`]); [`merge`] puts the chunks of shards together.
//!
//! # Choices where the paper is silent
//!
//! * The normalised reward `(V_R(π) − V_R(π_D))/(V_R(π*) − V_R(π_D))` refers to the optimum under the CMDP's own
//!   limit, .1, in all rows of all experiments: a row's own limit may lie where the optimum earns less than the
//!   behaviour, which would turn the scale around.
//! * Where no policy's cost *bound* meets the limit, COptiDICE's `λ` has no root. The policy for `λ = 10`
//!   ([`LAMBDA_CEILING`]) stands in, the largest that the reference returns. `infeasible` of the results counts
//!   these cells.
//! * Mixture: the known data occupancy is the mixture of the behaviours' occupancies, and C-SPIBB bootstraps to that
//!   occupancy's policy.

mod aggregate;
mod algorithms;
mod cell;
mod driver;
mod figure;
mod results;
pub mod store;
#[cfg(test)]
mod tests;
mod world;

pub use algorithms::Algorithm;
pub use cell::{AlgorithmResult, CellResult, cell};
pub use driver::{Progress, RunOptions, RunOutcome, Shard, merge, run};
pub use figure::{FigureData, FigurePanel, FigurePoint, FigureRow, FigureSeries, figure_data};
pub use results::{ResultRow, Results};

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::dice::DiceError;
use crate::generate::GenerateError;
use coptidice_core::CmdpError;

/// Limit of the random CMDPs, cost units per step.
pub const CMDP_LIMIT: f64 = 0.1;
/// Costs of the two behaviours.
pub const BEHAVIOUR_COSTS: [f64; 2] = [0.09, 0.11];
/// Numbers of trajectories.
pub const TRAJECTORIES: [usize; 8] = [10, 20, 50, 100, 200, 500, 1000, 2000];
/// Most trajectories of one data set: five thousand times the paper's most.
pub const MOST_TRAJECTORIES: usize = 10_000_000;
/// Longest trajectory, steps.
pub const MAX_STEPS: usize = 50;
/// `λ` of the policy that stands in where the bound cannot meet the limit.
pub const LAMBDA_CEILING: f64 = 10.0;

/// One of the paper's tabular experiments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Experiment {
    /// The main figure.
    Fig1,
    /// Ablation on cost thresholds.
    Thresholds,
    /// Data-collection policies with limited action support.
    Support,
    /// Mixtures of the two behaviours.
    Mixture,
}

impl Experiment {
    /// Every experiment, in the paper's order.
    pub const ALL: [Experiment; 4] =
        [Experiment::Fig1, Experiment::Thresholds, Experiment::Mixture, Experiment::Support];

    /// The name used on command lines and in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Experiment::Fig1 => "fig1",
            Experiment::Thresholds => "thresholds",
            Experiment::Support => "support",
            Experiment::Mixture => "mixture",
        }
    }

    /// The settings, row by row, behaviours in order within each.
    #[must_use]
    pub fn settings(self) -> Vec<Setting> {
        let both = BEHAVIOUR_COSTS;
        let setting = |row: &str, data, limit| Setting { row: row.to_owned(), data, limit };
        match self {
            Experiment::Fig1 => {
                both.iter().map(|&cost| setting("single", DataSource::Single { cost }, CMDP_LIMIT)).collect()
            }
            Experiment::Thresholds => [0.08, 0.09, 0.10, 0.11, 0.12]
                .iter()
                .flat_map(|&limit| both.iter().map(move |&cost| (limit, cost)))
                .map(|(limit, cost)| {
                    setting(&format!("limit {limit:.2}"), DataSource::Single { cost }, limit)
                })
                .collect(),
            Experiment::Support => (1..=3)
                .flat_map(|actions| both.iter().map(move |&cost| (actions, cost)))
                .map(|(actions, cost)| {
                    let row = (1..=actions).map(|a| format!("a{a}")).collect::<Vec<_>>().join(" ");
                    setting(&row, DataSource::Limited { actions, cost }, CMDP_LIMIT)
                })
                .collect(),
            Experiment::Mixture => [("80/20", 80), ("20/80", 20)]
                .iter()
                .map(|&(row, percent)| setting(row, DataSource::Mixed { percent }, CMDP_LIMIT))
                .collect(),
        }
    }
}

impl std::fmt::Display for Experiment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for Experiment {
    type Err = ExperimentError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|e| e.name() == name)
            .ok_or_else(|| ExperimentError::UnknownExperiment(name.to_owned()))
    }
}

/// Who collects the data.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "kind")]
pub enum DataSource {
    /// The behaviour of algorithm 2 with this cost.
    Single {
        /// Cost per step.
        cost: f64,
    },
    /// The behaviour of algorithm 3, limited to the first `actions` actions, with at most this cost.
    Limited {
        /// Number of actions.
        actions: usize,
        /// Cost per step that it may not exceed.
        cost: f64,
    },
    /// `percent` of the trajectories from the constraint-satisfying behaviour, the rest from the other.
    Mixed {
        /// Percentage, 0 to 100.
        percent: usize,
    },
}

impl DataSource {
    /// The cost asked of the behaviour, per step; of a mixture, the mean.
    #[must_use]
    pub fn behaviour_cost(self) -> f64 {
        match self {
            DataSource::Single { cost } | DataSource::Limited { cost, .. } => cost,
            DataSource::Mixed { percent } => {
                // Whole percents of hundredths: exact in tenths of a thousandth.
                let [safe, unsafe_] = BEHAVIOUR_COSTS;
                ((percent as f64 * safe + (100 - percent) as f64 * unsafe_) * 100.0).round() / 1e4
            }
        }
    }

    /// Part of the names of random streams.
    fn label(self) -> String {
        match self {
            DataSource::Single { cost } => format!("single {cost}"),
            DataSource::Limited { actions, cost } => format!("limited {actions} {cost}"),
            DataSource::Mixed { percent } => format!("mixed {percent}"),
        }
    }
}

/// One pair of curves: who collects data, and under which limit algorithms act on it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setting {
    /// Name of the row of the figure.
    pub row: String,
    /// Who collects the data.
    pub data: DataSource,
    /// The limit given to the algorithms, cost units per step.
    pub limit: f64,
}

/// What algorithms know of the data's distribution.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DataOccupancy {
    /// The behaviour is known: its occupancy on the estimated CMDP plus 1e-6 a pair. What the paper's figures show.
    #[default]
    Known,
    /// Only the counts are known, as a user has it and the paper's text says. C-SPIBB bootstraps to the cloned
    /// behaviour.
    Estimated,
}

/// Everything that results depend on, except which runs are computed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExperimentConfig {
    /// Which experiment.
    pub experiment: Experiment,
    /// Seed of every random stream.
    pub seed: u64,
    /// What algorithms know of the data's distribution.
    pub data_occupancy: DataOccupancy,
    /// Numbers of trajectories, in the order of results.
    pub trajectories: Vec<usize>,
}

impl ExperimentConfig {
    /// The paper's setting of an experiment.
    #[must_use]
    pub fn new(experiment: Experiment) -> Self {
        Self {
            experiment,
            seed: 0,
            data_occupancy: DataOccupancy::Known,
            trajectories: TRAJECTORIES.to_vec(),
        }
    }

    /// Refuses what no experiment can be.
    ///
    /// # Errors
    /// [`ExperimentError::Trajectories`].
    pub fn validate(&self) -> Result<(), ExperimentError> {
        let mixed = self.experiment == Experiment::Mixture;
        let drawable = |n: usize| (1..=MOST_TRAJECTORIES).contains(&n) && (!mixed || n.is_multiple_of(5));
        match self.trajectories.iter().find(|&&n| !drawable(n)) {
            Some(&n) => Err(ExperimentError::Trajectories(n)),
            None if self.trajectories.is_empty() => Err(ExperimentError::Trajectories(0)),
            None => Ok(()),
        }
    }

    /// Cells of one run.
    #[must_use]
    pub fn cells_per_run(&self) -> usize {
        self.experiment.settings().len() * self.trajectories.len()
    }
}

/// What can go wrong with an experiment.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// No such experiment.
    #[error("unknown experiment {0:?}; use fig1, thresholds, support or mixture")]
    UnknownExperiment(String),
    /// A number of trajectories that cannot be drawn.
    #[error(
        "{0} trajectories: give numbers from 1 to 10000000, and in the mixture experiment multiples of five"
    )]
    Trajectories(usize),
    /// A number of runs, threads or shards out of range.
    #[error("{what} = {value}; {remedy}")]
    Option {
        /// Which option.
        what: &'static str,
        /// Value given.
        value: String,
        /// What to give instead.
        remedy: &'static str,
    },
    /// A run could not be computed.
    #[error("run {run} of {experiment}: {source}")]
    Run {
        /// Which run.
        run: u64,
        /// Of which experiment.
        experiment: Experiment,
        /// Why.
        source: Box<CellError>,
    },
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A chunk that is damaged or belongs to something else.
    #[error("{}: {why}; delete the file and run again with --resume", path.display())]
    Chunk {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// Results of these options exist and resuming was not asked for.
    #[error("{} holds results of the same experiment; add --resume to go on with them, or give another --out", .0.display())]
    Exists(PathBuf),
    /// Chunks to merge leave runs out.
    #[error(
        "{count} of {runs} runs are missing, the first of them {first} to {last}{}; compute them with --resume, or give \
         the directories that hold them too", of_parts(.parts)
    )]
    Missing {
        /// How many are missing.
        count: u64,
        /// How many were asked for.
        runs: u64,
        /// First missing run.
        first: u64,
        /// Last missing run before one that is there.
        last: u64,
        /// The parts that they belong to; empty where the runs were not divided, or not all in the same way.
        parts: Vec<Shard>,
    },
    /// Nothing to merge.
    #[error("no results of {experiment} with seed {seed} under {}", path.display())]
    NothingToMerge {
        /// Which experiment.
        experiment: Experiment,
        /// Which seed.
        seed: u64,
        /// Where they were looked for.
        path: PathBuf,
    },
    /// The thread pool could not be built.
    #[error("cannot start {threads} threads: {why}")]
    Threads {
        /// Threads asked for.
        threads: usize,
        /// Why.
        why: String,
    },
}

fn of_parts(parts: &[Shard]) -> String {
    let names: Vec<String> = parts.iter().map(Shard::to_string).collect();
    match names.as_slice() {
        [] => String::new(),
        [one] => format!(", of part {one}"),
        several => format!(", of parts {}", several.join(", ")),
    }
}

/// Why a run could not be computed.
#[derive(Debug, thiserror::Error)]
pub enum CellError {
    /// Generation failed.
    #[error(transparent)]
    Generate(#[from] GenerateError),
    /// A CMDP or policy is defective.
    #[error(transparent)]
    Cmdp(#[from] CmdpError),
    /// A program could not be posed.
    #[error(transparent)]
    Dice(#[from] DiceError),
}
