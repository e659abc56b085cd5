//! HDF5 in the layout of DSRL.
//!
//! Flat arrays at the root, compressed by shuffle and deflate, booleans as Python writes them. Chunks are filled,
//! compressed and written one after another, so that memory does not grow with the log. Names are JSON lists in
//! attributes of the root.

use std::path::{Path, PathBuf};

use rust_hdf5::types::HBool;
use rust_hdf5::{H5Dataset, H5File, Hdf5Error};

use super::Selection;
use super::arrays::{Array, Kind, arrays, next_observations, notes};
use crate::error::DataError;

/// Bytes of a chunk, before compression.
const CHUNK_BYTES: usize = 1 << 18;
/// Deflate level: beyond it files of floats hardly shrink.
const LEVEL: u32 = 4;

/// Writes a log whose rows are all there.
pub(crate) fn write(selection: &Selection<'_>, path: &Path) -> Result<(), DataError> {
    let mut file = Hdf5Parts::create(path, Some(selection.rows))?;
    file.append(selection)?;
    file.finish()
}

/// A file that is written in parts, each of any number of rows.
pub(crate) struct Hdf5Parts {
    path: PathBuf,
    file: H5File,
    /// Where it is known beforehand.
    rows: Option<usize>,
    /// Made for the first part.
    columns: Vec<Column>,
    notes: Vec<(&'static str, Vec<String>)>,
}

impl Hdf5Parts {
    /// An empty file, for a log of `rows` rows, or of any number.
    pub(crate) fn create(path: &Path, rows: Option<usize>) -> Result<Self, DataError> {
        let file = H5File::create(path).map_err(failure(path))?;
        // Times of creation would make equal logs unequal files.
        file.set_track_times(false).map_err(failure(path))?;
        Ok(Hdf5Parts { path: path.to_owned(), file, rows, columns: Vec::new(), notes: Vec::new() })
    }

    /// Adds rows.
    ///
    /// # Errors
    /// If they have other columns than the part before, or the file system refuses.
    pub(crate) fn append(&mut self, part: &Selection<'_>) -> Result<(), DataError> {
        let mut arrays = arrays(part.log);
        arrays.insert(1, next_observations(part.log));
        let notes: Vec<_> = notes(part.log).into_iter().map(|(key, names)| (key, names.to_vec())).collect();
        if self.columns.is_empty() {
            for array in &arrays {
                self.columns.push(Column::create(&self.file, array, self.rows).map_err(failure(&self.path))?);
            }
            self.notes = notes;
        } else if !self.has_columns_of(&arrays) || self.notes != notes {
            return Err(DataError::Write {
                path: self.path.clone(),
                format: "HDF5",
                detail: "its parts do not have the same columns".to_owned(),
            });
        }
        for (column, array) in self.columns.iter_mut().zip(&arrays) {
            let mut rows = part.episodes.iter().flat_map(crate::transitions::Episode::rows);
            rows.try_for_each(|row| column.push(array, row)).map_err(failure(&self.path))?;
        }
        Ok(())
    }

    fn has_columns_of(&self, arrays: &[Array<'_>]) -> bool {
        let mut pairs = self.columns.iter().zip(arrays);
        self.columns.len() == arrays.len() && pairs.all(|(column, array)| column.shape == Shape::of(array))
    }

    /// Writes what is left.
    pub(crate) fn finish(self) -> Result<(), DataError> {
        let Hdf5Parts { path, file, columns, notes, .. } = self;
        for column in columns {
            column.finish().map_err(failure(&path))?;
        }
        for (key, names) in notes {
            let text = serde_json::to_string(&names).expect("a list of strings is JSON");
            file.set_attr_string(key, &text).map_err(failure(&path))?;
        }
        file.close().map_err(failure(&path))
    }
}

fn failure(path: &Path) -> impl Fn(Hdf5Error) -> DataError {
    move |e| DataError::Write { path: path.to_owned(), format: "HDF5", detail: e.to_string() }
}

/// What two parts have to agree in.
#[derive(PartialEq, Eq)]
struct Shape {
    name: &'static str,
    kind: Kind,
    width: Option<usize>,
}

impl Shape {
    fn of(array: &Array<'_>) -> Self {
        Shape { name: array.name, kind: array.kind, width: array.width }
    }
}

/// An array that is filled from its beginning.
struct Column {
    shape: Shape,
    dataset: H5Dataset,
    /// Bytes of a chunk.
    capacity: usize,
    /// The chunk that is being filled.
    bytes: Vec<u8>,
    chunks: usize,
    rows: usize,
    /// Whether rows are still to be counted.
    grows: bool,
}

impl Column {
    fn create(file: &H5File, array: &Array<'_>, rows: Option<usize>) -> Result<Self, Hdf5Error> {
        let most = rows.unwrap_or(usize::MAX);
        let chunk_rows = (CHUNK_BYTES / array.row_bytes()).max(1).min(most);
        let dataset = create(file, array, rows, chunk_rows)?;
        let capacity = chunk_rows * array.row_bytes();
        let bytes = Vec::with_capacity(capacity);
        Ok(Column {
            shape: Shape::of(array),
            dataset,
            capacity,
            bytes,
            chunks: 0,
            rows: 0,
            grows: rows.is_none(),
        })
    }

    fn push(&mut self, array: &Array<'_>, row: usize) -> Result<(), Hdf5Error> {
        (array.row)(row, &mut self.bytes);
        self.rows += 1;
        if self.bytes.len() == self.capacity { self.write_chunk() } else { Ok(()) }
    }

    fn write_chunk(&mut self) -> Result<(), Hdf5Error> {
        self.dataset.write_chunk(self.chunks, &self.bytes)?;
        self.chunks += 1;
        self.bytes.clear();
        Ok(())
    }

    fn finish(mut self) -> Result<(), Hdf5Error> {
        if !self.bytes.is_empty() {
            // The last chunk is stored whole; what lies beyond the array is never read.
            self.bytes.resize(self.capacity, 0);
            self.write_chunk()?;
        }
        if self.grows {
            self.dataset.extend(&dimensions(self.shape.width, self.rows))?;
        }
        Ok(())
    }
}

fn dimensions(width: Option<usize>, rows: usize) -> Vec<usize> {
    std::iter::once(rows).chain(width).collect()
}

fn create(
    file: &H5File,
    array: &Array<'_>,
    rows: Option<usize>,
    chunk_rows: usize,
) -> Result<H5Dataset, Hdf5Error> {
    let (shape, chunk) = (dimensions(array.width, rows.unwrap_or(0)), dimensions(array.width, chunk_rows));
    // Without an end if the rows are not known.
    let most: Option<Vec<Option<usize>>> =
        rows.is_none().then(|| std::iter::once(None).chain(array.width.map(Some)).collect());
    macro_rules! dataset {
        ($number:ty) => {{
            let builder = file.new_dataset::<$number>().shape(&shape).chunk(&chunk);
            match &most {
                Some(most) => builder.max_shape(most),
                None => builder,
            }
        }};
    }
    match array.kind {
        Kind::F32 => dataset!(f32).shuffle_deflate(LEVEL).create(array.name),
        Kind::I64 => dataset!(i64).shuffle_deflate(LEVEL).create(array.name),
        Kind::Bool => dataset!(HBool).deflate(LEVEL).create(array.name),
    }
}
