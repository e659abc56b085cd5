//! One gradient step on every part of the dual and on the policy (the paper's algorithm `alg:coptidice`).
//!
//! All gradients of a step are taken at the same parameters: `nu` gives `w`, and `w` is a constant in the bound, in
//! the loss of `lambda` and in the policy's.

use coptidice_nn::{Cache, Network, NetworkSpec, Penalty, Pool};

use super::figures::{Figures, Metrics, NO_PENALTY};
use super::losses::{bound_loss, flow_loss, multiplier_loss};
use super::multipliers::Multipliers;
use crate::TrainError;
use crate::advantage::AdvantageNetwork;
use crate::config::{Successors, TrainConfig};
use crate::extraction::Extractor;
use crate::learner::{BadQuantity, Finalist, Learner, Resumable, StateMut};
use crate::policy::Selector;
use crate::problem::{Problem, ValueScale};
use crate::sampler::Batch;
use crate::trained::TrainedNetwork;

/// Share of the learning rates at which the policy's own steps end, after falling linearly. A policy near the best of its
/// critic still swings from step to step at full rates, and what is deployed is one of these steps (or an average of a
/// few).
const LAST_PACE: f64 = 0.05;

/// What is compared with the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Constraint {
    /// Nothing: costs are only reported.
    None,
    /// The plain estimate `mean(w c)` (`eq:nu_lambda_optimization`).
    Plain,
    /// The upper bound (`eq:nu_lambda_tau_chi_optimization`).
    UpperBound,
}

/// `chi` and the buffers of its loss.
struct CostBound {
    chi: TrainedNetwork,
    d_chi: Vec<f32>,
    ell: Vec<f64>,
}

/// OptiDICE and COptiDICE in training.
pub(crate) struct DiceLearner {
    config: TrainConfig,
    /// `[K]`, scaled cost per step.
    limits: Vec<f64>,
    value_scale: ValueScale,
    cost_names: Vec<String>,
    constraint: Constraint,
    nu: TrainedNetwork,
    d_nu: Vec<f32>,
    bound: Option<CostBound>,
    multipliers: Multipliers,
    d_log_lambda: Vec<f64>,
    extractor: Extractor,
    /// Of the mean over successors, where the samples' own is not used.
    fitted: Option<AdvantageNetwork>,
    advantages: Vec<f32>,
    w: Vec<f32>,
    figures: Figures,
    metrics: Metrics,
}

impl DiceLearner {
    pub(crate) fn new(problem: &Problem<'_>, constraint: Constraint) -> Result<Self, TrainError> {
        let config = problem.config;
        let (size, costs) = (config.batch_size, problem.costs.len());
        let value_network = |output, purpose| {
            let input = problem.data.observation_dim();
            let spec = NetworkSpec { input, blocks: config.networks.value.clone(), output };
            // For no rows: `nu`, `chi` and the policy are used one after the other, and share the policy's cache.
            TrainedNetwork::new(config, spec, purpose, config.learning_rate, 0)
        };
        let mut extractor = Extractor::new(problem)?;
        let metrics = Metrics::new(problem, constraint, &extractor);
        let mut nu = value_network(1, "nu")?;
        let mut bound = match constraint {
            Constraint::UpperBound => Some(CostBound {
                chi: value_network(costs, "chi")?,
                d_chi: vec![0.0; 3 * size * costs],
                ell: vec![0.0; size],
            }),
            Constraint::None | Constraint::Plain => None,
        };
        let networks: Vec<&Network> =
            std::iter::once(&nu).chain(bound.as_ref().map(|bound| &bound.chi)).map(|t| &t.network).collect();
        extractor.share_cache(&networks, 3 * size, config.precision)?;
        let fitted = match config.successors {
            Successors::Sampled => None,
            Successors::Averaged => Some(AdvantageNetwork::new(problem, "dual_advantage")?),
        };
        let mu = if config.gamma == 1.0 { problem.mean_reward } else { 0.0 };
        let constrained = constraint != Constraint::None;
        let rate = config.multiplier_learning_rate;
        // The bound starts where it is right on average, as `chi` does below `gamma = 1`.
        let bounded_chain = config.gamma == 1.0 && constraint == Constraint::UpperBound;
        let zeta = if bounded_chain { problem.mean_costs.as_slice() } else { &[] };
        let multipliers = Multipliers::new(costs, constrained, mu, zeta, rate, config.lambda_max);
        if config.start_at_mean && problem.mean_loss > 0.0 {
            start_at_mean(problem, &multipliers.lambda, &mut nu, bound.as_mut());
        }
        Ok(DiceLearner {
            config: config.clone(),
            limits: problem.costs.iter().map(|cost| cost.scaled_limit()).collect(),
            value_scale: problem.value_scale.clone(),
            cost_names: problem.costs.iter().map(|cost| cost.name.clone()).collect(),
            constraint,
            nu,
            d_nu: vec![0.0; 3 * size],
            bound,
            multipliers,
            d_log_lambda: vec![0.0; costs],
            extractor,
            fitted,
            advantages: vec![0.0; size],
            w: vec![0.0; size],
            figures: Figures::new(costs),
            metrics,
        })
    }

