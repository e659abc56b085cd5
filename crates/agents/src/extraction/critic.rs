//! Extraction guided by a critic of the policy that is being drawn.
//!
//! The optimum maximises reward less priced costs near the log. Weighting samples finds its actions only where the log
//! holds them, and averages where the log holds several ways. Here the policy `mu(s)` (the location of its Gaussian)
//! descends
//!
//! ```text
//! mean_b [ max(w_b, least) |u(mu(s_b)) - u(a_b)|^2  -  guidance/spread (Q_r - p'Q_c)(s_b, mu(s_b)) ]
//! ```
//!
//! at prices `p` of the costs, where `u` maps the action's logged range to `[-1, 1]`, and `Q_r`, `Q_{c_k}` are discounted
//! rewards and costs under *this policy*, fitted by temporal differences on the logged transitions. Away from the log
//! the first term rules, where several ways are near the second picks one. `least` keeps the policy near the log also where
//! the optimum does not go and it may find itself all the same.
//!
//! What an action is worth is a matter of differences between actions at one state, and where a step is short these
//! are a hundredth of the differences between states. `spread` is therefore the standard deviation between actions:
//! with `a'` the action of another sample of the batch,
//!
//! ```text
//! spread = sqrt(pi)/2 mean_b |(Q_r - p'Q_c)(s_b, a'_b) - (Q_r - p'Q_c)(s_b, a_b)|
//! ```
//!
//! which for normal values is their deviation; means of sizes, because a few states near failure would rule squares.
//! For the same reason targets look `lookahead` logged steps ahead before they trust the critic: what the log did next
//! is taken for what the policy would do (a bias that vanishes as the policy comes near the log's best), and one
//! action's effect stands out by as much more.
//!
//! Several critics are fitted to common targets, those of the one of two (drawn anew in each step) to which the next
//! state is worth less, so that what is uncertain looks bad; the policy follows their mean, in which the errors of each
//! weigh less (fitted twins and smoothed targets: Fujimoto et al. 2018, "Addressing function approximation error"; pairs
//! of an ensemble and its mean: Chen et al. 2021, "Randomized ensembled double Q-learning"; a deterministic gradient
//! beside a cloning term: Fujimoto and Gu 2021, "A minimalist approach"; returns over several logged steps without
//! correction: Hessel et al. 2018, "Rainbow"). Their values serve to compare actions and say nothing of what the policy
//! will earn or cost.
//!
//! For finitely many actions the value of the policy is an exact sum over actions, and the first term is
//! `-w log pi(a|s)`.
//!
//! # Shapes
//!
//! A critic's input is `[B, D + A]` (normalised state, `u(a)`), or `[B, D]` for finitely many actions; its output is
//! `[B, N, 1 + K]` with `N` the number of actions (1 for continuous ones): reward, then costs, in scaled units.

use coptidice_core::rng::{Rng, stream};
use coptidice_nn::{Network, NetworkSpec, NnError, Pool, exponential_average};
use rand::RngExt as _;
use rand_distr::{Distribution as _, StandardNormal};

use super::PolicyTrainer;
use crate::advantage::Space;
use crate::config::Critic;
use crate::learner::StateMut;
use crate::policy::{Candidates, Head, Selector, likely};
use crate::problem::{ConstrainedCost, Problem};
use crate::sampler::Batch;
use crate::trained::TrainedNetwork;

/// Noise on target actions is cut at this many deviations.
const NOISE_CUT: f32 = 2.5;
/// Share of the likelihood's derivative in the scales that is passed on. The layers below shall heed the locations
/// alone; the scales' own weights move by Adam's steps, which do not depend on it.
const SCALE_SHARE: f32 = 0.01;
/// Mean size of the difference of two normal values to their standard deviation: `sqrt(pi)/2`.
const DEVIATION_PER_DIFFERENCE: f64 = 0.886_226_925_452_758;
/// The spread of values is taken to be at least this share of one and their mean: less is rounding.
const SPREAD_MIN: f64 = 1e-6;

