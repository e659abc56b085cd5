//! The program as a user runs it: files in, exit codes and files out.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// Settings under which a run takes a second or two unoptimised.
const SMALL: &[&str] = &[
    "--set",
    "batch_size=32",
    "--set",
    "networks.value=[{kind = \"dense\", width = 16, layer_norm = true, activation = \"tanh\"}]",
    "--set",
    "networks.policy=[{kind = \"dense\", width = 16, layer_norm = true, activation = \"tanh\"}]",
    "--set",
    "checkpoint_every=40",
];

fn coptidice(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_coptidice")).args(arguments).output().expect("the program starts")
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("the program prints UTF-8")
}

fn json(output: &Output) -> serde_json::Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one JSON object on stdout")
}

/// A log of the shape of hazard navigation: 20 episodes of 30 steps, a point that drifts under its actions.
fn write_log(directory: &Path) -> PathBuf {
    let mut text =
        String::from("episode,step,state_x,state_y,state_u,state_v,action_x,action_y,reward,cost_near\n");
    for episode in 0..20 {
        let mut x = -2.0 + 0.01 * f64::from(episode);
        for step in 0..30 {
            let action = 0.1 + 0.02 * f64::from((episode * 7 + step * 3) % 11);
            let cost = u8::from(x > -1.0 && episode % 2 == 0);
            let _ = writeln!(
                text,
                "{episode},{step},{x:.4},0.5,{action:.4},0.0,{action:.4},0.1,{:.4},{cost}",
                x / 4.0 + 0.5
            );
            x += 0.2 * action;
        }
    }
    let path = directory.join("log.csv");
    std::fs::write(&path, text).expect("the test's directory is writable");
    path
}

fn train_arguments<'a>(log: &'a str, out: &'a str, steps: &'a str, threads: &'a str) -> Vec<&'a str> {
    let mut arguments = vec!["train", log, "--limit", "0.1", "--limit-unit", "step", "--out", out];
    arguments.extend(["--steps", steps, "--threads", threads, "--seed", "3"]);
    arguments.extend(SMALL);
    arguments
}

fn train(log: &Path, out: &Path, threads: &str) {
    let output = coptidice(&train_arguments(text(log), text(out), "120", threads));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary paths are UTF-8")
}

fn bytes(run: &Path, file: &str) -> Vec<u8> {
    std::fs::read(run.join(file)).expect("the run wrote this file")
}

#[test]
fn inspection_has_the_promised_keys() {
    let directory = tempfile::tempdir().unwrap();
    let log = write_log(directory.path());
    let found = json(&coptidice(&["data", "inspect", text(&log), "--json"]));
    // Without next states nobody knows what the last of an episode's 30 steps led to; it counts all the same.
    assert_eq!(found["transitions"], 20 * 30);
    assert_eq!(found["episodes"], 20);
    assert_eq!(found["observation_dim"], 4);
    assert_eq!(found["action"], serde_json::json!({ "kind": "continuous", "dim": 2 }));
    assert_eq!(found["costs"][0]["name"], "near");
    for key in ["mean", "episode_mean"] {
        assert!(found["costs"][0][key].is_f64() && found["reward"][key].is_f64(), "{key}");
    }
    let problems = found["problems"].as_array().expect("a list");
    assert!(problems.iter().any(|problem| problem["code"] == "next-state-unknown"), "{problems:?}");
}

/// What was done in the last step of an episode is paid for, whatever it led to.
#[test]
fn a_limit_per_episode_is_one_on_all_logged_steps() {
    let directory = tempfile::tempdir().unwrap();
    let (log, converted) = (write_log(directory.path()), directory.path().join("log.parquet"));
    let wrote = coptidice(&["data", "convert", text(&log), "--to", text(&converted)]);
    assert!(wrote.status.success(), "{}", String::from_utf8_lossy(&wrote.stderr));
    for (name, file) in [("plain", &log), ("converted", &converted)] {
        let run = directory.path().join(name);
        let mut arguments =
            vec!["train", text(file), "--limit", "3", "--limit-unit", "episode", "--out", text(&run)];
        // Two steps make a policy, but none that keeps a limit. Without an evaluation of its own the dual's estimate says so.
        arguments.extend(["--steps", "2", "--set", "evaluation.rounds=0"]);
        arguments.extend(SMALL);
        let output = coptidice(&arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(3) && said.contains("by the dual's estimate"), "{said}");
        assert!(stdout(&output).contains("0.1 per step = 3 per episode"), "{}", stdout(&output));
        let weights: ndarray::Array1<f32> =
            ndarray_npy::read_npy(run.join("occupancy_ratios.npy")).expect("a ratio for each row");
        let unlearned = weights.iter().enumerate().filter(|(_, w)| w.is_nan()).map(|(row, _)| row);
        assert_eq!(unlearned.collect::<Vec<_>>(), (0..20).map(|e| 30 * e + 29).collect::<Vec<_>>());
    }
}

