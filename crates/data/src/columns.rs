//! Which column of a table plays which role.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::DataError;

/// Roles of the columns of a CSV or Parquet file. What is left out is found by name:
///
/// | role | names |
/// |---|---|
/// | episode | `episode`, `episode_id`, `trajectory`, `trajectory_id` |
/// | step | `step`, `t`, `timestep`, `time_step` |
/// | state | `state`, `observation`, `obs`, or one of these followed by `_` or a digit and more |
/// | action | `action`, or `action` followed by `_` or a digit and more |
/// | reward | `reward` |
/// | cost | `cost`, or `cost` followed by `_` or a digit and more |
/// | next_state | `next_` and the name of each state column (all of them or none) |
/// | terminal | `terminal`, `terminated` |
/// | timeout | `timeout`, `truncated` |
/// | propensity | `propensity` |
///
/// A list entry that ends in `*` stands for every column that begins so, in the order of the file.
/// The name of a cost is its column's name without a leading `cost_`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ColumnMap {
    /// Tells the episodes apart; any values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub episode: Option<String>,
    /// Orders the rows of an episode; numbers with a constant stride.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// Components of the observation, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub state: Vec<String>,
    /// Components of the action, in order; one column may hold ids or labels of discrete actions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub action: Vec<String>,
    /// The reward.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reward: Option<String>,
    /// The costs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<Vec<String>>,
    /// Components of the next observation, in the order of `state`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_state: Option<Vec<String>>,
    /// Set where the process ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminal: Option<String>,
    /// Set where only the recording ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
    /// Probability (density) of the action under the logging policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub propensity: Option<String>,
}

impl ColumnMap {
    /// Reads a map from a TOML file such as `episode = "stay"`, `cost = ["cost_*"]`.
    ///
    /// # Errors
    /// If the file cannot be read, or holds anything but the fields above.
    pub fn load(path: &Path) -> Result<Self, DataError> {
        let text =
            std::fs::read_to_string(path).map_err(|e| DataError::io(path, "read the column map", e))?;
        toml::from_str(&text).map_err(|e| DataError::options(path.display().to_string(), e.to_string()))
    }

    /// This map with whatever `other` sets put over it.
    #[must_use]
    pub fn overridden_by(self, other: ColumnMap) -> ColumnMap {
        let list = |mine: Vec<String>, theirs: Vec<String>| if theirs.is_empty() { mine } else { theirs };
        ColumnMap {
            episode: other.episode.or(self.episode),
            step: other.step.or(self.step),
            state: list(self.state, other.state),
            action: list(self.action, other.action),
            reward: other.reward.or(self.reward),
            cost: other.cost.or(self.cost),
            next_state: other.next_state.or(self.next_state),
            terminal: other.terminal.or(self.terminal),
            timeout: other.timeout.or(self.timeout),
            propensity: other.propensity.or(self.propensity),
        }
    }

    /// Positions of the roles among `names`.
    pub(crate) fn resolve(&self, path: &Path, names: &[String]) -> Result<Roles, DataError> {
        let finder = Finder { path, names };
        let state = finder.list(&self.state, "state", &["state", "observation", "obs"])?;
        let next_state = match &self.next_state {
            Some(given) => finder.list(given, "next state", &[])?,
            None => finder.successors(&state)?,
        };
        if !next_state.is_empty() && next_state.len() != state.len() {
            return Err(DataError::options(
                path.display().to_string(),
                format!(
                    "{} state columns but {} next-state columns; name one next-state column for each state column, \
                     in the same order, or none",
                    state.len(),
                    next_state.len()
                ),
            ));
        }
        let cost = match &self.cost {
            Some(given) => finder.list(given, "cost", &[])?,
            None => finder.family(&["cost"]),
        };
        let roles = Roles {
            episode: finder.one(&self.episode, "episode", EPISODE)?,
            step: finder.one(&self.step, "step", &["step", "t", "timestep", "time_step"])?,
            action: finder.list(&self.action, "action", &["action"])?,
            reward: finder.required(&self.reward, "reward", &["reward"])?,
            terminal: finder.one(&self.terminal, "terminal", &["terminal", "terminated"])?,
            timeout: finder.one(&self.timeout, "time-out", &["timeout", "truncated"])?,
            propensity: finder.one(&self.propensity, "propensity", &["propensity"])?,
            state,
            next_state,
            cost,
        };
        roles.check_distinct(path, names)?;
        Ok(roles)
    }
}

