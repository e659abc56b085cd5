//! The `coptidice` program: arguments, then a validated request, then one library call.
//!
//! Results go to stdout, everything else to stderr. Exit codes: 0 done, 1 failed, 2 wrong usage or unusable input,
//! 3 there is no policy that may be deployed.

use std::process::ExitCode;

use clap::Parser;

mod collect;
mod commands;
mod environment;
mod failure;
mod finite_policy;
mod limits;
mod logs;
mod output;
mod pages;
mod policies;
mod progress;
mod run_directory;
mod settings;
mod simulate;
mod summary;
mod sweep;
#[cfg(test)]
mod testing;
mod training;

#[derive(Parser)]
#[command(
    name = "coptidice",
    version,
    about = "Offline constrained reinforcement learning: from logs to a policy you can decide to deploy",
    after_help = "Exit codes: 0 done, 1 failed, 2 wrong usage or unusable input, 3 there is no policy that may be \
                  deployed.",
    propagate_version = true
)]
struct Arguments {
    #[command(subcommand)]
    command: commands::Command,
}

fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_env("COPTIDICE_LOG").unwrap_or_else(|_| "warn".into()),
        )
        .with_writer(std::io::stderr)
        .without_time()
        .init();
    match Arguments::parse().command.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
