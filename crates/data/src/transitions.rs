//! The log itself.

use std::ops::Range;
use std::sync::OnceLock;

use crate::column::Column;
use crate::fingerprint::Fingerprint;
use crate::next::NextObservations;

/// The actions of a log.
#[derive(Clone, Debug)]
pub enum Actions {
    /// Real vectors.
    Continuous {
        /// Components of an action, `A`.
        dim: usize,
        /// `[N, A]`.
        values: Column<f32>,
    },
    /// Members of a finite set.
    Discrete {
        /// Number of different actions; ids are `0..count`.
        count: usize,
        /// `[N]`.
        ids: Column<u32>,
        /// What the source called each id, `[count]`; a source with actions 0, 2, 3 has the labels "0", "2", "3".
        labels: Vec<String>,
    },
}

impl Actions {
    /// Values needed for one action: `A`, or 1 for an id.
    #[must_use]
    pub fn width(&self) -> usize {
        match self {
            Actions::Continuous { dim, .. } => *dim,
            Actions::Discrete { .. } => 1,
        }
    }

    /// Whether actions are ids of a finite set.
    #[must_use]
    pub fn is_discrete(&self) -> bool {
        matches!(self, Actions::Discrete { .. })
    }
}

/// How the recording of an episode stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EpisodeEnd {
    /// The process itself ended.
    Terminal,
    /// The recording was stopped by a limit on time; the process went on.
    Timeout,
    /// The log stops without a flag: it was cut. Read like a time-out.
    Cut,
}

/// One episode: rows `start .. start + len`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Episode {
    /// First row; its observation is an initial state.
    pub start: usize,
    /// Number of transitions, at least 1.
    pub len: usize,
    /// How it stopped.
    pub end: EpisodeEnd,
}

impl Episode {
    /// The rows of the episode.
    #[must_use]
    pub fn rows(&self) -> Range<usize> {
        self.start..self.start + self.len
    }

    /// The last row.
    #[must_use]
    pub fn last(&self) -> usize {
        self.start + self.len - 1
    }
}

/// A log of `N` transitions with observations of `D` components, `K` costs, and continuous or discrete actions.
///
/// Cloning is cheap: the columns are shared. Row accessors panic if `i` is not below [`Transitions::len`].
#[derive(Clone, Debug)]
pub struct Transitions {
    pub(crate) observation_dim: usize,
    pub(crate) observation_names: Vec<String>,
    pub(crate) observations: Column<f32>,
    pub(crate) next: NextObservations,
    pub(crate) actions: Actions,
    pub(crate) action_names: Vec<String>,
    pub(crate) rewards: Column<f32>,
    pub(crate) costs: Column<f32>,
    pub(crate) cost_names: Vec<String>,
    pub(crate) terminals: Column<u8>,
    pub(crate) timeouts: Column<u8>,
    pub(crate) propensities: Option<Column<f32>>,
    pub(crate) episodes: Vec<Episode>,
    /// See [`Transitions::next_unknown`].
    pub(crate) next_unknown: Vec<usize>,
    pub(crate) fingerprint: OnceLock<Fingerprint>,
}

