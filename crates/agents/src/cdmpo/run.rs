//! The training loop: an episode, then the updates it is good for.

use std::fs;
use std::path::{Path, PathBuf};

use coptidice_core::CostLimit;
use coptidice_core::rng::stream;
use coptidice_nn::{Network, Pool};
use sha2::{Digest as _, Sha256};

use super::config::CdmpoConfig;
use super::learner::Learner;
use super::replay::{MOST_COSTS, Replay, Widths};
use super::simulator::{SimulatedStep, Simulator, SimulatorFacts};
use super::{ALGORITHM, policies, policy_file};
use crate::checkpoint::{CheckpointError, Progress, Saved, Store, Terms, comparable, hex};
use crate::learner::{BadQuantity, Resumable, StateMut, sound};
use crate::policy::{Acting, Head, LimitAbout, Normalizer, Policy, PolicyAbout, PolicyParts};
use crate::train::{Observer, TrainError, TrainIo, TrainOutcome, begin, threads};

/// Fields that may change between a checkpoint and its continuation.
const FREE_FIELDS: [&str; 4] = ["steps", "threads", "checkpoint_every", "keep_checkpoints"];
/// The replay buffer's file in the run directory.
const REPLAY: &str = "replay.bin";

/// Trains on `simulator`, one episode after another.
///
/// Metrics are reported after every episode, at the number of environment steps taken. At every crossing of a multiple of
/// `checkpoint_every` and at the end a policy is left in `policies/` and a checkpoint in `checkpoints/`; only then may a
/// run be interrupted without loss.
///
/// # Errors
/// [`TrainError`]. A run that diverges or is stopped is an outcome, not an error.
pub fn train(
    config: &CdmpoConfig,
    simulator: &mut dyn Simulator,
    run: &TrainIo,
    observer: &mut dyn Observer,
) -> Result<TrainOutcome, TrainError> {
    config.check()?;
    let facts = simulator.facts().clone();
    check(&facts)?;
    let pool = Pool::new(threads(config.threads))?;
    let store = Store::open(&run.directory, terms(config, &facts))?;
    let mut agent = Agent::new(config, &facts)?;
    let progress = begin(&store, run, &mut agent, 0, observer)?;
    agent.steps = progress.step;
    let replay = run.directory.join(REPLAY);
    if agent.rows > 0 {
        agent.replay.restore(&replay, agent.rows).map_err(|error| io(&replay)(damaged(&error)))?;
    }
    observer.started(agent.steps);
    Loop { config, facts: &facts, simulator, pool: &pool, store: &store, run, observer, agent }.run()
}

/// The replay buffer's file is one, whatever the checkpoint: there is no older one to go back to.
fn damaged(error: &std::io::Error) -> std::io::Error {
    let text =
        format!("{error}; the run cannot go on from this file: take its folder away, and it starts anew");
    std::io::Error::new(error.kind(), text)
}

fn check(facts: &SimulatorFacts) -> Result<(), TrainError> {
    let bounds = || facts.action_low.iter().zip(&facts.action_high);
    let reason = if facts.observation_names.is_empty() {
        "the simulator shows nothing"
    } else if facts.action_low.is_empty() || facts.action_low.len() != facts.action_high.len() {
        "the simulator has no continuous actions"
    } else if !bounds().all(|(low, high)| low < high && (high - low).is_finite()) {
        "the simulator's actions have no finite range"
    } else if facts.cost_names.len() > MOST_COSTS {
        "the simulator has more than 16 costs"
    } else {
        return Ok(());
    };
    Err(TrainError::Unsuitable { reason })
}

/// A run may go on in the same environment under the same configuration, for as many steps as are asked for.
fn terms(config: &CdmpoConfig, facts: &SimulatorFacts) -> Terms {
    Terms {
        config: comparable(config, FREE_FIELDS),
        data_fingerprint: fingerprint(facts),
        steps: u64::MAX,
        keep: config.keep_checkpoints,
    }
}

fn fingerprint(facts: &SimulatorFacts) -> String {
    hex(&Sha256::digest(facts.identity.as_bytes()))
}

/// Everything that a checkpoint holds.
struct Agent {
    learner: Learner,
    replay: Replay,
    /// Environment steps and episodes taken.
    steps: u64,
    episodes: u64,
    /// Rows of the replay buffer's file that belong to the checkpoint.
    rows: u64,
}

impl Agent {
    fn new(config: &CdmpoConfig, facts: &SimulatorFacts) -> Result<Self, TrainError> {
        let widths = Widths {
            observation: facts.observation_names.len(),
            action: facts.action_low.len(),
            costs: facts.cost_names.len(),
        };
        Ok(Agent {
            learner: Learner::new(config, facts)?,
            replay: Replay::new(widths, config.replay_capacity),
            steps: 0,
            episodes: 0,
            rows: 0,
        })
    }
}

