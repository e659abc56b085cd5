//! Inputs that break other readers, and the defined answer to each: an error with its place, or a problem that is
//! listed and a repair that is announced.

#![allow(clippy::unwrap_used)] // a test's unwrap is its assertion

use std::io::Write as _;
use std::num::NonZeroUsize;
use std::path::Path;

use coptidice_core::{CostLimit, LimitUnit, limits::EpisodeHorizon};
use coptidice_data::{
    Actions, CheckOptions, DataError, EpisodeEnd, FaultyEpisode, Inspection, Log, ProblemCode, ReadOptions,
    RepairOptions, Repaired, Transitions, check_limits, inspect, load, read, repair, validate,
};
use tempfile::TempDir;

/// One column of a directory of .npy files.
enum Npy {
    F32(Vec<f32>),
    F64(Vec<f64>),
    I64(Vec<i64>),
    Bool(Vec<bool>),
}

fn write_npy(path: &Path, values: &Npy, width: Option<usize>) {
    let (descr, bytes, count): (&str, Vec<u8>, usize) = match values {
        Npy::F32(v) => ("<f4", v.iter().flat_map(|x| x.to_le_bytes()).collect(), v.len()),
        Npy::F64(v) => ("<f8", v.iter().flat_map(|x| x.to_le_bytes()).collect(), v.len()),
        Npy::I64(v) => ("<i8", v.iter().flat_map(|x| x.to_le_bytes()).collect(), v.len()),
        Npy::Bool(v) => ("|b1", v.iter().map(|&x| u8::from(x)).collect(), v.len()),
    };
    let shape = match width {
        Some(width) => format!("({}, {width})", count / width),
        None => format!("({count},)"),
    };
    let mut header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
    while (header.len() + 11) % 64 != 0 {
        header.push(' ');
    }
    header.push('\n');
    let mut file = std::fs::File::create(path).unwrap();
    file.write_all(b"\x93NUMPY\x01\x00").unwrap();
    file.write_all(&u16::try_from(header.len()).unwrap().to_le_bytes()).unwrap();
    file.write_all(header.as_bytes()).unwrap();
    file.write_all(&bytes).unwrap();
}

/// A log of four episodes of five steps that time out; a column can be replaced or left out before it is read.
struct Bench {
    directory: TempDir,
}

const EPISODES: usize = 4;
const LENGTH: usize = 5;
const ROWS: usize = EPISODES * LENGTH;

