//! Writing logs, and the commands that write: convert and split.

mod arrays;
mod hdf5;
mod npy;
mod parts;
mod table;

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::check::{CheckOptions, load};
use crate::error::DataError;
use crate::problem::Problem;
use crate::read::{Format, NOTES_FILE, ReadOptions, read};
use crate::select::Split;
use crate::transitions::{Episode, Transitions};

pub(crate) use arrays::numeric;
pub use parts::LogWriter;

/// How to write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteOptions {
    /// The format; by default that of the target's extension: `.hdf5` or `.h5`, `.npz`, `.csv`, `.parquet` or `.pq`, and
    /// a directory of .npy columns where there is none.
    pub format: Option<Format>,
    /// Whether a target that exists is replaced.
    pub overwrite: bool,
}

impl WriteOptions {
    fn format(&self, path: &Path) -> Result<Format, DataError> {
        let unknown = |detail: String| DataError::options(path.display().to_string(), detail);
        let chosen = match (self.format, path.extension().and_then(|extension| extension.to_str())) {
            (Some(format), _) => format,
            (None, None | Some("npy")) => Format::NpyDirectory,
            (None, Some("hdf5" | "h5")) => Format::Hdf5,
            (None, Some("npz")) => Format::Npz,
            (None, Some("csv")) => Format::Csv,
            (None, Some("parquet" | "pq")) => Format::Parquet,
            (None, Some(other)) => {
                return Err(unknown(format!(
                    "no format has the extension .{other}; use .hdf5, .npz, .csv, .parquet or none, or say which"
                )));
            }
        };
        if chosen == Format::MinariDirectory {
            return Err(unknown("Minari directories are read, not written; write .hdf5".to_owned()));
        }
        Ok(chosen)
    }
}

/// Writes the whole log to `path`.
///
/// The target appears only when it is complete: what is written goes to a temporary name beside it first.
///
/// # Errors
/// If the target exists and may not be replaced, the format cannot hold the log, or the file system refuses.
pub fn write(log: &Transitions, path: &Path, options: &WriteOptions) -> Result<(), DataError> {
    let episodes: Vec<usize> = (0..log.episodes().len()).collect();
    write_episodes(log, &episodes, path, options)
}

/// Writes the given episodes (positions in [`Transitions::episodes`], in the given order) to `path`, without copying
/// the log in memory.
///
/// # Errors
/// As [`write()`]; also if there is no episode.
///
/// # Panics
/// If a position is not below the number of episodes.
pub fn write_episodes(
    log: &Transitions,
    episodes: &[usize],
    path: &Path,
    options: &WriteOptions,
) -> Result<(), DataError> {
    let format = options.format(path)?;
    check_target(path, options)?;
    let selection = Selection::new(log, episodes);
    if selection.rows == 0 {
        return Err(DataError::Empty { path: path.to_owned() });
    }
    let draft = Draft::begin(path, options)?;
    match format {
        Format::Hdf5 => hdf5::write(&selection, draft.path())?,
        Format::Npz => npy::write_npz(&selection, draft.path())?,
        Format::NpyDirectory => npy::write_directory(&selection, draft.path())?,
        Format::Csv => table::write_csv(&selection, draft.path())?,
        Format::Parquet => table::write_parquet(&selection, draft.path())?,
        Format::MinariDirectory => unreachable!("refused when the format was chosen"),
    }
    draft.finish()
}

/// A target before it is complete: a temporary name beside it. Nothing is left of it if it is not finished.
struct Draft {
    path: PathBuf,
    target: PathBuf,
    options: WriteOptions,
}

impl Draft {
    /// Makes room for the draft of `target`, which may have to be replaced.
    fn begin(target: &Path, options: &WriteOptions) -> Result<Self, DataError> {
        check_target(target, options)?;
        if let Some(parent) = target.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            std::fs::create_dir_all(parent).map_err(|e| DataError::io(parent, "create", e))?;
        }
        let path = draft_path(target);
        if !replaceable(&path) {
            return Err(DataError::Foreign { path });
        }
        remove(&path)?;
        Ok(Draft { path, target: target.to_owned(), options: *options })
    }

    /// Where to write.
    fn path(&self) -> &Path {
        &self.path
    }

    /// Puts what was written in its place.
    fn finish(self) -> Result<(), DataError> {
        // Once more: much may have been written there meanwhile.
        check_target(&self.target, &self.options)?;
        remove(&self.target)?;
        std::fs::rename(&self.path, &self.target).map_err(|e| DataError::io(&self.target, "create", e))
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // Not there any more once it is finished; an error before is the one to report.
        let _ = remove(&self.path);
    }
}

/// Refuses a target that exists, unless it may be replaced and is a file or a directory of columns.
fn check_target(path: &Path, options: &WriteOptions) -> Result<(), DataError> {
    if std::fs::symlink_metadata(path).is_err() {
        return Ok(());
    }
    if !options.overwrite {
        return Err(DataError::Exists { path: path.to_owned() });
    }
    if replaceable(path) { Ok(()) } else { Err(DataError::Foreign { path: path.to_owned() }) }
}

/// Whether what is at `path`, if anything, is no directory, or one that holds nothing but what [`npy::write_directory`]
/// writes.
fn replaceable(path: &Path) -> bool {
    if !std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir()) {
        return true;
    }
    let own = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.is_ok_and(|entry| {
            let name = entry.file_name();
            let column = name.to_str().is_some_and(|name| name == NOTES_FILE || npy::is_column_file(name));
            column && entry.file_type().is_ok_and(|kind| kind.is_file())
        })
    };
    std::fs::read_dir(path).is_ok_and(|mut entries| entries.all(own))
}

