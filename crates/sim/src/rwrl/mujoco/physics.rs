//! One environment's state in MuJoCo.
//!
//! **Step.** The suite keeps everything that depends on position and velocity up to date after a step. With
//! Euler's method, whose step has a first half up to the forces that depend on position and velocity only, it does
//! the second half of one step, `n − 1` whole ones and the first half of the next. With Runge–Kutta it does `n` whole
//! steps and then the first half of the next. Sensors of acceleration and force therefore lag one physics step.
//!
//! **Reset.** Everything is cleared and computed with actuation disabled, the state is set, and everything is computed
//! again with actuation disabled.

use std::sync::Arc;

use coptidice_core::rng::Rng;
use mujoco_rs::mujoco_c::mjtIntegrator;
use mujoco_rs::prelude::*;
use rand::RngExt;

use crate::env::PhysicsState;

/// MuJoCo's model, shared, and data, owned.
#[derive(Clone, Debug)]
pub(super) struct Physics {
    data: MjData<Arc<MjModel>>,
    /// The same model with actuation disabled.
    passive: Arc<MjModel>,
    substeps: usize,
    runge_kutta: bool,
}

impl Physics {
    /// At the model's initial state.
    pub(super) fn new(model: MjModel, substeps: usize) -> Self {
        let mut passive = model.clone();
        passive.opt_mut().disableflags |= MjtDisableBit::mjDSBL_ACTUATION as i32;
        let runge_kutta = model.opt().integrator == mjtIntegrator::mjINT_RK4 as i32;
        let data = MjData::new(Arc::new(model));
        let mut physics = Physics { data, passive: Arc::new(passive), substeps, runge_kutta };
        physics.clear();
        physics
    }

    /// Applies controls for one control step.
    pub(super) fn step(&mut self, controls: impl Iterator<Item = f64>) {
        for (control, value) in self.data.ctrl_mut().iter_mut().zip(controls) {
            *control = value;
        }
        let mut whole = self.substeps;
        if !self.runge_kutta {
            self.data.step2();
            whole -= 1;
        }
        for _ in 0..whole {
            self.data.step();
        }
        self.data.step1();
    }

    /// As if just reset into a state, whose lengths are the model's.
    pub(super) fn reset_to(&mut self, qpos: &[f64], qvel: &[f64], act: &[f64]) {
        self.clear();
        self.data.qpos_mut().copy_from_slice(qpos);
        self.data.qvel_mut().copy_from_slice(qvel);
        self.data.act_mut().copy_from_slice(act);
        self.settle();
    }

    /// As if just reset into a position, at rest.
    pub(super) fn rest_at(&mut self, qpos: &[f64]) {
        self.clear();
        self.data.qpos_mut().copy_from_slice(qpos);
        self.settle();
    }

    /// The model's initial state.
    pub(super) fn clear(&mut self) {
        self.data.reset();
        self.settle();
    }

    /// Computes everything from the state, with actuation disabled.
    fn settle(&mut self) {
        let active = self.data.swap_model(Arc::clone(&self.passive));
        self.data.forward();
        self.data.swap_model(active);
    }

    /// A position in which every hinge and slide with limits is uniform between them, every hinge without is uniform
    /// over the circle, and the orientation of a free body comes of four uniform numbers in [0, 1), normalised: as in
    /// the suite, where it is not uniform over all orientations. Everything else is as in the model's initial position.
    pub(super) fn draw_joints(&self, rng: &mut Rng) -> Vec<f64> {
        let model = self.data.model();
        let mut qpos = model.qpos0().to_vec();
        for (joint, kind) in model.jnt_type().iter().enumerate() {
            let at = model.jnt_qposadr()[joint] as usize;
            let [low, high] = model.jnt_range()[joint];
            match (kind, model.jnt_limited()[joint]) {
                (MjtJoint::mjJNT_FREE, _) => {
                    let draws: [f64; 4] = std::array::from_fn(|_| rng.random());
                    let norm = draws.iter().map(|d| d * d).sum::<f64>().sqrt();
                    for (q, d) in qpos[at + 3..at + 7].iter_mut().zip(draws) {
                        *q = d / norm;
                    }
                }
                (MjtJoint::mjJNT_HINGE | MjtJoint::mjJNT_SLIDE, true) => {
                    qpos[at] = rng.random_range(low..high)
                }
                (MjtJoint::mjJNT_HINGE, false) => {
                    qpos[at] = rng.random_range(-std::f64::consts::PI..std::f64::consts::PI);
                }
                _ => {}
            }
        }
        qpos
    }

    pub(super) fn state(&self) -> PhysicsState {
        PhysicsState { qpos: self.qpos().to_vec(), qvel: self.qvel().to_vec(), act: self.act().to_vec() }
    }

    pub(super) fn qpos(&self) -> &[f64] {
        self.data.qpos()
    }

    pub(super) fn qvel(&self) -> &[f64] {
        self.data.qvel()
    }

    pub(super) fn qacc(&self) -> &[f64] {
        self.data.qacc()
    }

    pub(super) fn act(&self) -> &[f64] {
        self.data.act()
    }

    /// The controls of the last step.
    pub(super) fn controls(&self) -> &[f64] {
        self.data.ctrl()
    }

    /// Position of every body, m.
    pub(super) fn positions(&self) -> &[[f64; 3]] {
        self.data.xpos()
    }

    /// Rotation matrix of every body, row-major.
    pub(super) fn rotations(&self) -> &[[f64; 9]] {
        self.data.xmat()
    }

    /// Readings of all sensors.
    pub(super) fn sensors(&self) -> &[f64] {
        self.data.sensordata()
    }

    /// Whether any two things touch.
    pub(super) fn in_contact(&self) -> bool {
        self.data.ncon() > 0
    }

    /// The model's initial position.
    pub(super) fn initial_position(&self) -> Vec<f64> {
        self.data.model().qpos0().to_vec()
    }
}
