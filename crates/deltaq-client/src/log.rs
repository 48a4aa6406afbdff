//! What no caller gets as an error: calls that are repeated, failures of handlers, parked keys.

use std::collections::HashMap;
use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::call::Call;
use crate::error::Error;
use crate::retry::RetryOptions;

/// The time between two warnings about one row of failures.
const ROW_EVERY: Duration = Duration::from_mins(1);
/// The number of rows that are remembered.
const ROWS_MAX: usize = 1_000;

/// How important a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Something is over, such as a row of failures.
    Info,
    /// Somebody should look at it.
    Warning,
}

type Write = Arc<dyn Fn(Level, &str) + Send + Sync>;

/// Where a client writes what no caller gets as an error; by default standard error. A worker or an informer with an observer
/// of its own (`on_notice`) writes nothing.
///
/// A call that is repeated because no server answers is a warning, then at most one a minute while this goes on, and one line
/// when the server answers again.
#[derive(Clone)]
pub struct Log(Write);

impl Log {
    /// Calls a function with each line, for example to pass it to a logger. The function must not block.
    pub fn new(write: impl Fn(Level, &str) + Send + Sync + 'static) -> Self {
        Self(Arc::new(write))
    }

    /// Writes nothing.
    #[must_use]
    pub fn none() -> Self {
        Self::new(|_, _| {})
    }

    pub(crate) fn warn(&self, line: &str) {
        (self.0)(Level::Warning, line);
    }
}

impl Default for Log {
    fn default() -> Self {
        Self::new(|level, line| match level {
            Level::Info => eprintln!("deltaq: {line}"),
            Level::Warning => eprintln!("deltaq: warning: {line}"),
        })
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").finish_non_exhaustive()
    }
}

/// Calls that fail and are repeated. A row belongs to a kind of call, such as the pops of a queue, so many calls that fail at
/// once are one row.
#[derive(Debug)]
pub(crate) struct Rows {
    pub(crate) log: Log,
    /// The number of rows, so that calls that succeed need no lock.
    count: AtomicUsize,
    /// The time of the last warning of each row.
    warned: Mutex<HashMap<String, Instant>>,
}

impl Rows {
    pub(crate) fn new(log: Log) -> Self {
        Self { log, count: AtomicUsize::new(0), warned: Mutex::default() }
    }

    /// Whether any row goes on.
    pub(crate) fn is_open(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// A call has failed and is repeated, without end or as the options say.
    pub(crate) fn failed(&self, row: &str, error: &Error, limit: Option<&RetryOptions>) {
        let now = Instant::now();
        let mut warned = self.warned.lock();
        if warned.get(row).is_some_and(|last| now.duration_since(*last) < ROW_EVERY) {
            return;
        }
        if warned.len() >= ROWS_MAX {
            warned.clear();
        }
        warned.insert(row.to_owned(), now);
        self.count.store(warned.len(), Ordering::Relaxed);
        drop(warned);
        let limit = limit.map_or(String::new(), |retry| format!(" for up to {:?}", retry.total));
        self.log.warn(&format!("{}; {row} is repeated{limit}", chain(error)));
    }

    /// The server has answered a call.
    pub(crate) fn answered(&self, row: &str) {
        if !self.is_open() {
            return;
        }
        let mut warned = self.warned.lock();
        let was_failing = warned.remove(row).is_some();
        self.count.store(warned.len(), Ordering::Relaxed);
        drop(warned);
        if was_failing {
            (self.log.0)(Level::Info, &format!("the server answers again: {row} has a reply"));
        }
    }
}

/// Names the calls whose failures are logged together. It has no key and no id.
pub(crate) fn row(call: &Call) -> String {
    let name = Some(call.name()).filter(|name| !name.is_empty()).unwrap_or(call.method.as_str());
    match call.queue() {
        Some(queue) => format!("the {name} of the queue {queue:?}"),
        None => format!("the call {name}"),
    }
}

/// An error with its causes.
pub(crate) fn chain(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_row_of_failures_is_logged_once_a_minute() {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let seen = lines.clone();
        let rows = Rows::new(Log::new(move |level, line| seen.lock().push(format!("{level:?} {line}"))));
        let taken = || std::mem::take(&mut *lines.lock());
        let pop = row(&Call::on_queue(Method::POST, "q", ["pop"]).query("id", Some("secret")));
        let error = Error::Connect { address: "http://localhost:7998".to_owned(), source: "refused".into() };
        rows.answered(&pop);
        for _ in 0..120 {
            rows.failed(&pop, &error, None);
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        let line =
            "Warning can't connect to http://localhost:7998: refused; the pop of the queue \"q\" is repeated";
        assert_eq!(taken(), [line, line]);
        rows.failed("the info", &error, Some(&RetryOptions::default()));
        assert_eq!(
            taken(),
            ["Warning can't connect to http://localhost:7998: refused; the info is repeated for up to 120s"]
        );
        rows.answered(&pop);
        rows.answered(&pop);
        assert_eq!(taken(), ["Info the server answers again: the pop of the queue \"q\" has a reply"]);
        rows.failed(&pop, &error, None);
        assert_eq!(taken(), [line], "a new row");
        for number in 0..3 * ROWS_MAX {
            rows.failed(&number.to_string(), &error, None);
        }
        assert!(rows.warned.lock().len() <= ROWS_MAX);
    }
}
