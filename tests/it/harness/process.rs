//! The real binary: as a process that tests signal and kill, and as a command that runs to its end.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use tempfile::TempDir;

use super::waiting::found;

/// A command that runs the binary, without what the environment of the tests says to it.
pub(crate) fn deltaq(line: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_deltaq"));
    command.args(line).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    for name in ["DELTAQ_URL", "DELTAQ_TOKEN", "DELTAQ_TOKEN_FILE", "NO_COLOR", "RUST_LOG"] {
        command.env_remove(name);
    }
    command
}

/// A running process. Dropping it kills the process.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) child: Child,
    /// The folder of its log, which other files of the process may share.
    folder: TempDir,
}

impl Process {
    /// Starts a command. Its log goes to a file, unless `adapt` sends it elsewhere. `adapt` gets the folder of the file too.
    pub(crate) fn start(mut command: Command, adapt: impl FnOnce(&mut Command, &Path)) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let log = File::create(folder.path().join("log")).expect("a file");
        command.env_remove("RUST_LOG").stdin(Stdio::null()).stderr(log);
        adapt(&mut command, folder.path());
        let child = command.spawn().unwrap_or_else(|error| panic!("{command:?} can't run: {error}"));
        Self { child, folder }
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The log so far.
    pub(crate) fn log(&self) -> String {
        let bytes = std::fs::read(self.folder().join("log")).expect("a log");
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(sent.expect("there is a kill command").success(), "the signal can't be sent");
    }

    /// Stops the process with SIGSTOP, and waits until its last thread has stopped: until then it may still reply to a call.
    /// SIGCONT lets it go on.
    pub(crate) fn freeze(&self) {
        self.signal("STOP");
        let pid = Pid::from_child(&self.child);
        let status =
            waitid(WaitId::Pid(pid), WaitIdOptions::STOPPED).expect("a child process").expect("a status");
        assert!(status.stopped(), "{status:?}");
    }

    /// The status of a process that has ended.
    pub(crate) fn status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child process")
    }

    /// Waits until the process has ended by itself.
    #[track_caller]
    pub(crate) fn ended(&mut self) -> ExitStatus {
        found(|| self.status().ok_or("the process ends"))
    }

    /// Sends SIGTERM, waits for a clean end, and returns the log.
    #[track_caller]
    pub(crate) fn stop(mut self) -> String {
        self.signal("TERM");
        let ended = self.ended();
        let log = self.log();
        assert!(ended.success(), "{ended}: {log}");
        log
    }

    pub(crate) fn kill(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The result of a command.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Run {
    /// The output of a successful command.
    #[track_caller]
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.stdout
    }

    /// The output of a successful command that has no warnings.
    #[track_caller]
    pub(crate) fn printed(self) -> String {
        assert_eq!((self.code, self.stderr.as_str()), (Some(0), ""), "{self:?}");
        self.stdout
    }

    /// The error output of a command that ended with this code.
    #[track_caller]
    pub(crate) fn failed(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{self:?}");
        self.stderr
    }

    /// The one line of the error of a command.
    #[track_caller]
    pub(crate) fn refused(self) -> String {
        assert_eq!((self.code, self.stderr.lines().count()), (Some(1), 1), "{self:?}");
        self.stderr
    }
}

/// Runs a command to its end, with this text on stdin.
pub(crate) fn finished(mut command: Command, stdin: &str) -> Run {
    let mut child = command.stdin(Stdio::piped()).spawn().expect("the binary runs");
    let mut pipe = child.stdin.take().expect("a pipe");
    let text = stdin.to_owned();
    // The command may end without reading its input.
    let writer = std::thread::spawn(move || drop(pipe.write_all(text.as_bytes())));
    let output = child.wait_with_output().expect("output");
    writer.join().expect("the writer ends");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    Run { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}
