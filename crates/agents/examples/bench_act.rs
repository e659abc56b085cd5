//! Times acting; `cargo xtask bench-act` runs it.
//!
//! `bench_act THREADS SECONDS` prints one JSON object with an entry for each preset and shape: microseconds of one
//! action on one thread, actions per second in batches of 1024 on `THREADS` threads (an actor each, as in rollouts), the
//! operations in matrix products that this takes, and beside them the speed of the `gemm` crate at the same products, one
//! after the other, on the same threads. Medians over rounds that alternate between the two.
//!
//! The products of the paper's networks, 1024 wide, take nearly all of a batch's time, which is that of `gemm`. Of the
//! default preset's, 128 wide, they take two fifths, and less than `gemm` does; layer normalisation with its `tanh` takes
//! another third, the mean of the mixture an eighth (of 21 action dimensions a half), and checking that every number is
//! finite a fifteenth.

use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant};

use coptidice_agents::policy::{Acting, Actor, Head, Normalizer, Policy, PolicyAbout, PolicyParts};
use coptidice_agents::{LogFacts, RawConfig, TrainConfig};
use coptidice_core::EpisodeHorizon;
use coptidice_core::rng::{Rng, stream};
use coptidice_nn::{BlockSpec, Network, NetworkSpec, Pool};
use rayon::prelude::*;

const BATCH: usize = 1024;
/// Observation and action components: the smallest and the largest of the paper's tasks.
const SHAPES: [(usize, usize); 2] = [(14, 1), (67, 21)];

fn config(preset: &str) -> Result<TrainConfig, Box<dyn Error>> {
    let facts = LogFacts {
        cost_names: Vec::new(),
        horizon: EpisodeHorizon::Fixed(1000.0),
        always_terminal: false,
        any_terminal: false,
        discrete: false,
        noisy: false,
    };
    Ok(RawConfig::from_toml(&format!("algo = \"bc\"\npreset = \"{preset}\""))?.validate(&facts)?)
}

fn policy(config: &TrainConfig, observation: usize, action_dim: usize) -> Result<Policy, Box<dyn Error>> {
    let networks = &config.networks;
    let components = networks.mixture_components;
    let head = Head::Mixture { action_dim, components, min_scale: networks.min_scale };
    let spec = NetworkSpec { input: observation, blocks: networks.policy.clone(), output: head.outputs() };
    let network = Network::new(spec)?;
    Ok(Policy::new(PolicyParts {
        params: network.init(&mut stream(0, "bench", 0)),
        network,
        head,
        normalizer: Normalizer::identity(observation),
        acting: Acting::Mean,
        action_low: vec![-1.0; action_dim],
        action_high: vec![1.0; action_dim],
        action_unit: None,
        selector: None,
        about: PolicyAbout::new("bench", 0, 0, "none"),
    })?)
}

/// Depth and width of the matrix products of a forward pass, in their order.
fn products(input: usize, blocks: &[BlockSpec], output: usize) -> Vec<(usize, usize)> {
    let mut depth = input;
    let mut products = Vec::new();
    for block in blocks {
        match *block {
            BlockSpec::Dense { width, .. } => {
                products.push((depth, width));
                depth = width;
            }
            BlockSpec::Residual { width } => products.extend([(depth, width), (width, width)]),
        }
    }
    products.push((depth, output));
    products
}

/// The products alone, by the `gemm` crate, the rows shared out among the threads.
struct Gemm {
    products: Vec<(usize, usize)>,
    left: Vec<f32>,
    right: Vec<f32>,
    out: Vec<f32>,
    /// Rows of one thread.
    rows: usize,
}

impl Gemm {
    fn new(products: Vec<(usize, usize)>, threads: usize) -> Self {
        let largest = |of: &dyn Fn(&(usize, usize)) -> usize| products.iter().map(of).max().unwrap_or(0);
        Gemm {
            left: vec![0.5; BATCH * largest(&|product| product.0)],
            right: vec![0.25; largest(&|product| product.0 * product.1)],
            out: vec![0.0; BATCH * largest(&|product| product.1)],
            rows: BATCH.div_ceil(threads.max(1)),
            products,
        }
    }

    fn operations(&self) -> f64 {
        self.products.iter().map(|&(depth, width)| 2.0 * (BATCH * depth * width) as f64).sum()
    }

