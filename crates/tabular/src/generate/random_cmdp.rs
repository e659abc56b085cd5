//! Random CMDPs in the manner of the paper's experiments (section 4.1, appendix "Experimental Settings").
//!
//! `S` states, the last of which absorbs; state 0 is where every episode starts. From each other state, every
//! action leads to `connectivity` distinct non-absorbing states with probabilities `Dirichlet(1, …, 1)`. One state,
//! the *goal*, pays `1/(1−γ)` whatever the action and leads to the absorbing state; it is the state whose optimal
//! value, seen from state 0, is smallest: the hardest to reach. Costs are `Beta(κ, κ)` with one free action in
//! every state, and are drawn again until the limit binds.
//!
//! # When the limit binds
//!
//! The reference draws costs until the optimal policy of the CMDP costs at least `limit − 1e-4`. The linear
//! program need not be solved for that: a policy without cost exists, so by complementary slackness the optimum
//! costs exactly `limit` as soon as the reward-optimal policy costs more than `limit`, and is the reward-optimal
//! policy otherwise. One occupancy decides every redraw.

use coptidice_core::{ActionId, Cmdp, CmdpParts, EpisodeEnd, StateId, Transitions, rng};
use rand::seq::index;
use rand::{Rng, RngExt};
use rand_distr::{Beta, Distribution, Exp1};
use serde::{Deserialize, Serialize};

use super::GenerateError;

/// The state in which every episode starts.
pub const INITIAL_STATE: StateId = StateId(0);

/// By how much the cost of the optimum may miss the limit and still count as binding, as in the reference.
const BINDING_TOLERANCE: f64 = 1e-4;

/// Draws of the costs after which the transitions are drawn anew: in one of some thousand CMDPs the best policy rests on
/// free actions so much that no costs make the limit bind.
const MAX_COST_DRAWS: u32 = 100_000;

/// Draws of the transitions after which a limit is said not to bind for any.
const MAX_TRANSITION_DRAWS: u32 = 3;

/// Which action of a state is free of cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FreeAction {
    /// The first, in every state, as the paper says. Policies limited to the first action then never pay.
    #[default]
    First,
    /// One drawn anew in each state, as the reference code does. Actions are exchangeable, so that without limits
    /// on a policy's support both choices give the same distribution of results.
    Random,
}

/// What a random CMDP is drawn from. The default is the paper's setting.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RandomCmdpConfig {
    /// Number of states `S`, the absorbing one included.
    pub states: usize,
    /// Number of actions `A`.
    pub actions: usize,
    /// Number of distinct successors of each pair.
    pub connectivity: usize,
    /// Discount in `(0, 1)`.
    pub gamma: f64,
    /// Limit that the optimum shall reach, cost units per step.
    pub limit: f64,
    /// `κ` of the costs' `Beta(κ, κ)`.
    pub cost_shape: f64,
    /// Which action is free.
    pub free_action: FreeAction,
}

impl Default for RandomCmdpConfig {
    fn default() -> Self {
        Self {
            states: 50,
            actions: 4,
            connectivity: 4,
            gamma: 0.95,
            limit: 0.1,
            cost_shape: 0.2,
            free_action: FreeAction::First,
        }
    }
}

/// A drawn CMDP and its landmarks.
#[derive(Clone, Debug, PartialEq)]
pub struct RandomCmdp {
    /// One cost; absorption is an explicit state.
    pub cmdp: Cmdp,
    /// The rewarded state.
    pub goal: StateId,
    /// The last state.
    pub absorbing: StateId,
    /// How often the costs were drawn until the limit was binding, since the transitions were drawn last.
    pub cost_draws: u32,
}

impl RandomCmdpConfig {
    /// Refuses settings that no CMDP can have.
    ///
    /// # Errors
    /// [`GenerateError::Setting`] naming the field.
    pub fn validate(&self) -> Result<(), GenerateError> {
        let refuse = |field, why| Err(GenerateError::Setting { field, why });
        if self.actions == 0 {
            return refuse("actions", "give at least one");
        }
        if self.connectivity == 0 || self.connectivity >= self.states {
            return refuse("connectivity", "give at least one, and fewer than there are states");
        }
        if self.states < 3 {
            return refuse("states", "give at least three: start, goal and absorbing state");
        }
        if !(self.gamma > 0.0 && self.gamma < 1.0) {
            return refuse("gamma", "give a number between 0 and 1, both excluded");
        }
        if !(self.limit.is_finite() && self.limit >= 0.0) {
            return refuse("limit", "give a finite number >= 0");
        }
        if !(self.cost_shape.is_finite() && self.cost_shape > 0.0) {
            return refuse("cost_shape", "give a positive number");
        }
        Ok(())
    }

