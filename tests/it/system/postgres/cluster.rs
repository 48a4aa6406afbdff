//! A PostgreSQL server of one test.
//!
//! Each test is a process of its own, so it gets a server of its own: a copy of a data directory that the first test makes. The
//! server listens on a Unix socket only, so no two tests need one port. The kernel ends it when the test ends, however that
//! happens, and the next test removes its files.

use std::fs::{self, File, Permissions};
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, getuid, kill_process};
use tempfile::TempDir;

use crate::harness::waiting::{found, until};
use crate::harness::wall_clock::WallClock;

/// The Debian package of the server.
const PACKAGE: &str = "postgresql";
/// The copy of the library of a wall clock.
const CLOCK_LIBRARY: &str = "wall_clock.so";
/// The name in the path of a file of a test, before the process id.
const PREFIX: &str = "deltaq-postgres-";
/// How long a test waits between two looks at a server, and how often it looks.
const PAUSE: Duration = Duration::from_millis(10);
const LOOKS: usize = 6_000;
/// The user and the database of deltaq in a new cluster.
const SETUP: &str = "CREATE ROLE deltaq LOGIN\nCREATE DATABASE deltaq OWNER deltaq\n";
/// Settings of every server. Only the name of the socket contains the port.
const SETTINGS: [&str; 9] = [
    "listen_addresses=",
    "port=5432",
    "shared_buffers=16MB",
    "max_connections=50",
    "min_wal_size=2MB",
    "max_wal_size=64MB",
    "lc_messages=C",
    "log_min_messages=error",
    "track_commit_timestamp=on",
];
/// Settings of a server that need not survive a loss of power.
const VOLATILE: [&str; 3] = ["fsync=off", "full_page_writes=off", "synchronous_commit=on"];

/// A server. Dropping it ends the server and removes its files.
#[derive(Debug)]
pub(crate) struct Cluster {
    folder: TempDir,
    is_durable: bool,
    /// Settings besides those of every server.
    settings: Vec<String>,
    wall_clock: Option<WallClock>,
    process: Option<Child>,
}

impl Cluster {
    /// Starts a server with an empty database `deltaq` of the role `deltaq`. It ignores fsync.
    pub(crate) fn start() -> Self {
        Self::new(false)
    }

    /// Starts a server whose commits survive a loss of power.
    pub(crate) fn durable() -> Self {
        Self::new(true)
    }

    /// Starts a server whose log has the changes of rows. The role of deltaq may make slots.
    pub(crate) fn logical() -> Self {
        let cluster = Self::with_settings(false, vec!["wal_level=logical".to_owned()]);
        cluster.sql("ALTER ROLE deltaq REPLICATION");
        cluster
    }

    fn new(is_durable: bool) -> Self {
        Self::with_settings(is_durable, Vec::new())
    }

    fn with_settings(is_durable: bool, settings: Vec<String>) -> Self {
        let folder = folder();
        let template = template();
        run(Command::new("cp").args(["-a", "--reflink=auto"]).arg(&template).arg(folder.path().join("data")));
        let mut cluster = Self { folder, is_durable, settings, wall_clock: None, process: None };
        cluster.restart();
        cluster
    }

    /// Starts the server, which has ended, and waits until it accepts connections.
    pub(crate) fn restart(&mut self) {
        let mut looks = 0..LOOKS;
        while looks.next().is_some() {
            let process = self.process.as_mut();
            let runs = process.is_some_and(|process| process.try_wait().expect("a child process").is_none());
            if runs && self.is_ready() {
                return;
            }
            if !runs {
                // After a kill, the processes of connections may hold the shared memory for a moment.
                self.process = Some(self.server().spawn().expect("setpriv of util-linux runs"));
            }
            std::thread::sleep(PAUSE);
        }
        panic!("PostgreSQL does not accept connections:\n{}", self.log());
    }