    /// `J_nu` (`eq:J_theta`) with its gradient in `nu`; leaves `e` and `w`.
    fn flow(&mut self, batch: &Batch, pool: &Pool) {
        if let Some(fitted) = &mut self.fitted {
            fitted.predict(batch, pool);
        }
        let TrainedNetwork { network, params, .. } = &self.nu;
        let nu = network.forward(params, &batch.states, 3 * batch.size, self.extractor.cache(), pool);
        self.figures.largest_nu = largest(nu);
        self.figures.flow = flow_loss(
            batch.samples(),
            nu,
            &self.multipliers.lambda,
            &self.limits,
            self.multipliers.mu,
            self.config.alpha,
            self.config.divergence,
            self.fitted.as_ref().map(AdvantageNetwork::values),
            &mut self.advantages,
            &mut self.w,
            &mut self.d_nu,
        );
    }

    /// Gradient of `J_nu` in the parameters, with its penalty; leaves `w` and the plain estimates of cost.
    fn value_gradient(&mut self, batch: &Batch, pool: &Pool) {
        self.flow(batch, pool);
        let TrainedNetwork { network, params, grads, .. } = &mut self.nu;
        let (states, cache) = (&batch.states, self.extractor.cache());
        network.backward_overwrite(params, states, &self.d_nu, 3 * batch.size, cache, grads, None, pool);
        self.figures.nu_penalty = penalise(&mut self.nu, cache, batch, &self.config, pool);
        let costs = self.limits.len();
        for (k, estimate) in self.figures.cost_estimates.iter_mut().enumerate() {
            let priced = batch.costs.iter().skip(k).step_by(costs).zip(&self.w);
            *estimate = priced.map(|(&c, &w)| f64::from(c) * f64::from(w)).sum::<f64>() / batch.size as f64;
        }
    }

    /// Gradient of `J_{tau,chi}` (`eq:J_tau_phi`) with its penalty.
    fn bound_gradient(&mut self, batch: &Batch, pool: &Pool) {
        let Some(CostBound { chi, d_chi, ell }) = &mut self.bound else { return };
        let (TrainedNetwork { network, params, grads, .. }, cache) = (&mut *chi, self.extractor.cache());
        let outputs = network.forward(params, &batch.states, 3 * batch.size, cache, pool);
        let (epsilon, form) = (self.config.epsilon, self.config.bound_loss);
        let Multipliers { tau, zeta, .. } = &self.multipliers;
        bound_loss(
            batch.samples(),
            &self.w,
            outputs,
            tau,
            zeta,
            epsilon,
            form,
            ell,
            d_chi,
            &mut self.figures.bounds,
        );
        network.backward_overwrite(params, &batch.states, d_chi, 3 * batch.size, cache, grads, None, pool);
        self.figures.chi_penalty = penalise(chi, cache, batch, &self.config, pool);
    }

    /// Gradient of `J_lambda` (`eq:J_lambda`), and those of `tau` and `mu` gathered beside it.
    fn multiplier_gradient(&mut self) {
        let Figures { flow, cost_estimates, compared, bounds, multiplier_loss: loss, .. } = &mut self.figures;
        match self.constraint {
            Constraint::None | Constraint::Plain => compared.copy_from_slice(cost_estimates),
            Constraint::UpperBound => {
                for ((compared, bound), &plain) in compared.iter_mut().zip(&*bounds).zip(&*cost_estimates) {
                    *compared = bound.cost(self.config.bound_loss, plain);
                }
            }
        }
        // Where nothing is constrained lambda is zero, and so is its gradient.
        *loss = multiplier_loss(&self.multipliers.lambda, &self.limits, compared, &mut self.d_log_lambda);
        let d_mu = if self.config.gamma == 1.0 { flow.d_mu } else { 0.0 };
        self.multipliers.set_gradient(&self.d_log_lambda, bounds, d_mu);
    }

    /// After [`DiceLearner::flow`], while the dual trains. Fitted any longer to the few samples there may be of a state and
    /// action, it would come to know their luck by heart.
    fn fit_advantages(&mut self, batch: &Batch, pool: &Pool) {
        if let Some(fitted) = &mut self.fitted {
            fitted.descend(batch, &self.advantages, pool);
        }
    }

