//! The audit log: one line with a JSON object for each recorded request.
//!
//! Without a file the lines go to the log, with the target `audit`. The server does not rotate the file. logrotate
//! can move it, and SIGHUP makes the server open the path again. Requests do not wait for the disk: a task writes the
//! lines. If it falls too far behind, lines are dropped, and the number of dropped lines is written as soon as
//! possible.
//!
//! Other callers can't crowd out the lines of admins. The refusals of each caller are limited per second, see
//! `crate::suppression`, and the last quarter of the buffer is reserved for admins.
//!
//! The audit log is not the journal: it records requests, not the changes of a key.

mod activity;
mod log_file;
#[cfg(test)]
mod tests;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use deltaq_types::Timestamp;
use serde::Serialize;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use self::activity::{Activity, Entry};
use self::log_file::LogFile;
use crate::config;
use crate::suppression::Suppression;

/// Maximum number of lines in the buffer.
const LINES_MAX: usize = 65_536;
/// The part of the buffer that is reserved for admin lines.
const LINES_RESERVED: usize = LINES_MAX / 4;
/// Maximum number of lines per write.
const BATCH_MAX: usize = 1_024;
/// Minimum time between two reports of dropped lines in the log.
const REPORT_PERIOD: Duration = Duration::from_secs(1);

/// Why there is no audit log.
#[derive(Debug, thiserror::Error)]
#[error("can't write the audit log {}", path.display())]
pub struct Error {
    /// The file.
    pub path: PathBuf,
    /// The error of the operating system.
    pub source: io::Error,
}

/// A request, as a line of the audit log.
#[derive(Debug, Serialize)]
pub struct Line<'a> {
    /// The time of the response.
    #[serde(rename = "time")]
    pub at: Timestamp,
    /// The id of the request, which is also in its log line.
    pub request_id: &'a str,
    /// The name of the token, even if it has expired; absent without a token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub who: Option<&'a str>,
    /// The address and port of the client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The SHA-256 of the client's certificate, in hexadecimal digits; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
    /// The permission that the request needs; absent if it needs none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verb: Option<&'static str>,
    /// The method.
    pub method: &'a str,
    /// The route.
    pub route: &'a str,
    /// The operation, if the call is in the activity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<&'static str>,
    /// The queue of the path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<&'a str>,
    /// The number of keys, items or leases in the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys: Option<u64>,
    /// `ok`, the code of the problem, or `gone` if the client disconnected before the response.
    pub outcome: &'static str,
    /// The status of the response; absent if the client disconnected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
}

/// Which limit applies to a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// An authorized request that needs `admin`. It may use the reserved part of the buffer.
    Admin,
    /// Any other authorized request.
    Call,
    /// A refusal: an unauthorized request, or a request that exceeds a limit of the server. Refusals cost the caller
    /// nothing, so they are limited per caller and second.
    Refusal,
}

/// Replaces lines that could not be written.
#[derive(Serialize)]
struct LostLine {
    lost: u64,
}

/// Replaces refusals that exceeded the limit of their caller.
#[derive(Serialize)]
struct SuppressedLine<'a> {
    time: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    who: Option<&'a str>,
    suppressed: u64,
}

/// The audit log. Clones share one log.
#[derive(Clone, Debug, Default)]
pub struct Audit {
    /// `None` writes to the log.
    file: Option<Lines>,
    /// Whether every request is recorded. Otherwise only refused requests, requests that need `admin` and requests that set thresholds of sources are.
    pub all: bool,
    suppression: Arc<Suppression>,
    suppressed: Arc<AtomicU64>,
    activity: Arc<Activity>,
}

/// The buffer of lines for the file.
#[derive(Clone, Debug)]
struct Lines {
    sender: Sender<String>,
    shared: Arc<Shared>,
}

/// State that is shared with the writer outside the buffer, because the buffer may be full while the disk is stalled.
#[derive(Debug, Default)]
struct Shared {
    /// Dropped lines that the file does not mention yet.
    unreported: AtomicU64,
    /// All dropped lines since the start.
    lost: AtomicU64,
    /// Whether the writer must open the file again.
    must_reopen: AtomicBool,
}

/// The task that writes the file.
#[derive(Debug)]
pub struct Writer {
    lines: Receiver<String>,
    shared: Arc<Shared>,
    file: LogFile,
}

/// A failed write of a batch.
#[derive(Debug)]
struct Failed {
    lines: u64,
    error: io::Error,
}

/// Reports failed writes in the log: the first one immediately, later ones at most once per [`REPORT_PERIOD`].
#[derive(Debug, Default)]
struct Failures {
    /// Number of lines that have not been reported yet.
    lines: u64,
    /// The last error, if it has not been reported yet.
    error: Option<io::Error>,
    /// The earliest time of the next report; `None` while writes succeed.
    due: Option<Instant>,
}

impl Audit {
    /// Opens the audit log, and returns it with the task that writes its file.
    ///
    /// # Errors
    /// [`Error`] if the file can't be opened.
    pub fn open(settings: &config::Audit) -> Result<(Self, Option<Writer>), Error> {
        let all = settings.calls == config::AuditCalls::All;
        let Some(path) = &settings.file else { return Ok((Self { all, ..Self::default() }, None)) };
        let file = LogFile::open(path.clone()).map_err(|source| Error { path: path.clone(), source })?;
        let activity = Arc::<Activity>::default();
        if let Err(error) = log_file::lines(path, |line| activity.restore(line)) {
            tracing::warn!(%error, path = %path.display(), "can't read the audit log: the activity lacks earlier calls");
        }
        let (sender, lines) = mpsc::channel(LINES_MAX);
        let shared = Arc::<Shared>::default();
        let writer = Writer { lines, shared: shared.clone(), file };
        Ok((Self { file: Some(Lines { sender, shared }), all, activity, ..Self::default() }, Some(writer)))
    }

