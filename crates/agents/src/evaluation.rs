//! What the policy that was drawn would earn and cost, without a simulator.
//!
//! The dual's estimates are of its own optimum; the policy drawn from it is another one, and may earn less and cost more.
//! Fitted Q evaluation (`coptidice_ope::fqe`) estimates the policy itself, on logged transitions, under the same `gamma`
//! and normalisation, so that the two can stand side by side: what lies between them is what drawing the policy lost
//! (and what the estimators get wrong).
//!
//! Where a policy can act in several ways, each is evaluated, and the one that keeps the limits and earns most is
//! exported ([`crate::TrainConfig::choose_acting`]). A policy may also fall off again in its last
//! steps, which its critic does not see and evaluation does: where the last policy is estimated to exceed a limit, what it
//! was after earlier steps is tried, the later the sooner, until one keeps them ([`crate::TrainConfig::finalists`]). Only
//! then: estimates of policies that keep the limits differ by less than their own error, and the last is the one
//! that was trained longest.

use coptidice_core::rng::stream;
use coptidice_data::{Actions, EpisodeEnd, Transitions};
use coptidice_nn::{Activation, BlockSpec, Pool};
use coptidice_ope::fqe;
use rand::RngExt as _;
use serde::{Deserialize, Serialize};

use crate::balance::Balance;
use crate::config::{LogFacts, TrainConfig};
use crate::estimate::{CostEstimate, EstimateLimit, Estimates};
use crate::policy::{ActError, Acting, Head, NormalizerError, Policy, map_to_range};
use crate::problem::{ConstrainedCost, Problem};

/// Whole episodes are left out, evenly, until the others have at most this many steps.
const MOST_ROWS: usize = 200_000;
/// The regression's network, learning rate and batch: its own, whatever the learner's.
const WIDTH: usize = 128;
const LEARNING_RATE: f64 = 1e-3;
const BATCH: usize = 256;
/// In every round evaluation takes at most one gradient step for so many of training's.
const TRAINING_PER_STEP: u64 = 100;
/// The policy's reward is short of the dual's, or its cost above, where the gap is more than this share of the dual's
/// reward, or of the limit.
const GAP: f64 = 0.25;

/// What a policy would earn and cost, estimated on logs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PolicyEstimate {
    /// Steps of training that it is of.
    pub step: u64,
    /// How it acts.
    pub acting: Acting,
    /// Reward of a step, as the dual's `E[w r] / E[w]`.
    pub reward: f64,
    /// Costs with limits, of a step and (at `gamma = 1`) of an episode.
    pub costs: Vec<CostEstimate>,
    /// Mass of the steps that are taken, as the dual's `E[w]`: 1, less where terminals end a discounted process.
    #[serde(default = "whole")]
    pub mass: f64,
    /// How far the estimates had settled: largest less smallest of the last rounds, reward first, then costs.
    pub unsettled: Vec<f64>,
    /// How much of what was logged the policy does, from 0 to 1.
    pub similarity: f64,
    /// Rows of the log that it rests on.
    pub rows: usize,
    /// Whether they are of episodes that training did not see.
    pub held_out: bool,
}

fn whole() -> f64 {
    1.0
}

impl PolicyEstimate {
    /// What is maximised: under a discount steps that are never taken earn nothing.
    fn objective(&self) -> f64 {
        self.reward * self.mass
    }
}

/// Of every way of acting of the last policy, and of earlier policies; the first is the one that is exported.
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
    /// A cost is over its limit, or above the dual's by more than a share of the limit.
    Cost {
        /// Which cost.
        name: String,
        /// Estimated of the policy, in the unit of the limit.
        policy: f64,
        /// The dual's, likewise.
        dual: f64,
        /// The limit.
        limit: EstimateLimit,
    },
}

