//! What a step found: the figures that are reported and watched.

use coptidice_core::CostConstraint;
use coptidice_nn::Penalty;

use super::learner::Constraint;
use super::losses::{Bound, FlowLoss};
use super::multipliers::Multipliers;
use crate::extraction::Extractor;
use crate::learner::{BadQuantity, StateMut, sound};
use crate::problem::{Problem, ValueScale};
use crate::sampler::Batch;

/// `|nu|` beyond this many times the largest value that rewards and costs could add up to has run away.
const NU_SLACK: f64 = 1e3;

/// Where gradients are not penalised.
pub(crate) const NO_PENALTY: Penalty = Penalty { value: 0.0, max_norm: 0.0, exceeding: 0 };

/// Figures of one step, in the units of training.
pub(crate) struct Figures {
    pub(crate) flow: FlowLoss,
    pub(crate) largest_nu: f64,
    pub(crate) nu_penalty: Penalty,
    pub(crate) chi_penalty: Penalty,
    pub(crate) multiplier_loss: f64,
    /// Plain estimates `mean(w c)`, `[K]`.
    pub(crate) cost_estimates: Vec<f64>,
    /// What is compared with the limits, `[K]`.
    pub(crate) compared: Vec<f64>,
    /// `[K]`; all zero where no bound is trained.
    pub(crate) bounds: Vec<Bound>,
}

impl Figures {
    pub(crate) fn new(costs: usize) -> Self {
        Figures {
            flow: FlowLoss::default(),
            largest_nu: 0.0,
            nu_penalty: NO_PENALTY,
            chi_penalty: NO_PENALTY,
            multiplier_loss: 0.0,
            cost_estimates: vec![0.0; costs],
            compared: vec![0.0; costs],
            bounds: vec![Bound::default(); costs],
        }
    }

    /// The first figure that is not finite or has run away. `limits` are `[K]`, scaled cost per step.
    pub(crate) fn check(
        &self,
        multipliers: &Multipliers,
        scale: &ValueScale,
        cost_names: &[String],
        limits: &[f64],
    ) -> Result<(), BadQuantity> {
        let bad = |quantity: String, value, advice| Err(BadQuantity { quantity, value, advice });
        let nu_max = NU_SLACK * scale.largest_value(&multipliers.lambda);
        // A `lambda` that follows `nu` to NaN takes `nu_max` along.
        if !sound(self.largest_nu) || self.largest_nu > nu_max {
            return bad("nu".into(), self.largest_nu, "lower learning_rate, or scale the rewards");
        }
        if !sound(self.flow.mean_w) {
            return bad("w".into(), self.flow.mean_w, "raise alpha, or use divergence = \"softchi\"");
        }
        if !sound(self.flow.value) {
            return bad("loss/nu".into(), self.flow.value, "raise alpha, or lower learning_rate");
        }
        for (k, name) in cost_names.iter().enumerate() {
            if !sound(self.bounds[k].descended) || !sound(self.bounds[k].kl) {
                let value = self.bounds[k].descended;
                return bad(format!("cost_bound/{name}"), value, "raise alpha, or lower learning_rate");
            }
            if multipliers.at_lambda_max(k) {
                let advice = if self.cost_estimates[k] <= limits[k] && limits[k] < self.compared[k] {
                    "the cost itself is within the limit, its upper bound is not: lower epsilon (0 holds the cost to the \
                     limit, and not its bound), or raise the limit"
                } else {
                    "the limit cannot be kept on this log: raise the limit, lower alpha or epsilon, or raise lambda_max"
                };
                return bad(format!("lambda/{name}"), multipliers.lambda[k], advice);
            }
        }
        Ok(())
    }
}

impl ValueScale {
    /// Largest value that scaled rewards less priced costs can add up to over the horizon.
    fn largest_value(&self, lambda: &[f64]) -> f64 {
        let costs: f64 = lambda.iter().zip(&self.costs).map(|(l, c)| l * c).sum();
        self.horizon * (1.0 + self.reward + costs)
    }
}

/// Turns figures into named values in the log's own units.
pub(crate) struct Metrics {
    names: Vec<String>,
    values: Vec<f64>,
    reward_scale: f64,
    cost_scales: Vec<f64>,
    limits: Vec<CostConstraint>,
    constraint: Constraint,
    undiscounted: bool,
    sorted_w: Vec<f32>,
}

/// Where the policy's figures begin.
const POLICY: usize = 1;

const QUANTILES: [(&str, f64); 5] =
    [("w/q05", 0.05), ("w/q50", 0.5), ("w/q95", 0.95), ("w/q99", 0.99), ("w/max", 1.0)];

