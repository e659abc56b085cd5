//! What every algorithm of the registry must do, whatever it learns.

use std::path::Path;

use coptidice_agents::config::Extraction;
use coptidice_agents::policy::{Acting, Policy};
use coptidice_agents::registry::ALGORITHMS;
use coptidice_agents::{
    Algorithm, CheckpointError, LogFacts, Observer, RawConfig, TrainConfig, TrainError, TrainIo,
    TrainOutcome, policy_at, train,
};
use coptidice_core::rng::stream;
use coptidice_data::{ActionSpace, Schema, Step, StepAction, Transitions, TransitionsBuilder};
use coptidice_nn::{NnError, Precision};
use rand::RngExt as _;

/// A random log: ten episodes of twelve steps, two costs, ends of every kind; continuous actions lie in `[-0.5, 0.5]`.
fn log(action: &ActionSpace, seed: u64) -> Transitions {
    let cost_names = vec!["heat".to_owned(), "wear".to_owned()];
    let schema = Schema { observation_dim: 3, action: action.clone(), cost_names, propensity: false };
    let mut builder = TransitionsBuilder::new(schema).unwrap();
    let mut rng = stream(seed, "conformance log", 0);
    let mut draw = |low: f32, high: f32| -> f32 { rng.random_range(low..high) };
    for episode in 0..10 {
        let mut observation = [draw(-1.0, 1.0), draw(0.0, 100.0), 7.0];
        for step in 0..12 {
            let next = [draw(-1.0, 1.0), draw(0.0, 100.0), 7.0];
            let vector = [draw(-0.5, 0.5), draw(-0.5, 0.5)];
            let ends = step == 11 && episode < 9;
            builder
                .push(&Step {
                    observation: &observation,
                    action: match action {
                        ActionSpace::Continuous { dim } => StepAction::Continuous(&vector[..*dim]),
                        ActionSpace::Discrete { labels } => {
                            StepAction::Discrete((draw(0.0, 1.0) * labels.len() as f32) as u32)
                        }
                    },
                    reward: 10.0 * observation[0] + draw(0.0, 1.0),
                    costs: &[draw(0.0, 1.0), f32::from(u8::from(observation[0] > 0.5))],
                    next_observation: &next,
                    terminal: ends && episode % 3 == 0,
                    timeout: ends && episode % 3 != 0,
                    propensity: None,
                })
                .unwrap();
            observation = next;
        }
    }
    builder.finish().unwrap()
}

fn spaces() -> [ActionSpace; 2] {
    [ActionSpace::Continuous { dim: 2 }, ActionSpace::discrete(3)]
}

/// Small networks of every kind of block, 24 steps, checkpoints every 8.
fn config(data: &Transitions, algorithm: Algorithm, fields: &str) -> TrainConfig {
    let given = |name: &str| fields.lines().any(|line| line.starts_with(&format!("{name} =")));
    let defaults = [
        ("steps", "24"),
        ("batch_size", "16"),
        ("threads", "1"),
        ("checkpoint_every", "8"),
        ("log_every", "5"),
        ("keep_checkpoints", "10"),
        ("start_at_mean", "true"),
        ("extraction", "\"weighted_bc\""),
        ("policy_average_rate", "0.05"),
        ("finalists", "2"),
    ];
    let mut text = format!("algo = \"{algorithm}\"\n{fields}\n");
    for (name, value) in defaults {
        if !given(name) {
            text += &format!("{name} = {value}\n");
        }
    }
    let one_gaussian = ["critic_guided", "information_projection"].iter().any(|name| fields.contains(name));
    let components = if one_gaussian { 1 } else { 2 };
    text += "[gradient_penalty]\ncoefficient = 0.1\nbound = 0.01\n";
    text += "[evaluation]\nrounds = 4\nsteps = 10\n";
    text += &format!("[networks]\nmixture_components = {components}\n");
    text += "\
        value = [{ kind = \"dense\", width = 8, layer_norm = true, activation = \"tanh\" },\
                 { kind = \"dense\", width = 8, layer_norm = false, activation = \"elu\" }]\n\
        policy = [{ kind = \"dense\", width = 8, layer_norm = false, activation = \"relu\" },\
                  { kind = \"residual\", width = 8 }]\n\
        [[limits]]\ncost = \"wear\"\nlimit = 0.1\nunit = \"step\"\n\
        [[limits]]\ncost = \"heat\"\nlimit = 5\nunit = \"episode\"\n";
    RawConfig::from_toml(&text).unwrap().validate(&LogFacts::of(data)).unwrap()
}

