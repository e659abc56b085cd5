//! One update of the critics, the policy and what is learned beside them.

use coptidice_core::rng::stream;
use coptidice_nn::{Cache, Network, NetworkSpec, NnError, Pool};
use rand_distr::{Distribution as _, StandardNormal};

use super::config::CdmpoConfig;
use super::fit::Gaussian;
use super::improvement::reweight;
use super::multipliers::{CostMultipliers, Duals};
use super::replay::{MOST_COSTS, Replay};
use super::simulator::SimulatorFacts;
use super::support::{Support, cross_entropy};
use crate::learner::StateMut;
use crate::trained::TrainedNetwork;

/// Share of the usual size at which the policy's last weights start: it then begins near one and the same distribution in
/// every state.
const LAST_LAYER_START: f32 = 0.01;

/// A critic of one signal, the reward or a cost.
struct Critic {
    trained: TrainedNetwork,
    target: Vec<f32>,
    support: Support,
    /// `[B * (1 + K)]` places of the signal: rewards are first.
    signal: usize,
    loss: f64,
}

/// What an update found, for reports.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    value: f64,
    policy_loss: f64,
    action_kl: f64,
    location_kl: f64,
    deviation_kl: f64,
    deviation: f64,
}

/// All that learns.
pub(super) struct Learner {
    config: CdmpoConfig,
    gaussian: Gaussian,
    middle: Vec<f32>,
    half: Vec<f32>,
    policy: TrainedNetwork,
    policy_target: Vec<f32>,
    critics: Vec<Critic>,
    duals: Duals,
    multipliers: CostMultipliers,
    updates: u64,
    buffers: Buffers,
    figures: Figures,
    names: Vec<String>,
    /// Sums of the figures since they were last taken, and of how many updates.
    sums: Vec<f64>,
    summed: u64,
}

/// Working storage; `R = B N` rows of sampled actions.
struct Buffers {
    critic_cache: Cache,
    /// `[B, O]`: states after the steps looked ahead, where the policy is improved.
    next_states: Vec<f32>,
    /// `[B, O + A]`: logged states and actions.
    inputs: Vec<f32>,
    /// `[B, 1 + K]`.
    signals: Vec<f32>,
    /// `[B]`.
    discounts: Vec<f32>,
    /// `[B, 3A]`: outputs of the target policy.
    target_outputs: Vec<f32>,
    /// `[R, A]`.
    actions: Vec<f32>,
    /// `[R, O + A]`.
    sampled_inputs: Vec<f32>,
    /// `[R, M]`.
    sampled_distributions: Vec<f32>,
    /// `[R]`: means of one critic; value of the mix; minus the distance from the action's range; weights.
    means: Vec<f32>,
    values: Vec<f32>,
    within: Vec<f32>,
    weights: Vec<f32>,
    /// `[M]`.
    mean_distribution: Vec<f32>,
    /// `[B, M]`.
    targets: Vec<f32>,
    distributions: Vec<f32>,
    d_logits: Vec<f32>,
    /// `[B]`.
    logged_means: Vec<f32>,
    /// `[B, 3A]`.
    d_outputs: Vec<f32>,
    /// `[2A]`.
    divergences: Vec<f64>,
}

