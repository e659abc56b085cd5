//! Minari data sets: one group of an HDF5 file, or one Arrow or Parquet file, for each episode.
//!
//! An episode of `T` steps holds `T + 1` observations; `terminations` end it, `truncations` stop it. The cost is the
//! entry `cost` of `infos`, which may begin with an entry for the reset. Observations of dictionaries and tuples are
//! their numeric leaves side by side, ordered by name (numbers in names by value).

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::DataType;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::ReadOptions;
use super::arrays::{ArraySource, Block, Element, read_f32, read_flags};
use super::assemble::Parts;
use super::hdf5::{Hdf5Source, is_episode};
use super::table::ActionColumns;
use crate::column::Column;
use crate::error::DataError;
use crate::next::{Exceptions, NextObservations};
use crate::problem::{Problem, ProblemCode, Tally};
use crate::table::{Cell, CellColumn};

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
        collector.push(arrow_episode(directory, &collector.cost_keys)?)?;
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
        collector.push(hdf5_episode(source, group, &collector.cost_keys)?)?;
    }
    collector.finish()
}

/// One episode as its source holds it.
struct RawEpisode {
    name: String,
    /// `[rows, dim]`.
    observations: Vec<f32>,
    observation_rows: usize,
    /// `[T, width]`.
    actions: Actions,
    rewards: Vec<f32>,
    terminations: Vec<u8>,
    truncations: Vec<u8>,
    /// One column for each cost, `T` or `T + 1` rows.
    costs: Vec<Vec<f32>>,
}

enum Actions {
    Whole(Vec<i64>),
    Real { values: Vec<f32>, width: usize },
}

impl Actions {
    fn rows(&self) -> usize {
        match self {
            Actions::Whole(values) => values.len(),
            Actions::Real { values, width } => values.len() / width.max(&1),
        }
    }
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
        let ended = episode.terminations[steps - 1] != 0;
        // Without the observation after the last step, that step can be used only if nothing follows it.
        let usable = match episode.observation_rows {
            rows if rows == steps + 1 => steps,
            rows if rows == steps => {
                self.short.add(self.rewards.len());
                if ended { steps } else { steps - 1 }
            }
            rows => return Err(self.length_error(&episode, "observations", rows, steps + 1)),
        };
        let costs = self.cost_columns(&episode)?;
        if usable > 0 {
            self.append(&episode, usable, dim, &costs)?;
        }
        Ok(())
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

    fn append(
        &mut self,
        episode: &RawEpisode,
        usable: usize,
        dim: usize,
        costs: &[&[f32]],
    ) -> Result<(), DataError> {
        let start = self.rewards.len();
        self.starts.push(start);
        self.observations.extend_from_slice(&episode.observations[..usable * dim]);
        self.last_rows.push(start + usable - 1);
        let after = usable.min(episode.observation_rows - 1);
        self.last_observations.extend_from_slice(&episode.observations[after * dim..(after + 1) * dim]);
        self.append_actions(episode, usable)?;
        self.rewards.extend_from_slice(&episode.rewards[..usable]);
        for step in 0..usable {
            self.costs.extend(costs.iter().map(|column| column[step]));
        }
        self.terminals.extend_from_slice(&episode.terminations[..usable]);
        self.timeouts.extend_from_slice(&episode.truncations[..usable]);
        Ok(())
    }

