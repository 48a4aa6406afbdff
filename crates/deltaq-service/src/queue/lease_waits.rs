//! Workers that wait for the first change behind their leases.

use std::collections::HashMap;
use std::sync::Arc;

use deltaq_engine::id::Token;
use tokio::sync::Notify;

/// The waiting calls of a queue, by the leases that they wait for.
#[derive(Debug, Default)]
pub(crate) struct LeaseWaits(HashMap<Token, Vec<Arc<Notify>>>);

impl LeaseWaits {
    /// Adds a call that waits for these leases.
    pub(crate) fn join(&mut self, tokens: &[Token], call: &Arc<Notify>) {
        for token in tokens {
            self.0.entry(*token).or_default().push(call.clone());
        }
    }

    /// Removes a call. Returns whether it was the last one that waits for this lease.
    pub(crate) fn leave(&mut self, token: Token, call: &Arc<Notify>) -> bool {
        let Some(calls) = self.0.get_mut(&token) else { return false };
        calls.retain(|other| !Arc::ptr_eq(other, call));
        let is_last = calls.is_empty();
        if is_last {
            self.0.remove(&token);
        }
        is_last
    }

    /// Wakes the calls that wait for one of these leases.
    pub(crate) fn wake(&mut self, overtaken: &[Token]) {
        for token in overtaken {
            self.0.remove(token).into_iter().flatten().for_each(|call| call.notify_one());
        }
    }

    /// Wakes all calls, which then see what has become of the queue.
    pub(crate) fn wake_all(&mut self) {
        std::mem::take(&mut self.0).into_values().flatten().for_each(|call| call.notify_one());
    }
}
