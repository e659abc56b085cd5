//! Batches of samples `(s0, s, a, r, c, s')` (the paper's `x`), drawn as a function of `(seed, step)` alone.
//!
//! Nothing is carried from one batch to the next, so that a resumed run needs no generator state, and the number of
//! threads cannot matter.

use coptidice_core::rng::stream;
use coptidice_data::Actions;
use rand::RngExt as _;

use crate::balance::Balance;
use crate::coptidice::losses::Samples;
use crate::policy::{ActionBatch, NormalizerError};
use crate::problem::Problem;

/// One batch of `B` samples with observations of `D` components. Buffers are reused from step to step.
#[derive(Clone, Debug)]
pub struct Batch {
    /// `B`.
    pub size: usize,
    /// The gradient step for which it was drawn.
    pub step: u64,
    /// `[3B, D]`: `s`, then `s'`, then `s0`, normalised.
    pub states: Vec<f32>,
    /// `[B, D]`: `u s0 + (1-u) s` with `u` uniform on (0,1), where gradients are penalised.
    pub mixes: Vec<f32>,
    /// `[B, A]`; empty for discrete actions.
    pub actions: Vec<f32>,
    /// `[B]`; empty for continuous actions.
    pub action_ids: Vec<u32>,
    /// `[B]`, scaled.
    pub rewards: Vec<f32>,
    /// `[B, K]`, less the last step's credit, scaled.
    pub costs: Vec<f32>,
    /// `[B]`, `gamma`, or 0 after a terminal.
    pub discounts: Vec<f32>,
    /// What the log says of the steps after each sample; empty where no critic looks at it.
    pub ahead: Ahead,
    /// The discount.
    pub gamma: f64,
    pub(crate) discrete: bool,
}

/// What followed each sample in its logged episode, over at most [`crate::config::Critic::lookahead`] steps.
#[derive(Clone, Debug, Default)]
pub struct Ahead {
    /// `[B, 1 + K]`: reward and costs of these steps, scaled, the costs less the last step's credit, each multiplied by
    /// the critic's discount once for every step before it.
    pub values: Vec<f32>,
    /// `[B, D]`: the state after them, normalised.
    pub states: Vec<f32>,
    /// `[B]`: the discount of that state's values; 0 after a terminal.
    pub discounts: Vec<f32>,
}

impl Batch {
    fn new(problem: &Problem<'_>, size: usize) -> Self {
        let dim = problem.data.observation_dim();
        let (action_width, ids) = match problem.data.actions() {
            Actions::Continuous { dim, .. } => (*dim, 0),
            Actions::Discrete { .. } => (0, size),
        };
        Batch {
            size,
            step: 0,
            states: vec![0.0; 3 * size * dim],
            mixes: vec![0.0; size * dim],
            actions: vec![0.0; size * action_width],
            action_ids: vec![0; ids],
            rewards: vec![0.0; size],
            costs: vec![0.0; size * problem.costs.len()],
            discounts: vec![0.0; size],
            ahead: Ahead::new(problem, size),
            gamma: problem.config.gamma,
            discrete: problem.data.actions().is_discrete(),
        }
    }

    /// The part that the losses see.
    #[must_use]
    pub fn samples(&self) -> Samples<'_> {
        Samples { rewards: &self.rewards, costs: &self.costs, discounts: &self.discounts, gamma: self.gamma }
    }

    /// The actions.
    #[must_use]
    pub fn action_batch(&self) -> ActionBatch<'_> {
        if self.discrete {
            ActionBatch::Discrete(&self.action_ids)
        } else {
            ActionBatch::Continuous(&self.actions)
        }
    }

    /// The states `s'`, `[B, D]`.
    #[must_use]
    pub fn next_states(&self) -> &[f32] {
        let third = self.states.len() / 3;
        &self.states[third..2 * third]
    }

    /// The states `s0`, `[B, D]`.
    #[must_use]
    pub fn initial_states(&self) -> &[f32] {
        &self.states[2 * self.states.len() / 3..]
    }

    /// The states `s`, `[B, D]`.
    #[must_use]
    pub fn current_states(&self) -> &[f32] {
        &self.states[..self.states.len() / 3]
    }
}

