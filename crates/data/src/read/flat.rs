//! Logs stored as one array for each column: DSRL, D4RL, OmniSafe and similar files.

use super::actions::discrete_actions;
use super::arrays::{
    ArrayInfo, ArraySource, Block, Element, check_claim, one_per_row, read_f32, read_flags, read_labels,
    reserve,
};
use super::assemble::Parts;
use super::done::split_done;
use super::{ActionKind, Done, ReadOptions};
use crate::column::Column;
use crate::columns::cost_name;
use crate::error::DataError;
use crate::next::{Chain, Exceptions, NextObservations};
use crate::problem::{Problem, ProblemCode};
use crate::transitions::Actions;
use crate::write::numeric;

/// Name of the array of rows whose next observation is stored, in the compact layout of our own writer.
pub(crate) const NEXT_ROWS: &str = "next_observation_rows";
/// Name of the array of these next observations.
pub(crate) const NEXT_VALUES: &str = "next_observation_values";

const REMEDY: &str = "Rename the array, or say which it is, by --state, --action, --reward, --cost and so on, or in a \
                      file: --columns MAP.toml";

/// Which arrays hold which column.
#[derive(Debug, Default)]
struct Layout {
    observations: Vec<String>,
    next: Vec<String>,
    actions: Vec<String>,
    rewards: String,
    costs: Vec<String>,
    terminals: Option<String>,
    timeouts: Option<String>,
    /// One flag for both.
    done: Option<String>,
    /// 0 where the process ended.
    discount: Option<String>,
    propensities: Option<String>,
}

/// Reads the arrays of `source`.
pub(crate) fn read(source: &dyn ArraySource, options: &ReadOptions) -> Result<Parts, DataError> {
    let layout = Layout::find(source, options)?;
    let reader =
        Reader { source, rows: source.info(&layout.rewards)?.rows(), reference: layout.rewards.clone() };
    if reader.rows == 0 {
        return Err(DataError::Empty { path: source.path().to_owned() });
    }
    let mut problems = Vec::new();
    let (observations, observation_dim) = reader.matrix(&layout.observations, &mut problems)?;
    let actions = reader.actions(&layout.actions, options.action_kind, &mut problems)?;
    let rewards = reader.scalars(&layout.rewards)?;
    let (costs, cost_names) = reader.costs(&layout.costs, &mut problems)?;
    let (terminals, timeouts) = reader.ends(&layout, options.done, &mut problems)?;
    let propensities = match &layout.propensities {
        Some(name) => Some(reader.propensities(name)?),
        None => None,
    };
    let next = reader.next(&layout.next, &observations, observation_dim)?;
    Ok(Parts {
        path: source.path().to_owned(),
        observation_dim,
        observation_names: named(source, "observation_names", observation_dim),
        observations,
        next,
        action_names: named(source, "action_names", actions.width()),
        actions,
        rewards,
        costs,
        cost_names,
        terminals,
        timeouts,
        propensities,
        starts: None,
        faulty: Vec::new(),
        source_rows: None,
        problems,
    })
}

/// The names that the writer attached, if there are as many as components.
fn named(source: &dyn ArraySource, key: &str, count: usize) -> Vec<String> {
    source.note(key).filter(|names| names.len() == count).unwrap_or_default()
}