    fn append_actions(&mut self, episode: &RawEpisode, usable: usize) -> Result<(), DataError> {
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
                values[..usable].iter().enumerate().try_for_each(|(i, &value)| push(i, Cell::Int(value)))
            }
            Actions::Real { values, .. } => values[..usable * width]
                .iter()
                .enumerate()
                .try_for_each(|(i, &value)| push(i, Cell::Float(f64::from(value)))),
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
                 repair leaves out last steps that do not end in a termination",
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

/// Order of the leaves of a dictionary or tuple: by name, numbers in names by value.
fn natural(name: &str) -> Vec<(u64, String)> {
    let part = |part: &str| match part.strip_prefix("_index_").unwrap_or(part).parse::<u64>() {
        Ok(number) => (number, String::new()),
        Err(_) => (u64::MAX, part.to_owned()),
    };
    name.split('/').map(part).collect()
}

/// The arrays side by side, `[rows, width]`, and the number of rows.
fn side_by_side(path: &Path, parts: Vec<(String, Vec<f32>, usize)>) -> Result<(Vec<f32>, usize), DataError> {
    let rows = parts.first().map_or(0, |(_, _, rows)| *rows);
    for (name, _, found) in &parts {
        if *found != rows {
            return Err(DataError::ColumnLength {
                path: path.to_owned(),
                column: name.clone(),
                found: *found,
                expected: rows,
                reference: parts[0].0.clone(),
            });
        }
    }
    if let [(_, values, _)] = &parts[..] {
        return Ok((values.clone(), rows));
    }
    let mut matrix = Vec::new();
    for row in 0..rows {
        for (_, values, rows) in &parts {
            let width = values.len() / rows.max(&1);
            matrix.extend_from_slice(&values[row * width..(row + 1) * width]);
        }
    }
    Ok((matrix, rows))
}

fn hdf5_episode(source: &Hdf5Source, group: &str, cost_keys: &[String]) -> Result<RawEpisode, DataError> {
    let names = source.names_below(group)?;
    let leaves = |stem: &str| {
        let whole = format!("{group}/{stem}");
        let inside = format!("{whole}/");
        let mut leaves: Vec<&String> =
            names.iter().filter(|name| **name == whole || name.starts_with(&inside)).collect();
        leaves.sort_by_key(|name| natural(name));
        leaves
    };
    let required = |stem: &'static str| {
        let found = leaves(stem);
        if found.is_empty() {
            return Err(DataError::MissingColumn {
                path: source.path().to_owned(),
                column: format!("{group}/{stem}"),
                role: stem,
                available: names.clone(),
                remedy: "Write the episode again",
            });
        }
        Ok(found)
    };
    let matrix = |leaves: Vec<&String>| {
        let parts = leaves
            .into_iter()
            .map(|name| Ok((name.clone(), read_f32(source, name)?.values, source.info(name)?.rows())))
            .collect::<Result<Vec<_>, DataError>>()?;
        side_by_side(source.path(), parts)
    };
    let (observations, observation_rows) = matrix(required("observations")?)?;
    let action_leaves = required("actions")?;
    let whole = match action_leaves[..] {
        [name] => source.info(name).map(|info| info.element != Element::Float && info.width() == 1)?,
        _ => false,
    };
    let actions = if whole {
        let mut values = Vec::new();
        source.for_each_block(action_leaves[0], &mut |block| {
            if let Block::Int(block) = block {
                values.extend_from_slice(block);
            }
            Ok(())
        })?;
        Actions::Whole(values)
    } else {
        let (values, rows) = matrix(action_leaves)?;
        let width = values.len() / rows.max(1);
        Actions::Real { values, width }
    };
    let flags = |stem: &'static str| read_flags(source, required(stem)?[0]);
    let costs = match leaves("infos")[..] {
        // A list of JSON texts, one for each step.
        [name] if name.ends_with("/infos") => {
            json_costs(source.path(), name, &source.strings(name)?, cost_keys)?
        }
        _ => {
            let columns = cost_keys.iter().map(|key| format!("{group}/infos/{key}"));
            let found: Vec<String> = columns.filter(|name| names.contains(name)).collect();
            let complete = found.len() == cost_keys.len();
            let read = |name: &String| read_f32(source, name).map(|floats| floats.values);
            if complete { found.iter().map(read).collect::<Result<_, _>>()? } else { Vec::new() }
        }
    };
    Ok(RawEpisode {
        name: group.to_owned(),
        observations,
        observation_rows,
        actions,
        rewards: read_f32(source, required("rewards")?[0])?.values,
        terminations: flags("terminations")?,
        truncations: flags("truncations")?,
        costs,
    })
}

/// The costs out of one JSON object for each step; none where the keys are missing. The first object may be that of
/// the reset and lack them.
fn json_costs(
    path: &Path,
    column: &str,
    texts: &[String],
    keys: &[String],
) -> Result<Vec<Vec<f32>>, DataError> {
    let mut columns = vec![Vec::with_capacity(texts.len()); keys.len()];
    for (row, text) in texts.iter().enumerate() {
        let bad = |value: String, expected: &'static str| DataError::Cell {
            path: path.to_owned(),
            column: column.to_owned(),
            row,
            value: value.chars().take(60).collect(),
            expected,
        };
        let object: serde_json::Value =
            serde_json::from_str(text).map_err(|_| bad(text.clone(), "a JSON object"))?;
        for (key, values) in keys.iter().zip(&mut columns) {
            match object.get(key).map(|value| (value.as_f64().or_else(|| value.as_bool().map(f64_of)), value))
            {
                Some((Some(value), _)) => values.push(value as f32),
                Some((None, value)) => return Err(bad(value.to_string(), "a number as cost")),
                None if row == 0 => values.push(0.0),
                None if values.iter().all(|&value| value == 0.0) && row == 1 => return Ok(Vec::new()),
                None => return Err(bad(text.clone(), "an object with the cost, as in the steps before")),
            }
        }
    }
    Ok(columns)
}