    /// Draws CMDP number `index` of `seed`.
    ///
    /// # Errors
    /// If a setting is impossible, or no costs were found under which the limit binds.
    pub fn draw(&self, seed: u64, index: u64) -> Result<RandomCmdp, GenerateError> {
        self.validate()?;
        let mut random = rng::stream(seed, "tabular costs", index);
        let beta = Beta::new(self.cost_shape, self.cost_shape)
            .map_err(|_| GenerateError::Setting { field: "cost_shape", why: "give a positive number" })?;
        let mut transitions = rng::stream(seed, "tabular transitions", index);
        for _ in 0..MAX_TRANSITION_DRAWS {
            let mut kernel = Successors::draw(self, &mut transitions);
            let goal = kernel.hardest_goal(self.gamma).ok_or(GenerateError::NothingReachable)?;
            kernel.redirect(goal.index());
            let choice = kernel.greedy(goal, self.gamma);
            let occupancy = kernel.occupancy(&choice, self.gamma);
            for cost_draws in 1..=MAX_COST_DRAWS {
                let cost = self.draw_cost(&beta, &mut random);
                let paid: f64 = occupancy
                    .iter()
                    .enumerate()
                    .map(|(s, d)| d * cost[s * self.actions + choice[s].index()])
                    .sum();
                if paid >= self.limit - BINDING_TOLERANCE {
                    let cmdp = kernel.into_cmdp(goal, cost, self.gamma)?;
                    let absorbing = StateId(self.states as u32 - 1);
                    return Ok(RandomCmdp { cmdp, goal, absorbing, cost_draws });
                }
            }
        }
        Err(GenerateError::NeverBinds { limit: self.limit, draws: MAX_TRANSITION_DRAWS * MAX_COST_DRAWS })
    }

    /// Costs `[S*A]`, zero for each state's free action and in the absorbing state.
    fn draw_cost(&self, beta: &Beta<f64>, random: &mut impl Rng) -> Vec<f64> {
        let mut cost: Vec<f64> = (0..self.states * self.actions).map(|_| beta.sample(random)).collect();
        for row in cost.chunks_mut(self.actions) {
            let free = match self.free_action {
                FreeAction::First => 0,
                FreeAction::Random => random.random_range(0..self.actions),
            };
            row[free] = 0.0;
        }
        cost[(self.states - 1) * self.actions..].fill(0.0);
        cost
    }
}

/// Transition rows of equal length, before they become a [`Cmdp`].
struct Successors {
    states: usize,
    actions: usize,
    connectivity: usize,
    /// `[S*A*connectivity]`.
    next: Vec<u32>,
    /// `[S*A*connectivity]`.
    probability: Vec<f64>,
}

impl Successors {
    fn draw(config: &RandomCmdpConfig, random: &mut impl Rng) -> Self {
        let RandomCmdpConfig { states, actions, connectivity, .. } = *config;
        let mut next = Vec::with_capacity(states * actions * connectivity);
        let mut probability = Vec::with_capacity(next.capacity());
        for _ in 0..(states - 1) * actions {
            next.extend(index::sample(random, states - 1, connectivity).into_iter().map(|s| s as u32));
            // Dirichlet(1, …, 1): independent exponentials, normalised.
            let row = probability.len();
            probability.extend((0..connectivity).map(|_| -> f64 { Exp1.sample(random) }));
            let sum: f64 = probability[row..].iter().sum();
            probability[row..].iter_mut().for_each(|p| *p /= sum);
        }
        let mut rows = Self { states, actions, connectivity, next, probability };
        rows.next.resize(states * actions * connectivity, 0);
        rows.probability.resize(states * actions * connectivity, 0.0);
        rows.redirect(states - 1);
        rows
    }

