//! `coptidice collect`: a pool of policies, learned in a simulator under several limits; and logs from one.

mod mix;

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

use clap::{ArgMatches, Args, FromArgMatches, Subcommand};
use coptidice_agents::TrainOutcome;
use coptidice_agents::cdmpo::CdmpoConfig;

use crate::collect::curves;
use crate::collect::pool::Pool;
use crate::collect::training::{Collection, Measure};
use crate::environment::EnvironmentArguments;
use crate::failure::{Done, Failure};
use crate::progress::Progress;
use crate::training::stop_on_interrupt;

/// `collect`: makes a pool, unless something is to be done with one.
pub(crate) enum Collect {
    /// A command of its own.
    WithPool(WithPool),
    /// The flags that make one.
    MakePool(MakePool),
}

// By hand: flags that are required unless a command is given cannot be had by derivation.
impl FromArgMatches for Collect {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        if matches.subcommand().is_some() {
            WithPool::from_arg_matches(matches).map(Collect::WithPool)
        } else {
            MakePool::from_arg_matches(matches).map(Collect::MakePool)
        }
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for Collect {
    fn augment_args(command: clap::Command) -> clap::Command {
        WithPool::augment_subcommands(MakePool::augment_args(command))
            .subcommand_required(false)
            .arg_required_else_help(false)
            .args_conflicts_with_subcommands(true)
            .subcommand_negates_reqs(true)
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

/// What to do with a pool.
#[derive(Subcommand)]
pub(crate) enum WithPool {
    /// Mix a log from the policies of a pool: a share of episodes that keep a cost limit, the rest of some that do not
    Mix(mix::MixCommand),
}

impl Collect {
    /// Does it.
    pub(crate) fn run(self) -> Done {
        match self {
            Collect::WithPool(WithPool::Mix(command)) => command.run(),
            Collect::MakePool(command) => command.run(),
        }
    }
}

/// Flags of `collect`.
#[derive(Args)]
pub(crate) struct MakePool {
    #[command(flatten)]
    environment: EnvironmentArguments,
    /// Limits on the average of each cost per step, one run for each, as in 0.02,0.05,0.1
    #[arg(long, value_name = "LIMIT,...", value_delimiter = ',', required = true)]
    limits: Vec<f64>,
    /// Environment steps of each run [default: 100000]
    #[arg(long)]
    steps: Option<u64>,
    /// The pool's folder; one that is there is gone on with
    #[arg(long, value_name = "POOL")]
    out: PathBuf,
    /// Seed of every random stream of the runs; a pool may hold runs of several [default: 0]
    #[arg(long)]
    seed: Option<u64>,
    /// Threads; they change the speed, never the result [default: one]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Environment steps between checkpoints, each of which is a policy of the pool [default: 10000]
    #[arg(long, value_name = "STEPS")]
    checkpoint_every: Option<u64>,
    /// Episodes by which each policy of the pool is measured
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    episodes: u32,
    /// Configuration file of the learner (TOML); flags and --set come on top of it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// One setting of the learner's configuration, as in `--set gamma=0.995`
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

/// Seed of the episodes that policies are measured by.
const MEASURE_SEED: u64 = 1_000_003;

impl MakePool {
    /// Trains run after run, and keeps `pool.json` up to date.
    fn run(self) -> Done {
        let table = crate::settings::read_table(self.config.as_deref(), &self.set)?;
        let mut base = CdmpoConfig::from_table(table).map_err(|error| Failure::input(&error))?;
        base.steps = self.steps.unwrap_or(base.steps);
        base.seed = self.seed.unwrap_or(base.seed);
        base.threads = self.threads.map_or(base.threads, usize::from);
        base.checkpoint_every = self.checkpoint_every.unwrap_or(base.checkpoint_every);
        let configs: Vec<CdmpoConfig> =
            // -0 is 0, in names too.
            self.limits.iter().map(|limit| CdmpoConfig { limit: limit + 0.0, ..base.clone() }).collect();
        for (k, config) in configs.iter().enumerate() {
            if configs[..k].iter().any(|other| other.limit == config.limit) {
                return Err(Failure::usage(
                    format!("--limits has {} twice", config.limit),
                    "give each limit once; for runs of other seeds, run again with another --seed",
                ));
            }
        }
        for config in &configs {
            config.check().map_err(|error| Failure::input(&error))?;
        }
        let options = self.environment.options();
        let env = self.environment.make()?;
        let spec = env.spec();
        let fresh = Pool::new(spec.name.clone(), options.clone(), spec.cost_names());
        let pool = if Pool::path(&self.out).exists() { Pool::read(&self.out)? } else { fresh.clone() };
        if (&pool.environment, &pool.options, &pool.costs)
            != (&fresh.environment, &fresh.options, &fresh.costs)
        {
            return Err(Failure::usage(
                format!("{} holds a pool of {} with other parameters", self.out.display(), pool.environment),
                "choose another --out, or the environment's parameters of that pool",
            ));
        }
        std::fs::create_dir_all(&self.out).map_err(|error| {
            Failure::usage(format!("{}: {error}", self.out.display()), "choose an --out that can be written")
        })?;
        // Held to the end: each run has its own list of the pool's members in hand.
        let _lock = lock(&self.out)?;
        let mut pool = if Pool::path(&self.out).exists() { Pool::read(&self.out)? } else { pool };
        for policy in pool.forget_lost(&self.out) {
            eprintln!("remark: {policy} is gone, and leaves the pool; it comes back if its run begins anew");
        }
        pool.write(&self.out)?;
        stop_on_interrupt();
        let measure = Measure { episodes: self.episodes as usize, seed: MEASURE_SEED };
        let mut collection =
            Collection { folder: &self.out, env: env.as_ref(), options: &options, measure, pool };
        let threads = rayon::ThreadPoolBuilder::new()
            .num_threads(base.threads)
            .build()
            .map_err(|error| Failure::work(&error))?;
        let mut progress = Progress::new(base.steps * configs.len() as u64, "collect");
        for (done, config) in configs.iter().enumerate() {
            let before = done as u64 * config.steps;
            let outcome = threads.install(|| collection.train(config, &mut progress, before))?;
            curves::draw(&collection.pool, &self.out)?;
            finished(outcome)?;
        }
        progress.finish();
        summarise(&collection, &configs)
    }
}

/// Keeps other runs out of the pool while the file is open; the system lets go of it however this one ends.
fn lock(folder: &Path) -> Result<File, Failure> {
    let path = folder.join(".lock");
    let file = File::create(&path).map_err(|error| Failure::writing(&path, &error))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Failure::usage(
            format!("another run is collecting into {}", folder.display()),
            "wait for its end, or choose another --out",
        )),
        // Where files cannot be locked, nothing is.
        Err(TryLockError::Error(_)) => Ok(file),
    }
}

fn finished(outcome: TrainOutcome) -> Done {
    match outcome {
        TrainOutcome::Stopped { step, checkpoint } => Err(Failure::work_because(
            format!("stopped at step {step}; checkpoint {}", checkpoint.display()),
            "the same command goes on",
        )),
        TrainOutcome::Diverged { quantity, value, advice, step, .. } => Err(Failure::work_because(
            format!("training stopped at step {step}: {quantity} = {value}"),
            advice,
        )),
        TrainOutcome::Finished { .. } | TrainOutcome::Infeasible(_) => Ok(()),
    }
}

/// The last policy of each run, and the best one that was measured within its limit.
fn summarise(collection: &Collection<'_>, configs: &[CdmpoConfig]) -> Done {
    let Collection { pool, folder, .. } = collection;
    for config in configs {
        let members = || pool.members.iter().filter(|m| m.limit == config.limit && m.seed == config.seed);
        let best = members()
            .filter(|member| member.keeps(member.limit))
            .max_by(|a, b| a.return_mean.total_cmp(&b.return_mean));
        for (which, member) in [("last", members().next_back()), ("best within it", best)] {
            let Some(member) = member else { continue };
            let costs: Vec<String> = pool
                .costs
                .iter()
                .zip(&member.cost_per_step)
                .map(|(name, cost)| format!("{name} {cost:.4} per step"))
                .collect();
            crate::output::line(&format!(
                "limit {}, {which}: return {:.1}, {} ({} episodes), {}",
                config.limit,
                member.return_mean,
                costs.join(", "),
                member.episodes,
                member.policy_path(folder).display()
            ))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_is_collected_into_by_one_run_at_a_time() {
        let folder = tempfile::tempdir().expect("a folder");
        let Ok(first) = lock(folder.path()) else { panic!("nobody holds it") };
        assert!(lock(folder.path()).is_err());
        drop(first);
        assert!(lock(folder.path()).is_ok());
    }
}
