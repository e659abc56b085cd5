//! Heads: how a network's outputs become a distribution over actions, its density, and the loss of weighted
//! behaviour cloning.
//!
//! The loss of a policy network `ψ` on a batch of `B` logged samples is (`eq:weighted_bc`, `eq:J_psi`)
//!
//! ```text
//! J(ψ) = −(1/B) Σ_b w_b log π_ψ(a_b|s_b)
//! ```
//!
//! with weights `w_b ≥ 0` (all one: plain behaviour cloning). Its gradient with respect to the network's outputs is
//! written by hand in `mixture` and `categorical`, and checked there against differences in double precision.

use super::categorical;
use super::lanes::{LANES, Lanes};
use super::mixture::{MAX_COMPONENTS, Mixture, Workspace};
use coptidice_nn::Pool;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

/// A batch is worked on in at most this many parts, whose boundaries depend on the batch size alone: results are
/// the same bits for any number of threads.
const PARTS: usize = 32;

/// Most actions of a categorical head: indices stay exact in single precision.
const MAX_ACTIONS: usize = 1 << 24;

/// How a network's outputs parametrise the policy's distribution over actions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Head {
    /// Continuous actions: each of `action_dim` dimensions is a mixture of `components` Gaussians.
    ///
    /// The outputs of one sample are `[3][action_dim][components]`: logits, locations, raw scales;
    /// `scale = softplus(raw) + min_scale`. One component makes a diagonal Gaussian.
    Mixture {
        /// Dimensions `A` of an action.
        action_dim: usize,
        /// Components `M` per dimension, 1 to 64.
        components: usize,
        /// Smallest standard deviation, in units of the action, 1e-6 to 1e3.
        min_scale: f32,
    },
    /// Finitely many actions: one logit each.
    Categorical {
        /// Number of actions.
        actions: usize,
    },
}

/// The actions of a batch, row by row.
#[derive(Clone, Copy, Debug)]
pub enum ActionBatch<'a> {
    /// `[B * action_dim]`.
    Continuous(&'a [f32]),
    /// `[B]`, each below the number of actions.
    Discrete(&'a [u32]),
}

/// A head that cannot be.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum HeadError {
    /// No action dimension, or no action.
    #[error("the policy head has no actions; give it at least one")]
    NoActions,
    /// More actions than a head can have.
    #[error("{actions} actions are more than the {limit} a policy head can have")]
    TooManyActions {
        /// Number asked for.
        actions: usize,
        /// Largest number.
        limit: usize,
    },
    /// Components out of range.
    #[error("{0} mixture components; give 1 to {MAX_COMPONENTS}")]
    Components(usize),
    /// Smallest standard deviation out of range.
    #[error("smallest standard deviation {0}; give a number from 1e-6 to 1e3")]
    MinScale(f32),
}

impl Head {
    /// The head itself if its numbers are in range.
    ///
    /// # Errors
    /// [`HeadError`] naming the number out of range.
    pub fn validated(self) -> Result<Self, HeadError> {
        let (Head::Mixture { action_dim: actions, .. } | Head::Categorical { actions }) = self;
        if actions == 0 {
            return Err(HeadError::NoActions);
        }
        if actions > MAX_ACTIONS {
            return Err(HeadError::TooManyActions { actions, limit: MAX_ACTIONS });
        }
        if let Head::Mixture { components, min_scale, .. } = self {
            if !(1..=MAX_COMPONENTS).contains(&components) {
                return Err(HeadError::Components(components));
            }
            if !(1e-6..=1e3).contains(&min_scale) {
                return Err(HeadError::MinScale(min_scale));
            }
        }
        Ok(self)
    }

    /// Network outputs per sample.
    #[must_use]
    pub fn outputs(&self) -> usize {
        match *self {
            Head::Mixture { action_dim, components, .. } => 3 * action_dim * components,
            Head::Categorical { actions } => actions,
        }
    }

    /// Numbers per action as [`Head::act`] writes it: `action_dim`, or 1 (the index) for finitely many actions.
    #[must_use]
    pub fn action_width(&self) -> usize {
        match *self {
            Head::Mixture { action_dim, .. } => action_dim,
            Head::Categorical { .. } => 1,
        }
    }

    /// Whether there are finitely many actions.
    #[must_use]
    pub fn is_discrete(&self) -> bool {
        matches!(self, Head::Categorical { .. })
    }

    /// The loss `J` of a batch (module's documentation) and its gradient with respect to the network's outputs.
    ///
    /// `outputs` and `d_out` are `[B * self.outputs()]`, `weights` `[B]`; `d_out` is overwritten with `dJ/d outputs`.
    /// Returns `J`, summed in double precision in a fixed order. Nothing is allocated. Zero for an empty batch.
    ///
    /// # Panics
    /// If a length does not fit, the actions are of the other kind, or an action's index is out of range: batches
    /// come from validated data.
    pub fn weighted_nll(
        &self,
        outputs: &[f32],
        actions: ActionBatch<'_>,
        weights: &[f32],
        d_out: &mut [f32],
        pool: &Pool,
    ) -> f64 {
        let batch = weights.len();
        let width = self.outputs();
        self.assert_shapes(outputs, actions, batch);
        assert_eq!(d_out.len(), outputs.len(), "one derivative per output");
        if batch == 0 {
            return 0.0;
        }
        let rows = part_rows(batch);
        let mut values = [0.0_f64; PARTS];
        let part = |(index, (value, d_out)): (usize, (&mut f64, &mut [f32]))| {
            let first = index * rows;
            let last = (first + rows).min(batch);
            *value = self.part_loss(
                &outputs[first * width..last * width],
                self.rows_of(actions, first, last),
                &weights[first..last],
                batch,
                d_out,
            );
        };
        if pool.threads() == 1 {
            values.iter_mut().zip(d_out.chunks_mut(rows * width)).enumerate().for_each(part);
        } else {
            pool.install(|| {
                values.par_iter_mut().zip(d_out.par_chunks_mut(rows * width)).enumerate().for_each(part);
            });
        }
        -values.iter().sum::<f64>() / batch as f64
    }

