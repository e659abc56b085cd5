//! Progress of long work: a bar on a terminal, a plain line now and then elsewhere. Always on stderr.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Shows how far a piece of work has come.
pub(crate) struct Progress {
    bar: ProgressBar,
    plain: bool,
    total: u64,
    next_line: u64,
    /// When the first report came, and how much was done by then: resumed work did not take this program's time.
    first: Option<(Instant, u64)>,
}

impl Progress {
    /// Work of `total` units, called `what`.
    pub(crate) fn new(total: u64, what: &'static str) -> Self {
        let plain = !std::io::stderr().is_terminal();
        let bar = ProgressBar::with_draw_target(
            Some(total),
            if plain { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr_with_hz(4) },
        );
        let style = ProgressStyle::with_template("{prefix} {bar:30} {pos}/{len} {msg}")
            .expect("the template is a constant");
        bar.set_style(style);
        bar.set_prefix(what);
        Progress { bar, plain, total, next_line: 0, first: None }
    }

    /// `done` units are finished; `note` says how things stand.
    pub(crate) fn set(&mut self, done: u64, note: impl FnOnce() -> String) {
        let left = self.time_left(done).map_or(String::new(), |left| format!("{} left ", duration(left)));
        if !self.plain {
            self.bar.set_position(done);
            self.bar.set_message(format!("{left}{}", note()));
        } else if done >= self.next_line {
            let line = format!("{} {done}/{} {left}{}", self.bar.prefix(), self.total, note());
            eprintln!("{}", line.trim_end());
            self.next_line = done + (self.total / 10).max(1);
        }
    }

    /// At the speed so far.
    fn time_left(&mut self, done: u64) -> Option<Duration> {
        let &mut (began, before) = self.first.get_or_insert((Instant::now(), done));
        if done <= before || done >= self.total {
            return None;
        }
        let per_unit = began.elapsed().as_secs_f64() / (done - before) as f64;
        Duration::try_from_secs_f64(per_unit * (self.total - done) as f64).ok()
    }

    /// Removes the bar.
    pub(crate) fn finish(self) {
        self.bar.finish_and_clear();
    }
}

/// "2 h 05 min", "3 min 20 s" or "8 s".
fn duration(time: Duration) -> String {
    let seconds = time.as_secs() + u64::from(time.subsec_millis() >= 500);
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, s) => format!("{s} s"),
        (0, m, s) => format!("{m} min {s:02} s"),
        (h, m, _) => format!("{h} h {m:02} min"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_well() {
        let texts = [7_400, 61_000, 3_599_700, 7_530_000].map(|ms| duration(Duration::from_millis(ms)));
        assert_eq!(texts, ["7 s", "1 min 01 s", "1 h 00 min", "2 h 05 min"]);
    }

    #[test]
    fn the_work_found_done_takes_no_time() {
        let mut progress = Progress::new(100, "test");
        assert_eq!(progress.time_left(90), None);
        assert!(progress.time_left(95).is_some_and(|left| left < Duration::from_secs(5)));
        assert_eq!(progress.time_left(100), None);
    }
}
