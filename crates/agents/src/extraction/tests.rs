//! Extraction against differences, exact values, and conditional means.

use coptidice_core::rng::stream;
use coptidice_data::{ActionSpace, Schema, Step, StepAction, Transitions, TransitionsBuilder};
use coptidice_nn::Pool;
use rand::RngExt as _;

use super::*;
use crate::policy::Head;
use crate::sampler::Sampler;
use crate::testing;

fn pool() -> Pool {
    Pool::new(1).unwrap()
}

/// A cycle of three states, one-hot, in which action 1 skips a state; reward `s/2`, one cost of the action taken.
const STATES: usize = 3;

fn after(state: usize, action: usize) -> usize {
    (state + 1 + action) % STATES
}

fn reward(state: usize) -> f64 {
    state as f64 / 2.0
}

fn cycle() -> Transitions {
    let schema = Schema {
        observation_dim: STATES,
        action: ActionSpace::Discrete { labels: vec!["step".to_owned(), "skip".to_owned()] },
        cost_names: vec!["first".to_owned(), "second".to_owned()],
        propensity: false,
    };
    let mut builder = TransitionsBuilder::new(schema).unwrap();
    let one_hot =
        |state: usize| -> [f32; STATES] { std::array::from_fn(|i| f32::from(u8::from(i == state))) };
    let mut rng = stream(1, "cycle", 0);
    let mut state = 0;
    for row in 0..60 {
        let action: u32 = rng.random_range(0..2);
        let next = after(state, action as usize);
        builder
            .push(&Step {
                observation: &one_hot(state),
                action: StepAction::Discrete(action),
                reward: reward(state) as f32,
                costs: &[action as f32, 1.0 - action as f32],
                next_observation: &one_hot(next),
                terminal: false,
                timeout: row % 20 == 19,
                propensity: None,
            })
            .unwrap();
        state = next;
    }
    builder.finish().unwrap()
}

/// The twins' values of a fixed policy are those of a policy evaluation. Transitions are deterministic and the
/// networks can hold any function of three states, so that nothing but the last steps' size is left: a percent of
/// values that lie between 0 and `1/(1 - 0.8) = 5`.
#[test]
fn critics_learn_the_values_of_a_fixed_policy() {
    let data = cycle();
    let config = testing::config(
        &data,
        "extraction = \"critic_guided\"\nbatch_size = 64\nlearning_rate = 3e-3\nreward_scale = \"none\"\n\
         normalize_observations = false\n[critic]\ndiscount = 0.8\nlookahead = 1\ntarget_rate = 0.05\n",
    );
    let problem = Problem::new(&config, &data).unwrap();
    let (mut policy, mut critics) = (PolicyTrainer::new(&problem).unwrap(), Critics::new(&problem).unwrap());
    let mut sampler = Sampler::new(&problem);
    for step in 0..3000 {
        critics.step(sampler.draw(step), &[0.4, 0.7], &mut policy, &pool());
    }
    let one_hot: Vec<f32> =
        (0..STATES * STATES).map(|i| f32::from(u8::from(i / STATES == i % STATES))).collect();
    let probabilities: Vec<[f64; 2]> = policy
        .outputs(&one_hot, STATES, &pool())
        .chunks_exact(2)
        .map(|logits| {
            let odds = f64::from(logits[1] - logits[0]).exp();
            [1.0 / (1.0 + odds), odds / (1.0 + odds)]
        })
        .collect();
    // Policy evaluation by iteration, to 0.8^200 = 4e-20.
    let mut exact = [[[0.0_f64; 3]; 2]; STATES];
    for _ in 0..200 {
        exact = std::array::from_fn(|s| {
            std::array::from_fn(|a| {
                let next = after(s, a);
                let now = [reward(s), a as f64, 1.0 - a as f64];
                std::array::from_fn(|j| {
                    now[j] + 0.8 * (0..2).map(|b| probabilities[next][b] * exact[next][b][j]).sum::<f64>()
                })
            })
        });
    }
    for twin in critics.values_at(&one_hot, STATES, &pool()) {
        for (found, expected) in twin.iter().zip(exact.as_flattened().as_flattened()) {
            assert!((f64::from(*found) - expected).abs() < 0.05, "{found} for {expected}");
        }
    }
}