    fn server(&self) -> Command {
        let log = File::options().append(true).create(true).open(self.folder.path().join("log"));
        let log = log.expect("a file");
        let mut command = as_user(&program("postgres"));
        command.arg("-D").arg(self.folder.path().join("data"));
        let sockets = format!("unix_socket_directories={}", self.folder.path().display());
        let volatile = if self.is_durable { &[][..] } else { &VOLATILE[..] };
        for setting in SETTINGS.iter().chain(volatile).copied().chain([sockets.as_str()]) {
            command.args(["-c", setting]);
        }
        for setting in &self.settings {
            command.args(["-c", setting]);
        }
        if let Some(clock) = &self.wall_clock {
            clock.give(&mut command);
            // The user of the server need not have access to the folder of the build.
            command.env("LD_PRELOAD", self.folder.path().join(CLOCK_LIBRARY));
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        command
    }

    fn is_ready(&self) -> bool {
        let mut command = Command::new(program("pg_isready"));
        command.args(["-q", "-U", "postgres", "-d", "deltaq", "-h"]).arg(self.folder.path());
        command.status().expect("pg_isready runs").success()
    }

    /// Ends the server with a signal: SIGINT breaks all connections, SIGQUIT and SIGKILL need a recovery afterwards.
    pub(crate) fn end(&mut self, signal: Signal) {
        if let Some(mut process) = self.process.take() {
            kill_process(Pid::from_child(&process), signal).expect("the server runs");
            process.wait().expect("a child process");
        }
    }

    /// Copies the files of a server that has ended.
    pub(crate) fn save(&self) {
        self.copy("data", "saved");
    }

    /// Takes a server that has ended back to the saved files, as a failover to a replica that lags does.
    pub(crate) fn roll_back(&self) {
        self.copy("saved", "data");
    }

    fn copy(&self, from: &str, to: &str) {
        let [from, to] = [from, to].map(|name| self.folder.path().join(name));
        let _missing = fs::remove_dir_all(&to);
        run(Command::new("cp").args(["-a", "--reflink=auto"]).arg(from).arg(to));
    }

    /// Gives the server a wall clock of its own from its next start on. It is ahead by so many seconds.
    pub(crate) fn set_wall_clock(&mut self, seconds: i64) {
        let path = self.folder.path().join("clock");
        let clock = self.wall_clock.get_or_insert_with(|| WallClock::new(path));
        fs::copy(clock.library(), self.folder.path().join(CLOCK_LIBRARY)).expect("a copy");
        clock.set(seconds);
    }

    /// Makes this server, which has ended, an asynchronous standby of a primary.
    pub(crate) fn follow(&mut self, primary: &Self) {
        let data = self.folder.path().join("data");
        // After a kill, the processes of connections may live for a moment.
        found(|| match fs::remove_dir_all(&data) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        });
        let mut copy = as_user(&program("pg_basebackup"));
        copy.args(["-U", "postgres", "-R", "-N", "-c", "fast", "-h"]).arg(primary.folder.path());
        run(copy.arg("-D").arg(&data));
        self.restart();
    }

    /// Waits until this standby has everything that its primary has, and lets it lag from now on.
    pub(crate) fn lag_behind(&self, primary: &Self) {
        let written = primary.sql("SELECT pg_current_wal_flush_lsn()");
        let replayed = format!("SELECT pg_last_wal_replay_lsn() >= '{written}'");
        until("the standby has everything", || self.sql(&replayed) == "t");
        self.sql("ALTER SYSTEM SET primary_conninfo = ''");
        self.sql("SELECT pg_reload_conf()");
        until("the standby lags", || self.sql("SELECT count(*) FROM pg_stat_wal_receiver") == "0");
    }

    /// Makes this standby the primary.
    pub(crate) fn promote(&self) {
        assert_eq!(self.sql("SELECT pg_promote()"), "t");
    }

    /// Starts the server again with TLS at an address of its own, with this certificate and key (PEM).
    pub(crate) fn listen_with_tls(&mut self, address: IpAddr, certificate: &str, key: &str) {
        self.end(Signal::INT);
        for (name, text) in [("cert.pem", certificate), ("key.pem", key)] {
            let path = self.folder.path().join(name);
            fs::write(&path, text).expect("a file");
            fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("the file belongs to this user");
            own(&path, self.folder.path());
        }
        let folder = self.folder.path().display();
        self.settings = vec![
            format!("listen_addresses={address}"),
            "ssl=on".to_owned(),
            format!("ssl_cert_file={folder}/cert.pem"),
            format!("ssl_key_file={folder}/key.pem"),
        ];
        self.restart();
        self.authenticate("hostssl all deltaq all trust");
    }

    /// The path of the server's socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join(".s.PGSQL.5432")
    }

    /// The folder of the server's socket and of other files of the test.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The address of the database of deltaq, over the Unix socket.
    pub(crate) fn url(&self) -> String {
        self.url_of("deltaq")
    }

    /// The address of another database.
    pub(crate) fn url_of(&self, database: &str) -> String {
        format!("postgres://deltaq@localhost/{database}?host={}", self.folder.path().display())
    }

    /// Runs SQL in the database of deltaq as the administrator. Returns the rows, one per line.
    pub(crate) fn sql(&self, text: &str) -> String {
        self.sql_in("deltaq", text)
    }

    /// Runs SQL in a database as the administrator.
    pub(crate) fn sql_in(&self, database: &str, text: &str) -> String {
        let output = run(&mut self.psql(database, text));
        String::from_utf8(output.stdout).expect("text").trim_end().to_owned()
    }

    /// The command that runs SQL in a database as the administrator.
    pub(crate) fn psql(&self, database: &str, text: &str) -> Command {
        let mut command = Command::new(program("psql"));
        command.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-U", "postgres", "-h"]);
        command.arg(self.folder.path()).args(["-d", database, "-c", text]);
        command
    }

    /// Adds a line before all others to `pg_hba.conf`, which says who may connect and how.
    pub(crate) fn authenticate(&self, line: &str) {
        let path = self.folder.path().join("data/pg_hba.conf");
        let old = fs::read_to_string(&path).expect("a file");
        fs::write(&path, format!("{line}\n{old}")).expect("a file");
        self.sql("SELECT pg_reload_conf()");
    }

    /// The log of the server.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("the log of PostgreSQL:\n{}", self.log());
        }
        if let Some(mut process) = self.process.take() {
            let _ended = kill_process(Pid::from_child(&process), Signal::QUIT);
            let _reaped = process.wait();
        }
    }
}

