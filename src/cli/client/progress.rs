//! Status lines on stderr: the progress of a long input, and what a command is waiting for.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use deltaq_runtime::clock::Clock;

/// Time before progress is shown, so that a short input shows none.
const QUIET: Duration = Duration::from_millis(500);
/// Time between two changes of the line.
const INTERVAL: Duration = Duration::from_millis(100);
/// Width of the bar in characters.
const BAR: u64 = 20;

/// A line on stderr that is updated in place. Nothing is shown if stderr is not a terminal.
#[derive(Debug)]
pub(super) struct StatusLine {
    is_terminal: bool,
    is_shown: bool,
}

impl StatusLine {
    pub(super) fn new() -> Self {
        Self { is_terminal: io::stderr().is_terminal(), is_shown: false }
    }

    /// Replaces the text of the line.
    pub(super) fn show(&mut self, text: &str) {
        if self.is_terminal {
            self.is_shown = true;
            let _cosmetic = write!(io::stderr(), "\r\x1b[K{text}");
        }
    }

    /// Removes the line.
    pub(super) fn clear(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            let _cosmetic = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

impl Drop for StatusLine {
    fn drop(&mut self) {
        self.clear();
    }
}

/// A status line that shows how much has been sent.
#[derive(Debug)]
pub(super) struct Progress {
    line: StatusLine,
    clock: Clock,
    started_us: u64,
    shown_us: Option<u64>,
    length: Option<u64>,
}

impl Progress {
    /// Starts measuring now. `length` is the length of the input in bytes, if it is known.
    pub(super) fn new(clock: &Clock, length: Option<u64>) -> Self {
        let started_us = clock.monotonic_us();
        Self { line: StatusLine::new(), clock: clock.clone(), started_us, shown_us: None, length }
    }

    /// Shows that this many objects and bytes were sent.
    pub(super) fn show(&mut self, objects: u64, bytes: u64) {
        let took = self.clock.since(self.started_us);
        let is_due = self.shown_us.is_none_or(|shown_us| self.clock.since(shown_us) >= INTERVAL);
        if took >= QUIET && is_due {
            self.shown_us = Some(self.clock.monotonic_us());
            self.line.show(&line(objects, bytes, self.length, took));
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rate is shown with three digits")]
fn line(objects: u64, bytes: u64, length: Option<u64>, took: Duration) -> String {
    let mib = bytes as f64 / f64::from(1 << 20);
    let rate = objects as f64 / took.as_secs_f64();
    let text = format!("{objects} objects, {mib:.1} MiB, {rate:.0}/s");
    let Some(length) = length.filter(|length| *length > 0) else { return text };
    let share = |of: u64| bytes.min(length).saturating_mul(of) / length;
    let done = usize::try_from(share(BAR)).unwrap_or_default();
    let rest = usize::try_from(BAR).unwrap_or_default().saturating_sub(done);
    format!("[{}{}] {:>3} %  {text}", "=".repeat(done), " ".repeat(rest), share(100))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_shows_the_share_of_a_known_length() {
        let took = Duration::from_secs(2);
        let expected = "[==========          ]  50 %  3000 objects, 1.0 MiB, 1500/s";
        assert_eq!(line(3_000, 1 << 20, Some(2 << 20), took), expected);
        assert_eq!(line(3_000, 1 << 20, None, took), "3000 objects, 1.0 MiB, 1500/s");
    }
}