    /// Every gradient of a step but the policy's.
    fn gradients(&mut self, batch: &Batch, pool: &Pool) {
        self.value_gradient(batch, pool);
        self.bound_gradient(batch, pool);
        self.multiplier_gradient();
    }
}

/// Starts the value functions at the constants that are right on average. With `nu` constant the mean of `e` is
/// `mean(r - lambda'c) - loss nu`, and with `chi_k` constant that of `ell` at `w = 1` is the mean cost: both networks
/// then only have differences between states to learn.
fn start_at_mean(
    problem: &Problem<'_>,
    lambda: &[f64],
    nu: &mut TrainedNetwork,
    bound: Option<&mut CostBound>,
) {
    let priced: f64 = lambda.iter().zip(&problem.mean_costs).map(|(l, c)| l * c).sum();
    nu.shift_outputs(&[(problem.mean_reward - priced) / problem.mean_loss]);
    if let Some(bound) = bound {
        let costs: Vec<f64> = problem.mean_costs.iter().map(|cost| cost / problem.mean_loss).collect();
        bound.chi.shift_outputs(&costs);
    }
}

/// Adds the gradient penalty at the batch's mixes.
fn penalise(
    trained: &mut TrainedNetwork,
    cache: &mut Cache,
    batch: &Batch,
    config: &TrainConfig,
    pool: &Pool,
) -> Penalty {
    let TrainedNetwork { network, params, grads, .. } = trained;
    let (coefficient, bound) = (config.gradient_penalty.coefficient, config.gradient_penalty.bound);
    if coefficient == 0.0 {
        return NO_PENALTY;
    }
    network.gradient_penalty(params, &batch.mixes, batch.size, coefficient, bound, cache, grads, pool)
}

/// Largest absolute value; NaN if any value is.
fn largest(values: &[f32]) -> f64 {
    let top = values
        .iter()
        .fold(0.0_f32, |top, v| if v.is_nan() || top.is_nan() { f32::NAN } else { top.max(v.abs()) });
    f64::from(top)
}

impl Resumable for DiceLearner {
    fn visit_state(&mut self, visit: &mut dyn FnMut(&str, StateMut<'_>)) {
        self.nu.visit_state("nu", visit);
        if let Some(bound) = &mut self.bound {
            bound.chi.visit_state("chi", visit);
        }
        self.multipliers.visit_state(visit);
        if let Some(fitted) = &mut self.fitted {
            fitted.visit_state("dual_advantage", visit);
        }
        self.extractor.visit_state(visit);
        if self.config.draws_afterwards() {
            // The dual's last figures are reported until the end.
            self.metrics.visit_state(visit);
        }
    }
}

impl Learner for DiceLearner {
    fn step(&mut self, batch: &Batch, pool: &Pool) {
        let (dual_steps, steps) = (self.config.dual_steps(), self.config.steps);
        if batch.step >= dual_steps {
            let progress = (batch.step - dual_steps) as f64 / (steps - dual_steps) as f64;
            self.extractor.set_pace((1.0 - (1.0 - LAST_PACE) * progress) as f32);
            self.flow(batch, pool);
            self.extractor.step(batch, &self.advantages, &self.w, pool);
            self.metrics.record_policy(&self.extractor);
            return;
        }
        self.gradients(batch, pool);
        if !self.config.draws_afterwards() {
            self.extractor.step(batch, &self.advantages, &self.w, pool);
        }
        self.metrics.record(batch, &self.w, &self.figures, &self.multipliers, &self.extractor);
        self.fit_advantages(batch, pool);
        self.nu.update(pool);
        if let Some(bound) = &mut self.bound {
            bound.chi.update(pool);
        }
        self.multipliers.update(pool);
    }

    fn metric_names(&self) -> &[String] {
        self.metrics.names()
    }

    fn metrics(&self) -> &[f64] {
        self.metrics.values()
    }

    fn health(&self) -> Result<(), BadQuantity> {
        self.figures.check(&self.multipliers, &self.value_scale, &self.cost_names, &self.limits)?;
        self.extractor.health()
    }

    fn occupancy_ratios(&mut self, batch: &Batch, pool: &Pool) -> Option<&[f32]> {
        self.flow(batch, pool);
        Some(&self.w)
    }

    fn policy_parameters(&self) -> &[f32] {
        self.extractor.exported()
    }

    fn finalists(&self) -> &[Finalist] {
        self.extractor.finalists()
    }

    fn selector(&self) -> Option<Selector> {
        self.extractor.selector()
    }
}

#[cfg(test)]
#[path = "learner_tests.rs"]
mod tests;
