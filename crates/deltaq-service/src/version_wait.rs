//! Reads that wait until a queue has reached a version, or until everything up to a version is acknowledged.

use std::sync::atomic::{AtomicU64, Ordering};

use deltaq_engine::id::Rv;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// The reads that wait for a version. Without them, a change pays for one comparison.
#[derive(Debug)]
pub(super) struct VersionWaits {
    /// The smallest version that a read waits for; the largest number if none waits. It changes under the lock of the queue.
    awaited: AtomicU64,
    reached: Notify,
}

impl Default for VersionWaits {
    fn default() -> Self {
        Self { awaited: AtomicU64::new(u64::MAX), reached: Notify::new() }
    }
}

impl VersionWaits {
    /// Wakes the reads once `reached` is the version of one. The others then wait again.
    pub(super) fn note(&self, reached: impl FnOnce() -> Rv) {
        let awaited = self.awaited.load(Ordering::Relaxed);
        if awaited != u64::MAX && reached().get() >= awaited {
            self.wake_all();
        }
    }

    /// Wakes all reads.
    pub(super) fn wake_all(&self) {
        self.awaited.store(u64::MAX, Ordering::Relaxed);
        self.reached.notify_waiters();
    }

    /// Makes a change that reaches this version wake the reads. The caller holds the lock of the queue.
    pub(super) fn await_version(&self, version: Rv) {
        self.awaited.fetch_min(version.get(), Ordering::Relaxed);
    }

    /// The next wake-up of the reads.
    pub(super) fn woken(&self) -> Notified<'_> {
        self.reached.notified()
    }
}
