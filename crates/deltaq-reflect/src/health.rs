//! The health of a source: its log lines and its counts.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use deltaq_client::types::{InvalidObject, Produced, ReplaceCounts};
use deltaq_runtime::causes::with_causes;
use deltaq_runtime::clock::Clock;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tracing::{info, warn};

use super::Error;
use super::contact::Contacts;
use super::heartbeat::Heartbeat;
use super::left_out::LeftOut;
use super::metrics::{SourceMetrics, Summary};
use super::report::Problems;
use super::slot::SlotState;

/// Writes the log lines of a source and keeps its counts.
#[derive(Debug)]
pub(super) struct Health {
    source: String,
    queue: String,
    metrics: Arc<SourceMetrics>,
    clock: Clock,
    /// The keys of changes that were read but that the queue has not accepted yet, in their order.
    waiting: Mutex<VecDeque<String>>,
    left_out: Mutex<LeftOut>,
    /// The number of objects of the last list that are older than what the queue has.
    stale: Mutex<u64>,
    pub(super) problems: Problems,
    pub(super) contacts: Contacts,
    pub(super) heartbeat: Heartbeat,
    /// Changes when the queue has accepted changes.
    accepted: Notify,
    slot: Mutex<SlotSeen>,
}

/// What the log has said about the slot of a source.
#[derive(Debug, Default)]
struct SlotSeen {
    is_named: bool,
    is_large: bool,
}

impl Health {
    pub(super) fn new(
        source: &str,
        queue: &str,
        heartbeat: Heartbeat,
        metrics: Arc<SourceMetrics>,
        clock: Clock,
    ) -> Self {
        let (source, queue) = (source.to_owned(), queue.to_owned());
        let (waiting, left_out, stale) = (Mutex::default(), Mutex::default(), Mutex::default());
        let (problems, contacts) = (Problems::default(), Contacts::default());
        let (accepted, slot) = (Notify::new(), Mutex::default());
        Self {
            source,
            queue,
            metrics,
            clock,
            waiting,
            left_out,
            stale,
            problems,
            contacts,
            heartbeat,
            accepted,
            slot,
        }
    }

    /// Records that a list was accepted, or has not changed.
    pub(super) fn listed(&self, summary: Summary) {
        self.metrics.list(summary, self.clock.wall_us());
        self.succeeded();
        if let Summary::Sent { objects, counts } = summary {
            let (source, queue) = (&self.source, &self.queue);
            let ReplaceCounts { replaced, deleted, unchanged, .. } = counts;
            info!(source, queue, objects, replaced, deleted, unchanged, "a list was accepted");
            self.tell_stale(counts.stale);
        } else {
            self.contacts.seen();
        }
    }

    fn succeeded(&self) {
        self.problems.failed(None);
        if !self.metrics.is_degraded() {
            self.heartbeat.succeeded();
        }
    }

    fn tell_stale(&self, stale: u64) {
        let what = format!(
            "objects of the list change nothing, because their versions are not newer than what the queue has, or has deleted: {stale}"
        );
        if std::mem::replace(&mut *self.stale.lock(), stale) != stale {
            let (source, queue) = (&self.source, &self.queue);
            if stale > 0 {
                warn!(source, queue, stale, "{what}");
            } else {
                info!(source, queue, "the queue takes all objects of the list again");
            }
        }
        self.problems.stale(Some(what).filter(|_| stale > 0));
    }

    /// Records that a list was accepted without the objects that the queue refuses. The keys of these objects keep
    /// their state.
    pub(super) fn list_left_out(&self, count: u64, objects: &[InvalidObject]) {
        let mut left_out = self.left_out.lock();
        left_out.list(count, objects);
        self.tell_left_out(&mut left_out, count, objects);
    }

