//! A log mixed from the policies of a pool.
//!
//! The paper's data sets of the real-world suite hold a share `beta` of episodes of policies that keep the cost limit and
//! for the rest episodes of policies that do not. Whether a policy keeps it is read from the pool, where it was measured.
//! Within each part every policy gets the same number of episodes, up to one that the seed decides; the order is the
//! seed's. An episode is a function of the seed, its number and its policy.

use std::path::Path;
use std::sync::OnceLock;
use std::time::Instant;

use coptidice_agents::policy::{Acting, Actor};
use coptidice_core::rng::Rng;
use coptidice_data::{LogWriter, WriteOptions};
use coptidice_sim::{CollectedLog, EnvOptions, Environment, Episodes, PerRow, record_episodes};
use serde::Serialize;

use super::pool::{Member, Pool};
use crate::failure::Failure;
use crate::progress::Progress;
use crate::simulate::check_fit;

mod plan;
mod tally;

use plan::Plan;
pub(crate) use tally::Part;
use tally::Tally;

/// Episodes that are written together.
const TOGETHER: usize = 64;

/// What to mix.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Request {
    /// Number of episodes.
    pub(crate) episodes: usize,
    /// Share of the episodes of policies that keep the limit, in `[0, 1]`.
    pub(crate) beta: f64,
    /// Average cost per step that a policy keeps if none of its costs exceeds it.
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
    /// Share of the episodes of policies that keep the limit, as asked for.
    pub(crate) beta: f64,
    /// The limit, average cost per step.
    pub(crate) limit: f64,
    /// Names of the costs, `[K]`.
    pub(crate) costs: Vec<String>,
    /// Of policies that keep the limit.
    pub(crate) safe: Part,
    /// Of policies that do not.
    #[serde(rename = "unsafe")]
    pub(crate) unsafe_: Part,
    /// Steps of all episodes.
    pub(crate) transitions: usize,
    /// Size of the file.
    pub(crate) bytes: u64,
    /// Seconds that it took.
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
    /// Number of its episodes.
    pub(crate) episodes: usize,
}

/// Acts as the policy that an episode is of.
struct Player<'a> {
    /// Of each member of the pool that has an episode.
    actors: &'a [Option<Actor>],
    members: &'a [usize],
    actor: Option<Actor>,
    failed: &'a OnceLock<String>,
}

impl coptidice_sim::Actor for Player<'_> {
    fn begin_episode(&mut self, episode: u64, _: &[f32], _: &mut Rng) {
        self.actor.clone_from(&self.actors[self.members[episode as usize]]);
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
    let counts = plan.counts();
    let actors = load(pool, folder, env, &counts, request.acting)?;
    let mut writer = LogWriter::create(out, options).map_err(|error| Failure::input(&error))?;
    let failed = OnceLock::new();
    let source = PerRow(|| Player { actors: &actors, members: &plan.members, actor: None, failed: &failed });
    let mut progress = Progress::new(request.episodes as u64, "episodes");
    let mut tally = Tally::new(pool.costs.len(), request.limit);
    let mut log = CollectedLog::new(env.spec())?;
    let episodes = Episodes::new(request.episodes, request.seed);
    let recorded = record_episodes(env, &source, episodes, |episode, record| {
        tally.add(plan.is_safe(episode as usize), record);
        log.push(record)?;
        let done = episode as usize + 1;
        if done.is_multiple_of(TOGETHER) || done == request.episodes {
            let part = std::mem::replace(&mut log, CollectedLog::new(env.spec())?).finish()?;
            writer.append(&part).map_err(|error| Failure::work(&error))?;
        }
        progress.set(done as u64, String::new);
        Ok::<(), Failure>(())
    });
    if let Some(message) = failed.into_inner() {
        return Err(Failure::work_because(
            format!("a policy could not act: {message}"),
            "the pool's policies do not fit this environment's observations",
        ));
    }
    recorded?;
    let written = writer.finish().map_err(|error| Failure::work(&error))?;
    progress.finish();
    let bytes = std::fs::metadata(out).map_err(|error| Failure::writing(out, &error))?.len();
    let share = |(member, &episodes): (usize, &usize)| Share {
        policy: pool.members[member].policy.clone(),
        keeps_limit: plan.keeps[member],
        episodes,
    };
    let policies: Vec<Share> =
        counts.iter().enumerate().filter(|&(_, &count)| count > 0).map(share).collect();
    let policies_of = |safe| policies.iter().filter(|share| share.keeps_limit == safe).count();
    Ok(Mixture {
        environment: pool.environment.clone(),
        options: pool.options.clone(),
        seed: request.seed,
        beta: request.beta,
        limit: request.limit,
        costs: pool.costs.clone(),
        safe: tally.part(true, policies_of(true)),
        unsafe_: tally.part(false, policies_of(false)),
        transitions: written.transitions,
        bytes,
        seconds: start.elapsed().as_secs_f64(),
        policies,
    })
}

/// The actors of all members that have an episode.
fn load(
    pool: &Pool,
    folder: &Path,
    env: &dyn Environment,
    counts: &[usize],
    acting: Acting,
) -> Result<Vec<Option<Actor>>, Failure> {
    let actor = |(member, &count): (&Member, &usize)| {
        if count == 0 {
            return Ok(None);
        }
        let policy = crate::policies::load(&member.policy_path(folder))?;
        check_fit(&policy, env)?;
        let acting = crate::policies::check(&policy, acting)?;
        Ok(Some(policy.actor_with(acting)))
    };
    pool.members.iter().zip(counts).map(actor).collect()
}

#[cfg(test)]
mod tests;
