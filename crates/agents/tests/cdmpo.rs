//! The online learner: the same run whatever interrupts it, and the optimum of tasks that have one in closed form.

use std::path::Path;

use coptidice_agents::cdmpo::{
    CdmpoConfig, SimulatedStep, Simulator, SimulatorError, SimulatorFacts, policy_file, train,
};
use coptidice_agents::policy::{Acting, Policy};
use coptidice_agents::{CheckpointError, Observer, TrainError, TrainIo, TrainOutcome};
use coptidice_core::rng::{Rng, stream};
use rand::RngExt as _;

/// A state in `[-1, 1]` moves by a tenth of the action, with noise; episodes last 7 steps or until the state leaves.
/// The reward is `1 - s^2`, the costs are those of going right and of being left.
struct Drift {
    facts: SimulatorFacts,
}

impl Drift {
    fn new() -> Self {
        Drift { facts: facts("drift", &["right", "left"], 7) }
    }
}

fn facts(identity: &str, costs: &[&str], horizon: usize) -> SimulatorFacts {
    SimulatorFacts {
        identity: identity.into(),
        observation_names: vec!["state".into()],
        action_low: vec![-1.0],
        action_high: vec![1.0],
        cost_names: costs.iter().map(|&name| name.to_owned()).collect(),
        horizon,
    }
}

impl Simulator for Drift {
    fn facts(&self) -> &SimulatorFacts {
        &self.facts
    }

    fn run(
        &mut self,
        _: u64,
        start: &mut Rng,
        act: &mut dyn FnMut(&[f32], &mut [f32]),
        visit: &mut dyn FnMut(&SimulatedStep<'_>),
    ) -> Result<(), SimulatorError> {
        let (mut state, mut action) = ([start.random_range(-0.9..0.9_f32)], [0.0]);
        for t in 0..7 {
            act(&state, &mut action);
            action[0] = action[0].clamp(-1.0, 1.0);
            let next = [state[0] + 0.1 * action[0] + start.random_range(-0.1..0.1)];
            let terminal = next[0].abs() > 1.0;
            visit(&SimulatedStep {
                observation: &state,
                action: &action,
                reward: 1.0 - state[0] * state[0],
                costs: &[f64::from(action[0].max(0.0)), f64::from(u8::from(state[0] < 0.0))],
                next_observation: &next,
                terminal,
                last: terminal || t == 6,
            });
            if terminal {
                break;
            }
            state = next;
        }
        Ok(())
    }
}

fn small(settings: &str) -> CdmpoConfig {
    let text = format!(
        "{settings}\n\
         policy = [{{ kind = \"dense\", width = 16, layer_norm = true, activation = \"tanh\" }}]\n\
         critic = [{{ kind = \"dense\", width = 16, layer_norm = true, activation = \"tanh\" }}]\n"
    );
    CdmpoConfig::from_toml(&text).unwrap()
}

const SHORT: &str = "hold = 2\nsteps = 300\nwarmup_steps = 40\nsteps_per_update = 5\nbatch_size = 24\naction_samples = 8\n\
                     atoms = 21\nreplay_capacity = 150\ntarget_every = 7\ncheckpoint_every = 60";

/// Stops after so many episodes.
#[derive(Default)]
struct Recorder {
    episodes: Vec<(u64, Vec<f64>)>,
    checkpoints: Vec<u64>,
    started: Option<u64>,
    stop_after: Option<usize>,
}

impl Observer for Recorder {
    fn started(&mut self, step: u64) {
        self.started = Some(step);
    }

    fn metrics(&mut self, step: u64, values: &[(&str, f64)]) {
        self.episodes.push((step, values.iter().map(|(_, value)| *value).collect()));
    }

    fn checkpoint(&mut self, step: u64, _: &Path) {
        self.checkpoints.push(step);
    }

