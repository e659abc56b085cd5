//! Examples of the crates as programs whose figures a habit collects.

use std::process::Command;

use serde_json::Value;

use crate::{Failure, cargo_path};

/// An example of a crate, in release mode.
pub(crate) struct Example<'a> {
    /// The crate.
    pub(crate) package: &'a str,
    /// The example.
    pub(crate) name: &'a str,
    /// Features of the crate.
    pub(crate) features: &'a [&'a str],
}

impl Example<'_> {
    /// Builds it.
    pub(crate) fn build(&self) -> Result<(), Failure> {
        crate::cargo(&self.arguments("build"))
    }

    /// Runs it and gives what it printed.
    pub(crate) fn run(&self, arguments: &[String]) -> Result<String, Failure> {
        let mut command = Command::new(cargo_path());
        output(command.args(self.arguments("run")).arg("--").args(arguments))
    }

    /// Runs it and gives the JSON object on the last line.
    pub(crate) fn measure(&self, arguments: &[String]) -> Result<Value, Failure> {
        parse(&self.run(arguments)?)
    }

    fn arguments(&self, verb: &'static str) -> Vec<&str> {
        let mut arguments =
            vec![verb, "--release", "--quiet", "--package", self.package, "--example", self.name];
        for feature in self.features {
            arguments.extend(["--features", feature]);
        }
        arguments
    }
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
