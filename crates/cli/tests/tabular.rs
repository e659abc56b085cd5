//! Finite CMDPs and the paper's experiments, as a user runs them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn coptidice(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_coptidice")).args(arguments).output().expect("the program starts")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn succeeded(output: &Output) {
    assert!(output.status.success(), "{}", stderr(output));
}

fn json(output: &Output) -> Value {
    succeeded(output);
    serde_json::from_slice(&output.stdout).expect("one JSON object on stdout")
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).expect("the program wrote this file")).expect("it is JSON")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary paths are UTF-8")
}

fn vector(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/vectors").join(name)
}

/// Clinic logs: in `mild` and `severe`, `drug` heals with probability 3/4 and harms, `wait` heals with 1/4. Every
/// outcome occurs as often as it is likely, so that the estimate is the truth.
fn clinic(directory: &Path) -> PathBuf {
    let mut rows = String::from("stay,hour,condition,treatment,reward,cost_harm,cost_beds,next,over\n");
    let mut stay = 0;
    for state in ["mild", "severe"] {
        for (action, healed) in [("drug", 3), ("wait", 1)] {
            for outcome in 0..40 {
                let heals = outcome % 4 < healed;
                let harm = u8::from(action == "drug" && state == "severe");
                rows += &format!("{stay},0,{state},{action},{},{harm},1,{state},1\n", u8::from(heals));
                stay += 1;
            }
        }
    }
    let path = directory.join("clinic.csv");
    std::fs::write(&path, rows).expect("the test's directory is writable");
    path
}

const COLUMNS: &[&str] = &[
    "--episode",
    "stay",
    "--step",
    "hour",
    "--state",
    "condition",
    "--action",
    "treatment",
    "--reward",
    "reward",
    "--cost",
    "cost_harm",
    "--cost",
    "cost_beds",
    "--next-state",
    "next",
    "--terminal",
    "over",
];

fn solve(logs: &Path, out: &Path, more: &[&str]) -> Output {
    let mut arguments = vec!["tabular", "solve", "--logs", text(logs), "--out", text(out), "--overwrite"];
    arguments.extend(COLUMNS);
    arguments.extend(more);
    coptidice(&arguments)
}

/// One step a stay: the best policy under a limit on harm is known. Half of the stays are severe; to keep harm at
/// 0.1 a stay, the drug may be given in 20% of the severe ones: reward (3/4 + 1/4 + 0.2/2)/2 a stay.
#[test]
fn logs_become_a_policy_that_keeps_its_limits() {
    let directory = tempfile::tempdir().unwrap();
    let (logs, out) = (clinic(directory.path()), directory.path().join("run"));
    let limits = ["--limit", "cost_harm=0.1", "--limit", "beds=2", "--limit-unit", "episode"];
    for gamma in ["1", "0.9"] {
        let mut more = vec!["--algo", "lp", "--gamma", gamma, "--json"];
        more.extend(limits);
        let printed = json(&solve(&logs, &out, &more));
        assert_eq!(printed["outcome"], "solved", "{printed}");
        assert!(printed["seconds"].is_f64());
        let result = read(&out.join("result.json"));
        assert!(result.get("seconds").is_none(), "results carry no clock");
        let near = |value: &Value, expected: f64| {
            let value = value.as_f64().expect("a number");
            assert!((value - expected).abs() < 1e-3, "{value} for {expected}: {result}");
        };
        near(&result["reward"]["per_episode"], 0.55);
        near(&result["reward"]["behaviour_per_episode"], 0.5);
        near(&result["costs"][0]["per_episode"], 0.1);
        assert_eq!(result["costs"][0]["name"], "cost_harm");
        assert_eq!(result["costs"][1]["limit_unit"], "episode");
        near(&result["costs"][1]["per_episode"], 1.0);
        let policy = read(&out.join("policy.json"));
        assert_eq!(policy["states"], serde_json::json!(["mild", "severe"]));
        assert_eq!(policy["actions"], serde_json::json!(["drug", "wait"]));
        near(&policy["probabilities"][0][0], 1.0);
        near(&policy["probabilities"][1][0], 0.2);
        let html = std::fs::read_to_string(out.join("report.html")).unwrap();
        assert!(html.contains("cost_harm") && html.contains("lp on clinic.csv"));
    }
}

