//! `deltaq pop`, `ack`, `done`, `nack`, `release`, `reject`, `extend` and `settle`.

use std::io;
use std::time::Duration;

use clap::Args;
use deltaq_client::pauses_without_queue;
use deltaq_types::duration::{self, DurationText};
use deltaq_types::name::Name;
use deltaq_types::{
    HoldScope, LeaseOutcome, LeasesBody, PoppedItem, SettleAs, SettleResult, SettledDocument,
};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::failure::Failure;
use super::output::{Cell, Row, Tone};
use super::patience::{is_absent, report_absence};
use super::produce::Forget;
use super::reply::PoppedTexts;
use super::session::{Execute, Session};
use super::work::Work;

super::commands! {
    /// Commands of workers.
    Commands {
        /// Lease keys and print them; exit code 3 if there are none.
        #[command(after_help = "Example:\n  deltaq pop prices --wait 20s -o json")]
        Pop(Pop),
        /// Run a command for each key: exit status 0 acknowledges, 65 rejects, others fail.
        #[command(after_help = "Example:\n  deltaq work prices --concurrency 4 -- ./update-shop.sh")]
        Work(Work),
        /// Acknowledge leases: the work is done.
        #[command(after_help = "Example:\n  deltaq ack prices 7a1e0b52-14")]
        Ack(Ack),
        /// Mode keys: end the work without resetting failures.
        #[command(after_help = "Example:\n  deltaq done jobs 7a1e0b52-14 --delay 5m")]
        Done(Done),
        /// Report failures: the keys are delivered again later.
        #[command(after_help = "Example:\n  deltaq nack prices 7a1e0b52-14 --error 'no route' --delay 5m")]
        Nack(Nack),
        /// Return keys to the tail of the queue, without a failure.
        #[command(after_help = "Example:\n  deltaq release prices 7a1e0b52-14")]
        Release(Release),
        /// Park keys at once, unless a newer change waits.
        #[command(after_help = "Example:\n  deltaq reject prices 7a1e0b52-14 --error 'unknown currency'")]
        Reject(Reject),
        /// Set new deadlines for leases.
        #[command(after_help = "Example:\n  deltaq extend prices 7a1e0b52-14 --lease 60s")]
        Extend(Extend),
        /// Reset the failures of keys.
        #[command(after_help = "Example:\n  deltaq forget prices sku-1")]
        Forget(Forget),
    }
}

/// `deltaq pop`.
#[derive(Debug, Clone, Args)]
pub struct Pop {
    /// The queue.
    pub queue: Name,
    /// How long to wait for a key that is ready, such as 20s or 10m.
    #[arg(long, value_name = "DURATION", default_value = "0s")]
    pub wait: DurationText,
    /// Maximum number of keys [default: 1].
    #[arg(long, value_name = "N")]
    pub max: Option<u64>,
    /// Length of the leases [default: the queue's setting].
    #[arg(long, value_name = "DURATION")]
    pub lease: Option<DurationText>,
    /// Name of the worker, shown with its leases.
    #[arg(long, value_name = "NAME")]
    pub worker: Option<String>,
    /// Id of this pop: a repeated pop with the same id returns the same leases while they are live.
    #[arg(long, value_name = "ID")]
    pub id: Option<String>,
    /// Only keys of this group; the empty text is the group without a name.
    #[arg(long, value_name = "NAME")]
    pub group: Option<String>,
    /// Include the last acknowledged object of each key.
    #[arg(long)]
    pub with_known: bool,
    /// Include what has changed since the last acknowledged object.
    #[arg(long)]
    pub with_diff: bool,
}

/// The leases of a command.
#[derive(Debug, Clone, Args)]
pub struct Leases {
    /// The queue.
    pub queue: Name,
    /// Ids of leases; - reads them from stdin.
    #[arg(required = true, value_name = "LEASE")]
    pub leases: Vec<String>,
}

