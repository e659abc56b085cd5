//! `rwrl/cartpole-swingup`: a pole hangs from a cart on a rail and is to be swung up and held there.

use std::f64::consts::PI;
use std::sync::Arc;

use coptidice_core::rng::Rng;
use rand::RngExt;
use rand_distr::StandardNormal;

use super::HORIZON;
use super::constraints::{Constraint, Paper, Safety};
use super::dynamics::{Pair, accelerations};
use crate::env::{
    ActionSpec, CostTiming, EnvSpec, Environment, PhysicsState, StepResult, check_state, names,
};
use crate::error::SimError;
use crate::registry::EnvOptions;
use crate::tolerance::{Falloff, Tolerance};

/// Control step and physics step, s.
const STEP: f64 = 0.01;
/// Spread of the start around the hanging pole, for each coordinate and velocity.
const START_SPREAD: f64 = 0.01;

/// The paper's coefficient and threshold.
pub(super) const PAPER: Paper = Paper { safety_coeff: 0.3, threshold: 0.1 };
/// The observation, whichever simulator gives it.
pub(super) const OBSERVATION: [&str; 5] = ["x", "cos_theta", "sin_theta", "x_dot", "theta_dot"];

const CENTRED: Tolerance = Tolerance::near(0.0, 2.0);
const STILL: Tolerance = Tolerance::near(0.0, 5.0);
const CHEAP: Tolerance =
    Tolerance { low: 0.0, high: 0.0, margin: 1.0, value_at_margin: 0.0, falloff: Falloff::Quadratic };

/// What the task's reward and constraints are about, whichever simulator moves the cart.
pub(super) trait Motion {
    /// Position of the cart, m.
    fn x(&self) -> f64;
    /// Cosine of the pole's angle; 1 is upright.
    fn cos_theta(&self) -> f64;
    /// Angular velocity of the pole, rad/s.
    fn theta_dot(&self) -> f64;
    /// Acceleration of the cart, m/s².
    fn x_ddot(&self) -> f64;
}

/// The constraints of the task, the paper's first.
pub(super) struct Constraints<S>(std::marker::PhantomData<S>);

impl<S: Motion + 'static> Constraints<S> {
    pub(super) const ALL: &'static [Constraint<S>] = &[
        Constraint {
            name: "slider_position",
            violation: |c| format!("the cart is {} m or more from the centre", 2.0 * c),
            satisfied: |state, c| state.x() > -2.0 * c && state.x() < 2.0 * c,
        },
        Constraint {
            name: "slider_acceleration",
            violation: |c| format!("the cart accelerates at {} m/s² or more", 130.0 * c),
            satisfied: |state, c| state.x_ddot().abs() < 130.0 * c,
        },
        Constraint {
            name: "balance_velocity",
            violation: |c| {
                let angle = balance_angle(c);
                format!("the pole is within {angle} rad of upright and turns faster than {} rad/s", 0.5 * c)
            },
            satisfied: |state, c| {
                let upright = state.cos_theta() > balance_angle(c).cos();
                !(upright && state.theta_dot().abs() > 0.5 * c)
            },
        },
    ];
}

/// The angle from upright within which the pole must not turn fast, rad.
fn balance_angle(safety_coeff: f64) -> f64 {
    (1.0 - safety_coeff) / 0.5 + 0.15
}

/// Reward of arriving in a state by action `u`.
pub(super) fn reward(state: &impl Motion, u: f64) -> f64 {
    let upright = 0.5 * (state.cos_theta() + 1.0);
    let centred = 0.5 * (1.0 + CENTRED.at(state.x()));
    let cheap = 0.2 * (4.0 + CHEAP.at(u));
    let still = 0.5 * (1.0 + STILL.at(state.theta_dot()));
    upright * centred * cheap * still
}

/// Position and velocity of a start.
pub(super) fn draw_start(rng: &mut Rng) -> (Pair, Pair) {
    let mut draw = || START_SPREAD * rng.sample::<f64, _>(StandardNormal);
    ([draw(), PI + draw()], [draw(), draw()])
}

/// The cart-pole of the real-world suite, without the simulator it was made for: the two-degree-of-freedom
/// equations under fourth-order Runge–Kutta, with the rail's soft end stops.
///
/// | | |
/// |---|---|
/// | observation, 5 | `x` m, `cos θ`, `sin θ`, `ẋ` m/s, `θ̇` rad/s; `θ = 0` is upright |
/// | action, 1 | force on the cart in [−1, 1], units of 10 N |
/// | step | 0.01 s; 1000 steps |
/// | reward, in [0, 1] | `(cos θ + 1)/2 · (1 + near(x; 2))/2 · (4 + (1 − u²))/5 · (1 + near(θ̇; 5))/2` of the new state |
/// | `slider_position` | satisfied where `−2c < x < 2c`; `c` is the safety coefficient, 0.3: within 0.6 m of the centre |
/// | `slider_acceleration` | satisfied where `abs(ẍ) < 130c` m/s² |
/// | `balance_velocity` | violated where `cos θ > cos(2(1 − c) + 0.15)` and `abs(θ̇) > c/2` |
/// | start | `x`, `ẋ`, `θ̇` normal with deviation 0.01, `θ = π` + the same |
///
/// `near(d; m)` is [`Tolerance::near`]: 1 at 0 and 0.1 at `m`. `ẍ` is that of the step's last Runge–Kutta stage, as in
/// the original.
#[derive(Clone, Debug)]
pub struct CartPole {
    spec: Arc<EnvSpec>,
    safety: Safety<CartPole>,
    position: Pair,
    velocity: Pair,
    /// Accelerations at the end of the last step, from which the end stops' solver starts.
    warm: Pair,
    /// Acceleration of the cart when the state was reached.
    x_ddot: f64,
}