impl Learner {
    pub(super) fn new(config: &CdmpoConfig, facts: &SimulatorFacts) -> Result<Self, NnError> {
        let (observation, dims) = (facts.observation_names.len(), facts.action_low.len());
        let (batch, rows) = (config.batch_size, config.batch_size * config.action_samples);
        let gaussian = Gaussian { action_dim: dims, min_scale: config.min_scale };
        let bounds = || facts.action_low.iter().zip(&facts.action_high);
        let middle: Vec<f32> = bounds().map(|(low, high)| 0.5 * (low + high)).collect();
        let half: Vec<f32> = bounds().map(|(low, high)| 0.5 * (high - low)).collect();
        let spec =
            NetworkSpec { input: observation, blocks: config.policy.clone(), output: gaussian.outputs() };
        let rate = config.policy_learning_rate;
        let mut policy =
            TrainedNetwork::seeded(config.seed, config.precision, spec, "cdmpo policy", rate, batch)?;
        start_policy(&mut policy, gaussian, &middle, &half, config.initial_deviation as f32);
        let mut critics = Vec::new();
        for signal in 0..=facts.cost_names.len() {
            let [low, high] = if signal == 0 { config.reward_range } else { config.cost_range };
            // What ended earns nothing more.
            let support = Support::new(low.min(0.0) as f32, high.max(0.0) as f32, config.atoms);
            let spec = NetworkSpec {
                input: observation + dims,
                blocks: config.critic.clone(),
                output: config.atoms,
            };
            let purpose = format!("cdmpo critic {signal}");
            let rate = config.learning_rate;
            let trained = TrainedNetwork::seeded(config.seed, config.precision, spec, &purpose, rate, 0)?;
            critics.push(Critic { target: trained.params.clone(), trained, support, signal, loss: 0.0 });
        }
        let networks: Vec<&Network> = critics.iter().map(|critic| &critic.trained.network).collect();
        let critic_cache = Network::cache_of(&networks, rows, config.precision)?;
        let names = names(&facts.cost_names);
        let atoms = config.atoms;
        Ok(Learner {
            gaussian,
            middle,
            half,
            policy_target: policy.params.clone(),
            policy,
            duals: Duals::new(config, dims),
            multipliers: CostMultipliers::new(config, facts.cost_names.len()),
            updates: 0,
            buffers: Buffers {
                critic_cache,
                next_states: vec![0.0; batch * observation],
                inputs: vec![0.0; batch * (observation + dims)],
                signals: vec![0.0; batch * critics.len()],
                discounts: vec![0.0; batch],
                target_outputs: vec![0.0; batch * gaussian.outputs()],
                actions: vec![0.0; rows * dims],
                sampled_inputs: vec![0.0; rows * (observation + dims)],
                sampled_distributions: vec![0.0; rows * atoms],
                means: vec![0.0; rows],
                values: vec![0.0; rows],
                within: vec![0.0; rows],
                weights: vec![0.0; rows],
                mean_distribution: vec![0.0; atoms],
                targets: vec![0.0; batch * atoms],
                distributions: vec![0.0; batch * atoms],
                d_logits: vec![0.0; batch * atoms],
                logged_means: vec![0.0; batch],
                d_outputs: vec![0.0; batch * gaussian.outputs()],
                divergences: vec![0.0; 2 * dims],
            },
            critics,
            figures: Figures::default(),
            sums: vec![0.0; names.len()],
            names,
            summed: 0,
            config: config.clone(),
        })
    }

    /// Updates made.
    pub(super) fn updates(&self) -> u64 {
        self.updates
    }

    /// The policy in training.
    pub(super) fn policy(&self) -> (&Network, &[f32]) {
        (&self.policy.network, &self.policy.params)
    }

    /// The costs' multipliers.
    pub(super) fn multipliers(&mut self) -> &mut CostMultipliers {
        &mut self.multipliers
    }

    /// One update on steps drawn from `replay`.
    pub(super) fn update(&mut self, replay: &Replay, pool: &Pool) {
        self.draw(replay);
        self.propose(pool);
        self.buffers.values.fill(0.0);
        for critic in 0..self.critics.len() {
            self.criticise(critic, pool);
        }
        self.improve(pool);
        self.updates += 1;
        if self.updates.is_multiple_of(self.config.target_every) {
            self.policy_target.copy_from_slice(&self.policy.params);
            for critic in &mut self.critics {
                critic.target.copy_from_slice(&critic.trained.params);
            }
        }
        self.record();
    }

    /// Fills the batch.
    fn draw(&mut self, replay: &Replay) {
        let Self { config, buffers, middle, half, updates, .. } = self;
        let mut rng = stream(config.seed, "cdmpo batch", *updates);
        let (signals, dims) = (self.critics.len(), middle.len());
        let observation = buffers.next_states.len() / config.batch_size;
        let mut costs = [0.0; MOST_COSTS];
        let gamma = config.gamma.powi(config.hold as i32);
        for b in 0..config.batch_size {
            let index = replay.draw(&mut rng);
            let seen = replay.look_ahead(index, config.n_step, gamma, &mut costs[..signals - 1]);
            buffers.next_states[b * observation..][..observation].copy_from_slice(seen.next_observation);
            let (state, action) =
                buffers.inputs[b * (observation + dims)..][..observation + dims].split_at_mut(observation);
            state.copy_from_slice(seen.observation);
            unit_action(seen.action, middle, half, action);
            buffers.signals[b * signals] = seen.reward;
            buffers.signals[b * signals + 1..][..signals - 1].copy_from_slice(&costs[..signals - 1]);
            buffers.discounts[b] = seen.discount;
        }
    }

