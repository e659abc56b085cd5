//! How an action is chosen from the policy's distribution.

use super::Head;
use coptidice_core::rng::Rng;
use coptidice_nn::math;
use rand::RngExt;
use rand_distr::{Distribution, StandardNormal};
use serde::{Deserialize, Serialize};

/// How an action is chosen from the policy's distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Acting {
    /// The expected action of each dimension; for finitely many actions the most probable one. Deterministic.
    Mean,
    /// The mean of each dimension's most probable component; the most probable action. Deterministic.
    Mode,
    /// The mean of a component drawn by its probability, in each dimension: a draw without the components' spread,
    /// as the paper's authors act in their evaluations. For finitely many actions the same as `Sample`.
    Component,
    /// A draw from the whole distribution.
    Sample,
    /// The candidate that the policy's [`super::Selector`] likes best. Deterministic.
    Select,
}

impl Acting {
    /// Every member, in a fixed order.
    pub const ALL: [Acting; 5] =
        [Acting::Mean, Acting::Mode, Acting::Component, Acting::Sample, Acting::Select];

    /// Those that take no selector, in the same order.
    pub const OF_HEAD: [Acting; 4] = [Acting::Mean, Acting::Mode, Acting::Component, Acting::Sample];

    /// The name used in configurations and files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Acting::Mean => "mean",
            Acting::Mode => "mode",
            Acting::Component => "component",
            Acting::Sample => "sample",
            Acting::Select => "select",
        }
    }

    /// Whether the same observation always gives the same action.
    #[must_use]
    pub fn is_deterministic(self) -> bool {
        matches!(self, Acting::Mean | Acting::Mode | Acting::Select)
    }
}

impl std::fmt::Display for Acting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for Acting {
    type Err = UnknownActing;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|a| a.name() == name).ok_or_else(|| UnknownActing(name.to_owned()))
    }
}

/// A name that is no way of acting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown way of acting {0:?}; use mean, mode, component, sample or select")]
pub struct UnknownActing(pub String);

impl Head {
    /// Chooses one action from the network's outputs for one observation (`[self.outputs()]`).
    ///
    /// Writes `action` (`[self.action_width()]`; the index as a number for finitely many actions), before any
    /// clipping. `Mean` and `Mode` leave `rng` alone. Nothing is allocated.
    ///
    /// # Panics
    /// If a length does not fit, and for `Select`, which takes a whole policy.
    pub fn act(&self, outputs: &[f32], acting: Acting, rng: &mut Rng, action: &mut [f32]) {
        assert_eq!(outputs.len(), self.outputs(), "network outputs do not fit the head");
        assert_eq!(action.len(), self.action_width(), "the action's buffer does not fit the head");
        assert_ne!(acting, Acting::Select, "a head alone has nothing to select by");
        match *self {
            Head::Categorical { .. } => {
                let index = if acting.is_deterministic() { largest(outputs) } else { draw(outputs, rng) };
                action[0] = index as f32;
            }
            Head::Mixture { action_dim, components, min_scale } => {
                let block = action_dim * components;
                for (dim, action) in action.iter_mut().enumerate() {
                    let at = dim * components..(dim + 1) * components;
                    let logits = &outputs[..block][at.clone()];
                    let locations = &outputs[block..2 * block][at.clone()];
                    *action = match acting {
                        Acting::Mean => mean(logits, locations),
                        Acting::Mode => locations[largest(logits)],
                        Acting::Component => locations[draw(logits, rng)],
                        Acting::Sample | Acting::Select => {
                            let component = draw(logits, rng);
                            let scale = math::softplus(outputs[2 * block..][at][component]) + min_scale;
                            let normal: f32 = StandardNormal.sample(rng);
                            locations[component] + scale * normal
                        }
                    };
                }
            }
        }
    }

    /// The continuous action at fixed quantiles, before any clipping: `draws` is `[A]`, of each dimension the quantile of
    /// the component and the normal value.
    pub(crate) fn at_quantiles(&self, outputs: &[f32], draws: &[[f32; 2]], action: &mut [f32]) {
        let Head::Mixture { components, min_scale, .. } = *self else { return };
        let block = action.len() * components;
        for (dim, (action, &[quantile, normal])) in action.iter_mut().zip(draws).enumerate() {
            let at = dim * components..(dim + 1) * components;
            let component = pick(&outputs[..block][at.clone()], quantile);
            let scale = math::softplus(outputs[2 * block..][at.clone()][component]) + min_scale;
            *action = outputs[block..2 * block][at][component] + scale * normal;
        }
    }
}

/// Index of the largest value, the first of equals.
pub(super) fn largest(values: &[f32]) -> usize {
    let mut best = 0;
    for (index, &value) in values.iter().enumerate() {
        if value > values[best] {
            best = index;
        }
    }
    best
}

/// `Σ softmax(logits)_m · locations_m`.
fn mean(logits: &[f32], locations: &[f32]) -> f32 {
    let top = logits[largest(logits)];
    let (mut weighted, mut sum) = (0.0, 0.0);
    for (&logit, &location) in logits.iter().zip(locations) {
        let weight = math::exp(logit - top);
        weighted += weight * location;
        sum += weight;
    }
    weighted / sum
}

/// `softmax(logits)` into `out`.
pub(super) fn softmax(logits: &[f32], out: &mut [f32]) {
    let top = logits[largest(logits)];
    let mut sum = 0.0;
    for (out, &logit) in out.iter_mut().zip(logits) {
        *out = math::exp(logit - top);
        sum += *out;
    }
    out.iter_mut().for_each(|out| *out /= sum);
}

/// Draws an index with probabilities `softmax(logits)`, by inversion of one uniform number.
fn draw(logits: &[f32], rng: &mut Rng) -> usize {
    pick(logits, rng.random())
}

/// The first index up to which `softmax(logits)` adds up to more than `quantile`, in `[0, 1)`.
fn pick(logits: &[f32], quantile: f32) -> usize {
    let top = logits[largest(logits)];
    let sum: f32 = logits.iter().map(|&logit| math::exp(logit - top)).sum();
    let mut left = quantile * sum;
    let mut last_possible = 0;
    for (index, &logit) in logits.iter().enumerate() {
        let weight = math::exp(logit - top);
        if weight > 0.0 {
            last_possible = index;
            if left < weight {
                return index;
            }
        }
        left -= weight;
    }
    // Rounding left a remainder beyond the last weight.
    last_possible
}
