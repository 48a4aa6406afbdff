//! Child processes that end when their owner is dropped.

use std::fs::{self, File};
use std::io;
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use deltaq_runtime::clock::Clock;
use rustix::process::{Pid, Signal, kill_process_group};

/// Grace period between the end signal and SIGKILL.
const GRACE: Duration = Duration::from_secs(10);
/// Interval of checks for the state of a process.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Bytes of a log that an error shows.
const LOG_BYTES: usize = 2_000;

/// A process and its descendants. Dropping it ends them.
pub(crate) struct Process {
    child: Child,
    /// A process group of its own, so signals from the terminal do not reach the process.
    group: Pid,
    /// The signal that ends the process.
    end_signal: Signal,
    log: PathBuf,
}

impl Process {
    /// Starts a process with its output in the file `log`.
    pub(crate) fn start(command: &mut Command, end_signal: Signal, log: &Path) -> io::Result<Self> {
        let out = File::create(log)?;
        command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out).process_group(0);
        let child = command.spawn().map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}", command.get_program().display()))
        })?;
        let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let group = group.ok_or_else(|| io::Error::other("invalid process id"))?;
        Ok(Self { child, group, end_signal, log: log.to_owned() })
    }

    /// The exit status, if the process has ended.
    pub(crate) fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// The end of the output.
    pub(crate) fn output_tail(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let end = text.get(text.len().saturating_sub(LOG_BYTES)..).unwrap_or_default();
        String::from_utf8_lossy(end).into_owned()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if matches!(self.ended(), Ok(Some(_))) {
            // Descendants may be left if the process did not end cleanly.
            let _none = kill_process_group(self.group, Signal::KILL);
            return;
        }
        let _ended = kill_process_group(self.group, self.end_signal);
        let mut waited = Duration::ZERO;
        while waited < GRACE {
            if !matches!(self.ended(), Ok(None)) {
                return;
            }
            std::thread::sleep(POLL_INTERVAL);
            waited += POLL_INTERVAL;
        }
        let _ended = kill_process_group(self.group, Signal::KILL);
        let _ended = self.child.wait();
    }
}

/// Runs a command and returns its output. Fails if the command fails or exceeds the timeout. The output goes to a file in the
/// folder `scratch` first.
pub(crate) async fn output_within(
    command: &mut Command,
    timeout: Duration,
    scratch: &Path,
    clock: &Clock,
) -> io::Result<String> {
    let mut command_line = command.get_program().display().to_string();
    for argument in command.get_args() {
        command_line = format!("{command_line} {}", argument.display());
    }
    let folder = Folder::new(scratch.join(format!("run-{}", std::process::id())))?;
    let log = folder.0.join("log");
    // SIGTERM lets the process and its descendants end cleanly.
    let mut process = Process::start(command, Signal::TERM, &log)?;
    let begun_us = clock.monotonic_us();
    loop {
        let ended = process.ended()?;
        if ended.is_some_and(|status| status.success()) {
            return Ok(String::from_utf8_lossy(&fs::read(&log)?).into_owned());
        }
        if ended.is_some() || clock.since(begun_us) > timeout {
            let status = ended.map_or("timed out".into(), |status| status.to_string());
            return Err(io::Error::other(format!("{command_line}: {status}: {}", process.output_tail())));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// A folder that is removed when dropped.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    /// Creates an empty folder, removing an existing one.
    pub(crate) fn new(path: PathBuf) -> io::Result<Self> {
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => fs::create_dir_all(&path)?,
        }
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _left = fs::remove_dir_all(&self.0);
    }
}

/// A free port of 127.0.0.1.
pub(crate) fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Finds a program on the PATH or in the folders where Debian installs servers.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    #[expect(clippy::disallowed_methods, reason = "the search path is not a setting of deltaq")]
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    folders.extend(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    let mut versions: Vec<PathBuf> = fs::read_dir("/usr/lib/postgresql")
        .map(|entries| entries.flatten().map(|entry| entry.path().join("bin")).collect())
        .unwrap_or_default();
    versions.sort_by_key(|path| {
        let version = path.parent().and_then(Path::file_name).and_then(|name| name.to_str());
        std::cmp::Reverse(version.and_then(|name| name.parse::<u32>().ok()))
    });
    folders.extend(versions);
    folders.into_iter().map(|folder| folder.join(program)).find(|path| path.is_file())
}

/// Runs a command and returns its output. Fails if the command fails.
pub(crate) fn output(command: &mut Command) -> io::Result<String> {
    let name = command.get_program().display().to_string();
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| io::Error::new(error.kind(), format!("{name}: {error}")))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        return Err(io::Error::other(format!("{name}: {}: {}", output.status, stderr.trim_end())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_ends_with_its_owner() {
        let folder = Folder::new(std::env::temp_dir().join(format!("peers-{}", std::process::id()))).unwrap();
        let log = folder.0.join("log");
        let mut command = Command::new("sh");
        command.args(["-c", "echo begun; sleep 600 & wait"]);
        let mut process = Process::start(&mut command, Signal::TERM, &log).unwrap();
        while process.output_tail().is_empty() {
            std::thread::sleep(POLL_INTERVAL);
        }
        assert_eq!((process.output_tail(), process.ended().unwrap()), ("begun\n".to_owned(), None));
        let group = process.group;
        drop(process);
        // A dead process stays in the group until it is reaped, so the check is repeated.
        for _ in 0..250 {
            if kill_process_group(group, Signal::TERM).is_err() {
                return;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        panic!("a process of the group is still alive");
    }

    #[test]
    fn programs_are_found() {
        assert!(find("sh").is_some());
        assert!(find("no-such-program").is_none());
    }
}
