//! `deltaq status`, `wait` and `tail`.

use std::time::Duration;

use clap::Args;
use deltaq_types::{Info, QueueDocument, QueuePage, QueueStatus, Timestamp};
use serde_json::value::RawValue;

use super::failure::Failure;
use super::output::{Cell, Tone};
use super::queues::duration_text;
use super::read::{check_complete, synced};
use super::session::{Execute, Session, parse};
use super::top::Top;
use crate::clock::Clock;
use crate::duration::DurationText;
use crate::name::Name;

/// Queues of one page.
const PAGE: u64 = 1_000;
/// Time between two looks at a queue.
const POLL: Duration = Duration::from_millis(250);
/// Time between two looks after a while.
const POLL_MAX: Duration = Duration::from_secs(1);

super::commands! {
    /// Commands that watch a server or a queue.
    Commands {
        /// Show the server and the sum over its queues.
        #[command(after_help = "Example:\n  deltaq status --url http://deltaq:7070")]
        Status(Status),
        /// Show a live board of queues, keys and parked errors.
        #[command(after_help = "Example:\n  deltaq top --url http://deltaq:7070")]
        Top(Top),
        /// Wait until a queue is idle or synced; exit code 3 after the time limit.
        #[command(after_help = "Example:\n  deltaq wait prices --idle --timeout 5m")]
        Wait(Wait),
        /// Print the counts of a queue each time they change.
        #[command(after_help = "Example:\n  deltaq tail prices --interval 5s")]
        Tail(Tail),
    }
}

/// `deltaq status`.
#[derive(Debug, Clone, Args)]
pub struct Status {}

/// `deltaq wait`.
#[derive(Debug, Clone, Args)]
pub struct Wait {
    /// The queue.
    pub queue: Name,
    /// Until no key is ready, delayed or leased; parked keys do not count. This is the default.
    #[arg(long, conflicts_with = "synced")]
    pub idle: bool,
    /// Until the initial list is processed.
    #[arg(long)]
    pub synced: bool,
    /// Longest wait [default: no limit].
    #[arg(long, value_name = "DURATION")]
    pub timeout: Option<DurationText>,
}

/// `deltaq tail`.
#[derive(Debug, Clone, Args)]
pub struct Tail {
    /// The queue.
    pub queue: Name,
    /// Time between two looks at the counts.
    #[arg(long, value_name = "DURATION", default_value = "1s")]
    pub interval: DurationText,
    /// End after this many lines.
    #[arg(short = 'n', long, value_name = "N")]
    pub lines: Option<u64>,
}

/// Sums over all queues.
#[derive(Debug, Default)]
struct Sums {
    queues: u64,
    ready: u64,
    delayed: u64,
    leased: u64,
    parked: u64,
    known: u64,
}

impl Sums {
    fn add(&mut self, status: &QueueStatus) {
        self.queues += 1;
        self.ready += status.ready;
        self.delayed += status.delayed;
        self.leased += status.leased;
        self.parked += status.parked;
        self.known += status.known;
    }
}

impl Execute for Status {
    const OPERATIONS: &'static [&'static str] = &["get_info", "list_queues"];

    async fn execute(&self, session: &Session) -> Result<(), Failure> {
        let (info, text) = session.fetch::<Info>(session.call("get_info", "", "")?).await?;
        let mut sums = Sums::default();
        let mut unavailable = Vec::new();
        let mut next = None;
        loop {
            let call =
                session.call("list_queues", "", "")?.query("limit", Some(PAGE)).query("continue", next);
            let page: QueuePage = session.client.fetch(call).await?;
            unavailable.extend(page.unavailable);
            page.items.iter().for_each(|queue| sums.add(&queue.status));
            next = page.next;
            if next.is_none() {
                break;
            }
        }
        let fields = vec![
            ("server", Cell::new(session.client.address())),
            ("version", Cell::new(format!("{} {}", info.name, info.version))),
            ("durability", Cell::new(&info.durability)),
            ("uptime", Cell::new(duration_text(info.uptime_ms))),
            ("queues", Cell::new(sums.queues.to_string())),
            ("ready", Cell::new(sums.ready.to_string())),
            ("delayed", Cell::new(sums.delayed.to_string())),
            ("leased", Cell::new(sums.leased.to_string())),
            (
                "parked",
                Cell::new(sums.parked.to_string()).tone(if sums.parked > 0 {
                    Tone::Bad
                } else {
                    Tone::Plain
                }),
            ),
            ("known", Cell::new(sums.known.to_string())),
        ];
        session.output.document(&text, &info.name, fields)?;
        check_complete(&unavailable)
    }
}

