//! Minari data sets: one group of an HDF5 file, or one Arrow or Parquet file, for each episode.
//!
//! An episode of `T` steps holds `T + 1` observations; `terminations` end it, `truncations` stop it. The cost is the
//! entry `cost` of `infos`, which may begin with an entry for the reset. Observations of dictionaries and tuples are
//! their numeric leaves side by side, ordered by name (numbers in names by value).

mod arrow;
mod episode;
mod hdf5;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::ReadOptions;
use super::actions::ActionColumns;
use super::arrays::ArraySource as _;
use super::assemble::Parts;
use super::hdf5::{Hdf5Source, is_episode};
use crate::column::Column;
use crate::error::DataError;
use crate::next::{Exceptions, NextObservations};
use crate::problem::{Problem, ProblemCode, Tally};
use crate::table::Cell;
use episode::{Actions, RawEpisode};

/// The main file of the HDF5 layout.
pub(crate) const MAIN_FILE: &str = "main_data.hdf5";

/// Reads a directory of either layout.
pub(crate) fn read_directory(path: &Path, options: &ReadOptions) -> Result<Parts, DataError> {
    let data = path.join("data");
    let data = if data.is_dir() { data } else { path.to_owned() };
    let main = data.join(MAIN_FILE);
    if main.is_file() {
        return read_hdf5(&Hdf5Source::open(&main)?, options);
    }
    let mut episodes: BTreeMap<u64, PathBuf> = BTreeMap::new();
    for entry in std::fs::read_dir(&data).map_err(|e| DataError::io(&data, "list", e))? {
        let entry = entry.map_err(|e| DataError::io(&data, "list", e))?;
        if let Some(number) = entry.file_name().to_str().and_then(|name| name.parse().ok()) {
            episodes.insert(number, entry.path());
        }
    }
    let mut collector = Collector::new(path, options);
    for directory in episodes.values() {
        collector.push(arrow::episode(directory, &collector.cost_keys)?)?;
    }
    collector.finish()
}

/// Reads the HDF5 layout.
pub(crate) fn read_hdf5(source: &Hdf5Source, options: &ReadOptions) -> Result<Parts, DataError> {
    let number = |name: &String| name.strip_prefix("episode_").and_then(|number| number.parse::<u64>().ok());
    let mut groups: Vec<&String> = source.groups().iter().filter(|name| is_episode(name)).collect();
    groups.sort_by_key(|name| number(name));
    let mut collector = Collector::new(source.path(), options);
    for group in groups {
        collector.push(hdf5::episode(source, group, &collector.cost_keys)?)?;
    }
    collector.finish()
}

/// Appends episode after episode.
struct Collector<'a> {
    path: PathBuf,
    options: &'a ReadOptions,
    cost_keys: Vec<String>,
    dim: Option<usize>,
    action: Option<ActionColumns>,
    observations: Vec<f32>,
    last_rows: Vec<usize>,
    last_observations: Vec<f32>,
    rewards: Vec<f32>,
    costs: Vec<f32>,
    cost_count: Option<usize>,
    terminals: Vec<u8>,
    timeouts: Vec<u8>,
    starts: Vec<usize>,
    short: Tally,
    faulty: Vec<usize>,
}

impl<'a> Collector<'a> {
    fn new(path: &Path, options: &'a ReadOptions) -> Self {
        let cost_keys = options.columns.cost.clone().unwrap_or_else(|| vec!["cost".to_owned()]);
        Collector {
            path: path.to_owned(),
            options,
            cost_keys,
            dim: None,
            action: None,
            observations: Vec::new(),
            last_rows: Vec::new(),
            last_observations: Vec::new(),
            rewards: Vec::new(),
            costs: Vec::new(),
            cost_count: None,
            terminals: Vec::new(),
            timeouts: Vec::new(),
            starts: Vec::new(),
            short: Tally::default(),
            faulty: Vec::new(),
        }
    }

    fn length_error(&self, episode: &RawEpisode, column: &str, found: usize, expected: usize) -> DataError {
        DataError::ColumnLength {
            path: self.path.clone(),
            column: format!("{}/{column}", episode.name),
            found,
            expected,
            reference: format!("{}/rewards", episode.name),
        }
    }

    fn push(&mut self, episode: RawEpisode) -> Result<(), DataError> {
        let steps = episode.rewards.len();
        if steps == 0 {
            return Ok(());
        }
        for (column, found) in [
            ("actions", episode.actions.rows()),
            ("terminations", episode.terminations.len()),
            ("truncations", episode.truncations.len()),
        ] {
            if found != steps {
                return Err(self.length_error(&episode, column, found, steps));
            }
        }
        let dim = episode.observations.len() / episode.observation_rows.max(1);
        if dim == 0 || self.dim.is_some_and(|known| known != dim) {
            return Err(DataError::ColumnShape {
                path: self.path.clone(),
                column: format!("{}/observations", episode.name),
                shape: vec![episode.observation_rows, dim],
                expected: match self.dim {
                    Some(known) => format!("{known} numbers for each observation, as in the episodes before"),
                    None => "at least one number for each observation".to_owned(),
                },
            });
        }
        self.dim = Some(dim);
        match episode.observation_rows {
            rows if rows == steps + 1 => {}
            rows if rows == steps => self.short.add(self.rewards.len()),
            rows => return Err(self.length_error(&episode, "observations", rows, steps + 1)),
        }
        let costs = self.cost_columns(&episode)?;
        self.append(&episode, dim, &costs)
    }

