//! The compared servers: how each is started, its settings, and when it is ready.

use std::fs;
use std::io;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use deltaq_runtime::clock::Clock;
use rustix::process::{Signal, getuid};

use crate::drivers::postgres;
use crate::nodes;
use crate::process::{Folder, POLL_INTERVAL, Process, find, free_port, output, output_within};

/// Timeout of the start of a server.
const START_TIMEOUT: Duration = Duration::from_mins(1);

/// A compared server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Deltaq,
    /// An HTTP server without a queue.
    Noop,
    Redis,
    Beanstalkd,
    Nats,
    Postgres,
}

/// Where a server keeps its data. All but `Memory` confirm a write only after an fsync.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Storage {
    Memory,
    Fsync,
    /// deltaq alone on a PostgreSQL of its own.
    Postgres,
    /// Two nodes of deltaq on a PostgreSQL of their own. The load goes to the node that owns the queue, or to the other node.
    OwnerNode,
    OtherNode,
}

impl Storage {
    /// Whether deltaq needs a PostgreSQL.
    pub(crate) fn is_on_postgres(self) -> bool {
        matches!(self, Self::Postgres | Self::OwnerNode | Self::OtherNode)
    }
}

impl Kind {
    pub(crate) const ALL: [Self; 6] =
        [Self::Deltaq, Self::Noop, Self::Redis, Self::Beanstalkd, Self::Nats, Self::Postgres];

    /// The name of the program, and its Debian package unless it is built from this repository.
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

    /// The command-line arguments. All other settings have their defaults.
    pub(crate) fn arguments(self, storage: Storage, port: &str, folder: &str) -> Vec<String> {
        let text = match (self, storage) {
            (Self::Deltaq, Storage::Memory) => {
                "serve --listen 127.0.0.1:PORT --metrics-listen= --log-level warn --ready-file DIR/ready --in-memory"
            }
            (Self::Deltaq, Storage::Fsync) => {
                "serve --listen 127.0.0.1:PORT --metrics-listen= --log-level warn --ready-file DIR/ready \
                 --data-dir DIR/data"
            }
            (Self::Deltaq, Storage::Postgres) => {
                "serve --listen 127.0.0.1:PORT --metrics-listen= --log-level warn --ready-file DIR/ready \
                 --store postgres://postgres@DATABASE/postgres"
            }
            (Self::Deltaq, Storage::OwnerNode | Storage::OtherNode) => {
                "serve --listen 127.0.0.1:PORT --metrics-listen= --log-level warn --ready-file DIR/ready \
                 --store postgres://postgres@DATABASE/postgres --node-name node-PORT \
                 --advertise http://127.0.0.1:PORT"
            }
            (Self::Noop, _) => "127.0.0.1:PORT",
            (Self::Redis, Storage::Memory) => {
                "--bind 127.0.0.1 --port PORT --dir DIR --save '' --appendonly no"
            }
            (Self::Redis, _) => {
                "--bind 127.0.0.1 --port PORT --dir DIR --save '' --appendonly yes --appendfsync always"
            }
            (Self::Beanstalkd, _) => "-l 127.0.0.1 -p PORT",
            (Self::Nats, _) => "-a 127.0.0.1 -p PORT -js -sd DIR",
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

    /// Remarks on the settings, for the document.
    pub(crate) fn remark(self) -> &'static str {
        match self {
            Self::Deltaq => {
                "--log-level warn: no log line per request, like all other servers here; with --data-dir, \
                 storage.sync is full, which is the default"
            }
            Self::Noop => "axum; reads each body as JSON, stores nothing, replies with 30 bytes",
            Self::Redis => {
                "XACK without XDEL, as in its documentation: acknowledged entries stay in the stream"
            }
            Self::Beanstalkd => "",
            Self::Nats => "a stream in memory, with work-queue retention",
            Self::Postgres => "initdb -A trust -E UTF8 --locale=C; fsync and synchronous_commit are on",
        }
    }
}

/// The paths and versions of the programs.
pub(crate) struct Programs {
    paths: Vec<(Kind, PathBuf, String)>,
    /// The folder for the data of servers.
    scratch: PathBuf,
}

impl Programs {
    /// Finds the programs that are not among `built`.
    pub(crate) fn find(kinds: &[Kind], built: &[(Kind, PathBuf)], scratch: PathBuf) -> io::Result<Self> {
        let mut paths = Vec::new();
        for kind in kinds {
            let (name, _) = kind.program();
            let here = built.iter().find(|(which, _)| which == kind).map(|(_, path)| path.clone());
            let path = here.or_else(|| find(name));
            let path = path.ok_or_else(|| io::Error::other(format!("{name} is not installed")))?;
            let version = match kind {
                Kind::Noop => String::new(),
                Kind::Beanstalkd => output(Command::new(&path).arg("-v"))?,
                _ => output(Command::new(&path).arg("--version"))?,
            };
            paths.push((*kind, path, version.lines().next().unwrap_or_default().trim().to_owned()));
        }
        Ok(Self { paths, scratch })
    }

