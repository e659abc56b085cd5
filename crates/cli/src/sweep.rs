//! Many training runs: a plan, its cells, and the table of their results.
//!
//! A cell is one variant on one log with one seed. Its run directory and its result have names made of these three,
//! so a sweep that was stopped goes on where it was, and parts made on several machines lie beside each other.

mod curves;
mod results;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use coptidice_agents::config::{Extraction, Preset, RawLimit};
use coptidice_agents::{Algorithm, LogFacts, PolicyEvaluation, RawConfig, TrainOutcome};
use coptidice_core::LimitUnit;
use coptidice_data::{CheckOptions, ReadOptions, Transitions};
use coptidice_report::metrics::History;
use coptidice_sim::EnvOptions;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::environment::environment;
use crate::failure::{Done, Failure};
use crate::progress::Progress;
use crate::run_directory::{read_json, write_json, write_text};
use crate::simulate::{Request, evaluate};
use crate::training::{Job, stop_requested, train};

pub(crate) use curves::CurvePoint;
pub(crate) use results::tabulate;

/// A sweep as it is written.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Plan {
    /// What the sweep shows; the table's title.
    pub(crate) title: String,
    /// Where policies are evaluated.
    pub(crate) environment: String,
    /// Parameters of the environment.
    #[serde(default)]
    pub(crate) environment_options: EnvOptions,
    /// Episodes of an evaluation.
    pub(crate) episodes: usize,
    /// Seeds of training. Evaluation draws the same episodes for every cell.
    pub(crate) seeds: Vec<u64>,
    /// The limit of the only or first cost.
    pub(crate) limit: f64,
    /// The limit's unit.
    pub(crate) limit_unit: LimitUnit,
    /// Policies are also evaluated after every so many steps of their own training, and the curves drawn.
    pub(crate) curve_every: Option<u64>,
    /// Settings of every variant.
    #[serde(default)]
    pub(crate) settings: toml::Table,
    /// The logs.
    pub(crate) logs: Vec<LogPlan>,
    /// What is trained.
    pub(crate) variants: Vec<Variant>,
}

/// A log of a sweep: a file (here or on the command line), or one made by the environment.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LogPlan {
    /// Its name in the table.
    pub(crate) name: String,
    /// The file, relative to the working directory.
    pub(crate) file: Option<PathBuf>,
    /// Simulated hazard navigation.
    pub(crate) hazard: Option<HazardPlan>,
}

/// How hazard-navigation logs are simulated.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HazardPlan {
    /// Share of safe episodes.
    pub(crate) share_safe: f64,
    /// Number of episodes.
    pub(crate) episodes: usize,
    /// Seed of the log.
    pub(crate) seed: u64,
}

/// One way of training.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Variant {
    /// Its name in the table.
    pub(crate) name: String,
    /// Settings over those of the sweep, key by key also inside tables.
    #[serde(default)]
    pub(crate) settings: toml::Table,
}

/// Part `index` (from 1) of `count`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shard {
    pub(crate) index: usize,
    pub(crate) count: usize,
}

impl std::str::FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = |part: &str| part.parse::<usize>().ok();
        match text.split_once('/').and_then(|(i, n)| Some((parse(i)?, parse(n)?))) {
            Some((index, count)) if (1..=count).contains(&index) => Ok(Shard { index, count }),
            _ => Err("write it as I/N with 1 <= I <= N".to_owned()),
        }
    }
}

/// A plan with its logs in memory.
pub(crate) struct Sweep {
    pub(crate) plan: Plan,
    logs: BTreeMap<String, Transitions>,
    out: PathBuf,
}

/// One variant on one log with one seed.
#[derive(Clone, Copy)]
pub(crate) struct Cell<'s> {
    pub(crate) log: &'s LogPlan,
    pub(crate) variant: &'s Variant,
    pub(crate) seed: u64,
}

/// What a cell showed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct CellResult {
    pub(crate) log: String,
    pub(crate) variant: String,
    pub(crate) seed: u64,
    /// The configuration it was trained with, as written (TOML).
    pub(crate) settings: String,
    /// Fingerprint of the log.
    pub(crate) fingerprint: String,
    /// Whether training came to its end, or why not; no figure of a simulator then.
    pub(crate) outcome: String,
    /// Mean return of an episode in the simulator.
    pub(crate) return_mean: Option<f64>,
    /// Cost per step in the simulator.
    pub(crate) cost_per_step: Option<f64>,
    /// Share of episodes over the limit.
    pub(crate) share_over_limit: Option<f64>,
    /// The dual's own estimate of the reward per step, `E[w r] / E[w]`, over the last tenth of training.
    pub(crate) promised_reward: Option<f64>,
    /// The dual's own estimate of the cost per step, `E[w c] / E[w]`, likewise.
    pub(crate) promised_cost: Option<f64>,
    /// The upper bound that was compared with the limit, likewise.
    pub(crate) promised_bound: Option<f64>,
    /// `lambda`, likewise.
    pub(crate) lambda: Option<f64>,
    /// What is estimated of the policy itself without a simulator, reward per step.
    #[serde(default)]
    pub(crate) estimated_reward: Option<f64>,
    /// Cost per step, likewise.
    #[serde(default)]
    pub(crate) estimated_cost: Option<f64>,
    /// What the policy was on the way.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) curve: Vec<CurvePoint>,
}

