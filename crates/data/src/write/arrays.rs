//! A log as arrays: what HDF5, npz and .npy files hold.

use crate::transitions::{Actions, Transitions};

/// Type of the numbers of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    F32,
    I64,
    Bool,
}

impl Kind {
    pub(crate) fn bytes(self) -> usize {
        match self {
            Kind::F32 => 4,
            Kind::I64 => 8,
            Kind::Bool => 1,
        }
    }
}

/// Appends the little-endian bytes of one row of an array.
type RowBytes<'a> = Box<dyn Fn(usize, &mut Vec<u8>) + 'a>;

/// One array, row by row.
pub(crate) struct Array<'a> {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// Numbers of a row; `None` for an array of one axis.
    pub(crate) width: Option<usize>,
    pub(crate) row: RowBytes<'a>,
}

impl<'a> Array<'a> {
    fn floats(name: &'static str, width: Option<usize>, row: impl Fn(usize) -> &'a [f32] + 'a) -> Self {
        Array { name, kind: Kind::F32, width, row: Box::new(move |i, bytes| push_floats(bytes, row(i))) }
    }

    fn scalar(name: &'static str, value: impl Fn(usize) -> f32 + 'a) -> Self {
        Array {
            name,
            kind: Kind::F32,
            width: None,
            row: Box::new(move |i, bytes| push_floats(bytes, &[value(i)])),
        }
    }

    fn flag(name: &'static str, value: impl Fn(usize) -> bool + 'a) -> Self {
        Array {
            name,
            kind: Kind::Bool,
            width: None,
            row: Box::new(move |i, bytes| bytes.push(u8::from(value(i)))),
        }
    }

    /// Bytes of one row.
    pub(crate) fn row_bytes(&self) -> usize {
        self.width.unwrap_or(1) * self.kind.bytes()
    }
}

/// Appends `values`, little-endian.
pub(crate) fn push_floats(bytes: &mut Vec<u8>, values: &[f32]) {
    for value in values {
        bytes.extend_from_slice(&value.to_le_bytes());
    }
}

/// Every name of [`arrays`].
pub(crate) const ARRAY_NAMES: [&str; 7] =
    ["observations", "actions", "rewards", "costs", "terminals", "timeouts", "propensities"];

/// The arrays of a log under the names of DSRL, next observations apart.
pub(crate) fn arrays(log: &Transitions) -> Vec<Array<'_>> {
    let mut arrays = vec![Array::floats("observations", Some(log.observation_dim()), |i| log.observation(i))];
    arrays.push(match log.actions() {
        Actions::Continuous { dim, .. } => Array::floats("actions", Some(*dim), |i| log.continuous_action(i)),
        Actions::Discrete { ids, labels, .. } => {
            let numbers = numeric(labels);
            let row = move |i: usize, bytes: &mut Vec<u8>| {
                let id = ids[i];
                let value = numbers.as_ref().map_or(i64::from(id), |numbers| numbers[id as usize]);
                bytes.extend_from_slice(&value.to_le_bytes());
            };
            Array { name: "actions", kind: Kind::I64, width: None, row: Box::new(row) }
        }
    });
    arrays.push(Array::scalar("rewards", |i| log.reward(i)));
    match log.cost_count() {
        0 => {}
        1 => arrays.push(Array::scalar("costs", |i| log.costs(i)[0])),
        count => arrays.push(Array::floats("costs", Some(count), |i| log.costs(i))),
    }
    arrays.push(Array::flag("terminals", |i| log.terminal(i)));
    arrays.push(Array::flag("timeouts", |i| log.timeout(i)));
    if let Some(values) = &log.propensities {
        arrays.push(Array::scalar("propensities", |i| values[i]));
    }
    debug_assert!(arrays.iter().all(|array| ARRAY_NAMES.contains(&array.name)), "known to be replaceable");
    arrays
}

/// Next observations of every row.
pub(crate) fn next_observations(log: &Transitions) -> Array<'_> {
    Array::floats("next_observations", Some(log.observation_dim()), |i| log.next_observation(i))
}

/// The labels as numbers, if all of them are, spelled as numbers are written: `01` is a word.
pub(crate) fn numeric(labels: &[String]) -> Option<Vec<i64>> {
    let number = |label: &String| label.parse().ok().filter(|number: &i64| number.to_string() == *label);
    labels.iter().map(number).collect()
}

/// What arrays cannot hold: names, and the set of actions (an action may occur in no row of a part of a log).
pub(crate) fn notes(log: &Transitions) -> Vec<(&'static str, &[String])> {
    let mut notes: Vec<(&'static str, &[String])> = Vec::new();
    if log.cost_count() > 0 {
        notes.push(("cost_names", log.cost_names()));
    }
    if !log.observation_names().is_empty() {
        notes.push(("observation_names", log.observation_names()));
    }
    match log.actions() {
        Actions::Discrete { labels, .. } => notes.push(("action_labels", labels)),
        Actions::Continuous { .. } if !log.action_names().is_empty() => {
            notes.push(("action_names", log.action_names()));
        }
        Actions::Continuous { .. } => {}
    }
    notes
}
