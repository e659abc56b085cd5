//! What goes to stdout.

use std::io::Write as _;
use std::path::Path;

use serde::Serialize;

use crate::failure::{Done, Failure};

/// Prints one JSON object on one line.
pub(crate) fn json(value: &impl Serialize) -> Done {
    let text = serde_json::to_string(value).map_err(|error| Failure::work(&error))?;
    line(&text)
}

/// Prints text and a newline. A reader that stopped listening (`| head`) is no failure.
pub(crate) fn line(text: &str) -> Done {
    let mut stdout = std::io::stdout().lock();
    match writeln!(stdout, "{text}").and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(Failure::work(&error)),
        _ => Ok(()),
    }
}

/// Refuses a file to write that is there already, unless it may be replaced.
pub(crate) fn check_target(path: &Path, overwrite: bool) -> Done {
    if overwrite || !path.exists() {
        return Ok(());
    }
    Err(Failure::usage(
        format!("{}: exists already", path.display()),
        "choose another name, or replace it by --overwrite",
    ))
}

/// The command as a reader would type it, wherever the program lies.
pub(crate) fn command_line() -> String {
    std::iter::once("coptidice".to_owned()).chain(std::env::args().skip(1)).collect::<Vec<_>>().join(" ")
}
