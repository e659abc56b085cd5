//! Exact solvers on finite constrained Markov decision processes.
//!
//! | module | what it solves |
//! |---|---|
//! | [`evaluation`] | value and occupancy of a policy |
//! | [`policy_iteration`] | the best policy without limits |
//! | [`lp`] | the CMDP linear program |
//! | [`counts`] | maximum-likelihood CMDP from counts |
//! | [`case`] | one stored case, read, solved, evaluated |
//! | [`dice`] | OptiDICE, COptiDICE, the cost bound |
//!
//! All values and occupancies are `(1−γ)`-normalised, averages per step. Solvers return an [`Outcome`] and a
//! [`Certificate`] with their answer; errors are for inputs that pose no problem at all.

pub mod case;
pub mod counts;
pub mod dice;
pub mod evaluation;
mod linalg;
pub mod lp;
mod outcome;
pub mod policy_iteration;

pub use counts::Counts;
pub use evaluation::{Evaluation, Evaluator, evaluate};
pub use outcome::{Certificate, Outcome};
pub use policy_iteration::{OptimalPolicy, optimal_policy};
