//! What the policy that was drawn would earn and cost, without a simulator.
//!
//! The dual's estimates are of its own optimum; the policy drawn from it is another one, and may earn less and cost more.
//! Fitted Q evaluation (`coptidice_ope::fqe`) estimates the policy itself, on logged transitions, under the same `gamma`
//! and normalisation, so that the two can stand side by side: what lies between them is what drawing the policy lost
//! (and what the estimators get wrong).
//!
//! Where a policy can act in several ways, each is evaluated, and the one that keeps the limits and earns most is
//! exported ([`crate::TrainConfig::choose_acting`]).

use coptidice_core::rng::stream;
use coptidice_data::{Actions, Transitions};
use coptidice_nn::{Activation, BlockSpec, Pool};
use coptidice_ope::fqe;
use serde::{Deserialize, Serialize};

use crate::balance::Balance;
use crate::config::TrainConfig;
use crate::estimate::{CostEstimate, Estimates};
use crate::policy::{ActError, Acting, Head, Policy};
use crate::problem::Problem;

/// Whole episodes are left out, evenly, until the others have at most this many steps.
const MOST_ROWS: usize = 200_000;
/// The regression's network, learning rate and batch: its own, whatever the learner's.
const WIDTH: usize = 128;
const LEARNING_RATE: f64 = 1e-3;
const BATCH: usize = 256;
/// Evaluation takes at most this share of the gradient steps of training in every round.
const MOST_STEPS: u64 = 100;
/// The policy's reward is short of the dual's, or its cost above, where the gap is more than this share of the dual's
/// reward, or of the limit.
const GAP: f64 = 0.25;

/// What a policy would earn and cost, estimated on logs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PolicyEstimate {
    /// How it acts.
    pub acting: Acting,
    /// Reward per step, normalised as the dual's `E[w r]`.
    pub reward: f64,
    /// Costs with limits, per step and (at `gamma = 1`) per episode.
    pub costs: Vec<CostEstimate>,
    /// How far the estimates had settled: largest less smallest of the last rounds, reward first, then costs.
    pub unsettled: Vec<f64>,
    /// How much of what was logged the policy does, from 0 to 1.
    pub similarity: f64,
    /// Rows of the log that it rests on.
    pub rows: usize,
    /// Whether they are of episodes that training did not see.
    pub held_out: bool,
}

/// Of every way of acting that was tried; the first is the one that is exported.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PolicyEvaluation {
    /// What was found, the chosen one first, then as tried.
    pub ways: Vec<PolicyEstimate>,
    /// Ways that could not be evaluated, and why.
    pub failed: Vec<(Acting, String)>,
}

/// Where the policy is worse than the dual's optimum, in words.
#[derive(Clone, Debug, PartialEq)]
pub enum Gap {
    /// It earns less.
    Reward {
        /// Estimated of the policy, reward per step.
        policy: f64,
        /// The dual's.
        dual: f64,
    },
    /// A cost is over its limit, or further above the dual's than a share of the limit.
    Cost {
        /// Which cost.
        name: String,
        /// Estimated of the policy, cost per step.
        policy: f64,
        /// The dual's.
        dual: f64,
        /// The limit, per step.
        limit: f64,
    },
}

impl std::fmt::Display for Gap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Gap::Reward { policy, dual } => {
                write!(f, "the policy is estimated to earn {policy:.4} a step, the dual's optimum {dual:.4}")
            }
            Gap::Cost { name, policy, dual, limit } => write!(
                f,
                "the policy's {name} is estimated at {policy:.4} a step, the dual's optimum at {dual:.4}; the limit is {limit:.4}"
            ),
        }
    }
}

impl PolicyEvaluation {
    /// The exported way.
    #[must_use]
    pub fn chosen(&self) -> Option<&PolicyEstimate> {
        self.ways.first()
    }

