//! `coptidice train`: from a log to a run directory.

use std::path::PathBuf;

use clap::Args;
use coptidice_agents::{RawConfig, TrainConfig, TrainOutcome};

use crate::failure::{Done, Failure};
use crate::limits::LimitFlags;
use crate::logs::LogFlags;
use crate::pages::{DualCost, DualEstimates, PolicyPicture};
use crate::run_directory::{LimitEntry, RunDirectory};
use crate::training::{Job, stop_on_interrupt, train};

/// Flags of `train`.
#[derive(Args)]
pub(crate) struct Train {
    #[command(flatten)]
    log: LogFlags,
    /// Algorithm: coptidice (default), optidice (no cost), bc (behaviour cloning)
    #[arg(long, value_name = "NAME")]
    algo: Option<String>,
    #[command(flatten)]
    limits: LimitFlags,
    /// Directory for the run: configuration, metrics, checkpoints, policy, report
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Configuration file (TOML); flags and --set come on top of it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// One setting of the configuration, as in `--set alpha=0.1` or `--set networks.mixture_components=1`
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Gradient steps
    #[arg(long)]
    steps: Option<u64>,
    /// Seed of every random stream
    #[arg(long)]
    seed: Option<u64>,
    /// Threads; they change the speed, never the result [default: one per core]
    #[arg(long)]
    threads: Option<usize>,
    /// Go on from the newest checkpoint in --out
    #[arg(long)]
    resume: bool,
}

impl Train {
    /// Trains and writes the run directory.
    pub(crate) fn run(self) -> Done {
        let log = self.log.load()?;
        let data = log.transitions;
        let raw = self.raw_config()?;
        stop_on_interrupt();
        let job = Job {
            log_name: self.log.name(),
            data: &data,
            problems: log.problems,
            raw,
            out: &self.out,
            resume: self.resume,
            command: std::env::args().collect(),
            show_progress: true,
        };
        let (run, config, outcome) = train(job)?;
        match outcome {
            TrainOutcome::Finished { .. } => {
                let page = crate::pages::write_run_report(&run)?;
                crate::summary::print_training(&run, &config)?;
                eprintln!("report: {}", page.path.display());
                may_be_deployed(&run, &config)
            }
            TrainOutcome::Stopped { step, checkpoint } => Err(Failure::work_because(
                format!("stopped at step {step}; checkpoint {}", checkpoint.display()),
                "go on with the same command and --resume",
            )),
            TrainOutcome::Infeasible(limit) => Err(Failure::infeasible(&limit)),
            TrainOutcome::Diverged { quantity, value, advice, step, last_good_checkpoint } => {
                crate::pages::write_run_report(&run)?;
                let kept = last_good_checkpoint
                    .map_or("no checkpoint was written before".to_owned(), |path| {
                        format!("last good checkpoint: {}", path.display())
                    });
                Err(Failure::work_because(
                    format!("training stopped at step {step}: {quantity} = {value}; {kept}"),
                    advice,
                ))
            }
        }
    }

    fn raw_config(&self) -> Result<RawConfig, Failure> {
        let mut raw = crate::settings::read(self.config.as_deref(), &self.set)?;
        if let Some(name) = &self.algo {
            raw.algo = Some(name.parse().map_err(|error| Failure::input(&error))?);
        }
        self.limits.lay_over(&mut raw.limits)?;
        raw.steps = self.steps.or(raw.steps);
        raw.seed = self.seed.or(raw.seed);
        raw.threads = self.threads.or(raw.threads);
        Ok(raw)
    }
}

/// Refuses a policy of an algorithm that keeps limits where the log says of it that it does not.
fn may_be_deployed(run: &RunDirectory, config: &TrainConfig) -> Done {
    if !config.algo.keeps_limits() {
        return Ok(());
    }
    let limits = run.manifest()?.limits;
    let picture = PolicyPicture::of(run)?.filter(|picture| !picture.ways.is_empty());
    let (over, whose) = match picture {
        Some(picture) => (picture.over_limit(&limits), "its"),
        // Nothing is known of the policy itself.
        None => {
            let (history, dual) = (run.history()?, DualEstimates::of(run)?);
            let exceeds = |limit: &&LimitEntry| {
                DualCost::of(limit, &history, dual.as_ref()).is_some_and(|cost| cost.estimate_exceeds(limit))
            };
            (limits.iter().filter(exceeds).map(|limit| limit.cost.clone()).collect(), "the dual's")
        }
    };
    if over.is_empty() {
        return Ok(());
    }
    eprintln!(
        "the policy is not one to deploy: by {whose} estimate it exceeds the limit of {}. It lies in the run's directory \
         beside what is known of it; train longer, raise epsilon or caution, or raise the limit",
        over.join(", ")
    );
    Err(Failure::DoNotDeploy)
}