impl Ahead {
    fn new(problem: &Problem<'_>, size: usize) -> Self {
        if !problem.config.has_critic() {
            return Ahead::default();
        }
        Ahead {
            values: vec![0.0; size * (1 + problem.costs.len())],
            states: vec![0.0; size * problem.data.observation_dim()],
            discounts: vec![0.0; size],
        }
    }
}

/// Draws batches from a problem.
#[derive(Debug)]
pub struct Sampler<'a> {
    problem: &'a Problem<'a>,
    batch: Batch,
    /// How rows are drawn in the policy's own steps.
    balance: Option<Balance>,
}

impl<'a> Sampler<'a> {
    /// A sampler of the configured batch size that draws rows as they were logged.
    #[must_use]
    pub fn new(problem: &'a Problem<'a>) -> Self {
        Sampler { problem, batch: Batch::new(problem, problem.config.batch_size), balance: None }
    }

    /// The sampler of a training run: in the policy's own steps rows are drawn as the configuration's balance says.
    ///
    /// # Errors
    /// If observations are not finite.
    pub(crate) fn for_training(problem: &'a Problem<'a>) -> Result<Self, NormalizerError> {
        let (config, mut sampler) = (problem.config, Sampler::new(problem));
        if config.draws_afterwards() && config.balance > 0.0 {
            sampler.balance = Some(Balance::new(problem.data, &problem.rows, config.balance)?);
        }
        Ok(sampler)
    }

    /// The batch of gradient step `step`.
    pub fn draw(&mut self, step: u64) -> &Batch {
        let (data, rows) = (self.problem.data, &self.problem.rows);
        let config = self.problem.config;
        let mut rng = stream(config.seed, "batch", step);
        self.batch.step = step;
        let balance = if step >= config.dual_steps() { self.balance.take() } else { None };
        // All four are drawn for every sample, so that no sample's draws depend on another's contents.
        self.gather(|_| {
            let k = match &balance {
                Some(balance) => balance.position(rng.random()),
                None => rng.random_range(0..rows.len()),
            };
            let starts = [0; 2].map(|_| rng.random_range(0..data.episodes().len()));
            (rows.row(k), starts, rng.random())
        });
        self.balance = balance.or(self.balance.take());
        &self.batch
    }

    /// A batch whose sample `b` is `(row, [episode of s0, episode in which a restart begins], u)`.
    pub(crate) fn gather(&mut self, mut choose: impl FnMut(usize) -> (usize, [usize; 2], f32)) -> &Batch {
        for b in 0..self.batch.size {
            let (row, starts, mix) = choose(b);
            let [start, restart] = starts.map(|episode| self.problem.data.episodes()[episode].start);
            self.fill(b, row, start, restart, mix);
        }
        &self.batch
    }

    fn fill(&mut self, b: usize, row: usize, start: usize, restart: usize, mix: f32) {
        let Problem { data, normalizer, .. } = self.problem;
        let (size, dim) = (self.batch.size, data.observation_dim());
        let costs = self.problem.costs.len();
        let batch = &mut self.batch;
        for (block, observation) in [(0, data.observation(row)), (2, data.observation(start))] {
            let place = (block * size + b) * dim;
            normalizer.apply(observation, &mut batch.states[place..place + dim]);
        }
        for d in 0..dim {
            let (s, s0) = (batch.states[b * dim + d], batch.states[(2 * size + b) * dim + d]);
            batch.mixes[b * dim + d] = mix * s0 + (1.0 - mix) * s;
        }
        let next = &mut batch.states[(size + b) * dim..(size + b + 1) * dim];
        let goes_on = next_state(self.problem, row, restart, next);
        batch.discounts[b] = if goes_on { batch.gamma as f32 } else { 0.0 };
        batch.rewards[b] = scaled_reward(self.problem, row) as f32;
        for (k, cost) in self.problem.costs.iter().enumerate() {
            batch.costs[b * costs + k] = cost.constrained(data, row) as f32;
        }
        if batch.discrete {
            batch.action_ids[b] = data.discrete_action(row);
        } else {
            let action = data.continuous_action(row);
            let place = &mut batch.actions[b * action.len()..(b + 1) * action.len()];
            place.copy_from_slice(action);
            if let Some(unit) = &self.problem.action_unit {
                unit.enter(place);
            }
        }
        if !batch.ahead.discounts.is_empty() {
            self.look_ahead(b, row, restart);
        }
    }

