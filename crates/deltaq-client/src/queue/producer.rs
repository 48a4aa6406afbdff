//! Produce calls with sequence numbers.

use deltaq_types::{DeltaCall, Produced, QueueDocument, Replaced};
use http::Method;
use serde::de::DeserializeOwned;

use super::Queue;
use crate::call::{Body, Call};
use crate::client::LIST_WAIT;
use crate::error::Error;

/// A source whose calls are applied once each, in order: every call has the next sequence number, so a call without a
/// reply can be repeated safely.
///
/// A source may have one producer at a time. If a second one uses its numbers, a call fails with
/// [`Error::SequenceTaken`]. A new producer from [`Queue::producer`] continues with the next number.
#[derive(Debug)]
pub struct Producer {
    queue: Queue,
    source: String,
    /// The number of the last call; `None` if calls have no numbers.
    last: Option<u64>,
    /// The version in the reply to the last call; 0 before the first call.
    resource_version: u64,
    /// The queue that contains everything that was sent; `None` before the queue is known.
    place: Option<Place>,
    /// Whether the token may read the queue, as far as this is known.
    may_read: bool,
}

/// A queue, and its life when it was known to contain everything that was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    incarnation: String,
    life: String,
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
    /// Let an empty list delete all keys of the source.
    pub allow_empty: bool,
    /// Keep the last object of a key that the list names several times, instead of refusing the list.
    pub keep_last: bool,
    /// Leave out invalid objects: at most a tenth of the list. A single invalid object in a list of several is always left out; a list whose
    /// only object is invalid is refused. The keys of these objects are neither changed nor deleted.
    pub skip_invalid: bool,
    /// Reply with the counts, and change nothing.
    pub dry_run: bool,
    /// The number of objects in the list. Without it, the list ends with a line that has the number.
    pub count: Option<u64>,
    /// Refuse the list with `queue-not-found` if the queue does not exist, instead of creating it.
    pub must_exist: bool,
}

impl Queue {
    /// A producer that continues the sequence numbers of a source.
    ///
    /// # Errors
    /// The last number can't be read. Reading it needs a token with the grant `read`.
    pub async fn producer(&self, source: impl Into<String>) -> Result<Producer, Error> {
        let source = source.into();
        // This is read before the number, so that a deletion of the queue in between is noticed later.
        let place = self.present().await?.map(|queue| Place::of(&queue));
        let last = self.last_sequence(&source).await?;
        let (queue, last) = (self.clone(), Some(last));
        Ok(Producer { queue, source, last, resource_version: 0, place, may_read: true })
    }

    /// A producer whose calls have no sequence numbers. A call that got no reply is repeated all the same, so its changes may be
    /// queued twice. The token does not need the grant `read`. But with a token that lacks it, a restart of the server counts
    /// as a [restore](Error::QueueRestored).
    #[must_use]
    pub fn producer_without_sequence(&self, source: impl Into<String>) -> Producer {
        let (queue, source) = (self.clone(), source.into());
        Producer { queue, source, last: None, resource_version: 0, place: None, may_read: true }
    }

    /// The queue; `None` if it does not exist.
    async fn present(&self) -> Result<Option<QueueDocument>, Error> {
        match self.get().await {
            Err(error) if error.code() == Some("queue-not-found") => Ok(None),
            queue => queue.map(Some),
        }
    }

    /// The sequence number of the last call of a source; 0 if the queue does not know the source.
    async fn last_sequence(&self, source: &str) -> Result<u64, Error> {
        Ok(self.source(source).await?.and_then(|source| source.sequence).unwrap_or(0))
    }
}

