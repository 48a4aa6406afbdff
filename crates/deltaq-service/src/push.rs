//! Queues with the setting `push`. Each has a task, which the owner of the queue starts with the queue or with the setting, and which
//! ends with either.
//!
//! The task is a worker like any other: it pops and settles through the same calls. The service knows no HTTP, so a
//! [`Pusher`] does what the task does.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt as _;

use crate::Error;
use crate::pusher::Pusher;
use crate::queue::Handle;
use crate::registry::Registry;

impl Registry {
    /// Runs the tasks of all queues that push, until the shutdown begins.
    pub(super) async fn run_pushers(self: Arc<Self>) {
        let Some(pusher) = self.pushers.pusher.clone() else { return };
        loop {
            for handle in self.pushers_without_task() {
                self.shutdown().spawn("pusher", run(pusher.clone(), handle));
            }
            tokio::select! {
                biased;
                () = self.shutdown().draining().cancelled() => return,
                () = self.pushers.changed.notified() => {}
            }
        }
    }

    fn pushers_without_task(&self) -> Vec<Arc<Handle>> {
        let mut handles = self.handles();
        handles.retain(|handle| handle.config().push.is_some() && handle.push_task().begins());
        handles
    }
}

/// Pushes the keys of a queue while it has the setting.
async fn run(pusher: Arc<dyn Pusher>, handle: Arc<Handle>) {
    let task = handle.push_task();
    loop {
        if handle.config().push.is_none() {
            task.ends();
            // A PUT may have set `push` since the check above, and no task was started for it because this one still
            // counted as running.
            if handle.config().push.is_none() || !task.begins() {
                return;
            }
            continue;
        }
        // The task must survive a panic, which loses the state of the queue until it is loaded again.
        let pushing = AssertUnwindSafe(pusher.push(handle.clone())).catch_unwind();
        tokio::select! {
            biased;
            _ = pushing => {}
            () = handle.shutdown().cut().cancelled() => return,
        }
        if handle.shutdown().is_draining() || handle.has_ended() {
            return;
        }
        task.pause().await;
    }
}

impl Handle {
    /// Whether the queue was deleted, or another node owns it.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        matches!(self.lock().ended, Some(Error::QueueDeleted | Error::NotOwner))
    }

    /// Whether the queue has paused itself.
    #[must_use]
    pub fn has_paused_itself(&self) -> bool {
        self.lock().queue.pause_reason().is_some()
    }

    /// The number of ready keys.
    #[must_use]
    pub fn ready(&self) -> usize {
        self.lock().queue.schedule().ready_len()
    }
}
