//! What is wrong with a log that can still be read.

use serde::Serialize;

/// Whether training may go ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Worth knowing; the log is used as described in the message.
    Warning,
    /// Results would be wrong; training refuses the log, repair mends it.
    Error,
}

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $severity:ident;)*) => {
        /// Stable names of problems.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum ProblemCode {
            $($(#[$doc])* $name,)*
        }

        impl ProblemCode {
            /// Every code.
            pub const ALL: &[ProblemCode] = &[$(ProblemCode::$name),*];

            /// The name written to reports.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(ProblemCode::$name => $code,)* }
            }

            /// Whether training may go ahead.
            #[must_use]
            pub fn severity(self) -> Severity {
                match self { $(ProblemCode::$name => Severity::$severity,)* }
            }
        }
    };
}

codes! {
    /// There is no time-out column; boundaries were found in another way.
    TimeoutsMissing = "timeouts-missing", Warning;
    /// There is no terminal column.
    TerminalsMissing = "terminals-missing", Warning;
    /// A flag column is shorter than the others.
    FlagsShort = "flags-short", Error;
    /// Neither a flag nor anything else says where episodes end.
    NoEpisodeEnds = "no-episode-ends", Error;
    /// One flag says only that an episode was over, not whether the process ended.
    DoneAmbiguous = "done-ambiguous", Warning;
    /// A row without a flag does not lead to the following row.
    UnflaggedBreak = "unflagged-break", Warning;
    /// Next observations do not agree with the following rows' observations.
    NextObservationMismatch = "next-observation-mismatch", Warning;
    /// The log stops in a row without a flag.
    LastEpisodeCut = "last-episode-cut", Warning;
    /// Rows say both that the process ended and that it went on.
    TerminalAndTimeout = "terminal-and-timeout", Warning;
    /// Rows follow a terminal inside one episode.
    RowAfterTerminal = "row-after-terminal", Error;
    /// Nothing is recorded of what the last step of an episode that was stopped led to.
    NextStateUnknown = "next-state-unknown", Warning;
    /// The last step of an episode has no next state and was left out.
    LastStepDropped = "last-step-dropped", Warning;
    /// An episode holds as many observations as actions.
    ObservationsShort = "observations-short", Error;
    /// A value is NaN or infinite.
    NonFinite = "non-finite", Error;
    /// A value is so large that it must be a marker or a fault.
    ExtremeValue = "extreme-value", Error;
    /// A value stands far outside the rest of its column.
    Outlier = "outlier", Warning;
    /// A propensity outside its range.
    BadPropensity = "bad-propensity", Error;
    /// An observation component never changes.
    ConstantObservation = "constant-observation", Warning;
    /// The only observation component may hold ids of states, which are read as one real number.
    StateIds = "state-ids", Warning;
    /// Continuous actions that never vary, or follow from one another without chance.
    NoExploration = "no-exploration", Warning;
    /// A cost is zero in every row.
    ZeroCost = "zero-cost", Warning;
    /// A cost is negative somewhere.
    NegativeCost = "negative-cost", Warning;
    /// A limit that only a policy without any cost could keep.
    ZeroLimit = "zero-limit", Warning;
    /// No logged episode keeps the limit.
    AllAboveLimit = "all-above-limit", Warning;
    /// A limit that nothing in the log could exceed, as one in another unit.
    IdleLimit = "idle-limit", Warning;
    /// Too few episodes to split or to bound anything.
    FewEpisodes = "few-episodes", Warning;
    /// Action ids of the source were not 0, 1, 2, …
    ActionsRemapped = "actions-remapped", Warning;
    /// Integers too large to be exact in 32-bit floating point.
    PrecisionLost = "precision-lost", Warning;
    /// A row of an episode stands there twice.
    StepsDuplicated = "steps-duplicated", Error;
    /// Two rows of an episode carry the same step and say different things.
    StepsConflicting = "steps-conflicting", Error;
    /// Rows of an episode are not in the order of time.
    StepsUnsorted = "steps-unsorted", Error;
    /// Rows of different episodes are mixed.
    EpisodesInterleaved = "episodes-interleaved", Error;
    /// Steps are missing inside an episode.
    StepGap = "step-gap", Error;
    /// An episode begins later than the others.
    LateStart = "late-start", Warning;
    /// The next state of a row is not the state of the following row.
    NextStateMismatch = "next-state-mismatch", Error;
}

/// One kind of fault in one column, with the first place where it stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// What kind.
    pub code: ProblemCode,
    /// Name of the column, where one is concerned.
    pub column: Option<String>,
    /// First row concerned, counted from 0 in the source.
    pub row: Option<usize>,
    /// What was found, how often, and what to do.
    pub message: String,
}

impl Problem {
    pub(crate) fn new(code: ProblemCode, message: impl Into<String>) -> Self {
        Problem { code, column: None, row: None, message: message.into() }
    }

    pub(crate) fn column(mut self, column: impl Into<String>) -> Self {
        self.column = Some(column.into());
        self
    }

    pub(crate) fn row(mut self, row: usize) -> Self {
        self.row = Some(row);
        self
    }

    /// Whether training must refuse the log.
    #[must_use]
    pub fn is_error(&self) -> bool {
        self.code.severity() == Severity::Error
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.code.as_str())?;
        match (&self.column, self.row) {
            (Some(column), Some(row)) => write!(f, " (column {column:?}, row {row})")?,
            (Some(column), None) => write!(f, " (column {column:?})")?,
            (None, Some(row)) => write!(f, " (row {row})")?,
            (None, None) => {}
        }
        write!(f, ": {}", self.message)
    }
}

impl Serialize for ProblemCode {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// Counts occurrences of one fault and remembers the first.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) count: usize,
    pub(crate) first: usize,
}

impl Tally {
    pub(crate) fn add(&mut self, row: usize) {
        if self.count == 0 {
            self.first = row;
        }
        self.count += 1;
    }

    /// The first row, if there was any.
    pub(crate) fn found(&self) -> Option<usize> {
        (self.count > 0).then_some(self.first)
    }
}

/// The first of `labels`, for a message.
pub(crate) fn some_of(labels: &[String]) -> String {
    const SHOWN: usize = 8;
    let mut text = labels.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    if labels.len() > SHOWN {
        text.push_str(", …");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_plain() {
        let mut names: Vec<&str> = ProblemCode::ALL.iter().map(|code| code.as_str()).collect();
        assert!(names.iter().all(|name| name.bytes().all(|b| b.is_ascii_lowercase() || b == b'-')));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ProblemCode::ALL.len());
    }
}
