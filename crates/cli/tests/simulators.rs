//! The simulators' commands.

use std::path::PathBuf;
use std::process::{Command, Output};

fn coptidice(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_coptidice")).args(arguments).output().expect("the program starts")
}

/// What went to stderr, without the frame and the line breaks of a report.
fn complaint(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).replace('│', " ").split_whitespace().collect::<Vec<_>>().join(" ")
}

fn fixture(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/rwrl").join(name);
    path.to_str().expect("the path is UTF-8").to_owned()
}

/// Replays a fixture and returns what is printed.
fn replay(name: &str, env: &str, more: &[&str]) -> serde_json::Value {
    let path = fixture(name);
    let arguments = [&["sim", "replay", &path, "--env", env, "--json"], more].concat();
    let output = coptidice(&arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

fn assert_agrees(result: &serde_json::Value, steps: u64) {
    assert_eq!((&result["steps"], &result["cost_mismatches"]), (&steps.into(), &0.into()), "{result}");
    for key in ["max_abs_observation", "max_abs_reward"] {
        assert!(result[key].as_f64().is_some_and(|difference| difference <= 1e-9), "{result}");
    }
}

#[test]
fn replays_a_trace_on_the_native_cart_pole() {
    assert_agrees(&replay("cartpole.npz", "rwrl/cartpole-swingup", &[]), 400);
    // Where the constraint is another the costs are.
    let tight = replay("cartpole.npz", "rwrl/cartpole-swingup", &["--safety-coeff", "0.05"]);
    assert!(tight["cost_mismatches"].as_u64() > Some(0), "{tight}");
}

#[test]
fn parameters_that_a_task_does_not_have_are_refused() {
    let trace = fixture("cartpole.npz");
    let refused = |env: &str, more: &[&str]| {
        let output = coptidice(&[&["sim", "replay", &trace, "--env", env], more].concat());
        assert_eq!(output.status.code(), Some(2));
        complaint(&output)
    };
    let message = refused("rwrl/cartpole-swingup", &["--constraint", "slider"]);
    assert!(message.contains("slider_position") && message.contains("balance_velocity"), "{message}");
    assert!(refused("rwrl/cartpole-swingup", &["--threshold", "0"]).contains("positive"));
    assert!(refused("nav/hazard", &["--threshold", "0.1"]).contains("threshold"));
}

#[cfg(not(feature = "mujoco"))]
#[test]
fn a_program_without_mujoco_says_how_to_get_it() {
    let output = coptidice(&["sim", "replay", &fixture("walker.npz"), "--env", "rwrl/walker-walk"]);
    assert_eq!(output.status.code(), Some(2));
    let message = complaint(&output);
    assert!(message.contains("cargo xtask mujoco") && message.contains("--features mujoco"), "{message}");
    let list = String::from_utf8(coptidice(&["sim", "list"]).stdout).expect("UTF-8");
    assert_eq!(list.lines().filter(|line| line.contains("not available")).count(), 4, "{list}");
}

#[cfg(feature = "mujoco")]
#[test]
fn replays_traces_on_mujoco() {
    assert_agrees(&replay("cartpole.npz", "rwrl/cartpole-swingup-mujoco", &[]), 400);
    assert_agrees(&replay("walker.npz", "rwrl/walker-walk", &[]), 80);
    assert_agrees(&replay("quadruped.npz", "rwrl/quadruped-walk", &["--constraint", "all"]), 80);
    assert_agrees(&replay("humanoid.npz", "rwrl/humanoid-walk", &["--constraint", "all"]), 80);
}
