//! The page of a run, put together from what its directory holds.

use std::path::PathBuf;

use coptidice_agents::policy::{LimitAbout, Policy};
use coptidice_agents::{Estimates, RawConfig};
use coptidice_core::{LimitUnit, ProcessReading};
use coptidice_data::{Actions, Transitions};
use coptidice_report::metrics::History;
use coptidice_report::number::significant;
use coptidice_report::page::{
    ActionSummary, CostReading, CostSummary, Curves, DataSummary, EvaluatedCost, Evaluation, EvaluationRow,
    Evidence, LimitReading, Problem, Problems, Report, Reproduce, Section, Verdict, WeightSummary,
};
use coptidice_report::table::Status;
use coptidice_sim::Evaluation as Simulated;
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::run_directory::{LimitEntry, Manifest, RunDirectory, read_json, write_json};

mod dual;
pub(crate) mod experiment;
mod hazard_map;
mod policy_estimate;
pub(crate) mod tabular;

pub(crate) use dual::{DualCost, DualEstimates};
pub(crate) use hazard_map::logged_paths;
pub(crate) use policy_estimate::{PolicyPicture, limit_of};

/// What the log looked like: `data.json` of a run directory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LogPicture {
    transitions: usize,
    observation_dim: usize,
    continuous: bool,
    /// Components of an action, or number of actions.
    action_size: usize,
    lengths: Vec<f64>,
    returns: Vec<f64>,
    costs: Vec<CostPicture>,
    problems: Vec<ProblemPicture>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct CostPicture {
    name: String,
    per_step: f64,
    per_episode: Vec<f64>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct ProblemPicture {
    error: bool,
    code: String,
    place: String,
    message: String,
}

impl LogPicture {
    /// Looks at a log.
    pub(crate) fn of(data: &Transitions, problems: &[coptidice_data::Problem]) -> Self {
        let (continuous, action_size) = match data.actions() {
            Actions::Continuous { dim, .. } => (true, *dim),
            Actions::Discrete { count, .. } => (false, *count),
        };
        let costs = data.cost_names().iter().enumerate().map(|(k, name)| {
            let per_episode = data.episode_totals(|i| data.costs(i)[k]);
            let per_step = per_episode.iter().sum::<f64>() / data.len() as f64;
            CostPicture { name: name.clone(), per_step, per_episode }
        });
        LogPicture {
            transitions: data.len(),
            observation_dim: data.observation_dim(),
            continuous,
            action_size,
            lengths: data.episodes().iter().map(|e| e.len as f64).collect(),
            returns: data.episode_totals(|i| data.reward(i)),
            costs: costs.collect(),
            problems: problems.iter().map(ProblemPicture::of).collect(),
        }
    }

    /// As the report crate draws it.
    pub(crate) fn summary(&self, source: &str, limits: &[LimitEntry]) -> DataSummary {
        let mean_steps = self.lengths.iter().sum::<f64>() / self.lengths.len().max(1) as f64;
        DataSummary {
            source: source.to_owned(),
            transitions: self.transitions as u64,
            observation_dim: self.observation_dim,
            action: if self.continuous {
                ActionSummary::Continuous { dim: self.action_size }
            } else {
                ActionSummary::Discrete { count: self.action_size }
            },
            lengths: self.lengths.clone(),
            returns: self.returns.clone(),
            costs: self
                .costs
                .iter()
                .map(|cost| CostSummary {
                    name: cost.name.clone(),
                    per_step: cost.per_step,
                    per_episode: cost.per_episode.clone(),
                    limit: limits.iter().find(|l| l.cost == cost.name).map(|l| reading(l, mean_steps)),
                })
                .collect(),
        }
    }

    fn problems(&self) -> Problems {
        Problems(self.problems.iter().map(ProblemPicture::shown).collect())
    }
}

impl ProblemPicture {
    fn of(problem: &coptidice_data::Problem) -> Self {
        let mut place = problem.column.clone().unwrap_or_default();
        if let Some(row) = problem.row {
            place = format!("{place} row {row}").trim().to_owned();
        }
        ProblemPicture {
            error: problem.is_error(),
            code: problem.code.as_str().to_owned(),
            place,
            message: problem.message.clone(),
        }
    }

    /// As the report crate draws it.
    fn shown(&self) -> Problem {
        Problem {
            status: if self.error { Status::Bad } else { Status::Warning },
            code: self.code.clone(),
            place: self.place.clone(),
            message: self.message.clone(),
        }
    }
}

/// A limit of a manifest as the report crate shows it.
fn reading(limit: &LimitEntry, mean_steps: f64) -> LimitReading {
    LimitReading {
        cost: limit.cost.clone(),
        unit: limit.given_per,
        per_step: limit.per_step,
        per_episode: limit.per_episode,
        mean_steps,
    }
}

/// Policies beside each other in hazard navigation: `comparison.json` of a run directory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Comparison {
    /// Positions of logged episodes, metres.
    pub(crate) logged_paths: Vec<Vec<[f32; 2]>>,
    /// The log itself.
    pub(crate) logged: EvaluationRow,
    /// Each policy's name and evaluation; the run's own comes last.
    pub(crate) policies: Vec<(String, Simulated)>,
}

