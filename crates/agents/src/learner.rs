//! What every algorithm offers to the training loop.

use coptidice_nn::Pool;

use crate::policy::Selector;
use crate::sampler::Batch;

/// A piece of a learner's state, for checkpoints.
pub enum StateMut<'s> {
    /// Single precision.
    F32(&'s mut [f32]),
    /// A counter.
    U64(&'s mut u64),
}

/// A quantity that went bad.
#[derive(Clone, Debug, PartialEq)]
pub struct BadQuantity {
    /// What it is, with the name of the cost where it belongs to one.
    pub quantity: String,
    /// Its value.
    pub value: f64,
    /// What it means and what may help.
    pub advice: &'static str,
}

/// A figure beyond this has exploded: losses and estimates are of scaled rewards and costs.
const FIGURE_MAX: f64 = 1e12;

/// Whether a figure is a number and has not run away.
pub(crate) fn sound(figure: f64) -> bool {
    // False for NaN.
    figure.abs() <= FIGURE_MAX
}

/// What a checkpoint holds.
pub trait Resumable {
    /// Shows every piece of the state that decides later steps, under a name, always in the same order. Saving reads
    /// the pieces, resuming overwrites them.
    fn visit_state(&mut self, visit: &mut dyn FnMut(&str, StateMut<'_>));
}

/// A policy as it was on the way.
#[derive(Clone, Debug)]
pub struct Finalist {
    /// Steps of training then.
    pub step: u64,
    /// As [`Learner::policy_parameters`]; of no use before that step.
    pub params: Vec<f32>,
}

/// One algorithm in training on a log. A step allocates nothing.
pub trait Learner: Resumable + Send {
    /// One gradient step on one batch. Afterwards [`Learner::metrics`] holds the losses found on the way, before the
    /// parameters moved.
    fn step(&mut self, batch: &Batch, pool: &Pool);

    /// Names of the metrics, fixed for the learner's lifetime.
    fn metric_names(&self) -> &[String];

    /// Values of the last step, in the order of [`Learner::metric_names`].
    fn metrics(&self) -> &[f64];

    /// Whether the last step was sound.
    ///
    /// # Errors
    /// The first quantity that is not finite or has run away.
    fn health(&self) -> Result<(), BadQuantity>;

    /// Occupancy ratios `w` of a batch, `[B]`, at the present parameters; `None` where the algorithm has none.
    fn occupancy_ratios(&mut self, batch: &Batch, pool: &Pool) -> Option<&[f32]>;

    /// Parameters of the policy to export: the averaged ones where averaging is on.
    fn policy_parameters(&self) -> &[f32];

    /// Earlier policies, set aside to choose from when training is over, by step.
    fn finalists(&self) -> &[Finalist] {
        &[]
    }

    /// What the policy to export selects its actions by; `None` where its head is all it takes.
    fn selector(&self) -> Option<Selector> {
        None
    }
}
