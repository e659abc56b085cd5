//! The two kinds of linear system that the solvers meet, each dense or sparse by size.
//!
//! * [`spd`]: symmetric positive definite normal matrices of the Newton methods, with a small border.
//! * [`flow`]: `(I − γP_π)x = b` and its transpose.

pub(crate) mod flow;
pub(crate) mod spd;

/// Largest number of states for which matrices are held dense. A dense Cholesky factor of this order takes about
/// 20 ms on one core; the fill-in of a random sparse graph makes sparse factors no cheaper below it.
pub(crate) const DENSE_LIMIT: usize = 1200;
