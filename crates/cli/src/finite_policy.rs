//! `policy.json`: the policy of a finite CMDP under the names that its logs use.

use std::collections::BTreeMap;
use std::path::Path;

use coptidice_core::Policy;
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::run_directory::write_json;

/// Largest file that is read.
const SIZE_LIMIT: u64 = 1 << 30;

/// What a log calls a state or an action.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Label {
    /// A whole number.
    Number(i64),
    /// Anything else.
    Text(String),
}

impl std::fmt::Display for Label {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Label::Number(number) => number.fmt(f),
            Label::Text(text) => text.fmt(f),
        }
    }
}

/// Names as they stand in a file: numbers where every one reads back as it was written, text otherwise.
pub(crate) fn labels(names: &[String]) -> Vec<Label> {
    let number =
        |name: &String| name.parse::<i64>().ok().filter(|n| n.to_string() == *name).map(Label::Number);
    let numbers: Option<Vec<Label>> = names.iter().map(number).collect();
    numbers.unwrap_or_else(|| names.iter().cloned().map(Label::Text).collect())
}

/// `0..count`.
pub(crate) fn numbered(count: usize) -> Vec<Label> {
    (0..count as i64).map(Label::Number).collect()
}

/// The file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct FinitePolicy {
    /// Names of the states, in the order of the rows.
    pub(crate) states: Vec<Label>,
    /// Names of the actions, in the order of the columns.
    pub(crate) actions: Vec<Label>,
    /// `π(a|s)`.
    pub(crate) probabilities: Vec<Vec<f64>>,
}

impl FinitePolicy {
    /// A policy under its names.
    pub(crate) fn new(states: Vec<Label>, actions: Vec<Label>, policy: &Policy) -> Self {
        let probabilities = (0..policy.states()).map(|s| policy.row(s).to_vec()).collect();
        FinitePolicy { states, actions, probabilities }
    }

    /// Reads a file and checks its shape; rows are checked where they are used.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let refuse = |why: String| {
            Failure::usage(
                format!("{}: {why}", path.display()),
                "give a policy.json with \"states\", \"actions\" and \"probabilities\", a row for each state",
            )
        };
        let size = std::fs::metadata(path).map_err(|error| refuse(error.to_string()))?.len();
        if size > SIZE_LIMIT {
            return Err(refuse("larger than 1 GiB".to_owned()));
        }
        let text = std::fs::read_to_string(path).map_err(|error| refuse(error.to_string()))?;
        let policy: FinitePolicy = serde_json::from_str(&text).map_err(|error| refuse(error.to_string()))?;
        let rows = policy.probabilities.len();
        if rows != policy.states.len() {
            return Err(refuse(format!("{rows} rows of probabilities for {} states", policy.states.len())));
        }
        for (what, names) in [("state", &policy.states), ("action", &policy.actions)] {
            let mut sorted: Vec<&Label> = names.iter().collect();
            sorted.sort();
            if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
                return Err(refuse(format!("{what} {} stands there twice", twice[0])));
            }
        }
        let width = policy.actions.len();
        if let Some(row) = policy.probabilities.iter().position(|row| row.len() != width) {
            let found = policy.probabilities[row].len();
            return Err(refuse(format!(
                "the row of state {} has {found} probabilities for {width} actions",
                policy.states[row]
            )));
        }
        Ok(policy)
    }

    /// Writes the file.
    pub(crate) fn write(&self, path: &Path) -> Result<(), Failure> {
        write_json(path, self)
    }

    /// The policy over `states` and `actions`. States that the file does not name get `fallback`'s rows; how many
    /// those are is returned too. An action that is not among `actions` may not be chosen.
    pub(crate) fn over(
        &self,
        path: &Path,
        states: &[Label],
        actions: &[Label],
        fallback: &Policy,
    ) -> Result<(Policy, usize), Failure> {
        let refuse = |why: String| {
            Failure::usage(
                format!("{}: {why}", path.display()),
                "evaluate a policy on the process it was made for",
            )
        };
        let place = |names: &[Label]| -> BTreeMap<Label, usize> {
            names.iter().cloned().enumerate().map(|(i, name)| (name, i)).collect()
        };
        let (row_of, column_of) = (place(&self.states), place(actions));
        let mut probabilities = fallback.probabilities().to_vec();
        let mut missing = 0;
        for (s, name) in states.iter().enumerate() {
            let Some(&row) = row_of.get(name) else {
                missing += 1;
                continue;
            };
            let target = &mut probabilities[s * actions.len()..(s + 1) * actions.len()];
            target.fill(0.0);
            for (action, &p) in self.actions.iter().zip(&self.probabilities[row]) {
                match column_of.get(action) {
                    Some(&column) => target[column] += p,
                    None if p == 0.0 => {}
                    None => return Err(refuse(format!("action {action} in state {name} is unknown here"))),
                }
            }
        }
        if missing == states.len() {
            return Err(refuse("it names none of the states".to_owned()));
        }
        let policy = Policy::new(states.len(), actions.len(), probabilities)
            .map_err(|error| refuse(error.to_string()))?;
        Ok((policy, missing))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(texts: &[&str]) -> Vec<Label> {
        labels(&texts.iter().map(|t| (*t).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn numbers_stay_numbers_only_where_all_are() {
        assert_eq!(names(&["0", "12", "-3"]), [Label::Number(0), Label::Number(12), Label::Number(-3)]);
        assert_eq!(names(&["0", "07"]), [Label::Text("0".to_owned()), Label::Text("07".to_owned())]);
        assert_eq!(numbered(2), names(&["0", "1"]));
    }

    #[test]
    fn a_name_that_stands_twice_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("policy.json");
        let content = |states: &str, actions: &str| {
            format!("{{\"states\":{states},\"actions\":{actions},\"probabilities\":[[0.5,0.5],[1,0]]}}")
        };
        for (states, actions, fits) in
            [("[0,1]", "[0,1]", true), ("[0,0]", "[0,1]", false), ("[\"a\",\"b\"]", "[\"x\",\"x\"]", false)]
        {
            std::fs::write(&path, content(states, actions)).unwrap();
            assert_eq!(FinitePolicy::read(&path).is_ok(), fits, "{states} {actions}");
        }
    }

    #[test]
    fn rows_go_to_their_names() {
        let policy = Policy::new(2, 2, vec![1.0, 0.0, 0.25, 0.75]).unwrap();
        let file = FinitePolicy::new(names(&["b", "a"]), names(&["x", "y"]), &policy);
        let fallback = Policy::uniform(3, 3).unwrap();
        let path = Path::new("policy.json");
        let known = (names(&["a", "b", "c"]), names(&["y", "z", "x"]));
        let (read, missing) = file.over(path, &known.0, &known.1, &fallback).ok().unwrap();
        assert_eq!((read.row(0), read.row(1)), (&[0.75, 0.0, 0.25][..], &[0.0, 0.0, 1.0][..]));
        assert_eq!((read.row(2), missing), (fallback.row(2), 1));
        let narrow = Policy::uniform(3, 1).unwrap();
        assert!(file.over(path, &known.0, &names(&["x"]), &narrow).is_err(), "y is chosen but unknown");
        assert!(file.over(path, &names(&["d"]), &known.1, &Policy::uniform(1, 3).unwrap()).is_err());
    }
}
