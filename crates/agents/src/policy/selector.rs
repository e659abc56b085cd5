//! Choosing among candidates when acting.
//!
//! # The problem
//!
//! A policy that models the log's actions knows what can be done at a state, and not what is best. A selector knows,
//! of a few such actions, which one: a critic estimates what each earns (`Q_r`) and costs (`Q_c`, `[K]`) from there on,
//! and the policy does the candidate of the largest
//!
//! ```text
//! Q_r(s,a) - prices'Q_c(s,a)
//! ```
//!
//! the first of equals, so that nothing far from the log is ever done. With `V` the means over the policy's own actions
//! and `A = Q - V`, the cost advantage of a candidate *fits the prices* if its reward advantage pays for it:
//! `prices'A_c <= A_r`. The candidate above is the best of those that fit. It fits, for the mean of `A_r - prices'A_c`
//! over the policy's actions is 0, so that its largest value is not below; and it is the best, in the sense that counts
//! where limits hold on average over states: a policy's priced return exceeds the model's by the mean of
//! `A_r - prices'A_c` over the states that it visits, divided by one less the discount (the performance difference), and no
//! choice makes that larger state by state. To take the most *rewarding* of those that fit would spend all that is gained
//! on cost; to ask for `A_c <= 0` at each state would forbid what the limit allows, which is to spend cost where it earns
//! most.
//!
//! # Candidates
//!
//! Acting draws nothing. Continuous candidates are the actions of the policy's mixture at fixed quantiles: for every
//! candidate and dimension one number picks the component (the first whose cumulative probability exceeds it) and another
//! is the normal value in `location + scale * normal`; then they are clipped as all actions are. Of finitely many
//! actions, candidates are those at least `threshold` times as probable as the most probable one (the rule of Fujimoto et
//! al. 2019, "Benchmarking batch deep reinforcement learning algorithms").

use super::acting::largest;
use super::{ActError, Head, Normalizer, Policy, PolicyDefect};
use coptidice_nn::{ForwardRoom, ForwardWeights, Network};
use std::sync::Arc;

/// Most candidates of a continuous policy.
pub const MAX_CANDIDATES: usize = 1024;

/// Largest quantile of a component. Sums of probabilities come within 1e-5 of 1, so that some component always exceeds it.
const MAX_QUANTILE: f32 = 0.9999;

/// A critic, the prices at which it is read, and where candidates come from.
#[derive(Clone, Debug)]
pub struct Selector {
    /// From `[O + A]` (the normalised observation, then the normalised action) to `[1 + K]`: reward, then costs, each in
    /// units of its own. For finitely many actions from `[O]` to `[actions * (1 + K)]`, action by action.
    pub network: Network,
    /// The network's parameters, laid out as [`Network::layout`].
    pub params: Vec<f32>,
    /// `[K]`, at least 0: units of reward per unit of cost, as the network puts them out.
    pub prices: Vec<f32>,
    /// Where candidates come from.
    pub candidates: Candidates,
}

/// Where the candidates of a [`Selector`] come from.
#[derive(Clone, Debug, PartialEq)]
pub enum Candidates {
    /// Continuous actions, at fixed quantiles.
    Drawn {
        /// `[m * A]`, candidate by candidate: the quantile of the component, in `[0, 0.9999]`, and the normal value.
        draws: Vec<[f32; 2]>,
        /// Applied to actions before the network.
        action: Normalizer,
    },
    /// Of finitely many actions those that are likely.
    Likely {
        /// Least probability, as a share of the largest; in `(0, 1]`.
        threshold: f32,
    },
}

/// Rows that pass through the critic together: as many candidates of every observation as fit, one at least.
const ROWS: usize = 64;

/// Working storage; it grows to the most observations that came together.
#[derive(Clone, Debug)]
pub(super) struct Room {
    weights: Arc<ForwardWeights>,
    room: ForwardRoom,
    inputs: Vec<f32>,
    values: Vec<f32>,
    candidate: Vec<f32>,
    /// Of every observation the largest worth so far, and whose it is.
    best: Vec<(f32, usize)>,
}

