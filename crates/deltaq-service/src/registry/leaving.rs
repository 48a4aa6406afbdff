//! The end of a registry whose partition this server gives up, and what the next registry must know of it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use deltaq_engine::id::Rv;

use super::Registry;
use crate::queue::Handle;

impl Registry {
    /// The same registry, but all lives of its queues begin above `issued`, the largest number that this process has assigned.
    #[must_use]
    pub fn above(self, issued: Rv) -> Self {
        Self { issued, ..self }
    }

    /// Closes the journal. Undelivered keys return to their queues, later changes fail, and the journal writes all
    /// remaining events. The store is closed cleanly if every queue is intact.
    pub fn close(&self) {
        for handle in self.handles() {
            // A lost queue has nothing to return, because its last events are already in the journal.
            let _lost = handle.change(|_, _| ());
        }
        let Some(journal) = &self.journal else { return };
        journal.begin_closing();
        // Every change is admitted and appended under one of these locks. So all admitted changes have been appended.
        {
            let queues = self.queues.write();
            for handle in queues.live.values() {
                drop(handle.lock());
            }
        }
        // The next server adds to the buckets of this minute.
        self.measure_present();
        journal.close(self.recovered());
    }

    /// Ends all queues, because another node now owns them: waits and later calls fail, and the metrics are removed.
    pub fn leave(&self) {
        self.has_left.store(true, Ordering::Release);
        for handle in self.handles() {
            handle.leave();
            self.metrics.forget(handle.metrics());
        }
    }

    /// Whether this server has given up the partition.
    #[must_use]
    pub fn has_left(&self) -> bool {
        self.has_left.load(Ordering::Acquire)
    }

    /// The largest number that a queue of this registry has assigned.
    #[must_use]
    pub fn last_number(&self) -> Rv {
        let queues = self.queues.read();
        let last = |handle: &Arc<Handle>| handle.lock().queue.resource_version();
        queues.live.values().map(last).fold(queues.last_deleted, Rv::max)
    }
}
