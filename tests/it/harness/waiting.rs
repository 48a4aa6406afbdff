//! Waiting for an effect. No test bounds how long something takes: a machine may stall for a while.

use std::fmt::Display;
use std::time::Duration;

/// How long a test waits for what must come.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);
/// The wait between two looks.
const PAUSE: Duration = Duration::from_millis(10);

/// Waits until a condition holds.
#[track_caller]
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    found(|| if holds() { Ok(()) } else { Err(what) });
}

/// Waits until there is a value, and returns it. The failure of the test names the last error.
#[track_caller]
pub(crate) fn found<T, E: Display>(find: impl FnMut() -> Result<T, E>) -> T {
    found_within(PATIENCE, find)
}

/// As [`found`], with another patience.
#[track_caller]
pub(crate) fn found_within<T, E: Display>(patience: Duration, find: impl FnMut() -> Result<T, E>) -> T {
    tried(patience, find).unwrap_or_else(|missing| panic!("not in time: {missing}"))
}

/// Looks for a value again and again. Returns the last error after this time.
#[expect(clippy::disallowed_methods, reason = "what is awaited happens in real time")]
pub(crate) fn tried<T, E>(time: Duration, mut find: impl FnMut() -> Result<T, E>) -> Result<T, E> {
    let begun = std::time::Instant::now();
    loop {
        let found = find();
        let left = time.saturating_sub(begun.elapsed());
        if found.is_ok() || left.is_zero() {
            return found;
        }
        std::thread::sleep(PAUSE.min(left));
    }
}
