//! Collecting logs: pools of policies of an online learner, and what is made from them.

pub(crate) mod curves;
pub(crate) mod mix;
pub(crate) mod pool;
mod simulator;
pub(crate) mod training;