    /// Records a request of this caller. `line` is not called for a suppressed refusal.
    pub fn record<'a>(&self, class: Class, who: Option<&str>, line: impl FnOnce() -> Line<'a>) {
        if class == Class::Refusal && !self.suppression.admits(who) {
            return;
        }
        let line = line();
        self.activity.add(&line);
        let Some(file) = &self.file else {
            tracing::info!(
                target: "audit",
                request_id = line.request_id,
                who = line.who,
                from = line.from,
                certificate = line.certificate,
                verb = line.verb,
                operation = line.operation,
                method = line.method,
                route = line.route,
                queue = line.queue,
                keys = line.keys,
                outcome = line.outcome,
                status = line.status,
                "audit"
            );
            return;
        };
        file.push(class, &line);
    }

    /// Records how many refusals were suppressed since the last call, and begins the next period.
    pub fn record_suppressed(&self, time: &str) {
        for (who, suppressed) in self.suppression.take() {
            self.suppressed.fetch_add(suppressed, Ordering::Relaxed);
            let who = who.as_deref();
            if let Some(file) = &self.file {
                // At most one line per caller and period, so it may use the reserved part of the buffer.
                file.push(Class::Admin, &SuppressedLine { time, who, suppressed });
            } else {
                tracing::info!(target: "audit", who, suppressed, "audit");
            }
        }
    }

    /// The last calls of operators.
    #[must_use]
    pub fn activity(&self) -> &Activity {
        &self.activity
    }

    /// The number of lines dropped since the start.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.file.as_ref().map_or(0, |file| file.shared.lost.load(Ordering::Relaxed))
    }

    /// The number of refusals suppressed from the start to the last [`record_suppressed`](Self::record_suppressed).
    #[must_use]
    pub fn suppressed(&self) -> u64 {
        self.suppressed.load(Ordering::Relaxed)
    }

    /// Makes the writer open the file again before its next line. Returns immediately.
    pub fn reopen(&self) {
        if let Some(file) = &self.file {
            file.shared.must_reopen.store(true, Ordering::Relaxed);
        }
    }
}

impl Lines {
    fn push(&self, class: Class, line: &impl Serialize) {
        let has_room = class == Class::Admin || self.sender.capacity() > LINES_RESERVED;
        let text = serde_json::to_string(line).unwrap_or_default() + "\n";
        if !has_room || self.sender.try_send(text).is_err() {
            self.shared.unreported.fetch_add(1, Ordering::Relaxed);
            self.shared.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Writer {
    /// Writes lines until `closing` is cancelled, then writes the rest of the buffer.
    pub async fn run(mut self, closing: CancellationToken) {
        let mut batch = Vec::with_capacity(BATCH_MAX);
        let mut failures = Failures::default();
        loop {
            tokio::select! {
                biased;
                count = self.lines.recv_many(&mut batch, BATCH_MAX) => {
                    if count == 0 {
                        failures.report();
                        return;
                    }
                }
                () = closing.cancelled(), if !self.lines.is_closed() => {
                    self.lines.close();
                    continue;
                }
                () = failures.due() => {
                    failures.report();
                    continue;
                }
            }
            let lines = std::mem::take(&mut batch);
            let lost = self.shared.unreported.swap(0, Ordering::Relaxed);
            let must_reopen = self.shared.must_reopen.swap(false, Ordering::Relaxed);
            let mut file = self.file;
            // A stalled disk must not block a thread of the runtime.
            let written = tokio::task::spawn_blocking(move || {
                if must_reopen {
                    file.reopen();
                }
                let failed = write(&mut file, &lines, lost).err();
                (file, failed)
            });
            let Ok((file, failed)) = written.await else {
                tracing::error!("the audit log has stopped after a panic");
                return;
            };
            self.file = file;
            match failed {
                None => failures.end(),
                Some(failed) => {
                    self.shared.unreported.fetch_add(lost + failed.lines, Ordering::Relaxed);
                    self.shared.lost.fetch_add(failed.lines, Ordering::Relaxed);
                    failures.add(failed);
                }
            }
        }
    }
}

impl Failures {
    /// Adds a failure, and reports it immediately if the last report is old enough.
    fn add(&mut self, failed: Failed) {
        self.lines += failed.lines;
        self.error = Some(failed.error);
        if self.due.is_none_or(|due| due <= Instant::now()) {
            self.report();
        }
    }

    fn report(&mut self) {
        let Some(error) = self.error.take() else { return };
        tracing::error!(%error, lines = self.lines, "can't write the audit log: lines are dropped");
        self.lines = 0;
        self.due = Some(Instant::now() + REPORT_PERIOD);
    }

    /// Ends a series of failures, because a write has succeeded.
    fn end(&mut self) {
        self.report();
        if self.due.take().is_some() {
            tracing::info!("the audit log can be written again");
        }
    }

    /// Waits until the next report is due. Never returns if there is nothing to report.
    async fn due(&self) {
        match (self.due, &self.error) {
            (Some(due), Some(_)) => tokio::time::sleep_until(due).await,
            _ => std::future::pending().await,
        }
    }
}

/// Writes the number of dropped lines, then a batch.
fn write(file: &mut LogFile, lines: &[String], lost: u64) -> Result<(), Failed> {
    let mut text = String::new();
    if lost > 0 {
        text += &(serde_json::to_string(&LostLine { lost }).unwrap_or_default() + "\n");
    }
    text.extend(lines.iter().map(String::as_str));
    file.append(text.as_bytes()).map_err(|error| Failed { lines: lines.len() as u64, error })
}
