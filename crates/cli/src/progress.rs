//! Progress of long work: a bar on a terminal, a plain line now and then elsewhere. Always on stderr.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Shows how far a piece of work has come.
pub(crate) struct Progress {
    bar: ProgressBar,
    plain: bool,
    total: u64,
    next_line: u64,
}

impl Progress {
    /// Work of `total` units, called `what`.
    pub(crate) fn new(total: u64, what: &'static str) -> Self {
        let plain = !std::io::stderr().is_terminal();
        let bar = ProgressBar::with_draw_target(
            Some(total),
            if plain { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr_with_hz(4) },
        );
        let style = ProgressStyle::with_template("{prefix} {bar:30} {pos}/{len} {eta} {msg}")
            .expect("the template is a constant");
        bar.set_style(style);
        bar.set_prefix(what);
        Progress { bar, plain, total, next_line: 0 }
    }

    /// `done` units are finished; `note` says how things stand.
    pub(crate) fn set(&mut self, done: u64, note: impl FnOnce() -> String) {
        if !self.plain {
            self.bar.set_position(done);
            self.bar.set_message(note());
        } else if done >= self.next_line {
            eprintln!("{} {done}/{} {}", self.bar.prefix(), self.total, note());
            self.next_line = done + (self.total / 10).max(1);
        }
    }

    /// Removes the bar.
    pub(crate) fn finish(self) {
        self.bar.finish_and_clear();
    }
}
