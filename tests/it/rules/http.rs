//! The target of rule scripts that is a server, without connections, on a manual clock.

use std::time::Duration;

use deltaq_types::{
    DeltaDocument, FailedKey, ItemDocument, ItemState, KeysCount, ObjectDocument, Page, ParkedErrors, Popped,
    PoppedItem, ProblemDocument, Produced, PurgedDocument, QueueDocument, QueueStatus, Replaced, SettleAs,
    SettleResult, SettledDocument, SettledList, SourceDocument, SyncedDocument, Timestamp,
};
use serde::de::DeserializeOwned;
use tokio::runtime::Runtime;

use super::calls::{Call, KEY_NOT_FOUND, NONE_SETTLED, Numbers, PLACES};
use super::command::{Command, Settle};
use super::reply::{self, Places, Reply};
use super::script::{Leases, Target};
use crate::server::commits::Bench;

/// The wall clock at the start of a script.
const START_US: u64 = 1_700_000_000_000_000;
/// The number of a lease that was never delivered.
const FORGED: u64 = 1 << 40;

/// A server with one queue.
pub(super) struct Http {
    runtime: Runtime,
    bench: Bench,
    now_us: u64,
    /// The version of the queue before the first command.
    first: u64,
    incarnation: String,
    leases: Leases<String>,
}

/// A reply: its status and its body.
struct Answer {
    status: u16,
    body: String,
}

impl Answer {
    fn read<D: DeserializeOwned>(&self) -> D {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    /// The problem of a reply that is not a success.
    fn problem(&self) -> Option<ProblemDocument> {
        (self.status >= 300).then(|| self.read())
    }
}

impl Numbers for Http {
    fn lease(&self, number: usize) -> String {
        let forged = || format!("{}-{FORGED}", self.incarnation);
        self.leases.get(number).cloned().unwrap_or_else(forged)
    }

    fn version(&self, number: u64) -> u64 {
        self.first + number
    }
}

impl Target for Http {
    fn run(&mut self, command: &Command) -> Reply {
        match command {
            Command::Queue(_) => self.start_over(),
            Command::Tick(span) => self.tick(*span),
            _ => {}
        }
        let answer = self.send(&Call::of(command, self));
        // What the command has made due, such as a delay that stood still until reopen, happens now and not when the queue's task wakes.
        self.send(&Call::notice());
        if matches!(command, Command::Set(_)) {
            // A queue moves its keys to new groups by itself.
            while self.send(&Call::of(&Command::Status, self)).read::<QueueStatus>().building_groups {}
        }
        match answer.problem() {
            Some(problem) if NONE_SETTLED.contains(&&*problem.code) => {}
            Some(problem) if problem.code == KEY_NOT_FOUND => return self.known(command),
            Some(problem) => return refused(problem),
            None => {}
        }
        self.reply(command, &answer)
    }

    fn places(&mut self) -> Places {
        let page: Page<ItemDocument> = self.send(&Call::get(PLACES)).read();
        let mut places = Places { version: page.resource_version - self.first, ..Places::default() };
        for item in page.items {
            match item.state {
                Some(ItemState::Ready) => places.ready.push(item.key),
                Some(ItemState::Delayed) => {
                    places.delayed.push((item.key, item.due_at.map_or(0, |at| self.ms_until(at))));
                }
                Some(ItemState::Leased) => {
                    let lease = item.lease.expect("a lease");
                    places.leased.push((self.leases.number(lease.token, &lease.id), item.key, lease.worker));
                }
                Some(ItemState::Parked) => places.parked.push(item.key),
                other => panic!("{}: {other:?}", item.key),
            }
        }
        places.leased.sort_unstable();
        places
    }

    fn defect(&mut self) -> Option<String> {
        None
    }
}

impl Http {
    /// A server without a queue.
    pub(super) fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let bench = runtime.block_on(Bench::new());
        Self { runtime, bench, now_us: START_US, first: 0, incarnation: String::new(), leases: Leases::new() }
    }

    fn start_over(&mut self) {
        self.bench = self.runtime.block_on(Bench::new());
        (self.now_us, self.leases) = (START_US, Leases::new());
    }

