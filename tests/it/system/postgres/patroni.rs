//! Two PostgreSQL servers, of which Patroni makes one the primary and the other its synchronous standby, and etcd, where Patroni
//! keeps its state.

use crate::harness::waiting::found_within;
use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::cluster::{as_user, as_user_until, folder, in_path, own, program};

/// Far longer than a failover and the rejoin of the old primary take.
const PATIENCE: Duration = Duration::from_mins(3);
/// The commands of the Debian packages, with the names of the packages.
const ETCD: (&str, &str) = ("etcd", "etcd-server");
const PATRONI: (&str, &str) = ("patroni", "patroni");
const ETCD_PORT: u16 = 2379;
const PEER_PORT: u16 = 2380;

/// A PostgreSQL server and its Patroni.
#[derive(Debug)]
struct Member {
    name: &'static str,
    postgres_port: u16,
    rest_port: u16,
    process: Option<Child>,
}

/// The servers. Dropping them ends all processes.
#[derive(Debug)]
pub(crate) struct Patroni {
    folder: TempDir,
    /// An address of this test, so that the ports are free.
    address: Ipv4Addr,
    etcd: Child,
    members: [Member; 2],
}

/// How the primary ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Loss {
    /// PostgreSQL is killed, and its Patroni gives up the primary's role.
    Postgres,
    /// PostgreSQL and its Patroni are killed, as when the machine is lost. The role expires.
    Machine,
}

impl Patroni {
    /// Starts all servers, and waits until there is a primary with a standby and an empty database of deltaq.
    pub(crate) fn start() -> Self {
        let folder = folder();
        let [_, _, high, low] = std::process::id().to_be_bytes();
        let address = Ipv4Addr::new(127, 78, high, low.max(1));
        let [client, peer] = [ETCD_PORT, PEER_PORT].map(|port| format!("http://{address}:{port}"));
        let etcd = as_user(&installed(ETCD))
            .args(["--name", "e", "--initial-cluster", &format!("e={peer}"), "--data-dir"])
            .arg(folder.path().join("etcd"))
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("etcd starts");
        let member = |name, number: u16| Member {
            name,
            postgres_port: 5432 + number,
            rest_port: 8008 + number,
            process: None,
        };
        let mut patroni = Self { folder, address, etcd, members: [member("a", 0), member("b", 1)] };
        patroni.run_members();
        patroni.until_protected();
        let primary = patroni.until_primary();
        for command in ["CREATE ROLE deltaq LOGIN", "CREATE DATABASE deltaq OWNER deltaq"] {
            patroni.sql(primary, command).expect("the primary takes changes");
        }
        patroni
    }

    /// The address of the database, with both servers.
    pub(crate) fn url(&self) -> String {
        let hosts =
            self.members.each_ref().map(|member| format!("{}:{}", self.address, member.postgres_port));
        format!("postgres://deltaq@{}/deltaq?target_session_attrs=read-write", hosts.join(","))
    }

    /// Ends the primary, and waits until the other server is the primary.
    pub(crate) fn lose_primary(&mut self, loss: Loss) {
        let primary = self.until_primary();
        if matches!(loss, Loss::Machine)
            && let Some(mut process) = self.members[primary].process.take()
        {
            process.kill().expect("Patroni runs");
            process.wait().expect("a child process");
        }
        kill_process(self.postmaster(primary).expect("a primary has a process"), Signal::KILL)
            .expect("PostgreSQL runs");
        let other = 1 - primary;
        self.wait("the standby is not the primary", |patroni| patroni.primary() == Some(other));
    }

    /// Waits until exactly one server takes changes, and returns its index.
    fn until_primary(&self) -> usize {
        self.wait_for("there is no primary", Self::primary)
    }

    /// Starts the killed processes, and waits until the primary has a synchronous standby again.
    pub(crate) fn until_protected(&mut self) {
        self.run_members();
        self.wait("the primary has no synchronous standby", |patroni| {
            patroni.primary().is_some_and(|primary| patroni.is_synchronous(1 - primary))
        });
    }

    /// Whether Patroni has noted that a member is the synchronous standby. Only such a member becomes the primary.
    fn is_synchronous(&self, index: usize) -> bool {
        let url = format!("http://{}:{}/synchronous", self.address, self.members[index].rest_port);
        let output = Command::new("curl").args(["-fsS", "-m", "2", &url]).output().expect("curl runs");
        output.status.success()
    }

    fn run_members(&mut self) {
        for index in 0..self.members.len() {
            let process = self.members[index].process.as_mut();
            let runs = process.is_some_and(|process| process.try_wait().expect("a child process").is_none());
            if !runs {
                self.members[index].process = Some(self.run_member(index));
            }
        }
    }

    fn run_member(&self, index: usize) -> Child {
        let member = &self.members[index];
        let config = self.path(&format!("{}.yml", member.name));
        fs::write(&config, self.config(member)).expect("a file");
        own(&config, self.folder.path());
        let log =
            fs::File::options().append(true).create(true).open(self.path(&format!("{}.log", member.name)));
        let log = log.expect("a file");
        // On SIGTERM, Patroni also ends its PostgreSQL.
        let mut command = as_user_until(&installed(PATRONI), "TERM");
        command.arg(config).stdin(Stdio::null()).stdout(log.try_clone().expect("a file")).stderr(log);
        command.spawn().expect("Patroni starts")
    }