impl Comparison {
    /// The log and the policies in figures.
    pub(crate) fn table(&self, limits: Vec<LimitReading>) -> Evaluation {
        let rows = self.policies.iter().map(|(name, evaluation)| evaluation_row(name, evaluation));
        Evaluation {
            environment: self.policies.first().map_or_else(String::new, |(_, e)| e.environment.clone()),
            limits,
            rows: std::iter::once(self.logged.clone()).chain(rows).collect(),
        }
    }
}

/// A page that was written.
pub(crate) struct WrittenPage {
    /// Where.
    pub(crate) path: PathBuf,
    /// What is missing from the record of the run, if anything.
    pub(crate) gap: Option<String>,
}

/// Writes `report.html`.
pub(crate) fn write_run_report(run: &RunDirectory) -> Result<WrittenPage, Failure> {
    let (page, gap) = compose(run)?;
    page.write(&run.report()).map_err(|error| Failure::work(&error))?;
    Ok(WrittenPage { path: run.report(), gap })
}

/// The page of a run, and what is missing from the run's record.
fn compose(run: &RunDirectory) -> Result<(Report, Option<String>), Failure> {
    let manifest = run.manifest()?;
    let picture: LogPicture = read_json(&run.inspection())?;
    let config_text =
        std::fs::read_to_string(run.config()).map_err(|error| Failure::writing(&run.config(), &error))?;
    let config = RawConfig::from_toml(&config_text).map_err(|error| Failure::input(&error))?;
    let history = run.history()?;
    let evaluation: Option<Simulated> =
        if run.evaluation().exists() { Some(read_json(&run.evaluation())?) } else { None };
    let algorithm = config.algo.map_or("coptidice", |algo| algo.name());
    let steps = history.last_step().unwrap_or(0);
    let summary = picture.summary(&manifest.log, &manifest.limits);
    let mean_steps = summary.lengths.iter().sum::<f64>() / summary.lengths.len().max(1) as f64;
    let (estimated, dual) = (PolicyPicture::of(run)?, DualEstimates::of(run)?);
    let mut report = Report::new("Training report", format!("{algorithm} on {}", file_name(&manifest.log)))
        .subtitle(format!("{steps} steps, seed {}; {}", manifest.seed, process(&manifest)))
        .verdict(verdict(
            algorithm,
            steps,
            &manifest,
            mean_steps,
            &history,
            dual.as_ref(),
            estimated.as_ref(),
            evaluation.as_ref(),
        ));
    for (label, value, note) in key_figures(&history, dual.as_ref()) {
        report = report.key_figure(label, value, note);
    }
    let comparison: Option<Comparison> =
        if run.comparison().exists() { Some(read_json(&run.comparison())?) } else { None };
    if let Some(comparison) = &comparison {
        let limits = manifest.limits.iter().map(|limit| reading(limit, mean_steps)).collect();
        report = report
            .section(hazard_map::section(&comparison.logged_paths, &comparison.policies))
            .section(&comparison.table(limits));
    }
    // Once is enough.
    let compared = comparison.as_ref().and_then(|c| c.policies.last()).map(|(_, compared)| compared);
    if let Some(evaluation) = evaluation.as_ref().filter(|&own| Some(own) != compared) {
        report = report.section(&simulated(algorithm, &manifest, mean_steps, evaluation));
    }
    if let Some(estimated) = &estimated {
        report = report.section(estimated.section(&manifest.limits));
    }
    let gap = gap(&config, &history, run.policy().exists());
    if let Some(gap) = &gap {
        report = report.section(Section::new("Record of training").callout(Status::Warning, gap.clone()));
    }
    if run.weights().exists() {
        report = report.section(&WeightSummary::of(&read_weights(run)?));
    }
    if let Some(table) = picture.problems().table() {
        report = report.section(Section::new("Remarks on the log").table(table));
    }
    let taken = matches!(manifest.reading, ProcessReading::Terminating { .. })
        .then(|| history.of_steps_taken())
        .filter(|taken| !taken.records().is_empty());
    let report = report
        .section(Curves::training(taken.as_ref().unwrap_or(&history), config.epsilon))
        .section(&summary)
        .section(Reproduce {
            command: manifest.command.join(" "),
            config: config_text,
            facts: facts(&manifest),
        })
        .footer(format!("coptidice {}", manifest.coptidice));
    Ok((report, gap))
}

