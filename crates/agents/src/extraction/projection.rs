//! The information projection of the dual's optimum (Lee et al. 2021, "OptiDICE").
//!
//! The optimum of the dual is the occupancy `w d^D` with `w = (f')^{-1}(e/alpha)_+` (`eq:w_closed_form_solution`).
//! Weighting samples leans the log's actions towards it; here the policy `pi` descends the divergence from it,
//!
//! ```text
//! KL(d^D(s) pi(a|s) || d^D(s) beta(a|s) w(s,a))
//!     = E_{s ~ d^D, a ~ pi(s)} [ log pi(a|s) - log beta(a|s) - log w(e(s,a)/alpha) ]
//! ```
//!
//! with `beta` a model of the log's actions (maximum likelihood) and `e(s,a)` a network fitted by squared error to the
//! dual's advantage `r - lambda'c + gamma nu(s') - nu(s)` of the samples (less `mu` at `gamma = 1`). Two things change
//! against weighting. The divergence is taken from the policy's side, so that a policy of one Gaussian settles on one of
//! several ways instead of between them. And `w` is taken of the mean of `e` over successors, not averaged over `w` of
//! single ones, so that luck of the environment is not mistaken for a good action.
//!
//! Over all policies the minimum is `pi(a|s) = beta(a|s) w(s,a) / sum_a beta(a|s) w(s,a)`, whatever the states'
//! frequencies: states may be drawn from anywhere, see [`crate::balance`].
//!
//! For finitely many actions the mean over `pi` is an exact sum. Continuous actions are drawn as
//! `a = mu(s) + sigma(s) z` with `z` normal, and the derivative goes through the action: into `beta` exactly as drawn,
//! into `e` as cut to the logged range, which is how the policy acts (beyond the range's ends `e` says nothing and has no
//! slope, and `beta` pulls back). A policy is a single Gaussian, `beta` a mixture.
//!
//! # Where `w` is 0
//!
//! Only `chi2` has weights of 0, where `log w` is minus infinity. There `max(w, floor)` takes the place of `w`. Since
//! `beta` is normalised, that adds at most
//!
//! ```text
//! sum_{s,a} d^D(s) beta(a|s) (max(w, floor) - w) <= floor
//! ```
//!
//! to an occupancy whose mass is 1: at the minimum the estimates `E[w r]` and `E[w c]` move by at most `floor` times the
//! largest reward and cost. And at a state all of whose actions lie under the floor, where the optimum never comes and
//! its policy is not defined, the minimum is `beta`: the policy does as the log did. `log w` of the other divergences is
//! finite, if only as a logarithm, and stays as it is.

use coptidice_core::Divergence;
use coptidice_core::rng::stream;
use coptidice_nn::{NnError, Pool, math};
use rand_distr::{Distribution as _, StandardNormal};

use super::PolicyTrainer;
use crate::advantage::{AdvantageNetwork, Space, join};
use crate::learner::StateMut;
use crate::policy::Head;
use crate::problem::Problem;
use crate::sampler::Batch;
use crate::trained::TrainedNetwork;

/// `ln(2 pi)/2`.
const HALF_LN_2PI: f64 = 0.918_938_533_204_672_7;

/// What the policy is projected onto: `beta` and `e` in training.
pub(super) struct Projection {
    seed: u64,
    alpha: f64,
    divergence: Divergence,
    floor: f64,
    behaviour: PolicyTrainer,
    /// `[B]`: the log's samples count alike.
    ones: Vec<f32>,
    advantage: AdvantageNetwork,
    /// `[B, D + A]`; empty for finitely many actions.
    d_inputs: Vec<f32>,
    /// `[B, A]`: the policy's draws, their normal parts, and the loss's derivatives in them; empty for finitely many.
    actions: Vec<f32>,
    normals: Vec<f32>,
    d_actions: Vec<f32>,
    figures: [f64; 3],
}