/// Gives a file to the owner of a folder.
pub(crate) fn own(path: &Path, folder: &Path) {
    if getuid().is_root() {
        let owner = fs::metadata(folder).expect("a folder");
        chown(path, Some(owner.uid()), Some(owner.gid())).expect("root may do this");
    }
}

/// The path of a program of PostgreSQL. Debian puts the server's programs outside of the PATH.
pub(crate) fn program(name: &str) -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().filter_map(Result::ok);
    let number = |path: &PathBuf| path.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok());
    let newest = versions.map(|version| version.path()).max_by_key(number);
    let debian = newest.map(|version| version.join("bin").join(name)).filter(|path| path.exists());
    debian.or_else(|| in_path(name)).unwrap_or_else(|| {
        panic!("{name} is not installed: install the Debian package {PACKAGE}, as .ci/run does")
    })
}

/// The path of a program in the PATH or in a folder for administrators.
pub(crate) fn in_path(name: &str) -> Option<PathBuf> {
    let script = "PATH=\"$PATH:/usr/sbin\" command -v \"$1\"";
    let found = Command::new("sh").args(["-c", script, "sh", name]).output().expect("there is a shell");
    let path = String::from_utf8(found.stdout).expect("text");
    (!path.is_empty()).then(|| path.trim_end().into())
}

/// A command of a user who is not root, which PostgreSQL and PgBouncer refuse. It ends when the thread of the test ends.
pub(crate) fn as_user(program: &Path) -> Command {
    as_user_until(program, "QUIT")
}

/// As [`as_user`], with the signal that ends the command.
pub(crate) fn as_user_until(program: &Path, signal: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", signal]);
    if getuid().is_root() {
        command.args(["--reuid", "postgres", "--regid", "postgres", "--clear-groups"]);
    }
    command.arg(program).current_dir("/");
    command
}

/// Runs a command that must succeed.
#[track_caller]
pub(crate) fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?} can't run: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}: {said}", output.status);
    output
}

/// An empty folder with a short path, which the user of the server owns.
pub(crate) fn folder() -> TempDir {
    let prefix = format!("{PREFIX}{}-", std::process::id());
    let folder = tempfile::Builder::new().prefix(&prefix).tempdir().expect("a folder");
    if getuid().is_root() {
        let id = |option: &str| {
            let said = Command::new("id").args([option, "postgres"]).output().expect("id runs");
            let id = String::from_utf8_lossy(&said.stdout).trim().parse::<u32>();
            id.unwrap_or_else(|_| panic!("there is no user postgres: install the Debian package {PACKAGE}"))
        };
        chown(folder.path(), Some(id("-u")), Some(id("-g"))).expect("root may do this");
    }
    folder
}

/// The data directory that all tests copy. The first test makes it.
fn template() -> PathBuf {
    let parent = Path::new(env!("CARGO_TARGET_TMPDIR")).join("postgres");
    fs::create_dir_all(&parent).expect("a folder");
    let lock = File::create(parent.join("lock")).expect("a file");
    lock.lock().expect("a lock");
    remove_leftovers();
    let version = run(Command::new(program("postgres")).arg("--version"));
    let version =
        String::from_utf8_lossy(&version.stdout).replace(|letter: char| !letter.is_alphanumeric(), "-");
    let template = parent.join(version.trim_end_matches('-'));
    if !template.exists() {
        // The user of the server need not have access to the folder of the build.
        let making = folder();
        let data = making.path().join("data");
        let mut initdb = as_user(&program("initdb"));
        initdb.args(["-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "--no-sync"]);
        run(initdb.args(["--wal-segsize=1", "-D"]).arg(&data));
        let script = making.path().join("setup.sql");
        fs::write(&script, SETUP).expect("a file");
        let mut single = as_user(&program("postgres"));
        single.arg("--single").args(["-c", "fsync=off", "-D"]).arg(&data).arg("postgres");
        run(single.stdin(File::open(&script).expect("a file")));
        let partial = template.with_extension("partial");
        let _left = fs::remove_dir_all(&partial);
        run(Command::new("cp").arg("-a").arg(&data).arg(&partial));
        fs::rename(&partial, &template).expect("a folder");
    }
    template
}

/// Removes the files of tests that were killed.
fn remove_leftovers() {
    let folders = fs::read_dir(std::env::temp_dir()).expect("a folder");
    for folder in folders.filter_map(Result::ok) {
        let name = folder.file_name();
        let id = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next());
        if id.is_some_and(|id| !Path::new("/proc").join(id).exists()) {
            let _other_user = fs::remove_dir_all(folder.path());
        }
    }
}