/// What is missing from the record of a run, if anything. A run that was stopped has no `policy` yet and may end anywhere.
fn gap(config: &RawConfig, history: &History, policy: bool) -> Option<String> {
    let every = config.log_every?.max(1);
    let end = config.steps.filter(|_| policy).or(history.last_step())?;
    let mut missing = None;
    let mut before = 0_u64;
    for step in history.records().iter().map(|record| record.step).chain([end]) {
        if step > before.saturating_add(every) || (step == end && history.last_step() != Some(end)) {
            missing.get_or_insert((before, step));
        }
        before = step;
    }
    missing.map(|(from, to)| {
        format!(
            "metrics.jsonl holds nothing of the steps after {from} up to {to}: curves and late means lack them. Only \
             training anew brings them back"
        )
    })
}

/// Writes the dual's estimates over the whole log, and the occupancy ratios they are made of.
pub(crate) fn write_estimates(run: &RunDirectory, estimates: &Estimates) -> Result<(), Failure> {
    let figures = DualEstimates {
        mean_weight: estimates.mean_weight,
        reward_per_step: estimates.reward,
        episodes_per_step: estimates.episodes_per_step,
        costs: estimates.costs.clone(),
        rows_visited: estimates.weights.len(),
        stride: estimates.stride,
    };
    write_json(&run.estimates(), &figures)?;
    ndarray_npy::write_npy(run.weights(), &ndarray::aview1(&estimates.weights))
        .map_err(|error| Failure::writing(&run.weights(), &error))
}

fn read_weights(run: &RunDirectory) -> Result<Vec<f64>, Failure> {
    let weights: ndarray::Array1<f32> =
        ndarray_npy::read_npy(run.weights()).map_err(|error| Failure::input(&error))?;
    // Rows that training left out have none.
    Ok(weights.iter().filter(|w| !w.is_nan()).map(|&w| f64::from(w)).collect())
}

fn file_name(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().unwrap_or(path)
}

fn process(manifest: &Manifest) -> String {
    match manifest.reading {
        ProcessReading::Continuing { gamma } => {
            let chance = significant(1.0 - gamma, 3);
            format!(
                "process read as starting anew after every step with the chance {chance}, discount {gamma}"
            )
        }
        ProcessReading::Terminating { gamma } => {
            format!("process read as ending in terminals, and going on after time-outs, discount {gamma}")
        }
        ProcessReading::RestartChain => "process read as a chain of episodes, undiscounted".to_owned(),
    }
}

