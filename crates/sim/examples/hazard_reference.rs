//! The best return that `nav/hazard` allows at each cost, by dynamic programming on a grid: the yardstick for
//! what is learned from logs.
//!
//! `cargo run --release -p coptidice-sim --example hazard_reference`
//!
//! For a price `lambda` on the cost, the return less `lambda` times the cost of an episode is maximised over
//! controllers that hold an action of {−1, 0, 1}² for 4 steps. So long an action changes a velocity by exactly
//! one cell of the grid, 0.2 m/s, which leaves positions (cells of 0.04 m) as the only coordinates to
//! interpolate. Figures are those of the greedy controller *run in the environment*, so they are achieved, not
//! estimated. A finer choice of actions earns somewhat more. Prices trace the upper hull of all (cost, return)
//! pairs: between two prices the best is to mix the two controllers by a coin at the start of the episode.

#![expect(clippy::print_stdout, reason = "the output of an example")]

use coptidice_core::rng::Rng;
use coptidice_sim::hazard::{HazardMap, HazardNavigation};
use coptidice_sim::tolerance::Tolerance;
use coptidice_sim::{Actor, EvaluateOptions, PerThread, SimError, evaluate};
use rayon::prelude::*;

const STEP: f64 = 0.05;
const HOLD: usize = 4;
const STAGES: usize = 200 / HOLD;
/// Positions: x from −2.2 to 2.4, y from 0 to 2.2 (the map is symmetric), in cells of 0.04 m.
const CELL: f64 = 0.04;
const X_LOW: f64 = -2.2;
const NX: usize = 116;
const NY: usize = 56;
/// Velocities in cells of 0.2 m/s: x from −0.8 to 2.2, y from −1.8 to 1.8.
const SPEED_CELL: f64 = 0.2;
const VX_LOW: i64 = -4;
const NVX: usize = 16;
const VY_LOW: i64 = -9;
const NVY: usize = 19;
const ACTIONS: [[i64; 2]; 9] = [[0, 0], [1, 0], [-1, 0], [0, 1], [0, -1], [1, 1], [1, -1], [-1, 1], [-1, -1]];

/// Values of one stage, `[NVX][NVY][NX][NY]`.
type Values = Vec<f32>;

/// Position in m, velocity in cells.
type State = ([f64; 2], [i64; 2]);

fn inside(velocity: [i64; 2]) -> bool {
    let (vx, vy) = (velocity[0] - VX_LOW, velocity[1] - VY_LOW);
    (0..NVX as i64).contains(&vx) && (0..NVY as i64).contains(&vy)
}

/// The value at a state, by bilinear interpolation in position; outside the grid the nearest cell's.
fn value(values: &[f32], (position, velocity): State) -> f64 {
    // Mirror to y ≥ 0.
    let sign = if position[1] < 0.0 { -1 } else { 1 };
    let vx = (velocity[0] - VX_LOW) as usize;
    let vy = (sign * velocity[1] - VY_LOW) as usize;
    let plane = &values[(vx * NVY + vy) * NX * NY..][..NX * NY];
    let x = ((position[0] - X_LOW) / CELL).clamp(0.0, (NX - 1) as f64 - 1e-9);
    let y = (position[1].abs() / CELL).clamp(0.0, (NY - 1) as f64 - 1e-9);
    let (i, j) = (x as usize, y as usize);
    let (u, v) = (x - i as f64, y - j as f64);
    let at = |i: usize, j: usize| f64::from(plane[i * NY + j]);
    (1.0 - u) * ((1.0 - v) * at(i, j) + v * at(i, j + 1))
        + u * ((1.0 - v) * at(i + 1, j) + v * at(i + 1, j + 1))
}

/// Holds an action for [`HOLD`] steps: the state after it, and the reward less `lambda` times the cost.
fn hold(map: &HazardMap, reward: &Tolerance, lambda: f64, state: State, action: [i64; 2]) -> (State, f64) {
    let (mut position, velocity) = state;
    let mut total = 0.0;
    for step in 1..=HOLD {
        total -= if map.hazard.contains(position) { lambda } else { 0.0 };
        for i in 0..2 {
            let speed = SPEED_CELL * velocity[i] as f64 + STEP * step as f64 * action[i] as f64;
            position[i] += STEP * speed;
        }
        total += reward.at((position[0] - map.goal[0]).hypot(position[1] - map.goal[1]));
    }
    ((position, [velocity[0] + action[0], velocity[1] + action[1]]), total)
}

/// The best action at a state, given the values of the next stage, and its value.
fn best(map: &HazardMap, reward: &Tolerance, lambda: f64, next: &[f32], state: State) -> ([i64; 2], f64) {
    let mut chosen = ([0, 0], f64::NEG_INFINITY);
    for action in ACTIONS {
        let (after, gain) = hold(map, reward, lambda, state, action);
        if inside(after.1) {
            let total = gain + value(next, after);
            if total > chosen.1 {
                chosen = (action, total);
            }
        }
    }
    chosen
}