impl Resumable for Agent {
    fn visit_state(&mut self, visit: &mut dyn FnMut(&str, StateMut<'_>)) {
        self.learner.visit_state(visit);
        visit("episodes", StateMut::U64(&mut self.episodes));
        visit("replay.rows", StateMut::U64(&mut self.rows));
    }
}

struct Loop<'r> {
    config: &'r CdmpoConfig,
    facts: &'r SimulatorFacts,
    simulator: &'r mut dyn Simulator,
    pool: &'r Pool,
    store: &'r Store,
    run: &'r TrainIo,
    observer: &'r mut dyn Observer,
    agent: Agent,
}

/// What an episode came to.
struct EpisodeTotals {
    steps: u64,
    reward: f64,
    costs: Vec<f64>,
}

/// The steps for which one action is held, which the learner sees as one: from the first one's state to the last one's
/// successor, with the means of their rewards and costs.
struct Decision {
    hold: usize,
    steps: usize,
    observation: Vec<f32>,
    action: Vec<f32>,
    reward: f64,
    costs: Vec<f64>,
}

impl Decision {
    fn new(facts: &SimulatorFacts, hold: usize) -> Self {
        Decision {
            hold,
            steps: 0,
            observation: vec![0.0; facts.observation_names.len()],
            action: vec![0.0; facts.action_low.len()],
            reward: 0.0,
            costs: vec![0.0; facts.cost_names.len()],
        }
    }

    /// Adds a step, and the whole to `replay` if it was the last.
    fn take(&mut self, step: &SimulatedStep<'_>, replay: &mut Replay) {
        if self.steps == 0 {
            self.observation.copy_from_slice(step.observation);
            self.action.copy_from_slice(step.action);
            self.reward = 0.0;
            self.costs.fill(0.0);
        }
        self.steps += 1;
        self.reward += f64::from(step.reward);
        for (sum, cost) in self.costs.iter_mut().zip(step.costs) {
            *sum += cost;
        }
        if self.steps < self.hold && !step.last {
            return;
        }
        let steps = std::mem::take(&mut self.steps) as f64;
        self.costs.iter_mut().for_each(|sum| *sum /= steps);
        replay.push(&SimulatedStep {
            observation: &self.observation,
            action: &self.action,
            reward: (self.reward / steps) as f32,
            costs: &self.costs,
            ..*step
        });
    }
}

