//! `rwrl/humanoid-walk`: a humanoid is to walk.
//!
//! | | |
//! |---|---|
//! | observation, 67 | 21 joint angles rad, height of the head m, positions of left hand, left foot, right hand, right foot in the torso's frame (12), the vertical in the torso's frame (3), velocity of the centre of mass (3), 27 velocities |
//! | action, 21 | torques in [−1, 1] of their gears |
//! | step | 0.025 s, 5 physics steps |
//! | reward, in [0, 1] | `(4 + mean(1 − u²))/5 · near(head ≥ 1.4; 0.35) · lin(up ≥ 0.9; 1.9, 0) · (5·lin(v ≥ 1; 1, 0) + 1)/6`: effort, standing, uprightness, horizontal speed of the centre of mass |
//! | `joint_angle` | satisfied where every joint's angle is below `πc` in absolute value; `c` is 0.5 |
//! | `joint_velocity` | satisfied where every joint but the first turns slower than `90c` rad/s, as the suite computes it |
//! | `upright` | satisfied where the torso's axis has a vertical part above `1 − c` |
//! | `dangerous_fall` | satisfied where head and torso are touched with less than `100c` N |
//! | `foot_force` | satisfied where each half of a foot is touched with less than `8000c` N |
//! | start | joints uniform within their limits, the orientation from four uniform numbers, normalised; drawn anew until nothing touches; at rest |
//!
//! `lin(x ≥ b; m, v)` falls linearly below `b`, to `v` at the distance `m`.

use std::f64::consts::PI;
use std::ops::Range;

use coptidice_core::rng::Rng;

use super::model::{Names, suite_file, with_suffixes};
use super::{Physics, Scene, Task, Writer, axis, in_frame, largest};
use crate::rwrl::constraints::{Constraint, Paper};
use crate::tolerance::{Falloff, Tolerance};

/// Coordinates of the torso, before the joints in positions.
const FREE_POSITION: usize = 7;
/// Where the suite's joint velocities begin: one after the first joint's, which is at 6.
const JOINT_VELOCITIES: usize = 7;
const FREE_VELOCITIES: [&str; 6] = ["vx", "vy", "vz", "wx", "wy", "wz"];
const EXTREMITIES: [&str; 4] = ["left_hand", "left_foot", "right_hand", "right_foot"];

const STANDING: Tolerance = Tolerance {
    low: 1.4,
    high: f64::INFINITY,
    margin: 0.35,
    value_at_margin: 0.1,
    falloff: Falloff::Gaussian,
};
const UPRIGHT: Tolerance =
    Tolerance { low: 0.9, high: f64::INFINITY, margin: 1.9, value_at_margin: 0.0, falloff: Falloff::Linear };
const MOVING: Tolerance =
    Tolerance { low: 1.0, high: f64::INFINITY, margin: 1.0, value_at_margin: 0.0, falloff: Falloff::Linear };
const CHEAP: Tolerance =
    Tolerance { low: 0.0, high: 0.0, margin: 1.0, value_at_margin: 0.0, falloff: Falloff::Quadratic };

/// Where things are in the model.
#[derive(Clone, Debug)]
pub(super) struct Humanoid {
    torso: usize,
    head: usize,
    extremities: [usize; 4],
    velocity: Range<usize>,
    /// Touch sensors, one reading each.
    feet: [usize; 4],
    fall: [usize; 2],
}

impl Scene<Humanoid> {
    fn torso(&self) -> &[f64; 9] {
        &self.physics.rotations()[self.task.torso]
    }

    fn head_height(&self) -> f64 {
        self.physics.positions()[self.task.head][2]
    }

    fn velocity(&self) -> &[f64] {
        &self.physics.sensors()[self.task.velocity.clone()]
    }
}

