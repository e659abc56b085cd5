//! The project's habits, each one command that needs nothing but cargo.

use std::process::{Command, ExitCode};

use clap::{Parser, Subcommand};

mod bench_act;
mod bench_rollout;
mod bench_step;
mod checks;
mod examples;
mod mujoco;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "The project's habits, each one command")]
struct Arguments {
    #[command(subcommand)]
    habit: Habit,
}

#[derive(Subcommand)]
enum Habit {
    /// All tests that run by default, documentation examples first; installs cargo-nextest when it is missing
    Test,
    /// The default tests and the slow ones, in release mode
    TestAll,
    /// Formatting, lints, documentation, and what must not stand in the tree
    Lint,
    /// What continuous integration runs besides the tests
    Ci,
    /// The training step's speed, beside an eager PyTorch script of the same step
    BenchStep(bench_step::BenchStep),
    /// The speed of acting, beside that of the matrix products it consists of
    BenchAct(bench_act::BenchAct),
    /// The speed of rollouts in the simulators, beside that of their physics
    BenchRollout(bench_rollout::BenchRollout),
    /// Fetches MuJoCo and the task models, verified, into the user's cache, for builds with the feature `mujoco`
    Mujoco(mujoco::Mujoco),
    /// Lints and tests of the simulators on MuJoCo; `cargo xtask mujoco` comes first
    TestMujoco,
}

/// What went wrong, in words for the person at the terminal.
type Failure = String;

fn main() -> ExitCode {
    let outcome = match Arguments::parse().habit {
        Habit::Test => test(),
        Habit::TestAll => test_all(),
        Habit::Lint | Habit::Ci => checks::run(),
        Habit::BenchStep(options) => bench_step::run(&options),
        Habit::BenchAct(options) => bench_act::run(&options),
        Habit::BenchRollout(options) => bench_rollout::run(&options),
        Habit::Mujoco(options) => mujoco::run(&options),
        Habit::TestMujoco => test_mujoco(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("xtask: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn test() -> Result<(), Failure> {
    ensure_nextest()?;
    cargo(&["test", "--workspace", "--doc", "--quiet"])?;
    cargo(&["nextest", "run", "--workspace"])
}

fn test_all() -> Result<(), Failure> {
    ensure_nextest()?;
    cargo(&["test", "--workspace", "--doc", "--quiet"])?;
    cargo(&["nextest", "run", "--workspace", "--release", "--run-ignored", "all"])
}

fn test_mujoco() -> Result<(), Failure> {
    if !mujoco::is_linked() {
        return Err("MuJoCo is not there; run `cargo xtask mujoco` first".to_owned());
    }
    ensure_nextest()?;
    let features = ["--features", "coptidice-sim/mujoco,coptidice/mujoco"];
    let packages = ["--package", "coptidice-sim", "--package", "coptidice"];
    let lint = ["clippy", "--all-targets", "--quiet"];
    let relaxed = ["--", "-D", "warnings", "-A", "clippy::unwrap_used", "-A", "clippy::print_stdout"];
    cargo(&[&lint[..], &packages, &features, &relaxed].concat())?;
    cargo(&[&["nextest", "run", "--release"][..], &packages, &features].concat())
}

/// nextest closes a run with one summary line; it is a cargo plugin, fetched from the registry like any crate.
fn ensure_nextest() -> Result<(), Failure> {
    let present = Command::new(cargo_path())
        .args(["nextest", "--version"])
        .output()
        .is_ok_and(|output| output.status.success());
    if present { Ok(()) } else { cargo(&["install", "cargo-nextest", "--locked"]) }
}

/// Runs cargo with the terminal attached and reports the command line when it fails.
fn cargo(arguments: &[&str]) -> Result<(), Failure> {
    let status = Command::new(cargo_path())
        .args(arguments)
        .status()
        .map_err(|error| format!("cargo {}: {error}", arguments.join(" ")))?;
    if status.success() { Ok(()) } else { Err(format!("cargo {} failed", arguments.join(" "))) }
}

/// The cargo that runs this program, so that toolchain overrides carry over.
fn cargo_path() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned())
}