impl Bench {
    fn new() -> Self {
        let bench = Bench { directory: tempfile::tempdir().unwrap() };
        let observation = |episode: usize, step: usize| [(10 * episode + step) as f32, 0.5 * step as f32];
        let rows = || (0..ROWS).map(|row| (row / LENGTH, row % LENGTH));
        bench.put("observations", &Npy::F32(rows().flat_map(|(e, t)| observation(e, t)).collect()), Some(2));
        bench.put(
            "next_observations",
            &Npy::F32(rows().flat_map(|(e, t)| observation(e, t + 1)).collect()),
            Some(2),
        );
        bench.put("actions", &Npy::F32(rows().map(|(_, t)| t as f32 / 8.0).collect()), Some(1));
        bench.put("rewards", &Npy::F32(rows().map(|(e, _)| e as f32).collect()), None);
        bench.put("costs", &Npy::F32(rows().map(|(_, t)| f32::from(u8::from(t > 2))).collect()), None);
        bench.put("terminals", &Npy::Bool(vec![false; ROWS]), None);
        bench.put("timeouts", &Npy::Bool(rows().map(|(_, t)| t + 1 == LENGTH).collect()), None);
        bench
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn put(&self, name: &str, values: &Npy, width: Option<usize>) {
        write_npy(&self.path().join(format!("{name}.npy")), values, width);
    }

    fn without(self, name: &str) -> Self {
        std::fs::remove_file(self.path().join(format!("{name}.npy"))).unwrap();
        self
    }

    fn with(self, name: &str, values: &Npy, width: Option<usize>) -> Self {
        self.put(name, values, width);
        self
    }

    /// Replaces one reward.
    fn with_reward(self, row: usize, value: f32) -> Self {
        let mut rewards: Vec<f32> = (0..ROWS).map(|row| (row / LENGTH) as f32).collect();
        rewards[row] = value;
        self.with("rewards", &Npy::F32(rewards), None)
    }

    fn read(&self) -> Log {
        read(self.path(), &ReadOptions::default()).unwrap()
    }

    fn validate(&self) -> Log {
        validate(self.path(), &ReadOptions::default(), &CheckOptions::default()).unwrap()
    }

    fn repair(&self) -> Repaired {
        repair(self.path(), &RepairOptions::default()).unwrap()
    }
}

fn codes(log: &Log) -> Vec<ProblemCode> {
    log.problems.iter().map(|problem| problem.code).collect()
}

fn repaired_codes(repaired: &Repaired) -> Vec<ProblemCode> {
    repaired.repairs.iter().map(|repair| repair.code).collect()
}

fn lengths(log: &Transitions) -> Vec<usize> {
    log.episodes().iter().map(|episode| episode.len).collect()
}

fn flags(rows: impl IntoIterator<Item = usize>) -> Npy {
    let mut flags = vec![false; ROWS];
    rows.into_iter().for_each(|row| flags[row] = true);
    Npy::Bool(flags)
}

#[test]
fn a_clean_log_has_no_problem_and_needs_no_repair() {
    let bench = Bench::new();
    assert_eq!(codes(&bench.validate()), []);
    let repaired = bench.repair();
    assert!(repaired.repairs.is_empty());
    assert_eq!(repaired.transitions.fingerprint(), bench.read().transitions.fingerprint());
}

#[test]
fn no_time_outs_are_inferred_from_where_the_chain_breaks() {
    let bench = Bench::new().without("timeouts");
    let log = bench.validate();
    assert_eq!(codes(&log), [ProblemCode::TimeoutsMissing]);
    assert_eq!(log.transitions.fingerprint(), Bench::new().read().transitions.fingerprint());
    assert_eq!(repaired_codes(&bench.repair()), [ProblemCode::TimeoutsMissing]);
}

#[test]
fn flags_that_are_all_zero_count_as_none() {
    let zero = || Npy::Bool(vec![false; ROWS]);
    let bench = Bench::new().with("timeouts", &zero(), None);
    assert_eq!(lengths(&bench.read().transitions), [LENGTH; EPISODES]);

    // Without next observations either, nothing says where episodes end.
    let bench = bench.without("next_observations");
    let log = bench.validate();
    assert!(codes(&log).contains(&ProblemCode::NoEpisodeEnds));
    let refused = load(bench.path(), &ReadOptions::default(), &CheckOptions::default()).unwrap_err();
    assert!(refused.to_string().contains("--episode-length"), "{refused}");
    assert!(repair(bench.path(), &RepairOptions::default()).is_err(), "it cannot be guessed");

    let options = ReadOptions { episode_length: NonZeroUsize::new(LENGTH), ..ReadOptions::default() };
    let log = load(bench.path(), &options, &CheckOptions::default()).unwrap();
    assert_eq!(
        lengths(&log.transitions),
        [LENGTH; EPISODES],
        "what a last step led to is unknown; it counts"
    );
    assert_eq!(log.transitions.next_unknown(), [4, 9, 14, 19]);
}

#[test]
fn a_last_episode_without_a_flag_is_an_episode() {
    // Shorter than the time-outs before it, the last episode was cut.
    let bench = Bench::new().with("timeouts", &flags([4, 9, 14, 15]), None);
    let mut costs = vec![0.0; ROWS];
    costs[ROWS - 1] = 100.0;
    let bench = bench.with("costs", &Npy::F32(costs), None);
    let log = bench.validate();
    assert_eq!(lengths(&log.transitions), [5, 5, 5, 1, 4]);
    assert_eq!(log.transitions.episodes()[4].end, EpisodeEnd::Cut);
    assert_eq!((codes(&log), log.problems[0].row), (vec![ProblemCode::LastEpisodeCut], Some(ROWS - 1)));
    let inspection = Inspection::of(&log.transitions, log.problems);
    assert_eq!(inspection.costs[0].means.episode_mean, 20.0, "its cost of 100 counts");
    let repaired = bench.repair();
    assert!(repaired.transitions.timeout(ROWS - 1), "repair flags it");
    assert_eq!(repaired_codes(&repaired), [ProblemCode::LastEpisodeCut]);

    // As long as the time-outs before it, it was stopped by the same limit.
    let log = Bench::new().with("timeouts", &flags([4, 9, 14]), None).read();
    assert_eq!((codes(&log), log.transitions.timeout(ROWS - 1)), (vec![ProblemCode::LastEpisodeCut], true));
}

#[test]
fn a_flag_column_that_is_one_shorter_is_completed_by_repair_only() {
    let short = Npy::Bool((0..ROWS - 1).map(|row| row % LENGTH + 1 == LENGTH).collect());
    let bench = Bench::new().with("timeouts", &short, None);
    let error = load(bench.path(), &ReadOptions::default(), &CheckOptions::default()).unwrap_err();
    let DataError::Unusable { problems, .. } = &error else { panic!("{error}") };
    assert_eq!(
        (problems[0].code, problems[0].column.as_deref()),
        (ProblemCode::FlagsShort, Some("timeouts"))
    );
    let repaired = bench.repair();
    assert_eq!(lengths(&repaired.transitions), [LENGTH; EPISODES]);
    assert_eq!(repaired_codes(&repaired), [ProblemCode::FlagsShort, ProblemCode::LastEpisodeCut]);

    let much_shorter = Bench::new().with("timeouts", &Npy::Bool(vec![false; 3]), None);
    let error = read(much_shorter.path(), &ReadOptions::default()).unwrap_err();
    assert!(
        matches!(&error, DataError::ColumnLength { column, found: 3, expected: ROWS, .. } if column == "timeouts")
    );
    let rewards = Bench::new().with("observations", &Npy::F32(vec![0.0; 2 * ROWS - 2]), Some(2));
    assert_eq!(read(rewards.path(), &ReadOptions::default()).unwrap_err().code(), "column-length");
}

#[test]
fn a_reward_that_is_no_number_drops_its_episode() {
    for value in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 1e12] {
        let bench = Bench::new().with_reward(7, value);
        let expected = if value == 1e12 { ProblemCode::ExtremeValue } else { ProblemCode::NonFinite };
        let log = bench.validate();
        let problem = &log.problems[0];
        assert_eq!(
            (problem.code, problem.column.as_deref(), problem.row),
            (expected, Some("rewards"), Some(7))
        );
        assert!(load(bench.path(), &ReadOptions::default(), &CheckOptions::default()).is_err());
        let repaired = bench.repair();
        assert_eq!(lengths(&repaired.transitions), [LENGTH; EPISODES - 1]);
        assert_eq!(repaired.transitions.reward(LENGTH), 2.0, "episode 1 is gone");
        assert!(
            repaired.repairs[0].message.starts_with("1 of 4 episodes were dropped (5 of 20 transitions)")
        );
    }
}