    /// The configuration of a member. `ttl` has the lowest value that Patroni allows, so that the role of a lost primary expires soon.
    fn config(&self, member: &Member) -> String {
        let (address, folder) = (self.address, self.folder.path().display());
        let Member { name, postgres_port, rest_port, .. } = member;
        let programs = program("postgres");
        let programs = programs.parent().expect("a folder").display();
        format!(
            "scope: deltaq
name: {name}
restapi: {{listen: '{address}:{rest_port}', connect_address: '{address}:{rest_port}'}}
etcd3: {{host: '{address}:{ETCD_PORT}'}}
bootstrap:
  dcs:
    ttl: 20
    loop_wait: 1
    retry_timeout: 3
    primary_start_timeout: 0
    synchronous_mode: true
    postgresql: {{use_pg_rewind: true, use_slots: true, parameters: {{wal_log_hints: 'on', max_connections: 50}}}}
  initdb: [{{encoding: UTF8}}, {{locale: C}}, {{auth: trust}}]
postgresql:
  listen: '{address}:{postgres_port}'
  connect_address: '{address}:{postgres_port}'
  data_dir: {folder}/{name}
  bin_dir: {programs}
  pgpass: {folder}/{name}.pgpass
  authentication:
    superuser: {{username: postgres}}
    replication: {{username: replicator}}
    rewind: {{username: postgres}}
  pg_hba: ['local all all trust', 'host all all 127.0.0.0/8 trust', 'host replication all 127.0.0.0/8 trust']
  parameters: {{unix_socket_directories: '{folder}', shared_buffers: 16MB}}
"
        )
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The index of the member whose PostgreSQL takes changes, if exactly one does.
    fn primary(&self) -> Option<usize> {
        let takes_changes =
            |index: &usize| self.sql(*index, "SELECT pg_is_in_recovery()").as_deref() == Some("f");
        let primaries: Vec<usize> = (0..self.members.len()).filter(takes_changes).collect();
        if let [one] = primaries[..] { Some(one) } else { None }
    }

    /// Runs SQL at a member as the administrator; `None` if that fails.
    fn sql(&self, index: usize, text: &str) -> Option<String> {
        let mut command = Command::new(program("psql"));
        command.args([
            "-X",
            "-q",
            "-A",
            "-t",
            "-v",
            "ON_ERROR_STOP=1",
            "-U",
            "postgres",
            "-d",
            "postgres",
            "-h",
        ]);
        command.args([
            &self.address.to_string(),
            "-p",
            &self.members[index].postgres_port.to_string(),
            "-c",
            text,
        ]);
        let output = command.env("PGCONNECT_TIMEOUT", "2").output().expect("psql runs");
        let rows = String::from_utf8(output.stdout).expect("text").trim_end().to_owned();
        output.status.success().then_some(rows)
    }

    /// The process of a member's PostgreSQL. A killed server leaves its file behind, and its number may be that of another process.
    fn postmaster(&self, index: usize) -> Option<Pid> {
        let text = fs::read_to_string(self.path(self.members[index].name).join("postmaster.pid")).ok()?;
        let id = text.lines().next()?.trim();
        let command = fs::read_to_string(format!("/proc/{id}/cmdline")).ok()?;
        let is_of_this_test = command.contains(self.folder.path().to_str().expect("the path is text"));
        is_of_this_test.then(|| Pid::from_raw(id.parse().ok()?)).flatten()
    }

    fn wait(&self, failure: &str, holds: impl Fn(&Self) -> bool) {
        self.wait_for(failure, |patroni| holds(patroni).then_some(()));
    }

    fn wait_for<T>(&self, failure: &str, find: impl Fn(&Self) -> Option<T>) -> T {
        found_within(PATIENCE, || find(self).ok_or(failure))
    }
}

impl Drop for Patroni {
    fn drop(&mut self) {
        for index in 0..self.members.len() {
            let member = &mut self.members[index];
            if let Some(mut process) = member.process.take() {
                let _ended = kill_process(Pid::from_child(&process), Signal::TERM);
                let _reaped = process.wait();
            }
            // Patroni ends its PostgreSQL, unless Patroni was killed.
            if let Some(postmaster) = self.postmaster(index) {
                let _ended = kill_process(postmaster, Signal::QUIT);
            }
            if std::thread::panicking() {
                let name = self.members[index].name;
                println!(
                    "{name}:\n{}",
                    fs::read_to_string(self.path(&format!("{name}.log"))).unwrap_or_default()
                );
            }
        }
        let _ended = self.etcd.kill();
        let _reaped = self.etcd.wait();
    }
}

fn installed((command, package): (&str, &str)) -> PathBuf {
    in_path(command).unwrap_or_else(|| panic!("install the Debian package {package}, as .ci/run does"))
}
