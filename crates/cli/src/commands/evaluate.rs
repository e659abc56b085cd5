//! `coptidice evaluate`: what a trained policy earns and costs in a simulator.

use std::path::PathBuf;

use clap::Args;

use crate::environment::EnvironmentArguments;
use crate::failure::{Done, Failure};
use crate::run_directory::{RunDirectory, write_json};
use crate::simulate::{Request, evaluate};

/// Flags of `evaluate`.
#[derive(Args)]
pub(crate) struct Evaluate {
    /// Run directory of a trained policy
    run: PathBuf,
    #[command(flatten)]
    environment: EnvironmentArguments,
    /// Number of episodes
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    episodes: u32,
    /// Seed of the episodes
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// How to act: mean, mode, component, sample, or select where the policy has something to select by [default: the
    /// policy's own way]
    #[arg(long, value_name = "HOW")]
    acting: Option<String>,
    /// Threads; they change the speed, never the result [default: one per core]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Evaluate {
    /// Evaluates, prints, and keeps the figures in the run directory.
    pub(crate) fn run(self) -> Done {
        let run = RunDirectory::open(&self.run)?;
        let policy = crate::policies::load(&run.policy())?;
        let env = self.environment.make()?;
        let acting = crate::policies::acting(&policy, self.acting.as_deref())?;
        let request = Request {
            episodes: self.episodes as usize,
            seed: self.seed,
            acting,
            limits: None,
            record_paths: 20,
        };
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(self.threads.map_or(0, usize::from))
            .build()
            .map_err(|error| Failure::work(&error))?;
        let evaluation = pool.install(|| evaluate(&policy, env.as_ref(), &request))?;
        write_json(&run.evaluation(), &evaluation)?;
        crate::pages::write_run_report(&run)?;
        if self.json {
            // The recorded paths are for the report; they stay in the run directory.
            crate::output::json(&coptidice_sim::Evaluation { paths: Vec::new(), ..evaluation })
        } else {
            crate::summary::print_evaluation(&evaluation)
        }
    }
}