impl Room {
    fn grow(&mut self, inputs: usize, values: usize, observations: usize) {
        if self.inputs.len() < inputs {
            self.inputs.resize(inputs, 0.0);
        }
        if self.values.len() < values {
            self.values.resize(values, 0.0);
        }
        if self.best.len() < observations {
            self.best.resize(observations, (0.0, 0));
        }
    }
}

impl Selector {
    /// Whether it fits a head and `columns` columns of observations, and every number is usable.
    pub(super) fn check(&self, head: Head, columns: usize) -> Result<(), PolicyDefect> {
        let spec = self.network.spec();
        let values = 1 + self.prices.len();
        let (input, output) = match (&self.candidates, head) {
            (Candidates::Drawn { .. }, Head::Mixture { action_dim, .. }) => (columns + action_dim, values),
            (Candidates::Likely { .. }, Head::Categorical { actions }) => (columns, actions * values),
            _ => return Err(PolicyDefect::Selector { reason: "its candidates are not of the head's kind" }),
        };
        if (spec.input, spec.output) != (input, output) {
            return Err(PolicyDefect::SelectorNetwork {
                expected: (input, output),
                found: (spec.input, spec.output),
            });
        }
        match &self.candidates {
            Candidates::Drawn { draws, action } => {
                let dim = head.action_width();
                let expected = vec![dim];
                for (part, found) in [("mean", action.mean.len()), ("scale", action.scale.len())] {
                    if found != dim {
                        let tensor = format!("selector.action.{part}");
                        return Err(PolicyDefect::TensorShape { tensor, expected, found: vec![found] });
                    }
                }
                if !draws.len().is_multiple_of(dim) || !(1..=MAX_CANDIDATES).contains(&(draws.len() / dim)) {
                    return Err(PolicyDefect::Selector {
                        reason: "it has no candidates, too many or half ones",
                    });
                }
                if draws.iter().any(|[quantile, _]| !(0.0..=MAX_QUANTILE).contains(quantile)) {
                    return Err(PolicyDefect::Selector { reason: "a quantile is not between 0 and 0.9999" });
                }
                if action.scale.iter().any(|&scale| scale <= 0.0) {
                    return Err(PolicyDefect::Selector { reason: "an action's scale is not positive" });
                }
            }
            Candidates::Likely { threshold } => {
                if !(*threshold > 0.0 && *threshold <= 1.0) {
                    return Err(PolicyDefect::Selector {
                        reason: "its threshold is not above 0 and at most 1",
                    });
                }
            }
        }
        if self.prices.iter().any(|&price| price < 0.0) {
            return Err(PolicyDefect::Selector { reason: "a price is negative" });
        }
        Ok(())
    }

    /// Every vector of numbers with its name and the length it must have where no other part says.
    pub(super) fn vectors(&self) -> Vec<(&'static str, &[f32])> {
        let mut vectors = vec![("selector.prices", self.prices.as_slice())];
        if let Candidates::Drawn { draws, action } = &self.candidates {
            vectors.push(("selector.draws", draws.as_flattened()));
            vectors.push(("selector.action.mean", &action.mean));
            vectors.push(("selector.action.scale", &action.scale));
        }
        vectors
    }

    /// `Q_r - prices'Q_c` from one action's values.
    pub(crate) fn worth(values: &[f32], prices: &[f32]) -> f32 {
        values[1..].iter().zip(prices).fold(values[0], |worth, (cost, price)| worth - price * cost)
    }

    pub(super) fn room(&self, head: Head) -> Room {
        let mut room = Room {
            weights: Arc::new(self.network.forward_weights(&self.params)),
            room: self.network.forward_room(ROWS),
            inputs: Vec::new(),
            values: Vec::new(),
            candidate: vec![0.0; head.action_width()],
            best: Vec::new(),
        };
        let spec = self.network.spec();
        room.grow(ROWS * spec.input, ROWS * spec.output, 1);
        room
    }

