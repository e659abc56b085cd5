//! Time of each solver: on the paper's CMDPs of 50 states, and on random CMDPs of 50 to 5000.
//!
//! `cargo bench -p coptidice-tabular`

#![allow(clippy::unwrap_used, reason = "a bench that cannot be set up shall end")]

use std::hint::black_box;

use coptidice_core::{Cmdp, CmdpParts, Divergence, EpisodeEnd, Policy, Transitions, rng};
use coptidice_tabular::baselines::{PAPER_WEDGE, Spibb, behaviour_cloning};
use coptidice_tabular::case::{SAMPLE_FLOOR, known_behaviour_occupancy};
use coptidice_tabular::dice::{
    BoundProblem, Effort, Problem, Samples, coptidice, coptidice_naive, cost_bound, optidice,
};
use coptidice_tabular::experiments::{Experiment, ExperimentConfig, cell};
use coptidice_tabular::generate::{
    BehaviourBuilder, BehaviourConfig, RandomCmdpConfig, TrajectorySampler, counts_of_table, estimated_model,
};
use coptidice_tabular::lp::LpSolver;
use coptidice_tabular::{Counts, Evaluator, optimal_policy};
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use rand::RngExt as _;
use rand::seq::index;

/// One data set of the main figure: 100 trajectories of the behaviour of cost .11.
struct Paper {
    truth: Cmdp,
    behaviour: Policy,
    counts: Counts,
    model: Cmdp,
    data: Vec<f64>,
}

const TRAJECTORIES: usize = 100;
const LIMIT: f64 = 0.1;

impl Paper {
    fn new() -> Self {
        let drawn = RandomCmdpConfig::default().draw(0, 0).unwrap();
        let truth = drawn.cmdp;
        let config = BehaviourConfig::with_limit(0.11);
        let behaviour = BehaviourBuilder::new(50).build(&truth, config).unwrap().policy;
        let mut table = vec![0; 50 * 4 * 50];
        let sampler = TrajectorySampler::new(&truth, &behaviour).unwrap();
        sampler.count_into(&mut rng::stream(0, "bench", 0), TRAJECTORIES, 50, &mut table);
        let counts = counts_of_table(50, 4, &table).unwrap();
        let model = estimated_model(&truth, &counts, drawn.absorbing).unwrap();
        let data = known_behaviour_occupancy(&mut Evaluator::new(50), &model, &behaviour).unwrap();
        Paper { truth, behaviour, counts, model, data }
    }
}

fn paper(c: &mut Criterion) {
    let p = Paper::new();
    let mut group = c.benchmark_group("paper, 50 states");
    let mut run = 0;
    group.bench_function("draw a CMDP", |b| {
        b.iter(|| {
            run += 1;
            RandomCmdpConfig::default().draw(1, run).unwrap()
        });
    });
    let mut behaviours = BehaviourBuilder::new(50);
    let cmdps: Vec<Cmdp> = (0..20).map(|i| RandomCmdpConfig::default().draw(2, i).unwrap().cmdp).collect();
    let mut turn = 0;
    group.bench_function("behaviour policy, mean of 20 CMDPs", |b| {
        b.iter(|| {
            turn += 1;
            behaviours.build(&cmdps[turn % 20], BehaviourConfig::with_limit(0.11)).unwrap()
        });
    });
    let sampler = TrajectorySampler::new(&p.truth, &p.behaviour).unwrap();
    let (mut random, mut table) = (rng::stream(0, "bench", 1), vec![0; 50 * 4 * 50]);
    group.bench_function("100 trajectories", |b| {
        b.iter(|| sampler.count_into(&mut random, TRAJECTORIES, 50, &mut table));
    });
    let mut evaluator = Evaluator::new(50);
    group.bench_function("policy evaluation", |b| {
        b.iter(|| evaluator.evaluate(&p.truth, &p.behaviour).unwrap())
    });
    group.bench_function("policy iteration", |b| {
        b.iter(|| optimal_policy(&p.model, p.model.reward()).unwrap())
    });
    group.bench_function("behaviour cloning", |b| b.iter(|| behaviour_cloning(&p.counts).unwrap()));
    let mut lp = LpSolver::new(50);
    group.bench_function("linear program", |b| b.iter(|| lp.solve(&p.model, &[LIMIT]).unwrap()));
    let mut spibb = Spibb::new(50);
    let visits = p.counts.pair_totals();
    group.bench_function("C-SPIBB", |b| {
        b.iter(|| spibb.solve(&p.model, visits, &p.behaviour, PAPER_WEDGE, &[LIMIT]).unwrap());
    });
    let problem = problem(&p.model, &p.data, &[LIMIT], 1.0 / TRAJECTORIES as f64);
    let effort = Effort::default();
    group.bench_function("OptiDICE", |b| b.iter(|| optidice(&problem, effort).unwrap()));
    group.bench_function("COptiDICE, naive", |b| b.iter(|| coptidice_naive(&problem, None, effort).unwrap()));
    let samples = Samples::with_floor(&p.model, &p.data, SAMPLE_FLOOR).unwrap();
    let bound = BoundProblem {
        samples: &samples,
        epsilon: 0.1 / TRAJECTORIES as f64,
        weight_floor: 1e-10,
        costs: p.model.costs(),
        last_step_credits: &[0.0],
    };
    let naive = coptidice_naive(&problem, None, effort).unwrap();
    group.bench_function("cost bound alone", |b| {
        b.iter(|| cost_bound(&p.model, &bound, 0, black_box(&naive.w), effort).unwrap());
    });
    group.bench_function("COptiDICE, from the naive solution", |b| {
        b.iter(|| coptidice(&problem, &bound, Some(&naive), effort).unwrap());
    });
    group.sample_size(20);
    let config = ExperimentConfig::new(Experiment::Fig1);
    let mut run = 0;
    group.bench_function("one cell by itself, CMDP and behaviour included", |b| {
        b.iter(|| {
            run += 1;
            cell(&config, 1, run, TRAJECTORIES).unwrap()
        });
    });
    group.finish();
}