    fn tell_left_out(&self, left_out: &mut LeftOut, count: u64, objects: &[InvalidObject]) {
        self.metrics.leaves_out(left_out.count());
        if !left_out.is_due() {
            return;
        }
        self.problems.left_out(left_out.in_words());
        let (source, queue) = (&self.source, &self.queue);
        if left_out.count() == 0 {
            info!(source, queue, "the queue refuses no object any more");
        }
        for InvalidObject { key, code, detail, .. } in objects {
            warn!(
                source,
                queue,
                key,
                code,
                detail,
                "the queue refuses an object, which is left out; its key keeps what it has"
            );
        }
        if objects.iter().any(|object| object.key.is_none()) {
            warn!(source, queue, "the list deletes nothing, because the key of an object can't be read");
        }
        let more = count.saturating_sub(objects.len() as u64);
        if more > 0 {
            warn!(source, queue, more, "the queue refuses more objects, which are left out");
        }
    }

    /// Records that reading of the source begins. Earlier changes that still waited are not sent any more.
    pub(super) fn began(&self) {
        self.waiting.lock().clear();
    }

    /// Records that a change of a key was read.
    pub(super) fn waits(&self, key: String) {
        self.waiting.lock().push_back(key);
    }

    /// Records that the source was read and had nothing new. This does not count as a success while changes wait for
    /// the queue.
    pub(super) fn read(&self) {
        if self.waiting.lock().is_empty() {
            self.metrics.succeeded(self.clock.wall_us());
            self.succeeded();
            self.contacts.seen();
        }
    }

    /// Records that changes were accepted.
    pub(super) fn changed(&self, changes: usize, produced: &Produced) {
        let Produced { queued, stale, invalid, ref invalid_objects, .. } = *produced;
        if stale > 0 {
            let (source, queue) = (&self.source, &self.queue);
            warn!(
                source,
                queue, stale, "changes have no effect, because the queue has newer versions of their keys"
            );
        }
        let mut waiting = self.waiting.lock();
        let most = changes.min(waiting.len());
        let keys: Vec<String> = waiting.drain(..most).collect();
        drop(waiting);
        self.accepted.notify_one();
        self.metrics.changed(queued, self.clock.wall_us());
        self.succeeded();
        let mut left_out = self.left_out.lock();
        left_out.changes(&keys, invalid, invalid_objects);
        self.tell_left_out(&mut left_out, invalid, invalid_objects);
    }

    /// Waits until the queue has accepted all changes that were read.
    pub(super) async fn settled(&self) {
        while !self.waiting.lock().is_empty() {
            self.accepted.notified().await;
        }
    }

    /// Records that the source can't report what has changed, so a list follows.
    pub(super) fn needs_list(&self, why: &'static str) {
        let (source, queue) = (&self.source, &self.queue);
        info!(source, queue, why, "a whole list is needed");
    }

    /// Records where the slot of the source stands. The log names the slot once, and each time it keeps back too much.
    pub(super) fn slot(&self, state: &SlotState<'_>) {
        self.metrics.slot(state);
        let SlotState { name: slot, drop, kept_bytes, limit_bytes, .. } = *state;
        let (source, queue, too_many) = (&self.source, &self.queue, limit_bytes / 2);
        let (mut seen, is_large) = (self.slot.lock(), kept_bytes >= too_many);
        if !std::mem::replace(&mut seen.is_named, true) {
            info!(
                source,
                queue,
                slot,
                kept_bytes,
                "the database keeps its log for the slot {slot} until it is read, now {kept_bytes} bytes; this command ends it: {drop}"
            );
        }
        if std::mem::replace(&mut seen.is_large, is_large) == is_large {
            return;
        }
        let what = format!(
            "the slot {slot} keeps back {kept_bytes} bytes of the database's log, and {too_many} are half of what it may; \
             if this source is not needed any more, end it with: {drop}"
        );
        if is_large {
            warn!(source, queue, slot, kept_bytes, "{what}");
        }
        self.problems.slot(Some(what).filter(|_| is_large));
    }

    /// The time of the wall clock in microseconds since 1970.
    pub(super) fn now_us(&self) -> u64 {
        self.clock.wall_us()
    }

    /// Records that the changes go on where the last process has stopped.
    pub(super) fn resumed(&self) {
        let (source, queue) = (&self.source, &self.queue);
        info!(source, queue, "the changes go on where the last process has stopped");
    }

