//! The audit log: one JSON object a line for each call that is to be written down.
//!
//! Without a file the lines go to the log, with the target `audit`. A file is put aside when it is large
//! enough. Whoever answers a call never waits for the disk: lines are handed to a task that writes them, and
//! if it falls too far behind, lines are counted instead and the count is written as soon as it can be.
//!
//! Nobody but an admin can push the lines of admins out of it. What comes in floods is bounded for each second, see
//! `flood`, and the last quarter of the places for lines that wait is for admins alone.
//!
//! It is not the journal: it says who asked for what, not what happened to a key.

mod file;
mod flood;
#[cfg(test)]
mod tests;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde::Serialize;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::file::Files;
use self::flood::Floods;
use crate::config;

/// Most lines that wait to be written.
const LINES_MAX: usize = 65_536;
/// How many of these places are for the lines of admins alone.
const LINES_RESERVED: usize = LINES_MAX / 4;
/// Most lines that are written at once.
const BATCH_MAX: usize = 1_024;
/// How often the log is told of lines that are lost, at most.
const TELL_PERIOD: Duration = Duration::from_secs(1);

/// Why there is no audit log.
#[derive(Debug, thiserror::Error)]
#[error("can't write the audit log {}", path.display())]
pub struct Error {
    /// The file.
    pub path: PathBuf,
    /// What the system said.
    pub source: io::Error,
}

/// A call, as the audit log tells it.
#[derive(Debug, Serialize)]
pub struct Line<'a> {
    /// When it was answered.
    pub time: String,
    /// Leads to its line in the log.
    pub request_id: &'a str,
    /// The name of the token, also of one that is good no more; absent if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub who: Option<&'a str>,
    /// Address and port of the other end of the connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// What it needs to be allowed to do; absent where that is nothing in particular.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verb: Option<&'static str>,
    /// Its method.
    pub method: &'a str,
    /// Its route.
    pub route: &'a str,
    /// The queue that it names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<&'a str>,
    /// How many keys, items or leases it was about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys: Option<u64>,
    /// `ok`, the code of the problem, or `gone` for a caller that left before the answer.
    pub outcome: &'a str,
    /// The status of the answer; absent for a caller that left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
}

/// How a call is treated when there are too many to be written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Of a caller who was let in and needed `admin`: it has places of its own.
    Admin,
    /// Any other of a caller who was let in.
    Call,
    /// One of those that cost nothing to send, so that there may be any number: of a caller who was not let in, or beyond
    /// what the server gives one who was. Only some of each caller's are written in a second.
    Flood,
}

/// What stands in place of lines that could not be written.
#[derive(Serialize)]
struct LostLine {
    lost: u64,
}

/// What stands in place of lines that were too many.
#[derive(Serialize)]
struct SuppressedLine<'a> {
    time: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    who: Option<&'a str>,
    suppressed: u64,
}

/// Where lines go. Clones are the same log.
#[derive(Clone, Debug, Default)]
pub struct Audit {
    /// None: to the log.
    file: Option<FileLog>,
    /// Whether every call is written down; else those of admins, and those that were refused.
    pub all: bool,
    floods: Arc<Floods>,
    suppressed: Arc<AtomicU64>,
}

#[derive(Clone, Debug)]
struct FileLog {
    lines: Sender<String>,
    shared: Arc<Shared>,
}

/// What the writer is told beside lines. It is no message among them, because they may wait for a disk that stands still.
#[derive(Debug, Default)]
struct Shared {
    /// Lines that are to be told as lost.
    lost: AtomicU64,
    /// All lines that were lost, told or not.
    lost_ever: AtomicU64,
    /// Whether the file may have been moved away.
    is_moved: AtomicBool,
}

/// The task that writes the lines.
#[derive(Debug)]
pub struct Writer {
    lines: Receiver<String>,
    shared: Arc<Shared>,
    files: Files,
}

/// A batch that could not be written.
#[derive(Debug)]
struct Failed {
    lines: u64,
    error: io::Error,
}

/// What the log is told of batches that could not be written: the first at once, more of them once in a while.
#[derive(Debug, Default)]
struct Losses {
    /// Lines that it is not told of yet.
    lines: u64,
    /// What went wrong last, if it is not told yet.
    error: Option<io::Error>,
    /// When it may be told more; none while lines are written.
    due: Option<Instant>,
}

impl Audit {
    /// The audit log of these settings, and the task that must run for it.
    ///
    /// # Errors
    /// [`Error`] if the file can't be opened.
    pub fn open(settings: &config::Audit) -> Result<(Self, Option<Writer>), Error> {
        let all = settings.calls == config::AuditCalls::All;
        let Some(path) = &settings.file else { return Ok((Self { all, ..Self::default() }, None)) };
        let files = Files::open(path.clone(), settings.max_file_bytes, settings.max_files)
            .map_err(|source| Error { path: path.clone(), source })?;
        let (sender, lines) = mpsc::channel(LINES_MAX);
        let shared = Arc::<Shared>::default();
        let file = Some(FileLog { lines: sender, shared: shared.clone() });
        Ok((Self { file, all, ..Self::default() }, Some(Writer { lines, shared, files })))
    }