impl CartPole {
    /// Registered name.
    pub const NAME: &'static str = "rwrl/cartpole-swingup";
    /// With the given options, or the paper's.
    ///
    /// # Errors
    /// If an option's value makes no sense, or a constraint is not one of the task's.
    pub fn new(options: &EnvOptions) -> Result<Self, SimError> {
        let safety = Safety::resolve(Self::NAME, Constraints::ALL, PAPER, options)?;
        let spec = EnvSpec {
            name: Self::NAME.to_owned(),
            observation_names: names(&OBSERVATION),
            action: ActionSpec::unit(1),
            costs: safety.specs(),
            horizon: HORIZON,
            evaluation_timing: CostTiming::After,
        };
        let mut env = CartPole {
            spec: Arc::new(spec),
            safety,
            position: [0.0; 2],
            velocity: [0.0; 2],
            warm: [0.0; 2],
            x_ddot: 0.0,
        };
        env.start([0.0, PI], [0.0; 2]);
        Ok(env)
    }

    /// Puts the cart there, with no force on it.
    fn start(&mut self, position: Pair, velocity: Pair) {
        self.position = position;
        self.velocity = velocity;
        self.warm = [0.0; 2];
        self.x_ddot = accelerations(position, velocity, 0.0, self.warm)[0];
    }

    /// One fourth-order Runge–Kutta step under action `u`.
    fn integrate(&mut self, u: f64) {
        let plus = |a: Pair, h: f64, b: Pair| [a[0] + h * b[0], a[1] + h * b[1]];
        let (q, v1) = (self.position, self.velocity);
        let a1 = accelerations(q, v1, u, self.warm);
        let v2 = plus(v1, 0.5 * STEP, a1);
        let a2 = accelerations(plus(q, 0.5 * STEP, v1), v2, u, self.warm);
        let v3 = plus(v1, 0.5 * STEP, a2);
        let a3 = accelerations(plus(q, 0.5 * STEP, v2), v3, u, self.warm);
        let v4 = plus(v1, STEP, a3);
        let a4 = accelerations(plus(q, STEP, v3), v4, u, self.warm);
        for i in 0..2 {
            self.position[i] += STEP / 6.0 * (v1[i] + 2.0 * v2[i] + 2.0 * v3[i] + v4[i]);
            self.velocity[i] += STEP / 6.0 * (a1[i] + 2.0 * a2[i] + 2.0 * a3[i] + a4[i]);
        }
        self.warm = a4;
        self.x_ddot = a4[0];
    }
}

impl Motion for CartPole {
    fn x(&self) -> f64 {
        self.position[0]
    }

    fn cos_theta(&self) -> f64 {
        self.position[1].cos()
    }

    fn theta_dot(&self) -> f64 {
        self.velocity[1]
    }

    fn x_ddot(&self) -> f64 {
        self.x_ddot
    }
}

impl Environment for CartPole {
    fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    fn fresh(&self) -> Box<dyn Environment> {
        Box::new(self.clone())
    }

    fn reset(&mut self, rng: &mut Rng) {
        let (position, velocity) = draw_start(rng);
        self.start(position, velocity);
    }

    fn state(&self) -> PhysicsState {
        PhysicsState { qpos: self.position.to_vec(), qvel: self.velocity.to_vec(), act: Vec::new() }
    }

    fn set_state(&mut self, state: &PhysicsState) -> Result<(), SimError> {
        check_state(Self::NAME, state, 2, 2, 0)?;
        self.start([state.qpos[0], state.qpos[1]], [state.qvel[0], state.qvel[1]]);
        Ok(())
    }

    fn observe(&self, observation: &mut [f64]) {
        let (sin, cos) = self.position[1].sin_cos();
        observation.copy_from_slice(&[self.position[0], cos, sin, self.velocity[0], self.velocity[1]]);
    }

    fn costs(&self, costs: &mut [f64]) {
        self.safety.costs(self, costs);
    }

