//! On a finite problem the learner must arrive at the optimum of the regularised problem, solved here by other means.
//!
//! Observations are one-hot and the networks linear, so that `nu` and `chi` are tables. Successors are a function of
//! `(s, a)`, for which the single-sample advantage is exact, but in the test of `successors = "averaged"`. The occupancy of `eq:lp_objective` is found as a quadratic
//! program in `d` (Clarabel), which knows nothing of the dual; its cost multiplier is `lambda`. With the upper bound,
//! `lambda` is the root of `bound(lambda) = limit`, where the bound of the occupancy at a given `lambda` is solved as an
//! exponential-cone program.

use std::collections::BTreeMap;

use clarabel::algebra::CscMatrix;
use clarabel::solver::{
    DefaultSettings, DefaultSolver, ExponentialConeT, IPSolver, NonnegativeConeT, SolverStatus,
    SupportedConeT, ZeroConeT,
};
use coptidice_agents::{Estimates, LogFacts, Observer, RawConfig, TrainIo, TrainOutcome, train};
use coptidice_core::CostConstraint;
use coptidice_core::rng::stream;
use coptidice_data::{ActionSpace, Schema, Step, StepAction, Transitions, TransitionsBuilder};
use rand::RngExt as _;

const STATES: usize = 6;
const ACTIONS: usize = 3;
const LAST: usize = STATES - 1;

/// A small chain: in state 5 any action ends the episode.
struct World {
    /// The chance that a step leads back by one instead of where it should; 0 unless said otherwise.
    slip: f64,
    next: [[usize; ACTIONS]; STATES],
    reward: [[f32; ACTIONS]; STATES],
    cost: [[f32; ACTIONS]; STATES],
}

impl World {
    /// Actions go on by one, by two, or back to the start; going fast earns and costs most.
    fn new() -> Self {
        let mut world = World {
            slip: 0.0,
            next: [[0; ACTIONS]; STATES],
            reward: [[0.0; ACTIONS]; STATES],
            cost: [[0.0; ACTIONS]; STATES],
        };
        let mut rng = stream(3, "world", 0);
        for s in 0..STATES {
            world.next[s] = [(s + 1).min(LAST), (s + 2).min(LAST), s.saturating_sub(1)];
            for a in 0..ACTIONS {
                let pace = [0.5, 1.0, 0.2][a];
                world.reward[s][a] = pace + rng.random_range(0.0..0.6);
                // Largest cost 4: the learner divides by it, the figures must not show it.
                world.cost[s][a] = 4.0 * pace * rng.random_range(0.4..1.0);
            }
        }
        world
    }

    fn log(&self, starts: &[usize], episodes: usize) -> Transitions {
        let schema = Schema {
            observation_dim: STATES,
            action: ActionSpace::discrete(ACTIONS),
            cost_names: vec!["wear".to_owned()],
            propensity: false,
        };
        let mut builder = TransitionsBuilder::new(schema).unwrap();
        let mut rng = stream(4, "log", 0);
        let one_hot = |s: usize| std::array::from_fn::<f32, STATES, _>(|i| f32::from(u8::from(i == s)));
        for episode in 0..episodes {
            let mut s = starts[episode % starts.len()];
            loop {
                let a = rng.random_range(0..ACTIONS);
                let slipped = self.slip > 0.0 && rng.random_bool(self.slip);
                let (terminal, next) =
                    (s == LAST, if slipped { s.saturating_sub(1) } else { self.next[s][a] });
                builder
                    .push(&Step {
                        observation: &one_hot(s),
                        action: StepAction::Discrete(a as u32),
                        reward: self.reward[s][a],
                        costs: &[self.cost[s][a]],
                        next_observation: &one_hot(next),
                        terminal,
                        timeout: false,
                        propensity: None,
                    })
                    .unwrap();
                if terminal {
                    break;
                }
                s = next;
            }
        }
        builder.finish().unwrap()
    }
}

/// What the log says, as probabilities.
struct Empirical<'w> {
    world: &'w World,
    gamma: f64,
    /// `[S * A]`.
    data_occupancy: Vec<f64>,
    /// `[S * A]`, successors by frequency; nothing of the last state.
    transitions: Vec<[f64; STATES]>,
    /// `[S]`.
    initial: Vec<f64>,
}

