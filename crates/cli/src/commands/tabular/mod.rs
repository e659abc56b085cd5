//! `coptidice tabular`: finite CMDPs, solved exactly.

mod evaluate;
mod generate;
mod logs;
mod result;
mod solve;

pub(crate) use logs::FiniteLog;
pub(crate) use result::{SolveResult, estimate_in_unit, in_unit};

use clap::Subcommand;

use crate::failure::Done;

/// What to do with a finite CMDP.
#[derive(Subcommand)]
pub(crate) enum Tabular {
    /// Find a policy from logs, or solve a stored case
    Solve(Box<solve::Solve>),
    /// Draw a random CMDP, a policy that collects data, and its logs
    Generate(generate::Generate),
    /// What a policy earns and costs on a stored case, or by logs with confidence bounds
    Evaluate(Box<evaluate::Evaluate>),
}

impl Tabular {
    /// Does it.
    pub(crate) fn run(self) -> Done {
        match self {
            Tabular::Solve(command) => command.run(),
            Tabular::Generate(command) => command.run(),
            Tabular::Evaluate(command) => command.run(),
        }
    }
}
