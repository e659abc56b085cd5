//! The training loop.
//!
//! A run is a function of configuration, log and seed. It ends [`TrainOutcome::Finished`] with a policy, leaves a
//! checkpoint where it is [`TrainOutcome::Stopped`], and is [`TrainOutcome::Diverged`] where a figure is not finite or
//! has run away; then there is no policy, and the last good checkpoint is named.
//!
//! # Metrics
//!
//! Means over `log_every` steps, in the log's units, at the parameters before each step. `NAME` is a cost with a limit.
//!
//! | metric | meaning | algorithms |
//! |---|---|---|
//! | `loss/policy` | `-mean(weights log pi)` (`eq:J_psi`) | all |
//! | `loss/nu` | dual objective (`eq:min_objective`, `eq:min_objective_gamma1`) | optidice, coptidice |
//! | `reward` | `E[w r]`, reward per step (times `w/mean`, as all averages below) | optidice, coptidice |
//! | `w/mean`, `w/q05` ... `w/max` | mean and quantiles of `w` within a batch | optidice, coptidice |
//! | `w/effective_share` | `(sum w)^2 / (B sum w^2)` | optidice, coptidice |
//! | `nu/largest` | largest `abs(nu)` of a batch | optidice, coptidice |
//! | `mu` | normalisation multiplier, `gamma = 1` only | optidice, coptidice |
//! | `penalty/nu`, `penalty/nu_norm` | gradient penalty and largest norm; the same for `chi` with the bound | optidice, coptidice |
//! | `cost/NAME` | `E[w c]`, cost per step, less the last step's credit of a limit per episode of varying length | optidice, coptidice |
//! | `limit/NAME` | what it is compared with | optidice, coptidice |
//! | `lambda/NAME` | reward per unit of cost | coptidice |
//! | `loss/lambda` | `lambda'(limit - cost)` (`eq:J_lambda`) | coptidice |
//! | `loss/state_weight`, `extraction/clipped_share` | squared error of `h`, share of weights that are cut | `extraction = "state_normalized"` |
//! | `loss/critic`, `critic/spread`, `critic/gain` | squared error (scaled), spread of values between actions (scaled), gain of the policy's actions over the logged ones (spreads) | `extraction = "critic_guided"` |
//! | `loss/critic`, `critic/spread`, `selection/gain` | the same two, and gain of the selected actions over the mean candidate at the states ahead (spreads); `loss/policy` is `-mean(log beta)` | `extraction = "guided_selection"` |
//! | `loss/advantage`, `loss/behaviour`, `projection/floored_share` | squared error of `e` (scaled reward, squared), `-mean(log beta)`, share of the policy's actions whose weight is the floor; `loss/policy` is the divergence | `extraction = "information_projection"` |
//! | `compared/NAME` | the upper bound that `lambda` compares with the limit, by the chosen form of the bound | coptidice, `epsilon > 0` |
//! | `cost_bound/NAME` | upper bound `J_tau,chi` (`eq:J_tau_phi`) | coptidice, `epsilon > 0` |
//! | `cost_reweighted/NAME` | cost under the tilted weights (`eq:cost_ub_weights`) | coptidice, `epsilon > 0` |
//! | `policy/reward`, `policy/cost/NAME` | reward and cost per step of the policy itself, by fitted Q evaluation; with the last step's | `evaluation.rounds > 0` |
//! | `tau/NAME`, `kl/NAME` | temperature (cost per step) and divergence of the tilted weights | coptidice, `epsilon > 0` |

use std::path::{Path, PathBuf};

use coptidice_data::{Split, SplitError, Transitions};
use coptidice_nn::{NnError, Pool};

use crate::cdmpo::SimulatorError;
use crate::checkpoint::{CheckpointError, Progress, Saved, Store, Terms};
use crate::config::{ConfigError, TrainConfig};
use crate::estimate::{Estimates, estimate};
use crate::evaluation::{PolicyEvaluation, evaluate};
use crate::feasibility::{InfeasibleLimit, infeasible_limit};
use crate::learner::{BadQuantity, Learner, Resumable};
use crate::policy::{NormalizerError, Policy, PolicyDefect, PolicyError};
use crate::problem::{Problem, ProblemError};
use crate::sampler::Sampler;

