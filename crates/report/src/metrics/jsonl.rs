//! `metrics.jsonl`: lines, their reading, and cutting the file at a step.

use super::{MetricsError, Record};
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};

/// The record's name in a run directory.
pub const METRICS_FILE: &str = "metrics.jsonl";

pub(super) const STEP: &str = "step";
pub(super) const NONFINITE: &str = "nonfinite";

/// A line longer than this is no line of ours; reading one must not fill the memory.
const MAX_LINE: u64 = 1 << 20;

#[derive(Debug)]
pub(super) struct JsonlWriter {
    path: PathBuf,
    file: File,
    last: Option<u64>,
}

impl JsonlWriter {
    pub(super) fn create(path: &Path) -> Result<Self, MetricsError> {
        let file = File::create(path).map_err(MetricsError::io(path, "create it"))?;
        Ok(Self { path: path.to_owned(), file, last: None })
    }

    /// Cuts the file behind the last line whose step is at most `step`, and returns the lines that stay.
    pub(super) fn resume(path: &Path, step: u64) -> Result<(Self, Vec<Record>), MetricsError> {
        let mut options = OpenOptions::new();
        let file = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(MetricsError::io(path, "open it"))?;
        let (records, kept_bytes) = read_up_to(&file, path, step)?;
        file.set_len(kept_bytes).map_err(MetricsError::io(path, "shorten it"))?;
        drop(file);
        let file =
            OpenOptions::new().append(true).open(path).map_err(MetricsError::io(path, "append to it"))?;
        let last = records.last().map(|r| r.step);
        Ok((Self { path: path.to_owned(), file, last }, records))
    }

    pub(super) fn last(&self) -> Option<u64> {
        self.last
    }

    pub(super) fn append(&mut self, step: u64, values: &[(&str, f64)]) -> Result<(), MetricsError> {
        if let Some(last) = self.last.filter(|&last| step < last) {
            return Err(MetricsError::StepOrder { step, last });
        }
        let mut line = serde_json::to_vec(&Line { step, values })
            .expect("strings, integers and finite numbers serialise");
        line.push(b'\n');
        self.file.write_all(&line).map_err(MetricsError::io(&self.path, "write to it"))?;
        self.last = Some(step);
        Ok(())
    }

    pub(super) fn sync(&mut self) -> Result<(), MetricsError> {
        self.file.sync_data().map_err(MetricsError::io(&self.path, "sync it"))
    }
}

/// Reads every complete line of a record.
pub(super) fn read(path: &Path) -> Result<Vec<Record>, MetricsError> {
    let file = File::open(path).map_err(MetricsError::io(path, "open it"))?;
    Ok(read_up_to(&file, path, u64::MAX)?.0)
}

/// The records up to `step` and the number of bytes they take.
///
/// A line that cannot be read is an error only where it is followed by one at or before `step`: all else lies
/// behind the cut, where a crash may have left anything.
fn read_up_to(file: &File, path: &Path, step: u64) -> Result<(Vec<Record>, u64), MetricsError> {
    let mut reader = BufReader::new(file);
    let mut records: Vec<Record> = Vec::new();
    let mut kept_bytes = 0;
    let mut position = 0;
    let mut broken: Option<MetricsError> = None;
    let mut buffer = Vec::new();
    for line in 1.. {
        buffer.clear();
        let length = (&mut reader)
            .take(MAX_LINE)
            .read_until(b'\n', &mut buffer)
            .map_err(MetricsError::io(path, "read it"))? as u64;
        if length == 0 || (buffer.last() != Some(&b'\n') && length < MAX_LINE) {
            break;
        }
        position += length;
        let malformed = |reason| MetricsError::Malformed { path: path.to_owned(), line, reason };
        match serde_json::from_slice::<Record>(&buffer) {
            Ok(record) if record.step <= step => {
                if let Some(error) = broken {
                    return Err(error);
                }
                if let Some(last) = records.last().map(|r| r.step).filter(|&last| record.step < last) {
                    return Err(malformed(format!("step {} follows step {last}", record.step)));
                }
                records.push(record);
                kept_bytes = position;
            }
            Ok(record) => {
                broken
                    .get_or_insert_with(|| malformed(format!("step {} precedes earlier ones", record.step)));
            }
            Err(error) => {
                broken.get_or_insert_with(|| malformed(error.to_string()));
            }
        }
    }
    match broken {
        // Reading everything: a broken line in the file is then no tail that is about to be dropped.
        Some(error) if step == u64::MAX => Err(error),
        _ => Ok((records, kept_bytes)),
    }
}

/// How a value that is not finite is named.
fn nonfinite_name(value: f64) -> &'static str {
    if value.is_nan() {
        "NaN"
    } else if value > 0.0 {
        "inf"
    } else {
        "-inf"
    }
}

fn nonfinite_value(name: &str) -> Option<f64> {
    match name {
        "NaN" => Some(f64::NAN),
        "inf" => Some(f64::INFINITY),
        "-inf" => Some(f64::NEG_INFINITY),
        _ => None,
    }
}

struct Line<'a> {
    step: u64,
    values: &'a [(&'a str, f64)],
}

impl Serialize for Line<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry(STEP, &self.step)?;
        for (name, value) in self.values {
            map.serialize_entry(name, &value.is_finite().then_some(value))?;
        }
        if self.values.iter().any(|(_, value)| !value.is_finite()) {
            map.serialize_entry(NONFINITE, &NonFinite(self.values))?;
        }
        map.end()
    }
}

struct NonFinite<'a>(&'a [(&'a str, f64)]);

impl Serialize for NonFinite<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let named = self.0.iter().filter(|(_, value)| !value.is_finite());
        serializer.collect_map(named.map(|(name, value)| (name, nonfinite_name(*value))))
    }
}

impl<'de> Deserialize<'de> for Record {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(RecordVisitor)
    }
}

struct RecordVisitor;

impl<'de> Visitor<'de> for RecordVisitor {
    type Value = Record;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object with a step and numbers")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Record, A::Error> {
        let mut step = None;
        let mut values: Vec<(String, f64)> = Vec::new();
        let mut named: Vec<(String, String)> = Vec::new();
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                STEP => step = Some(map.next_value()?),
                NONFINITE => {
                    named =
                        map.next_value::<std::collections::BTreeMap<String, String>>()?.into_iter().collect();
                }
                _ => {
                    let value: Option<f64> = map.next_value()?;
                    values.push((key, value.unwrap_or(f64::NAN)));
                }
            }
        }
        for (name, word) in named {
            let value = nonfinite_value(&word)
                .ok_or_else(|| A::Error::custom(format!("{word:?} is none of NaN, inf, -inf")))?;
            if let Some(slot) = values.iter_mut().find(|(n, _)| *n == name) {
                slot.1 = value;
            }
        }
        let step = step.ok_or_else(|| A::Error::missing_field(STEP))?;
        Ok(Record { step, values })
    }
}