/// The optimum and its figures.
struct Solution {
    w: Vec<f64>,
    reward: f64,
    cost: f64,
    lambda: f64,
}

impl<'w> Empirical<'w> {
    fn new(world: &'w World, log: &Transitions, gamma: f64) -> Self {
        let state = |observation: &[f32]| observation.iter().position(|&x| x == 1.0).unwrap();
        let mut data_occupancy = vec![0.0; STATES * ACTIONS];
        let mut transitions = vec![[0.0; STATES]; STATES * ACTIONS];
        for i in 0..log.len() {
            let place = state(log.observation(i)) * ACTIONS + log.discrete_action(i) as usize;
            data_occupancy[place] += 1.0 / log.len() as f64;
            if !log.terminal(i) {
                transitions[place][state(log.next_observation(i))] += 1.0;
            }
        }
        for row in &mut transitions {
            let seen = row.iter().sum::<f64>().max(1.0);
            row.iter_mut().for_each(|count| *count /= seen);
        }
        let mut initial = vec![0.0; STATES];
        for observation in log.initial_observations() {
            initial[state(observation)] += 1.0 / log.episodes().len() as f64;
        }
        Empirical { world, gamma, data_occupancy, transitions, initial }
    }

    /// Successors of `(s, a)` as the process is read, with their probabilities: at `gamma = 1` the last step leads to the
    /// (only) initial state.
    fn successors(&self, s: usize, a: usize) -> Vec<(usize, f64)> {
        let of_row = || self.transitions[s * ACTIONS + a].iter().copied().enumerate();
        match (s == LAST, self.gamma == 1.0) {
            (false, _) => of_row().filter(|&(_, p)| p > 0.0).collect(),
            (true, true) => {
                self.initial.iter().position(|&p| p > 0.999).map(|s| (s, 1.0)).into_iter().collect()
            }
            (true, false) => Vec::new(),
        }
    }

    fn pairs() -> impl Iterator<Item = (usize, usize, usize)> {
        (0..STATES).flat_map(|s| (0..ACTIONS).map(move |a| (s * ACTIONS + a, s, a)))
    }

    fn mean(&self, w: &[f64], of: &[[f32; ACTIONS]; STATES]) -> f64 {
        Self::pairs().map(|(i, s, a)| self.data_occupancy[i] * w[i] * f64::from(of[s][a])).sum()
    }

    /// `eq:lp_objective` with chi-square: `max d'(r - price c) - alpha/2 sum (d - dD)^2/dD`, flow constraints, `d >= 0`,
    /// and the cost constraint where there is one: `E_d[c - credit] <= limit`.
    fn solve(&self, alpha: f64, price: f64, constraint: Option<CostConstraint>) -> Solution {
        self.solve_with(alpha, price, 0.0, constraint)
    }

    /// At a price on the cost less `credit` in every step.
    fn solve_credited(&self, alpha: f64, price: f64, credit: f64) -> Solution {
        self.solve_with(alpha, price, credit, None)
    }

    fn solve_with(
        &self,
        alpha: f64,
        price: f64,
        credit: f64,
        constraint: Option<CostConstraint>,
    ) -> Solution {
        let n = STATES * ACTIONS;
        let mut entries = Entries::default();
        let (mut quadratic, mut linear) = (Entries::default(), vec![0.0; n]);
        for (i, s, a) in Self::pairs() {
            let (r, c) = (f64::from(self.world.reward[s][a]), f64::from(self.world.cost[s][a]));
            quadratic.add(i, i, alpha / self.data_occupancy[i]);
            linear[i] = -(r - price * (c - credit)) - alpha;
            entries.add(s, i, 1.0);
            for (next, p) in self.successors(s, a) {
                entries.add(next, i, -self.gamma * p);
            }
        }
        let mut right: Vec<f64> = self.initial.iter().map(|p| (1.0 - self.gamma) * p).collect();
        if self.gamma == 1.0 {
            // Flow constraints determine d up to its mass; one of them is redundant and makes room for it.
            entries.0.retain(|&(row, _), _| row != LAST);
            (0..n).for_each(|i| entries.add(LAST, i, 1.0));
            right[LAST] = 1.0;
        }
        let mut cones = vec![ZeroConeT(STATES), NonnegativeConeT(n + usize::from(constraint.is_some()))];
        (0..n).for_each(|i| entries.add(STATES + i, i, -1.0));
        right.extend(vec![0.0; n]);
        if let Some(constraint) = constraint {
            for (i, s, a) in Self::pairs() {
                entries.add(STATES + n, i, f64::from(self.world.cost[s][a]) - constraint.credit(s == LAST));
            }
            right.push(constraint.limit);
        }
        let (x, z) = solve(quadratic, &linear, entries, &right, &mut cones);
        let w: Vec<f64> = (0..n).map(|i| x[i] / self.data_occupancy[i]).collect();
        let (reward, cost) = (self.mean(&w, &self.world.reward), self.mean(&w, &self.world.cost));
        Solution { w, reward, cost, lambda: constraint.map_or(price, |_| z[STATES + n]) }
    }

