//! Runs, shards, threads, resumption and merging.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use rayon::iter::{IndexedParallelIterator, IntoParallelIterator, ParallelIterator};

use super::cell::{CellResult, Worker};
use super::store::{self, CHUNK_RUNS, Chunk, Plan};
use super::{ExperimentConfig, ExperimentError, Results};

/// Part `index` of `count` of the chunks, counted from one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Which part, `1..=count`.
    pub index: u64,
    /// How many parts.
    pub count: u64,
}

impl Default for Shard {
    fn default() -> Self {
        Self { index: 1, count: 1 }
    }
}

impl std::fmt::Display for Shard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.index, self.count)
    }
}

/// What to compute, and where to keep it.
#[derive(Clone, Debug, PartialEq)]
pub struct RunOptions {
    /// Everything that results depend on.
    pub config: ExperimentConfig,
    /// Number of runs.
    pub runs: u64,
    /// Output directory: `raw/` for chunks, and `results.csv`.
    pub out: PathBuf,
    /// Which part of the runs.
    pub shard: Shard,
    /// Number of threads; zero for one per core.
    pub threads: usize,
    /// Whether to go on with chunks that exist.
    pub resume: bool,
}

impl RunOptions {
    fn plan(&self) -> Plan {
        Plan { runs: self.runs, shards: self.shard.count }
    }
}

/// How far a computation is, in cells of this shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Cells done, those found on disk included.
    pub done: u64,
    /// Cells found on disk at the start.
    pub found: u64,
    /// All cells.
    pub total: u64,
}

/// How a computation ended.
#[derive(Clone, Debug, PartialEq)]
pub enum RunOutcome {
    /// All runs are there; `results.csv` is written.
    Complete(Results),
    /// The shard is done, others are not; merge when they are.
    ShardDone,
    /// The callback asked to stop. What was done is kept; go on with `resume`.
    Interrupted,
}

/// Computes an experiment, or a shard of it. `progress` is called after every chunk, and may stop the computation.
///
/// # Errors
/// [`ExperimentError`]; chunks that were finished are kept.
pub fn run(
    options: &RunOptions,
    progress: &mut (dyn FnMut(Progress) -> ControlFlow<()> + Send),
) -> Result<RunOutcome, ExperimentError> {
    validate(options)?;
    let directory = store::directory(&options.out, &options.config);
    std::fs::create_dir_all(&directory)
        .map_err(|source| ExperimentError::Io { path: directory.clone(), source })?;

    let Shard { index, count } = options.shard;
    let chunks: Vec<u64> =
        (0..options.runs.div_ceil(CHUNK_RUNS)).filter(|c| c % count == index - 1).collect();
    // Shards may share a directory: the others' chunks are no obstacle.
    if !options.resume && chunks.iter().any(|&c| store::path(&directory, c).exists()) {
        return Err(ExperimentError::Exists(directory));
    }
    let missing = missing(&directory, options, &chunks)?;
    let per_run = options.config.cells_per_run() as u64;
    let cells = |chunks: &[u64]| chunks.iter().map(|&c| runs_of(c, options.runs) * per_run).sum::<u64>();
    let total = cells(&chunks);
    let found = total - cells(&missing);
    if progress(Progress { done: found, found, total }).is_break() {
        return Ok(RunOutcome::Interrupted);
    }
    if !compute(options, &directory, &missing, Progress { done: found, found, total }, progress)? {
        return Ok(RunOutcome::Interrupted);
    }
    // A shard that finds the others' chunks beside its own completes the experiment.
    match gather(&options.config, &[directory], Some(options.runs)) {
        Ok(cells) => finish(&options.config, &cells, &options.out).map(RunOutcome::Complete),
        Err(ExperimentError::Missing { .. }) if count > 1 => Ok(RunOutcome::ShardDone),
        Err(error) => Err(error),
    }
}