#[test]
fn every_algorithm_runs_on_logs() {
    let directory = tempfile::tempdir().unwrap();
    let (logs, out) = (clinic(directory.path()), directory.path().join("run"));
    for algo in ["coptidice", "naive", "optidice", "lp", "spibb", "bc"] {
        let more = ["--limit", "harm=0.2", "--limit", "beds=2", "--limit-unit", "episode", "--algo", algo];
        let printed = solve(&logs, &out, &more);
        succeeded(&printed);
        let result = read(&out.join("result.json"));
        assert_eq!((result["algorithm"].as_str(), result["outcome"].as_str()), (Some(algo), Some("solved")));
        let harm = result["costs"][0]["per_episode"].as_f64().unwrap();
        let ignores = ["optidice", "bc"].contains(&algo);
        assert!(ignores || harm <= 0.2 + 1e-6, "{algo}: {harm}");
        assert_eq!(result["costs"][0]["upper_bound"].is_f64(), algo == "coptidice", "{algo}");
    }
}

#[test]
fn impossible_limits_are_an_outcome_and_leave_no_policy() {
    let directory = tempfile::tempdir().unwrap();
    let (logs, out) = (clinic(directory.path()), directory.path().join("run"));
    let possible = ["--limit", "harm=0.2", "--limit", "beds=2", "--limit-unit", "episode"];
    succeeded(&solve(&logs, &out, &possible));
    assert!(out.join("policy.json").exists());
    let unasked = coptidice(&["tabular", "solve", "--logs", text(&logs), "--out", text(&out)]);
    assert_eq!(unasked.status.code(), Some(2));
    assert!(stderr(&unasked).contains("--overwrite"), "{}", stderr(&unasked));
    for algo in ["coptidice", "naive", "lp", "spibb"] {
        // A negative limit is a number like any other: no policy can meet it.
        for beds in ["beds=0.5", "beds=-1"] {
            let more = ["--limit", beds, "--limit-unit", "episode", "--algo", algo, "--json"];
            let output = solve(&logs, &out, &more);
            assert_eq!(output.status.code(), Some(3), "{algo}: {}", stderr(&output));
            let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!(printed["outcome"], "infeasible", "{algo}");
            assert!(!out.join("policy.json").exists(), "nothing to deploy by mistake");
            assert!(std::fs::read_to_string(out.join("report.html")).unwrap().contains("No policy meets"));
        }
    }
}

/// Stays that can be drawn out for ever at no cost: on the restart chain that meets any limit per episode, also one
/// that no episode keeps.
#[test]
fn a_policy_that_never_ends_keeps_no_limit_per_episode() {
    let directory = tempfile::tempdir().unwrap();
    let (logs, out) = (directory.path().join("ward.csv"), directory.path().join("run"));
    let mut rows = String::from("episode,step,state,action,reward,cost_harm,next_state,terminal\n");
    for episode in 0..40 {
        let waits = episode % 4;
        for step in 0..waits {
            rows += &format!("{episode},{step},ill,wait,0,0,ill,0\n");
        }
        rows += &format!("{episode},{waits},ill,treat,1,1,ill,1\n");
    }
    std::fs::write(&logs, rows).unwrap();
    for (limit, outcome) in [("-1", "infeasible"), ("-0.01", "infeasible"), ("0.5", ""), ("0", "")] {
        for algo in ["coptidice", "naive", "lp", "spibb"] {
            let output = coptidice(&[
                "tabular",
                "solve",
                "--logs",
                text(&logs),
                "--limit",
                limit,
                "--limit-unit",
                "episode",
                "--algo",
                algo,
                "--json",
                "--overwrite",
                "--out",
                text(&out),
            ]);
            assert_eq!(output.status.code(), Some(3), "{algo} {limit}: {}", stderr(&output));
            let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
            assert!(outcome.is_empty() || printed["outcome"] == outcome, "{algo} {limit}: {printed}");
            assert_ne!(printed["outcome"], "solved");
            assert!(!out.join("policy.json").exists(), "nothing to deploy by mistake");
        }
    }
}

