//! From occupancy ratios to a policy.
//!
//! The optimum of the dual is an occupancy `d = w d^D`; its policy is `d(s,a)` up to a factor that depends on `s`
//! alone. How that policy is drawn from a log is a choice, [`Extraction`], because every way loses something else:
//!
//! | method | descends | loses |
//! |---|---|---|
//! | `weighted_bc` | `-mean(w log pi)` (`eq:weighted_bc`) | states that the optimum passes quickly have next to no weight; ways that must not be averaged are |
//! | `state_normalized` | the same with `w / (h(s) + floor)`, `h` fitted to `E[w given s]` | rests on `h` where `w` is rare |
//! | `critic_guided` | squared distance to the log weighted by `max(w, least)`, less the value of the policy's own action under `r - prices'c` | rests on a critic at actions near the log's |
//! | `information_projection` | the divergence of the policy from `beta w` at the log's states, with fitted `beta` and `w(e(s,a))` | rests on both at the policy's own actions; sees no further than the dual's advantage |
//! | `guided_selection` | `-mean(log beta)`; the policy does the best of a few likely actions of `beta` by a critic of `r - prices'c` | rests on a critic at the log's actions; can do nothing between them; looks at nothing of the dual |
//!
//! Any positive function of the state may multiply the weights, so the states themselves may be drawn from anywhere:
//! see [`crate::balance`]. Where the policy has steps of its own it is drawn from a dual that no longer moves.
//!
//! [`Extractor`] is what a learner holds: it takes a batch, the dual's `e` and `w` of it, and moves the policy.

mod critic;
mod policy;
mod projection;
mod selection;
mod state_weight;
#[cfg(test)]
mod tests;

use coptidice_nn::{Cache, Network, NnError, Pool, Precision};

use crate::TrainError;
use crate::config::Extraction;
use crate::learner::{BadQuantity, Finalist, StateMut, sound};
use crate::policy::Selector;
use crate::problem::Problem;
use crate::sampler::Batch;

use critic::Critics;
pub(crate) use policy::{PolicyTrainer, head, spec};
use projection::Projection;
use selection::Selection;
use state_weight::StateWeights;

/// The policy in training and what its extraction needs besides.
pub(crate) struct Extractor {
    policy: PolicyTrainer,
    method: Method,
    /// `[K]`, scaled reward per largest logged cost.
    prices: Vec<f64>,
    policy_loss: f64,
}

enum Method {
    WeightedBc,
    StateNormalized(Box<StateWeights>),
    CriticGuided(Box<Critics>),
    GuidedSelection(Box<Selection>),
    InformationProjection(Box<Projection>),
}

/// What the policy of a guided extraction pays for costs as logged, `[K]`, scaled reward per largest logged cost:
/// `caution * (deviation of rewards)/(deviation of costs at the limit)`, the latter `sqrt(l (1 - l))` where costs lie in
/// `[0, 1]` and average the limit `l` per step (at most that, and exactly so where they are 0 or 1).
///
/// Why not the dual's `lambda`. It is the price at which the optimum *near the log* meets the limit, `alpha` saying how
/// near: the further the log is over the limit, the higher it is, whether or not costs earn anything. Its work is done
/// in `w`, which already says what to stay close to. Under a critic a high price multiplies the errors of `Q_c`, and
/// from a policy that falls `delta` short of its optimum under prices `p`, since `R(pi) - R* <= lambda'(C(pi) - C*)`
/// with the multipliers `lambda` of the limits alone,
///
/// ```text
/// (p - lambda)'(C(pi) - C*) <= delta
/// ```
///
/// so that what protects the limits is a price above those multipliers. Rewards and costs, each in its own deviations, give
/// it a size that holds whatever the units and however rare the cost: that is `caution`. Where it lies between prices at
/// which costs hardly count and prices at which they do, a policy may settle on either side, by chance; the default is
/// beyond that.
fn prices(problem: &Problem<'_>) -> Vec<f64> {
    let config = problem.config;
    let price = |limit: f64| match config.algo.keeps_limits() {
        true if limit > 0.0 => {
            // Beyond one half the deviation falls again, and there is no reason to pay more.
            let limit = limit.min(0.5);
            let deviation = (limit * (1.0 - limit)).sqrt();
            (config.caution * problem.reward_deviation / deviation).min(config.lambda_max)
        }
        true if config.caution > 0.0 => config.lambda_max,
        _ => 0.0,
    };
    problem.costs.iter().map(|cost| price(cost.limit_per_step * cost.logged_scale)).collect()
}

impl Extractor {
    pub(crate) fn new(problem: &Problem<'_>) -> Result<Self, TrainError> {
        let method = match problem.config.extraction {
            Extraction::WeightedBc => Method::WeightedBc,
            Extraction::StateNormalized => Method::StateNormalized(Box::new(StateWeights::new(problem)?)),
            Extraction::CriticGuided => Method::CriticGuided(Box::new(Critics::new(problem)?)),
            Extraction::GuidedSelection => Method::GuidedSelection(Box::new(Selection::new(problem)?)),
            Extraction::InformationProjection => {
                Method::InformationProjection(Box::new(Projection::new(problem)?))
            }
        };
        Ok(Extractor {
            policy: PolicyTrainer::new(problem)?,
            method,
            prices: prices(problem),
            policy_loss: 0.0,
        })
    }

