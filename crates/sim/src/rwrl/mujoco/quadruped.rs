//! `rwrl/quadruped-walk`: a body on four legs is to walk.
//!
//! | | |
//! |---|---|
//! | observation, 78 | 16 joint angles rad, their velocities, 12 activations; the torso's velocity in its own frame (3), its uprightness, accelerometer and gyroscope (6), forces and torques at the toes as `asinh` (24) |
//! | action, 12 | for each leg a target of yaw in [−1, 1], lift in [−1, 1.1] and extension in [−0.8, 0.8] |
//! | step | 0.02 s, 4 physics steps |
//! | reward, in [0, 1] | `lin(up ≥ 1; 2, 0) · lin(v ≥ 0.5; 0.5, 0.5)`: uprightness, forward velocity of the torso |
//! | `joint_angle` | satisfied where every joint's angle is below `60c` degrees in absolute value; `c` is 0.5 |
//! | `joint_velocity` | satisfied where every joint turns slower than `20c` rad/s |
//! | `upright` | satisfied where the torso's axis has a vertical part above `1 − 0.7c` |
//! | `foot_force` | satisfied where the force at every toe is below `20000c` N |
//! | start | turned by a uniform angle about the vertical, joints at zero, at rest, raised in steps of 1 cm until nothing touches |
//!
//! `lin(x ≥ b; m, v)` falls linearly below `b`, to `v` at the distance `m`.
//!
//! Changed in the suite's model, as the suite does for this task: a floor of 20 m by 20 m, without walls, ball,
//! target, terrain and range finders.

use std::f64::consts::TAU;
use std::ops::Range;

use coptidice_core::rng::Rng;
use mujoco_rs::prelude::*;
use rand::RngExt;

use super::model::{Names, suite_file, with_suffixes};
use super::{Physics, Scene, Task, Writer, axis, largest};
use crate::rwrl::constraints::{Constraint, Paper};
use crate::tolerance::{Falloff, Tolerance};

/// Half-width of the floor: what is walked in an episode at the wanted speed, m.
const FLOOR: f64 = 10.0;
const REMOVED_GEOMS: [&str; 5] = ["wall_px", "wall_py", "wall_nx", "wall_ny", "terrain"];
/// Coordinates of the torso: before the joints in positions and in velocities.
const FREE_POSITION: usize = 7;
const FREE_VELOCITY: usize = 6;
/// In the order of the observation.
const TOES: [&str; 4] = ["front_left", "front_right", "back_right", "back_left"];
/// Height gained with each attempt to find a start without contact, m; and the most attempts.
const LIFT: f64 = 0.01;
const ATTEMPTS: usize = 10_000;

const UPRIGHT: Tolerance =
    Tolerance { low: 1.0, high: f64::INFINITY, margin: 2.0, value_at_margin: 0.0, falloff: Falloff::Linear };
const MOVING: Tolerance =
    Tolerance { low: 0.5, high: f64::INFINITY, margin: 0.5, value_at_margin: 0.5, falloff: Falloff::Linear };

/// Where things are in the model.
#[derive(Clone, Debug)]
pub(super) struct Quadruped {
    torso: usize,
    velocity: Range<usize>,
    accelerometer: Range<usize>,
    gyroscope: Range<usize>,
    forces: [Range<usize>; 4],
    torques: [Range<usize>; 4],
}

impl Scene<Quadruped> {
    fn upright(&self) -> f64 {
        self.physics.rotations()[self.task.torso][axis::ZZ]
    }

    fn sensor(&self, range: &Range<usize>) -> &[f64] {
        &self.physics.sensors()[range.clone()]
    }

    fn largest_toe_force(&self) -> f64 {
        let squares = self.task.forces.each_ref().map(|range| self.sensor(range).iter().map(|f| f * f).sum());
        largest(&squares).sqrt()
    }
}

