//! Logs as tables of named columns, one row for each transition.

use std::path::Path;

use super::actions::ActionColumns;
use super::assemble::Parts;
use super::{ActionKind, ReadOptions, loses_digits};
use crate::column::Column;
use crate::columns::{Roles, cost_name};
use crate::error::DataError;
use crate::next::{Chain, Exceptions, NextObservations, same_bits};
use crate::problem::{Problem, ProblemCode};
use crate::table::{Arrangement, Cell, CellErrors, Interner, Row, Table, arrange};

/// Reads the CSV or Parquet file at `path`.
pub(crate) fn read(path: &Path, options: &ReadOptions) -> Result<Parts, DataError> {
    let table = Table::open(path)?;
    let roles = options.columns.resolve(path, table.names())?;
    let mut columns = Columns::read(path, &table, &roles, options.action_kind)?;
    if columns.reward.is_empty() {
        return Err(DataError::Empty { path: path.to_owned() });
    }
    let names = table.names();
    let step_name = roles.step.map_or("", |column| names[column].as_str());
    let mut faulty = Vec::new();
    let mut starts = None;
    let mut problems = Vec::new();
    let mut source_rows = None;
    if let Some(episode) = columns.episode_numbers() {
        let steps = roles.step.map(|_| (step_name, columns.step.as_slice()));
        let mut arrangement = arrange(&episode, steps);
        let arranged = columns.put_in_order(&mut arrangement, step_name);
        (source_rows, starts, faulty) = (arranged.source_rows, Some(arranged.starts), arranged.faulty);
        problems = arrangement.problems;
    }
    if let Some((row, column)) = columns.inexact {
        let message = "whole numbers above 16777216 are rounded to 32-bit floating point; subtract an offset (dates, \
                       counters), or use them as ids";
        problems.push(Problem::new(ProblemCode::PrecisionLost, message).column(&names[column]).row(row));
    }
    let dim = roles.state.len();
    let action_column = names[roles.action[0]].as_str();
    let actions = columns.action.finish(action_column, table.note("action_labels"), &mut problems);
    let cost_names = table
        .note("cost_names")
        .filter(|given| given.len() == roles.cost.len())
        .unwrap_or_else(|| roles.cost.iter().map(|&column| cost_name(&names[column])).collect());
    let named = |columns: &[usize]| columns.iter().map(|&column| names[column].clone()).collect::<Vec<_>>();
    Ok(Parts {
        path: path.to_owned(),
        observation_dim: dim,
        observation_names: named(&roles.state),
        observations: Column::from(columns.state),
        next: columns.next.map(NextObservations::Chained),
        action_names: if actions.is_discrete() { Vec::new() } else { named(&roles.action) },
        actions,
        rewards: Column::from(columns.reward),
        costs: Column::from(columns.cost),
        cost_names,
        terminals: roles.terminal.map(|_| Column::from(columns.terminal)),
        timeouts: roles.timeout.map(|_| Column::from(columns.timeout)),
        propensities: roles.propensity.map(|_| Column::from(columns.propensity)),
        starts,
        faulty,
        source_rows,
        problems,
    })
}

/// The columns as they stand in the file; those without a role are empty.
#[derive(Default)]
struct Columns {
    has_episode: bool,
    episode: Vec<u32>,
    step: Vec<f64>,
    dim: usize,
    state: Vec<f32>,
    /// Of the rows in the order in which they stand in the other columns.
    next: Option<Exceptions>,
    action: ActionColumns,
    reward: Vec<f32>,
    costs: usize,
    cost: Vec<f32>,
    terminal: Vec<u8>,
    timeout: Vec<u8>,
    propensity: Vec<f32>,
    /// First row and column where a whole number lost digits.
    inexact: Option<(usize, usize)>,
}

