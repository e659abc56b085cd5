//! TensorBoard event files: `tensorflow.Event` messages in TFRecord framing.
//!
//! A record is: length (u64, little endian), masked CRC-32C of those 8 bytes, the message, masked CRC-32C of the
//! message. The mask is `rotate_right(crc, 15) + 0xa282ead8`, so that a checksum of data that holds checksums
//! stays a good one. The first message names the file's version, each other holds the scalars of one step.
//!
//! `wall_time` is the step, read as seconds since 1970. A clock would make the files of two equal runs differ; zero
//! everywhere would collapse TensorBoard's "relative" and "wall" axes. Scalars are 32-bit there by format: what
//! exceeds that range becomes infinite, and the JSONL record keeps the exact number.

use super::{MetricsError, Record};
use prost::Message;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// The event file's name in a run directory. TensorBoard takes every file with `tfevents` in its name; where it
/// puts a time and a host, this one has constants.
pub const EVENT_FILE: &str = "events.out.tfevents.0.coptidice";

/// The subset of `tensorflow.Event` that holds scalars.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Event {
    #[prost(double, tag = "1")]
    pub(super) wall_time: f64,
    #[prost(int64, tag = "2")]
    pub(super) step: i64,
    #[prost(oneof = "What", tags = "3, 5")]
    pub(super) what: Option<What>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum What {
    #[prost(string, tag = "3")]
    FileVersion(String),
    #[prost(message, tag = "5")]
    Summary(Summary),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Summary {
    #[prost(message, repeated, tag = "1")]
    pub(super) value: Vec<SummaryValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SummaryValue {
    #[prost(string, tag = "1")]
    pub(super) tag: String,
    /// A member of a oneof in the original, hence present even where it is zero.
    #[prost(float, optional, tag = "2")]
    pub(super) simple_value: Option<f32>,
}

#[derive(Debug)]
pub(super) struct EventWriter {
    path: PathBuf,
    file: File,
}

impl EventWriter {
    /// Starts the file with the events of `records`. It is written beside its place and renamed, so that a reader
    /// never sees half of it.
    pub(super) fn create(path: &Path, records: &[Record]) -> Result<Self, MetricsError> {
        let create = || MetricsError::io(path, "create it");
        let version =
            Event { wall_time: 0.0, step: 0, what: Some(What::FileVersion("brain.Event:2".to_owned())) };
        let mut bytes = frame(&version);
        for record in records {
            let values: Vec<_> = record.values.iter().map(|(name, value)| (name.as_str(), *value)).collect();
            bytes.extend(frame(&event(record.step, &values)));
        }
        let mut file = crate::files::beside(path).map_err(create())?;
        file.write_all(&bytes).map_err(create())?;
        let file = file.persist(path).map_err(|e| create()(e.error))?;
        Ok(Self { path: path.to_owned(), file })
    }

    pub(super) fn append(&mut self, step: u64, values: &[(&str, f64)]) -> Result<(), MetricsError> {
        self.file.write_all(&frame(&event(step, values))).map_err(MetricsError::io(&self.path, "write to it"))
    }

    pub(super) fn sync(&mut self) -> Result<(), MetricsError> {
        self.file.sync_data().map_err(MetricsError::io(&self.path, "sync it"))
    }
}

fn event(step: u64, values: &[(&str, f64)]) -> Event {
    let value = values
        .iter()
        .map(|(name, value)| SummaryValue { tag: (*name).to_owned(), simple_value: Some(*value as f32) })
        .collect();
    Event {
        wall_time: step as f64,
        step: i64::try_from(step).unwrap_or(i64::MAX),
        what: Some(What::Summary(Summary { value })),
    }
}

/// One message in TFRecord framing.
fn frame(event: &Event) -> Vec<u8> {
    let message = event.encode_to_vec();
    let length = (message.len() as u64).to_le_bytes();
    let mut out = Vec::with_capacity(message.len() + 16);
    out.extend(length);
    out.extend(masked_crc(&length).to_le_bytes());
    out.extend(&message);
    out.extend(masked_crc(&message).to_le_bytes());
    out
}

fn masked_crc(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}