impl Metrics {
    pub(crate) fn new(problem: &Problem<'_>, constraint: Constraint, extractor: &Extractor) -> Self {
        let mut metrics = Metrics {
            names: Vec::new(),
            values: Vec::new(),
            reward_scale: problem.reward_scale,
            cost_scales: problem.costs.iter().map(|cost| cost.scale).collect(),
            limits: problem.costs.iter().map(|cost| cost.constraint).collect(),
            constraint,
            undiscounted: problem.config.gamma == 1.0,
            sorted_w: vec![0.0; problem.config.batch_size],
        };
        let zeros = Multipliers::new(problem.costs.len(), true, 0.0, &[], 1.0, 2.0);
        let figures = Figures::new(problem.costs.len());
        let names: Vec<&str> = problem.costs.iter().map(|cost| cost.name.as_str()).collect();
        // The first pass collects the names; later ones only overwrite values, in the same order.
        let mut collected = Vec::new();
        metrics.each(0.0, 0.0, &figures, &zeros, extractor, &mut |name, k, _| {
            collected.push(match k {
                Some(k) => format!("{name}/{}", names[k]),
                None => name.to_owned(),
            });
        });
        metrics.values = vec![0.0; collected.len()];
        metrics.names = collected;
        metrics
    }

    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    pub(crate) fn values(&self) -> &[f64] {
        &self.values
    }

    /// Records one step. `w` is `[B]`.
    pub(crate) fn record(
        &mut self,
        batch: &Batch,
        w: &[f32],
        figures: &Figures,
        multipliers: &Multipliers,
        extractor: &Extractor,
    ) {
        let weighted: f64 = w.iter().zip(&batch.rewards).map(|(&w, &r)| f64::from(w) * f64::from(r)).sum();
        let (sum, squares) = w.iter().map(|&w| f64::from(w)).fold((0.0, 0.0), |(s, q), w| (s + w, q + w * w));
        let size = batch.size as f64;
        let effective = if squares > 0.0 { sum * sum / (size * squares) } else { 0.0 };
        self.sorted_w.copy_from_slice(w);
        self.sorted_w.sort_unstable_by(f32::total_cmp);
        let mut values = std::mem::take(&mut self.values);
        let mut place = 0;
        self.each(weighted / size, effective, figures, multipliers, extractor, &mut |_, _, value| {
            values[place] = value;
            place += 1;
        });
        self.values = values;
    }

    /// Records a step of the policy alone: the dual's figures stay those of its last step.
    pub(crate) fn record_policy(&mut self, extractor: &Extractor) {
        let figures = std::iter::once(extractor.policy_loss()).chain(extractor.figures().iter().copied());
        for (value, figure) in self.values[POLICY..].iter_mut().zip(figures) {
            *value = figure;
        }
    }

    pub(crate) fn visit_state(&mut self, visit: &mut dyn FnMut(&str, StateMut<'_>)) {
        for (name, value) in self.names.iter().zip(&mut self.values) {
            let mut bits = value.to_bits();
            visit(&format!("metrics.{name}"), StateMut::U64(&mut bits));
            *value = f64::from_bits(bits);
        }
    }

    /// Every metric as `(name, cost it belongs to, value)`, in the log's units.
    fn each(
        &self,
        reward: f64,
        effective: f64,
        figures: &Figures,
        multipliers: &Multipliers,
        extractor: &Extractor,
        take: &mut dyn FnMut(&str, Option<usize>, f64),
    ) {
        let unscale = 1.0 / self.reward_scale;
        take("loss/nu", None, figures.flow.value * unscale);
        take("loss/policy", None, extractor.policy_loss());
        for (name, &value) in extractor.figure_names().iter().zip(extractor.figures()) {
            take(name, None, value);
        }
        take("reward", None, reward * unscale);
        take("w/mean", None, figures.flow.mean_w);
        take("w/effective_share", None, effective);
        for (name, quantile) in QUANTILES {
            let place = (quantile * (self.sorted_w.len() - 1) as f64).round() as usize;
            take(name, None, f64::from(self.sorted_w[place]));
        }
        take("nu/largest", None, figures.largest_nu * unscale);
        take("penalty/nu", None, figures.nu_penalty.value);
        take("penalty/nu_norm", None, f64::from(figures.nu_penalty.max_norm));
        if self.undiscounted {
            take("mu", None, multipliers.mu * unscale);
        }
        if self.constraint == Constraint::UpperBound {
            take("penalty/chi", None, figures.chi_penalty.value);
            take("penalty/chi_norm", None, f64::from(figures.chi_penalty.max_norm));
        }
        if self.constraint != Constraint::None {
            take("loss/lambda", None, figures.multiplier_loss * unscale);
        }
        for (k, scale) in self.cost_scales.iter().enumerate() {
            // A credit of every step stands for the limit: figures are of the cost as logged, and beside them the limit on
            // a step for as much mass as there is.
            let credit = self.limits[k].step_credit.unwrap_or(0.0) * figures.flow.mean_w;
            let cost = |scaled: f64| scaled / scale + credit;
            take("cost", Some(k), cost(figures.cost_estimates[k]));
            take("limit", Some(k), self.limits[k].limit + credit);
            if self.constraint != Constraint::None {
                take("lambda", Some(k), multipliers.lambda[k] * scale * unscale);
            }
            if self.constraint == Constraint::UpperBound {
                take("compared", Some(k), cost(figures.compared[k]));
                take("cost_bound", Some(k), cost(figures.bounds[k].value));
                take("cost_reweighted", Some(k), cost(figures.bounds[k].reweighted_cost));
                take("tau", Some(k), multipliers.tau[k] / scale);
                take("kl", Some(k), figures.bounds[k].kl);
            }
        }
    }
}