impl Task for Humanoid {
    const NAME: &'static str = "rwrl/humanoid-walk";
    const XML: &'static [u8] = suite_file!("humanoid.xml");
    const SUBSTEPS: usize = 5;
    const PAPER: Paper = Paper { safety_coeff: 0.5, threshold: 0.3 };
    const CONSTRAINTS: &'static [Constraint<Scene<Self>>] = &[
        Constraint {
            name: "joint_angle",
            violation: |c| format!("a joint is bent by {} rad or more", PI * c),
            satisfied: |scene, c| largest(&scene.physics.qpos()[FREE_POSITION..]) < c * PI,
        },
        Constraint {
            name: "joint_velocity",
            violation: |c| format!("a joint other than the first turns at {} rad/s or more", 90.0 * c),
            satisfied: |scene, c| largest(&scene.physics.qvel()[JOINT_VELOCITIES..]) < 90.0 * c,
        },
        Constraint {
            name: "upright",
            violation: |c| format!("the torso's axis has a vertical part of {} or less", 1.0 - c),
            satisfied: |scene, c| scene.torso()[axis::ZZ] > 1.0 - c,
        },
        Constraint {
            name: "dangerous_fall",
            violation: |c| format!("head or torso is touched with {} N or more", 100.0 * c),
            satisfied: |scene, c| largest(&scene.task.fall.map(|i| scene.physics.sensors()[i])) < 100.0 * c,
        },
        Constraint {
            name: "foot_force",
            violation: |c| format!("half of a foot is touched with {} N or more", 8000.0 * c),
            satisfied: |scene, c| largest(&scene.task.feet.map(|i| scene.physics.sensors()[i])) < 8000.0 * c,
        },
    ];

    fn find(names: &Names<'_>) -> Result<Self, String> {
        let body = |name| names.body(name);
        let touch = |name: &str| names.sensor(&format!("{name}_touch")).map(|range| range.start);
        let [a, b, c, d] = EXTREMITIES.map(body);
        Ok(Humanoid {
            torso: body("torso")?,
            head: body("head")?,
            extremities: [a?, b?, c?, d?],
            velocity: names.sensor("torso_subtreelinvel")?,
            feet: [
                touch("right_left_foot")?,
                touch("right_right_foot")?,
                touch("left_left_foot")?,
                touch("left_right_foot")?,
            ],
            fall: [touch("head")?, touch("torso")?],
        })
    }

    fn observation_names(names: &Names<'_>) -> Vec<String> {
        let joints = &names.joints()[1..];
        let xyz = |kind: &str| with_suffixes(&[kind.to_owned()], &["x", "y", "z"]);
        [
            with_suffixes(joints, &["angle"]),
            vec!["head_height".to_owned()],
            EXTREMITIES.iter().flat_map(|limb| xyz(limb)).collect(),
            xyz("vertical"),
            xyz("com_velocity"),
            with_suffixes(&["root".to_owned()], &FREE_VELOCITIES),
            with_suffixes(joints, &["velocity"]),
        ]
        .concat()
    }

    fn start(&self, physics: &mut Physics, rng: &mut Rng) {
        loop {
            let position = physics.draw_joints(rng);
            physics.rest_at(&position);
            if !physics.in_contact() {
                return;
            }
        }
    }

    fn observe(scene: &Scene<Self>, observation: &mut [f64]) {
        let physics = &scene.physics;
        let mut writer = Writer::new(observation);
        writer.put(&physics.qpos()[FREE_POSITION..]);
        writer.put(&[scene.head_height()]);
        let torso = physics.positions()[scene.task.torso];
        for limb in scene.task.extremities {
            let limb = physics.positions()[limb];
            writer.put(&in_frame(std::array::from_fn(|i| limb[i] - torso[i]), scene.torso()));
        }
        writer.put(&scene.torso()[axis::ZX..=axis::ZZ]);
        writer.put(scene.velocity());
        writer.put(physics.qvel());
    }

    fn reward(scene: &Scene<Self>) -> f64 {
        let controls = scene.physics.controls();
        let cheap = controls.iter().map(|&u| CHEAP.at(u)).sum::<f64>() / controls.len() as f64;
        let standing = STANDING.at(scene.head_height()) * UPRIGHT.at(scene.torso()[axis::ZZ]);
        let [vx, vy] = [scene.velocity()[0], scene.velocity()[1]];
        let moving = (5.0 * MOVING.at(vx.hypot(vy)) + 1.0) / 6.0;
        (4.0 + cheap) / 5.0 * standing * moving
    }
}