    /// Makes every action of `state` lead to the absorbing state.
    fn redirect(&mut self, state: usize) {
        let width = self.actions * self.connectivity;
        let absorbing = self.states as u32 - 1;
        self.next[state * width..(state + 1) * width].fill(absorbing);
        for row in self.probability[state * width..(state + 1) * width].chunks_mut(self.connectivity) {
            row.fill(0.0);
            row[0] = 1.0;
        }
    }

    /// One Gauss–Seidel sweep of `v(s) = max_a γ Σ T(s'|s,a) v(s')` with `v(goal) = 1` and `v(absorbing) = 0`;
    /// the largest change. `v(s) = max E[γ^(steps to the goal)]`, the normalised value under the goal's reward.
    fn sweep(&self, goal: usize, gamma: f64, value: &mut [f64]) -> f64 {
        let mut change = 0.0_f64;
        for s in (0..self.states - 1).filter(|&s| s != goal) {
            let best =
                (0..self.actions).map(|a| self.expect(s * self.actions + a, value)).fold(0.0, f64::max);
            change = change.max((gamma * best - value[s]).abs());
            value[s] = gamma * best;
        }
        change
    }

    fn expect(&self, pair: usize, value: &[f64]) -> f64 {
        let range = pair * self.connectivity..(pair + 1) * self.connectivity;
        self.next[range.clone()]
            .iter()
            .zip(&self.probability[range])
            .map(|(&s, &p)| p * value[s as usize])
            .sum()
    }

    /// Value iteration from below: stops once the start's value exceeds `enough`, or has settled.
    fn iterate(&self, goal: usize, gamma: f64, enough: f64, value: &mut [f64]) {
        value.fill(0.0);
        value[goal] = 1.0;
        // Rounding leaves changes of about 1e-16; the remaining error is at most γ/(1−γ) times the last change.
        // Each sweep contracts by γ at least, so that this many suffice in any case.
        let sweeps = (1e-15_f64.ln() / gamma.ln()).ceil() as usize + 1;
        for _ in 0..sweeps {
            if self.sweep(goal, gamma, value) <= 1e-15 || value[INITIAL_STATE.index()] > enough {
                break;
            }
        }
    }

    /// The state with the smallest optimal value at the start. Values grow towards the optimum from below, so a
    /// candidate is dropped as soon as it exceeds the smallest optimum so far. States out of reach are no goals.
    fn hardest_goal(&self, gamma: f64) -> Option<StateId> {
        let mut value = vec![0.0; self.states];
        let (mut goal, mut least) = (None, 1.0);
        for candidate in 1..self.states - 1 {
            self.iterate(candidate, gamma, least, &mut value);
            let start = value[INITIAL_STATE.index()];
            if start > 0.0 && start < least {
                least = start;
                goal = Some(StateId(candidate as u32));
            }
        }
        goal
    }

    /// The best action of every state for reaching the goal.
    fn greedy(&self, goal: StateId, gamma: f64) -> Vec<ActionId> {
        let mut value = vec![0.0; self.states];
        self.iterate(goal.index(), gamma, f64::INFINITY, &mut value);
        let best = |s: usize| {
            let mut best = (0, f64::NEG_INFINITY);
            for a in 0..self.actions {
                let v = self.expect(s * self.actions + a, &value);
                if v > best.1 {
                    best = (a, v);
                }
            }
            ActionId(best.0 as u32)
        };
        (0..self.states).map(best).collect()
    }

    /// Normalised discounted visits `[S]` of a deterministic policy from the start, by forward propagation until
    /// the mass left is below 1e-14.
    fn occupancy(&self, choice: &[ActionId], gamma: f64) -> Vec<f64> {
        let mut total = vec![0.0; self.states];
        let mut now = vec![0.0; self.states];
        let mut then = vec![0.0; self.states];
        now[INITIAL_STATE.index()] = 1.0 - gamma;
        let mut mass = 1.0;
        while mass > 1e-14 {
            then.fill(0.0);
            for s in 0..self.states {
                total[s] += now[s];
                let pair = s * self.actions + choice[s].index();
                for i in pair * self.connectivity..(pair + 1) * self.connectivity {
                    then[self.next[i] as usize] += gamma * now[s] * self.probability[i];
                }
            }
            std::mem::swap(&mut now, &mut then);
            mass *= gamma;
        }
        total
    }

