//! `cargo xtask bench-rollout`: how fast policies are rolled out in the simulators, beside their physics.

use clap::Args;
use serde_json::Value;

use crate::Failure;
use crate::examples::Example;

/// What to measure, and for how long.
#[derive(Args)]
pub(crate) struct BenchRollout {
    /// Threads of the rollouts; rates are of each
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Seconds for each task and network
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Only tasks whose name contains this
    #[arg(long, default_value = "")]
    only: String,
}

#[allow(clippy::print_stdout)] // the table and the JSON line are the result
pub(crate) fn run(options: &BenchRollout) -> Result<(), Failure> {
    let features: &[&str] = if crate::mujoco::is_linked() { &["mujoco"] } else { &[] };
    let example = Example { package: "coptidice", name: "bench_rollout", features };
    if features.is_empty() {
        eprintln!("without the tasks on MuJoCo; `cargo xtask mujoco` adds them");
    }
    example.build()?;
    let result =
        example.measure(&[options.threads.to_string(), options.seconds.to_string(), options.only.clone()])?;
    println!("steps per second and thread");
    println!(
        "{:<28} {:<6} {:>10} {:>10} {:>10} {:>10} {:>8} {:>10} {:>9}",
        "task", "net", "physics", "no policy", "in step", "one by one", "share", "us/action", "GFLOP/s"
    );
    for case in result["results"].as_array().into_iter().flatten() {
        println!("{}", row(case));
    }
    println!("{result}");
    Ok(())
}

fn row(case: &Value) -> String {
    let number = |key: &str, digits: usize| format!("{:.digits$}", case[key].as_f64().unwrap_or(f64::NAN));
    let text = |key: &str| case[key].as_str().unwrap_or_default().to_owned();
    format!(
        "{:<28} {:<6} {:>10} {:>10} {:>10} {:>10} {:>8} {:>10} {:>9}",
        text("environment"),
        text("network"),
        number("physics_steps_per_second", 0),
        number("episode_steps_per_second", 0),
        number("rollout_steps_per_second", 0),
        number("one_by_one_steps_per_second", 0),
        number("share_of_physics", 2),
        number("microseconds_per_action_in_step", 2),
        number("gflops_in_step", 1),
    )
}