    /// Draws actions of the target policy at the next states.
    fn propose(&mut self, pool: &Pool) {
        let Self { config, buffers, gaussian, middle, half, policy, policy_target, updates, .. } = self;
        let (batch, samples, dims) = (config.batch_size, config.action_samples, middle.len());
        let observation = buffers.next_states.len() / batch;
        let TrainedNetwork { network, cache, .. } = policy;
        let outputs = network.forward(policy_target, &buffers.next_states, batch, cache, pool);
        buffers.target_outputs.copy_from_slice(outputs);
        let mut rng = stream(config.seed, "cdmpo actions", *updates);
        let width = gaussian.outputs();
        for b in 0..batch {
            let outputs = &buffers.target_outputs[b * width..][..width];
            let state = &buffers.next_states[b * observation..][..observation];
            for row in b * samples..(b + 1) * samples {
                let action = &mut buffers.actions[row * dims..][..dims];
                for (i, action) in action.iter_mut().enumerate() {
                    let normal: f32 = StandardNormal.sample(&mut rng);
                    *action = gaussian.location(outputs, i) + gaussian.deviation(outputs, i) * normal;
                }
                let input = &mut buffers.sampled_inputs[row * (observation + dims)..][..observation + dims];
                let (to, unit) = input.split_at_mut(observation);
                to.copy_from_slice(state);
                buffers.within[row] = -unit_action(action, middle, half, unit);
            }
        }
    }

    /// Values the proposed actions under the target of a critic, adds them to the mix, and moves the critic itself.
    fn criticise(&mut self, which: usize, pool: &Pool) {
        let Self { config, buffers, critics, multipliers, .. } = self;
        let (batch, samples, signals) = (config.batch_size, config.action_samples, critics.len());
        let Critic { trained, target, support, signal, loss } = &mut critics[which];
        let TrainedNetwork { network, params, adam, .. } = trained;
        let (cache, atoms) = (&mut buffers.critic_cache, support.len());
        let logits = network.forward(target, &buffers.sampled_inputs, batch * samples, cache, pool);
        support.distributions(logits, &mut buffers.sampled_distributions, &mut buffers.means);
        let share = share(multipliers.lambda(), *signal);
        for (value, &mean) in buffers.values.iter_mut().zip(&buffers.means) {
            *value += share * mean;
        }
        let scale = 1.0 / samples as f32;
        for b in 0..batch {
            buffers.mean_distribution.fill(0.0);
            let sampled = &buffers.sampled_distributions[b * samples * atoms..][..samples * atoms];
            for distribution in sampled.chunks_exact(atoms) {
                for (mean, &p) in buffers.mean_distribution.iter_mut().zip(distribution) {
                    *mean += scale * p;
                }
            }
            let target = &mut buffers.targets[b * atoms..][..atoms];
            let signal = buffers.signals[b * signals + *signal];
            support.project(&buffers.mean_distribution, signal, buffers.discounts[b], target);
        }
        let logits = network.forward(params, &buffers.inputs, batch, cache, pool);
        support.distributions(logits, &mut buffers.distributions, &mut buffers.logged_means);
        *loss = cross_entropy(&buffers.targets, &buffers.distributions, batch, &mut buffers.d_logits);
        network.descend(params, &buffers.inputs, &buffers.d_logits, batch, cache, adam, pool);
    }

    /// Reweights the proposed actions and fits the policy to them.
    fn improve(&mut self, pool: &Pool) {
        let Self { config, buffers, gaussian, policy, duals, figures, .. } = self;
        let (batch, samples, dims) = (config.batch_size, config.action_samples, gaussian.action_dim);
        let temperatures = [duals.temperature(0), duals.temperature(1)];
        buffers.weights.fill(0.0);
        let by_value =
            reweight(&buffers.values, samples, temperatures[0], config.action_kl, &mut buffers.weights);
        let by_range =
            reweight(&buffers.within, samples, temperatures[1], config.range_kl, &mut buffers.weights);
        let TrainedNetwork { network, params, adam, cache, .. } = policy;
        let outputs = network.forward(params, &buffers.next_states, batch, cache, pool);
        figures.deviation = mean_deviation(*gaussian, outputs);
        figures.policy_loss = gaussian.fit(
            outputs,
            &buffers.target_outputs,
            &buffers.actions,
            &buffers.weights,
            duals.prices(),
            &mut buffers.d_outputs,
            &mut buffers.divergences,
        );
        network.descend(params, &buffers.next_states, &buffers.d_outputs, batch, cache, adam, pool);
        let bounds = |i: usize| if i < dims { config.location_kl } else { config.deviation_kl };
        let reweightings = [(by_value.kl, config.action_kl), (by_range.kl, config.range_kl)];
        let fits = buffers.divergences.iter().enumerate().map(|(i, &kl)| (kl, bounds(i)));
        duals.update(reweightings.into_iter().chain(fits));
        figures.action_kl = by_value.kl;
        figures.location_kl = mean(&buffers.divergences[..dims]);
        figures.deviation_kl = mean(&buffers.divergences[dims..]);
        figures.value =
            buffers.values.iter().map(|&v| f64::from(v)).sum::<f64>() / buffers.values.len() as f64;
    }

