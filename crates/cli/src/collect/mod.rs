//! Collecting logs: pools of policies of an online learner, and what is made from them.

pub(crate) mod mix;
#[cfg_attr(not(test), expect(dead_code, reason = "pools are read here; what makes them comes later"))]
pub(crate) mod pool;
