//! `coptidice reproduce`: the paper's experiments on random CMDPs.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use coptidice_report::svg::Chart as _;
use coptidice_tabular::experiments::{
    self, DataOccupancy, Experiment, ExperimentConfig, ExperimentError, Results, RunOptions, RunOutcome,
    store,
};

use crate::failure::{Done, Failure};
use crate::output::{command_line, line};
use crate::pages::experiment;
use crate::progress::Progress;
use crate::sweep::Shard;
use crate::training::{stop_on_interrupt, stop_requested};

/// Which experiment.
#[derive(Subcommand)]
pub(crate) enum Reproduce {
    /// The main figure: two behaviours, eight numbers of trajectories, five algorithms
    TabularFig1(ExperimentFlags),
    /// Ablation on the cost limit: .08 to .12 on the data of the main figure
    TabularThresholds(ExperimentFlags),
    /// Behaviours that use only the first one, two or three actions
    TabularSupport(ExperimentFlags),
    /// Data from two behaviours, 80/20 and 20/80
    TabularMixture(ExperimentFlags),
    /// Put the parts computed with --shard together
    Merge(Merge),
}

/// Flags of every experiment.
#[derive(Args)]
pub(crate) struct ExperimentFlags {
    /// Number of random CMDPs
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    runs: u64,
    /// Directory for results.csv, figure.svg, report.html and the raw results
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Seed of every random stream; run I of a seed is the same whatever the number of runs
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// What the algorithms know of the data's distribution: the behaviour, as in the paper's figures, or only counts
    #[arg(long, value_enum, default_value_t = Behaviour::Known)]
    behavior: Behaviour,
    /// Numbers of trajectories [default: the paper's eight, 10 to 2000]
    #[arg(long, value_name = "N", value_delimiter = ',')]
    trajectories: Vec<usize>,
    /// Only part I of N, as in 2/8; parts may share a directory, or be put together by `reproduce merge`
    #[arg(long, value_name = "I/N")]
    shard: Option<Shard>,
    /// Threads; they change the speed, never the result [default: one per core]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Go on with what the directory holds
    #[arg(long)]
    resume: bool,
}

/// `--behavior`.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Behaviour {
    /// The behaviour's occupancy on the estimated CMDP
    Known,
    /// The empirical distribution of the logged pairs
    Estimated,
}

/// Flags of `reproduce merge`.
#[derive(Args)]
pub(crate) struct Merge {
    /// Directories of the parts
    #[arg(required = true, value_name = "DIR")]
    parts: Vec<PathBuf>,
    /// Directory for results.csv, figure.svg and report.html
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Only the first N runs [default: all that were asked for when the parts were computed]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    runs: Option<u64>,
    /// Which experiment, where the parts hold several
    #[arg(long, value_name = "NAME", value_parser = parse_experiment)]
    experiment: Option<Experiment>,
}

/// `tabular-fig1` and so on.
fn parse_experiment(name: &str) -> Result<Experiment, String> {
    let known = Experiment::ALL.map(|e| format!("tabular-{e}"));
    let found = known.iter().position(|k| k == name).map(|i| Experiment::ALL[i]);
    found.ok_or_else(|| format!("use one of {}", known.join(", ")))
}

impl Reproduce {
    /// Computes what is missing, or merges; then writes and prints the results.
    pub(crate) fn run(self) -> Done {
        match self {
            Reproduce::TabularFig1(flags) => flags.run(Experiment::Fig1),
            Reproduce::TabularThresholds(flags) => flags.run(Experiment::Thresholds),
            Reproduce::TabularSupport(flags) => flags.run(Experiment::Support),
            Reproduce::TabularMixture(flags) => flags.run(Experiment::Mixture),
            Reproduce::Merge(command) => command.run(),
        }
    }
}

impl ExperimentFlags {
    fn run(self, experiment: Experiment) -> Done {
        let mut config = ExperimentConfig::new(experiment);
        config.seed = self.seed;
        config.data_occupancy = match self.behavior {
            Behaviour::Known => DataOccupancy::Known,
            Behaviour::Estimated => DataOccupancy::Estimated,
        };
        if !self.trajectories.is_empty() {
            config.trajectories = self.trajectories;
        }
        let options = RunOptions {
            config,
            runs: self.runs,
            out: self.out.clone(),
            shard: self.shard.map_or_else(experiments::Shard::default, |shard| experiments::Shard {
                index: shard.index as u64,
                count: shard.count as u64,
            }),
            threads: self.threads.map_or(0, usize::from),
            resume: self.resume,
        };
        stop_on_interrupt();
        let mut bar: Option<Progress> = None;
        let outcome = experiments::run(&options, &mut |progress| {
            let bar = bar.get_or_insert_with(|| Progress::new(progress.total, "cells"));
            bar.set(progress.done, String::new);
            if stop_requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        if let Some(bar) = bar {
            bar.finish();
        }
        match outcome.map_err(|error| classify(&error))? {
            RunOutcome::Complete(results) => finish(&results, &self.out),
            RunOutcome::ShardDone => {
                let parts = self.shard.map_or(1, |shard| shard.count);
                line(&format!(
                    "this part is done; when all {parts} are: coptidice reproduce merge DIR... --out DIR"
                ))
            }
            RunOutcome::Interrupted => Err(Failure::work_because(
                "stopped; what was computed is kept",
                "the same command with --resume goes on where it was",
            )),
        }
    }
}

impl Merge {
    fn run(self) -> Done {
        let mut found: Vec<ExperimentConfig> = Vec::new();
        for part in &self.parts {
            if !part.is_dir() {
                return Err(Failure::usage(
                    format!("{}: there is no such directory", part.display()),
                    "give the directories of all parts",
                ));
            }
            for config in store::configurations(part).map_err(|error| classify(&error))? {
                let wanted = self.experiment.is_none_or(|e| e == config.experiment);
                if wanted && !found.contains(&config) {
                    found.push(config);
                }
            }
        }
        let config = match found.as_slice() {
            [one] => one,
            [] => {
                return Err(Failure::usage(
                    "there are no raw results to merge",
                    "give the directories that `coptidice reproduce ... --shard I/N --out DIR` wrote",
                ));
            }
            several => {
                let names: Vec<String> =
                    several.iter().map(|c| format!("tabular-{} of seed {}", c.experiment, c.seed)).collect();
                return Err(Failure::usage(
                    format!("the directories hold results of different options: {}", names.join(", ")),
                    "choose by --experiment, or give only directories of one run",
                ));
            }
        };
        let results = experiments::merge(config, &self.parts, self.runs, &self.out)
            .map_err(|error| classify(&error))?;
        finish(&results, &self.out)
    }
}

/// Writes the figure and the page beside results.csv, and prints the table.
fn finish(results: &Results, out: &Path) -> Done {
    let figure = out.join("figure.svg");
    experiment::figure(results).figure().write(&figure).map_err(|error| Failure::writing(&figure, &error))?;
    let page = out.join("report.html");
    experiment::page(results, command_line()).write(&page).map_err(|error| Failure::work(&error))?;
    line(experiment::summary(results).to_text(None).trim_end())?;
    line(&format!("{} runs; results.csv, figure.svg and report.html are in {}", results.runs, out.display()))
}

/// Whether the input or the work is at fault.
fn classify(error: &ExperimentError) -> Failure {
    match error {
        ExperimentError::Run { .. } | ExperimentError::Io { .. } | ExperimentError::Threads { .. } => {
            Failure::work(error)
        }
        _ => Failure::input(error),
    }
}
