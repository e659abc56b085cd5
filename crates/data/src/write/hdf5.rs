//! HDF5 in the layout of DSRL.
//!
//! Flat arrays at the root, compressed by shuffle and deflate, booleans as Python writes them. Chunks are filled,
//! compressed and written one after another, so that memory does not grow with the log. Names are JSON lists in
//! attributes of the root.

use std::path::Path;

use rust_hdf5::types::HBool;
use rust_hdf5::{H5Dataset, H5File, Hdf5Error};

use super::Selection;
use super::arrays::{Array, Kind, arrays, next_observations, notes};
use crate::error::DataError;

/// Bytes of a chunk, before compression.
const CHUNK_BYTES: usize = 1 << 18;
/// Deflate level: beyond it files of floats hardly shrink.
const LEVEL: u32 = 4;

pub(crate) fn write(selection: &Selection<'_>, path: &Path) -> Result<(), DataError> {
    let failure =
        |e: Hdf5Error| DataError::Write { path: path.to_owned(), format: "HDF5", detail: e.to_string() };
    let file = H5File::create(path).map_err(failure)?;
    // Times of creation would make equal logs unequal files.
    file.set_track_times(false).map_err(failure)?;
    let mut columns = arrays(selection.log);
    columns.insert(1, next_observations(selection.log));
    for array in &columns {
        write_array(&file, array, selection).map_err(failure)?;
    }
    for (key, names) in notes(selection.log) {
        let text = serde_json::to_string(names).expect("a list of strings is JSON");
        file.set_attr_string(key, &text).map_err(failure)?;
    }
    file.close().map_err(failure)
}

fn write_array(file: &H5File, array: &Array<'_>, selection: &Selection<'_>) -> Result<(), Hdf5Error> {
    let chunk_rows = (CHUNK_BYTES / array.row_bytes()).max(1).min(selection.rows);
    let dataset = create(file, array, selection.rows, chunk_rows)?;
    let mut bytes = Vec::with_capacity(chunk_rows * array.row_bytes());
    for (position, rows) in selection.blocks(chunk_rows).enumerate() {
        bytes.clear();
        for row in rows {
            (array.row)(row, &mut bytes);
        }
        // The last chunk is stored whole; what lies beyond the array is never read.
        bytes.resize(chunk_rows * array.row_bytes(), 0);
        match array.width {
            Some(_) => dataset.write_chunk_at(&[position, 0], &bytes)?,
            None => dataset.write_chunk_at(&[position], &bytes)?,
        }
    }
    Ok(())
}

fn create(file: &H5File, array: &Array<'_>, rows: usize, chunk_rows: usize) -> Result<H5Dataset, Hdf5Error> {
    let with_width = |rows: usize| match array.width {
        Some(width) => vec![rows, width],
        None => vec![rows],
    };
    let (shape, chunk) = (with_width(rows), with_width(chunk_rows));
    match array.kind {
        Kind::F32 => {
            file.new_dataset::<f32>().shape(shape).chunk(&chunk).shuffle_deflate(LEVEL).create(array.name)
        }
        Kind::I64 => {
            file.new_dataset::<i64>().shape(shape).chunk(&chunk).shuffle_deflate(LEVEL).create(array.name)
        }
        Kind::Bool => {
            file.new_dataset::<HBool>().shape(shape).chunk(&chunk).deflate(LEVEL).create(array.name)
        }
    }
}