#[test]
fn unseen_states_and_actions_are_declared() {
    let directory = tempfile::tempdir().unwrap();
    let logs = directory.path().join("logs.csv");
    // State 7 is entered but never acted in; action 5 occurs in state 0 only.
    let rows = "episode,step,state,action,reward,cost,next_state,terminal\n\
                a,0,0,2,1,0,3,0\na,1,3,2,0,1,0,1\nb,0,0,5,0,1,7,0\nc,0,0,2,1,0,3,0\nc,1,3,2,0,0,0,1\n";
    std::fs::write(&logs, rows).unwrap();
    let out = directory.path().join("run");
    let arguments = [
        "tabular",
        "solve",
        "--logs",
        text(&logs),
        "--out",
        text(&out),
        "--limit",
        "1",
        "--limit-unit",
        "step",
    ];
    let output = coptidice(&arguments);
    succeeded(&output);
    let (result, policy) = (read(&out.join("result.json")), read(&out.join("policy.json")));
    assert_eq!(policy["states"], serde_json::json!([0, 3, 7]), "whole numbers stay numbers");
    assert_eq!(policy["actions"], serde_json::json!([2, 5]));
    assert_eq!(result["states_unseen"], serde_json::json!([7]));
    assert_eq!(result["dead_ends"], serde_json::json!([7]));
    assert_eq!(result["pairs_unseen"], 3);
    assert_eq!(policy["probabilities"][2], serde_json::json!([0.5, 0.5]));
    assert_eq!(policy["probabilities"][1][1], 0.0, "an action never logged there is never chosen");
}

#[test]
fn stored_cases_are_solved_and_evaluated() {
    let case = vector("s0_b0.11_n100.json.gz");
    for (algo, bound) in [("basic", false), ("vanilla", false), ("conservative", true)] {
        let arguments = ["tabular", "solve", "--case", text(&case), "--algo", algo, "--json"];
        let found = json(&coptidice(&arguments));
        assert_eq!(found["outcome"], "solved");
        for key in ["lambda", "tau", "cost_upper_bound", "true_reward", "true_cost", "seconds"] {
            assert!(found[key].is_f64(), "{key}: {found}");
        }
        assert_eq!(found["policy"].as_array().map(Vec::len), Some(50));
        assert_eq!(found["w"].as_array().map(Vec::len), Some(200));
        assert_eq!(found["tau"].as_f64().unwrap() > 0.0, bound);
        assert!((found["cost_upper_bound"].as_f64().unwrap() - 0.1).abs() < 1e-6, "the limit binds");
    }
    let refused = coptidice(&["tabular", "solve", "--case", text(&case), "--algo", "bc"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("conservative"));
}

/// A limit below what every policy costs: said in the outcome and by the exit code, as with logs.
#[test]
fn a_case_whose_limit_cannot_be_met_is_no_success() {
    let directory = tempfile::tempdir().unwrap();
    let case = directory.path().join("case.json");
    let content = |limit: f64| {
        serde_json::json!({
            "num_states": 2, "num_actions": 2, "gamma": 0.9, "initial_state": 0, "absorbing_state": 1,
            "cost_threshold": limit, "alpha": 0.1, "epsilon": 0.01,
            "true_transition": [[0, 0, 0, 1.0], [0, 1, 1, 1.0], [1, 0, 1, 1.0], [1, 1, 1, 1.0]],
            "reward": [[1.0, 0.0], [0.0, 0.0]], "cost": [[0.5, 0.4], [0.3, 0.3]],
            "mle_counts": [[0, 0, 0, 9.0], [0, 1, 1, 9.0], [1, 0, 1, 9.0], [1, 1, 1, 9.0]],
            "d_b": [0.25, 0.25, 0.25, 0.25],
        })
        .to_string()
    };
    for (limit, code, outcome) in [(0.45, 0, "solved"), (0.1, 3, "infeasible")] {
        std::fs::write(&case, content(limit)).unwrap();
        for algo in ["basic", "vanilla", "conservative"] {
            let output = coptidice(&["tabular", "solve", "--case", text(&case), "--algo", algo, "--json"]);
            assert_eq!(output.status.code(), Some(code), "{algo} {limit}: {}", stderr(&output));
            let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!(printed["outcome"], outcome, "{algo} {limit}");
            assert_eq!(stderr(&output).contains("no policy meets the limit"), code == 3);
        }
    }
}

/// A column of measurements taken for states: more pairs than fit in memory are refused in words.
#[test]
fn more_states_and_actions_than_fit_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let logs = directory.path().join("logs.csv");
    let mut rows = String::from("episode,step,state,action,reward,cost,next_state,terminal\n");
    for row in 0..30_000 {
        rows += &format!("{row},0,{row},{},1,0,{row},1\n", row % 1000);
    }
    std::fs::write(&logs, rows).unwrap();
    let out = directory.path().join("run");
    let limit = ["--limit", "1", "--limit-unit", "step", "--logs", text(&logs)];
    let output = coptidice(&[&["tabular", "solve", "--out", text(&out)], &limit[..]].concat());
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("30000 states and 1000 actions"), "{}", stderr(&output));
    assert!(!out.exists());
}