impl Plan {
    /// What would only show after hours of training, or mix cells up.
    fn check(&self) -> Result<(), String> {
        if self.limit_unit == LimitUnit::Episode {
            return Err("sweeps compare costs per step; give the limit per step".to_owned());
        }
        if self.curve_every == Some(0) {
            return Err("curve_every is a number of steps from 1".to_owned());
        }
        if self.episodes == 0 || self.seeds.is_empty() || self.logs.is_empty() || self.variants.is_empty() {
            return Err("episodes, seeds, logs and variants must be at least one each".to_owned());
        }
        let mut seeds = self.seeds.clone();
        seeds.sort_unstable();
        if seeds.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err("a seed stands there twice; repeated runs are the same run".to_owned());
        }
        for names in [
            self.logs.iter().map(|log| &log.name).collect::<Vec<_>>(),
            self.variants.iter().map(|variant| &variant.name).collect(),
        ] {
            for (i, name) in names.iter().enumerate() {
                let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
                if name.is_empty() || !name.chars().all(|c| plain(c) || c == '-') || name.starts_with('.') {
                    return Err(format!("{name:?} is no name: use letters, digits, '_', '-' and '.'"));
                }
                if names[..i].contains(name) {
                    return Err(format!("the name {name:?} stands there twice"));
                }
            }
        }
        for settings in std::iter::once(&self.settings).chain(self.variants.iter().map(|v| &v.settings)) {
            let curve: &[&str] = match self.curve_every {
                Some(_) => &["checkpoint_every", "keep_checkpoints"],
                None => &[],
            };
            if let Some(key) =
                ["seed", "threads", "limits"].iter().chain(curve).find(|key| settings.contains_key(**key))
            {
                return Err(format!("the sweep itself sets {key}; leave it out of the settings"));
            }
        }
        Ok(())
    }
}

impl Sweep {
    /// Reads or simulates the logs.
    pub(crate) fn prepare(plan: Plan, given: Vec<(String, PathBuf)>, out: PathBuf) -> Result<Self, Failure> {
        plan.check().map_err(|what| Failure::usage(what, "mend the description"))?;
        environment(&plan.environment, &plan.environment_options)?;
        let mut logs = BTreeMap::new();
        for log in &plan.logs {
            let file =
                given.iter().find(|(name, _)| *name == log.name).map(|(_, file)| file).or(log.file.as_ref());
            let data = match (file, log.hazard) {
                (Some(file), _) => {
                    coptidice_data::load(file, &ReadOptions::default(), &CheckOptions::default())
                        .map_err(|error| Failure::input(&error))?
                        .transitions
                }
                (None, Some(hazard)) => {
                    coptidice_sim::hazard::logs(hazard.share_safe, hazard.episodes, hazard.seed)
                        .map_err(|error| Failure::input(&error))?
                }
                (None, None) => {
                    return Err(Failure::usage(
                        format!("the log {} has no file", log.name),
                        format!("give it with --log {}=FILE", log.name),
                    ));
                }
            };
            logs.insert(log.name.clone(), data);
        }
        if let Some((name, _)) = given.iter().find(|(name, _)| !logs.contains_key(name)) {
            return Err(Failure::usage(
                format!("the sweep has no log {name}"),
                "use a name of the description",
            ));
        }
        let sweep = Sweep { plan, logs, out };
        sweep.check_variants()?;
        let cells = sweep.out.join("cells");
        std::fs::create_dir_all(&cells).map_err(|error| Failure::writing(&sweep.out, &error))?;
        Ok(sweep)
    }

    /// Refuses settings that cannot be used before anything is trained, with the variant that they are of.
    fn check_variants(&self) -> Done {
        for log in &self.plan.logs {
            let facts = LogFacts::of(self.data(&log.name));
            for variant in &self.plan.variants {
                let raw = self.config(Cell { log, variant, seed: self.plan.seeds[0] })?;
                if let Some(remark) = raw.no_bf16() {
                    eprintln!("remark: variant {}: {remark}", variant.name);
                }
                raw.validate(&facts).map_err(|error| {
                    Failure::usage(
                        format!("variant {} on log {}: {error}", variant.name, log.name),
                        "mend the settings of the variant, or those that all variants share",
                    )
                })?;
            }
        }
        Ok(())
    }

