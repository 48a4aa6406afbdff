//! The audit log: one JSON object a line for each call that is to be written down.
//!
//! Without a file the lines go to the log, with the target `audit`. A file is put aside when it is large
//! enough. Whoever answers a call never waits for the disk: lines are handed to a task that writes them, and
//! if it falls too far behind, lines are counted instead and the count is written as soon as it can be.
//!
//! It is not the journal: it says who asked for what, not what happened to a key.

mod file;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio_util::sync::CancellationToken;

use self::file::Files;
use crate::config;

/// Most lines that wait to be written.
const LINES_MAX: usize = 65_536;
/// Most lines that are written at once.
const BATCH_MAX: usize = 1_024;

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
    /// The name of the token; absent if there was none that is good.
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

/// What stands in place of lines that are not there.
#[derive(Serialize)]
struct LostLine {
    lost: u64,
}

/// Where lines go. Clones are the same log.
#[derive(Clone, Debug, Default)]
pub struct Audit {
    /// None: to the log.
    file: Option<FileLog>,
    /// Whether every call is written down; else those of admins, and those that were refused.
    pub all: bool,
}

#[derive(Clone, Debug)]
struct FileLog {
    messages: Sender<Message>,
    lost: Arc<AtomicU64>,
}

#[derive(Debug)]
enum Message {
    Line(String),
    /// The file may have been moved away.
    Reopen,
}

/// The task that writes the lines.
#[derive(Debug)]
pub struct Writer {
    messages: Receiver<Message>,
    lost: Arc<AtomicU64>,
    files: Files,
}

impl Audit {
    /// The audit log of these settings, and the task that must run for it.
    ///
    /// # Errors
    /// [`Error`] if the file can't be opened.
    pub fn open(settings: &config::Audit) -> Result<(Self, Option<Writer>), Error> {
        let all = settings.calls == config::AuditCalls::All;
        let Some(path) = &settings.file else { return Ok((Self { file: None, all }, None)) };
        let files = Files::open(path.clone(), settings.max_file_bytes, settings.max_files)
            .map_err(|source| Error { path: path.clone(), source })?;
        let (sender, messages) = mpsc::channel(LINES_MAX);
        let lost = Arc::new(AtomicU64::new(0));
        let file = Some(FileLog { messages: sender, lost: lost.clone() });
        Ok((Self { file, all }, Some(Writer { messages, lost, files })))
    }

    /// Writes a call down.
    pub fn record(&self, line: &Line<'_>) {
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
        let text = serde_json::to_string(line).unwrap_or_default() + "\n";
        if file.messages.try_send(Message::Line(text)).is_err() {
            file.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Opens the file anew, which may have been moved away.
    pub async fn reopen(&self) {
        if let Some(file) = &self.file {
            // Fails only when the writer has ended, and then there is nothing to open.
            let _ended = file.messages.send(Message::Reopen).await;
        }
    }
}

impl Writer {
    /// Writes lines until `closing`, and then those that are left.
    pub async fn run(mut self, closing: CancellationToken) {
        let mut batch = Vec::with_capacity(BATCH_MAX);
        loop {
            tokio::select! {
                biased;
                count = self.messages.recv_many(&mut batch, BATCH_MAX) => {
                    if count == 0 {
                        return;
                    }
                }
                () = closing.cancelled(), if !self.messages.is_closed() => {
                    self.messages.close();
                    continue;
                }
            }
            let messages = std::mem::take(&mut batch);
            let lost = self.lost.swap(0, Ordering::Relaxed);
            let mut files = self.files;
            // A disk that stands still must not hold up a thread that answers requests.
            let written = tokio::task::spawn_blocking(move || {
                let lost_again = write(&mut files, messages, lost);
                (files, lost_again)
            });
            let Ok((files, lost_again)) = written.await else {
                tracing::error!("the audit log is not written any more");
                return;
            };
            self.files = files;
            self.lost.fetch_add(lost_again, Ordering::Relaxed);
        }
    }
}

/// Writes a batch; answers how many lines are lost by now, those of the batch included.
fn write(files: &mut Files, messages: Vec<Message>, lost: u64) -> u64 {
    let mut text = String::new();
    let mut lines = 0;
    if lost > 0 {
        text += &(serde_json::to_string(&LostLine { lost }).unwrap_or_default() + "\n");
    }
    for message in messages {
        match message {
            Message::Line(line) => {
                text += &line;
                lines += 1;
            }
            Message::Reopen => files.reopen(),
        }
    }
    if text.is_empty() {
        return 0;
    }
    match files.append(text.as_bytes()) {
        Ok(()) => 0,
        Err(error) => {
            tracing::error!(%error, lines, "lines of the audit log are lost");
            lost + lines
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_are_lost_are_counted_and_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let line = |text: &str| Message::Line(format!("\"{text}\"\n"));
        // Every write to it fails for want of room.
        let mut full = Files::open("/dev/full".into(), 1 << 20, 1).unwrap();
        let lost = write(&mut full, vec![line("a"), line("b")], 0);
        assert_eq!(lost, 2);
        let lost = write(&mut full, vec![line("c")], lost);
        assert_eq!(lost, 3);
        let mut files = Files::open(path.clone(), 1 << 20, 1).unwrap();
        assert_eq!(write(&mut files, vec![line("d")], lost), 0);
        assert_eq!(std::fs::read_to_string(path).unwrap(), "{\"lost\":3}\n\"d\"\n");
    }
}
