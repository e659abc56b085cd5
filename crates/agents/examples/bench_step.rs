//! Times one training step on random data; `cargo xtask bench-step` runs it beside its yardstick.
//!
//! `bench_step SETTING OBSERVATION ACTION BATCH THREADS SECONDS ROWS PRECISION`, with precision `f32` or `bf16` and setting
//! - `paper`: the whole step of the learner, sampling included, with the paper's networks;
//! - `paper-worst`: the same with every sample over the bound of the gradient penalty, so that no work is spared;
//! - `pairs`: two `nu` and two `chi` with two hidden layers of 256 ReLU units and a policy of the same size, no penalty.
//!
//! Prints one JSON object: steps, seconds per step (median and best), operations per step, peak resident memory, and in
//! the setting `paper` the median seconds that drawing a batch takes from memory and from memory-mapped columns.

use std::error::Error;
use std::time::Instant;

use coptidice_agents::coptidice::losses::{Bound, BoundLoss, bound_loss, flow_loss};
use coptidice_agents::policy::Head;
use coptidice_agents::problem::Problem;
use coptidice_agents::sampler::{Batch, Sampler};
use coptidice_agents::{LogFacts, RawConfig};
use coptidice_core::Divergence;
use coptidice_core::rng::stream;
use coptidice_data::{
    ActionSpace, CheckOptions, ReadOptions, Schema, Step, StepAction, Transitions, TransitionsBuilder,
    WriteOptions, load, write,
};
use coptidice_nn::{Activation, Adam, BlockSpec, Cache, Network, NetworkSpec, Pool, Precision};
use rand::RngExt as _;

struct Arguments {
    setting: String,
    observation: usize,
    action: usize,
    batch: usize,
    threads: usize,
    seconds: f64,
    rows: usize,
    precision: Precision,
}

impl Arguments {
    fn read() -> Result<Self, Box<dyn Error>> {
        let words: Vec<String> = std::env::args().skip(1).collect();
        let [setting, observation, action, batch, threads, seconds, rows, precision] = &words[..] else {
            return Err(
                "usage: bench_step SETTING OBSERVATION ACTION BATCH THREADS SECONDS ROWS PRECISION".into()
            );
        };
        Ok(Arguments {
            setting: setting.clone(),
            observation: observation.parse()?,
            action: action.parse()?,
            batch: batch.parse()?,
            threads: threads.parse()?,
            seconds: seconds.parse()?,
            rows: rows.parse()?,
            precision: match precision.as_str() {
                "f32" => Precision::F32,
                "bf16" => Precision::Bf16,
                other => return Err(format!("precision {other:?}; use f32 or bf16").into()),
            },
        })
    }
}

fn random_log(arguments: &Arguments) -> Result<Transitions, Box<dyn Error>> {
    let schema = Schema {
        observation_dim: arguments.observation,
        action: ActionSpace::Continuous { dim: arguments.action },
        cost_names: vec!["cost".to_owned()],
        propensity: false,
    };
    let mut builder = TransitionsBuilder::new(schema)?;
    let mut rng = stream(0, "random log", 0);
    let mut fill = |values: &mut [f32]| values.fill_with(|| rng.random_range(-1.7..1.7));
    let (mut state, mut next) = (vec![0.0; arguments.observation], vec![0.0; arguments.observation]);
    let (mut action, mut scalars) = (vec![0.0; arguments.action], [0.0; 2]);
    fill(&mut state);
    for row in 0..arguments.rows {
        fill(&mut next);
        fill(&mut action);
        fill(&mut scalars);
        builder.push(&Step {
            observation: &state,
            action: StepAction::Continuous(&action),
            reward: scalars[0].abs() / 1.7,
            costs: &[f32::from(u8::from(scalars[1] > 1.36))],
            next_observation: &next,
            terminal: false,
            timeout: row % 1000 == 999,
            propensity: None,
        })?;
        std::mem::swap(&mut state, &mut next);
    }
    Ok(builder.finish()?)
}

/// Steps until the time is over; seconds of each, sorted, the first three left out.
fn time(
    seconds: f64,
    mut step: impl FnMut(u64) -> Result<(), Box<dyn Error>>,
) -> Result<Vec<f64>, Box<dyn Error>> {
    for warm in 0..3 {
        step(warm)?;
    }
    let (mut times, begin) = (Vec::new(), Instant::now());
    while begin.elapsed().as_secs_f64() < seconds || times.len() < 3 {
        let start = Instant::now();
        step(times.len() as u64 + 3)?;
        times.push(start.elapsed().as_secs_f64());
    }
    times.sort_unstable_by(f64::total_cmp);
    Ok(times)
}

