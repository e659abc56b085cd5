//! Collecting logs: pools of policies of an online learner, and what is made from them.

pub(crate) mod pool;