    /// Writes a call of this caller down. Of a flood most lines are never made.
    pub fn record<'a>(&self, class: Class, who: Option<&str>, line: impl FnOnce() -> Line<'a>) {
        if class == Class::Flood && !self.floods.admits(who) {
            return;
        }
        let line = line();
        let Some(file) = &self.file else {
            tracing::info!(
                target: "audit",
                request_id = line.request_id,
                who = line.who,
                from = line.from,
                verb = line.verb,
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

    /// Tells how many lines there were too many since it was called last, which should be a second ago.
    pub fn tell_suppressed(&self, time: &str) {
        for (who, suppressed) in self.floods.take() {
            self.suppressed.fetch_add(suppressed, Ordering::Relaxed);
            let who = who.as_deref();
            if let Some(file) = &self.file {
                // One for each caller in a second is not many, and tells what an admin needs to know.
                file.push(Class::Admin, &SuppressedLine { time, who, suppressed });
            } else {
                tracing::info!(target: "audit", who, suppressed, "audit");
            }
        }
    }

    /// How many lines were lost since the start.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.file.as_ref().map_or(0, |file| file.shared.lost_ever.load(Ordering::Relaxed))
    }

    /// How many lines were too many since the start, as far as that was told.
    #[must_use]
    pub fn suppressed(&self) -> u64 {
        self.suppressed.load(Ordering::Relaxed)
    }

    /// Has the file opened anew for the next lines, because it may have been moved away. Waits for nothing.
    pub fn reopen(&self) {
        if let Some(file) = &self.file {
            file.shared.is_moved.store(true, Ordering::Relaxed);
        }
    }
}

impl FileLog {
    fn push(&self, class: Class, line: &impl Serialize) {
        let has_place = class == Class::Admin || self.lines.capacity() > LINES_RESERVED;
        let text = serde_json::to_string(line).unwrap_or_default() + "\n";
        if !has_place || self.lines.try_send(text).is_err() {
            self.shared.lost.fetch_add(1, Ordering::Relaxed);
            self.shared.lost_ever.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Writer {
    /// Writes lines until `closing`, and then those that are left.
    pub async fn run(mut self, closing: CancellationToken) {
        let mut batch = Vec::with_capacity(BATCH_MAX);
        let mut losses = Losses::default();
        loop {
            tokio::select! {
                biased;
                count = self.lines.recv_many(&mut batch, BATCH_MAX) => {
                    if count == 0 {
                        losses.tell();
                        return;
                    }
                }
                () = closing.cancelled(), if !self.lines.is_closed() => {
                    self.lines.close();
                    continue;
                }
                () = losses.due() => {
                    losses.tell();
                    continue;
                }
            }
            let lines = std::mem::take(&mut batch);
            let lost = self.shared.lost.swap(0, Ordering::Relaxed);
            let mut files = self.files;
            let is_moved = self.shared.is_moved.swap(false, Ordering::Relaxed);
            // A disk that stands still must not hold up a thread that answers requests.
            let written = tokio::task::spawn_blocking(move || {
                if is_moved {
                    files.reopen();
                }
                let failed = write(&mut files, &lines, lost).err();
                (files, failed)
            });
            let Ok((files, failed)) = written.await else {
                tracing::error!("the audit log is not written any more");
                return;
            };
            self.files = files;
            match failed {
                None => losses.end(),
                Some(failed) => {
                    self.shared.lost.fetch_add(lost + failed.lines, Ordering::Relaxed);
                    self.shared.lost_ever.fetch_add(failed.lines, Ordering::Relaxed);
                    losses.add(failed);
                }
            }
        }
    }
}

impl Losses {
    /// Says so at once if it was not said lately.
    fn add(&mut self, failed: Failed) {
        self.lines += failed.lines;
        self.error = Some(failed.error);
        if self.due.is_none_or(|due| due <= Instant::now()) {
            self.tell();
        }
    }

    fn tell(&mut self) {
        let Some(error) = self.error.take() else { return };
        tracing::error!(%error, lines = self.lines, "lines of the audit log are lost");
        self.lines = 0;
        self.due = Some(Instant::now() + TELL_PERIOD);
    }

    /// Lines are written again.
    fn end(&mut self) {
        self.tell();
        if self.due.take().is_some() {
            tracing::info!("the audit log is written again");
        }
    }

    /// Ends when something is to be told that was held back; never if there is nothing.
    async fn due(&self) {
        match (self.due, &self.error) {
            (Some(due), Some(_)) => tokio::time::sleep_until(due).await,
            _ => std::future::pending().await,
        }
    }
}

/// Writes a batch, and before it how many lines were lost.
fn write(files: &mut Files, lines: &[String], lost: u64) -> Result<(), Failed> {
    let mut text = String::new();
    if lost > 0 {
        text += &(serde_json::to_string(&LostLine { lost }).unwrap_or_default() + "\n");
    }
    text.extend(lines.iter().map(String::as_str));
    files.append(text.as_bytes()).map_err(|error| Failed { lines: lines.len() as u64, error })
}
