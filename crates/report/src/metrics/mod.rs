//! The figures a run records while it trains, in two files that say the same.
//!
//! * `metrics.jsonl`: one JSON object a line, `{"step":100,"lambda":0.5,…}`, keys in the order in which they were
//!   logged. A value that is not a finite number is `null`, and the last key names it:
//!   `"nonfinite":{"nu_loss":"NaN"}` (`NaN`, `inf` or `-inf`).
//! * `events.out.tfevents.0.coptidice`: the same scalars for TensorBoard, in records of its own.
//!
//! # Resuming
//! The JSONL file is the record; the event file is a function of it. [`MetricsLog::resume`] from step `s` drops
//! every line past `s` (and a last line cut short by a kill) and writes the event file anew from what stays.
//! So a run that was killed and resumed leaves the same bytes in both files as one that was never stopped,
//! provided that [`MetricsLog::sync`] was called before the checkpoint of step `s` was declared good.
//! Neither file holds a clock reading.

mod events;
mod history;
mod jsonl;
#[cfg(test)]
mod tests;

pub use events::EVENT_FILE;
pub use history::{History, Record};
pub use jsonl::METRICS_FILE;

use std::io;
use std::path::{Path, PathBuf};

/// Metrics that could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum MetricsError {
    /// The file system refused.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What was being done, as in "write to it".
        action: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// A line of the record that is none.
    #[error("{}, line {line}: {reason}; delete this line and all after it, which loses the figures of these steps for good, or start the run anew", path.display())]
    Malformed {
        /// The record.
        path: PathBuf,
        /// Counted from 1.
        line: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// Steps must not go back: resuming relies on it.
    #[error(
        "metrics of step {step} were logged after those of step {last}; resume the log at step {step} first"
    )]
    StepOrder {
        /// The step given.
        step: u64,
        /// The last step logged.
        last: u64,
    },
    /// A step that a signed 64-bit number cannot hold, which is what the event file has for it.
    #[error("step {0} is beyond 2^63 − 1; count steps from 0")]
    StepTooLarge(u64),
    /// A metric name that is empty, taken, or given twice in one step.
    #[error("metric name {name:?} {reason}; give each value of a step a name of its own")]
    Name {
        /// The name.
        name: String,
        /// What is wrong with it.
        reason: &'static str,
    },
}

impl MetricsError {
    fn io(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> MetricsError + use<> {
        let path = path.to_owned();
        move |source| MetricsError::Io { path, action, source }
    }
}

/// Writes a run's metrics to both files.
///
/// ```
/// use coptidice_report::metrics::{History, MetricsLog};
/// # let run = tempfile::tempdir().unwrap();
/// # let run = run.path();
/// let mut log = MetricsLog::create(run)?;
/// log.log(100, &[("lambda", 0.5), ("tau", 1.0)])?;
/// log.log(200, &[("lambda", 0.4), ("tau", f64::NAN)])?;
/// log.sync()?; // before the checkpoint of step 200
///
/// let history = History::read(&run.join("metrics.jsonl"))?;
/// assert_eq!(history.series("lambda"), [(100, 0.5), (200, 0.4)]);
/// # Ok::<(), coptidice_report::metrics::MetricsError>(())
/// ```
#[derive(Debug)]
pub struct MetricsLog {
    jsonl: jsonl::JsonlWriter,
    events: events::EventWriter,
}

impl MetricsLog {
    /// Starts both files anew in the run directory `run`, which exists.
    ///
    /// # Errors
    /// [`MetricsError::Io`] where a file cannot be created.
    pub fn create(run: &Path) -> Result<Self, MetricsError> {
        Ok(Self {
            jsonl: jsonl::JsonlWriter::create(&run.join(METRICS_FILE))?,
            events: events::EventWriter::create(&run.join(EVENT_FILE), &[])?,
        })
    }

    /// Goes on after `step`: what was logged at later steps is dropped. A missing record starts empty.
    ///
    /// # Errors
    /// [`MetricsError::Malformed`] where a line up to `step` cannot be read, [`MetricsError::StepOrder`] where its
    /// steps go back, [`MetricsError::Io`] where the file system refuses.
    pub fn resume(run: &Path, step: u64) -> Result<Self, MetricsError> {
        let (jsonl, kept) = jsonl::JsonlWriter::resume(&run.join(METRICS_FILE), step)?;
        Ok(Self { jsonl, events: events::EventWriter::create(&run.join(EVENT_FILE), &kept)? })
    }

    /// The last step of which there is a record.
    #[must_use]
    pub fn last_step(&self) -> Option<u64> {
        self.jsonl.last()
    }

    /// Records the values of one step, in the given order. Steps may repeat but not go back.
    ///
    /// Each file is appended to in a single write, so a killed process leaves at most one line cut short.
    ///
    /// # Errors
    /// [`MetricsError::Name`] for an empty, reserved (`step`, `nonfinite`) or repeated name,
    /// [`MetricsError::StepOrder`], [`MetricsError::StepTooLarge`], [`MetricsError::Io`].
    pub fn log(&mut self, step: u64, values: &[(&str, f64)]) -> Result<(), MetricsError> {
        check_names(values)?;
        if i64::try_from(step).is_err() {
            return Err(MetricsError::StepTooLarge(step));
        }
        self.jsonl.append(step, values)?;
        self.events.append(step, values)
    }

    /// Hands everything logged so far to the disk. Call it before a checkpoint is declared good.
    ///
    /// # Errors
    /// [`MetricsError::Io`].
    pub fn sync(&mut self) -> Result<(), MetricsError> {
        self.jsonl.sync()?;
        self.events.sync()
    }
}

/// Names that would make a line ambiguous.
fn check_names(values: &[(&str, f64)]) -> Result<(), MetricsError> {
    let refuse = |name: &str, reason| Err(MetricsError::Name { name: name.to_owned(), reason });
    for (i, (name, _)) in values.iter().enumerate() {
        if name.is_empty() {
            return refuse(name, "is empty");
        }
        if [jsonl::STEP, jsonl::NONFINITE].contains(name) {
            return refuse(name, "is reserved");
        }
        if values[..i].iter().any(|(earlier, _)| earlier == name) {
            return refuse(name, "is given twice");
        }
    }
    Ok(())
}