/// Commands that settle leases in one way. Each option of a command becomes a member of the body.
macro_rules! settling {
    ($($(#[doc = $doc:literal])* $name:ident $operation:literal {
        $($(#[doc = $help:literal])* $flag:ident $value:literal $type:ty => $member:ident;)*
        $([$($(#[doc = $switch_help:literal])* $switch:ident),*])?
        $(($(#[doc = $number_help:literal])* $number:ident))?
        $({$(#[doc = $scope_help:literal])* $scope:ident $scopes:expr})?
    })*) => {$(
        $(#[doc = $doc])*
        #[derive(Debug, Clone, Args)]
        pub struct $name {
            /// The leases.
            #[command(flatten)]
            pub leases: Leases,
            $(
                $(#[doc = $help])*
                #[arg(long, value_name = $value)]
                pub $flag: Option<$type>,
            )*
            $($(
                $(#[doc = $switch_help])*
                #[arg(long)]
                pub $switch: bool,
            )*)?
            $(
                $(#[doc = $number_help])*
                #[arg(long, value_name = "VERSION")]
                pub $number: Option<u64>,
            )?
            $(
                $(#[doc = $scope_help])*
                #[arg(long, value_name = "SCOPE", requires = "hold", value_parser = $scopes)]
                pub $scope: Option<String>,
            )?
        }

        impl Execute for $name {
            const OPERATIONS: &'static [&'static str] = &[$operation];

            async fn execute(&self, session: &Session) -> Result<(), Failure> {
                let options = LeasesBody {
                    $($member: self.$flag.as_ref().map(|value| value.to_string().into()),)*
                    $($($switch: self.$switch.then_some(true),)*)?
                    $($number: self.$number.map(Box::new),)?
                    ..LeasesBody::default()
                };
                $(let options = with_scope(options, self.$scope.as_deref());)?
                settle(session, $operation, &self.leases, options, None).await
            }
        }
    )*};
}

settling! {
    /// `deltaq ack`.
    Ack "ack" {
        /// Deliver nothing of the queue, or of --hold-scope, for this time, such as 30s, at most 1h.
        hold "DURATION" DurationText => hold;
        [
            /// Keep the lease for the changes after those of --through.
            keep
        ]
        (
            /// Acknowledge only the changes up to the delta with this resource_version; the others are delivered again.
            through
        )
        {
            /// What --hold concerns: the queue, the group of the key, or with --through the key alone [default: queue].
            hold_scope ["queue", "group", "key"]
        }
    }
    /// `deltaq done`.
    Done "done" {
        /// Add the keys again after this time, such as 5m [default: do not add them].
        delay "DURATION" DurationText => delay;
    }
    /// `deltaq nack`.
    Nack "nack" {
        /// The reason, shown with the keys.
        error "TEXT" String => error;
        /// How long the keys wait, such as 5m [default: their backoff].
        delay "DURATION" DurationText => delay;
        [
            /// Deliver the keys only after that wait, even if a new change arrives.
            floor
        ]
        (
            /// Acknowledge the changes up to the delta with this resource_version; only the others have failed.
            through
        )
    }
    /// `deltaq release`.
    Release "release" {
        /// Deliver nothing of the queue, or of --hold-scope, for this time, such as 30s, at most 1h.
        hold "DURATION" DurationText => hold;
        (
            /// Acknowledge the changes up to the delta with this resource_version; only the others return.
            through
        )
        {
            /// What --hold concerns: the queue, the group of the key, or the key alone [default: queue].
            hold_scope ["queue", "group", "key"]
        }
    }
    /// `deltaq reject`.
    Reject "reject" {
        /// The reason, shown with the keys.
        error "TEXT" String => error;
    }
}

/// `deltaq extend`.
#[derive(Debug, Clone, Args)]
pub struct Extend {
    /// The leases.
    #[command(flatten)]
    pub leases: Leases,
    /// Time from now to the new deadlines [default: the queue's setting].
    #[arg(long, value_name = "DURATION")]
    pub lease: Option<DurationText>,
    /// Wait for a newer change of one of the keys or for the end of a lease, at most for this time, such as 20s.
    #[arg(long, value_name = "DURATION")]
    pub until_changed: Option<DurationText>,
}

impl Execute for Extend {
    const OPERATIONS: &'static [&'static str] = &["extend"];

    async fn execute(&self, session: &Session) -> Result<(), Failure> {
        let lease_duration = self.lease.map(|lease| lease.to_string().into());
        let options = LeasesBody { lease_duration, ..LeasesBody::default() };
        settle(session, "extend", &self.leases, options, self.until_changed).await
    }
}

/// The options of a settle whose hold has this scope.
fn with_scope(mut options: LeasesBody, scope: Option<&str>) -> LeasesBody {
    if let Some(hold) = &mut options.hold {
        hold.scope = match scope {
            Some("group") => HoldScope::Group,
            Some("key") => HoldScope::Key,
            _ => HoldScope::Queue,
        };
    }
    options
}

#[derive(Debug, Deserialize)]
struct SettledTexts {
    settled: Vec<Box<RawValue>>,
    stale: u64,
}

impl Execute for Pop {
    const OPERATIONS: &'static [&'static str] = &["pop"];

    async fn execute(&self, session: &Session) -> Result<(), Failure> {
        let wait = session.wait(Some(self.wait.into())).await?;
        let mut absence = pauses_without_queue().enumerate();
        let PoppedTexts { items, closed, paused, held_until } = loop {
            let left = wait.next();
            let call = session
                .on_queue("pop", &self.queue)?
                .query("wait", Some(left))
                .query("max", self.max)
                .query("lease_duration", self.lease)
                .query("worker", self.worker.as_deref())
                .query("id", self.id.as_deref())
                .query("group", self.group.as_deref())
                .listed("with", "known", self.with_known)
                .listed("with", "diff", self.with_diff)
                .wait(left.into());
            let popped: PoppedTexts = match session.client.fetch(call).await {
                Err(error) if is_absent(&error) && !wait.is_over() => {
                    let (asked, pause) = absence.next().unwrap_or_default();
                    if asked == 0 {
                        report_absence(&self.queue);
                    }
                    tokio::time::sleep(pause.min(wait.next().into())).await;
                    continue;
                }
                popped => popped?,
            };
            if !popped.items.is_empty() || wait.is_over() {
                break popped;
            }
        };
        if items.is_empty() {
            let why = match (paused, held_until, closed) {
                (true, _, _) => "; it is paused".to_owned(),
                (false, Some(until), _) => format!("; a worker has asked to wait until {until}"),
                (false, None, true) => "; it is closed, and keys are delayed or leased".to_owned(),
                (false, None, false) => String::new(),
            };
            return Err(Failure::Nothing(format!("queue {} has no key to deliver{why}", self.queue)));
        }
        let mut list = session.output.list::<PoppedItem>();
        list.add::<PoppedItem>(&items)?;
        list.finish("")
    }
}

impl Leases {
    /// The ids, with `-` replaced by the ids from stdin.
    fn ids(&self) -> Result<Vec<String>, Failure> {
        let mut ids = Vec::new();
        for lease in &self.leases {
            if lease == "-" {
                let text = io::read_to_string(io::stdin());
                let text = text.map_err(|source| Failure::Read { name: "stdin".to_owned(), source })?;
                ids.extend(text.split_whitespace().map(str::to_owned));
            } else {
                ids.push(lease.clone());
            }
        }
        Ok(ids)
    }
}

async fn settle(
    session: &Session,
    operation: &str,
    leases: &Leases,
    options: LeasesBody,
    until_changed: Option<DurationText>,
) -> Result<(), Failure> {
    let body = LeasesBody { lease_ids: Some(leases.ids()?), ..options };
    let mut call = session.on_queue(operation, &leases.queue)?.json(&body);
    if let Some(wait) = until_changed {
        call = call.query("until_changed", Some(true)).query("wait", Some(wait)).wait(wait.into());
    }
    let settled: SettledTexts = session.client.fetch_results(call).await?;
    if operation == SettleAs::Extend.as_str() {
        let mut list = session.output.list::<ExtendedRow>();
        list.add::<ExtendedRow>(&settled.settled)?;
        list.finish("")?;
    } else {
        let mut list = session.output.list::<SettledDocument>();
        list.add::<SettledDocument>(&settled.settled)?;
        list.finish("")?;
    }
    match settled.stale {
        0 => Ok(()),
        stale => {
            let leases = settled.settled.len();
            Err(Failure::LeaseLost(format!("{stale} of {leases} leases had ended before the call")))
        }
    }
}

fn result_cell(result: SettleResult) -> Cell {
    let is_refused = matches!(result, SettleResult::Stale | SettleResult::NotLeased);
    let tone = if is_refused { Tone::Bad } else { Tone::Plain };
    Cell::new(result.as_str()).tone(tone)
}

impl Row for PoppedItem {
    const COLUMNS: &'static [&'static str] =
        &["KEY", "LEASE", "EXPIRES", "ATTEMPT", "DELTAS", "NEWEST", "OBJECT"];

    fn cells(&self) -> Vec<Cell> {
        let newest = self.deltas.last();
        vec![
            Cell::new(&self.key),
            Cell::new(&self.lease.id),
            Cell::new(duration::format(Duration::from_secs(self.lease.expires_in_ms.div_ceil(1_000)))),
            Cell::number(self.attempt).tone(if self.attempt > 1 { Tone::Notice } else { Tone::Plain }),
            Cell::number(self.deltas.len()),
            Cell::optional(newest.map(|delta| delta.kind.as_str())),
            Cell::optional(newest.map(|delta| delta.object.as_str())),
        ]
    }

    fn name(&self) -> String {
        self.lease.id.clone()
    }
}

impl Row for SettledDocument {
    const COLUMNS: &'static [&'static str] = &["LEASE", "AS", "RESULT", "OUTCOME"];

    fn cells(&self) -> Vec<Cell> {
        let outcome = self.outcome.map(LeaseOutcome::as_str);
        vec![
            Cell::new(&self.lease_id),
            Cell::new(self.how.as_str()),
            result_cell(self.result),
            Cell::optional(outcome),
        ]
    }

    fn name(&self) -> String {
        self.lease_id.clone()
    }
}

/// The result of an extension.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
struct ExtendedRow(SettledDocument);

impl Row for ExtendedRow {
    const COLUMNS: &'static [&'static str] = &["LEASE", "RESULT", "EXPIRES", "PENDING", "DELETED", "OUTCOME"];

    fn cells(&self) -> Vec<Cell> {
        let Self(settled) = self;
        vec![
            Cell::new(&settled.lease_id),
            result_cell(settled.result),
            Cell::optional(settled.expires_at.map(|at| at.to_string())),
            Cell::optional(settled.pending_deltas.map(|pending| pending.to_string())),
            Cell::optional(settled.deleted.map(|deleted| deleted.to_string())),
            Cell::optional(settled.outcome.map(LeaseOutcome::as_str)),
        ]
    }

    fn name(&self) -> String {
        self.0.lease_id.clone()
    }
}
