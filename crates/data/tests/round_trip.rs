//! What is written comes back, in every format, with the same fingerprint.

#![allow(clippy::unwrap_used)] // a test's unwrap is its assertion

use coptidice_data::{
    ActionSpace, Actions, CheckOptions, ConvertOptions, Format, LogWriter, ProblemCode, ReadOptions, Schema,
    Split, SplitOptions, Step, StepAction, Transitions, TransitionsBuilder, WriteOptions, convert, read,
    split, write, write_episodes,
};
use proptest::prelude::*;

const TARGETS: [(&str, Format); 5] = [
    ("log.hdf5", Format::Hdf5),
    ("log.npz", Format::Npz),
    ("log", Format::NpyDirectory),
    ("log.csv", Format::Csv),
    ("log.parquet", Format::Parquet),
];

/// The same length of every episode, so that the last one's time-out is known even to formats without flags.
#[derive(Clone, Debug)]
struct Recipe {
    dim: usize,
    action: ActionSpace,
    costs: usize,
    propensity: bool,
    /// Length of each episode and whether it ends in a terminal.
    episodes: Vec<(usize, bool)>,
    /// Whether it is recorded what the last step of a stopped episode led to.
    known: bool,
    /// Bits of the numbers, used in turn.
    bits: Vec<u32>,
}

fn recipe() -> impl Strategy<Value = Recipe> {
    let action = prop_oneof![
        (1..3_usize).prop_map(|dim| ActionSpace::Continuous { dim }),
        Just(ActionSpace::Discrete { labels: vec!["0".into(), "2".into(), "3".into()] }),
        (1..5_usize).prop_map(ActionSpace::discrete),
        Just(ActionSpace::Discrete { labels: vec!["less, or none".into(), "more".into()] }),
        // Words that are no words to a reader of text, or in no order of the alphabet.
        Just(ActionSpace::Discrete { labels: vec!["more".into(), "less".into()] }),
        Just(ActionSpace::Discrete { labels: vec!["01".into(), "2.5".into()] }),
        Just(ActionSpace::Discrete { labels: vec!["1".into(), "less".into()] }),
    ];
    let episodes = proptest::collection::vec((1..6_usize, any::<bool>()), 1..5);
    let bits = proptest::collection::vec(any::<u32>(), 1..60);
    (1..4_usize, action, 0..4_usize, any::<bool>(), episodes, any::<bool>(), bits).prop_map(
        |(dim, action, costs, propensity, episodes, known, bits)| Recipe {
            dim,
            action,
            costs,
            propensity,
            episodes,
            known,
            bits,
        },
    )
}

/// Finite numbers of every magnitude; distinct observations, so that time-outs are the only ends.
fn build(recipe: &Recipe) -> Transitions {
    let mut used = 0;
    let mut number = || {
        let bits = recipe.bits[used % recipe.bits.len()];
        used += 1;
        let value = f32::from_bits(bits);
        if value.is_finite() { value } else { used as f32 }
    };
    let names = ["heat", "cost", "wear"];
    let schema = Schema {
        observation_dim: recipe.dim,
        action: recipe.action.clone(),
        cost_names: names[..recipe.costs].iter().map(|&name| name.to_owned()).collect(),
        propensity: recipe.propensity,
    };
    let mut builder = TransitionsBuilder::new(schema).unwrap();
    let mut row = 0_u32;
    for &(length, terminal) in &recipe.episodes {
        let mut observation: Vec<f32> = (0..recipe.dim).map(|_| number()).collect();
        for step in 0..length {
            let last = step + 1 == length;
            let unknown = last && !terminal && !recipe.known;
            let next: Vec<f32> = (0..recipe.dim).map(|_| if unknown { f32::NAN } else { number() }).collect();
            let action: Vec<f32> = (0..2).map(|_| number()).collect();
            builder
                .push(&Step {
                    observation: &observation,
                    action: match &recipe.action {
                        ActionSpace::Continuous { dim } => StepAction::Continuous(&action[..*dim]),
                        // Every action occurs in a log of a few rows, so that CSV can hold it.
                        ActionSpace::Discrete { labels } => StepAction::Discrete(row % labels.len() as u32),
                    },
                    reward: number(),
                    costs: &(0..recipe.costs).map(|_| number()).collect::<Vec<_>>(),
                    next_observation: &next,
                    terminal: last && terminal,
                    timeout: last && !terminal,
                    propensity: recipe.propensity.then(&mut number),
                })
                .unwrap();
            observation = next;
            row += 1;
        }
    }
    builder.finish().unwrap()
}