    /// Records that the task of the source begins, for the first time or after a panic.
    pub(super) fn begins(&self) {
        self.metrics.begins();
        self.problems.degraded(None);
    }

    /// Records that all parts of the source can be read again.
    pub(super) fn recovered(&self) {
        self.metrics.recovered(self.clock.wall_us());
        self.heartbeat.succeeded();
        self.problems.degraded(None);
    }

    /// Records which parts of the source can't be read now; empty if there are none.
    pub(super) fn parts_fail(&self, why: String) {
        self.problems.degraded(Some(why).filter(|why| !why.is_empty()));
    }

    /// Records that a part of the source can't be read, while the rest continues.
    pub(super) fn degraded(&self, error: &Error) {
        self.metrics.degraded(error);
        let (source, queue, error) = (&self.source, &self.queue, with_causes(error));
        self.heartbeat.failed(&error);
        warn!(source, queue, %error, "a part of the source can't be read; what it had stays in force");
    }

    /// Records that an attempt has failed. The next one follows after the pause.
    pub(super) fn failed(&self, error: &Error, pause: Duration) {
        self.metrics.failed(error);
        let (source, queue, error, again_in) = (&self.source, &self.queue, with_causes(error), shown(pause));
        self.problems.failed(Some(error.clone()));
        self.heartbeat.failed(&error);
        warn!(source, queue, %error, %again_in, "the source is not in step; its last list stays in force");
    }

    /// Records that a page of a list has failed. Only this page is requested again after the pause, not the pages
    /// before it.
    pub(super) fn repeats(&self, error: &Error, pause: Duration) {
        self.metrics.failed(error);
        let (source, queue, error, again_in) = (&self.source, &self.queue, with_causes(error), shown(pause));
        self.problems.failed(Some(error.clone()));
        self.heartbeat.failed(&error);
        warn!(source, queue, %error, %again_in, "a page of the list has failed and is asked for again");
    }

    /// Records that the values of the column `since` have no order in time, so each read between two lists returns all
    /// rows.
    pub(super) fn scattered(&self) {
        let (source, queue) = (&self.source, &self.queue);
        let what = "the column since has times in several forms, or numbers and texts, whose order is not that of time; each look between two lists reads all rows; convert the column in the query";
        warn!(source, queue, "{what}");
    }

    /// Records that a list has changed rows that earlier reads of the column should have found.
    pub(super) fn missed(&self, rows: u64) {
        let (source, queue) = (&self.source, &self.queue);
        let why = "a value of the column since that is ahead of the others hides later changes, and so does a transaction that is slow";
        warn!(
            source,
            queue, rows, why, "a list has found changes that the looks between two lists have missed"
        );
    }

    /// Records that two readings of a list have different keys. Keys that both lack are deleted; the deletion of the
    /// others is postponed to a later list.
    pub(super) fn postpones(&self, kept: u64, deleted: u64) {
        let (source, queue) = (&self.source, &self.queue);
        let what = "two readings of the list differ; keys that both lack are deleted, and keys that only the first has are kept until a later list";
        if kept > 0 {
            warn!(source, queue, kept, deleted, "{what}");
        } else {
            info!(source, queue, kept, deleted, "{what}");
        }
    }

    /// Records that a list of several pages lacks keys that the queue has from the source. It is read once more before
    /// anything is deleted.
    pub(super) fn lacks_keys(&self) {
        let (source, queue) = (&self.source, &self.queue);
        info!(source, queue, "the list of several pages lacks keys of the queue; it is read once more");
    }

    /// Records that a list has many fewer keys than the queue has from the source. It is read once more before
    /// anything is deleted.
    pub(super) fn shrank(&self, keys_before: u64, keys: u64) {
        let (source, queue) = (&self.source, &self.queue);
        warn!(
            source,
            queue, keys_before, keys, "the list has shrunk by more than a fifth; it is read once more"
        );
    }
}

fn shown(pause: Duration) -> String {
    let pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
    deltaq_types::duration::format(Duration::from_millis(pause_ms))
}