    /// `eq:cost_ub_min_objective` of a given `w`, for the cost less a credit in every step: minimise `t + tau epsilon` over `t, tau, chi, u` with
    /// `sum p_i u_i <= tau` and `(ell_i - t, tau, u_i)` in the exponential cone, `i` over all `(s0, s, a)`.
    fn bound(&self, w: &[f64], epsilon: f64, step_credit: f64) -> f64 {
        let samples: Vec<(usize, usize, usize, usize)> = (0..STATES)
            .filter(|&s0| self.initial[s0] > 0.0)
            .flat_map(|s0| Self::pairs().map(move |(i, s, a)| (s0, i, s, a)))
            .collect();
        let (t, tau, chi, u) = (0, 1, 2, 2 + STATES);
        let columns = u + samples.len();
        let mut linear = vec![0.0; columns];
        (linear[t], linear[tau]) = (1.0, epsilon);
        let mut entries = Entries::default();
        let mut right = vec![0.0];
        entries.add(0, tau, -1.0);
        for (j, &(s0, i, s, a)) in samples.iter().enumerate() {
            entries.add(0, u + j, self.initial[s0] * self.data_occupancy[i]);
            let row = 1 + 3 * j;
            entries.add(row, t, 1.0);
            entries.add(row, chi + s, w[i]);
            for (next, p) in self.successors(s, a) {
                entries.add(row, chi + next, -self.gamma * p * w[i]);
            }
            entries.add(row, chi + s0, -(1.0 - self.gamma));
            entries.add(row + 1, tau, -1.0);
            entries.add(row + 2, u + j, -1.0);
            right.extend([w[i] * (f64::from(self.world.cost[s][a]) - step_credit), 0.0, 0.0]);
        }
        let mut cones = vec![NonnegativeConeT(1)];
        cones.extend(vec![ExponentialConeT(); samples.len()]);
        let mut quadratic = Entries::default();
        quadratic.add(columns - 1, columns - 1, 0.0);
        let (x, _) = solve(quadratic, &linear, entries, &right, &mut cones);
        x[t] + x[tau] * epsilon
    }

    /// The occupancy whose bound meets the limit of a step, under a discount; the bound falls as the price of cost rises.
    /// What a credit of `limit` is worth hangs on the mass `E[w]`: a price of `lambda` on the cost is one of `lambda` on
    /// it less its credit, with `lambda limit` more for every step's reward.
    fn solve_conservative(&self, alpha: f64, limit: f64, epsilon: f64) -> (Solution, f64) {
        let credited = |price: f64| self.solve_credited(alpha, price, limit);
        let (mut low, mut high) = (0.0, 4.0);
        for _ in 0..24 {
            let middle = 0.5 * (low + high);
            let over = self.bound(&credited(middle).w, epsilon, limit) > 0.0;
            if over { low = middle } else { high = middle }
        }
        let solution = credited(high);
        let bound = self.bound(&solution.w, epsilon, limit);
        (solution, bound)
    }
}

/// A sparse matrix under construction; entries of one place add up.
#[derive(Default)]
struct Entries(BTreeMap<(usize, usize), f64>);

impl Entries {
    fn add(&mut self, row: usize, column: usize, value: f64) {
        *self.0.entry((row, column)).or_insert(0.0) += value;
    }

