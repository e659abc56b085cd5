//! Small experiments end to end.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use super::*;
use crate::outcome::Outcome;

fn small(experiment: Experiment) -> ExperimentConfig {
    ExperimentConfig { trajectories: vec![10, 50], ..ExperimentConfig::new(experiment) }
}

fn options(config: &ExperimentConfig, runs: u64, out: &Path) -> RunOptions {
    RunOptions {
        config: config.clone(),
        runs,
        out: out.to_owned(),
        shard: Shard::default(),
        threads: 1,
        resume: false,
    }
}

fn go(options: &RunOptions) -> RunOutcome {
    run(options, &mut |_| ControlFlow::Continue(())).unwrap()
}

fn complete(options: &RunOptions) -> Results {
    match go(options) {
        RunOutcome::Complete(results) => results,
        other => panic!("{other:?}"),
    }
}

#[test]
fn settings_are_the_papers() {
    let counts = Experiment::ALL.map(|e| e.settings().len() * TRAJECTORIES.len());
    assert_eq!(counts, [16, 80, 16, 48]);
    let costs: Vec<f64> = Experiment::Mixture.settings().iter().map(|s| s.data.behaviour_cost()).collect();
    assert_eq!(costs, [0.094, 0.106]);
    for e in Experiment::ALL {
        assert_eq!(e.name().parse::<Experiment>().unwrap(), e);
    }
    assert!("fig2".parse::<Experiment>().is_err());
}

/// A cell computed alone is the cell of the experiment, in every experiment.
#[test]
fn cells_are_pure() {
    let directory = tempfile::tempdir().unwrap();
    for experiment in Experiment::ALL {
        let config = small(experiment);
        let out = directory.path().join(experiment.name());
        complete(&options(&config, 1, &out));
        let stored = store::path(&store::directory(&out, &config), 0);
        let cells = store::read(&stored, &config, 0).unwrap().unwrap().cells;
        assert_eq!(cells.len(), config.cells_per_run());
        for (setting, size) in [(0, 1), (experiment.settings().len() - 1, 0)] {
            let alone = cell(&config, setting, 0, config.trajectories[size]).unwrap();
            assert_eq!(alone, cells[setting * 2 + size], "{experiment} {setting} {size}");
        }
    }
}

/// With many trajectories both readings of the data's distribution give nearly the same policies; with few, each
/// still gives policies. Two runs of 2000 trajectories: values within a few standard errors of a frequency.
#[test]
fn estimated_occupancies_work_and_converge_to_known_ones() {
    let known = ExperimentConfig::new(Experiment::Fig1);
    let estimated = ExperimentConfig { data_occupancy: DataOccupancy::Estimated, ..known.clone() };
    for setting in 0..2 {
        let (a, b) = (cell(&known, setting, 3, 2000).unwrap(), cell(&estimated, setting, 3, 2000).unwrap());
        assert_eq!(a.algorithms[0], b.algorithms[0], "cloning does not depend on it");
        assert_eq!(a.algorithms[1], b.algorithms[1], "nor does the linear program");
        for (x, y) in a.algorithms.iter().zip(&b.algorithms) {
            assert!((x.reward - y.reward).abs() < 0.03 && (x.cost - y.cost).abs() < 0.02, "{x:?} {y:?}");
        }
        let few = cell(&estimated, setting, 3, 10).unwrap();
        assert!(few.algorithms.iter().all(|a| a.reward > 0.0 && a.cost >= 0.0));
    }
}

/// Orders of magnitude of the main figure in four runs: optima are optima, clones of many trajectories are the
/// behaviour, and the bound makes COptiDICE cheaper than without.
#[test]
fn results_make_sense() {
    let config = ExperimentConfig { trajectories: vec![2000], ..ExperimentConfig::new(Experiment::Fig1) };
    for run in 0..4 {
        for (setting, cost) in BEHAVIOUR_COSTS.into_iter().enumerate() {
            let c = cell(&config, setting, run, 2000).unwrap();
            assert!((c.behaviour_cost - cost).abs() < 1e-6);
            assert!(
                (c.algorithms[0].cost - cost).abs() < 0.01 && c.normalized_reward(Algorithm::Bc).abs() < 0.2
            );
            for (result, algorithm) in c.algorithms.iter().zip(Algorithm::ALL) {
                // More reward than the optimum only by costing more than the limit.
                assert!(result.reward <= c.optimal_reward + 1e-9 || result.cost > CMDP_LIMIT, "{algorithm}");
            }
            let [naive, conservative] = [c.algorithms[3], c.algorithms[4]];
            assert!(conservative.cost < naive.cost && conservative.reward < naive.reward + 1e-9);
        }
    }
}

