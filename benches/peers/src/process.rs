//! Processes that end with who started them.

use std::fs::{self, File};
use std::io;
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use deltaq::clock::Clock;
use rustix::process::{Pid, Signal, kill_process_group};

/// How long a process is given to end by itself, once it was told to.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often it is looked whether something has happened.
pub(crate) const LOOK: Duration = Duration::from_millis(20);
/// How much of a log is shown.
const LOG_BYTES: usize = 2_000;

/// A process, with those that it starts itself. It is ended when this is dropped.
pub(crate) struct Process {
    child: Child,
    /// Its process group, which is its own: what is typed at a terminal does not reach it.
    group: Pid,
    /// What tells it to end.
    ending: Signal,
    log: PathBuf,
}

impl Process {
    /// Starts it; what it prints goes to the file `log`.
    pub(crate) fn start(command: &mut Command, ending: Signal, log: &Path) -> io::Result<Self> {
        let out = File::create(log)?;
        command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out).process_group(0);
        let child = command.spawn().map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}", command.get_program().display()))
        })?;
        let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let group = group.ok_or_else(|| io::Error::other("a process has no number"))?;
        Ok(Self { child, group, ending, log: log.to_owned() })
    }

    /// Whether and how it has ended.
    pub(crate) fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// The end of what it printed.
    pub(crate) fn said(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let end = text.get(text.len().saturating_sub(LOG_BYTES)..).unwrap_or_default();
        String::from_utf8_lossy(end).into_owned()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if matches!(self.ended(), Ok(Some(_))) {
            // Processes that it started may be left if it did not end cleanly.
            let _none = kill_process_group(self.group, Signal::KILL);
            return;
        }
        let _ended = kill_process_group(self.group, self.ending);
        let mut waited = Duration::ZERO;
        while waited < PATIENCE {
            if !matches!(self.ended(), Ok(None)) {
                return;
            }
            std::thread::sleep(LOOK);
            waited += LOOK;
        }
        let _ended = kill_process_group(self.group, Signal::KILL);
        let _ended = self.child.wait();
    }
}

/// What a command prints in all, if it succeeds in time. Until then its output is in a file of the folder `scratch`.
pub(crate) async fn printed(
    command: &mut Command,
    patience: Duration,
    scratch: &Path,
    clock: &Clock,
) -> io::Result<String> {
    let mut what = command.get_program().display().to_string();
    for argument in command.get_args() {
        what = format!("{what} {}", argument.display());
    }
    let folder = Folder::new(scratch.join(format!("run-{}", std::process::id())))?;
    let log = folder.0.join("log");
    // It and the processes that it started end cleanly.
    let mut process = Process::start(command, Signal::TERM, &log)?;
    let begun_us = clock.monotonic_us();
    loop {
        let ended = process.ended()?;
        if ended.is_some_and(|status| status.success()) {
            return Ok(String::from_utf8_lossy(&fs::read(&log)?).into_owned());
        }
        if ended.is_some() || clock.since(begun_us) > patience {
            let how = ended.map_or("it hangs".into(), |status| status.to_string());
            return Err(io::Error::other(format!("{what}: {how}: {}", process.said())));
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// A folder that is removed in the end.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    /// An empty one.
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

/// A port of 127.0.0.1 that is free now.
pub(crate) fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// The path of a program: on the PATH, or where Debian puts servers.
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

/// What a command prints, if it succeeds.
pub(crate) fn output(command: &mut Command) -> io::Result<String> {
    let name = command.get_program().display().to_string();
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| io::Error::new(error.kind(), format!("{name}: {error}")))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(io::Error::other(format!("{name}: {}: {}", output.status, said.trim_end())));
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
        while process.said().is_empty() {
            std::thread::sleep(LOOK);
        }
        assert_eq!((process.said(), process.ended().unwrap()), ("begun\n".to_owned(), None));
        let group = process.group;
        drop(process);
        // Nobody is left in it but perhaps one that is dead and not yet waited for.
        for _ in 0..250 {
            if kill_process_group(group, Signal::TERM).is_err() {
                return;
            }
            std::thread::sleep(LOOK);
        }
        panic!("a process is left");
    }

    #[test]
    fn programs_are_found() {
        assert!(find("sh").is_some());
        assert!(find("no-such-program").is_none());
    }
}