    /// Writes the actions for normalised observations (`[B * O]`) and what the policy's network makes of them, clipped.
    pub(super) fn choose(
        &self,
        policy: &Policy,
        observations: &[f32],
        outputs: &[f32],
        room: &mut Room,
        actions: &mut [f32],
    ) -> Result<(), ActError> {
        let (head, width) = (policy.head(), policy.action_width());
        let rows = actions.len() / width;
        match &self.candidates {
            Candidates::Drawn { draws, action: normalizer } => {
                let per_pass = (ROWS / rows.max(1)).max(1);
                room.grow(
                    per_pass * rows * self.network.spec().input,
                    per_pass * rows * (1 + self.prices.len()),
                    rows,
                );
                room.best[..rows].fill((f32::NEG_INFINITY, 0));
                for (pass, draws) in draws.chunks(per_pass * width).enumerate() {
                    self.weigh(policy, observations, outputs, (draws, normalizer), pass * per_pass, room)?;
                }
                let each = outputs.chunks_exact(head.outputs()).zip(actions.chunks_exact_mut(width));
                for ((outputs, action), &(_, j)) in each.zip(&room.best) {
                    head.at_quantiles(outputs, &draws[j * width..(j + 1) * width], action);
                    policy.clip(action);
                }
            }
            Candidates::Likely { threshold } => {
                let count = self.network.spec().output;
                room.grow(0, rows * count, 0);
                let Room { weights, room, values, .. } = room;
                let values = &mut values[..rows * count];
                self.network.forward_with(&self.params, weights, observations, values, room);
                let each = outputs.chunks_exact(head.outputs()).zip(values.chunks_exact(count));
                for (row, (action, (logits, values))) in actions.iter_mut().zip(each).enumerate() {
                    *action = self.choose_likely(logits, values, *threshold, row)? as f32;
                }
            }
        }
        Ok(())
    }

    /// Passes some candidates of every observation through the critic, candidate by candidate, and keeps the best so far;
    /// the first of these candidates has number `first`.
    fn weigh(
        &self,
        policy: &Policy,
        observations: &[f32],
        outputs: &[f32],
        (draws, normalizer): (&[[f32; 2]], &Normalizer),
        first: usize,
        room: &mut Room,
    ) -> Result<(), ActError> {
        let (head, columns, width) = (policy.head(), policy.observation_width(), policy.action_width());
        let rows = observations.len() / columns;
        let (passing, each) = (rows * draws.len() / width, 1 + self.prices.len());
        let Room { weights, room, inputs, values, candidate, best } = room;
        let (inputs, values) = (&mut inputs[..passing * (columns + width)], &mut values[..passing * each]);
        let mut places = inputs.chunks_exact_mut(columns + width);
        for draws in draws.chunks_exact(width) {
            let each = outputs.chunks_exact(head.outputs()).zip(observations.chunks_exact(columns));
            for ((outputs, observation), input) in each.zip(&mut places) {
                head.at_quantiles(outputs, draws, candidate);
                policy.clip(candidate);
                input[..columns].copy_from_slice(observation);
                normalizer.apply(candidate, &mut input[columns..]);
            }
        }
        self.network.forward_with(&self.params, weights, inputs, values, room);
        for (place, values) in values.chunks_exact(each).enumerate() {
            let (candidate, row) = (first + place / rows, place % rows);
            let worth = finite(Self::worth(values, &self.prices), row)?;
            if worth > best[row].0 {
                best[row] = (worth, candidate);
            }
        }
        Ok(())
    }

    /// The likely action of the largest worth, the first of equals; `values` is `[actions, 1 + K]`.
    fn choose_likely(
        &self,
        logits: &[f32],
        values: &[f32],
        threshold: f32,
        row: usize,
    ) -> Result<usize, ActError> {
        let mut best = (f32::NEG_INFINITY, 0);
        let likely = likely(logits, threshold);
        for (a, values) in values.chunks_exact(1 + self.prices.len()).enumerate() {
            let worth = finite(Self::worth(values, &self.prices), row)?;
            if likely(a) && worth > best.0 {
                best = (worth, a);
            }
        }
        Ok(best.1)
    }
}

/// Whether an action is at least `threshold` times as probable as the most probable one.
pub(crate) fn likely(logits: &[f32], threshold: f32) -> impl Fn(usize) -> bool {
    let least = logits[largest(logits)] + threshold.ln();
    move |a| logits[a] >= least
}

fn finite(worth: f32, row: usize) -> Result<f32, ActError> {
    if worth.is_finite() { Ok(worth) } else { Err(ActError::Overflow { row }) }
}