    fn run(&mut self) {
        for &(depth, width) in &self.products {
            let right = &self.right[..depth * width];
            let left = self.left[..BATCH * depth].par_chunks(self.rows * depth);
            let out = self.out[..BATCH * width].par_chunks_mut(self.rows * width);
            out.zip(left).for_each(|(out, left)| multiply(out, left, right, depth, width));
        }
        black_box(&self.out);
    }
}

/// `out = left right`, all row-major: `[R, width]`, `[R, depth]`, `[depth, width]`.
fn multiply(out: &mut [f32], left: &[f32], right: &[f32], depth: usize, width: usize) {
    let rows = out.len() / width;
    assert!(left.len() == rows * depth && right.len() == depth * width);
    // SAFETY: the three arrays have the shapes given, just checked, and the result is borrowed alone.
    unsafe {
        gemm::gemm(
            rows,
            width,
            depth,
            out.as_mut_ptr(),
            1,
            width as isize,
            false,
            left.as_ptr(),
            1,
            depth as isize,
            right.as_ptr(),
            1,
            width as isize,
            0.0,
            1.0,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}

/// One action for each observation, the rows shared out among the actors.
fn act(actors: &mut [(Actor, Vec<Rng>)], observations: &[f32], actions: &mut [f32]) {
    let rows = BATCH.div_ceil(actors.len());
    let [columns, width] = [observations.len() / BATCH, actions.len() / BATCH];
    let shares = observations.par_chunks(rows * columns).zip(actions.par_chunks_mut(rows * width));
    actors.par_iter_mut().zip(shares).for_each(|((actor, rngs), (observations, actions))| {
        let rngs = &mut rngs[..actions.len() / width];
        actor.act_rows(observations, rngs, actions).expect("finite observations");
    });
    black_box(actions);
}

/// Seconds of one call, the mean over as many as fit the time.
fn time(duration: Duration, mut work: impl FnMut()) -> f64 {
    let (start, mut calls) = (Instant::now(), 0_u32);
    while start.elapsed() < duration {
        work();
        calls += 1;
    }
    start.elapsed().as_secs_f64() / f64::from(calls.max(1))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

fn measure(
    preset: &str,
    (observation_dim, action_dim): (usize, usize),
    threads: usize,
    seconds: f64,
) -> Result<serde_json::Value, Box<dyn Error>> {
    const ROUNDS: u32 = 5;
    let config = config(preset)?;
    let policy = policy(&config, observation_dim, action_dim)?;
    let pool = Pool::new(threads)?;
    let observations = vec![0.3; BATCH * observation_dim];
    let outputs = policy.head().outputs();
    let mut gemm = Gemm::new(products(observation_dim, &config.networks.policy, outputs), threads);
    let mut actor = policy.actor();
    let rows = BATCH.div_ceil(threads.max(1));
    let rngs = || (0..rows).map(|row| stream(0, "bench", row as u64)).collect();
    let mut actors: Vec<(Actor, Vec<Rng>)> = (0..threads.max(1)).map(|_| (policy.actor(), rngs())).collect();
    let mut actions = vec![0.0; BATCH * action_dim];
    let mut action = vec![0.0; action_dim];
    let mut rng = stream(0, "bench", 1);
    let share = Duration::from_secs_f64(seconds) / (3 * ROUNDS);
    let (mut single, mut batch, mut product) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        single.push(time(share, || {
            actor.act(&observations[..observation_dim], &mut rng, &mut action).expect("finite observations");
        }));
        batch.push(time(share, || pool.install(|| act(&mut actors, &observations, &mut actions))));
        product.push(time(share, || pool.install(|| gemm.run())));
    }
    let (single, batch, product) = (median(single), median(batch), median(product));
    Ok(serde_json::json!({
        "preset": preset,
        "observation_dim": observation_dim,
        "action_dim": action_dim,
        "microseconds_per_action": 1e6 * single,
        "actions_per_second_in_batches": BATCH as f64 / batch,
        "gflops": gemm.operations() / batch / 1e9,
        "gemm_gflops": gemm.operations() / product / 1e9,
        "share_of_gemm": product / batch,
    }))
}

#[allow(clippy::print_stdout)] // the line is the result
fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [threads, seconds] = &arguments[..] else { return Err("usage: bench_act THREADS SECONDS".into()) };
    let (threads, seconds) = (threads.parse()?, seconds.parse()?);
    let mut results = Vec::new();
    for preset in ["fast", "paper"] {
        for shape in SHAPES {
            results.push(measure(preset, shape, threads, seconds)?);
        }
    }
    println!(
        "{}",
        serde_json::json!({ "bench": "act", "batch": BATCH, "threads": threads, "results": results })
    );
    Ok(())
}
