//! From columns to a log: where episodes begin and end, and what follows the last step of each.

use std::path::PathBuf;
use std::sync::OnceLock;

use super::{Log, ReadOptions};
use crate::column::Column;
use crate::error::DataError;
use crate::next::{Exceptions, NextObservations, same_bits};
use crate::problem::{Problem, ProblemCode, Tally};
use crate::transitions::{Actions, Episode, EpisodeEnd, Transitions};

/// The columns of a source, as far as it has them.
pub(crate) struct Parts {
    pub(crate) path: PathBuf,
    pub(crate) observation_dim: usize,
    pub(crate) observation_names: Vec<String>,
    pub(crate) observations: Column<f32>,
    /// `None` where the source does not record next observations.
    pub(crate) next: Option<NextObservations>,
    pub(crate) actions: Actions,
    pub(crate) action_names: Vec<String>,
    pub(crate) rewards: Column<f32>,
    pub(crate) costs: Column<f32>,
    pub(crate) cost_names: Vec<String>,
    pub(crate) terminals: Option<Column<u8>>,
    pub(crate) timeouts: Option<Column<u8>>,
    pub(crate) propensities: Option<Column<f32>>,
    /// First row of each episode, where the source tells episodes apart by more than flags.
    pub(crate) starts: Option<Vec<usize>>,
    /// Rows found to be wrong while reading: their episodes are not used.
    pub(crate) faulty: Vec<usize>,
    /// Source row of each row, where that is not the row itself.
    pub(crate) source_rows: Option<Vec<u32>>,
    pub(crate) problems: Vec<Problem>,
}

/// Makes a log of the columns. All have the length of `rewards`.
pub(crate) fn assemble(parts: Parts, options: &ReadOptions) -> Result<Log, DataError> {
    if parts.rewards.is_empty() {
        return Err(DataError::Empty { path: parts.path });
    }
    let mut assembly = Assembly::new(parts);
    assembly.separate_flags();
    match assembly.parts.starts.take() {
        Some(starts) => assembly.end_before(&starts),
        None => assembly.find_ends(options),
    }
    if assembly.parts.next.is_none() {
        assembly.derive_next();
    }
    Ok(assembly.finish())
}

struct Assembly {
    parts: Parts,
    terminals: Column<u8>,
    timeouts: Column<u8>,
    /// Last rows of episodes that carry no flag, ascending; the last row of the log is not listed.
    cuts: Vec<usize>,
}

impl Assembly {
    fn new(mut parts: Parts) -> Self {
        let rows = parts.rewards.len();
        let terminals = parts.terminals.take().unwrap_or_else(|| {
            let message = "no terminal column: no episode is taken to end by itself, and bootstrapping goes through \
                           every end; if episodes do end, add a column that is 1 in their last row";
            parts.problems.push(Problem::new(ProblemCode::TerminalsMissing, message));
            Column::from(vec![0; rows])
        });
        let timeouts = parts.timeouts.clone().unwrap_or_else(|| Column::from(vec![0; rows]));
        Assembly { parts, terminals, timeouts, cuts: Vec::new() }
    }

    fn rows(&self) -> usize {
        self.parts.rewards.len()
    }

    fn flagged(&self, row: usize) -> bool {
        self.terminals[row] != 0 || self.timeouts[row] != 0
    }

    fn source_row(&self, row: usize) -> usize {
        self.parts.source_rows.as_ref().map_or(row, |rows| rows[row] as usize)
    }

    fn report(&mut self, code: ProblemCode, row: Option<usize>, message: String) {
        let row = row.map(|row| self.source_row(row));
        self.parts.problems.push(Problem { row, ..Problem::new(code, message) });
    }

    fn set_timeouts(&mut self, rows: impl IntoIterator<Item = usize>) {
        let mut rows = rows.into_iter().peekable();
        if rows.peek().is_none() {
            return;
        }
        let mut flags = std::mem::replace(&mut self.timeouts, Column::from(Vec::new())).into_vec();
        for row in rows {
            flags[row] = 1;
        }
        self.timeouts = Column::from(flags);
    }

