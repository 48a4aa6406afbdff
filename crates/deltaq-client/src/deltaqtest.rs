//! Starts a real deltaq server for tests: in memory, on a free port of 127.0.0.1.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde::Deserialize;
use tokio::time::{Instant, sleep};

use crate::client::Client;
use crate::error::{BoxError, Error};

/// How often a server that starts is looked at.
const POLL: Duration = Duration::from_millis(10);
/// How long a server may take until it takes calls.
const READY_MAX: Duration = Duration::from_secs(30);

/// Options of a server.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Options {
    /// The program; by default that of the variable `DELTAQ_BIN` or, without it, `deltaq` in the `PATH`.
    pub binary: Option<PathBuf>,
    /// Settings of the server, by their names in its configuration, such as `server.max_wait`.
    pub settings: Vec<(String, String)>,
}

/// A running server. Its end is at once, as that of a crash, when the value is dropped. If the program is a script that has
/// started the server, both end.
#[derive(Debug)]
pub struct Server {
    url: String,
    process: Child,
    guard: Option<Child>,
    folder: PathBuf,
}

/// The file that a server writes when it takes calls.
#[derive(Deserialize)]
struct Ready {
    api: String,
}

impl Server {
    /// Starts the program of the variable `DELTAQ_BIN` or, without it, `deltaq` in the `PATH`, and waits until it takes
    /// calls.
    ///
    /// # Errors
    /// There is no program, or it does not start. The error has what it has written.
    pub async fn start() -> Result<Self, BoxError> {
        Self::with(Options::default()).await
    }

    /// The same with options.
    ///
    /// # Errors
    /// There is no program, or it does not start. The error has what it has written.
    #[expect(
        clippy::disallowed_methods,
        reason = "the environment names the program, and a server must not have its settings"
    )]
    pub async fn with(options: Options) -> Result<Self, BoxError> {
        let folder = std::env::temp_dir().join(format!("deltaqtest-{}", crate::queue::random_id()?));
        fs::create_dir(&folder)?;
        let ready = folder.join("ready");
        let log = File::create(folder.join("log"))?;
        let binary = options.binary.map(PathBuf::into_os_string).or_else(|| std::env::var_os("DELTAQ_BIN"));
        let binary = binary.unwrap_or_else(|| "deltaq".into());
        let mut command = Command::new(&binary);
        command
            .args([
                "serve",
                "--in-memory",
                "--listen",
                "127.0.0.1:0",
                "--metrics-listen",
                "",
                "--log-level",
                "warn",
            ])
            .arg("--ready-file")
            .arg(&ready)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("DELTAQ_"))
        {
            command.env_remove(name);
        }
        for (name, value) in options.settings {
            command.env(format!("DELTAQ_{}", name.to_uppercase().replace('.', "__")), value);
        }
        // The program may be a script that starts the server, and has a group of processes for both.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let process = command.spawn().map_err(|error| {
            remove(&folder);
            not_started(&binary, &error)
        })?;
        let guard = guard(process.id()).ok();
        let mut server = Self { url: String::new(), process, guard, folder };
        server.url = server.ready(&ready).await?;
        Ok(server)
    }

    async fn ready(&mut self, ready: &Path) -> Result<String, BoxError> {
        let end = Instant::now() + READY_MAX;
        // The file appears with its whole text.
        while !ready.exists() {
            let status = self.process.try_wait()?;
            if status.is_some() || Instant::now() > end {
                return Err(format!("the deltaq server did not start ({status:?}):\n{}", self.log()).into());
            }
            sleep(POLL).await;
        }
        let ready: Ready = serde_json::from_slice(&fs::read(ready)?)?;
        Ok(format!("http://{}", ready.api))
    }

    /// The URL for [`Client::at`].
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// A new client of the server.
    ///
    /// # Errors
    /// The HTTP client can't be set up.
    pub fn client(&self) -> Result<Client, Error> {
        Client::at(&self.url)
    }

    /// What the server has written so far: warnings and errors.
    #[must_use]
    pub fn log(&self) -> String {
        let log = fs::read(self.folder.join("log")).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut guard) = self.guard.take() {
            // This closes its input, so it ends the group.
            let _status = guard.wait();
        }
        // An error means that the process has ended.
        let _ended = self.process.kill();
        let _status = self.process.wait();
        remove(&self.folder);
    }
}

/// A process that ends a group of processes when its input ends: when the server is dropped, and also when this process is
/// interrupted, which does not reach the group.
fn guard(group: u32) -> io::Result<Child> {
    let mut command = Command::new("sh");
    command.args(["-c", "read -r _; kill -s KILL -- \"-$0\"", &group.to_string()]);
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
}

fn not_started(binary: &OsStr, error: &io::Error) -> BoxError {
    let binary = binary.display();
    if error.kind() == io::ErrorKind::NotFound {
        return format!(
            "there is no program {binary}: install it, for example with pip install deltaq-server, and put it into the PATH, \
             or set DELTAQ_BIN to its path"
        )
        .into();
    }
    format!("can't start {binary}: {error}").into()
}

fn remove(folder: &Path) {
    let _removed = fs::remove_dir_all(folder);
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// A program in the place of deltaq.
    fn program(folder: &Path, script: &str) -> Options {
        let binary = folder.join("deltaq");
        fs::write(&binary, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&binary, fs::Permissions::from_mode(0o755)).unwrap();
        let settings = vec![("server.max_wait".to_owned(), "7s".to_owned())];
        Options { binary: Some(binary), settings }
    }

    #[tokio::test]
    async fn a_server_is_ready_when_it_says_so_and_ends_when_it_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let script = "echo \"$DELTAQ_SERVER__MAX_WAIT\"; while [ \"$1\" != --ready-file ]; do shift; done
            echo '{\"api\":\"127.0.0.1:7\"}' > \"$2.new\"; mv \"$2.new\" \"$2\"; exec sleep 600";
        let server = Server::with(program(folder.path(), script)).await.unwrap();
        assert_eq!((server.url(), server.log().as_str()), ("http://127.0.0.1:7", "7s\n"));
        assert_eq!(server.client().unwrap().address(), server.url());
        let (process, kept) = (server.process.id(), server.folder.clone());
        drop(server);
        assert!(!kept.exists() && !Path::new(&format!("/proc/{process}")).exists());
    }

    #[tokio::test]
    async fn a_script_that_starts_the_server_ends_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let child = folder.path().join("child");
        let script = format!(
            "while [ \"$1\" != --ready-file ]; do shift; done; sleep 600 & echo $! > {}
            echo '{{\"api\":\"127.0.0.1:7\"}}' > \"$2.new\"; mv \"$2.new\" \"$2\"; wait",
            child.display()
        );
        let server = Server::with(program(folder.path(), &script)).await.unwrap();
        let child = format!("/proc/{}", fs::read_to_string(child).unwrap().trim());
        assert!(Path::new(&child).exists());
        drop(server);
        for _ in 0..500 {
            if !Path::new(&child).exists() {
                return;
            }
            sleep(POLL).await;
        }
        panic!("{child} still runs");
    }

    #[tokio::test]
    async fn a_server_that_does_not_start_says_why() {
        let folder = tempfile::tempdir().unwrap();
        let failed = Server::with(program(folder.path(), "echo no such setting >&2; exit 1")).await;
        assert!(failed.unwrap_err().to_string().contains("no such setting"));
        let absent = Options { binary: Some(folder.path().join("absent")), ..Options::default() };
        let text = Server::with(absent).await.unwrap_err().to_string();
        assert!(text.contains("absent: install it") && text.contains("DELTAQ_BIN"), "{text}");
    }
}
