//! Rollouts, evaluation and recording.

use std::sync::atomic::{AtomicUsize, Ordering};

use approx::assert_relative_eq;
use coptidice_core::rng::{Rng, stream};
use coptidice_core::{CostLimit, EpisodeHorizon, LimitUnit};
use coptidice_data::{Actions, EpisodeEnd};
use coptidice_sim::{
    ActionSpec, Actor, CostSpec, CostTiming, EnvSpec, Environment, EpisodeRecord, EpisodeRunner, EpisodeSink,
    Episodes, EvaluateOptions, Evaluation, PerRow, PhysicsState, SimError, StepResult, collect, evaluate,
    make, record_episodes, registry, run_episodes,
};
use rand::RngExt;

/// Walks from a random rung of a ladder down to rung 0, where it ends: action 1 goes down, action 0 stays. A
/// step earns 1; the first cost is the rung, the second is 1 on even rungs.
#[derive(Clone)]
struct Ladder {
    spec: EnvSpec,
    rung: u32,
    /// Reports a rung that is not finite from here on.
    breaks_below: u32,
}

impl Ladder {
    fn new() -> Self {
        let cost = |name: &str, limit| CostSpec {
            name: name.into(),
            description: String::new(),
            default_limit: CostLimit::PerStep { limit },
            paper_threshold: None,
        };
        Ladder {
            spec: EnvSpec {
                name: "test/ladder".into(),
                observation_names: vec!["rung".into()],
                action: ActionSpec::Discrete { count: 2 },
                costs: vec![cost("height", 2.0), cost("even", 0.5)],
                horizon: 9,
                evaluation_timing: CostTiming::Before,
            },
            rung: 0,
            breaks_below: 0,
        }
    }
}

impl Environment for Ladder {
    fn spec(&self) -> &EnvSpec {
        &self.spec
    }
    fn fresh(&self) -> Box<dyn Environment> {
        Box::new(self.clone())
    }
    fn reset(&mut self, rng: &mut Rng) {
        self.rung = rng.random_range(1..=5);
    }
    fn state(&self) -> PhysicsState {
        PhysicsState::default()
    }
    fn set_state(&mut self, _: &PhysicsState) -> Result<(), SimError> {
        Ok(())
    }
    fn observe(&self, observation: &mut [f64]) {
        observation[0] = if self.rung < self.breaks_below { f64::NAN } else { f64::from(self.rung) };
    }
    fn costs(&self, costs: &mut [f64]) {
        costs[0] = f64::from(self.rung);
        costs[1] = f64::from(u8::from(self.rung.is_multiple_of(2)));
    }
    fn step(&mut self, action: &[f64]) -> StepResult {
        self.rung -= action[0] as u32;
        StepResult { reward: 1.0, terminal: self.rung == 0 }
    }
}

fn down(_: &[f32], _: &mut Rng, action: &mut [f32]) {
    action[0] = 1.0;
}

fn start_rungs(episodes: u64, seed: u64) -> Vec<u32> {
    (0..episodes).map(|i| stream(seed, "episode", i).random_range(1..=5)).collect()
}

/// Going down from rung n takes n steps, costs n + … + 1 before and (n−1) + … + 0 after, so every figure is
/// known.
#[test]
fn figures_of_episodes_of_varying_length() {
    let rungs = start_rungs(40, 7);
    let options = EvaluateOptions::new(40, 7);
    let figures = evaluate(&Ladder::new(), &down, &options).unwrap();
    let n = 40.0;
    let steps: f64 = rungs.iter().map(|&r| f64::from(r)).sum();
    let triangle = |r: u32| f64::from(r * (r + 1) / 2);
    let total: f64 = rungs.iter().map(|&r| triangle(r)).sum();
    assert_eq!(figures.steps as f64, steps);
    assert_relative_eq!(figures.return_mean, steps / n);
    assert_relative_eq!(figures.cost_per_step.unwrap(), total / steps);
    assert_relative_eq!(figures.cost_per_episode.unwrap(), total / n);
    // The mean rung of a descent from r is (r + 1)/2 > 2 exactly from rung 4 on.
    let over = rungs.iter().filter(|&&r| r > 3).count() as f64 / n;
    assert_relative_eq!(figures.share_over_limit.unwrap(), over);
    assert_eq!(figures.costs[1].name, "even");
    assert!(figures.per_episode.iter().all(|episode| episode.terminal));

    let after = EvaluateOptions { timing: Some(CostTiming::After), ..options.clone() };
    let after = evaluate(&Ladder::new(), &down, &after).unwrap();
    assert_relative_eq!(after.cost_per_episode.unwrap(), (total - steps) / n);

    let mean = steps / n;
    let variance: f64 = rungs.iter().map(|&r| (f64::from(r) - mean).powi(2)).sum::<f64>() / (n - 1.0);
    assert_relative_eq!(figures.return_stderr.unwrap(), (variance / n).sqrt(), max_relative = 1e-12);
    // Delta method by hand.
    let ratio = total / steps;
    let spread: f64 = rungs.iter().map(|&r| (triangle(r) - ratio * f64::from(r)).powi(2)).sum();
    let error = (spread / (n - 1.0) / n).sqrt() / mean;
    assert_relative_eq!(figures.costs[0].per_step_stderr.unwrap(), error, max_relative = 1e-12);

    let horizon = EpisodeHorizon::Varying { logged_mean: 3.0 };
    let episode = CostLimit::new(6.0, LimitUnit::Episode, horizon).unwrap();
    let limits = Some(vec![episode, CostLimit::PerStep { limit: 1.0 }]);
    let figures = evaluate(&Ladder::new(), &down, &EvaluateOptions { limits, ..options }).unwrap();
    let over = rungs.iter().filter(|&&r| triangle(r) > 6.0).count() as f64 / n;
    assert_relative_eq!(figures.costs[0].share_over_limit, over);
    assert_eq!(figures.costs[0].within_limit, total / n <= 6.0);
    assert_eq!(figures.within_limits(), figures.costs.iter().all(|cost| cost.within_limit));
}

