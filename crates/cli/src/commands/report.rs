//! `coptidice report`: the page of a run, written anew from what the run directory holds.

use std::path::PathBuf;

use clap::Args;

use crate::failure::Done;
use crate::run_directory::RunDirectory;

/// Flags of `report`.
#[derive(Args)]
pub(crate) struct ReportCommand {
    /// Run directory
    run: PathBuf,
}

impl ReportCommand {
    /// Writes the page and prints its path.
    pub(crate) fn run(self) -> Done {
        let run = RunDirectory::open(&self.run)?;
        let page = crate::pages::write_run_report(&run)?;
        if let Some(gap) = page.gap {
            eprintln!("remark: {gap}");
        }
        crate::output::line(&page.path.display().to_string())
    }
}
