//! Why a log could not be read or written.

use std::path::{Path, PathBuf};

use crate::builder::BuildError;
use crate::problem::Problem;

/// A failure of reading or writing. The message names the place and what to do; [`DataError::code`] is stable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// The operating system refused.
    #[error("{}: cannot {doing}: {source}", .path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What was attempted.
        doing: &'static str,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A file of zero bytes, or a log without a row.
    #[error("{}: holds no transition; check that the file was written to its end", .path.display())]
    Empty {
        /// The file or directory.
        path: PathBuf,
    },
    /// The contents are of no known format.
    #[error(
        "{}: not a log in a known format ({detail}); known are HDF5 (DSRL, D4RL, Minari), npz, Parquet, CSV and a \
         directory of .npy columns", .path.display()
    )]
    UnknownFormat {
        /// The file or directory.
        path: PathBuf,
        /// What was found.
        detail: String,
    },
    /// The file claims a format but does not keep to it: truncated, damaged, or wrongly written.
    #[error("{}: cannot be read as {format}: {detail}. If the file is damaged or cut off, copy or write it again", .path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The format it claims.
        format: &'static str,
        /// What is wrong with it.
        detail: String,
    },
    /// A header claims more than the file can hold or than memory allows.
    #[error(
        "{}: {column} claims {claimed} bytes, {reason}; nothing was allocated. If the file is sound, convert it to a \
         directory of .npy columns, which is read without copying", .path.display()
    )]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The column.
        column: String,
        /// Bytes claimed.
        claimed: u64,
        /// Why that cannot be.
        reason: String,
    },
    /// A column that is needed is not there.
    #[error(
        "{}: no column {column:?} for the {role}; the file has {}. {remedy}", .path.display(), list(.available)
    )]
    MissingColumn {
        /// The file.
        path: PathBuf,
        /// The name looked for.
        column: String,
        /// What it is needed for.
        role: &'static str,
        /// The names that exist.
        available: Vec<String>,
        /// What to do.
        remedy: &'static str,
    },
    /// A column name is not UTF-8.
    #[error(
        "{}: the name of {column} is not UTF-8; rename it, or save the file as UTF-8", .path.display()
    )]
    ColumnName {
        /// The file.
        path: PathBuf,
        /// Which, as far as that can be said.
        column: String,
    },
    /// Two columns of one name, or one column used twice.
    #[error("{}: {detail}", .path.display())]
    DuplicateColumn {
        /// The file.
        path: PathBuf,
        /// Which, and what to do.
        detail: String,
    },
    /// Columns of different lengths.
    #[error(
        "{}: column {column:?} has {found} rows where {expected} are expected (the length of {reference:?}); write \
         all columns with one length", .path.display()
    )]
    ColumnLength {
        /// The file.
        path: PathBuf,
        /// The column.
        column: String,
        /// Its length.
        found: usize,
        /// The length of the others.
        expected: usize,
        /// The column that has the expected length.
        reference: String,
    },
    /// An array of the wrong rank or width.
    #[error("{}: column {column:?} has shape {shape:?}; expected {expected}", .path.display())]
    ColumnShape {
        /// The file.
        path: PathBuf,
        /// The column.
        column: String,
        /// Its shape.
        shape: Vec<usize>,
        /// The shape that would do.
        expected: String,
    },
    /// An array of a type that holds no usable numbers.
    #[error("{}: column {column:?} holds {found}; expected {expected}", .path.display())]
    ColumnType {
        /// The file.
        path: PathBuf,
        /// The column.
        column: String,
        /// Type found.
        found: String,
        /// Types that would do.
        expected: &'static str,
    },
    /// One cell that cannot be what its column is.
    #[error("{}: row {row}, column {column:?}: {value:?} is not {expected}", .path.display())]
    Cell {
        /// The file.
        path: PathBuf,
        /// The column.
        column: String,
        /// Data row, from 0 (a CSV's header is not counted).
        row: usize,
        /// What stands there.
        value: String,
        /// What should.
        expected: &'static str,
    },
    /// A column map that cannot be read, or options that contradict each other or the file.
    #[error("{place}: {detail}")]
    Options {
        /// Where the option was given.
        place: String,
        /// What is wrong and what to do.
        detail: String,
    },
    /// The log was read, but training on it would be wrong.
    #[error("{}: {}", .path.display(), unusable(.problems))]
    Unusable {
        /// The file or directory.
        path: PathBuf,
        /// Every problem found, errors first.
        problems: Vec<Problem>,
    },
    /// Repair removed everything.
    #[error("{}: every episode is faulty, so nothing would be left after repair: {reason}", .path.display())]
    NothingLeft {
        /// The file or directory.
        path: PathBuf,
        /// The first fault.
        reason: String,
    },
    /// The target of a write is there already.
    #[error("{}: exists already; choose another name, or replace it by --overwrite", .path.display())]
    Exists {
        /// The target.
        path: PathBuf,
    },
    /// The target of a write is a directory with more in it than columns of a log.
    #[error(
        "{}: is a directory that holds other things than the columns of a log, and is not replaced; choose another \
         name, or remove it yourself", .path.display()
    )]
    Foreign {
        /// The directory.
        path: PathBuf,
    },
    /// A writer could not finish.
    #[error("{}: cannot write {format}: {detail}", .path.display())]
    Write {
        /// The target.
        path: PathBuf,
        /// The format.
        format: &'static str,
        /// What went wrong.
        detail: String,
    },
    /// Rows that do not form a log.
    #[error("{}: {source}", .path.display())]
    Build {
        /// The file or directory.
        path: PathBuf,
        /// Which row, and why.
        source: BuildError,
    },
}