impl Columns {
    fn read(path: &Path, table: &Table, roles: &Roles, kind: Option<ActionKind>) -> Result<Self, DataError> {
        let wanted = roles.all();
        let at = |column: usize| wanted.iter().position(|&c| c == column).expect("every role is wanted");
        let places = |columns: &[usize]| columns.iter().map(|&column| at(column)).collect::<Vec<usize>>();
        let (state_at, next_at) = (places(&roles.state), places(&roles.next_state));
        let (action_at, cost_at) = (places(&roles.action), places(&roles.cost));
        let reward_at = at(roles.reward);
        let one = |column: Option<usize>| column.map(at);
        let (episode_at, step_at) = (one(roles.episode), one(roles.step));
        let (terminal_at, timeout_at) = (one(roles.terminal), one(roles.timeout));
        let propensity_at = one(roles.propensity);

        let errors = CellErrors { path: path.to_owned(), names: table.names() };
        let mut columns = Columns {
            has_episode: episode_at.is_some(),
            dim: state_at.len(),
            costs: cost_at.len(),
            action: ActionColumns::new(action_at.len(), kind),
            ..Columns::default()
        };
        columns.reserve(table.expected_rows());
        let mut inexact = None;
        let mut chain = Chain::default();
        let mut next_state: Vec<f32> = Vec::with_capacity(next_at.len());
        let mut interner = Interner::default();
        table.for_each_row(&wanted, &mut |row, cells| {
            let mut float = |position: usize| -> Result<f32, DataError> {
                let cell = cells.cell(position);
                if let Cell::Int(value) = cell
                    && loses_digits(value)
                {
                    inexact.get_or_insert((row, wanted[position]));
                }
                let value =
                    cell.number().ok_or_else(|| errors.bad(row, wanted[position], cell, "a number"))?;
                Ok(value as f32)
            };
            for &position in &state_at {
                columns.state.push(float(position)?);
            }
            next_state.clear();
            for &position in &next_at {
                next_state.push(float(position)?);
            }
            if !next_state.is_empty() {
                chain.push(&columns.state[row * state_at.len()..], &next_state);
            }
            columns.reward.push(float(reward_at)?);
            for &position in &cost_at {
                columns.cost.push(float(position)?);
            }
            if let Some(position) = propensity_at {
                columns.propensity.push(float(position)?);
            }
            for &position in &action_at {
                let cell = cells.cell(position);
                columns.action.push(cell).map_err(|what| errors.bad(row, wanted[position], cell, what))?;
            }
            columns.push_place(cells, episode_at, step_at, &mut interner, &|position, what| {
                errors.bad(row, wanted[position], cells.cell(position), what)
            })?;
            let flag = |position: usize| {
                let cell = cells.cell(position);
                cell.flag().map(u8::from).ok_or_else(|| errors.bad(row, wanted[position], cell, "0 or 1"))
            };
            if let Some(position) = terminal_at {
                columns.terminal.push(flag(position)?);
            }
            if let Some(position) = timeout_at {
                columns.timeout.push(flag(position)?);
            }
            Ok(())
        })?;
        columns.inexact = inexact;
        columns.next = (!next_at.is_empty()).then(|| chain.finish());
        Ok(columns)
    }

    /// Makes room, so that columns that grow side by side need not be moved; where there is none, they grow.
    fn reserve(&mut self, rows: usize) {
        let wide = [(&mut self.state, self.dim), (&mut self.reward, 1), (&mut self.cost, self.costs)];
        for (column, width) in wide {
            let _ = column.try_reserve_exact(rows.saturating_mul(width));
        }
        self.action.reserve(rows);
        let _ = self.step.try_reserve_exact(rows);
        let _ = self.episode.try_reserve_exact(rows);
    }