/// Multiplications and additions in the products of one forward pass over `rows` rows.
fn forward_operations(input: usize, blocks: &[BlockSpec], output: usize, rows: usize) -> f64 {
    let mut width = input;
    let mut weights = 0;
    for block in blocks {
        match *block {
            BlockSpec::Dense { width: units, .. } => {
                weights += width * units;
                width = units;
            }
            BlockSpec::Residual { width: units } => weights += 2 * width * units,
        }
    }
    2.0 * (weights + width * output) as f64 * rows as f64
}

struct Measured {
    times: Vec<f64>,
    /// Operations in matrix products per step, as carried out.
    operations: f64,
    /// The same if nothing were spared.
    nominal: f64,
    peak_memory_mb: Option<f64>,
    /// Median seconds of drawing a batch, from memory and from memory-mapped columns.
    sampling: Option<[f64; 2]>,
}

/// Batches whose drawing is timed.
const DRAWS: u64 = 200;

fn seconds_of_a_draw(problem: &Problem<'_>) -> f64 {
    let mut sampler = Sampler::new(problem);
    let mut times: Vec<f64> = (0..DRAWS)
        .map(|step| {
            let start = Instant::now();
            std::hint::black_box(sampler.draw(step));
            start.elapsed().as_secs_f64()
        })
        .collect();
    times.sort_unstable_by(f64::total_cmp);
    times[times.len() / 2]
}

/// From memory, then from the same columns mapped.
fn sampling(problem: &Problem<'_>) -> Result<[f64; 2], Box<dyn Error>> {
    let from_memory = seconds_of_a_draw(problem);
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("log");
    write(problem.data, &path, &WriteOptions::default())?;
    let log = load(&path, &ReadOptions::default(), &CheckOptions::default())?;
    let mapped = seconds_of_a_draw(&Problem::new(problem.config, &log.transitions)?);
    Ok([from_memory, mapped])
}

/// The learner's whole step.
fn paper(arguments: &Arguments, worst: bool) -> Result<Measured, Box<dyn Error>> {
    let data = random_log(arguments)?;
    let bound = if worst { "[gradient_penalty]\nbound = 1e-30\n" } else { "" };
    let text = format!(
        "preset = \"paper\"\nbatch_size = {}\nprecision = \"{}\"\n{bound}[[limits]]\nlimit = 0.1\nunit = \"step\"\n",
        arguments.batch,
        arguments.precision.name()
    );
    let config = RawConfig::from_toml(&text)?.validate(&LogFacts::of(&data))?;
    let problem = Problem::new(&config, &data)?;
    let mut learner = (config.algo.entry().build)(&problem)?;
    let mut sampler = Sampler::new(&problem);
    let pool = Pool::new(arguments.threads)?;
    let norms = ["penalty/nu_norm", "penalty/chi_norm"].map(|name| {
        learner
            .metric_names()
            .iter()
            .position(|metric| metric == name)
            .ok_or("the penalty's norms are reported")
    });
    let norms = [norms[0]?, norms[1]?];
    let mut over = [0_u64; 2];
    let mut steps = 0_u64;
    let times = time(arguments.seconds, |step| {
        let batch = sampler.draw(step);
        pool.install(|| learner.step(batch, &pool));
        for (count, metric) in over.iter_mut().zip(norms) {
            *count += u64::from(learner.metrics()[metric] > f64::from(config.gradient_penalty.bound));
        }
        steps += 1;
        learner.health().map_err(|bad| format!("{} = {}", bad.quantity, bad.value).into())
    })?;
    let (input, size) = (arguments.observation, arguments.batch);
    let value = forward_operations(input, &config.networks.value, 1, size);
    let head = Head::Mixture {
        action_dim: arguments.action,
        components: config.networks.mixture_components,
        min_scale: 1.0,
    };
    let policy = 3.0 * forward_operations(input, &config.networks.policy, head.outputs(), size);
    // Three batches forward and backward; the penalty's first-order pass, and where some sample is over the bound at
    // most four times as much again for the tangents.
    let share = over.iter().map(|&count| count as f64).sum::<f64>() / (2 * steps) as f64;
    let values = |share: f64| 2.0 * value * (9.0 + 2.0 + 4.0 * share);
    let peak_memory_mb = peak_memory_mb();
    let sampling = if worst { None } else { Some(sampling(&problem)?) };
    let (operations, nominal) = (policy + values(share), policy + values(1.0));
    Ok(Measured { times, operations, nominal, peak_memory_mb, sampling })
}

struct Trained {
    network: Network,
    params: Vec<f32>,
    grads: Vec<f32>,
    adam: Adam,
    cache: Cache,
    d_out: Vec<f32>,
}

impl Trained {
    fn new(
        input: usize,
        output: usize,
        batch: usize,
        index: u64,
        precision: Precision,
    ) -> Result<Self, Box<dyn Error>> {
        let relu = BlockSpec::Dense { width: 256, layer_norm: false, activation: Activation::Relu };
        let network = Network::new(NetworkSpec { input, blocks: vec![relu.clone(), relu], output })?;
        let params = network.init(&mut stream(0, "network", index));
        let (grads, adam) = (vec![0.0; params.len()], Adam::new(params.len(), 3e-4));
        let (cache, d_out) = (network.cache_in(batch, precision)?, vec![0.0; batch * output]);
        Ok(Trained { network, params, grads, adam, cache, d_out })
    }

