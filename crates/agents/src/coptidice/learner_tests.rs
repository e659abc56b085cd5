//! One whole step against automatic differentiation, and against differences of an objective written out in `f64`.

use coptidice_core::Divergence;
use coptidice_core::rng::stream;
use coptidice_data::ActionSpace;
use rand::RngExt as _;
use safetensors::SafeTensors;
use serde::Deserialize;

use super::super::losses::TAU_FLOOR;
use super::*;
use crate::sampler::Sampler;
use crate::testing;

/// A step recorded by `fixtures/make/torch_step_fixture.py`.
struct Recorded {
    bytes: Vec<u8>,
    settings: Settings,
}

#[derive(Deserialize)]
struct Settings {
    gamma: f64,
    alpha: f64,
    epsilon: f64,
    form: String,
}

impl Recorded {
    fn open(name: &str) -> Self {
        let path =
            format!("{}/../../fixtures/agents/torch-step-{name}.safetensors", env!("CARGO_MANIFEST_DIR"));
        let bytes = std::fs::read(path).unwrap();
        let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
        let settings = serde_json::from_str(&header.metadata().as_ref().unwrap()["settings"]).unwrap();
        Recorded { bytes, settings }
    }

    fn f32(&self, name: &str) -> Vec<f32> {
        let tensors = SafeTensors::deserialize(&self.bytes).unwrap();
        let (words, _) = tensors.tensor(name).unwrap().data().as_chunks::<4>();
        words.iter().map(|word| f32::from_le_bytes(*word)).collect()
    }

    fn f64(&self, name: &str) -> Vec<f64> {
        let tensors = SafeTensors::deserialize(&self.bytes).unwrap();
        let (words, _) = tensors.tensor(name).unwrap().data().as_chunks::<8>();
        words.iter().map(|word| f64::from_le_bytes(*word)).collect()
    }

    /// The flat vector of a network's parameters.
    fn params(&self, prefix: &str, network: &coptidice_nn::Network) -> Vec<f32> {
        network.layout().iter().flat_map(|slice| self.f32(&format!("{prefix}.{}", slice.name))).collect()
    }

    /// The flat gradient of a network.
    fn gradient(&self, prefix: &str, network: &coptidice_nn::Network) -> Vec<f64> {
        let names = network.layout().iter();
        names.flat_map(|slice| self.f64(&format!("gradient.{prefix}.{}", slice.name))).collect()
    }

    fn config(&self) -> String {
        let dense = |width, norm, activation| {
            format!(
                "{{ kind = \"dense\", width = {width}, layer_norm = {norm}, activation = \"{activation}\" }}"
            )
        };
        let value = [dense(12, true, "tanh"), dense(10, false, "elu"), dense(8, false, "elu")].join(", ");
        let residual = "{ kind = \"residual\", width = 16 }";
        let policy =
            [&dense(9, true, "tanh"), &dense(16, false, "identity"), residual, residual].map(String::from);
        let Settings { gamma, alpha, epsilon, form } = &self.settings;
        format!(
            "preset = \"paper\"\ngamma = {gamma:?}\nalpha = {alpha:?}\nepsilon = {epsilon:?}\nbound_loss = \"{form}\"\n\
             batch_size = 16\n[gradient_penalty]\ncoefficient = 0.125\nbound = 0.5\n\
             [networks]\nmixture_components = 3\nmin_scale = 1e-2\nvalue = [{value}]\npolicy = [{}]\n",
            policy.join(", ")
        )
    }
}

/// `|ours - theirs| <= tolerance |theirs|` in the Euclidean norm, and something to compare.
#[track_caller]
fn assert_near(what: &str, ours: impl IntoIterator<Item = f64>, theirs: &[f64], tolerance: f64) {
    let ours: Vec<f64> = ours.into_iter().collect();
    assert_eq!(ours.len(), theirs.len(), "{what}");
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>().sqrt();
    let size = norm(&mut theirs.iter().copied());
    let off = norm(&mut ours.iter().zip(theirs).map(|(a, b)| a - b));
    assert!(size > 0.0, "{what} is zero: nothing is compared");
    assert!(off <= tolerance * size, "{what}: off by {off:e} of {size:e}");
}

fn wide(values: &[f32]) -> impl Iterator<Item = f64> + '_ {
    values.iter().map(|&v| f64::from(v))
}

/// Overwrites the parameters of a learner.
fn set_params(learner: &mut DiceLearner, values: &[(&str, Vec<f32>)]) {
    learner.visit_state(&mut |name, state| {
        if let (Some((_, new)), StateMut::F32(old)) = (values.iter().find(|(n, _)| *n == name), state) {
            old.copy_from_slice(new);
        }
    });
    learner.multipliers.refresh();
}

