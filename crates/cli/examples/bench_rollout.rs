//! Times rollouts; `cargo xtask bench-rollout` runs it.
//!
//! `bench_rollout THREADS SECONDS ONLY` prints one JSON object with an entry for each task that this build can run, whose
//! name contains ONLY, and each network: steps per second and thread of the physics alone, of whole episodes under an
//! actor that costs nothing, and of rollouts under a policy, its network serving all episodes in step or one after the
//! other; what a pass of the network costs by itself, in time and in operations of its matrix products. Medians over
//! rounds that alternate.

use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant};

use coptidice_agents::policy::{Acting, Actor, Head, Normalizer, Policy, PolicyAbout, PolicyParts};
use coptidice_agents::{LogFacts, RawConfig};
use coptidice_core::EpisodeHorizon;
use coptidice_core::rng::{Rng, stream};
use coptidice_nn::{Activation, BlockSpec, Network, NetworkSpec};
use coptidice_sim::{
    ActionSpec, CrewSource, Environment, EpisodeSink, Episodes, PerRow, PerThread, StepView, make, registry,
    run_episodes,
};
use rand::RngExt;

/// Most episodes in step on each thread, and fewest where steps are slow.
const MOST_ROWS: usize = 64;
const FEWEST_ROWS: usize = 8;
const ROUNDS: u32 = 5;