impl Place {
    fn of(queue: &QueueDocument) -> Self {
        Self { incarnation: queue.incarnation.clone(), life: queue.life.clone() }
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
    /// The call failed; [`Error::SequenceTaken`]; or [`Error::QueueDeleted`] or [`Error::QueueRestored`], if the
    /// batch was applied to a queue that lacks earlier calls.
    pub async fn deltas(&mut self, deltas: &[DeltaCall<'_>]) -> Result<Produced, Error> {
        let call = self.next_call("deltas").json(&deltas);
        self.send_deltas(call).await
    }

    /// Like [`deltas`](Self::deltas), but a queue that was deleted since an earlier call is not created again. Entries
    /// with an invalid object may be left out; the reply names them.
    pub(crate) async fn changes(
        &mut self,
        deltas: &[DeltaCall<'_>],
        skip_invalid: bool,
    ) -> Result<Produced, Error> {
        let was_there = self.place.is_some();
        let call = self.next_call("deltas").switch("must_exist", was_there);
        // If the body has one entry per line, an entry that is not valid JSON does not affect the others.
        let call = if skip_invalid {
            call.switch("skip_invalid", true).body(lines(deltas))
        } else {
            call.json(&deltas)
        };
        self.send_deltas(call).await.map_err(|error| match error.code() {
            Some("queue-not-found") if was_there => {
                Error::QueueDeleted { queue: self.queue.name().to_owned() }
            }
            _ => error,
        })
    }

    async fn send_deltas(&mut self, call: Call) -> Result<Produced, Error> {
        let (produced, attempts): (Produced, _) = self.send(call).await?;
        self.check_number(produced.duplicate && attempts == 1)?;
        if let Some(place) = Place::replied(produced.incarnation.as_ref(), produced.life.as_ref()) {
            self.check_place(&place, produced.resource_version).await?;
            self.place = Some(place);
        }
        self.resource_version = produced.resource_version;
        Ok(produced)
    }

    /// Sends a list. A streamed body is sent only once. The list is complete, so it does not matter what the queue
    /// contained before.
    ///
    /// # Errors
    /// The call failed, or [`Error::SequenceTaken`]. After [`Error::is_outcome_unknown`], send the whole list again: it gets the next number.
    pub async fn replace(&mut self, options: &ReplaceOptions, list: Body) -> Result<Replaced, Error> {
        let call = options.apply(self.next_call("replace")).body(list);
        let (replaced, attempts): (Replaced, _) = self.send(call.wait(LIST_WAIT)).await?;
        self.check_number(replaced.duplicate && attempts == 1)?;
        self.place = Place::replied(replaced.incarnation.as_ref(), replaced.life.as_ref())
            .or_else(|| self.place.take());
        self.resource_version = replaced.resource_version;
        Ok(replaced)
    }

    /// Checks whether the queue still has everything that was sent. A queue that was loaded again is in a new life.
    /// In that case, the version of the last call must be in its history, and its last sequence number of the source
    /// must be that of the last call. An ordinary restart loses neither.
    ///
    /// # Errors
    /// [`Error::QueueDeleted`], even if there is a new queue of the same name; [`Error::QueueRestored`]; or the call
    /// failed.
    pub async fn check_queue(&mut self) -> Result<(), Error> {
        if !self.may_read {
            return Ok(());
        }
        let queue = match self.queue.present().await {
            Err(error) if self.last.is_none() && is_forbidden(&error) => {
                self.may_read = false;
                return Ok(());
            }
            queue => queue?,
        };
        let Some(queue) = queue else {
            return if self.place.is_some() { Err(self.deleted()) } else { Ok(()) };
        };
        let place = Place::of(&queue);
        let is_loaded = self.check_place(&place, queue.status.resource_version).await?;
        if is_loaded
            && let Some(last) = self.last
            && self.queue.last_sequence(&self.source).await? != last
        {
            return Err(self.restored());
        }
        self.place = Some(place);
        Ok(())
    }

    /// Compares the queue with the queue that contained everything that was sent. `version` is the newest version of
    /// the queue. Returns whether the queue was loaded again since then.
    async fn check_place(&self, place: &Place, version: u64) -> Result<bool, Error> {
        let Some(before) = &self.place else { return Ok(false) };
        if before.incarnation != place.incarnation {
            return Err(self.deleted());
        }
        // The version can be too small even if the queue was not loaded again: a virtual machine was rolled back
        // together with its memory.
        if version < self.resource_version {
            return Err(self.restored());
        }
        let is_loaded = before.life != place.life;
        if is_loaded && self.resource_version > 0 {
            self.check_history().await?;
        }
        Ok(is_loaded)
    }

    /// Checks whether the version of the last call is in the history of the queue.
    async fn check_history(&self) -> Result<(), Error> {
        let asked = self.queue.synced().resource_version(self.resource_version.to_string()).await;
        match asked {
            Ok(_) => Ok(()),
            Err(error) if error.code() == Some("queue-not-found") => Err(self.deleted()),
            Err(error)
                if is_forbidden(&error) || matches!(error.code(), Some("expired" | "version-ahead")) =>
            {
                Err(self.restored())
            }
            Err(error) => Err(error),
        }
    }

    fn deleted(&self) -> Error {
        Error::QueueDeleted { queue: self.queue.name().to_owned() }
    }

    fn restored(&self) -> Error {
        Error::QueueRestored { queue: self.queue.name().to_owned() }
    }

    fn next_call(&mut self, path: &str) -> Call {
        self.last = self.last.map(|last| last.saturating_add(1));
        let call = self.queue.call(Method::POST, [path]);
        call.query("source", Some(&self.source)).query("sequence", self.last).repeatable()
    }

    async fn send<T: DeserializeOwned>(&self, call: Call) -> Result<(T, u32), Error> {
        self.queue.client().request_counted(call).await
    }

    fn check_number(&self, is_taken: bool) -> Result<(), Error> {
        match self.last.filter(|_| is_taken) {
            Some(sequence) => {
                let (queue, source_name) = (self.queue.name().to_owned(), self.source.clone());
                Err(Error::SequenceTaken { queue, source_name, sequence })
            }
            None => Ok(()),
        }
    }
}

impl Place {
    /// The queue and the life that a reply names.
    fn replied(incarnation: Option<&String>, life: Option<&String>) -> Option<Self> {
        Some(Self { incarnation: incarnation?.clone(), life: life?.clone() })
    }
}

/// Whether the server refuses the call because the token lacks a grant.
fn is_forbidden(error: &Error) -> bool {
    error.problem().is_some_and(|problem| problem.status == 403)
}

/// The entries as lines. Inside an object, line breaks can only be between tokens, so they are replaced with spaces.
fn lines(deltas: &[DeltaCall<'_>]) -> Body {
    let mut lines = Vec::new();
    for delta in deltas {
        let line = serde_json::to_vec(delta).unwrap_or_default();
        lines.extend(line.into_iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { byte }));
        lines.push(b'\n');
    }
    Body::Lines(lines.into())
}

impl ReplaceOptions {
    pub(super) fn apply(&self, call: Call) -> Call {
        call.switch("only_changed", self.only_changed)
            .query("max_delete_percent", self.max_delete_percent)
            .query("max_deletes", self.max_deletes)
            .switch("allow_empty", self.allow_empty)
            .query("duplicates", self.keep_last.then_some("last"))
            .switch("skip_invalid", self.skip_invalid)
            .switch("dry_run", self.dry_run)
            .query("count", self.count)
            .switch("must_exist", self.must_exist)
    }
}
