//! The machine of a history: its clock, the rows of its store, and the copies of them.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use deltaq_runtime::clock::{Clock, ManualClock, wall_us};
use fastrand::Rng;

use super::node::Running;
use super::servers::Servers;
use crate::harness::process::{deltaq, finished};
use crate::harness::wall_clock::WallClock;
use crate::store::fake::FakeStore;

/// The right time at the first start: in November 2026.
const START_US: u64 = 1_795_000_000_000_000;
const HOUR_S: i64 = 3_600;
/// The calendar time at which the floor of the numbers is 0, in milliseconds.
const FLOOR_ZERO_MS: u64 = 1_735_689_600_000;

/// The machine.
pub(super) struct Machine {
    rows: Rows,
    clock: Clock,
    hand: ManualClock,
    /// The right time of a node in this process.
    now_us: u64,
    /// How far the clock is ahead, in seconds.
    wrong_s: i64,
    /// What the clock showed at the starts.
    starts_us: Vec<u64>,
}

enum Rows {
    /// A node without a journal.
    None,
    Memory(FakeStore),
    Files(Files),
    Servers(Box<Servers>),
}

/// The folders of a node that is a process.
struct Files {
    root: tempfile::TempDir,
    data: PathBuf,
    folders: u32,
    clock: WallClock,
}

/// A copy of the rows.
pub(super) enum Copied {
    Memory(FakeStore),
    Files(PathBuf),
    /// The standby of a database, which lags from now on.
    Standby,
}

impl Machine {
    /// A node in this process.
    pub(super) fn here(has_journal: bool) -> Self {
        Self::new(if has_journal { Rows::Memory(FakeStore::default()) } else { Rows::None })
    }

    /// A node that is a process on a folder.
    pub(super) fn of_processes() -> Self {
        let root = tempfile::tempdir().expect("a folder");
        let clock = WallClock::new(root.path().join("clock"));
        Self::new(Rows::Files(Files { data: root.path().join("0"), root, folders: 0, clock }))
    }

    /// A process on a database with a standby: a node, or a server alone.
    pub(super) fn of_databases(rng: &mut Rng) -> Self {
        Self::new(Rows::Servers(Box::new(Servers::start(rng.u8(..3) > 0, rng.bool()))))
    }

    fn new(rows: Rows) -> Self {
        let (clock, hand) = Clock::manual(START_US);
        Self { rows, clock, hand, now_us: START_US, wrong_s: 0, starts_us: Vec::new() }
    }

    pub(super) const fn has_journal(&self) -> bool {
        !matches!(self.rows, Rows::None)
    }

    /// The machine is off for a while. Its clock may be wrong by up to an hour afterwards, or show the time of an earlier start, so that the numbers
    /// of a lost time come again. Returns by how many seconds it is wrong.
    pub(super) fn pass_time(&mut self, rng: &mut Rng) -> i64 {
        self.spend(Duration::from_millis(rng.u64(1_000..1_800_000)));
        let wrong_s = if rng.u8(..10) < 6 { 0 } else { rng.i64(-HOUR_S..HOUR_S) };
        let wall_us = self.now_us.saturating_add_signed(wrong_s * 1_000_000);
        let earlier_us = rng.choice(&self.starts_us).copied().filter(|_| rng.u8(..4) == 0);
        let wall_us = earlier_us.unwrap_or(wall_us);
        self.starts_us.push(wall_us);
        self.hand.set_wall(wall_us);
        self.wrong_s = wall_us.cast_signed().wrapping_sub(self.now_us.cast_signed()) / 1_000_000;
        match &mut self.rows {
            Rows::Files(files) => files.clock.set(self.wrong_s),
            // The next server of the database has this clock.
            Rows::Servers(servers) => servers.set_clock(self.wrong_s),
            Rows::None | Rows::Memory(_) => {}
        }
        self.wrong_s
    }

    /// Whether a failover of the database would lose something now.
    pub(super) fn lags(&self) -> bool {
        matches!(&self.rows, Rows::Servers(servers) if servers.lags())
    }

    pub(super) fn has_standby(&self) -> bool {
        matches!(&self.rows, Rows::Servers(_))
    }

