//! Apache Parquet, one row for each transition.

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use arrow_array::RecordBatch;
use arrow_schema::{ArrowError, DataType};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use parquet::file::metadata::ColumnChunkMetaData;

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
        for batch in whole_batches(&self.path, batches) {
            let batch = batch?;
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

/// Opens a Parquet file whose footer makes sense.
pub(crate) fn builder(path: &Path) -> Result<ParquetRecordBatchReaderBuilder<File>, DataError> {
    let file = File::open(path).map_err(|e| DataError::io(path, "open", e))?;
    let builder = ParquetRecordBatchReaderBuilder::try_new(file)
        .map_err(|e| DataError::malformed(path, "Parquet", e))?;
    // The library takes these for granted, and panics.
    let chunks = builder.metadata().row_groups().iter().flat_map(|group| group.columns());
    let negative = |chunk: &ColumnChunkMetaData| {
        let start = chunk.dictionary_page_offset().unwrap_or_else(|| chunk.data_page_offset());
        start < 0 || chunk.compressed_size() < 0
    };
    match chunks.enumerate().find(|(_, chunk)| negative(chunk)) {
        Some((number, _)) => {
            let reason = format!("column chunk {number} lies at a negative place or has a negative length");
            Err(DataError::malformed(path, "Parquet", reason))
        }
        None => Ok(builder),
    }
}

/// The batches of a file. Of one whose pages are damaged the library may panic: that is an error, and the last batch.
pub(crate) fn whole_batches(
    path: &Path,
    mut batches: ParquetRecordBatchReader,
) -> impl Iterator<Item = Result<RecordBatch, DataError>> {
    let mut over = false;
    std::iter::from_fn(move || {
        if over {
            return None;
        }
        // After a panic the reader is not touched again.
        let next = catch_unwind(AssertUnwindSafe(|| batches.next()));
        let next = next.unwrap_or_else(|panic| {
            let said = panic.downcast_ref::<&str>().copied();
            let said = said.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
            Some(Err(ArrowError::ParquetError(said.unwrap_or("the pages are damaged").to_owned())))
        });
        over = !matches!(next, Some(Ok(_)));
        next.map(|batch| batch.map_err(|e| DataError::malformed(path, "Parquet", e)))
    })
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