/// The gradient in the outputs against central differences of the loss: with differences of 2e-2 the rounding of the
/// critic's values (1e-7 of about 20) leaves 1e-4 relative to slopes of 1e-2, and the curvature about as much.
fn check_guidance(action: ActionSpace) {
    let data = testing::random_log(3, action, 6, 20);
    let toml = "extraction = \"critic_guided\"\nbatch_size = 16\n[critic]\nguidance = 0.7\n";
    let config = testing::config(&data, toml);
    let problem = Problem::new(&config, &data).unwrap();
    let (mut policy, mut critics) = (PolicyTrainer::new(&problem).unwrap(), Critics::new(&problem).unwrap());
    let mut sampler = Sampler::new(&problem);
    let batch = sampler.draw(0);
    let prices = [0.4, 1.3];
    let mut rng = stream(0, "weights", 0);
    let w: Vec<f32> = (0..16).map(|_| rng.random_range(0.0..2.0)).collect();
    critics.step(batch, &prices, &mut policy, &pool());
    let head = head(&problem);
    let start: Vec<f32> =
        policy.outputs(batch.current_states(), 16, &pool()).iter().map(|x| 0.3 * x).collect();
    let mut d_outputs = vec![0.0; start.len()];
    let mut ignored = vec![0.0; start.len()];
    critics.loss(&head, batch, &w, &prices, &start, &mut d_outputs, &pool());
    let places: Vec<usize> = match head {
        // Scales and logits of a single Gaussian follow the likelihood alone, which has tests of its own.
        Head::Mixture { action_dim, .. } => (0..start.len()).filter(|i| i / action_dim % 3 == 1).collect(),
        Head::Categorical { .. } => (0..start.len()).collect(),
    };
    let mut compared = 0.0_f64;
    for &i in &places {
        let mut at = |h: f32| {
            let mut outputs = start.clone();
            outputs[i] += h;
            critics.loss(&head, batch, &w, &prices, &outputs, &mut ignored, &pool())
        };
        let difference = (at(1e-2) - at(-1e-2)) / 2e-2;
        let found = f64::from(d_outputs[i]);
        compared = compared.max(difference.abs());
        assert!((found - difference).abs() < 2e-3 * (0.05 + difference.abs()), "{i}: {found}, {difference}");
    }
    assert!(compared > 0.01, "nothing was compared");
}

#[test]
fn guidance_of_continuous_actions_is_the_gradient_of_its_loss() {
    check_guidance(ActionSpace::Continuous { dim: 2 });
}

#[test]
fn guidance_of_finitely_many_actions_is_the_gradient_of_its_loss() {
    let labels = ["a", "b", "c"].map(str::to_owned).to_vec();
    check_guidance(ActionSpace::Discrete { labels });
}

/// `h` learns the mean weight of each state, and weights are the ratios to it, cut at `clip`.
#[test]
fn weights_are_divided_by_their_mean_at_the_state() {
    let data = cycle();
    let config = testing::config(
        &data,
        "extraction = \"state_normalized\"\nbatch_size = 64\nlearning_rate = 3e-3\n\
         [state_weight]\nfloor = 0.01\nclip = 1.2\n",
    );
    let problem = Problem::new(&config, &data).unwrap();
    let mut weights = StateWeights::new(&problem).unwrap();
    let mut sampler = Sampler::new(&problem);
    // By state and action; the state in the third place has weights 0 and 4 around a mean that depends on the log.
    const W: [[f32; 2]; STATES] = [[0.1, 0.3], [1.0, 1.0], [0.0, 4.0]];
    let state = |row: usize| (0..STATES).position(|i| data.observation(row)[i] == 1.0).unwrap();
    let mut means = [0.0; STATES];
    let mut visits = [0.0; STATES];
    for row in 0..data.len() {
        means[state(row)] += W[state(row)][data.discrete_action(row) as usize];
        visits[state(row)] += 1.0;
    }
    let mut last = Vec::new();
    for step in 0..3000 {
        let rows: Vec<usize> = (0..64).map(|b| (b * 7 + step * 13) % data.len()).collect();
        let batch = sampler.gather(|b| (rows[b], [0, 0], 0.5));
        let w: Vec<f32> = rows.iter().map(|&row| W[state(row)][data.discrete_action(row) as usize]).collect();
        let found = weights.step(batch, &w, &pool());
        if step == 2999 {
            last = rows.iter().copied().zip(w).zip(found.to_vec()).collect();
        }
    }
    for ((row, w), found) in last {
        let expected = (w / (means[state(row)] / visits[state(row)] + 0.01)).min(1.2);
        assert!((found - expected).abs() < 0.05 * (1.0 + expected), "{found} for {expected}");
    }
    assert!(weights.figures()[1] > 0.0, "the weight of 4 is cut");
}

/// A price is worth `caution` deviations of the reward for as much cost as the limit allows, in whatever units
/// rewards and costs are scaled.
#[test]
fn prices_are_of_the_size_of_rewards_and_limits() {
    let data = testing::random_log(3, ActionSpace::Continuous { dim: 1 }, 6, 20);
    let rewards: Vec<f64> = data.rewards().iter().map(|&r| f64::from(r)).collect();
    let mean = rewards.iter().sum::<f64>() / rewards.len() as f64;
    let deviation = (rewards.iter().map(|r| (r - mean).powi(2)).sum::<f64>() / rewards.len() as f64).sqrt();
    for scale in ["\"none\"", "\"std\"", "7.0"] {
        let config = testing::config(&data, &format!("caution = 0.3\nreward_scale = {scale}\n"));
        let problem = Problem::new(&config, &data).unwrap();
        for ((found, cost), limit) in prices(&problem).iter().zip(&problem.costs).zip([0.4, 0.3]) {
            let unscaled = found * cost.scale / problem.reward_scale;
            assert!((unscaled - 0.3 * deviation / limit).abs() < 1e-9, "{scale}: {unscaled}");
        }
        let free = testing::config(&data, "algo = \"optidice\"\ncaution = 0.3\n");
        assert_eq!(prices(&Problem::new(&free, &data).unwrap()), [0.0, 0.0]);
    }
}
