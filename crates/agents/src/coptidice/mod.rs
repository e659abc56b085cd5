//! COptiDICE: most reward near the log, with an upper bound of each cost under its limit (the paper's section 3).
//! With `epsilon = 0` no bound is trained and the plain estimate of the cost is constrained instead.

mod figures;
mod learner;
pub mod losses;
mod multipliers;

pub(crate) use learner::{Constraint, DiceLearner};

use crate::TrainError;
use crate::learner::Learner;
use crate::problem::Problem;
use crate::registry::{Algorithm, Entry};

pub(crate) const ENTRY: Entry = Entry {
    algorithm: Algorithm::Coptidice,
    name: "coptidice",
    summary: "most reward near the log, with an upper bound of each cost under its limit",
    keeps_limits: true,
    build,
};

fn build(problem: &Problem<'_>) -> Result<Box<dyn Learner>, TrainError> {
    let constraint = if problem.config.epsilon > 0.0 { Constraint::UpperBound } else { Constraint::Plain };
    Ok(Box::new(DiceLearner::new(problem, constraint)?))
}