/// The standard error means what it says: over 400 evaluations of 20 episodes, the spread of the cost per step
/// is the reported error within 15% (the spread of 400 values is known to 1/√800 = 3.5%, the mean of the errors
/// to less; the delta method at 20 episodes is biased by a few per cent).
#[test]
fn standard_errors_match_the_spread_of_repetitions() {
    let repetitions: Vec<Evaluation> = (0..400)
        .map(|seed| evaluate(&Ladder::new(), &down, &EvaluateOptions::new(20, 1000 + seed)).unwrap())
        .collect();
    for pick in [
        (|e: &Evaluation| (e.return_mean, e.return_stderr.unwrap())) as fn(&Evaluation) -> (f64, f64),
        |e| (e.costs[0].per_step, e.costs[0].per_step_stderr.unwrap()),
        |e| (e.costs[1].per_episode, e.costs[1].per_episode_stderr.unwrap()),
    ] {
        let values: Vec<(f64, f64)> = repetitions.iter().map(pick).collect();
        let mean = values.iter().map(|v| v.0).sum::<f64>() / 400.0;
        let spread = (values.iter().map(|v| (v.0 - mean).powi(2)).sum::<f64>() / 399.0).sqrt();
        let reported = values.iter().map(|v| v.1).sum::<f64>() / 400.0;
        assert_relative_eq!(spread, reported, max_relative = 0.15);
    }
}

#[test]
fn one_episode_has_no_standard_error_and_json_has_the_keys() {
    let options = EvaluateOptions { record_paths: 1, ..EvaluateOptions::new(1, 0) };
    let figures = evaluate(make("nav/hazard").unwrap().as_ref(), &still, &options).unwrap();
    let json: serde_json::Value = serde_json::to_value(&figures).unwrap();
    for key in ["episodes", "return_mean", "cost_per_step", "cost_per_episode", "share_over_limit"] {
        assert!(json[key].is_number(), "{key}");
    }
    assert!(json["return_stderr"].is_null() && json["costs"][0]["name"] == "hazard");
    assert_eq!(json["per_episode"][0]["steps"], 200);
    assert_eq!(figures.paths.len(), 1);
    assert_eq!(figures.paths[0].observations.len(), 201);
    assert_eq!(serde_json::from_value::<Evaluation>(json).unwrap(), figures);
}

fn still(_: &[f32], _: &mut Rng, action: &mut [f32]) {
    action.fill(0.0);
}

/// Remembers its episode, as controllers do.
struct Noisy {
    bias: f32,
}

impl Actor for Noisy {
    fn begin_episode(&mut self, _: u64, _: &[f32], rng: &mut Rng) {
        self.bias = rng.random_range(-0.5..0.5);
    }
    fn act(&mut self, observation: &[f32], rng: &mut Rng, action: &mut [f32]) {
        for a in action.iter_mut() {
            *a = self.bias + rng.random_range(-1.0..1.0) - 0.1 * observation[0];
        }
    }
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    for entry in registry::ENTRIES.iter().filter(|entry| entry.is_available()) {
        let env = make(entry.name).unwrap();
        let with_threads = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let source = PerRow(|| Noisy { bias: f32::NAN });
            let options = EvaluateOptions { record_paths: 3, ..EvaluateOptions::new(13, 5) };
            pool.install(|| {
                let figures = evaluate(env.as_ref(), &source, &options).unwrap();
                let log = collect(env.as_ref(), &source, Episodes::new(13, 5)).unwrap();
                (serde_json::to_string(&figures).unwrap(), log.fingerprint())
            })
        };
        let one = with_threads(1);
        assert_eq!(one, with_threads(2), "{}", entry.name);
        assert_eq!(one, with_threads(5), "{}", entry.name);
    }
}