/// Writes down what it is told, and stops after `stop_after` reports.
#[derive(Default)]
struct Recorder {
    reports: Vec<(u64, Vec<(String, f64)>)>,
    checkpoints: Vec<u64>,
    skipped: usize,
    started: Option<u64>,
    stop_after: Option<usize>,
}

impl Observer for Recorder {
    fn started(&mut self, step: u64) {
        self.started = Some(step);
    }

    fn metrics(&mut self, step: u64, values: &[(&str, f64)]) {
        self.reports.push((step, values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()));
    }

    fn checkpoint(&mut self, step: u64, path: &Path) {
        assert!(path.join("state.json").exists());
        self.checkpoints.push(step);
    }

    fn skipped(&mut self, error: &CheckpointError) {
        assert!(matches!(error, CheckpointError::Damaged { .. }));
        self.skipped += 1;
    }

    fn should_stop(&self) -> bool {
        self.stop_after.is_some_and(|count| self.reports.len() >= count)
    }
}

fn io(directory: &Path, resume: bool) -> TrainIo {
    TrainIo { directory: directory.to_owned(), resume }
}

fn finished(outcome: TrainOutcome) -> Policy {
    match outcome {
        TrainOutcome::Finished { policy, .. } => *policy,
        other => panic!("{other:?}"),
    }
}

/// Trains in a fresh directory.
fn run(config: &TrainConfig, data: &Transitions) -> (Policy, Recorder) {
    let directory = tempfile::tempdir().unwrap();
    let mut recorder = Recorder::default();
    let outcome = train(config, data, &io(directory.path(), false), &mut recorder).unwrap();
    (finished(outcome), recorder)
}

/// Every algorithm on both kinds of action, at both readings of the process, with all forms of the bound.
fn each_case(mut check: impl FnMut(&TrainConfig, &Transitions)) {
    for entry in ALGORITHMS {
        for action in spaces() {
            let data = log(&action, 1);
            for fields in [
                "",
                "gamma = 1.0",
                "gamma = 1.0\nsuccessors = \"averaged\"",
                "dual_share = 1.0\nepsilon = 0.0\ndivergence = \"chi2\"",
                "bound_loss = \"reference\"",
                "extraction = \"state_normalized\"",
                "extraction = \"critic_guided\"\nsuccessors = \"averaged\"",
                "extraction = \"information_projection\"",
                // Weights of 0, along with the dual, undiscounted.
                "extraction = \"information_projection\"\ndual_share = 1.0\ndivergence = \"chi2\"\ngamma = 1.0",
                "extraction = \"guided_selection\"",
                "extraction = \"guided_selection\"\ndual_share = 1.0\ngamma = 1.0",
                // What this processor makes of it.
                "extraction = \"critic_guided\"\nprecision = \"bf16\"",
                "extraction = \"information_projection\"\nprecision = \"bf16\"",
                "extraction = \"guided_selection\"\nprecision = \"bf16\"",
            ] {
                check(&config(&data, entry.algorithm, fields), &data);
            }
        }
    }
}

/// `data` with its actions times `factor`.
fn rescaled(data: &Transitions, factor: f32) -> Transitions {
    let mut builder = TransitionsBuilder::new(data.schema()).unwrap();
    for row in 0..data.len() {
        let step = data.step(row);
        let action: Vec<f32> = data.continuous_action(row).iter().map(|a| a * factor).collect();
        builder.push(&Step { action: StepAction::Continuous(&action), ..step }).unwrap();
    }
    builder.finish().unwrap()
}

/// Doses of thousands and valves that move by a ten-thousandth are learned alike: to the bit where the factor between
/// them is a power of two, as only exponents differ.
#[test]
fn what_is_learned_does_not_depend_on_the_unit_of_actions() {
    let ordinary = log(&ActionSpace::Continuous { dim: 2 }, 4);
    let observations: Vec<f32> =
        (0..ordinary.len()).flat_map(|row| ordinary.observation(row)).copied().collect();
    let pool = coptidice_nn::Pool::new(1).unwrap();
    for entry in ALGORITHMS {
        for extraction in ["weighted_bc", "critic_guided", "information_projection", "guided_selection"] {
            let learned = [13, -13].map(|exponent| {
                let factor = 2.0_f32.powi(exponent);
                let data = rescaled(&ordinary, factor);
                let fields = format!("extraction = \"{extraction}\"");
                let (policy, recorder) = run(&config(&data, entry.algorithm, &fields), &data);
                assert!(policy.action_unit().is_some());
                let act = |acting| {
                    let actions = policy.act_batch(&observations, acting, 3, &pool).unwrap();
                    actions.iter().map(|a| a / factor).collect::<Vec<f32>>()
                };
                let selects = policy.selector().is_some().then(|| act(Acting::Select));
                (recorder.reports, act(Acting::Mean), act(Acting::Sample), selects)
            });
            assert!(learned[0] == learned[1], "{}, {extraction}", entry.algorithm);
            assert!(learned[0].1.iter().any(|a| a.abs() > 1e-3 && a.abs() < 0.5), "{extraction}");
        }
    }
    // What is of ordinary size is left as it is, so that policies are those of the first format.
    let (policy, _) = run(&config(&ordinary, Algorithm::Bc, ""), &ordinary);
    assert!(policy.action_unit().is_none());
}