    /// A row cannot both end and go on: the terminal stands.
    fn separate_flags(&mut self) {
        let mut both = Tally::default();
        for row in 0..self.rows() {
            if self.terminals[row] != 0 && self.timeouts[row] != 0 {
                both.add(row);
            }
        }
        if let Some(first) = both.found() {
            let mut flags = std::mem::replace(&mut self.timeouts, Column::from(Vec::new())).into_vec();
            for (timeout, terminal) in flags.iter_mut().zip(self.terminals.iter()) {
                if *terminal != 0 {
                    *timeout = 0;
                }
            }
            self.timeouts = Column::from(flags);
            let message = format!(
                "{} rows are both terminal and time-out; they are taken as terminal: bootstrapping stops there",
                both.count
            );
            self.report(ProblemCode::TerminalAndTimeout, Some(first), message);
        }
    }

    /// Episodes are told apart by the source: each ends before the next begins, with or without a flag.
    fn end_before(&mut self, starts: &[usize]) {
        let rows = self.rows();
        let mut inside = Tally::default();
        let mut unflagged = Vec::new();
        for (index, &start) in starts.iter().enumerate() {
            let last = starts.get(index + 1).copied().unwrap_or(rows) - 1;
            let early: Vec<usize> = (start..last).filter(|&row| self.flagged(row)).collect();
            if let Some(&first) = early.first() {
                inside.add(first);
                // What follows an end does not begin in an initial state.
                self.parts.faulty.extend(early.iter().map(|row| row + 1));
            }
            if !self.flagged(last) {
                unflagged.push(last);
            }
        }
        if let Some(first) = inside.found() {
            let message = format!(
                "{} episodes go on after a row that is flagged as their end; repair keeps them up to that row",
                inside.count
            );
            self.report(ProblemCode::RowAfterTerminal, Some(first), message);
        }
        self.report_inner_mismatch(starts);
        // The source says that the episode ended here and not that the process did.
        self.set_timeouts(unflagged);
    }

    /// Next observations inside episodes that are not the following row's observation.
    fn report_inner_mismatch(&mut self, starts: &[usize]) {
        let Some(NextObservations::Chained(exceptions)) = &self.parts.next else { return };
        let rows = self.rows();
        let mut mismatch = Tally::default();
        for row in exceptions.rows() {
            if row + 1 < rows && starts.binary_search(&(row + 1)).is_err() {
                mismatch.add(row);
            }
        }
        if let Some(first) = mismatch.found() {
            let message = format!(
                "in {} rows inside episodes the next observation is not the following row's observation; both are \
                 used as they are. If rows are missing, add a step column so that gaps are found",
                mismatch.count
            );
            self.report(ProblemCode::NextObservationMismatch, Some(first), message);
        }
    }

    /// Episodes are told apart by flags, and by next observations that do not lead to the following row.
    fn find_ends(&mut self, options: &ReadOptions) {
        let any = |flags: &[u8]| flags.iter().any(|&flag| flag != 0);
        let without_timeouts = self.parts.timeouts.is_none() || !any(&self.timeouts) && !any(&self.terminals);
        if without_timeouts && let Some(length) = options.episode_length {
            self.cut_every(length.get());
            return;
        }
        let breaks = self.breaks();
        let inner = (0..self.rows() - 1).filter(|&row| !self.flagged(row)).count();
        let chained = breaks.as_ref().is_some_and(|breaks| breaks.len() * 2 <= inner);
        match breaks {
            Some(breaks) if chained && without_timeouts => {
                let found = breaks.len();
                self.set_timeouts(breaks.iter().copied());
                if found == 0 && !any(&self.terminals) && self.rows() > 1 {
                    self.report_no_ends();
                } else if found > 0 {
                    let message = format!(
                        "no time-outs are recorded: {found} were inferred, where a next observation is not the \
                         following row's observation"
                    );
                    self.report(ProblemCode::TimeoutsMissing, breaks.first().copied(), message);
                }
            }
            Some(breaks) if chained => {
                if let Some(&first) = breaks.first() {
                    let message = format!(
                        "{} rows carry no flag but do not lead to the following row: an episode was cut there, and \
                         the following row is taken for an initial state",
                        breaks.len()
                    );
                    self.report(ProblemCode::UnflaggedBreak, Some(first), message);
                }
                self.cuts = breaks;
            }
            Some(breaks) if !breaks.is_empty() => {
                let message = format!(
                    "in {} of {inner} rows inside episodes the next observation is not the following row's \
                     observation; if the rows were shuffled, give them in the order they were recorded",
                    breaks.len()
                );
                self.report(ProblemCode::NextObservationMismatch, breaks.first().copied(), message);
                self.report_if_endless(without_timeouts);
            }
            _ => self.report_if_endless(without_timeouts),
        }
    }

