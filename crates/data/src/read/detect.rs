//! Which format a file has, by its contents.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::npy::NPY_MAGIC;
use crate::error::DataError;

/// A format of logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// HDF5: flat arrays (DSRL, D4RL) or one group for each episode (Minari).
    Hdf5,
    /// A NumPy archive.
    Npz,
    /// A directory with one .npy file for each column; mapped instead of read.
    NpyDirectory,
    /// Delimited text with a header.
    Csv,
    /// Apache Parquet, one row for each transition.
    Parquet,
    /// A Minari directory with one Arrow or Parquet file for each episode.
    MinariDirectory,
}

impl Format {
    /// The name used in options and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Format::Hdf5 => "hdf5",
            Format::Npz => "npz",
            Format::NpyDirectory => "npy-directory",
            Format::Csv => "csv",
            Format::Parquet => "parquet",
            Format::MinariDirectory => "minari-directory",
        }
    }
}

const HDF5_MAGIC: &[u8] = b"\x89HDF\r\n\x1a\n";
const ZIP_MAGIC: &[u8] = b"PK\x03\x04";
const EMPTY_ZIP_MAGIC: &[u8] = b"PK\x05\x06";
const PARQUET_MAGIC: &[u8] = b"PAR1";
/// Bytes looked at to tell text from anything else.
const LOOKED_AT: usize = 4096;

/// The format of the file or directory at `path`. Names play no part, except that files of a directory are looked
/// for by their extension.
///
/// # Errors
/// If it cannot be read, is empty, or is of no known format.
pub fn detect(path: &Path) -> Result<Format, DataError> {
    let metadata = std::fs::metadata(path).map_err(|e| DataError::io(path, "open", e))?;
    if metadata.is_dir() {
        return directory(path);
    }
    let mut start = Vec::new();
    File::open(path)
        .and_then(|file| file.take(LOOKED_AT as u64).read_to_end(&mut start))
        .map_err(|e| DataError::io(path, "read", e))?;
    if start.is_empty() {
        return Err(DataError::Empty { path: path.to_owned() });
    }
    let unknown =
        |detail: &str| DataError::UnknownFormat { path: path.to_owned(), detail: detail.to_owned() };
    match &start[..] {
        s if s.starts_with(HDF5_MAGIC) => Ok(Format::Hdf5),
        s if s.starts_with(ZIP_MAGIC) || s.starts_with(EMPTY_ZIP_MAGIC) => Ok(Format::Npz),
        s if s.starts_with(PARQUET_MAGIC) => Ok(Format::Parquet),
        s if s.starts_with(NPY_MAGIC) => {
            Err(unknown("a single .npy array; name the directory that holds one for each column"))
        }
        s if s.starts_with(b"\x1f\x8b") => Err(unknown("compressed by gzip; unpack it first")),
        s if s.contains(&0) => Err(unknown("binary contents without a known signature")),
        s => {
            let header = s.split(|&byte| byte == b'\n').next().unwrap_or_default();
            if header.iter().any(|byte| b",;\t".contains(byte)) {
                Ok(Format::Csv)
            } else {
                Err(unknown("text whose first line has no comma, semicolon or tab"))
            }
        }
    }
}

fn directory(path: &Path) -> Result<Format, DataError> {
    if path.join("data").join("main_data.hdf5").is_file() || path.join("main_data.hdf5").is_file() {
        return Ok(Format::MinariDirectory);
    }
    let list = |path: &Path| std::fs::read_dir(path).map_err(|e| DataError::io(path, "list", e));
    let (mut arrays, mut episodes) = (false, false);
    let data = path.join("data");
    for place in [path, &data] {
        if place != path && !place.is_dir() {
            continue;
        }
        for entry in list(place)? {
            let name = entry.map_err(|e| DataError::io(place, "list", e))?.file_name();
            arrays |= place == path && Path::new(&name).extension().is_some_and(|e| e == "npy");
            episodes |= name.to_str().is_some_and(|name| name.parse::<u64>().is_ok());
        }
    }
    match (arrays, episodes) {
        (true, _) => Ok(Format::NpyDirectory),
        (false, true) => Ok(Format::MinariDirectory),
        (false, false) => Err(DataError::UnknownFormat {
            path: path.to_owned(),
            detail: "a directory with neither .npy files nor Minari episodes".to_owned(),
        }),
    }
}