/// The state of a cell.
fn cell_state(plane: usize, cell: usize) -> State {
    let velocity = [(plane / NVY) as i64 + VX_LOW, (plane % NVY) as i64 + VY_LOW];
    ([X_LOW + CELL * (cell / NY) as f64, CELL * (cell % NY) as f64], velocity)
}

/// What holding each action earns in each cell, `[plane][cell][action]`: the same at every stage.
fn gains(map: &HazardMap, reward: &Tolerance, lambda: f64) -> Vec<f32> {
    let mut gains = vec![0.0; NVX * NVY * NX * NY * ACTIONS.len()];
    gains.par_chunks_mut(NX * NY * ACTIONS.len()).enumerate().for_each(|(plane, gains)| {
        for (cell, gains) in gains.chunks_exact_mut(ACTIONS.len()).enumerate() {
            for (gain, action) in gains.iter_mut().zip(ACTIONS) {
                *gain = hold(map, reward, lambda, cell_state(plane, cell), action).1 as f32;
            }
        }
    });
    gains
}

/// Where holding an action leads.
fn after(state: State, action: [i64; 2]) -> State {
    let (mut position, velocity) = state;
    for i in 0..2 {
        // Sum over the steps of the speed after each.
        let growth = STEP * action[i] as f64 * (HOLD * (HOLD + 1) / 2) as f64;
        position[i] += STEP * (HOLD as f64 * SPEED_CELL * velocity[i] as f64 + growth);
    }
    (position, [velocity[0] + action[0], velocity[1] + action[1]])
}

/// Values of stages `0..=STAGES`.
fn solve(map: &HazardMap, reward: &Tolerance, lambda: f64) -> Vec<Values> {
    let gains = gains(map, reward, lambda);
    let mut stages = vec![vec![0.0; NVX * NVY * NX * NY]];
    for _ in 0..STAGES {
        let next = &stages[stages.len() - 1];
        let mut current = vec![0.0; next.len()];
        let gains = gains.par_chunks(NX * NY * ACTIONS.len());
        current.par_chunks_mut(NX * NY).zip(gains).enumerate().for_each(|(plane, (values, gains))| {
            for ((cell, best), gains) in values.iter_mut().enumerate().zip(gains.chunks_exact(ACTIONS.len()))
            {
                *best = f32::NEG_INFINITY;
                for (&gain, action) in gains.iter().zip(ACTIONS) {
                    let state = after(cell_state(plane, cell), action);
                    if inside(state.1) {
                        *best = best.max(gain + value(next, state) as f32);
                    }
                }
            }
        });
        stages.push(current);
    }
    stages.reverse();
    stages
}

/// Acts greedily on the values, anew every [`HOLD`] steps.
struct Greedy<'a> {
    map: HazardMap,
    reward: Tolerance,
    lambda: f64,
    stages: &'a [Values],
    step: usize,
    held: [i64; 2],
}

impl Actor for Greedy<'_> {
    fn begin_episode(&mut self, _: &[f32], _: &mut Rng) {
        self.step = 0;
    }

    fn act(&mut self, observation: &[f32], _: &mut Rng, action: &mut [f32]) {
        if self.step.is_multiple_of(HOLD) {
            let velocity = |i: usize| (f64::from(observation[i]) / SPEED_CELL).round() as i64;
            let state = ([f64::from(observation[0]), f64::from(observation[1])], [velocity(2), velocity(3)]);
            let next = &self.stages[self.step / HOLD + 1];
            self.held = best(&self.map, &self.reward, self.lambda, next, state).0;
        }
        self.step += 1;
        action.copy_from_slice(&[self.held[0] as f32, self.held[1] as f32]);
    }
}

fn main() -> Result<(), SimError> {
    let env = HazardNavigation::new();
    let map = *env.map();
    let reward = Tolerance::near(0.0, map.reward_margin);
    println!("{:>8} {:>8} {:>14} {:>12}", "lambda", "return", "cost/episode", "cost/step");
    for lambda in [0.0, 0.2, 0.4, 0.6, 1.0, 2.0] {
        let stages = solve(&map, &reward, lambda);
        let source = PerThread(|| Greedy { map, reward, lambda, stages: &stages, step: 0, held: [0, 0] });
        let figures = evaluate(&env, &source, &EvaluateOptions::new(400, 0))?;
        println!(
            "{lambda:8.2} {:8.2} {:14.2} {:12.4}",
            figures.return_mean,
            figures.cost_per_episode.unwrap_or(0.0),
            figures.cost_per_step.unwrap_or(0.0)
        );
    }
    Ok(())
}
