//! The double integrator, its reward and its cost.

use std::sync::Arc;

use coptidice_core::CostLimit;
use coptidice_core::rng::Rng;
use rand::RngExt;

use super::map::{HazardMap, distance};
use crate::env::{
    ActionSpec, CostSpec, CostTiming, EnvSpec, Environment, PhysicsState, StepResult, check_state, names,
};
use crate::error::SimError;
use crate::tolerance::Tolerance;

/// Control step, s.
pub(super) const STEP: f64 = 0.05;
/// Steps of an episode.
pub(super) const HORIZON: usize = 200;

/// A point mass in a walled square.
///
/// | | |
/// |---|---|
/// | observation, 4 | `x`, `y` m, `x_dot`, `y_dot` m/s |
/// | action, 2 | acceleration in [−1, 1] m/s² each |
/// | step | 0.05 s: `v ← v + 0.05 a`, `p ← p + 0.05 v`; a wall stops the motion across it; 200 steps |
/// | reward, in [0, 1] | `0.1^((d/2)²)` with `d` the distance of the new position from the goal, m |
/// | cost | 1 inside the hazard |
/// | start | at rest, uniform in a rectangle left of the hazard |
///
/// The places are in [`HazardMap::STANDARD`].
#[derive(Clone, Debug)]
pub struct HazardNavigation {
    spec: Arc<EnvSpec>,
    map: HazardMap,
    reward: Tolerance,
    position: [f64; 2],
    velocity: [f64; 2],
}

impl HazardNavigation {
    /// Registered name.
    pub const NAME: &'static str = "nav/hazard";
    /// Default limit on the cost per step: 4 steps of an episode.
    pub const DEFAULT_LIMIT: f64 = 0.02;

    /// On the standard map.
    #[must_use]
    pub fn new() -> Self {
        let map = HazardMap::STANDARD;
        let spec = EnvSpec {
            name: Self::NAME.to_owned(),
            observation_names: names(&["x", "y", "x_dot", "y_dot"]),
            action: ActionSpec::unit(2),
            costs: vec![CostSpec {
                name: "hazard".to_owned(),
                description: "the position is inside the hazard".to_owned(),
                default_limit: CostLimit::PerStep { limit: Self::DEFAULT_LIMIT },
                paper_threshold: None,
            }],
            horizon: HORIZON,
            evaluation_timing: CostTiming::Before,
        };
        HazardNavigation {
            spec: Arc::new(spec),
            map,
            reward: Tolerance::near(0.0, map.reward_margin),
            position: [map.start_x.at(0.5), map.start_y.at(0.5)],
            velocity: [0.0; 2],
        }
    }

    /// Where things are.
    #[must_use]
    pub fn map(&self) -> &HazardMap {
        &self.map
    }
}

impl Default for HazardNavigation {
    fn default() -> Self {
        Self::new()
    }
}

impl Environment for HazardNavigation {
    fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    fn fresh(&self) -> Box<dyn Environment> {
        Box::new(self.clone())
    }

    fn reset(&mut self, rng: &mut Rng) {
        self.position = [self.map.start_x.at(rng.random()), self.map.start_y.at(rng.random())];
        self.velocity = [0.0; 2];
    }

    fn state(&self) -> PhysicsState {
        PhysicsState { qpos: self.position.to_vec(), qvel: self.velocity.to_vec(), act: Vec::new() }
    }

    fn set_state(&mut self, state: &PhysicsState) -> Result<(), SimError> {
        check_state(Self::NAME, state, 2, 2, 0)?;
        self.position = [state.qpos[0], state.qpos[1]];
        self.velocity = [state.qvel[0], state.qvel[1]];
        Ok(())
    }

    fn observe(&self, observation: &mut [f64]) {
        observation[..2].copy_from_slice(&self.position);
        observation[2..].copy_from_slice(&self.velocity);
    }

    fn costs(&self, costs: &mut [f64]) {
        costs[0] = if self.map.hazard.contains(self.position) { 1.0 } else { 0.0 };
    }

    fn step(&mut self, action: &[f64]) -> StepResult {
        let wall = self.map.half_width;
        for i in 0..2 {
            self.velocity[i] += STEP * action[i].clamp(-1.0, 1.0);
            self.position[i] += STEP * self.velocity[i];
            if self.position[i].abs() > wall {
                self.position[i] = self.position[i].clamp(-wall, wall);
                self.velocity[i] = 0.0;
            }
        }
        let reward = self.reward.at(distance(self.position, self.map.goal));
        StepResult { reward, terminal: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use approx::assert_relative_eq;
    use coptidice_core::rng::stream;

    fn place(qpos: [f64; 2], qvel: [f64; 2]) -> HazardNavigation {
        let mut env = HazardNavigation::new();
        env.set_state(&PhysicsState { qpos: qpos.to_vec(), qvel: qvel.to_vec(), act: vec![] }).unwrap();
        env
    }

    /// Constant acceleration from rest: v = n·h·a and p = h²·a·n(n+1)/2, exactly, for the semi-implicit rule.
    #[test]
    fn constant_acceleration_has_its_closed_form() {
        let mut env = place([0.0, 0.0], [0.0, 0.0]);
        for _ in 0..20 {
            env.step(&[0.5, -9.0]);
        }
        assert_relative_eq!(env.velocity[0], 20.0 * STEP * 0.5, max_relative = 1e-13);
        assert_relative_eq!(env.position[0], STEP * STEP * 0.5 * 210.0, max_relative = 1e-13);
        assert_relative_eq!(env.position[1], -STEP * STEP * 210.0, max_relative = 1e-13);
    }

    #[test]
    fn walls_stop_the_motion_across_them_only() {
        let mut env = place([2.99, 0.0], [2.0, 1.0]);
        env.step(&[0.0, 0.0]);
        assert_eq!(env.position[0], 3.0);
        assert_eq!(env.velocity, [0.0, 1.0]);
    }

    #[test]
    fn reward_and_cost_at_known_places() {
        let reward = |p| place(p, [0.0; 2]).step(&[0.0; 2]).reward;
        assert_relative_eq!(reward([2.0, 0.0]), 1.0);
        assert_relative_eq!(reward([2.0, 2.0]), 0.1, max_relative = 1e-12);
        assert_relative_eq!(reward([-2.0, 0.0]), 1e-4, max_relative = 1e-12);
        let cost = |p| {
            let mut costs = [9.0];
            place(p, [0.0; 2]).costs(&mut costs);
            costs[0]
        };
        assert_eq!([cost([0.0, 1.19]), cost([0.0, 1.2]), cost([0.9, 0.9])], [1.0, 0.0, 0.0]);
    }

    #[test]
    fn starts_fill_the_rectangle_at_rest_outside_the_hazard() {
        let mut env = HazardNavigation::new();
        let mut rng = stream(1, "starts", 0);
        let mut lowest = f64::INFINITY;
        let mut highest = f64::NEG_INFINITY;
        for _ in 0..500 {
            env.reset(&mut rng);
            assert!((-2.1..=-1.9).contains(&env.position[0]) && env.position[1].abs() <= 0.8);
            assert_eq!(env.velocity, [0.0; 2]);
            lowest = lowest.min(env.position[1]);
            highest = highest.max(env.position[1]);
        }
        // The chance that 500 uniform draws all miss an end of 5% is 0.95^500 < 1e-11.
        assert!(lowest < -0.72 && highest > 0.72);
    }
}
