//! Informers: a local copy of a view of a queue, and handlers that get its changes, as client-go's SharedIndexInformer.
//!
//! [`Informer::run`] is the only writer. [`Store`]s are readers that can be cloned, and they never wait for handlers.
//! Each handler gets the changes at its own pace: waiting changes are merged per key, so they take no more memory
//! than the store.
//!
//! Invariant: if the events of a handler are applied to an empty store, the result is the store. `old` of an update,
//! and the object of a deletion, are the object that the handler got last for the key, unless the deletion contains a
//! newer last state.

mod delivery;
mod handler;
mod list;
mod store;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use deltaq_types::{RawObject, RowType, WatchRow};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use self::delivery::Delivery;
pub use self::handler::{Deleted, DeletedFinalStateUnknown, Handler, Registration};
use self::list::Listing;
use self::store::{Change, IndexFunction, Writer};
pub use self::store::{Object, Store, SyncSignal, wait_for_cache_sync};
use crate::error::Error;
use crate::queue::{Queue, View, Watch};
use crate::retry::Backoff;

/// The minimum resync period.
const RESYNC_MIN: Duration = Duration::from_millis(10);

/// A row of a key.
enum Row<T> {
    /// The object is new or has changed.
    Present(Arc<Object<T>>),
    /// The key left the view. `last` is its last state; `None` if it is unknown.
    Absent { key: Arc<str>, last: Option<Arc<Object<T>>> },
}

type Observer = Box<dyn Fn(&InformerNotice<'_>) + Send + Sync>;

/// Something that an informer does not report through its handlers. For logs and metrics.
#[derive(Debug)]
pub enum InformerNotice<'a> {
    /// The connection failed. The informer connects again after a pause, without a limit on the number of attempts.
    Retry {
        /// The error.
        error: &'a Error,
        /// The pause.
        pause: Duration,
    },
    /// The position is too old (410 `expired`): all keys are listed again.
    Relist,
    /// An object does not have the type of the informer, so the store does not contain it.
    Undecodable {
        /// The key.
        key: &'a str,
        /// The error of the JSON parser.
        error: &'a serde_json::Error,
    },
}

/// Why an informer has ended.
#[derive(Debug, thiserror::Error)]
pub enum InformerError {
    /// The server refuses the watch, for example its token.
    #[error("the watch of queue {queue} was refused")]
    Refused {
        /// The queue.
        queue: String,
        /// The refusal.
        source: Error,
    },
    /// A handler panicked.
    #[error("a handler panicked: {message}")]
    HandlerPanicked {
        /// The message of the panic.
        message: String,
    },
}

/// Keeps a [`Store`] in step with a view of a queue.
pub struct Informer<T = RawObject> {
    watch: Watch,
    queue: Queue,
    resync: Option<Duration>,
    observer: Option<Observer>,
    shared: Arc<Shared<T>>,
}

/// The data that the writer and the registrations share.
pub(crate) struct Shared<T> {
    /// The writer holds this lock while it changes the store and records the change for the handlers. A new handler
    /// holds it while it takes the objects of the store. Readers of the store do not need it.
    deliveries: Mutex<Deliveries<T>>,
    store: Writer<T>,
    /// Notified when a handler was added.
    added: Notify,
}

struct Deliveries<T> {
    all: Vec<Arc<Delivery<T>>>,
    /// The loops of handlers that do not run yet.
    new: Vec<BoxFuture<'static, ()>>,
}

impl Queue {
    /// An informer that reads the objects of this queue as type `T`. [`RawObject`] accepts every object unchanged.
    #[must_use]
    pub fn informer<T: DeserializeOwned + Send + Sync + 'static>(&self) -> Informer<T> {
        let deliveries = Mutex::new(Deliveries { all: Vec::new(), new: Vec::new() });
        let shared = Shared { deliveries, store: Writer::new(), added: Notify::new() };
        Informer {
            watch: self.watch(),
            queue: self.clone(),
            resync: None,
            observer: None,
            shared: Arc::new(shared),
        }
    }
}