impl std::fmt::Display for Gap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Gap::Reward { policy, dual } => {
                write!(f, "the policy is estimated to earn {policy:.4} a step, the dual's optimum {dual:.4}")
            }
            Gap::Cost { name, policy, dual, limit } => {
                let (unit, value) = (limit.unit(), limit.value());
                let over = if *policy > value { "OVER" } else { "within" };
                write!(
                    f,
                    "the policy's {name} is estimated at {policy:.4} per {unit}, {over} the limit of {value:.4}; the dual's \
                     optimum at {dual:.4}"
                )
            }
        }
    }
}

impl PolicyEvaluation {
    /// The exported way.
    #[must_use]
    pub fn chosen(&self) -> Option<&PolicyEstimate> {
        self.ways.first()
    }

    /// Where the chosen policy parts from what the dual promises, `limits` in the order of the costs.
    #[must_use]
    pub fn gaps(&self, estimates: &Estimates, limits: &[EstimateLimit]) -> Vec<Gap> {
        let Some(chosen) = self.chosen() else { return Vec::new() };
        let mut gaps = Vec::new();
        let (policy, dual) = (chosen.reward, estimates.reward);
        if policy < dual - GAP * dual.abs() {
            gaps.push(Gap::Reward { policy, dual });
        }
        for ((cost, promised), &limit) in chosen.costs.iter().zip(&estimates.costs).zip(limits) {
            let (policy, dual) = (cost.in_unit_of(&limit), promised.in_unit_of(&limit));
            if policy > limit.value().min(dual + GAP * limit.value().abs()) {
                gaps.push(Gap::Cost { name: cost.name.clone(), policy, dual, limit });
            }
        }
        gaps
    }
}