    fn matrix(self, rows: usize, columns: usize) -> CscMatrix<f64> {
        let (places, values): (Vec<_>, Vec<_>) = self.0.into_iter().unzip();
        let (i, j): (Vec<_>, Vec<_>) = places.into_iter().unzip();
        CscMatrix::new_from_triplets(rows, columns, i, j, values)
    }
}

/// `min x'Px/2 + q'x` subject to `b - Ax` in the cones; primal and dual solution.
fn solve(
    quadratic: Entries,
    linear: &[f64],
    entries: Entries,
    right: &[f64],
    cones: &mut [SupportedConeT<f64>],
) -> (Vec<f64>, Vec<f64>) {
    let n = linear.len();
    let settings = DefaultSettings { verbose: false, ..DefaultSettings::default() };
    let (p, a) = (quadratic.matrix(n, n), entries.matrix(right.len(), n));
    let mut solver = DefaultSolver::new(&p, linear, &a, right, cones, settings).unwrap();
    solver.solve();
    assert_eq!(solver.solution.status, SolverStatus::Solved);
    (solver.solution.x.clone(), solver.solution.z.clone())
}

/// Keeps the last report.
#[derive(Default)]
struct Last(BTreeMap<String, f64>);

impl Observer for Last {
    fn metrics(&mut self, _: u64, values: &[(&str, f64)]) {
        self.0 = values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
    }
}

/// Trains with tables in place of networks. Means over the last 1000 steps, and the estimates over the log.
fn learn(log: &Transitions, fields: &str, limit: &str) -> (BTreeMap<String, f64>, Estimates) {
    learn_slowly(1, log, fields, limit)
}

/// As [`learn`], in `times` as many steps of so much smaller size; means over the last `1000 times` of them.
fn learn_slowly(
    times: u32,
    log: &Transitions,
    fields: &str,
    limit: &str,
) -> (BTreeMap<String, f64>, Estimates) {
    let (steps, rate, multiplier_rate) = (4000 * times, 1e-2 / f64::from(times), 5e-3 / f64::from(times));
    let every = 1000 * times;
    let successors = if fields.contains("successors") { "" } else { "successors = \"sampled\"" };
    let text = format!(
        "algo = \"coptidice\"\n{fields}\n{successors}\ndual_share = 1.0\nalpha = 2.0\ndivergence = \"chi2\"\nreward_scale = 2.0\n\
         steps = {steps}\nbatch_size = 256\nthreads = 1\nlearning_rate = {rate:?}\n\
         multiplier_learning_rate = {multiplier_rate:?}\nlog_every = {every}\nnormalize_observations = false\ncheckpoint_every = 100000\n\
         extraction = \"weighted_bc\"\nevaluation = {{ rounds = 0 }}\n\
         [gradient_penalty]\ncoefficient = 0.0\n[networks]\nvalue = []\npolicy = []\n[[limits]]\n{limit}\n"
    );
    let config = RawConfig::from_toml(&text).unwrap().validate(&LogFacts::of(log)).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let io = TrainIo { directory: directory.path().to_owned(), resume: false };
    let mut last = Last::default();
    match train(&config, log, &io, &mut last).unwrap() {
        TrainOutcome::Finished { estimates, .. } => (last.0, estimates.unwrap()),
        other => panic!("{other:?}"),
    }
}

fn per_step(limit: f64) -> String {
    format!("limit = {limit:?}\nunit = \"step\"")
}

/// Alpha 2 at a reward scale of 2 is this `alpha` in the log's units.
const ALPHA: f64 = 1.0;

// What keeps a mean over 1000 steps of 256 samples from the optimum: sampling, 1/sqrt(256000) = 0.002 of a spread of about
// 1; Adam keeps every table entry in motion by about its rate, 1e-2 of scaled reward, which moves w by 1e-2/2 at the
// entry, partly averaged out. lambda (0.5% a step around its root) stands off by an error in cost over the slope
// d cost/d lambda, about 0.5: twice the error. With the bound a batch of 256 knows the mean of exp(ell/tau) to
// sqrt(2 epsilon/256) = 0.0125 relative, and tau (about 7 here) times half its square, 0.0005, is the bias of its
// logarithm; chi, fitted to batches, adds as much again.
const VALUE: f64 = 0.006;
const LAMBDA: f64 = 0.012;

