//! Off-policy evaluation: what a policy would earn and cost, estimated from logs of another one.
//!
//! Nothing here knows how a policy was made. Callers hand over transitions and the policy's actions at their states;
//! see [`fqe`].

pub mod fqe;
