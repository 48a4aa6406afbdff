//! What a worker without an observer writes to the log of its client.

use std::collections::HashMap;

use deltaq_types::{SettleAs, SettleCall, SettleResult, SettledDocument};
use http::Method;

use super::leases::Held;
use super::{Notice, Worker};
use crate::error::Error;
use crate::log::row;

/// The keys that have failed and whose settles have no result, with their attempts, by their leases.
#[derive(Debug, Default)]
pub(super) struct Failed(HashMap<String, (String, u32)>);

impl Failed {
    /// A handler has ended. Its failure is logged, unless it is a panic, which has a notice, or the handler has chosen when the
    /// key comes back.
    pub(super) fn ended(&mut self, worker: &Worker, held: &Held, settle: &SettleCall, has_panicked: bool) {
        if worker.observer.is_some() || !matches!(settle.how, SettleAs::Nack | SettleAs::Reject) {
            return;
        }
        self.0.insert(settle.lease_id.clone().unwrap_or_default(), (held.key.clone(), held.attempt));
        let is_chosen = settle.how == SettleAs::Reject || settle.delay.is_some() || has_panicked;
        if let Some(error) = settle.error.as_deref().filter(|_| !is_chosen) {
            worker.warn(&held.key, held.attempt, &format!("the handler has failed: {error}"));
        }
    }

    /// A settle has a result. A key that it has parked is logged.
    pub(super) fn settled(&mut self, worker: &Worker, result: &SettledDocument) {
        let Some((key, attempt)) = self.0.remove(&result.lease_id) else { return };
        if result.parked == Some(true) {
            worker.warn(
                &key,
                attempt,
                "the key is parked: it is not delivered until it changes or is redriven",
            );
        }
    }
}

impl Worker {
    fn warn(&self, key: &str, attempt: u32, what: &str) {
        let queue = self.queue.name();
        self.queue.client().rows().log.warn(&format!("queue {queue}, key {key}, attempt {attempt}: {what}"));
    }

    fn extension(&self) -> String {
        row(&self.queue.call(Method::POST, ["extend"]))
    }

    /// An extension has failed, and is repeated.
    pub(super) fn not_extended(&self, error: &Error) {
        if self.observer.is_none() {
            self.queue.client().rows().failed(&self.extension(), error, None);
        }
    }

    /// An extension has succeeded.
    pub(super) fn extended(&self) {
        let rows = self.queue.client().rows();
        if rows.is_open() {
            rows.answered(&self.extension());
        }
    }

    /// A handler has panicked.
    pub(super) fn panicked(&self, held: &Held, message: &str) {
        if self.observer.is_none() {
            self.warn(&held.key, held.attempt, &format!("the handler has panicked: {message}"));
        }
        self.notice(&Notice::Panicked { key: &held.key, message });
    }

    /// Logs a notice that no observer gets.
    pub(super) fn log(&self, notice: &Notice<'_>) {
        let (queue, name) = (self.queue.name(), &self.name);
        let line = match notice {
            Notice::QueueNotFound { queue } => {
                format!("queue {queue} does not exist yet; the worker waits for it")
            }
            Notice::LeaseLost { key, loss, .. } => {
                format!("queue {queue}, key {key}: the lease is lost: {loss:?}")
            }
            Notice::Settled(settled) if settled.result == SettleResult::Stale => {
                format!("queue {queue}: a lease had ended before its outcome was sent: {:?}", settled.outcome)
            }
            Notice::Paused { failures, pause, error } => {
                format!(
                    "queue {queue}: the worker {name} pauses for {pause:?} after {failures} failures in a row: {}",
                    error.unwrap_or_default()
                )
            }
            // These have lines of their own, or need none.
            Notice::Retry { .. } | Notice::Panicked { .. } | Notice::Settled(_) => return,
            Notice::Resumed => format!("queue {queue}: the worker {name} goes on"),
        };
        self.queue.client().rows().log.warn(&line);
    }
}