impl Transitions {
    /// Number of transitions, `N`.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rewards.len()
    }

    /// Whether there is no transition.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rewards.is_empty()
    }

    /// Components of an observation, `D`.
    #[must_use]
    pub fn observation_dim(&self) -> usize {
        self.observation_dim
    }

    /// What the source called the components of an observation: `[D]`, or empty where it has no names.
    #[must_use]
    pub fn observation_names(&self) -> &[String] {
        &self.observation_names
    }

    /// What the source called the components of an action: `[A]`, or empty where it has no names.
    #[must_use]
    pub fn action_names(&self) -> &[String] {
        &self.action_names
    }

    /// Number of costs, `K`.
    #[must_use]
    pub fn cost_count(&self) -> usize {
        self.cost_names.len()
    }

    /// Names of the costs, `[K]`.
    #[must_use]
    pub fn cost_names(&self) -> &[String] {
        &self.cost_names
    }

    /// The actions.
    #[must_use]
    pub fn actions(&self) -> &Actions {
        &self.actions
    }

    /// Observation `s` of row `i`, `[D]`.
    #[must_use]
    pub fn observation(&self, i: usize) -> &[f32] {
        row(&self.observations, i, self.observation_dim)
    }

    /// Next observation `s'` of row `i`, `[D]`.
    ///
    /// After a terminal it is what the source recorded, and has no meaning for values: bootstrapping stops. NaN in
    /// every component where nothing was recorded ([`Transitions::next_unknown`]).
    #[must_use]
    pub fn next_observation(&self, i: usize) -> &[f32] {
        match &self.next {
            NextObservations::Full(values) => row(values, i, self.observation_dim),
            NextObservations::Chained(exceptions) => {
                exceptions.next(&self.observations, self.observation_dim, i)
            }
        }
    }

    /// Rows that lead nobody knows where, ascending: an episode was stopped there, and what was observed afterwards
    /// was not recorded. They count in every length and total; what bootstraps from `s'` must leave them out.
    #[must_use]
    pub fn next_unknown(&self) -> &[usize] {
        &self.next_unknown
    }

    /// This log with [`Transitions::next_unknown`] found.
    pub(crate) fn with_unknown_found(mut self) -> Self {
        let stopped = self.episodes.iter().filter(|episode| episode.end != EpisodeEnd::Terminal);
        self.next_unknown =
            stopped.map(Episode::last).filter(|&row| is_blank(self.next_observation(row))).collect();
        self
    }

    /// All observations, `[N, D]`.
    #[must_use]
    pub fn observations(&self) -> &[f32] {
        &self.observations
    }

    /// Continuous action of row `i`, `[A]`.
    ///
    /// # Panics
    /// If the actions are discrete.
    #[must_use]
    pub fn continuous_action(&self, i: usize) -> &[f32] {
        match &self.actions {
            Actions::Continuous { dim, values } => row(values, i, *dim),
            Actions::Discrete { .. } => panic!("continuous_action on a log of discrete actions"),
        }
    }

    /// Id of the action of row `i`, in `0..count`.
    ///
    /// # Panics
    /// If the actions are continuous.
    #[must_use]
    pub fn discrete_action(&self, i: usize) -> u32 {
        match &self.actions {
            Actions::Discrete { ids, .. } => ids[i],
            Actions::Continuous { .. } => panic!("discrete_action on a log of continuous actions"),
        }
    }

    /// Reward of row `i`.
    #[must_use]
    pub fn reward(&self, i: usize) -> f32 {
        self.rewards[i]
    }

    /// All rewards, `[N]`.
    #[must_use]
    pub fn rewards(&self) -> &[f32] {
        &self.rewards
    }

    /// Costs of row `i`, `[K]`.
    #[must_use]
    pub fn costs(&self, i: usize) -> &[f32] {
        row(&self.costs, i, self.cost_count())
    }

    /// Whether the process ended at row `i`: nothing follows, bootstrapping stops.
    #[must_use]
    pub fn terminal(&self, i: usize) -> bool {
        self.terminals[i] != 0
    }

    /// Whether the recording was stopped at row `i` although the process went on.
    #[must_use]
    pub fn timeout(&self, i: usize) -> bool {
        self.timeouts[i] != 0
    }

    /// Whether row `i` is the last of its episode, for whatever reason (a log may be cut without a flag).
    #[must_use]
    pub fn ends_episode(&self, i: usize) -> bool {
        self.terminal(i) || self.timeout(i) || self.episodes[self.episode_of(i)].last() == i
    }

    /// Position in [`Transitions::episodes`] of the episode that holds row `i`.
    #[must_use]
    pub fn episode_of(&self, i: usize) -> usize {
        assert!(i < self.len(), "row {i} of a log of {} transitions", self.len());
        self.episodes.partition_point(|episode| episode.start <= i) - 1
    }

    /// Probability (density, for continuous actions) with which the logging policy took the action of row `i`,
    /// where the source recorded it.
    #[must_use]
    pub fn propensity(&self, i: usize) -> Option<f32> {
        self.propensities.as_ref().map(|values| values[i])
    }

    /// The episodes, in the order of rows; together they cover every row once.
    #[must_use]
    pub fn episodes(&self) -> &[Episode] {
        &self.episodes
    }

    /// Undiscounted total over each episode of what `value` gives for a row.
    #[must_use]
    pub fn episode_totals(&self, value: impl Fn(usize) -> f32) -> Vec<f64> {
        self.episodes.iter().map(|episode| episode.rows().map(|row| f64::from(value(row))).sum()).collect()
    }

    /// Initial observations: the first of each episode, `[D]` each.
    pub fn initial_observations(&self) -> impl ExactSizeIterator<Item = &[f32]> {
        self.episodes.iter().map(|episode| self.observation(episode.start))
    }

    /// SHA-256 over the columns, independent of the file format they came from. Computed on first use.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        *self.fingerprint.get_or_init(|| Fingerprint::of(self))
    }

    /// Bytes of the columns as they are held (in memory or mapped).
    #[must_use]
    pub fn column_bytes(&self) -> usize {
        let next = match &self.next {
            NextObservations::Full(values) => size_of_val::<[f32]>(values),
            NextObservations::Chained(exceptions) => size_of_val(exceptions.values()) + self.len() * 3 / 16,
        };
        let propensities = self.propensities.as_ref().map_or(0, |values| values.len());
        next + 4 * (self.observations.len() + self.len() * (self.actions.width() + 1) + self.costs.len())
            + 4 * propensities
            + 2 * self.len()
    }
}

/// Whether an observation says nothing: how an `s'` that was not recorded is stored in every format.
pub(crate) fn is_blank(observation: &[f32]) -> bool {
    observation.iter().all(|value| value.is_nan())
}

/// Row `i` of a row-major `[_, width]` array.
fn row(values: &[f32], i: usize, width: usize) -> &[f32] {
    &values[i * width..(i + 1) * width]
}
