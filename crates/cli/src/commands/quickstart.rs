//! `coptidice quickstart`: the main job on simulated logs, with no file needed.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

use clap::Args;
use coptidice_agents::config::RawLimit;
use coptidice_agents::{Algorithm, RawConfig, TrainOutcome};
use coptidice_core::LimitUnit;
use coptidice_core::statistics::{mean, standard_error};
use coptidice_data::Transitions;
use coptidice_sim::{EnvOptions, Evaluation, hazard};

use crate::environment::environment;
use crate::failure::{Done, Failure};
use crate::output::line;
use crate::pages::{Comparison, limit_readings, logged_paths, write_run_report};
use crate::run_directory::{RunDirectory, write_json, write_text};
use crate::simulate::{Request, evaluate};
use crate::training::{Job, stop_on_interrupt, train};

/// Average cost of a step that the policy must keep: 4 of the 200 steps of an episode.
const LIMIT: f64 = 0.02;
/// What is trained.
const ALGORITHMS: [Algorithm; 2] = [Algorithm::Bc, Algorithm::Coptidice];
/// Episodes of the simulated log.
const LOGGED_EPISODES: usize = 300;
/// Share of them that keep the limit.
const SHARE_SAFE: f64 = 0.5;
/// Episodes of the evaluation.
const EVALUATED_EPISODES: usize = 50;

/// What manifests call the simulated log; a run that says so was made here and may be replaced.
const LOG_NAME: &str = "simulated hazard navigation";

/// In a directory of quickstart's own that is not a complete run, or no longer.
const MARKER: &str = "quickstart.draft";

/// Flags of `quickstart`.
#[derive(Args)]
pub(crate) struct Quickstart {
    /// Directory for the runs and the report; runs of a former quickstart in it are replaced once the new ones are
    /// complete
    #[arg(long, value_name = "DIR", default_value = "runs/quickstart")]
    out: PathBuf,
    /// Seed of the log, of training and of the evaluation
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(..1 << 63))]
    seed: u64,
    /// Gradient steps of each training run
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..))]
    steps: u64,
}

impl Quickstart {
    /// Simulates, trains, evaluates, and writes the page.
    pub(crate) fn run(self) -> Done {
        stop_on_interrupt();
        // Held until the program ends, however it ends.
        let _lock = self.lock()?;
        for algorithm in ALGORITHMS {
            for path in [self.run_path(algorithm), self.draft_path(algorithm), self.former_path(algorithm)] {
                check_own(&path)?;
            }
        }
        for algorithm in ALGORITHMS {
            // What one that was stopped has left: a draft, or a former run that had just been moved aside.
            let (run, former) = (self.run_path(algorithm), self.former_path(algorithm));
            if former.exists() && !run.exists() {
                std::fs::rename(&former, &run).map_err(|error| Failure::writing(&run, &error))?;
            }
            remove(&former)?;
            remove(&self.draft_path(algorithm))?;
        }
        eprintln!(
            "simulating {LOGGED_EPISODES} episodes of hazard navigation; {:.0}% keep the limit of {LIMIT} per step",
            100.0 * SHARE_SAFE
        );
        let data =
            hazard::logs(SHARE_SAFE, LOGGED_EPISODES, self.seed).map_err(|error| Failure::work(&error))?;
        let (_, cloned, _) = self.train_and_evaluate(&data, Algorithm::Bc)?;
        let (run, learned, limits) = self.train_and_evaluate(&data, Algorithm::Coptidice)?;
        let comparison = Comparison {
            logged_paths: logged_paths(&data),
            logged: logged_row(&data),
            policies: vec![("bc (cloned)".to_owned(), cloned), ("coptidice".to_owned(), learned)],
        };
        write_json(&run.comparison(), &comparison)?;
        write_run_report(&run)?;
        for algorithm in ALGORITHMS {
            let former = self.former_path(algorithm);
            replace(&self.draft_path(algorithm), &self.run_path(algorithm), &former)?;
        }
        let run = RunDirectory::open(&self.run_path(Algorithm::Coptidice))?;
        line(comparison.table(limits).table().to_text(Some(110)).trim_end())?;
        line(&format!("report: {}", run.report().display()))
    }

    fn run_path(&self, algorithm: Algorithm) -> PathBuf {
        self.out.join(algorithm.name())
    }

    /// Where a run is made: it takes the place of a former one only when it is complete.
    fn draft_path(&self, algorithm: Algorithm) -> PathBuf {
        self.out.join(format!("{}.part", algorithm.name()))
    }

    /// Where a former run lies while the new one takes its place.
    fn former_path(&self, algorithm: Algorithm) -> PathBuf {
        self.out.join(format!("{}.former", algorithm.name()))
    }