// The step is computed in f32 (6e-8 per operation); sums over 16 samples of products through at most seven layers of at
// most 16 units lose about ten roundings in a row, advantages are divided by alpha >= 0.25, and layer normalisation may
// divide by a spread below one: 6e-8 * 10 * 4 * 3 = 7e-6. The reference is in f64.
const F32_STEP: f64 = 1e-5;

/// `params` and a `zeta` of 0 where there is one.
fn with_zeta(mut params: Vec<f32>, learner: &DiceLearner) -> Vec<f32> {
    params.extend(std::iter::repeat_n(0.0, learner.multipliers.zeta.len()));
    params
}

fn check_against_torch(name: &str) {
    let recorded = Recorded::open(name);
    let data = testing::random_log(5, ActionSpace::Continuous { dim: 2 }, 4, 8);
    let config = testing::config(&data, &recorded.config());
    let problem = Problem::new(&config, &data).unwrap();
    let constraint = if config.epsilon > 0.0 { Constraint::UpperBound } else { Constraint::Plain };
    let mut learner = DiceLearner::new(&problem, constraint).unwrap();
    learner.limits = wide(&recorded.f32("limits")).collect();
    let mut values = vec![
        ("nu.params", recorded.params("nu", &learner.nu.network)),
        ("policy.params", recorded.params("policy", learner.extractor.policy().network())),
        ("multipliers.params", with_zeta(recorded.f32("multipliers"), &learner)),
    ];
    if let Some(bound) = &learner.bound {
        values.push(("chi.params", recorded.params("chi", &bound.chi.network)));
    }
    set_params(&mut learner, &values);
    let batch = Batch {
        step: 0,
        size: 16,
        states: recorded.f32("states"),
        mixes: recorded.f32("mixes"),
        actions: recorded.f32("actions"),
        action_ids: Vec::new(),
        rewards: recorded.f32("rewards"),
        costs: recorded.f32("costs"),
        discounts: recorded.f32("discounts"),
        ahead: crate::sampler::Ahead::default(),
        gamma: recorded.settings.gamma,
        discrete: false,
    };
    learner.step(&batch, &Pool::new(1).unwrap());

    let figures = &learner.figures;
    assert_near("w", wide(&learner.w), &recorded.f64("result.w"), F32_STEP);
    assert_near("loss of nu", [figures.flow.value], &recorded.f64("result.nu"), F32_STEP);
    assert_near("mean w", [figures.flow.mean_w], &recorded.f64("result.mean_w"), F32_STEP);
    assert_near("compared", figures.compared.iter().copied(), &recorded.f64("result.compared"), F32_STEP);
    assert_near("loss of lambda", [figures.multiplier_loss], &recorded.f64("result.lambda"), F32_STEP);
    assert_near(
        "loss of the policy",
        [learner.extractor.policy_loss()],
        &recorded.f64("result.policy"),
        F32_STEP,
    );
    let penalties = [
        figures.nu_penalty.value,
        f64::from(figures.nu_penalty.max_norm),
        figures.chi_penalty.value,
        f64::from(figures.chi_penalty.max_norm),
    ];
    assert_near("penalties", penalties, &recorded.f64("result.penalties"), F32_STEP);
    let gradient = |what: &str, trained: &TrainedNetwork| {
        assert_near(what, wide(&trained.grads), &recorded.gradient(what, &trained.network), F32_STEP);
    };
    gradient("nu", &learner.nu);
    assert_near(
        "policy",
        wide(learner.extractor.policy().gradient()),
        &recorded.gradient("policy", learner.extractor.policy().network()),
        F32_STEP,
    );
    let mut multipliers = recorded.f64("gradient.multipliers");
    if config.gamma < 1.0 {
        // `mu` is not trained, though the recorded loss has a slope in it.
        multipliers[2 * recorded.f32("limits").len()] = 0.0;
    }
    // The recorded loss knows no `zeta`; at 0 it changes nothing else.
    let found = &learner.multipliers.gradient()[..multipliers.len()];
    assert_near("multipliers", wide(found), &multipliers, F32_STEP);
    if let Some(bound) = &learner.bound {
        gradient("chi", &bound.chi);
        let bounds = figures.bounds.iter();
        assert_near("bound", bounds.clone().map(|b| b.value), &recorded.f64("result.bound"), F32_STEP);
        assert_near("kl", bounds.map(|b| b.kl), &recorded.f64("result.kl"), F32_STEP);
    }
}

#[test]
fn a_step_with_the_papers_bound_matches_automatic_differentiation() {
    check_against_torch("paper");
}

#[test]
fn a_step_with_the_reference_bound_matches_automatic_differentiation() {
    check_against_torch("reference");
}

#[test]
fn an_undiscounted_step_matches_automatic_differentiation() {
    check_against_torch("undiscounted");
}

