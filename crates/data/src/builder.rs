//! Building a log row by row.

use std::sync::OnceLock;

use crate::column::Column;
use crate::next::{Chain, NextObservations};
use crate::transitions::{Actions, Episode, EpisodeEnd, Transitions};

/// What an action is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ActionSpace {
    /// A vector of this many reals, at least 1.
    Continuous {
        /// Components, `A`.
        dim: usize,
    },
    /// An id in `0..labels.len()`.
    Discrete {
        /// A name for each id.
        labels: Vec<String>,
    },
}

impl ActionSpace {
    /// Ids `0..count`, each labelled by its number.
    #[must_use]
    pub fn discrete(count: usize) -> Self {
        ActionSpace::Discrete { labels: (0..count).map(|id| id.to_string()).collect() }
    }
}

/// The shape of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema {
    /// Components of an observation, at least 1.
    pub observation_dim: usize,
    /// What an action is.
    pub action: ActionSpace,
    /// One name for each cost; may be empty.
    pub cost_names: Vec<String>,
    /// Whether every row carries a propensity.
    pub propensity: bool,
}

/// The action of one row.
#[derive(Clone, Copy, Debug)]
pub enum StepAction<'a> {
    /// `[A]`.
    Continuous(&'a [f32]),
    /// An id.
    Discrete(u32),
}

/// One row.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// `s`, `[D]`.
    pub observation: &'a [f32],
    /// `a`.
    pub action: StepAction<'a>,
    /// Reward.
    pub reward: f32,
    /// `[K]`.
    pub costs: &'a [f32],
    /// `s'`, `[D]`; NaN in every component where an episode was stopped and it was not recorded.
    pub next_observation: &'a [f32],
    /// The process ended.
    pub terminal: bool,
    /// The recording was stopped. Beside `terminal` it is ignored: a terminal is the stronger statement.
    pub timeout: bool,
    /// Probability (density) of the action under the logging policy; needed if and only if the schema says so.
    pub propensity: Option<f32>,
}

/// A row or a schema that cannot be part of a log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A column of the row has the wrong width.
    #[error("row {row}: {column} has {found} components, the schema says {expected}")]
    Width {
        /// The row that was pushed.
        row: usize,
        /// Which column.
        column: &'static str,
        /// Components found.
        found: usize,
        /// Components of the schema.
        expected: usize,
    },
    /// A continuous action in a discrete log or the reverse.
    #[error("row {row}: a {found} action in a log of {expected} actions")]
    ActionKind {
        /// The row that was pushed.
        row: usize,
        /// Kind found.
        found: &'static str,
        /// Kind of the schema.
        expected: &'static str,
    },
    /// An action id outside the set.
    #[error("row {row}: action id {id}, but the schema has {count} actions (ids 0..{count})")]
    ActionId {
        /// The row that was pushed.
        row: usize,
        /// The id.
        id: u32,
        /// Size of the set.
        count: usize,
    },
    /// A propensity where the schema has none, or the reverse.
    #[error("row {row}: the schema says propensities are {}", if *.expected { "recorded; give one with every row" } else { "not recorded; leave it out" })]
    Propensity {
        /// The row that was pushed.
        row: usize,
        /// What the schema says.
        expected: bool,
    },
    /// A schema without observation or action.
    #[error("a log needs at least one {0}")]
    EmptySchema(&'static str),
    /// Two costs of one name.
    #[error("two costs are named {0:?}; give each its own name")]
    DuplicateCost(String),
    /// No row was pushed.
    #[error("the log holds no transition")]
    Empty,
}

/// Collects rows into [`Transitions`].
///
/// Rows come in the order of time, episode after episode; an episode ends where `terminal` or `timeout` is set, at
/// [`TransitionsBuilder::end_episode`], or where the builder is finished.
#[derive(Clone, Debug)]
pub struct TransitionsBuilder {
    schema: Schema,
    observations: Vec<f32>,
    next: Chain,
    actions: Vec<f32>,
    action_ids: Vec<u32>,
    rewards: Vec<f32>,
    costs: Vec<f32>,
    terminals: Vec<u8>,
    timeouts: Vec<u8>,
    propensities: Vec<f32>,
    episodes: Vec<Episode>,
    /// First row of the episode being recorded.
    episode_start: usize,
}

impl TransitionsBuilder {
    /// Starts an empty log.
    ///
    /// # Errors
    /// If the schema has no observation component or no action, or two costs share a name.
    pub fn new(schema: Schema) -> Result<Self, BuildError> {
        if schema.observation_dim == 0 {
            return Err(BuildError::EmptySchema("observation component"));
        }
        match &schema.action {
            ActionSpace::Continuous { dim: 0 } => return Err(BuildError::EmptySchema("action component")),
            ActionSpace::Discrete { labels } if labels.is_empty() => {
                return Err(BuildError::EmptySchema("action"));
            }
            _ => {}
        }
        for (position, name) in schema.cost_names.iter().enumerate() {
            if schema.cost_names[..position].contains(name) {
                return Err(BuildError::DuplicateCost(name.clone()));
            }
        }
        Ok(TransitionsBuilder {
            schema,
            observations: Vec::new(),
            next: Chain::default(),
            actions: Vec::new(),
            action_ids: Vec::new(),
            rewards: Vec::new(),
            costs: Vec::new(),
            terminals: Vec::new(),
            timeouts: Vec::new(),
            propensities: Vec::new(),
            episodes: Vec::new(),
            episode_start: 0,
        })
    }