    /// Sets the learning rates to a share of what was configured.
    pub(crate) fn set_pace(&mut self, pace: f32) {
        self.policy.set_pace(pace);
        match &mut self.method {
            Method::WeightedBc => {}
            Method::StateNormalized(weights) => weights.set_pace(pace),
            Method::CriticGuided(critics) => critics.set_pace(pace),
            Method::GuidedSelection(selection) => selection.set_pace(pace),
            Method::InformationProjection(projection) => projection.set_pace(pace),
        }
    }

    /// One step. `advantages` (`e(s,a)` from a single successor, scaled reward) and `w` are `[B]`.
    pub(crate) fn step(&mut self, batch: &Batch, advantages: &[f32], w: &[f32], pool: &Pool) {
        self.policy_loss = match &mut self.method {
            Method::WeightedBc => self.policy.step(batch, w, pool),
            Method::StateNormalized(weights) => {
                let weights = weights.step(batch, w, pool);
                self.policy.step(batch, weights, pool)
            }
            Method::CriticGuided(critics) => {
                critics.step(batch, &self.prices, &mut self.policy, pool);
                critics.guide(batch, w, &self.prices, &mut self.policy, pool)
            }
            Method::GuidedSelection(selection) => selection.step(batch, &self.prices, &mut self.policy, pool),
            Method::InformationProjection(projection) => {
                projection.fit(batch, advantages, pool);
                projection.project(batch, &mut self.policy, pool)
            }
        };
    }

    /// Makes the policy's cache fit other networks too, on up to `max_batch` rows.
    pub(crate) fn share_cache(
        &mut self,
        others: &[&Network],
        max_batch: usize,
        precision: Precision,
    ) -> Result<(), NnError> {
        self.policy.share_cache(others, max_batch, precision)
    }

    /// The policy's cache; a step of the extraction leaves nothing in it.
    pub(crate) fn cache(&mut self) -> &mut Cache {
        self.policy.cache()
    }

    /// The policy's loss at the last step, before it.
    pub(crate) fn policy_loss(&self) -> f64 {
        self.policy_loss
    }

    /// Names of the figures besides the policy's loss, in the order of [`Extractor::figures`].
    pub(crate) fn figure_names(&self) -> &'static [&'static str] {
        match self.method {
            Method::WeightedBc => &[],
            Method::StateNormalized(_) => &StateWeights::FIGURES,
            Method::CriticGuided(_) => &Critics::FIGURES,
            Method::GuidedSelection(_) => &Selection::FIGURES,
            Method::InformationProjection(_) => &Projection::FIGURES,
        }
    }

    /// Figures of the last step.
    pub(crate) fn figures(&self) -> &[f64] {
        match &self.method {
            Method::WeightedBc => &[],
            Method::StateNormalized(weights) => weights.figures(),
            Method::CriticGuided(critics) => critics.figures(),
            Method::GuidedSelection(selection) => selection.figures(),
            Method::InformationProjection(projection) => projection.figures(),
        }
    }

    /// Whether the last step was sound.
    pub(crate) fn health(&self) -> Result<(), BadQuantity> {
        let named = std::iter::once(("loss/policy", self.policy_loss))
            .chain(self.figure_names().iter().copied().zip(self.figures().iter().copied()));
        for (name, value) in named {
            if !sound(value) {
                let advice = "lower policy_learning_rate, or raise alpha";
                return Err(BadQuantity { quantity: name.to_owned(), value, advice });
            }
        }
        Ok(())
    }

    /// The parameters to export.
    pub(crate) fn exported(&self) -> &[f32] {
        self.policy.exported()
    }

    /// Earlier policies to choose from.
    pub(crate) fn finalists(&self) -> &[Finalist] {
        self.policy.finalists()
    }

    /// What the policy selects by, where it does.
    pub(crate) fn selector(&self) -> Option<Selector> {
        let Method::GuidedSelection(selection) = &self.method else { return None };
        Some(selection.selector(&self.prices))
    }

    #[cfg(test)]
    pub(crate) fn policy(&self) -> &PolicyTrainer {
        &self.policy
    }

    pub(crate) fn visit_state(&mut self, visit: &mut dyn FnMut(&str, StateMut<'_>)) {
        self.policy.visit_state(visit);
        match &mut self.method {
            Method::WeightedBc => {}
            Method::StateNormalized(weights) => weights.visit_state(visit),
            Method::CriticGuided(critics) => critics.visit_state(visit),
            Method::GuidedSelection(selection) => selection.visit_state(visit),
            Method::InformationProjection(projection) => projection.visit_state(visit),
        }
    }
}
