//! `rwrl/walker-walk`: a planar biped is to walk.
//!
//! | | |
//! |---|---|
//! | observation, 24 | orientation of the 7 bodies in the plane (2 each), height of the torso m, 9 velocities |
//! | action, 6 | torques of hips, knees and ankles in [−1, 1] of their gears |
//! | step | 0.025 s, 10 physics steps |
//! | reward, in [0, 1] | `(3·near(h ≥ 1.2; 0.6) + (1 + up)/2)/4 · (5·lin(v ≥ 1; 0.5) + 1)/6`: height, uprightness, forward velocity of the centre of mass |
//! | `joint_velocity` | satisfied where every joint turns slower than `65c` rad/s; `c` is 0.3: 19.5 rad/s |
//! | `joint_angle` | satisfied where some joint is above its lower bound and some joint below its upper one, as the suite computes it; bounds −30…110°, −160…15°, −75…60° (hips, knees, ankles) times `c` |
//! | `dangerous_fall` | satisfied where the torso's forward axis dips by less than `c/2`, see below |
//! | `torso_upright` | satisfied where the torso's axis has a vertical part above `1 − c` |
//! | start | hips, knees and ankles uniform within their limits, the torso's angle uniform over the circle, at rest |
//!
//! `dangerous_fall`: with `R` the torso's rotation, satisfied where `−R_zx > −c/2`.

use std::f64::consts::PI;
use std::ops::Range;

use coptidice_core::rng::Rng;

use super::model::{Names, suite_file, with_suffixes};
use super::{Physics, Scene, Task, Writer, axis, largest};
use crate::rwrl::constraints::{Constraint, Paper};
use crate::tolerance::{Falloff, Tolerance};

/// Bounds of hip, knee and ankle, degrees, for a coefficient of 1; right leg first, as in the model.
const ANGLE_BOUNDS: [[f64; 2]; 3] = [[-30.0, 110.0], [-160.0, 15.0], [-75.0, 60.0]];
/// Velocities of the torso, which is no joint.
const ROOT: usize = 3;

const STANDING: Tolerance = Tolerance {
    low: 1.2,
    high: f64::INFINITY,
    margin: 0.6,
    value_at_margin: 0.1,
    falloff: Falloff::Gaussian,
};
const MOVING: Tolerance =
    Tolerance { low: 1.0, high: f64::INFINITY, margin: 0.5, value_at_margin: 0.5, falloff: Falloff::Linear };

/// Where things are in the model.
#[derive(Clone, Debug)]
pub(super) struct Walker {
    torso: usize,
    velocity: Range<usize>,
}

impl Scene<Walker> {
    fn torso_axis(&self, at: usize) -> f64 {
        self.physics.rotations()[self.task.torso][at]
    }

    fn height(&self) -> f64 {
        self.physics.positions()[self.task.torso][2]
    }
}

impl Task for Walker {
    const NAME: &'static str = "rwrl/walker-walk";
    const XML: &'static [u8] = suite_file!("walker.xml");
    const SUBSTEPS: usize = 10;
    const PAPER: Paper = Paper { safety_coeff: 0.3, threshold: 0.1 };
    const CONSTRAINTS: &'static [Constraint<Scene<Self>>] = &[
        Constraint {
            name: "joint_velocity",
            violation: |c| format!("a joint turns at {} rad/s or more", 65.0 * c),
            satisfied: |scene, c| largest(&scene.physics.qvel()[ROOT..]) < 65.0 * c,
        },
        Constraint {
            name: "joint_angle",
            violation: |c| {
                format!("no joint is above its lower bound, or none below its upper one, scaled by {c}")
            },
            satisfied: |scene, c| {
                let angles = &scene.physics.qpos()[ROOT..];
                let bounds =
                    || ANGLE_BOUNDS.iter().chain(&ANGLE_BOUNDS).map(|b| b.map(|d| d * c * PI / 180.0));
                angles.iter().zip(bounds()).any(|(&angle, [low, _])| angle > low)
                    && angles.iter().zip(bounds()).any(|(&angle, [_, high])| angle < high)
            },
        },
        Constraint {
            name: "dangerous_fall",
            violation: |c| format!("the torso's forward axis dips by {} or more", 0.5 * c),
            satisfied: |scene, c| -scene.torso_axis(axis::ZX) > -0.5 * c,
        },
        Constraint {
            name: "torso_upright",
            violation: |c| format!("the torso's axis has a vertical part of {} or less", 1.0 - c),
            satisfied: |scene, c| scene.torso_axis(axis::ZZ) > 1.0 - c,
        },
    ];

    fn find(names: &Names<'_>) -> Result<Self, String> {
        Ok(Walker { torso: names.body("torso")?, velocity: names.sensor("torso_subtreelinvel")? })
    }

    fn observation_names(names: &Names<'_>) -> Vec<String> {
        let mut all = with_suffixes(&names.bodies(), &["xx", "xz"]);
        all.push("height".to_owned());
        all.extend(with_suffixes(&names.joints(), &["velocity"]));
        all
    }

    fn start(&self, physics: &mut Physics, rng: &mut Rng) {
        let position = physics.draw_joints(rng);
        physics.rest_at(&position);
    }

    fn observe(scene: &Scene<Self>, observation: &mut [f64]) {
        let mut writer = Writer::new(observation);
        for rotation in &scene.physics.rotations()[1..] {
            writer.put(&[rotation[axis::XX], rotation[axis::XZ]]);
        }
        writer.put(&[scene.height()]);
        writer.put(scene.physics.qvel());
    }

    fn reward(scene: &Scene<Self>) -> f64 {
        let upright = (1.0 + scene.torso_axis(axis::ZZ)) / 2.0;
        let stand = (3.0 * STANDING.at(scene.height()) + upright) / 4.0;
        let forward = scene.physics.sensors()[scene.task.velocity.start];
        stand * (5.0 * MOVING.at(forward) + 1.0) / 6.0
    }
}
