//! A training run from a log to a run directory: shared by `train`, `sweep` and `quickstart`.

use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use coptidice_agents::config::LimitConfig;
use coptidice_agents::{
    CheckpointError, LogFacts, Observer, RawConfig, TrainConfig, TrainIo, TrainOutcome, infeasible_limit,
};
use coptidice_core::CostLimit;
use coptidice_data::{Problem, Transitions, check_limits};
use coptidice_report::metrics::{MetricsError, MetricsLog};

use crate::failure::Failure;
use crate::pages::{LogPicture, PolicyPicture};
use crate::progress::Progress;
use crate::run_directory::{LimitEntry, Manifest, RunDirectory, write_json, write_text};

/// Whether the user asked to stop; set once by Ctrl-C or a termination signal.
static STOP: AtomicBool = AtomicBool::new(false);

/// Turns the first Ctrl-C into a request that a run can answer with a checkpoint; the second one ends the program.
pub(crate) fn stop_on_interrupt() {
    static INSTALLED: OnceLock<()> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        let installed = ctrlc::set_handler(|| {
            if STOP.swap(true, Ordering::SeqCst) {
                std::process::exit(1);
            }
            eprintln!("stopping as soon as the work can be saved; once more to stop at once");
        });
        if let Err(error) = installed {
            tracing::warn!("Ctrl-C will end the program without a checkpoint: {error}");
        }
    });
}

/// Whether Ctrl-C was pressed.
pub(crate) fn stop_requested() -> bool {
    STOP.load(Ordering::SeqCst)
}

/// What to train, where, and from what.
pub(crate) struct Job<'a> {
    /// The log.
    pub(crate) data: &'a Transitions,
    /// What is to be said about it; the report repeats it.
    pub(crate) problems: Vec<Problem>,
    /// Its name for the manifest.
    pub(crate) log_name: String,
    /// The configuration as given.
    pub(crate) raw: RawConfig,
    /// The run directory.
    pub(crate) out: &'a Path,
    /// Whether to go on from the newest checkpoint.
    pub(crate) resume: bool,
    /// The command, for the manifest.
    pub(crate) command: Vec<String>,
    /// Whether to show progress.
    pub(crate) show_progress: bool,
}

/// Trains, and writes everything of the run directory that needs no simulator. Returns the validated configuration
/// and how the run ended.
pub(crate) fn train(job: Job<'_>) -> Result<(RunDirectory, TrainConfig, TrainOutcome), Failure> {
    let facts = LogFacts::of(job.data);
    if let (Some(remark), true) = (job.raw.no_bf16(), job.show_progress) {
        eprintln!("remark: {remark}");
    }
    let config = job.raw.validate(&facts).map_err(|error| Failure::input(&error))?;
    if !job.resume && job.out.join("manifest.json").exists() {
        return Err(Failure::usage(
            format!("{} already holds a run", job.out.display()),
            "choose another --out, or go on with it by --resume",
        ));
    }
    // An outcome that leaves nothing to write.
    if let Some(limit) = infeasible_limit(&config, job.data) {
        return Ok((RunDirectory::at(job.out), config, TrainOutcome::Infeasible(limit)));
    }
    let mut problems = job.problems;
    problems.extend(check_limits(job.data, &limits_by_column(&config, job.data)));
    if job.show_progress {
        for problem in &problems {
            eprintln!("{}", crate::commands::describe_problem(problem));
        }
    }
    let run = RunDirectory::create(job.out)?;
    // A run may have been killed between any two of these; the manifest, by which a run is known, comes last.
    let missing = |path: &Path| !job.resume || !path.exists();
    if missing(&run.config()) {
        write_text(&run.config(), &config.to_toml().map_err(|error| Failure::work(&error))?)?;
    }
    if missing(&run.inspection()) {
        write_json(&run.inspection(), &LogPicture::of(job.data, &problems))?;
    }
    if missing(&run.manifest_path()) {
        run.write_manifest(&manifest(&config, &facts, job.data, job.log_name, job.command))?;
    }
    let mut recorder = Recorder::new(run.root(), &config, job.show_progress);
    let io = TrainIo { directory: run.root().to_owned(), resume: job.resume };
    let outcome =
        coptidice_agents::train(&config, job.data, &io, &mut recorder).map_err(|error| classify(&error))?;
    recorder.finish()?;
    if let TrainOutcome::Finished { policy, estimates, evaluation, .. } = &outcome {
        if let Some(estimates) = estimates {
            crate::pages::write_estimates(&run, estimates)?;
        }
        if let Some(evaluation) = evaluation {
            PolicyPicture::new(evaluation, estimates.as_ref(), &entries(&config, &facts)).write(&run)?;
        }
        policy.save(&run.policy()).map_err(|error| Failure::work(&error))?;
        coptidice_agents::export::save_onnx(policy, &run.onnx()).map_err(|error| Failure::work(&error))?;
    }
    Ok((run, config, outcome))
}

