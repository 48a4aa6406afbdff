//! The readers of a queue's change feeds: their number and their wake-ups.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use deltaq_engine::feed::TombstoneLimits;
use deltaq_engine::id::Rv;
use deltaq_engine::view::View;
use deltaq_runtime::clock::Clock;
use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedMutexGuard, Semaphore, SemaphorePermit};

use super::shared_pages::SharedPages;
use crate::author::author;

/// The limits of the change feeds of a queue. By default nothing is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchLimits {
    /// How long a feed without readers is kept.
    pub idle: Duration,
    /// The limits on the remembered keys that have left a view.
    pub tombstones: TombstoneLimits,
}

/// The readers of a queue's feeds.
#[derive(Debug, Default)]
pub(crate) struct FeedReaders {
    pub(crate) views: [ViewReaders; 2],
    /// The followers in mode `events`.
    pub(crate) events: ViewReaders,
    /// Wakes the task of the feeds.
    pub(crate) changed: Notify,
    /// Whether the task of the feeds is running.
    pub(crate) has_task: AtomicBool,
    /// Held while a feed is extended backwards.
    pub(crate) backfill: tokio::sync::Mutex<VainBackfills>,
}

/// The events to which a feed can't be extended backwards, so that each of them is looked for only once.
#[derive(Debug, Default)]
pub(crate) struct VainBackfills {
    /// The journal has no events up to this one.
    pub(crate) begins: Rv,
    /// Events before the first one are too far from the second one, which was the horizon of the feed.
    pub(crate) too_far: (Rv, Rv),
}

impl VainBackfills {
    /// Whether a feed with this horizon can't be extended to the event `after`.
    pub(crate) fn includes(&self, after: Rv, horizon: Rv) -> bool {
        let (event, former) = self.too_far;
        after < self.begins || after < event && horizon >= former
    }
}

/// How many of the long reads have a part of a journal in memory at the same time.
const PARTS_MAX: usize = 4;

/// The reads of all queues that find little in much: backfills, histories, and watches whose filter skips most keys. A
/// token has one at a time.
#[derive(Debug)]
pub(crate) struct LongReads {
    turns: Mutex<HashMap<Arc<str>, Weak<tokio::sync::Mutex<()>>>>,
    parts: Semaphore,
}

impl Default for LongReads {
    fn default() -> Self {
        Self { turns: Mutex::default(), parts: Semaphore::new(PARTS_MAX) }
    }
}

impl LongReads {
    /// Waits until the token of the caller has no other long read.
    pub(crate) async fn turn(&self) -> Option<OwnedMutexGuard<()>> {
        let token = author().token?;
        let turn = {
            let mut turns = self.turns.lock();
            let turn = turns.get(&token).and_then(Weak::upgrade).unwrap_or_default();
            turns.retain(|_, turn| turn.strong_count() > 0);
            turns.insert(token, Arc::downgrade(&turn));
            turn
        };
        Some(turn.lock_owned().await)
    }

    /// Waits until a long read may load a part of a journal. Dropping the result frees the place, and must not wait for a
    /// client.
    pub(crate) async fn part(&self) -> Option<SemaphorePermit<'_>> {
        // The semaphore is never closed.
        self.parts.acquire().await.ok()
    }
}

#[derive(Debug, Default)]
pub(crate) struct ViewReaders {
    pub(crate) count: AtomicUsize,
    /// When the last reader ended, in microseconds of the monotonic clock.
    pub(crate) left_us: AtomicU64,
    /// Whether the view has changed since the last announcement.
    pub(crate) has_changed: AtomicBool,
    /// When the first of these changes happened, in microseconds of the monotonic clock.
    pub(crate) changed_us: AtomicU64,
    pub(crate) announced: Announcements,
    /// The newest pages of the stream of all keys.
    pub(crate) pages: SharedPages,
}

/// Wakes the readers of a view, in the order in which they began to wait. `tokio::sync::watch` wakes its readers in
/// random order, so simulation runs would not be reproducible.
#[derive(Debug, Default)]
pub(crate) struct Announcements {
    count: AtomicU64,
    /// The value of the newest announcement.
    changed_us: AtomicU64,
    wake: Notify,
}

impl Announcements {
    /// Announces changes. `changed_us` is when the first of them happened, or 0 if the queue was deleted or loaded
    /// again.
    pub(crate) fn send(&self, changed_us: u64) {
        self.changed_us.store(changed_us, Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::AcqRel);
        self.wake.notify_waiters();
    }

    /// Number of announcements, and the value of the newest one.
    pub(crate) fn newest(&self) -> (u64, u64) {
        (self.count.load(Ordering::Acquire), self.changed_us.load(Ordering::Relaxed))
    }

    /// Waits until there are more announcements than `seen`.
    pub(crate) async fn more_than(&self, seen: u64) {
        loop {
            // Any announcement from here on ends the wait.
            let woken = self.wake.notified();
            if self.newest().0 > seen {
                return;
            }
            woken.await;
        }
    }
}

impl FeedReaders {
    pub(crate) fn of(&self, view: View) -> &ViewReaders {
        let [latest, known] = &self.views;
        match view {
            View::Latest => latest,
            View::Known => known,
        }
    }

    /// Number of readers of each view.
    pub(crate) fn counts(&self) -> [usize; 2] {
        self.views.each_ref().map(|readers| readers.count.load(Ordering::Relaxed))
    }

    /// The readers of the views, and those of the events.
    pub(crate) fn all(&self) -> impl Iterator<Item = &ViewReaders> {
        self.views.iter().chain([&self.events])
    }

    /// Whether there are readers.
    pub(crate) fn are_any(&self) -> bool {
        self.all().any(|readers| readers.count.load(Ordering::Relaxed) > 0)
    }

    /// Records that these views have changed, and whether there are events for followers in mode `events`.
    pub(crate) fn note(&self, [latest, known]: [bool; 2], has_changes: bool, clock: &Clock) {
        let changed = [latest, known, has_changes];
        for (readers, _) in self.all().zip(changed).filter(|(_, changed)| *changed) {
            if readers.count.load(Ordering::Relaxed) > 0 {
                if !readers.has_changed.load(Ordering::Relaxed) {
                    readers.changed_us.store(clock.monotonic_us(), Ordering::Relaxed);
                }
                readers.has_changed.store(true, Ordering::Relaxed);
                self.changed.notify_one();
            }
        }
    }

    /// Wakes all readers, which then see that the queue was deleted or loaded again.
    pub(crate) fn wake_all(&self) {
        for readers in self.all() {
            readers.announced.send(0);
        }
        self.changed.notify_one();
    }
}
