//! `coptidice data`: looking at logs, checking, mending, converting and splitting them.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use coptidice_data::{
    ConvertOptions, FaultyEpisode, Inspection, Problem, RepairOptions, SplitOptions, WriteOptions, convert,
    repair, split, validate, write,
};

use coptidice_report::number::counted;

use crate::failure::{Done, Failure};
use crate::logs::LogFlags;
use crate::output::{json, line};
use crate::pages::LogPicture;

/// What to do with a log.
#[derive(Subcommand)]
pub(crate) enum Data {
    /// Episodes, lengths, rewards, costs, actions and problems
    Inspect(Inspect),
    /// List every problem; exit code 2 where the log cannot be trained on
    Validate(Validate),
    /// Mend what can be mended and say what was done
    Repair(Repair),
    /// Write the log in another format, which the target's extension names
    Convert(Convert),
    /// Split by episode into a part to train on and a part to hold out
    Split(SplitCommand),
}

/// Flags of `data inspect`.
#[derive(Args)]
pub(crate) struct Inspect {
    #[command(flatten)]
    log: LogFlags,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Flags of `data validate`.
#[derive(Args)]
pub(crate) struct Validate {
    #[command(flatten)]
    log: LogFlags,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Flags of `data repair`.
#[derive(Args)]
pub(crate) struct Repair {
    #[command(flatten)]
    log: LogFlags,
    /// Where the mended log goes; its extension names the format
    #[arg(long, value_name = "FILE")]
    to: PathBuf,
    /// What becomes of an episode with a fault that cannot be mended
    #[arg(long, value_enum, default_value_t = Faulty::Drop)]
    faulty_episode: Faulty,
    /// Replace a target that exists
    #[arg(long)]
    overwrite: bool,
}

/// `--faulty-episode`.
#[derive(Clone, Copy, ValueEnum)]
enum Faulty {
    /// Leave the whole episode out
    Drop,
    /// Keep the steps before the first fault
    KeepBeginning,
}

/// Flags of `data convert`.
#[derive(Args)]
pub(crate) struct Convert {
    #[command(flatten)]
    log: LogFlags,
    /// The target: .hdf5, .npz, .csv, .parquet, or a directory of .npy columns
    #[arg(long, value_name = "FILE")]
    to: PathBuf,
    /// Replace a target that exists
    #[arg(long)]
    overwrite: bool,
}

/// Flags of `data split`.
#[derive(Args)]
pub(crate) struct SplitCommand {
    #[command(flatten)]
    log: LogFlags,
    /// Where the part to train on goes
    #[arg(long, value_name = "FILE")]
    train: PathBuf,
    /// Where the held-out part goes
    #[arg(long, value_name = "FILE")]
    held_out: PathBuf,
    /// Share of the episodes to hold out
    #[arg(long, default_value_t = 0.2)]
    share: f64,
    /// Seed of the draw
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Replace targets that exist
    #[arg(long)]
    overwrite: bool,
}

impl Data {
    /// Does it.
    pub(crate) fn run(self) -> Done {
        match self {
            Data::Inspect(command) => command.run(),
            Data::Validate(command) => command.run(),
            Data::Repair(command) => command.run(),
            Data::Convert(command) => command.run(),
            Data::Split(command) => command.run(),
        }
    }
}

impl Inspect {
    fn run(self) -> Done {
        let log = self.log.validated()?;
        if self.json {
            return json(&Inspection::of(&log.transitions, log.problems));
        }
        let picture = LogPicture::of(&log.transitions, &log.problems);
        line(picture.summary(&self.log.name(), &[]).to_text(100).trim_end())?;
        for problem in &log.problems {
            line(&describe(problem))?;
        }
        Ok(())
    }
}

impl Validate {
    fn run(self) -> Done {
        let log = self.log.validated()?;
        let errors = log.problems.iter().filter(|problem| problem.is_error()).count();
        if self.json {
            json(&serde_json::json!({ "usable": errors == 0, "problems": log.problems }))?;
        } else {
            for problem in &log.problems {
                line(&describe(problem))?;
            }
            let remarks = log.problems.len() - errors;
            line(&format!("{}, {}", counted(errors as u64, "error"), counted(remarks as u64, "remark")))?;
        }
        if errors == 0 {
            return Ok(());
        }
        Err(Failure::usage(
            format!("{} cannot be trained on as it is", self.log.name()),
            "`coptidice data repair` mends what can be mended",
        ))
    }
}

impl Repair {
    fn run(self) -> Done {
        let options = RepairOptions {
            read: self.log.options()?,
            check: self.log.check(),
            faulty_episode: match self.faulty_episode {
                Faulty::Drop => FaultyEpisode::Drop,
                Faulty::KeepBeginning => FaultyEpisode::KeepBeginning,
            },
        };
        let repaired = repair(self.log.path(), &options).map_err(|error| Failure::input(&error))?;
        let to = WriteOptions { format: None, overwrite: self.overwrite };
        write(&repaired.transitions, &self.to, &to).map_err(|error| Failure::input(&error))?;
        for done in &repaired.repairs {
            let column = done.column.as_deref().map_or(String::new(), |column| format!(" {column}:"));
            line(&format!("repaired [{}]{column} {}", done.code.as_str(), done.message))?;
        }
        for problem in &repaired.remaining {
            line(&describe(problem))?;
        }
        wrote(&self.to, repaired.transitions.len(), repaired.transitions.episodes().len())
    }
}

impl Convert {
    fn run(self) -> Done {
        let options = ConvertOptions {
            read: self.log.options()?,
            write: WriteOptions { format: None, overwrite: self.overwrite },
        };
        let (written, problems) =
            convert(self.log.path(), &self.to, &options).map_err(|error| Failure::input(&error))?;
        for problem in &problems {
            eprintln!("{}", describe(problem));
        }
        wrote(&written.path, written.transitions, written.episodes)
    }
}

impl SplitCommand {
    fn run(self) -> Done {
        let options = SplitOptions {
            read: self.log.options()?,
            check: self.log.check(),
            write: WriteOptions { format: None, overwrite: self.overwrite },
            held_out: self.share,
            seed: self.seed,
        };
        let parts = split(self.log.path(), &self.train, &self.held_out, &options)
            .map_err(|error| Failure::input(&error))?;
        for part in parts {
            wrote(&part.path, part.transitions, part.episodes)?;
        }
        Ok(())
    }
}

impl LogFlags {
    /// Reads the log and checks it, refusing nothing that can be read.
    fn validated(&self) -> Result<coptidice_data::Log, Failure> {
        validate(self.path(), &self.options()?, &self.check()).map_err(|error| Failure::input(&error))
    }
}

/// Says what was written.
fn wrote(path: &Path, transitions: usize, episodes: usize) -> Done {
    let (transitions, episodes) =
        (counted(transitions as u64, "transition"), counted(episodes as u64, "episode"));
    line(&format!("{}: {transitions} in {episodes}", path.display()))
}

/// A problem on one line.
pub(crate) fn describe(problem: &Problem) -> String {
    let kind = if problem.is_error() { "error" } else { "remark" };
    let column = problem.column.as_deref().map_or(String::new(), |column| format!(" {column}"));
    let row = problem.row.map_or(String::new(), |row| format!(" row {row}"));
    format!("{kind} [{}]{column}{row}: {}", problem.code.as_str(), problem.message)
}