/// Critics of the policy in training.
pub(super) struct Critics {
    config: Critic,
    seed: u64,
    space: Space,
    /// `1 + K`.
    values: usize,
    /// `M` of them, at least 2.
    members: Vec<TrainedNetwork>,
    /// Slowly following parameters of each.
    targets: Vec<Vec<f32>>,
    /// `[B, D + A]` or `[B, D]`: inputs at logged, and at chosen actions.
    logged: Vec<f32>,
    chosen: Vec<f32>,
    /// `[B, N, 1 + K]`: values of the next states under each target of the pair.
    next: [Vec<f32>; 2],
    /// `[B, N]`: probabilities of the actions chosen from; all 1 for continuous ones.
    probability: Vec<f32>,
    /// `[B, 1 + K]`.
    wanted: Vec<f32>,
    /// `[B, 1 + K]`: the same by the first of the pair alone.
    wanted_of_first: Vec<f32>,
    /// `[B, 1 + K]`: what the first member says of the logged actions.
    said: Vec<f32>,
    /// `[B, 1 + K]`: what it says at the same states of the actions logged for their neighbours in the batch.
    exchanged: Vec<f32>,
    /// `[B, N, 1 + K]`.
    d_values: Vec<f32>,
    /// `[B, D + A]`.
    d_input: Vec<f32>,
    /// `[B]`: `max(w, least)`.
    weights: Vec<f32>,
    /// `[B]`: worth of the best candidate so far.
    best: Vec<f32>,
    /// `[N]`: values and probabilities of one state's actions.
    scratch: Vec<[f64; 2]>,
    figures: [f64; 3],
}