    fn look_ahead(&mut self, b: usize, row: usize, restart: usize) {
        let Problem { data, config, rows, .. } = self.problem;
        let (dim, values) = (data.observation_dim(), 1 + self.problem.costs.len());
        let ahead = &mut self.batch.ahead;
        let mut last = row;
        while last + 1 < row + config.critic.lookahead && !data.ends_episode(last) && rows.contains(last + 1)
        {
            last += 1;
        }
        for j in 0..values {
            let of_row = |row| match j.checked_sub(1) {
                None => scaled_reward(self.problem, row),
                Some(k) => self.problem.costs[k].priced(data, row),
            };
            let total =
                (row..=last).rev().fold(0.0, |later, row| of_row(row) + config.critic.discount * later);
            ahead.values[b * values + j] = total as f32;
        }
        let goes_on = next_state(self.problem, last, restart, &mut ahead.states[b * dim..(b + 1) * dim]);
        let steps = (last + 1 - row) as i32;
        ahead.discounts[b] = if goes_on { config.critic.discount.powi(steps) as f32 } else { 0.0 };
    }
}

/// Writes the state after `row`, normalised, and says whether the process goes on there.
fn next_state(problem: &Problem<'_>, row: usize, restart: usize, state: &mut [f32]) -> bool {
    let Problem { data, normalizer, .. } = problem;
    let undiscounted = problem.config.gamma == 1.0;
    let last = data.ends_episode(row);
    let next = if undiscounted && last { data.observation(restart) } else { data.next_observation(row) };
    normalizer.apply(next, state);
    let ends = !undiscounted && data.terminal(row);
    if ends || !undiscounted && last && !state[0].is_finite() {
        // What was recorded after a terminal has no meaning and might not even be finite; of other rows that lead
        // nobody knows where, only what looks at no next state draws batches.
        state.fill(0.0);
    }
    !ends
}

