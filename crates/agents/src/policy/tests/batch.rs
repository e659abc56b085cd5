//! Acting step by step and over files, and what is refused.

use super::{mixed_blocks, mixture, random_policy, selecting, uniform};
use crate::policy::{ActError, Acting, ActionBatch, Head, Policy, PolicyDefect, PolicyParts};
use coptidice_core::rng::stream;
use coptidice_nn::Pool;

fn policies() -> [Policy; 2] {
    [
        random_policy(6, mixed_blocks(), mixture(2, 5), 1),
        random_policy(6, mixed_blocks(), Head::Categorical { actions: 4 }, 2),
    ]
}

/// Every way of acting of every kind of policy, those that select included.
fn ways() -> Vec<(Policy, Acting)> {
    let of_head = policies().into_iter().flat_map(|policy| Acting::OF_HEAD.map(|way| (policy.clone(), way)));
    let selecting = policies().map(|policy| (selecting(&policy, 1, 3), Acting::Select));
    of_head.chain(selecting).collect()
}

/// Observations in any company: alone, in parts of any size, and all in a file, by any number of threads.
#[test]
fn an_action_does_not_depend_on_the_observations_beside() {
    let count = 1100;
    let observations = uniform(&mut stream(0, "observations", 0), -2.0, 2.0, 6 * count);
    for (policy, acting) in ways() {
        let width = policy.action_width();
        let draws = |row: usize| stream(7, "act_batch", row as u64);
        let mut alone = vec![f32::NAN; count * width];
        let mut actor = policy.actor_with(acting);
        for (row, (x, action)) in observations.chunks(6).zip(alone.chunks_mut(width)).enumerate() {
            actor.act(x, &mut draws(row), action).unwrap();
        }
        for rows in [2, 7, 64, 200] {
            let mut actions = vec![f32::NAN; count * width];
            let parts = observations.chunks(6 * rows).zip(actions.chunks_mut(width * rows));
            for (part, (x, actions)) in parts.enumerate() {
                let mut rngs: Vec<_> = (0..x.len() / 6).map(|row| draws(part * rows + row)).collect();
                actor.act_rows(x, &mut rngs, actions).unwrap();
            }
            assert_eq!(actions, alone, "{acting}, {rows} rows at a time");
        }
        for threads in [1, 2] {
            let pool = Pool::new(threads).unwrap();
            assert_eq!(policy.act_batch(&observations, acting, 7, &pool).unwrap(), alone, "{acting}");
        }
    }
}

#[test]
fn actions_stay_within_the_logged_range() {
    let pool = Pool::new(1).unwrap();
    let policy = &policies()[0];
    let observations = uniform(&mut stream(0, "observations", 0), -9.0, 9.0, 6 * 500);
    let actions = policy.act_batch(&observations, Acting::Sample, 1, &pool).unwrap();
    let mut touched = 0;
    for action in actions.chunks(2) {
        for dim in 0..2 {
            let (low, high) = (policy.action_low()[dim], policy.action_high()[dim]);
            assert!((low..=high).contains(&action[dim]));
            touched += usize::from(action[dim] == low || action[dim] == high);
        }
    }
    assert!(touched > 100, "bounds this narrow are met often, {touched}");
}

#[test]
fn probabilities_are_those_of_the_log() {
    let pool = Pool::new(1).unwrap();
    let [continuous, discrete] = policies();
    let observations = uniform(&mut stream(0, "observations", 0), -2.0, 2.0, 6 * 700);
    let probabilities = discrete.probabilities(&observations, &pool).unwrap();
    for action in 0..4 {
        let log = discrete.log_prob(&observations, ActionBatch::Discrete(&[action; 700]), &pool).unwrap();
        for (row, log) in log.into_iter().enumerate() {
            assert!((log.exp() - probabilities[row * 4 + action as usize]).abs() < 1e-6);
        }
    }
    assert_eq!(continuous.probabilities(&observations, &pool), Err(ActError::Continuous));
    assert!(discrete.actor().choose(&observations[..6], &mut stream(0, "t", 0)).unwrap() < 4);
    let choice = continuous.actor().choose(&observations[..6], &mut stream(0, "t", 0));
    assert_eq!(choice, Err(ActError::Continuous));
}

