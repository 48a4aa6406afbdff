//! Reads.

use deltaq_types::{
    EventDocument, ExplainDocument, GroupList, IndexDocument, IndexValueDocument, ItemDocument,
    ObjectDocument, SourceDocument, SyncedDocument, WorkerDocument,
};
use futures_util::stream::StreamExt as _;
use http::Method;

use super::Queue;
use crate::error::Error;
use crate::list::List;
use crate::request::{Request, requests, send};

/// Number of entries in a page when a list is searched.
const PAGE: u64 = 5_000;

requests! {
    /// One key: its deltas, its lease, its failures.
    GetItem -> ItemDocument = send {}
    /// One object of a view. If the view has no object of the key, the error is `key-not-found`.
    GetObject -> ObjectDocument = send {
        /// A version that the queue must have. A queue that does not have it, because a backup was restored, replies `version-ahead`
        /// or `expired`.
        min_resource_version number "min_resource_version";
    }
    /// The first groups of keys that take turns.
    GetGroups -> GroupList = send {
        /// What comes first: `wait`, `ready` or `leased`.
        sort text "sort";
    }
    /// Whether the initial list is processed or, with a version, whether everything up to it is acknowledged.
    Synced -> SyncedDocument = send {
        /// A version of the queue, or `now` for the newest one.
        resource_version text "resource_version";
        /// The maximum wait.
        wait wait "wait";
    }
}

impl GetItem {
    /// Adds the difference from the object that was acknowledged last to the newest one.
    pub fn with_diff(mut self) -> Self {
        self.request = self.request.query("with", "diff");
        self
    }
}

impl Queue {
    /// The keys with deltas that wait or are leased.
    pub fn items(&self) -> List<ItemDocument> {
        self.list("items")
    }

    /// One key: its deltas, its lease, its failures.
    pub fn item(&self, key: &str) -> GetItem {
        let call = self.call(Method::GET, ["item"]).query("key", Some(key));
        GetItem { request: Request::new(self.client().clone(), call) }
    }

    /// Why a key is not delivered.
    ///
    /// # Errors
    /// The call failed.
    pub async fn explain(&self, key: &str) -> Result<ExplainDocument, Error> {
        self.client().request(self.call(Method::GET, ["explain"]).query("key", Some(key))).await
    }

    /// The newest objects.
    pub fn latest(&self) -> List<ObjectDocument> {
        self.list("latest")
    }

    /// The newest object of a key.
    pub fn latest_object(&self, key: &str) -> GetObject {
        self.object("latest", key)
    }

    /// The objects that workers have acknowledged.
    pub fn known(&self) -> List<ObjectDocument> {
        self.list("known")
    }

    /// The object of a key that workers have acknowledged.
    pub fn known_object(&self, key: &str) -> GetObject {
        self.object("known", key)
    }

    /// The indexes of the known objects.
    pub fn indexes(&self) -> List<IndexDocument> {
        self.list("indexes")
    }

    /// The values of an index.
    pub fn index_values(&self, name: &str) -> List<IndexValueDocument> {
        let call = self.call(Method::GET, ["indexes", name]);
        List::new(Request::new(self.client().clone(), call))
    }

    /// The events of a key, newest first.
    pub fn history(&self, key: &str) -> List<EventDocument> {
        let call = self.call(Method::GET, ["history"]).query("key", Some(key));
        List::new(Request::new(self.client().clone(), call))
    }

    /// The sources that own keys or have called.
    pub fn sources(&self) -> List<SourceDocument> {
        self.list("sources")
    }

    /// One source; `None` if the queue, or the source in it, is unknown.
    ///
    /// # Errors
    /// The call failed.
    pub async fn source(&self, name: &str) -> Result<Option<SourceDocument>, Error> {
        let mut sources = Box::pin(self.sources().limit(PAGE).stream());
        while let Some(source) = sources.next().await {
            match source {
                Ok(source) if source.source == name => return Ok(Some(source)),
                Ok(_) => {}
                Err(error) if error.code() == Some("queue-not-found") => break,
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// The workers that hold leases or wait for keys.
    pub fn workers(&self) -> List<WorkerDocument> {
        self.list("workers")
    }

    /// The first 20 groups of keys that take turns.
    pub fn groups(&self) -> GetGroups {
        GetGroups { request: self.request(Method::GET, "groups") }
    }

    /// Whether the initial list is processed, or everything up to a version is acknowledged.
    pub fn synced(&self) -> Synced {
        Synced { request: self.request(Method::GET, "synced") }
    }

    fn list<T>(&self, path: &str) -> List<T> {
        List::new(self.request(Method::GET, path))
    }

    // A path can't end with every key: `..` and `//` are resolved before the request reaches the server.
    fn object(&self, view: &str, key: &str) -> GetObject {
        let call = self.call(Method::GET, ["object"]).query("view", Some(view)).query("key", Some(key));
        GetObject { request: Request::new(self.client().clone(), call) }
    }
}
