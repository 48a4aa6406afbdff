//! The servers that are compared: how each is started, with which settings, and when it is ready.

use std::fs;
use std::io;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use deltaq::clock::Clock;
use rustix::process::{Signal, getuid};

use crate::drivers::postgres;
use crate::process::{Folder, LOOK, Process, find, free_port, output, printed};

/// How long a server is given to be ready.
const PATIENCE: Duration = Duration::from_mins(1);

/// Which server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Deltaq,
    /// HTTP without a queue.
    Noop,
    Redis,
    Beanstalkd,
    Nats,
    Postgres,
}

/// Whether answers come after what they confirm is on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Storage {
    Memory,
    Fsync,
}

impl Kind {
    pub(crate) const ALL: [Self; 6] =
        [Self::Deltaq, Self::Noop, Self::Redis, Self::Beanstalkd, Self::Nats, Self::Postgres];

    /// The program, and the Debian package that has it, unless it is built here.
    pub(crate) fn program(self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::Deltaq => ("deltaq", None),
            Self::Noop => ("noop", None),
            Self::Redis => ("redis-server", Some("redis-server")),
            Self::Beanstalkd => ("beanstalkd", Some("beanstalkd")),
            Self::Nats => ("nats-server", Some("nats-server")),
            Self::Postgres => ("postgres", Some("postgresql")),
        }
    }

    /// What it is started with. All that is not named has its default.
    pub(crate) fn arguments(self, storage: Storage, port: &str, folder: &str) -> Vec<String> {
        let text = match (self, storage) {
            (Self::Deltaq, Storage::Memory) => {
                "serve --listen 127.0.0.1:PORT --metrics-listen= --log-level warn --ready-file DIR/ready --in-memory"
            }
            (Self::Deltaq, Storage::Fsync) => {
                "serve --listen 127.0.0.1:PORT --metrics-listen= --log-level warn --ready-file DIR/ready \
                 --data-dir DIR/data"
            }
            (Self::Noop, _) => "127.0.0.1:PORT",
            (Self::Redis, Storage::Memory) => {
                "--bind 127.0.0.1 --port PORT --dir DIR --save '' --appendonly no"
            }
            (Self::Redis, Storage::Fsync) => {
                "--bind 127.0.0.1 --port PORT --dir DIR --save '' --appendonly yes --appendfsync always"
            }
            (Self::Beanstalkd, Storage::Memory) => "-l 127.0.0.1 -p PORT",
            (Self::Beanstalkd, Storage::Fsync) => "-l 127.0.0.1 -p PORT -b DIR -f0",
            (Self::Nats, _) => "-a 127.0.0.1 -p PORT -c DIR/nats.conf",
            (Self::Postgres, _) => {
                "-D DIR/cluster -c listen_addresses=127.0.0.1 -c port=PORT -c unix_socket_directories="
            }
        };
        let filled = |word: &str| match word {
            "''" => String::new(),
            _ => word.replace("PORT", port).replace("DIR", folder),
        };
        text.split_whitespace().map(filled).collect()
    }

    /// What else there is to say about its settings.
    pub(crate) fn remark(self, programs: &Programs) -> String {
        match self {
            Self::Deltaq => "--log-level warn: without a line in the log for each request, as all others here; storage.sync is full, \
                 the default, with --data-dir"
                .into(),
            Self::Noop => "axum; reads each body as JSON, keeps nothing, answers 30 bytes".into(),
            Self::Redis => {
                "acknowledged entries stay in the stream: XACK alone, as in its documentation".into()
            }
            Self::Beanstalkd => "-f0: fsync at each write".into(),
            Self::Nats => {
                let synced = if programs.nats_syncs() {
                    "sync_interval: always, so that file storage has an fsync before each answer"
                } else {
                    "file storage is without an fsync before the answers: it has one each two minutes, \
                     and this version has no sync_interval"
                };
                format!("nats.conf: {}; {synced}", programs.nats_config("DIR").replace('\n', " ").trim_end())
            }
            Self::Postgres => {
                "initdb -A trust -E UTF8 --locale=C; fsync and synchronous_commit are on".into()
            }
        }
    }
}

/// Where the programs are, and what they say of themselves.
pub(crate) struct Programs {
    paths: Vec<(Kind, PathBuf, String)>,
    /// Where the data of servers are put.
    scratch: PathBuf,
}

impl Programs {
    /// Looks for those that are not among `built`.
    pub(crate) fn find(kinds: &[Kind], built: &[(Kind, PathBuf)], scratch: PathBuf) -> io::Result<Self> {
        let mut paths = Vec::new();
        for kind in kinds {
            let (name, _) = kind.program();
            let here = built.iter().find(|(which, _)| which == kind).map(|(_, path)| path.clone());
            let path = here.or_else(|| find(name));
            let path = path.ok_or_else(|| io::Error::other(format!("there is no {name}")))?;
            let version = match kind {
                Kind::Noop => String::new(),
                Kind::Beanstalkd => output(Command::new(&path).arg("-v"))?,
                _ => output(Command::new(&path).arg("--version"))?,
            };
            paths.push((*kind, path, version.lines().next().unwrap_or_default().trim().to_owned()));
        }
        Ok(Self { paths, scratch })
    }

    /// Those that were looked for, with their versions.
    pub(crate) fn versions(&self) -> impl Iterator<Item = (Kind, &str)> {
        self.paths.iter().map(|(kind, _, version)| (*kind, version.as_str()))
    }

