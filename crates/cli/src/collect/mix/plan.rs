//! Which episodes a mixture holds, and which policies are tried for them.

use coptidice_core::rng::stream;
use rand::seq::SliceRandom;

use super::Request;
use crate::collect::pool::{Member, Pool};
use crate::failure::Failure;

/// Episodes of one policy that are tried in one place of the log, before another is.
pub(super) const TRIES_EACH: usize = 10;

/// Which places of the log are for episodes that keep the limit, and which policies are tried for them: a function of the
/// pool and the request.
#[derive(Debug, PartialEq)]
pub(super) struct Plan {
    /// Of each place: whether its episode keeps the limit, and its number among those of its part.
    pub(super) places: Vec<(bool, usize)>,
    /// Members of the pool that are tried for either part, in this order: `[does not keep, keeps]`.
    groups: [Vec<usize>; 2],
}

impl Plan {
    /// Draws it; the numbers of both parts are exact.
    pub(super) fn draw(pool: &Pool, request: &Request) -> Result<Self, Failure> {
        let &Request { episodes, beta, limit, seed, .. } = request;
        if pool.members.is_empty() {
            return Err(Failure::usage("the pool has no policies", "collect a pool first"));
        }
        let safe = (beta * episodes as f64).round() as usize;
        let mut places: Vec<(bool, usize)> =
            (0..safe).map(|j| (true, j)).chain((0..episodes - safe).map(|j| (false, j))).collect();
        places.shuffle(&mut stream(seed, "mix order", 0));
        let group = |kept: bool| {
            let all = || 0..pool.members.len();
            let mut group: Vec<usize> = all().filter(|&m| pool.members[m].keeps(limit) == kept).collect();
            if group.is_empty() {
                // Single episodes may still be on the other side of the limit than the policy's mean.
                group = all().collect();
            }
            group.shuffle(&mut stream(seed, "mix policies", u64::from(!kept)));
            group
        };
        Ok(Plan { places, groups: [group(false), group(true)] })
    }

    /// The member of the pool that acts in the `k`-th try for `place`; none where all have been tried.
    pub(super) fn member(&self, place: usize, k: usize) -> Option<usize> {
        let (safe, number) = self.places[place];
        let group = &self.groups[usize::from(safe)];
        let passed = k / TRIES_EACH;
        (passed < group.len()).then(|| group[(number + passed) % group.len()])
    }

    /// Members that may act, ascending.
    pub(super) fn actors(&self) -> Vec<usize> {
        let wanted = |safe: bool| self.places.iter().any(|place| place.0 == safe);
        let groups = [false, true].into_iter().filter(|&safe| wanted(safe));
        let mut members: Vec<usize> =
            groups.flat_map(|safe| self.groups[usize::from(safe)].clone()).collect();
        members.sort_unstable();
        members.dedup();
        members
    }
}

/// None of the episodes that were tried for one part is on its side of the limit.
pub(super) fn nothing(pool: &Pool, limit: f64, safe: bool) -> Failure {
    let worst = |member: &Member| member.cost_per_step.iter().copied().fold(0.0, f64::max);
    let costs = || pool.members.iter().map(worst);
    if safe {
        let least = costs().fold(f64::INFINITY, f64::min);
        Failure::usage(
            format!(
                "no episode within {limit} per step came about in {TRIES_EACH} of every policy: the least cost that the \
                 pool has of one is {least:.4}"
            ),
            "raise --limit, choose --beta 0, or train the pool longer or under lower limits",
        )
    } else {
        let most = costs().fold(0.0, f64::max);
        Failure::usage(
            format!(
                "no episode above {limit} per step came about in {TRIES_EACH} of every policy: the largest cost that the \
                 pool has of one is {most:.4}"
            ),
            "lower --limit, choose --beta 1, or train the pool under higher limits",
        )
    }
}
