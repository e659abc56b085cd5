//! Logs of finite CMDPs: one column names the state, one the action.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::columns::{ColumnMap, Roles, cost_name};
use crate::error::DataError;
use crate::problem::{Problem, ProblemCode, Tally};
use crate::table::{Arrangement, CellErrors, Interner, LabelColumn, Labels, Row, Table, arrange};
use crate::transitions::{Episode, EpisodeEnd};

/// Which column of a table plays which role; what is `None` is found by name as in [`ColumnMap`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TabularColumns {
    /// Tells the episodes apart. Without it an episode ends where `terminal` is set.
    pub episode: Option<String>,
    /// Orders the rows of an episode.
    pub step: Option<String>,
    /// The state: whole numbers or words.
    pub state: Option<String>,
    /// The action: whole numbers or words.
    pub action: Option<String>,
    /// The reward.
    pub reward: Option<String>,
    /// The costs.
    pub costs: Option<Vec<String>>,
    /// The next state. Without it, it is the state of the following row.
    pub next_state: Option<String>,
    /// Set where the process ended.
    pub terminal: Option<String>,
}

/// A log of a finite CMDP. Rows of an episode are contiguous and in the order of time.
#[derive(Clone, Debug, PartialEq)]
pub struct TabularLog {
    /// The episodes; together they cover every row once.
    pub episodes: Vec<Episode>,
    /// Steps of every episode of the source, a last step that had to be left out included: what a limit per episode
    /// refers to.
    pub logged_steps: Vec<usize>,
    /// `[N]`, positions in `state_labels`.
    pub state: Vec<u32>,
    /// `[N]`, positions in `action_labels`.
    pub action: Vec<u32>,
    /// `[N]`.
    pub reward: Vec<f64>,
    /// One `[N]` for each cost.
    pub costs: Vec<Vec<f64>>,
    /// One name for each cost.
    pub cost_names: Vec<String>,
    /// `[N]`, positions in `state_labels`. After a terminal without a `next_state` column: the state itself.
    pub next_state: Vec<u32>,
    /// `[N]`, the process ended.
    pub terminal: Vec<bool>,
    /// What the source called each state that occurs, as state or next state; ascending.
    pub state_labels: Vec<String>,
    /// What the source called each action that occurs; ascending.
    pub action_labels: Vec<String>,
    /// What is worth knowing about the log; none of these is an error.
    pub problems: Vec<Problem>,
}

impl TabularLog {
    /// Number of transitions, `N`.
    #[must_use]
    pub fn len(&self) -> usize {
        self.reward.len()
    }

    /// Whether there is no transition.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.reward.is_empty()
    }
}

/// Reads a CSV or Parquet file as the log of a finite CMDP.
///
/// # Errors
/// If the file cannot be read, a role has no column, a cell is not what its column should hold, or the log is
/// unusable: steps repeated, unsorted or missing, episodes mixed, rows after a terminal, a next state that is not
/// the following row's state, a reward or cost that is not finite.
pub fn read_tabular(path: &Path, columns: &TabularColumns) -> Result<TabularLog, DataError> {
    let table = Table::open(path)?;
    let roles = roles(path, columns, table.names())?;
    let rows = RawRows::read(path, &table, &roles)?;
    if rows.reward.is_empty() {
        return Err(DataError::Empty { path: path.to_owned() });
    }
    let names = table.names();
    let mut arrangement = rows.arrange(&roles, names);
    if let Some(column) = roles.step {
        let repeated = std::mem::take(&mut arrangement.duplicates);
        arrangement.report_repeated(&names[column], &repeated, &[]);
    }
    let mut problems = arrangement.problems.clone();
    rows.check_values(&roles, names, &mut problems);
    rows.check_sequence(&arrangement, &roles, names, &mut problems);
    if problems.iter().any(Problem::is_error) {
        problems.sort_by_key(|problem| !problem.is_error());
        return Err(DataError::Unusable { path: path.to_owned(), problems });
    }
    rows.into_log(path, &arrangement.starts, &roles, names, problems)
}

fn roles(path: &Path, columns: &TabularColumns, names: &[String]) -> Result<Roles, DataError> {
    let list = |name: &Option<String>| name.iter().cloned().collect::<Vec<_>>();
    let map = ColumnMap {
        episode: columns.episode.clone(),
        step: columns.step.clone(),
        state: list(&columns.state),
        action: list(&columns.action),
        reward: columns.reward.clone(),
        cost: columns.costs.clone(),
        next_state: columns.next_state.as_ref().map(|name| vec![name.clone()]),
        terminal: columns.terminal.clone(),
        ..ColumnMap::default()
    };
    let roles = map.resolve(path, names)?;
    for (role, found) in [("state", &roles.state), ("action", &roles.action)] {
        if found.len() != 1 {
            let detail = format!(
                "a finite CMDP has one {role} column, but {} columns look like it ({}); name the one to use",
                found.len(),
                found.iter().map(|&i| names[i].as_str()).collect::<Vec<_>>().join(", ")
            );
            return Err(DataError::options(path.display().to_string(), detail));
        }
    }
    Ok(roles)
}

