//! Parts of a log: chosen episodes, and the split into training and held-out episodes.

use std::ops::Range;
use std::sync::OnceLock;

use coptidice_core::rng;
use rand::seq::SliceRandom;

use crate::builder::{ActionSpace, Schema, Step, StepAction, TransitionsBuilder};
use crate::column::Column;
use crate::transitions::{Actions, EpisodeEnd, Transitions};

/// Numbers of the episodes of the two parts of a log, each ascending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// Episodes to train on.
    pub train: Vec<usize>,
    /// Episodes held out.
    pub held_out: Vec<usize>,
}

/// A split that leaves one part empty.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum SplitError {
    /// Not a fraction.
    #[error("the held-out fraction {0} is not between 0 and 1; 0.2 holds out a fifth of the episodes")]
    Fraction(f64),
    /// Fewer episodes than parts.
    #[error("a log of {0} episode(s) cannot be split by episode; at least 2 are needed")]
    TooFewEpisodes(usize),
}

impl Split {
    /// Draws `fraction` of the episodes, rounded, at least one and not all, to be held out.
    ///
    /// # Errors
    /// If `fraction` is not strictly between 0 and 1, or there are fewer than two episodes.
    pub fn draw(log: &Transitions, fraction: f64, seed: u64) -> Result<Self, SplitError> {
        if !(fraction > 0.0 && fraction < 1.0) {
            return Err(SplitError::Fraction(fraction));
        }
        let count = log.episodes().len();
        if count < 2 {
            return Err(SplitError::TooFewEpisodes(count));
        }
        let mut order: Vec<usize> = (0..count).collect();
        order.shuffle(&mut rng::stream(seed, "split", 0));
        let held = ((fraction * count as f64).round() as usize).clamp(1, count - 1);
        let mut held_out = order.split_off(count - held);
        order.sort_unstable();
        held_out.sort_unstable();
        Ok(Split { train: order, held_out })
    }
}

impl Transitions {
    /// The shape of the log.
    #[must_use]
    pub fn schema(&self) -> Schema {
        Schema {
            observation_dim: self.observation_dim,
            action: match &self.actions {
                Actions::Continuous { dim, .. } => ActionSpace::Continuous { dim: *dim },
                Actions::Discrete { labels, .. } => ActionSpace::Discrete { labels: labels.clone() },
            },
            cost_names: self.cost_names.clone(),
            propensity: self.propensities.is_some(),
        }
    }

    /// Row `i` as a builder takes it.
    #[must_use]
    pub fn step(&self, i: usize) -> Step<'_> {
        Step {
            observation: self.observation(i),
            action: match &self.actions {
                Actions::Continuous { .. } => StepAction::Continuous(self.continuous_action(i)),
                Actions::Discrete { ids, .. } => StepAction::Discrete(ids[i]),
            },
            reward: self.reward(i),
            costs: self.costs(i),
            next_observation: self.next_observation(i),
            terminal: self.terminal(i),
            timeout: self.timeout(i),
            propensity: self.propensity(i),
        }
    }

    /// A log of the given episodes (positions in [`Transitions::episodes`]) in the given order; `None` if there are
    /// none.
    ///
    /// # Panics
    /// If a position is not below the number of episodes.
    #[must_use]
    pub fn select_episodes(&self, episodes: &[usize]) -> Option<Transitions> {
        self.select_rows(episodes.iter().map(|&index| self.episodes[index].rows()))
    }

    /// Flags the ends of cut episodes as time-outs, which is what they are read as.
    pub(crate) fn flag_cuts(&mut self) {
        if self.episodes.iter().all(|episode| episode.end != EpisodeEnd::Cut) {
            return;
        }
        let mut timeouts = std::mem::replace(&mut self.timeouts, Column::from(Vec::new())).into_vec();
        for episode in self.episodes.iter_mut().filter(|episode| episode.end == EpisodeEnd::Cut) {
            timeouts[episode.last()] = 1;
            episode.end = EpisodeEnd::Timeout;
        }
        self.timeouts = Column::from(timeouts);
        self.fingerprint = OnceLock::new();
    }

    /// A log of ranges of rows, each inside one episode. A range that stops before its episode does ends in a
    /// time-out.
    pub(crate) fn select_rows(
        &self,
        ranges: impl Iterator<Item = Range<usize>> + Clone,
    ) -> Option<Transitions> {
        let mut builder =
            TransitionsBuilder::new(self.schema()).expect("the schema of an existing log is sound");
        builder.reserve(ranges.clone().map(|range| range.len()).sum());
        for range in ranges {
            for row in range.clone() {
                let step = self.step(row);
                let last = row + 1 == range.end;
                let stopped = last && !self.ends_episode(row);
                builder
                    .push(&Step { timeout: step.timeout || stopped, ..step })
                    .expect("a row of a log fits the log's schema");
            }
            builder.end_episode();
        }
        let mut selected = builder.finish().ok()?;
        selected.observation_names.clone_from(&self.observation_names);
        selected.action_names.clone_from(&self.action_names);
        Some(selected)
    }
}