/// Where a run keeps its files, and whether it goes on from them.
#[derive(Clone, Debug)]
pub struct TrainIo {
    /// The run directory; checkpoints go to its `checkpoints/`.
    pub directory: PathBuf,
    /// Whether to continue from the newest complete checkpoint; from the start where there is none.
    pub resume: bool,
}

/// Watches a run and may stop it.
pub trait Observer {
    /// Training begins at `step` (above 0 where it is resumed).
    fn started(&mut self, step: u64) {
        let _ = step;
    }

    /// Means of the metrics over the steps since the last report, after `step` steps.
    fn metrics(&mut self, step: u64, values: &[(&str, f64)]);

    /// A checkpoint was written.
    fn checkpoint(&mut self, step: u64, path: &Path) {
        let _ = (step, path);
    }

    /// A checkpoint was damaged and an older one is used.
    fn skipped(&mut self, error: &CheckpointError) {
        let _ = error;
    }

    /// Asked after every step: `true` leaves a checkpoint and stops.
    fn should_stop(&self) -> bool {
        false
    }
}

/// How a run ended.
#[derive(Debug)]
pub enum TrainOutcome {
    /// All steps were done.
    Finished {
        /// The policy.
        policy: Box<Policy>,
        /// The checkpoint of the last step.
        checkpoint: PathBuf,
        /// What the dual says of its optimum over the whole log; `None` for algorithms without one.
        estimates: Option<Estimates>,
        /// What the policy itself is estimated to earn and cost; `None` where that is switched off.
        evaluation: Option<PolicyEvaluation>,
    },
    /// The observer stopped it.
    Stopped {
        /// Steps done.
        step: u64,
        /// The checkpoint to resume from.
        checkpoint: PathBuf,
    },
    /// A limit cannot be kept, as the log shows before training: nothing was trained or written.
    Infeasible(InfeasibleLimit),
    /// A figure was not finite or had run away.
    Diverged {
        /// Which figure, named as in the metrics or as in the checkpoint.
        quantity: String,
        /// Its value.
        value: f64,
        /// What it may mean and what may help.
        advice: String,
        /// The step that showed it, counted from 1.
        step: u64,
        /// The newest checkpoint, all of whose numbers are finite.
        last_good_checkpoint: Option<PathBuf>,
    },
}

