//! Logged transitions: what was observed, done, earned and paid, step by step.
//!
//! # The problem
//!
//! A log is a list of episodes of a system that nobody may experiment on. [`Transitions`] holds it in the form
//! that training needs:
//!
//! | column | shape | type | meaning |
//! |---|---|---|---|
//! | observation | `[N, D]` | f32 | `s`, before the action |
//! | next observation | `[N, D]` | f32 | `s'`, after the action; stored only where it is not the next row's observation; NaN where an episode was stopped and it was not recorded |
//! | action | `[N, A]` f32 or `[N]` u32 | | continuous vector, or an id in `0..count` with its original label |
//! | reward | `[N]` | f32 | |
//! | costs | `[N, K]` | f32 | `K ≥ 0` named costs |
//! | terminal | `[N]` | bool | the process ended: bootstrapping stops |
//! | timeout | `[N]` | bool | only the recording ended: bootstrapping goes through |
//! | propensity | `[N]`, optional | f32 | probability (density) with which the logging policy took the action |
//!
//! Rows of an episode are contiguous and in the order of time. Initial states are the first observations of the
//! episodes, never rows picked by a flag inside a batch.
//!
//! # From a file to training
//!
//! ```no_run
//! use coptidice_data::{Batch, CheckOptions, ReadOptions, load};
//!
//! let log = load("log.hdf5".as_ref(), &ReadOptions::default(), &CheckOptions::default())?.transitions;
//! let mut batch = Batch::default();
//! log.gather(&[0_u32, 17, 4], &mut batch);
//! # Ok::<(), coptidice_data::DataError>(())
//! ```
//!
//! | function | command | what it does |
//! |---|---|---|
//! | [`read()`] | | reads any known format; what can be read is read, what is odd is listed |
//! | [`validate`] | `data validate` | also checks the values |
//! | [`load`] | before training | the same, and refuses a log with errors |
//! | [`inspect()`] | `data inspect` | also summarises |
//! | [`repair()`] | `data repair` | mends what can be mended, and says what it did |
//! | [`convert`], [`split`] | `data convert`, `data split` | write |
//! | [`read_tabular`] | | a table as the log of a finite CMDP |
//!
//! # Formats
//!
//! The contents decide, not the name: HDF5 with flat arrays (DSRL, D4RL) or with a group for each episode (Minari); a
//! Minari directory of Arrow or Parquet files; npz with the names of DSRL, of OmniSafe, or with the suffixes `_tm1` and
//! `_t`; CSV and Parquet with named columns ([`ColumnMap`]); a directory with one .npy file for each column. Files are
//! streamed into the columns; the directory is mapped, so that it may exceed memory, and must not change while the
//! log is in use. Every format but Minari's is also written.
//!
//! # What is wrong with a log
//!
//! A [`DataError`] means that there is no log to speak of. Everything else is a [`Problem`] with a stable
//! [`ProblemCode`], a column, a row and a remedy; its severity says whether training may go ahead.

mod batch;
mod builder;
mod check;
mod check_limits;
mod column;
mod columns;
mod error;
mod fingerprint;
mod inspect;
mod next;
mod problem;
mod read;
mod repair;
mod select;
mod table;
mod tabular;
mod transitions;
mod write;

pub use batch::{Batch, RowIndex};
pub use builder::{ActionSpace, BuildError, Schema, Step, StepAction, TransitionsBuilder};
pub use check::{CheckOptions, load, validate};
pub use check_limits::check_limits;
pub use column::Column;
pub use columns::ColumnMap;
pub use error::DataError;
pub use fingerprint::Fingerprint;
pub use inspect::{ActionSummary, CostSummary, Inspection, Means, inspect};
pub use problem::{Problem, ProblemCode, Severity};
pub use read::{ActionKind, Done, Format, Log, ReadOptions, detect, read};
pub use repair::{FaultyEpisode, Repair, RepairOptions, Repaired, repair};
pub use select::{Split, SplitError};
pub use tabular::{TabularColumns, TabularLog, read_tabular};
pub use transitions::{Actions, Episode, EpisodeEnd, Transitions};
pub use write::{
    ConvertOptions, LogWriter, SplitOptions, WriteOptions, Written, convert, split, write, write_episodes,
};
