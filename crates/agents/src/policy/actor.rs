//! Acting step by step, without allocation.

use super::selector::Room;
use super::{ActError, Acting, Policy};
use coptidice_core::rng::Rng;

/// Chooses actions one observation at a time. Owns its working storage: a step allocates nothing.
#[derive(Clone, Debug)]
pub struct Actor {
    policy: Policy,
    acting: Acting,
    normalized: Vec<f32>,
    outputs: Vec<f32>,
    scratch: Vec<f32>,
    /// Where there is something to select by.
    room: Option<Room>,
}

impl Actor {
    pub(super) fn new(policy: Policy, acting: Acting) -> Self {
        let mut actor = Self {
            acting,
            normalized: vec![0.0; policy.observation_width()],
            outputs: vec![0.0; policy.head().outputs()],
            scratch: Vec::new(),
            room: policy.selector().map(|selector| selector.room(policy.head())),
            policy,
        };
        // The first pass sizes the networks' scratch.
        actor.forward();
        if acting == Acting::Select {
            let mut action = vec![0.0; actor.policy.action_width()];
            // That the values of an observation of nothing are finite is not needed here.
            let _ = actor.select(&mut action);
        }
        actor
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
        let expected = self.policy.action_width();
        if action.len() != expected {
            return Err(ActError::ActionLength { expected, found: action.len() });
        }
        self.policy.check_observation(observation, 0)?;
        self.policy.normalizer().apply(observation, &mut self.normalized);
        self.forward();
        // Both ends: an infinity that enters the network need not come out of it.
        if self.normalized.iter().chain(&self.outputs).any(|x| !x.is_finite()) {
            return Err(ActError::Overflow { row: 0 });
        }
        if self.acting == Acting::Select {
            return self.select(action);
        }
        self.policy.head().act(&self.outputs, self.acting, rng, action);
        self.policy.clip(action);
        Ok(())
    }

    fn select(&mut self, action: &mut [f32]) -> Result<(), ActError> {
        let (Some(selector), Some(room)) = (self.policy.selector(), &mut self.room) else {
            return Err(ActError::NoSelector);
        };
        selector.choose(&self.policy, &self.normalized, &self.outputs, room, action)
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

    fn forward(&mut self) {
        let policy = &self.policy;
        policy.network().forward_one(policy.params(), &self.normalized, &mut self.outputs, &mut self.scratch);
    }
}
