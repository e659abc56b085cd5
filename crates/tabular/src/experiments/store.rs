//! Chunks: the raw results of consecutive runs, in one file each.
//!
//! # Format
//!
//! ```text
//! 8 bytes   "CDTABEX2"
//! u32 LE    length of the header
//! header    JSON: {"config": ExperimentConfig, "plan": {"runs": u64, "shards": u64}, "first": u64, "runs": u64}
//! records   runs × cells: 13 f64 LE (optimum, behaviour's reward and cost, reward and cost of each algorithm)
//!           and 5 bytes (how each algorithm's program ended)
//! 32 bytes  SHA-256 of everything before
//! ```
//!
//! Chunks lie in `raw/<experiment>-<hash>/`, the hash that of the format and the configuration: results of different
//! options never meet. They are written to a temporary name and renamed, so that a chunk that exists is whole.
//! Every chunk carries the plan that it is a part of: that the last ones are missing can be seen from any other.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::cell::{AlgorithmResult, CellResult};
use super::{ExperimentConfig, ExperimentError};
use crate::outcome::Outcome;

/// Runs of a chunk. Part of the format: chunk `i` starts at run `25i`.
pub const CHUNK_RUNS: u64 = 25;

const MAGIC: &[u8; 8] = b"CDTABEX2";
const DIGEST: usize = 32;
const FLOATS: usize = 13;
const RECORD: usize = FLOATS * 8 + 5;

/// What was asked for when a chunk was computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Number of runs, over all shards.
    pub runs: u64,
    /// Number of shards.
    pub shards: u64,
}

/// Consecutive runs, from the start of a chunk.
#[derive(Clone, Debug, PartialEq)]
pub struct Chunk {
    /// What they are a part of.
    pub plan: Plan,
    /// Their cells, `[runs][settings][sizes]`.
    pub cells: Vec<CellResult>,
}

#[derive(Serialize, Deserialize)]
struct Header {
    config: ExperimentConfig,
    plan: Plan,
    first: u64,
    runs: u64,
}

/// The directory of a configuration's chunks under an output directory.
#[must_use]
pub fn directory(out: &Path, config: &ExperimentConfig) -> PathBuf {
    let mut hash = Sha256::new();
    hash.update(MAGIC);
    hash.update(serde_json::to_vec(config).expect("a configuration of names and numbers is JSON"));
    let digest = hash.finalize();
    let hex: String = digest.iter().take(6).map(|b| format!("{b:02x}")).collect();
    out.join("raw").join(format!("{}-{hex}", config.experiment))
}

/// The file of chunk `index` in its directory.
#[must_use]
pub fn path(directory: &Path, index: u64) -> PathBuf {
    directory.join(format!("chunk-{index:06}.bin"))
}

/// The numbers of the chunks in a directory, in order; none if there is no such directory.
///
/// # Errors
/// [`ExperimentError::Io`].
pub fn indices(directory: &Path) -> Result<Vec<u64>, ExperimentError> {
    let number = |path: PathBuf| {
        path.file_name()?.to_str()?.strip_prefix("chunk-")?.strip_suffix(".bin")?.parse().ok()
    };
    Ok(entries(directory)?.into_iter().filter_map(number).collect())
}

/// The configurations of which an output directory holds chunks, in the order of their directories' names.
///
/// # Errors
/// [`ExperimentError::Io`], and [`ExperimentError::Chunk`] if a directory's first chunk cannot be read.
pub fn configurations(out: &Path) -> Result<Vec<ExperimentConfig>, ExperimentError> {
    let mut found = Vec::new();
    for directory in entries(&out.join("raw"))? {
        let chunks = entries(&directory)?.into_iter();
        let Some(path) = chunks.into_iter().find(|p| p.extension().is_some_and(|e| e == "bin")) else {
            continue;
        };
        let bytes =
            std::fs::read(&path).map_err(|source| ExperimentError::Io { path: path.clone(), source })?;
        let why = |why: &str| ExperimentError::Chunk { path: path.clone(), why: why.to_owned() };
        found.push(open(&bytes).map_err(why)?.0.config);
    }
    Ok(found)
}

/// What a directory holds, by name; nothing if there is none.
fn entries(directory: &Path) -> Result<Vec<PathBuf>, ExperimentError> {
    let failed = |source| ExperimentError::Io { path: directory.to_owned(), source };
    let listing = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        listing => listing.map_err(failed)?,
    };
    let mut paths = listing.map(|e| e.map(|e| e.path())).collect::<Result<Vec<_>, _>>().map_err(failed)?;
    paths.sort();
    Ok(paths)
}