#[test]
fn unusable_observations_are_refused_by_place() {
    let pool = Pool::new(1).unwrap();
    let [continuous, discrete] = policies();
    let mut rng = stream(0, "t", 0);
    let mut actor = continuous.actor();
    let mut action = [0.0; 2];
    let found = actor.act(&[0.0; 5], &mut rng, &mut action);
    assert_eq!(found, Err(ActError::ObservationLength { expected: 6, found: 5 }));
    let found = actor.act(&[0.0; 6], &mut rng, &mut action[..1]);
    assert_eq!(found, Err(ActError::ActionLength { expected: 2, found: 1 }));
    let mut two = [rng.clone(), rng.clone()];
    let found = actor.act_rows(&[0.0; 6], &mut two, &mut [0.0; 4]);
    assert_eq!(found, Err(ActError::ObservationLength { expected: 12, found: 6 }));
    let found = actor.act_rows(&[[0.0; 6], [3e38; 6]].concat(), &mut two, &mut [0.0; 4]);
    assert_eq!(found, Err(ActError::Overflow { row: 1 }));
    assert_eq!(actor.act_rows(&[], &mut [], &mut []), Ok(()));
    let found = actor.act(&[0.0, f32::INFINITY, 0.0, 0.0, 0.0, 0.0], &mut rng, &mut action);
    assert_eq!(found, Err(ActError::NotFinite { row: 0, column: 1, value: f32::INFINITY }));
    let found = actor.act(&[3e38; 6], &mut rng, &mut action);
    assert_eq!(found, Err(ActError::Overflow { row: 0 }));
    let found = continuous.act_batch(&[[0.0; 6], [3e38; 6]].concat(), Acting::Mean, 0, &pool);
    assert_eq!(found, Err(ActError::Overflow { row: 1 }));

    let mut observations = vec![0.0; 6 * 600];
    assert_eq!(continuous.act_batch(&[], Acting::Mean, 0, &pool), Ok(vec![]));
    let found = continuous.act_batch(&observations[1..], Acting::Mean, 0, &pool);
    assert_eq!(found, Err(ActError::Rows { columns: 6, found: 3599 }));
    observations[6 * 555 + 2] = f32::NAN;
    for threads in [1, 2] {
        let found = continuous.act_batch(&observations, Acting::Mean, 0, &Pool::new(threads).unwrap());
        assert!(matches!(found, Err(ActError::NotFinite { row: 555, column: 2, .. })));
    }
    observations[6 * 555 + 2] = 0.0;

    let wrong = [
        continuous.log_prob(&observations, ActionBatch::Continuous(&[0.0; 1199]), &pool),
        continuous.log_prob(&observations, ActionBatch::Discrete(&[0; 600]), &pool),
        discrete.log_prob(&observations, ActionBatch::Continuous(&[0.0; 600]), &pool),
        discrete.log_prob(&observations, ActionBatch::Discrete(&[0; 599]), &pool),
        discrete.log_prob(&observations, ActionBatch::Discrete(&[4; 600]), &pool),
    ];
    for found in wrong {
        assert!(matches!(found, Err(ActError::Actions { .. })), "{found:?}");
    }
}

#[test]
fn parts_that_do_not_fit_are_refused() {
    let policy = &policies()[0];
    let defect = |change: &dyn Fn(&mut PolicyParts)| {
        let mut parts = policy.to_parts();
        change(&mut parts);
        Policy::new(parts).err()
    };
    assert_eq!(defect(&|_| {}), None);
    let shape = |tensor: &str, expected, found| {
        Some(PolicyDefect::TensorShape {
            tensor: tensor.into(),
            expected: vec![expected],
            found: vec![found],
        })
    };
    let count = policy.params().len();
    assert_eq!(defect(&|p| p.params.truncate(9)), shape("params", count, 9));
    assert_eq!(defect(&|p| p.action_low.clear()), shape("action.low", 2, 0));
    assert_eq!(defect(&|p| p.normalizer.mean.push(0.0)), shape("normalizer.mean", 6, 7));
    assert_eq!(defect(&|p| p.head = mixture(2, 4)), Some(PolicyDefect::Outputs { network: 30, head: 24 }));
    let nan = defect(&|p| p.params[6 * 40 + 3] = f32::NAN);
    assert_eq!(nan, Some(PolicyDefect::NotFinite { tensor: "layers.0.bias".into(), index: 3 }));
    let flipped = defect(&|p| p.action_low[1] = 1.5);
    assert!(matches!(flipped, Some(PolicyDefect::Bounds { dimension: 1, .. })));
    assert_eq!(defect(&|p| p.normalizer.scale[4] = 0.0), Some(PolicyDefect::Scale { column: 4, scale: 0.0 }));
    let names = defect(&|p| p.about.observation_names.truncate(2));
    assert_eq!(names, Some(PolicyDefect::Names { what: "observation", expected: 6, found: 2 }));
    let cost = defect(&|p| p.about.cost_names.truncate(1));
    assert_eq!(cost, Some(PolicyDefect::UnknownCost { cost: "tailgating".into() }));
    let limit = defect(&|p| p.about.limits[0].per_step = f64::NAN);
    assert_eq!(limit, Some(PolicyDefect::Limit { cost: "tailgating".into() }));
}