/// Draw, solve by the logs, evaluate on the truth and by the logs.
#[test]
fn generated_logs_are_solved_and_the_policy_evaluated() {
    let directory = tempfile::tempdir().unwrap();
    let world = directory.path().join("world");
    let generate = |out: &Path| {
        json(&coptidice(&[
            "tabular",
            "generate",
            "--out",
            text(out),
            "--states",
            "20",
            "--limit",
            "0.05",
            "--behavior-cost",
            "0.04",
            "--trajectories",
            "200",
            "--seed",
            "5",
            "--json",
        ]))
    };
    let drawn = generate(&world);
    assert!((drawn["behavior_cost"].as_f64().unwrap() - 0.04).abs() < 1e-6);
    let again = directory.path().join("again");
    generate(&again);
    for file in ["case.json.gz", "logs.csv", "behavior.json"] {
        assert_eq!(
            std::fs::read(world.join(file)).unwrap(),
            std::fs::read(again.join(file)).unwrap(),
            "{file}"
        );
    }
    let (case, logs) = (world.join("case.json.gz"), world.join("logs.csv"));
    let behavior = world.join("behavior.json");
    let of = |policy: &Path| {
        json(&coptidice(&["tabular", "evaluate", text(policy), "--case", text(&case), "--json"]))
    };
    let known = of(&behavior);
    assert!((known["cost"].as_f64().unwrap() - drawn["behavior_cost"].as_f64().unwrap()).abs() < 1e-12);
    assert_eq!(known["states_not_in_policy"], 0);

    let run = directory.path().join("run");
    let output = coptidice(&[
        "tabular",
        "solve",
        "--logs",
        text(&logs),
        "--gamma",
        "0.95",
        "--limit",
        "0.05",
        "--limit-unit",
        "step",
        "--behavior",
        text(&behavior),
        "--out",
        text(&run),
    ]);
    // The logs may leave states out, which a known behaviour names all the same.
    succeeded(&output);
    let policy = run.join("policy.json");
    let found = of(&policy);
    assert!(found["cost"].as_f64().unwrap() < 0.08, "{found}");
    let by_logs = json(&coptidice(&[
        "tabular",
        "evaluate",
        text(&policy),
        "--logs",
        text(&logs),
        "--gamma",
        "0.95",
        "--limit",
        "0.05",
        "--limit-unit",
        "step",
        "--resamples",
        "20",
        "--json",
    ]));
    let cost = &by_logs["costs"][0];
    let value = |key: &str| cost[key].as_f64().unwrap();
    let estimate = value("per_step");
    for kind in ["coindice", "bootstrap"] {
        assert!(
            value(&format!("{kind}_lower")) <= estimate && estimate <= value(&format!("{kind}_upper")),
            "{cost}"
        );
    }
    let result = read(&run.join("result.json"));
    assert!((result["costs"][0]["per_step"].as_f64().unwrap() - estimate).abs() < 1e-9);
}

