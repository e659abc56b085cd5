//! A network with everything its training needs.

use coptidice_core::rng::stream;
use coptidice_nn::{Adam, Cache, Network, NetworkSpec, NnError, Pool, Precision};

use crate::config::TrainConfig;
use crate::learner::StateMut;

/// A network, its parameters, gradient, optimiser and buffers.
pub(crate) struct TrainedNetwork {
    pub(crate) network: Network,
    pub(crate) params: Vec<f32>,
    pub(crate) grads: Vec<f32>,
    pub(crate) adam: Adam,
    pub(crate) cache: Cache,
    /// Adam's rate at full pace.
    learning_rate: f32,
}

impl TrainedNetwork {
    /// `purpose` names the stream of the initial parameters; `max_batch` is the largest number of rows evaluated.
    pub(crate) fn new(
        config: &TrainConfig,
        spec: NetworkSpec,
        purpose: &str,
        learning_rate: f32,
        max_batch: usize,
    ) -> Result<Self, NnError> {
        Self::seeded(config.seed, config.precision, spec, purpose, learning_rate, max_batch)
    }

    /// [`Self::new`] where there is no log.
    pub(crate) fn seeded(
        seed: u64,
        precision: Precision,
        spec: NetworkSpec,
        purpose: &str,
        learning_rate: f32,
        max_batch: usize,
    ) -> Result<Self, NnError> {
        let network = Network::new(spec)?;
        let params = network.init(&mut stream(seed, purpose, 0));
        let adam = Adam::new(params.len(), learning_rate);
        let grads = vec![0.0; params.len()];
        let cache = network.cache_in(max_batch, precision)?;
        Ok(TrainedNetwork { network, params, grads, adam, cache, learning_rate })
    }

    /// Moves what the network puts out by `shift`, one number per output.
    pub(crate) fn shift_outputs(&mut self, shift: &[f64]) {
        // The bias of the output layer is the last slice of the layout.
        let bias = self.params.len() - shift.len();
        for (bias, shift) in self.params[bias..].iter_mut().zip(shift) {
            *bias += *shift as f32;
        }
    }

    /// Sets Adam's rate to a share of what was configured.
    pub(crate) fn set_pace(&mut self, pace: f32) {
        self.adam.learning_rate = pace * self.learning_rate;
    }

    /// Adam on the gathered gradient.
    pub(crate) fn update(&mut self, pool: &Pool) {
        self.adam.update(&mut self.params, &self.grads, pool);
    }

    pub(crate) fn visit_state(&mut self, name: &str, visit: &mut dyn FnMut(&str, StateMut<'_>)) {
        visit(&format!("{name}.params"), StateMut::F32(&mut self.params));
        visit_adam(&mut self.adam, name, visit);
    }
}

/// Shows an optimiser's state.
pub(crate) fn visit_adam(adam: &mut Adam, name: &str, visit: &mut dyn FnMut(&str, StateMut<'_>)) {
    visit(&format!("{name}.adam.first"), StateMut::F32(&mut adam.first));
    visit(&format!("{name}.adam.second"), StateMut::F32(&mut adam.second));
    visit(&format!("{name}.adam.step"), StateMut::U64(&mut adam.step));
}
