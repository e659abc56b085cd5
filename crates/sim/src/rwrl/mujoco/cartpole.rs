//! `rwrl/cartpole-swingup-mujoco`: the task of [`crate::rwrl::CartPole`], moved by MuJoCo.

use coptidice_core::rng::Rng;

use super::model::{Names, suite_file};
use super::{Physics, Scene, Task, Writer, axis};
use crate::rwrl::cartpole::{self, Constraints, Motion};
use crate::rwrl::constraints::{Constraint, Paper};

/// See [`crate::rwrl::CartPole`].
#[derive(Clone, Debug)]
pub(super) struct CartPole {
    pole: usize,
}

impl Motion for Scene<CartPole> {
    fn x(&self) -> f64 {
        self.physics.qpos()[0]
    }

    fn cos_theta(&self) -> f64 {
        self.physics.rotations()[self.task.pole][axis::ZZ]
    }

    fn theta_dot(&self) -> f64 {
        self.physics.qvel()[1]
    }

    fn x_ddot(&self) -> f64 {
        self.physics.qacc()[0]
    }
}

impl Task for CartPole {
    const NAME: &'static str = "rwrl/cartpole-swingup-mujoco";
    const XML: &'static [u8] = suite_file!("cartpole.xml");
    const SUBSTEPS: usize = 1;
    const PAPER: Paper = cartpole::PAPER;
    const CONSTRAINTS: &'static [Constraint<Scene<Self>>] = Constraints::ALL;

    fn find(names: &Names<'_>) -> Result<Self, String> {
        Ok(CartPole { pole: names.body("pole_1")? })
    }

    fn observation_names(_: &Names<'_>) -> Vec<String> {
        crate::env::names(&cartpole::OBSERVATION)
    }

    fn start(&self, physics: &mut Physics, rng: &mut Rng) {
        let (position, velocity) = cartpole::draw_start(rng);
        physics.reset_to(&position, &velocity, &[]);
    }

    fn observe(scene: &Scene<Self>, observation: &mut [f64]) {
        let rotation = &scene.physics.rotations()[scene.task.pole];
        let mut writer = Writer::new(observation);
        writer.put(&[scene.x(), rotation[axis::ZZ], rotation[axis::XZ]]);
        writer.put(scene.physics.qvel());
    }

    fn reward(scene: &Scene<Self>) -> f64 {
        cartpole::reward(scene, scene.physics.controls()[0])
    }
}
