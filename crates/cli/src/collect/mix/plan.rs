//! Which policy acts in which episode of a mixture.

use coptidice_core::rng::stream;
use rand::seq::SliceRandom;

use super::Request;
use crate::collect::pool::{Member, Pool};
use crate::failure::Failure;

/// Which policy acts in which episode: a function of the pool and the request.
#[derive(Debug, PartialEq)]
pub(super) struct Plan {
    /// Of each episode the member of the pool.
    pub(super) members: Vec<usize>,
    /// Of each member whether it keeps the limit.
    pub(super) keeps: Vec<bool>,
}

impl Plan {
    /// Draws it; the numbers of both parts are exact.
    pub(super) fn draw(pool: &Pool, request: &Request) -> Result<Self, Failure> {
        let &Request { episodes, beta, limit, seed, .. } = request;
        let keeps: Vec<bool> = pool.members.iter().map(|member| member.keeps(limit)).collect();
        let safe = (beta * episodes as f64).round() as usize;
        let mut members = Vec::with_capacity(episodes);
        for (part, (count, kept)) in [(safe, true), (episodes - safe, false)].into_iter().enumerate() {
            let mut group: Vec<usize> = (0..keeps.len()).filter(|&member| keeps[member] == kept).collect();
            if group.is_empty() && count > 0 {
                return Err(nobody(pool, limit, kept));
            }
            group.shuffle(&mut stream(seed, "mix policies", part as u64));
            members.extend(group.into_iter().cycle().take(count));
        }
        members.shuffle(&mut stream(seed, "mix order", 0));
        Ok(Plan { members, keeps })
    }

    /// Of each member of the pool the number of its episodes.
    pub(super) fn counts(&self) -> Vec<usize> {
        let mut counts = vec![0; self.keeps.len()];
        self.members.iter().for_each(|&member| counts[member] += 1);
        counts
    }

    /// Whether an episode is of a policy that keeps the limit.
    pub(super) fn is_safe(&self, episode: usize) -> bool {
        self.keeps[self.members[episode]]
    }
}

/// The pool has no policy for one of the parts.
fn nobody(pool: &Pool, limit: f64, kept: bool) -> Failure {
    let worst = |member: &Member| member.cost_per_step.iter().copied().fold(0.0, f64::max);
    let costs = || pool.members.iter().map(worst);
    if pool.members.is_empty() {
        return Failure::usage("the pool has no policies", "collect a pool first");
    }
    if kept {
        let least = costs().fold(f64::INFINITY, f64::min);
        Failure::usage(
            format!("no policy of the pool keeps {limit} per step: the least cost is {least:.4}"),
            "raise --limit, choose --beta 0, or train the pool longer or under lower limits",
        )
    } else {
        let most = costs().fold(0.0, f64::max);
        Failure::usage(
            format!("every policy of the pool keeps {limit} per step: the largest cost is {most:.4}"),
            "lower --limit, choose --beta 1, or train the pool under higher limits",
        )
    }
}
