//! Reads a list from the output of a command. The exit status decides whether the list is complete.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::process::CommandExt as _;
use std::process::{self, ExitStatus, Stdio};
use std::sync::Arc;

use deltaq_client::Event;
use deltaq_types::duration::DurationText;
use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::objects::{Shape, utf8};
use super::{Error, Output};
use crate::settings;

/// Number of bytes at the end of stderr that an error shows.
const STDERR_SHOWN_BYTES: usize = 2_048;

/// A command whose output is the list.
#[derive(Debug)]
pub(crate) struct Command {
    words: Vec<String>,
    shape: Shape,
    timeout: DurationText,
    max_bytes: u64,
}

impl Command {
    pub(super) fn new(command: &settings::Command, source: &settings::Source) -> Self {
        let shape =
            Shape { items: command.items.clone(), map_key: command.map_key.clone(), format: command.format };
        Self { words: command.run.clone(), shape, timeout: source.timeout, max_bytes: source.max_bytes }
    }

    pub(super) async fn list(&self, output: &Output) -> Result<(), Error> {
        let program = self.words.first().map(String::as_str).unwrap_or_default();
        let of = format!("the output of {program}");
        let text = timeout(self.timeout.get(), self.run(program)).await.map_err(|_| {
            Error::new(format!("{program} has not ended within {} (timeout)", self.timeout))
        })??;
        let objects = self.shape.of_text(utf8(&text, &of)?, true, &of)?;
        drop(text);
        output.send(Event::Init).await?;
        output.list(objects).await?;
        output.send(Event::InitDone).await
    }

    /// Runs the command, and returns its output if it succeeds. Dropping the future kills the command with all
    /// processes of its group.
    async fn run(&self, program: &str) -> Result<Vec<u8>, Error> {
        let mut command = process::Command::new(program);
        command.args(self.words.iter().skip(1)).process_group(0);
        // The token, and the secrets of other sources in the settings, are not for the command.
        for name in own_variables() {
            command.env_remove(name);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().map_err(|error| Error::because(format!("can't run {program}"), error))?;
        let group = Group::new(&child);
        let (running, max_bytes) = (group.clone(), self.max_bytes);
        let _killed = KillOnDrop(group);
        let ended = spawn_blocking(move || collect(child, &running, max_bytes)).await;
        let failed = |error: io::Error| Error::because(format!("can't read the output of {program}"), error);
        let ended = ended.map_err(|error| failed(error.into()))?.map_err(failed)?;
        if ended.is_too_long {
            return Err(Error::new(format!("{program} has written more than {max_bytes} bytes (max_bytes)")));
        }
        if ended.status.success() { Ok(ended.stdout) } else { Err(ended.failure(program)) }
    }
}

/// The names of the variables of deltaq, such as `DELTAQ_TOKEN`.
#[expect(
    clippy::disallowed_methods,
    reason = "a command inherits the environment of the process, not the settings"
)]
fn own_variables() -> impl Iterator<Item = OsString> {
    let names = std::env::vars_os().map(|(name, _)| name);
    names.filter(|name| name.as_encoded_bytes().starts_with(b"DELTAQ_"))
}

/// How a command has ended.
struct Ended {
    status: ExitStatus,
    stdout: Vec<u8>,
    is_too_long: bool,
    /// The end of stderr.
    stderr: Vec<u8>,
}

impl Ended {
    fn failure(&self, program: &str) -> Error {
        let said = String::from_utf8_lossy(&self.stderr);
        let said: String = said.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let said = if said.is_empty() { String::new() } else { format!(": {said}") };
        Error::new(format!("{program} has failed ({}){said}", self.status))
    }
}

/// Reads the pipes of a command and waits for its end. Processes that remain in its group are killed.
fn collect(mut child: process::Child, group: &Group, max_bytes: u64) -> io::Result<Ended> {
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let mut text = Vec::new();
    let said = std::thread::scope(|scope| {
        let said = scope.spawn(|| stderr.map(tail).transpose());
        let read = stdout.map(|pipe| pipe.take(max_bytes.saturating_add(1)).read_to_end(&mut text));
        if text.len() as u64 > max_bytes || read.is_some_and(|read| read.is_err()) {
            group.kill();
        }
        said.join()
    });
    // The process has not been reaped yet, so no other process can have its group id.
    let exited = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    while waitid(WaitId::Pid(group.id), exited).is_err_and(|error| error == Errno::INTR) {}
    group.end();
    let status = child.wait()?;
    let stderr = said.map_err(|_| io::Error::other("the reader of stderr panicked"))??.unwrap_or_default();
    Ok(Ended { status, is_too_long: text.len() as u64 > max_bytes, stdout: text, stderr })
}

/// The last bytes of a pipe.
fn tail(mut pipe: impl Read) -> io::Result<Vec<u8>> {
    let (mut end, mut piece) = (Vec::new(), vec![0; STDERR_SHOWN_BYTES]);
    loop {
        let length = match pipe.read(&mut piece) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            length => length?,
        };
        if length == 0 {
            return Ok(end);
        }
        end.extend_from_slice(piece.get(..length).unwrap_or_default());
        end.drain(..end.len().saturating_sub(STDERR_SHOWN_BYTES));
    }
}

/// The process group of a command.
#[derive(Debug, Clone)]
struct Group {
    id: Pid,
    /// Invariant: false before the process is reaped, and true afterwards.
    has_ended: Arc<Mutex<bool>>,
}

impl Group {
    fn new(child: &process::Child) -> Self {
        Self { id: Pid::from_child(child), has_ended: Arc::default() }
    }

    /// Kills all processes of the group.
    fn kill(&self) {
        let has_ended = self.has_ended.lock();
        if !*has_ended {
            // If this fails, the group has no processes left.
            let _ended = kill_process_group(self.id, Signal::KILL);
        }
    }

    /// Kills the remaining processes of the group. The process of the command is reaped next.
    fn end(&self) {
        self.kill();
        *self.has_ended.lock() = true;
    }
}

/// Kills the process group of a command when the command is no longer awaited.
struct KillOnDrop(Group);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        self.0.kill();
    }
}
