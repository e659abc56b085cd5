//! `cargo xtask bench-step`: the training step beside its yardstick, an eager PyTorch script of the same step.
//!
//! Both run with the same number of threads, one after the other, in rounds that alternate between them, so that what
//! else the machine does meets both. The figure of each is the median over rounds of the median step.

use std::process::Command;

use clap::Args;
use serde_json::{Value, json};

use crate::Failure;
use crate::examples::{Example, output, parse};

/// What to measure, and for how long.
#[derive(Args)]
pub(crate) struct BenchStep {
    /// Rounds of each case
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Seconds of each program in each round
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Numbers of threads
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2])]
    threads: Vec<usize>,
    /// Only cases whose name contains this
    #[arg(long, default_value = "")]
    only: String,
    /// Leave the yardstick out
    #[arg(long)]
    alone: bool,
    /// Precisions of products
    #[arg(long, value_delimiter = ',', default_values = ["f32", "bf16"])]
    precisions: Vec<String>,
}

struct Case {
    name: &'static str,
    /// Setting of our program, and of the script.
    settings: [&'static str; 2],
    observation: u32,
    action: u32,
    batch: u32,
    rows: u32,
}

/// `paper`: the networks of the paper's continuous-control experiments; `worst`: with all samples over the gradient penalty's
/// bound; `pairs`: two `nu` and two `chi` of 2x256 ReLU units.
const CASES: [Case; 5] = [
    Case::new("paper-14-1", ["paper", "paper"], 14, 1, 1024, 1_000_000),
    Case::new("paper-67-21", ["paper", "paper"], 67, 21, 1024, 100_000),
    Case::new("worst-14-1", ["paper-worst", "paper"], 14, 1, 1024, 100_000),
    Case::new("pairs-72-2-2048", ["pairs", "pairs"], 72, 2, 2048, 100_000),
    Case::new("pairs-72-2-512", ["pairs", "pairs"], 72, 2, 512, 100_000),
];

impl Case {
    const fn new(
        name: &'static str,
        settings: [&'static str; 2],
        observation: u32,
        action: u32,
        batch: u32,
        rows: u32,
    ) -> Self {
        Case { name, settings, observation, action, batch, rows }
    }
}

const STEP: Example<'_> = Example { package: "coptidice-agents", name: "bench_step", features: &[] };
const PEAK: Example<'_> = Example { package: "coptidice-nn", name: "peak", features: &[] };
const SCRIPT: &str = "benches/peers/torch_step.py";

#[allow(clippy::print_stdout)] // the table and the JSON line are the result
pub(crate) fn run(options: &BenchStep) -> Result<(), Failure> {
    STEP.build()?;
    PEAK.build()?;
    let python = if options.alone { None } else { find_torch() };
    let mut results = Vec::new();
    println!(
        "{:<16} {:>7} {:>5} {:>9} {:>9} {:>6} {:>9} {:>9} {:>6} {:>8} {:>8}",
        "case", "threads", "", "steps/s", "torch", "ratio", "GFLOP/s", "peak", "share", "MB", "torch MB"
    );
    for &threads in &options.threads {
        let mut peaks = Vec::new();
        for precision in &options.precisions {
            match peak(threads, precision)? {
                Some(peak) => peaks.push((precision.as_str(), peak)),
                None => eprintln!("this processor has no products in {precision}"),
            }
        }
        for case in CASES.iter().filter(|case| case.name.contains(&options.only)) {
            for result in measure(case, threads, &peaks, python.as_deref(), options)? {
                println!("{}", row(&result));
                results.push(result);
            }
        }
    }
    println!(
        "{}",
        json!({ "bench": "step", "rounds": options.rounds, "seconds": options.seconds, "results": results })
    );
    Ok(())
}

fn measure(
    case: &Case,
    threads: usize,
    peaks: &[(&str, f64)],
    python: Option<&str>,
    options: &BenchStep,
) -> Result<Vec<Value>, Failure> {
    let (mut ours, mut torch) = (vec![Vec::new(); peaks.len()], Vec::new());
    for _ in 0..options.rounds.max(1) {
        for (rounds, (precision, _)) in ours.iter_mut().zip(peaks) {
            rounds.push(our_round(case, threads, options.seconds, precision)?);
        }
        if let Some(python) = python {
            torch.push(torch_round(python, case, threads, options.seconds)?);
        }
    }
    ours.iter().zip(peaks).map(|(ours, peak)| summary(case, threads, *peak, ours, &torch)).collect()
}

/// Medians of the rounds in one precision beside those of the yardstick, which is in single precision.
fn summary(
    case: &Case,
    threads: usize,
    (precision, peak): (&str, f64),
    ours: &[Value],
    torch: &[Value],
) -> Result<Value, Failure> {
    let rate = 1.0 / median(ours, "median_seconds")?;
    let torch_rate = if torch.is_empty() { None } else { Some(1.0 / median(torch, "median_seconds")?) };
    let gflops = rate * median(ours, "gflop")?;
    Ok(json!({
        "case": case.name,
        "threads": threads,
        "precision": precision,
        "steps_per_second": rate,
        "best_steps_per_second": 1.0 / least(ours, "best_seconds")?,
        "torch_steps_per_second": torch_rate,
        "torch_best_steps_per_second": torch_rate.and_then(|_| least(torch, "best_seconds").ok()).map(f64::recip),
        "torch_version": torch.first().map(|round| round["version"].clone()),
        "ratio": torch_rate.map(|torch_rate| rate / torch_rate),
        "gflop_per_step": median(ours, "gflop")?,
        "gflop_per_step_if_nothing_were_spared": median(ours, "nominal_gflop")?,
        "gflops": gflops,
        "peak_gflops": peak,
        "share_of_peak": gflops / peak,
        "peak_memory_mb": median(ours, "peak_memory_mb").ok(),
        "sampling_seconds": median(ours, "sampling_seconds").ok(),
        "mapped_sampling_seconds": median(ours, "mapped_sampling_seconds").ok(),
        "torch_peak_memory_mb": median(torch, "peak_memory_mb").ok(),
    }))
}

/// One line of the table; a dash stands for what was not measured.
fn row(result: &Value) -> String {
    let number = |key: &str, digits: usize| {
        result[key].as_f64().map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
    };
    format!(
        "{:<16} {:>7} {:>5} {:>9} {:>9} {:>6} {:>9} {:>9} {:>6} {:>8} {:>8}",
        result["case"].as_str().unwrap_or_default(),
        number("threads", 0),
        result["precision"].as_str().unwrap_or_default(),
        number("steps_per_second", 2),
        number("torch_steps_per_second", 2),
        number("ratio", 2),
        number("gflops", 0),
        number("peak_gflops", 0),
        number("share_of_peak", 2),
        number("peak_memory_mb", 0),
        number("torch_peak_memory_mb", 0),
    )
}

/// The Python that has torch: `$COPTIDICE_PYTHON`, or `python3`.
fn find_torch() -> Option<String> {
    let python = std::env::var("COPTIDICE_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let found = Command::new(&python)
        .args(["-c", "import torch"])
        .output()
        .is_ok_and(|output| output.status.success());
    if found {
        return Some(python);
    }
    eprintln!(
        "{python} has no torch, so there is no yardstick and ratios are null; `{python} -m pip install torch`, \
         or name a Python that has it in COPTIDICE_PYTHON"
    );
    None
}

fn our_round(case: &Case, threads: usize, seconds: f64, precision: &str) -> Result<Value, Failure> {
    let numbers = [case.observation, case.action, case.batch].map(|number| number.to_string());
    let mut arguments = vec![case.settings[0].to_owned()];
    arguments.extend(numbers);
    arguments.extend([threads.to_string(), seconds.to_string(), case.rows.to_string(), precision.to_owned()]);
    STEP.measure(&arguments)
}

fn torch_round(python: &str, case: &Case, threads: usize, seconds: f64) -> Result<Value, Failure> {
    let mut command = Command::new(python);
    command.args([SCRIPT, "--setting", case.settings[1], "--threads", &threads.to_string()]);
    command.args(["--seconds", &seconds.to_string(), "--batch", &case.batch.to_string()]);
    command.args(["--obs", &case.observation.to_string(), "--act", &case.action.to_string()]);
    parse(&output(&mut command)?)
}

/// GFLOP/s that the vector units give; `None` where they do not have the precision.
fn peak(threads: usize, precision: &str) -> Result<Option<f64>, Failure> {
    let arguments = [threads.to_string(), "2".to_owned(), precision.to_owned()];
    let text = PEAK.run(&arguments)?;
    if text.trim() == "none" {
        return Ok(None);
    }
    text.trim().parse().map(Some).map_err(|error| format!("peak printed {text:?}: {error}"))
}

fn numbers(rounds: &[Value], key: &str) -> Result<Vec<f64>, Failure> {
    let mut values: Vec<f64> = rounds.iter().filter_map(|round| round[key].as_f64()).collect();
    if values.is_empty() {
        return Err(format!("no {key} was measured"));
    }
    values.sort_unstable_by(f64::total_cmp);
    Ok(values)
}

fn median(rounds: &[Value], key: &str) -> Result<f64, Failure> {
    let values = numbers(rounds, key)?;
    Ok(values[values.len() / 2])
}

fn least(rounds: &[Value], key: &str) -> Result<f64, Failure> {
    Ok(numbers(rounds, key)?[0])
}
