//! Reading logs in any known format.

mod actions;
mod arrays;
mod assemble;
mod detect;
mod done;
mod flat;
mod hdf5;
mod minari;
mod npy;
mod table;

use std::num::NonZeroUsize;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::columns::ColumnMap;
use crate::error::DataError;
use crate::problem::Problem;
use crate::transitions::Transitions;

pub use detect::{Format, detect};
pub(crate) use flat::{NEXT_ROWS, NEXT_VALUES};
pub(crate) use npy::NOTES_FILE;
#[cfg(test)]
pub(crate) use npy::NpyHeader;

/// Whole numbers beyond this are not all exact in f32.
pub(crate) const EXACT_INTEGERS: i64 = 1 << 24;

/// Whether a whole number is another one in f32.
fn loses_digits(value: i64) -> bool {
    value.abs() > EXACT_INTEGERS && (value as f32) as i64 != value
}

/// What an action is, where the user says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ActionKind {
    /// Real vectors, even if they are stored as integers.
    Continuous,
    /// Ids, even if they are stored as whole floating-point numbers.
    Discrete,
}

/// What a flag means that says only that an episode was over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Done {
    /// Episodes of one and the same greatest length were stopped, the others ended.
    #[default]
    Auto,
    /// The process ended.
    Terminal,
    /// The recording was stopped.
    Timeout,
}

/// How to read a log. The default takes everything from the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadOptions {
    /// Names of the columns.
    pub columns: ColumnMap,
    /// Whether actions are ids. By default they are where one column of whole numbers or words holds them.
    pub action_kind: Option<ActionKind>,
    /// Steps after which the recording was stopped, for logs that do not say.
    pub episode_length: Option<NonZeroUsize>,
    /// The meaning of a column `done`.
    pub done: Done,
}

/// A log with what is to be said about it.
#[derive(Clone, Debug)]
pub struct Log {
    /// The transitions.
    pub transitions: Transitions,
    /// What was found while reading, and by the checks of the values once they have run.
    pub problems: Vec<Problem>,
    /// Rows of `transitions` found to be wrong, ascending.
    pub(crate) faulty: Vec<usize>,
    /// Source row of each row, where that is not the row itself.
    pub(crate) source_rows: Option<Vec<u32>>,
}

impl Log {
    /// The row of the source that became `row`.
    #[must_use]
    pub fn source_row(&self, row: usize) -> usize {
        self.source_rows.as_ref().map_or(row, |rows| rows[row] as usize)
    }
}

/// Reads the log at `path`, whose format is found from its contents. What is wrong but can be read is listed in
/// [`Log::problems`]; values are not checked.
///
/// A directory of .npy columns is mapped, not copied: its files must not change while the log is in use.
///
/// # Errors
/// If there is no such file, its format is unknown, or what it holds is no log.
pub fn read(path: &Path, options: &ReadOptions) -> Result<Log, DataError> {
    let parts = match detect(path)? {
        Format::Hdf5 => {
            let source = hdf5::Hdf5Source::open(path)?;
            if source.groups().iter().any(|group| hdf5::is_episode(group)) {
                minari::read_hdf5(&source, options)?
            } else {
                flat::read(&source, options)?
            }
        }
        Format::Npz => flat::read(&npy::Npz::open(path)?, options)?,
        Format::NpyDirectory => flat::read(&npy::NpyDir::open(path)?, options)?,
        Format::Csv | Format::Parquet => table::read(path, options)?,
        Format::MinariDirectory => minari::read_directory(path, options)?,
    };
    assemble::assemble(parts, options)
}