impl Projection {
    /// Mean squared error of `e` (scaled reward, squared), `-mean(log beta)`, and the share of the policy's actions
    /// whose weight is the floor.
    pub(super) const FIGURES: [&'static str; 3] =
        ["loss/advantage", "loss/behaviour", "projection/floored_share"];

    pub(super) fn new(problem: &Problem<'_>) -> Result<Self, NnError> {
        let config = problem.config;
        let size = config.batch_size;
        let advantage = AdvantageNetwork::new(problem, "advantage")?;
        let (behaviour_head, actions) = match &advantage.space {
            Space::Continuous { middle, .. } => {
                let (components, min_scale) =
                    (config.projection.behaviour_components, config.networks.min_scale);
                (Head::Mixture { action_dim: middle.len(), components, min_scale }, middle.len())
            }
            Space::Discrete { count } => (Head::Categorical { actions: *count }, 0),
        };
        Ok(Projection {
            seed: config.seed,
            alpha: config.alpha,
            divergence: config.divergence,
            floor: f64::from(config.projection.floor),
            behaviour: PolicyTrainer::with_head(problem, behaviour_head, "behaviour", 0.0)?,
            ones: vec![1.0; size],
            d_inputs: vec![0.0; advantage.inputs.len()],
            advantage,
            actions: vec![0.0; size * actions],
            normals: vec![0.0; size * actions],
            d_actions: vec![0.0; size * actions],
            figures: [0.0; 3],
        })
    }

    /// One step of `e` towards the dual's advantages, `[B]`, and one of `beta` towards the log's actions.
    pub(super) fn fit(&mut self, batch: &Batch, advantages: &[f32], pool: &Pool) {
        self.figures[0] = self.advantage.fit(batch, advantages, pool);
        self.figures[1] = self.behaviour.step(batch, &self.ones, pool);
    }

    /// One step of the policy; returns its loss before it.
    pub(super) fn project(&mut self, batch: &Batch, policy: &mut PolicyTrainer, pool: &Pool) -> f64 {
        policy
            .descend(batch, pool, |head, outputs, d_outputs| self.loss(head, batch, outputs, d_outputs, pool))
    }

    /// The divergence at the policy's `outputs` on the batch's states, and its derivative in them. The draws of
    /// continuous actions are a function of the seed and the batch's step.
    pub(super) fn loss(
        &mut self,
        head: &Head,
        batch: &Batch,
        outputs: &[f32],
        d_outputs: &mut [f32],
        pool: &Pool,
    ) -> f64 {
        match *head {
            Head::Mixture { min_scale, .. } => {
                self.continuous_loss(batch, min_scale, outputs, d_outputs, pool)
            }
            Head::Categorical { actions } => self.discrete_loss(batch, actions, outputs, d_outputs, pool),
        }
    }

    fn discrete_loss(
        &mut self,
        batch: &Batch,
        count: usize,
        outputs: &[f32],
        d_outputs: &mut [f32],
        pool: &Pool,
    ) -> f64 {
        let TrainedNetwork { network, params, cache, .. } = &mut self.advantage.trained;
        let advantages = network.forward(params, batch.current_states(), batch.size, cache, pool);
        let behaviour = self.behaviour.outputs(batch.current_states(), batch.size, pool);
        let (mut total, mut floored) = (0.0, 0.0);
        for (b, (logits, d_logits)) in
            outputs.chunks_exact(count).zip(d_outputs.chunks_exact_mut(count)).enumerate()
        {
            let row = b * count..(b + 1) * count;
            let (behaviour, advantages) = (&behaviour[row.clone()], &advantages[row]);
            let (mass, behaviour_mass) = (log_mass(logits), log_mass(behaviour));
            // Of every action its log-probability, and what its log-ratio to the target is.
            let of = |a: usize| {
                let log_p = f64::from(logits[a]) - mass;
                let weight = log_weight(self.divergence, f64::from(advantages[a]) / self.alpha, self.floor);
                (log_p, log_p - (f64::from(behaviour[a]) - behaviour_mass) - weight.value, weight.floored)
            };
            let mut value = 0.0;
            for a in 0..count {
                let (log_p, ratio, at_floor) = of(a);
                value += log_p.exp() * ratio;
                floored += if at_floor { log_p.exp() } else { 0.0 };
            }
            for (a, d) in d_logits.iter_mut().enumerate() {
                let (log_p, ratio, _) = of(a);
                *d = (log_p.exp() * (ratio - value) / batch.size as f64) as f32;
            }
            total += value;
        }
        self.figures[2] = floored / batch.size as f64;
        total / batch.size as f64
    }

    fn continuous_loss(
        &mut self,
        batch: &Batch,
        min_scale: f32,
        outputs: &[f32],
        d_outputs: &mut [f32],
        pool: &Pool,
    ) -> f64 {
        let size = batch.size;
        let dim = self.actions.len() / size;
        let entropy = self.draw(batch.step, min_scale, outputs);
        // Derivatives in the actions of both logarithms, one after the other.
        let states = batch.current_states();
        let behaviour =
            self.behaviour.log_density(states, &self.actions, &self.ones, &mut self.d_actions, pool);
        let weight = self.log_weights(batch, pool);
        for b in 0..size {
            let row = b * 3 * dim;
            // A single component's logit means nothing.
            d_outputs[row..row + dim].fill(0.0);
            for i in 0..dim {
                let d_action = self.d_actions[b * dim + i];
                let raw = outputs[row + 2 * dim + i];
                let scale = math::softplus(raw) + min_scale;
                let d_scale = self.normals[b * dim + i] * d_action - 1.0 / (scale * size as f32);
                d_outputs[row + dim + i] = d_action;
                d_outputs[row + 2 * dim + i] = d_scale * math::sigmoid(raw);
            }
        }
        -entropy - behaviour - weight
    }

    /// Draws an action at every state from single Gaussians; returns `-mean(log pi)` of the draws.
    fn draw(&mut self, step: u64, min_scale: f32, outputs: &[f32]) -> f64 {
        let mut rng = stream(self.seed, "projection", step);
        let dim = outputs.len() / (3 * self.ones.len());
        let mut surprise = 0.0;
        let rows = self.actions.chunks_exact_mut(dim).zip(self.normals.chunks_exact_mut(dim));
        for ((actions, normals), outputs) in rows.zip(outputs.chunks_exact(3 * dim)) {
            for i in 0..dim {
                let normal: f32 = StandardNormal.sample(&mut rng);
                let scale = math::softplus(outputs[2 * dim + i]) + min_scale;
                actions[i] = outputs[dim + i] + scale * normal;
                normals[i] = normal;
                surprise += f64::from(scale).ln() + 0.5 * f64::from(normal).powi(2) + HALF_LN_2PI;
            }
        }
        surprise / self.ones.len() as f64
    }

    /// `mean(log w)` at the drawn actions; subtracts its derivative from theirs.
    fn log_weights(&mut self, batch: &Batch, pool: &Pool) -> f64 {
        let AdvantageNetwork { space, trained, d_outputs, inputs, .. } = &mut self.advantage;
        let Space::Continuous { middle, half } = space else { return 0.0 };
        let (size, dim) = (batch.size, middle.len());
        join(inputs, batch.current_states(), &self.actions, middle, half);
        let TrainedNetwork { network, params, cache, .. } = trained;
        let outputs = network.forward(params, inputs, size, cache, pool);
        let (mut total, mut floored) = (0.0, 0_usize);
        for (d, &e) in d_outputs.iter_mut().zip(outputs) {
            let weight = log_weight(self.divergence, f64::from(e) / self.alpha, self.floor);
            total += weight.value;
            floored += usize::from(weight.floored);
            *d = (weight.slope / (self.alpha * size as f64)) as f32;
        }
        self.figures[2] = floored as f64 / size as f64;
        let d_inputs = &mut self.d_inputs;
        network.input_gradient(params, inputs, d_outputs, size, cache, d_inputs, pool);
        let width = inputs.len() / size;
        for (b, d_actions) in self.d_actions.chunks_exact_mut(dim).enumerate() {
            let row = (b + 1) * width - dim..(b + 1) * width;
            for (i, (u, d_u)) in inputs[row.clone()].iter().zip(&self.d_inputs[row]).enumerate() {
                let inside = u.abs() < 1.0;
                d_actions[i] -= if inside { d_u / half[i] } else { 0.0 };
            }
        }
        total / size as f64
    }

    pub(super) fn set_pace(&mut self, pace: f32) {
        self.behaviour.set_pace(pace);
        self.advantage.set_pace(pace);
    }

    pub(super) fn figures(&self) -> &[f64] {
        &self.figures
    }

    pub(super) fn visit_state(&mut self, visit: &mut dyn FnMut(&str, StateMut<'_>)) {
        self.behaviour.visit_state(visit);
        self.advantage.visit_state("advantage", visit);
    }
}

/// `log w` as a function of `y = e/alpha`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LogWeight {
    pub(super) value: f64,
    /// Its derivative in `y`.
    pub(super) slope: f64,
    pub(super) floored: bool,
}

/// `log w(y)`, with `max(w, floor)` in the place of `w` where `w` can be 0; nothing overflows on the way.
pub(super) fn log_weight(divergence: Divergence, y: f64, floor: f64) -> LogWeight {
    match divergence {
        Divergence::Chi2 if y + 1.0 <= floor => LogWeight { value: floor.ln(), slope: 0.0, floored: true },
        Divergence::SoftChi if y < 0.0 => LogWeight { value: y, slope: 1.0, floored: false },
        Divergence::Kl => LogWeight { value: y, slope: 1.0, floored: false },
        Divergence::Chi2 | Divergence::SoftChi => {
            LogWeight { value: y.ln_1p(), slope: 1.0 / (1.0 + y), floored: false }
        }
    }
}

/// `log sum exp(logits)`.
fn log_mass(logits: &[f32]) -> f64 {
    let top = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    top + logits.iter().map(|&l| (f64::from(l) - top).exp()).sum::<f64>().ln()
}