/// The table as it stands in the file.
struct RawRows {
    episode: Option<Vec<u32>>,
    step: Option<Vec<f64>>,
    /// State and, where there is a column, next state of each row in turn: they share their labels.
    states: Labels,
    has_next: bool,
    action: Labels,
    reward: Vec<f64>,
    costs: Vec<Vec<f64>>,
    terminal: Option<Vec<bool>>,
}

impl RawRows {
    fn read(path: &Path, table: &Table, roles: &Roles) -> Result<Self, DataError> {
        let wanted = roles.all();
        let at = |column: usize| wanted.iter().position(|&c| c == column).expect("every role is wanted");
        let cost_at: Vec<usize> = roles.cost.iter().map(|&column| at(column)).collect();
        let (state_at, action_at, reward_at) = (at(roles.state[0]), at(roles.action[0]), at(roles.reward));
        let next_at = roles.next_state.first().map(|&column| at(column));
        let (episode_at, step_at) = (roles.episode.map(at), roles.step.map(at));
        let terminal_at = roles.terminal.map(at);

        let errors = CellErrors { path: path.to_owned(), names: table.names() };
        let number = |row: usize, cells: &dyn Row, position: usize| {
            let cell = cells.cell(position);
            cell.number().ok_or_else(|| errors.bad(row, wanted[position], cell, "a number"))
        };
        let mut interner = Interner::default();
        let (mut states, mut actions) = (LabelColumn::default(), LabelColumn::default());
        let (mut episode, mut step, mut reward, mut terminal) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut costs = vec![Vec::new(); cost_at.len()];
        table.for_each_row(&wanted, &mut |row, cells| {
            for position in [Some(state_at), next_at].into_iter().flatten() {
                let cell = cells.cell(position);
                states.push(cell, true).map_err(|what| errors.bad(row, wanted[position], cell, what))?;
            }
            let cell = cells.cell(action_at);
            actions.push(cell, true).map_err(|what| errors.bad(row, wanted[action_at], cell, what))?;
            reward.push(number(row, cells, reward_at)?);
            for (column, &position) in costs.iter_mut().zip(&cost_at) {
                column.push(number(row, cells, position)?);
            }
            if let Some(position) = episode_at {
                episode.push(interner.id(cells.cell(position)));
            }
            if let Some(position) = step_at {
                let value = number(row, cells, position)?;
                if !value.is_finite() {
                    return Err(errors.bad(row, wanted[position], cells.cell(position), "a step number"));
                }
                step.push(value);
            }
            if let Some(position) = terminal_at {
                let cell = cells.cell(position);
                let flag = cell.flag().ok_or_else(|| errors.bad(row, wanted[position], cell, "0 or 1"))?;
                terminal.push(flag);
            }
            Ok(())
        })?;
        Ok(RawRows {
            episode: episode_at.map(|_| episode),
            step: step_at.map(|_| step),
            states: states.finish(),
            has_next: next_at.is_some(),
            action: actions.finish(),
            reward,
            costs,
            terminal: terminal_at.map(|_| terminal),
        })
    }

    fn state(&self, row: usize) -> u32 {
        self.states.ids[if self.has_next { 2 * row } else { row }]
    }

    /// Where the file says it.
    fn next_state(&self, row: usize) -> Option<u32> {
        self.has_next.then(|| self.states.ids[2 * row + 1])
    }

    fn terminal(&self, row: usize) -> bool {
        self.terminal.as_ref().is_some_and(|flags| flags[row])
    }

    fn arrange(&self, roles: &Roles, names: &[String]) -> Arrangement {
        let step =
            roles.step.zip(self.step.as_deref()).map(|(column, steps)| (names[column].as_str(), steps));
        match &self.episode {
            Some(episode) => arrange(episode, step),
            None => {
                let mut number = 0;
                let episode: Vec<u32> = (0..self.reward.len())
                    .map(|row| {
                        let current = number;
                        number += u32::from(self.terminal(row));
                        current
                    })
                    .collect();
                arrange(&episode, step)
            }
        }
    }

    fn check_values(&self, roles: &Roles, names: &[String], problems: &mut Vec<Problem>) {
        let columns =
            std::iter::once((roles.reward, &self.reward)).chain(roles.cost.iter().copied().zip(&self.costs));
        for (column, values) in columns {
            let mut bad = Tally::default();
            for (row, value) in values.iter().enumerate() {
                if !value.is_finite() {
                    bad.add(row);
                }
            }
            if let Some(row) = bad.found() {
                let message =
                    format!("{} values are empty, NaN or infinite; repair drops their episodes", bad.count);
                problems.push(Problem::new(ProblemCode::NonFinite, message).column(&names[column]).row(row));
            }
        }
        if !self.action.are_their_ids() {
            let message = format!(
                "{} actions occur, called {}; ids count from 0 in that order",
                self.action.labels.len(),
                crate::problem::some_of(&self.action.labels)
            );
            problems
                .push(Problem::new(ProblemCode::ActionsRemapped, message).column(&names[roles.action[0]]));
        }
    }

