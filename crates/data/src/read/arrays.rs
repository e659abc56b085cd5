//! Named numeric arrays of a file, streamed in blocks of rows.
//!
//! Every format that stores whole columns (HDF5, npz, a directory of .npy files) is read through [`ArraySource`], so
//! that a column is converted to its final type while it streams, and never lies in memory twice.

use std::path::Path;

use super::loses_digits;
use crate::column::Column;
use crate::error::DataError;
use crate::table::{Cell, LabelColumn, Labels};

/// What one number of an array is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Element {
    /// IEEE floating point.
    Float,
    /// A whole number.
    Int,
    /// A truth value.
    Bool,
}

/// Shape and type of an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ArrayInfo {
    pub(crate) shape: Vec<usize>,
    pub(crate) element: Element,
    /// Stored bytes of one number.
    pub(crate) bytes: usize,
}

impl ArrayInfo {
    /// Length of the first axis; 1 for a scalar.
    pub(crate) fn rows(&self) -> usize {
        self.shape.first().copied().unwrap_or(1)
    }

    /// Numbers of one row: the product of the other axes.
    pub(crate) fn width(&self) -> usize {
        self.shape.iter().skip(1).product()
    }
}

/// Consecutive rows of an array.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Block<'a> {
    F32(&'a [f32]),
    F64(&'a [f64]),
    Int(&'a [i64]),
}

/// Visits blocks in the order of rows; each holds whole rows.
pub(crate) type Visit<'a> = dyn FnMut(Block<'_>) -> Result<(), DataError> + 'a;

/// A file of named arrays.
pub(crate) trait ArraySource {
    /// The file or directory.
    fn path(&self) -> &Path;

    /// Names of the arrays, sorted. Arrays of groups have names such as `infos/cost`.
    fn names(&self) -> &[String];

    /// Shape and type of the array `name`.
    fn info(&self, name: &str) -> Result<ArrayInfo, DataError>;

    /// Streams the array `name`.
    fn for_each_block(&self, name: &str, visit: &mut Visit<'_>) -> Result<(), DataError>;

    /// The array as it lies in a file on disk, where that is possible without copying.
    fn mapped_f32(&self, name: &str) -> Option<Column<f32>> {
        let _ = name;
        None
    }

    /// Like [`ArraySource::mapped_f32`], for flags.
    fn mapped_u8(&self, name: &str) -> Option<Column<u8>> {
        let _ = name;
        None
    }

    /// A short text that the writer attached: `names` of the costs, components or action labels.
    fn note(&self, key: &str) -> Option<Vec<String>> {
        let _ = key;
        None
    }

    /// Whether the array `name` exists.
    fn has(&self, name: &str) -> bool {
        self.names().binary_search_by(|candidate| candidate.as_str().cmp(name)).is_ok()
    }
}

/// Refuses a claim of more rows and columns than the bytes of the file can hold, before anything is allocated.
///
/// Deflate, the strongest filter in use, compresses by at most 1032 to 1.
pub(crate) fn check_claim(
    path: &Path,
    column: &str,
    info: &ArrayInfo,
    file_bytes: u64,
) -> Result<(), DataError> {
    const MOST_COMPRESSED: u64 = 1100;
    let claimed = info
        .shape
        .iter()
        .try_fold(info.bytes as u64, |product, &axis| product.checked_mul(axis as u64))
        .unwrap_or(u64::MAX);
    if claimed > file_bytes.saturating_mul(MOST_COMPRESSED) {
        return Err(DataError::TooLarge {
            path: path.to_owned(),
            column: column.to_owned(),
            claimed,
            reason: format!("but the whole file has {file_bytes}"),
        });
    }
    Ok(())
}

/// An empty vector with room for `len` values, or an error where memory does not reach.
pub(crate) fn reserve<T>(path: &Path, column: &str, len: usize) -> Result<Vec<T>, DataError> {
    let mut values = Vec::new();
    values.try_reserve_exact(len).map_err(|_| DataError::TooLarge {
        path: path.to_owned(),
        column: column.to_owned(),
        claimed: (len as u64).saturating_mul(size_of::<T>() as u64),
        reason: "more than there is memory".to_owned(),
    })?;
    Ok(values)
}

/// A column of f32, and whether whole numbers lost digits on the way.
pub(crate) struct Floats {
    pub(crate) values: Vec<f32>,
    pub(crate) inexact_row: Option<usize>,
}

/// Reads `name` as f32, `[rows, width]`.
pub(crate) fn read_f32(source: &dyn ArraySource, name: &str) -> Result<Floats, DataError> {
    let info = source.info(name)?;
    let width = info.width().max(1);
    let mut values = reserve(source.path(), name, info.rows().saturating_mul(info.width()))?;
    let mut inexact_row = None;
    source.for_each_block(name, &mut |block| {
        match block {
            Block::F32(block) => values.extend_from_slice(block),
            Block::F64(block) => values.extend(block.iter().map(|&value| value as f32)),
            Block::Int(block) => {
                for &value in block {
                    if loses_digits(value) {
                        inexact_row.get_or_insert(values.len() / width);
                    }
                    values.push(value as f32);
                }
            }
        }
        Ok(())
    })?;
    Ok(Floats { values, inexact_row })
}

/// Reads `name` as flags, 0 or 1.
pub(crate) fn read_flags(source: &dyn ArraySource, name: &str) -> Result<Vec<u8>, DataError> {
    let info = source.info(name)?;
    one_per_row(source, name, &info)?;
    let mut flags: Vec<u8> = reserve(source.path(), name, info.rows())?;
    let bad = |row: usize, value: String| DataError::Cell {
        path: source.path().to_owned(),
        column: name.to_owned(),
        row,
        value,
        expected: "a flag: 0 or 1",
    };
    source.for_each_block(name, &mut |block| {
        let mut push = |value: f64| {
            if value != 0.0 && value != 1.0 {
                return Err(bad(flags.len(), value.to_string()));
            }
            flags.push(u8::from(value == 1.0));
            Ok(())
        };
        match block {
            Block::F32(block) => block.iter().try_for_each(|&value| push(f64::from(value))),
            Block::F64(block) => block.iter().try_for_each(|&value| push(value)),
            Block::Int(block) => block.iter().try_for_each(|&value| push(value as f64)),
        }
    })?;
    Ok(flags)
}

/// Reads `name` as labels of discrete actions. `integral_floats` admits `2.0` as 2.
pub(crate) fn read_labels(
    source: &dyn ArraySource,
    name: &str,
    integral_floats: bool,
) -> Result<Labels, DataError> {
    let info = source.info(name)?;
    one_per_row(source, name, &info)?;
    let mut labels = LabelColumn::default();
    let mut row = 0;
    source.for_each_block(name, &mut |block| {
        let mut push = |cell: Cell<'_>| {
            let result = labels.push(cell, integral_floats).map_err(|expected| DataError::Cell {
                path: source.path().to_owned(),
                column: name.to_owned(),
                row,
                value: cell.to_string(),
                expected,
            });
            row += 1;
            result
        };
        match block {
            Block::F32(block) => block.iter().try_for_each(|&value| push(Cell::Float(f64::from(value)))),
            Block::F64(block) => block.iter().try_for_each(|&value| push(Cell::Float(value))),
            Block::Int(block) => block.iter().try_for_each(|&value| push(Cell::Int(value))),
        }
    })?;
    Ok(labels.finish())
}

/// Refuses an array with more than one number a row: `(N,)` and `(N, 1)` are the same column.
pub(crate) fn one_per_row(source: &dyn ArraySource, name: &str, info: &ArrayInfo) -> Result<(), DataError> {
    if !info.shape.is_empty() && info.width() == 1 {
        return Ok(());
    }
    Err(DataError::ColumnShape {
        path: source.path().to_owned(),
        column: name.to_owned(),
        shape: info.shape.clone(),
        expected: "one number for each transition: (N,) or (N, 1)".to_owned(),
    })
}
