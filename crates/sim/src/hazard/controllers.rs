//! The controllers whose behaviour is logged.

use std::f64::consts::FRAC_PI_2;

use coptidice_core::rng::Rng;
use rand::RngExt;
use rand_distr::StandardNormal;
use serde::{Deserialize, Serialize};

use super::map::{HazardMap, Span, distance};
use crate::rollout::Actor;

/// Acceleration per m/s of difference between the wanted and the actual velocity, 1/s.
const TRACKING: f64 = 3.0;
/// The wanted speed near the target is this many 1/s times the distance, so that the controller comes to rest
/// there.
const APPROACH: f64 = 1.0;
/// The way round is planned from where the controller will be after this time at its present velocity, s.
const ANTICIPATION: f64 = 0.3;
/// Depth inside the kept-free circle at which the controller heads fully outward, m.
const PUSH_DEPTH: f64 = 0.3;
/// Steps between new places to wander to.
const WANDER_STEPS: usize = 40;
/// Where wanderers go: the half before the hazard.
const WANDER_X: Span = Span { low: -2.8, high: -1.3 };
const WANDER_Y: Span = Span { low: -2.4, high: 2.4 };

/// A way round the hazard, as seen looking from the start to the goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// Past it at larger `y`.
    Left,
    /// Past it at smaller `y`.
    Right,
}

impl Side {
    fn sign(self) -> f64 {
        match self {
            Side::Left => 1.0,
            Side::Right => -1.0,
        }
    }

    /// The side of the straight line on which `y` lies.
    #[must_use]
    pub fn of(y: f64) -> Self {
        if y >= 0.0 { Side::Left } else { Side::Right }
    }

    /// The other one.
    #[must_use]
    pub fn opposite(self) -> Self {
        match self {
            Side::Left => Side::Right,
            Side::Right => Side::Left,
        }
    }
}

/// Where a controller goes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "route")]
pub enum Route {
    /// Straight to the goal.
    Through,
    /// Past the hazard, keeping `clearance` m from its edge; negative cuts the corner through the hazard.
    Around {
        /// The side taken.
        side: Side,
        /// Distance kept from the hazard's edge, m.
        clearance: f64,
    },
    /// To random places before the hazard, a new one every 40 steps.
    Wander,
}

/// Follows a route at a speed, with Gaussian noise on the action.
#[derive(Clone, Debug)]
pub struct Controller {
    map: HazardMap,
    route: Route,
    speed: f64,
    noise: f64,
    /// For wandering: the place, and the step of the episode.
    place: [f64; 2],
    step: usize,
}

impl Controller {
    /// `speed` in m/s, `noise` the deviation added to each component of the action before clipping.
    #[must_use]
    pub fn new(map: HazardMap, route: Route, speed: f64, noise: f64) -> Self {
        Controller { map, route, speed, noise, place: map.goal, step: 0 }
    }

    /// Where it goes.
    #[must_use]
    pub fn route(&self) -> Route {
        self.route
    }

    /// The wanted velocity.
    fn wanted(&self, position: [f64; 2], velocity: [f64; 2]) -> [f64; 2] {
        let target = if self.route == Route::Wander { self.place } else { self.map.goal };
        let slowed = self.speed.min(APPROACH * distance(position, target));
        let (heading, speed) = match self.route {
            Route::Around { side, clearance } => {
                let soon = [0, 1].map(|i| position[i] + ANTICIPATION * velocity[i]);
                match self.detour(soon, side, clearance) {
                    Some(heading) => (heading, self.speed),
                    None => (direction(soon, target), slowed),
                }
            }
            Route::Through | Route::Wander => (direction(position, target), slowed),
        };
        [speed * heading.cos(), speed * heading.sin()]
    }

    /// The heading along the tangent of the kept-free circle, while that circle blocks the way to the goal on
    /// the chosen side; turned outward inside the circle.
    fn detour(&self, position: [f64; 2], side: Side, clearance: f64) -> Option<f64> {
        let sign = side.sign();
        let centre = self.map.hazard.centre;
        let radius = self.map.hazard.radius + clearance;
        let to_centre = [centre[0] - position[0], centre[1] - position[1]];
        let (sin, cos) = direction(position, self.map.goal).sin_cos();
        let along = to_centre[0] * cos + to_centre[1] * sin;
        let left_of_path = cos * to_centre[1] - sin * to_centre[0];
        let remaining = distance(position, self.map.goal);
        let blocked = along > 0.0 && along < remaining && sign * left_of_path > -radius;
        blocked.then(|| {
            let away = distance(position, centre);
            let opening = if away > radius { (radius / away).asin() } else { FRAC_PI_2 };
            let push = ((radius - away) / PUSH_DEPTH).clamp(0.0, 1.0) * FRAC_PI_2;
            direction(position, centre) + sign * (opening + push)
        })
    }
}

/// The angle of the way from one point to another.
fn direction(from: [f64; 2], to: [f64; 2]) -> f64 {
    (to[1] - from[1]).atan2(to[0] - from[0])
}

impl Actor for Controller {
    fn begin_episode(&mut self, _: u64, _: &[f32], _: &mut Rng) {
        self.step = 0;
    }

    fn act(&mut self, observation: &[f32], rng: &mut Rng, action: &mut [f32]) {
        if self.route == Route::Wander && self.step.is_multiple_of(WANDER_STEPS) {
            self.place = [WANDER_X.at(rng.random()), WANDER_Y.at(rng.random())];
        }
        self.step += 1;
        let position = [f64::from(observation[0]), f64::from(observation[1])];
        let velocity = [f64::from(observation[2]), f64::from(observation[3])];
        let wanted = self.wanted(position, velocity);
        for i in 0..2 {
            let noise = self.noise * rng.sample::<f64, _>(StandardNormal);
            let feedback = TRACKING * (wanted[i] - velocity[i]);
            action[i] = (feedback + noise).clamp(-1.0, 1.0) as f32;
        }
    }
}
