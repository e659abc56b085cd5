//! Tables with named columns, read row by row.

mod arrow_cells;
mod csv_file;
mod labels;
mod order;
mod parquet_file;

use std::path::{Path, PathBuf};

use crate::error::DataError;
use crate::read::{Format, detect};

pub(crate) use arrow_cells::CellColumn;
pub(crate) use csv_file::{CsvFile, is_word};
pub(crate) use labels::{LabelColumn, Labels};
pub(crate) use order::{Arrangement, Interner, arrange};
pub(crate) use parquet_file::{ParquetFile, builder as parquet_builder, whole_batches as parquet_batches};

/// One value of a table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Cell<'a> {
    /// No value.
    Null,
    /// A whole number written without a decimal point, or from an integer column.
    Int(i64),
    /// Any other number.
    Float(f64),
    /// A truth value.
    Bool(bool),
    /// Anything else.
    Text(&'a str),
}

impl Cell<'_> {
    /// The number, with NaN for an empty cell; `None` for text.
    pub(crate) fn number(self) -> Option<f64> {
        match self {
            Cell::Null => Some(f64::NAN),
            Cell::Int(value) => Some(value as f64),
            Cell::Float(value) => Some(value),
            Cell::Bool(value) => Some(f64::from(u8::from(value))),
            Cell::Text(_) => None,
        }
    }

    /// The truth value: a boolean, 0 or 1, or one of the usual words.
    pub(crate) fn flag(self) -> Option<bool> {
        match self {
            Cell::Bool(value) => Some(value),
            Cell::Int(0) => Some(false),
            Cell::Int(1) => Some(true),
            Cell::Float(0.0) => Some(false),
            Cell::Float(1.0) => Some(true),
            Cell::Text(word) => match word.to_ascii_lowercase().as_str() {
                "true" | "t" | "yes" | "y" => Some(true),
                "false" | "f" | "no" | "n" => Some(false),
                _ => None,
            },
            Cell::Null | Cell::Int(_) | Cell::Float(_) => None,
        }
    }
}

impl std::fmt::Display for Cell<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Cell::Null => Ok(()),
            Cell::Int(value) => value.fmt(f),
            Cell::Float(value) => value.fmt(f),
            Cell::Bool(value) => value.fmt(f),
            Cell::Text(text) => f.write_str(text),
        }
    }
}

/// The cells of the columns that a reader asked for.
pub(crate) trait Row {
    /// The cell of the `position`-th wanted column.
    fn cell(&self, position: usize) -> Cell<'_>;
}

/// A table whose rows can be read one after another.
pub(crate) enum Table {
    /// Delimited text.
    Csv(CsvFile),
    /// Apache Parquet.
    Parquet(ParquetFile),
}

impl Table {
    /// Opens a CSV or Parquet file.
    pub(crate) fn open(path: &Path) -> Result<Self, DataError> {
        match detect(path)? {
            Format::Csv => Ok(Table::Csv(CsvFile::open(path)?)),
            Format::Parquet => Ok(Table::Parquet(ParquetFile::open(path)?)),
            other => Err(DataError::UnknownFormat {
                path: path.to_owned(),
                detail: format!("a table of named columns is needed, this is {}", other.name()),
            }),
        }
    }

    /// Names of the columns.
    pub(crate) fn names(&self) -> &[String] {
        match self {
            Table::Csv(file) => file.names(),
            Table::Parquet(file) => file.names(),
        }
    }

    /// A list of names that the writer attached.
    pub(crate) fn note(&self, key: &str) -> Option<Vec<String>> {
        match self {
            Table::Csv(_) => None,
            Table::Parquet(file) => file.note(key),
        }
    }

    /// How many rows to make room for; 0 where that is not known before they are read.
    pub(crate) fn expected_rows(&self) -> usize {
        match self {
            Table::Csv(_) => 0,
            Table::Parquet(file) => file.expected_rows(),
        }
    }

    /// Calls `visit(number, row)` for every row; the row gives the cells of the `wanted` columns by their position
    /// in that list.
    pub(crate) fn for_each_row(
        &self,
        wanted: &[usize],
        visit: &mut dyn FnMut(usize, &dyn Row) -> Result<(), DataError>,
    ) -> Result<(), DataError> {
        match self {
            Table::Csv(file) => file.for_each_row(wanted, visit),
            Table::Parquet(file) => file.for_each_row(wanted, visit),
        }
    }
}

/// Makes errors about cells of one table.
pub(crate) struct CellErrors<'a> {
    pub(crate) path: PathBuf,
    pub(crate) names: &'a [String],
}

impl CellErrors<'_> {
    pub(crate) fn bad(&self, row: usize, column: usize, cell: Cell<'_>, expected: &'static str) -> DataError {
        const SHOWN: usize = 60;
        let value: String = cell.to_string().chars().take(SHOWN).collect();
        DataError::Cell { path: self.path.clone(), column: self.names[column].clone(), row, value, expected }
    }
}