    fn tick(&mut self, span: Duration) {
        self.bench.hand.advance(span);
        self.now_us += u64::try_from(span.as_micros()).expect("a short time");
    }

    fn send(&self, call: &Call) -> Answer {
        self.runtime.block_on(async {
            let response = self.bench.send(call.method, &call.path, call.body.clone()).await;
            let status = response.status().as_u16();
            let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.expect("a body");
            Answer { status, body: String::from_utf8(body.to_vec()).expect("text") }
        })
    }

    /// The reply to a command that was not refused.
    fn reply(&mut self, command: &Command, answer: &Answer) -> Reply {
        match command {
            Command::Queue(_) => {
                let queue: QueueDocument = answer.read();
                (self.first, self.incarnation) = (queue.status.resource_version, queue.incarnation);
                Reply::Done
            }
            Command::Set(_)
            | Command::Tick(_)
            | Command::Pause(_)
            | Command::Resume(_)
            | Command::Close(_)
            | Command::Reopen => Reply::Done,
            Command::Produce(..) | Command::Deltas(..) | Command::Resync | Command::Seed(_) => {
                self.produced(answer.read())
            }
            Command::Replace(..) => replaced(&answer.read()),
            Command::Pop(_) => self.popped(answer.read()),
            Command::Settle(settles) => self.settled(settles, answer.read()),
            Command::Forget(_) | Command::Promote(..) | Command::Redrive(..) | Command::Discard(..) => {
                Reply::Keys(answer.read::<KeysCount>().keys)
            }
            Command::Purge => {
                let PurgedDocument { keys, deltas } = answer.read();
                Reply::Purged { keys, deltas }
            }
            Command::Item(_) => Reply::Item(Some(self.item(answer.read()))),
            Command::Known | Command::Latest => self.objects(answer.read()),
            Command::Status => self.status(&answer.read()),
            Command::Synced(_) => synced(answer.read()),
            Command::Sources => sources(answer.read()),
            Command::Parked => {
                let errors = answer.read::<ParkedErrors>().items.into_iter();
                Reply::Parked(errors.map(|error| (error.error, error.keys, error.first_key)).collect())
            }
        }
    }

    /// The reply to a read of a key that nothing waits for.
    fn known(&self, command: &Command) -> Reply {
        let Command::Item(key) = command else { panic!("{command:?} names no key") };
        let is_known = self.send(&Call::known(key)).problem().is_none();
        Reply::Item(is_known.then(|| reply::Item::known(key)))
    }

    fn produced(&self, produced: Produced) -> Reply {
        let keys = produced.keys.unwrap_or_default().into_iter();
        let failed = |key: FailedKey| (key.key.clone(), self.failed(key.failures, key.due_at, key.parked));
        Reply::Produced(reply::Produced {
            queued: produced.queued,
            merged: produced.merged,
            ignored: produced.ignored,
            stale: produced.stale,
            duplicate: produced.duplicate,
            keys: keys.map(failed).collect(),
        })
    }

    fn popped(&mut self, popped: Popped) -> Reply {
        let (closed, paused) = (popped.closed, popped.paused);
        let held_ms = popped.held_until.map(|until| self.ms_until(until));
        let items = popped.items.into_iter().map(|item: PoppedItem| reply::Popped {
            lease: self.leases.number(item.lease.token, &item.lease.id),
            key: item.key,
            deltas: deltas(&item.deltas),
            attempt: item.attempt,
            failures: item.failures,
            is_in_initial_list: item.is_in_initial_list,
            known: item.known.map(|known| known.as_str().to_owned()),
        });
        Reply::Popped { items: items.collect(), closed, paused, held_ms }
    }