impl Loop<'_> {
    fn run(mut self) -> Result<TrainOutcome, TrainError> {
        while self.agent.steps < self.config.steps {
            let before = self.agent.steps;
            let episode = self.collect()?;
            self.learn(&episode);
            if let Err(bad) = self.report(&episode) {
                return self.diverged(bad);
            }
            let every = self.config.checkpoint_every;
            let due = self.agent.steps / every > before / every || self.agent.steps >= self.config.steps;
            let stop = self.observer.should_stop() && self.agent.steps < self.config.steps;
            if due {
                let path = policy_file(&self.run.directory, self.agent.steps);
                fs::create_dir_all(policies(&self.run.directory)).map_err(io(&path))?;
                self.policy(Acting::Mean)?.save(&path)?;
            }
            if due || stop {
                let checkpoint = match self.save()? {
                    Saved::At(path) => path,
                    Saved::NotFinite(quantity) => {
                        return self.diverged(BadQuantity { quantity, value: f64::NAN, advice: ADVICE });
                    }
                };
                self.observer.checkpoint(self.agent.steps, &checkpoint);
                if stop {
                    return Ok(TrainOutcome::Stopped { step: self.agent.steps, checkpoint });
                }
            }
        }
        let policy = Box::new(self.policy(Acting::Mean)?);
        let checkpoint = self.store.list()?.into_iter().next().map(|(_, path)| path).unwrap_or_default();
        Ok(TrainOutcome::Finished { policy, checkpoint, estimates: None, evaluation: None })
    }

    /// Runs an episode under the policy as it stands, with its spread.
    fn collect(&mut self) -> Result<EpisodeTotals, TrainError> {
        let mut actor = self.policy(Acting::Sample)?.actor();
        let Agent { replay, steps, episodes, .. } = &mut self.agent;
        let (seed, episode) = (self.config.seed, *episodes);
        let mut start = stream(seed, "cdmpo start", episode);
        let mut noise = stream(seed, "cdmpo behaviour", episode);
        let mut totals =
            EpisodeTotals { steps: 0, reward: 0.0, costs: vec![0.0; self.facts.cost_names.len()] };
        let mut failed = None;
        let (mut decision, mut asked) = (Decision::new(self.facts, self.config.hold), 0);
        let mut chosen = vec![0.0; self.facts.action_low.len()];
        let mut act = |observation: &[f32], action: &mut [f32]| {
            if asked % self.config.hold == 0
                && let Err(error) = actor.act(observation, &mut noise, &mut chosen)
            {
                failed.get_or_insert(error);
                chosen.fill(0.0);
            }
            asked += 1;
            action.copy_from_slice(&chosen);
        };
        let mut visit = |step: &SimulatedStep<'_>| {
            decision.take(step, replay);
            totals.steps += 1;
            totals.reward += f64::from(step.reward);
            for (total, cost) in totals.costs.iter_mut().zip(step.costs) {
                *total += cost;
            }
        };
        self.simulator.run(episode, &mut start, &mut act, &mut visit).map_err(TrainError::Simulator)?;
        if let Some(error) = failed {
            return Err(TrainError::Simulator(Box::new(error)));
        }
        *steps += totals.steps;
        *episodes += 1;
        Ok(totals)
    }

    /// The updates due by now, and a step of the multipliers.
    fn learn(&mut self, episode: &EpisodeTotals) {
        let Agent { learner, replay, steps, .. } = &mut self.agent;
        let Some(since) = steps.checked_sub(self.config.warmup_steps) else { return };
        learner.multipliers().update(&episode.costs, episode.steps);
        let due = (since as f64 / self.config.steps_per_update) as u64;
        let pool = self.pool;
        pool.install(|| {
            while learner.updates() < due {
                learner.update(replay, pool);
            }
        });
    }

    fn report(&mut self, episode: &EpisodeTotals) -> Result<(), BadQuantity> {
        let Self { facts, agent, observer, .. } = self;
        let mut values = vec![("episode/return".to_owned(), episode.reward)];
        let lambda = agent.learner.multipliers().lambda().to_vec();
        for ((name, total), lambda) in facts.cost_names.iter().zip(&episode.costs).zip(lambda) {
            values.push((format!("episode/cost/{name}"), total / episode.steps as f64));
            values.push((format!("lambda/{name}"), f64::from(lambda)));
        }
        if let Some(figures) = agent.learner.take_figures() {
            values.extend(agent.learner.names().iter().cloned().zip(figures));
        }
        let bad = values.iter().find(|(_, value)| !sound(*value));
        if let Some((quantity, value)) = bad {
            return Err(BadQuantity { quantity: quantity.clone(), value: *value, advice: ADVICE });
        }
        let named: Vec<(&str, f64)> = values.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        observer.metrics(agent.steps, &named);
        Ok(())
    }

    fn save(&mut self) -> Result<Saved, TrainError> {
        let path = self.run.directory.join(REPLAY);
        self.agent.replay.store(&path).map_err(io(&path))?;
        self.agent.rows = self.agent.replay.added();
        let progress = Progress { step: self.agent.steps, ..Progress::default() };
        Ok(self.store.save(&mut self.agent, &progress)?)
    }

    /// The policy as it stands.
    fn policy(&self, acting: Acting) -> Result<Policy, TrainError> {
        let Self { config, facts, .. } = self;
        let (network, params) = self.agent.learner.policy();
        let horizon = facts.horizon as f64;
        let limit = CostLimit::PerStep { limit: config.limit };
        let about = PolicyAbout {
            observation_names: facts.observation_names.clone(),
            cost_names: facts.cost_names.clone(),
            limits: facts.cost_names.iter().map(|name| LimitAbout::new(name, limit, horizon)).collect(),
            ..PolicyAbout::new(ALGORITHM, config.seed, self.agent.steps, fingerprint(facts))
        };
        let action_dim = facts.action_low.len();
        Ok(Policy::new(PolicyParts {
            network: Network::clone(network),
            params: params.to_vec(),
            head: Head::Mixture { action_dim, components: 1, min_scale: config.min_scale },
            normalizer: Normalizer::identity(facts.observation_names.len()),
            acting,
            action_low: facts.action_low.clone(),
            action_high: facts.action_high.clone(),
            action_unit: None,
            selector: None,
            about,
        })?)
    }

    fn diverged(&self, bad: BadQuantity) -> Result<TrainOutcome, TrainError> {
        Ok(TrainOutcome::Diverged {
            quantity: bad.quantity,
            value: bad.value,
            advice: bad.advice.to_owned(),
            step: self.agent.steps,
            last_good_checkpoint: self.store.list()?.into_iter().next().map(|(_, path)| path),
        })
    }
}

const ADVICE: &str = "lower learning_rate and policy_learning_rate";

fn io(path: &Path) -> impl FnOnce(std::io::Error) -> TrainError {
    let path: PathBuf = path.to_owned();
    move |source| TrainError::Checkpoint(CheckpointError::Io { path, source })
}