/// Hidden layers and their name.
type Hidden = (&'static str, Vec<BlockSpec>);

/// Those measured.
fn networks() -> Result<[Hidden; 2], Box<dyn Error>> {
    let facts = LogFacts {
        cost_names: Vec::new(),
        horizon: EpisodeHorizon::Fixed(1000.0),
        always_terminal: false,
        any_terminal: false,
        discrete: false,
        noisy: false,
    };
    let config = RawConfig::from_toml("algo = \"bc\"\npreset = \"fast\"")?.validate(&facts)?;
    let dense = BlockSpec::Dense { width: 256, layer_norm: false, activation: Activation::Relu };
    Ok([("fast", config.networks.policy), ("2x256", vec![dense; 2])])
}

fn policy(env: &dyn Environment, blocks: Vec<BlockSpec>) -> Result<Policy, Box<dyn Error>> {
    let spec = env.spec();
    let ActionSpec::Continuous { low, high } = &spec.action else { return Err("a continuous task".into()) };
    let head = Head::Mixture { action_dim: low.len(), components: 5, min_scale: 1e-2 };
    let network =
        Network::new(NetworkSpec { input: spec.observation_dim(), blocks, output: head.outputs() })?;
    let narrow = |bounds: &[f64]| bounds.iter().map(|&bound| bound as f32).collect();
    Ok(Policy::new(PolicyParts {
        params: network.init(&mut stream(0, "bench", 0)),
        network,
        head,
        normalizer: Normalizer::identity(spec.observation_dim()),
        acting: Acting::Sample,
        action_low: narrow(low),
        action_high: narrow(high),
        action_unit: None,
        selector: None,
        about: PolicyAbout::new("bench", 0, 0, "none"),
    })?)
}

/// Operations in the matrix products of a pass of one row: two for each weight.
fn operations(network: &Network) -> usize {
    network.layout().iter().filter(|slice| slice.shape.len() == 2).map(|slice| 2 * slice.len).sum()
}

/// Sums up, so that nothing is left out as unused.
struct Total(f64);

impl EpisodeSink for Total {
    fn step(&mut self, step: &StepView<'_>) {
        self.0 += step.reward;
    }
}

/// Steps per second and thread of whole episodes.
fn rollouts(
    env: &dyn Environment,
    crews: &impl CrewSource,
    rows: usize,
    threads: usize,
    share: Duration,
) -> f64 {
    let (start, mut rounds) = (Instant::now(), 0);
    let count = rows * threads;
    while start.elapsed() < share {
        let totals =
            run_episodes(env, crews, Episodes { count, seed: 0, first: rounds * count as u64 }, |_| {
                Total(0.0)
            });
        black_box(totals.map(|totals| totals.iter().map(|total| total.0).sum::<f64>()).is_ok());
        rounds += 1;
    }
    (rounds as usize * rows * env.spec().horizon) as f64 / start.elapsed().as_secs_f64()
}

/// Steps per second of one environment on this thread, nothing read, under uniform actions drawn before.
fn physics(env: &dyn Environment, share: Duration) -> f64 {
    let mut env = env.fresh();
    let horizon = env.spec().horizon;
    let ActionSpec::Continuous { low, high } = env.spec().action.clone() else { return f64::NAN };
    let mut rng = stream(0, "bench", 1);
    let mut draw = |(low, high): (&f64, &f64)| rng.random_range(*low..=*high);
    let actions: Vec<Vec<f64>> =
        (0..horizon).map(|_| low.iter().zip(&high).map(&mut draw).collect()).collect();
    let (start, mut steps) = (Instant::now(), 0);
    while start.elapsed() < share {
        env.reset(&mut stream(0, "bench", 2));
        for action in &actions {
            black_box(env.step(action));
        }
        steps += horizon;
    }
    steps as f64 / start.elapsed().as_secs_f64()
}

/// Seconds of one action in a pass of as many as run in step.
fn pass(actor: &mut Actor, observation: &[f32], rows: usize, share: Duration) -> Result<f64, Box<dyn Error>> {
    let mut rngs: Vec<Rng> = (0..rows as u64).map(|row| stream(0, "bench", row)).collect();
    let observations = observation.repeat(rows);
    let mut actions = vec![0.0; rows * actor.policy().action_width()];
    let (start, mut passes) = (Instant::now(), 0_u32);
    while start.elapsed() < share {
        actor.act_rows(&observations, &mut rngs, &mut actions)?;
        passes += 1;
    }
    Ok(start.elapsed().as_secs_f64() / f64::from(passes) / rows as f64)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

fn measure(
    env: &dyn Environment,
    (name, blocks): Hidden,
    threads: usize,
    seconds: f64,
) -> Result<serde_json::Value, Box<dyn Error>> {
    let policy = policy(env, blocks)?;
    let actor = policy.actor();
    let act = "observations of the task are finite";
    let together = PerThread(|| {
        let mut actor = actor.clone();
        move |observations: &[f32], rngs: &mut [Rng], actions: &mut [f32]| {
            actor.act_rows(observations, rngs, actions).expect(act);
        }
    });
    let one_by_one = PerRow(|| {
        let mut actor = actor.clone();
        move |observation: &[f32], rng: &mut Rng, action: &mut [f32]| {
            actor.act(observation, rng, action).expect(act);
        }
    });
    let idle = |_: &[f32], rng: &mut Rng, action: &mut [f32]| action.fill(rng.random_range(-1.0..1.0));
    let share = Duration::from_secs_f64(seconds) / (5 * ROUNDS);
    // About as many episodes as fit the time.
    let fitting = physics(env, share) * share.as_secs_f64() / env.spec().horizon as f64;
    let rows = (fitting as usize).clamp(FEWEST_ROWS, MOST_ROWS);
    let mut rates: [Vec<f64>; 5] = Default::default();
    for _ in 0..ROUNDS {
        let observation = vec![0.3; env.spec().observation_dim()];
        let round = [
            physics(env, share),
            rollouts(env, &idle, rows, threads, share),
            rollouts(env, &together, rows, threads, share),
            rollouts(env, &one_by_one, rows, threads, share),
            pass(&mut actor.clone(), &observation, rows, share)?,
        ];
        for (rates, rate) in rates.iter_mut().zip(round) {
            rates.push(rate);
        }
    }
    let [physics, episodes, together, one_by_one, pass] = rates.map(median);
    let operations = operations(policy.network());
    Ok(serde_json::json!({
        "environment": env.spec().name,
        "network": name,
        "in_step": rows,
        "physics_steps_per_second": physics,
        "episode_steps_per_second": episodes,
        "rollout_steps_per_second": together,
        "one_by_one_steps_per_second": one_by_one,
        "share_of_physics": together / physics,
        "microseconds_per_physics_step": 1e6 / physics,
        "microseconds_per_action_in_step": 1e6 * pass,
        "operations_per_action": operations,
        "gflops_in_step": operations as f64 / pass / 1e9,
    }))
}

#[allow(clippy::print_stdout)] // the line is the result
fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [threads, seconds, only] = &arguments[..] else {
        return Err("usage: bench_rollout THREADS SECONDS ONLY".into());
    };
    let (threads, seconds): (usize, f64) = (threads.parse()?, seconds.parse()?);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build()?;
    let mut results = Vec::new();
    for entry in registry::ENTRIES
        .iter()
        .filter(|entry| entry.is_available() && entry.name.starts_with("rwrl/") && entry.name.contains(only))
    {
        let env = make(entry.name)?;
        for network in networks()? {
            let result =
                pool.install(|| measure(env.as_ref(), network, threads, seconds).map_err(|e| e.to_string()))?;
            results.push(result);
        }
    }
    println!("{}", serde_json::json!({ "bench": "rollout", "threads": threads, "results": results }));
    Ok(())
}