/// The limit of each of the log's costs, where it has one.
fn limits_by_column(config: &TrainConfig, data: &Transitions) -> Vec<Option<CostLimit>> {
    let of = |name: &String| config.limits.iter().find(|limit| limit.cost == *name).map(|limit| limit.limit);
    data.cost_names().iter().map(of).collect()
}

/// Problems of the log or the configuration are the input's; the rest is the work's.
pub(crate) fn classify(error: &coptidice_agents::TrainError) -> Failure {
    use coptidice_agents::TrainError as E;
    match error {
        E::Config(_) | E::Problem(_) | E::Normalizer(_) | E::Split(_) | E::RunExists { .. } => {
            Failure::input(error)
        }
        E::Checkpoint(CheckpointError::ConfigDiffers { .. } | CheckpointError::DataDiffers { .. }) => {
            Failure::input(error)
        }
        _ => Failure::work(error),
    }
}

fn manifest(
    config: &TrainConfig,
    facts: &LogFacts,
    data: &Transitions,
    log: String,
    command: Vec<String>,
) -> Manifest {
    Manifest {
        coptidice: env!("CARGO_PKG_VERSION").to_owned(),
        log,
        data_fingerprint: data.fingerprint().to_string(),
        transitions: data.len(),
        episodes: data.episodes().len(),
        seed: config.seed,
        reading: config.reading(facts),
        limits: entries(config, facts),
        command,
    }
}

fn entries(config: &TrainConfig, facts: &LogFacts) -> Vec<LimitEntry> {
    config.limits.iter().map(|limit| entry(limit, config, facts)).collect()
}

fn entry(limit: &LimitConfig, config: &TrainConfig, facts: &LogFacts) -> LimitEntry {
    let (per_step, per_episode) = limit.limit.both_readings(facts.horizon.mean_steps());
    let given_per = limit.limit.unit();
    let constraint = limit.limit.constraint(config.reading(facts));
    let on_totals = constraint.is_ok_and(|constraint| constraint.last_step_credit != 0.0);
    LimitEntry { cost: limit.cost.clone(), given_per, per_step, per_episode, on_totals }
}

/// The record of a run in `root` that starts, or goes on, at `step`.
pub(crate) fn open_metrics(root: &Path, step: u64) -> Result<MetricsLog, MetricsError> {
    if step == 0 { MetricsLog::create(root) } else { MetricsLog::resume(root, step) }
}

/// A record that a resumed run would continue is input.
pub(crate) fn metrics_failure(error: &MetricsError) -> Failure {
    match error {
        MetricsError::Malformed { .. } => Failure::input(error),
        _ => Failure::work(error),
    }
}

/// Writes metrics as they come and shows progress.
struct Recorder<'a> {
    root: &'a Path,
    log: Option<MetricsLog>,
    failed: Option<MetricsError>,
    progress: Option<Progress>,
    checkpoint_every: u64,
    log_every: u64,
    steps: u64,
}

impl<'a> Recorder<'a> {
    fn new(root: &'a Path, config: &TrainConfig, show: bool) -> Self {
        Recorder {
            root,
            log: None,
            failed: None,
            progress: show.then(|| Progress::new(config.steps, "train")),
            checkpoint_every: config.checkpoint_every,
            log_every: config.log_every,
            steps: config.steps,
        }
    }

    /// Reports the first metrics that could not be written.
    fn finish(self) -> Result<(), Failure> {
        if let Some(progress) = self.progress {
            progress.finish();
        }
        self.failed.map_or(Ok(()), |error| Err(metrics_failure(&error)))
    }

    fn note(&mut self, result: Result<(), MetricsError>) {
        if let Err(error) = result {
            self.failed.get_or_insert(error);
        }
    }
}

impl Observer for Recorder<'_> {
    fn started(&mut self, step: u64) {
        match open_metrics(self.root, step) {
            Ok(log) => {
                let (recorded, expected) = (log.last_step().unwrap_or(0), step - step % self.log_every);
                if recorded < expected {
                    eprintln!(
                        "remark: metrics.jsonl ends at step {recorded}, the checkpoint is of step {step}: the figures \
                         of the steps between are lost, and curves have a gap there"
                    );
                }
                self.log = Some(log);
            }
            Err(error) => self.failed = Some(error),
        }
    }

    fn metrics(&mut self, step: u64, values: &[(&str, f64)]) {
        if let Some(log) = &mut self.log {
            let mut result = log.log(step, values);
            // On disk before the checkpoint of this step is, so that a resumed run continues a complete record.
            if step.is_multiple_of(self.checkpoint_every) || step == self.steps {
                result = result.and_then(|()| log.sync());
            }
            self.note(result);
        }
        if let Some(progress) = &mut self.progress {
            progress.set(step, || summary(values));
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
    let shown = ["reward", "cost", "compared", "lambda", "loss/policy"];
    let mut parts = Vec::new();
    for (name, value) in values {
        if shown
            .iter()
            .any(|stem| name == stem || name.strip_prefix(stem).is_some_and(|rest| rest.starts_with('/')))
        {
            parts.push(format!("{name} {value:.4}"));
        }
    }
    parts.join("  ")
}