    /// Lets a process live on, over a failover of its database.
    pub(super) fn keep(&mut self, running: Running) {
        if let (Rows::Servers(servers), Running::Process(process)) = (&mut self.rows, running) {
            servers.keep(process);
        }
    }

    /// Whether a process that lives on knows all numbers that it has given out.
    pub(super) fn keeps_numbers(&self) -> bool {
        matches!(&self.rows, Rows::Servers(servers) if servers.keeps_numbers())
    }

    /// Time passes in this process.
    pub(super) fn spend(&mut self, time: Duration) {
        self.hand.advance(time);
        self.now_us += u64::try_from(time.as_micros()).expect("it fits");
    }

    /// The numbers of a life that begins from now on are above this one.
    pub(super) fn floor(&self) -> u64 {
        let wall_us = match &self.rows {
            Rows::Files(_) => wall_us().saturating_add_signed(self.wrong_s * 1_000_000),
            Rows::Servers(servers) => wall_us().saturating_add_signed(servers.wrong_s() * 1_000_000),
            Rows::None | Rows::Memory(_) => self.clock.wall_us(),
        };
        (wall_us / 1_000 - FLOOR_ZERO_MS) << 12
    }

    pub(super) async fn start(&mut self) -> Running {
        match &mut self.rows {
            Rows::None => Running::start(None, &self.clock).await,
            Rows::Memory(store) => Running::start(Some(store), &self.clock).await,
            Rows::Files(files) => Running::process(&files.data, &files.clock),
            Rows::Servers(servers) => Running::Process(servers.process()),
        }
    }

    /// A copy beside the running node; none without a journal.
    pub(super) fn backup(&mut self) -> Option<Copied> {
        match &mut self.rows {
            Rows::None => None,
            Rows::Servers(servers) => servers.lag().then_some(Copied::Standby),
            Rows::Memory(store) => Some(Copied::Memory(store.restarted())),
            Rows::Files(files) => {
                let folder = files.folder();
                fs::create_dir(&folder).expect("a folder");
                let to = folder.join("deltaq.db");
                finished(deltaq(&["backup", "--data-dir", &shown(&files.data), "--to", &shown(&to)]), "")
                    .ok();
                Some(Copied::Files(folder))
            }
        }
    }

    /// The node has ended: its rows are what a restart finds.
    pub(super) fn ended(&mut self) {
        if let Rows::Memory(store) = &mut self.rows {
            *store = store.restarted();
        }
    }

    /// A copy of the rows of a node that has ended; none without a journal.
    pub(super) fn copied(&mut self) -> Option<Copied> {
        match &mut self.rows {
            Rows::None | Rows::Servers(_) => None,
            Rows::Memory(store) => Some(Copied::Memory(store.restarted())),
            Rows::Files(files) => {
                let folder = files.folder();
                copy(&files.data, &folder);
                Some(Copied::Files(folder))
            }
        }
    }

    /// Puts a copy in the place of the rows.
    pub(super) fn restore(&mut self, copied: &Copied) {
        match (&mut self.rows, copied) {
            (Rows::Memory(store), Copied::Memory(rows)) => *store = rows.restarted(),
            (Rows::Files(files), Copied::Files(from)) => {
                files.data = files.folder();
                copy(from, &files.data);
            }
            (Rows::Servers(servers), Copied::Standby) => servers.fail_over(),
            _ => panic!("a copy of another kind of machine"),
        }
    }

    /// Moves the rows of a process to another folder, as text. Returns whether they have moved.
    pub(super) fn export_and_import(&mut self) -> bool {
        let Rows::Files(files) = &mut self.rows else { return false };
        let text = finished(deltaq(&["export", "--data-dir", &shown(&files.data)]), "").ok();
        files.data = files.folder();
        let mut import = deltaq(&["import", "--data-dir", &shown(&files.data)]);
        files.clock.give(&mut import);
        finished(import, &text).ok();
        true
    }
}

impl Files {
    /// A folder that does not exist yet.
    fn folder(&mut self) -> PathBuf {
        self.folders += 1;
        self.root.path().join(self.folders.to_string())
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).expect("a folder");
    for file in fs::read_dir(from).expect("a folder") {
        let file = file.expect("a file");
        fs::copy(file.path(), to.join(file.file_name())).expect("a copy");
    }
}
