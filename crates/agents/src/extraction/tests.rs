//! Extraction against differences, exact values, and conditional means.

use coptidice_core::rng::stream;
use coptidice_data::{ActionSpace, Schema, Step, StepAction, Transitions, TransitionsBuilder};
use coptidice_nn::Pool;
use rand::RngExt as _;

use super::projection::log_weight;
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

/// An empty log with two costs.
fn log_of(observation_dim: usize, action: ActionSpace) -> TransitionsBuilder {
    let cost_names = vec!["first".to_owned(), "second".to_owned()];
    TransitionsBuilder::new(Schema { observation_dim, action, cost_names, propensity: false }).unwrap()
}

fn cycle() -> Transitions {
    let labels = vec!["step".to_owned(), "skip".to_owned()];
    let mut builder = log_of(STATES, ActionSpace::Discrete { labels });
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

/// Evenly over the last half of the policy's steps, 21 to 40, the exported parameters as they were.
#[test]
fn earlier_policies_are_set_aside_as_they_were() {
    let data = cycle();
    for (fields, expected) in [("finalists = 3\n", vec![30, 35]), ("finalists = 1\n", vec![])] {
        let fields = format!("extraction = \"weighted_bc\"\nsteps = 40\ndual_share = 0.5\n{fields}");
        let config = testing::config(&data, &fields);
        let problem = Problem::new(&config, &data).unwrap();
        let mut policy = PolicyTrainer::new(&problem).unwrap();
        let mut sampler = Sampler::new(&problem);
        let mut seen = Vec::new();
        for step in 21..=40 {
            let batch = sampler.draw(step);
            policy.step(batch, &vec![1.0; batch.size], &pool());
            if expected.contains(&step) {
                seen.push((step, policy.exported().to_vec()));
            }
        }
        let kept: Vec<_> = policy.finalists().iter().map(|f| (f.step, f.params.clone())).collect();
        assert_eq!(kept, seen);
        assert_eq!(kept.iter().map(|(step, _)| *step).collect::<Vec<_>>(), expected);
    }
    let short = testing::config(&data, "extraction = \"weighted_bc\"\nsteps = 6\nfinalists = 64\n");
    let problem = Problem::new(&short, &data).unwrap();
    assert!(PolicyTrainer::new(&problem).unwrap().finalists().len() < 3);
}

/// The members' values of a fixed policy are those of a policy evaluation. Transitions are deterministic and the
/// networks can hold any function of three states, so that nothing but the last steps' size is left: a percent of
/// values that lie between 0 and `1/(1 - 0.8) = 5`.
#[test]
fn critics_learn_the_values_of_a_fixed_policy() {
    let data = cycle();
    let config = testing::config(
        &data,
        "extraction = \"critic_guided\"\nbatch_size = 64\nlearning_rate = 3e-3\nreward_scale = \"none\"\n\
         normalize_observations = false\n[critic]\nensemble = 3\ndiscount = 0.8\nlookahead = 1\n\
         target_rate = 0.05\n",
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
    for member in critics.values_at(&one_hot, STATES, &pool()) {
        for (found, expected) in member.iter().zip(exact.as_flattened().as_flattened()) {
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

/// A price is worth `caution` deviations of the reward for one of the cost at its limit, in whatever units rewards and
/// costs are scaled.
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
            let unscaled = found * cost.logged_scale / problem.reward_scale;
            let of_cost = (limit * (1.0 / cost.logged_scale - limit)).sqrt();
            assert!((unscaled - 0.3 * deviation / of_cost).abs() < 1e-9, "{scale}: {unscaled}");
        }
        let free = testing::config(&data, "algo = \"optidice\"\ncaution = 0.3\n");
        assert_eq!(prices(&Problem::new(&free, &data).unwrap()), [0.0, 0.0]);
    }
}

/// The gradient in the outputs lies between the differences of the loss to either side, which differ by the curvature, and
/// where the range's end or the floor is crossed by the kink. Draws are those of the batch's step, so that the loss is one
/// function; it is of order 10 and comes through two networks in single precision, which leaves 1e-6, or 2e-4 after
/// division by 1e-2.
fn check_projection(action: ActionSpace, divergence: &str) {
    let data = testing::random_log(3, action, 6, 20);
    let toml = format!(
        "extraction = \"information_projection\"\nbatch_size = 16\ndivergence = \"{divergence}\"\nalpha = 0.8\n\
         learning_rate = 1e-2\n[projection]\nfloor = 0.3\n"
    );
    let config = testing::config(&data, &toml);
    let problem = Problem::new(&config, &data).unwrap();
    let (mut policy, mut target) =
        (PolicyTrainer::new(&problem).unwrap(), Projection::new(&problem).unwrap());
    let mut sampler = Sampler::new(&problem);
    let mut rng = stream(0, "advantages", 0);
    let e: Vec<f32> = (0..16).map(|_| rng.random_range(-2.0..1.0)).collect();
    let batch = sampler.draw(0);
    for _ in 0..100 {
        target.fit(batch, &e, &pool());
    }
    let head = head(&problem);
    let start: Vec<f32> =
        policy.outputs(batch.current_states(), 16, &pool()).iter().map(|x| 0.3 * x - 0.2).collect();
    let (mut d_outputs, mut ignored) = (vec![f32::NAN; start.len()], vec![0.0; start.len()]);
    target.loss(&head, batch, &start, &mut d_outputs, &pool());
    let floored = target.figures()[2];
    let mut smooth = 0;
    for i in 0..start.len() {
        let mut at = |h: f32| {
            let mut outputs = start.clone();
            outputs[i] += h;
            target.loss(&head, batch, &outputs, &mut ignored, &pool())
        };
        let (below, here, above) = (at(-1e-2), at(0.0), at(1e-2));
        let [left, right] = [(here - below) / 1e-2, (above - here) / 1e-2];
        let found = f64::from(d_outputs[i]);
        let slack = 3e-4 * (1.0 + found.abs());
        assert!(
            found > left.min(right) - slack && found < left.max(right) + slack,
            "{i}: {found}, {left}, {right}"
        );
        smooth += usize::from((left - right).abs() < 0.1 * found.abs());
    }
    // Of continuous actions the logits of single Gaussians mean nothing.
    assert!(smooth > start.len() / 3, "{smooth} slopes of {} were compared", start.len());
    // With some of its weights at the floor and some above, both branches were met.
    assert_eq!(floored > 0.0 && floored < 1.0, divergence == "chi2", "{floored}");
}

#[test]
fn projecting_continuous_actions_goes_down_the_gradient_of_the_divergence() {
    for divergence in ["chi2", "softchi", "kl"] {
        check_projection(ActionSpace::Continuous { dim: 2 }, divergence);
    }
}

#[test]
fn projecting_finitely_many_actions_goes_down_the_gradient_of_the_divergence() {
    for divergence in ["chi2", "softchi", "kl"] {
        let labels = ["a", "b", "c"].map(str::to_owned).to_vec();
        check_projection(ActionSpace::Discrete { labels }, divergence);
    }
}

#[test]
fn log_weights_are_the_logarithms_of_weights() {
    for divergence in coptidice_core::Divergence::ALL {
        for i in -40..40 {
            let y = f64::from(i) / 8.0 + 0.01;
            let found = log_weight(divergence, y, 0.2);
            let w = divergence.weight(y);
            let floored = divergence == coptidice_core::Divergence::Chi2 && w < 0.2;
            assert_eq!(found.floored, floored, "{divergence} {y}");
            let (value, slope) =
                if floored { (0.2_f64.ln(), 0.0) } else { (w.ln(), divergence.weight_derivative(y) / w) };
            // Two roundings of numbers below 10.
            assert!((found.value - value).abs() < 1e-14 * 10.0, "{divergence} {y}: {found:?} for {value}");
            assert!((found.slope - slope).abs() < 1e-14 * 10.0, "{divergence} {y}: {found:?} for {slope}");
        }
    }
}

/// On a finite problem the minimum has a closed form, `beta w` normalised at each state, with `beta` the log's shares and
/// `w` of the mean advantage. The networks can hold any function of three states; the last steps' size leaves a few
/// hundredths of an `e` of order one, and less of probabilities.
#[test]
fn the_projection_is_the_behaviour_times_the_weights() {
    let data = cycle();
    let state = |row: usize| (0..STATES).position(|i| data.observation(row)[i] == 1.0).unwrap();
    let mut visits = [[0.0; 2]; STATES];
    for row in 0..data.len() {
        visits[state(row)][data.discrete_action(row) as usize] += 1.0;
    }
    // By state and action; chi-square rules out both actions of the second state.
    const E: [[f32; 2]; STATES] = [[0.5, -0.5], [-3.0, -2.0], [1.0, -0.9]];
    for (divergence, floor) in [("chi2", 0.05), ("softchi", 0.01), ("kl", 0.01)] {
        let toml = format!(
            "extraction = \"information_projection\"\nbatch_size = 64\nlearning_rate = 3e-3\n\
             policy_learning_rate = 3e-3\nalpha = 0.5\nnormalize_observations = false\ndivergence = \"{divergence}\"\n\
             [projection]\nfloor = {floor}\n"
        );
        let config = testing::config(&data, &toml);
        let problem = Problem::new(&config, &data).unwrap();
        let (mut policy, mut target) =
            (PolicyTrainer::new(&problem).unwrap(), Projection::new(&problem).unwrap());
        let mut sampler = Sampler::new(&problem);
        for step in 0..4000 {
            // Rows in turn, so that every batch is as the log; rates fall, so that the last step is small.
            let rows: Vec<usize> = (0..64).map(|b| (b + 64 * step) % data.len()).collect();
            let batch = sampler.gather(|b| (rows[b], [0, 0], 0.5));
            // A single successor's luck is averaged away: one sample up, the next one down.
            let luck = |b: usize| if (b + step).is_multiple_of(2) { 0.3 } else { -0.3 };
            let e: Vec<f32> = (0..64)
                .map(|b| E[state(rows[b])][data.discrete_action(rows[b]) as usize] + luck(b))
                .collect();
            let pace = (1.0 - step as f32 / 4000.0).max(0.02);
            policy.set_pace(pace);
            target.set_pace(pace);
            target.fit(batch, &e, &pool());
            target.project(batch, &mut policy, &pool());
        }
        let one_hot: Vec<f32> =
            (0..STATES * STATES).map(|i| f32::from(u8::from(i / STATES == i % STATES))).collect();
        let logits = policy.outputs(&one_hot, STATES, &pool()).to_vec();
        for s in 0..STATES {
            let mass = |a: usize| {
                let w = config.divergence.weight(f64::from(E[s][a]) / config.alpha);
                visits[s][a] * if divergence == "chi2" { w.max(floor) } else { w }
            };
            let expected = mass(1) / (mass(0) + mass(1));
            let found = 1.0 / (1.0 + f64::from(logits[2 * s] - logits[2 * s + 1]).exp());
            assert!((found - expected).abs() < 0.03, "{divergence}, state {s}: {found} for {expected}");
        }
    }
}

/// A normal `beta` of deviation `s` times `exp(e/alpha)` with `e = k a` is the normal distribution of the same deviation
/// around `s^2 k/alpha`: the policy can hold the minimum, and must find both. The log's actions are the odd percentiles
/// of such a `beta`; its own deviation is that of the log, as maximum likelihood has it. One draw a state and step leaves
/// an error of `1/sqrt(64)` per step, of which the falling rate averages hundreds away.
#[test]
fn the_projection_of_a_tilted_normal_behaviour_is_the_shifted_one() {
    let mut builder = log_of(1, ActionSpace::Continuous { dim: 1 });
    // Sums of uniform numbers on a grid are near enough to normal ones, and symmetric.
    let mut actions: Vec<f32> = Vec::new();
    for i in 0..8_u8 {
        for j in 0..8_u8 {
            for k in 0..8_u8 {
                actions.push((f32::from(i) + f32::from(j) + f32::from(k) - 10.5) / 4.0);
            }
        }
    }
    for &action in &actions {
        builder
            .push(&Step {
                observation: &[1.0],
                action: StepAction::Continuous(&[action]),
                reward: 0.0,
                costs: &[0.0; 2],
                next_observation: &[1.0],
                terminal: false,
                timeout: false,
                propensity: None,
            })
            .unwrap();
    }
    let data = builder.finish().unwrap();
    let deviation = (actions.iter().map(|a| f64::from(a * a)).sum::<f64>() / actions.len() as f64).sqrt();
    let config = testing::config(
        &data,
        "extraction = \"information_projection\"\nbatch_size = 64\nlearning_rate = 3e-3\n\
         policy_learning_rate = 3e-3\nalpha = 0.8\ndivergence = \"kl\"\nnormalize_observations = false\n\
         [projection]\nbehaviour_components = 1\n",
    );
    let problem = Problem::new(&config, &data).unwrap();
    let (mut policy, mut target) =
        (PolicyTrainer::new(&problem).unwrap(), Projection::new(&problem).unwrap());
    let mut sampler = Sampler::new(&problem);
    let slope = 0.5;
    for step in 0..4000_usize {
        let rows: Vec<usize> = (0..64).map(|b| (b * 8 + step * 37) % data.len()).collect();
        let mut batch = sampler.gather(|b| (rows[b], [0, 0], 0.5)).clone();
        batch.step = step as u64;
        let e: Vec<f32> = rows.iter().map(|&row| slope * actions[row]).collect();
        let pace = (1.0 - step as f32 / 4000.0).max(0.02);
        policy.set_pace(pace);
        target.set_pace(pace);
        target.fit(&batch, &e, &pool());
        target.project(&batch, &mut policy, &pool());
    }
    let outputs = policy.outputs(&[1.0], 1, &pool()).to_vec();
    let scale = f64::from(coptidice_nn::math::softplus(outputs[2]) + config.networks.min_scale);
    let shift = deviation.powi(2) * f64::from(slope) / config.alpha;
    assert!((f64::from(outputs[1]) - shift).abs() < 0.06 * deviation, "{} for {shift}", outputs[1]);
    assert!((scale - deviation).abs() < 0.06 * deviation, "{scale} for {deviation}");
}

/// The critics' values are those of the policy that selects: of the best policy of the priced reward, found by iteration,
/// as both actions are likely. As in the test of a fixed policy, nothing is left but the last steps' size.
#[test]
fn selecting_critics_learn_the_values_of_the_policy_that_selects() {
    let data = cycle();
    let config = testing::config(
        &data,
        "extraction = \"guided_selection\"\nbatch_size = 64\nlearning_rate = 3e-3\nreward_scale = \"none\"\n\
         normalize_observations = false\n[critic]\ndiscount = 0.8\nlookahead = 1\ntarget_rate = 0.05\n",
    );
    let problem = Problem::new(&config, &data).unwrap();
    let (mut policy, mut selection) =
        (PolicyTrainer::new(&problem).unwrap(), Selection::new(&problem).unwrap());
    let mut sampler = Sampler::new(&problem);
    let prices = [0.4, 0.1];
    for step in 0..3000 {
        selection.step(sampler.draw(step), &prices, &mut policy, &pool());
    }
    let worth = |q: &[f64; 3]| q[0] - prices[0] * q[1] - prices[1] * q[2];
    let mut exact = [[[0.0_f64; 3]; 2]; STATES];
    for _ in 0..200 {
        exact = std::array::from_fn(|s| {
            std::array::from_fn(|a| {
                let [one, other] = &exact[after(s, a)];
                let best = if worth(other) > worth(one) { other } else { one };
                let now = [reward(s), a as f64, 1.0 - a as f64];
                std::array::from_fn(|j| now[j] + 0.8 * best[j])
            })
        });
    }
    let best = exact.map(|[one, other]| usize::from(worth(&other) > worth(&one)));
    assert!(best.contains(&0) && best.contains(&1), "both actions are best somewhere: {best:?}");
    let one_hot: Vec<f32> =
        (0..STATES * STATES).map(|i| f32::from(u8::from(i / STATES == i % STATES))).collect();
    let selector = selection.selector(&prices);
    let (network, params) = (&selector.network, &selector.params);
    let mut values = [[0.0; 6]; STATES];
    let (weights, mut room) = (network.forward_weights(params), network.forward_room(STATES));
    network.forward_with(params, &weights, &one_hot, values.as_flattened_mut(), &mut room);
    for (found, expected) in values.as_flattened().iter().zip(exact.as_flattened().as_flattened()) {
        assert!((f64::from(*found) - expected).abs() < 0.05, "{found} for {expected}");
    }
    assert!(selection.figures()[2] > 0.0, "the best is better than the mean");
}

/// One state, actions of one dimension, nothing follows: the reward is largest at 0.3 of a range from -1 to 1, the cost is
/// the action. At a price of 0.8 the best action is where the slopes `-2 (a - 0.3)` and `0.8` cancel, at -0.1. The critic
/// is a smooth curve through 61 points: what is chosen is the best candidate, or one about as good.
#[test]
fn the_best_candidate_of_continuous_actions_is_selected() {
    use crate::policy::{Acting, Candidates, Normalizer, Policy, PolicyAbout, PolicyParts};
    let mut builder = log_of(1, ActionSpace::Continuous { dim: 1 });
    for i in -30..=30_i8 {
        let action = f32::from(i) / 30.0;
        builder
            .push(&Step {
                observation: &[1.0],
                action: StepAction::Continuous(&[action]),
                reward: -(action - 0.3).powi(2),
                costs: &[action, 0.0],
                next_observation: &[1.0],
                terminal: true,
                timeout: false,
                propensity: None,
            })
            .unwrap();
    }
    let data = builder.finish().unwrap();
    let config = testing::config(
        &data,
        "extraction = \"guided_selection\"\nbatch_size = 61\nlearning_rate = 3e-3\nreward_scale = \"none\"\n\
         policy_learning_rate = 3e-3\nnormalize_observations = false\npolicy_average_rate = 0.0\n\
         [critic]\ndiscount = 0.0\nlookahead = 1\ntarget_rate = 0.05\n[selection]\ncandidates = 12\n\
         [networks]\npolicy = []\n\
         value = [{ kind = \"dense\", width = 32, layer_norm = false, activation = \"tanh\" }]\n",
    );
    let problem = Problem::new(&config, &data).unwrap();
    let (mut policy, mut selection) =
        (PolicyTrainer::new(&problem).unwrap(), Selection::new(&problem).unwrap());
    let mut sampler = Sampler::new(&problem);
    for step in 0..4000 {
        let pace = (1.0 - step as f32 / 4000.0).max(0.02);
        selection.set_pace(pace);
        let mut batch = sampler.gather(|b| (b, [0, 0], 0.5)).clone();
        batch.step = step;
        selection.step(&batch, &[0.8, 0.0], &mut policy, &pool());
    }
    for (price, wanted) in [(0.8, -0.1_f32), (0.0, 0.3)] {
        let selector = selection.selector(&[price, 0.0]);
        let Candidates::Drawn { draws, .. } = selector.candidates.clone() else { panic!("continuous") };
        let acting = Policy::new(PolicyParts {
            network: policy.network().clone(),
            params: policy.exported().to_vec(),
            head: head(&problem),
            normalizer: Normalizer::identity(1),
            acting: Acting::Select,
            action_low: vec![-1.0],
            action_high: vec![1.0],
            action_unit: None,
            selector: Some(selector),
            about: PolicyAbout::new("test", 0, 0, "none"),
        })
        .unwrap();
        let outputs = policy.outputs(&[1.0], 1, &pool()).to_vec();
        let best = draws
            .chunks(1)
            .map(|draws| {
                let mut action = [0.0];
                head(&problem).at_quantiles(&outputs, draws, &mut action);
                action[0].clamp(-1.0, 1.0)
            })
            .min_by(|a, b| (a - wanted).abs().total_cmp(&(b - wanted).abs()))
            .unwrap();
        let mut found = [f32::NAN];
        acting.actor().act(&[1.0], &mut stream(0, "t", 0), &mut found).unwrap();
        let lost = (found[0] - wanted).powi(2) - (best - wanted).powi(2);
        assert!(lost < 0.02, "{} where {best} was nearest to {wanted}", found[0]);
        assert!((best - wanted).abs() < 0.25, "twelve candidates of a range of 2: {best}");
    }
}
