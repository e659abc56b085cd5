//! What a run leaves for people and programs to read: metrics, figures, pages, terminal summaries.
//!
//! | module | makes |
//! |---|---|
//! | [`metrics`] | `metrics.jsonl` and TensorBoard's event file, and reads the former back |
//! | [`svg`] | figures: lines, bars, histograms, maps, grids of panels |
//! | [`page`] | `report.html`: self-contained pages composed of typed sections |
//! | [`table`], [`text`] | tables, histograms and sparklines for a terminal |
//! | [`bins`], [`number`] | samples cut into bins; numbers as people read them |
//!
//! Everything here is a pure function of its input: no clock, no randomness, no unordered iteration. What comes from
//! a user's files (names, messages, numbers of any size) is escaped for where it goes, and drawn or named as missing.

pub mod bins;
mod files;
pub mod metrics;
pub mod number;
pub mod page;
pub mod svg;
pub mod table;
pub mod text;

pub use files::write_whole;