/// Writes chunk `index`.
///
/// # Errors
/// [`ExperimentError::Io`].
pub fn write(
    path: &Path,
    config: &ExperimentConfig,
    index: u64,
    Chunk { plan, cells }: &Chunk,
) -> Result<(), ExperimentError> {
    let failed = |source| ExperimentError::Io { path: path.to_owned(), source };
    let (first, runs) = (index * CHUNK_RUNS, (cells.len() / config.cells_per_run()) as u64);
    let header = serde_json::to_vec(&Header { config: config.clone(), plan: *plan, first, runs })
        .expect("a configuration of names and numbers is JSON");
    let mut bytes = Vec::with_capacity(12 + header.len() + cells.len() * RECORD + DIGEST);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&(header.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&header);
    for cell in cells {
        let values = [cell.optimal_reward, cell.behaviour_reward, cell.behaviour_cost];
        let values = values.into_iter().chain(cell.algorithms.iter().flat_map(|a| [a.reward, a.cost]));
        values.for_each(|x| bytes.extend_from_slice(&x.to_le_bytes()));
        bytes.extend(cell.algorithms.iter().map(|a| outcome_code(a.outcome)));
    }
    let digest = Sha256::digest(&bytes);
    bytes.extend_from_slice(&digest);
    let temporary = path.with_extension("bin.tmp");
    let mut file = std::fs::File::create(&temporary).map_err(failed)?;
    file.write_all(&bytes).map_err(failed)?;
    file.sync_all().map_err(failed)?;
    std::fs::rename(&temporary, path).map_err(failed)
}

/// Reads chunk `index`, at most [`CHUNK_RUNS`] runs; `None` if there is no such file.
///
/// # Errors
/// [`ExperimentError::Io`], and [`ExperimentError::Chunk`] if the file is damaged or another configuration's.
pub fn read(path: &Path, config: &ExperimentConfig, index: u64) -> Result<Option<Chunk>, ExperimentError> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(source) if source.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(ExperimentError::Io { path: path.to_owned(), source }),
    };
    decode(&bytes, config, index)
        .map(Some)
        .map_err(|why| ExperimentError::Chunk { path: path.to_owned(), why: why.to_owned() })
}

/// The header and the records of a file that is whole.
fn open(bytes: &[u8]) -> Result<(Header, &[u8]), &'static str> {
    let body = bytes.len().checked_sub(DIGEST).ok_or("the file is truncated")?;
    let (body, digest) = bytes.split_at(body);
    let rest = body.strip_prefix(MAGIC).ok_or("this is no file of raw results")?;
    if Sha256::digest(body).as_slice() != digest {
        return Err("the checksum does not match: the file is damaged");
    }
    let (length, rest) = rest.split_first_chunk::<4>().ok_or("the file is truncated")?;
    let (header, records) =
        rest.split_at_checked(u32::from_le_bytes(*length) as usize).ok_or("the file is truncated")?;
    let header = serde_json::from_slice(header).map_err(|_| "the header cannot be read")?;
    Ok((header, records))
}

fn decode(bytes: &[u8], config: &ExperimentConfig, index: u64) -> Result<Chunk, &'static str> {
    let (header, records) = open(bytes)?;
    if header.config != *config || header.first != index * CHUNK_RUNS {
        return Err("the results belong to other options");
    }
    let expected = header.runs.checked_mul((config.cells_per_run() * RECORD) as u64);
    if header.runs > CHUNK_RUNS || expected != Some(records.len() as u64) {
        return Err("the number of records does not match the header");
    }
    let cells = records.chunks_exact(RECORD).map(record).collect::<Result<_, _>>()?;
    Ok(Chunk { plan: header.plan, cells })
}

fn record(bytes: &[u8]) -> Result<CellResult, &'static str> {
    let (floats, codes) = bytes.split_at(FLOATS * 8);
    let (floats, _) = floats.as_chunks::<8>();
    let value = |i: usize| f64::from_le_bytes(floats[i]);
    let mut algorithms = [AlgorithmResult { reward: 0.0, cost: 0.0, outcome: Outcome::Solved }; 5];
    for (i, (a, &code)) in algorithms.iter_mut().zip(codes).enumerate() {
        let outcome = *OUTCOMES.get(usize::from(code)).ok_or("an outcome is unknown")?;
        *a = AlgorithmResult { reward: value(3 + 2 * i), cost: value(4 + 2 * i), outcome };
    }
    Ok(CellResult {
        optimal_reward: value(0),
        behaviour_reward: value(1),
        behaviour_cost: value(2),
        algorithms,
    })
}

const OUTCOMES: [Outcome; 6] = [
    Outcome::Solved,
    Outcome::AlmostSolved,
    Outcome::Infeasible,
    Outcome::IterationLimit,
    Outcome::Unconfirmed,
    Outcome::BoundOverLimit,
];

fn outcome_code(outcome: Outcome) -> u8 {
    OUTCOMES.iter().position(|o| *o == outcome).map_or(u8::MAX, |i| i as u8)
}
