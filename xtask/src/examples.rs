//! Examples of the crates as programs whose figures a habit collects.

use std::process::Command;

use serde_json::Value;

use crate::{Failure, cargo_path};

/// Builds an example, in release mode.
pub(crate) fn build(package: &str, example: &str) -> Result<(), Failure> {
    crate::cargo(&["build", "--release", "--quiet", "--package", package, "--example", example])
}

/// Runs an example and gives what it printed.
pub(crate) fn run_example(package: &str, example: &str, arguments: &[String]) -> Result<String, Failure> {
    let mut command = Command::new(cargo_path());
    command.args(["run", "--release", "--quiet", "--package", package, "--example", example, "--"]);
    output(command.args(arguments))
}

/// What a program printed, or its complaint.
pub(crate) fn output(command: &mut Command) -> Result<String, Failure> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(format!("{command:?} failed:\n{}", String::from_utf8_lossy(&output.stderr)))
    }
}

/// The JSON object on the last line.
pub(crate) fn parse(text: &str) -> Result<Value, Failure> {
    let line = text.lines().last().unwrap_or_default();
    serde_json::from_str(line).map_err(|error| format!("{line:?} is not JSON: {error}"))
}
