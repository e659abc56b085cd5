//! Acts with a trained policy.
//!
//! ```text
//! cargo run --release --example act -p coptidice-agents -- RUN/policy.safetensors [OBSERVATIONS.csv] [mean|mode|component|sample]
//! ```
//!
//! Prints one line per action. Observations come from a headerless CSV file with one observation per line, or, without
//! a file, from the middle of the logged range; the time per step goes to the standard error.

use coptidice_agents::policy::{Acting, Policy};
use coptidice_core::rng::stream;
use std::error::Error;
use std::path::Path;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let usage = "usage: act POLICY.safetensors [OBSERVATIONS.csv] [mean|mode|component|sample]";
    let policy = Policy::load(Path::new(arguments.first().ok_or(usage)?)).map_err(explained)?;
    for limit in &policy.about().limits {
        eprintln!("trained to keep {} under {limit}", limit.cost);
    }

    let observations = match arguments.get(1) {
        Some(path) => read(&std::fs::read_to_string(path)?)?,
        None => vec![policy.normalizer().mean.clone()],
    };
    let acting = match arguments.get(2) {
        Some(name) => name.parse::<Acting>()?,
        None => policy.acting(),
    };

    let mut actor = policy.actor_with(acting);
    let mut rng = stream(0, "example", 0);
    let mut action = vec![0.0; policy.action_width()];
    let mut spent = std::time::Duration::ZERO;
    for observation in &observations {
        let start = Instant::now();
        actor.act(observation, &mut rng, &mut action)?;
        spent += start.elapsed();
        #[allow(clippy::print_stdout)] // the actions are the program's result
        {
            println!("{}", action.iter().map(f32::to_string).collect::<Vec<_>>().join(","));
        }
    }
    let steps = observations.len().max(1);
    eprintln!("{:.1} microseconds per step", spent.as_secs_f64() * 1e6 / steps as f64);
    Ok(())
}

fn read(text: &str) -> Result<Vec<Vec<f32>>, Box<dyn Error>> {
    let parse = |line: &str| line.split(',').map(|field| Ok(field.trim().parse()?)).collect();
    text.lines().filter(|line| !line.trim().is_empty()).map(parse).collect()
}

/// An error with its causes, one after the other.
fn explained(error: impl Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
