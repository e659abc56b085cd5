//! OptiDICE: most reward near the log. It is COptiDICE with `lambda = 0` (`eq:min_objective`); costs are reported.

use crate::TrainError;
use crate::coptidice::{Constraint, DiceLearner};
use crate::learner::Learner;
use crate::problem::Problem;
use crate::registry::{Algorithm, Entry};

pub(crate) const ENTRY: Entry = Entry {
    algorithm: Algorithm::Optidice,
    name: "optidice",
    summary: "most reward near the log; costs are reported and not constrained",
    keeps_limits: false,
    build,
};

fn build(problem: &Problem<'_>) -> Result<Box<dyn Learner>, TrainError> {
    Ok(Box::new(DiceLearner::new(problem, Constraint::None)?))
}