/// The metric's mean over the last tenth of the steps in which it moved: a single batch is noise, and while the policy
/// trains alone the figures of the dual's last batch stand still.
pub(crate) fn late(history: &History, name: &str) -> Option<f64> {
    let series = history.series(name);
    let (_, last) = series.last()?;
    let standing = series.iter().rev().take_while(|(_, value)| value.to_bits() == last.to_bits()).count();
    let (end, _) = series[series.len() - standing];
    let recent = |step: u64| step <= end && step.saturating_mul(10) >= end.saturating_mul(9);
    let values: Vec<f64> = series.iter().filter(|(step, _)| recent(*step)).map(|&(_, value)| value).collect();
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// A cost per step in the unit that its limit was given in.
fn in_unit(limit: &LimitEntry, per_step: f64, mean_steps: f64) -> f64 {
    match limit.given_per {
        LimitUnit::Step => per_step,
        LimitUnit::Episode => per_step * mean_steps,
    }
}

fn verdict(
    algorithm: &str,
    steps: u64,
    manifest: &Manifest,
    mean_steps: f64,
    history: &History,
    dual: Option<&DualEstimates>,
    estimated: Option<&PolicyPicture>,
    evaluation: Option<&Simulated>,
) -> Verdict {
    let mut verdict = Verdict::new(format!("{algorithm}, {steps} steps, seed {}", manifest.seed));
    for limit in &manifest.limits {
        let shown = reading(limit, mean_steps);
        if let Some(found) = DualCost::of(limit, history, dual) {
            let in_unit =
                |value: f64| if found.per_episode { value } else { in_unit(limit, value, mean_steps) };
            verdict = verdict.cost(CostReading {
                estimate: in_unit(found.estimate),
                upper_bound: found.upper_bound.map(in_unit),
                evidence: Evidence::Optimum,
                tolerance: 0.02 * shown.value().abs(),
                limit: shown.clone(),
            });
        }
        let way = estimated.and_then(|picture| picture.ways.first());
        if let Some((way, cost)) =
            way.and_then(|w| w.costs.iter().find(|c| c.name == limit.cost).map(|c| (w, c)))
        {
            verdict = verdict.cost(CostReading {
                estimate: match (limit.given_per, cost.per_episode) {
                    (LimitUnit::Episode, Some(total)) => total,
                    _ => in_unit(limit, cost.per_step, mean_steps),
                },
                upper_bound: None,
                evidence: Evidence::Fitted { held_out: way.held_out },
                tolerance: 0.0,
                limit: shown.clone(),
            });
        }
        let found = evaluation.and_then(|e| {
            let single = e.costs.len() == 1 && manifest.limits.len() == 1;
            e.costs.iter().find(|c| single || c.name == limit.cost).map(|c| (e.episodes, c))
        });
        if let Some((episodes, cost)) = found {
            verdict = verdict.cost(CostReading {
                estimate: match limit.given_per {
                    LimitUnit::Step => cost.per_step,
                    LimitUnit::Episode => cost.per_episode,
                },
                upper_bound: None,
                evidence: Evidence::Simulated { episodes: episodes as u64 },
                tolerance: 0.0,
                limit: shown,
            });
        }
    }
    verdict
}

fn key_figures(history: &History, dual: Option<&DualEstimates>) -> Vec<(String, String, String)> {
    let mut cards = Vec::new();
    let show = |value: f64| format!("{value:.4}");
    if let Some(reward) = DualEstimates::reward(dual, history) {
        cards.push(("reward per step".to_owned(), show(reward), "the dual's estimate".to_owned()));
    }
    for name in history.names() {
        if let (Some(cost), Some(value)) = (name.strip_prefix("lambda/"), late(history, name)) {
            let note = if value < 1e-2 { "the limit does not bind" } else { "price of the cost in reward" };
            cards.push((format!("lambda, {cost}"), show(value), note.to_owned()));
        }
    }
    if let Some(share) = late(history, "w/effective_share") {
        let text = format!("{:.0}%", 100.0 * share);
        cards.push(("effective sample size".to_owned(), text, "of the log, by the ratios w".to_owned()));
    }
    cards
}

/// An evaluation as the report crate shows it.
fn simulated(algorithm: &str, manifest: &Manifest, mean_steps: f64, evaluation: &Simulated) -> Evaluation {
    let single = evaluation.costs.len() == 1 && manifest.limits.len() == 1;
    let mut limits = Vec::new();
    for cost in &evaluation.costs {
        let entry = manifest.limits.iter().find(|l| single || l.cost == cost.name);
        limits.push(match entry {
            Some(entry) => reading(entry, mean_steps),
            None => LimitReading::new(cost.name.clone(), cost.limit, mean_steps),
        });
    }
    Evaluation {
        environment: evaluation.environment.clone(),
        limits,
        rows: vec![evaluation_row(algorithm, evaluation)],
    }
}

/// One policy's line.
pub(crate) fn evaluation_row(policy: &str, evaluation: &Simulated) -> EvaluationRow {
    EvaluationRow {
        policy: policy.to_owned(),
        episodes: evaluation.episodes as u64,
        return_mean: evaluation.return_mean,
        return_stderr: evaluation.return_stderr.unwrap_or(f64::NAN),
        costs: evaluation
            .costs
            .iter()
            .map(|cost| EvaluatedCost {
                per_step: cost.per_step,
                per_step_stderr: cost.per_step_stderr.unwrap_or(f64::NAN),
                per_episode: cost.per_episode,
                per_episode_stderr: cost.per_episode_stderr.unwrap_or(f64::NAN),
                share_over_limit: cost.share_over_limit,
            })
            .collect(),
    }
}

fn facts(manifest: &Manifest) -> Vec<(String, String)> {
    let mut facts = vec![
        ("version".to_owned(), manifest.coptidice.clone()),
        ("log".to_owned(), manifest.log.clone()),
        ("fingerprint of the log".to_owned(), manifest.data_fingerprint.clone()),
        ("seed".to_owned(), manifest.seed.to_string()),
    ];
    for limit in &manifest.limits {
        let text = format!("{}; given per {}", limit.readings(), limit.given_per);
        facts.push((format!("limit of {}", limit.cost), text));
    }
    facts
}

/// The limits of a policy, for tables.
pub(crate) fn limit_readings(policy: &Policy) -> Vec<LimitReading> {
    let one = |l: &LimitAbout| LimitReading::new(l.cost.clone(), l.limit, l.episode_steps);
    policy.about().limits.iter().map(one).collect()
}