    /// Number of rows so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rewards.len()
    }

    /// Whether no row was pushed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rewards.is_empty()
    }

    /// Makes room for `rows` more rows.
    pub fn reserve(&mut self, rows: usize) {
        self.observations.reserve(rows * self.schema.observation_dim);
        match &self.schema.action {
            ActionSpace::Continuous { dim } => self.actions.reserve(rows * dim),
            ActionSpace::Discrete { .. } => self.action_ids.reserve(rows),
        }
        self.rewards.reserve(rows);
        self.costs.reserve(rows * self.schema.cost_names.len());
        self.terminals.reserve(rows);
        self.timeouts.reserve(rows);
        if self.schema.propensity {
            self.propensities.reserve(rows);
        }
    }

    /// Appends a row.
    ///
    /// # Errors
    /// If the row does not fit the schema; the log is unchanged then.
    pub fn push(&mut self, step: &Step<'_>) -> Result<(), BuildError> {
        self.check(step)?;
        self.next.push(step.observation, step.next_observation);
        self.observations.extend_from_slice(step.observation);
        match step.action {
            StepAction::Continuous(action) => self.actions.extend_from_slice(action),
            StepAction::Discrete(id) => self.action_ids.push(id),
        }
        self.rewards.push(step.reward);
        self.costs.extend_from_slice(step.costs);
        self.terminals.push(u8::from(step.terminal));
        self.timeouts.push(u8::from(step.timeout && !step.terminal));
        self.propensities.extend(step.propensity);
        if step.terminal {
            self.close(EpisodeEnd::Terminal);
        } else if step.timeout {
            self.close(EpisodeEnd::Timeout);
        }
        Ok(())
    }

    /// Ends the current episode without a flag, as where a recording was cut. Does nothing between episodes.
    pub fn end_episode(&mut self) {
        if self.len() > self.episode_start {
            self.close(EpisodeEnd::Cut);
        }
    }

    /// The log.
    ///
    /// # Errors
    /// If no row was pushed.
    pub fn finish(mut self) -> Result<Transitions, BuildError> {
        if self.is_empty() {
            return Err(BuildError::Empty);
        }
        self.end_episode();
        let actions = match self.schema.action {
            ActionSpace::Continuous { dim } => {
                Actions::Continuous { dim, values: Column::from(self.actions) }
            }
            ActionSpace::Discrete { labels } => {
                Actions::Discrete { count: labels.len(), ids: Column::from(self.action_ids), labels }
            }
        };
        Ok(Transitions {
            observation_dim: self.schema.observation_dim,
            observation_names: Vec::new(),
            observations: Column::from(self.observations),
            next: NextObservations::Chained(self.next.finish()),
            actions,
            action_names: Vec::new(),
            rewards: Column::from(self.rewards),
            costs: Column::from(self.costs),
            cost_names: self.schema.cost_names,
            terminals: Column::from(self.terminals),
            timeouts: Column::from(self.timeouts),
            propensities: self.schema.propensity.then(|| Column::from(self.propensities)),
            episodes: self.episodes,
            next_unknown: Vec::new(),
            fingerprint: OnceLock::new(),
        }
        .with_unknown_found())
    }

    fn check(&self, step: &Step<'_>) -> Result<(), BuildError> {
        let row = self.len();
        let width = |column, found: usize, expected: usize| {
            if found == expected { Ok(()) } else { Err(BuildError::Width { row, column, found, expected }) }
        };
        width("observation", step.observation.len(), self.schema.observation_dim)?;
        width("next observation", step.next_observation.len(), self.schema.observation_dim)?;
        width("costs", step.costs.len(), self.schema.cost_names.len())?;
        match (step.action, &self.schema.action) {
            (StepAction::Continuous(action), ActionSpace::Continuous { dim }) => {
                width("action", action.len(), *dim)?;
            }
            (StepAction::Discrete(id), ActionSpace::Discrete { labels }) => {
                if id as usize >= labels.len() {
                    return Err(BuildError::ActionId { row, id, count: labels.len() });
                }
            }
            (StepAction::Continuous(_), ActionSpace::Discrete { .. }) => {
                return Err(BuildError::ActionKind { row, found: "continuous", expected: "discrete" });
            }
            (StepAction::Discrete(_), ActionSpace::Continuous { .. }) => {
                return Err(BuildError::ActionKind { row, found: "discrete", expected: "continuous" });
            }
        }
        if step.propensity.is_some() != self.schema.propensity {
            return Err(BuildError::Propensity { row, expected: self.schema.propensity });
        }
        Ok(())
    }

    fn close(&mut self, end: EpisodeEnd) {
        self.next.cut();
        self.episodes.push(Episode { start: self.episode_start, len: self.len() - self.episode_start, end });
        self.episode_start = self.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema() -> Schema {
        Schema {
            observation_dim: 2,
            action: ActionSpace::Continuous { dim: 1 },
            cost_names: vec!["heat".into(), "wear".into()],
            propensity: false,
        }
    }

    fn step<'a>(observation: &'a [f32], next_observation: &'a [f32]) -> Step<'a> {
        Step {
            observation,
            action: StepAction::Continuous(&[0.5]),
            reward: 1.0,
            costs: &[0.0, 2.0],
            next_observation,
            terminal: false,
            timeout: false,
            propensity: None,
        }
    }

    /// Three episodes: one that times out, one of a single step that ends, one that is cut; and a recorder that
    /// disagrees with itself inside the first.
    fn log() -> Transitions {
        let mut builder = TransitionsBuilder::new(schema()).unwrap();
        builder.push(&step(&[0.0, 0.0], &[1.0, 0.0])).unwrap();
        builder.push(&step(&[1.0, 0.0], &[2.0, 0.5])).unwrap();
        builder.push(&Step { timeout: true, ..step(&[2.0, 0.0], &[3.0, 0.0]) }).unwrap();
        builder.push(&Step { terminal: true, timeout: true, ..step(&[3.0, 0.0], &[9.0, 9.0]) }).unwrap();
        builder.push(&step(&[5.0, 0.0], &[6.0, 0.0])).unwrap();
        builder.finish().unwrap()
    }

    #[test]
    fn rows_come_back_as_pushed() {
        let log = log();
        assert_eq!(log.len(), 5);
        let next: Vec<f32> = (0..5).flat_map(|i| log.next_observation(i).to_vec()).collect();
        assert_eq!(next, [1.0, 0.0, 2.0, 0.5, 3.0, 0.0, 9.0, 9.0, 6.0, 0.0]);
        assert_eq!(log.observation(2), [2.0, 0.0]);
        assert_eq!(log.costs(1), [0.0, 2.0]);
        assert_eq!(log.continuous_action(4), [0.5]);
        let NextObservations::Chained(exceptions) = &log.next else { panic!("a built log is chained") };
        // Row 0 chains to row 1. Row 2's s' equals row 3's s, but another episode starts there.
        assert_eq!(exceptions.rows().collect::<Vec<_>>(), [1, 2, 3, 4]);
    }

    #[test]
    fn episodes_end_at_flags_and_at_the_cut() {
        let log = log();
        let expected = [
            Episode { start: 0, len: 3, end: EpisodeEnd::Timeout },
            Episode { start: 3, len: 1, end: EpisodeEnd::Terminal },
            Episode { start: 4, len: 1, end: EpisodeEnd::Cut },
        ];
        assert_eq!(log.episodes(), expected);
        assert!(log.terminal(3) && !log.timeout(3), "a terminal is the stronger statement");
        assert_eq!((0..5).filter(|&i| log.ends_episode(i)).collect::<Vec<_>>(), [2, 3, 4]);
        assert_eq!((0..5).map(|i| log.episode_of(i)).collect::<Vec<_>>(), [0, 0, 0, 1, 2]);
        assert_eq!(log.initial_observations().map(|s| s[0]).collect::<Vec<_>>(), [0.0, 3.0, 5.0]);
    }

    #[test]
    fn misfits_are_refused_and_leave_the_log_unchanged() {
        let mut builder = TransitionsBuilder::new(schema()).unwrap();
        let narrow = BuildError::Width { row: 0, column: "observation", found: 1, expected: 2 };
        assert_eq!(builder.push(&step(&[1.0], &[1.0, 0.0])), Err(narrow));
        let discrete = Step { action: StepAction::Discrete(0), ..step(&[0.0; 2], &[0.0; 2]) };
        assert!(matches!(builder.push(&discrete), Err(BuildError::ActionKind { .. })));
        let odds = Step { propensity: Some(0.5), ..step(&[0.0; 2], &[0.0; 2]) };
        assert_eq!(builder.push(&odds), Err(BuildError::Propensity { row: 0, expected: false }));
        assert!(builder.is_empty());
        assert_eq!(builder.finish().unwrap_err(), BuildError::Empty);

        let mut discrete =
            TransitionsBuilder::new(Schema { action: ActionSpace::discrete(3), ..schema() }).unwrap();
        let outside = Step { action: StepAction::Discrete(3), ..step(&[0.0; 2], &[0.0; 2]) };
        assert_eq!(discrete.push(&outside), Err(BuildError::ActionId { row: 0, id: 3, count: 3 }));
        let twice = Schema { cost_names: vec!["c".into(), "c".into()], ..schema() };
        assert_eq!(TransitionsBuilder::new(twice).unwrap_err(), BuildError::DuplicateCost("c".into()));
    }
}