#[test]
fn metrics_are_finite_and_on_time_and_the_policy_acts_within_the_logged_range() {
    each_case(|config, data| {
        let (policy, recorder) = run(config, data);
        let steps: Vec<u64> = recorder.reports.iter().map(|(step, _)| *step).collect();
        assert_eq!(steps, [5, 10, 15, 20, 24]);
        assert_eq!(recorder.checkpoints, [8, 16, 24]);
        for (step, values) in &recorder.reports {
            assert!(values.iter().any(|(name, _)| name == "loss/policy"));
            for (name, value) in values {
                assert!(value.is_finite(), "{} {name} = {value} at step {step}", config.algo);
            }
            if config.algo.keeps_limits() {
                assert!(values.iter().any(|(name, value)| name == "lambda/wear" && *value > 0.0));
            }
        }
        assert_eq!(policy.about().algorithm, config.algo.name());
        assert_eq!(policy.about().limits.len(), 2);
        let selects = config.extraction == Extraction::GuidedSelection && config.algo != Algorithm::Bc;
        assert_eq!((policy.selector().is_some(), policy.acting() == Acting::Select), (selects, selects));
        let mut actor = policy.actor();
        let mut rng = stream(0, "act", 0);
        for i in 0..data.len() {
            let mut action = vec![f32::NAN; policy.action_width()];
            actor.act(data.observation(i), &mut rng, &mut action).unwrap();
            if data.actions().is_discrete() {
                assert!([0.0, 1.0, 2.0].contains(&action[0]));
            } else {
                assert!(action.iter().all(|a| (-0.5..=0.5).contains(a)));
            }
        }
    });
}

#[test]
fn the_same_inputs_give_the_same_bytes_with_one_and_two_threads_and_another_seed_does_not() {
    each_case(|first, data| {
        // Large enough that every pass is cut into parts for several threads.
        let mut first = first.clone();
        (first.batch_size, first.steps) = (160, 6);
        let (policy, recorder) = run(&first, data);
        let bytes = policy.to_bytes().unwrap();
        for threads in [1, 2, 3] {
            let mut again = first.clone();
            again.threads = threads;
            let (other, reports) = run(&again, data);
            assert_eq!(other.to_bytes().unwrap(), bytes, "{} with {threads} threads", first.algo);
            assert_eq!(reports.reports, recorder.reports);
        }
        let mut other = first.clone();
        other.seed = 1;
        assert_ne!(run(&other, data).0.params(), policy.params());
    });
}

#[test]
fn a_stopped_run_resumes_to_the_bytes_and_reports_of_one_that_was_never_stopped() {
    each_case(|config, data| {
        let (whole, uninterrupted) = run(config, data);
        let directory = tempfile::tempdir().unwrap();
        // Stops after step 10, between two checkpoints; the window of metrics is empty there. Then after step 20.
        let mut recorder = Recorder { stop_after: Some(2), ..Recorder::default() };
        let outcome = train(config, data, &io(directory.path(), false), &mut recorder).unwrap();
        assert!(matches!(outcome, TrainOutcome::Stopped { step: 10, .. }), "{outcome:?}");
        recorder.stop_after = Some(4);
        let outcome = train(config, data, &io(directory.path(), true), &mut recorder).unwrap();
        assert!(matches!(outcome, TrainOutcome::Stopped { step: 20, .. }), "{outcome:?}");
        recorder.stop_after = None;
        let resumed = finished(train(config, data, &io(directory.path(), true), &mut recorder).unwrap());
        assert_eq!(recorder.started, Some(20));
        assert_eq!(resumed.to_bytes().unwrap(), whole.to_bytes().unwrap());
        assert_eq!(recorder.reports, uninterrupted.reports);
    });
}

