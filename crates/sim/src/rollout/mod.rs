//! Episodes of an environment under a policy, several at once, with results that do not depend on how many
//! threads there are.
//!
//! Episode `i` of a seed draws its start (and whatever else the environment draws) from the stream `(seed,
//! "episode", i)` and its actions from `(seed, "actor", i)`. So an episode is a function of the seed, its
//! number and the actor, two actors meet the same starts, and results are gathered in the order of episodes.
//!
//! Each thread runs up to 64 episodes *in step*: one step of each, then the next of each. Who acts is asked once for all of
//! them ([`Crew`]), so that a network serves them in one pass. How many run in step follows from the number of threads, and
//! may not show in the result: what a crew does in one row depends on no other.

mod actors;
mod convoy;
mod lane;

use rayon::prelude::*;

pub use actors::{Actor, Crew, CrewSource, OneByOne, PerRow, PerThread};
use convoy::Convoy;
pub use lane::EpisodeRunner;

use crate::env::Environment;
use crate::error::SimError;

/// Which episodes to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Episodes {
    /// How many.
    pub count: usize,
    /// Seed.
    pub seed: u64,
    /// Number of the first; others follow. Lets a run be split without changing it.
    pub first: u64,
}

impl Episodes {
    /// Episodes `0..count`.
    #[must_use]
    pub fn new(count: usize, seed: u64) -> Self {
        Episodes { count, seed, first: 0 }
    }
}

/// One step as it happened.
#[derive(Clone, Copy, Debug)]
pub struct StepView<'a> {
    /// Number of the step in its episode, from 0.
    pub step: usize,
    /// `s`, `[O]`.
    pub observation: &'a [f32],
    /// The action applied, clipped: `[A]`, or an id in one component.
    pub action: &'a [f32],
    /// Reward.
    pub reward: f64,
    /// Costs of `s`, `[K]`: [`crate::CostTiming::Before`].
    pub costs_before: &'a [f64],
    /// Costs of `s'`, `[K]`: [`crate::CostTiming::After`].
    pub costs_after: &'a [f64],
    /// `s'`, `[O]`.
    pub next_observation: &'a [f32],
    /// The process ended in `s'`.
    pub terminal: bool,
    /// The episode was cut here by the horizon, without a terminal.
    pub timeout: bool,
}

/// Collects what is wanted of one episode.
pub trait EpisodeSink: Send {
    /// Takes a step.
    fn step(&mut self, step: &StepView<'_>);
}

/// The most episodes that run in step: enough to fill the matrix products of a policy, few enough that their environments
/// stay in the processor's caches.
const MOST_IN_STEP: usize = 64;

/// How many episodes run in step, at most, where `count` are to run on `threads` threads: no thread has nothing to do as
/// long as there are episodes for all.
fn in_step(count: usize, threads: usize) -> usize {
    let parts = count.div_ceil(MOST_IN_STEP).next_multiple_of(threads.max(1));
    count.div_ceil(parts)
}

/// Runs episodes on all threads of the current rayon pool, several of them in step on each, and returns one sink for each,
/// in order. `sink` gets the number of the episode.
///
/// # Errors
/// [`SimError::NoEpisodes`], or the error of the first episode that failed.
pub fn run_episodes<S: EpisodeSink>(
    env: &dyn Environment,
    crews: &impl CrewSource,
    episodes: Episodes,
    sink: impl Fn(u64) -> S + Sync,
) -> Result<Vec<S>, SimError> {
    if episodes.count == 0 {
        return Err(SimError::NoEpisodes);
    }
    let rows = in_step(episodes.count, rayon::current_num_threads());
    let parts: Vec<Vec<Result<S, SimError>>> = (0..episodes.count.div_ceil(rows))
        .into_par_iter()
        .map_init(
            || Convoy::new(env, rows, crews.crew(rows)),
            |convoy, part| {
                let from = part * rows;
                let first = episodes.first + from as u64;
                let count = rows.min(episodes.count - from);
                let sinks = (first..first + count as u64).map(&sink).collect();
                convoy.run(Episodes { count, first, ..episodes }, sinks)
            },
        )
        .collect();
    parts.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::in_step;

    #[test]
    fn episodes_are_shared_out_evenly() {
        for (count, threads, expected) in [
            (1, 1, 1),
            (1, 8, 1),
            (10, 2, 5),
            (64, 1, 64),
            (65, 1, 33),
            (130, 2, 33),
            (1000, 2, 63),
            (7, 3, 3),
        ] {
            assert_eq!(in_step(count, threads), expected, "{count} on {threads}");
        }
    }
}
