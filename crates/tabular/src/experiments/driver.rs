//! Runs, shards, threads, resumption and merging.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use rayon::iter::{IndexedParallelIterator, IntoParallelIterator, ParallelIterator};

use super::cell::{CellResult, Worker};
use super::store::{self, CHUNK_RUNS};
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
    let missing: Vec<u64> = chunks.iter().copied().filter(|&c| !complete(&directory, options, c)).collect();
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

/// Whether a chunk is on disk with all the runs that are asked for. A damaged one counts as absent: it is computed
/// anew.
fn complete(directory: &Path, options: &RunOptions, chunk: u64) -> bool {
    let wanted = runs_of(chunk, options.runs) as usize * options.config.cells_per_run();
    let found = store::read(&store::path(directory, chunk), &options.config, chunk);
    found.ok().flatten().is_some_and(|cells| cells.len() >= wanted)
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
        store::write(&store::path(directory, chunk), &options.config, chunk * CHUNK_RUNS, &cells)?;
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        state.0.done += cells.len() as u64;
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

/// Puts the chunks under several output directories together and writes `results.csv` into `out`.
///
/// # Errors
/// [`ExperimentError::NothingToMerge`], [`ExperimentError::Missing`] if runs between others are missing, and what
/// reading and writing can raise.
pub fn merge(config: &ExperimentConfig, inputs: &[PathBuf], out: &Path) -> Result<Results, ExperimentError> {
    config.validate()?;
    let directories: Vec<PathBuf> = inputs.iter().map(|input| store::directory(input, config)).collect();
    let cells = gather(config, &directories, None)?;
    std::fs::create_dir_all(out).map_err(|source| ExperimentError::Io { path: out.to_owned(), source })?;
    finish(config, &cells, out)
}

/// Cells of runs `0..runs` in order, from the first directory that has each chunk; without `runs`, of all that are
/// there.
fn gather(
    config: &ExperimentConfig,
    directories: &[PathBuf],
    runs: Option<u64>,
) -> Result<Vec<CellResult>, ExperimentError> {
    let per_run = config.cells_per_run();
    let chunks = match runs {
        Some(runs) => runs.div_ceil(CHUNK_RUNS),
        None => {
            1 + last_chunk(directories)?.ok_or_else(|| ExperimentError::NothingToMerge {
                experiment: config.experiment,
                seed: config.seed,
                path: directories.first().cloned().unwrap_or_default(),
            })?
        }
    };
    let mut cells: Vec<CellResult> = Vec::new();
    for chunk in 0..chunks {
        let mut best: Vec<CellResult> = Vec::new();
        for directory in directories {
            let found = store::read(&store::path(directory, chunk), config, chunk)?.unwrap_or_default();
            if found.len() > best.len() {
                best = found;
            }
        }
        // Only the last chunk may be short; a resumed directory may hold more runs than are asked for.
        let wanted = runs.map_or(CHUNK_RUNS, |runs| runs_of(chunk, runs));
        let have = (best.len() / per_run) as u64;
        if have < wanted && (runs.is_some() || chunk + 1 < chunks || have == 0) {
            let first = chunk * CHUNK_RUNS + have;
            return Err(ExperimentError::Missing { first, last: chunk * CHUNK_RUNS + wanted - 1 });
        }
        best.truncate(wanted as usize * per_run);
        cells.append(&mut best);
    }
    Ok(cells)
}

/// The largest chunk number in the directories.
fn last_chunk(directories: &[PathBuf]) -> Result<Option<u64>, ExperimentError> {
    let mut last = None;
    for directory in directories.iter().filter(|d| d.exists()) {
        let failed = |source| ExperimentError::Io { path: directory.clone(), source };
        for entry in std::fs::read_dir(directory).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            let number =
                name.to_str().and_then(|n| n.strip_prefix("chunk-")?.strip_suffix(".bin")?.parse().ok());
            last = last.max(number);
        }
    }
    Ok(last)
}

fn finish(config: &ExperimentConfig, cells: &[CellResult], out: &Path) -> Result<Results, ExperimentError> {
    let results = Results::new(config, cells);
    results.write_csv(&out.join("results.csv"))?;
    Ok(results)
}