/// Whether a reader that sees only the rows numbers the actions as the log does.
fn numbered_by_rows(log: &Transitions) -> bool {
    match log.actions() {
        Actions::Continuous { .. } => true,
        Actions::Discrete { count, labels, .. } => {
            log.len() >= *count && labels.is_sorted() && !["01", "1"].contains(&labels[0].as_str())
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_format_gives_the_log_back(recipe in recipe()) {
        let log = build(&recipe);
        let directory = tempfile::tempdir().unwrap();
        for (name, format) in TARGETS {
            let path = directory.path().join(name);
            let written = write(&log, &path, &WriteOptions::default());
            if format == Format::Csv && !numbered_by_rows(&log) {
                prop_assert_eq!(written.unwrap_err().code(), "write");
                continue;
            }
            written.unwrap();
            prop_assert_eq!(coptidice_data::detect(&path).unwrap(), format);
            let back = read(&path, &ReadOptions::default()).unwrap();
            prop_assert_eq!(back.transitions.episodes(), log.episodes(), "{}", name);
            prop_assert_eq!(back.transitions.cost_names(), log.cost_names(), "{}", name);
            prop_assert_eq!(back.transitions.fingerprint(), log.fingerprint(), "{}", name);
            if let (Actions::Discrete { labels, .. }, Actions::Discrete { labels: expected, .. }) =
                (back.transitions.actions(), log.actions())
            {
                prop_assert_eq!(labels, expected, "{}", name);
            }
            prop_assert_eq!(back.transitions.next_unknown(), log.next_unknown(), "{}", name);
            let expected = [ProblemCode::ActionsRemapped, ProblemCode::NextStateUnknown];
            let unexpected = back.problems.iter().find(|problem| !expected.contains(&problem.code));
            prop_assert_eq!(unexpected, None, "{}", name);
        }
    }
}

/// Parts of several chunks' length (65,536 single numbers, 21,845 rows of three) and of a few rows.
#[test]
fn a_log_in_parts_is_the_log_in_one() {
    let recipe = |lengths: &[usize]| Recipe {
        dim: 3,
        action: ActionSpace::Continuous { dim: 2 },
        costs: 2,
        propensity: false,
        episodes: lengths.iter().map(|&length| (length, length % 2 == 1)).collect(),
        known: true,
        bits: (0..7919).map(|i| (i as f32).sin().to_bits()).collect(),
    };
    let lengths: [&[usize]; 4] = [&[30_000, 1], &[8], &[50_001, 70_000], &[3]];
    let directory = tempfile::tempdir().unwrap();
    let [in_parts, again, target] =
        ["parts.hdf5", "again.hdf5", "log.hdf5"].map(|name| directory.path().join(name));
    let parts: Vec<Transitions> = lengths.iter().map(|lengths| build(&recipe(lengths))).collect();
    for path in [&in_parts, &again] {
        let mut writer = LogWriter::create(path, &WriteOptions::default()).unwrap();
        for part in &parts {
            writer.append(part).unwrap();
            assert!(!path.exists(), "only when it is complete");
        }
        let written = writer.finish().unwrap();
        assert_eq!((written.transitions, written.episodes), (150_013, 6));
    }
    assert!(std::fs::read(&in_parts).unwrap() == std::fs::read(&again).unwrap(), "no time is in it");
    let back = read(&in_parts, &ReadOptions::default()).unwrap();
    assert_eq!(back.problems, []);
    let back = back.transitions;
    assert_eq!(back.cost_names(), ["heat", "cost"]);
    let mut row = 0;
    for part in &parts {
        for i in 0..part.len() {
            assert_eq!(back.observation(row), part.observation(i));
            assert_eq!(back.next_observation(row), part.next_observation(i));
            assert_eq!(back.continuous_action(row), part.continuous_action(i));
            assert_eq!((back.reward(row), back.costs(row)), (part.reward(i), part.costs(i)));
            assert_eq!((back.terminal(row), back.timeout(row)), (part.terminal(i), part.timeout(i)));
            row += 1;
        }
    }
    // The same log in one go.
    write(&back, &target, &WriteOptions::default()).unwrap();
    assert_eq!(read(&target, &ReadOptions::default()).unwrap().transitions.fingerprint(), back.fingerprint());
}

#[test]
fn what_cannot_be_written_in_parts_leaves_nothing() {
    let recipe = |dim, costs| Recipe {
        dim,
        action: ActionSpace::Continuous { dim: 1 },
        costs,
        propensity: false,
        episodes: vec![(4, false)],
        known: true,
        bits: vec![0x3f80_0000],
    };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log.hdf5");
    let begin = || LogWriter::create(&path, &WriteOptions::default()).unwrap();
    assert_eq!(begin().finish().unwrap_err().code(), "empty");
    for other in [recipe(2, 1), recipe(1, 0), recipe(1, 2)] {
        let mut writer = begin();
        writer.append(&build(&recipe(1, 1))).unwrap();
        assert_eq!(writer.append(&build(&other)).unwrap_err().code(), "write");
    }
    begin().append(&build(&recipe(1, 1))).unwrap();
    let csv = LogWriter::create(&directory.path().join("log.csv"), &WriteOptions::default());
    assert_eq!(csv.unwrap_err().code(), "options");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    std::fs::write(&path, "of somebody").unwrap();
    let taken = LogWriter::create(&path, &WriteOptions::default());
    assert_eq!(taken.unwrap_err().code(), "exists");
    assert_eq!(std::fs::read(&path).unwrap(), b"of somebody");
}

#[test]
fn action_numbers_survive_csv_or_are_refused() {
    let log = |labels: &[&str]| {
        build(&Recipe {
            dim: 1,
            action: ActionSpace::Discrete { labels: labels.iter().map(|&label| label.to_owned()).collect() },
            costs: 1,
            propensity: false,
            episodes: vec![(5, false), (5, false), (5, false)],
            known: true,
            bits: vec![0x3f80_0000, 0x4000_0000, 0x3e80_0000],
        })
    };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log.csv");
    let overwrite = WriteOptions { overwrite: true, ..WriteOptions::default() };
    // Twelve ids: as words "10" would come before "2".
    let twelve: Vec<String> = (0..12).map(|id| id.to_string()).collect();
    let twelve: Vec<&str> = twelve.iter().map(String::as_str).collect();
    for (labels, remapped) in [(&twelve[..], false), (&["0", "2", "3"], true), (&["act", "wait"], true)] {
        let log = log(labels);
        write(&log, &path, &overwrite).unwrap();
        let back = read(&path, &ReadOptions::default()).unwrap();
        assert_eq!(back.transitions.fingerprint(), log.fingerprint(), "{labels:?}");
        let Actions::Discrete { labels: found, .. } = back.transitions.actions() else { panic!("discrete") };
        assert_eq!(found, labels);
        let announced = back.problems.iter().any(|problem| problem.code == ProblemCode::ActionsRemapped);
        assert_eq!(announced, remapped, "{labels:?}");
    }
    for labels in [&["wait", "act"][..], &["2", "0"], &["1.5", "2.5"], &["", "act"], &["act ", "b"]] {
        let refused = write(&log(labels), &path, &overwrite).unwrap_err();
        assert!(refused.to_string().contains(".parquet"), "{labels:?}: {refused}");
    }
}

fn example() -> Transitions {
    build(&Recipe {
        dim: 3,
        action: ActionSpace::Discrete { labels: vec!["0".into(), "2".into(), "3".into()] },
        costs: 2,
        propensity: false,
        episodes: vec![(4, false), (2, true), (5, false), (1, true), (3, false)],
        known: true,
        bits: vec![0x3f80_0000, 0x4000_0000, 0x3e80_0000, 0xbf00_0000, 0x4120_0000, 0x42c8_0000, 0x3dcc_cccd],
    })
}

#[test]
fn a_part_keeps_the_action_set_and_equals_the_selection_in_memory() {
    let log = example();
    let directory = tempfile::tempdir().unwrap();
    // Episodes of 2 and 1 rows: not every action occurs.
    let chosen = [1, 3];
    let in_memory = log.select_episodes(&chosen).unwrap();
    for (name, format) in TARGETS {
        let path = directory.path().join(name);
        let written = write_episodes(&log, &chosen, &path, &WriteOptions::default());
        if format == Format::Csv {
            assert!(written.unwrap_err().to_string().contains("occurs in no row"));
            assert!(
                !path.exists() && std::fs::read_dir(directory.path()).unwrap().count() == 3,
                "no draft is left"
            );
            continue;
        }
        written.unwrap();
        let back = read(&path, &ReadOptions::default()).unwrap().transitions;
        assert_eq!(back.fingerprint(), in_memory.fingerprint(), "{name}");
    }
}

#[test]
fn equal_logs_give_equal_files() {
    let directory = tempfile::tempdir().unwrap();
    for (name, _) in TARGETS.iter().filter(|(_, format)| *format != Format::NpyDirectory) {
        let bytes = ["a", "b"].map(|copy| {
            let path = directory.path().join(copy).join(name);
            write(&example(), &path, &WriteOptions::default()).unwrap();
            std::fs::read(path).unwrap()
        });
        assert!(bytes[0] == bytes[1], "{name}");
    }
}

#[test]
fn a_chain_of_conversions_changes_nothing() {
    let log = example();
    let directory = tempfile::tempdir().unwrap();
    let mut from = directory.path().join("start.parquet");
    write(&log, &from, &WriteOptions::default()).unwrap();
    for (name, _) in TARGETS {
        let to = directory.path().join(format!("next-{name}"));
        let (written, _) = convert(&from, &to, &ConvertOptions::default()).unwrap();
        assert_eq!((written.transitions, written.episodes), (15, 5));
        from = to;
    }
    let back = read(&from, &ReadOptions::default()).unwrap().transitions;
    assert_eq!(back.fingerprint(), log.fingerprint());
}

#[test]
fn targets_are_not_overwritten_unasked() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log.npz");
    write(&example(), &path, &WriteOptions::default()).unwrap();
    assert_eq!(write(&example(), &path, &WriteOptions::default()).unwrap_err().code(), "exists");
    write(&example(), &path, &WriteOptions { overwrite: true, ..WriteOptions::default() }).unwrap();
    let odd = directory.path().join("log.txt");
    assert_eq!(write(&example(), &odd, &WriteOptions::default()).unwrap_err().code(), "options");
}

/// A directory is replaced only where it holds nothing but a log's columns.
#[test]
fn directories_of_other_things_are_never_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let overwrite = WriteOptions { overwrite: true, ..WriteOptions::default() };
    let (columns, foreign) = (directory.path().join("columns"), directory.path().join("foreign"));
    write(&example(), &columns, &overwrite).unwrap();
    write(&example(), &columns, &overwrite).unwrap();
    std::fs::write(columns.join("notes.txt"), "mine").unwrap();
    std::fs::create_dir_all(foreign.join("thesis")).unwrap();
    for path in [&columns, &foreign] {
        assert_eq!(write(&example(), path, &overwrite).unwrap_err().code(), "foreign");
        // A file in the place of a directory, too.
        let csv = WriteOptions { format: Some(coptidice_data::Format::Csv), ..overwrite };
        assert_eq!(write(&example(), path, &csv).unwrap_err().code(), "foreign");
    }
    assert!(columns.join("notes.txt").exists() && foreign.join("thesis").exists());
    // Nor is what stands under the draft's name.
    std::fs::create_dir_all(directory.path().join("new.part/thesis")).unwrap();
    assert_eq!(write(&example(), &directory.path().join("new"), &overwrite).unwrap_err().code(), "foreign");
    assert!(directory.path().join("new.part/thesis").exists());
}

