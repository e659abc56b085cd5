//! `coptidice sim`: simulators.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use coptidice_sim::{Trace, replay};

use crate::failure::{Done, Failure};
use crate::simulate::environment;

/// What to do with a simulator.
#[derive(Subcommand)]
pub(crate) enum Sim {
    /// Play recorded actions from a recorded state and compare with what was recorded
    Replay(ReplayCommand),
    /// List the environments
    List,
}

/// Flags of `sim replay`.
#[derive(Args)]
pub(crate) struct ReplayCommand {
    /// The trace: npz with qpos0, qvel0, act0, actions, observations, rewards, costs
    trace: PathBuf,
    /// Environment, as in rwrl/cartpole-swingup
    #[arg(long, value_name = "NAME")]
    env: String,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Sim {
    /// Does it.
    pub(crate) fn run(self) -> Done {
        match self {
            Sim::Replay(command) => command.run(),
            Sim::List => {
                for entry in coptidice_sim::registry::ENTRIES {
                    crate::output::line(&format!("{:<24} {}", entry.name, entry.summary))?;
                }
                Ok(())
            }
        }
    }
}

impl ReplayCommand {
    fn run(self) -> Done {
        let env = environment(&self.env)?;
        let trace = Trace::read_npz(&self.trace).map_err(|error| Failure::input(&error))?;
        let replayed = replay(&trace, env.as_ref()).map_err(|error| Failure::input(&error))?;
        if self.json {
            return crate::output::json(&replayed);
        }
        crate::output::line(&format!(
            "{} steps: observations differ by at most {:e}, rewards by {:e}; {} costs differ",
            replayed.steps, replayed.max_abs_observation, replayed.max_abs_reward, replayed.cost_mismatches
        ))
    }
}