/// A file that exists is replaced only where that is asked for.
fn refuses_to_replace(arguments: &[&str]) {
    let refused = coptidice(arguments);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--overwrite"));
    assert!(coptidice(&[arguments, &["--overwrite"]].concat()).status.success());
}

#[test]
fn a_record_that_cannot_be_read_is_unusable_input() {
    let directory = tempfile::tempdir().unwrap();
    let (log, run) = (write_log(directory.path()), directory.path().join("run"));
    train(&log, &run, "1");
    let record = run.join("metrics.jsonl");
    let whole = std::fs::read_to_string(&record).unwrap();
    std::fs::write(&record, format!("{{\"step\":\n{whole}")).unwrap();
    let refused = coptidice(&["report", text(&run)]);
    assert_eq!(refused.status.code(), Some(2));
    let said = String::from_utf8_lossy(&refused.stderr).split_whitespace().collect::<String>();
    assert!(said.contains("metrics.jsonl,line1:"), "{said}");
    std::fs::remove_file(&record).unwrap();
    assert_eq!(coptidice(&["report", text(&run)]).status.code(), Some(2));
}

#[test]
fn a_limit_that_no_logged_step_keeps_is_an_outcome() {
    let directory = tempfile::tempdir().unwrap();
    let (log, run) = (write_log(directory.path()), directory.path().join("run"));
    for (limit, unit) in [("-0.1", "step"), ("near=-3", "episode")] {
        let output = coptidice(&[
            "train",
            text(&log),
            "--limit",
            limit,
            "--limit-unit",
            unit,
            "--out",
            text(&run),
            "--steps",
            "5",
        ]);
        assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stderr));
        let said = String::from_utf8_lossy(&output.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains("near: no logged step costs less than 0"), "{said}");
        assert!(!run.exists(), "nothing was trained, nothing is written");
    }
}

