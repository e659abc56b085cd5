//! The dual's advantage as a function of state and action.
//!
//! The learner sees `e(s,a)` through single successors: `e_b = r - lambda'c + gamma nu(s') - nu(s)` of the sample (less
//! `mu` at `gamma = 1`). Where the process is noisy these differ from their mean by luck, and `w`, which is convex in
//! `e`, makes much of luck. [`AdvantageNetwork`] is fitted to the samples by squared error, and so tends to their mean
//! over successors.

use coptidice_nn::{NetworkSpec, NnError, Pool};

use crate::learner::StateMut;
use crate::problem::Problem;
use crate::sampler::Batch;
use crate::trained::TrainedNetwork;

/// What actions there are.
pub(crate) enum Space {
    /// Middle and half width of every action's logged range, `[A]`, in what training counts actions in.
    Continuous { middle: Vec<f32>, half: Vec<f32> },
    /// Finitely many.
    Discrete { count: usize },
}

impl Space {
    /// Those of a log.
    pub(crate) fn of(problem: &Problem<'_>) -> Self {
        match problem.data.actions() {
            coptidice_data::Actions::Discrete { count, .. } => Space::Discrete { count: *count },
            coptidice_data::Actions::Continuous { .. } => {
                let (middle, half) = problem.trained_action_scale();
                Space::Continuous { middle, half }
            }
        }
    }
}

/// A network for `e(s,a)` in training: `[B, D + A]` to `[B, 1]`; for finitely many actions `[B, D]` to `[B, A]`.
pub(crate) struct AdvantageNetwork {
    pub(crate) space: Space,
    pub(crate) trained: TrainedNetwork,
    /// `[B, outputs]`.
    pub(crate) d_outputs: Vec<f32>,
    /// `[B, D + A]`: normalised states with mapped actions; empty for finitely many.
    pub(crate) inputs: Vec<f32>,
    /// `[B]`: what it says of the logged actions.
    values: Vec<f32>,
}

impl AdvantageNetwork {
    /// `purpose` names the stream of the initial parameters.
    pub(crate) fn new(problem: &Problem<'_>, purpose: &str) -> Result<Self, NnError> {
        let config = problem.config;
        let (size, states) = (config.batch_size, problem.data.observation_dim());
        let space = Space::of(problem);
        let (actions, output) = match &space {
            Space::Continuous { middle, .. } => (middle.len(), 1),
            Space::Discrete { count } => (0, *count),
        };
        let spec = NetworkSpec { input: states + actions, blocks: config.networks.value.clone(), output };
        let joined = if actions > 0 { size * (states + actions) } else { 0 };
        Ok(AdvantageNetwork {
            space,
            trained: TrainedNetwork::new(config, spec, purpose, config.learning_rate, size)?,
            d_outputs: vec![0.0; size * output],
            inputs: vec![0.0; joined],
            values: vec![0.0; size],
        })
    }

    /// Sets [`AdvantageNetwork::values`] to what it says of the batch.
    pub(crate) fn predict(&mut self, batch: &Batch, pool: &Pool) {
        let TrainedNetwork { network, params, cache, .. } = &mut self.trained;
        let inputs = inputs(&self.space, &mut self.inputs, batch);
        let outputs = network.forward(params, inputs, batch.size, cache, pool);
        for (b, value) in self.values.iter_mut().enumerate() {
            *value = outputs[place(&self.space, batch, b)];
        }
    }

    /// [`AdvantageNetwork::predict`], and one step towards `wanted`, `[B]`; returns the mean squared error before it.
    pub(crate) fn fit(&mut self, batch: &Batch, wanted: &[f32], pool: &Pool) -> f64 {
        self.predict(batch, pool);
        self.descend(batch, wanted, pool)
    }

    /// One step towards `wanted`, `[B]`, after [`AdvantageNetwork::predict`] of the same batch; returns the mean squared
    /// error before it.
    pub(crate) fn descend(&mut self, batch: &Batch, wanted: &[f32], pool: &Pool) -> f64 {
        let mut error = 0.0;
        self.d_outputs.fill(0.0);
        for (b, (value, wanted)) in self.values.iter().zip(wanted).enumerate() {
            let miss = value - wanted;
            error += f64::from(miss).powi(2);
            self.d_outputs[place(&self.space, batch, b)] = 2.0 * miss / batch.size as f32;
        }
        let TrainedNetwork { network, params, cache, adam, .. } = &mut self.trained;
        let inputs = match &self.space {
            Space::Continuous { .. } => &*self.inputs,
            Space::Discrete { .. } => batch.current_states(),
        };
        network.descend(params, inputs, &self.d_outputs, batch.size, cache, adam, pool);
        error / batch.size as f64
    }

    /// What it said of the logged actions of the last batch, `[B]`.
    pub(crate) fn values(&self) -> &[f32] {
        &self.values
    }

    pub(crate) fn set_pace(&mut self, pace: f32) {
        self.trained.set_pace(pace);
    }

    pub(crate) fn visit_state(&mut self, name: &str, visit: &mut dyn FnMut(&str, StateMut<'_>)) {
        self.trained.visit_state(name, visit);
    }
}

/// The network's input for the logged actions.
fn inputs<'a>(space: &Space, joined: &'a mut [f32], batch: &'a Batch) -> &'a [f32] {
    match space {
        Space::Continuous { middle, half } => {
            join(joined, batch.current_states(), &batch.actions, middle, half);
            joined
        }
        Space::Discrete { .. } => batch.current_states(),
    }
}

/// Where the network's outputs hold the logged action of sample `b`.
fn place(space: &Space, batch: &Batch, b: usize) -> usize {
    match space {
        Space::Continuous { .. } => b,
        Space::Discrete { count } => b * count + batch.action_ids[b] as usize,
    }
}

/// Writes `[s, u(a)]` row by row, `u` mapping the logged range to `[-1, 1]` and cut there.
pub(crate) fn join(inputs: &mut [f32], states: &[f32], actions: &[f32], middle: &[f32], half: &[f32]) {
    let dim = middle.len();
    let rows = actions.len() / dim;
    let width = states.len() / rows;
    for (b, row) in inputs.chunks_exact_mut(width + dim).enumerate() {
        row[..width].copy_from_slice(&states[b * width..(b + 1) * width]);
        for (i, u) in row[width..].iter_mut().enumerate() {
            *u = ((actions[b * dim + i] - middle[i]) / half[i]).clamp(-1.0, 1.0);
        }
    }
}
