//! Batches of samples `(s0, s, a, r, c, s')` (the paper's `x`), drawn as a function of `(seed, step)` alone.
//!
//! Nothing is carried from one batch to the next, so that a resumed run needs no generator state, and the number of
//! threads cannot matter.

use coptidice_core::rng::stream;
use coptidice_data::Actions;
use rand::RngExt as _;

use crate::coptidice::losses::Samples;
use crate::policy::ActionBatch;
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
    /// The discount.
    pub gamma: f64,
    pub(crate) discrete: bool,
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

/// Draws batches from a problem.
#[derive(Debug)]
pub struct Sampler<'a> {
    problem: &'a Problem<'a>,
    batch: Batch,
}

impl<'a> Sampler<'a> {
    /// A sampler of the configured batch size.
    #[must_use]
    pub fn new(problem: &'a Problem<'a>) -> Self {
        Sampler { problem, batch: Batch::new(problem, problem.config.batch_size) }
    }

    /// The batch of gradient step `step`.
    pub fn draw(&mut self, step: u64) -> &Batch {
        let (data, rows) = (self.problem.data, &self.problem.rows);
        let mut rng = stream(self.problem.config.seed, "batch", step);
        self.batch.step = step;
        // All four are drawn for every sample, so that no sample's draws depend on another's contents.
        self.gather(|_| {
            let row = rows.row(rng.random_range(0..rows.len()));
            let starts = [0; 2].map(|_| rng.random_range(0..data.episodes().len()));
            (row, starts, rng.random())
        })
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
        let Problem { data, costs, normalizer, .. } = self.problem;
        let batch = &mut self.batch;
        let (size, dim) = (batch.size, data.observation_dim());
        let undiscounted = batch.gamma == 1.0;
        let last = data.ends_episode(row);
        let next = if undiscounted && last { data.observation(restart) } else { data.next_observation(row) };
        for (block, observation) in
            [data.observation(row), next, data.observation(start)].into_iter().enumerate()
        {
            let place = (block * size + b) * dim;
            normalizer.apply(observation, &mut batch.states[place..place + dim]);
        }
        for d in 0..dim {
            let (s, s0) = (batch.states[b * dim + d], batch.states[(2 * size + b) * dim + d]);
            batch.mixes[b * dim + d] = mix * s0 + (1.0 - mix) * s;
        }
        let ends = !undiscounted && data.terminal(row);
        batch.discounts[b] = if ends { 0.0 } else { batch.gamma as f32 };
        if ends || !undiscounted && last && !batch.states[(size + b) * dim].is_finite() {
            // What was recorded after a terminal has no meaning and might not even be finite; of other rows that lead
            // nobody knows where, only what looks at no next state draws batches.
            batch.states[(size + b) * dim..(size + b + 1) * dim].fill(0.0);
        }
        batch.rewards[b] = (f64::from(data.reward(row)) * self.problem.reward_scale) as f32;
        for (k, cost) in costs.iter().enumerate() {
            let credit = if last { cost.constraint.last_step_credit } else { 0.0 };
            batch.costs[b * costs.len() + k] =
                ((f64::from(data.costs(row)[cost.column]) - credit) * cost.scale) as f32;
        }
        if batch.discrete {
            batch.action_ids[b] = data.discrete_action(row);
        } else {
            let action = data.continuous_action(row);
            batch.actions[b * action.len()..(b + 1) * action.len()].copy_from_slice(action);
        }
    }
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