impl DataError {
    /// A stable name of the kind of failure.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            DataError::Io { .. } => "io",
            DataError::Empty { .. } => "empty",
            DataError::UnknownFormat { .. } => "unknown-format",
            DataError::Malformed { .. } => "malformed",
            DataError::TooLarge { .. } => "too-large",
            DataError::MissingColumn { .. } => "missing-column",
            DataError::ColumnName { .. } => "column-name",
            DataError::DuplicateColumn { .. } => "duplicate-column",
            DataError::ColumnLength { .. } => "column-length",
            DataError::ColumnShape { .. } => "column-shape",
            DataError::ColumnType { .. } => "column-type",
            DataError::Cell { .. } => "cell",
            DataError::Options { .. } => "options",
            DataError::Unusable { .. } => "unusable",
            DataError::NothingLeft { .. } => "nothing-left",
            DataError::Exists { .. } => "exists",
            DataError::Foreign { .. } => "foreign",
            DataError::Write { .. } => "write",
            DataError::Build { .. } => "build",
        }
    }

    pub(crate) fn io(path: &Path, doing: &'static str, source: std::io::Error) -> Self {
        DataError::Io { path: path.to_owned(), doing, source }
    }

    pub(crate) fn malformed(path: &Path, format: &'static str, detail: impl std::fmt::Display) -> Self {
        DataError::Malformed { path: path.to_owned(), format, detail: detail.to_string() }
    }

    pub(crate) fn options(place: impl Into<String>, detail: impl Into<String>) -> Self {
        DataError::Options { place: place.into(), detail: detail.into() }
    }
}

/// The first names of a list, enough to recognise a file by.
fn list(names: &[String]) -> String {
    const SHOWN: usize = 30;
    if names.is_empty() {
        return "no column".to_owned();
    }
    let mut text = names.iter().take(SHOWN).map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ");
    if names.len() > SHOWN {
        text.push_str(&format!(" and {} more", names.len() - SHOWN));
    }
    text
}

fn unusable(problems: &[Problem]) -> String {
    let errors: Vec<&Problem> = problems.iter().filter(|problem| problem.is_error()).collect();
    let mut text = match errors.first() {
        Some(first) => format!("not usable as it is: {first}"),
        None => "not usable as it is".to_owned(),
    };
    if errors.len() > 1 {
        text.push_str(&format!("; and {} more", errors.len() - 1));
    }
    text.push_str(
        ". `coptidice data inspect` lists the problems, `coptidice data repair` writes a usable copy",
    );
    text
}