    /// Where the chosen policy parts from what the dual promises. `limits` are per step, in the order of the costs.
    #[must_use]
    pub fn gaps(&self, estimates: &Estimates, limits: &[f64]) -> Vec<Gap> {
        let Some(chosen) = self.chosen() else { return Vec::new() };
        let mut gaps = Vec::new();
        let (policy, dual) = (chosen.reward, estimates.reward);
        if policy < dual - GAP * dual.abs() {
            gaps.push(Gap::Reward { policy, dual });
        }
        for ((cost, promised), &limit) in chosen.costs.iter().zip(&estimates.costs).zip(limits) {
            let (policy, dual) = (cost.per_step, promised.per_step);
            if policy > limit.max(dual) + GAP * limit.abs() {
                gaps.push(Gap::Cost { name: cost.name.clone(), policy, dual, limit });
            }
        }
        gaps
    }
}

/// Evaluates `policy`, and chooses how it acts where that is asked for. `None` where evaluation is switched off.
/// `weights` are the dual's of every `stride`-th row, where there is a dual.
pub(crate) fn evaluate(
    problem: &Problem<'_>,
    policy: &Policy,
    estimates: Option<&Estimates>,
    held_out: bool,
    pool: &Pool,
) -> Option<PolicyEvaluation> {
    let config = problem.config;
    if config.evaluation.rounds == 0 {
        return None;
    }
    let (mut ways, mut failed) = (Vec::new(), Vec::new());
    for acting in candidates(config, policy) {
        match evaluate_one(problem, policy, acting, estimates, held_out, pool) {
            Ok(found) => ways.push(found),
            Err(reason) => failed.push((acting, reason)),
        }
    }
    let limits: Vec<f64> = problem.costs.iter().map(|cost| cost.constraint.limit).collect();
    if let Some(best) = best(&ways, &limits) {
        ways[..=best].rotate_right(1);
    }
    Some(PolicyEvaluation { ways, failed })
}

/// Ways of acting that differ for this policy. One with a selector models the log without it: its other ways are no
/// rivals.
fn candidates(config: &TrainConfig, policy: &Policy) -> Vec<Acting> {
    let own = config.acting;
    let others: &[Acting] = match policy.head() {
        _ if !config.choose_acting || policy.selector().is_some() => &[],
        Head::Categorical { .. } => &[Acting::Mode, Acting::Sample],
        Head::Mixture { components: 1, .. } => &[],
        Head::Mixture { .. } => &[Acting::Mean, Acting::Mode, Acting::Component],
    };
    // For finitely many actions the mean is the mode.
    let same = |a: Acting, b: Acting| {
        a == b || (policy.head().is_discrete() && a.is_deterministic() == b.is_deterministic())
    };
    std::iter::once(own).chain(others.iter().copied().filter(|&other| !same(own, other))).collect()
}

/// The one that keeps the limits and earns most; where none keeps them, the one that exceeds them least.
fn best(ways: &[PolicyEstimate], limits: &[f64]) -> Option<usize> {
    let excess = |way: &PolicyEstimate| {
        let over = way.costs.iter().zip(limits).map(|(cost, limit)| (cost.per_step - limit).max(0.0));
        over.fold(0.0, f64::max)
    };
    let better = |a: &PolicyEstimate, b: &PolicyEstimate| {
        let (of_a, of_b) = (excess(a), excess(b));
        of_a < of_b || (of_a == of_b && a.reward > b.reward)
    };
    (0..ways.len()).reduce(|best, way| if better(&ways[way], &ways[best]) { way } else { best })
}

/// What `fqe::Problem` borrows.
struct Arrays {
    /// Rows of the log.
    rows: Vec<usize>,
    states: Vec<f32>,
    next_states: Vec<f32>,
    initial_states: Vec<f32>,
    /// Observations as logged, for the policy.
    raw: [Vec<f32>; 3],
    values: Vec<f32>,
    discounts: Vec<f32>,
    followed: Vec<bool>,
    weights: Vec<f32>,
}

