//! The task of a queue. It processes timers, carries out the requests of destructors, builds indexes, moves keys to other groups, and makes
//! contacts with sources durable.

use std::future::pending;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use deltaq_engine::time::Time;
use deltaq_journal::Commit;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use super::Error;
use super::queue::Handle;

/// How long the task waits while the journal has no room for events.
const BACKLOG_WAIT: Duration = Duration::from_millis(100);
/// How long the task waits while the disk has too little room, which may be hours.
const DISK_WAIT: Duration = Duration::from_secs(5);
/// How long the task waits before it moves keys to their groups again.
const REGROUP_WAIT: Duration = Duration::from_secs(1);
/// Interval at which indexes that were dropped look for room.
const ROOM_WAIT: Duration = Duration::from_secs(5);

/// The result of processing timers: what the task waits for next.
struct Tick {
    /// Whether a periodic Resync is due.
    resync_due: bool,
    /// When the next timer is due.
    next: Option<Time>,
    /// Whether there are indexes to build.
    builds_indexes: bool,
    /// Whether keys have to be moved to other groups.
    regroups: bool,
    /// The commit of a lease that is past its deadline. The lease does not expire before its commit.
    commit: Option<Commit>,
}

impl Handle {
    /// Processes all due timers. Returns what to wait for.
    fn tick(self: &Arc<Self>) -> Result<Tick, Error> {
        let ((), commit) = self.change(|state, now| {
            state.queue.advance(now);
            state.write_contacts(now);
        })?;
        let mut state = self.lock();
        let resync_due = std::mem::take(&mut state.resync_due);
        let commit = state.queue.due_uncommitted(self.now()).then_some(commit);
        // The deadline counts as armed although the task waits for a commit. Otherwise each tick would wake the next one.
        state.armed = state.queue.next_deadline();
        let mut next = if commit.is_some() { None } else { state.armed };
        let builds_indexes =
            state.queue.is_building_indexes() && state.queue.room_for_indexes(|| self.memory());
        if let Some(due) = state.contacts.due {
            next = Some(next.map_or(due, |next| next.min(due)));
        }
        if state.queue.indexes_lack_room() {
            // No event reports that other queues have made room.
            let retry = self.now().plus(ROOM_WAIT);
            next = Some(next.map_or(retry, |next| next.min(retry)));
        }
        let regroups = state.queue.must_regroup();
        Ok(Tick { resync_due, next, builds_indexes, regroups, commit })
    }
}

/// Runs the task until the queue ends or the service begins to drain.
pub(super) async fn run(handle: Arc<Handle>) {
    // A Resync waits for commits and for other commands. Timers and requests must not wait for the Resync.
    let mut resync: Option<BoxFuture<'_, ()>> = None;
    let mut resync_due = false;
    let mut building: Option<BoxFuture<'_, ()>> = None;
    let mut regrouping: Option<BoxFuture<'_, ()>> = None;
    loop {
        // A panic loses the state of the queue. The task must survive the panic, because the queue is loaded again.
        let (next, commit) = match catch_unwind(AssertUnwindSafe(|| handle.tick())) {
            Ok(Ok(tick)) => {
                resync_due |= tick.resync_due;
                if tick.builds_indexes && building.is_none() {
                    building = Some(Box::pin(handle.build_indexes()));
                }
                if tick.regroups && regrouping.is_none() {
                    regrouping = Some(Box::pin(run_regroup(&handle)));
                }
                (tick.next, tick.commit)
            }
            // No event reports that the journal has room again.
            Ok(Err(Error::Journal(error))) if error.is_backlog() => {
                let is_low = matches!(error, deltaq_journal::Error::DiskLow { .. });
                tokio::select! {
                    biased;
                    () = tokio::time::sleep(if is_low { DISK_WAIT } else { BACKLOG_WAIT }) => {}
                    () = handle.shutdown().draining().cancelled() => return,
                }
                continue;
            }
            // The recovery wakes the task once the queue is loaded again.
            Ok(Err(Error::Journal(_))) | Err(_) => (None, None),
            Ok(Err(_)) => return,
        };
        if resync.is_none() && std::mem::take(&mut resync_due) {
            resync = Some(Box::pin(run_resync(&handle)));
        }
        let sleep = next.map(|next| handle.until(next));
        tokio::select! {
            biased;
            // These branches come first, because requests may never end. A part of the work is done each time.
            () = ended(&mut building) => building = None,
            () = ended(&mut regrouping) => regrouping = None,
            () = handle.leftovers.woken() => {}
            () = tokio::time::sleep(sleep.unwrap_or_default()), if sleep.is_some() => {}
            _ = commit.clone().unwrap_or_default().wait(), if commit.is_some() => {}
            () = ended(&mut resync) => resync = None,
            () = handle.shutdown().draining().cancelled() => return,
        }
    }
}

/// Waits for the end of work, if it runs.
async fn ended(work: &mut Option<BoxFuture<'_, ()>>) {
    match work {
        Some(work) => work.await,
        None => pending().await,
    }
}

async fn run_regroup(handle: &Arc<Handle>) {
    let regrouped = AssertUnwindSafe(handle.regroup()).catch_unwind().await;
    if let Ok(Err(error)) = regrouped
        && !matches!(error, Error::QueueDeleted | Error::NotOwner)
    {
        tracing::warn!(queue = %handle.name(), %error, "the keys of the queue have not been moved to their groups; this is tried again");
        tokio::time::sleep(REGROUP_WAIT).await;
    }
}

async fn run_resync(handle: &Arc<Handle>) {
    let resynced = AssertUnwindSafe(handle.resync(None)).catch_unwind().await;
    if let Ok(Err(error)) = resynced
        && error != Error::QueueDeleted
    {
        tracing::warn!(queue = %handle.name(), %error, "the periodic resync failed");
    }
}