// The estimates over the log are those of one moment, not averaged over Adam's motion.
const MOMENT: f64 = 0.02;

#[track_caller]
fn near(name: &str, found: f64, expected: f64, tolerance: f64) {
    println!("{name}: {found:.5}, exactly {expected:.5}");
    assert!((found - expected).abs() <= tolerance, "{name}: {found}, exactly {expected}");
}

const ONES: [[f32; ACTIONS]; STATES] = [[1.0; ACTIONS]; STATES];

/// A limit on what a step costs of those that are taken; every episode ends by itself.
fn of_steps(gamma: f64, limit: f64) -> CostConstraint {
    match gamma < 1.0 {
        true => CostConstraint { step_credit: Some(limit), ..CostConstraint::default() },
        false => CostConstraint { limit, ..CostConstraint::default() },
    }
}

fn check_plain(gamma: f64, starts: &[usize], tightness: f64) {
    let world = World::new();
    let log = world.log(starts, 400);
    let exact = Empirical::new(&world, &log, gamma);
    let of_a_step = |solution: &Solution| solution.cost / exact.mean(&solution.w, &ONES);
    let limit = tightness * of_a_step(&exact.solve(ALPHA, 0.0, None));
    let optimum = exact.solve(ALPHA, 0.0, Some(of_steps(gamma, limit)));
    assert!(optimum.lambda > 0.05 && (of_a_step(&optimum) - limit).abs() < 1e-6, "the limit binds");
    let (metrics, estimates) = learn(&log, &format!("gamma = {gamma:?}\nepsilon = 0.0"), &per_step(limit));
    near("reward", metrics["reward"], optimum.reward, VALUE);
    near("cost", metrics["cost/wear"], optimum.cost, VALUE);
    near("lambda", metrics["lambda/wear"], optimum.lambda, LAMBDA);
    near("mean w", metrics["w/mean"], exact.mean(&optimum.w, &ONES), VALUE);
    let mass = exact.mean(&optimum.w, &ONES);
    near("reward of a step over the log", estimates.reward, optimum.reward / mass, MOMENT / mass);
    near("cost of a step over the log", estimates.costs[0].per_step, limit, MOMENT / mass);
    near("mean w over the log", estimates.mean_weight, mass, MOMENT);
    assert_eq!(estimates.weights.len(), log.len());
}

#[test]
fn a_discounted_problem_with_a_binding_limit_is_solved() {
    check_plain(0.9, &[0, 1], 0.8);
}

#[test]
fn an_undiscounted_problem_with_a_binding_limit_is_solved() {
    check_plain(1.0, &[0], 0.8);
}

/// Every other step leads back by one. Through single successors the advantage is that of luck, and the learner's own
/// figures are of an optimum that nobody can reach; through their mean it arrives at the optimum of the log's frequencies.
/// The table of advantages follows differences of a `nu` that moves, and what it is off by makes `w` larger, as luck does:
/// that goes with the size of the steps, which are made a sixth.
#[test]
fn a_noisy_problem_is_solved_through_the_mean_over_successors() {
    let world = World { slip: 0.5, ..World::new() };
    let (gamma, starts) = (0.9, &[0, 1]);
    let log = world.log(starts, 400);
    let exact = Empirical::new(&world, &log, gamma);
    let of_a_step = |solution: &Solution| solution.cost / exact.mean(&solution.w, &ONES);
    let limit = 0.9 * of_a_step(&exact.solve(ALPHA, 0.0, None));
    let optimum = exact.solve(ALPHA, 0.0, Some(of_steps(gamma, limit)));
    assert!(optimum.lambda > 0.05 && (of_a_step(&optimum) - limit).abs() < 1e-6, "the limit binds");
    let fields =
        |successors: &str| format!("gamma = {gamma:?}\nepsilon = 0.0\nsuccessors = \"{successors}\"");
    let averaged = learn_slowly(6, &log, &fields("averaged"), &per_step(limit)).0;
    near("reward", averaged["reward"], optimum.reward, VALUE);
    near("cost", averaged["cost/wear"], optimum.cost, VALUE);
    near("lambda", averaged["lambda/wear"], optimum.lambda, LAMBDA);
    near("mean w", averaged["w/mean"], exact.mean(&optimum.w, &ONES), VALUE);
    let sampled = learn(&log, &fields("sampled"), &per_step(limit)).0;
    let promised = sampled["reward"] - optimum.reward;
    assert!(promised > 3.0 * VALUE, "luck is taken for skill: {promised} more than can be had");
}