    /// Rows before the last without a flag whose next observation is not the following row's observation; `None`
    /// without next observations.
    fn breaks(&self) -> Option<Vec<usize>> {
        let last = self.rows() - 1;
        let dim = self.parts.observation_dim;
        let breaks = match self.parts.next.as_ref()? {
            NextObservations::Chained(exceptions) => {
                exceptions.rows().filter(|&row| row < last && !self.flagged(row)).collect()
            }
            NextObservations::Full(values) => (0..last)
                .filter(|&row| {
                    let next = &values[row * dim..(row + 1) * dim];
                    !self.flagged(row)
                        && !same_bits(next, &self.parts.observations[(row + 1) * dim..(row + 2) * dim])
                })
                .collect(),
        };
        Some(breaks)
    }

    fn report_if_endless(&mut self, without_timeouts: bool) {
        if !without_timeouts {
            return;
        }
        if self.terminals.iter().any(|&flag| flag != 0) {
            let message = "no time-outs are recorded, and no next observations that would show them: episodes are \
                           taken to end at terminals only; if the recording was stopped elsewhere, say after how many \
                           steps (--episode-length)";
            self.report(ProblemCode::TimeoutsMissing, None, message.to_owned());
        } else if self.rows() > 1 {
            self.report_no_ends();
        }
    }

    fn report_no_ends(&mut self) {
        let message = format!(
            "nothing says where an episode ends: all {} rows would be one episode with one initial state; give the \
             number of steps after which the recording stopped (--episode-length), or set a flag in last rows",
            self.rows()
        );
        self.report(ProblemCode::NoEpisodeEnds, None, message);
    }

    /// Time-outs after every `length` rows since the last end.
    fn cut_every(&mut self, length: usize) {
        let mut steps = 0;
        let mut ends = Vec::new();
        for row in 0..self.rows() {
            steps += 1;
            if self.terminals[row] != 0 {
                steps = 0;
            } else if steps == length {
                ends.push(row);
                steps = 0;
            }
        }
        let message = format!(
            "no time-outs are recorded: {} were set, {length} steps after the last end, as asked",
            ends.len()
        );
        self.report(ProblemCode::TimeoutsMissing, ends.first().copied(), message);
        self.set_timeouts(ends);
    }

    /// Whether `row` is the last of its episode.
    fn ends(&self, row: usize) -> bool {
        self.flagged(row) || row + 1 == self.rows() || self.cuts.binary_search(&row).is_ok()
    }

    /// Without recorded next observations they are the following rows' observations. Where an episode stopped without
    /// ending, the last step led nobody knows where, and none is invented.
    fn derive_next(&mut self) {
        let dim = self.parts.observation_dim;
        let ends: Vec<usize> = (0..self.rows()).filter(|&row| self.ends(row)).collect();
        let mut values: Vec<f32> = Vec::with_capacity(ends.len() * dim);
        for &row in &ends {
            if self.terminals[row] != 0 {
                // What follows a terminal is never used; the observation stands in for it.
                values.extend_from_slice(&self.parts.observations[row * dim..(row + 1) * dim]);
            } else {
                values.resize(values.len() + dim, f32::NAN);
            }
        }
        let exceptions = Exceptions::new(self.rows(), ends, Column::from(values));
        self.parts.next = Some(NextObservations::Chained(exceptions));
    }

