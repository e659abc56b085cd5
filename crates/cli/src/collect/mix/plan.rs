//! Which episodes a mixture holds, and which policies are tried for them.

use coptidice_core::rng::stream;
use rand::seq::SliceRandom;

use super::Request;
use crate::collect::pool::{Member, Pool};
use crate::failure::Failure;

/// Episodes of one policy that are tried in one place of the log, before another is.
pub(super) const TRIES_EACH: usize = 10;
/// Episodes of a policy after which it is looked at how many of them a part of the log could use.
pub(super) const TRIES_LEAST: usize = 200;
/// A policy of which fewer than one episode in so many serves a part is not tried for it any more.
const TRIES_PER_EPISODE: usize = 100;

/// Which places of the log are for episodes that keep the limit, and which policies are tried for them: a function of the
/// pool and the request.
#[derive(Debug, PartialEq)]
pub(super) struct Plan {
    /// Of each place: whether its episode keeps the limit, and its number among those of its part.
    pub(super) places: Vec<(bool, usize)>,
    /// Members of the pool that are tried for either part, `[does not keep, keeps]`: those of the part's own side of the
    /// limit, and the others, each in the order in which they are tried.
    groups: [[Vec<usize>; 2]; 2],
}

/// What became of the episodes that were tried.
#[derive(Clone, Debug)]
pub(super) struct Trials {
    /// Of each member of the pool and part, `[does not keep, keeps]`: episodes tried for it, and those that served.
    counts: Vec<[(usize, usize); 2]>,
}

impl Trials {
    /// None yet.
    pub(super) fn new(members: usize) -> Self {
        Trials { counts: vec![[(0, 0); 2]; members] }
    }

    /// Takes note of an episode of `member` that was run for the part of those that keep the limit, or of the others.
    pub(super) fn note(&mut self, member: usize, safe: bool, served: bool) {
        let (tried, hits) = &mut self.counts[member][usize::from(safe)];
        *tried += 1;
        *hits += usize::from(served);
    }

    fn is_hopeless(&self, member: usize, safe: bool) -> bool {
        let (tried, hits) = self.counts[member][usize::from(safe)];
        tried >= TRIES_LEAST && hits * TRIES_PER_EPISODE < tried
    }

    /// Episodes that were tried.
    pub(super) fn tried(&self) -> usize {
        self.of_part(false).0 + self.of_part(true).0
    }

    /// Episodes of `member` that served a part.
    pub(super) fn served(&self, member: usize, safe: bool) -> usize {
        self.counts[member][usize::from(safe)].1
    }

    /// Episodes that were tried for a part, and those that served.
    fn of_part(&self, safe: bool) -> (usize, usize) {
        let counts = self.counts.iter().map(|counts| counts[usize::from(safe)]);
        counts.fold((0, 0), |(tried, hits), (more, hit)| (tried + more, hits + hit))
    }
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
            let side = |own: bool| {
                let members =
                    (0..pool.members.len()).filter(|&m| (pool.members[m].keeps(limit) == kept) == own);
                let mut members: Vec<usize> = members.collect();
                let purpose = if own { "mix policies" } else { "mix other policies" };
                members.shuffle(&mut stream(seed, purpose, u64::from(!kept)));
                members
            };
            [side(true), side(false)]
        };
        Ok(Plan { places, groups: [group(false), group(true)] })
    }

    /// The member of the pool that acts in the `k`-th try for `place`; none where no policy is worth a try any more.
    ///
    /// Single episodes may be on the other side of the limit than the policy's mean, so that the other side's policies
    /// are tried where no other is left.
    pub(super) fn member(&self, trials: &Trials, place: usize, k: usize) -> Option<usize> {
        let (safe, number) = self.places[place];
        let left = |side: &Vec<usize>| -> Vec<usize> {
            side.iter().copied().filter(|&member| !trials.is_hopeless(member, safe)).collect()
        };
        let members = self.groups[usize::from(safe)].iter().map(left).find(|members| !members.is_empty())?;
        Some(members[(number + k / TRIES_EACH) % members.len()])
    }
}

/// No policy of the pool serves a part of the log.
pub(super) fn nothing(pool: &Pool, trials: &Trials, limit: f64, safe: bool) -> Failure {
    let worst = |member: &Member| member.cost_per_step.iter().copied().fold(0.0, f64::max);
    let costs = || pool.members.iter().map(worst);
    let (tried, hits) = trials.of_part(safe);
    let found = format!("{hits} of {tried} episodes, by all {} policies of the pool,", pool.members.len());
    if safe {
        let least = costs().fold(f64::INFINITY, f64::min);
        Failure::usage(
            format!("{found} kept the limit of {limit} per step: the least cost of a policy is {least:.4}"),
            "raise --limit, choose --beta 0, or train the pool longer or under lower limits",
        )
    } else {
        let most = costs().fold(0.0, f64::max);
        Failure::usage(
            format!(
                "{found} were above the limit of {limit} per step: the largest cost of a policy is {most:.4}"
            ),
            "lower --limit, choose --beta 1, or train the pool under higher limits",
        )
    }
}
