//! `coptidice quickstart`: the main job on simulated logs, with no file needed.

use std::path::{Path, PathBuf};

use clap::Args;
use coptidice_agents::config::RawLimit;
use coptidice_agents::{Algorithm, RawConfig, TrainOutcome};
use coptidice_core::LimitUnit;
use coptidice_core::statistics::{mean, standard_error};
use coptidice_data::Transitions;
use coptidice_report::page::{Evaluation as EvaluationTable, Section};
use coptidice_sim::{Evaluation, hazard};

use crate::failure::{Done, Failure};
use crate::output::line;
use crate::pages::{compose, evaluation_row, hazard_section, limit_readings};
use crate::run_directory::{RunDirectory, write_json};
use crate::simulate::{Request, environment, evaluate};
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

/// The settings of `experiments/hazard`, over the defaults: little weight on staying near the log, much caution.
const SETTINGS: &str = "alpha = 0.05\nepsilon = 0.2\n";

/// Flags of `quickstart`.
#[derive(Args)]
pub(crate) struct Quickstart {
    /// Directory for the runs and the report; runs of a former quickstart in it are replaced once the new ones are complete
    #[arg(long, value_name = "DIR", default_value = "runs/quickstart")]
    out: PathBuf,
    /// Seed of the log, of training and of the evaluation
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(..1 << 63))]
    seed: u64,
    /// Gradient steps of each training run
    #[arg(long, default_value_t = 6000, value_parser = clap::value_parser!(u64).range(1..))]
    steps: u64,
}

impl Quickstart {
    /// Simulates, trains, evaluates, and writes the page.
    pub(crate) fn run(self) -> Done {
        stop_on_interrupt();
        for algorithm in ALGORITHMS {
            check_own(&self.run_path(algorithm))?;
            // One that was stopped may have left a draft.
            check_own(&self.draft_path(algorithm))?;
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
        let table = EvaluationTable {
            environment: "nav/hazard".to_owned(),
            limits,
            rows: vec![
                logged_row(&data),
                evaluation_row("bc (cloned)", &cloned),
                evaluation_row("coptidice", &learned),
            ],
        };
        let paths = hazard_section(&data, &[("bc", &cloned), ("coptidice", &learned)]);
        let page = compose(&run, Some(vec![paths, Section::from(&table)]))?;
        page.write(&run.report()).map_err(|error| Failure::work(&error))?;
        for algorithm in ALGORITHMS {
            replace(&self.draft_path(algorithm), &self.run_path(algorithm))?;
        }
        let run = RunDirectory::open(&self.run_path(Algorithm::Coptidice))?;
        line(table.table().to_text(Some(110)).trim_end())?;
        line(&format!("report: {}", run.report().display()))
    }

    fn run_path(&self, algorithm: Algorithm) -> PathBuf {
        self.out.join(algorithm.name())
    }

    /// Where a run is made: it takes the place of a former one only when it is complete.
    fn draft_path(&self, algorithm: Algorithm) -> PathBuf {
        self.out.join(format!("{}.part", algorithm.name()))
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
            ..RawConfig::from_toml(SETTINGS).map_err(|error| Failure::work(&error))?
        };
        let job = Job {
            data,
            problems: Vec::new(),
            log_name: format!("{LOG_NAME}, seed {}", self.seed),
            raw,
            out: &self.draft_path(algorithm),
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
        let evaluation = evaluate(&policy, environment("nav/hazard")?.as_ref(), &request)?;
        write_json(&run.evaluation(), &evaluation)?;
        Ok((run, evaluation, limit_readings(&policy)))
    }
}

fn remove(run: &Path) -> Done {
    if !run.exists() {
        return Ok(());
    }
    std::fs::remove_dir_all(run).map_err(|error| Failure::writing(run, &error))
}

/// Puts a complete run where a former one may be.
fn replace(draft: &Path, run: &Path) -> Done {
    if run.exists() {
        eprintln!("replacing the run of a former quickstart in {}", run.display());
        remove(run)?;
    }
    std::fs::rename(draft, run).map_err(|error| Failure::writing(run, &error))
}

/// Refuses a directory with anything in it that no quickstart made.
fn check_own(run: &Path) -> Done {
    let empty = std::fs::read_dir(run).is_ok_and(|mut entries| entries.next().is_none());
    if !run.exists() || empty {
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
        assert_eq!(toml::from_str::<toml::Table>(super::SETTINGS).expect("valid TOML"), experiment);
    }
}
