//! Logs of hazard navigation with a stated share of safe episodes.

use coptidice_core::rng::{Rng, stream};
use coptidice_data::Transitions;
use rand::RngExt;
use rayon::prelude::*;

use super::controllers::{Controller, Route, Side};
use super::env::HazardNavigation;
use super::map::{HazardMap, Span};
use crate::collect::{CollectedLog, EpisodeRecord};
use crate::env::Environment;
use crate::error::SimError;
use crate::rollout::{EpisodeRunner, EpisodeSink};

/// An episode is safe if its mean cost per step is at most this.
pub const SAFE_COST_PER_STEP: f64 = HazardNavigation::DEFAULT_LIMIT;

/// Of the controllers meant to be safe, this share wanders and the others go around.
const WANDER_SHARE: f64 = 0.25;
/// Of those that go around, this share takes the side on which it starts.
const NEARER_SIDE_SHARE: f64 = 0.9;
/// Of the controllers not meant to be safe, this share goes straight through and the others cut the corner.
const THROUGH_SHARE: f64 = 0.7;
const SAFE_CLEARANCE: Span = Span { low: 0.15, high: 0.45 };
const CUTTING_CLEARANCE: Span = Span { low: -0.9, high: -0.1 };
const SPEED: Span = Span { low: 0.8, high: 2.0 };
const WANDER_SPEED: Span = Span { low: 0.4, high: 1.2 };
const NOISE: Span = Span { low: 0.1, high: 0.3 };

/// Draws a controller for an episode that starts at height `start_y`, in m.
///
/// Meant to be safe: around the hazard, nine times in ten on the side where it starts, or wandering before it.
/// Not meant to be safe: straight through, or cutting the corner through the hazard. Speeds and noise vary.
#[must_use]
pub fn log_controller(map: HazardMap, meant_safe: bool, start_y: f64, rng: &mut Rng) -> Controller {
    let mut draw = |span: Span| span.at(rng.random());
    let share = Span { low: 0.0, high: 1.0 };
    let nearer = Side::of(start_y);
    let side = if draw(share) < NEARER_SIDE_SHARE { nearer } else { nearer.opposite() };
    let (route, speed) = if meant_safe && draw(share) < WANDER_SHARE {
        (Route::Wander, draw(WANDER_SPEED))
    } else if meant_safe {
        (Route::Around { side, clearance: draw(SAFE_CLEARANCE) }, draw(SPEED))
    } else if draw(share) < THROUGH_SHARE {
        (Route::Through, draw(SPEED))
    } else {
        (Route::Around { side, clearance: draw(CUTTING_CLEARANCE) }, draw(SPEED))
    };
    Controller::new(map, route, speed, draw(NOISE))
}

/// A log of `episodes` episodes of which a share `share_safe`, rounded to whole episodes, costs at most
/// [`SAFE_COST_PER_STEP`]. Safe and unsafe ones are spread evenly. Episode `i` is a function of the seed and
/// `i` alone.
///
/// # Errors
/// If the share is not between 0 and 1, or no episode is asked for.
pub fn logs(share_safe: f64, episodes: usize, seed: u64) -> Result<Transitions, SimError> {
    if !(0.0..=1.0).contains(&share_safe) {
        return Err(SimError::Share(share_safe));
    }
    if episodes == 0 {
        return Err(SimError::NoEpisodes);
    }
    let env = HazardNavigation::new();
    let safe = (share_safe * episodes as f64).round() as usize;
    let is_safe = |i: usize| (i + 1) * safe / episodes > i * safe / episodes;
    let records: Vec<Result<EpisodeRecord, SimError>> = (0..episodes)
        .into_par_iter()
        .map_init(
            || EpisodeRunner::new(&env),
            |runner, i| record_episode(&env, runner, is_safe(i), seed, i as u64),
        )
        .collect();
    let mut log = CollectedLog::new(env.spec())?;
    for record in records {
        log.push(&record?)?;
    }
    log.finish()
}

/// Runs controllers until an episode is as safe as wanted. Most first attempts are: those that go through never
/// are safe, and those that go around or wander are more often than not.
fn record_episode(
    env: &HazardNavigation,
    runner: &mut EpisodeRunner,
    safe: bool,
    seed: u64,
    index: u64,
) -> Result<EpisodeRecord, SimError> {
    let mut starts = stream(seed, "hazard-log-start", index);
    let mut actions = stream(seed, "hazard-log-action", index);
    loop {
        let mut record = EpisodeRecord::new(env.spec());
        let mut actor = LoggedActor { map: *env.map(), meant_safe: safe, controller: None };
        runner.run(index, &mut actor, &mut starts, &mut actions, |step| record.step(step))?;
        if (record.mean_cost(0) <= SAFE_COST_PER_STEP) == safe {
            return Ok(record);
        }
    }
}

/// Draws its controller once it sees where it starts.
struct LoggedActor {
    map: HazardMap,
    meant_safe: bool,
    controller: Option<Controller>,
}

impl crate::rollout::Actor for LoggedActor {
    fn begin_episode(&mut self, episode: u64, observation: &[f32], rng: &mut Rng) {
        let controller = log_controller(self.map, self.meant_safe, f64::from(observation[1]), rng);
        self.controller.insert(controller).begin_episode(episode, observation, rng);
    }

    fn act(&mut self, observation: &[f32], rng: &mut Rng, action: &mut [f32]) {
        if let Some(controller) = &mut self.controller {
            controller.act(observation, rng, action);
        }
    }
}
