//! `deltaq sources`, `workers`, `reflectors`, `activity` and `find`: what is in a queue, or in all queues that the token may read.

use clap::Args;
use deltaq_types::name::Name;
use deltaq_types::{
    ActivityEntry, Found, QueueSourceDocument, QueueWorkerDocument, ReflectorDocument, ReflectorState,
    SourceDocument, UnavailableQueue, WorkerDocument,
};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::failure::Failure;
use super::output::{Cell, Format, Output, Row, Tone, counted, duration_text};
use super::pages::{Limit, check_complete, print_list};
use super::session::{Execute, Session};

super::commands! {
    /// Commands on all queues.
    Commands {
        /// List the sources with their keys, last contact and last Replace, of one queue or of all.
        #[command(after_help = "Examples:\n  deltaq sources prices\n  deltaq sources --stale")]
        Sources(Sources),
        /// List the workers that hold leases or wait for keys, of one queue or of all.
        #[command(after_help = "Examples:\n  deltaq workers prices\n  deltaq workers")]
        Workers(Workers),
        /// List the reflectors that report, such as `deltaq reflect`.
        #[command(after_help = "Example:\n  deltaq reflectors prices")]
        Reflectors(Reflectors),
        /// List the last calls of operators, newest first: who paused, purged or configured what.
        #[command(after_help = "Example:\n  deltaq activity --queue prices --limit 20")]
        Activity(Activity),
        /// Find keys that begin with a text, and queues, sources and workers that have it in their names.
        #[command(after_help = "Example:\n  deltaq find sku-1")]
        Find(Find),
    }
}

/// `deltaq sources`.
#[derive(Debug, Clone, Args)]
pub struct Sources {
    /// The queue [default: all queues].
    pub queue: Option<Name>,
    /// Only sources that have been silent for longer than their thresholds, of all queues.
    #[arg(long, conflicts_with = "queue")]
    pub stale: bool,
    /// The limit.
    #[command(flatten)]
    pub limit: Limit,
}

/// `deltaq workers`.
#[derive(Debug, Clone, Args)]
pub struct Workers {
    /// The queue [default: all queues, workers with a slow lease first].
    pub queue: Option<Name>,
    /// Maximum number of workers [default: all of a queue, 500 of all queues].
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
}

/// `deltaq reflectors`.
#[derive(Debug, Clone, Args)]
pub struct Reflectors {
    /// The queue [default: all queues].
    pub queue: Option<Name>,
    /// The limit.
    #[command(flatten)]
    pub limit: Limit,
}

/// `deltaq activity`.
#[derive(Debug, Clone, Args)]
pub struct Activity {
    /// Only calls on this queue.
    #[arg(long, value_name = "NAME")]
    pub queue: Option<Name>,
    /// Only calls with the token of this name.
    #[arg(long, value_name = "NAME")]
    pub by: Option<String>,
    /// Only calls of this operation, such as purge_queue.
    #[arg(long, value_name = "NAME")]
    pub operation: Option<String>,
    /// The limit.
    #[command(flatten)]
    pub limit: Limit,
}

/// `deltaq find`.
#[derive(Debug, Clone, Args)]
pub struct Find {
    /// The text.
    pub text: String,
}

/// The workers of all queues, each as its text.
#[derive(Deserialize)]
struct WorkerTexts {
    workers: Vec<Box<RawValue>>,
    left_out: u64,
    unavailable: Vec<UnavailableQueue>,
}

impl Execute for Sources {
    const OPERATIONS: &'static [&'static str] = &["list_sources", "list_all_sources"];

    async fn execute(&self, session: &Session) -> Result<(), Failure> {
        if let Some(queue) = &self.queue {
            let call = || session.on_queue("list_sources", queue);
            return print_list::<SourceDocument>(session, call, &self.limit, "no sources").await;
        }
        let stale = self.stale.then_some("true");
        let call = || Ok(session.call("list_all_sources", "", "")?.query("stale", stale));
        let empty = if self.stale { "no stale sources" } else { "no sources" };
        print_list::<QueueSourceDocument>(session, call, &self.limit, empty).await
    }
}

impl Execute for Workers {
    const OPERATIONS: &'static [&'static str] = &["list_workers", "list_all_workers"];

    async fn execute(&self, session: &Session) -> Result<(), Failure> {
        if let Some(queue) = &self.queue {
            let call = || session.on_queue("list_workers", queue);
            let limit = Limit { limit: self.limit };
            return print_list::<WorkerDocument>(session, call, &limit, "no workers").await;
        }
        let call = session.call("list_all_workers", "", "")?.query("limit", self.limit);
        let found: WorkerTexts = session.client.fetch(call).await?;
        let mut list = session.output.list::<QueueWorkerDocument>();
        list.add::<QueueWorkerDocument>(&found.workers)?;
        list.finish("no workers")?;
        if found.left_out > 0 {
            eprintln!("{} more workers are left out; --limit shows up to 5000", found.left_out);
        }
        check_complete(&found.unavailable)
    }
}

