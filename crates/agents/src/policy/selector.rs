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
use coptidice_nn::{Cache, Network, Pool};

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

/// Working storage for one observation at a time.
#[derive(Clone, Debug)]
pub(super) struct Room {
    inputs: Vec<f32>,
    values: Vec<f32>,
    candidate: Vec<f32>,
    scratch: Vec<f32>,
}

/// Working storage for many observations at once.
pub(super) struct BatchRoom {
    cache: Cache,
    inputs: Vec<f32>,
    candidate: Vec<f32>,
    /// Of every row the largest worth so far, and whose it is.
    best: Vec<(f32, usize)>,
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
        let spec = self.network.spec();
        let candidate = vec![0.0; head.action_width()];
        Room { inputs: vec![0.0; spec.input], values: vec![0.0; spec.output], candidate, scratch: Vec::new() }
    }

    /// Writes the action for one normalised observation and what the policy's network makes of it, clipped.
    pub(super) fn choose(
        &self,
        policy: &Policy,
        observation: &[f32],
        outputs: &[f32],
        room: &mut Room,
        action: &mut [f32],
    ) -> Result<(), ActError> {
        let Room { inputs, values, candidate, scratch } = room;
        inputs[..observation.len()].copy_from_slice(observation);
        match &self.candidates {
            Candidates::Drawn { draws, action: normalizer } => {
                let mut best = f32::NEG_INFINITY;
                for draws in draws.chunks_exact(candidate.len()) {
                    policy.head().at_quantiles(outputs, draws, candidate);
                    policy.clip(candidate);
                    normalizer.apply(candidate, &mut inputs[observation.len()..]);
                    self.network.forward_one(&self.params, inputs, values, scratch);
                    let worth = finite(Self::worth(values, &self.prices), 0)?;
                    if worth > best {
                        best = worth;
                        action.copy_from_slice(candidate);
                    }
                }
            }
            Candidates::Likely { threshold } => {
                self.network.forward_one(&self.params, inputs, values, scratch);
                action[0] = self.choose_likely(outputs, values, *threshold, 0)? as f32;
            }
        }
        Ok(())
    }

    pub(super) fn batch_room(&self, head: Head, most: usize) -> BatchRoom {
        BatchRoom {
            cache: self.network.cache(most),
            inputs: vec![0.0; most * self.network.spec().input],
            candidate: vec![0.0; head.action_width()],
            best: vec![(0.0, 0); most],
        }
    }

    /// [`Selector::choose`] for many rows, the first of which is called `first` in errors.
    pub(super) fn choose_batch(
        &self,
        policy: &Policy,
        first: usize,
        observations: &[f32],
        outputs: &[f32],
        room: &mut BatchRoom,
        actions: &mut [f32],
        pool: &Pool,
    ) -> Result<(), ActError> {
        let BatchRoom { cache, inputs, candidate, best } = room;
        let (head, columns) = (policy.head(), policy.observation_width());
        let (rows, width) = (observations.len() / columns, head.action_width());
        match &self.candidates {
            Candidates::Drawn { draws, action: normalizer } => {
                let joined = columns + width;
                best[..rows].fill((f32::NEG_INFINITY, 0));
                for (j, draws) in draws.chunks_exact(width).enumerate() {
                    let each = outputs.chunks_exact(head.outputs()).zip(observations.chunks_exact(columns));
                    for (input, (outputs, observation)) in inputs.chunks_exact_mut(joined).zip(each) {
                        head.at_quantiles(outputs, draws, candidate);
                        policy.clip(candidate);
                        input[..columns].copy_from_slice(observation);
                        normalizer.apply(candidate, &mut input[columns..]);
                    }
                    let inputs = &inputs[..rows * joined];
                    let values = self.network.forward(&self.params, inputs, rows, cache, pool);
                    let values = values.chunks_exact(1 + self.prices.len());
                    for (row, (best, values)) in best[..rows].iter_mut().zip(values).enumerate() {
                        let worth = finite(Self::worth(values, &self.prices), first + row)?;
                        if worth > best.0 {
                            *best = (worth, j);
                        }
                    }
                }
                let each = outputs.chunks_exact(head.outputs()).zip(actions.chunks_exact_mut(width));
                for ((outputs, action), &(_, j)) in each.zip(&*best) {
                    head.at_quantiles(outputs, &draws[j * width..(j + 1) * width], action);
                    policy.clip(action);
                }
            }
            Candidates::Likely { threshold } => {
                let values = self.network.forward(&self.params, observations, rows, cache, pool);
                let each = outputs.chunks_exact(head.outputs()).zip(values.chunks_exact(values.len() / rows));
                for (row, (action, (logits, values))) in actions.iter_mut().zip(each).enumerate() {
                    *action = self.choose_likely(logits, values, *threshold, first + row)? as f32;
                }
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
