//! Making a log usable, saying what was done.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::check::{CheckOptions, validate};
use crate::error::DataError;
use crate::problem::{Problem, ProblemCode};
use crate::read::{Log, ReadOptions};
use crate::transitions::Transitions;

/// What becomes of an episode with a fault that cannot be mended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultyEpisode {
    /// It is left out whole, so that every total over an episode stays true.
    #[default]
    Drop,
    /// Its steps before the first fault are kept and end in a time-out. The rest is left out, because it does not
    /// begin in an initial state.
    KeepBeginning,
}

/// How to repair.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RepairOptions {
    /// How to read the log.
    pub read: ReadOptions,
    /// What counts as a fault.
    pub check: CheckOptions,
    /// What becomes of faulty episodes.
    pub faulty_episode: FaultyEpisode,
}

/// One change that was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Repair {
    /// The problem that it mends.
    pub code: ProblemCode,
    /// The column concerned, if there is one.
    pub column: Option<String>,
    /// What was done.
    pub message: String,
}

/// A log after repair.
#[derive(Clone, Debug)]
pub struct Repaired {
    /// The usable log.
    pub transitions: Transitions,
    /// Every change, in words.
    pub repairs: Vec<Repair>,
    /// What remains worth knowing; no errors.
    pub remaining: Vec<Problem>,
}

/// Reads the log at `path` and mends it. Every change is listed; a log without faults comes back unchanged with an
/// empty list.
///
/// # Errors
/// If the path holds no log, if nothing says where episodes end, or if no episode is without fault.
pub fn repair(path: &Path, options: &RepairOptions) -> Result<Repaired, DataError> {
    let log = validate(path, &options.read, &options.check)?;
    if log.problems.iter().any(|problem| problem.code == ProblemCode::NoEpisodeEnds) {
        return Err(DataError::Unusable { path: path.to_owned(), problems: log.problems });
    }
    let mut repairs = Vec::new();
    let mut remaining = Vec::new();
    for problem in &log.problems {
        match done_about(problem.code) {
            Some(message) => repairs.push(Repair {
                code: problem.code,
                column: problem.column.clone(),
                message: message.to_owned(),
            }),
            None if !problem.is_error() => remaining.push(problem.clone()),
            None => {}
        }
    }
    let mut transitions = if log.faulty.is_empty() {
        log.transitions
    } else {
        drop_faulty(path, log, options.faulty_episode, &mut repairs)?
    };
    transitions.flag_cuts();
    Ok(Repaired { transitions, repairs, remaining })
}

/// What reading did about a problem already, so that writing the log mends it.
fn done_about(code: ProblemCode) -> Option<&'static str> {
    match code {
        ProblemCode::TimeoutsMissing => Some("time-outs were set where episodes were found to stop"),
        ProblemCode::FlagsShort => Some("the missing last flag was set to 0"),
        ProblemCode::DoneAmbiguous => Some("the flag was split into terminals and time-outs"),
        ProblemCode::UnflaggedBreak => {
            Some("a time-out was set where a row does not lead to the following row")
        }
        ProblemCode::LastEpisodeCut => {
            Some("a time-out was set in the last row, where the recording stopped")
        }
        ProblemCode::TerminalAndTimeout => Some("the time-out flag was removed from terminal rows"),
        ProblemCode::ObservationsShort => Some("the missing last observations were marked as not recorded"),
        ProblemCode::StepsDuplicated => Some("repetitions of identical rows were left out"),
        ProblemCode::StepsUnsorted => Some("the rows of each episode were sorted by step"),
        ProblemCode::EpisodesInterleaved => Some("the rows of each episode were brought together"),
        _ => None,
    }
}

fn drop_faulty(
    path: &Path,
    log: Log,
    treatment: FaultyEpisode,
    repairs: &mut Vec<Repair>,
) -> Result<Transitions, DataError> {
    let Log { transitions, problems, faulty, .. } = log;
    let mut first_fault: BTreeMap<usize, usize> = BTreeMap::new();
    for row in faulty {
        first_fault.entry(transitions.episode_of(row)).or_insert(row);
    }
    let ranges: Vec<Range<usize>> = transitions
        .episodes()
        .iter()
        .enumerate()
        .map(|(index, episode)| match (first_fault.get(&index), treatment) {
            (None, _) => episode.rows(),
            (Some(_), FaultyEpisode::Drop) => episode.start..episode.start,
            (Some(&row), FaultyEpisode::KeepBeginning) => episode.start..row,
        })
        .filter(|range| !range.is_empty())
        .collect();
    let causes: Vec<&Problem> =
        problems.iter().filter(|problem| problem.is_error() && done_about(problem.code).is_none()).collect();
    let left = transitions.select_rows(ranges.iter().cloned()).ok_or_else(|| DataError::NothingLeft {
        path: path.to_owned(),
        reason: causes.first().map_or_else(String::new, ToString::to_string),
    })?;
    let kept_rows = left.len();
    let what = match treatment {
        FaultyEpisode::Drop => "dropped",
        FaultyEpisode::KeepBeginning => "cut before their first fault",
    };
    let summary = format!(
        "{} of {} episodes were {what} ({} of {} transitions)",
        first_fault.len(),
        transitions.episodes().len(),
        transitions.len() - kept_rows,
        transitions.len()
    );
    for cause in causes {
        repairs.push(Repair { code: cause.code, column: cause.column.clone(), message: summary.clone() });
    }
    Ok(left)
}