/// A run that could not be carried out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainError {
    /// The configuration does not fit the log.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The log cannot be trained on.
    #[error(transparent)]
    Problem(#[from] ProblemError),
    /// The networks cannot be built.
    #[error(transparent)]
    Network(#[from] NnError),
    /// The policy cannot be built.
    #[error(transparent)]
    Policy(#[from] PolicyDefect),
    /// The policy cannot be written.
    #[error(transparent)]
    PolicyFile(#[from] PolicyError),
    /// Observations cannot be normalised.
    #[error(transparent)]
    Normalizer(#[from] NormalizerError),
    /// Episodes cannot be held out.
    #[error(transparent)]
    Split(#[from] SplitError),
    /// A checkpoint cannot be written or continued from.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The simulator cannot be learned in.
    #[error("{reason}; choose another environment")]
    Unsuitable {
        /// What it lacks.
        reason: &'static str,
    },
    /// The simulator could not go on.
    #[error("the simulator stopped: {0}")]
    Simulator(#[source] SimulatorError),
    /// There is a run already.
    #[error("{} holds checkpoints of an earlier run; resume it, or choose another directory", directory.display())]
    RunExists {
        /// The run directory.
        directory: PathBuf,
    },
}

/// Trains the configured algorithm on `data`.
///
/// # Errors
/// [`TrainError`]. A run that diverges, is stopped or has a limit that cannot be kept is an outcome, not an error.
pub fn train(
    config: &TrainConfig,
    data: &Transitions,
    run: &TrainIo,
    observer: &mut dyn Observer,
) -> Result<TrainOutcome, TrainError> {
    let parts = Parts::of(config, data)?;
    let problem = Problem::new(config, parts.seen(data))?;
    if let Some(limit) = infeasible_limit(config, problem.data) {
        return Ok(TrainOutcome::Infeasible(limit));
    }
    let pool = Pool::new(threads(config.threads))?;
    let mut learner = (config.algo.entry().build)(&problem)?;
    let store = Store::open(&run.directory, Terms::of(config, data.fingerprint().to_string()))?;
    let metrics = learner.metric_names().len();
    let progress = begin(&store, run, learner.as_mut(), metrics, observer)?;
    observer.started(progress.step);
    let held_out = parts.held_out.as_ref().map(|part| problem.on(part));
    let (problem, held_out, result) = (&problem, held_out.as_ref(), None);
    Loop {
        problem,
        held_out,
        pool: &pool,
        store: &store,
        learner: learner.as_mut(),
        progress,
        observer,
        result,
    }
    .run()
}

/// The policy as it stood at a checkpoint, for instance at the last good one of a run that diverged. Nothing says that
/// it keeps any limit: it was not finished. It acts as the configuration says; a choice is made at the end of training
/// only.
///
/// # Errors
/// [`TrainError::Checkpoint`] if the checkpoint is damaged or was made with another configuration or log.
pub fn policy_at(config: &TrainConfig, data: &Transitions, checkpoint: &Path) -> Result<Policy, TrainError> {
    let parts = Parts::of(config, data)?;
    let problem = Problem::new(config, parts.seen(data))?;
    let mut learner = (config.algo.entry().build)(&problem)?;
    let terms = Terms::of(config, data.fingerprint().to_string());
    let store = Store::new(checkpoint.parent().unwrap_or(checkpoint), terms);
    let metrics = learner.metric_names().len();
    let progress = store.load(checkpoint, learner.as_mut(), metrics)?;
    crate::deploy::policy(&problem, learner.as_ref(), progress.step)
}

/// The log in the parts that `holdout` makes of it.
struct Parts {
    /// What is trained on, where that is not the whole log.
    seen: Option<Transitions>,
    held_out: Option<Transitions>,
}

impl Parts {
    fn of(config: &TrainConfig, data: &Transitions) -> Result<Self, TrainError> {
        if config.holdout == 0.0 {
            return Ok(Parts { seen: None, held_out: None });
        }
        let split = Split::draw(data, config.holdout, config.seed)?;
        Ok(Parts {
            seen: data.select_episodes(&split.train),
            held_out: data.select_episodes(&split.held_out),
        })
    }

    fn seen<'a>(&'a self, data: &'a Transitions) -> &'a Transitions {
        self.seen.as_ref().unwrap_or(data)
    }
}

/// The number of threads that a configuration asks for.
pub(crate) fn threads(asked: usize) -> usize {
    match asked {
        0 => std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        threads => threads,
    }
}

/// Resumes, or starts from nothing.
pub(crate) fn begin(
    store: &Store,
    run: &TrainIo,
    learner: &mut dyn Resumable,
    metrics: usize,
    observer: &mut dyn Observer,
) -> Result<Progress, TrainError> {
    let found = store.list()?;
    if !run.resume && !found.is_empty() {
        return Err(TrainError::RunExists { directory: run.directory.clone() });
    }
    let mut first_damage = None;
    for (_, path) in found {
        match store.load(&path, learner, metrics) {
            Ok(progress) => return Ok(progress),
            Err(damage @ CheckpointError::Damaged { .. }) => {
                observer.skipped(&damage);
                first_damage.get_or_insert(damage);
            }
            Err(error) => return Err(error.into()),
        }
    }
    match first_damage {
        Some(damage) => Err(damage.into()),
        None => Ok(Progress { window: vec![0.0; metrics], ..Progress::default() }),
    }
}

struct Loop<'r> {
    problem: &'r Problem<'r>,
    held_out: Option<&'r Problem<'r>>,
    pool: &'r Pool,
    store: &'r Store,
    learner: &'r mut dyn Learner,
    progress: Progress,
    observer: &'r mut dyn Observer,
    /// After the last step.
    result: Option<Finish>,
}

/// What training leaves.
struct Finish {
    policy: Policy,
    estimates: Option<Estimates>,
    evaluation: Option<PolicyEvaluation>,
}

impl Finish {
    /// The policy's own figures, for the metrics of the last step.
    fn policy_figures(&self) -> Vec<(String, f64)> {
        let chosen = self.evaluation.as_ref().and_then(PolicyEvaluation::chosen);
        let Some(chosen) = chosen else { return Vec::new() };
        let costs = chosen.costs.iter().map(|cost| (format!("policy/cost/{}", cost.name), cost.per_step));
        std::iter::once(("policy/reward".to_owned(), chosen.reward)).chain(costs).collect()
    }
}

impl Loop<'_> {
    fn run(mut self) -> Result<TrainOutcome, TrainError> {
        let config = self.problem.config;
        let mut sampler = Sampler::for_training(self.problem)?;
        while self.progress.step < config.steps {
            let (batch, learner, pool) = (sampler.draw(self.progress.step), &mut *self.learner, self.pool);
            pool.install(|| learner.step(batch, pool));
            self.progress.step += 1;
            if let Err(bad) = self.learner.health() {
                return self.diverged(bad);
            }
            if self.progress.step == config.steps {
                self.result = Some(self.finish()?);
            }
            self.report();
            let stop = self.observer.should_stop() && self.progress.step < config.steps;
            if stop
                || self.progress.step.is_multiple_of(config.checkpoint_every)
                || self.progress.step == config.steps
            {
                let checkpoint = match self.store.save(self.learner, &self.progress)? {
                    Saved::At(path) => path,
                    Saved::NotFinite(name) => return self.diverged(not_finite(name)),
                };
                self.observer.checkpoint(self.progress.step, &checkpoint);
                if stop {
                    return Ok(TrainOutcome::Stopped { step: self.progress.step, checkpoint });
                }
            }
        }
        // A run that was resumed at its end has no last step.
        let Finish { policy, estimates, evaluation } = match self.result.take() {
            Some(result) => result,
            None => self.finish()?,
        };
        let checkpoint = self.store.list()?.into_iter().next().map(|(_, path)| path).unwrap_or_default();
        Ok(TrainOutcome::Finished { policy: Box::new(policy), checkpoint, estimates, evaluation })
    }

    /// The policy that is chosen, the dual's estimates and the policy's own.
    fn finish(&mut self) -> Result<Finish, TrainError> {
        let steps = self.problem.config.steps;
        let mut policies = crate::deploy::finalists(self.problem, self.learner, steps)?;
        let estimates = estimate(self.problem, self.learner, self.pool);
        let evaluation = match self.held_out {
            None => evaluate(self.problem, &policies, estimates.as_ref(), false, self.pool),
            Some(problem) => {
                let there = estimate(problem, self.learner, self.pool);
                evaluate(problem, &policies, there.as_ref(), true, self.pool)
            }
        };
        let chosen = evaluation.as_ref().and_then(PolicyEvaluation::chosen);
        let place = chosen.and_then(|chosen| policies.iter().position(|p| p.about().steps == chosen.step));
        let mut policy = policies.swap_remove(place.unwrap_or(policies.len() - 1));
        if let Some(chosen) = chosen {
            policy = policy.with_acting(chosen.acting)?;
        }
        Ok(Finish { policy, estimates, evaluation })
    }

    /// Adds the step to the window, and reports the window where it is full.
    fn report(&mut self) {
        for (sum, value) in self.progress.window.iter_mut().zip(self.learner.metrics()) {
            *sum += value;
        }
        self.progress.window_steps += 1;
        let Progress { step, window, window_steps } = &mut self.progress;
        let config = self.problem.config;
        if step.is_multiple_of(config.log_every) || *step == config.steps {
            let of_policy = self.result.as_ref().map_or(Vec::new(), Finish::policy_figures);
            let names = self.learner.metric_names();
            let means: Vec<(&str, f64)> = names
                .iter()
                .zip(&*window)
                .map(|(name, sum)| (name.as_str(), sum / *window_steps as f64))
                .chain(of_policy.iter().map(|(name, value)| (name.as_str(), *value)))
                .collect();
            self.observer.metrics(*step, &means);
            window.fill(0.0);
            *window_steps = 0;
        }
    }

    fn diverged(&self, bad: BadQuantity) -> Result<TrainOutcome, TrainError> {
        Ok(TrainOutcome::Diverged {
            quantity: bad.quantity,
            value: bad.value,
            advice: bad.advice.to_owned(),
            step: self.progress.step,
            last_good_checkpoint: self.store.list()?.into_iter().next().map(|(_, path)| path),
        })
    }
}

fn not_finite(quantity: String) -> BadQuantity {
    BadQuantity { quantity, value: f64::NAN, advice: "lower the learning rates, or raise alpha" }
}
