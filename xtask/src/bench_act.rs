//! `cargo xtask bench-act`: how fast policies act, one observation at a time and in batches.

use clap::Args;
use serde_json::Value;

use crate::Failure;
use crate::examples::Example;

/// What to measure, and for how long.
#[derive(Args)]
pub(crate) struct BenchAct {
    /// Threads for batches; one action always takes one
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Seconds for each preset and shape
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
}

#[allow(clippy::print_stdout)] // the table and the JSON line are the result
pub(crate) fn run(options: &BenchAct) -> Result<(), Failure> {
    let example = Example { package: "coptidice-agents", name: "bench_act", features: &[] };
    example.build()?;
    let result = example.measure(&[options.threads.to_string(), options.seconds.to_string()])?;
    println!(
        "{:<8} {:>12} {:>8} {:>14} {:>14} {:>9} {:>9} {:>6}",
        "preset", "observation", "action", "us per action", "actions/s", "GFLOP/s", "gemm", "share"
    );
    for case in result["results"].as_array().into_iter().flatten() {
        println!("{}", row(case));
    }
    println!("{result}");
    Ok(())
}

fn row(case: &Value) -> String {
    let number = |key: &str, digits: usize| format!("{:.digits$}", case[key].as_f64().unwrap_or(f64::NAN));
    format!(
        "{:<8} {:>12} {:>8} {:>14} {:>14} {:>9} {:>9} {:>6}",
        case["preset"].as_str().unwrap_or_default(),
        number("observation_dim", 0),
        number("action_dim", 0),
        number("microseconds_per_action", 2),
        number("actions_per_second_in_batches", 0),
        number("gflops", 1),
        number("gemm_gflops", 1),
        number("share_of_gemm", 2),
    )
}