/// Goes down with a probability of its own, and gives up on the third step from the top rung.
struct Climber {
    eagerness: f64,
    from: f32,
    steps: usize,
    stumbles: bool,
}

impl Actor for Climber {
    fn begin_episode(&mut self, episode: u64, observation: &[f32], rng: &mut Rng) {
        self.eagerness = rng.random_range(0.2..0.8) + 0.01 * episode as f64 / 70.0;
        (self.from, self.steps) = (observation[0], 0);
    }
    fn act(&mut self, observation: &[f32], rng: &mut Rng, action: &mut [f32]) {
        self.steps += 1;
        assert!(observation[0] <= self.from && self.from - observation[0] < self.steps as f32);
        let stumbles = self.stumbles && self.from == 5.0 && self.steps == 3;
        action[0] = if stumbles { 7.0 } else { f32::from(u8::from(rng.random_bool(self.eagerness))) };
    }
}

/// Episodes of varying length leave the convoy one after another; each is what it is when run on its own, with the actor
/// that remembers it, whatever the number of threads and so of those in step.
#[test]
fn episodes_in_step_are_those_run_alone() {
    let env = Ladder::new();
    let climber = |stumbles| Climber { eagerness: f64::NAN, from: f32::NAN, steps: 0, stumbles };
    let mut runner = EpisodeRunner::new(&env);
    let alone: Vec<EpisodeRecord> = (0..70)
        .map(|episode| {
            let mut record = EpisodeRecord::new(env.spec());
            let [mut start, mut acting] = ["episode", "actor"].map(|purpose| stream(4, purpose, episode));
            runner
                .run(episode, &mut climber(false), &mut start, &mut acting, |step| record.step(step))
                .unwrap();
            record
        })
        .collect();
    let first_from_the_top = start_rungs(70, 4).iter().position(|&rung| rung == 5).unwrap() as u64;
    for threads in [1, 2, 5] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let run = |stumbles| {
            let source = PerRow(move || climber(stumbles));
            pool.install(|| {
                run_episodes(&env, &source, Episodes::new(70, 4), |_| EpisodeRecord::new(env.spec()))
            })
        };
        assert_eq!(run(false).unwrap(), alone, "{threads} threads");
        let failed = run(true).unwrap_err();
        let expected = SimError::Action { episode: first_from_the_top, step: 2, component: 0, value: 7.0 };
        assert_eq!(failed, expected, "{threads} threads");
    }
}

#[test]
fn a_run_can_be_split_without_changing_it() {
    let env = make("rwrl/cartpole-swingup").unwrap();
    let source = PerRow(|| Noisy { bias: 0.0 });
    let part = |count, first| {
        let options = EvaluateOptions {
            episodes: Episodes { count, seed: 9, first },
            ..EvaluateOptions::new(count, 9)
        };
        evaluate(env.as_ref(), &source, &options).unwrap().per_episode
    };
    let mut halves = part(2, 0);
    halves.extend(part(3, 2));
    assert_eq!(part(5, 0), halves);
    assert_ne!(halves[0], halves[1]);
}

/// 70 episodes cross the boundary of a chunk. Rows carry the cost before the action; time-outs and terminals
/// are told apart; next observations chain.
#[test]
fn logs_keep_the_conventions() {
    let calls = AtomicUsize::new(0);
    let sometimes = |_: &[f32], rng: &mut Rng, action: &mut [f32]| {
        calls.fetch_add(1, Ordering::Relaxed);
        action[0] = f32::from(u8::from(rng.random_bool(0.4)));
    };
    let log = collect(&Ladder::new(), &sometimes, Episodes::new(70, 3)).unwrap();
    assert_eq!(log.len(), calls.load(Ordering::Relaxed));
    assert_eq!(log.episodes().len(), 70);
    assert_eq!(log.cost_names(), ["height", "even"]);
    assert!(matches!(log.actions(), Actions::Discrete { count: 2, .. }));
    let (mut terminals, mut timeouts) = (0, 0);
    for episode in log.episodes() {
        for i in episode.rows() {
            let rung = log.observation(i)[0];
            assert_eq!(log.costs(i), [rung, f32::from(u8::from(rung % 2.0 == 0.0))]);
            assert_eq!(log.next_observation(i)[0], rung - log.discrete_action(i) as f32);
            assert_eq!(log.terminal(i), log.next_observation(i)[0] == 0.0);
        }
        match episode.end {
            EpisodeEnd::Terminal => terminals += 1,
            EpisodeEnd::Timeout => {
                timeouts += 1;
                assert_eq!(episode.len, 9);
            }
            EpisodeEnd::Cut => panic!("nothing is cut"),
        }
    }
    assert!(terminals > 0 && timeouts > 0);
    let starts: Vec<u32> = log.initial_observations().map(|s| s[0] as u32).collect();
    assert_eq!(starts, start_rungs(70, 3));
}