/// Where a path leads: absolute, links resolved as far as it exists, without `.` and `..`.
fn resolved(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut rest = Vec::new();
    let mut base = absolute.as_path();
    loop {
        if let Ok(mut real) = base.canonicalize() {
            for name in rest.iter().rev() {
                match name {
                    std::path::Component::ParentDir => {
                        real.pop();
                    }
                    other => real.push(other),
                }
            }
            return real;
        }
        let Some(name) = base.components().next_back() else { return absolute.clone() };
        rest.push(name);
        let Some(parent) = base.parent() else { return absolute.clone() };
        base = parent;
    }
}

/// Refuses targets of which one is another, the source, or inside one of these.
fn check_apart(from: &Path, targets: &[&Path]) -> Result<(), DataError> {
    let (source, places) = (resolved(from), targets.iter().map(|path| resolved(path)).collect::<Vec<_>>());
    for (k, place) in places.iter().enumerate() {
        let mut others = std::iter::once(&source).chain(&places[..k]);
        if let Some(other) = others.find(|other| place.starts_with(other) || other.starts_with(place)) {
            return Err(DataError::options(
                targets[k].display().to_string(),
                format!("is, holds or lies in {}; choose a place of its own", other.display()),
            ));
        }
    }
    Ok(())
}

/// The name under which a target is written before it is complete.
fn draft_path(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".part");
    path.with_file_name(name)
}

fn remove(path: &Path) -> Result<(), DataError> {
    let result = match std::fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => std::fs::remove_dir_all(path),
        Ok(_) => std::fs::remove_file(path),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e),
    };
    result.map_err(|e| DataError::io(path, "replace", e))
}

/// The rows to write.
pub(crate) struct Selection<'a> {
    pub(crate) log: &'a Transitions,
    pub(crate) episodes: Vec<Episode>,
    pub(crate) rows: usize,
}

impl<'a> Selection<'a> {
    fn new(log: &'a Transitions, episodes: &[usize]) -> Self {
        let episodes: Vec<Episode> = episodes.iter().map(|&index| log.episodes()[index]).collect();
        let rows = episodes.iter().map(|episode| episode.len).sum();
        Selection { log, episodes, rows }
    }

    /// All episodes.
    fn whole(log: &'a Transitions) -> Self {
        Selection { log, episodes: log.episodes().to_vec(), rows: log.len() }
    }

    /// The rows in order, `size` at a time.
    pub(crate) fn blocks(&self, size: usize) -> impl Iterator<Item = Vec<usize>> + '_ {
        let mut rows = self.episodes.iter().flat_map(Episode::rows);
        std::iter::from_fn(move || {
            let block: Vec<usize> = rows.by_ref().take(size).collect();
            (!block.is_empty()).then_some(block)
        })
    }
}

/// What was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Written {
    /// The file or directory.
    pub path: PathBuf,
    /// Number of transitions.
    pub transitions: usize,
    /// Number of episodes.
    pub episodes: usize,
}

/// How to convert.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConvertOptions {
    /// How to read.
    pub read: ReadOptions,
    /// How to write.
    pub write: WriteOptions,
}

/// Writes the log at `from` in another format to `to`. Values are taken as they are, without checks. A log may take
/// its own place.
///
/// # Errors
/// If `from` holds no log or one whose rows are in disorder ([`DataError::Unusable`]), or `to` cannot be written.
pub fn convert(
    from: &Path,
    to: &Path,
    options: &ConvertOptions,
) -> Result<(Written, Vec<Problem>), DataError> {
    let log = read(from, &options.read)?;
    if log.problems.iter().any(Problem::is_error) {
        return Err(DataError::Unusable { path: from.to_owned(), problems: log.problems });
    }
    write(&log.transitions, to, &options.write)?;
    let written = Written {
        path: to.to_owned(),
        transitions: log.transitions.len(),
        episodes: log.transitions.episodes().len(),
    };
    Ok((written, log.problems))
}

/// How to split.
#[derive(Clone, Debug, PartialEq)]
pub struct SplitOptions {
    /// How to read.
    pub read: ReadOptions,
    /// What counts as a fault.
    pub check: CheckOptions,
    /// How to write both parts.
    pub write: WriteOptions,
    /// Share of the episodes to hold out, strictly between 0 and 1.
    pub held_out: f64,
    /// Seed of the draw.
    pub seed: u64,
}

/// Splits the log at `from` by episode into a training and a held-out part.
///
/// # Errors
/// If `from` holds no usable log, the fraction is none, there are fewer than two episodes, or a part cannot be
/// written.
pub fn split(
    from: &Path,
    train: &Path,
    held_out: &Path,
    options: &SplitOptions,
) -> Result<[Written; 2], DataError> {
    check_apart(from, &[train, held_out])?;
    for path in [train, held_out] {
        options.write.format(path)?;
        check_target(path, &options.write)?;
    }
    let log = load(from, &options.read, &options.check)?.transitions;
    let parts = Split::draw(&log, options.held_out, options.seed)
        .map_err(|e| DataError::options(from.display().to_string(), e.to_string()))?;
    let write_part = |path: &Path, episodes: &[usize]| {
        write_episodes(&log, episodes, path, &options.write)?;
        let transitions = episodes.iter().map(|&index| log.episodes()[index].len).sum();
        Ok(Written { path: path.to_owned(), transitions, episodes: episodes.len() })
    };
    Ok([write_part(train, &parts.train)?, write_part(held_out, &parts.held_out)?])
}