    fn should_stop(&self) -> bool {
        self.stop_after.is_some_and(|most| self.episodes.len() >= most)
    }
}

fn run(config: &CdmpoConfig, directory: &Path, stop_after: Option<usize>) -> (TrainOutcome, Recorder) {
    let mut recorder = Recorder { stop_after, ..Recorder::default() };
    let io = TrainIo { directory: directory.to_owned(), resume: true };
    let outcome = train(config, &mut Drift::new(), &io, &mut recorder).unwrap();
    (outcome, recorder)
}

/// Every file of the run but those that say where it was interrupted.
fn files(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for folder in ["policies", "checkpoints"] {
        for entry in std::fs::read_dir(directory.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                for file in ["state.safetensors", "state.json"] {
                    found.push((format!("{name}/{file}"), std::fs::read(path.join(file)).unwrap()));
                }
            } else {
                found.push((name, std::fs::read(&path).unwrap()));
            }
        }
    }
    found.push(("replay.bin".to_owned(), std::fs::read(directory.join("replay.bin")).unwrap()));
    found.sort();
    found
}

#[test]
fn a_run_that_was_stopped_twice_leaves_the_bytes_of_one_that_was_not() {
    let (straight, stopped) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    // One state is kept, or those of the interruptions would stay behind.
    let config = small(&format!("{SHORT}\nkeep_checkpoints = 1"));
    let (outcome, record) = run(&config, straight.path(), None);
    assert!(matches!(outcome, TrainOutcome::Finished { .. }));
    assert_eq!(record.started, Some(0));
    let mut episodes = Vec::new();
    for most in [Some(13), Some(21), None] {
        let (outcome, record) = run(&config, stopped.path(), most);
        assert_eq!(matches!(outcome, TrainOutcome::Stopped { .. }), most.is_some());
        episodes.extend(record.episodes);
    }
    assert_eq!(episodes, record.episodes);
    assert_eq!(files(stopped.path()), files(straight.path()));
}

#[test]
fn threads_do_not_change_a_bit() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    for (folder, threads) in folders.iter().zip([1, 3]) {
        run(
            &small(&format!("{SHORT}\nthreads = {threads}\nbatch_size = 200").replacen(
                "batch_size = 24\n",
                "",
                1,
            )),
            folder.path(),
            None,
        );
    }
    assert_eq!(files(folders[0].path()), files(folders[1].path()));
}

