//! What an online learner asks of a simulator.

use coptidice_core::rng::Rng;

/// An environment with continuous actions, of which whole episodes are run.
pub trait Simulator {
    /// Shapes, names and bounds.
    fn facts(&self) -> &SimulatorFacts;

    /// Runs one episode. `act` gets an observation `[O]` and writes an action `[A]`, which is clipped to the bounds;
    /// `visit` sees every step in order, of which the last one is a terminal or a time-out. `start` is the source of the
    /// environment's randomness.
    ///
    /// # Errors
    /// What the simulator says where it cannot go on.
    fn run(
        &mut self,
        episode: u64,
        start: &mut Rng,
        act: &mut dyn FnMut(&[f32], &mut [f32]),
        visit: &mut dyn FnMut(&SimulatedStep<'_>),
    ) -> Result<(), SimulatorError>;
}

/// A simulator's own error.
pub type SimulatorError = Box<dyn std::error::Error + Send + Sync>;

/// What does not change from step to step.
#[derive(Clone, Debug, PartialEq)]
pub struct SimulatorFacts {
    /// Says which environment with which parameters it is: runs go on only in the same.
    pub identity: String,
    /// Names of the observation's columns, `[O]`.
    pub observation_names: Vec<String>,
    /// Smallest action, `[A]`.
    pub action_low: Vec<f32>,
    /// Largest action, `[A]`; above the smallest.
    pub action_high: Vec<f32>,
    /// Names of the costs, `[K]`.
    pub cost_names: Vec<String>,
    /// Steps of an episode that does not end earlier.
    pub horizon: usize,
}

/// One step as it happened.
#[derive(Clone, Copy, Debug)]
pub struct SimulatedStep<'a> {
    /// `s`, `[O]`.
    pub observation: &'a [f32],
    /// The action applied, `[A]`, within the bounds.
    pub action: &'a [f32],
    /// Reward.
    pub reward: f32,
    /// Costs of the step, `[K]`.
    pub costs: &'a [f64],
    /// `s'`, `[O]`.
    pub next_observation: &'a [f32],
    /// The process ended in `s'`: nothing follows.
    pub terminal: bool,
    /// The episode is over, by a terminal or a time-out.
    pub last: bool,
}