fn scaled_reward(problem: &Problem<'_>, row: usize) -> f64 {
    f64::from(problem.data.reward(row)) * problem.reward_scale
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::ProblemError;
    use crate::testing::{config, random_log};
    use coptidice_data::{ActionSpace, Step, Transitions, TransitionsBuilder};

    /// `data` without what its stopped episodes led to.
    fn without_last_states(data: &Transitions) -> Transitions {
        let mut builder = TransitionsBuilder::new(data.schema()).expect("the schema of a log");
        let blank = vec![f32::NAN; data.observation_dim()];
        for row in 0..data.len() {
            let step = data.step(row);
            let unknown = data.ends_episode(row) && !step.terminal;
            let next_observation = if unknown { &blank } else { step.next_observation };
            builder.push(&Step { next_observation, ..step }).expect("a row of the log");
        }
        builder.finish().expect("a log with rows")
    }

    /// Sums over the steps ahead against sums over the log, to an `f32`'s rounding: to the end of an episode, to a
    /// terminal, and up to a row whose next state is not known.
    #[test]
    fn what_lies_ahead_is_what_the_log_did() {
        let whole = random_log(2, ActionSpace::Continuous { dim: 1 }, 6, 5);
        let toml = "gamma = 0.95\nreward_scale = \"none\"\nnormalize_observations = false\nbatch_size = 25\n\
                    [critic]\ndiscount = 0.9\nlookahead = 3\n";
        for data in [without_last_states(&whole), whole] {
            let config = config(&data, toml);
            let problem = Problem::new(&config, &data).expect("a sound log");
            let rows: Vec<usize> = (0..problem.rows.len()).map(|k| problem.rows.row(k)).collect();
            let (mut lengths, mut terminals) = ([0; 4], 0);
            for chunk in rows.chunks(25) {
                let mut sampler = Sampler::new(&problem);
                let batch = sampler.gather(|b| (*chunk.get(b).unwrap_or(&chunk[0]), [0, 0], 0.5));
                for (b, &row) in chunk.iter().enumerate() {
                    let end = row / 5 * 5 + 5;
                    let known = |row: usize| !data.next_unknown().contains(&row);
                    let last = (row..end.min(row + 3)).take_while(|&row| known(row)).last().expect("itself");
                    lengths[last + 1 - row] += 1;
                    for j in 0..3 {
                        let value = |row: usize| match j {
                            0 => f64::from(data.reward(row)),
                            // As logged: that the limit is a credit of every step, as some episodes end by themselves,
                            // is the constraint's matter.
                            j => f64::from(data.costs(row)[j - 1]) * problem.costs[j - 1].logged_scale,
                        };
                        let sum: f64 =
                            (row..=last).map(|next| 0.9_f64.powi((next - row) as i32) * value(next)).sum();
                        let found = f64::from(batch.ahead.values[b * 3 + j]);
                        assert!((found - sum).abs() < 1e-6, "row {row}, {j}: {found} for {sum}");
                    }
                    let discount =
                        if data.terminal(last) { 0.0 } else { 0.9_f32.powi((last + 1 - row) as i32) };
                    assert!((batch.ahead.discounts[b] - discount).abs() < 1e-6, "row {row}");
                    terminals += usize::from(data.terminal(last));
                    if !data.terminal(last) {
                        assert_eq!(&batch.ahead.states[b * 2..b * 2 + 2], data.next_observation(last));
                    }
                }
            }
            assert!(lengths[1..].iter().all(|&n| n > 0) && terminals > 0, "{lengths:?} {terminals}");
        }
    }

    /// Rows drawn over 200 batches, told by their rewards; every `s'` that counts is finite.
    fn drawn(data: &Transitions, toml: &str) -> Vec<bool> {
        let config = config(data, &format!("{toml}reward_scale = \"none\"\nbatch_size = 64\n"));
        let problem = Problem::new(&config, data).expect("a sound log");
        let mut sampler = Sampler::new(&problem);
        let mut seen = vec![false; data.len()];
        for step in 0..200 {
            let batch = sampler.draw(step);
            assert!(batch.states.iter().all(|value| value.is_finite()));
            for &reward in &batch.rewards {
                seen[data.rewards().iter().position(|&r| r == reward).expect("a logged reward")] = true;
            }
        }
        seen
    }

    #[test]
    fn rows_that_lead_nobody_knows_where_are_drawn_only_where_that_does_not_matter() {
        let whole = random_log(2, ActionSpace::Continuous { dim: 1 }, 6, 5);
        let data = without_last_states(&whole);
        assert_eq!(
            data.next_unknown(),
            [9, 14, 24, 29],
            "episodes 0 and 3 end in terminals, the last is cut"
        );
        let seen = drawn(&data, "gamma = 0.9\n");
        for (row, seen) in seen.into_iter().enumerate() {
            assert_eq!(seen, !data.next_unknown().contains(&row), "row {row}");
        }
        assert!(drawn(&data, "gamma = 1.0\n").into_iter().all(|seen| seen), "a fresh episode follows");
        assert!(drawn(&data, "algo = \"bc\"\n").into_iter().all(|seen| seen), "no next state is looked at");
    }

    #[test]
    fn a_log_of_single_steps_that_lead_nowhere_is_refused_only_where_they_are_needed() {
        let data = without_last_states(&random_log(2, ActionSpace::discrete(2), 1, 1));
        let refused = config(&data, "gamma = 0.9\n");
        let found = Problem::new(&refused, &data);
        assert!(matches!(found, Err(crate::TrainError::Problem(ProblemError::NoNextState))), "{found:?}");
        assert!(Problem::new(&config(&data, "gamma = 1.0\n"), &data).is_ok());
    }
}