#[test]
fn a_run_can_be_evaluated_acted_with_exported_and_reported() {
    let directory = tempfile::tempdir().unwrap();
    let (log, run) = (write_log(directory.path()), directory.path().join("run"));
    train(&log, &run, "2");
    for file in
        ["config.toml", "manifest.json", "metrics.jsonl", "policy.onnx", "policy.safetensors", "report.html"]
    {
        assert!(!bytes(&run, file).is_empty(), "{file}");
    }
    let evaluation =
        json(&coptidice(&["evaluate", text(&run), "--env", "nav/hazard", "--episodes", "3", "--json"]));
    assert_eq!(evaluation["episodes"], 3);
    for key in ["return_mean", "return_stderr", "cost_per_step", "cost_per_episode", "share_over_limit"] {
        assert!(evaluation[key].is_f64(), "{key}");
    }

    let (observations, actions) =
        (directory.path().join("observations.npy"), directory.path().join("actions.npy"));
    let seen = ndarray::Array2::from_shape_fn((5, 4), |(i, j)| -2.0 + 0.1 * (i + j) as f64);
    ndarray_npy::write_npy(&observations, &seen).unwrap();
    let acted =
        coptidice(&["act", text(&run), "--observations", text(&observations), "--to", text(&actions)]);
    assert!(acted.status.success(), "{}", String::from_utf8_lossy(&acted.stderr));
    let again = ["act", text(&run), "--observations", text(&observations), "--to", text(&actions)];
    refuses_to_replace(&again);
    // Directories are made as for converted logs; the run's own files and the observations are no place for actions.
    let deep = directory.path().join("new/place/actions.npy");
    let acted = coptidice(&["act", text(&run), "--observations", text(&observations), "--to", text(&deep)]);
    assert!(acted.status.success() && deep.exists(), "{}", String::from_utf8_lossy(&acted.stderr));
    for own in [run.join("policy.safetensors"), run.join("occupancy_ratios.npy"), observations.clone()] {
        let kept = std::fs::read(&own).unwrap();
        let refused = coptidice(&[
            "act",
            text(&run),
            "--observations",
            text(&observations),
            "--to",
            text(&own),
            "--overwrite",
        ]);
        assert_eq!(refused.status.code(), Some(2), "{}", own.display());
        assert_eq!(std::fs::read(&own).unwrap(), kept);
    }
    let odd = directory.path().join("odd.npy");
    let refused = |word: &str| {
        let output = coptidice(&["act", text(&run), "--observations", text(&odd), "--to", "unused.npy"]);
        let said = String::from_utf8_lossy(&output.stderr).split_whitespace().collect::<String>();
        assert!(output.status.code() == Some(2) && said.contains(word), "{said}");
    };
    ndarray_npy::write_npy(&odd, &ndarray::Array1::<f64>::zeros(4)).unwrap();
    refused("has1axis,nottwo");
    ndarray_npy::write_npy(&odd, &ndarray::Array2::<i64>::zeros((2, 4))).unwrap();
    refused("notf32orf64");
    let chosen: ndarray::Array2<f32> = ndarray_npy::read_npy(&actions).unwrap();
    assert_eq!(chosen.dim(), (5, 2));
    // Actions stay within the logged range.
    assert!(chosen.column(0).iter().all(|a| (0.0999..=0.3001).contains(a)), "{chosen}");

    let onnx = directory.path().join("copy.onnx");
    assert!(coptidice(&["export", text(&run), "--format", "onnx", "--to", text(&onnx)]).status.success());
    assert_eq!(std::fs::read(&onnx).unwrap(), bytes(&run, "policy.onnx"));
    refuses_to_replace(&["export", text(&run), "--format", "onnx", "--to", text(&onnx)]);
    let page = coptidice(&["report", text(&run)]);
    assert!(stdout(&page).trim().ends_with("report.html"));
    let html = String::from_utf8(bytes(&run, "report.html")).unwrap();
    assert!(html.contains("3 simulated episodes"), "the evaluation is part of the page");
}

#[test]
fn threads_do_not_change_the_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let log = write_log(directory.path());
    let (one, two) = (directory.path().join("one"), directory.path().join("two"));
    train(&log, &one, "1");
    train(&log, &two, "2");
    assert_eq!(bytes(&one, "policy.safetensors"), bytes(&two, "policy.safetensors"));
    assert_eq!(bytes(&one, "metrics.jsonl"), bytes(&two, "metrics.jsonl"));
}

#[test]
fn a_killed_run_resumes_to_the_same_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let log = write_log(directory.path());
    let (whole, killed) = (directory.path().join("whole"), directory.path().join("killed"));
    // Long enough to be killed in the middle several times over.
    let steps = "600";
    let uninterrupted = coptidice(&train_arguments(text(&log), text(&whole), steps, "1"));
    assert!(uninterrupted.status.success(), "{}", String::from_utf8_lossy(&uninterrupted.stderr));
    let mut kills = 0;
    for pause in [150, 250, 350, 450] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_coptidice"));
        command.args(train_arguments(text(&log), text(&killed), steps, "2")).arg("--resume");
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(pause));
        if child.try_wait().unwrap().is_none() {
            child.kill().unwrap();
            kills += 1;
        }
        child.wait().unwrap();
    }
    let mut last = train_arguments(text(&log), text(&killed), steps, "2");
    last.push("--resume");
    let resumed = coptidice(&last);
    assert!(resumed.status.success(), "{}", String::from_utf8_lossy(&resumed.stderr));
    for file in ["policy.safetensors", "metrics.jsonl", "policy.onnx"] {
        assert_eq!(bytes(&whole, file), bytes(&killed, file), "{file} after {kills} kills");
    }
}

