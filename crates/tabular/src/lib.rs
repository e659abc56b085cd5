//! Exact solvers on finite constrained Markov decision processes.
//!
//! | module | what it solves |
//! |---|---|
//! | [`evaluation`] | value and occupancy of a policy |
//! | [`policy_iteration`] | the best policy without limits |
//! | [`lp`] | the CMDP linear program |
//! | [`counts`] | maximum-likelihood CMDP from counts |
//! | [`case`] | one stored case, read, solved, evaluated |
//! | [`generate`] | random CMDPs, behaviour policies, trajectories |
//! | [`baselines`] | what the paper compares with; CoinDICE and bootstrap bounds |
//! | [`experiments`] | the paper's experiments on random CMDPs |
//! | [`from_logs`] | a policy from the logs of a finite CMDP |
//! | [`dice`] | OptiDICE, COptiDICE, the cost bound |
//!
//! All values and occupancies are `(1−γ)`-normalised, averages per step. Solvers return an [`Outcome`] and a
//! [`Certificate`] with their answer; errors are for inputs that pose no problem at all.

pub mod baselines;
pub mod case;
pub mod counts;
pub mod dice;
pub mod evaluation;
pub mod experiments;
pub mod from_logs;
pub mod generate;
mod linalg;
pub mod lp;
mod outcome;
pub mod policy_iteration;

pub use counts::Counts;
pub use evaluation::{Evaluation, Evaluator, evaluate};
pub use outcome::{Certificate, Outcome};
pub use policy_iteration::{OptimalPolicy, optimal_policy};