#[test]
fn the_beginning_of_a_faulty_episode_can_be_kept() {
    let bench = Bench::new().with_reward(7, f32::NAN);
    let options = RepairOptions { faulty_episode: FaultyEpisode::KeepBeginning, ..RepairOptions::default() };
    let repaired = repair(bench.path(), &options).unwrap().transitions;
    assert_eq!(lengths(&repaired), [5, 2, 5, 5]);
    assert!(repaired.timeout(6) && !repaired.terminal(6));
    assert_eq!(repaired.next_observation(6), [12.0, 1.0]);

    // A bad observation also spoils the step that leads to it.
    let mut observations: Vec<f32> = (0..2 * ROWS).map(|i| i as f32).collect();
    observations[2 * 7] = f32::NAN;
    let bench =
        Bench::new().with("observations", &Npy::F32(observations), Some(2)).without("next_observations");
    let repaired = repair(bench.path(), &options).unwrap().transitions;
    assert_eq!(lengths(&repaired), [5, 1, 5, 5]);
    assert_eq!(repaired.next_unknown(), [4, 10, 15], "where episode 1 was cut, the following row is known");
}

#[test]
fn a_threshold_decides_what_is_extreme_and_rarities_are_remarked() {
    let bench = Bench::new().with_reward(7, 1e6);
    let log = bench.validate();
    assert_eq!((codes(&log), log.problems[0].row), (vec![ProblemCode::Outlier], Some(7)));
    let strict = CheckOptions { max_magnitude: 1e5 };
    assert!(load(bench.path(), &ReadOptions::default(), &strict).is_err());
}

