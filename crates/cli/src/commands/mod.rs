//! One file for each command.

mod act;
mod collect;
mod data;
mod evaluate;
mod export;
mod quickstart;
mod report;
mod reproduce;
mod sim;
mod sweep;
pub(crate) mod tabular;
mod train;

pub(crate) use data::describe as describe_problem;

use clap::Subcommand;

use crate::failure::Done;

/// What to do.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Simulate logs, train, evaluate and write a report: no files needed
    Quickstart(quickstart::Quickstart),
    /// Look at logs, check, mend, convert and split them
    #[command(subcommand)]
    Data(data::Data),
    /// Train a policy on a log under cost limits
    Train(train::Train),
    /// Learn policies in a simulator under several limits: a pool, and logs mixed from one
    Collect(collect::Collect),
    /// Measure a trained policy in a simulator
    Evaluate(evaluate::Evaluate),
    /// Actions of a trained policy for a file of observations
    Act(act::Act),
    /// Write a trained policy for other programs
    Export(export::Export),
    /// Write a run's report.html anew
    Report(report::ReportCommand),
    /// The paper's experiments on random CMDPs: results, figure and page
    #[command(subcommand)]
    Reproduce(reproduce::Reproduce),
    /// Train and evaluate many variants on many logs
    Sweep(sweep::SweepCommand),
    /// Finite CMDPs, solved exactly: a policy from logs of states and actions that are names or numbers
    #[command(subcommand)]
    Tabular(tabular::Tabular),
    /// Simulators
    #[command(subcommand)]
    Sim(sim::Sim),
}

impl Command {
    /// Does it.
    pub(crate) fn run(self) -> Done {
        match self {
            Command::Quickstart(command) => command.run(),
            Command::Data(command) => command.run(),
            Command::Train(command) => command.run(),
            Command::Collect(command) => command.run(),
            Command::Evaluate(command) => command.run(),
            Command::Act(command) => command.run(),
            Command::Export(command) => command.run(),
            Command::Report(command) => command.run(),
            Command::Reproduce(command) => command.run(),
            Command::Sweep(command) => command.run(),
            Command::Tabular(command) => command.run(),
            Command::Sim(command) => command.run(),
        }
    }
}