#[test]
fn unusable_input_exits_with_two_and_says_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let (logs, out) = (clinic(directory.path()), directory.path().join("run"));
    let file = |name: &str, content: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    };
    let header = "episode,step,state,action,reward,cost,next_state,terminal\n";
    let empty = file("empty.csv", "");
    let no_rows = file("no_rows.csv", header);
    let not_a_number = file("text.csv", &format!("{header}0,0,a,b,much,0,a,1\n"));
    let truncated = file("truncated.json.gz", "\u{1f}not gzip");
    let wrong = file("wrong.json", "{\"states\": [1], \"actions\": [1], \"probabilities\": [[0.5]]}");
    let case = vector("s0_b0.09_n10.json.gz");
    let step = ["--limit", "harm=0.1", "--limit-unit", "step"];
    let with = |more: &[&'static str]| -> Vec<String> {
        let base = ["tabular", "solve", "--logs", text(&logs), "--out", text(&out)];
        base.iter().chain(COLUMNS).chain(more).map(|s| (*s).to_owned()).collect()
    };
    let plain = |path: &Path| -> Vec<String> {
        let base =
            ["tabular", "solve", "--logs", text(path), "--out", text(&out), "--limit", "1", "--limit-unit"];
        base.into_iter().chain(["step"]).map(str::to_owned).collect()
    };
    let words = |w: &[&str]| w.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
    let mut missing_column = with(&step);
    *missing_column.iter_mut().find(|a| *a == "condition").unwrap() = "conditoin".to_owned();
    let cases: Vec<(Vec<String>, &str)> = vec![
        (missing_column, "conditoin"),
        (with(&[]), "limit"),
        (with(&["--limit", "0.1", "--limit-unit", "step"]), "cost_beds"),
        (with(&["--limit", "fuss=0.1", "--limit-unit", "step"]), "cost_harm"),
        (with(&["--limit", "harm=0.1", "--limit", "cost_harm=0.2", "--limit-unit", "step"]), "two limits"),
        (with(&["--limit", "harm=0.1"]), "limit-unit"),
        (with(&["--limit", "harm=nan", "--limit-unit", "step"]), "finite"),
        (with(&["--limit", "harm=0.1", "--limit-unit", "step", "--gamma", "1.5"]), "at most 1"),
        (with(&["--limit", "harm=0.1", "--limit-unit", "step", "--alpha", "0"]), "positive"),
        (with(&["--limit", "harm=0.1", "--limit-unit", "step", "--algo", "magic"]), "coptidice"),
        (
            with(&[
                "--limit",
                "harm=0.1",
                "--limit-unit",
                "step",
                "--objective",
                "episode",
                "--gamma",
                "0.9",
            ]),
            "gamma = 1",
        ),
        (plain(&empty), "empty.csv"),
        (plain(&no_rows), "no_rows.csv"),
        (plain(&not_a_number), "reward"),
        (plain(Path::new("nowhere.csv")), "nowhere.csv"),
        (words(&["tabular", "solve", "--case", text(&truncated)]), "no case file"),
        (words(&["tabular", "solve", "--case", "nowhere.json"]), "nowhere.json"),
        (words(&["tabular", "solve"]), "--logs"),
        (words(&["tabular", "evaluate", text(&wrong), "--case", text(&case)]), "wrong.json"),
        (words(&["tabular", "evaluate", text(&wrong)]), "--case"),
        (words(&["tabular", "generate", "--out", text(&out), "--limit", "5"]), "limit"),
        (words(&["tabular", "generate", "--out", text(&out), "--connectivity", "60"]), "connectivity"),
        (words(&["reproduce", "tabular-fig1", "--out", text(&out), "--runs", "0"]), "runs"),
        (words(&["reproduce", "tabular-fig1", "--out", text(&out), "--shard", "3/2"]), "I/N"),
        (
            words(&["reproduce", "tabular-mixture", "--out", text(&out), "--trajectories", "7"]),
            "multiples of five",
        ),
        (
            words(&["reproduce", "tabular-fig1", "--out", text(&out), "--trajectories", "4000000000000"]),
            "from 1 to 10000000",
        ),
        (words(&["reproduce", "merge", text(directory.path()), "--out", text(&out)]), "no raw results"),
        (words(&["reproduce", "merge", "nowhere", text(directory.path()), "--out", text(&out)]), "nowhere"),
    ];
    for (arguments, expected) in &cases {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let output = coptidice(&arguments);
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
        assert!(message.contains(expected), "{arguments:?} should name {expected}: {message}");
        assert!(!message.contains("panicked"), "{message}");
    }
}