#[test]
fn nothing_left_is_an_error() {
    let bench = Bench::new().with("rewards", &Npy::F32(vec![f32::NAN; ROWS]), None);
    let error = repair(bench.path(), &RepairOptions::default()).unwrap_err();
    assert!(
        matches!(&error, DataError::NothingLeft { reason, .. } if reason.contains("non-finite")),
        "{error}"
    );
}

#[test]
fn costs_and_limits_that_cannot_bind_are_remarked() {
    let bench = Bench::new().with("costs", &Npy::F32(vec![0.0; ROWS]), None);
    assert_eq!(codes(&bench.validate()), [ProblemCode::ZeroCost]);
    let bench = Bench::new().with("costs", &Npy::F32(vec![-1.0; ROWS]), None);
    assert_eq!(codes(&bench.validate()), [ProblemCode::NegativeCost]);

    let log = Bench::new().read().transitions;
    let check = |limit: f64, unit: LimitUnit| {
        let limit = CostLimit::new(limit, unit, EpisodeHorizon::Fixed(LENGTH as f64)).unwrap();
        check_limits(&log, &[Some(limit)]).iter().map(|problem| problem.code).collect::<Vec<_>>()
    };
    // Every episode costs 2, that is .4 per step.
    assert_eq!(check(2.0, LimitUnit::Episode), []);
    assert_eq!(check(1.9, LimitUnit::Episode), [ProblemCode::AllAboveLimit]);
    assert_eq!(check(0.39, LimitUnit::Step), [ProblemCode::AllAboveLimit]);
    assert_eq!(check(0.0, LimitUnit::Step), [ProblemCode::ZeroLimit, ProblemCode::AllAboveLimit]);
    // No step costs more than 1.
    assert_eq!(check(0.99, LimitUnit::Step), []);
    assert_eq!(check(1.0, LimitUnit::Step), [ProblemCode::IdleLimit]);
    assert_eq!(check(4.9, LimitUnit::Episode), [], "five steps may cost as much");
    assert_eq!(check(5.0, LimitUnit::Episode), [ProblemCode::IdleLimit]);
    assert!(check_limits(&log, &[None]).is_empty());
    let paid_back =
        Bench::new().with("costs", &Npy::F32((0..ROWS).map(|row| row as f32 - 10.0).collect()), None).read();
    let negative = CostLimit::new(-1.0, LimitUnit::Step, EpisodeHorizon::Fixed(5.0)).unwrap();
    assert!(check_limits(&paid_back.transitions, &[Some(negative)]).is_empty(), "a limit on a difference");
}

#[test]
fn a_row_that_is_both_terminal_and_time_out_is_terminal() {
    let bench = Bench::new().with("terminals", &flags([4]), None);
    let log = bench.validate();
    assert_eq!((codes(&log), log.problems[0].row), (vec![ProblemCode::TerminalAndTimeout], Some(4)));
    assert!(log.transitions.terminal(4) && !log.transitions.timeout(4));
}

#[test]
fn two_terminals_in_a_row_make_an_episode_of_one_step() {
    let bench =
        Bench::new().with("terminals", &flags([3, 4]), None).with("timeouts", &flags([9, 14, 19]), None);
    let log = bench.validate();
    assert_eq!((codes(&log), lengths(&log.transitions)), (vec![], vec![4, 1, 5, 5, 5]));
}

#[test]
fn doubles_and_single_columns_are_the_same_log() {
    let bench = Bench::new()
        .with("rewards", &Npy::F64((0..ROWS).map(|row| (row / LENGTH) as f64).collect()), Some(1))
        .with(
            "costs",
            &Npy::F64((0..ROWS).map(|row| f64::from(u8::from(row % LENGTH > 2))).collect()),
            Some(1),
        )
        .with("terminals", &Npy::I64(vec![0; ROWS]), Some(1));
    assert_eq!(bench.validate().transitions.fingerprint(), Bench::new().read().transitions.fingerprint());
    // A double that does not fit is infinite in 32 bits, and found.
    let bench = Bench::new().with("rewards", &Npy::F64(vec![1e300; ROWS]), None);
    assert_eq!(codes(&bench.validate()), [ProblemCode::NonFinite]);
    let bench = Bench::new().with("rewards", &Npy::F32(vec![0.0; 2 * ROWS]), Some(2));
    assert_eq!(read(bench.path(), &ReadOptions::default()).unwrap_err().code(), "column-shape");
}