#[test]
fn wrong_usage_and_unusable_input_exit_with_two_and_say_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let log = write_log(directory.path());
    let run = directory.path().join("run");
    let (log, run) = (text(&log), text(&run));
    let broken = directory.path().join("broken.hdf5");
    std::fs::write(&broken, b"\x89HDF\r\n\x1a\nnothing more").unwrap();
    let cases: &[(&[&str], &str)] = &[
        (&["train", log, "--limit", "0.1", "--out", run], "--limit-unit"),
        (&["train", log, "--out", run], "--limit"),
        (&["train", log, "--algo", "magic", "--out", run], "coptidice"),
        (&["train", log, "--algo", "bc", "--set", "alpa=1", "--out", run], "alpa"),
        (&["train", log, "--limit", "far=0.1", "--limit-unit", "step", "--out", run], "near"),
        (&["train", "nowhere.csv", "--algo", "bc", "--out", run], "nowhere.csv"),
        (&["train", log, "--algo", "bc", "--out", &format!("{log}/run")], "--out"),
        (&["train", log, "--algo", "bc", "--out", run, "--resume", "--max-magnitude", "-1"], "positive"),
        (&["train", log, "--algo", "bc", "--out", run, "--threads", "100000"], "1024"),
        (&["train", log, "--algo", "bc", "--out", run, "--set", "threads=1025"], "1024"),
        (&["evaluate", run, "--env", "nav/hazard", "--threads", "2000"], "1024"),
        (&["sweep", "plan.toml", "--out", run, "--jobs", "2000"], "1024"),
        (&["data", "inspect", text(&broken)], "broken.hdf5"),
        (&["evaluate", directory.path().to_str().unwrap(), "--env", "nav/hazard"], "run directory"),
    ];
    for (arguments, expected) in cases {
        let output = coptidice(arguments);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
        assert!(message.contains(expected), "{arguments:?} should name {expected}: {message}");
        assert!(!message.contains("panicked"), "{message}");
    }
}

#[test]
fn what_a_log_leaves_open_is_said_by_flags() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log.csv");
    let rows: Vec<String> = (0..40).map(|i| format!("{i}.5,{},1.0,0", i % 3)).collect();
    std::fs::write(&log, format!("state_x,action,reward,cost\n{}\n", rows.join("\n"))).unwrap();
    let inspect =
        |more: &[&str]| json(&coptidice(&[&["data", "inspect", text(&log), "--json"], more].concat()));
    let codes = |found: &serde_json::Value| found["problems"].to_string();
    assert!(codes(&inspect(&[])).contains("--episode-length"), "the message names the flag");
    let found = inspect(&["--episode-length", "10"]);
    assert_eq!((&found["episodes"], &found["action"]["count"]), (&4.into(), &3.into()));
    assert!(!codes(&found).contains("no-episode-ends"));
    let found = inspect(&["--episode-length", "10", "--action-kind", "continuous", "--max-magnitude", "20"]);
    assert_eq!(found["action"], serde_json::json!({ "kind": "continuous", "dim": 1 }));
    assert!(codes(&found).contains("extreme-value"));

    // Repair and training take the same flags.
    let (mended, run) = (directory.path().join("mended.parquet"), directory.path().join("run"));
    let repaired =
        coptidice(&["data", "repair", text(&log), "--to", text(&mended), "--episode-length", "10"]);
    assert!(repaired.status.success(), "{}", String::from_utf8_lossy(&repaired.stderr));
    let mut training = vec!["train", text(&log), "--algo", "bc", "--steps", "3", "--out", text(&run)];
    training.extend(SMALL);
    assert_eq!(coptidice(&training).status.code(), Some(2));
    training.extend(["--episode-length", "10"]);
    let trained = coptidice(&training);
    assert!(trained.status.success(), "{}", String::from_utf8_lossy(&trained.stderr));
}

#[test]
fn actions_are_scored_as_the_log_called_them() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let (observations, actions) = (at("observations.npy"), at("actions.npy"));
    ndarray_npy::write_npy(&observations, &ndarray::Array2::<f32>::from_elem((4, 1), 0.5)).unwrap();
    for (name, labels, expected) in [("ids", ["5", "7"], [5, 7]), ("words", ["act", "wait"], [0, 1])] {
        let (log, run) = (at(&format!("{name}.csv")), at(name));
        let rows: Vec<String> = (0..40).map(|i| format!("{},{i}.5,{},1.0", i / 10, labels[i % 2])).collect();
        std::fs::write(&log, format!("episode,state_x,action,reward\n{}\n", rows.join("\n"))).unwrap();
        let mut training = vec!["train", text(&log), "--algo", "bc", "--steps", "3", "--out", text(&run)];
        training.extend(SMALL);
        assert!(coptidice(&training).status.success());
        let acted = coptidice(&[
            "act",
            text(&run),
            "--observations",
            text(&observations),
            "--to",
            text(&actions),
            "--overwrite",
        ]);
        assert!(acted.status.success(), "{}", String::from_utf8_lossy(&acted.stderr));
        let chosen: ndarray::Array1<i64> = ndarray_npy::read_npy(&actions).unwrap();
        assert!(chosen.iter().all(|id| expected.contains(id)), "{name}: {chosen}");
        assert_eq!(String::from_utf8_lossy(&acted.stderr).contains("act, wait"), name == "words");
    }
}