    fn settled(&self, settles: &[Settle], list: SettledList) -> Reply {
        let settled = list.settled.into_iter().map(|settled: SettledDocument| match settled.result {
            SettleResult::Ok if settled.how == SettleAs::Extend => reply::Settled::Extended {
                expires_in_ms: settled.expires_in_ms.expect("a length"),
                pending_deltas: settled.pending_deltas.expect("a number"),
                deleted: settled.deleted.expect("a flag"),
            },
            SettleResult::Ok if settled.held_until.is_some() => {
                let held_ms = settled.held_until.map_or(0, |until| self.ms_until(until));
                reply::Settled::Held { held_ms }
            }
            SettleResult::Ok => {
                let parked = settled.parked.unwrap_or_default();
                let failed = settled.failures.map(|failures| self.failed(failures, settled.due_at, parked));
                reply::Settled::Ok(failed)
            }
            SettleResult::Repeated => reply::Settled::Repeated,
            SettleResult::NotLeased => reply::Settled::NotLeased,
            _ => reply::Settled::Stale(settled.outcome.expect("an outcome").as_str().to_owned()),
        });
        Reply::Settled(settles.iter().map(|settle| settle.lease).zip(settled).collect())
    }

    fn item(&self, item: ItemDocument) -> reply::Item {
        reply::Item {
            key: item.key,
            state: item.state.map(|state| state.as_str().to_owned()),
            waiting: deltas(&item.deltas),
            leased: deltas(&item.leased_deltas),
            attempt: item.attempt,
            failures: item.failures,
            last_error: item.last_error,
            due_in_ms: item.due_at.map(|at| self.ms_until(at)),
            expires_in_ms: item.lease.map(|lease| lease.expires_in_ms),
            owner: item.source,
        }
    }

    fn objects(&self, page: Page<ObjectDocument>) -> Reply {
        let objects = page.items.into_iter().map(|object| reply::ViewObject {
            key: object.key,
            object: object.object.as_str().to_owned(),
            owner: object.source,
            version: object.resource_version - self.first,
        });
        Reply::Objects(objects.collect())
    }

    fn status(&self, status: &QueueStatus) -> Reply {
        Reply::Status(reply::Status {
            counts: [status.ready, status.delayed, status.leased, status.parked, status.known],
            version: status.resource_version - self.first,
            oldest_unacknowledged_ms: status.oldest_unacknowledged_age_ms,
            paused: status.paused,
            held_ms: status.held_until.map(|until| self.ms_until(until)),
            closed: status.closed,
            drained: status.drained,
        })
    }

    fn failed(&self, failures: u32, due_at: Option<Timestamp>, parked: bool) -> reply::Failed {
        reply::Failed { failures, due_in_ms: due_at.map(|at| self.ms_until(at)), parked }
    }

    fn ms_until(&self, at: Timestamp) -> u64 {
        at.as_micros().saturating_sub(self.now_us) / 1_000
    }
}

/// The refusal without the place of the object, which not every call names.
fn refused(problem: ProblemDocument) -> Reply {
    let place = problem.index.map(|index| format!("object {index}: "));
    let detail = place.and_then(|place| problem.detail.strip_prefix(&place).map(str::to_owned));
    Reply::Refused { code: problem.code, detail: detail.unwrap_or(problem.detail) }
}

fn replaced(replaced: &Replaced) -> Reply {
    let counts = replaced.counts;
    Reply::Replaced(reply::Counts {
        replaced: counts.replaced,
        deleted: counts.deleted,
        unchanged: counts.unchanged,
        taken_over: counts.taken_over,
        stale: counts.stale,
        duplicate: replaced.duplicate,
    })
}

fn synced(synced: SyncedDocument) -> Reply {
    let reached = |reached| reply::Reached { reached, parked: synced.parked.unwrap_or_default() };
    let (remaining, reached) = (synced.remaining, synced.reached.map(reached));
    Reply::Synced { synced: synced.synced, remaining, reached }
}

fn sources(page: Page<SourceDocument>) -> Reply {
    let sources = page.items.into_iter().map(|source| reply::Source {
        name: source.source,
        keys: source.keys,
        sequence: source.sequence,
    });
    Reply::Sources(sources.collect())
}

fn deltas(documents: &[DeltaDocument]) -> Vec<reply::Delta> {
    let delta = |delta: &DeltaDocument| reply::Delta {
        kind: delta.kind.as_str().to_owned(),
        object: delta.object.as_str().to_owned(),
        final_state_unknown: delta.final_state_unknown,
        coalesced: delta.coalesced,
    };
    documents.iter().map(delta).collect()
}