#[test]
fn whole_floats_are_doses_and_whole_integers_are_ids() {
    let doses = Npy::F32((0..ROWS).map(|row| [20.0, 30.0][row % 2]).collect());
    let log = Bench::new().with("actions", &doses, Some(1)).read().transitions;
    assert!(matches!(log.actions(), Actions::Continuous { dim: 1, .. }));
    assert_eq!(log.continuous_action(1), [30.0]);

    let ids = Npy::I64((0..ROWS).map(|row| [0, 2, 3][row % 3]).collect());
    let log = Bench::new().with("actions", &ids, Some(1)).read();
    assert_eq!(codes(&log), [ProblemCode::ActionsRemapped]);
    let Actions::Discrete { count: 3, ids, labels } = log.transitions.actions() else {
        panic!("three actions")
    };
    assert_eq!(
        (&ids[..4], labels),
        (&[0, 1, 2, 0][..], &vec!["0".to_owned(), "2".to_owned(), "3".to_owned()])
    );
}

#[test]
fn remarks_are_said_of_one_as_of_many() {
    let log = table("0,0,1,2,0.5,1,0,0\n0,1,2,3,0.5,1,0,0\n0,2,3,5,0.5,1,0,0\n");
    let found = read(log.path(), &ReadOptions::default()).unwrap();
    let said: Vec<&str> = found.problems.iter().map(|p| p.message.as_str()).collect();
    assert!(said.iter().any(|message| message.contains("of one episode that was stopped")), "{said:?}");
    let limit = CostLimit::PerStep { limit: -0.0 };
    let remarks = check_limits(&found.transitions, &[Some(limit)]);
    assert!(remarks.iter().any(|p| p.message.starts_with("the limit is 0:")), "{remarks:?}");
}

/// A fault in a next state is looked for in vain among the states.
#[test]
fn faults_of_next_observations_bear_their_name() {
    let faults = |next: &[f32]| {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(format!("{name}.npy"));
        let numbers = |count: u8| Npy::F32((0..count).map(f32::from).collect());
        write_npy(&at("observations"), &numbers(40), Some(2));
        write_npy(&at("next_observations"), &Npy::F32(next.to_vec()), Some(2));
        write_npy(&at("actions"), &numbers(20), Some(1));
        write_npy(&at("rewards"), &numbers(20), None);
        write_npy(&at("terminals"), &flags([9, 19]), None);
        let found = validate(directory.path(), &ReadOptions::default(), &CheckOptions::default()).unwrap();
        let faults = found.problems.into_iter().filter(|p| p.is_error());
        faults.map(|p| (p.column.unwrap_or_default(), p.row)).collect::<Vec<_>>()
    };
    let mut next: Vec<f32> = (2..42_u8).map(f32::from).collect();
    assert_eq!(faults(&next), []);
    let expected = [("next_observations[1]".to_owned(), Some(4))];
    for wrong in [f32::NAN, 1e30] {
        next[9] = wrong;
        assert_eq!(faults(&next), expected);
    }
}

#[test]
fn few_episodes_and_constant_observations_are_remarked() {
    let bench = Bench::new().with("timeouts", &flags([9, 19]), None).without("next_observations");
    assert!(codes(&bench.validate()).contains(&ProblemCode::FewEpisodes));
    let observations = (0..ROWS).flat_map(|row| [row as f32, 7.0]).collect();
    let bench =
        Bench::new().with("observations", &Npy::F32(observations), Some(2)).without("next_observations");
    let log = bench.validate();
    let problem =
        log.problems.iter().find(|problem| problem.code == ProblemCode::ConstantObservation).unwrap();
    assert_eq!(problem.column.as_deref(), Some("observations[1]"));
}

