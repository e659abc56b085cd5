//! A log mixed from the policies of a pool.
//!
//! The paper's data sets of the real-world suite hold a share `beta` of constraint-satisfying trajectories, and for the
//! rest trajectories that violate the constraint, sampled by the policies of a pool. What counts is the episode's own cost:
//! a policy that keeps a limit on average exceeds it in some. For the one part policies are tried that were measured within
//! the limit in the pool, for the other those that were not, by turns, each up to ten times until an episode is on the
//! right side. A policy of which hardly any episode is, is given up, and where none is left the others are tried. The order
//! is the seed's. An episode is a function of the seed, its number among all that were tried, and its policy.

use std::ops::Range;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Instant;

use coptidice_agents::policy::{Acting, Actor};
use coptidice_core::rng::Rng;
use coptidice_data::{LogWriter, WriteOptions};
use coptidice_sim::{CollectedLog, EnvOptions, Environment, EpisodeRecord, Episodes, PerRow, run_episodes};
use serde::Serialize;

use super::pool::{Member, Pool};
use crate::failure::Failure;
use crate::progress::Progress;
use crate::simulate::check_fit;

mod plan;
mod tally;

use plan::{Plan, Trials};
pub(crate) use tally::Part;
use tally::Tally;

/// Episodes that are written together.
const TOGETHER: usize = 64;

/// What to mix.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Request {
    /// Number of episodes.
    pub(crate) episodes: usize,
    /// Share of the episodes that keep the limit, in `[0, 1]`.
    pub(crate) beta: f64,
    /// Average cost per step that an episode keeps if none of its costs exceeds it.
    pub(crate) limit: f64,
    /// Seed of everything that is drawn.
    pub(crate) seed: u64,
    /// How policies act.
    pub(crate) acting: Acting,
}

/// What was mixed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Mixture {
    /// The environment.
    pub(crate) environment: String,
    /// Its parameters.
    pub(crate) options: EnvOptions,
    /// Seed.
    pub(crate) seed: u64,
    /// Share of the episodes that keep the limit, as asked for.
    pub(crate) beta: f64,
    /// The limit, average cost per step.
    pub(crate) limit: f64,
    /// Names of the costs, `[K]`.
    pub(crate) costs: Vec<String>,
    /// Episodes that keep the limit.
    pub(crate) safe: Part,
    /// Episodes that do not.
    #[serde(rename = "unsafe")]
    pub(crate) unsafe_: Part,
    /// Episodes that were run, those left out for being on the wrong side of the limit included.
    pub(crate) tried: usize,
    /// Steps of all episodes.
    pub(crate) transitions: usize,
    /// Size of the file.
    pub(crate) bytes: u64,
    /// Seconds that it took; no matter of the log.
    #[serde(skip)]
    pub(crate) seconds: f64,
    /// The policies that act.
    pub(crate) policies: Vec<Share>,
}

/// What one policy has of the episodes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Share {
    /// Its file in the pool.
    pub(crate) policy: String,
    /// Whether it keeps the limit, as measured in the pool.
    pub(crate) keeps_limit: bool,
    /// Number of its episodes that do.
    #[serde(rename = "safe")]
    pub(crate) safe: usize,
    /// Number of its episodes that do not.
    #[serde(rename = "unsafe")]
    pub(crate) unsafe_: usize,
}

/// Acts as the policy that an episode is of.
struct Player<'a> {
    /// Of each member of the pool that may act.
    actors: &'a [Option<Actor>],
    /// Of the episodes from `first` on.
    members: &'a [usize],
    first: u64,
    actor: Option<Actor>,
    failed: &'a OnceLock<String>,
}

impl coptidice_sim::Actor for Player<'_> {
    fn begin_episode(&mut self, episode: u64, _: &[f32], _: &mut Rng) {
        self.actor.clone_from(&self.actors[self.members[(episode - self.first) as usize]]);
    }

    fn act(&mut self, observation: &[f32], rng: &mut Rng, action: &mut [f32]) {
        let Some(actor) = &mut self.actor else { return };
        if let Err(error) = actor.act(observation, rng, action) {
            let _ = self.failed.set(error.to_string());
            // No action: the episode ends here.
            action.fill(f32::NAN);
        }
    }
}