    fn record(&mut self) {
        let Figures { value, policy_loss, action_kl, location_kl, deviation_kl, deviation } = self.figures;
        let temperature = self.duals.temperature(0);
        let plain = [value, policy_loss, action_kl, location_kl, deviation_kl, deviation, temperature];
        let all = plain.into_iter().chain(self.critics.iter().map(|critic| critic.loss));
        for (sum, figure) in self.sums.iter_mut().zip(all) {
            *sum += figure;
        }
        self.summed += 1;
    }

    /// Names of the figures of updates.
    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// Means of the figures over the updates since they were last taken; `None` after none.
    pub(super) fn take_figures(&mut self) -> Option<Vec<f64>> {
        let count = std::mem::take(&mut self.summed);
        let means = self.sums.iter().map(|sum| sum / count as f64).collect();
        self.sums.fill(0.0);
        (count > 0).then_some(means)
    }

    pub(super) fn visit_state(&mut self, visit: &mut dyn FnMut(&str, StateMut<'_>)) {
        self.policy.visit_state("policy", visit);
        visit("policy.target", StateMut::F32(&mut self.policy_target));
        for (index, critic) in self.critics.iter_mut().enumerate() {
            let name = format!("critic{index}");
            critic.trained.visit_state(&name, visit);
            visit(&format!("{name}.target"), StateMut::F32(&mut critic.target));
        }
        self.duals.visit_state(visit);
        self.multipliers.visit_state(visit);
        visit("updates", StateMut::U64(&mut self.updates));
    }
}

fn names(costs: &[String]) -> Vec<String> {
    let plain = [
        "value",
        "loss/policy",
        "kl/action",
        "kl/location",
        "kl/deviation",
        "deviation",
        "temperature",
        "loss/critic",
    ];
    let costs = costs.iter().map(|cost| format!("loss/critic/{cost}"));
    plain.into_iter().map(str::to_owned).chain(costs).collect()
}

/// Share of a signal in the mix that is improved, `(reward - lambda'cost) / (1 + sum lambda)`: the mix keeps its size
/// whatever costs are worth, so that the temperature need not follow them (Bohez et al. 2019, "Value constrained model-free
/// continuous control").
fn share(lambda: &[f32], signal: usize) -> f32 {
    let total = 1.0 + lambda.iter().sum::<f32>();
    let worth = if signal == 0 { 1.0 } else { -lambda[signal - 1] };
    worth / total
}

/// The action in halves of its range from the middle, cut at -1 and 1, into `unit`. Returns the square of what was cut off.
fn unit_action(action: &[f32], middle: &[f32], half: &[f32], unit: &mut [f32]) -> f32 {
    let mut cut = 0.0;
    for (((u, &a), &middle), &half) in unit.iter_mut().zip(action).zip(middle).zip(half) {
        let whole = (a - middle) / half;
        *u = whole.clamp(-1.0, 1.0);
        cut += (whole - *u) * (whole - *u);
    }
    cut
}

/// Lets the policy start about the middle of the action's range, as wide as is asked for.
fn start_policy(
    policy: &mut TrainedNetwork,
    gaussian: Gaussian,
    middle: &[f32],
    half: &[f32],
    deviation: f32,
) {
    let layout = policy.network.layout();
    // The last layer's weights and biases.
    let weights = layout[layout.len() - 2].offset;
    let biases = layout[layout.len() - 1].offset;
    let dims = gaussian.action_dim;
    policy.params[weights..biases].iter_mut().for_each(|w| *w *= LAST_LAYER_START);
    for i in 0..dims {
        policy.params[biases + dims + i] = middle[i];
        let deviation = (deviation * half[i]).max(1.001 * gaussian.min_scale);
        policy.params[biases + 2 * dims + i] = gaussian.raw_scale(deviation);
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn mean_deviation(gaussian: Gaussian, outputs: &[f32]) -> f64 {
    let rows = outputs.chunks_exact(gaussian.outputs());
    let count = (rows.len() * gaussian.action_dim) as f64;
    let each =
        |row| (0..gaussian.action_dim).map(move |i| f64::from(gaussian.deviation(row, i))).sum::<f64>();
    rows.map(each).sum::<f64>() / count
}
