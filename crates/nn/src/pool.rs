//! Threads. Work is split at boundaries that depend on shapes alone; a pool only decides who does which part, so
//! results are the same bits for any number of threads.

use crate::{NnError, product};

/// A fixed set of threads, separate from any other pool of the process.
///
/// With one thread, work runs on the caller's thread. Otherwise entering the pool from outside costs a hand-over
/// (tens of microseconds); a caller that makes many small calls wraps them in one [`Pool::install`].
#[derive(Debug)]
pub struct Pool {
    threads: usize,
    pool: Option<rayon::ThreadPool>,
}

impl Pool {
    /// Starts `threads` threads.
    ///
    /// # Errors
    /// [`NnError::NoThreads`] for 0, [`NnError::Threads`] if the system refuses.
    pub fn new(threads: usize) -> Result<Self, NnError> {
        if threads == 0 {
            return Err(NnError::NoThreads);
        }
        let pool = if threads == 1 {
            None
        } else {
            let built = rayon::ThreadPoolBuilder::new()
                .num_threads(threads)
                .thread_name(|index| format!("nn-{index}"))
                .build()
                .map_err(|error| NnError::Threads { threads, reason: error.to_string() })?;
            // Nothing is left to allocate in the first step.
            built.broadcast(|_| product::prepare_thread());
            Some(built)
        };
        Ok(Self { threads, pool })
    }

    /// The number of threads.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Runs `work` inside the pool: calls made from within need no hand-over.
    pub fn install<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        match &self.pool {
            None => work(),
            Some(pool) => pool.install(work),
        }
    }

    /// Runs both, in parallel if there are threads for it.
    pub(crate) fn join<A: Send, B: Send>(
        &self,
        left: impl FnOnce() -> A + Send,
        right: impl FnOnce() -> B + Send,
    ) -> (A, B) {
        match &self.pool {
            None => (left(), right()),
            Some(pool) => {
                if pool.current_thread_index().is_some() {
                    rayon::join(left, right)
                } else {
                    pool.install(|| rayon::join(left, right))
                }
            }
        }
    }
}