/// Rolls the policies of the pool in `folder` out, on the threads of the current rayon pool, and writes the log to `out`
/// as it comes about.
pub(crate) fn mix(
    pool: &Pool,
    folder: &Path,
    env: &dyn Environment,
    request: &Request,
    out: &Path,
    options: &WriteOptions,
) -> Result<Mixture, Failure> {
    let start = Instant::now();
    let plan = Plan::draw(pool, request)?;
    let mut actors =
        Actors { pool, folder, env, acting: request.acting, loaded: vec![None; pool.members.len()] };
    let mut trials = Trials::new(pool.members.len());
    let mut writer = LogWriter::create(out, options).map_err(|error| Failure::input(&error))?;
    let mut progress = Progress::new(request.episodes as u64, "episodes");
    let mut tally = Tally::new(pool.costs.len());
    for start in (0..request.episodes).step_by(TOGETHER) {
        let end = request.episodes.min(start + TOGETHER);
        let found = fill(&plan, &mut actors, request, start..end, &mut trials)?;
        let mut log = CollectedLog::new(env.spec())?;
        for (place, record) in (start..end).zip(&found) {
            tally.add(plan.places[place].0, record);
            log.push(record)?;
        }
        writer.append(&log.finish()?).map_err(|error| Failure::work(&error))?;
        progress.set(end as u64, String::new);
    }
    let written = writer.finish().map_err(|error| Failure::work(&error))?;
    progress.finish();
    let bytes = std::fs::metadata(out).map_err(|error| Failure::writing(out, &error))?.len();
    let share = |(number, member): (usize, &Member)| Share {
        policy: member.policy.clone(),
        keeps_limit: member.keeps(request.limit),
        safe: trials.served(number, true),
        unsafe_: trials.served(number, false),
    };
    let shares = pool.members.iter().enumerate().map(share);
    let policies: Vec<Share> = shares.filter(|share| share.safe + share.unsafe_ > 0).collect();
    let policies_of = |part: fn(&Share) -> usize| policies.iter().filter(|share| part(share) > 0).count();
    Ok(Mixture {
        environment: pool.environment.clone(),
        options: pool.options.clone(),
        seed: request.seed,
        beta: request.beta,
        limit: request.limit,
        costs: pool.costs.clone(),
        safe: tally.part(true, policies_of(|share| share.safe)),
        unsafe_: tally.part(false, policies_of(|share| share.unsafe_)),
        tried: trials.tried(),
        transitions: written.transitions,
        bytes,
        seconds: start.elapsed().as_secs_f64(),
        policies,
    })
}

/// Runs episodes until every one of `places` has one on its side of the limit, and gives these in order.
fn fill(
    plan: &Plan,
    actors: &mut Actors<'_>,
    request: &Request,
    places: Range<usize>,
    trials: &mut Trials,
) -> Result<Vec<EpisodeRecord>, Failure> {
    let (pool, env) = (actors.pool, actors.env);
    let mut found: Vec<Option<EpisodeRecord>> = places.clone().map(|_| None).collect();
    let mut open: Vec<usize> = places.clone().collect();
    for k in 0.. {
        let members = open.iter().map(|&place| {
            let nothing = || plan::nothing(pool, trials, request.limit, plan.places[place].0);
            plan.member(trials, place, k).ok_or_else(nothing)
        });
        let members = members.collect::<Result<Vec<usize>, Failure>>()?;
        let actors = actors.of(&members)?;
        let first = trials.tried() as u64;
        let failed = OnceLock::new();
        let player = || Player { actors, members: &members, first, actor: None, failed: &failed };
        let episodes = Episodes { first, ..Episodes::new(open.len(), request.seed) };
        let records = run_episodes(env, &PerRow(player), episodes, |_| EpisodeRecord::new(env.spec()));
        if let Some(message) = failed.into_inner() {
            return Err(Failure::work_because(
                format!("a policy could not act: {message}"),
                "the pool's policies do not fit this environment's observations",
            ));
        }
        let mut left = Vec::new();
        for ((place, member), record) in open.into_iter().zip(members).zip(records?) {
            let keeps = (0..pool.costs.len()).all(|cost| record.mean_cost(cost) <= request.limit);
            let safe = plan.places[place].0;
            trials.note(member, safe, keeps == safe);
            if keeps == safe {
                found[place - places.start] = Some(record);
            } else {
                left.push(place);
            }
        }
        if left.is_empty() {
            break;
        }
        open = left;
    }
    Ok(found.into_iter().flatten().collect())
}

/// The actors of a pool's policies, loaded when they are first wanted.
struct Actors<'p> {
    pool: &'p Pool,
    folder: &'p Path,
    env: &'p dyn Environment,
    acting: Acting,
    /// Of each member of the pool.
    loaded: Vec<Option<Actor>>,
}

impl Actors<'_> {
    /// Of all members, with those of `members` there.
    fn of(&mut self, members: &[usize]) -> Result<&[Option<Actor>], Failure> {
        for &member in members {
            if self.loaded[member].is_none() {
                let policy = crate::policies::load(&self.pool.members[member].policy_path(self.folder))?;
                check_fit(&policy, self.env)?;
                let acting = crate::policies::check(&policy, self.acting)?;
                self.loaded[member] = Some(policy.actor_with(acting));
            }
        }
        Ok(&self.loaded)
    }
}

#[cfg(test)]
mod tests;