impl<T: DeserializeOwned + Send + Sync + 'static> Informer<T> {
    /// The view; `latest` by default.
    #[must_use]
    pub fn view(mut self, view: View) -> Self {
        self.watch = self.watch.view(view);
        self
    }

    /// Only keys that begin with this text.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.watch = self.watch.prefix(prefix);
        self
    }

    /// Only a part of all keys, such as `0/4`.
    #[must_use]
    pub fn shard(mut self, shard: impl Into<String>) -> Self {
        self.watch = self.watch.shard(shard);
        self
    }

    /// The interval of bookmarks, as [`Watch::bookmark`].
    #[must_use]
    pub fn bookmark(mut self, interval: Duration) -> Self {
        self.watch = self.watch.bookmark(interval);
        self
    }

    /// Calls `on_update` for every object of the store each time this period has passed.
    #[must_use]
    pub fn resync(mut self, period: Duration) -> Self {
        self.resync = Some(period.max(RESYNC_MIN));
        self
    }

    /// An index of the store: the function returns the values of an object. Indexes are added before the informer runs.
    #[must_use]
    pub fn index(
        self,
        name: impl Into<String>,
        values: impl Fn(&T) -> Vec<String> + Send + Sync + 'static,
    ) -> Self {
        let values: IndexFunction<T> = Arc::new(values);
        self.shared.store.add_index(name.into(), values);
        self
    }

    /// Calls a function with each notice, which is not written to the [`Log`](crate::Log) of the client then. The function must not block.
    #[must_use]
    pub fn on_notice(mut self, observer: impl Fn(&InformerNotice<'_>) + Send + Sync + 'static) -> Self {
        self.observer = Some(Box::new(observer));
        self
    }

    /// A reader of the store.
    #[must_use]
    pub fn store(&self) -> Store<T> {
        self.shared.store.reader()
    }

    /// Adds handlers, even while the informer runs.
    #[must_use]
    pub fn handlers(&self) -> Handlers<T> {
        Handlers { shared: self.shared.clone() }
    }

    /// Adds a handler. It gets `on_add` for each object of the store, then the changes.
    pub fn add_handler(&self, handler: impl Handler<T>) -> Registration {
        self.handlers().add(handler)
    }

    /// Watches the queue and runs the handlers until the future is dropped. After errors that may pass, and while the
    /// queue does not exist, the informer tries again without limit.
    ///
    /// # Errors
    /// The server refuses the watch, or a handler panicked.
    pub async fn run(self) -> InformerError {
        let mut handlers = JoinSet::new();
        let watching = self.watch_for_ever();
        tokio::pin!(watching);
        loop {
            for handler in std::mem::take(&mut self.shared.deliveries.lock().new) {
                handlers.spawn(handler);
            }
            tokio::select! {
                error = &mut watching => return error,
                () = self.shared.added.notified() => {}
                Some(ended) = handlers.join_next() => {
                    let panic = ended.err().filter(tokio::task::JoinError::is_panic);
                    if let Some(panic) = panic {
                        let message = crate::panic::message(&*panic.into_panic());
                        return InformerError::HandlerPanicked { message };
                    }
                }
            }
        }
    }

    async fn watch_for_ever(&self) -> InformerError {
        let mut backoff = Backoff::from(self.queue.client().retry());
        let mut watch = self.watch.clone();
        let mut listing = Some(Listing::default());
        let mut resync_at = self.resync.map(|period| Instant::now() + period);
        loop {
            let end = self.read_connection(&mut watch, &mut listing, &mut backoff, &mut resync_at).await;
            let error = match end {
                Ok(has_progress) => {
                    // The server ends each connection after some minutes. One that has brought nothing new may end at once, and so
                    // may the next one.
                    if !has_progress {
                        sleep(backoff.pause()).await;
                    }
                    continue;
                }
                Err(error) => error,
            };
            if error.code() == Some("expired") {
                // This is usual if the server keeps few changes, and the new list has everything.
                self.notice(&InformerNotice::Relist);
                watch = self.watch.clone();
                listing = Some(Listing::default());
                sleep(backoff.pause()).await;
                continue;
            }
            if !error.is_temporary() && error.code() != Some("queue-not-found") {
                return InformerError::Refused { queue: self.queue.name().to_owned(), source: error };
            }
            let pause = backoff.after_failure(&error);
            self.notice(&InformerNotice::Retry { error: &error, pause });
            sleep(pause).await;
        }
    }

    fn notice(&self, notice: &InformerNotice<'_>) {
        if let Some(observer) = &self.observer {
            return observer(notice);
        }
        match notice {
            InformerNotice::Retry { error, .. } => self.watch.failed(error, None),
            InformerNotice::Relist => {}
            InformerNotice::Undecodable { key, error } => {
                let queue = self.queue.name();
                let line = format!(
                    "queue {queue}, key {key}: the object does not have the type of the informer: {error}"
                );
                self.queue.client().rows().log.warn(&line);
            }
        }
    }

    /// Reads the rows of one connection until it ends. Returns whether they have brought something new.
    async fn read_connection(
        &self,
        watch: &mut Watch,
        listing: &mut Option<Listing<T>>,
        backoff: &mut Backoff,
        resync_at: &mut Option<Instant>,
    ) -> Result<bool, Error> {
        let mut rows = watch.connect().await?;
        let before = rows.position().map(str::to_owned);
        loop {
            let row = tokio::select! {
                row = rows.next() => row?,
                () = until(*resync_at) => {
                    self.shared.resync_all();
                    *resync_at = self.resync.map(|period| Instant::now() + period);
                    continue;
                }
            };
            let Some(row) = row else { return Ok(rows.position() != before.as_deref()) };
            backoff.reset();
            self.apply(row, listing);
            if let Some(position) = rows.position() {
                watch.go_on_after(position);
            }
        }
    }

    /// Applies a row to the list that is being received, or to the store.
    fn apply(&self, row: WatchRow, listing: &mut Option<Listing<T>>) {
        let ends_list = row.initial_events_end == Some(true);
        if let Some(row) = self.decode(row) {
            match listing {
                Some(listing) => listing.apply(row),
                None => self.shared.apply(row),
            }
        }
        if ends_list && let Some(listing) = listing.take() {
            self.shared.replace(listing);
        }
    }

    /// The key in a row. An object that does not have the type of the informer counts as a deletion whose final state
    /// is unknown.
    fn decode(&self, row: WatchRow) -> Option<Row<T>> {
        let key: Arc<str> = row.key?.into();
        let (version, source) = (row.resource_version.unwrap_or_default(), row.source);
        let decoded = row.object.as_ref().map(|object| serde_json::from_str(object.as_str()));
        let object = match decoded {
            Some(Ok(object)) => {
                Some(Arc::new(Object { key: key.clone(), resource_version: version, source, object }))
            }
            Some(Err(error)) => {
                self.notice(&InformerNotice::Undecodable { key: &key, error: &error });
                None
            }
            None => None,
        };
        match row.kind {
            RowType::Added | RowType::Updated => Some(match object {
                Some(object) => Row::Present(object),
                None => Row::Absent { key, last: None },
            }),
            RowType::Deleted => {
                let is_unknown = row.final_state_unknown == Some(true);
                Some(Row::Absent { key, last: object.filter(|_| !is_unknown) })
            }
            RowType::Bookmark | RowType::Error | RowType::Expired | RowType::Unrecognized => None,
        }
    }
}