fn f64_of(flag: bool) -> f64 {
    f64::from(u8::from(flag))
}

/// Reads the Arrow or Parquet files of one episode.
fn arrow_episode(directory: &Path, cost_keys: &[String]) -> Result<RawEpisode, DataError> {
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(|e| DataError::io(directory, "list", e))? {
        let path = entry.map_err(|e| DataError::io(directory, "list", e))?.path();
        if path.extension().is_some_and(|e| ["arrow", "feather", "parquet"].iter().any(|known| e == *known)) {
            files.push(path);
        }
    }
    files.sort();
    let mut batches = Vec::new();
    for file in &files {
        batches.extend(batches_of(file)?);
    }
    let Some(first) = batches.first() else {
        return Err(DataError::Empty { path: directory.to_owned() });
    };
    let table = arrow_select::concat::concat_batches(&first.schema(), &batches)
        .map_err(|e| DataError::malformed(directory, "Arrow", e))?;
    let column = |name: &'static str| {
        table.column_by_name(name).ok_or_else(|| DataError::MissingColumn {
            path: directory.to_owned(),
            column: name.to_owned(),
            role: name,
            available: table.schema().fields().iter().map(|field| field.name().clone()).collect(),
            remedy: "Write the episode again",
        })
    };
    // Every column is padded to the number of observations; what stands in the last row belongs to no step.
    let steps = table.num_rows().saturating_sub(1);
    let floats = |name: &'static str, rows: usize| {
        let array = column(name)?.slice(0, rows);
        let mut parts = Vec::new();
        leaves(directory, name, &array, &mut parts)?;
        side_by_side(directory, parts)
    };
    let (observations, observation_rows) = floats("observations", table.num_rows())?;
    let action_array = column("actions")?.slice(0, steps);
    let actions = if action_array.data_type().is_integer() {
        let cells = CellColumn::new(&action_array).expect("integers have a plain reading");
        let whole = (0..steps).map(|row| match cells.cell(row) {
            Cell::Int(value) => Ok(value),
            cell => Err(DataError::Cell {
                path: directory.to_owned(),
                column: "actions".to_owned(),
                row,
                value: cell.to_string(),
                expected: "a whole number",
            }),
        });
        Actions::Whole(whole.collect::<Result<_, _>>()?)
    } else {
        let (values, rows) = floats("actions", steps)?;
        let width = values.len() / rows.max(1);
        Actions::Real { values, width }
    };
    let flags = |name: &'static str| -> Result<Vec<u8>, DataError> {
        Ok(floats(name, steps)?.0.into_iter().map(|value| u8::from(value != 0.0)).collect())
    };
    let name = directory.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    Ok(RawEpisode {
        name,
        observations,
        observation_rows,
        actions,
        rewards: floats("rewards", steps)?.0,
        terminations: flags("terminations")?,
        truncations: flags("truncations")?,
        costs: match table.column_by_name("infos") {
            Some(infos) => arrow_costs(directory, infos, cost_keys)?,
            None => Vec::new(),
        },
    })
}

fn batches_of(path: &Path) -> Result<Vec<RecordBatch>, DataError> {
    let open = || File::open(path).map_err(|e| DataError::io(path, "open", e));
    let mut magic = [0_u8; 6];
    let length = open()?.read(&mut magic).map_err(|e| DataError::io(path, "read", e))?;
    let failure = |format: &'static str, e: &dyn std::fmt::Display| DataError::malformed(path, format, e);
    match &magic[..length] {
        m if m.starts_with(b"PAR1") => {
            let reader = ParquetRecordBatchReaderBuilder::try_new(open()?)
                .and_then(ParquetRecordBatchReaderBuilder::build)
                .map_err(|e| failure("Parquet", &e))?;
            reader.collect::<Result<_, _>>().map_err(|e| failure("Parquet", &e))
        }
        m if m.starts_with(b"ARROW1") => {
            let reader =
                arrow_ipc::reader::FileReader::try_new(open()?, None).map_err(|e| failure("Arrow", &e))?;
            reader.collect::<Result<_, _>>().map_err(|e| failure("Arrow", &e))
        }
        _ => Err(DataError::UnknownFormat {
            path: path.to_owned(),
            detail: "an episode that is neither an Arrow nor a Parquet file".to_owned(),
        }),
    }
}