    /// The costs of the steps, without that of the reset.
    fn cost_columns<'e>(&mut self, episode: &'e RawEpisode) -> Result<Vec<&'e [f32]>, DataError> {
        let steps = episode.rewards.len();
        let count = episode.costs.len();
        if self.cost_count.is_some_and(|known| known != count) {
            return Err(DataError::MissingColumn {
                path: self.path.clone(),
                column: format!("{}/infos/{}", episode.name, self.cost_keys.join(", ")),
                role: "cost, which other episodes have",
                available: Vec::new(),
                remedy: "Leave the costs out everywhere, or record them in every episode",
            });
        }
        self.cost_count = Some(count);
        episode
            .costs
            .iter()
            .map(|column| match column.len() {
                len if len == steps => Ok(column.as_slice()),
                len if len == steps + 1 => Ok(&column[1..]),
                len => Err(self.length_error(episode, "infos/cost", len, steps)),
            })
            .collect()
    }

    fn append(&mut self, episode: &RawEpisode, dim: usize, costs: &[&[f32]]) -> Result<(), DataError> {
        let (start, steps) = (self.rewards.len(), episode.rewards.len());
        self.starts.push(start);
        self.observations.extend_from_slice(&episode.observations[..steps * dim]);
        self.last_rows.push(start + steps - 1);
        match episode.observations.get(steps * dim..(steps + 1) * dim) {
            Some(after) => self.last_observations.extend_from_slice(after),
            // After a termination it is never used; elsewhere none is invented.
            None if episode.terminations[steps - 1] != 0 => {
                self.last_observations.extend_from_slice(&episode.observations[(steps - 1) * dim..]);
            }
            None => self.last_observations.resize(self.last_observations.len() + dim, f32::NAN),
        }
        self.append_actions(episode)?;
        self.rewards.extend_from_slice(&episode.rewards);
        for step in 0..steps {
            self.costs.extend(costs.iter().map(|column| column[step]));
        }
        self.terminals.extend_from_slice(&episode.terminations);
        self.timeouts.extend_from_slice(&episode.truncations);
        Ok(())
    }

    fn append_actions(&mut self, episode: &RawEpisode) -> Result<(), DataError> {
        let width = match &episode.actions {
            Actions::Whole(_) => 1,
            Actions::Real { width, .. } => *width,
        };
        let kind = self.options.action_kind;
        let columns = self.action.get_or_insert_with(|| ActionColumns::new(width, kind));
        let column = format!("{}/actions", episode.name);
        if columns.width() != width {
            return Err(DataError::ColumnShape {
                path: self.path.clone(),
                column,
                shape: vec![episode.actions.rows(), width],
                expected: format!("{} numbers for each action, as in the episodes before", columns.width()),
            });
        }
        let mut push = |position: usize, cell: Cell<'_>| {
            columns.push(cell).map_err(|expected| DataError::Cell {
                path: self.path.clone(),
                column: column.clone(),
                row: position / width.max(1),
                value: cell.to_string(),
                expected,
            })
        };
        match &episode.actions {
            Actions::Whole(values) => {
                values.iter().enumerate().try_for_each(|(i, &value)| push(i, Cell::Int(value)))
            }
            Actions::Real { values, .. } => {
                values.iter().enumerate().try_for_each(|(i, &value)| push(i, Cell::Float(f64::from(value))))
            }
        }
    }

    fn finish(self) -> Result<Parts, DataError> {
        let (Some(dim), Some(action)) = (self.dim, self.action) else {
            return Err(DataError::Empty { path: self.path });
        };
        let mut problems = Vec::new();
        if let Some(row) = self.short.found() {
            let message = format!(
                "{} episodes hold as many observations as actions: the observation after the last step is missing; \
                 repair marks it as not recorded where the step does not end in a termination",
                self.short.count
            );
            problems
                .push(Problem::new(ProblemCode::ObservationsShort, message).column("observations").row(row));
        }
        let exceptions =
            Exceptions::new(self.rewards.len(), self.last_rows, Column::from(self.last_observations));
        let costs = self.cost_count.unwrap_or(0);
        Ok(Parts {
            path: self.path,
            observation_dim: dim,
            observation_names: Vec::new(),
            observations: Column::from(self.observations),
            next: Some(NextObservations::Chained(exceptions)),
            actions: action.finish("actions", None, &mut problems),
            action_names: Vec::new(),
            rewards: Column::from(self.rewards),
            costs: Column::from(self.costs),
            cost_names: if costs == 0 {
                Vec::new()
            } else {
                self.cost_keys.iter().map(|key| crate::columns::cost_name(key)).collect()
            },
            terminals: Some(Column::from(self.terminals)),
            timeouts: Some(Column::from(self.timeouts)),
            propensities: None,
            starts: Some(self.starts),
            faulty: self.faulty,
            source_rows: None,
            problems,
        })
    }
}
