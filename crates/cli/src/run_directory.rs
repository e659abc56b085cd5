//! The directory of a run, and what lies where in it.

use std::path::{Path, PathBuf};

use coptidice_report::metrics::{EVENT_FILE, History, METRICS_FILE};
use coptidice_report::number::significant;
use serde::{Deserialize, Serialize};

use crate::failure::Failure;

/// A run's directory.
#[derive(Clone, Debug)]
pub(crate) struct RunDirectory {
    root: PathBuf,
}

/// What a run was made from. `manifest.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    /// Version of this program.
    pub(crate) coptidice: String,
    /// The log, as named on the command line.
    pub(crate) log: String,
    /// SHA-256 over the log's columns, whatever its format.
    pub(crate) data_fingerprint: String,
    /// Transitions of the log.
    pub(crate) transitions: usize,
    /// Episodes of the log.
    pub(crate) episodes: usize,
    /// Seed of every random stream.
    pub(crate) seed: u64,
    /// How the logged process is read: continuing, terminating or restart chain.
    pub(crate) reading: coptidice_core::ProcessReading,
    /// Limits with both readings.
    pub(crate) limits: Vec<LimitEntry>,
    /// The command that made the run.
    pub(crate) command: Vec<String>,
}

/// A limit in both units.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LimitEntry {
    /// The cost's name.
    pub(crate) cost: String,
    /// The unit it was given in.
    pub(crate) given_per: coptidice_core::LimitUnit,
    /// Average cost of a step.
    pub(crate) per_step: f64,
    /// Total cost of an episode of (mean) logged length.
    pub(crate) per_episode: f64,
    /// Whether the constraint is on the total of an episode of any length. Metrics of the cost then have the limit taken
    /// off in every last step, and are compared with 0.
    #[serde(default)]
    pub(crate) on_totals: bool,
}

impl LimitEntry {
    /// Both readings, as in "0.1 per step = 3 per episode".
    pub(crate) fn readings(&self) -> String {
        readings(self.per_step, self.per_episode)
    }
}

/// Both readings of a limit, in as many digits as anybody reads.
pub(crate) fn readings(per_step: f64, per_episode: f64) -> String {
    format!("{} per step = {} per episode", significant(per_step, 6), significant(per_episode, 6))
}

impl RunDirectory {
    /// A directory for a new run, or the one to resume.
    pub(crate) fn create(root: &Path) -> Result<Self, Failure> {
        std::fs::create_dir_all(root).map_err(|error| {
            Failure::usage(format!("{}: {error}", root.display()), "choose an --out that can be written")
        })?;
        Ok(Self::at(root))
    }

    /// A directory that need not be there.
    pub(crate) fn at(root: &Path) -> Self {
        RunDirectory { root: root.to_owned() }
    }

    /// A directory that holds a finished run.
    pub(crate) fn open(root: &Path) -> Result<Self, Failure> {
        let run = RunDirectory { root: root.to_owned() };
        if run.policy().is_file() || run.manifest_path().is_file() {
            Ok(run)
        } else {
            Err(Failure::usage(
                format!(
                    "{} is not a run directory: it has neither policy.safetensors nor manifest.json",
                    root.display()
                ),
                "give the directory that `coptidice train ... --out` wrote",
            ))
        }
    }

    /// The directory itself.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The policy that Rust programs load.
    pub(crate) fn policy(&self) -> PathBuf {
        self.root.join("policy.safetensors")
    }

    /// The policy for other runtimes.
    pub(crate) fn onnx(&self) -> PathBuf {
        self.root.join("policy.onnx")
    }

    /// The configuration with every default written out.
    pub(crate) fn config(&self) -> PathBuf {
        self.root.join("config.toml")
    }

    /// What the log looked like.
    pub(crate) fn inspection(&self) -> PathBuf {
        self.root.join("data.json")
    }

    /// The dual's estimates over the whole log.
    pub(crate) fn estimates(&self) -> PathBuf {
        self.root.join("estimates.json")
    }

    /// What the policy itself is estimated to earn and cost.
    pub(crate) fn policy_estimate(&self) -> PathBuf {
        self.root.join("policy_estimate.json")
    }

    /// Occupancy ratios of the log's rows, `[N]` f32; NaN in rows that training leaves out.
    pub(crate) fn weights(&self) -> PathBuf {
        self.root.join("occupancy_ratios.npy")
    }

    /// The page to read.
    pub(crate) fn report(&self) -> PathBuf {
        self.root.join("report.html")
    }

    /// The last evaluation in a simulator.
    pub(crate) fn evaluation(&self) -> PathBuf {
        self.root.join("evaluation.json")
    }

    /// Whether `path` is one of the run's own files, by whatever name.
    pub(crate) fn holds(&self, path: &Path) -> bool {
        let own = [
            self.policy(),
            self.onnx(),
            self.config(),
            self.inspection(),
            self.estimates(),
            self.policy_estimate(),
            self.weights(),
            self.report(),
            self.evaluation(),
            self.comparison(),
            self.manifest_path(),
            self.root.join(METRICS_FILE),
            self.root.join(EVENT_FILE),
        ];
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let (Ok(parent), Ok(root)) = (parent.canonicalize(), self.root.canonicalize()) else { return false };
        let named = parent == root && own.iter().any(|own| own.file_name() == path.file_name());
        // Also by way of a link, or inside its checkpoints.
        let real = path.canonicalize().ok();
        named
            || parent.starts_with(root.join("checkpoints"))
            || real.is_some_and(|real| own.iter().any(|own| own.canonicalize().is_ok_and(|own| own == real)))
    }

    /// How the policy compares with others, and the paths of all: of quickstart only.
    pub(crate) fn comparison(&self) -> PathBuf {
        self.root.join("comparison.json")
    }

    pub(crate) fn manifest_path(&self) -> PathBuf {
        self.root.join("manifest.json")
    }

    /// Writes the manifest.
    pub(crate) fn write_manifest(&self, manifest: &Manifest) -> Result<(), Failure> {
        write_json(&self.manifest_path(), manifest)
    }

    /// Reads the metrics.
    pub(crate) fn history(&self) -> Result<History, Failure> {
        History::read(&self.root.join(METRICS_FILE)).map_err(|error| Failure::input(&error))
    }

    /// Reads the manifest.
    pub(crate) fn manifest(&self) -> Result<Manifest, Failure> {
        read_json(&self.manifest_path())
    }
}

/// Writes text whole: under a temporary name, synced, renamed.
pub(crate) fn write_text(path: &Path, text: &str) -> Result<(), Failure> {
    coptidice_report::write_whole(path, text.as_bytes()).map_err(|error| Failure::writing(path, &error))
}

/// Writes a value as indented JSON with a final newline.
pub(crate) fn write_json(path: &Path, value: &impl Serialize) -> Result<(), Failure> {
    let mut text = serde_json::to_string_pretty(value).map_err(|error| Failure::writing(path, &error))?;
    text.push('\n');
    write_text(path, &text)
}

/// Reads a JSON file that this program wrote.
pub(crate) fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        Failure::usage(format!("{}: {error}", path.display()), "is this the directory of a run?")
    })?;
    serde_json::from_str(&text).map_err(|error| {
        Failure::usage(
            format!("{}: {error}", path.display()),
            "the file was changed or written by another version; train again",
        )
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn limits_are_shown_in_digits_that_mean_something() {
        assert_eq!(super::readings(0.38, 0.38 * 20.0), "0.38 per step = 7.6 per episode");
        assert_eq!(super::readings(0.57, 0.57 * 30.0), "0.57 per step = 17.1 per episode");
    }
}