fn problem<'a>(model: &'a Cmdp, data: &'a [f64], limits: &'a [f64], alpha: f64) -> Problem<'a> {
    Problem { model, data_occupancy: data, limits, divergence: Divergence::Chi2, alpha }
}

/// Four random successors for each of four actions, rewards in one state of ten, costs between 0 and 1.
fn random_cmdp(states: usize) -> Cmdp {
    let mut random = rng::stream(0, "bench cmdp", states as u64);
    let mut triples = Vec::new();
    for s in 0..states {
        for a in 0..4 {
            let weights: [f64; 4] = std::array::from_fn(|_| random.random::<f64>() + 0.05);
            let total: f64 = weights.iter().sum();
            let next = index::sample(&mut random, states, 4);
            triples.extend(next.iter().zip(weights).map(|(t, w)| (s, a, t, w / total)));
        }
    }
    let reward = (0..states * 4).map(|pair| f64::from(u8::from(pair / 4 % 10 == 3))).collect();
    let cost = (0..states * 4).map(|_| random.random::<f64>()).collect();
    let mut initial = vec![0.0; states];
    initial[0] = 1.0;
    Cmdp::new(CmdpParts {
        transitions: Transitions::from_triples(states, 4, triples).unwrap(),
        episode_end: EpisodeEnd::Absorb,
        reward,
        costs: vec![cost],
        initial,
        gamma: 0.95,
    })
    .unwrap()
}

fn scaling(c: &mut Criterion) {
    let mut group = c.benchmark_group("connectivity 4");
    group.sample_size(10);
    for states in [50, 200, 1000, 5000] {
        let m = random_cmdp(states);
        let uniform = Policy::uniform(states, 4).unwrap();
        let mut evaluator = Evaluator::new(states);
        let found = evaluator.evaluate(&m, &uniform).unwrap();
        let limits = [0.8 * found.costs[0]];
        let data = found.occupancy;
        let problem = problem(&m, &data, &limits, 0.01);
        let effort = Effort::default();
        let samples = Samples::from_model(&m, &data).unwrap();
        let bound = BoundProblem {
            samples: &samples,
            epsilon: 1e-3,
            weight_floor: 0.0,
            costs: m.costs(),
            last_step_credits: &[0.0],
        };
        let naive = coptidice_naive(&problem, None, effort).unwrap();
        let id = |name: &str| BenchmarkId::new(name, states);
        group.bench_function(id("policy evaluation"), |b| {
            b.iter(|| evaluator.evaluate(&m, &uniform).unwrap())
        });
        let mut lp = LpSolver::new(states);
        group.bench_function(id("linear program"), |b| b.iter(|| lp.solve(&m, &limits).unwrap()));
        group.bench_function(id("COptiDICE, naive"), |b| {
            b.iter(|| coptidice_naive(&problem, None, effort).unwrap());
        });
        group.bench_function(id("cost bound alone"), |b| {
            b.iter(|| cost_bound(&m, &bound, 0, black_box(&naive.w), effort).unwrap());
        });
        group.bench_function(id("COptiDICE"), |b| {
            b.iter(|| coptidice(&problem, &bound, None, effort).unwrap())
        });
    }
    group.finish();
}

criterion_group!(benches, paper, scaling);
criterion_main!(benches);
