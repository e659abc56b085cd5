//! `collect`: pools of policies.

use std::path::Path;
use std::process::{Command, Output};

/// Settings under which an episode and its updates take a fraction of a second unoptimised.
const SMALL: &[&str] = &[
    "--set",
    "batch_size=16",
    "--set",
    "action_samples=4",
    "--set",
    "warmup_steps=1000",
    "--set",
    "steps_per_update=100",
    "--set",
    "policy=[{kind = \"dense\", width = 8, layer_norm = true, activation = \"tanh\"}]",
    "--set",
    "critic=[{kind = \"dense\", width = 8, layer_norm = true, activation = \"tanh\"}]",
];

fn collect(out: &Path, env: &str, more: &[&str]) -> Output {
    let out = out.to_str().expect("the path is UTF-8");
    let arguments = ["collect", "--env", env, "--out", out, "--checkpoint-every", "1000", "--episodes", "2"];
    Command::new(env!("CARGO_BIN_EXE_coptidice"))
        .args(arguments)
        .args(SMALL)
        .args(more)
        .output()
        .expect("the program starts")
}

/// What went to stderr, without the frame and the line breaks of a report.
fn complaint(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).replace('│', " ").split_whitespace().collect::<Vec<_>>().join(" ")
}

fn pool(out: &Path) -> serde_json::Value {
    let text = std::fs::read_to_string(out.join("pool.json")).expect("a pool");
    serde_json::from_str(&text).expect("JSON")
}

const CART_POLE: &str = "rwrl/cartpole-swingup";

#[test]
fn a_pool_has_a_policy_for_every_limit_and_checkpoint_and_can_be_extended() {
    let folder = tempfile::tempdir().expect("a folder");
    let (out, at_once) = (folder.path().join("pool"), folder.path().join("at-once"));
    let first = collect(&out, CART_POLE, &["--limits", "0.05,0.2", "--steps", "1000"]);
    assert!(first.status.success(), "{}", complaint(&first));
    assert_eq!(pool(&out)["members"].as_array().expect("a list").len(), 2);
    let then = collect(&out, CART_POLE, &["--limits", "0.05,0.2", "--steps", "2000"]);
    assert!(then.status.success(), "{}", complaint(&then));
    let more = collect(&at_once, CART_POLE, &["--limits", "0.05,0.2", "--steps", "2000", "--threads", "2"]);
    assert!(more.status.success(), "{}", complaint(&more));
    assert_eq!(pool(&out), pool(&at_once));
    let pool = pool(&out);
    let members = pool["members"].as_array().expect("a list");
    let order: Vec<_> = members.iter().map(|m| (m["limit"].as_f64(), m["steps"].as_u64())).collect();
    let expected = [0.05, 0.2].map(|limit| [1000, 2000].map(|steps| (Some(limit), Some(steps))));
    assert_eq!(order, expected.concat());
    for member in members {
        let policy = member["policy"].as_str().expect("a path");
        assert!(out.join(policy).is_file());
        assert_eq!(member["cost_per_step"].as_array().map(Vec::len), Some(1));
        assert_eq!((&member["episodes"], &member["seed"]), (&2.into(), &0.into()));
        let earned = member["return_mean"].as_f64().expect("a number");
        assert!((0.0..1000.0).contains(&earned));
    }
}

#[test]
fn what_cannot_be_meant_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path();
    let refused = |env: &str, more: &[&str]| {
        let output = collect(out, env, more);
        assert_eq!(output.status.code(), Some(2), "{}", complaint(&output));
        complaint(&output)
    };
    assert!(refused("nowhere", &["--limits", "0.1"]).contains("no environment"));
    assert!(refused(CART_POLE, &["--limits", "0.1", "--set", "gamma=1"]).contains("gamma = 1"));
    assert!(refused(CART_POLE, &["--limits", "0.1", "--set", "gama=0.9"]).contains("gama"));
    assert!(refused(CART_POLE, &[]).contains("--limits"));
    let begun = collect(out, CART_POLE, &["--limits", "0.1", "--steps", "1000"]);
    assert!(begun.status.success(), "{}", complaint(&begun));
    let tight = refused(CART_POLE, &["--limits", "0.1", "--steps", "1000", "--safety-coeff", "0.2"]);
    assert!(tight.contains("other parameters"), "{tight}");
    let other = refused(CART_POLE, &["--limits", "0.1", "--steps", "2000", "--set", "gamma=0.9"]);
    assert!(other.contains("gamma"), "{other}");
}
