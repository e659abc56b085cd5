//! One run of the online learner: its folder inside the pool, and the pool's members that it leaves.

use std::path::{Path, PathBuf};

use coptidice_agents::cdmpo::{self, CdmpoConfig};
use coptidice_agents::policy::Policy;
use coptidice_agents::{CheckpointError, Observer, TrainError, TrainIo, TrainOutcome};
use coptidice_report::metrics::MetricsLog;
use coptidice_sim::{EnvOptions, Environment};

use super::pool::{Member, Pool};
use super::simulator::InEnvironment;
use crate::failure::Failure;
use crate::progress::Progress;
use crate::run_directory::write_text;
use crate::simulate::{Request, evaluate};
use crate::training::{metrics_failure, open_metrics, stop_requested};

/// How the members of a pool are measured.
#[derive(Clone, Copy)]
pub(crate) struct Measure {
    /// Episodes.
    pub(crate) episodes: usize,
    /// Their seed.
    pub(crate) seed: u64,
}

/// A pool in the making.
pub(crate) struct Collection<'c> {
    /// The pool's folder.
    pub(crate) folder: &'c Path,
    /// The environment, and what it was made with.
    pub(crate) env: &'c dyn Environment,
    pub(crate) options: &'c EnvOptions,
    pub(crate) measure: Measure,
    pub(crate) pool: Pool,
}

impl Collection<'_> {
    /// Runs `config` to its end, or goes on with what was begun, and enters its policies into the pool.
    pub(crate) fn train(
        &mut self,
        config: &CdmpoConfig,
        progress: &mut Progress,
        done_before: u64,
    ) -> Result<TrainOutcome, Failure> {
        let name = format!("limit-{}-seed-{}", config.limit, config.seed);
        let root = self.folder.join(&name);
        std::fs::create_dir_all(&root).map_err(|error| Failure::writing(&root, &error))?;
        let mut simulator = InEnvironment::new(self.env, self.options)?;
        let mut recorder = Recorder {
            collection: self,
            config,
            name,
            root: root.clone(),
            progress,
            done_before,
            log: None,
            failed: None,
        };
        let io = TrainIo { directory: root, resume: true };
        let outcome = cdmpo::train(config, &mut simulator, &io, &mut recorder);
        if let Some(failure) = recorder.failed {
            return Err(failure);
        }
        outcome.map_err(|error| classify(&error))
    }

    /// Measures the policy that the run `name` left after `steps` and enters it, unless it is a member already.
    fn enter(&mut self, config: &CdmpoConfig, name: &str, steps: u64) -> Result<(), Failure> {
        let path = cdmpo::policy_file(Path::new(name), steps);
        let file = path.iter().map(|part| part.to_string_lossy()).collect::<Vec<_>>().join("/");
        if self.pool.members.iter().any(|member| member.policy == file) {
            return Ok(());
        }
        let policy = crate::policies::load(&self.folder.join(&file))?;
        let member = self.measure(&policy, config, file, steps)?;
        self.pool.insert(member);
        self.pool.write(self.folder)
    }

    fn measure(
        &self,
        policy: &Policy,
        config: &CdmpoConfig,
        file: String,
        steps: u64,
    ) -> Result<Member, Failure> {
        let Measure { episodes, seed } = self.measure;
        let request = Request { episodes, seed, acting: None, limits: None, record_paths: 0 };
        let evaluation = evaluate(policy, self.env, &request)?;
        Ok(Member {
            policy: file,
            limit: config.limit,
            seed: config.seed,
            steps,
            episodes,
            episode_seed: seed,
            return_mean: evaluation.return_mean,
            return_stderr: evaluation.return_stderr,
            cost_per_step: evaluation.costs.iter().map(|cost| cost.per_step).collect(),
            cost_per_step_stderr: evaluation.costs.iter().map(|cost| cost.per_step_stderr).collect(),
        })
    }
}

/// As in training on a log; what does not suit the environment is the input's fault besides.
fn classify(error: &TrainError) -> Failure {
    match error {
        TrainError::Unsuitable { .. } | TrainError::Network(_) => Failure::input(error),
        _ => crate::training::classify(error),
    }
}

/// Writes metrics, shows progress, enters members.
struct Recorder<'r, 'c> {
    collection: &'r mut Collection<'c>,
    config: &'r CdmpoConfig,
    name: String,
    root: PathBuf,
    progress: &'r mut Progress,
    /// Steps of the runs before this one.
    done_before: u64,
    log: Option<MetricsLog>,
    failed: Option<Failure>,
}

impl Recorder<'_, '_> {
    fn note<T>(&mut self, result: Result<T, Failure>) -> Option<T> {
        result.map_err(|failure| self.failed.get_or_insert(failure)).ok()
    }
}

impl Observer for Recorder<'_, '_> {
    fn started(&mut self, step: u64) {
        // Only now is it known that what was begun goes on under this configuration.
        let text = self.config.to_toml().map_err(|error| Failure::work(&error));
        let written = text.and_then(|text| write_text(&self.root.join("config.toml"), &text));
        self.note(written);
        let log = open_metrics(&self.root, step).map_err(|error| metrics_failure(&error));
        self.log = self.note(log);
        // What comes after this step is made anew, and need not be what it was.
        self.collection.pool.forget_after(self.config.limit, self.config.seed, step);
        // Policies that a run left which was cut off before they were entered.
        for steps in cdmpo::saved_steps(&self.root).into_iter().filter(|&steps| steps <= step) {
            let entered = self.collection.enter(self.config, &self.name, steps);
            self.note(entered);
        }
    }

    fn metrics(&mut self, step: u64, values: &[(&str, f64)]) {
        if let Some(log) = &mut self.log {
            // On disk before the checkpoint of this step is.
            let written = log.log(step, values).and_then(|()| log.sync());
            self.note(written.map_err(|error| metrics_failure(&error)));
        }
        let done = self.done_before + step.min(self.config.steps);
        let limit = self.config.limit;
        self.progress.set(done, || format!("limit {limit}  {}", summary(values)));
    }

    fn checkpoint(&mut self, step: u64, _: &Path) {
        // One at which the run was stopped leaves none.
        if cdmpo::policy_file(&self.root, step).is_file() {
            let entered = self.collection.enter(self.config, &self.name, step);
            self.note(entered);
        }
    }

    fn skipped(&mut self, error: &CheckpointError) {
        tracing::warn!("{error}; going on from an older checkpoint");
    }

    fn should_stop(&self) -> bool {
        stop_requested() || self.failed.is_some()
    }
}

/// The figures that say how a run stands, on one line.
fn summary(values: &[(&str, f64)]) -> String {
    let shown = values.iter().filter_map(|(name, value)| {
        let name = name.strip_prefix("episode/").or_else(|| name.starts_with("lambda/").then_some(*name))?;
        Some(format!("{name} {value:.3}"))
    });
    shown.collect::<Vec<_>>().join("  ")
}
