//! One log, written in every format by the libraries that write these formats (`fixtures/make/logs.py`), is read as
//! the same transitions. The log is given by formulas, repeated here.

#![allow(clippy::unwrap_used)] // a test's unwrap is its assertion

use std::path::{Path, PathBuf};

use coptidice_data::{
    ActionKind, ActionSpace, Actions, ColumnMap, Done, EpisodeEnd, Problem, ProblemCode, ReadOptions, Schema,
    Step, StepAction, Transitions, TransitionsBuilder, read,
};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/logs").join(name)
}

/// Length of each episode, and whether it ends in a terminal.
const EPISODES: [(usize, bool); 3] = [(4, false), (3, true), (4, false)];

fn observation(episode: usize, step: usize) -> [f32; 3] {
    [0, 1, 2].map(|j| 2.0 * episode as f32 + 0.25 * step as f32 - 0.5 * j as f32)
}

fn expected(cost: bool, propensity: Option<f32>) -> Transitions {
    let schema = Schema {
        observation_dim: 3,
        action: ActionSpace::Continuous { dim: 2 },
        cost_names: if cost { vec!["cost".into()] } else { vec![] },
        propensity: propensity.is_some(),
    };
    let mut builder = TransitionsBuilder::new(schema).unwrap();
    for (episode, (length, terminal)) in EPISODES.into_iter().enumerate() {
        for step in 0..length {
            let (e, t) = (episode as f32, step as f32);
            let last = step + 1 == length;
            // Without recorded next observations nobody knows what the last step of a stopped episode led to.
            let next = match (cost || !last, terminal) {
                (true, _) => observation(episode, step + 1),
                (false, true) => observation(episode, step),
                (false, false) => [f32::NAN; 3],
            };
            builder
                .push(&Step {
                    observation: &observation(episode, step),
                    action: StepAction::Continuous(&[0.5 * t - e, 0.5 * t - e + 0.125]),
                    reward: 0.5 * t - e,
                    costs: if cost { &[[0.0], [1.0]][(step + episode) % 2] } else { &[] },
                    next_observation: &next,
                    terminal: last && terminal,
                    timeout: last && !terminal,
                    propensity,
                })
                .unwrap();
        }
    }
    builder.finish().unwrap()
}

fn codes(problems: &[Problem]) -> Vec<ProblemCode> {
    problems.iter().map(|problem| problem.code).collect()
}

#[test]
fn every_format_gives_the_same_log() {
    let log = expected(true, None);
    for (name, expected_codes) in [
        ("dsrl.hdf5", vec![]),
        ("dsrl-latest.hdf5", vec![]),
        ("dsrl-wide.hdf5", vec![]),
        ("columns", vec![]),
        ("omnisafe.npz", vec![ProblemCode::DoneAmbiguous]),
        // It records no time-outs: they are found where a row does not lead to the next.
        ("suffixed.npz", vec![ProblemCode::TimeoutsMissing]),
        ("minari-hdf5", vec![]),
        ("minari-hdf5/data/main_data.hdf5", vec![]),
        ("minari-dict", vec![]),
        ("minari-parquet", vec![]),
        ("minari-arrow", vec![]),
        ("table.csv", vec![]),
        ("table.parquet", vec![]),
    ] {
        let read = read(&fixture(name), &ReadOptions::default()).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(read.transitions.fingerprint(), log.fingerprint(), "{name}");
        assert_eq!(read.transitions.episodes(), log.episodes(), "{name}");
        assert_eq!(codes(&read.problems), expected_codes, "{name}");
        let cost = match name {
            "table.csv" | "table.parquet" => "heat",
            "suffixed.npz" => "penalty",
            _ => "cost",
        };
        assert_eq!(read.transitions.cost_names(), [cost], "{name}");
    }
}

#[test]
fn without_next_observations_last_steps_are_kept_and_marked() {
    let read = read(&fixture("d4rl.hdf5"), &ReadOptions::default()).unwrap();
    assert_eq!(codes(&read.problems), [ProblemCode::NextStateUnknown]);
    assert_eq!(read.problems[0].row, Some(3));
    let half = read.transitions.propensity(0).unwrap();
    assert!((half - 0.5).abs() < 1e-6, "the logarithm of a propensity was recorded");
    let log = expected(false, Some(half));
    assert_eq!(read.transitions.episodes(), log.episodes());
    assert_eq!(read.transitions.fingerprint(), log.fingerprint());
    // The time-outs; what follows the terminal in row 6 is never asked for.
    assert_eq!(read.transitions.next_unknown(), [3, 10]);
    assert_eq!(read.transitions.next_observation(2), observation(0, 3));
}

#[test]
fn columns_on_disk_are_mapped_and_gathered_without_copying_the_log() {
    let log = read(&fixture("columns"), &ReadOptions::default()).unwrap().transitions;
    let Actions::Continuous { values, .. } = log.actions() else { panic!("continuous") };
    assert!(values.is_mapped());
    let rows = [3_u32, 0, 3, 10];
    let mut batch = coptidice_data::Batch::default();
    log.gather(&rows, &mut batch);
    let pointers = (batch.observations.as_ptr(), batch.next_observations.as_ptr(), batch.costs.as_ptr());
    log.gather(&rows, &mut batch);
    assert_eq!(
        pointers,
        (batch.observations.as_ptr(), batch.next_observations.as_ptr(), batch.costs.as_ptr()),
        "the buffers are used again"
    );
    let mut from_memory = coptidice_data::Batch::default();
    expected(true, None).gather(&rows.map(|row| row as usize), &mut from_memory);
    assert_eq!(batch, from_memory);
    assert_eq!(batch.observations[..3], observation(0, 3));
    assert_eq!(batch.next_observations[..3], observation(0, 4));
    let mut initial = Vec::new();
    log.gather_initial(&[2_usize, 0], &mut initial);
    assert_eq!(initial, [observation(2, 0), observation(0, 0)].concat());
}

#[test]
fn what_a_file_leaves_open_can_be_said() {
    let ends = |options: &ReadOptions| -> Vec<EpisodeEnd> {
        let log = read(&fixture("omnisafe.npz"), options).unwrap();
        log.transitions.episodes().iter().map(|episode| episode.end).collect()
    };
    assert_eq!(
        ends(&ReadOptions { done: Done::Terminal, ..ReadOptions::default() }),
        [EpisodeEnd::Terminal; 3]
    );
    assert_eq!(
        ends(&ReadOptions { done: Done::Timeout, ..ReadOptions::default() }),
        [EpisodeEnd::Timeout; 3]
    );

    // Another array can be the cost, and actions can be one component of what was recorded.
    let columns = ColumnMap { cost: Some(vec!["rewards".into()]), next_state: None, ..ColumnMap::default() };
    let options = ReadOptions { columns, ..ReadOptions::default() };
    let log = read(&fixture("dsrl.hdf5"), &options).unwrap().transitions;
    assert_eq!((log.cost_names(), log.costs(4)), (&["rewards".to_owned()][..], &[-1.0][..]));

    let columns = ColumnMap { action: vec!["costs".into()], ..ColumnMap::default() };
    let options = ReadOptions { columns, action_kind: Some(ActionKind::Discrete), ..ReadOptions::default() };
    let log = read(&fixture("dsrl.hdf5"), &options).unwrap().transitions;
    assert_eq!((0..4).map(|i| log.discrete_action(i)).collect::<Vec<_>>(), [0, 1, 0, 1]);
}
