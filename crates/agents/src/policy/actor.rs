//! Acting step by step, for one process or for several in step, without allocation.

use std::sync::Arc;

use super::selector::Room;
use super::{ActError, Acting, Policy};
use coptidice_core::rng::Rng;
use coptidice_nn::{ForwardRoom, ForwardWeights};

/// Chooses actions, for one observation or for several at once. Owns its working storage: a step allocates nothing, except
/// the first with more observations than any before. Clones share the parameters, so that each thread can have one; there
/// its first step allocates.
#[derive(Clone, Debug)]
pub struct Actor {
    policy: Policy,
    acting: Acting,
    weights: Arc<ForwardWeights>,
    room: ForwardRoom,
    /// `[rows * O]`.
    normalized: Vec<f32>,
    /// `[rows * head.outputs()]`.
    outputs: Vec<f32>,
    /// Where actions are selected and there is something to select by.
    selection: Option<Room>,
}

impl Actor {
    pub(super) fn new(policy: Policy, acting: Acting) -> Self {
        let selector = policy.selector().filter(|_| acting == Acting::Select);
        Self {
            acting,
            weights: Arc::new(policy.network().forward_weights(policy.params())),
            room: policy.network().forward_room(1),
            normalized: vec![0.0; policy.observation_width()],
            outputs: vec![0.0; policy.head().outputs()],
            selection: selector.map(|selector| selector.room(policy.head())),
            policy,
        }
    }

    /// The policy.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// How actions are chosen.
    #[must_use]
    pub fn acting(&self) -> Acting {
        self.acting
    }

    /// Writes the action for `observation` (`[O]`) into `action` (`[action_width]`), clipped to the bounds.
    ///
    /// Only `Acting::Sample` and `Acting::Component` draw from `rng`.
    ///
    /// # Errors
    /// [`ActError`] for wrong lengths, and for observations that are not finite or overflow the network.
    pub fn act(&mut self, observation: &[f32], rng: &mut Rng, action: &mut [f32]) -> Result<(), ActError> {
        self.act_rows(observation, std::slice::from_mut(rng), action)
    }

    /// Writes the actions for `B` observations, `[B * O]` to `[B * action_width]`, in one pass of the network; row `b` draws
    /// from `rngs[b]`. What a row gets is the same bits whatever the other rows are: that of [`Actor::act`].
    ///
    /// # Errors
    /// As [`Actor::act`], naming the row. The actions are unspecified then.
    pub fn act_rows(
        &mut self,
        observations: &[f32],
        rngs: &mut [Rng],
        actions: &mut [f32],
    ) -> Result<(), ActError> {
        let (policy, rows) = (&self.policy, rngs.len());
        let (columns, width) = (policy.observation_width(), policy.action_width());
        if actions.len() != rows * width {
            return Err(ActError::ActionLength { expected: rows * width, found: actions.len() });
        }
        if observations.len() != rows * columns {
            let expected = rows * columns;
            return Err(ActError::ObservationLength { expected, found: observations.len() });
        }
        for (row, observation) in observations.chunks_exact(columns).enumerate() {
            policy.check_observation(observation, row)?;
        }
        self.forward(observations)?;
        let Self { policy, acting, normalized, outputs, selection, .. } = self;
        let (head, normalized) = (policy.head(), &normalized[..rows * columns]);
        let outputs = &outputs[..rows * head.outputs()];
        if *acting == Acting::Select {
            let (Some(selector), Some(room)) = (policy.selector(), selection) else {
                return Err(ActError::NoSelector);
            };
            selector.choose(policy, normalized, outputs, room, actions)?;
            policy.leave(actions);
            return Ok(());
        }
        let each = outputs.chunks_exact(head.outputs()).zip(actions.chunks_exact_mut(width));
        for ((outputs, action), rng) in each.zip(rngs) {
            head.act(outputs, *acting, rng, action);
            policy.clip(action);
        }
        policy.leave(actions);
        Ok(())
    }

    /// The index of the action for `observation`, for a policy with finitely many actions.
    ///
    /// # Errors
    /// As [`Actor::act`]; [`ActError::Continuous`] if actions are continuous.
    pub fn choose(&mut self, observation: &[f32], rng: &mut Rng) -> Result<u32, ActError> {
        if !self.policy.head().is_discrete() {
            return Err(ActError::Continuous);
        }
        let mut action = [0.0];
        self.act(observation, rng, &mut action)?;
        // Indices are below 2²⁴, exact in single precision.
        Ok(action[0] as u32)
    }

    /// Normalises the observations and passes them through the network.
    fn forward(&mut self, observations: &[f32]) -> Result<(), ActError> {
        let Self { policy, weights, room, normalized, outputs, .. } = self;
        let (columns, width) = (policy.observation_width(), policy.head().outputs());
        let rows = observations.len() / columns;
        if normalized.len() < rows * columns {
            normalized.resize(rows * columns, 0.0);
            outputs.resize(rows * width, 0.0);
        }
        let (normalized, outputs) = (&mut normalized[..rows * columns], &mut outputs[..rows * width]);
        policy.normalizer().apply(observations, normalized);
        policy.network().forward_with(policy.params(), weights, normalized, outputs, room);
        // Both ends: an infinity that enters the network need not come out of it.
        for (values, width) in [(&*normalized, columns), (&*outputs, width)] {
            if let Some(bad) = values.iter().position(|x| !x.is_finite()) {
                return Err(ActError::Overflow { row: bad / width });
            }
        }
        Ok(())
    }
}