fn arrays(problem: &Problem<'_>, policy: &Policy, estimates: Option<&Estimates>) -> Arrays {
    let (data, gamma) = (problem.data, problem.config.gamma);
    let chosen = episodes(data);
    let first = |k: usize| data.observation(data.episodes()[chosen[k % chosen.len()]].rows().start);
    let mut arrays = Arrays {
        rows: Vec::new(),
        states: Vec::new(),
        next_states: Vec::new(),
        initial_states: Vec::new(),
        raw: [Vec::new(), Vec::new(), Vec::new()],
        values: Vec::new(),
        discounts: Vec::new(),
        followed: Vec::new(),
        weights: Vec::new(),
    };
    for (k, &episode) in chosen.iter().enumerate() {
        arrays.raw[2].extend(first(k));
        for row in data.episodes()[episode].rows() {
            if !problem.rows.contains(row) {
                // What follows the last row that is kept is not seen.
                if let Some(followed) = arrays.followed.last_mut() {
                    *followed = false;
                }
                continue;
            }
            let last = data.ends_episode(row) || row == data.episodes()[episode].last();
            let (next, discount) = if gamma == 1.0 && last {
                (first(k + 1), 1.0)
            } else if data.terminal(row) {
                (data.observation(row), 0.0)
            } else {
                (data.next_observation(row), gamma as f32)
            };
            arrays.raw[0].extend(data.observation(row));
            arrays.raw[1].extend(next);
            arrays.values.push(data.reward(row));
            arrays.values.extend(problem.costs.iter().map(|cost| data.costs(row)[cost.column]));
            if gamma == 1.0 {
                arrays.values.push(f32::from(u8::from(last)));
            }
            arrays.discounts.push(discount);
            arrays.followed.push(!last);
            let weight = estimates.map_or(1.0, |found| found.weights[row / found.stride]);
            arrays.weights.push(if weight.is_finite() { weight } else { 0.0 });
            arrays.rows.push(row);
        }
    }
    if arrays.weights.iter().all(|&w| w == 0.0) {
        arrays.weights.fill(1.0);
    }
    let apply = |raw: &[f32]| {
        let mut normalised = vec![0.0; raw.len()];
        policy.normalizer().apply(raw, &mut normalised);
        normalised
    };
    arrays.states = apply(&arrays.raw[0]);
    arrays.next_states = apply(&arrays.raw[1]);
    arrays.initial_states = apply(&arrays.raw[2]);
    arrays
}

/// Episodes spread evenly over the log, with at most [`MOST_ROWS`] steps where that leaves one.
fn episodes(data: &Transitions) -> Vec<usize> {
    let count = data.episodes().len();
    let kept = (count * MOST_ROWS / data.len().max(1)).clamp(1, count);
    (0..kept).map(|k| k * count / kept).collect()
}