    fn update(&mut self, x: &[f32], batch: usize, pool: &Pool, loss: impl FnOnce(&[f32], &mut [f32])) {
        let Trained { network, params, grads, adam, cache, d_out } = self;
        loss(network.forward(params, x, batch, cache, pool), d_out);
        network.backward_overwrite(params, x, d_out, batch, cache, grads, None, pool);
        adam.update(params, grads, pool);
    }
}

struct Pairs {
    nus: [Trained; 2],
    chis: [Trained; 2],
    policy: Trained,
    head: Head,
    e: Vec<f32>,
    w: Vec<f32>,
    ell: Vec<f64>,
}

impl Pairs {
    fn step(&mut self, batch: &Batch, pool: &Pool) {
        let (size, samples) = (batch.size, batch.samples());
        for (nu, chi) in self.nus.iter_mut().zip(&mut self.chis) {
            nu.update(&batch.states, 3 * size, pool, |nu, d_nu| {
                let (e, w) = (&mut self.e, &mut self.w);
                flow_loss(samples, nu, &[1.0], &[0.1], 0.0, 0.01, Divergence::SoftChi, None, e, w, d_nu);
            });
            chi.update(&batch.states, 3 * size, pool, |chi, d_chi| {
                let mut bounds = [Bound::default()];
                bound_loss(
                    samples,
                    &self.w,
                    chi,
                    &[1.0],
                    &[],
                    0.01,
                    BoundLoss::Paper,
                    &mut self.ell,
                    d_chi,
                    &mut bounds,
                );
            });
        }
        let (head, w) = (&self.head, &self.w);
        self.policy.update(batch.current_states(), size, pool, |outputs, d_out| {
            head.weighted_nll(outputs, batch.action_batch(), w, d_out, pool);
        });
    }
}

fn pairs(arguments: &Arguments) -> Result<Measured, Box<dyn Error>> {
    let data = random_log(arguments)?;
    let (input, size) = (arguments.observation, arguments.batch);
    let text = format!("preset = \"paper\"\nbatch_size = {size}\n[[limits]]\nlimit = 0.1\nunit = \"step\"\n");
    let config = RawConfig::from_toml(&text)?.validate(&LogFacts::of(&data))?;
    let problem = Problem::new(&config, &data)?;
    let mut sampler = Sampler::new(&problem);
    let pool = Pool::new(arguments.threads)?;
    let head = Head::Mixture { action_dim: arguments.action, components: 5, min_scale: 1e-4 };
    let value = |index| Trained::new(input, 1, 3 * size, index, arguments.precision);
    let mut pairs = Pairs {
        nus: [value(0)?, value(1)?],
        chis: [value(2)?, value(3)?],
        policy: Trained::new(input, head.outputs(), size, 4, arguments.precision)?,
        e: vec![0.0; size],
        w: vec![0.0; size],
        ell: vec![0.0; size],
        head,
    };
    let times = time(arguments.seconds, |step| {
        let batch = sampler.draw(step);
        pool.install(|| pairs.step(batch, &pool));
        Ok(())
    })?;
    let blocks = &pairs.policy.network.spec().blocks;
    let operations = 4.0 * 3.0 * forward_operations(input, blocks, 1, 3 * size)
        + 3.0 * forward_operations(input, blocks, pairs.head.outputs(), size);
    let peak_memory_mb = peak_memory_mb();
    Ok(Measured { times, operations, nominal: operations, peak_memory_mb, sampling: None })
}

/// Peak resident memory, where the system tells.
fn peak_memory_mb() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().trim_end_matches("kB").trim().parse::<f64>().ok()? / 1024.0)
}

#[allow(clippy::print_stdout)] // the line is the result
fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::read()?;
    if !arguments.precision.is_available() {
        return Err("this processor lacks AVX512-BF16".into());
    }
    let Measured { times, operations, nominal, peak_memory_mb, sampling } = match arguments.setting.as_str() {
        "paper" => paper(&arguments, false)?,
        "paper-worst" => paper(&arguments, true)?,
        "pairs" => pairs(&arguments)?,
        other => return Err(format!("setting {other:?}; use paper, paper-worst or pairs").into()),
    };
    let line = serde_json::json!({
        "steps": times.len(),
        "median_seconds": times[times.len() / 2],
        "best_seconds": times[0],
        "gflop": operations / 1e9,
        "nominal_gflop": nominal / 1e9,
        "peak_memory_mb": peak_memory_mb,
        "sampling_seconds": sampling.map(|[memory, _]| memory),
        "mapped_sampling_seconds": sampling.map(|[_, mapped]| mapped),
    });
    println!("{line}");
    Ok(())
}