impl Execute for Wait {
    const OPERATIONS: &'static [&'static str] = &["get_queue", "get_synced"];

    async fn execute(&self, session: &Session) -> Result<(), Failure> {
        let timeout = self.timeout.map(Duration::from);
        if self.synced {
            let (synced, _) = synced(session, &self.queue, timeout).await?;
            let failure = || {
                let remaining = synced.remaining;
                Failure::Nothing(format!("queue {} has not synced: {remaining} keys remain", self.queue))
            };
            return if synced.synced { Ok(()) } else { Err(failure()) };
        }
        let started_us = session.clock.monotonic_us();
        let mut pause = POLL;
        loop {
            let queue: QueueDocument =
                session.client.fetch(session.on_queue("get_queue", &self.queue)?).await?;
            let QueueStatus { ready, delayed, leased, parked, .. } = queue.status;
            if ready + delayed + leased == 0 {
                if parked > 0 {
                    eprintln!("parked keys: {parked} (deltaq parked {})", self.queue);
                }
                return Ok(());
            }
            let took = session.clock.since(started_us);
            let left = timeout.map_or(pause, |timeout| timeout.saturating_sub(took));
            if left.is_zero() {
                let counts = format!("{ready} ready, {delayed} delayed, {leased} leased");
                return Err(Failure::Nothing(format!("queue {} is not idle: {counts}", self.queue)));
            }
            tokio::time::sleep(pause.min(left)).await;
            pause = (pause * 2).min(POLL_MAX);
        }
    }
}

impl Execute for Tail {
    const OPERATIONS: &'static [&'static str] = &["get_queue"];

    async fn execute(&self, session: &Session) -> Result<(), Failure> {
        let mut last: Option<QueueStatus> = None;
        let mut output = session.output.list::<QueueAt>();
        let mut lines = 0;
        while self.lines.is_none_or(|most| lines < most) {
            let call = session.on_queue("get_queue", &self.queue)?;
            let text: Box<RawValue> = session.client.fetch(call).await?;
            let status = parse::<QueueDocument>(&text)?.status;
            if last.as_ref().is_none_or(|last| counts(last) != counts(&status)) {
                output.add::<QueueAt>(&[text])?;
                lines += 1;
                last = Some(status);
            }
            if self.lines.is_none_or(|most| lines < most) {
                tokio::time::sleep(self.interval.into()).await;
            }
        }
        output.finish("")
    }
}

fn counts(status: &QueueStatus) -> ([u64; 5], [bool; 2]) {
    (
        [status.ready, status.delayed, status.leased, status.parked, status.known],
        [status.paused, status.closed],
    )
}

/// A queue at a moment.
#[derive(Debug, serde::Deserialize)]
#[serde(transparent)]
struct QueueAt(QueueDocument);

impl super::output::Row for QueueAt {
    const COLUMNS: &'static [&'static str] =
        &["TIME", "READY", "DELAYED", "LEASED", "PARKED", "KNOWN", "STATE"];

    fn cells(&self) -> Vec<Cell> {
        let status = &self.0.status;
        let now = Timestamp::from_micros(Clock::system().wall_us()).to_string();
        vec![
            Cell::new(now),
            Cell::number(format!("{:>9}", status.ready)),
            Cell::number(format!("{:>9}", status.delayed)),
            Cell::number(format!("{:>9}", status.leased)),
            Cell::count(status.parked, Tone::Bad),
            Cell::number(format!("{:>9}", status.known)),
            super::queues::state(&self.0),
        ]
    }

    fn name(&self) -> String {
        self.0.name.clone()
    }
}