    /// Every cell, in a fixed order.
    pub(crate) fn cells(&self) -> Vec<Cell<'_>> {
        let mut cells = Vec::new();
        for log in &self.plan.logs {
            for variant in &self.plan.variants {
                cells.extend(self.plan.seeds.iter().map(|&seed| Cell { log, variant, seed }));
            }
        }
        cells
    }

    /// Where results go.
    pub(crate) fn out(&self) -> &Path {
        &self.out
    }

    /// The result of a cell, where it is there. One that was made with other settings or from another log is an
    /// error: tables must not mix descriptions.
    pub(crate) fn result(&self, cell: Cell<'_>) -> Result<Option<CellResult>, Failure> {
        let path = self.result_path(cell);
        if !path.exists() {
            return Ok(None);
        }
        let result: CellResult = read_json(&path)?;
        let same_log = result.fingerprint == self.data(&cell.log.name).fingerprint().to_string();
        if !same_log || result.settings != written(&self.config(cell)?)? {
            return Err(Failure::usage(
                format!("{} was made with other settings or from another log", path.display()),
                "give another --out, or remove this file and the cell's directory under runs/",
            ));
        }
        Ok(Some(result))
    }

    /// The log of that name.
    pub(crate) fn data(&self, name: &str) -> &Transitions {
        &self.logs[name]
    }

    fn result_path(&self, cell: Cell<'_>) -> PathBuf {
        self.out.join("cells").join(format!("{}.json", cell.name()))
    }

    /// The same episodes for every policy.
    fn request(&self) -> Request {
        Request { episodes: self.plan.episodes, seed: 0, acting: None, limits: None, record_paths: 0 }
    }

    /// Where a cell's time of training goes.
    fn seconds_path(&self, cell: Cell<'_>) -> PathBuf {
        self.result_path(cell).with_extension("seconds")
    }

    /// How long a cell trained, one thread, on the machine that did it; unknown for one that was stopped on the way.
    pub(crate) fn seconds(&self, cell: Cell<'_>) -> Option<f64> {
        std::fs::read_to_string(self.seconds_path(cell)).ok()?.trim().parse().ok()
    }

    /// The configuration of a cell.
    fn config(&self, cell: Cell<'_>) -> Result<RawConfig, Failure> {
        let mut settings = self.plan.settings.clone();
        crate::settings::lay_over(&mut settings, cell.variant.settings.clone());
        let mut raw = crate::settings::from_table(settings)?;
        drop_foreign(&mut raw, &cell.variant.settings);
        raw.seed = Some(cell.seed);
        raw.threads = Some(1);
        if let Some(steps) = self.plan.curve_every {
            (raw.checkpoint_every, raw.keep_checkpoints) = (Some(steps), Some(usize::MAX));
        }
        raw.limits = vec![RawLimit {
            cost: self.data(&cell.log.name).cost_names().first().cloned(),
            limit: self.plan.limit,
            unit: Some(self.plan.limit_unit),
            horizon: None,
        }];
        Ok(raw)
    }
}

/// Drops what is shared by all variants and is of another extraction than this variant's. What the variant sets itself
/// stays, to be refused where it does not apply.
fn drop_foreign(raw: &mut RawConfig, own: &toml::Table) {
    let algo = raw.algo.unwrap_or(Algorithm::Coptidice);
    if algo == Algorithm::Bc {
        return;
    }
    let extraction = raw.extraction.unwrap_or_else(|| raw.preset.unwrap_or(Preset::Fast).extraction(algo));
    let foreign = |of: Extraction, table: &str| extraction != of && !own.contains_key(table);
    if extraction != Extraction::GuidedSelection && foreign(Extraction::CriticGuided, "critic") {
        raw.critic = None;
    }
    if let (Extraction::GuidedSelection, Some(critic)) = (extraction, &mut raw.critic) {
        let own_critic = own.get("critic").and_then(toml::Value::as_table);
        let shared = |field: &str| !own_critic.is_some_and(|table| table.contains_key(field));
        if shared("guidance") {
            critic.guidance = None;
        }
        if shared("least_weight") {
            critic.least_weight = None;
        }
    }
    if foreign(Extraction::GuidedSelection, "selection") {
        raw.selection = None;
    }
    if foreign(Extraction::StateNormalized, "state_weight") {
        raw.state_weight = None;
    }
    if foreign(Extraction::InformationProjection, "projection") {
        raw.projection = None;
    }
    let one_gaussian = matches!(extraction, Extraction::CriticGuided | Extraction::InformationProjection);
    let own_mixture = own
        .get("networks")
        .and_then(toml::Value::as_table)
        .is_some_and(|networks| networks.contains_key("mixture_components"));
    if let (true, false, Some(networks)) = (one_gaussian, own_mixture, &mut raw.networks) {
        networks.mixture_components = None;
    }
}