    /// Keeps a second quickstart out of the directory. The lock is the system's and ends with the program; its file
    /// stays.
    fn lock(&self) -> Result<File, Failure> {
        let path = self.out.join("quickstart.lock");
        std::fs::create_dir_all(&self.out).map_err(|error| {
            Failure::usage(format!("{}: {error}", self.out.display()), "choose an --out that can be written")
        })?;
        let file = File::create(&path).map_err(|error| Failure::writing(&path, &error))?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => Err(Failure::usage(
                format!("another quickstart is at work in {}", self.out.display()),
                "wait for it to end, or choose another --out",
            )),
            // Not every file system knows locks.
            Ok(()) | Err(TryLockError::Error(_)) => Ok(file),
        }
    }

    fn train_and_evaluate(
        &self,
        data: &Transitions,
        algorithm: Algorithm,
    ) -> Result<(RunDirectory, Evaluation, Vec<coptidice_report::page::LimitReading>), Failure> {
        eprintln!("training {algorithm}");
        let raw = RawConfig {
            algo: Some(algorithm),
            steps: Some(self.steps),
            seed: Some(self.seed),
            limits: vec![RawLimit { cost: None, limit: LIMIT, unit: Some(LimitUnit::Step), horizon: None }],
            ..RawConfig::default()
        };
        let draft = self.draft_path(algorithm);
        std::fs::create_dir_all(&draft).map_err(|error| Failure::writing(&draft, &error))?;
        // Before any other file, so that a draft is known for one whenever it was left.
        write_text(&draft.join(MARKER), "")?;
        let job = Job {
            data,
            problems: Vec::new(),
            log_name: format!("{LOG_NAME}, seed {}", self.seed),
            raw,
            out: &draft,
            resume: false,
            command: std::env::args().collect(),
            show_progress: true,
        };
        let (run, _, outcome) = train(job)?;
        let TrainOutcome::Finished { policy, .. } = outcome else {
            return Err(Failure::work_because(
                format!("training {algorithm} did not finish: {outcome:?}"),
                "start quickstart again",
            ));
        };
        let request = Request {
            episodes: EVALUATED_EPISODES,
            seed: self.seed,
            acting: None,
            limits: None,
            record_paths: 20,
        };
        let evaluation =
            evaluate(&policy, environment("nav/hazard", &EnvOptions::default())?.as_ref(), &request)?;
        write_json(&run.evaluation(), &evaluation)?;
        Ok((run, evaluation, limit_readings(&policy)))
    }
}

/// Removes a run or draft, its marker last: what is left of it when this is stopped is still known.
fn remove(run: &Path) -> Done {
    if !run.exists() {
        return Ok(());
    }
    write_text(&run.join(MARKER), "")?;
    let all_but_marker = || {
        for entry in std::fs::read_dir(run)? {
            let entry = entry?;
            if entry.file_name() == MARKER {
                continue;
            }
            if entry.file_type()?.is_dir() {
                std::fs::remove_dir_all(entry.path())?;
            } else {
                std::fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    };
    all_but_marker()
        .and_then(|()| std::fs::remove_file(run.join(MARKER)))
        .and_then(|()| std::fs::remove_dir(run))
        .map_err(|error: std::io::Error| Failure::writing(run, &error))
}

/// Puts a complete run where a former one may be, which is moved aside first and removed last.
fn replace(draft: &Path, run: &Path, former: &Path) -> Done {
    let rename =
        |from: &Path, to: &Path| std::fs::rename(from, to).map_err(|error| Failure::writing(to, &error));
    if run.exists() {
        eprintln!("replacing the run of a former quickstart in {}", run.display());
        rename(run, former)?;
    }
    let marker = draft.join(MARKER);
    std::fs::remove_file(&marker).map_err(|error| Failure::writing(&marker, &error))?;
    rename(draft, run)?;
    remove(former)
}

/// Refuses a directory with anything in it that no quickstart made.
fn check_own(run: &Path) -> Done {
    // A file that was being written when the program was killed says nothing about whose the directory is.
    let named = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.is_ok_and(|entry| !entry.file_name().to_string_lossy().starts_with(".coptidice-"))
    };
    let empty = std::fs::read_dir(run).is_ok_and(|mut entries| !entries.any(named));
    if !run.exists() || empty || run.join(MARKER).is_file() {
        return Ok(());
    }
    let own = RunDirectory::open(run).and_then(|run| run.manifest()).ok();
    if own.is_some_and(|manifest| manifest.log.starts_with(LOG_NAME)) {
        return Ok(());
    }
    Err(Failure::usage(
        format!("{} holds something that is not the run of a quickstart", run.display()),
        "choose another --out; quickstart replaces only what it made itself",
    ))
}

/// The log itself, as a line to compare with.
fn logged_row(data: &Transitions) -> coptidice_report::page::EvaluationRow {
    let episodes = data.episodes();
    let n = episodes.len() as f64;
    let returns = data.episode_totals(|i| data.reward(i));
    let costs = data.episode_totals(|i| data.costs(i)[0]);
    let stderr = |values: &[f64]| standard_error(values).unwrap_or(f64::NAN);
    let steps = data.len() as f64 / n;
    let over = episodes.iter().zip(&costs).filter(|(e, c)| **c / e.len as f64 > LIMIT).count();
    coptidice_report::page::EvaluationRow {
        policy: "logged".to_owned(),
        episodes: 0,
        return_mean: mean(&returns),
        return_stderr: stderr(&returns),
        costs: vec![coptidice_report::page::EvaluatedCost {
            per_step: mean(&costs) / steps,
            per_step_stderr: stderr(&costs) / steps,
            per_episode: mean(&costs),
            per_episode_stderr: stderr(&costs),
            share_over_limit: over as f64 / n,
        }],
    }
}

#[cfg(test)]
mod tests {
    /// Quickstart trains with defaults, and so does the experiment of which it is one cell.
    #[test]
    fn settings_are_those_of_the_experiment() {
        let plan: toml::Table =
            toml::from_str(include_str!("../../../../experiments/hazard/sweep.toml")).expect("a description");
        let mut experiment = plan["settings"].as_table().expect("settings").clone();
        let variants = plan["variants"].as_array().expect("variants");
        let coptidice = variants.iter().find(|v| v["name"].as_str() == Some("coptidice")).expect("coptidice");
        experiment.extend(coptidice["settings"].as_table().expect("settings").clone());
        experiment.remove("steps");
        experiment.remove("algo");
        assert_eq!(experiment, toml::Table::new());
    }
}
