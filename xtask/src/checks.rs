//! Checks of the tree that are not tests.

use std::process::Command;

use crate::{Failure, cargo};

/// What would tie the project to the machine it was written on, as patterns that do not match themselves.
const FORBIDDEN: [&str; 2] = ["/(work|root)/", "[.][.]/shared"];

/// Formatting, lints, documentation, self-containedness.
pub(crate) fn run() -> Result<(), Failure> {
    cargo(&["fmt", "--all", "--check"])?;
    cargo(&["clippy", "--workspace", "--quiet", "--", "-D", "warnings"])?;
    // Helpers of tests and examples may unwrap and print, as tests themselves may.
    let relaxed = ["-A", "clippy::unwrap_used", "-A", "clippy::print_stdout"];
    let all = ["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"];
    cargo(&[&all[..], &relaxed].concat())?;
    self_contained()
}

/// Tracked text must not name paths outside the project.
fn self_contained() -> Result<(), Failure> {
    let mut found = String::new();
    for pattern in FORBIDDEN {
        let output = Command::new("git")
            .args(["grep", "-nIE", pattern, "--", ".", ":!Cargo.lock"])
            .output()
            .map_err(|error| format!("git grep: {error}"))?;
        found.push_str(&String::from_utf8_lossy(&output.stdout));
    }
    if found.is_empty() { Ok(()) } else { Err(format!("paths outside the project are named:\n{found}")) }
}
