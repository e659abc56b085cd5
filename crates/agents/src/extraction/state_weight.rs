//! Weights divided by their mean at the state: what remains is the optimum's preference among the actions there.
//!
//! `h(s)` is fitted to `E[w given s]` by least squares, as `softplus` of a network of the shape of `nu`. The optimum's
//! policy is `w d^D` up to any positive function of the state, so dividing by `h(s)` changes nothing in the limit and
//! lifts the states that the optimum passes quickly. Where `h` is small, few samples carry all the weight: `floor` is
//! added to it, and the quotient is cut at `clip`.

use coptidice_nn::{NetworkSpec, NnError, Pool, math};

use crate::learner::StateMut;
use crate::problem::Problem;
use crate::sampler::Batch;
use crate::trained::TrainedNetwork;

/// `h` in training.
pub(super) struct StateWeights {
    trained: TrainedNetwork,
    floor: f32,
    clip: f32,
    d_out: Vec<f32>,
    weights: Vec<f32>,
    figures: [f64; 2],
}

/// `softplus(SHIFT) = 1`: `h` starts at the mean of `w`.
const SHIFT: f64 = 0.541_324_854_612_918;

impl StateWeights {
    /// Mean squared error of `h`, and the share of weights that are cut.
    pub(super) const FIGURES: [&'static str; 2] = ["loss/state_weight", "extraction/clipped_share"];

    pub(super) fn new(problem: &Problem<'_>) -> Result<Self, NnError> {
        let config = problem.config;
        let spec = NetworkSpec {
            input: problem.data.observation_dim(),
            blocks: config.networks.value.clone(),
            output: 1,
        };
        let size = config.batch_size;
        let mut trained = TrainedNetwork::new(config, spec, "state_weight", config.learning_rate, size)?;
        trained.shift_outputs(&[SHIFT]);
        Ok(StateWeights {
            trained,
            floor: config.state_weight.floor,
            clip: config.state_weight.clip,
            d_out: vec![0.0; size],
            weights: vec![0.0; size],
            figures: [0.0; 2],
        })
    }

    /// Moves `h` and returns the weights of the batch, `[B]`, at the parameters before the move.
    pub(super) fn step(&mut self, batch: &Batch, w: &[f32], pool: &Pool) -> &[f32] {
        let TrainedNetwork { network, params, cache, adam, .. } = &mut self.trained;
        let states = batch.current_states();
        let outputs = network.forward(params, states, batch.size, cache, pool);
        let (mut error, mut clipped) = (0.0, 0_usize);
        for (b, (&raw, &w)) in outputs.iter().zip(w).enumerate() {
            let h = math::softplus(raw);
            let quotient = w / (h + self.floor);
            clipped += usize::from(quotient > self.clip);
            self.weights[b] = quotient.min(self.clip);
            error += f64::from(h - w).powi(2);
            self.d_out[b] = 2.0 * (h - w) * math::sigmoid(raw) / batch.size as f32;
        }
        self.figures = [error / batch.size as f64, clipped as f64 / batch.size as f64];
        network.descend(params, states, &self.d_out, batch.size, cache, adam, pool);
        &self.weights
    }

    pub(super) fn set_pace(&mut self, pace: f32) {
        self.trained.set_pace(pace);
    }

    pub(super) fn figures(&self) -> &[f64] {
        &self.figures
    }

    pub(super) fn visit_state(&mut self, visit: &mut dyn FnMut(&str, StateMut<'_>)) {
        self.trained.visit_state("state_weight", visit);
    }
}
