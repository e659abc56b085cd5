//! `coptidice collect mix`: logs from a pool of policies.

use std::path::PathBuf;

use clap::Args;
use coptidice_agents::policy::Acting;
use coptidice_core::CostLimit;
use coptidice_data::WriteOptions;
use coptidice_report::number::{counted, significant};
use coptidice_sim::Environment;

use crate::collect::mix::{Mixture, Part, Request, mix};
use crate::collect::pool::Pool;
use crate::environment::environment;
use crate::failure::{Done, Failure};
use crate::output::line;
use crate::run_directory::write_json;

/// Flags of `collect mix`.
#[derive(Args)]
pub(crate) struct MixCommand {
    /// The pool: a folder with pool.json and the policies it names
    pool: PathBuf,
    /// Number of episodes
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    episodes: u32,
    /// Share of the episodes that keep the limit, 0 to 1; rounded to whole episodes
    #[arg(long, default_value_t = 0.8, value_parser = parse_share)]
    beta: f64,
    /// Average cost per step up to which an episode keeps the limit [default: the environment's]
    #[arg(long, value_parser = parse_limit)]
    limit: Option<f64>,
    /// Seed of the policies drawn, their order and the episodes
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// How to act: mean, mode, component, sample, or select where policies have something to select by. A log of
    /// policies that only ever do what they take for best shows nothing of anything else [default: sample]
    #[arg(long, value_name = "HOW", default_value = "sample", hide_default_value = true)]
    acting: String,
    /// Threads; they change the speed, never the file [default: one per core]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// The log: HDF5 with the names of DSRL. What was mixed is written beside it, as FILE.json
    #[arg(long, value_name = "FILE.hdf5")]
    out: PathBuf,
    /// Replace files that exist
    #[arg(long)]
    overwrite: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl MixCommand {
    /// Mixes, and says what came of it.
    pub(super) fn run(self) -> Done {
        let summary = self.out.with_extension("json");
        crate::output::check_target(&summary, self.overwrite)?;
        let pool = Pool::read(&self.pool)?;
        for target in [&self.out, &summary] {
            if pool.holds(&self.pool, target) {
                return Err(Failure::usage(
                    format!("{} is a file of the pool, which would be lost", target.display()),
                    "choose another --out",
                ));
            }
        }
        let env = environment(&pool.environment, &pool.options)?;
        if env.spec().cost_names() != pool.costs {
            return Err(Failure::usage(
                format!("{} has other costs than the pool's {}", pool.environment, pool.costs.join(", ")),
                "the pool is of another version of the environment: collect it again",
            ));
        }
        let acting = self.acting.parse::<Acting>();
        let request = Request {
            episodes: self.episodes as usize,
            beta: self.beta,
            limit: self.limit.map_or_else(|| default_limit(env.as_ref()), Ok)?,
            seed: self.seed,
            acting: acting.map_err(|error| Failure::input(&error))?,
        };
        let options = WriteOptions { overwrite: self.overwrite, ..WriteOptions::default() };
        let threads = rayon::ThreadPoolBuilder::new()
            .num_threads(self.threads.map_or(0, usize::from))
            .build()
            .map_err(|error| Failure::work(&error))?;
        let mixture =
            threads.install(|| mix(&pool, &self.pool, env.as_ref(), &request, &self.out, &options))?;
        write_json(&summary, &mixture)?;
        if self.json {
            return crate::output::json(&mixture);
        }
        print(&mixture)?;
        line(&format!("{} and {}", self.out.display(), summary.display()))
    }
}

/// The limit of the environment's first cost.
fn default_limit(env: &dyn Environment) -> Result<f64, Failure> {
    match env.spec().costs.first().map(|cost| cost.default_limit) {
        Some(CostLimit::PerStep { limit }) => Ok(limit),
        _ => Err(Failure::usage("the environment has no limit per step", "give one by --limit")),
    }
}

/// The table.
fn print(mixture: &Mixture) -> Done {
    let costs = mixture.costs.iter().map(|cost| format!(" {cost:>20}")).collect::<String>();
    line(&format!("{:<8} {:>8} {:>8} {:>10}{costs}", "part", "episodes", "policies", "return"))?;
    for (name, part) in [("safe", &mixture.safe), ("unsafe", &mixture.unsafe_)] {
        line(&row(name, part, mixture.costs.len()))?;
    }
    line(&format!(
        "{} in {} of {} run, {}, {} MB, {} s; limit {} per step",
        counted(mixture.transitions as u64, "transition"),
        counted((mixture.safe.episodes + mixture.unsafe_.episodes) as u64, "episode"),
        mixture.tried,
        mixture.environment,
        significant(mixture.bytes as f64 / 1e6, 4),
        significant(mixture.seconds, 3),
        mixture.limit
    ))
}

fn row(name: &str, part: &Part, costs: usize) -> String {
    let number =
        |value: Option<f64>, digits: usize| value.map_or("-".to_owned(), |value| format!("{value:.digits$}"));
    let cost = |k: usize| format!(" {:>20}", number(part.cost_per_step.as_ref().map(|costs| costs[k]), 4));
    format!(
        "{name:<8} {:>8} {:>8} {:>10}{}",
        part.episodes,
        part.policies,
        number(part.return_mean, 2),
        (0..costs).map(cost).collect::<String>()
    )
}

/// A number from 0 to 1.
fn parse_share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err(format!("{text:?} is not a number from 0 to 1")),
    }
}

/// A finite number, at least 0.
fn parse_limit(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(limit) if limit.is_finite() && limit >= 0.0 => Ok(limit),
        _ => Err(format!("{text:?} is not a finite number, at least 0")),
    }
}