/// What a killed process leaves is a directory of complete checkpoints, perhaps an unfinished one beside them.
#[test]
fn a_killed_run_resumes_from_its_newest_complete_checkpoint() {
    each_case(|config, data| {
        let (whole, uninterrupted) = run(config, data);
        for survivors in [0, 1, 2, 3] {
            let directory = tempfile::tempdir().unwrap();
            finished(train(config, data, &io(directory.path(), false), &mut Recorder::default()).unwrap());
            let checkpoints = directory.path().join("checkpoints");
            for step in [8, 16, 24].into_iter().skip(survivors) {
                let path = checkpoints.join(format!("step-{step}"));
                std::fs::rename(&path, checkpoints.join(format!("unfinished-step-{step}"))).unwrap();
            }
            let mut recorder = Recorder::default();
            let resumed = finished(train(config, data, &io(directory.path(), true), &mut recorder).unwrap());
            assert_eq!(recorder.started, Some(8 * survivors as u64));
            assert_eq!(resumed.to_bytes().unwrap(), whole.to_bytes().unwrap());
            // Step 8 and step 16 lie inside windows of five steps: their open sums were kept.
            let again: Vec<_> = uninterrupted
                .reports
                .iter()
                .filter(|(step, _)| *step > 8 * survivors as u64)
                .cloned()
                .collect();
            assert_eq!(recorder.reports, again);
            assert!(!checkpoints.join("unfinished-step-24").exists());
        }
    });
}

#[test]
fn a_run_can_be_made_longer() {
    let data = log(&spaces()[0], 1);
    let long = config(&data, Algorithm::Coptidice, "dual_share = 1.0");
    let mut short = long.clone();
    short.steps = 9;
    let directory = tempfile::tempdir().unwrap();
    finished(train(&short, &data, &io(directory.path(), false), &mut Recorder::default()).unwrap());
    let resumed =
        finished(train(&long, &data, &io(directory.path(), true), &mut Recorder::default()).unwrap());
    assert_eq!(resumed.params(), run(&long, &data).0.params());
    let back = train(&short, &data, &io(directory.path(), true), &mut Recorder::default());
    assert!(matches!(
        back,
        Err(TrainError::Checkpoint(CheckpointError::BeyondEnd { step: 24, steps: 9, .. }))
    ));
}

/// When the dual's steps end and how fast rates fall depends on the number of steps.
#[test]
fn a_run_whose_policy_has_steps_of_its_own_cannot_be_made_longer() {
    let data = log(&spaces()[0], 1);
    let long = config(&data, Algorithm::Coptidice, "dual_share = 0.5");
    let mut short = long.clone();
    short.steps = 8;
    let directory = tempfile::tempdir().unwrap();
    finished(train(&short, &data, &io(directory.path(), false), &mut Recorder::default()).unwrap());
    let refused = train(&long, &data, &io(directory.path(), true), &mut Recorder::default());
    let message = refused.unwrap_err().to_string();
    assert!(message.contains("steps"), "{message}");
}

/// The dual's figures stop where its steps end, and the policy's begin there.
#[test]
fn the_dual_trains_first_and_then_the_policy() {
    let data = log(&spaces()[0], 1);
    let fields = "dual_share = 0.5\nextraction = \"critic_guided\"\nlog_every = 1";
    let (_, recorder) = run(&config(&data, Algorithm::Coptidice, fields), &data);
    let of = |name: &str| -> Vec<f64> {
        let value = |values: &[(String, f64)]| values.iter().find(|(n, _)| n == name).unwrap().1;
        recorder.reports.iter().map(|(_, values)| value(values)).collect()
    };
    let differ = |values: &[f64]| values.windows(2).all(|pair| pair[0] != pair[1]);
    for name in ["loss/nu", "lambda/wear", "w/mean"] {
        let values = of(name);
        assert!(differ(&values[..12]), "{name}: {values:?}");
        assert!(values[12..].iter().all(|value| *value == values[11]), "{name}: {values:?}");
    }
    for name in ["loss/policy", "loss/critic", "critic/spread"] {
        let values = of(name);
        assert!(values[..12].iter().all(|value| *value == 0.0), "{name}: {values:?}");
        assert!(differ(&values[12..]), "{name}: {values:?}");
    }
}

