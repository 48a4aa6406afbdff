//! The command of one key, as a process group.
//!
//! Threads copy its stdin and stderr and wait for its end, so a command that floods stderr or never reads stdin
//! blocks nothing. The exit is detected without reaping, so that no other process can get the id or the group before
//! [`Running::finish`] reaps the process. tokio's `process` can't be used, because it reaps before the group is
//! killed.
//!
//! If `deltaq work` is killed, its commands keep running: ending a command together with its parent
//! (PR_SET_PDEATHSIG) would need unsafe code.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::fs::{Access, access};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::sync::oneshot;

use crate::cli::client::failure::Failure;
use crate::cli::client::stderr::Stderr;

/// Number of bytes of stderr that are kept.
const TAIL_BYTES: usize = 2_048;
/// Maximum number of bytes of stderr that are read at once.
const BUFFER_BYTES: usize = 8 << 10;
/// Maximum wait for the rest of stderr after the group has ended. Only a process that left the group can still hold
/// stderr open.
const REST_OF_STDERR: Duration = Duration::from_millis(500);

/// A running command.
#[derive(Debug)]
pub(super) struct Running {
    child: Child,
    group: Pid,
    ended: oneshot::Receiver<()>,
    stderr: Arc<Mutex<Vec<u8>>>,
    stderr_ended: oneshot::Receiver<()>,
}

/// How a command ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) status: ExitStatus,
    /// The last part of its stderr.
    stderr: Vec<u8>,
}

/// Checks that the program of a command can be started, so that a mistake shows before the first key.
pub(super) fn check(program: &OsStr) -> Result<(), Failure> {
    let is_path = program.as_encoded_bytes().contains(&b'/');
    let folders = if is_path { vec![PathBuf::new()] } else { search_path() };
    let may_run = |path: PathBuf| path.is_file() && access(&path, Access::EXEC_OK).is_ok();
    let file = folders.iter().map(|folder| folder.join(program)).find(|path| path.is_file());
    let why = match file {
        Some(file) if may_run(file.clone()) => return Ok(()),
        Some(_) if folders.iter().any(|folder| may_run(folder.join(program))) => return Ok(()),
        Some(_) => "it is not executable",
        None if is_path => "there is no such file",
        None => "no folder of PATH has it",
    };
    Err(Failure::Other(format!("can't run {}: {why}", program.to_string_lossy())))
}

/// The folders in which the operating system looks for a program.
#[expect(clippy::disallowed_methods, reason = "a command is started with the PATH of the process")]
fn search_path() -> Vec<PathBuf> {
    std::env::var_os("PATH").map_or_else(Vec::new, |path| std::env::split_paths(&path).collect())
}

impl Running {
    /// Starts a command with the text on its stdin.
    pub(super) fn start(
        command: &[OsString],
        variables: &[(&str, String)],
        stdin: String,
    ) -> io::Result<Self> {
        let Some((program, arguments)) = command.split_first() else {
            return Err(io::Error::new(io::ErrorKind::NotFound, "no command"));
        };
        let mut child = Command::new(program)
            .args(arguments)
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()?;
        let group = Pid::from_child(&child);
        let (mut to, from) = (child.stdin.take(), child.stderr.take());
        let running = Self::observe(child, group, from);
        if running.is_err() {
            let _gone = kill_process_group(group, Signal::KILL);
        }
        let running = running?;
        thread(move || {
            // A command does not have to read its item.
            let _closed = to.as_mut().map(|to| to.write_all(stdin.as_bytes()));
        })?;
        Ok(running)
    }

    fn observe(child: Child, group: Pid, from: Option<std::process::ChildStderr>) -> io::Result<Self> {
        let (stderr, (stderr_end, stderr_ended)) = (Arc::default(), oneshot::channel());
        let tail = Arc::clone(&stderr);
        thread(move || {
            if let Some(from) = from {
                copy(from, Stderr, &tail);
            }
            let _ended = stderr_end.send(());
        })?;
        let (end, ended) = oneshot::channel();
        thread(move || {
            // Any error other than an interruption means that the process does not exist.
            while waitid(WaitId::Pid(group), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)
                .is_err_and(|error| error == rustix::io::Errno::INTR)
            {}
            let _ended = end.send(());
        })?;
        Ok(Self { child, group, ended, stderr, stderr_ended })
    }

    /// Waits until the command has ended. May be called again.
    pub(super) async fn ended(&mut self) {
        if !self.ended.is_terminated() {
            let _ended = (&mut self.ended).await;
        }
    }

    /// Stops the group: SIGTERM, and SIGKILL after `patience`.
    pub(super) async fn stop(mut self, patience: Duration) -> io::Result<Ended> {
        let _gone = kill_process_group(self.group, Signal::TERM);
        let _in_time = tokio::time::timeout(patience, self.ended()).await;
        self.finish().await
    }

    /// Kills the rest of the group, and reaps the command.
    pub(super) async fn finish(mut self) -> io::Result<Ended> {
        let _gone = kill_process_group(self.group, Signal::KILL);
        self.ended().await;
        let status = self.child.wait()?;
        let _in_time = tokio::time::timeout(REST_OF_STDERR, &mut self.stderr_ended).await;
        let stderr = std::mem::take(&mut *self.stderr.lock());
        Ok(Ended { status, stderr })
    }
}

impl Ended {
    /// The reason for a failure: the exit status and the end of stderr.
    pub(super) fn error(&self) -> String {
        let status = match (self.status.code(), self.status.signal()) {
            (Some(code), _) => format!("exit status {code}"),
            (None, Some(signal)) => format!("killed by signal {signal}"),
            (None, None) => "unknown status".to_owned(),
        };
        let stderr = String::from_utf8_lossy(&self.stderr);
        // Replacement characters are longer than the bytes that they stand for.
        let begin = stderr.ceil_char_boundary(stderr.len().saturating_sub(TAIL_BYTES));
        match stderr.get(begin..).unwrap_or_default().trim() {
            "" => status,
            text => format!("{status}: {text}"),
        }
    }
}

fn thread(run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    // The thread ends with the pipes of the command or with the process.
    std::thread::Builder::new().name("command".to_owned()).spawn(run).map(drop)
}

/// Copies stderr to this process's stderr, and keeps its end.
fn copy(mut from: impl io::Read, mut to: impl io::Write, tail: &Mutex<Vec<u8>>) {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let piece = match from.read(&mut buffer) {
            Ok(0) => return,
            Ok(length) => buffer.get(..length).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return,
        };
        let _unread = to.write_all(piece);
        let mut tail = tail.lock();
        tail.extend_from_slice(piece);
        let surplus = tail.len().saturating_sub(TAIL_BYTES);
        tail.drain(..surplus);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_stderr_takes_bounded_memory() {
        let flood = io::Read::take(io::repeat(b'x'), 100 << 20);
        let tail = Mutex::default();
        copy(io::Read::chain(flood, &b"the end"[..]), io::sink(), &tail);
        let tail = tail.into_inner();
        assert!(tail.ends_with(b"xthe end") && tail.len() == TAIL_BYTES);
        assert!(tail.capacity() <= 2 * (TAIL_BYTES + BUFFER_BYTES), "{}", tail.capacity());
    }
}
