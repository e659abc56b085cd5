//! The matrix work of one training step, with the shapes of the paper: `nu` and `chi` on three batches of states with
//! the gradient penalty, a policy on one, and Adam on all. Prints seconds per part; for profiles.
//!
//! usage: `cargo run --release -p coptidice-nn --example step -- [observation width] [threads] [seconds] [batch of
//! small networks, or 0] [bf16]`

use coptidice_core::rng::stream;
use coptidice_nn::{Activation, Adam, BlockSpec, Cache, Network, NetworkSpec, Pool, Precision};
use rand::RngExt;
use std::time::Instant;

struct Trained {
    network: Network,
    params: Vec<f32>,
    grads: Vec<f32>,
    adam: Adam,
    cache: Cache,
}

impl Trained {
    fn new(input: usize, blocks: Vec<BlockSpec>, output: usize, batch: usize, precision: Precision) -> Self {
        let network = Network::new(NetworkSpec { input, blocks, output }).expect("widths are positive");
        let params = network.init(&mut stream(0, "init", 0));
        let (grads, adam) = (vec![0.0; params.len()], Adam::new(params.len(), 3e-4));
        let cache = network.cache_in(batch, precision).expect("the processor has the precision");
        Self { network, params, grads, adam, cache }
    }

    /// Forward and backward with a step of Adam in it.
    fn descend(&mut self, x: &[f32], d_out: &[f32], batch: usize, times: &mut [f64; 5], pool: &Pool) {
        let start = Instant::now();
        self.network.forward(&self.params, x, batch, &mut self.cache, pool);
        times[0] += start.elapsed().as_secs_f64();
        let start = Instant::now();
        let Self { network, params, cache, adam, .. } = self;
        network.descend(params, x, d_out, batch, cache, adam, pool);
        times[1] += start.elapsed().as_secs_f64();
    }

    fn pass(&mut self, x: &[f32], d_out: &[f32], batch: usize, times: &mut [f64; 5], pool: &Pool) {
        let start = Instant::now();
        self.network.forward(&self.params, x, batch, &mut self.cache, pool);
        times[0] += start.elapsed().as_secs_f64();
        let start = Instant::now();
        self.network.backward(&self.params, x, d_out, batch, &mut self.cache, &mut self.grads, None, pool);
        times[1] += start.elapsed().as_secs_f64();
    }
}

fn dense(width: usize, layer_norm: bool, activation: Activation) -> BlockSpec {
    BlockSpec::Dense { width, layer_norm, activation }
}

#[allow(clippy::print_stdout)] // the result of the command
fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number =
        |index: usize, default: usize| arguments.get(index).and_then(|a| a.parse().ok()).unwrap_or(default);
    let (input, threads, seconds) = (number(0, 14), number(1, 2), number(2, 5) as f64);
    let small = number(3, 0);
    let bf16 = arguments.get(4).is_some_and(|word| word == "bf16");
    let precision = if bf16 { Precision::Bf16 } else { Precision::F32 };
    let pool = Pool::new(threads).expect("threads start");
    let batch = if small == 0 { 1024 } else { small };
    let relu = || vec![dense(256, false, Activation::Relu), dense(256, false, Activation::Relu)];
    let value = || match small {
        0 => vec![
            dense(512, true, Activation::Tanh),
            dense(512, false, Activation::Elu),
            dense(256, false, Activation::Elu),
        ],
        _ => relu(),
    };
    let mut policy_blocks =
        vec![dense(300, true, Activation::Tanh), dense(1024, false, Activation::Identity)];
    policy_blocks.extend((0..4).map(|_| BlockSpec::Residual { width: 1024 }));
    if small > 0 {
        policy_blocks = relu();
    }
    let mut values: Vec<Trained> = (0..if small == 0 { 2 } else { 4 })
        .map(|_| Trained::new(input, value(), 1, 3 * batch, precision))
        .collect();
    let mut policy = Trained::new(input, policy_blocks, 15, batch, precision);
    let mut rng = stream(0, "data", 0);
    let x: Vec<f32> = (0..3 * batch * input).map(|_| rng.random::<f32>() * 2.0 - 1.0).collect();
    let d_out: Vec<f32> = (0..batch * 15).map(|_| (rng.random::<f32>() - 0.5) / batch as f32).collect();
    let mut steps = Vec::new();
    let mut times = [[0.0; 5]; 2];
    let mut exceeding = 0;
    let begin = Instant::now();
    while begin.elapsed().as_secs_f64() < seconds {
        let start = Instant::now();
        for trained in &mut values {
            let times = &mut times[0];
            let zero = Instant::now();
            trained.grads.fill(0.0);
            times[3] += zero.elapsed().as_secs_f64();
            trained.pass(&x, &d_out[..3 * batch], 3 * batch, times, &pool);
            let mix = Instant::now();
            let Trained { network, params, grads, cache, .. } = trained;
            let x = &x[..batch * input];
            exceeding += network.gradient_penalty(params, x, batch, 1e-5, 0.5, cache, grads, &pool).exceeding;
            times[2] += mix.elapsed().as_secs_f64();
            let adam = Instant::now();
            trained.adam.update(&mut trained.params, &trained.grads, &pool);
            times[4] += adam.elapsed().as_secs_f64();
        }
        policy.descend(&x[..batch * input], &d_out, batch, &mut times[1], &pool);
        steps.push(start.elapsed().as_secs_f64());
    }
    steps.sort_by(f64::total_cmp);
    let n = steps.len();
    println!("{n} steps, median {:.1} ms, best {:.1} ms", steps[n / 2] * 1e3, steps[0] * 1e3);
    for (name, times) in ["values", "policy"].iter().zip(times) {
        let [forward, backward, penalty, zero, adam] = times.map(|t| t * 1e3 / n as f64);
        println!(
            "{name}: forward {forward:.1} backward {backward:.1} penalty {penalty:.1} zero {zero:.1} adam {adam:.1} ms"
        );
    }
    println!("{} of {} samples over the bound", exceeding / n / values.len(), batch);
}
