//! Logs that are written while they come about.

use std::path::{Path, PathBuf};

use super::hdf5::Hdf5Parts;
use super::{Draft, Selection, WriteOptions, Written};
use crate::error::DataError;
use crate::read::Format;
use crate::transitions::Transitions;

/// Writes a log to an HDF5 file in parts, so that no more than one of them need be in memory.
///
/// The target appears only when the log is complete: what is written goes to a temporary name beside it first, which is
/// removed if the writer is dropped before [`LogWriter::finish`].
pub struct LogWriter {
    target: PathBuf,
    // Closed before the draft is removed.
    file: Hdf5Parts,
    draft: Draft,
    transitions: usize,
    episodes: usize,
}

impl std::fmt::Debug for LogWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogWriter").field("target", &self.target).finish_non_exhaustive()
    }
}

impl LogWriter {
    /// Begins a log at `path`.
    ///
    /// # Errors
    /// If the target exists and may not be replaced, another format than HDF5 is asked for, or the file system refuses.
    pub fn create(path: &Path, options: &WriteOptions) -> Result<Self, DataError> {
        if options.format(path)? != Format::Hdf5 {
            return Err(DataError::options(
                path.display().to_string(),
                "is written in parts, which only HDF5 can be; name it .hdf5, and use `data convert` afterwards",
            ));
        }
        let draft = Draft::begin(path, options)?;
        let file = Hdf5Parts::create(draft.path(), None)?;
        Ok(LogWriter { target: path.to_owned(), file, draft, transitions: 0, episodes: 0 })
    }

    /// Adds the episodes of `part`.
    ///
    /// # Errors
    /// If it has other columns than the part before, or the file system refuses.
    pub fn append(&mut self, part: &Transitions) -> Result<(), DataError> {
        self.file.append(&Selection::whole(part))?;
        self.transitions += part.len();
        self.episodes += part.episodes().len();
        Ok(())
    }

    /// Completes the file and puts it in its place.
    ///
    /// # Errors
    /// If nothing was added, or the file system refuses.
    pub fn finish(self) -> Result<Written, DataError> {
        let LogWriter { target: path, file, draft, transitions, episodes } = self;
        if transitions == 0 {
            return Err(DataError::Empty { path });
        }
        file.finish()?;
        draft.finish()?;
        Ok(Written { path, transitions, episodes })
    }
}