impl Execute for Reflectors {
    const OPERATIONS: &'static [&'static str] = &["list_reflectors"];

    async fn execute(&self, session: &Session) -> Result<(), Failure> {
        let call = || Ok(session.call("list_reflectors", "", "")?.query("queue", self.queue.as_ref()));
        print_list::<ReflectorDocument>(session, call, &self.limit, "no reflectors have reported").await
    }
}

impl Execute for Activity {
    const OPERATIONS: &'static [&'static str] = &["list_activity"];

    async fn execute(&self, session: &Session) -> Result<(), Failure> {
        let Self { queue, by, operation, limit } = self;
        let call = || {
            let call = session.call("list_activity", "", "")?.query("queue", queue.as_ref());
            Ok(call.query("by", by.as_ref()).query("operation", operation.as_ref()))
        };
        let is_filtered = queue.is_some() || by.is_some() || operation.is_some();
        let none = if is_filtered { "no call matches" } else { "no calls that needed the grant admin" };
        print_list::<ActivityEntry>(session, call, limit, none).await
    }
}

impl Execute for Find {
    const OPERATIONS: &'static [&'static str] = &["find"];

    async fn execute(&self, session: &Session) -> Result<(), Failure> {
        let call = session.call("find", "", "")?.query("text", Some(&self.text));
        let (found, text) = session.fetch::<Found>(call).await?;
        match session.output.format() {
            Format::Table => print_found(&found, session),
            Format::Json | Format::Ndjson => session.output.document(&text, "", Vec::new()),
            Format::Name => Output::text(&names(&found)),
        }
    }
}

/// The names of what was found, one per line.
fn names(found: &Found) -> String {
    let Found { queues, keys, sources, workers, .. } = found;
    let names = queues.iter().chain(keys.iter().map(|found| &found.key));
    let names = names.chain(sources.iter().map(|found| &found.source));
    names.chain(workers.iter().map(|found| &found.worker)).flat_map(|name| [name, "\n"]).collect()
}

fn print_found(found: &Found, session: &Session) -> Result<(), Failure> {
    let row = |what: &str, name: &str, queue: &str, detail: String| {
        vec![Cell::new(what), Cell::new(name), Cell::new(queue), Cell::new(detail)]
    };
    let queues = found.queues.iter().map(|queue| row("queue", queue, "", String::new()));
    let keys = found.keys.iter().map(|found| {
        let state = found.state.map_or("no work", |state| state.as_str());
        row("key", &found.key, &found.queue, state.to_owned())
    });
    let sources = found.sources.iter();
    let sources = sources.map(|found| row("source", &found.source, &found.queue, counted(found.keys, "key")));
    let workers = found.workers.iter();
    let workers =
        workers.map(|found| row("worker", &found.worker, &found.queue, counted(found.leased, "lease")));
    let rows: Vec<_> = queues.chain(keys).chain(sources).chain(workers).collect();
    if rows.is_empty() {
        eprintln!("nothing found");
    } else {
        let headings = ["WHAT", "NAME", "QUEUE", "DETAIL"].map(|text| Cell::new(text).tone(Tone::Heading));
        let rows = std::iter::once(headings.into()).chain(rows).collect();
        Output::text(&session.output.table(rows))?;
    }
    if found.has_more {
        eprintln!("there are more matches; a longer text finds fewer");
    }
    match found.unavailable {
        0 => Ok(()),
        count => Err(Failure::Incomplete(format!("{count} queues can't be read, and were not searched"))),
    }
}

impl Row for SourceDocument {
    const COLUMNS: &'static [&'static str] = &[
        "SOURCE",
        "KEYS",
        "LAST CONTACT",
        "LAST COMPLETE LIST",
        "STALE AFTER",
        "STATE",
        "PROBLEM",
        "SEQUENCE",
    ];

    fn cells(&self) -> Vec<Cell> {
        vec![
            Cell::new(&self.source),
            Cell::number(self.keys),
            Cell::optional(self.last_contact_at.map(|at| at.to_string())),
            Cell::optional(self.last_replaced_at.map(|at| at.to_string())),
            Cell::optional(self.stale_after.as_ref().map(ToString::to_string)),
            match &self.problem {
                _ if self.is_stale => Cell::new("stale").tone(Tone::Bad),
                Some(_) => Cell::new("out of step").tone(Tone::Bad),
                None if self.last_contact_at.is_none() => Cell::new("no contact"),
                None => Cell::new("in step"),
            },
            Cell::optional(self.problem.as_ref().map(|problem| &problem.detail)),
            Cell::optional(self.sequence.map(|number| number.to_string())),
        ]
    }

    fn name(&self) -> String {
        self.source.clone()
    }
}

