//! `coptidice export`: a trained policy as a file for other programs.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use coptidice_agents::export::exported_acting;

use crate::failure::{Done, Failure};
use crate::output::check_target;
use crate::run_directory::RunDirectory;

/// Flags of `export`.
#[derive(Args)]
pub(crate) struct Export {
    /// Run directory of a trained policy
    run: PathBuf,
    /// Format of the file
    #[arg(long, value_enum)]
    format: Format,
    /// The file to write
    #[arg(long, value_name = "FILE")]
    to: PathBuf,
    /// How the exported policy acts: mean, mode, component, sample, or select where it has something to select by; ONNX
    /// graphs draw nothing and act by the mean where component and sample do [default: the policy's own way]
    #[arg(long, value_name = "HOW")]
    acting: Option<String>,
    /// Replace a file that exists
    #[arg(long)]
    overwrite: bool,
}

/// `--format`.
#[derive(Clone, Copy, ValueEnum)]
enum Format {
    /// Input `observation`, output `action`; normaliser, mixture and clipping inside the graph
    Onnx,
    /// For the Rust library
    Safetensors,
}

impl Export {
    /// Writes the file.
    pub(crate) fn run(self) -> Done {
        check_target(&self.to, self.overwrite)?;
        let run = RunDirectory::open(&self.run)?;
        let mut policy = crate::policies::load(&run.policy())?;
        if let Some(acting) = crate::policies::acting(&policy, self.acting.as_deref())? {
            policy = policy.with_acting(acting).map_err(|error| Failure::input(&error))?;
        }
        match self.format {
            Format::Onnx => {
                let exported = exported_acting(policy.acting());
                if exported != policy.acting() {
                    eprintln!(
                        "a graph draws nothing: acting by {} is exported as {exported}",
                        policy.acting()
                    );
                }
                coptidice_agents::export::save_onnx(&policy, &self.to).map_err(|error| Failure::work(&error))
            }
            Format::Safetensors => policy.save(&self.to).map_err(|error| Failure::work(&error)),
        }
    }
}
