//! A log on the command line: the file, which column is what, and what the file leaves open.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use coptidice_data::{ActionKind, CheckOptions, ColumnMap, Done, Log, ReadOptions};

use crate::failure::Failure;

/// The flags that name a log.
#[derive(Args, Clone, Debug)]
pub(crate) struct LogFlags {
    /// The log: HDF5 (DSRL, D4RL, Minari), npz, Parquet, CSV, or a directory of .npy columns or of Minari Parquet
    #[arg(value_name = "DATA")]
    file: PathBuf,
    #[command(flatten)]
    meaning: MeaningFlags,
    #[command(flatten)]
    columns: ColumnFlags,
}

/// What a file may leave open.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "What the log leaves open")]
struct MeaningFlags {
    /// Steps after which recordings were stopped, for logs that record no time-outs
    #[arg(long, value_name = "STEPS")]
    episode_length: Option<NonZeroUsize>,
    /// What a flag `done` means that says only that an episode was over [default: auto, by the episodes' lengths]
    #[arg(long, value_enum, value_name = "MEANING")]
    done: Option<DoneFlag>,
    /// Whether actions are real vectors or ids [default: ids are one column of integers or words]
    #[arg(long, value_enum, value_name = "KIND")]
    action_kind: Option<ActionFlag>,
    /// Magnitude above which a value is a marker or a fault
    #[arg(long, value_name = "VALUE", value_parser = parse_magnitude, allow_negative_numbers = true)]
    max_magnitude: Option<f32>,
}

/// `--done`.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum DoneFlag {
    /// Episodes of one and the same greatest length were stopped, the others ended
    Auto,
    /// The process ended
    Terminal,
    /// The recording was stopped
    Timeout,
}

impl From<DoneFlag> for Done {
    fn from(flag: DoneFlag) -> Self {
        match flag {
            DoneFlag::Auto => Done::Auto,
            DoneFlag::Terminal => Done::Terminal,
            DoneFlag::Timeout => Done::Timeout,
        }
    }
}

/// `--action-kind`.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum ActionFlag {
    /// Real vectors, even if they are stored as integers
    Continuous,
    /// Ids, even if they are stored as whole floating-point numbers
    Discrete,
}

impl From<ActionFlag> for ActionKind {
    fn from(flag: ActionFlag) -> Self {
        match flag {
            ActionFlag::Continuous => ActionKind::Continuous,
            ActionFlag::Discrete => ActionKind::Discrete,
        }
    }
}

/// A positive number, for `--max-magnitude`.
fn parse_magnitude(text: &str) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(value) if value.is_finite() && value > 0.0 => Ok(value),
        _ => Err("give a positive number, as in 1e9".to_owned()),
    }
}

/// Which column is what.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Columns, where their names do not say what they are")]
struct ColumnFlags {
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
        Ok(ReadOptions {
            columns: self.columns.map()?,
            action_kind: self.meaning.action_kind.map(ActionKind::from),
            episode_length: self.meaning.episode_length,
            done: self.meaning.done.map_or_else(Done::default, Done::from),
        })
    }

    /// What counts as a fault in it.
    pub(crate) fn check(&self) -> CheckOptions {
        let usual = CheckOptions::default();
        CheckOptions { max_magnitude: self.meaning.max_magnitude.unwrap_or(usual.max_magnitude) }
    }

    /// Reads the log for training: one with errors is refused.
    pub(crate) fn load(&self) -> Result<Log, Failure> {
        coptidice_data::load(&self.file, &self.options()?, &self.check())
            .map_err(|error| Failure::input(&error))
    }
}

impl ColumnFlags {
    /// The file's map with the flags over it.
    fn map(&self) -> Result<ColumnMap, Failure> {
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
        Ok(base.overridden_by(flags))
    }
}