fn reproduce(experiment: &str, out: &Path, more: &[&str]) -> Output {
    let mut arguments = vec!["reproduce", experiment, "--out", text(out), "--trajectories", "10,20"];
    arguments.extend(more);
    coptidice(&arguments)
}

#[test]
fn threads_shards_and_resumption_give_the_same_results() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let results = |name: &str| std::fs::read(at(name).join("results.csv")).unwrap();
    let runs = ["--runs", "51"];
    let output = reproduce("tabular-fig1", &at("one"), &[&runs[..], &["--threads", "1"]].concat());
    succeeded(&output);
    assert!(stderr(&output).contains("left"), "progress tells the time left: {}", stderr(&output));
    succeeded(&reproduce("tabular-fig1", &at("two"), &[&runs[..], &["--threads", "2"]].concat()));
    assert_eq!(results("one"), results("two"));
    for shard in ["1/2", "2/2"] {
        let name = shard.replace('/', "of");
        succeeded(&reproduce("tabular-fig1", &at(&name), &[&runs[..], &["--shard", shard]].concat()));
        assert!(!at(&name).join("results.csv").exists(), "a part is no result");
    }
    // Part 1 has runs 0 to 24 and the last one, part 2 those between: neither passes for the whole.
    for (given, lacking) in [("1of2", "part 2/2"), ("2of2", "part 1/2")] {
        let refused = coptidice(&["reproduce", "merge", text(&at(given)), "--out", text(&at("merged"))]);
        assert_eq!(refused.status.code(), Some(2));
        assert!(stderr(&refused).contains(lacking), "{}", stderr(&refused));
        assert!(!at("merged").exists());
    }
    let merged = ["reproduce", "merge", text(&at("1of2")), text(&at("2of2")), "--out", text(&at("merged"))]
        .map(str::to_owned);
    succeeded(&coptidice(&merged.each_ref().map(String::as_str)));
    assert_eq!(results("one"), results("merged"));
    assert_eq!(
        std::fs::read(at("one").join("figure.svg")).unwrap(),
        std::fs::read(at("merged").join("figure.svg")).unwrap()
    );
    // Parts that share a directory complete it.
    for shard in ["2/2", "1/2"] {
        succeeded(&reproduce("tabular-fig1", &at("shared"), &[&runs[..], &["--shard", shard]].concat()));
    }
    assert_eq!(results("one"), results("shared"));
    // Fewer runs first, the rest later.
    succeeded(&reproduce("tabular-fig1", &at("grown"), &["--runs", "25"]));
    let refused = reproduce("tabular-fig1", &at("grown"), &runs);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("--resume"));
    succeeded(&reproduce("tabular-fig1", &at("grown"), &[&runs[..], &["--resume"]].concat()));
    assert_eq!(results("one"), results("grown"));
}