    fn path(&self, kind: Kind) -> io::Result<&Path> {
        let found = self.paths.iter().find(|(which, _, _)| *which == kind);
        found
            .map(|(_, path, _)| path.as_path())
            .ok_or_else(|| io::Error::other(format!("{kind:?} was not looked for")))
    }

    /// Whether this NATS can sync each write: since 2.10.
    fn nats_syncs(&self) -> bool {
        let version = self.versions().find(|(kind, _)| *kind == Kind::Nats).map(|(_, version)| version);
        version.is_some_and(|version| at_least(version, (2, 10)))
    }

    fn nats_config(&self, folder: &str) -> String {
        let sync = if self.nats_syncs() { "\nsync_interval: always" } else { "" };
        format!("jetstream {{\nstore_dir: \"{folder}\"{sync}\n}}\n")
    }

    /// Starts a server of its own with an empty folder, and waits until it is ready.
    pub(crate) async fn start(&self, kind: Kind, storage: Storage, clock: &Clock) -> io::Result<Running> {
        let port = free_port()?.to_string();
        let name = format!("{}-{}-{port}", kind.program().0, std::process::id());
        let folder = Folder::new(self.scratch.join(name))?;
        let dir = folder.0.to_str().ok_or_else(|| io::Error::other("a path that is no UTF-8"))?;
        let mut command = Command::new(self.path(kind)?);
        command.args(kind.arguments(storage, &port, dir));
        match kind {
            Kind::Nats => fs::write(folder.0.join("nats.conf"), self.nats_config(dir))?,
            Kind::Postgres => initialize(&folder.0, &mut command, clock).await?,
            _ => {}
        }
        // Killed at once, PostgreSQL would leave shared memory behind.
        let ending = if kind == Kind::Postgres { Signal::QUIT } else { Signal::KILL };
        let process = Process::start(&mut command, ending, &folder.0.join("log"))?;
        let mut running = Running { process, folder, address: format!("127.0.0.1:{port}") };
        let begun_us = clock.monotonic_us();
        while !tokio::time::timeout(PATIENCE, running.is_ready(kind)).await.unwrap_or(false) {
            let ended = running.process.ended()?;
            if ended.is_some() || clock.since(begun_us) > PATIENCE {
                let said = running.process.said();
                return Err(io::Error::other(format!("{kind:?} is not ready: {ended:?}: {said}")));
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(running)
    }
}

/// A server that runs until it is dropped.
pub(crate) struct Running {
    /// Ends before its folder is removed, since it is dropped first.
    process: Process,
    folder: Folder,
    pub(crate) address: String,
}

impl Running {
    async fn is_ready(&self, kind: Kind) -> bool {
        match kind {
            Kind::Deltaq => self.folder.0.join("ready").is_file(),
            Kind::Postgres => postgres::connect(&self.address).await.is_ok(),
            _ => tokio::net::TcpStream::connect(&self.address).await.is_ok(),
        }
    }
}

/// Makes a cluster of PostgreSQL, which refuses to run as root: then both are done as its own user, or as nobody.
async fn initialize(folder: &Path, server: &mut Command, clock: &Clock) -> io::Result<()> {
    let mut command = Command::new(Path::new(server.get_program()).canonicalize()?.with_file_name("initdb"));
    command.arg("-D").arg(folder.join("cluster"));
    command.args(["-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "--no-sync"]);
    if getuid().is_root() {
        let (user, group) = ids_of("postgres").or_else(|_| ids_of("nobody"))?;
        chown(folder, Some(user), Some(group))?;
        for command in [&mut command, &mut *server] {
            command.uid(user).gid(group).current_dir(folder);
        }
    }
    printed(&mut command, PATIENCE, folder, clock).await.map(drop).map_err(|error| {
        let hint = "its user must be able to reach that folder; --scratch names another one";
        io::Error::new(error.kind(), format!("{error}\n{}: {hint}", folder.display()))
    })
}

fn ids_of(user: &str) -> io::Result<(u32, u32)> {
    let id = |which: &str| -> io::Result<u32> {
        let text = output(Command::new("id").args([which, user]))?;
        text.trim().parse().map_err(|_| io::Error::other(format!("id {which} {user} says {text:?}")))
    };
    Ok((id("-u")?, id("-g")?))
}

/// Whether the first version number of a text is that or a later one.
fn at_least(text: &str, version: (u32, u32)) -> bool {
    let digits = text.find(|letter: char| letter.is_ascii_digit());
    let mut numbers =
        digits.and_then(|start| text.get(start..)).unwrap_or_default().split('.').map(str::parse);
    matches!((numbers.next(), numbers.next()), (Some(Ok(major)), Some(Ok(minor))) if (major, minor) >= version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_number() {
        assert!(!at_least("nats-server: v2.9.10", (2, 10)));
        assert!(at_least("nats-server: v2.10.1", (2, 10)));
        assert!(at_least("v3.0", (2, 10)));
        assert!(!at_least("unknown", (2, 10)));
    }

    #[test]
    fn settings_are_filled_in() {
        let redis = Kind::Redis.arguments(Storage::Memory, "7", "/d");
        assert_eq!(
            redis,
            ["--bind", "127.0.0.1", "--port", "7", "--dir", "/d", "--save", "", "--appendonly", "no"]
        );
        let deltaq = Kind::Deltaq.arguments(Storage::Fsync, "7", "/d").join(" ");
        assert!(deltaq.ends_with("--ready-file /d/ready --data-dir /d/data"), "{deltaq}");
        assert!(!deltaq.contains("--in-memory"));
    }
}