fn validate(options: &RunOptions) -> Result<(), ExperimentError> {
    options.config.validate()?;
    let refuse = |what, value: String, remedy| Err(ExperimentError::Option { what, value, remedy });
    let Shard { index, count } = options.shard;
    if count == 0 || index == 0 || index > count {
        return refuse("shard", format!("{index}/{count}"), "give I/N with 1 <= I <= N");
    }
    if options.runs == 0 {
        return refuse("runs", "0".to_owned(), "give at least one");
    }
    Ok(())
}

fn runs_of(chunk: u64, runs: u64) -> u64 {
    (runs - chunk * CHUNK_RUNS).min(CHUNK_RUNS)
}

/// Those of the chunks that are not on disk with all the runs that are asked for. A damaged one counts as absent: it
/// is computed anew. One that was computed for fewer runs learns that it is now a part of more.
fn missing(directory: &Path, options: &RunOptions, chunks: &[u64]) -> Result<Vec<u64>, ExperimentError> {
    let mut missing = Vec::new();
    for &index in chunks {
        let wanted = runs_of(index, options.runs) as usize * options.config.cells_per_run();
        let path = store::path(directory, index);
        let found = store::read(&path, &options.config, index).ok().flatten();
        match found.filter(|chunk| chunk.cells.len() >= wanted) {
            Some(chunk) if chunk.plan.runs < options.runs => {
                store::write(&path, &options.config, index, &Chunk { plan: options.plan(), ..chunk })?;
            }
            Some(_) => {}
            None => missing.push(index),
        }
    }
    Ok(missing)
}

/// Computes chunks in parallel. `false` if it was asked to stop.
fn compute(
    options: &RunOptions,
    directory: &Path,
    chunks: &[u64],
    start: Progress,
    progress: &mut (dyn FnMut(Progress) -> ControlFlow<()> + Send),
) -> Result<bool, ExperimentError> {
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(options.threads)
        .build()
        .map_err(|e| ExperimentError::Threads { threads: options.threads, why: e.to_string() })?;
    let stop = AtomicBool::new(false);
    let state = Mutex::new((start, progress));
    let work = |&chunk: &u64| -> Result<(), ExperimentError> {
        let Some(cells) = compute_chunk(options, chunk, &stop)? else { return Ok(()) };
        let done = cells.len() as u64;
        let result = Chunk { plan: options.plan(), cells };
        store::write(&store::path(directory, chunk), &options.config, chunk, &result)?;
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        state.0.done += done;
        let now = state.0;
        if (state.1)(now).is_break() {
            stop.store(true, Ordering::Relaxed);
        }
        Ok(())
    };
    // Chunks differ in duration: each thread takes the next one that is left.
    pool.install(|| chunks.into_par_iter().with_max_len(1).try_for_each(work))?;
    Ok(!stop.into_inner())
}

/// The cells of a chunk, or `None` if the computation was stopped.
fn compute_chunk(
    options: &RunOptions,
    chunk: u64,
    stop: &AtomicBool,
) -> Result<Option<Vec<CellResult>>, ExperimentError> {
    let first = chunk * CHUNK_RUNS;
    let failed = |run, source| ExperimentError::Run {
        run,
        experiment: options.config.experiment,
        source: Box::new(source),
    };
    let mut worker = Worker::new().map_err(|e| failed(first, e))?;
    let mut cells = Vec::new();
    for run in first..first + runs_of(chunk, options.runs) {
        if stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        cells.extend(worker.run(&options.config, run).map_err(|e| failed(run, e))?);
    }
    Ok(Some(cells))
}