    fn into_cmdp(self, goal: StateId, cost: Vec<f64>, gamma: f64) -> Result<Cmdp, GenerateError> {
        let pairs = self.states * self.actions;
        let triples = (0..pairs * self.connectivity).map(|i| {
            let pair = i / self.connectivity;
            (pair / self.actions, pair % self.actions, self.next[i] as usize, self.probability[i])
        });
        let transitions = Transitions::from_triples(self.states, self.actions, triples)?;
        let mut reward = vec![0.0; pairs];
        reward[goal.index() * self.actions..(goal.index() + 1) * self.actions].fill(1.0 / (1.0 - gamma));
        let mut initial = vec![0.0; self.states];
        initial[INITIAL_STATE.index()] = 1.0;
        Ok(Cmdp::new(CmdpParts {
            transitions,
            episode_end: EpisodeEnd::Absorb,
            reward,
            costs: vec![cost],
            initial,
            gamma,
        })?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluation::evaluate;
    use crate::policy_iteration::optimal_policy;
    use coptidice_core::Policy;

    #[test]
    fn the_paper_setting_is_met() {
        let config = RandomCmdpConfig::default();
        for index in 0..4 {
            let drawn = config.draw(3, index).unwrap();
            let m = &drawn.cmdp;
            assert_eq!((m.states(), m.actions(), m.cost_count(), m.gamma()), (50, 4, 1, 0.95));
            for s in 0..50 {
                for a in 0..4 {
                    let (next, _) = m.row(s * 4 + a);
                    let leaves = s == drawn.goal.index() || s == drawn.absorbing.index();
                    assert_eq!(next.len(), if leaves { 1 } else { 4 }, "state {s}");
                    assert_eq!(next.contains(&49), leaves, "only the goal leads to the absorbing state");
                    let reward = if s == drawn.goal.index() { 20.0 } else { 0.0 };
                    assert!((m.reward()[s * 4 + a] - reward).abs() < 1e-13);
                }
                assert_eq!(m.cost(0)[s * 4], 0.0, "the first action is free");
            }
            assert!(m.cost(0)[196..].iter().all(|&c| c == 0.0), "absorption is free");
            assert!(m.cost(0).iter().all(|c| (0.0..=1.0).contains(c)));
        }
    }

    /// The goal against policy iteration for every candidate; the binding limit against the best policy's cost.
    #[test]
    fn goal_is_the_hardest_and_the_limit_binds() {
        for index in 0..3 {
            let drawn = RandomCmdpConfig::default().draw(11, index).unwrap();
            let parts = drawn.cmdp.clone().into_parts();
            // Undo the goal: rebuild the rows from the same stream.
            let rows = Successors::draw(
                &RandomCmdpConfig::default(),
                &mut rng::stream(11, "tabular transitions", index),
            );
            let value = |goal: usize| {
                let mut copy =
                    Successors { next: rows.next.clone(), probability: rows.probability.clone(), ..rows };
                copy.redirect(goal);
                let m = copy.into_cmdp(StateId(goal as u32), vec![0.0; 200], 0.95).unwrap();
                optimal_policy(&m, m.reward()).unwrap().value
            };
            let values: Vec<f64> = (1..49).map(value).collect();
            let least = values.iter().copied().fold(f64::INFINITY, f64::min);
            assert_eq!(values[drawn.goal.index() - 1], least);
            let best = optimal_policy(&drawn.cmdp, &parts.reward).unwrap();
            assert!((best.value - least).abs() < 1e-12);
            let paid = evaluate(&drawn.cmdp, &best.policy).unwrap().costs[0];
            assert!(paid >= 0.1 - 1e-4, "the unconstrained optimum pays {paid}");
        }
    }

    /// Moments of the draws. `Beta(.2,.2)` has mean 1/2 and variance `1/(4·1.4)`, but redraws select for dear costs
    /// on the path to the goal, so that the mean over a CMDP is compared loosely; `Dirichlet(1,1,1,1)` entries have
    /// mean 1/4 and variance 3/80. 12 CMDPs hold 9408 entries and 1764 costs: six standard errors.
    #[test]
    fn draws_have_the_stated_distributions() {
        let (mut p, mut c, mut draws) = (Vec::new(), Vec::new(), 0);
        for index in 0..12 {
            let drawn = RandomCmdpConfig::default().draw(5, index).unwrap();
            draws += drawn.cost_draws;
            for s in (0..49).filter(|&s| s != drawn.goal.index()) {
                for a in 0..4 {
                    p.extend_from_slice(drawn.cmdp.row(s * 4 + a).1);
                }
                c.extend_from_slice(&drawn.cmdp.cost(0)[s * 4 + 1..s * 4 + 4]);
            }
        }
        let moments = |x: &[f64]| {
            let mean = x.iter().sum::<f64>() / x.len() as f64;
            (mean, x.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / x.len() as f64)
        };
        let ((mean, variance), (cost_mean, cost_variance)) = (moments(&p), moments(&c));
        assert!((mean - 0.25).abs() < 1e-12, "rows of four sum to one");
        assert!((variance - 3.0 / 80.0).abs() < 6.0 * 0.05 / (p.len() as f64).sqrt(), "{variance}");
        assert!((cost_mean - 0.5).abs() < 6.0 * 0.42 / (c.len() as f64).sqrt(), "{cost_mean}");
        assert!((cost_variance - 1.0 / 5.6).abs() < 0.02, "{cost_variance}");
        assert!(draws >= 12);
    }

    #[test]
    fn same_seed_same_cmdp_and_free_actions_can_be_drawn() {
        let config = RandomCmdpConfig { free_action: FreeAction::Random, ..Default::default() };
        let drawn = config.draw(1, 0).unwrap();
        assert_eq!(drawn, config.draw(1, 0).unwrap());
        assert_ne!(drawn, config.draw(1, 1).unwrap());
        let rows = drawn.cmdp.cost(0)[..196].chunks(4);
        let free: Vec<usize> = rows.map(|row| row.iter().position(|&c| c == 0.0).unwrap()).collect();
        assert!((0..4).all(|a| free.contains(&a)), "49 draws miss an action with probability below 1e-5");
    }

    /// With every cost at its largest, 1, the best policy of the first transitions still costs less than the limit.
    #[test]
    fn transitions_that_no_costs_bind_are_drawn_anew() {
        let config =
            RandomCmdpConfig { states: 8, connectivity: 2, limit: 0.02, ..RandomCmdpConfig::default() };
        let most = |index| {
            let mut kernel = Successors::draw(&config, &mut rng::stream(3, "tabular transitions", index));
            let goal = kernel.hardest_goal(config.gamma)?;
            kernel.redirect(goal.index());
            let choice = kernel.greedy(goal, config.gamma);
            let occupancy = kernel.occupancy(&choice, config.gamma);
            let last = config.states - 1;
            Some((0..last).filter(|&s| choice[s].index() != 0).map(|s| occupancy[s]).sum::<f64>())
        };
        let hopeless: Vec<u64> = (0..40).filter(|&i| most(i).is_some_and(|m| m < 0.01)).collect();
        assert!(!hopeless.is_empty());
        for index in hopeless {
            let drawn = config.draw(3, index);
            assert!(drawn.is_ok(), "CMDP {index}: {:?}", drawn.err());
        }
    }

    #[test]
    fn impossible_settings_are_named() {
        let broken = |change: fn(&mut RandomCmdpConfig)| {
            let mut config = RandomCmdpConfig::default();
            change(&mut config);
            config.draw(0, 0).unwrap_err()
        };
        let field = |error| match error {
            GenerateError::Setting { field, .. } => field,
            other => panic!("{other}"),
        };
        assert_eq!(field(broken(|c| c.connectivity = 50)), "connectivity");
        assert_eq!(field(broken(|c| c.actions = 0)), "actions");
        assert_eq!(field(broken(|c| c.gamma = 1.0)), "gamma");
        assert_eq!(field(broken(|c| c.limit = f64::NAN)), "limit");
        assert_eq!(field(broken(|c| c.cost_shape = 0.0)), "cost_shape");
        let error = broken(|c| {
            c.limit = 2.0;
            c.states = 4;
            c.connectivity = 3;
        });
        assert!(
            matches!(error, GenerateError::NeverBinds { limit: 2.0, .. }),
            "costs are at most one: {error}"
        );
        let uniform = Policy::uniform(50, 4).unwrap();
        assert!(evaluate(&RandomCmdpConfig::default().draw(0, 0).unwrap().cmdp, &uniform).is_ok());
    }
}
