//! Reads another deltaq queue: the objects of a view, and its changes by a watch.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::time::Duration;

use deltaq_client::types::{Mode, QueueDocument, RowType, WatchRow};
use deltaq_client::{Client, ClientOptions, Event, RetryOptions, View};
use deltaq_runtime::causes::with_causes;
use futures_util::{Stream, StreamExt as _};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::{Error, NextList, Output};
use crate::settings;

type Rows = Pin<Box<dyn Stream<Item = Result<WatchRow, deltaq_client::Error>> + Send + Sync>>;

/// How long an ended watch is started again before this counts as a failure. A restart of the server takes less time.
const RETRY: RetryOptions = RetryOptions {
    first: Duration::from_millis(250),
    max: Duration::from_secs(5),
    attempts: u32::MAX,
    total: Duration::from_secs(30),
};

/// A queue of a server.
pub(crate) struct Queue {
    settings: settings::Deltaq,
    /// The watch after its initial keys.
    rows: Option<Rows>,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Queue {
    pub(super) fn new(settings: &settings::Deltaq) -> Self {
        Self { settings: settings.clone(), rows: None }
    }

    /// The queue, with the token and the certificates that are in their files now.
    fn queue(&self) -> Result<deltaq_client::Queue, Error> {
        let settings = &self.settings;
        let read = |path: &std::path::Path| {
            std::fs::read(path)
                .map_err(|error| Error::because(format!("can't read {}", path.display()), error))
        };
        let mut options = ClientOptions::new(settings.url.clone());
        options.token_file.clone_from(&settings.token_file);
        options.ca_pem = settings.ca_file.as_deref().map(read).transpose()?;
        options.user_agent = Some(concat!("deltaq-reflect/", env!("CARGO_PKG_VERSION")).to_owned());
        options.retry = RETRY;
        // The source has a log of its own.
        options.log = deltaq_client::Log::none();
        let client = Client::new(options).map_err(|error| Error::because("the source", error))?;
        Ok(client.queue(settings.queue.as_str()))
    }

    /// The queue as it is now. A queue without objects is refused, because its list would be empty.
    async fn present(&self, queue: &deltaq_client::Queue) -> Result<QueueDocument, Error> {
        let present = queue.get().await.map_err(|error| self.failed(&error))?;
        if present.settings.mode == Mode::Keys {
            let what = format!("the queue {} has mode keys, so it has no objects", self.name());
            return Err(Error::new(what));
        }
        Ok(present)
    }

    /// The settings of a queue that can take the objects: the same key.
    pub(super) async fn queue_settings(&self) -> Result<Map<String, Value>, Error> {
        let present = self.present(&self.queue()?).await?;
        let key = serde_json::to_value(&present.settings.key);
        let key = key.map_err(|error| Error::because("the key of the queue is not JSON", error))?;
        Ok(json!({ "key": key }).as_object().cloned().unwrap_or_default())
    }

    pub(super) fn name(&self) -> &str {
        self.settings.queue.as_str()
    }

    pub(super) async fn refuse_circle(&self, incarnation: &str) -> Result<(), Error> {
        let present = self.present(&self.queue()?).await?;
        if present.incarnation == incarnation {
            let what = format!("the queue {} can't be its own source", self.name());
            return Err(Error::new(what));
        }
        Ok(())
    }

    pub(super) fn forget(&mut self) {
        self.rows = None;
    }

    pub(super) fn has_position(&self) -> bool {
        self.rows.is_some()
    }

    pub(super) async fn list(&mut self, output: &Output) -> Result<(), Error> {
        let queue = self.queue()?;
        self.present(&queue).await?;
        let mut watch = queue.watch().view(if self.settings.known { View::Known } else { View::Latest });
        if let Some(prefix) = &self.settings.prefix {
            watch = watch.prefix(prefix.as_str());
        }
        let mut rows: Rows = Box::pin(watch.stream());
        output.send(Event::Init).await?;
        let mut deleted = BTreeMap::new();
        loop {
            let row = self.next(&mut rows).await?;
            match row.kind {
                RowType::Bookmark if row.initial_events_end == Some(true) => break,
                RowType::Bookmark => {}
                // A key that is deleted while the keys are sent.
                RowType::Deleted => {
                    let key = row.key.clone();
                    deleted.extend(key.zip(event(row)));
                }
                _ => {
                    deleted.remove(row.key.as_deref().unwrap_or_default());
                    if let Some(Event::Apply(object)) = event(row) {
                        output.send(Event::InitApply(object)).await?;
                    }
                }
            }
        }
        output.send(Event::InitDone).await?;
        for event in deleted.into_values() {
            output.send(event).await?;
        }
        self.rows = Some(rows);
        Ok(())
    }

    pub(super) async fn stream(&mut self, output: &Output) -> Result<NextList, Error> {
        let Some(mut rows) = self.rows.take() else { return Ok(NextList::Now) };
        loop {
            let row = match rows.next().await {
                Some(Ok(row)) => row,
                Some(Err(error)) if error.code() == Some("expired") => return Ok(NextList::AfterPause),
                Some(Err(error)) => return Err(self.failed(&error)),
                None => return Ok(NextList::AfterPause),
            };
            match event(row) {
                Some(event) => output.send(event).await?,
                None => output.read(),
            }
        }
    }

    async fn next(&self, rows: &mut Rows) -> Result<WatchRow, Error> {
        match rows.next().await {
            Some(row) => row.map_err(|error| self.failed(&error)),
            None => Err(Error::new("the watch has ended within its initial keys")),
        }
    }

    fn failed(&self, error: &deltaq_client::Error) -> Error {
        let retry_after = error.retry_after();
        let what = format!("the queue {} of the source: {}", self.settings.queue, with_causes(error));
        Error::new(what).retry_after(retry_after)
    }
}

/// The event of a row; `None` for a bookmark.
fn event(row: WatchRow) -> Option<Event> {
    // The object was parsed from JSON, so its text is valid JSON.
    let object = row.object.and_then(|object| RawValue::from_string(object.as_str().to_owned()).ok());
    match (row.kind, object, row.key) {
        (RowType::Added | RowType::Updated, Some(object), _) => Some(Event::Apply(object)),
        (RowType::Deleted, Some(object), _) => Some(Event::Delete(object)),
        (RowType::Deleted, None, Some(key)) => Some(Event::DeleteKey(key)),
        _ => None,
    }
}