/// A policy's cost on its own log and in its evaluation differ by the first and last state only.
#[test]
fn the_two_timings_differ_by_the_ends() {
    let env = make("rwrl/cartpole-swingup").unwrap();
    let push = |_: &[f32], _: &mut Rng, action: &mut [f32]| action[0] = 0.03;
    let sums = |timing| {
        let options = EvaluateOptions { timing: Some(timing), ..EvaluateOptions::new(3, 2) };
        evaluate(env.as_ref(), &push, &options).unwrap().cost_per_episode.unwrap()
    };
    // The cart starts within the constraint and ends at the stop, outside it.
    assert_relative_eq!(sums(CostTiming::After) - sums(CostTiming::Before), 1.0);
    let log = collect(env.as_ref(), &push, Episodes::new(3, 2)).unwrap();
    let logged: f64 = (0..log.len()).map(|i| f64::from(log.costs(i)[0])).sum();
    assert_relative_eq!(logged / 3.0, sums(CostTiming::Before));
}

#[test]
fn actions_are_clipped_before_they_are_logged() {
    let env = make("nav/hazard").unwrap();
    let wild = |_: &[f32], _: &mut Rng, action: &mut [f32]| action.copy_from_slice(&[7.0, -0.25]);
    let log = collect(env.as_ref(), &wild, Episodes::new(1, 0)).unwrap();
    assert_eq!(log.continuous_action(5), [1.0, -0.25]);
}

#[test]
fn what_cannot_go_on_says_where() {
    let bad = |_: &[f32], _: &mut Rng, action: &mut [f32]| action[0] = 2.0;
    let error = evaluate(&Ladder::new(), &bad, &EvaluateOptions::new(4, 0)).unwrap_err();
    assert_eq!(error, SimError::Action { episode: 0, step: 0, component: 0, value: 2.0 });

    let env = make("nav/hazard").unwrap();
    let nan = |o: &[f32], _: &mut Rng, action: &mut [f32]| {
        action.copy_from_slice(&[1.0, if o[0] > 0.0 { f32::NAN } else { 0.0 }]);
    };
    let error = evaluate(env.as_ref(), &nan, &EvaluateOptions::new(4, 0)).unwrap_err();
    assert!(matches!(error, SimError::Action { episode: 0, component: 1, step, .. } if step > 10), "{error}");

    let broken = Ladder { breaks_below: 1, ..Ladder::new() };
    let error = evaluate(&broken, &down, &EvaluateOptions::new(2, 0)).unwrap_err();
    assert!(matches!(error, SimError::Diverged { episode: 0, .. }));

    assert_eq!(evaluate(&broken, &down, &EvaluateOptions::new(0, 0)), Err(SimError::NoEpisodes));
    let options = EvaluateOptions { limits: Some(vec![]), ..EvaluateOptions::new(1, 0) };
    assert!(matches!(evaluate(&Ladder::new(), &down, &options), Err(SimError::LimitCount { .. })));
    let spec = env.spec();
    assert_eq!(spec.check_shapes(4, 2), Ok(()));
    assert!(matches!(spec.check_shapes(5, 2), Err(SimError::Shape { what: "observation", .. })));
    assert!(matches!(spec.check_shapes(4, 1), Err(SimError::Shape { what: "action", .. })));
}

#[test]
fn a_visitor_can_stop_the_recording() {
    let mut seen = 0;
    let result = record_episodes(&Ladder::new(), &down, Episodes::new(10, 0), |index, record| {
        assert!(!record.is_empty() && record.total_reward() == record.len() as f64);
        seen += 1;
        if index == 3 { Err(SimError::NoEpisodes) } else { Ok(()) }
    });
    assert_eq!((result, seen), (Err(SimError::NoEpisodes), 4));
}
