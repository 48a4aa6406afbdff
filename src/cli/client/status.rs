//! `deltaq status`, `wait` and `tail`.

use std::time::Duration;

use clap::Args;
use deltaq_client::Backoff;
use deltaq_runtime::clock::Clock;
use deltaq_types::duration::DurationText;
use deltaq_types::name::Name;
use deltaq_types::{Info, NodeDocument, NodeStatus, QueueDocument, QueuePage, QueueStatus, Timestamp};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::failure::Failure;
use super::output::duration_text;
use super::output::{Cell, Tone, counted};
use super::pages::check_complete;
use super::patience::{pause_of, report_failure};
use super::progress::StatusLine;
use super::reply::parse;
use super::series::Series;
use super::session::{Execute, Session};
use super::top::Top;
use super::waiting::synced;

/// Number of queues per page.
const PAGE: u64 = 1_000;
/// A clock that is wrong by this much, in milliseconds, is marked.
const CLOCK_ERROR_MS: u64 = 1_000;
/// Time between two polls of a queue.
const POLL: Duration = Duration::from_millis(250);
/// Maximum time between two polls.
const POLL_MAX: Duration = Duration::from_secs(1);

super::commands! {
    /// Commands that watch a server or a queue.
    Commands {
        /// Show the server and the totals of its queues.
        #[command(after_help = "Example:\n  deltaq status --url http://deltaq:7070")]
        Status(Status),
        /// List the nodes of a cluster: what they own, their heartbeats and their clocks.
        #[command(after_help = "Example:\n  deltaq nodes --url http://deltaq:7070")]
        Nodes(Nodes),
        /// Draw what happened to a queue, or to all queues, in each minute of the last hours.
        #[command(after_help = "Examples:\n  deltaq series prices\n  deltaq series --since 24h -o json")]
        Series(Series),
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

/// `deltaq nodes`.
#[derive(Debug, Clone, Args)]
pub struct Nodes {}

/// `deltaq wait`.
#[derive(Debug, Clone, Args)]
pub struct Wait {
    /// The queue.
    pub queue: Name,
    /// Wait until no key is ready, delayed or leased; parked keys do not count. This is the default.
    #[arg(long, conflicts_with = "synced")]
    pub idle: bool,
    /// Wait until the initial list is processed.
    #[arg(long)]
    pub synced: bool,
    /// Maximum wait [default: no limit].
    #[arg(long, value_name = "DURATION")]
    pub timeout: Option<DurationText>,
}

/// `deltaq tail`.
#[derive(Debug, Clone, Args)]
pub struct Tail {
    /// The queue.
    pub queue: Name,
    /// Time between two polls.
    #[arg(long, value_name = "DURATION", default_value = "1s")]
    pub interval: DurationText,
    /// Exit after this many lines.
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
            ("durability", Cell::new(info.durability.as_str())),
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

/// The nodes as the server sent them.
#[derive(Debug, serde::Deserialize)]
struct NodeTexts {
    nodes: Vec<Box<RawValue>>,
    without_owner: u64,
}

impl Execute for Nodes {
    const OPERATIONS: &'static [&'static str] = &["list_nodes"];

    async fn execute(&self, session: &Session) -> Result<(), Failure> {
        let nodes: NodeTexts = session.client.fetch(session.call("list_nodes", "", "")?).await?;
        let mut output = session.output.list::<NodeDocument>();
        output.add::<NodeDocument>(&nodes.nodes)?;
        output.finish("the server is not one of several nodes")?;
        if nodes.without_owner > 0 {
            eprintln!("{} without an owner", counted(nodes.without_owner, "partition"));
        }
        Ok(())
    }
}

impl super::output::Row for NodeDocument {
    const COLUMNS: &'static [&'static str] =
        &["NODE", "STATE", "PARTITIONS", "QUEUES", "HEARTBEAT", "CLOCK", "URL"];

    fn cells(&self) -> Vec<Cell> {
        let is_serving = self.state == NodeStatus::Serving;
        let is_right = self.clock_ahead_ms.unsigned_abs() < CLOCK_ERROR_MS;
        let sign = if self.clock_ahead_ms < 0 { "-" } else { "+" };
        let clock = format!("{sign}{}", duration_text(self.clock_ahead_ms.unsigned_abs()));
        let tone = |is_good| if is_good { Tone::Plain } else { Tone::Bad };
        vec![
            Cell::new(&self.name),
            Cell::new(self.state.as_str()).tone(tone(is_serving)),
            Cell::number(self.partitions),
            Cell::number(self.queues),
            Cell::new(duration_text(self.heartbeat_age_ms)),
            Cell::new(clock).tone(tone(is_right)),
            Cell::new(&self.url),
        ]
    }

    fn name(&self) -> String {
        self.name.clone()
    }
}

impl Execute for Wait {
    const OPERATIONS: &'static [&'static str] = &["get_queue", "get_synced"];

    async fn execute(&self, session: &Session) -> Result<(), Failure> {
        let timeout = self.timeout.map(Duration::from);
        if self.synced {
            let (synced, _) = synced(session, &self.queue, None, timeout).await?;
            let failure = || {
                let remaining = synced.remaining;
                Failure::Nothing(format!(
                    "queue {} has not synced: {} left",
                    self.queue,
                    counted(remaining, "key")
                ))
            };
            return if synced.synced { Ok(()) } else { Err(failure()) };
        }
        let started_us = session.clock.monotonic_us();
        let (mut looks, mut line) = (Looks::new(session, timeout), StatusLine::new());
        let mut pause = POLL;
        loop {
            let Some(queue) = looks.next::<QueueDocument>(&self.queue, &mut line).await? else { continue };
            let QueueStatus { ready, delayed, leased, parked, paused, .. } = queue.status;
            let is_paused = if paused { ", paused" } else { "" };
            let counts = format!("{ready} ready, {delayed} delayed, {leased} leased{is_paused}");
            if ready + delayed + leased == 0 {
                line.clear();
                if parked > 0 {
                    eprintln!("parked keys: {parked} (deltaq parked {})", self.queue);
                }
                return Ok(());
            }
            let took = session.clock.since(started_us);
            let left = timeout.map_or(pause, |timeout| timeout.saturating_sub(took));
            if left.is_zero() {
                return Err(Failure::Nothing(format!("queue {} is not idle: {counts}", self.queue)));
            }
            line.show(&format!("waiting for queue {}: {counts}", self.queue));
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
        let (mut looks, mut line) = (Looks::new(session, None), StatusLine::new());
        let mut lines = 0;
        while self.lines.is_none_or(|most| lines < most) {
            let Some(text) = looks.next::<Box<RawValue>>(&self.queue, &mut line).await? else { continue };
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

/// Polls the status of a queue. After the first reply, restarts of the server do not end the command.
struct Looks<'s> {
    session: &'s Session,
    started_us: u64,
    timeout: Option<Duration>,
    has_succeeded: bool,
    backoff: Backoff,
}

impl<'s> Looks<'s> {
    fn new(session: &'s Session, timeout: Option<Duration>) -> Self {
        let started_us = session.clock.monotonic_us();
        Self { session, started_us, timeout, has_succeeded: false, backoff: Backoff::default() }
    }

    /// The document of the queue; `None` after a temporary failure, once the pause is over.
    async fn next<T: DeserializeOwned>(
        &mut self,
        queue: &Name,
        line: &mut StatusLine,
    ) -> Result<Option<T>, Failure> {
        let call = self.session.on_queue("get_queue", queue)?;
        let error = match self.session.client.fetch(call).await {
            Ok(document) => {
                self.has_succeeded = true;
                self.backoff.reset();
                return Ok(Some(document));
            }
            Err(error) => error,
        };
        let took = self.session.clock.since(self.started_us);
        let is_in_time =
            |pause: &Duration| self.timeout.is_none_or(|timeout| took.saturating_add(*pause) < timeout);
        let pause = pause_of(&error, &mut self.backoff).filter(|_| self.has_succeeded).filter(is_in_time);
        let Some(pause) = pause else { return Err(error.into()) };
        line.clear();
        report_failure(&error, self.backoff.failures());
        tokio::time::sleep(pause).await;
        Ok(None)
    }
}

fn counts(status: &QueueStatus) -> ([u64; 5], [bool; 2]) {
    (
        [status.ready, status.delayed, status.leased, status.parked, status.known],
        [status.paused, status.closed],
    )
}

/// A queue at a point in time.
#[derive(Debug, serde::Deserialize)]
#[serde(transparent)]
struct QueueAt(QueueDocument);

impl super::output::Row for QueueAt {
    const COLUMNS: &'static [&'static str] =
        &["TIME", "READY", "DELAYED", "LEASED", "PARKED", "KNOWN", "STATE"];

    fn cells(&self) -> Vec<Cell> {
        let status = &self.0.status;
        let second = Clock::system().wall_us() / 1_000_000 * 1_000_000;
        let now = Timestamp::from_micros(second).to_string().replace(".000Z", "Z");
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