    /// `log π(a_b|s_b)` of every sample into `out` (`[B]`), from `outputs` `[B * self.outputs()]`: a density with
    /// respect to the action's units for continuous actions, before any clipping to bounds.
    ///
    /// # Panics
    /// As [`Head::weighted_nll`].
    pub fn log_prob(&self, outputs: &[f32], actions: ActionBatch<'_>, out: &mut [f32], pool: &Pool) {
        let batch = out.len();
        let width = self.outputs();
        self.assert_shapes(outputs, actions, batch);
        if batch == 0 {
            return;
        }
        let rows = part_rows(batch);
        let part = |(index, out): (usize, &mut [f32])| {
            let first = index * rows;
            let last = first + out.len();
            let mut work = Workspace::new();
            for (block, out) in out.chunks_mut(LANES).enumerate() {
                let from = first + block * LANES;
                let to = (from + LANES).min(last);
                let block_outputs = &outputs[from * width..to * width];
                let values = match (*self, self.rows_of(actions, from, to)) {
                    (Head::Categorical { actions: count }, ActionBatch::Discrete(actions)) => {
                        categorical::log_probability(count, block_outputs, actions)
                    }
                    (_, ActionBatch::Continuous(actions)) => {
                        self.mixture().log_density(block_outputs, actions, &mut work)
                    }
                    _ => unreachable!("kinds were compared on entry"),
                };
                out.copy_from_slice(&values[..out.len()]);
            }
        };
        if pool.threads() == 1 {
            out.chunks_mut(rows).enumerate().for_each(part);
        } else {
            pool.install(|| out.par_chunks_mut(rows).enumerate().for_each(part));
        }
    }

    /// `Σ_b w_b log π(a_b|s_b)` over a part of a batch of `batch` samples, and the gradient of `J` for its rows.
    fn part_loss(
        &self,
        outputs: &[f32],
        actions: ActionBatch<'_>,
        weights: &[f32],
        batch: usize,
        d_out: &mut [f32],
    ) -> f64 {
        let width = self.outputs();
        let mut work = Workspace::new();
        let mut sum = 0.0;
        let blocks = weights.chunks(LANES).zip(outputs.chunks(LANES * width));
        for (block, ((weights, outputs), d_out)) in blocks.zip(d_out.chunks_mut(LANES * width)).enumerate() {
            let mut factor: Lanes = [0.0; LANES];
            for (factor, &weight) in factor.iter_mut().zip(weights) {
                *factor = -weight / batch as f32;
            }
            let first = block * LANES;
            let values = match (*self, self.rows_of(actions, first, first + weights.len())) {
                (Head::Categorical { actions: count }, ActionBatch::Discrete(actions)) => {
                    categorical::log_probability_and_gradient(count, outputs, actions, &factor, d_out)
                }
                (_, ActionBatch::Continuous(actions)) => {
                    self.mixture().log_density_and_gradient(outputs, actions, &factor, d_out, &mut work)
                }
                _ => unreachable!("kinds were compared on entry"),
            };
            for (&weight, &value) in weights.iter().zip(&values) {
                sum += f64::from(weight) * f64::from(value);
            }
        }
        sum
    }

    fn mixture(&self) -> Mixture {
        match *self {
            Head::Mixture { action_dim, components, min_scale } => {
                Mixture { action_dim, components, min_scale }
            }
            Head::Categorical { .. } => unreachable!("kinds were compared on entry"),
        }
    }

    fn rows_of<'a>(&self, actions: ActionBatch<'a>, first: usize, last: usize) -> ActionBatch<'a> {
        match actions {
            ActionBatch::Continuous(values) => {
                let width = self.action_width();
                ActionBatch::Continuous(&values[first * width..last * width])
            }
            ActionBatch::Discrete(values) => ActionBatch::Discrete(&values[first..last]),
        }
    }

    fn assert_shapes(&self, outputs: &[f32], actions: ActionBatch<'_>, batch: usize) {
        assert_eq!(outputs.len(), batch * self.outputs(), "network outputs do not fit the batch");
        match (*self, actions) {
            (Head::Mixture { action_dim, .. }, ActionBatch::Continuous(values)) => {
                assert_eq!(values.len(), batch * action_dim, "actions do not fit the batch");
            }
            (Head::Categorical { .. }, ActionBatch::Discrete(values)) => {
                assert_eq!(values.len(), batch, "actions do not fit the batch");
            }
            _ => panic!("the actions are not of the head's kind"),
        }
    }
}

/// Rows per part: whole blocks of [`LANES`], at most [`PARTS`] parts.
fn part_rows(batch: usize) -> usize {
    batch.div_ceil(PARTS).next_multiple_of(LANES)
}