#[test]
fn threads_shards_and_interruptions_change_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let config = ExperimentConfig { trajectories: vec![10], ..ExperimentConfig::new(Experiment::Fig1) };
    let runs = 2 * store::CHUNK_RUNS + 3;
    let at = |name: &str| directory.path().join(name);
    let csv = |name: &str| std::fs::read(at(name).join("results.csv")).unwrap();

    let whole = complete(&options(&config, runs, &at("whole")));
    assert_eq!(whole.rows.len(), 10);
    complete(&RunOptions { threads: 2, ..options(&config, runs, &at("threads")) });
    assert_eq!(csv("whole"), csv("threads"));

    for index in 1..=2 {
        let shard = Shard { index, count: 2 };
        let outcome = go(&RunOptions { shard, ..options(&config, runs, &at(&format!("shard{index}"))) });
        assert_eq!(outcome, RunOutcome::ShardDone);
    }
    merge(&config, &[at("shard1"), at("shard2")], None, &at("merged")).unwrap();
    assert_eq!(csv("whole"), csv("merged"));

    let interrupted = options(&config, runs, &at("resumed"));
    let mut calls = 0;
    let outcome = run(&interrupted, &mut |_| {
        calls += 1;
        if calls == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert_eq!(outcome.unwrap(), RunOutcome::Interrupted);
    assert!(matches!(run(&interrupted, &mut |_| ControlFlow::Continue(())), Err(ExperimentError::Exists(_))));
    let mut first = None;
    run(&RunOptions { resume: true, ..interrupted }, &mut |p| {
        first.get_or_insert(p);
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(first, Some(Progress { done: 50, found: 50, total: 106 }));
    assert_eq!(csv("whole"), csv("resumed"));

    // Fewer runs of what is there, and more.
    let fewer = complete(&RunOptions { resume: true, ..options(&config, 10, &at("resumed")) });
    assert_eq!(fewer.runs, 10);
    let header = String::from_utf8(csv("whole")).unwrap();
    assert!(header.starts_with(
        "experiment,row,behaviour_cost,limit,trajectories,algorithm,runs,normalized_reward_mean,\
         normalized_reward_stderr,reward_mean,cost_mean,cost_stderr,share_violating\n"
    ));
}

/// Whichever runs are missing, the last ones too, a merge says so: fewer runs than were asked for are another result.
#[test]
fn a_merge_leaves_no_run_out() {
    let directory = tempfile::tempdir().unwrap();
    let config = ExperimentConfig { trajectories: vec![10], ..ExperimentConfig::new(Experiment::Fig1) };
    let at = |name: &str| directory.path().join(name);
    let compute = |name: &str, runs, index, count| {
        let shard = Shard { index, count };
        go(&RunOptions { shard, resume: true, ..options(&config, runs, &at(name)) })
    };
    let missing = |names: &[&str]| {
        let inputs: Vec<PathBuf> = names.iter().map(|name| at(name)).collect();
        match merge(&config, &inputs, None, &at("merged")) {
            Err(ExperimentError::Missing { count, runs, first, last, parts }) => {
                (count, runs, first, last, parts.iter().map(Shard::to_string).collect::<Vec<_>>())
            }
            other => panic!("{other:?}"),
        }
    };
    // Chunks of runs 0 to 24, 25 to 49, 50 to 74 and 75 to 77, of parts 1, 2, 3 and 1.
    let runs = 3 * store::CHUNK_RUNS + 3;
    for index in 1..=3 {
        compute(&format!("part{index}"), runs, index, 3);
    }
    assert_eq!(missing(&["part1", "part2"]), (25, runs, 50, 74, vec!["3/3".to_owned()]));
    assert_eq!(missing(&["part2"]), (53, runs, 0, 24, vec!["1/3".to_owned(), "3/3".to_owned()]));
    let last = store::path(&store::directory(&at("part1"), &config), 3);
    let kept = std::fs::read(&last).unwrap();
    std::fs::remove_file(&last).unwrap();
    assert_eq!(missing(&["part1", "part2", "part3"]), (3, runs, 75, 77, vec!["1/3".to_owned()]));
    std::fs::write(&last, kept).unwrap();
    let all = [at("part1"), at("part2"), at("part3")];
    assert_eq!(merge(&config, &all, None, &at("merged")).unwrap().runs, runs);
    assert_eq!(merge(&config, &all, Some(30), &at("merged")).unwrap().runs, 30);

    // A part that more runs add nothing to remembers that there are more all the same.
    compute("other", 25, 1, 1);
    compute("part", 25, 1, 2);
    compute("part", 50, 1, 2);
    assert_eq!(missing(&["part", "other"]), (25, 50, 25, 49, vec!["2/2".to_owned()]));
}

#[test]
fn damaged_chunks_are_found() {
    let directory = tempfile::tempdir().unwrap();
    let config = ExperimentConfig { trajectories: vec![10], ..ExperimentConfig::new(Experiment::Fig1) };
    let asked = options(&config, 2, directory.path());
    let before = complete(&asked);
    let path = store::path(&store::directory(directory.path(), &config), 0);
    let good = std::fs::read(&path).unwrap();
    let expect = |bytes: &[u8], part: &str| {
        std::fs::write(&path, bytes).unwrap();
        match merge(&config, &[directory.path().to_owned()], None, directory.path()) {
            Err(ExperimentError::Chunk { why, .. }) => assert!(why.contains(part), "{why}"),
            other => panic!("{other:?}"),
        }
    };
    let mut flipped = good.clone();
    flipped[200] ^= 1;
    expect(&flipped, "checksum");
    expect(&good[..good.len() - 1], "checksum");
    expect(&good[..10], "truncated");
    expect(b"not a chunk of results at all, but long enough", "no file of raw results");
    let other = ExperimentConfig { seed: 1, ..config.clone() };
    let chunk = {
        std::fs::write(&path, &good).unwrap();
        store::read(&path, &config, 0).unwrap().unwrap()
    };
    store::write(&path, &other, 0, &chunk).unwrap();
    expect(&std::fs::read(&path).unwrap(), "other options");
    // Resuming computes a damaged chunk anew.
    std::fs::write(&path, &flipped).unwrap();
    assert_eq!(complete(&RunOptions { resume: true, ..asked }), before);
}

#[test]
fn wrong_options_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let config = small(Experiment::Mixture);
    let refused = |o: &RunOptions| run(o, &mut |_| ControlFlow::Continue(())).unwrap_err().to_string();
    let base = options(&config, 1, directory.path());
    assert!(refused(&RunOptions { runs: 0, ..base.clone() }).contains("at least one"));
    let shard = Shard { index: 3, count: 2 };
    assert!(refused(&RunOptions { shard, ..base.clone() }).contains("3/2"));
    let odd = ExperimentConfig { trajectories: vec![7], ..config.clone() };
    assert!(refused(&RunOptions { config: odd, ..base }).contains("multiples of five"));
    let nothing = merge(&config, &[directory.path().to_owned()], None, directory.path());
    assert!(matches!(nothing, Err(ExperimentError::NothingToMerge { .. })));
}

#[test]
fn figures_have_the_papers_panels() {
    let directory = tempfile::tempdir().unwrap();
    for (experiment, rows) in [
        (Experiment::Fig1, 1),
        (Experiment::Thresholds, 5),
        (Experiment::Support, 3),
        (Experiment::Mixture, 1),
    ] {
        let config = ExperimentConfig { trajectories: vec![20, 10], ..ExperimentConfig::new(experiment) };
        let results = complete(&options(&config, 2, &directory.path().join(experiment.name())));
        let figure = figure_data(&results);
        assert_eq!(figure.rows.len(), rows, "{experiment}");
        for row in &figure.rows {
            assert_eq!(row.panels.len(), 4);
            assert_eq!(row.title.is_empty(), rows == 1);
            assert!(row.panels[1].limit.is_some() && row.panels[0].limit.is_none());
            for panel in &row.panels {
                assert_eq!(panel.series.len(), 5);
                assert!(panel.series.iter().all(|s| s.points[0].x == 10.0 && s.points[1].x == 20.0));
            }
        }
        let row = results.row(1, 0, Algorithm::Coptidice);
        assert_eq!((row.trajectories, row.algorithm.as_str()), (20, "coptidice"));
        assert_eq!(figure.rows[0].panels[3].series[4].points[1].mean, row.cost_mean);
    }
}

/// The same data and limit in two experiments, of which one has solved for other limits before, from whose solutions the
/// next is started. Costs are met to 1e-10, and policies turn by some multiple of that.
#[test]
fn a_limit_has_one_solution_whatever_was_solved_before() {
    for (run, behaviour, trajectories) in [(7, 1, 2000), (42, 0, 1000), (95, 0, 2000)] {
        let solve = |experiment: Experiment, setting: usize| {
            cell(&ExperimentConfig::new(experiment), setting, run, trajectories).unwrap()
        };
        let (alone, after) =
            (solve(Experiment::Fig1, behaviour), solve(Experiment::Thresholds, 4 + behaviour));
        for algorithm in [Algorithm::NaiveCoptidice, Algorithm::Coptidice] {
            let (a, b) = (alone.algorithms[algorithm as usize], after.algorithms[algorithm as usize]);
            assert_eq!((a.outcome, b.outcome), (Outcome::Solved, Outcome::Solved), "{run} {algorithm}");
            assert!(
                (a.reward - b.reward).abs() < 1e-7 && (a.cost - b.cost).abs() < 1e-7,
                "{run}: {a:?} {b:?}"
            );
        }
    }
}
