//! Steps per second of a whole training step on random data.
//!
//! `cargo run --release -p coptidice-agents --example step_rate -- PRESET OBSERVATION ACTION THREADS SECONDS`, for instance
//! `paper 14 1 2 20`; prints one JSON line. Rates are of whole steps: sampling, losses, all passes, optimisers.

use std::time::Instant;

use coptidice_agents::problem::Problem;
use coptidice_agents::sampler::Sampler;
use coptidice_agents::{LogFacts, RawConfig};
use coptidice_core::rng::stream;
use coptidice_data::{ActionSpace, Schema, Step, StepAction, Transitions, TransitionsBuilder};
use coptidice_nn::Pool;
use rand::RngExt as _;

fn random_log(observation: usize, action: usize) -> Transitions {
    let schema = Schema {
        observation_dim: observation,
        action: ActionSpace::Continuous { dim: action },
        cost_names: vec!["cost".to_owned()],
        propensity: false,
    };
    let mut builder = TransitionsBuilder::new(schema).expect("a valid schema");
    let mut rng = stream(0, "random log", 0);
    let mut draw = |n: usize| -> Vec<f32> { (0..n).map(|_| rng.random_range(-1.7..1.7)).collect() };
    let mut state = draw(observation);
    for row in 0..100_000 {
        let next = draw(observation);
        let row = Step {
            observation: &state,
            action: StepAction::Continuous(&draw(action)),
            reward: draw(1)[0].abs(),
            costs: &[f32::from(u8::from(draw(1)[0] > 1.36))],
            next_observation: &next,
            terminal: false,
            timeout: row % 1000 == 999,
            propensity: None,
        };
        builder.push(&row).expect("a row of the schema");
        state = next;
    }
    builder.finish().expect("a log with rows")
}

#[allow(clippy::print_stdout)] // the line is the result
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let preset = words.next().unwrap_or_else(|| "fast".to_owned());
    let mut number = |default: usize| words.next().map_or(Ok(default), |word| word.parse::<usize>());
    let (observation, action, threads, seconds) = (number(14)?, number(1)?, number(2)?, number(10)?);
    let data = random_log(observation, action);
    let text = format!("preset = \"{preset}\"\n[[limits]]\nlimit = 0.1\nunit = \"step\"\n");
    let config = RawConfig::from_toml(&text)?.validate(&LogFacts::of(&data))?;
    let problem = Problem::new(&config, &data)?;
    let mut learner = (config.algo.entry().build)(&problem)?;
    let mut sampler = Sampler::new(&problem);
    let pool = Pool::new(threads)?;
    let mut times = Vec::new();
    let start = Instant::now();
    let mut step = 0;
    while start.elapsed().as_secs_f64() < seconds as f64 || times.len() < 5 {
        let before = Instant::now();
        let batch = sampler.draw(step);
        pool.install(|| learner.step(batch, &pool));
        learner.health().map_err(|bad| format!("{} = {}", bad.quantity, bad.value))?;
        if step >= 3 {
            times.push(before.elapsed().as_secs_f64());
        }
        step += 1;
    }
    times.sort_unstable_by(f64::total_cmp);
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    println!(
        "{{\"preset\":\"{preset}\",\"observation\":{observation},\"action\":{action},\"threads\":{threads},\
         \"batch\":{},\"steps\":{},\"steps_per_second\":{:.3},\"best_ms\":{:.2},\"p90_ms\":{:.2}}}",
        config.batch_size,
        times.len(),
        1.0 / at(0.5),
        1e3 * at(0.0),
        1e3 * at(0.9)
    );
    Ok(())
}