impl Row for QueueSourceDocument {
    const COLUMNS: &'static [&'static str] = &[
        "QUEUE",
        "SOURCE",
        "KEYS",
        "LAST CONTACT",
        "LAST COMPLETE LIST",
        "STALE AFTER",
        "STATE",
        "PROBLEM",
        "SEQUENCE",
    ];

    fn cells(&self) -> Vec<Cell> {
        let mut cells = vec![Cell::new(&self.queue)];
        cells.append(&mut self.source.cells());
        cells
    }

    fn name(&self) -> String {
        self.source.name()
    }
}

impl Row for WorkerDocument {
    const COLUMNS: &'static [&'static str] = &[
        "WORKER",
        "LEASED",
        "OLDEST LEASE",
        "NEXT EXPIRY",
        "WAITING",
        "WAITING SINCE",
        "ACKS 10m",
        "FAILURES 10m",
    ];

    fn cells(&self) -> Vec<Cell> {
        vec![
            Cell::new(self.worker.as_deref().unwrap_or("(no name)")),
            Cell::number(self.leased),
            Cell::optional(self.oldest_leased_at.map(|at| at.to_string())),
            Cell::optional(self.next_expires_in_ms.map(|left| format!("in {}", duration_text(left)))),
            Cell::number(self.waiting),
            Cell::optional(self.oldest_waiting_at.map(|at| at.to_string())),
            Cell::number(self.recent_acks),
            Cell::number(self.recent_failures),
        ]
    }

    fn name(&self) -> String {
        self.worker.clone().unwrap_or_default()
    }
}

impl Row for QueueWorkerDocument {
    const COLUMNS: &'static [&'static str] = &[
        "QUEUE",
        "WORKER",
        "LEASED",
        "OLDEST LEASE",
        "STATE",
        "NEXT EXPIRES IN",
        "WAITING",
        "ACKS 10m",
        "FAILURES 10m",
    ];

    fn cells(&self) -> Vec<Cell> {
        let state = if self.is_slow {
            Cell::new(format!("slow: over {}", duration_text(self.slow_after_ms))).tone(Tone::Bad)
        } else {
            Cell::new(if self.leased > 0 { "working" } else { "waiting" })
        };
        vec![
            Cell::new(&self.queue),
            Cell::optional(self.worker.as_ref()),
            Cell::number(self.leased),
            Cell::optional(self.oldest_lease_age_ms.map(duration_text)),
            state,
            Cell::optional(self.next_expires_in_ms.map(duration_text)),
            Cell::number(self.waiting),
            Cell::number(self.recent_acks),
            Cell::number(self.recent_failures),
        ]
    }

    fn name(&self) -> String {
        self.worker.clone().unwrap_or_default()
    }
}

impl Row for ReflectorDocument {
    const COLUMNS: &'static [&'static str] = &[
        "QUEUE",
        "SOURCE",
        "INSTANCE",
        "KIND",
        "VERSION",
        "STATE",
        "LAST HEARTBEAT",
        "LAST SUCCESS",
        "NEXT LIST",
        "LAST ERROR",
    ];

    fn cells(&self) -> Vec<Cell> {
        let state = match self.state {
            ReflectorState::Ok => Cell::new("ok"),
            ReflectorState::Failing => Cell::new("failing").tone(Tone::Bad),
            ReflectorState::Silent => Cell::new("silent").tone(Tone::Bad),
        };
        vec![
            Cell::new(&self.queue),
            Cell::new(&self.source),
            Cell::new(&self.instance),
            Cell::new(&self.kind),
            Cell::new(&self.version),
            state,
            Cell::new(self.last_heartbeat_at.to_string()),
            Cell::optional(self.last_success_at.map(|at| at.to_string())),
            Cell::optional(self.next_list_at.map(|at| at.to_string())),
            Cell::optional(self.last_error.as_ref()),
        ]
    }

    fn name(&self) -> String {
        self.instance.clone()
    }
}

impl Row for ActivityEntry {
    const COLUMNS: &'static [&'static str] = &["AT", "BY", "OPERATION", "QUEUE", "KEYS", "OUTCOME"];

    fn cells(&self) -> Vec<Cell> {
        let tone = if self.outcome == "ok" { Tone::Plain } else { Tone::Bad };
        vec![
            Cell::new(self.at.to_string()),
            Cell::optional(self.by.as_ref()),
            Cell::new(&self.operation),
            Cell::optional(self.queue.as_ref()),
            Cell::optional(self.keys.map(|keys| keys.to_string())),
            Cell::new(&self.outcome).tone(tone),
        ]
    }

    fn name(&self) -> String {
        self.request_id.clone()
    }
}
