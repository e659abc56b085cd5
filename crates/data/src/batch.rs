//! Copying rows into a batch.

use crate::transitions::{Actions, Transitions};

/// A type that can name a row.
pub trait RowIndex: Copy {
    /// The row.
    fn row(self) -> usize;
}

impl RowIndex for usize {
    fn row(self) -> usize {
        self
    }
}

impl RowIndex for u32 {
    fn row(self) -> usize {
        self as usize
    }
}

/// Reusable buffers for `B` rows. [`Transitions::gather`] allocates nothing once they have grown to the batch size.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    /// `[B, D]`.
    pub observations: Vec<f32>,
    /// `[B, D]`; NaN in rows of [`Transitions::next_unknown`].
    pub next_observations: Vec<f32>,
    /// `[B, A]`; empty for discrete actions.
    pub actions: Vec<f32>,
    /// `[B]`; empty for continuous actions.
    pub action_ids: Vec<u32>,
    /// `[B]`.
    pub rewards: Vec<f32>,
    /// `[B, K]`.
    pub costs: Vec<f32>,
    /// `[B]`.
    pub terminals: Vec<bool>,
    /// `[B]`.
    pub timeouts: Vec<bool>,
    /// `[B]`; empty where the log has none.
    pub propensities: Vec<f32>,
}

impl Batch {
    /// Rows held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rewards.len()
    }

    /// Whether no row is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rewards.is_empty()
    }

    fn clear(&mut self) {
        self.observations.clear();
        self.next_observations.clear();
        self.actions.clear();
        self.action_ids.clear();
        self.rewards.clear();
        self.costs.clear();
        self.terminals.clear();
        self.timeouts.clear();
        self.propensities.clear();
    }
}

impl Transitions {
    /// Copies `rows`, in their order and with repetitions, into `batch`, whose former contents are dropped.
    ///
    /// # Panics
    /// If a row is not below [`Transitions::len`].
    pub fn gather<R: RowIndex>(&self, rows: &[R], batch: &mut Batch) {
        batch.clear();
        for row in rows.iter().map(|row| row.row()) {
            batch.observations.extend_from_slice(self.observation(row));
            batch.next_observations.extend_from_slice(self.next_observation(row));
            batch.rewards.push(self.rewards[row]);
            batch.costs.extend_from_slice(self.costs(row));
            batch.terminals.push(self.terminal(row));
            batch.timeouts.push(self.timeout(row));
        }
        match &self.actions {
            Actions::Continuous { .. } => {
                for row in rows {
                    batch.actions.extend_from_slice(self.continuous_action(row.row()));
                }
            }
            Actions::Discrete { ids, .. } => batch.action_ids.extend(rows.iter().map(|row| ids[row.row()])),
        }
        if let Some(values) = &self.propensities {
            batch.propensities.extend(rows.iter().map(|row| values[row.row()]));
        }
    }

    /// Copies the initial observations of `episodes` (positions in [`Transitions::episodes`]) into `initial`,
    /// `[B, D]`, whose former contents are dropped.
    ///
    /// # Panics
    /// If a position is not below the number of episodes.
    pub fn gather_initial<R: RowIndex>(&self, episodes: &[R], initial: &mut Vec<f32>) {
        initial.clear();
        for episode in episodes {
            initial.extend_from_slice(self.observation(self.episodes[episode.row()].start));
        }
    }
}
