//! Apache Parquet, one row for each transition.

use std::fs::File;
use std::path::{Path, PathBuf};

use arrow_schema::DataType;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::arrow_cells::CellColumn;
use super::{Cell, Row};
use crate::error::DataError;

/// Rows decoded at a time.
const BATCH_ROWS: usize = 8192;

/// A Parquet file whose footer has been read.
pub(crate) struct ParquetFile {
    path: PathBuf,
    names: Vec<String>,
    types: Vec<DataType>,
    notes: Vec<(String, String)>,
    expected_rows: usize,
}

impl ParquetFile {
    pub(crate) fn open(path: &Path) -> Result<Self, DataError> {
        let builder = builder(path)?;
        let schema = builder.schema();
        let names: Vec<String> = schema.fields().iter().map(|field| field.name().clone()).collect();
        let types = schema.fields().iter().map(|field| field.data_type().clone()).collect();
        for (position, name) in names.iter().enumerate() {
            if names[..position].contains(name) {
                return Err(DataError::DuplicateColumn {
                    path: path.to_owned(),
                    detail: format!("two columns are named {name:?}; rename one"),
                });
            }
        }
        let metadata = builder.metadata().file_metadata().key_value_metadata();
        let claimed = usize::try_from(builder.metadata().file_metadata().num_rows()).unwrap_or(0);
        let bytes = std::fs::metadata(path).map_err(|e| DataError::io(path, "open", e))?.len();
        let notes = metadata
            .into_iter()
            .flatten()
            .filter_map(|pair| pair.value.as_ref().map(|value| (pair.key.clone(), value.clone())));
        Ok(ParquetFile {
            path: path.to_owned(),
            names,
            types,
            notes: notes.collect(),
            expected_rows: claimed.min(usize::try_from(bytes).unwrap_or(0)),
        })
    }

    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    /// The rows that the footer claims, as far as the file's size makes them likely: a row takes about a byte at least,
    /// and where rows take less, columns grow as they are read.
    pub(crate) fn expected_rows(&self) -> usize {
        self.expected_rows
    }

    /// A list of names that the writer attached.
    pub(crate) fn note(&self, key: &str) -> Option<Vec<String>> {
        let (_, text) = self.notes.iter().find(|(candidate, _)| candidate == key)?;
        serde_json::from_str(text).ok()
    }

    pub(crate) fn for_each_row(
        &self,
        wanted: &[usize],
        visit: &mut dyn FnMut(usize, &dyn Row) -> Result<(), DataError>,
    ) -> Result<(), DataError> {
        let builder = builder(&self.path)?;
        let mask = ProjectionMask::roots(builder.parquet_schema(), wanted.iter().copied());
        let batches = builder
            .with_projection(mask)
            .with_batch_size(BATCH_ROWS)
            .build()
            .map_err(|e| DataError::malformed(&self.path, "Parquet", e))?;
        let mut number = 0;
        for batch in batches {
            let batch = batch.map_err(|e| DataError::malformed(&self.path, "Parquet", e))?;
            let columns: Vec<CellColumn> = wanted
                .iter()
                .map(|&column| {
                    let array =
                        batch.column_by_name(&self.names[column]).ok_or_else(|| self.type_error(column))?;
                    CellColumn::new(array).ok_or_else(|| self.type_error(column))
                })
                .collect::<Result<_, _>>()?;
            for row in 0..batch.num_rows() {
                visit(number, &BatchRow { columns: &columns, row })?;
                number += 1;
            }
        }
        Ok(())
    }

    fn type_error(&self, column: usize) -> DataError {
        DataError::ColumnType {
            path: self.path.clone(),
            column: self.names[column].clone(),
            found: self.types[column].to_string(),
            expected: "numbers, booleans or text, one value in each row",
        }
    }
}

fn builder(path: &Path) -> Result<ParquetRecordBatchReaderBuilder<File>, DataError> {
    let file = File::open(path).map_err(|e| DataError::io(path, "open", e))?;
    ParquetRecordBatchReaderBuilder::try_new(file).map_err(|e| DataError::malformed(path, "Parquet", e))
}

struct BatchRow<'a> {
    columns: &'a [CellColumn],
    row: usize,
}

impl Row for BatchRow<'_> {
    fn cell(&self, position: usize) -> Cell<'_> {
        self.columns[position].cell(self.row)
    }
}
