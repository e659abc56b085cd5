//! Sweeps: the same numbers in one piece, in shards and resumed; never a table of two descriptions.

use std::path::Path;
use std::process::{Command, Output};

const PLAN: &str = r#"
title = "A small sweep"
environment = "nav/hazard"
episodes = 2
seeds = [0, 1]
limit = 0.02
limit_unit = "step"

[settings]
steps = 12
batch_size = 8
networks.value = [{ kind = "dense", width = 4, layer_norm = false, activation = "tanh" }]
networks.policy = [{ kind = "dense", width = 4, layer_norm = false, activation = "tanh" }]

[[logs]]
name = "half"
hazard = { share_safe = 0.5, episodes = 6, seed = 0 }

[[variants]]
name = "bc"
settings = { algo = "bc" }

[[variants]]
name = "coptidice"
settings = { algo = "coptidice" }
"#;

fn sweep(plan: &Path, out: &Path, more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_coptidice"));
    command.arg("sweep").arg(plan).arg("--out").arg(out).args(more);
    command.output().expect("the program starts")
}

fn table(out: &Path) -> String {
    std::fs::read_to_string(out.join("results.csv")).expect("a table")
}

#[test]
fn shards_make_the_same_table_and_other_settings_are_refused() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let plan = directory.path().join("plan.toml");
    std::fs::write(&plan, PLAN).expect("a plan");
    let (whole, parts) = (directory.path().join("whole"), directory.path().join("parts"));
    let good =
        |output: Output| assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    good(sweep(&plan, &whole, &["--jobs", "2"]));
    good(sweep(&plan, &parts, &["--shard", "2/2"]));
    assert_ne!(table(&whole), table(&parts), "half of the cells are missing");
    good(sweep(&plan, &parts, &["--shard", "1/2", "--jobs", "1"]));
    assert_eq!(table(&whole), table(&parts));
    // bc and coptidice, two seeds each.
    assert_eq!(table(&whole).lines().count(), 3);
    assert!(table(&whole).contains("half,coptidice,2,2,"), "{}", table(&whole));

    for (from, to) in [("steps = 12", "steps = 13"), ("share_safe = 0.5", "share_safe = 0.6")] {
        std::fs::write(&plan, PLAN.replace(from, to)).expect("another plan");
        let refused = sweep(&plan, &whole, &[]);
        let message = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(2), "{message}");
        assert!(message.contains("other settings"), "{message}");
    }
}

#[test]
fn descriptions_that_cannot_be_meant_are_refused_at_once() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let plan = directory.path().join("plan.toml");
    for (from, to, word) in [
        ("limit_unit = \"step\"", "limit_unit = \"episode\"", "per step"),
        ("seeds = [0, 1]", "seeds = []", "at least one"),
        ("seeds = [0, 1]", "seeds = [1, 1]", "twice"),
        ("episodes = 2", "episodes = 0", "at least one"),
        ("name = \"coptidice\"", "name = \"bc\"", "twice"),
        ("name = \"coptidice\"", "name = \"a/b\"", "no name"),
        ("steps = 12", "seed = 3", "itself sets seed"),
        ("nav/hazard", "nav/nowhere", "nav/nowhere"),
    ] {
        std::fs::write(&plan, PLAN.replace(from, to)).expect("a plan");
        let refused = sweep(&plan, &directory.path().join("out"), &[]);
        let message = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(2), "{to}: {message}");
        assert!(message.contains(word), "{to}: {message}");
    }
    assert!(!directory.path().join("out").exists(), "nothing was trained");
}

/// A limit that no logged step keeps is the outcome of the cells that have a limit, and of no others.
#[test]
fn a_limit_that_cannot_be_kept_is_the_outcome_of_its_cells() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (plan, out) = (directory.path().join("plan.toml"), directory.path().join("out"));
    std::fs::write(&plan, PLAN.replace("limit = 0.02", "limit = -0.02")).expect("a plan");
    let output = sweep(&plan, &out, &[]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let cell = std::fs::read_to_string(out.join("cells/half+coptidice+0.json")).expect("an outcome");
    assert!(cell.contains("\"outcome\": \"infeasible: no policy"), "{cell}");
    assert!(
        table(&out).contains("half,bc,2,2,") && table(&out).contains("half,coptidice,2,0,"),
        "{}",
        table(&out)
    );
    let page = std::fs::read_to_string(out.join("results.md")).expect("a page");
    assert!(page.contains("(0 of 2 ended; infeasible)"), "{page}");
}

/// Of shared settings a variant takes those of its extraction; its own must be of it.
#[test]
fn shared_settings_of_another_extraction_are_dropped_and_own_ones_refused() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (plan, out) = (directory.path().join("plan.toml"), directory.path().join("out"));
    let shared = PLAN.replace(
        "steps = 12\n",
        "steps = 12\ncritic = { guidance = 0.5 }\nstate_weight = { clip = 3.0 }\n\
         projection = { floor = 0.1 }\nselection = { threshold = 0.2 }\nnetworks.mixture_components = 3\n",
    );
    let with = |variant: &str| {
        format!(
            "{shared}\n[[variants]]\nname = \"weighted\"\nsettings = {{ extraction = \"weighted_bc\"{variant} }}\n"
        )
    };
    let selecting =
        "\n[[variants]]\nname = \"selecting\"\nsettings = { extraction = \"guided_selection\" }\n";
    std::fs::write(&plan, with("") + selecting).expect("a plan");
    let output = sweep(&plan, &out, &[]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for name in ["weighted", "selecting"] {
        assert!(table(&out).contains(&format!("half,{name},2,2,")), "{}", table(&out));
    }
    std::fs::write(&plan, with(", critic = { guidance = 0.7 }")).expect("a plan");
    let refused = sweep(&plan, &directory.path().join("new"), &[]);
    let message = String::from_utf8_lossy(&refused.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(refused.status.code(), Some(2), "{message}");
    assert!(message.contains("variant weighted on log half: [critic] is set"), "{message}");
    assert!(!directory.path().join("new").exists(), "nothing was trained");
}
