//! `coptidice sim`: simulators.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use coptidice_sim::{Trace, replay};

use crate::environment::EnvironmentArguments;
use crate::failure::{Done, Failure};

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
    #[command(flatten)]
    environment: EnvironmentArguments,
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
                    let note =
                        if entry.is_available() { "" } else { " (built without MuJoCo: not available)" };
                    crate::output::line(&format!("{:<28} {}{note}", entry.name, entry.summary))?;
                }
                Ok(())
            }
        }
    }
}

impl ReplayCommand {
    fn run(self) -> Done {
        let env = self.environment.make()?;
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
