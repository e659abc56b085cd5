//! One gradient step of behaviour cloning.

use coptidice_nn::Pool;

use crate::TrainError;
use crate::extraction::PolicyTrainer;
use crate::learner::{BadQuantity, Finalist, Learner, Resumable, StateMut};
use crate::problem::Problem;
use crate::sampler::Batch;

/// Behaviour cloning in training.
pub(crate) struct BcLearner {
    policy: PolicyTrainer,
    weights: Vec<f32>,
    names: Vec<String>,
    values: [f64; 1],
}

impl BcLearner {
    pub(crate) fn new(problem: &Problem<'_>) -> Result<Self, TrainError> {
        Ok(BcLearner {
            policy: PolicyTrainer::new(problem)?,
            weights: vec![1.0; problem.config.batch_size],
            names: vec!["loss/policy".to_owned()],
            values: [0.0],
        })
    }
}

impl Resumable for BcLearner {
    fn visit_state(&mut self, visit: &mut dyn FnMut(&str, StateMut<'_>)) {
        self.policy.visit_state(visit);
    }
}

impl Learner for BcLearner {
    fn step(&mut self, batch: &Batch, pool: &Pool) {
        self.values[0] = self.policy.step(batch, &self.weights, pool);
    }

    fn metric_names(&self) -> &[String] {
        &self.names
    }

    fn metrics(&self) -> &[f64] {
        &self.values
    }

    fn health(&self) -> Result<(), BadQuantity> {
        let loss = self.values[0];
        if loss.is_finite() {
            return Ok(());
        }
        Err(BadQuantity { quantity: "loss/policy".into(), value: loss, advice: "lower policy_learning_rate" })
    }

    fn occupancy_ratios(&mut self, _: &Batch, _: &Pool) -> Option<&[f32]> {
        None
    }

    fn policy_parameters(&self) -> &[f32] {
        self.policy.exported()
    }

    fn finalists(&self) -> &[Finalist] {
        self.policy.finalists()
    }
}