#[test]
fn a_step_without_bound_matches_automatic_differentiation() {
    check_against_torch("naive");
}

/// The objective of a step over linear networks and one-hot-like observations, in `f64`, with nothing shared with the
/// learner: each group's loss as a function of all parameters, other groups' influence cut as the paper cuts it.
struct Objective<'b> {
    batch: &'b Batch,
    dim: usize,
    actions: usize,
    limits: Vec<f64>,
    config: TrainConfig,
}

/// All parameters: a linear map's `[out, in]` weights, then `[out]` biases.
#[derive(Clone)]
struct Point {
    nu: Vec<f64>,
    chi: Vec<f64>,
    policy: Vec<f64>,
    log_lambda: Vec<f64>,
    log_tau: Vec<f64>,
    mu: f64,
    zeta: Vec<f64>,
}

impl Objective<'_> {
    fn linear(&self, params: &[f64], outputs: usize, row: usize, output: usize) -> f64 {
        let x = &self.batch.states[row * self.dim..(row + 1) * self.dim];
        let weights = &params[output * self.dim..(output + 1) * self.dim];
        weights.iter().zip(x).map(|(w, &x)| w * f64::from(x)).sum::<f64>()
            + params[outputs * self.dim + output]
    }

    fn advantages(&self, p: &Point) -> Vec<f64> {
        let (size, costs) = (self.batch.size, self.limits.len());
        (0..size)
            .map(|b| {
                let nu = |row| self.linear(&p.nu, 1, row, 0);
                let cost = |k: usize| p.log_lambda[k].exp() * f64::from(self.batch.costs[b * costs + k]);
                f64::from(self.batch.rewards[b]) - (0..costs).map(cost).sum::<f64>()
                    + f64::from(self.batch.discounts[b]) * nu(size + b)
                    - nu(b)
                    - p.mu
            })
            .collect()
    }

    fn ratios(&self, p: &Point) -> Vec<f64> {
        // (f')^{-1} of chi-square, positive part.
        self.advantages(p).into_iter().map(|e| (e / self.config.alpha + 1.0).max(0.0)).collect()
    }

    /// `eq:min_objective_gamma1`.
    fn flow(&self, p: &Point) -> f64 {
        let size = self.batch.size;
        let (e, w) = (self.advantages(p), self.ratios(p));
        let mut value = p.mu;
        for b in 0..size {
            let start = (1.0 - self.config.gamma) * self.linear(&p.nu, 1, 2 * size + b, 0);
            value += (w[b] * e[b] - self.config.alpha * 0.5 * (w[b] - 1.0).powi(2) + start) / size as f64;
        }
        value
    }

    /// `eq:J_tau_phi` of cost `k` at fixed `w`.
    fn bound(&self, p: &Point, w: &[f64], k: usize) -> f64 {
        let (size, costs) = (self.batch.size, self.limits.len());
        let tau = p.log_tau[k].exp() + TAU_FLOOR;
        let mean: f64 = (0..size)
            .map(|b| {
                let chi = |row| self.linear(&p.chi, costs, row, k);
                let c = f64::from(self.batch.costs[b * costs + k]);
                let step = c + f64::from(self.batch.discounts[b]) * chi(size + b) - chi(b);
                let zeta = p.zeta.get(k).copied().unwrap_or(0.0);
                let start = (1.0 - self.config.gamma) * chi(2 * size + b);
                ((w[b] * (step - zeta) + start + zeta) / tau).exp() / size as f64
            })
            .sum();
        tau * mean.ln() + tau * self.config.epsilon
    }

    /// `eq:J_psi` of a categorical policy at fixed `w`.
    fn policy(&self, p: &Point, w: &[f64]) -> f64 {
        let size = self.batch.size;
        let term = |b: usize| {
            let logits: Vec<f64> =
                (0..self.actions).map(|a| self.linear(&p.policy, self.actions, b, a)).collect();
            let normaliser = logits.iter().map(|l| l.exp()).sum::<f64>().ln();
            w[b] * (logits[self.batch.action_ids[b] as usize] - normaliser)
        };
        -(0..size).map(term).sum::<f64>() / size as f64
    }
}

/// Central differences in every place of one group.
fn differences(
    p: &Point,
    group: impl Fn(&mut Point) -> &mut [f64],
    value: impl Fn(&Point) -> f64,
) -> Vec<f64> {
    let h = 1e-5;
    let count = group(&mut p.clone()).len();
    (0..count)
        .map(|i| {
            let shifted = |by: f64| {
                let mut q = p.clone();
                group(&mut q)[i] += by;
                value(&q)
            };
            (shifted(h) - shifted(-h)) / (2.0 * h)
        })
        .collect()
}