const EPISODE: &[&str] = &["episode", "episode_id", "trajectory", "trajectory_id"];
const REMEDY: &str =
    "Say which it is, by --state, --action, --reward, --cost and so on, or in a file: --columns MAP.toml";

/// Positions of the columns of each role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Roles {
    pub(crate) episode: Option<usize>,
    pub(crate) step: Option<usize>,
    pub(crate) state: Vec<usize>,
    pub(crate) action: Vec<usize>,
    pub(crate) reward: usize,
    pub(crate) cost: Vec<usize>,
    pub(crate) next_state: Vec<usize>,
    pub(crate) terminal: Option<usize>,
    pub(crate) timeout: Option<usize>,
    pub(crate) propensity: Option<usize>,
}

impl Roles {
    /// Every position used, in a fixed order of roles: the order in which a reader asks for them.
    pub(crate) fn all(&self) -> Vec<usize> {
        let mut all: Vec<usize> = Vec::new();
        all.extend(&self.state);
        all.extend(&self.next_state);
        all.extend(&self.action);
        all.push(self.reward);
        all.extend(&self.cost);
        all.extend(
            [self.episode, self.step, self.terminal, self.timeout, self.propensity].into_iter().flatten(),
        );
        all
    }

    fn check_distinct(&self, path: &Path, names: &[String]) -> Result<(), DataError> {
        let mut used = vec![false; names.len()];
        for position in self.all() {
            if std::mem::replace(&mut used[position], true) {
                return Err(DataError::DuplicateColumn {
                    path: path.to_owned(),
                    detail: format!(
                        "column {:?} is given two roles; give each role its own",
                        names[position]
                    ),
                });
            }
        }
        Ok(())
    }
}

/// The name of the cost in column `column`.
pub(crate) fn cost_name(column: &str) -> String {
    match column.strip_prefix("cost_") {
        Some(rest) if !rest.is_empty() => rest.to_owned(),
        _ => column.to_owned(),
    }
}

/// Whether `name` is `stem`, or `stem` followed by `_` or a digit and more.
pub(crate) fn in_family(name: &str, stem: &str) -> bool {
    name.strip_prefix(stem)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(|c: char| c == '_' || c.is_ascii_digit()))
}

struct Finder<'a> {
    path: &'a Path,
    names: &'a [String],
}