fn written(config: &RawConfig) -> Result<String, Failure> {
    toml::to_string(config).map_err(|error| Failure::work(&error))
}

impl Cell<'_> {
    fn name(&self) -> String {
        // Names hold no '+', so that no two cells share theirs.
        format!("{}+{}+{}", self.log.name, self.variant.name, self.seed)
    }
}

/// Trains and evaluates the cells that have no result yet.
pub(crate) fn run(sweep: &Sweep, shard: Option<Shard>, jobs: usize) -> Done {
    let mut open = Vec::new();
    for (number, cell) in sweep.cells().into_iter().enumerate() {
        let mine = shard.is_none_or(|shard| number % shard.count == shard.index - 1);
        if mine && sweep.result(cell)?.is_none() {
            open.push(cell);
        }
    }
    if open.is_empty() {
        return Ok(());
    }
    let pool =
        rayon::ThreadPoolBuilder::new().num_threads(jobs).build().map_err(|error| Failure::work(&error))?;
    let progress = std::sync::Mutex::new((0_u64, Progress::new(open.len() as u64, "sweep")));
    pool.install(|| {
        open.par_iter().with_max_len(1).try_for_each(|&cell| {
            if stop_requested() {
                return Err(Failure::work_because("stopped", "the same command goes on where it was"));
            }
            run_cell(sweep, cell)?;
            let mut progress = progress.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            progress.0 += 1;
            let done = progress.0;
            progress.1.set(done, || cell.name());
            Ok(())
        })
    })
}

fn run_cell(sweep: &Sweep, cell: Cell<'_>) -> Done {
    let directory = sweep.out.join("runs").join(cell.name());
    let resumed = directory.join("manifest.json").exists();
    let job = Job {
        data: sweep.data(&cell.log.name),
        problems: Vec::new(),
        log_name: cell.log.name.clone(),
        raw: sweep.config(cell)?,
        out: &directory,
        resume: resumed,
        command: std::env::args().collect(),
        show_progress: false,
    };
    let started = std::time::Instant::now();
    let (run, config, outcome) = train(job)?;
    let seconds = started.elapsed().as_secs_f64();
    let history = match outcome {
        // Nothing was trained.
        TrainOutcome::Infeasible(_) => History::default(),
        _ => run.history()?,
    };
    let fingerprint = sweep.data(&cell.log.name).fingerprint().to_string();
    let mut result = promises(cell, written(&sweep.config(cell)?)?, fingerprint, &history);
    match outcome {
        TrainOutcome::Finished { policy, evaluation, .. } => {
            if let Some(way) = evaluation.as_ref().and_then(PolicyEvaluation::chosen) {
                result.estimated_reward = Some(way.reward);
                result.estimated_cost = way.costs.first().map(|cost| cost.per_step);
            }
            let env = environment(&sweep.plan.environment, &sweep.plan.environment_options)?;
            let evaluation = evaluate(&policy, env.as_ref(), &sweep.request())?;
            result.return_mean = Some(evaluation.return_mean);
            result.cost_per_step = evaluation.cost_per_step;
            result.share_over_limit = evaluation.share_over_limit;
            result.curve = curves::trace(sweep, cell, &config, &directory)?;
            // Apart from the results, which are the same on every machine.
            if !resumed {
                write_text(&sweep.seconds_path(cell), &format!("{seconds:.1}\n"))?;
            }
        }
        TrainOutcome::Diverged { quantity, step, .. } => {
            result.outcome = format!("diverged at step {step}: {quantity}");
        }
        TrainOutcome::Infeasible(limit) => result.outcome = format!("infeasible: {limit}"),
        TrainOutcome::Stopped { .. } => {
            return Err(Failure::work_because("stopped", "the same command goes on where it was"));
        }
    }
    write_json(&sweep.result_path(cell), &result)
}

/// The dual's own figures, from the metrics of the last tenth of the run.
fn promises(cell: Cell<'_>, settings: String, fingerprint: String, history: &History) -> CellResult {
    let late = |name: &str| crate::pages::late(history, name);
    let first = |stem: &str| {
        let name = history.names().into_iter().find(|name| name.starts_with(stem)).map(str::to_owned)?;
        late(&name)
    };
    let mass = late("w/mean").unwrap_or(1.0);
    CellResult {
        log: cell.log.name.clone(),
        variant: cell.variant.name.clone(),
        seed: cell.seed,
        settings,
        fingerprint,
        outcome: "finished".to_owned(),
        return_mean: None,
        cost_per_step: None,
        share_over_limit: None,
        promised_reward: late("reward").map(|reward| reward / mass),
        promised_cost: first("cost/").map(|cost| cost / mass),
        promised_bound: first("cost_bound/"),
        lambda: first("lambda/"),
        estimated_reward: None,
        estimated_cost: None,
        curve: Vec::new(),
    }
}
