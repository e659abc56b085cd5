//! `nav/hazard`: reach a goal in the plane past a round hazard that lies on the straight path.
//!
//! A double integrator: the action is the acceleration. The episode earns by being near the goal, so it earns
//! more the sooner it arrives, and straight through the hazard is the fastest way. Hence reward and cost pull
//! apart. [`logs`] records it under controllers that go straight through, around either side, or wander.

mod controllers;
mod env;
mod logging;
mod map;

pub use controllers::{Controller, Route, Side};
pub use env::HazardNavigation;
pub use logging::{SAFE_COST_PER_STEP, log_controller, logs};
pub use map::{Circle, HazardMap, Span};
