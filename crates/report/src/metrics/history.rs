//! Reading a record back, to draw it.

use super::{MetricsError, jsonl};
use std::path::Path;

/// One line of `metrics.jsonl`.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// The training step.
    pub step: u64,
    /// Names and values in the order in which they were logged. A value may be NaN or infinite.
    pub values: Vec<(String, f64)>,
}

/// All that a run has logged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    records: Vec<Record>,
}

impl History {
    /// Reads `metrics.jsonl`. A last line cut short by a kill is left out.
    ///
    /// # Errors
    /// [`MetricsError::Io`], or [`MetricsError::Malformed`] for a line that is no record.
    pub fn read(path: &Path) -> Result<Self, MetricsError> {
        Ok(Self { records: jsonl::read(path)? })
    }

    /// A history from records at hand, oldest first.
    #[must_use]
    pub fn from_records(records: Vec<Record>) -> Self {
        Self { records }
    }

    /// The lines, oldest first.
    #[must_use]
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// Every name that occurs, in order of first appearance.
    #[must_use]
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for (name, _) in self.records.iter().flat_map(|r| &r.values) {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
        names
    }

    /// The values of `name` with their steps; empty for a name that never occurs.
    #[must_use]
    pub fn series(&self, name: &str) -> Vec<(u64, f64)> {
        self.records.iter().filter_map(|r| Some((r.step, r.value(name)?))).collect()
    }

    /// The last value of `name`.
    #[must_use]
    pub fn last(&self, name: &str) -> Option<f64> {
        self.records.iter().rev().find_map(|r| r.value(name))
    }

    /// The same with averages per step (`reward`, `cost*/*`, `compared/*`, `limit/*`) divided by `w/mean`: of the steps that
    /// are taken, where a process that ends under a discount has less mass than 1. Records of no mass are left out.
    #[must_use]
    pub fn of_steps_taken(&self) -> Self {
        let is_average = |name: &str| {
            let stem = name.split_once('/').map_or(name, |(stem, _)| stem);
            matches!(stem, "reward" | "cost" | "cost_bound" | "cost_reweighted" | "compared" | "limit")
        };
        let record = |record: &Record| {
            let mass = record.value("w/mean").filter(|&mass| mass > 0.0)?;
            let value = |(name, value): &(String, f64)| {
                (name.clone(), if is_average(name) { value / mass } else { *value })
            };
            Some(Record { step: record.step, values: record.values.iter().map(value).collect() })
        };
        Self { records: self.records.iter().filter_map(record).collect() }
    }

    /// The last step with a record.
    #[must_use]
    pub fn last_step(&self) -> Option<u64> {
        self.records.last().map(|r| r.step)
    }
}

impl Record {
    /// The value of `name` at this step.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<f64> {
        self.values.iter().find(|(n, _)| n == name).map(|&(_, value)| value)
    }
}