impl Layout {
    fn find(source: &dyn ArraySource, options: &ReadOptions) -> Result<Self, DataError> {
        let map = &options.columns;
        let first = |names: &[&str]| names.iter().find(|name| source.has(name)).map(|&name| name.to_owned());
        let missing = |column: &str, role: &'static str| DataError::MissingColumn {
            path: source.path().to_owned(),
            column: column.to_owned(),
            role,
            available: source.names().to_vec(),
            remedy: REMEDY,
        };
        let list =
            |given: &[String], role: &'static str, defaults: &[&str]| -> Result<Vec<String>, DataError> {
                if given.is_empty() {
                    return Ok(first(defaults).into_iter().collect());
                }
                given
                    .iter()
                    .try_for_each(|name| if source.has(name) { Ok(()) } else { Err(missing(name, role)) })?;
                Ok(given.to_vec())
            };
        let one = |given: &Option<String>, role: &'static str, defaults: &[&str]| match given {
            Some(name) if !source.has(name) => Err(missing(name, role)),
            Some(name) => Ok(Some(name.clone())),
            None => Ok(first(defaults)),
        };
        let mut layout = Layout {
            observations: list(&map.state, "observations", &["observations", "obs"])?,
            next: list(
                map.next_state.as_deref().unwrap_or(&[]),
                "next observations",
                &["next_observations", "next_obs"],
            )?,
            actions: list(&map.action, "actions", &["actions", "action", "action_tm1"])?,
            rewards: one(&map.reward, "rewards", &["rewards", "reward", "reward_t"])?
                .ok_or_else(|| missing("rewards", "rewards"))?,
            costs: match &map.cost {
                Some(given) => list(given, "costs", &[])?,
                None => cost_arrays(source),
            },
            terminals: one(
                &map.terminal,
                "terminals",
                &["terminals", "terminal", "terminations", "terminated"],
            )?,
            timeouts: one(&map.timeout, "time-outs", &["timeouts", "timeout", "truncations", "truncated"])?,
            done: None,
            discount: None,
            propensities: one(&map.propensity, "propensities", &["propensities", "infos/action_log_probs"])?,
        };
        if layout.terminals.is_none() && layout.timeouts.is_none() {
            layout.done = first(&["done", "dones"]);
            layout.discount = first(&["discount_t"]);
        }
        if layout.observations.is_empty() {
            layout.observe_suffixed(source);
        }
        if layout.observations.is_empty() {
            return Err(missing("observations", "observations"));
        }
        if layout.actions.is_empty() {
            return Err(missing("actions", "actions"));
        }
        Ok(layout)
    }

    /// The layout of the paper's authors: observations before a step end in `_tm1`, after it in `_t`. Penalties are
    /// the cost of the observation before the action, and no part of the observation.
    fn observe_suffixed(&mut self, source: &dyn ArraySource) {
        for name in source.names() {
            if let Some(stem) = name.strip_suffix("_tm1")
                && !["action", "penalties"].contains(&stem)
            {
                self.observations.push(name.clone());
                let next = format!("{stem}_t");
                if source.has(&next) {
                    self.next.push(next);
                }
            }
        }
        if self.next.len() != self.observations.len() {
            self.next.clear();
        }
    }
}

/// Arrays that are costs by their name: `costs` or `cost`, or the family `cost_*`, or the authors' penalties.
fn cost_arrays(source: &dyn ArraySource) -> Vec<String> {
    for name in ["costs", "cost", "penalties_tm1"] {
        if source.has(name) {
            return vec![name.to_owned()];
        }
    }
    source.names().iter().filter(|name| name.starts_with("cost_")).cloned().collect()
}

struct Reader<'a> {
    source: &'a dyn ArraySource,
    rows: usize,
    /// The array that sets the number of rows.
    reference: String,
}