#[test]
fn limits_that_no_episode_keeps_are_remarked() {
    let directory = tempfile::tempdir().unwrap();
    let (log, run) = (write_log(directory.path()), directory.path().join("run"));
    let text_of_log = std::fs::read_to_string(&log).unwrap();
    let costly: Vec<String> = text_of_log
        .lines()
        .enumerate()
        .map(|(row, line)| match line.strip_suffix(",0").filter(|_| row % 2 == 1) {
            Some(harmless) => format!("{harmless},1"),
            None => line.to_owned(),
        })
        .collect();
    std::fs::write(&log, costly.join("\n")).unwrap();
    let mut arguments =
        vec!["train", text(&log), "--limit", "0", "--limit-unit", "step", "--out", text(&run)];
    arguments.extend(["--steps", "3"]);
    arguments.extend(SMALL);
    let output = coptidice(&arguments);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "the policy costs something, and says so: {said}");
    assert!(said.contains("not one to deploy") && stdout(&output).contains("OVER the limit"), "{said}");
    assert!(run.join("policy.safetensors").exists(), "it is there to be looked at");
    let page = String::from_utf8(bytes(&run, "report.html")).unwrap();
    for code in ["zero-limit", "all-above-limit"] {
        assert!(said.contains(code) && page.contains(code), "{code}: {said}");
    }
}

#[cfg(unix)]
#[test]
fn an_interrupt_leaves_a_checkpoint_and_a_report_can_be_written() {
    let directory = tempfile::tempdir().unwrap();
    let (log, run) = (write_log(directory.path()), directory.path().join("run"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_coptidice"));
    command.args(train_arguments(text(&log), text(&run), "1000000", "1"));
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let metrics = run.join("metrics.jsonl");
    let begun = std::time::Instant::now();
    while std::fs::metadata(&metrics).map_or(true, |file| file.len() == 0) {
        assert!(begun.elapsed() < Duration::from_secs(120), "training begins");
        std::thread::sleep(Duration::from_millis(50));
    }
    let interrupted = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(interrupted.success());
    let output = child.wait_with_output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("--resume"), "{message}");
    assert!(std::fs::read_dir(run.join("checkpoints")).unwrap().count() > 0);
    assert!(coptidice(&["report", text(&run)]).status.success());

    // It goes on only as what it was.
    let mut other = train_arguments(text(&log), text(&run), "1000000", "1");
    other.extend(["--set", "alpha=0.3", "--resume"]);
    let refused = coptidice(&other);
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{message}");
}

#[test]
fn quickstart_replaces_only_what_it_made() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    let arguments = ["quickstart", "--steps", "20", "--out", text(&out)];
    let first = coptidice(&arguments);
    assert!(first.status.success(), "{}", String::from_utf8_lossy(&first.stderr));
    let page = String::from_utf8(bytes(&out.join("coptidice"), "report.html")).unwrap();
    assert_eq!(page.matches("<h2>Evaluation</h2>").count(), 1, "one section compares the policies");
    assert!(page.contains("Paths over the map"));
    assert!(coptidice(&["report", text(&out.join("coptidice"))]).status.success());
    assert_eq!(bytes(&out.join("coptidice"), "report.html"), page.as_bytes(), "drawn again from the run");
    // What one that was killed at once leaves behind.
    for leftover in ["bc.part/quickstart.draft", "bc.part/config.toml", "coptidice.part/.coptidice-x1"] {
        std::fs::create_dir_all(out.join(leftover).parent().unwrap()).unwrap();
        std::fs::write(out.join(leftover), "").unwrap();
    }
    // And one that was killed while it put a run into its place.
    std::fs::rename(out.join("bc"), out.join("bc.former")).unwrap();
    let again = coptidice(&arguments);
    assert!(out.join("bc/policy.onnx").exists() && !out.join("bc.former").exists());
    assert!(again.status.success() && String::from_utf8_lossy(&again.stderr).contains("replacing"));
    assert!(!out.join("bc.part").exists() && !out.join("coptidice.part").exists());

    // One that is stopped leaves the former runs as they are, and does not hinder the next.
    let mut stopped = Command::new(env!("CARGO_BIN_EXE_coptidice"))
        .args(["quickstart", "--steps", "1000000", "--out", text(&out)])
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts");
    let draft = out.join("bc.part").join("manifest.json");
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    while !draft.exists() && std::time::Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    let beside = coptidice(&arguments);
    assert_eq!(beside.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&beside.stderr).contains("another quickstart"));
    assert!(draft.exists(), "the draft of the first is left alone");
    stopped.kill().and_then(|()| stopped.wait()).expect("it was running");
    assert!(draft.exists(), "it was stopped while it trained");
    assert_eq!(bytes(&out.join("coptidice"), "report.html"), page.as_bytes(), "the same command and seed");
    assert!(coptidice(&arguments).status.success());

    std::fs::remove_file(out.join("bc/manifest.json")).unwrap();
    let refused = coptidice(&arguments);
    assert_eq!(refused.status.code(), Some(2), "{}", String::from_utf8_lossy(&refused.stderr));
    assert!(
        out.join("bc/report.html").exists() || out.join("bc/policy.onnx").exists(),
        "nothing was removed"
    );
    assert!(out.join("coptidice/report.html").exists(), "nothing was removed");
}

