//! The policy's network in training.
//!
//! [`PolicyTrainer::step`] descends `J_pi = -mean(weights log pi(a|s))` (`eq:J_psi`, `eq:weighted_bc`), the weights
//! being constants; [`PolicyTrainer::descend`] any loss of the network's outputs. A model of the log's actions is fitted
//! in the same way, with all weights 1.

use coptidice_nn::{Cache, Network, NetworkSpec, NnError, Pool, Precision, exponential_average};

use crate::config::TrainConfig;
use crate::learner::{Finalist, StateMut};
use crate::policy::{ActionBatch, Head};
use crate::problem::Problem;
use crate::sampler::Batch;
use crate::trained::TrainedNetwork;

/// An average of parameters is over about one `RECENT`-th of the steps taken, or fewer.
const RECENT: f32 = 4.0;

/// The policy in training.
pub(crate) struct PolicyTrainer {
    /// Of its random stream and its state.
    name: &'static str,
    trained: TrainedNetwork,
    head: Head,
    d_outputs: Vec<f32>,
    /// Average of the parameters over late steps; empty where averaging is off.
    average: Vec<f32>,
    average_rate: f32,
    /// What is set aside of it, by step.
    finalists: Vec<Finalist>,
    /// Steps of training before the policy's first.
    begins: u64,
}

impl PolicyTrainer {
    pub(crate) fn new(problem: &Problem<'_>) -> Result<Self, NnError> {
        let config = problem.config;
        let mut trainer = Self::with_head(problem, head(problem), "policy", config.policy_average_rate)?;
        trainer.begins = config.steps_before_policy();
        let params = &trainer.trained.params;
        trainer.finalists =
            finalist_steps(config).map(|step| Finalist { step, params: params.clone() }).collect();
        Ok(trainer)
    }

    /// One with another head. `name` is of its random stream and its state.
    pub(super) fn with_head(
        problem: &Problem<'_>,
        head: Head,
        name: &'static str,
        average_rate: f32,
    ) -> Result<Self, NnError> {
        let config = problem.config;
        let trained = TrainedNetwork::new(
            config,
            spec(problem, &head),
            name,
            config.policy_learning_rate,
            config.batch_size,
        )?;
        let average = if average_rate > 0.0 { trained.params.clone() } else { Vec::new() };
        let d_outputs = vec![0.0; config.batch_size * head.outputs()];
        Ok(PolicyTrainer {
            name,
            trained,
            head,
            d_outputs,
            average,
            average_rate,
            finalists: Vec::new(),
            begins: 0,
        })
    }

    /// Makes the cache fit other networks too, on up to `max_batch` rows.
    pub(super) fn share_cache(
        &mut self,
        others: &[&Network],
        max_batch: usize,
        precision: Precision,
    ) -> Result<(), NnError> {
        let networks: Vec<&Network> = others.iter().copied().chain([&self.trained.network]).collect();
        self.trained.cache = Network::cache_of(&networks, max_batch, precision)?;
        Ok(())
    }

    pub(super) fn cache(&mut self) -> &mut Cache {
        &mut self.trained.cache
    }

    /// One step of Adam on `-mean(weights log pi(a|s))`. Returns the loss before the step.
    pub(crate) fn step(&mut self, batch: &Batch, weights: &[f32], pool: &Pool) -> f64 {
        self.descend(batch, pool, |head, outputs, d_outputs| {
            head.weighted_nll(outputs, batch.action_batch(), weights, d_outputs, pool)
        })
    }

    /// One step of Adam on a loss of the outputs at the batch's states: `loss` is given the head and the outputs,
    /// `[B, outputs]`, overwrites their derivatives, and returns its value, which is returned.
    pub(super) fn descend(
        &mut self,
        batch: &Batch,
        pool: &Pool,
        loss: impl FnOnce(&Head, &[f32], &mut [f32]) -> f64,
    ) -> f64 {
        let TrainedNetwork { network, params, cache, adam, .. } = &mut self.trained;
        let states = batch.current_states();
        let outputs = network.forward(params, states, batch.size, cache, pool);
        let value = loss(&self.head, outputs, &mut self.d_outputs);
        network.descend(params, states, &self.d_outputs, batch.size, cache, adam, pool);
        self.follow(pool);
        value
    }

    /// The outputs at other states, `[rows, D]` with at most as many rows as a batch.
    pub(super) fn outputs(&mut self, states: &[f32], rows: usize, pool: &Pool) -> &[f32] {
        let TrainedNetwork { network, params, cache, .. } = &mut self.trained;
        network.forward(params, states, rows, cache, pool)
    }

    /// The head, and [`PolicyTrainer::outputs`].
    pub(super) fn head_and_outputs(&mut self, states: &[f32], rows: usize, pool: &Pool) -> (Head, &[f32]) {
        (self.head, self.outputs(states, rows, pool))
    }