    /// Appends which episode and step a row belongs to.
    fn push_place(
        &mut self,
        cells: &dyn Row,
        episode_at: Option<usize>,
        step_at: Option<usize>,
        interner: &mut Interner,
        bad: &dyn Fn(usize, &'static str) -> DataError,
    ) -> Result<(), DataError> {
        if let Some(position) = episode_at {
            self.episode.push(interner.id(cells.cell(position)));
        }
        if let Some(position) = step_at {
            let step = cells.cell(position).number().filter(|step| step.is_finite());
            self.step.push(step.ok_or_else(|| bad(position, "a step number"))?);
        }
        Ok(())
    }

    /// The episode of each row: by its column, or else a new one where the step does not advance or the row before
    /// carries a flag. `None` if there is neither column; flags alone then tell.
    fn episode_numbers(&mut self) -> Option<Vec<u32>> {
        if self.has_episode {
            return Some(std::mem::take(&mut self.episode));
        }
        if self.step.is_empty() {
            return None;
        }
        let set = |flags: &[u8], row: usize| flags.get(row).is_some_and(|&flag| flag != 0);
        let mut number = 0;
        let numbers = (0..self.step.len()).map(|row| {
            let ended = row > 0 && (set(&self.terminal, row - 1) || set(&self.timeout, row - 1));
            if ended || row > 0 && self.step[row] <= self.step[row - 1] {
                number += 1;
            }
            number
        });
        Some(numbers.collect())
    }

    /// Whether two rows agree in everything but their place.
    fn same(&self, a: usize, b: usize) -> bool {
        fn equal<T: bytemuck::Pod>(values: &[T], width: usize, a: usize, b: usize) -> bool {
            if values.is_empty() {
                return true;
            }
            let row = |i: usize| bytemuck::cast_slice::<T, u8>(&values[i * width..(i + 1) * width]);
            row(a) == row(b)
        }
        equal(&self.state, self.dim, a, b)
            && self.next.as_ref().is_none_or(|next| {
                let of = |row| next.next(&self.state, self.dim, row);
                same_bits(of(a), of(b))
            })
            && self.action.same(a, b)
            && equal(&self.reward, 1, a, b)
            && equal(&self.cost, self.costs, a, b)
            && equal(&self.terminal, 1, a, b)
            && equal(&self.timeout, 1, a, b)
            && equal(&self.propensity, 1, a, b)
    }

    /// Sorts the rows as arranged, without identical repetitions.
    fn put_in_order(&mut self, arrangement: &mut Arrangement, step_name: &str) -> Arranged {
        let rows = self.reward.len();
        let (identical, conflicting): (Vec<usize>, Vec<usize>) =
            arrangement.duplicates.iter().partition(|&&position| {
                self.same(arrangement.source(position), arrangement.source(position - 1))
            });
        arrangement.report_repeated(step_name, &identical, &conflicting);
        let mut faulty_positions = conflicting;
        let has_next = self.next.is_some();
        for &position in &arrangement.gaps {
            // Without a recorded next state the row before the gap would lead across it.
            faulty_positions.push(if has_next { position } else { position - 1 });
        }
        if arrangement.order.is_none() && identical.is_empty() {
            // All rows stay where they are: no list of as many is made.
            faulty_positions.sort_unstable();
            let starts = std::mem::take(&mut arrangement.starts);
            return Arranged { starts, faulty: faulty_positions, source_rows: None };
        }
        let mut repeated = vec![false; rows];
        for position in identical {
            repeated[position] = true;
        }
        // New position of each arranged position.
        let mut kept = Vec::with_capacity(rows);
        let mut new_position = Vec::with_capacity(rows);
        for position in 0..rows {
            new_position.push(kept.len());
            if !repeated[position] {
                kept.push(arrangement.source(position) as u32);
            }
        }
        self.take_rows(&kept);
        let mut faulty: Vec<usize> =
            faulty_positions.iter().map(|&position| new_position[position]).collect();
        faulty.sort_unstable();
        Arranged {
            starts: arrangement.starts.iter().map(|&start| new_position[start]).collect(),
            faulty,
            source_rows: Some(kept),
        }
    }

    fn take_rows(&mut self, rows: &[u32]) {
        if let Some(next) = &mut self.next {
            let mut chain = Chain::default();
            for row in rows.iter().map(|&row| row as usize) {
                let observation = &self.state[row * self.dim..(row + 1) * self.dim];
                chain.push(observation, next.next(&self.state, self.dim, row));
            }
            *next = chain.finish();
        }
        take_rows(&mut self.state, self.dim, rows);
        take_rows(&mut self.reward, 1, rows);
        take_rows(&mut self.cost, self.costs, rows);
        take_rows(&mut self.terminal, 1, rows);
        take_rows(&mut self.timeout, 1, rows);
        take_rows(&mut self.propensity, 1, rows);
        self.action.take_rows(rows);
    }
}

/// Keeps only `rows` of a `[_, width]` column, in that order; a column that is not recorded is empty and stays so.
pub(super) fn take_rows<T: Copy>(values: &mut Vec<T>, width: usize, rows: &[u32]) {
    if !values.is_empty() {
        let row = |&row: &u32| &values[row as usize * width..(row as usize + 1) * width];
        *values = rows.iter().flat_map(row).copied().collect();
    }
}

struct Arranged {
    starts: Vec<usize>,
    faulty: Vec<usize>,
    source_rows: Option<Vec<u32>>,
}