/// The numeric leaves of an array with their rows.
fn leaves(
    path: &Path,
    name: &str,
    array: &ArrayRef,
    parts: &mut Vec<(String, Vec<f32>, usize)>,
) -> Result<(), DataError> {
    let wrong = |found: &DataType| DataError::ColumnType {
        path: path.to_owned(),
        column: name.to_owned(),
        found: found.to_string(),
        expected: "numbers, lists of one length, or structures of these",
    };
    let push = |parts: &mut Vec<(String, Vec<f32>, usize)>, values: &ArrayRef| {
        let cells = CellColumn::new(values).ok_or_else(|| wrong(values.data_type()))?;
        let numbers = (0..values.len()).map(|i| cells.cell(i).number().map(|number| number as f32));
        let numbers = numbers.collect::<Option<Vec<f32>>>().ok_or_else(|| wrong(values.data_type()))?;
        parts.push((name.to_owned(), numbers, array.len()));
        Ok(())
    };
    match array.data_type() {
        DataType::Struct(_) => {
            let structure = array.as_struct();
            let mut fields: Vec<(&str, &ArrayRef)> =
                structure.column_names().into_iter().zip(structure.columns()).collect();
            fields.sort_by_key(|(name, _)| natural(name));
            fields
                .iter()
                .try_for_each(|(child, values)| leaves(path, &format!("{name}/{child}"), values, parts))
        }
        DataType::FixedSizeList(_, width) => {
            let list = array.as_fixed_size_list();
            let start = list.value_offset_at(0);
            push(parts, &list.values().slice(start, list.len() * *width as usize))
        }
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            let offsets = list.value_offsets();
            let width = if list.is_empty() { 0 } else { list.value_length(0) };
            if offsets.windows(2).any(|pair| pair[1] - pair[0] != width) {
                return Err(wrong(array.data_type()));
            }
            push(parts, &list.values().slice(offsets[0] as usize, list.len() * width as usize))
        }
        _ => push(parts, array),
    }
}

/// The costs out of `infos`: fields of a structure, or JSON texts.
fn arrow_costs(directory: &Path, infos: &ArrayRef, keys: &[String]) -> Result<Vec<Vec<f32>>, DataError> {
    match infos.data_type() {
        DataType::Struct(_) => {
            let structure = infos.as_struct();
            let columns: Option<Vec<&ArrayRef>> =
                keys.iter().map(|key| structure.column_by_name(key)).collect();
            let Some(columns) = columns else { return Ok(Vec::new()) };
            columns
                .into_iter()
                .map(|array| {
                    let mut parts = Vec::new();
                    leaves(directory, "infos/cost", array, &mut parts)?;
                    Ok(side_by_side(directory, parts)?.0)
                })
                .collect()
        }
        DataType::Binary | DataType::LargeBinary => Ok(Vec::new()),
        _ => {
            let Some(cells) = CellColumn::new(infos) else { return Ok(Vec::new()) };
            let texts: Vec<String> = (0..infos.len()).map(|row| cells.cell(row).to_string()).collect();
            json_costs(directory, "infos", &texts, keys)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_are_ordered_by_number_then_name() {
        let mut names = ["o/_index_10", "o/b", "o/_index_2", "o/a"];
        names.sort_by_key(|name| natural(name));
        assert_eq!(names, ["o/_index_2", "o/_index_10", "o/a", "o/b"]);
    }

    #[test]
    fn costs_of_json_infos() {
        let costs = |texts: &[&str]| {
            let texts: Vec<String> = texts.iter().map(|&text| text.to_owned()).collect();
            json_costs(Path::new("x"), "infos", &texts, &["cost".to_owned()])
        };
        assert_eq!(costs(&["{}", r#"{"cost":1}"#, r#"{"cost":true}"#]).unwrap(), [vec![0.0, 1.0, 1.0]]);
        assert!(costs(&["{}", "{}", "{}"]).unwrap().is_empty());
        assert!(costs(&[r#"{"cost":1}"#, "{}"]).is_err(), "a cost that stops");
        assert!(costs(&[r#"{"cost":"x"}"#]).is_err() && costs(&["{"]).is_err());
    }
}