impl Critics {
    /// Mean squared error of the members (scaled), spread of the values between actions (scaled reward), and how much
    /// more the policy's actions are worth than the logged ones (in spreads).
    pub(super) const FIGURES: [&'static str; 3] = ["loss/critic", "critic/spread", "critic/gain"];

    pub(super) fn new(problem: &Problem<'_>) -> Result<Self, NnError> {
        let config = problem.config;
        let (size, states, values) =
            (config.batch_size, problem.data.observation_dim(), 1 + problem.costs.len());
        let space = Space::of(problem);
        let (width, count) = match &space {
            Space::Continuous { middle, .. } => (states + middle.len(), 1),
            Space::Discrete { count } => (states, *count),
        };
        let start = starting_values(problem);
        let member = |i: usize| -> Result<TrainedNetwork, NnError> {
            let purpose = format!("critic.{i}");
            let blocks = config.networks.value.clone();
            let spec = NetworkSpec { input: width, blocks, output: count * values };
            let mut member = TrainedNetwork::new(config, spec, &purpose, config.learning_rate, size)?;
            member.shift_outputs(&start.repeat(count));
            Ok(member)
        };
        let members = (0..config.critic.ensemble).map(member).collect::<Result<Vec<_>, _>>()?;
        let targets = members.iter().map(|member| member.params.clone()).collect();
        Ok(Critics {
            config: config.critic,
            seed: config.seed,
            space,
            values,
            members,
            targets,
            logged: vec![0.0; size * width],
            chosen: vec![0.0; size * width],
            next: [vec![0.0; size * count * values], vec![0.0; size * count * values]],
            probability: vec![1.0; size * count],
            wanted: vec![0.0; size * values],
            wanted_of_first: vec![0.0; size * values],
            said: vec![0.0; size * values],
            exchanged: vec![0.0; size * values],
            d_values: vec![0.0; size * count * values],
            d_input: vec![0.0; size * width],
            weights: vec![0.0; size],
            best: vec![0.0; size],
            scratch: vec![[0.0; 2]; count],
            figures: [0.0; 3],
        })
    }

    fn count(&self) -> usize {
        match self.space {
            Space::Continuous { .. } => 1,
            Space::Discrete { count } => count,
        }
    }

    /// One step of all members towards the values of `policy`. `prices` is `[K]`, scaled reward per scaled cost.
    pub(super) fn step(&mut self, batch: &Batch, prices: &[f64], policy: &mut PolicyTrainer, pool: &Pool) {
        self.next_actions(batch, policy, pool);
        self.learn(batch, prices, pool);
    }

    /// One step of all members towards the values of the policy that selects among `candidates` of `policy` by the first
    /// target at `rounded` prices. Returns how much more the selected actions are worth than the mean candidate, at the
    /// states ahead.
    pub(super) fn step_selecting(
        &mut self,
        batch: &Batch,
        prices: &[f64],
        rounded: &[f32],
        candidates: &Candidates,
        policy: &mut PolicyTrainer,
        pool: &Pool,
    ) -> f64 {
        let gain = match candidates {
            Candidates::Drawn { draws, .. } => self.select_drawn(batch, draws, rounded, policy, pool),
            Candidates::Likely { threshold } => self.select_likely(batch, *threshold, rounded, policy, pool),
        };
        self.learn(batch, prices, pool);
        gain
    }

    /// Inputs at the best candidates in the next states, noise added as in [`Critics::next_actions`].
    fn select_drawn(
        &mut self,
        batch: &Batch,
        draws: &[[f32; 2]],
        prices: &[f32],
        policy: &mut PolicyTrainer,
        pool: &Pool,
    ) -> f64 {
        let Space::Continuous { middle, half } = &self.space else { return 0.0 };
        let (states, actions, values) = (&batch.ahead.states, middle.len(), self.values);
        let (dim, width) = (states.len() / batch.size, self.chosen.len() / batch.size);
        let (head, outputs) = policy.head_and_outputs(states, batch.size, pool);
        let count = draws.len() / actions;
        // The best so far stand in `d_input`, which nothing else uses here; their worth in `best`.
        self.best.fill(f32::NEG_INFINITY);
        let mut total = 0.0;
        for draws in draws.chunks_exact(actions) {
            let rows = states.chunks_exact(dim).zip(outputs.chunks_exact(head.outputs()));
            for (input, (state, outputs)) in self.chosen.chunks_exact_mut(width).zip(rows) {
                input[..dim].copy_from_slice(state);
                head.at_quantiles(outputs, draws, &mut input[dim..]);
                for (i, u) in input[dim..].iter_mut().enumerate() {
                    *u = ((*u - middle[i]) / half[i]).clamp(-1.0, 1.0);
                }
            }
            let TrainedNetwork { network, cache, .. } = &mut self.members[0];
            let found = network.forward(&self.targets[0], &self.chosen, batch.size, cache, pool);
            let rows = self.chosen.chunks_exact(width).zip(self.d_input.chunks_exact_mut(width));
            for ((best, values), (input, kept)) in
                self.best.iter_mut().zip(found.chunks_exact(values)).zip(rows)
            {
                let worth = Selector::worth(values, prices);
                total += f64::from(worth) / count as f64;
                if worth > *best {
                    *best = worth;
                    kept.copy_from_slice(input);
                }
            }
        }
        let mut rng = stream(self.seed, "target action", batch.step);
        for (input, kept) in self.chosen.chunks_exact_mut(width).zip(self.d_input.chunks_exact(width)) {
            input[..dim].copy_from_slice(&kept[..dim]);
            for (u, kept) in input[dim..].iter_mut().zip(&kept[dim..]) {
                *u = (kept + noise(&mut rng, self.config.smoothing)).clamp(-1.0, 1.0);
            }
        }
        (self.best.iter().map(|&best| f64::from(best)).sum::<f64>() - total) / batch.size as f64
    }

    /// The next states, and all probability on the best of the likely actions.
    fn select_likely(
        &mut self,
        batch: &Batch,
        threshold: f32,
        prices: &[f32],
        policy: &mut PolicyTrainer,
        pool: &Pool,
    ) -> f64 {
        let (states, count) = (&batch.ahead.states, self.count());
        self.chosen.copy_from_slice(states);
        let outputs = policy.outputs(states, batch.size, pool);
        let TrainedNetwork { network, cache, .. } = &mut self.members[0];
        let found = network.forward(&self.targets[0], states, batch.size, cache, pool);
        let mut gain = 0.0;
        let rows = outputs.chunks_exact(count).zip(found.chunks_exact(count * self.values));
        for ((logits, values), probabilities) in rows.zip(self.probability.chunks_exact_mut(count)) {
            let is_likely = likely(logits, threshold);
            let worth = |a: usize| Selector::worth(&values[a * self.values..(a + 1) * self.values], prices);
            let (mut best, mut chosen) = (f32::NEG_INFINITY, 0);
            for a in (0..count).filter(|&a| is_likely(a)) {
                if worth(a) > best {
                    (best, chosen) = (worth(a), a);
                }
            }
            let mut mean = 0.0;
            softmax(logits, |a, p| mean += p * f64::from(worth(a)));
            gain += f64::from(worth(chosen)) - mean;
            probabilities.fill(0.0);
            probabilities[chosen] = 1.0;
        }
        gain / batch.size as f64
    }

    /// The rest of a step, once the next actions stand in `chosen` and `probability`.
    fn learn(&mut self, batch: &Batch, prices: &[f64], pool: &Pool) {
        let pair = self.pair(batch.step);
        for (next, i) in self.next.iter_mut().zip(pair) {
            let TrainedNetwork { network, cache, .. } = &mut self.members[i];
            let values = network.forward(&self.targets[i], &self.chosen, batch.size, cache, pool);
            next.copy_from_slice(values);
        }
        self.want(batch, prices);
        self.inputs_at_logged(batch);
        self.exchange(batch, pool);
        let count = self.members.len();
        let mut loss = 0.0;
        for i in 0..count {
            loss += self.fit(i, batch, pool) / count as f64;
            let target = &mut self.targets[i];
            exponential_average(target, &self.members[i].params, self.config.target_rate, pool);
        }
        self.figures[0] = loss;
    }

    /// Two different members, the first two where there are no others.
    fn pair(&self, step: u64) -> [usize; 2] {
        let count = self.members.len();
        if count == 2 {
            return [0, 1];
        }
        let mut rng = stream(self.seed, "pair of critics", step);
        let one = rng.random_range(0..count);
        [one, (one + rng.random_range(1..count)) % count]
    }

    /// Inputs at the policy's actions in the next states, noise added; for finitely many actions their probabilities.
    fn next_actions(&mut self, batch: &Batch, policy: &mut PolicyTrainer, pool: &Pool) {
        let mut rng = stream(self.seed, "target action", batch.step);
        let smoothing = self.config.smoothing;
        self.choose(&batch.ahead.states, batch.size, policy, pool, |u| u + noise(&mut rng, smoothing));
    }

    /// Writes the first `rows` inputs at the policy's actions in `states`, `[rows, D]`, each mapped action changed by
    /// `change`; for finitely many actions the states themselves, and the actions' probabilities.
    fn choose(
        &mut self,
        states: &[f32],
        rows: usize,
        policy: &mut PolicyTrainer,
        pool: &Pool,
        change: impl FnMut(f32) -> f32,
    ) {
        let outputs = policy.outputs(states, rows, pool);
        match &self.space {
            Space::Continuous { middle, half } => {
                let width = states.len() + rows * middle.len();
                join(&mut self.chosen[..width], states, outputs, middle, half, change);
            }
            Space::Discrete { count } => {
                self.chosen[..states.len()].copy_from_slice(states);
                let rows = self.probability.chunks_exact_mut(*count).zip(outputs.chunks_exact(*count));
                for (probabilities, logits) in rows {
                    softmax(logits, |a, p| probabilities[a] = p as f32);
                }
            }
        }
    }

    /// Temporal-difference targets: those of the one of the pair to which the state ahead is worth less.
    fn want(&mut self, batch: &Batch, prices: &[f64]) {
        let (values, count) = (self.values, self.count());
        for b in 0..batch.size {
            let discount = batch.ahead.discounts[b];
            for j in 0..values {
                let [one, other] = [0, 1].map(|i| {
                    (0..count)
                        .map(|a| self.probability[b * count + a] * self.next[i][(b * count + a) * values + j])
                        .sum::<f32>()
                });
                let now = batch.ahead.values[b * values + j];
                self.wanted_of_first[b * values + j] = now + discount * one;
                self.wanted[b * values + j] = now + discount * other;
            }
            let place = b * values..(b + 1) * values;
            let [one, other] =
                [&self.wanted_of_first, &self.wanted].map(|values| worth(&values[place.clone()], prices));
            if one <= other {
                let (first, wanted) = (&self.wanted_of_first[place.clone()], &mut self.wanted[place]);
                wanted.copy_from_slice(first);
            }
        }
    }

    fn inputs_at_logged(&mut self, batch: &Batch) {
        let states = batch.current_states();
        match &self.space {
            Space::Continuous { middle, half } => {
                let (dim, width) = (states.len() / batch.size, states.len() / batch.size + middle.len());
                for (b, row) in self.logged.chunks_exact_mut(width).enumerate() {
                    row[..dim].copy_from_slice(&states[b * dim..(b + 1) * dim]);
                    let action = &batch.actions[b * middle.len()..(b + 1) * middle.len()];
                    for (i, u) in row[dim..].iter_mut().enumerate() {
                        *u = (action[i] - middle[i]) / half[i];
                    }
                }
            }
            Space::Discrete { .. } => self.logged.copy_from_slice(states),
        }
    }

    /// What the first member, before its step, says at every state of the action that was logged for the next sample of
    /// the batch.
    fn exchange(&mut self, batch: &Batch, pool: &Pool) {
        let (values, count, size) = (self.values, self.count(), batch.size);
        if let Space::Continuous { middle, .. } = &self.space {
            let width = self.logged.len() / size;
            let dim = width - middle.len();
            for b in 0..size {
                let other = (b + 1) % size * width;
                self.chosen[b * width..b * width + dim]
                    .copy_from_slice(&self.logged[b * width..b * width + dim]);
                self.chosen[b * width + dim..(b + 1) * width]
                    .copy_from_slice(&self.logged[other + dim..other + width]);
            }
        } else {
            self.chosen.copy_from_slice(&self.logged);
        }
        let TrainedNetwork { network, params, cache, .. } = &mut self.members[0];
        let outputs = network.forward(params, &self.chosen, size, cache, pool);
        for b in 0..size {
            let action = if batch.discrete { batch.action_ids[(b + 1) % size] as usize } else { 0 };
            let place = (b * count + action) * values;
            self.exchanged[b * values..(b + 1) * values].copy_from_slice(&outputs[place..place + values]);
        }
    }

    /// One step of a member on the squared error; returns its mean.
    fn fit(&mut self, member: usize, batch: &Batch, pool: &Pool) -> f64 {
        let (values, count, size) = (self.values, self.count(), batch.size);
        let TrainedNetwork { network, params, cache, adam, .. } = &mut self.members[member];
        let outputs = network.forward(params, &self.logged, size, cache, pool);
        let mut error = 0.0;
        self.d_values.fill(0.0);
        for b in 0..size {
            let action = if batch.discrete { batch.action_ids[b] as usize } else { 0 };
            let place = (b * count + action) * values;
            for j in 0..values {
                let miss = outputs[place + j] - self.wanted[b * values + j];
                error += f64::from(miss).powi(2);
                self.d_values[place + j] = 2.0 * miss / size as f32;
                if member == 0 {
                    self.said[b * values + j] = outputs[place + j];
                }
            }
        }
        network.descend(params, &self.logged, &self.d_values, size, cache, adam, pool);
        error / (size * values) as f64
    }

    /// One step of the policy; returns its loss before it.
    pub(super) fn guide(
        &mut self,
        batch: &Batch,
        w: &[f32],
        prices: &[f64],
        policy: &mut PolicyTrainer,
        pool: &Pool,
    ) -> f64 {
        policy.descend(batch, pool, |head, outputs, d_outputs| {
            self.loss(head, batch, w, prices, outputs, d_outputs, pool)
        })
    }

    /// The policy's loss and its derivative in the outputs, after [`Critics::step`] on the same batch.
    pub(super) fn loss(
        &mut self,
        head: &Head,
        batch: &Batch,
        w: &[f32],
        prices: &[f64],
        outputs: &[f32],
        d_outputs: &mut [f32],
        pool: &Pool,
    ) -> f64 {
        let (mean, spread) = self.logged_worth(prices);
        let strength = f64::from(self.config.guidance) / spread;
        // Scales (and, for finitely many actions, everything) follow the weighted likelihood.
        for (weight, &w) in self.weights.iter_mut().zip(w) {
            *weight = w.max(self.config.least_weight);
        }
        let likelihood = head.weighted_nll(outputs, batch.action_batch(), &self.weights, d_outputs, pool);
        let (closeness, worth) = if head.is_discrete() {
            (likelihood, self.guide_discrete(batch, prices, strength, outputs, d_outputs, pool))
        } else {
            d_outputs.iter_mut().for_each(|d| *d *= SCALE_SHARE);
            let worth = self.guide_continuous(batch, prices, strength, outputs, d_outputs, pool);
            (self.closeness(*head, outputs, d_outputs), worth)
        };
        self.figures[1] = spread;
        self.figures[2] = (worth - mean) / spread;
        // Relative to the logged actions: the size of the values means nothing.
        closeness - strength * (worth - mean)
    }

    /// Mean over the batch of `Q_r - prices'Q_c` at the logged actions, and its standard deviation between actions at
    /// one state, from what an exchange of two samples' actions changes.
    fn logged_worth(&self, prices: &[f64]) -> (f64, f64) {
        let size = (self.said.len() / self.values) as f64;
        let pairs = self.said.chunks_exact(self.values).zip(self.exchanged.chunks_exact(self.values));
        let (sum, sizes) = pairs.fold((0.0, 0.0), |(sum, sizes), (said, exchanged)| {
            let (one, other) = (worth(said, prices), worth(exchanged, prices));
            (sum + one, sizes + (other - one).abs())
        });
        let mean = sum / size;
        (mean, (DEVIATION_PER_DIFFERENCE * sizes / size).max(SPREAD_MIN * (1.0 + mean.abs())))
    }

    /// The standard deviation of `Q_r - prices'Q_c` between actions, at the last step.
    pub(super) fn spread(&self, prices: &[f64]) -> f64 {
        self.logged_worth(prices).1
    }

    /// The first critic, with its slowly following parameters.
    pub(super) fn exported(&self) -> (&Network, &[f32]) {
        (&self.members[0].network, &self.targets[0])
    }

    /// Writes the derivative of `-strength mean(Q_r - prices'Q_c)` in the locations; returns that mean.
    fn guide_continuous(
        &mut self,
        batch: &Batch,
        prices: &[f64],
        strength: f64,
        outputs: &[f32],
        d_outputs: &mut [f32],
        pool: &Pool,
    ) -> f64 {
        let Space::Continuous { middle, half } = &self.space else { return 0.0 };
        let (dim, actions) = (batch.current_states().len() / batch.size, middle.len());
        join(&mut self.chosen, batch.current_states(), outputs, middle, half, |u| u);
        let share = 1.0 / self.members.len() as f64;
        let step = strength * share / batch.size as f64;
        for row in self.d_values.chunks_exact_mut(self.values) {
            row[0] = -step as f32;
            for (d, price) in row[1..].iter_mut().zip(prices) {
                *d = (step * price) as f32;
            }
        }
        let locations = |b: usize, i: usize| b * 3 * actions + actions + i;
        for b in 0..batch.size {
            d_outputs[locations(b, 0)..locations(b, actions)].fill(0.0);
        }
        let mut mean = 0.0;
        for TrainedNetwork { network, params, cache, .. } in &mut self.members {
            let values = network.forward(params, &self.chosen, batch.size, cache, pool);
            mean += share * values.chunks_exact(self.values).map(|values| worth(values, prices)).sum::<f64>()
                / batch.size as f64;
            let d_input = &mut self.d_input;
            network.input_gradient(params, &self.chosen, &self.d_values, batch.size, cache, d_input, pool);
            for (b, row) in self.d_input.chunks_exact(dim + actions).enumerate() {
                for i in 0..actions {
                    d_outputs[locations(b, i)] += row[dim + i];
                }
            }
        }
        for b in 0..batch.size {
            for i in 0..actions {
                let place = locations(b, i);
                let u = (outputs[place] - middle[i]) / half[i];
                let pull = d_outputs[place];
                // The action is cut at the range's ends: beyond them the critics may only pull back.
                let outward = (u >= 1.0 && pull < 0.0) || (u <= -1.0 && pull > 0.0);
                d_outputs[place] = if outward { 0.0 } else { pull / half[i] };
            }
        }
        mean
    }

    /// Adds the derivative of `mean(weights |u(mu) - u(a)|^2)` to that of the locations; returns that mean.
    fn closeness(&self, head: Head, outputs: &[f32], d_outputs: &mut [f32]) -> f64 {
        let Space::Continuous { middle, half } = &self.space else { return 0.0 };
        let (actions, size) = (head.action_width(), self.weights.len());
        let width = self.logged.len() / size;
        let mut total = 0.0;
        for (b, &w) in self.weights.iter().enumerate() {
            let logged = &self.logged[(b + 1) * width - actions..(b + 1) * width];
            for i in 0..actions {
                let place = b * 3 * actions + actions + i;
                let miss = (outputs[place] - middle[i]) / half[i] - logged[i];
                total += f64::from(w) * f64::from(miss).powi(2);
                d_outputs[place] += 2.0 * w * miss / half[i] / size as f32;
            }
        }
        total / size as f64
    }

    /// Adds the derivative of `-strength mean_s sum_a pi(a|s) (Q_r - prices'Q_c)(s,a)` in the logits; returns the mean.
    fn guide_discrete(
        &mut self,
        batch: &Batch,
        prices: &[f64],
        strength: f64,
        outputs: &[f32],
        d_outputs: &mut [f32],
        pool: &Pool,
    ) -> f64 {
        let Space::Discrete { count } = self.space else { return 0.0 };
        // The mean of the members' values stands in `d_values`, which nothing else uses here.
        let share = 1.0 / self.members.len() as f32;
        self.d_values.fill(0.0);
        for TrainedNetwork { network, params, cache, .. } in &mut self.members {
            let values = network.forward(params, batch.current_states(), batch.size, cache, pool);
            for (mean, value) in self.d_values.iter_mut().zip(values) {
                *mean += share * value;
            }
        }
        let mut total = 0.0;
        let rows = outputs.chunks_exact(count).zip(d_outputs.chunks_exact_mut(count));
        for ((logits, d_logits), values) in rows.zip(self.d_values.chunks_exact(count * self.values)) {
            for (entry, values) in self.scratch.iter_mut().zip(values.chunks_exact(self.values)) {
                entry[0] = worth(values, prices);
            }
            softmax(logits, |a, p| self.scratch[a][1] = p);
            let mean: f64 = self.scratch.iter().map(|[worth, p]| worth * p).sum();
            total += mean;
            for (d, [worth, p]) in d_logits.iter_mut().zip(&self.scratch) {
                *d -= (strength * p * (worth - mean) / batch.size as f64) as f32;
            }
        }
        total / batch.size as f64
    }

    /// What every member says of every action at `rows` inputs.
    #[cfg(test)]
    pub(super) fn values_at(&mut self, inputs: &[f32], rows: usize, pool: &Pool) -> Vec<Vec<f32>> {
        let of = |TrainedNetwork { network, params, cache, .. }: &mut TrainedNetwork| {
            network.forward(params, inputs, rows, cache, pool).to_vec()
        };
        self.members.iter_mut().map(of).collect()
    }

    pub(super) fn set_pace(&mut self, pace: f32) {
        self.members.iter_mut().for_each(|member| member.set_pace(pace));
    }

    pub(super) fn figures(&self) -> &[f64] {
        &self.figures
    }

    pub(super) fn visit_state(&mut self, visit: &mut dyn FnMut(&str, StateMut<'_>)) {
        for (i, (member, target)) in self.members.iter_mut().zip(&mut self.targets).enumerate() {
            member.visit_state(&format!("critic.{i}"), visit);
            visit(&format!("critic.{i}.target"), StateMut::F32(target));
        }
    }
}

/// Constants that meet the critics' equations on average, reward first.
fn starting_values(problem: &Problem<'_>) -> Vec<f64> {
    let config = problem.config;
    let goes_on = if config.gamma == 1.0 { 1.0 } else { (1.0 - problem.mean_loss) / config.gamma };
    let loss = 1.0 - config.critic.discount * goes_on;
    let data = problem.data;
    let mean_priced = |cost: &ConstrainedCost| cost.total(data) * cost.logged_scale / data.len() as f64;
    std::iter::once(problem.mean_reward)
        .chain(problem.costs.iter().map(mean_priced))
        .map(|mean| mean / loss)
        .collect()
}

/// `Q_r - p'Q_c` from one state's values.
fn worth(values: &[f32], prices: &[f64]) -> f64 {
    let costs = values[1..].iter().zip(prices);
    f64::from(values[0]) - costs.map(|(&cost, price)| price * f64::from(cost)).sum::<f64>()
}

/// Writes `[s, clamp(change(u(mu)))]` row by row, from the outputs of a single Gaussian.
fn join(
    inputs: &mut [f32],
    states: &[f32],
    outputs: &[f32],
    middle: &[f32],
    half: &[f32],
    mut change: impl FnMut(f32) -> f32,
) {
    let actions = middle.len();
    let rows = outputs.len() / (3 * actions);
    let dim = states.len() / rows;
    for (b, row) in inputs.chunks_exact_mut(dim + actions).enumerate() {
        row[..dim].copy_from_slice(&states[b * dim..(b + 1) * dim]);
        for i in 0..actions {
            let u = (outputs[b * 3 * actions + actions + i] - middle[i]) / half[i];
            row[dim + i] = change(u.clamp(-1.0, 1.0)).clamp(-1.0, 1.0);
        }
    }
}

/// The noise on one component of a target action.
fn noise(rng: &mut Rng, smoothing: f32) -> f32 {
    let normal: f32 = StandardNormal.sample(rng);
    smoothing * normal.clamp(-NOISE_CUT, NOISE_CUT)
}

/// Hands every action's probability to `take`.
fn softmax(logits: &[f32], mut take: impl FnMut(usize, f64)) {
    let top = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mass: f64 = logits.iter().map(|&l| f64::from(l - top).exp()).sum();
    for (a, &l) in logits.iter().enumerate() {
        take(a, f64::from(l - top).exp() / mass);
    }
}