/// Checkpoints of before there was a choice of precision go on in the one there was.
#[test]
fn checkpoints_without_a_precision_are_of_f32() {
    let data = log(&spaces()[0], 1);
    let config = config(&data, Algorithm::Coptidice, "");
    let directory = tempfile::tempdir().unwrap();
    let whole =
        finished(train(&config, &data, &io(directory.path(), false), &mut Recorder::default()).unwrap());
    let state = directory.path().join("checkpoints/step-24/state.json");
    let text = std::fs::read_to_string(&state).unwrap();
    let older = text.replace("\"precision\": \"f32\",", "");
    assert_ne!(older, text);
    std::fs::write(&state, older).unwrap();
    let mut recorder = Recorder::default();
    let resumed = finished(train(&config, &data, &io(directory.path(), true), &mut recorder).unwrap());
    assert_eq!((recorder.started, resumed.params()), (Some(24), whole.params()));
}

#[test]
fn damage_and_other_inputs_are_refused_with_their_reason() {
    let data = log(&spaces()[0], 1);
    let config = config(&data, Algorithm::Coptidice, "");
    let directory = tempfile::tempdir().unwrap();
    let whole =
        finished(train(&config, &data, &io(directory.path(), false), &mut Recorder::default()).unwrap());
    let resume = |config: &TrainConfig, data: &Transitions, recorder: &mut Recorder| {
        train(config, data, &io(directory.path(), true), recorder)
    };
    let ignored = &mut Recorder::default();

    let again = train(&config, &data, &io(directory.path(), false), ignored);
    assert!(matches!(again, Err(TrainError::RunExists { .. })));

    let mut other = config.clone();
    other.networks.min_scale = 0.02;
    match resume(&other, &data, ignored) {
        Err(TrainError::Checkpoint(CheckpointError::ConfigDiffers { field, ours, theirs, .. })) => {
            assert_eq!(
                (field.as_str(), ours.as_str(), theirs.as_str()),
                ("networks.min_scale", "0.02", "0.01")
            );
        }
        found => panic!("{found:?}"),
    }
    let mut other = config.clone();
    other.precision = Precision::Bf16;
    if other.precision.is_available() {
        let found = resume(&other, &data, ignored);
        let differs = |error: &CheckpointError| matches!(error, CheckpointError::ConfigDiffers { field, .. } if field == "precision");
        assert!(matches!(&found, Err(TrainError::Checkpoint(error)) if differs(error)), "{found:?}");
    } else {
        let found = train(&other, &data, &io(tempfile::tempdir().unwrap().path(), false), ignored);
        assert!(matches!(found, Err(TrainError::Network(NnError::NoBf16))), "{found:?}");
    }
    let elsewhere = resume(&config, &log(&spaces()[0], 2), ignored);
    assert!(matches!(elsewhere, Err(TrainError::Checkpoint(CheckpointError::DataDiffers { .. }))));

    let newest = directory.path().join("checkpoints/step-24");
    let tensors = newest.join("state.safetensors");
    let sound = std::fs::read(&tensors).unwrap();
    let mut damaged = sound.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    for bytes in [&damaged[..], &sound[..100], &[]] {
        std::fs::write(&tensors, bytes).unwrap();
        let mut recorder = Recorder::default();
        let policy = finished(resume(&config, &data, &mut recorder).unwrap());
        assert_eq!((recorder.skipped, recorder.started), (1, Some(16)), "the older one is used");
        assert_eq!(policy.params(), whole.params());
        assert_eq!(std::fs::read(&tensors).unwrap(), sound, "and the damaged one replaced");
    }
    let state = newest.join("state.json");
    let text = std::fs::read_to_string(&state).unwrap();
    std::fs::write(&state, text.replace("\"format\": 2", "\"format\": 9")).unwrap();
    let newer = resume(&config, &data, ignored);
    assert!(matches!(newer, Err(TrainError::Checkpoint(CheckpointError::Format { found: 9, .. }))));
    for step in [8, 16, 24] {
        std::fs::write(directory.path().join(format!("checkpoints/step-{step}/state.json")), "{").unwrap();
    }
    let none_left = resume(&config, &data, &mut Recorder::default());
    assert!(
        matches!(none_left, Err(TrainError::Checkpoint(CheckpointError::Damaged { .. }))),
        "{none_left:?}"
    );
}