fn evaluate_one(
    problem: &Problem<'_>,
    policy: &Policy,
    acting: Acting,
    estimates: Option<&Estimates>,
    held_out: bool,
    pool: &Pool,
) -> Result<PolicyEstimate, String> {
    let config = problem.config;
    let arrays = arrays(problem, policy, estimates);
    let cost_count = problem.costs.len();
    let quantities = 1 + cost_count + usize::from(config.gamma == 1.0);
    let logged_ids: Vec<u32>;
    let logged_vectors: Vec<f32>;
    let act = |raw: &[f32], what: &str| choices(problem, policy, acting, raw, what, pool);
    let [chosen, next, initial] =
        [(0, "here"), (1, "next"), (2, "initial")].map(|(place, what)| act(&arrays.raw[place], what));
    let unusable = |error: ActError| error.to_string();
    let (chosen, next, initial) =
        (chosen.map_err(unusable)?, next.map_err(unusable)?, initial.map_err(unusable)?);
    let actions = match problem.data.actions() {
        Actions::Discrete { count, .. } => {
            logged_ids = arrays.rows.iter().map(|&row| problem.data.discrete_action(row)).collect();
            fqe::Actions::Discrete {
                count: *count,
                logged: &logged_ids,
                chosen: &chosen,
                next: &next,
                initial: &initial,
            }
        }
        Actions::Continuous { dim, .. } => {
            let mut vectors: Vec<f32> =
                arrays.rows.iter().flat_map(|&row| problem.data.continuous_action(row)).copied().collect();
            map_to_range(problem, &mut vectors);
            logged_vectors = vectors;
            fqe::Actions::Continuous {
                dim: *dim,
                logged: &logged_vectors,
                chosen: &chosen,
                next: &next,
                initial: &initial,
            }
        }
    };
    let evaluated = fqe::Problem {
        dim: problem.data.observation_dim(),
        quantities,
        states: &arrays.states,
        next_states: &arrays.next_states,
        initial_states: &arrays.initial_states,
        actions,
        values: &arrays.values,
        discounts: &arrays.discounts,
        followed: &arrays.followed,
        weights: &arrays.weights,
        gamma: config.gamma,
    };
    let count = arrays.rows.len();
    let whole = count == problem.rows.len();
    let balance = (whole && config.balance > 0.0)
        .then(|| Balance::new(problem.data, &problem.rows, config.balance).map_err(|error| error.to_string()))
        .transpose()?;
    let draw = |u: f64| match &balance {
        Some(balance) => balance.position(u),
        None => ((u * count as f64) as usize).min(count - 1),
    };
    let layer = |layer_norm, activation| BlockSpec::Dense { width: WIDTH, layer_norm, activation };
    let blocks = [layer(true, Activation::Tanh), layer(false, Activation::Elu)];
    let regression = fqe::Regression {
        blocks: &blocks,
        learning_rate: LEARNING_RATE,
        batch: BATCH,
        draw: &draw,
        seed: config.seed,
    };
    let most = (config.steps / MOST_STEPS).clamp(1, u64::from(u32::MAX)) as u32;
    let settings = fqe::Settings { steps: config.evaluation.steps.min(most), ..config.evaluation.clone() };
    let found = pool
        .install(|| fqe::evaluate(&evaluated, &settings, &regression, pool))
        .map_err(|error| error.to_string())?;
    let ends = (config.gamma == 1.0).then(|| found.values[1 + cost_count]);
    let costs = problem.costs.iter().zip(&found.values[1..]).map(|(cost, &per_step)| CostEstimate {
        name: cost.name.clone(),
        per_step,
        per_episode: ends.filter(|&ends| ends > 0.0).map(|ends| per_step / ends),
    });
    Ok(PolicyEstimate {
        acting,
        reward: found.values[0],
        costs: costs.collect(),
        unsettled: found.unsettled[..=cost_count].to_vec(),
        similarity: found.similarity,
        rows: count,
        held_out,
    })
}

/// The policy's actions in the range's units, or its probabilities.
fn choices(
    problem: &Problem<'_>,
    policy: &Policy,
    acting: Acting,
    raw: &[f32],
    what: &str,
    pool: &Pool,
) -> Result<Vec<f32>, ActError> {
    if let Head::Categorical { actions } = policy.head() {
        let mut probabilities = policy.probabilities(raw, pool)?;
        if acting == Acting::Select {
            let selected = policy.act_batch(raw, acting, 0, pool)?;
            for (row, action) in probabilities.chunks_exact_mut(actions).zip(selected) {
                row.fill(0.0);
                // Indices are exact in single precision.
                row[action as usize] = 1.0;
            }
        } else if acting.is_deterministic() {
            for row in probabilities.chunks_exact_mut(actions) {
                let top = (0..actions).reduce(|best, a| if row[a] > row[best] { a } else { best });
                row.fill(0.0);
                row[top.unwrap_or(0)] = 1.0;
            }
        }
        return Ok(probabilities);
    }
    use rand::RngExt as _;
    // Every use of the policy draws anew, where it draws.
    let seed = stream(problem.config.seed, &format!("evaluation {what}"), 0).random();
    let mut actions = policy.act_batch(raw, acting, seed, pool)?;
    map_to_range(problem, &mut actions);
    Ok(actions)
}

