//! The state of the task that pushes the keys of a queue. The queue holds this state, and the task changes it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::metrics::{PushReport, PushResult};

/// How long the task waits before it begins again with the same settings.
const PAUSE: Duration = Duration::from_millis(10);

/// The state of the task that pushes the keys of a queue.
#[derive(Debug, Default)]
pub struct PushTask {
    is_running: AtomicBool,
    /// Wakes the task when the queue has new settings or has ended.
    pub(crate) wake: Notify,
    report: Mutex<PushReport>,
}

impl PushTask {
    /// Changes the report.
    pub fn set(&self, change: impl FnOnce(&mut PushReport)) {
        change(&mut self.report.lock());
    }

    /// Counts a request.
    pub fn count(&self, result: PushResult, took: Duration) {
        self.report.lock().count(result, took);
    }

    /// What the task does.
    #[must_use]
    pub fn report(&self) -> PushReport {
        self.report.lock().clone()
    }

    /// Waits until the queue has new settings or has ended. A wake-up that came before counts.
    pub async fn woken(&self) {
        self.wake.notified().await;
    }

    /// A short wait, so that a task that ends at once does not run without pause.
    pub(crate) async fn pause(&self) {
        tokio::time::sleep(PAUSE).await;
    }

    /// Marks the task as running. Returns whether the caller must run it because it was not running.
    pub(crate) fn begins(&self) -> bool {
        !self.is_running.swap(true, Ordering::AcqRel)
    }

    /// Records that the task has ended. It is a swap, because the settings are read after it.
    pub(crate) fn ends(&self) {
        self.is_running.swap(false, Ordering::AcqRel);
    }
}