#[test]
fn only_the_newest_checkpoints_are_kept() {
    let data = log(&spaces()[1], 1);
    let config = config(&data, Algorithm::Bc, "keep_checkpoints = 2");
    let directory = tempfile::tempdir().unwrap();
    finished(train(&config, &data, &io(directory.path(), false), &mut Recorder::default()).unwrap());
    let mut names: Vec<_> = std::fs::read_dir(directory.path().join("checkpoints"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["step-16", "step-24"]);
}

#[test]
fn a_runaway_ends_the_run_and_names_the_quantity() {
    let data = log(&spaces()[0], 1);
    let diverged = |fields: &str, algorithm| {
        // All steps are the dual's.
        let config = config(&data, algorithm, &format!("dual_share = 1.0\n{fields}"));
        let directory = tempfile::tempdir().unwrap();
        let mut recorder = Recorder::default();
        match train(&config, &data, &io(directory.path(), false), &mut recorder).unwrap() {
            TrainOutcome::Diverged { quantity, step, last_good_checkpoint, .. } => {
                let last = recorder.checkpoints.last().map(|step| format!("step-{step}"));
                let named =
                    last_good_checkpoint.map(|path| path.file_name().unwrap().to_str().unwrap().to_owned());
                assert_eq!(named, last);
                (quantity, step)
            }
            other => panic!("{fields}: {other:?}"),
        }
    };
    // exp(e/alpha) with rewards of ten and a small alpha overflows at once.
    let (quantity, step) =
        diverged("divergence = \"kl\"\nalpha = 1e-4\nreward_scale = \"none\"", Algorithm::Optidice);
    assert_eq!((quantity.as_str(), step), ("w", 1));
    // Nothing logged keeps this cost under its limit, so that its price grows from 1 to the stop: 0.5 a step in its logarithm,
    // ln 1000 = 6.9.
    let (quantity, step) = diverged(
        "multiplier_learning_rate = 0.5\nepsilon = 10.0\nbound_loss = \"paper\"",
        Algorithm::Coptidice,
    );
    assert!(quantity.starts_with("lambda/") && (14..=20).contains(&step), "{quantity} at step {step}");
    for algorithm in Algorithm::ALL {
        let (quantity, _) = diverged("policy_learning_rate = 1e30", algorithm);
        assert!(quantity.contains("policy"), "{quantity}");
    }
    for algorithm in [Algorithm::Optidice, Algorithm::Coptidice] {
        for fields in ["learning_rate = 1e8", "learning_rate = 1e30"] {
            let (quantity, _) = diverged(fields, algorithm);
            assert_eq!(quantity, "nu", "{fields}");
        }
    }
}

#[test]
fn the_policy_of_a_checkpoint_can_be_had() {
    for entry in ALGORITHMS {
        let data = log(&spaces()[0], 1);
        let config = config(&data, entry.algorithm, "finalists = 1");
        let directory = tempfile::tempdir().unwrap();
        let whole =
            finished(train(&config, &data, &io(directory.path(), false), &mut Recorder::default()).unwrap());
        let at =
            |step: u64| policy_at(&config, &data, &directory.path().join(format!("checkpoints/step-{step}")));
        // How it acts is chosen when training is over.
        let last = at(24).unwrap().with_acting(whole.acting()).unwrap();
        assert_eq!(last.to_bytes().unwrap(), whole.to_bytes().unwrap());
        assert_ne!(at(8).unwrap().params(), whole.params());
        assert_eq!(at(8).unwrap().about().steps, 8);
        assert!(matches!(at(9), Err(TrainError::Checkpoint(CheckpointError::Damaged { .. }))));
    }
}

#[test]
fn a_log_with_holes_is_refused_with_the_place() {
    let data = log(&spaces()[0], 1);
    let config = config(&data, Algorithm::Bc, "");
    let schema = Schema {
        observation_dim: 3,
        action: spaces()[0].clone(),
        cost_names: vec!["heat".into(), "wear".into()],
        propensity: false,
    };
    let mut builder = TransitionsBuilder::new(schema).unwrap();
    for row in 0..4 {
        let bad = if row == 2 { f32::NAN } else { 1.0 };
        builder
            .push(&Step {
                observation: &[0.0; 3],
                action: StepAction::Continuous(&[0.0; 2]),
                reward: bad,
                costs: &[0.0; 2],
                next_observation: &[0.0; 3],
                terminal: false,
                timeout: false,
                propensity: None,
            })
            .unwrap();
    }
    let directory = tempfile::tempdir().unwrap();
    let refused =
        train(&config, &builder.finish().unwrap(), &io(directory.path(), false), &mut Recorder::default());
    let message = refused.unwrap_err().to_string();
    assert!(message.contains("row 2") && message.contains("reward") && message.contains("NaN"), "{message}");
}