#[test]
fn every_checkpoint_leaves_a_policy_and_only_the_newest_states_stay() {
    let folder = tempfile::tempdir().unwrap();
    let (outcome, record) = run(&small(&format!("{SHORT}\nlimit = 0.25\nseed = 3")), folder.path(), None);
    let TrainOutcome::Finished { policy, checkpoint, .. } = outcome else { panic!("not finished") };
    assert!(checkpoint.join("state.json").exists());
    // Every crossing of 60, and the end.
    assert_eq!(record.checkpoints.iter().map(|step| step / 60).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    for step in &record.checkpoints {
        let path = policy_file(folder.path(), *step);
        let policy = Policy::load(&path).unwrap();
        let about = policy.about();
        assert_eq!((about.algorithm.as_str(), about.seed, about.steps), ("cdmpo", 3, *step));
        let limits: Vec<_> =
            about.limits.iter().map(|l| (l.cost.as_str(), l.per_step, l.per_episode)).collect();
        assert_eq!(limits, [("right", 0.25, 1.75), ("left", 0.25, 1.75)]);
        let mut action = [0.0];
        policy.actor().act(&[0.3], &mut stream(0, "test", 0), &mut action).unwrap();
        assert!((-1.0..=1.0).contains(&action[0]));
    }
    assert_eq!(policy.acting(), Acting::Mean);
    assert_eq!(std::fs::read_dir(folder.path().join("checkpoints")).unwrap().count(), 2);
}

#[test]
fn a_run_goes_on_only_in_its_environment_and_as_it_was_configured() {
    let folder = tempfile::tempdir().unwrap();
    let io = TrainIo { directory: folder.path().to_owned(), resume: true };
    run(&small(SHORT), folder.path(), Some(3));
    let other = small(&format!("{SHORT}\ngamma = 0.5"));
    let error = train(&other, &mut Drift::new(), &io, &mut Recorder::default()).unwrap_err();
    assert!(
        matches!(&error, TrainError::Checkpoint(CheckpointError::ConfigDiffers { field, .. }) if field == "gamma")
    );
    let mut elsewhere = Drift::new();
    elsewhere.facts.identity = "elsewhere".into();
    let error = train(&small(SHORT), &mut elsewhere, &io, &mut Recorder::default()).unwrap_err();
    assert!(matches!(error, TrainError::Checkpoint(CheckpointError::DataDiffers { .. })));
    let mut endless = Drift::new();
    endless.facts.action_high[0] = f32::INFINITY;
    let error = train(&small(SHORT), &mut endless, &io, &mut Recorder::default()).unwrap_err();
    assert!(matches!(error, TrainError::Unsuitable { .. }));
}

/// One step from one state: reward `1 - (a - 0.8)^2/4`, cost `(a + 1)/2`.
struct Bandit {
    facts: SimulatorFacts,
}

impl Simulator for Bandit {
    fn facts(&self) -> &SimulatorFacts {
        &self.facts
    }

    fn run(
        &mut self,
        _: u64,
        _: &mut Rng,
        act: &mut dyn FnMut(&[f32], &mut [f32]),
        visit: &mut dyn FnMut(&SimulatedStep<'_>),
    ) -> Result<(), SimulatorError> {
        // As many one-step episodes as make one of usual length.
        let mut action = [0.0];
        for _ in 0..20 {
            act(&[1.0], &mut action);
            let a = action[0].clamp(-1.0, 1.0);
            visit(&SimulatedStep {
                observation: &[1.0],
                action: &[a],
                reward: 1.0 - (a - 0.8) * (a - 0.8) / 4.0,
                costs: &[0.5 * (f64::from(a) + 1.0)],
                next_observation: &[1.0],
                terminal: true,
                last: true,
            });
        }
        Ok(())
    }
}

/// With mean action `m` the cost is `(m + 1)/2`, whatever the spread while actions stay within the bounds, and the reward
/// falls with `(m - 0.8)^2`. At the limit `l` the best mean is `min(0.8, 2l - 1)`, and the multiplier is where the
/// derivatives cancel: `lambda/2 = (0.8 - m)/2`.
///
/// Tolerances: the multiplier is an integral of the excess, so the mean settles at the limit but for a swing of the
/// policy about it of a few steps of the M-step, each of at most sqrt(2 0.01) = 0.14 of the policy's deviation, 0.3 here:
/// 0.1 is more than two. `lambda` then follows within as much.
#[test]
fn a_bandit_with_a_cost_is_solved() {
    for (limit, best, price) in [(0.6, 0.2, 0.6), (0.95, 0.8, 0.0)] {
        let folder = tempfile::tempdir().unwrap();
        let config = small(&format!(
            "limit = {limit}\nhold = 1\nsteps = 20000\nwarmup_steps = 200\nsteps_per_update = 8\nbatch_size = 64\n\
             action_samples = 16\ngamma = 0.0\nn_step = 1\nlearning_rate = 3e-3\npolicy_learning_rate = 1e-3\nlambda_start = 0.1\n\
             target_every = 10\ninitial_deviation = 0.3\nreplay_capacity = 20000\nmultiplier_rate = 2e-3\n\
             checkpoint_every = 20000"
        ));
        let mut bandit = Bandit { facts: facts("bandit", &["size"], 1) };
        let mut recorder = Recorder::default();
        let io = TrainIo { directory: folder.path().to_owned(), resume: false };
        let outcome = train(&config, &mut bandit, &io, &mut recorder).unwrap();
        let TrainOutcome::Finished { policy, .. } = outcome else { panic!("not finished") };
        let mut action = [0.0];
        policy.actor().act(&[1.0], &mut stream(0, "test", 0), &mut action).unwrap();
        assert!((f64::from(action[0]) - best).abs() < 0.1, "limit {limit}: action {}", action[0]);
        // Of the last quarter: cost and multiplier swing about their places.
        let tail = &recorder.episodes[recorder.episodes.len() * 3 / 4..];
        let mean = |i: usize| tail.iter().map(|(_, values)| values[i]).sum::<f64>() / tail.len() as f64;
        let (cost, lambda) = (mean(1), mean(2));
        assert!(cost <= limit + 0.02, "limit {limit}: cost {cost}");
        assert!((lambda - price).abs() < 0.15, "limit {limit}: lambda {lambda}");
    }
}