/// Puts the chunks under several output directories together and writes `results.csv` into `out`: the first `runs`
/// runs, or the most that any of the chunks was computed as a part of.
///
/// # Errors
/// [`ExperimentError::NothingToMerge`], [`ExperimentError::Missing`] if any of the runs are missing, and what reading
/// and writing can raise.
pub fn merge(
    config: &ExperimentConfig,
    inputs: &[PathBuf],
    runs: Option<u64>,
    out: &Path,
) -> Result<Results, ExperimentError> {
    config.validate()?;
    let directories: Vec<PathBuf> = inputs.iter().map(|input| store::directory(input, config)).collect();
    let cells = gather(config, &directories, runs)?;
    std::fs::create_dir_all(out).map_err(|source| ExperimentError::Io { path: out.to_owned(), source })?;
    finish(config, &cells, out)
}

/// Cells of runs `0..runs` in order, of each chunk the longest that a directory has; without `runs`, of as many as the
/// chunks were computed as a part of.
fn gather(
    config: &ExperimentConfig,
    directories: &[PathBuf],
    runs: Option<u64>,
) -> Result<Vec<CellResult>, ExperimentError> {
    let mut chunks: BTreeMap<u64, Chunk> = BTreeMap::new();
    let mut planned: Option<u64> = None;
    for directory in directories {
        for index in store::indices(directory)? {
            if runs.is_some_and(|runs| index >= runs.div_ceil(CHUNK_RUNS)) {
                continue;
            }
            let Some(found) = store::read(&store::path(directory, index), config, index)? else { continue };
            planned = planned.max(Some(found.plan.runs));
            if chunks.get(&index).is_none_or(|chunk| chunk.cells.len() < found.cells.len()) {
                chunks.insert(index, found);
            }
        }
    }
    let Some(runs) = runs.or(planned) else {
        return Err(ExperimentError::NothingToMerge {
            experiment: config.experiment,
            seed: config.seed,
            path: directories.first().cloned().unwrap_or_default(),
        });
    };
    let per_run = config.cells_per_run();
    check_complete(runs, &chunks, per_run)?;
    let mut cells = Vec::with_capacity(runs as usize * per_run);
    for (index, mut chunk) in chunks {
        // A resumed directory may hold more runs than are asked for.
        chunk.cells.truncate(runs_of(index, runs) as usize * per_run);
        cells.append(&mut chunk.cells);
    }
    Ok(cells)
}

/// Refuses chunks that leave out any of the runs, and says whose they are.
fn check_complete(runs: u64, chunks: &BTreeMap<u64, Chunk>, per_run: usize) -> Result<(), ExperimentError> {
    let mut count = 0;
    let mut first_gap: Option<(u64, u64)> = None;
    let mut absent = Vec::new();
    for index in 0..runs.div_ceil(CHUNK_RUNS) {
        let have = chunks.get(&index).map_or(0, |chunk| (chunk.cells.len() / per_run) as u64);
        let wanted = runs_of(index, runs);
        if have < wanted {
            let (first, last) = (index * CHUNK_RUNS + have, index * CHUNK_RUNS + wanted - 1);
            count += wanted - have;
            first_gap = match first_gap {
                Some((start, end)) if end + 1 == first => Some((start, last)),
                None => Some((first, last)),
                gap => gap,
            };
            absent.push(index);
        }
    }
    let Some((first, last)) = first_gap else { return Ok(()) };
    // Which part a chunk is of is known where all that are there were computed in as many.
    let plans: BTreeSet<u64> = chunks.values().map(|chunk| chunk.plan.shards).collect();
    let parts = match plans.first() {
        Some(&shards) if plans.len() == 1 && shards > 1 => {
            let of: BTreeSet<u64> = absent.iter().map(|index| index % shards + 1).collect();
            of.into_iter().map(|index| Shard { index, count: shards }).collect()
        }
        _ => Vec::new(),
    };
    Err(ExperimentError::Missing { count, runs, first, last, parts })
}

fn finish(config: &ExperimentConfig, cells: &[CellResult], out: &Path) -> Result<Results, ExperimentError> {
    let results = Results::new(config, cells);
    results.write_csv(&out.join("results.csv"))?;
    Ok(results)
}