/// Every file under a directory.
fn files(directory: &Path) -> Vec<PathBuf> {
    let (mut found, mut pending) = (Vec::new(), vec![directory.to_owned()]);
    while let Some(path) = pending.pop() {
        if path.is_dir() {
            pending.extend(std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        } else {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Killed without notice twice, what it was writing cut off and a finished file damaged: going on gives the bytes of a
/// run that nothing happened to.
#[test]
fn a_run_that_was_killed_goes_on_to_the_same_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let (whole, killed) = (directory.path().join("whole"), directory.path().join("killed"));
    let runs = ["--runs", "76"];
    succeeded(&reproduce("tabular-fig1", &whole, &runs));
    let chunks = |out: &Path| -> Vec<PathBuf> {
        files(out).into_iter().filter(|path| path.extension().is_some_and(|e| e == "bin")).collect()
    };
    assert_eq!(chunks(&whole).len(), 4);
    for finished in [1, 2] {
        let arguments = ["reproduce", "tabular-fig1", "--out", text(&killed), "--trajectories", "10,20"];
        let mut child = Command::new(env!("CARGO_BIN_EXE_coptidice"))
            .args(arguments)
            .args(runs)
            .args(["--threads", "1", "--resume"])
            .stderr(Stdio::null())
            .spawn()
            .expect("the program starts");
        while !killed.exists() || chunks(&killed).len() < finished {
            assert!(child.try_wait().unwrap().is_none(), "it ended before it could be killed");
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!killed.join("results.csv").exists(), "killed with chunks left to compute");
    }
    let left = chunks(&killed);
    let damaged = std::fs::read(&left[0]).unwrap();
    std::fs::write(&left[0], &damaged[..damaged.len() / 2]).unwrap();
    let cut_off = left[0].with_file_name("chunk-000003.bin.tmp");
    std::fs::write(cut_off, &damaged[..100]).unwrap();
    succeeded(&reproduce("tabular-fig1", &killed, &[&runs[..], &["--resume"]].concat()));
    // The page alone tells the command that made it.
    let content = |out: &Path| -> BTreeMap<PathBuf, Vec<u8>> {
        let kept = files(out).into_iter().filter(|path| !path.ends_with("report.html"));
        kept.map(|path| (path.strip_prefix(out).unwrap().to_owned(), std::fs::read(path).unwrap())).collect()
    };
    let (expected, found) = (content(&whole), content(&killed));
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    for (name, bytes) in expected {
        assert!(found[&name] == bytes, "{} differs", name.display());
    }
}

#[test]
fn every_experiment_has_results_figure_and_page() {
    let directory = tempfile::tempdir().unwrap();
    for (name, settings) in
        [("tabular-fig1", 2), ("tabular-thresholds", 10), ("tabular-support", 6), ("tabular-mixture", 2)]
    {
        let out = directory.path().join(name);
        succeeded(&reproduce(name, &out, &["--runs", "2"]));
        let csv = std::fs::read_to_string(out.join("results.csv")).unwrap();
        assert_eq!(csv.lines().count(), 1 + settings * 2 * 5, "{name}");
        let svg = std::fs::read_to_string(out.join("figure.svg")).unwrap();
        assert!(svg.contains("C-SPIBB") && svg.contains("cost limit"), "{name}");
        assert!(std::fs::read_to_string(out.join("report.html")).unwrap().contains("trajectories"), "{name}");
    }
    // Several experiments under one roof: the one to merge is named.
    let (fig1, mixture) = (directory.path().join("tabular-fig1"), directory.path().join("tabular-mixture"));
    let out = directory.path().join("merged");
    let merge = |more: &[&str]| {
        coptidice(&[&["reproduce", "merge", text(&fig1), text(&mixture), "--out", text(&out)], more].concat())
    };
    assert_eq!(merge(&[]).status.code(), Some(2));
    succeeded(&merge(&["--experiment", "tabular-mixture"]));
    let results = |at: &Path| std::fs::read(at.join("results.csv")).unwrap();
    assert_eq!(results(&out), results(&mixture));
}

#[test]
fn numbers_out_of_range_are_named_with_their_range() {
    let directory = tempfile::tempdir().unwrap();
    let (logs, out) = (clinic(directory.path()), directory.path().join("run"));
    let flags = |more: &[&str]| {
        let limit = ["--limit", "beds=2", "--limit-unit", "episode"];
        stderr(&solve(&logs, &out, &[&limit, more].concat()))
    };
    for (more, said) in [
        (["--alpha", "-1"], "a positive number"),
        (["--gamma", "-1"], "above 0"),
        (["--epsilon", "-1e-9"], ">= 0"),
        (["--wedge", "0"], ">= 1"),
        (["--limit", "harm=-x"], "not a finite number"),
    ] {
        let found = flags(&more);
        assert!(found.contains(said), "{more:?}: {found}");
    }
    let below = solve(&logs, &out, &["--cost", "cost_harm", "--limit", "-1e-9", "--limit-unit", "step"]);
    assert!(!stderr(&below).contains("unexpected argument"), "{}", stderr(&below));
}

/// A policy whose figures could not be written beside it is none.
#[test]
fn a_failed_write_leaves_no_policy() {
    let directory = tempfile::tempdir().unwrap();
    let (logs, out) = (clinic(directory.path()), directory.path().join("run"));
    std::fs::create_dir_all(out.join("result.json")).unwrap();
    let failed = solve(&logs, &out, &["--algo", "lp", "--limit", "beds=2", "--limit-unit", "episode"]);
    assert!(!failed.status.success());
    assert!(!out.join("policy.json").exists());
}

/// A case with one field changed is refused by name, and at once, whatever sizes it claims.
#[test]
fn hostile_cases_are_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let small = || {
        serde_json::json!({
            "num_states": 2, "num_actions": 1, "gamma": 0.9, "initial_state": 0, "absorbing_state": 1,
            "cost_threshold": 0.5, "alpha": 0.1, "epsilon": 0.01, "true_transition": [[0, 0, 1, 1.0], [1, 0, 1, 1.0]],
            "reward": [[1.0], [0.0]], "cost": [[1.0], [0.0]], "mle_counts": [[0, 0, 1, 5.0], [1, 0, 1, 5.0]],
            "d_b": [0.5, 0.5],
        })
    };
    let path = directory.path().join("case.json");
    let solve = |case: &Value, more: &[&str]| {
        std::fs::write(&path, case.to_string()).unwrap();
        coptidice(&[&["tabular", "solve", "--algo", "basic", "--case", text(&path)], more].concat())
    };
    succeeded(&solve(&small(), &[]));
    for (field, value, said) in [
        ("num_states", serde_json::json!(1_000_000_000_000_000_000_u64), "reward has 2 rows"),
        ("num_actions", serde_json::json!(1_000_000_000_u64), "1 numbers in a row"),
        ("reward", serde_json::json!([[1.0, 0.0]]), "reward has 1 rows"),
        ("cost", serde_json::json!([[1.0, 0.0], []]), "cost has 2 numbers in a row"),
        ("d_b", serde_json::json!([0.5]), "d_b has 1 numbers"),
        ("d_b", serde_json::json!([0.0, 0.0]), "sums to 0"),
        ("d_b", serde_json::json!([1.5, -0.5]), "holds -0.5 at pair 1"),
    ] {
        let mut case = small();
        case[field] = value;
        let refused = solve(&case, &[]);
        assert_eq!(refused.status.code(), Some(2), "{field}: {}", stderr(&refused));
        let message = stderr(&refused).replace('\n', " ");
        assert!(message.contains(said), "{field}: {message}");
    }
    for flag in ["--gamma", "--wedge", "--divergence", "--objective", "--limit-unit", "--state"] {
        let value = match flag {
            "--divergence" => "kl",
            "--objective" | "--limit-unit" => "step",
            _ => "1",
        };
        let refused = solve(&small(), &[flag, value]);
        assert!(stderr(&refused).contains("cannot be used with"), "{flag}: {}", stderr(&refused));
    }
}

/// Read as text with a stand-in, different bytes would be one state.
#[test]
fn states_that_are_not_utf8_are_refused_with_the_place() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log.csv");
    let mut bytes = b"episode,step,state,action,reward,cost,next_state,terminal\n".to_vec();
    bytes.extend(b"0,0,a,0,1,0,a,0\n1,0,\xff,0,1,0,\xfe,1\n");
    std::fs::write(&path, bytes).unwrap();
    let out = directory.path().join("run");
    let refused =
        coptidice(&["tabular", "solve", "--logs", text(&path), "--out", text(&out), "--algo", "bc"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("line 3, field 3: not"), "{}", stderr(&refused));
}