impl Reader<'_> {
    /// Shape and type of `name`, which must have as many rows as the log.
    fn info(&self, name: &str) -> Result<ArrayInfo, DataError> {
        let info = self.source.info(name)?;
        if info.rows() != self.rows || info.shape.is_empty() {
            return Err(DataError::ColumnLength {
                path: self.source.path().to_owned(),
                column: name.to_owned(),
                found: if info.shape.is_empty() { 0 } else { info.rows() },
                expected: self.rows,
                reference: self.reference.clone(),
            });
        }
        Ok(info)
    }

    fn floats(&self, name: &str, problems: &mut Vec<Problem>) -> Result<Vec<f32>, DataError> {
        let floats = read_f32(self.source, name)?;
        if let Some(row) = floats.inexact_row {
            let message = "whole numbers above 16777216 are rounded to 32-bit floating point; subtract an offset \
                           (dates, counters), or use them as ids";
            problems.push(Problem::new(ProblemCode::PrecisionLost, message).column(name).row(row));
        }
        Ok(floats.values)
    }

    /// The arrays `names` side by side, `[rows, width]`, and the width.
    fn matrix(
        &self,
        names: &[String],
        problems: &mut Vec<Problem>,
    ) -> Result<(Column<f32>, usize), DataError> {
        let widths: Vec<usize> =
            names.iter().map(|name| self.info(name).map(|info| info.width())).collect::<Result<_, _>>()?;
        let width: usize = widths.iter().sum();
        if width == 0 {
            return Err(DataError::ColumnShape {
                path: self.source.path().to_owned(),
                column: names.join(", "),
                shape: self.info(&names[0])?.shape,
                expected: "at least one number for each transition".to_owned(),
            });
        }
        if let [name] = names {
            let column = match self.source.mapped_f32(name) {
                Some(column) => column,
                None => Column::from(self.floats(name, problems)?),
            };
            return Ok((column, width));
        }
        let path = self.source.path();
        let mut matrix: Vec<f32> = reserve(path, &names.join(", "), self.rows.saturating_mul(width))?;
        matrix.resize(self.rows * width, 0.0);
        let mut offset = 0;
        for (name, part) in names.iter().zip(widths) {
            let values = self.floats(name, problems)?;
            for (row, part_row) in matrix.chunks_exact_mut(width).zip(values.chunks_exact(part.max(1))) {
                row[offset..offset + part].copy_from_slice(&part_row[..part]);
            }
            offset += part;
        }
        Ok((Column::from(matrix), width))
    }

    fn scalars(&self, name: &str) -> Result<Column<f32>, DataError> {
        one_per_row(self.source, name, &self.info(name)?)?;
        match self.source.mapped_f32(name) {
            Some(column) => Ok(column),
            None => Ok(Column::from(read_f32(self.source, name)?.values)),
        }
    }

    fn actions(
        &self,
        names: &[String],
        kind: Option<ActionKind>,
        problems: &mut Vec<Problem>,
    ) -> Result<Actions, DataError> {
        let info = self.info(&names[0])?;
        let single = names.len() == 1 && info.width() == 1;
        let discrete = match kind {
            Some(ActionKind::Continuous) => false,
            Some(ActionKind::Discrete) => true,
            // Whole numbers in a floating-point column are doses, not ids.
            None => single && info.element != Element::Float,
        };
        if !discrete {
            let (values, dim) = self.matrix(names, problems)?;
            return Ok(Actions::Continuous { dim, values });
        }
        if !single {
            return Err(DataError::ColumnShape {
                path: self.source.path().to_owned(),
                column: names.join(", "),
                shape: info.shape,
                expected: "one id for each transition, as actions are discrete".to_owned(),
            });
        }
        let mut found = read_labels(self.source, &names[0], kind == Some(ActionKind::Discrete))?;
        let declared = self.source.note("action_labels");
        // Labels that are numbers stand in the rows themselves; of words an array holds the positions.
        if let Some(words) = declared.as_ref().filter(|labels| numeric(labels).is_none()) {
            let word = |label: &String| words.get(label.parse::<usize>().ok()?).cloned();
            if let Some(spelled) = found.labels.iter().map(word).collect() {
                found.labels = spelled;
            }
        }
        Ok(discrete_actions(&names[0], found, declared, problems))
    }

    /// The costs side by side, `[rows, K]`, and their names.
    fn costs(
        &self,
        names: &[String],
        problems: &mut Vec<Problem>,
    ) -> Result<(Column<f32>, Vec<String>), DataError> {
        if names.is_empty() {
            return Ok((Column::from(Vec::new()), Vec::new()));
        }
        let (values, count) = self.matrix(names, problems)?;
        let given = self.source.note("cost_names").filter(|given| given.len() == count);
        let derived = || -> Vec<String> {
            if names.len() == count && count > 1 {
                return names.iter().map(|name| cost_name(name)).collect();
            }
            let stem = match names[0].as_str() {
                "costs" => "cost",
                "penalties_tm1" => "penalty",
                name => name,
            };
            if count == 1 {
                vec![cost_name(stem)]
            } else {
                (0..count).map(|k| format!("{stem}_{k}")).collect()
            }
        };
        Ok((values, given.unwrap_or_else(derived)))
    }

    /// Terminals and time-outs.
    fn ends(
        &self,
        layout: &Layout,
        done: Done,
        problems: &mut Vec<Problem>,
    ) -> Result<(Flags, Flags), DataError> {
        if let Some(name) = &layout.done {
            let flags = self.flags(name, problems)?;
            let (terminals, timeouts) = split_done(&flags, name, done, problems);
            return Ok((Some(Column::from(terminals)), Some(Column::from(timeouts))));
        }
        if let Some(name) = &layout.discount {
            let discounts = self.scalars(name)?;
            let terminals: Vec<u8> = discounts.iter().map(|&discount| u8::from(discount == 0.0)).collect();
            return Ok((Some(Column::from(terminals)), None));
        }
        let read = |name: &Option<String>, problems: &mut Vec<Problem>| match name {
            Some(name) => self.flags(name, problems).map(Some),
            None => Ok(None),
        };
        Ok((read(&layout.terminals, problems)?, read(&layout.timeouts, problems)?))
    }

    /// A flag column. One that lacks its last row is completed by 0.
    fn flags(&self, name: &str, problems: &mut Vec<Problem>) -> Result<Column<u8>, DataError> {
        let rows = self.source.info(name)?.rows();
        if rows + 1 != self.rows {
            one_per_row(self.source, name, &self.info(name)?)?;
            if let Some(column) = self.source.mapped_u8(name) {
                return Ok(column);
            }
        }
        let mut flags = read_flags(self.source, name)?;
        if flags.len() < self.rows {
            let message = format!(
                "holds {rows} flags for {} transitions; repair takes the missing last one to be 0",
                self.rows
            );
            problems.push(Problem::new(ProblemCode::FlagsShort, message).column(name).row(rows));
            flags.resize(self.rows, 0);
        }
        Ok(Column::from(flags))
    }

    fn propensities(&self, name: &str) -> Result<Column<f32>, DataError> {
        let column = self.scalars(name)?;
        if !name.ends_with("log_probs") {
            return Ok(column);
        }
        Ok(Column::from(column.iter().map(|log| log.exp()).collect::<Vec<f32>>()))
    }

    /// Next observations; only those that are not the following row's observation are kept, unless the whole array
    /// can be mapped.
    fn next(
        &self,
        names: &[String],
        observations: &Column<f32>,
        dim: usize,
    ) -> Result<Option<NextObservations>, DataError> {
        if names.is_empty() {
            return self.compact_next(dim);
        }
        let widths: Vec<usize> =
            names.iter().map(|name| self.info(name).map(|info| info.width())).collect::<Result<_, _>>()?;
        if widths.iter().sum::<usize>() != dim {
            return Err(DataError::ColumnShape {
                path: self.source.path().to_owned(),
                column: names.join(", "),
                shape: self.info(&names[0])?.shape,
                expected: format!("the {dim} components of the observations"),
            });
        }
        let [name] = names else {
            let (values, _) = self.matrix(names, &mut Vec::new())?;
            let mut chain = Chain::default();
            let rows = observations.chunks_exact(dim).zip(values.chunks_exact(dim));
            rows.for_each(|(observation, next)| chain.push(observation, next));
            return Ok(Some(NextObservations::Chained(chain.finish())));
        };
        if let Some(values) = self.source.mapped_f32(name) {
            return Ok(Some(NextObservations::Full(values)));
        }
        let mut chain = Chain::default();
        let mut rows = observations.chunks_exact(dim);
        let mut converted: Vec<f32> = Vec::new();
        self.source.for_each_block(name, &mut |block| {
            converted.clear();
            let block = match block {
                Block::F32(block) => block,
                Block::F64(block) => {
                    converted.extend(block.iter().map(|&value| value as f32));
                    &converted
                }
                Block::Int(block) => {
                    converted.extend(block.iter().map(|&value| value as f32));
                    &converted
                }
            };
            block.chunks_exact(dim).zip(&mut rows).for_each(|(next, row)| chain.push(row, next));
            Ok(())
        })?;
        Ok(Some(NextObservations::Chained(chain.finish())))
    }

    /// Next observations in the layout of our own writer: only the exceptions.
    fn compact_next(&self, dim: usize) -> Result<Option<NextObservations>, DataError> {
        if !self.source.has(NEXT_ROWS) || !self.source.has(NEXT_VALUES) {
            return Ok(None);
        }
        let path = self.source.path();
        let rows_info = self.source.info(NEXT_ROWS)?;
        let values_info = self.source.info(NEXT_VALUES)?;
        check_claim(path, NEXT_ROWS, &rows_info, u64::MAX)?;
        let mut rows: Vec<usize> = reserve(path, NEXT_ROWS, rows_info.rows())?;
        let bad = |row: usize, value: String| DataError::Cell {
            path: path.to_owned(),
            column: NEXT_ROWS.to_owned(),
            row,
            value,
            expected: "the number of a later row of the log",
        };
        self.source.for_each_block(NEXT_ROWS, &mut |block| {
            let Block::Int(block) = block else { return Err(bad(0, "a fraction".to_owned())) };
            for &value in block {
                let row = usize::try_from(value).ok().filter(|&row| row < self.rows);
                match row.filter(|row| rows.last().is_none_or(|last| last < row)) {
                    Some(row) => rows.push(row),
                    None => return Err(bad(rows.len(), value.to_string())),
                }
            }
            Ok(())
        })?;
        let shape_error = |expected: String| DataError::ColumnShape {
            path: path.to_owned(),
            column: NEXT_VALUES.to_owned(),
            shape: values_info.shape.clone(),
            expected,
        };
        if values_info.shape != [rows.len(), dim] {
            return Err(shape_error(format!("({}, {dim})", rows.len())));
        }
        if rows.last() != Some(&(self.rows - 1)) {
            return Err(bad(rows.len(), "nothing for the last row".to_owned()));
        }
        let values = match self.source.mapped_f32(NEXT_VALUES) {
            Some(values) => values,
            None => Column::from(read_f32(self.source, NEXT_VALUES)?.values),
        };
        Ok(Some(NextObservations::Chained(Exceptions::new(self.rows, rows, values))))
    }
}

type Flags = Option<Column<u8>>;