    fn finish(mut self) -> Log {
        let mut episodes = Vec::new();
        let mut start = 0;
        for row in 0..self.rows() {
            if self.ends(row) {
                let end = if self.terminals[row] != 0 {
                    EpisodeEnd::Terminal
                } else if self.timeouts[row] != 0 {
                    EpisodeEnd::Timeout
                } else {
                    EpisodeEnd::Cut
                };
                episodes.push(Episode { start, len: row + 1 - start, end });
                start = row + 1;
            }
        }
        self.report_cut_end(&mut episodes);
        let Assembly { parts, terminals, timeouts, .. } = self;
        let mut faulty = parts.faulty;
        faulty.sort_unstable();
        let transitions = Transitions {
            observation_dim: parts.observation_dim,
            observation_names: parts.observation_names,
            observations: parts.observations,
            next: parts.next.expect("derived above where the source had none"),
            actions: parts.actions,
            action_names: parts.action_names,
            rewards: parts.rewards,
            costs: parts.costs,
            cost_names: parts.cost_names,
            terminals,
            timeouts,
            propensities: parts.propensities,
            episodes,
            next_unknown: Vec::new(),
            fingerprint: OnceLock::new(),
        }
        .with_unknown_found();
        let mut log = Log { transitions, problems: parts.problems, faulty, source_rows: parts.source_rows };
        report_unknown(&mut log);
        log
    }

    /// A last episode without a flag: as long as the longest time-out it was stopped by the same limit, otherwise the
    /// log was cut inside it.
    fn report_cut_end(&mut self, episodes: &mut [Episode]) {
        let Some((last, others)) = episodes.split_last_mut() else { return };
        if last.end != EpisodeEnd::Cut {
            return;
        }
        let limit = others
            .iter()
            .filter(|episode| episode.end == EpisodeEnd::Timeout)
            .map(|episode| episode.len)
            .max();
        if limit == Some(last.len) {
            let row = last.last();
            last.end = EpisodeEnd::Timeout;
            self.set_timeouts([row]);
            // Where no time-outs are recorded, all of them were inferred, and that was said.
            if self.parts.timeouts.as_ref().is_some_and(|flags| flags.iter().any(|&flag| flag != 0)) {
                let message = "the last row carries no flag; its episode is as long as those that timed out, and is \
                               taken to have timed out there";
                self.report(ProblemCode::LastEpisodeCut, Some(row), message.to_owned());
            }
            return;
        }
        if others.is_empty() {
            return; // reported as having no ends at all, or a log of one row
        }
        let (row, len) = (last.last(), last.len);
        let message = format!(
            "the log stops after {len} steps of an episode without a flag; it counts as an episode, with the reward \
             and cost recorded so far"
        );
        self.report(ProblemCode::LastEpisodeCut, Some(row), message);
    }
}

/// Says where the log does not tell what a last step led to, and what becomes of such steps.
fn report_unknown(log: &mut Log) {
    let unknown = log.transitions.next_unknown();
    let Some(&first) = unknown.first() else { return };
    let (of, these, them) = match unknown.len() {
        1 => ("one episode that was".to_owned(), "this step counts", "it"),
        many => (format!("{many} episodes that were"), "these steps count", "them"),
    };
    let message = format!(
        "what the last step of {of} stopped led to is not recorded: {these} in lengths, totals and averages, and \
         training with gamma below 1, which needs what follows, does not learn from {them}"
    );
    let row = log.source_row(first);
    log.problems.push(Problem::new(ProblemCode::NextStateUnknown, message).row(row));
}