#[test]
fn a_run_is_never_overwritten_silently() {
    let directory = tempfile::tempdir().unwrap();
    let (log, run) = (write_log(directory.path()), directory.path().join("run"));
    train(&log, &run, "1");
    let again = coptidice(&train_arguments(text(&log), text(&run), "120", "1"));
    assert_eq!(again.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&again.stderr).contains("--resume"));
}

/// What is lost of a record is said, not passed over.
#[test]
fn gaps_in_the_record_are_remarked() {
    let directory = tempfile::tempdir().unwrap();
    let (log, run) = (write_log(directory.path()), directory.path().join("run"));
    let mut arguments = train_arguments(text(&log), text(&run), "120", "1");
    arguments.extend(["--set", "log_every=20"]);
    let trained = coptidice(&arguments);
    assert!(trained.status.success(), "{}", String::from_utf8_lossy(&trained.stderr));
    let record = run.join("metrics.jsonl");
    let whole = std::fs::read_to_string(&record).unwrap();
    let says = |word: &str| {
        let output = coptidice(&["report", text(&run)]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let page = String::from_utf8(bytes(&run, "report.html")).unwrap();
        let said = String::from_utf8_lossy(&output.stderr).contains(word);
        assert_eq!(said, page.contains(word));
        said
    };
    assert!(!says("holds nothing of"));
    for cut in [String::new(), whole[..whole.len() - 9].to_owned()] {
        std::fs::write(&record, cut).unwrap();
        assert!(says("holds nothing of the steps after"));
    }
    // A run that goes on from a checkpoint behind the end of the record.
    let kept: String = whole.lines().take(2).map(|line| format!("{line}\n")).collect();
    std::fs::write(&record, kept).unwrap();
    arguments.push("--resume");
    let resumed = coptidice(&arguments);
    assert!(resumed.status.success(), "{}", String::from_utf8_lossy(&resumed.stderr));
    assert!(String::from_utf8_lossy(&resumed.stderr).contains("metrics.jsonl ends at step 40"));
    assert!(says("holds nothing of the steps after 40 up to 120"));
}

#[test]
fn words_fit_what_was_found() {
    let directory = tempfile::tempdir().unwrap();
    let (log, run) = (write_log(directory.path()), directory.path().join("run"));
    let checked = stdout(&coptidice(&["data", "validate", text(&log)]));
    let remarks = checked.lines().count() - 1;
    let plural = if remarks == 1 { "" } else { "s" };
    assert!(checked.ends_with(&format!("0 errors, {remarks} remark{plural}\n")), "{checked}");
    // Behaviour cloning has no figures of which anything could be said.
    let mut arguments = vec!["train", text(&log), "--algo", "bc", "--out", text(&run), "--steps", "2"];
    arguments.extend(SMALL);
    let output = coptidice(&arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!stdout(&output).contains("optimiser's figures"), "{}", stdout(&output));
}
