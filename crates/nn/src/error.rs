//! What can be wrong with a network's description or a pool's size. Shapes of buffers are the caller's contract
//! and are asserted; each method says so.

use thiserror::Error;

/// A network or thread pool that cannot be built.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum NnError {
    /// A layer with no units, or a network without inputs or outputs.
    #[error("{place} of the network has width 0; give it at least 1")]
    ZeroWidth {
        /// `input`, `output` or `block N`.
        place: String,
    },
    /// More parameters than can be addressed (or would sensibly be trained on one machine).
    #[error("the network would have more than {limit} parameters at {place}; make its layers narrower")]
    TooLarge {
        /// Where the count passed the limit.
        place: String,
        /// The largest number of parameters accepted.
        limit: usize,
    },
    /// The processor does not have the precision.
    #[error("this processor lacks AVX512-BF16, which products in bf16 need; use f32")]
    NoBf16,
    /// A pool of no threads.
    #[error("a pool needs at least 1 thread, 0 were asked for")]
    NoThreads,
    /// The operating system refused to start the threads.
    #[error("could not start {threads} threads: {reason}; ask for fewer")]
    Threads {
        /// The number asked for.
        threads: usize,
        /// What the system said.
        reason: String,
    },
}