/// Whole numbers that recur beside finitely many actions are likely ids; measurements and counters are not.
#[test]
fn ids_of_states_are_remarked() {
    let rows = 600_usize;
    let remarked = |state: &dyn Fn(usize) -> f32, discrete: bool| {
        let directory = tempfile::tempdir().unwrap();
        let put = |name: &str, values: Npy| {
            write_npy(&directory.path().join(format!("{name}.npy")), &values, Some(1))
        };
        put("observations", Npy::F32((0..rows).map(state).collect()));
        if discrete {
            let ids = Npy::I64((0..rows).map(|row| (row % 3) as i64).collect());
            write_npy(&directory.path().join("actions.npy"), &ids, None);
        } else {
            put("actions", Npy::F32((0..rows).map(|row| ((row * 7919) % 101) as f32 / 101.0).collect()));
        }
        put("rewards", Npy::F32(vec![1.0; rows]));
        let ends = Npy::Bool((0..rows).map(|row| row % 100 == 99).collect());
        write_npy(&directory.path().join("timeouts.npy"), &ends, None);
        let log = validate(directory.path(), &ReadOptions::default(), &CheckOptions::default()).unwrap();
        codes(&log).contains(&ProblemCode::StateIds)
    };
    let id = |row: usize| ((row * 31) % 40) as f32;
    assert!(remarked(&id, true));
    assert!(!remarked(&id, false), "with continuous actions it may be anything");
    assert!(!remarked(&|row| id(row) + 0.5, true));
    assert!(!remarked(&|row| row as f32, true), "none recurs");
    assert!(!remarked(&|row| (row % 2) as f32, true), "a flag is one number as well as two states");
}

/// A wave of actions, as of a policy that always does the same, alone, with noise, and held for two steps each.
#[test]
fn actions_without_noise_are_remarked() {
    let rows = 600_usize;
    let with = |action: &dyn Fn(usize) -> f32, idle: &[f32]| {
        let directory = tempfile::tempdir().unwrap();
        let put = |name: &str, values: Vec<f32>| {
            let width = Some(values.len() / rows);
            write_npy(&directory.path().join(format!("{name}.npy")), &Npy::F32(values), width);
        };
        put("observations", (0..rows).map(|row| row as f32).collect());
        let of_row = |row| std::iter::once(action(row)).chain(idle.iter().copied());
        put("actions", (0..rows).flat_map(of_row).collect());
        put("rewards", vec![1.0; rows]);
        let ends = Npy::Bool((0..rows).map(|row| row % 100 == 99).collect());
        write_npy(&directory.path().join("timeouts.npy"), &ends, None);
        let log = validate(directory.path(), &ReadOptions::default(), &CheckOptions::default()).unwrap();
        codes(&log).contains(&ProblemCode::NoExploration)
    };
    let bench = |action: &dyn Fn(usize) -> f32| with(action, &[]);
    let wave = |row: usize| (row as f32 / 12.0).sin();
    let noise = |row: usize| ((row * 7919 + 13) % 101) as f32 / 101.0 - 0.5;
    assert!(bench(&wave));
    assert!(bench(&|row| wave(row / 2)));
    assert!(bench(&|row| wave(row) + 0.005 * noise(row)));
    assert!(!bench(&|row| wave(row) + 0.3 * noise(row)));
    assert!(!bench(&|row| wave(row / 2) + 0.3 * noise(row / 2)));
    // Of two actions by turns nothing is said.
    assert!(!bench(&|row| f32::from(row % 2 == 0)));
    // An actuator that stands still changes nothing, and where all do there is nothing to learn from.
    assert!(with(&wave, &[0.3]) && !with(&|row| wave(row) + 0.3 * noise(row), &[0.3, 0.0]));
    assert!(bench(&|_| 0.5) && with(&|_| 0.5, &[0.3]));
    assert!(!bench(&|row| f32::from(row > 300)), "one change tells nothing");
}

#[test]
fn a_break_without_a_flag_ends_an_episode() {
    let bench = Bench::new().with("timeouts", &flags([4, 14, 19]), None);
    let log = bench.validate();
    assert_eq!((codes(&log), log.problems[0].row), (vec![ProblemCode::UnflaggedBreak], Some(9)));
    assert_eq!(lengths(&log.transitions), [LENGTH; EPISODES]);
    assert_eq!(log.transitions.episodes()[1].end, EpisodeEnd::Cut);
    assert!(bench.repair().transitions.timeout(9));

    // Where next observations hardly ever agree, they say nothing about episodes.
    let noise = (0..2 * ROWS).map(|i| i as f32 + 0.5).collect();
    let log = Bench::new().with("next_observations", &Npy::F32(noise), Some(2)).validate();
    assert_eq!(codes(&log), [ProblemCode::NextObservationMismatch]);
    assert_eq!(lengths(&log.transitions), [LENGTH; EPISODES]);
}

