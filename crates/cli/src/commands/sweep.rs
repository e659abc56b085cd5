//! `coptidice sweep`: every variant on every log with every seed, evaluated in one environment.

use std::path::PathBuf;

use clap::Args;

use crate::failure::{Done, Failure};
use crate::sweep::{Plan, Shard, Sweep, run, tabulate};

/// Flags of `sweep`.
#[derive(Args)]
pub(crate) struct SweepCommand {
    /// The sweep's description (TOML)
    config: PathBuf,
    /// A log's file, NAME=FILE, for logs that the description leaves open; repeat as needed
    #[arg(long, value_name = "NAME=FILE", value_parser = parse_log)]
    log: Vec<(String, PathBuf)>,
    /// Directory for runs and results; finished cells in it are kept
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Only part I of N, as in 2/8; run all parts into the same or copied directories, then once without --shard
    #[arg(long, value_name = "I/N")]
    shard: Option<Shard>,
    /// Cells trained at the same time, one thread each [default: one per core]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
}

impl SweepCommand {
    /// Runs what is missing, then writes and prints the table of what is there.
    pub(crate) fn run(self) -> Done {
        let text = std::fs::read_to_string(&self.config).map_err(|error| {
            Failure::usage(format!("{}: {error}", self.config.display()), "give a sweep description in TOML")
        })?;
        let plan: Plan = toml::from_str(&text).map_err(|error| {
            Failure::usage(format!("{}: {error}", self.config.display()), "mend the description")
        })?;
        let jobs = self.jobs.map_or_else(
            || std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            usize::from,
        );
        crate::training::stop_on_interrupt();
        let sweep = Sweep::prepare(plan, self.log, self.out)?;
        run(&sweep, self.shard, jobs)?;
        crate::output::line(tabulate(&sweep)?.trim_end())
    }
}

/// `NAME=FILE`.
fn parse_log(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, file)) if !name.is_empty() && !file.is_empty() => Ok((name.to_owned(), file.into())),
        _ => Err("write it as NAME=FILE".to_owned()),
    }
}