/// Adds handlers to an informer, even while it runs. Clones are cheap.
pub struct Handlers<T> {
    shared: Arc<Shared<T>>,
}

impl<T: Send + Sync + 'static> Handlers<T> {
    /// Adds a handler. It gets `on_add` for each object of the store, then the changes.
    pub fn add(&self, handler: impl Handler<T>) -> Registration {
        let mut deliveries = self.shared.deliveries.lock();
        let (objects, has_synced) = self.shared.store.snapshot();
        let delivery = Arc::new(Delivery::new(objects, has_synced));
        deliveries.all.push(delivery.clone());
        deliveries.new.push(Box::pin(delivery.clone().run(handler)));
        drop(deliveries);
        self.shared.added.notify_one();
        let shared = Arc::downgrade(&self.shared);
        let removed = delivery.clone();
        let remove = move || {
            if let Some(shared) = shared.upgrade() {
                shared.deliveries.lock().all.retain(|other| !Arc::ptr_eq(other, &removed));
            }
            removed.close();
        };
        Registration::new(delivery.signal(), Box::new(remove))
    }
}

impl<T: Send + Sync + 'static> Shared<T> {
    fn apply(&self, row: Row<T>) {
        let deliveries = self.deliveries.lock();
        let change = match row {
            Row::Present(object) => Some(self.store.apply(object)),
            Row::Absent { key, last } => self.store.delete(key, last),
        };
        if let Some(change) = &change {
            deliveries.all.iter().for_each(|delivery| delivery.note(change));
        }
    }

    fn replace(&self, listing: Listing<T>) {
        let deliveries = self.deliveries.lock();
        let changes = self.store.replace(listing.into_objects());
        for delivery in &deliveries.all {
            for change in &changes {
                delivery.note(change);
            }
            delivery.list_ended();
        }
    }

    /// Calls `on_update` for each object with the object itself. If a change of a key waits, the handler gets only
    /// that change.
    fn resync_all(&self) {
        let deliveries = self.deliveries.lock();
        for object in self.store.snapshot().0 {
            let (key, old) = (object.key.clone(), Some(object.clone()));
            let change = Change { key, old, new: Some(object), last: None };
            deliveries.all.iter().for_each(|delivery| delivery.note(&change));
        }
    }
}

async fn until(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

impl<T> Clone for Handlers<T> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<T> fmt::Debug for Handlers<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handlers").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Informer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Informer")
            .field("watch", &self.watch)
            .field("resync", &self.resync)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::net::TcpListener;

    use super::*;
    use crate::client::Client;

    /// The address of a server that ends each watch after this event.
    fn ending_after(event: &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                let mut connection = connection.unwrap();
                let lines = BufReader::new(connection.try_clone().unwrap()).lines();
                lines.map_while(Result::ok).take_while(|line| !line.is_empty()).for_each(drop);
                let length = event.len();
                let head =
                    format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
                connection.write_all(format!("{head}{event}").as_bytes()).unwrap();
            }
        });
        address
    }

    #[tokio::test]
    async fn a_connection_that_brings_nothing_new_is_told_from_one_that_does() {
        let address = ending_after("id: life-7\ndata: {\"type\":\"Bookmark\",\"resource_version\":7}\n\n");
        let queue = Client::at(address).unwrap().queue("q");
        let informer: Informer = queue.informer();
        let (mut watch, mut listing) = (informer.watch.clone(), None);
        for has_progress in [true, false, false] {
            let mut backoff = Backoff::default();
            let end = informer.read_connection(&mut watch, &mut listing, &mut backoff, &mut None).await;
            assert_eq!(end.unwrap(), has_progress);
        }
    }
}