/// Episodes last as long as the policy lets them: the constraint is on the total cost of one.
#[test]
fn a_limit_per_episode_of_varying_length_is_kept() {
    let world = World::new();
    let log = world.log(&[0], 400);
    let exact = Empirical::new(&world, &log, 1.0);
    let mut last_step = [[0.0; ACTIONS]; STATES];
    last_step[LAST] = [1.0; ACTIONS];
    let of_episode = |solution: &Solution| solution.cost / exact.mean(&solution.w, &last_step);
    let limit = 0.9 * of_episode(&exact.solve(ALPHA, 0.0, None));
    let optimum = exact.solve(
        ALPHA,
        0.0,
        Some(CostConstraint { last_step_credit: limit, ..CostConstraint::default() }),
    );
    assert!(optimum.lambda > 0.02 && (of_episode(&optimum) - limit).abs() < 1e-5, "the limit binds");
    let (metrics, estimates) =
        learn(&log, "gamma = 1.0\nepsilon = 0.0", &format!("limit = {limit:?}\nunit = \"episode\""));
    near("reward", metrics["reward"], optimum.reward, VALUE);
    near("lambda", metrics["lambda/wear"], optimum.lambda, LAMBDA);
    near("cost less credit", metrics["cost/wear"], 0.0, VALUE);
    near("cost over the log", estimates.costs[0].per_step, optimum.cost, MOMENT);
    // A quotient by the share of last steps, about 0.25.
    near("cost of an episode", estimates.costs[0].per_episode.unwrap(), limit, MOMENT / 0.25);
}

#[test]
fn a_limit_far_above_costs_nothing() {
    let world = World::new();
    let log = world.log(&[0, 1], 400);
    let exact = Empirical::new(&world, &log, 0.9);
    let free = exact.solve(ALPHA, 0.0, None);
    for epsilon in [0.0, 0.01] {
        let fields = format!("gamma = 0.9\nepsilon = {epsilon:?}");
        let (metrics, _) = learn(&log, &fields, &per_step(3.0 * free.cost));
        near("lambda", metrics["lambda/wear"], 0.0, 2e-3);
        near("reward", metrics["reward"], free.reward, VALUE);
        near("cost", metrics["cost/wear"], free.cost, VALUE);
    }
}

#[test]
fn the_upper_bound_is_held_to_the_limit() {
    let world = World::new();
    let log = world.log(&[0, 1], 400);
    let exact = Empirical::new(&world, &log, 0.9);
    let epsilon = 0.02;
    let free = exact.solve(ALPHA, 0.0, None);
    let limit = free.cost / exact.mean(&free.w, &ONES);
    let (optimum, bound) = exact.solve_conservative(ALPHA, limit, epsilon);
    let mass = exact.mean(&optimum.w, &ONES);
    assert!(bound.abs() < 1e-4 && optimum.cost < 0.95 * limit * mass, "the bound binds before the cost does");
    let fields = format!("gamma = 0.9\nepsilon = {epsilon:?}\nbound_loss = \"paper\"");
    let (metrics, _) = learn(&log, &fields, &per_step(limit));
    // Metrics are of costs as logged, and so is their bound.
    near("bound", metrics["cost_bound/wear"], bound + limit * mass, VALUE);
    near("limit", metrics["limit/wear"], limit * mass, VALUE);
    near("cost", metrics["cost/wear"], optimum.cost, VALUE);
    near("reward", metrics["reward"], optimum.reward, VALUE);
    near("lambda", metrics["lambda/wear"], optimum.lambda, LAMBDA);
    // Relative, as the spread of ell is: a few percent.
    near("kl", metrics["kl/wear"], epsilon, 0.1 * epsilon);
}