fn check_against_differences(gamma: f64, seed: u64) {
    let data = testing::random_log(3, ActionSpace::discrete(4), 6, 9);
    let text = format!(
        "divergence = \"chi2\"\ndual_share = 1.0\ngamma = {gamma:?}\nalpha = 1.0\nbatch_size = 32\nseed = {seed}\nreward_scale = 3.0\n\
         bound_loss = \"paper\"\nextraction = \"weighted_bc\"\nsuccessors = \"sampled\"\n\
         [gradient_penalty]\ncoefficient = 0.0\n[networks]\nvalue = []\npolicy = []\n"
    );
    let config = testing::config(&data, &text);
    assert_eq!(config.divergence, Divergence::Chi2);
    let problem = Problem::new(&config, &data).unwrap();
    let mut learner = DiceLearner::new(&problem, Constraint::UpperBound).unwrap();
    let mut rng = stream(seed, "parameters", 0);
    let mut draw = |n: usize| -> Vec<f32> { (0..n).map(|_| rng.random_range(-0.7..0.7)).collect() };
    let (nu, chi, policy) = (draw(4), draw(8), draw(16));
    let mut multipliers = draw(if gamma < 1.0 { 5 } else { 7 });
    if gamma < 1.0 {
        multipliers[4] = 0.0;
    }
    set_params(
        &mut learner,
        &[
            ("nu.params", nu.clone()),
            ("chi.params", chi.clone()),
            ("policy.params", policy.clone()),
            ("multipliers.params", multipliers.clone()),
        ],
    );
    let mut sampler = Sampler::new(&problem);
    let batch = sampler.draw(0);
    learner.step(batch, &Pool::new(1).unwrap());

    let limits = learner.limits.clone();
    let objective = Objective { batch, dim: 3, actions: 4, limits, config: config.clone() };
    let list = |values: &[f32]| wide(values).collect::<Vec<f64>>();
    let point = Point {
        nu: list(&nu),
        chi: list(&chi),
        policy: list(&policy),
        log_lambda: list(&multipliers[..2]),
        log_tau: list(&multipliers[2..4]),
        mu: f64::from(multipliers[4]),
        zeta: list(&multipliers[5..]),
    };
    let w = objective.ratios(&point);
    assert!(w.contains(&0.0) && w.iter().any(|&w| w > 1.0), "both branches of the ratio are met");
    let costs = objective.limits.len();

    // Differences are good to 1e-9 (h^2 and rounding over h), the step to f32 rounding.
    let near = |what: &str, ours: &[f32], theirs: &[f64]| assert_near(what, wide(ours), theirs, F32_STEP);
    near("nu", &learner.nu.grads, &differences(&point, |p| &mut p.nu, |p| objective.flow(p)));
    let bounds = |p: &Point| (0..costs).map(|k| objective.bound(p, &w, k)).sum::<f64>();
    let chi = &learner.bound.as_ref().unwrap().chi;
    near("chi", &chi.grads, &differences(&point, |p| &mut p.chi, bounds));
    near(
        "policy",
        learner.extractor.policy().gradient(),
        &differences(&point, |p| &mut p.policy, |p| objective.policy(p, &w)),
    );
    let compared: Vec<f64> = (0..costs).map(|k| objective.bound(&point, &w, k)).collect();
    let price = |p: &Point| -> f64 {
        (0..costs).map(|k| p.log_lambda[k].exp() * (objective.limits[k] - compared[k])).sum()
    };
    let gradient = learner.multipliers.gradient();
    near("lambda", &gradient[..2], &differences(&point, |p| &mut p.log_lambda, price));
    near("tau", &gradient[2..4], &differences(&point, |p| &mut p.log_tau, bounds));
    let in_mu = differences(&point, |p| std::slice::from_mut(&mut p.mu), |p| objective.flow(p));
    if gamma == 1.0 {
        near("mu", &gradient[4..5], &in_mu);
        near("zeta", &gradient[5..], &differences(&point, |p| &mut p.zeta, bounds));
    } else {
        assert_eq!(gradient[4], 0.0, "mu belongs to gamma = 1");
    }
    let price_now: f64 = learner.figures.multiplier_loss;
    assert_near("loss of lambda", [price_now], &[price(&point)], F32_STEP);
    let flow = objective.flow(&point)
        + (0..costs).map(|k| point.log_lambda[k].exp() * objective.limits[k]).sum::<f64>();
    assert_near("loss of nu", [learner.figures.flow.value], &[flow], F32_STEP);
}

#[test]
fn every_group_of_a_discounted_step_matches_differences() {
    check_against_differences(0.9, 1);
}

#[test]
fn every_group_of_an_undiscounted_step_matches_differences() {
    check_against_differences(1.0, 2);
}