/// Maps the logged range of every dimension to `[-1, 1]`.
fn map_to_range(problem: &Problem<'_>, actions: &mut [f32]) {
    let (low, high) = problem.action_range();
    for action in actions.chunks_exact_mut(low.len().max(1)) {
        for ((u, low), high) in action.iter_mut().zip(&low).zip(&high) {
            let half = if high > low { 0.5 * (high - low) } else { 1.0 };
            *u = (*u - 0.5 * (low + high)) / half;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(reward: f64, cost: f64) -> PolicyEstimate {
        let costs = vec![CostEstimate { name: "c".to_owned(), per_step: cost, per_episode: None }];
        PolicyEstimate {
            acting: Acting::Mean,
            reward,
            costs,
            unsettled: vec![0.0; 2],
            similarity: 1.0,
            rows: 1,
            held_out: false,
        }
    }

    #[test]
    fn limits_come_before_reward_and_the_least_excess_before_both() {
        let limits = [0.1];
        assert_eq!(best(&[way(1.0, 0.2), way(0.5, 0.1), way(0.6, 0.05)], &limits), Some(2));
        assert_eq!(best(&[way(1.0, 0.3), way(0.5, 0.2)], &limits), Some(1));
        assert_eq!(
            best(&[way(0.5, 0.0), way(0.5, 0.0)], &limits),
            Some(0),
            "the configured way among equals"
        );
        assert_eq!(best(&[], &limits), None);
    }

    #[test]
    fn what_the_dual_promised_and_the_policy_does_not_keep_is_named() {
        let dual = |reward, cost| Estimates {
            weights: vec![1.0],
            stride: 1,
            mean_weight: 1.0,
            reward,
            costs: way(0.0, cost).costs,
        };
        let gaps = |policy: PolicyEstimate, reward, cost| {
            PolicyEvaluation { ways: vec![policy], failed: Vec::new() }.gaps(&dual(reward, cost), &[0.1])
        };
        assert_eq!(gaps(way(0.8, 0.12), 0.9, 0.1), []);
        assert_eq!(gaps(way(0.6, 0.0), 0.9, 0.1), [Gap::Reward { policy: 0.6, dual: 0.9 }]);
        let over = Gap::Cost { name: "c".to_owned(), policy: 0.13, dual: 0.05, limit: 0.1 };
        assert_eq!(gaps(way(0.9, 0.13), 0.9, 0.05), [over]);
        assert_eq!(gaps(way(-1.0, 0.0), -0.9, 0.1), [], "a negative reward has a share of its size to spare");
    }

    /// What is evaluated is what selects, and nothing else of the policy; for finitely many actions too, where the most
    /// probable one is another action.
    #[test]
    fn of_a_policy_that_selects_the_selection_is_evaluated() {
        use crate::policy::tests::{mixed_blocks, mixture, random_policy, selecting};
        use coptidice_data::ActionSpace;

        let pool = Pool::new(1).unwrap();
        let labels = ["a", "b", "c"].map(str::to_owned).to_vec();
        let kinds = [
            (ActionSpace::Discrete { labels }, Head::Categorical { actions: 3 }),
            (ActionSpace::Continuous { dim: 2 }, mixture(2, 5)),
        ];
        for (action, head) in kinds {
            let data = crate::testing::random_log(6, action, 20, 5);
            let config = crate::testing::config(&data, "extraction = \"guided_selection\"\n");
            assert!(config.choose_acting, "a choice is asked for, and there is none");
            let problem = Problem::new(&config, &data).unwrap();
            let policy = selecting(&random_policy(6, mixed_blocks(), head, 1), 2, 2);
            assert_eq!(candidates(&config, &policy), [Acting::Select]);
            let raw: Vec<f32> = (0..data.len()).flat_map(|row| data.observation(row)).copied().collect();
            let found = choices(&problem, &policy, Acting::Select, &raw, "here", &pool).unwrap();
            let mut expected = policy.act_batch(&raw, Acting::Select, 0, &pool).unwrap();
            if let Head::Categorical { actions } = head {
                let one_hot =
                    |&action: &f32| (0..actions).map(move |a| f32::from(u8::from(a as f32 == action)));
                expected = expected.iter().flat_map(one_hot).collect();
            } else {
                map_to_range(&problem, &mut expected);
            }
            assert_eq!(found, expected);
            assert_ne!(found, choices(&problem, &policy, Acting::Mode, &raw, "here", &pool).unwrap());
        }
    }
}