/// Evaluates the last of `policies`, by step, in all its ways of acting where a choice is asked for; and if the best
/// exceeds a limit the others, backwards until one does not. `None` where evaluation is switched off.
/// `estimates` are the dual's on the same episodes, where there is a dual: its weights set the constants of the values.
pub(crate) fn evaluate(
    problem: &Problem<'_>,
    policies: &[Policy],
    estimates: Option<&Estimates>,
    held_out: bool,
    pool: &Pool,
) -> Option<PolicyEvaluation> {
    let config = problem.config;
    let (policy, earlier) = policies.split_last()?;
    if config.evaluation.rounds == 0 {
        return None;
    }
    let log = EvaluatedLog::new(problem, policy, estimates, held_out).map_err(|error| error.to_string());
    let (mut ways, mut failed) = (Vec::new(), Vec::new());
    let mut take = |policy: &Policy, acting: Acting, ways: &mut Vec<PolicyEstimate>| match log
        .as_ref()
        .map_err(String::clone)
        .and_then(|log| log.evaluate(policy, acting, pool))
    {
        Ok(found) => ways.push(found),
        Err(reason) => failed.push((acting, reason)),
    };
    for acting in candidates(config, policy) {
        take(policy, acting, &mut ways);
    }
    let exceeding = best(&ways, &problem.costs).filter(|&best| excess(&ways[best], &problem.costs) > 0.0);
    if let Some(acting) = exceeding.map(|best| ways[best].acting) {
        for policy in earlier.iter().rev() {
            take(policy, acting, &mut ways);
            if ways.last().is_some_and(|way| excess(way, &problem.costs) == 0.0) {
                break;
            }
        }
    }
    if let Some(best) = best(&ways, &problem.costs) {
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

/// How far the worst cost is above its limit, 0 where all are kept.
fn excess(way: &PolicyEstimate, costs: &[ConstrainedCost]) -> f64 {
    let over = way.costs.iter().zip(costs).map(|(estimate, cost)| cost.excess(estimate).max(0.0));
    over.fold(0.0, f64::max)
}

/// The one that keeps the limits and earns most; where none keeps them, the one that exceeds them least.
fn best(ways: &[PolicyEstimate], costs: &[ConstrainedCost]) -> Option<usize> {
    let better = |a: &PolicyEstimate, b: &PolicyEstimate| {
        let (of_a, of_b) = (excess(a, costs), excess(b, costs));
        of_a < of_b || (of_a == of_b && a.objective() > b.objective())
    };
    (0..ways.len()).reduce(|best, way| if better(&ways[way], &ways[best]) { way } else { best })
}

/// The log as `fqe::Problem` sees it, whatever the way of acting.
struct EvaluatedLog<'a> {
    problem: &'a Problem<'a>,
    process: fqe::Process,
    held_out: bool,
    /// Rows of the log.
    rows: Vec<usize>,
    states: Vec<f32>,
    next_states: Vec<f32>,
    initial_states: Vec<f32>,
    /// Observations as logged, for the policy: here, next, initial.
    raw: [Vec<f32>; 3],
    logged: Logged,
    values: Vec<f32>,
    discounts: Vec<f32>,
    followed: Vec<bool>,
    weights: Vec<f32>,
    /// Where every row is looked at and drawn evenly.
    balance: Option<Balance>,
}

/// What fitted Q evaluation adds up: as the dual does, except that undiscounted episodes which all end by themselves are
/// taken one by one, not in a chain.
fn process(problem: &Problem<'_>) -> fqe::Process {
    let gamma = problem.config.gamma;
    if gamma < 1.0 {
        fqe::Process::Discounted { gamma }
    } else if LogFacts::episodes(problem.data).1 {
        fqe::Process::Episode
    } else {
        fqe::Process::RestartChain
    }
}

/// Logged actions, continuous ones in the range's units.
enum Logged {
    Vectors { values: Vec<f32>, middle: Vec<f32>, half: Vec<f32> },
    Ids { values: Vec<u32>, count: usize },
}

/// Episodes spread evenly over the log, with at most [`MOST_ROWS`] steps where that leaves one.
fn episodes(data: &Transitions) -> Vec<usize> {
    let count = data.episodes().len();
    let kept = (count * MOST_ROWS / data.len().max(1)).clamp(1, count);
    (0..kept).map(|k| k * count / kept).collect()
}

impl<'a> EvaluatedLog<'a> {
    fn new(
        problem: &'a Problem<'a>,
        policy: &Policy,
        estimates: Option<&Estimates>,
        held_out: bool,
    ) -> Result<Self, NormalizerError> {
        let data = problem.data;
        let process = process(problem);
        // Where terminals take mass away, it is evaluated too.
        let loses_mass = data.episodes().iter().any(|episode| episode.end == EpisodeEnd::Terminal);
        let discount = match process {
            fqe::Process::Discounted { gamma } => gamma as f32,
            fqe::Process::RestartChain | fqe::Process::Episode => 1.0,
        };
        let chosen = episodes(data);
        let first = |k: usize| data.observation(data.episodes()[chosen[k % chosen.len()]].rows().start);
        let mut raw = [Vec::new(), Vec::new(), Vec::new()];
        let (mut rows, mut values, mut discounts) = (Vec::new(), Vec::new(), Vec::new());
        let (mut followed, mut weights) = (Vec::new(), Vec::new());
        for (k, &episode) in chosen.iter().enumerate() {
            raw[2].extend(first(k));
            for row in data.episodes()[episode].rows() {
                let last = data.ends_episode(row) || row == data.episodes()[episode].last();
                // Where a recording broke off, what came after is not known.
                let broken_off = process == fqe::Process::Episode && last && !data.terminal(row);
                if !problem.rows.contains(row) || broken_off {
                    // What follows the last row that is kept is not seen.
                    if let Some(followed) = followed.last_mut() {
                        *followed = false;
                    }
                    continue;
                }
                let (next, discount) = if process == fqe::Process::RestartChain && last {
                    (first(k + 1), discount)
                } else if data.terminal(row) {
                    (data.observation(row), 0.0)
                } else {
                    (data.next_observation(row), discount)
                };
                raw[0].extend(data.observation(row));
                raw[1].extend(next);
                values.push(data.reward(row));
                values.extend(problem.costs.iter().map(|cost| data.costs(row)[cost.column]));
                match process {
                    fqe::Process::Discounted { .. } if loses_mass => values.push(1.0),
                    fqe::Process::Discounted { .. } => {}
                    fqe::Process::RestartChain => values.push(f32::from(u8::from(last))),
                    fqe::Process::Episode => values.push(1.0),
                }
                discounts.push(discount);
                followed.push(!last);
                // The totals of an episode need no help, and where the process is noisy the ratios follow luck.
                let helped = estimates.filter(|_| process != fqe::Process::Episode);
                let weight = helped.map_or(1.0, |found| found.weights[row / found.stride]);
                weights.push(if weight.is_finite() { weight } else { 0.0 });
                rows.push(row);
            }
        }
        if weights.iter().all(|&w| w == 0.0) {
            weights.fill(1.0);
        }
        let [states, next_states, initial_states] = raw.each_ref().map(|raw| {
            let mut normalised = vec![0.0; raw.len()];
            policy.normalizer().apply(raw, &mut normalised);
            normalised
        });
        let logged = match data.actions() {
            Actions::Discrete { count, .. } => Logged::Ids {
                values: rows.iter().map(|&row| data.discrete_action(row)).collect(),
                count: *count,
            },
            Actions::Continuous { .. } => {
                let (middle, half) = problem.action_scale();
                let mut values: Vec<f32> =
                    rows.iter().flat_map(|&row| data.continuous_action(row)).copied().collect();
                map_to_range(&mut values, &middle, &half);
                Logged::Vectors { values, middle, half }
            }
        };
        let power = problem.config.balance;
        let whole = rows.len() == problem.rows.len();
        let balance = (whole && power > 0.0).then(|| Balance::new(data, &problem.rows, power)).transpose()?;
        Ok(EvaluatedLog {
            problem,
            process,
            held_out,
            rows,
            states,
            next_states,
            initial_states,
            raw,
            logged,
            values,
            discounts,
            followed,
            weights,
            balance,
        })
    }

    fn evaluate(&self, policy: &Policy, acting: Acting, pool: &Pool) -> Result<PolicyEstimate, String> {
        let config = self.problem.config;
        let act = |place: usize, what| {
            self.choices(policy, acting, &self.raw[place], what, pool).map_err(|error| error.to_string())
        };
        let (chosen, next, initial) = (act(0, "here")?, act(1, "next")?, act(2, "initial")?);
        let cost_count = self.problem.costs.len();
        let (width, logged) = match &self.logged {
            Logged::Vectors { values, middle, .. } => (middle.len(), fqe::Logged::Continuous(values)),
            Logged::Ids { values, count } => (*count, fqe::Logged::Discrete(values)),
        };
        let evaluated = fqe::Problem {
            dim: self.problem.data.observation_dim(),
            quantities: self.values.len() / self.rows.len().max(1),
            states: &self.states,
            next_states: &self.next_states,
            initial_states: &self.initial_states,
            actions: fqe::Actions { width, logged, chosen: &chosen, next: &next, initial: &initial },
            values: &self.values,
            discounts: &self.discounts,
            followed: &self.followed,
            weights: &self.weights,
            process: self.process,
        };
        let count = self.rows.len();
        let draw = |u: f64| match &self.balance {
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
        let most = (config.steps / TRAINING_PER_STEP).clamp(1, u64::from(u32::MAX)) as u32;
        let settings =
            fqe::Settings { steps: config.evaluation.steps.min(most), ..config.evaluation.clone() };
        let found = pool
            .install(|| fqe::evaluate(&evaluated, &settings, &regression, pool))
            .map_err(|error| error.to_string())?;
        // What was found is per step of the process or per episode. The last quantity leads to the other, or of a
        // discounted process to steps that are taken.
        let last = found.values.get(1 + cost_count).copied();
        let mass = match self.process {
            fqe::Process::Discounted { .. } => last.unwrap_or(1.0),
            fqe::Process::RestartChain | fqe::Process::Episode => 1.0,
        };
        let last = last.filter(|&last| last > 0.0);
        let [steps, episodes] = match self.process {
            fqe::Process::Discounted { .. } => [Some(mass).filter(|&mass| mass > 0.0), None],
            fqe::Process::RestartChain => [Some(1.0), last],
            fqe::Process::Episode => [last, Some(1.0)],
        };
        let steps = steps.ok_or("an episode of the policy is estimated to take no step")?;
        let costs = self.problem.costs.iter().zip(&found.values[1..]).map(|(cost, &value)| CostEstimate {
            name: cost.name.clone(),
            per_step: value / steps,
            per_episode: episodes.map(|episodes| value / episodes),
        });
        Ok(PolicyEstimate {
            step: policy.about().steps,
            acting,
            reward: found.values[0] / steps,
            costs: costs.collect(),
            mass,
            unsettled: found.unsettled[..=cost_count].iter().map(|unsettled| unsettled / steps).collect(),
            similarity: found.similarity,
            rows: count,
            held_out: self.held_out,
        })
    }

    /// The policy's actions in the range's units, or its probabilities.
    fn choices(
        &self,
        policy: &Policy,
        acting: Acting,
        raw: &[f32],
        what: &str,
        pool: &Pool,
    ) -> Result<Vec<f32>, ActError> {
        // Every use of the policy draws anew, where it draws.
        let seed = || stream(self.problem.config.seed, &format!("evaluation {what}"), 0).random();
        match &self.logged {
            Logged::Vectors { middle, half, .. } => {
                let mut actions = policy.act_batch(raw, acting, seed(), pool)?;
                map_to_range(&mut actions, middle, half);
                Ok(actions)
            }
            Logged::Ids { count, .. } if acting.is_deterministic() => {
                let taken = policy.act_batch(raw, acting, seed(), pool)?;
                let mut probabilities = vec![0.0; taken.len() * count];
                for (row, action) in probabilities.chunks_exact_mut(*count).zip(taken) {
                    // Indices are exact in single precision.
                    row[action as usize] = 1.0;
                }
                Ok(probabilities)
            }
            Logged::Ids { .. } => policy.probabilities(raw, pool),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coptidice_core::CostConstraint;

    fn way(reward: f64, cost: f64) -> PolicyEstimate {
        let costs = vec![CostEstimate { name: "c".to_owned(), per_step: cost, per_episode: None }];
        PolicyEstimate {
            step: 1,
            acting: Acting::Mean,
            reward,
            costs,
            mass: 1.0,
            unsettled: vec![0.0; 2],
            similarity: 1.0,
            rows: 1,
            held_out: false,
        }
    }

    #[test]
    fn limits_come_before_reward_and_the_least_excess_before_both() {
        let plain = CostConstraint { limit: 0.1, ..CostConstraint::default() };
        let cost = |constraint| ConstrainedCost {
            name: "c".to_owned(),
            column: 0,
            constraint,
            limit_per_step: 0.1,
            scale: 1.0,
            logged_scale: 1.0,
        };
        let limits = [cost(plain)];
        assert_eq!(best(&[way(1.0, 0.2), way(0.5, 0.1), way(0.6, 0.05)], &limits), Some(2));
        assert_eq!(best(&[way(1.0, 0.3), way(0.5, 0.2)], &limits), Some(1));
        assert_eq!(
            best(&[way(0.5, 0.0), way(0.5, 0.0)], &limits),
            Some(0),
            "the configured way among equals"
        );
        assert_eq!(best(&[], &limits), None);
        // A limit of 1 per episode: its total is compared, whatever that makes per step.
        let totals = [cost(CostConstraint { last_step_credit: 1.0, ..CostConstraint::default() })];
        let of_episode = |reward, total| {
            let mut way = way(reward, 0.5);
            way.costs[0].per_episode = Some(total);
            way
        };
        assert_eq!(
            best(&[of_episode(1.0, 1.2), of_episode(0.5, 0.9), of_episode(0.6, 1.0)], &totals),
            Some(2)
        );
    }

    #[test]
    fn what_the_dual_promised_and_the_policy_does_not_keep_is_named() {
        let dual = |reward, cost| Estimates {
            weights: vec![1.0],
            stride: 1,
            episodes_per_step: None,
            mean_weight: 1.0,
            reward,
            costs: way(0.0, cost).costs,
        };
        let limit = EstimateLimit::PerStep { limit: 0.1 };
        let gaps = |policy: PolicyEstimate, reward, cost| {
            PolicyEvaluation { ways: vec![policy], failed: Vec::new() }.gaps(&dual(reward, cost), &[limit])
        };
        assert_eq!(gaps(way(0.8, 0.09), 0.9, 0.08), []);
        assert_eq!(gaps(way(0.6, 0.0), 0.9, 0.1), [Gap::Reward { policy: 0.6, dual: 0.9 }]);
        let far = |policy, dual| Gap::Cost { name: "c".to_owned(), policy, dual, limit };
        assert_eq!(gaps(way(0.9, 0.101), 0.9, 0.1), [far(0.101, 0.1)], "over the limit");
        assert_eq!(
            gaps(way(0.9, 0.08), 0.9, 0.05),
            [far(0.08, 0.05)],
            "within it, and far from what was promised"
        );
        assert_eq!(gaps(way(-1.0, 0.0), -0.9, 0.1), [], "a negative reward has a share of its size to spare");
    }

    /// A policy over two actions that always takes one of them, whatever the one-dimensional state.
    fn certain(problem: &Problem<'_>, steps: u64, action: usize) -> Policy {
        use crate::policy::{PolicyAbout, PolicyParts};

        let mut params = vec![0.0; 4];
        params[2 + action] = 20.0;
        let head = crate::extraction::head(problem);
        let network = coptidice_nn::Network::new(crate::extraction::spec(problem, &head)).unwrap();
        let parts = PolicyParts {
            network,
            params,
            head,
            normalizer: problem.normalizer.clone(),
            acting: Acting::Mode,
            action_low: Vec::new(),
            action_high: Vec::new(),
            action_unit: None,
            selector: None,
            about: PolicyAbout::new("test", 0, steps, String::new()),
        };
        Policy::new(parts).unwrap()
    }

    /// One step, and the action is its cost: a policy of the second action is over the limit, and the last policy before it
    /// that is not is fallen back on; those before that are not looked at.
    #[test]
    fn a_last_policy_over_the_limit_is_passed_over_for_the_latest_that_is_not() {
        use coptidice_data::{ActionSpace, Schema, Step, StepAction, TransitionsBuilder};

        let labels = ["without", "with"].map(str::to_owned).to_vec();
        let schema = Schema {
            observation_dim: 1,
            action: ActionSpace::Discrete { labels },
            cost_names: vec!["first".to_owned(), "second".to_owned()],
            propensity: false,
        };
        let mut builder = TransitionsBuilder::new(schema).unwrap();
        for action in [0, 1].repeat(50) {
            let step = Step {
                observation: &[1.0],
                action: StepAction::Discrete(action),
                reward: action as f32,
                costs: &[action as f32, 0.0],
                next_observation: &[1.0],
                terminal: true,
                timeout: false,
                propensity: None,
            };
            builder.push(&step).unwrap();
        }
        let data = builder.finish().unwrap();
        let config =
            crate::testing::config(&data, "[evaluation]\nrounds = 3\nsteps = 60\n[networks]\npolicy = []\n");
        let problem = Problem::new(&config, &data).unwrap();
        let pool = Pool::new(1).unwrap();
        let steps = |actions: [usize; 4]| -> Vec<u64> {
            let policies: Vec<Policy> =
                (1..).zip(actions).map(|(step, a)| certain(&problem, step, a)).collect();
            let found = evaluate(&problem, &policies, None, false, &pool).unwrap();
            assert_eq!(found.failed, []);
            let mut steps: Vec<u64> = found.ways.iter().map(|way| way.step).collect();
            steps.dedup();
            steps
        };
        assert_eq!(steps([0, 0, 1, 1]), [2, 4, 3], "the chosen one first, then as tried");
        assert_eq!(steps([1, 1, 1, 0]), [4]);
        assert_eq!(steps([1, 1, 1, 1])[0], 4, "where none is, the last stays");
    }

    /// Every step costs 1 and .5, and every second one ends its episode: under a discount the sums of costs are those of
    /// `(1 - gamma)/(1 - gamma/2)` as many steps as there would be without an end, and a step costs what it costs.
    #[test]
    fn a_step_costs_what_it_costs_where_episodes_end() {
        use coptidice_data::{ActionSpace, Schema, Step, StepAction, TransitionsBuilder};

        let schema = Schema {
            observation_dim: 1,
            action: ActionSpace::discrete(2),
            cost_names: vec!["first".to_owned(), "second".to_owned()],
            propensity: false,
        };
        let mut builder = TransitionsBuilder::new(schema).unwrap();
        for length in [1, 2, 3].repeat(20) {
            for step in 1..=length {
                let row = Step {
                    observation: &[1.0],
                    action: StepAction::Discrete(step as u32 % 2),
                    reward: 2.0,
                    costs: &[1.0, 0.5],
                    next_observation: &[1.0],
                    terminal: step == length,
                    timeout: false,
                    propensity: None,
                };
                builder.push(&row).unwrap();
            }
        }
        let data = builder.finish().unwrap();
        let gamma = 0.9;
        let text =
            format!("gamma = {gamma:?}\n[evaluation]\nrounds = 30\nsteps = 60\n[networks]\npolicy = []\n");
        let config = crate::testing::config(&data, &text);
        let problem = Problem::new(&config, &data).unwrap();
        assert_eq!(problem.costs[0].constraint.step_credit, Some(0.4));
        let found =
            evaluate(&problem, &[certain(&problem, 1, 0)], None, false, &Pool::new(1).unwrap()).unwrap();
        let way = found.chosen().unwrap();
        // Each is fitted to a few hundredths in so few rounds; what is at stake is a factor of 5.5.
        let mass = (1.0 - gamma) / (1.0 - 0.5 * gamma);
        assert!((way.mass - mass).abs() < 0.1 * mass, "{} for {mass}", way.mass);
        for (found, expected) in
            [(way.reward, 2.0), (way.costs[0].per_step, 1.0), (way.costs[1].per_step, 0.5)]
        {
            assert!((found - expected).abs() < 0.1 * expected, "{found} for {expected}");
        }
        assert!((excess(way, &problem.costs) - 0.6).abs() < 0.1, "1 for a limit of .4");
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
            let log = EvaluatedLog::new(&problem, &policy, None, false).unwrap();
            let found = log.choices(&policy, Acting::Select, &raw, "here", &pool).unwrap();
            let mut expected = policy.act_batch(&raw, Acting::Select, 0, &pool).unwrap();
            if let Head::Categorical { actions } = head {
                let one_hot =
                    |&action: &f32| (0..actions).map(move |a| f32::from(u8::from(a as f32 == action)));
                expected = expected.iter().flat_map(one_hot).collect();
            } else {
                let (middle, half) = problem.action_scale();
                map_to_range(&mut expected, &middle, &half);
            }
            assert_eq!(found, expected);
            assert_ne!(found, log.choices(&policy, Acting::Mode, &raw, "here", &pool).unwrap());
        }
    }
}