    fn step(&mut self, action: &[f64]) -> StepResult {
        let u = action[0].clamp(-1.0, 1.0);
        self.integrate(u);
        StepResult { reward: reward(self, u), terminal: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use approx::assert_relative_eq;
    use coptidice_core::rng::stream;

    fn at(qpos: [f64; 2], qvel: [f64; 2]) -> CartPole {
        let mut env = CartPole::new(&EnvOptions::default()).unwrap();
        env.set_state(&PhysicsState { qpos: qpos.to_vec(), qvel: qvel.to_vec(), act: vec![] }).unwrap();
        env
    }

    /// Energy of the pendulum and cart, from the mass matrix and heights: independent of the accelerations.
    fn energy(env: &CartPole) -> f64 {
        let ([_, theta], [v, w]) = (env.position, env.velocity);
        let kinetic = 0.5 * 1.1 * v * v
            + 0.1 * 0.5 * theta.cos() * v * w
            + 0.5 * (0.1 * 0.25 + 0.009_424_592_767_295_598) * w * w;
        kinetic + 0.1 * 9.81 * 0.5 * theta.cos()
    }

    /// Without force only damping acts: 5e-4 v² + 2e-6 w² watts, at most 1e-3 J over the 2 s at these speeds,
    /// and energy may not grow. RK4's own drift at this step is below 1e-7 J.
    #[test]
    fn free_motion_conserves_energy_up_to_damping() {
        let mut env = at([0.1, 2.0], [0.3, 1.0]);
        let start = energy(&env);
        let mut dissipated = 0.0;
        for _ in 0..200 {
            let before = env.velocity;
            env.step(&[0.0]);
            let power = |v: Pair| 5e-4 * v[0] * v[0] + 2e-6 * v[1] * v[1];
            dissipated += 0.5 * STEP * (power(before) + power(env.velocity));
        }
        assert!(dissipated > 1e-5, "the pole swings");
        // The trapezoid rule's error on the dissipation is of order 1e-4 of it.
        assert_relative_eq!(energy(&env), start - dissipated, epsilon = 1e-3 * dissipated + 1e-7);
    }

    #[test]
    fn rewards_at_known_states() {
        // Upright, centred, still, no force: every factor is 1 but gravity has acted for one step at 0: stays.
        let mut env = at([0.0, 0.0], [0.0, 0.0]);
        assert_relative_eq!(env.step(&[0.0]).reward, 1.0, epsilon = 1e-12);
        // Full force costs one fifth.
        let mut env = at([0.0, 0.0], [0.0, 0.0]);
        let full = env.step(&[1.0]);
        assert!(full.reward < 0.8 && full.reward > 0.79 && !full.terminal);
        assert_relative_eq!(at([0.0, PI], [0.0, 0.0]).step(&[0.0]).reward, 0.0, epsilon = 1e-12);
        // Actions outside the bounds are clipped.
        let (mut a, mut b) = (at([0.1, 3.0], [0.0; 2]), at([0.1, 3.0], [0.0; 2]));
        assert_eq!(a.step(&[1.0]), b.step(&[7.0]));
        assert_eq!(a.state(), b.state());
    }

    #[test]
    fn constraint_is_strict_and_scales_with_the_coefficient() {
        let cost = |env: &CartPole| {
            let mut costs = [9.0];
            env.costs(&mut costs);
            costs[0]
        };
        assert_eq!(cost(&at([0.5999, PI], [0.0; 2])), 0.0);
        assert_eq!(cost(&at([0.6, PI], [0.0; 2])), 1.0);
        assert_eq!(cost(&at([-0.6, PI], [0.0; 2])), 1.0);
        let mut wide =
            CartPole::new(&EnvOptions { safety_coeff: Some(0.5), ..EnvOptions::default() }).unwrap();
        wide.set_state(&at([0.9, PI], [0.0; 2]).state()).unwrap();
        assert_eq!(cost(&wide), 0.0);
    }

    /// Mean and deviation of 4000 starts: standard errors are 0.01/√4000 = 1.6e-4 and 1.1e-4; five of each.
    #[test]
    fn starts_are_distributed_as_stated() {
        let mut env = CartPole::new(&EnvOptions::default()).unwrap();
        let mut sums = [[0.0; 2]; 4];
        let mut rng = stream(3, "starts", 0);
        let n = 4000.0;
        for _ in 0..4000 {
            env.reset(&mut rng);
            for (sum, value) in
                sums.iter_mut().zip([env.position[0], env.position[1] - PI, env.velocity[0], env.velocity[1]])
            {
                sum[0] += value / n;
                sum[1] += value * value / n;
            }
        }
        for [mean, square] in sums {
            assert!(mean.abs() < 8e-4, "{mean}");
            assert!((square.sqrt() - 0.01).abs() < 6e-4, "{square}");
        }
    }

    #[test]
    fn impossible_states_are_refused() {
        let mut env = CartPole::new(&EnvOptions::default()).unwrap();
        let short = PhysicsState { qpos: vec![0.0], qvel: vec![0.0; 2], act: vec![] };
        assert!(matches!(env.set_state(&short), Err(SimError::State { what: "qpos", .. })));
        let infinite = PhysicsState { qpos: vec![0.0; 2], qvel: vec![0.0, f64::NAN], act: vec![] };
        assert!(matches!(env.set_state(&infinite), Err(SimError::State { what: "qvel", .. })));
    }
}
