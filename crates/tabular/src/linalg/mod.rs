//! The two kinds of linear system that the solvers meet, each dense or sparse by size.
//!
//! * [`spd`]: symmetric positive definite normal matrices of the Newton methods, with a small border.
//! * [`flow`]: `(I − γP_π)x = b` and its transpose.

pub(crate) mod flow;
pub(crate) mod spd;

/// Largest number of states for which matrices are held dense. On the pattern of a random CMDP's dual, 4 actions with 4
/// successors each, dense factors are faster than sparse ones below 800 states, 2 to 4 times up to 400, and equal
/// above, where fill-in makes the sparse ones nearly full (`spd::tests::dense_or_sparse` prints the times). Above it
/// memory decides: a dense matrix of this order takes 11 MB.
pub(crate) const DENSE_LIMIT: usize = 1200;

/// Milliseconds of `run`: the median of nine.
#[cfg(test)]
fn median_milliseconds(mut run: impl FnMut()) -> f64 {
    let mut times = [(); 9].map(|()| {
        let start = std::time::Instant::now();
        run();
        1e3 * start.elapsed().as_secs_f64()
    });
    times.sort_by(f64::total_cmp);
    times[4]
}