    /// What follows what: next states that are not the following state, rows after a terminal, cut episodes.
    fn check_sequence(
        &self,
        arrangement: &Arrangement,
        roles: &Roles,
        names: &[String],
        problems: &mut Vec<Problem>,
    ) {
        let (mut mismatch, mut after) = (Tally::default(), Tally::default());
        let rows = self.reward.len();
        for index in 0..arrangement.starts.len() {
            for position in arrangement.starts[index]..arrangement.end(index, rows) - 1 {
                let (row, following) = (arrangement.source(position), arrangement.source(position + 1));
                if self.terminal(row) {
                    after.add(following);
                } else if self.next_state(row).is_some_and(|next| next != self.state(following)) {
                    mismatch.add(row);
                }
            }
        }
        if let (Some(row), Some(&column)) = (mismatch.found(), roles.next_state.first()) {
            let message = format!(
                "in {} rows the next state ({} in the first) is not the state of the following row ({}); rows are \
                 missing or in the wrong order, or an episode column is needed",
                mismatch.count,
                self.next_state(row).map_or("", |next| &self.states.labels[next as usize]),
                self.following(arrangement, row).map_or("", |next| &self.states.labels[next as usize]),
            );
            problems
                .push(Problem::new(ProblemCode::NextStateMismatch, message).column(&names[column]).row(row));
        }
        if let (Some(row), Some(column)) = (after.found(), roles.terminal) {
            let message = format!(
                "{} rows follow a terminal inside their episode; repair drops these rows",
                after.count
            );
            problems
                .push(Problem::new(ProblemCode::RowAfterTerminal, message).column(&names[column]).row(row));
        }
        if roles.terminal.is_none() {
            let message = "no terminal column: no episode is taken to end by itself; if episodes do end, add a column \
                           that is 1 in their last row";
            problems.push(Problem::new(ProblemCode::TerminalsMissing, message));
        }
    }

    /// The state after `row` in the arranged order.
    fn following(&self, arrangement: &Arrangement, row: usize) -> Option<u32> {
        let position = (0..self.reward.len()).find(|&position| arrangement.source(position) == row)?;
        (position + 1 < self.reward.len()).then(|| self.state(arrangement.source(position + 1)))
    }

    /// The log, of rows that were found to be in order.
    fn into_log(
        self,
        path: &Path,
        starts: &[usize],
        roles: &Roles,
        names: &[String],
        mut problems: Vec<Problem>,
    ) -> Result<TabularLog, DataError> {
        let rows = self.reward.len();
        let mut kept: Vec<usize> = Vec::with_capacity(rows);
        let mut episodes = Vec::with_capacity(starts.len());
        let mut logged_steps = Vec::with_capacity(starts.len());
        let mut dropped = Tally::default();
        for (index, &start) in starts.iter().enumerate() {
            let end = starts.get(index + 1).copied().unwrap_or(rows);
            let ended = self.terminal(end - 1);
            // Without a next-state column nothing says where the last step of an unfinished episode led.
            let complete = if ended || self.has_next { end } else { end - 1 };
            logged_steps.push(end - start);
            if complete < end {
                dropped.add(complete);
            }
            if complete > start {
                let how = match (ended, index + 1 == starts.len()) {
                    (true, _) => EpisodeEnd::Terminal,
                    (false, false) => EpisodeEnd::Timeout,
                    (false, true) => EpisodeEnd::Cut,
                };
                episodes.push(Episode { start: kept.len(), len: complete - start, end: how });
                kept.extend(start..complete);
            }
        }
        if let Some(row) = dropped.found() {
            let message = format!(
                "{} episodes do not end in a terminal and there is no next-state column: their last step, whose \
                 outcome is unknown, is left out of the estimated process with its reward and cost; the episodes' \
                 lengths, by which limits per episode are converted, count it",
                dropped.count
            );
            problems.push(Problem::new(ProblemCode::LastStepDropped, message).row(row));
        }
        if kept.is_empty() {
            return Err(DataError::Empty { path: path.to_owned() });
        }
        let next_state = |row: usize| match self.next_state(row) {
            Some(next) => next,
            None if self.terminal(row) => self.state(row),
            None => self.state(row + 1),
        };
        let take = |values: &[f64]| kept.iter().map(|&row| values[row]).collect::<Vec<f64>>();
        Ok(TabularLog {
            state: kept.iter().map(|&row| self.state(row)).collect(),
            action: kept.iter().map(|&row| self.action.ids[row]).collect(),
            reward: take(&self.reward),
            costs: self.costs.iter().map(|values| take(values)).collect(),
            cost_names: roles.cost.iter().map(|&column| cost_name(&names[column])).collect(),
            next_state: kept.iter().map(|&row| next_state(row)).collect(),
            terminal: kept.iter().map(|&row| self.terminal(row)).collect(),
            episodes,
            logged_steps,
            state_labels: self.states.labels,
            action_labels: self.action.labels,
            problems,
        })
    }
}