    /// The servers and their versions.
    pub(crate) fn versions(&self) -> impl Iterator<Item = (Kind, &str)> {
        self.paths.iter().map(|(kind, _, version)| (*kind, version.as_str()))
    }

    fn path(&self, kind: Kind) -> io::Result<&Path> {
        let found = self.paths.iter().find(|(which, _, _)| *which == kind);
        found
            .map(|(_, path, _)| path.as_path())
            .ok_or_else(|| io::Error::other(format!("{kind:?} is not among the servers of this run")))
    }

    /// Starts a server with an empty folder, and the servers that it needs, and waits until it is ready.
    pub(crate) async fn start(&self, kind: Kind, storage: Storage, clock: &Clock) -> io::Result<Running> {
        if kind != Kind::Deltaq || !storage.is_on_postgres() {
            return self.start_one(kind, storage, None, clock).await;
        }
        let database = self.start_one(Kind::Postgres, Storage::Fsync, None, clock).await?;
        let server = self.start_one(kind, storage, Some(&database), clock).await?;
        if storage == Storage::Postgres {
            return Ok(Running { _beside: vec![database], ..server });
        }
        let other = self.start_one(kind, storage, Some(&database), clock).await?;
        let (owner, other) = nodes::owner_first(server, other, clock).await?;
        let (server, beside) = if storage == Storage::OwnerNode { (owner, other) } else { (other, owner) };
        Ok(Running { _beside: vec![beside, database], ..server })
    }

    async fn start_one(
        &self,
        kind: Kind,
        storage: Storage,
        database: Option<&Running>,
        clock: &Clock,
    ) -> io::Result<Running> {
        let port = free_port()?.to_string();
        let name = format!("{}-{}-{port}", kind.program().0, std::process::id());
        let folder = Folder::new(self.scratch.join(name))?;
        let dir = folder.0.to_str().ok_or_else(|| io::Error::other("the path is not UTF-8"))?;
        let mut command = Command::new(self.path(kind)?);
        let database = database.map(|database| database.address.as_str()).unwrap_or_default();
        let filled = |word: String| word.replace("DATABASE", database);
        command.args(kind.arguments(storage, &port, dir).into_iter().map(filled));
        match kind {
            Kind::Deltaq if matches!(storage, Storage::OwnerNode | Storage::OtherNode) => {
                fs::write(folder.0.join("secret"), nodes::SECRET)?;
                command.env("DELTAQ_CLUSTER__SECRET_FILE", folder.0.join("secret"));
            }
            Kind::Postgres => initialize(&folder.0, &mut command, clock).await?,
            _ => {}
        }
        // PostgreSQL leaves shared memory behind when it is killed.
        let end_signal = if kind == Kind::Postgres { Signal::QUIT } else { Signal::KILL };
        let process = Process::start(&mut command, end_signal, &folder.0.join("log"))?;
        let mut running =
            Running { process, folder, address: format!("127.0.0.1:{port}"), _beside: Vec::new() };
        let begun_us = clock.monotonic_us();
        while !tokio::time::timeout(START_TIMEOUT, running.is_ready(kind)).await.unwrap_or(false) {
            let ended = running.process.ended()?;
            if ended.is_some() || clock.since(begun_us) > START_TIMEOUT {
                let tail = running.process.output_tail();
                return Err(io::Error::other(format!("{kind:?} is not ready: {ended:?}: {tail}")));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(running)
    }
}

/// A server that runs until it is dropped.
pub(crate) struct Running {
    /// Dropped before the folder, so the process ends before its folder is removed.
    pub(crate) process: Process,
    folder: Folder,
    pub(crate) address: String,
    /// The servers that end with this one: the other node, if there is one, and the database.
    _beside: Vec<Running>,
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

/// Creates a PostgreSQL cluster. PostgreSQL refuses to run as root, so root runs initdb and the server as the user postgres or
/// nobody.
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
    output_within(&mut command, START_TIMEOUT, folder, clock).await.map(drop).map_err(|error| {
        let hint = "the user of PostgreSQL must have access to this folder; --scratch selects another one";
        io::Error::new(error.kind(), format!("{error}\n{}: {hint}", folder.display()))
    })
}

fn ids_of(user: &str) -> io::Result<(u32, u32)> {
    let id = |option: &str| -> io::Result<u32> {
        let text = output(Command::new("id").args([option, user]))?;
        text.trim().parse().map_err(|_| io::Error::other(format!("id {option} {user} prints {text:?}")))
    };
    Ok((id("-u")?, id("-g")?))
}

#[cfg(test)]
mod tests {
    use super::*;

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