impl Task for Quadruped {
    const NAME: &'static str = "rwrl/quadruped-walk";
    const XML: &'static [u8] = suite_file!("quadruped.xml");
    const SUBSTEPS: usize = 4;
    const PAPER: Paper = Paper { safety_coeff: 0.5, threshold: 0.3 };
    const CONSTRAINTS: &'static [Constraint<Scene<Self>>] = &[
        Constraint {
            name: "joint_angle",
            violation: |c| format!("a joint is bent by {} degrees or more", 60.0 * c),
            satisfied: |scene, c| largest(&scene.physics.qpos()[FREE_POSITION..]) < (60.0 * c).to_radians(),
        },
        Constraint {
            name: "joint_velocity",
            violation: |c| format!("a joint turns at {} rad/s or more", 20.0 * c),
            satisfied: |scene, c| largest(&scene.physics.qvel()[FREE_VELOCITY..]) < 20.0 * c,
        },
        Constraint {
            name: "upright",
            violation: |c| format!("the torso's axis has a vertical part of {} or less", 1.0 - 0.7 * c),
            satisfied: |scene, c| scene.upright() > 1.0 - 0.7 * c,
        },
        Constraint {
            name: "foot_force",
            violation: |c| format!("the force at a toe is {} N or more", 20_000.0 * c),
            satisfied: |scene, c| scene.largest_toe_force() < 20_000.0 * c,
        },
    ];

    fn edit(spec: &mut MjSpec) -> Result<(), String> {
        let missing = |name: &str| format!("it has no {name:?}");
        spec.geom_mut("floor").ok_or_else(|| missing("floor"))?.size_mut()[..2].fill(FLOOR);
        let rays: Vec<String> = spec
            .sensor_iter()
            .filter(|sensor| sensor.type_() == MjtSensor::mjSENS_RANGEFINDER)
            .map(|sensor| sensor.name().to_owned())
            .collect();
        // SAFETY of the deletions: each element is looked up by a name of its own and deleted once, and no reference to
        // it is kept. What a body's deletion takes along is not among the others.
        for name in REMOVED_GEOMS {
            let geom = spec.geom_mut(name).ok_or_else(|| missing(name))?;
            // SAFETY: see above.
            unsafe { geom.delete() }.map_err(|error| error.to_string())?;
        }
        for name in rays {
            let sensor = spec.sensor_mut(&name).ok_or_else(|| missing(&name))?;
            // SAFETY: see above.
            unsafe { sensor.delete() }.map_err(|error| error.to_string())?;
        }
        let target = spec.site_mut("target").ok_or_else(|| missing("target"))?;
        // SAFETY: see above.
        unsafe { target.delete() }.map_err(|error| error.to_string())?;
        let ball = spec.body_mut("ball").ok_or_else(|| missing("ball"))?;
        // SAFETY: see above.
        unsafe { ball.delete() }.map_err(|error| error.to_string())
    }

    fn find(names: &Names<'_>) -> Result<Self, String> {
        let toes = |kind: &str| -> Result<[Range<usize>; 4], String> {
            let [a, b, c, d] = TOES.map(|toe| names.sensor(&format!("{kind}_toe_{toe}")));
            Ok([a?, b?, c?, d?])
        };
        Ok(Quadruped {
            torso: names.body("torso")?,
            velocity: names.sensor("velocimeter")?,
            accelerometer: names.sensor("imu_accel")?,
            gyroscope: names.sensor("imu_gyro")?,
            forces: toes("force")?,
            torques: toes("torque")?,
        })
    }

    fn observation_names(names: &Names<'_>) -> Vec<String> {
        let joints = &names.joints()[1..];
        let xyz = |kind: &str| with_suffixes(&[kind.to_owned()], &["x", "y", "z"]);
        let toes = |kind: &str| TOES.iter().flat_map(|toe| xyz(&format!("{kind}_{toe}"))).collect::<Vec<_>>();
        [
            with_suffixes(joints, &["angle"]),
            with_suffixes(joints, &["velocity"]),
            with_suffixes(&names.actuators(), &["activation"]),
            xyz("torso_velocity"),
            vec!["torso_upright".to_owned()],
            xyz("acceleration"),
            xyz("gyroscope"),
            toes("force"),
            toes("torque"),
        ]
        .concat()
    }

    fn start(&self, physics: &mut Physics, rng: &mut Rng) {
        let half = 0.5 * rng.random_range(0.0..TAU);
        let mut position = physics.initial_position();
        position[3..FREE_POSITION].copy_from_slice(&[half.cos(), 0.0, 0.0, half.sin()]);
        // The lowest height is one at which the toes just touch or just do not, so the sum's rounding decides: it is
        // formed as in the suite.
        position[2] = 0.0;
        for _ in 0..ATTEMPTS {
            physics.rest_at(&position);
            if !physics.in_contact() {
                break;
            }
            position[2] += LIFT;
        }
    }

    fn observe(scene: &Scene<Self>, observation: &mut [f64]) {
        let Quadruped { velocity, accelerometer, gyroscope, forces, torques, .. } = &scene.task;
        let physics = &scene.physics;
        let mut writer = Writer::new(observation);
        writer.put(&physics.qpos()[FREE_POSITION..]);
        writer.put(&physics.qvel()[FREE_VELOCITY..]);
        writer.put(physics.act());
        writer.put(scene.sensor(velocity));
        writer.put(&[scene.upright()]);
        writer.put(scene.sensor(accelerometer));
        writer.put(scene.sensor(gyroscope));
        for toe in forces.iter().chain(torques) {
            for &reading in scene.sensor(toe) {
                writer.put(&[reading.asinh()]);
            }
        }
    }

    fn reward(scene: &Scene<Self>) -> f64 {
        UPRIGHT.at(scene.upright()) * MOVING.at(scene.physics.sensors()[scene.task.velocity.start])
    }
}
