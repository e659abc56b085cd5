//! The multiplier of a limit: above zero where the limit binds, gone where it does not.

use std::path::Path;
use std::process::Command;

use coptidice_data::{WriteOptions, write};
use coptidice_sim::hazard;

/// Small enough for a test, large enough to tell the ways round the hazard apart.
const SMALL: &[&str] = &[
    "batch_size=128",
    "networks.value=[{kind = \"dense\", width = 64, layer_norm = true, activation = \"tanh\"}]",
    "networks.policy=[{kind = \"dense\", width = 16, layer_norm = true, activation = \"tanh\"}]",
    "learning_rate=1e-3",
    "log_every=200",
    // The prices are looked at, not the policy.
    "dual_share=0.99",
    "evaluation.rounds=0",
];

/// The last reported metrics of a run of 6000 steps under `limit` per step.
fn metrics(log: &Path, directory: &Path, limit: &str) -> serde_json::Map<String, serde_json::Value> {
    let out = directory.join(limit);
    let mut command = Command::new(env!("CARGO_BIN_EXE_coptidice"));
    command.arg("train").arg(log).arg("--out").arg(&out);
    command.args(["--algo", "coptidice", "--limit", limit, "--limit-unit", "step"]);
    command.args(["--steps", "6000", "--threads", "1", "--seed", "0"]);
    for setting in SMALL {
        command.args(["--set", setting]);
    }
    let output = command.output().expect("the program starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = std::fs::read_to_string(out.join("metrics.jsonl")).expect("the run has metrics");
    serde_json::from_str(lines.lines().last().expect("a line")).expect("a JSON object")
}

/// Half of the logged episodes stay out of the hazard, and the others spend a fifth of their steps in it: without a
/// price the optimum costs over .1 per step. Under a limit of .01 the price must settle where the cost is near the
/// limit; under .9 nothing holds it up, and it falls without end, at most by Adam's .3% in a step.
#[test]
fn the_price_settles_above_zero_under_a_tight_limit_and_vanishes_under_a_loose_one() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let log = directory.path().join("log.npz");
    write(&hazard::logs(0.5, 100, 0).expect("a valid share"), &log, &WriteOptions::default())
        .expect("the log can be written");
    let [tight, loose] = ["0.01", "0.9"].map(|limit| metrics(&log, directory.path(), limit));
    let at = |metrics: &serde_json::Map<_, serde_json::Value>, name: &str| {
        metrics[name].as_f64().expect("a number")
    };
    assert!(at(&tight, "lambda/hazard") > 0.3, "{tight:?}");
    assert!(at(&tight, "cost/hazard") < 0.03, "{tight:?}");
    assert!(at(&loose, "lambda/hazard") < 1e-2, "{loose:?}");
    assert!(at(&loose, "cost/hazard") > 0.05, "{loose:?}");
    let [kept, free] = [&tight, &loose].map(|metrics| at(metrics, "loss/nu"));
    assert!(kept < free, "a limit that binds lowers the optimum of the objective: {kept}, {free}");
}