    /// `mean(log pi(a|s))` of continuous actions, `[B, A]`, at `states`, `[B, D]`. Writes the derivative of its
    /// **negative** in the actions; `ones` is `[B]`.
    pub(super) fn log_density(
        &mut self,
        states: &[f32],
        actions: &[f32],
        ones: &[f32],
        d_actions: &mut [f32],
        pool: &Pool,
    ) -> f64 {
        let TrainedNetwork { network, params, cache, .. } = &mut self.trained;
        let outputs = network.forward(params, states, ones.len(), cache, pool);
        let actions = ActionBatch::Continuous(actions);
        let loss = self.head.weighted_nll(outputs, actions, ones, &mut self.d_outputs, pool);
        // The density is one of `a - mu`: moving the action is moving all locations the other way.
        let block = self.head.outputs() / 3;
        let components = block / self.head.action_width();
        let rows = self.d_outputs.chunks_exact(3 * block).map(|row| &row[block..2 * block]);
        for (d, d_locations) in d_actions.iter_mut().zip(rows.flat_map(|row| row.chunks_exact(components))) {
            *d = -d_locations.iter().sum::<f32>();
        }
        -loss
    }

    pub(super) fn set_pace(&mut self, pace: f32) {
        self.trained.set_pace(pace);
    }

    /// Moves the average. At step `t` its rate is at least `R/(t + R - 1)` with `R` = [`RECENT`]: the initial parameters leave
    /// no trace in it, and of a run however short it is one over the last `1/R` or so of its steps (Shamir and Zhang 2013,
    /// "Stochastic gradient descent for non-smooth optimization", section 4).
    fn follow(&mut self, pool: &Pool) {
        if self.average_rate > 0.0 {
            let step = self.trained.adam.step as f32;
            let rate = self.average_rate.max(RECENT / (step + RECENT - 1.0));
            exponential_average(&mut self.average, &self.trained.params, rate, pool);
        }
        let step = self.begins + self.trained.adam.step;
        if let Ok(k) = self.finalists.binary_search_by_key(&step, |finalist| finalist.step) {
            let params = if self.average_rate > 0.0 { &self.average } else { &self.trained.params };
            self.finalists[k].params.copy_from_slice(params);
        }
    }

    /// The parameters to export.
    pub(crate) fn exported(&self) -> &[f32] {
        if self.average_rate > 0.0 { &self.average } else { &self.trained.params }
    }

    /// What was set aside.
    pub(crate) fn finalists(&self) -> &[Finalist] {
        &self.finalists
    }

    #[cfg(test)]
    pub(crate) fn network(&self) -> &coptidice_nn::Network {
        &self.trained.network
    }

    #[cfg(test)]
    pub(crate) fn gradient(&self) -> &[f32] {
        self.trained.network.last_gradient(&self.trained.cache)
    }

    pub(crate) fn visit_state(&mut self, visit: &mut dyn FnMut(&str, StateMut<'_>)) {
        self.trained.visit_state(self.name, visit);
        if self.average_rate > 0.0 {
            visit(&format!("{}.average", self.name), StateMut::F32(&mut self.average));
        }
        for Finalist { step, params } in &mut self.finalists {
            visit(&format!("{}.finalist.{step}", self.name), StateMut::F32(params));
        }
    }
}

/// Steps of training after which policies are set aside, evenly over the last half of the policy's own; the last
/// policy of all is one of the finalists.
fn finalist_steps(config: &TrainConfig) -> impl Iterator<Item = u64> {
    // What selects does so by the critic of the last step; and a policy without steps of its own can be trained longer,
    // so that there is no last half.
    let none = config.selects() || !config.draws_afterwards();
    let earlier = if none { 0 } else { config.finalists.max(1) as u64 - 1 };
    let begins = config.steps_before_policy();
    let (last, half) = (config.steps, (config.steps - begins) / 2);
    let mut steps: Vec<u64> = (1..=earlier).rev().map(|k| last - half * k / earlier).collect();
    steps.dedup();
    steps.into_iter().filter(move |&step| step > begins && step < last)
}

/// The head that fits the log's actions.
pub(crate) fn head(problem: &Problem<'_>) -> Head {
    let networks = &problem.config.networks;
    match problem.data.actions() {
        coptidice_data::Actions::Continuous { dim, .. } => Head::Mixture {
            action_dim: *dim,
            components: networks.mixture_components,
            min_scale: networks.min_scale,
        },
        coptidice_data::Actions::Discrete { count, .. } => Head::Categorical { actions: *count },
    }
}

/// The policy's network under `head`.
pub(crate) fn spec(problem: &Problem<'_>, head: &Head) -> NetworkSpec {
    NetworkSpec {
        input: problem.data.observation_dim(),
        blocks: problem.config.networks.policy.clone(),
        output: head.outputs(),
    }
}
