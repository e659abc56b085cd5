//! A log on the command line: the file, and for tables which column is what.

use std::path::{Path, PathBuf};

use clap::Args;
use coptidice_data::{CheckOptions, ColumnMap, Log, ReadOptions};

use crate::failure::Failure;

/// The flags that name a log.
#[derive(Args, Clone, Debug)]
pub(crate) struct LogFlags {
    /// The log: HDF5 (DSRL, D4RL, Minari), npz, Parquet, CSV, or a directory of .npy columns or of Minari Parquet
    #[arg(value_name = "DATA")]
    file: PathBuf,
    #[command(flatten)]
    columns: ColumnFlags,
}

/// Which column of a table is what.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Columns of CSV and Parquet files")]
pub(crate) struct ColumnFlags {
    /// TOML file that maps roles to columns; the flags below come on top of it
    #[arg(long, value_name = "FILE")]
    columns: Option<PathBuf>,
    /// Episode id
    #[arg(long, value_name = "COLUMN")]
    episode: Option<String>,
    /// Order of the rows in an episode
    #[arg(long, value_name = "COLUMN")]
    step: Option<String>,
    /// State columns, in order; `x*` stands for every column that begins with x
    #[arg(long, value_name = "COLUMN", value_delimiter = ',')]
    state: Vec<String>,
    /// Action columns, in order
    #[arg(long, value_name = "COLUMN", value_delimiter = ',')]
    action: Vec<String>,
    /// Reward
    #[arg(long, value_name = "COLUMN")]
    reward: Option<String>,
    /// Cost columns
    #[arg(long, value_name = "COLUMN", value_delimiter = ',')]
    cost: Vec<String>,
    /// Next-state columns, in the order of the state columns
    #[arg(long, value_name = "COLUMN", value_delimiter = ',')]
    next_state: Vec<String>,
    /// Set where the process ended
    #[arg(long, value_name = "COLUMN")]
    terminal: Option<String>,
    /// Set where only the recording ended
    #[arg(long, value_name = "COLUMN")]
    timeout: Option<String>,
    /// Probability (density) of the action under the logging policy
    #[arg(long, value_name = "COLUMN")]
    propensity: Option<String>,
}

impl LogFlags {
    /// The log's name as given.
    pub(crate) fn name(&self) -> String {
        self.file.display().to_string()
    }

    /// The path.
    pub(crate) fn path(&self) -> &Path {
        &self.file
    }

    /// How to read it.
    pub(crate) fn options(&self) -> Result<ReadOptions, Failure> {
        self.columns.options()
    }

    /// Reads the log for training: one with errors is refused, remarks are printed.
    pub(crate) fn load(&self) -> Result<Log, Failure> {
        let log = coptidice_data::load(&self.file, &self.options()?, &CheckOptions::default())
            .map_err(|error| Failure::input(&error))?;
        for problem in &log.problems {
            eprintln!("{}", crate::commands::describe_problem(problem));
        }
        Ok(log)
    }
}

impl ColumnFlags {
    /// The file's map with the flags over it.
    fn options(&self) -> Result<ReadOptions, Failure> {
        let base = match &self.columns {
            Some(file) => ColumnMap::load(file).map_err(|error| Failure::input(&error))?,
            None => ColumnMap::default(),
        };
        let given = |list: &Vec<String>| (!list.is_empty()).then(|| list.clone());
        let flags = ColumnMap {
            episode: self.episode.clone(),
            step: self.step.clone(),
            state: self.state.clone(),
            action: self.action.clone(),
            reward: self.reward.clone(),
            cost: given(&self.cost),
            next_state: given(&self.next_state),
            terminal: self.terminal.clone(),
            timeout: self.timeout.clone(),
            propensity: self.propensity.clone(),
        };
        Ok(ReadOptions { columns: base.overridden_by(flags), ..ReadOptions::default() })
    }
}
