//! Behaviour cloning: the policy that made the log, by maximum likelihood (`eq:weighted_bc` with `w = 1`).

mod learner;

use crate::TrainError;
use crate::learner::Learner;
use crate::problem::Problem;
use crate::registry::{Algorithm, Entry};

pub(crate) const ENTRY: Entry = Entry {
    algorithm: Algorithm::Bc,
    name: "bc",
    summary: "behaviour cloning: the policy that made the log",
    keeps_limits: false,
    build,
};

fn build(problem: &Problem<'_>) -> Result<Box<dyn Learner>, TrainError> {
    Ok(Box::new(learner::BcLearner::new(problem)?))
}