impl Finder<'_> {
    fn position(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|candidate| candidate == name)
    }

    fn missing(&self, column: &str, role: &'static str) -> DataError {
        DataError::MissingColumn {
            path: self.path.to_owned(),
            column: column.to_owned(),
            role,
            available: self.names.to_vec(),
            remedy: REMEDY,
        }
    }

    /// The column given, or the first of `defaults` that exists.
    fn one(
        &self,
        given: &Option<String>,
        role: &'static str,
        defaults: &[&str],
    ) -> Result<Option<usize>, DataError> {
        match given {
            Some(name) => self.position(name).map(Some).ok_or_else(|| self.missing(name, role)),
            None => Ok(defaults.iter().find_map(|name| self.position(name))),
        }
    }

    fn required(
        &self,
        given: &Option<String>,
        role: &'static str,
        defaults: &[&str],
    ) -> Result<usize, DataError> {
        self.one(given, role, defaults)?.ok_or_else(|| self.missing(defaults[0], role))
    }

    /// The columns given, or those of the family of one of `defaults`; never empty where there are defaults.
    fn list(&self, given: &[String], role: &'static str, defaults: &[&str]) -> Result<Vec<usize>, DataError> {
        let mut found = Vec::new();
        for name in given {
            match name.strip_suffix('*') {
                Some(prefix) => {
                    let before = found.len();
                    found.extend((0..self.names.len()).filter(|&i| self.names[i].starts_with(prefix)));
                    if found.len() == before {
                        return Err(self.missing(name, role));
                    }
                }
                None => found.push(self.position(name).ok_or_else(|| self.missing(name, role))?),
            }
        }
        if found.is_empty() && !defaults.is_empty() {
            found = self.family(defaults);
            if found.is_empty() {
                return Err(self.missing(defaults[0], role));
            }
        }
        Ok(found)
    }

    /// Columns named after the first of `stems` that has any.
    fn family(&self, stems: &[&str]) -> Vec<usize> {
        let of = |stem: &str| -> Vec<usize> {
            (0..self.names.len()).filter(|&i| in_family(&self.names[i], stem)).collect()
        };
        stems.iter().map(|stem| of(stem)).find(|found| !found.is_empty()).unwrap_or_default()
    }

    fn successors(&self, state: &[usize]) -> Result<Vec<usize>, DataError> {
        let names: Vec<String> = state.iter().map(|&i| format!("next_{}", self.names[i])).collect();
        let found: Vec<Option<usize>> = names.iter().map(|name| self.position(name)).collect();
        if found.iter().all(Option::is_none) {
            return Ok(Vec::new());
        }
        found
            .into_iter()
            .zip(&names)
            .map(|(position, name)| position.ok_or_else(|| self.missing(name, "next state")))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &str) -> Vec<String> {
        list.split(' ').map(str::to_owned).collect()
    }

    fn resolve(map: &ColumnMap, list: &str) -> Result<Roles, DataError> {
        map.resolve(Path::new("log.csv"), &names(list))
    }

    #[test]
    fn roles_are_found_by_name() {
        let list =
            "episode step state_x state_y next_state_x next_state_y action reward cost_heat cost terminal";
        let roles = resolve(&ColumnMap::default(), list).unwrap();
        let expected = Roles {
            episode: Some(0),
            step: Some(1),
            state: vec![2, 3],
            next_state: vec![4, 5],
            action: vec![6],
            reward: 7,
            cost: vec![8, 9],
            terminal: Some(10),
            timeout: None,
            propensity: None,
        };
        assert_eq!(roles, expected);
        assert_eq!((cost_name("cost_heat"), cost_name("cost")), ("heat".to_owned(), "cost".to_owned()));
    }

    #[test]
    fn a_map_overrides_names_and_expands_stars() {
        let map: ColumnMap =
            toml::from_str("episode = 'stay'\nstate = ['lab_*', 'age']\naction = ['dose']\ncost = ['lab_c']")
                .unwrap();
        let flags = ColumnMap { cost: Some(vec![]), ..ColumnMap::default() };
        let roles = resolve(&map.overridden_by(flags), "stay age lab_a lab_b dose reward").unwrap();
        assert_eq!((roles.episode, roles.state, roles.cost), (Some(0), vec![2, 3, 1], vec![]));
    }

    #[test]
    fn misfits_are_named() {
        let missing = resolve(&ColumnMap::default(), "state action").unwrap_err();
        assert!(
            matches!(&missing, DataError::MissingColumn { column, .. } if column == "reward"),
            "{missing}"
        );
        let half = resolve(&ColumnMap::default(), "state_a state_b next_state_a action reward").unwrap_err();
        assert!(matches!(&half, DataError::MissingColumn { column, .. } if column == "next_state_b"));
        let twice = ColumnMap { terminal: Some("reward".into()), ..ColumnMap::default() };
        let twice = resolve(&twice, "state action reward").unwrap_err();
        assert_eq!(twice.code(), "duplicate-column");
        let uneven = ColumnMap { next_state: Some(vec!["b".into()]), ..ColumnMap::default() };
        let uneven = resolve(&uneven, "state_1 state_2 b action reward").unwrap_err();
        assert_eq!(uneven.code(), "options");
        assert!(toml::from_str::<ColumnMap>("epsiode = 'x'").is_err(), "a misspelt field is refused");
    }
}