#[test]
fn large_integers_lose_digits_and_it_is_said() {
    let stamps = (0..ROWS).flat_map(|row| [1_700_000_001 + row as i64, 0]).collect();
    let log =
        Bench::new().with("observations", &Npy::I64(stamps), Some(2)).without("next_observations").read();
    let problem = log.problems.iter().find(|problem| problem.code == ProblemCode::PrecisionLost).unwrap();
    assert_eq!((problem.column.as_deref(), problem.row), (Some("observations"), Some(0)));
}

#[test]
fn propensities_must_be_probabilities() {
    let log = Bench::new().with("propensities", &Npy::F32(vec![0.0; ROWS]), None).validate();
    assert_eq!(codes(&log), [ProblemCode::BadPropensity]);
    // A density may exceed one, a probability may not.
    let two = || Npy::F32(vec![2.0; ROWS]);
    assert_eq!(codes(&Bench::new().with("propensities", &two(), None).validate()), []);
    let ids = Npy::I64((0..ROWS).map(|row| (row % 2) as i64).collect());
    let log = Bench::new().with("actions", &ids, None).with("propensities", &two(), None).validate();
    assert_eq!(codes(&log), [ProblemCode::BadPropensity]);
}

fn table(rows: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::Builder::new().suffix(".csv").tempfile().unwrap();
    writeln!(file, "episode,step,state_a,state_b,action,reward,cost,terminal").unwrap();
    file.write_all(rows.as_bytes()).unwrap();
    file
}

fn repair_table(rows: &str) -> Repaired {
    repair(table(rows).path(), &RepairOptions::default()).unwrap()
}

