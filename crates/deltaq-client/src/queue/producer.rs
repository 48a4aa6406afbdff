//! Produce calls with sequence numbers.

use deltaq_types::{DeltaCall, Produced, Replaced};
use reqwest::Method;
use serde::de::DeserializeOwned;

use super::Queue;
use crate::call::{Body, Call};
use crate::client::LIST_WAIT;
use crate::error::Error;

/// A source whose calls are applied once each, in order: every call has the next sequence number, so a call that got no reply is
/// repeated safely.
///
/// One producer may count for a source. A second one is noticed ([`Error::SequenceTaken`]) and gets numbers of its own with
/// [`Queue::producer`].
#[derive(Debug)]
pub struct Producer {
    queue: Queue,
    source: String,
    /// The number of the last call; `None` if calls have no numbers.
    last: Option<u64>,
    /// The highest version of the queue in a reply.
    resource_version: u64,
    /// The incarnation of the queue; `None` before the queue exists, and if calls have no numbers.
    incarnation: Option<String>,
}

/// The options of a Replace.
#[derive(Clone, Debug, Default)]
pub struct ReplaceOptions {
    /// Queue nothing for objects that have not changed.
    pub only_changed: bool,
    /// Refuse to delete more than this percentage of the source's keys. With `None` here and in
    /// [`max_deletes`](Self::max_deletes), the limit of the queue applies.
    pub max_delete_percent: Option<f64>,
    /// Refuse to delete more keys than this.
    pub max_deletes: Option<u64>,
    /// Let an empty list delete everything of the source.
    pub allow_empty: bool,
    /// Keep the last object of a key that the list names several times, instead of refusing the list.
    pub keep_last: bool,
    /// Reply with the counts, and change nothing.
    pub dry_run: bool,
    /// The number of objects in the list. Without it, the list ends with a line that has the number.
    pub count: Option<u64>,
}

impl Queue {
    /// A producer that continues the sequence numbers of a source.
    ///
    /// # Errors
    /// The last number can't be read, for which a token needs the grant `read`.
    pub async fn producer(&self, source: impl Into<String>) -> Result<Producer, Error> {
        let source = source.into();
        // Before the number, so that a queue that is deleted in between is noticed later.
        let incarnation = self.incarnation().await?;
        let last = self.source(&source).await?.and_then(|source| source.sequence).unwrap_or(0);
        Ok(Producer { queue: self.clone(), source, last: Some(last), resource_version: 0, incarnation })
    }

    /// A producer whose calls have no sequence numbers. A call that got no reply is repeated all the same, so its changes may be
    /// queued twice.
    #[must_use]
    pub fn producer_without_sequence(&self, source: impl Into<String>) -> Producer {
        let (queue, source) = (self.clone(), source.into());
        Producer { queue, source, last: None, resource_version: 0, incarnation: None }
    }

    /// The incarnation of the queue; `None` if it does not exist.
    async fn incarnation(&self) -> Result<Option<String>, Error> {
        match self.get().await {
            Err(error) if error.code() == Some("queue-not-found") => Ok(None),
            queue => Ok(Some(queue?.incarnation)),
        }
    }
}

impl Producer {
    /// The name of the source.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The number of the last call; `None` if calls have no numbers.
    #[must_use]
    pub const fn sequence(&self) -> Option<u64> {
        self.last
    }

    /// Sends a mixed batch.
    ///
    /// # Errors
    /// The call failed, [`Error::SequenceTaken`], or [`Error::QueueWentBack`]. Of a queue that was deleted only
    /// [`Producer::check_queue`] knows, because a call creates a new one.
    pub async fn deltas(&mut self, deltas: &[DeltaCall<'_>]) -> Result<Produced, Error> {
        let call = self.next_call("deltas").json(&deltas);
        let (produced, attempts): (Produced, _) = self.send(call).await?;
        self.check(produced.resource_version, produced.duplicate && attempts == 1).await?;
        Ok(produced)
    }

    /// Sends a list. A body that is a stream is sent once.
    ///
    /// # Errors
    /// As for [`Producer::deltas`]. After [`Error::is_outcome_unknown`], send the whole list again: it gets the next number.
    pub async fn replace(&mut self, options: &ReplaceOptions, list: Body) -> Result<Replaced, Error> {
        let call = options.apply(self.next_call("replace")).body(list);
        let (replaced, attempts): (Replaced, _) = self.send(call.wait(LIST_WAIT)).await?;
        self.check(replaced.resource_version, replaced.duplicate && attempts == 1).await?;
        Ok(replaced)
    }

    /// Asks whether the queue is still the one that takes the calls. Without numbers nothing is asked.
    ///
    /// # Errors
    /// [`Error::QueueDeleted`], also if there is a new queue of the name, which lacks what was sent before; or the call failed.
    pub async fn check_queue(&mut self) -> Result<(), Error> {
        if self.last.is_none() {
            return Ok(());
        }
        let present = self.queue.incarnation().await?;
        if self.incarnation.is_some() && present != self.incarnation {
            return Err(Error::QueueDeleted { queue: self.queue.name().to_owned() });
        }
        self.incarnation = present;
        Ok(())
    }

    fn next_call(&mut self, path: &str) -> Call {
        self.last = self.last.map(|last| last.saturating_add(1));
        let call = self.queue.call(Method::POST, [path]);
        call.query("source", Some(&self.source)).query("sequence", self.last).repeatable()
    }

    async fn send<T: DeserializeOwned>(&self, call: Call) -> Result<(T, u32), Error> {
        self.queue.client().request_counted(call).await
    }

    async fn check(&mut self, resource_version: u64, is_taken: bool) -> Result<(), Error> {
        if let Some(sequence) = self.last.filter(|_| is_taken) {
            let (queue, source_name) = (self.queue.name().to_owned(), self.source.clone());
            return Err(Error::SequenceTaken { queue, source_name, sequence });
        }
        let went_back = resource_version < self.resource_version;
        self.resource_version = resource_version;
        if went_back {
            return Err(Error::QueueWentBack { queue: self.queue.name().to_owned() });
        }
        if self.incarnation.is_none() {
            // The call has created the queue.
            self.check_queue().await?;
        }
        Ok(())
    }
}

impl ReplaceOptions {
    pub(super) fn apply(&self, call: Call) -> Call {
        call.switch("only_changed", self.only_changed)
            .query("max_delete_percent", self.max_delete_percent)
            .query("max_deletes", self.max_deletes)
            .switch("allow_empty", self.allow_empty)
            .query("duplicates", self.keep_last.then_some("last"))
            .switch("dry_run", self.dry_run)
            .query("count", self.count)
    }
}
