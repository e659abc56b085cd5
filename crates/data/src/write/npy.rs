//! Directories of .npy columns, and .npz archives.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use zip::write::{SimpleFileOptions, ZipWriter};

use super::Selection;
use super::arrays::{ARRAY_NAMES, Array, Kind, arrays, next_observations, notes, push_floats};
use crate::error::DataError;
use crate::next::{NextObservations, same_bits};
use crate::read::{NEXT_ROWS, NEXT_VALUES, NOTES_FILE};
use crate::transitions::Transitions;

/// Rows gathered at a time.
const BLOCK_ROWS: usize = 4096;

/// Writes one .npy file for each column. Next observations are kept only where they are not the following row's
/// observation: `next_observation_rows` and `next_observation_values`.
pub(crate) fn write_directory(selection: &Selection<'_>, path: &Path) -> Result<(), DataError> {
    std::fs::create_dir(path).map_err(|e| DataError::io(path, "create", e))?;
    for array in arrays(selection.log) {
        write_file(&path.join(format!("{}.npy", array.name)), |out| write_array(out, &array, selection))?;
    }
    let (rows, sources) = exceptions(selection);
    write_file(&path.join(format!("{NEXT_ROWS}.npy")), |out| {
        out.write_all(&header("<u8", &[rows.len()]))?;
        rows.iter().try_for_each(|&row| out.write_all(&(row as u64).to_le_bytes()))
    })?;
    write_file(&path.join(format!("{NEXT_VALUES}.npy")), |out| {
        out.write_all(&header("<f4", &[sources.len(), selection.log.observation_dim()]))?;
        let mut bytes = Vec::new();
        sources.iter().try_for_each(|&row| {
            bytes.clear();
            push_floats(&mut bytes, selection.log.next_observation(row));
            out.write_all(&bytes)
        })
    })?;
    write_file(&path.join(NOTES_FILE), |out| out.write_all(notes_json(selection.log).as_bytes()))
}

/// Whether [`write_directory`] writes a column under this name, for some log.
pub(crate) fn is_column_file(name: &str) -> bool {
    name.strip_suffix(".npy")
        .is_some_and(|stem| ARRAY_NAMES.contains(&stem) || [NEXT_ROWS, NEXT_VALUES].contains(&stem))
}

/// Writes an archive of the same columns, with all next observations, under the names of DSRL.
pub(crate) fn write_npz(selection: &Selection<'_>, path: &Path) -> Result<(), DataError> {
    let failure = |e: &dyn std::fmt::Display| DataError::Write {
        path: path.to_owned(),
        format: "npz",
        detail: e.to_string(),
    };
    let file = File::create(path).map_err(|e| DataError::io(path, "create", e))?;
    let mut archive = ZipWriter::new(BufWriter::new(file));
    let options =
        SimpleFileOptions::default().compression_method(zip::CompressionMethod::Deflated).large_file(true);
    let mut columns = arrays(selection.log);
    columns.insert(1, next_observations(selection.log));
    for array in &columns {
        archive.start_file(format!("{}.npy", array.name), options).map_err(|e| failure(&e))?;
        write_array(&mut archive, array, selection).map_err(|e| failure(&e))?;
    }
    archive.start_file(NOTES_FILE, options).map_err(|e| failure(&e))?;
    archive.write_all(notes_json(selection.log).as_bytes()).map_err(|e| failure(&e))?;
    let mut out = archive.finish().map_err(|e| failure(&e))?;
    out.flush().map_err(|e| DataError::io(path, "write", e))
}

/// The names of a log as a JSON object of lists.
fn notes_json(log: &Transitions) -> String {
    let object: serde_json::Map<String, serde_json::Value> =
        notes(log).into_iter().map(|(key, names)| (key.to_owned(), names.into())).collect();
    serde_json::Value::Object(object).to_string()
}

fn write_file(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>,
) -> Result<(), DataError> {
    let file = File::create(path).map_err(|e| DataError::io(path, "create", e))?;
    let mut out = BufWriter::with_capacity(1 << 18, file);
    write(&mut out).and_then(|()| out.flush()).map_err(|e| DataError::io(path, "write", e))
}

fn write_array(out: &mut impl Write, array: &Array<'_>, selection: &Selection<'_>) -> std::io::Result<()> {
    let descr = match array.kind {
        Kind::F32 => "<f4",
        Kind::I64 => "<i8",
        Kind::Bool => "|b1",
    };
    let shape: Vec<usize> = std::iter::once(selection.rows).chain(array.width).collect();
    out.write_all(&header(descr, &shape))?;
    let mut bytes = Vec::new();
    for rows in selection.blocks(BLOCK_ROWS) {
        bytes.clear();
        for row in rows {
            (array.row)(row, &mut bytes);
        }
        out.write_all(&bytes)?;
    }
    Ok(())
}

/// A header of version 1, padded so that the numbers begin at a multiple of 64 bytes and can be mapped.
fn header(descr: &str, shape: &[usize]) -> Vec<u8> {
    let axes: String = shape.iter().map(|axis| format!("{axis},")).collect();
    let mut text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({axes}), }}");
    let prefix = 10;
    while (prefix + text.len() + 1) % 64 != 0 {
        text.push(' ');
    }
    text.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    let length = u16::try_from(text.len()).expect("a shape of a few axes is short");
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(text.as_bytes());
    bytes
}

/// Positions in the selection whose next observation is not the following position's observation, and their rows.
fn exceptions(selection: &Selection<'_>) -> (Vec<usize>, Vec<usize>) {
    let log = selection.log;
    let (mut positions, mut sources) = (Vec::new(), Vec::new());
    let mut position = 0;
    for episode in &selection.episodes {
        for row in episode.rows() {
            let inner = row != episode.last();
            let follows = inner
                && match &log.next {
                    NextObservations::Chained(exceptions) => exceptions.rank(row).is_none(),
                    NextObservations::Full(_) => {
                        same_bits(log.next_observation(row), log.observation(row + 1))
                    }
                };
            if !follows {
                positions.push(position);
                sources.push(row);
            }
            position += 1;
        }
    }
    (positions, sources)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::NpyHeader;

    #[test]
    fn headers_are_aligned_and_read_back() {
        let bytes = header("<f4", &[10_000_000, 14]);
        assert_eq!(bytes.len() % 64, 0);
        let parsed = NpyHeader::read(&mut bytes.as_slice()).unwrap();
        assert_eq!(parsed.info().shape, [10_000_000, 14]);
    }
}
