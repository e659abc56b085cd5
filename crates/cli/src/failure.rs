//! How a command ends badly, and with which exit code.

use std::path::Path;
use std::process::ExitCode;

use coptidice_sim::SimError;

/// A command that did not do what was asked.
pub(crate) enum Failure {
    /// Wrong usage or unusable input: exit code 2.
    Input(Explained),
    /// The work itself failed: exit code 1.
    Work(Explained),
    /// There is no policy that may be deployed: exit code 3. Everything has been printed already.
    DoNotDeploy,
    /// No policy keeps the limits, for the reason given: exit code 3.
    NoPolicy(Explained),
}

/// A message with an optional remedy.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
#[error("{message}")]
pub(crate) struct Explained {
    message: String,
    #[help]
    remedy: Option<String>,
}

/// What a command returns.
pub(crate) type Done = Result<(), Failure>;

impl Failure {
    /// Unusable input, with the whole chain of causes in the message.
    pub(crate) fn input(error: &dyn std::error::Error) -> Self {
        Failure::Input(Explained { message: chain(error), remedy: None })
    }

    /// Unusable input described here, with what to do about it.
    pub(crate) fn usage(message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Failure::Input(Explained { message: message.into(), remedy: Some(remedy.into()) })
    }

    /// Work that failed for no fault of the input.
    pub(crate) fn work(error: &dyn std::error::Error) -> Self {
        Failure::Work(Explained { message: chain(error), remedy: None })
    }

    /// Work that failed, described here.
    pub(crate) fn work_because(message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Failure::Work(Explained { message: message.into(), remedy: Some(remedy.into()) })
    }

    /// Limits that no policy keeps.
    pub(crate) fn infeasible(limit: &coptidice_agents::InfeasibleLimit) -> Self {
        let remedy = coptidice_agents::InfeasibleLimit::REMEDY.to_owned();
        Failure::NoPolicy(Explained { message: limit.to_string(), remedy: Some(remedy) })
    }

    /// A file that could not be written.
    pub(crate) fn writing(path: &Path, error: &dyn std::error::Error) -> Self {
        Failure::Work(Explained { message: format!("{}: {}", path.display(), chain(error)), remedy: None })
    }

    /// Prints the failure on stderr and gives the exit code.
    pub(crate) fn report(self) -> ExitCode {
        let (code, explained) = match self {
            Failure::Input(explained) => (2, explained),
            Failure::Work(explained) => (1, explained),
            Failure::NoPolicy(explained) => (3, explained),
            Failure::DoNotDeploy => return ExitCode::from(3),
        };
        eprintln!("{:?}", miette::Report::new(explained));
        ExitCode::from(code)
    }
}

/// Of a simulation under way: what was asked for has been looked at before.
impl From<SimError> for Failure {
    fn from(error: SimError) -> Self {
        Failure::work(&error)
    }
}

/// The error and its causes on one line, leaving out a cause that the message before already ends with.
fn chain(error: &dyn std::error::Error) -> String {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let text = inner.to_string();
        if !message.contains(&text) {
            message.push_str(": ");
            message.push_str(&text);
        }
        cause = inner.source();
    }
    message
}