fn table_errors(rows: &str) -> Vec<ProblemCode> {
    match load(table(rows).path(), &ReadOptions::default(), &CheckOptions::default()) {
        Err(DataError::Unusable { problems, .. }) => {
            problems.iter().filter(|problem| problem.is_error()).map(|problem| problem.code).collect()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn steps_of_a_table_are_sorted_and_identical_rows_merged() {
    let rows = "x,1,1,0,0.5,2,0,1\nx,0,0,0,0.5,1,0,0\ny,0,0,1,0.5,3,0,0\ny,0,0,1,0.5,3,0,0\ny,1,1,1,0.5,4,0,1\n\
                z,0,5,5,0.5,5,0,1\n";
    assert_eq!(table_errors(rows), [ProblemCode::StepsUnsorted, ProblemCode::StepsDuplicated]);
    let repaired = repair_table(rows);
    assert_eq!(lengths(&repaired.transitions), [2, 2, 1]);
    assert_eq!((0..5).map(|i| repaired.transitions.reward(i)).collect::<Vec<_>>(), [1.0, 2.0, 3.0, 4.0, 5.0]);
    assert!(repaired_codes(&repaired).contains(&ProblemCode::StepsUnsorted));
    assert!(repaired_codes(&repaired).contains(&ProblemCode::StepsDuplicated));
}

#[test]
fn conflicting_steps_and_gaps_drop_their_episode() {
    let sound = "w,0,0,0,0.5,1,0,0\nw,1,1,0,0.5,1,0,1\n";
    let conflict = format!("{sound}x,0,0,0,0.5,1,0,0\nx,0,0,0,0.5,2,0,0\nx,1,1,0,0.5,1,0,1\n");
    assert_eq!(table_errors(&conflict), [ProblemCode::StepsConflicting]);
    assert_eq!(lengths(&repair_table(&conflict).transitions), [2]);
    let gap = format!("{sound}x,0,0,0,0.5,1,0,0\nx,1,1,0,0.5,1,0,0\nx,5,2,0,0.5,1,0,1\n");
    assert_eq!(table_errors(&gap), [ProblemCode::StepGap]);
    assert_eq!(lengths(&repair_table(&gap).transitions), [2]);
    let options = RepairOptions { faulty_episode: FaultyEpisode::KeepBeginning, ..RepairOptions::default() };
    let kept = repair(table(&gap).path(), &options).unwrap().transitions;
    assert_eq!(lengths(&kept), [2, 1], "the step before the gap leads across it");
}

#[test]
fn mixed_episodes_are_brought_together() {
    let rows = "x,0,0,0,0.5,1,0,0\ny,0,9,0,0.5,2,0,0\nx,1,1,0,0.5,3,0,1\ny,1,8,0,0.5,4,0,1\n";
    assert_eq!(table_errors(rows), [ProblemCode::EpisodesInterleaved]);
    let repaired = repair_table(rows).transitions;
    assert_eq!((0..4).map(|i| repaired.reward(i)).collect::<Vec<_>>(), [1.0, 3.0, 2.0, 4.0]);
    assert_eq!(repaired.next_observation(0), [1.0, 0.0]);
}

#[test]
fn rows_after_a_terminal_are_left_out_by_repair() {
    let rows =
        "w,0,0,0,0.5,1,0,1\nx,0,0,0,0.5,2,0,1\nx,1,1,0,0.5,3,0,1\nx,2,1,0,0.5,4,0,0\nx,3,1,0,0.5,5,0,1\n";
    assert_eq!(table_errors(rows), [ProblemCode::RowAfterTerminal]);
    let repaired = repair_table(rows).transitions;
    assert_eq!((repaired.len(), repaired.reward(0), repaired.reward(1)), (2, 1.0, 2.0));
}

#[test]
fn empty_cells_are_missing_values() {
    let rows = "w,0,0,0,0.5,1,0,1\nx,0,0,,0.5,1,0,0\nx,1,1,0,0.5,NA,0,1\n";
    assert_eq!(table_errors(rows), [ProblemCode::NonFinite, ProblemCode::NonFinite]);
    assert_eq!(lengths(&repair_table(rows).transitions), [1]);
    let text =
        load(table("w,0,high,0,0.5,1,0,1\n").path(), &ReadOptions::default(), &CheckOptions::default());
    let error = text.unwrap_err();
    assert!(
        matches!(&error, DataError::Cell { row: 0, column, value, .. } if column == "state_a" && value == "high")
    );
}

#[test]
fn an_inspection_is_the_documented_object() {
    let bench = Bench::new().with("costs", &Npy::F32(vec![0.0; ROWS]), None);
    let inspection = inspect(bench.path(), &ReadOptions::default(), &CheckOptions::default()).unwrap();
    let json = serde_json::to_value(&inspection).unwrap();
    let message = &inspection.problems[0].message;
    let expected = serde_json::json!({
        "transitions": 20, "episodes": 4, "observation_dim": 2, "action": {"kind": "continuous", "dim": 1},
        "costs": [{"name": "cost", "mean": 0.0, "episode_mean": 0.0}], "reward": {"mean": 1.5, "episode_mean": 7.5},
        "problems": [{"code": "zero-cost", "column": "cost", "row": null, "message": message}],
    });
    assert_eq!(json, expected);
}

/// What `shift(-1)` leaves in a table: next states are empty where an episode ends.
#[test]
fn next_states_that_are_empty_at_the_end_of_an_episode_were_not_recorded() {
    let rows = "episode,state_x,action,reward,cost,next_state_x,terminal\n\
                1,0.0,0.5,1,2,1.0,0\n1,1.0,0.5,1,3,,0\n2,5.0,0.5,1,0,6.0,0\n2,6.0,0.5,1,4,,1\n";
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log.csv");
    std::fs::write(&path, rows).unwrap();
    let log = load(&path, &ReadOptions::default(), &CheckOptions::default()).unwrap();
    assert!(codes(&log).contains(&ProblemCode::NextStateUnknown), "{:?}", log.problems);
    assert_eq!(log.transitions.next_unknown(), [1], "row 3 is a terminal: nothing need follow");
    let found = Inspection::of(&log.transitions, Vec::new());
    assert_eq!((found.costs[0].means.episode_mean, found.costs[0].means.mean), (4.5, 2.25));
    // Inside an episode an empty cell is a fault.
    std::fs::write(&path, rows.replace("1.0,0\n1,1.0", ",0\n1,1.0")).unwrap();
    assert!(load(&path, &ReadOptions::default(), &CheckOptions::default()).is_err());
}