/// Everything is checked before anything is written.
#[test]
fn parts_of_a_split_have_places_of_their_own() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    write(&example(), &at("log"), &WriteOptions::default()).unwrap();
    write(&example(), &at("there.csv"), &WriteOptions::default()).unwrap();
    let options = SplitOptions {
        read: ReadOptions::default(),
        check: CheckOptions::default(),
        write: WriteOptions::default(),
        held_out: 0.4,
        seed: 0,
    };
    let overwrite = SplitOptions {
        write: WriteOptions { overwrite: true, ..WriteOptions::default() },
        ..options.clone()
    };
    for (train, held_out, code) in [
        ("d1", "d1", "options"),
        ("d1", "./d1", "options"),
        ("d1", "x/../d1", "options"),
        ("d1", "d1/inside", "options"),
        ("log", "d1", "options"),
        ("d1", "log/inside.csv", "options"),
        ("d1", "log", "options"),
    ] {
        for options in [&options, &overwrite] {
            let refused = split(&at("log"), &at(train), &at(held_out), options).unwrap_err();
            assert_eq!(refused.code(), code, "{train} {held_out}: {refused}");
        }
    }
    assert_eq!(split(&at("log"), &at("d1"), &at("there.csv"), &options).unwrap_err().code(), "exists");
    assert_eq!(split(&at("log"), &at("d1"), &at("d2.txt"), &options).unwrap_err().code(), "options");
    assert!(!at("d1").exists(), "nothing was written");
    split(&at("log"), &at("d1"), &at("there.csv"), &overwrite).unwrap();
}

#[test]
fn splits_are_by_episode_seeded_and_complete() {
    let log = example();
    let split = Split::draw(&log, 0.4, 7).unwrap();
    assert_eq!(split, Split::draw(&log, 0.4, 7).unwrap());
    assert_eq!((split.train.len(), split.held_out.len()), (3, 2));
    let mut all = [split.train, split.held_out].concat();
    all.sort_unstable();
    assert_eq!(all, [0, 1, 2, 3, 4]);
    let different =
        (0..20).any(|seed| Split::draw(&log, 0.4, seed).unwrap() != Split::draw(&log, 0.4, 7).unwrap());
    assert!(different, "the seed decides");
    assert_eq!(Split::draw(&log, 0.01, 0).unwrap().held_out.len(), 1, "never empty");
    assert!(Split::draw(&log, 1.0, 0).is_err() && Split::draw(&log, f64::NAN, 0).is_err());
    let single = log.select_episodes(&[0]).unwrap();
    assert!(Split::draw(&single, 0.5, 0).is_err());
}
