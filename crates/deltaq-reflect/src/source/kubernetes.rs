//! A resource of a Kubernetes API: a list, and a watch from its version on, as client-go's Reflector reads it.
//!
//! The list is one watch with `sendInitialEvents` where the server has that (WatchList), else pages. A watch that ends goes on behind
//! its last version. Status 410, also as an event, means that the version is forgotten: the next step is a list.

mod access;
mod events;
mod lines;

use std::collections::BTreeMap;
use std::time::Duration;

use deltaq_client::Event;
use reqwest::{StatusCode, Url};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio::time::Instant;
use tracing::debug;

use self::access::Access;
use self::events::{Watched, with_kind};
use self::lines::Lines;
use super::objects::{document, utf8};
use super::{Error, Output, StreamEnd, http};
use crate::settings;

/// Objects of a page of a list, as client-go's pager asks for.
const PAGE: u32 = 500;
/// The shortest time after which the server ends a watch, in seconds; the time is up to twice as long.
const WATCH_SECONDS: u64 = 300;
/// How much longer than that a watch may be silent before its connection counts as lost.
const WATCH_GRACE: Duration = Duration::from_secs(30);

/// A watch without an event that is shorter is a failure: the next one might end as fast.
const WATCH_MIN: Duration = Duration::from_secs(1);

/// A resource of a Kubernetes API.
#[derive(Debug)]
pub(crate) struct Kubernetes {
    access: Access,
    settings: settings::Kubernetes,
    /// Whether lists are watches. False once the server has refused one.
    uses_watch_list: bool,
    /// The version up to which everything was sent; `None` before a list.
    version: Option<String>,
    /// The watch that has begun with the list.
    watch: Option<Lines>,
}

/// A page of a list.
#[derive(Debug, Deserialize)]
struct Page<'p> {
    #[serde(default, rename = "apiVersion")]
    api_version: String,
    #[serde(default)]
    kind: String,
    metadata: PageMetadata,
    #[serde(borrow, default)]
    items: Option<Vec<&'p RawValue>>,
}

#[derive(Debug, Deserialize)]
struct PageMetadata {
    #[serde(default, rename = "resourceVersion")]
    resource_version: String,
    #[serde(default, rename = "continue")]
    next: String,
}

impl Kubernetes {
    pub(super) fn new(settings: &settings::Kubernetes, source: &settings::Source) -> Result<Self, Error> {
        let access = Access::new(settings, source)?;
        let uses_watch_list = settings.watch_list;
        Ok(Self { access, settings: settings.clone(), uses_watch_list, version: None, watch: None })
    }

    /// The settings of a queue that takes the objects.
    pub(super) fn queue_settings() -> Map<String, Value> {
        let namespace = json!({ "pointer": "/metadata/namespace", "optional": true });
        let settings = json!({ "key": [namespace, "/metadata/name"] });
        settings.as_object().cloned().unwrap_or_default()
    }

    pub(super) fn forget(&mut self) {
        (self.version, self.watch) = (None, None);
    }

    pub(super) fn has_position(&self) -> bool {
        self.version.is_some()
    }

    pub(super) async fn list(&mut self, output: &Output) -> Result<(), Error> {
        self.forget();
        if self.uses_watch_list {
            if self.watch_list(output).await? {
                return Ok(());
            }
            debug!("the server has no WatchList; pages are listed instead");
            self.uses_watch_list = false;
        }
        output.send(Event::Init).await?;
        let mut version = self.pages(output, Some(PAGE)).await?;
        if version.is_none() {
            // The rest of the pages is forgotten. A list without pages can't be.
            output.send(Event::Init).await?;
            version = self.pages(output, None).await?;
        }
        output.send(Event::InitDone).await?;
        self.version = version;
        Ok(())
    }

    /// Sends the changes after the list.
    pub(super) async fn stream(&mut self, output: &Output) -> Result<StreamEnd, Error> {
        loop {
            let Some(version) = self.version.clone() else { return Ok(StreamEnd::ListLater) };
            let mut lines = match self.watch.take() {
                Some(lines) => lines,
                None => {
                    match self.watch(&[("resourceVersion", version.as_str())], &[StatusCode::GONE]).await? {
                        Some(lines) => lines,
                        None => return Ok(self.expired()),
                    }
                }
            };
            let (began, mut had_lines) = (Instant::now(), false);
            while let Some(line) = lines.next().await? {
                had_lines = true;
                match Watched::read(&line)? {
                    Watched::Applied { object, version } => {
                        output.send(Event::Apply(object)).await?;
                        self.version = Some(version);
                    }
                    Watched::Deleted { object, version } => {
                        output.send(Event::Delete(object)).await?;
                        self.version = Some(version);
                    }
                    Watched::Bookmark { version, .. } => {
                        self.version = Some(version);
                        output.read();
                    }
                    Watched::Expired => return Ok(self.expired()),
                    Watched::Failed { what, retry_after } => {
                        self.forget();
                        return Err(
                            Error::new(format!("the watch has ended: {what}")).retry_after(retry_after)
                        );
                    }
                }
            }
            if !had_lines && began.elapsed() < WATCH_MIN {
                return Err(Error::new("the watch has ended at once, without an event"));
            }
        }
    }

    fn expired(&mut self) -> StreamEnd {
        self.forget();
        StreamEnd::ListLater
    }

    /// A list as a watch. False if the server refuses that.
    async fn watch_list(&mut self, output: &Output) -> Result<bool, Error> {
        let parameters = [
            ("sendInitialEvents", "true"),
            ("resourceVersionMatch", "NotOlderThan"),
            ("resourceVersion", ""),
        ];
        let refused = [StatusCode::BAD_REQUEST, StatusCode::UNPROCESSABLE_ENTITY];
        let Some(mut lines) = self.watch(&parameters, &refused).await? else { return Ok(false) };
        output.send(Event::Init).await?;
        // The objects that are deleted while the initial ones are sent.
        let mut deleted = BTreeMap::new();
        loop {
            let line = lines.next().await?;
            let line = line.ok_or_else(|| Error::new("the watch has ended within its initial objects"))?;
            match Watched::read(&line)? {
                Watched::Applied { object, .. } => {
                    deleted.remove(&events::name(&object)?);
                    output.send(Event::InitApply(object)).await?;
                }
                Watched::Deleted { object, .. } => {
                    deleted.insert(events::name(&object)?, object);
                }
                Watched::Bookmark { version, is_end: true } => {
                    output.send(Event::InitDone).await?;
                    for object in std::mem::take(&mut deleted).into_values() {
                        output.send(Event::Delete(object)).await?;
                    }
                    (self.version, self.watch) = (Some(version), Some(lines));
                    return Ok(true);
                }
                Watched::Bookmark { .. } => {}
                Watched::Expired => {
                    return Err(Error::new("the watch has ended within its initial objects (410)"));
                }
                Watched::Failed { what, retry_after } => {
                    return Err(Error::new(format!("the list has failed: {what}")).retry_after(retry_after));
                }
            }
        }
    }

    /// Sends all pages, and returns the version of the list; `None` if the server has forgotten the rest of the pages.
    async fn pages(&self, output: &Output, limit: Option<u32>) -> Result<Option<String>, Error> {
        let mut next = String::new();
        loop {
            let mut url = self.url();
            if let Some(limit) = limit {
                url.query_pairs_mut().append_pair("limit", &limit.to_string());
            }
            if !next.is_empty() {
                url.query_pairs_mut().append_pair("continue", &next);
            }
            let reply = match self.access.client().get(&url, self.access.headers()?).await {
                Err(error) if error.status() == Some(StatusCode::GONE) && !next.is_empty() => {
                    return Ok(None);
                }
                reply => reply?,
            };
            let of = http::shown(&url);
            let page: Page<'_> = serde_json::from_str(document(utf8(&reply.body, &of)?, &of)?.get())
                .map_err(|error| Error::because(format!("{of} is not a list of Kubernetes"), error))?;
            let kind = page.kind.strip_suffix("List").unwrap_or_default();
            for object in page.items.unwrap_or_default() {
                output.send(Event::InitApply(with_kind(object, &page.api_version, kind)?)).await?;
            }
            if page.metadata.next.is_empty() {
                return Ok(Some(page.metadata.resource_version));
            }
            next = page.metadata.next;
        }
    }

    /// Begins a watch; `None` if the server refuses it with one of these statuses.
    async fn watch(
        &self,
        parameters: &[(&str, &str)],
        refused: &[StatusCode],
    ) -> Result<Option<Lines>, Error> {
        let seconds = WATCH_SECONDS + fastrand::u64(..=WATCH_SECONDS);
        let mut url = self.url();
        url.query_pairs_mut()
            .append_pair("watch", "true")
            .append_pair("allowWatchBookmarks", "true")
            .append_pair("timeoutSeconds", &seconds.to_string())
            .extend_pairs(parameters);
        let silence = Duration::from_secs(seconds) + WATCH_GRACE;
        match self.access.client().stream(&url, self.access.headers()?).await {
            Ok(response) => Ok(Some(Lines::new(url, response, silence, self.access.max_bytes()))),
            Err(error) if error.status().is_some_and(|status| refused.contains(&status)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The URL of the resource with its selectors.
    fn url(&self) -> Url {
        let mut url = self.access.server().clone();
        let base = url.path().trim_end_matches('/').to_owned();
        url.set_path(&format!("{base}{}", self.settings.resource));
        let selectors = [
            ("labelSelector", &self.settings.label_selector),
            ("fieldSelector", &self.settings.field_selector),
        ];
        for (name, selector) in selectors {
            if let Some(selector) = selector {
                url.query_pairs_mut().append_pair(name, selector);
            }
        }
        url
    }
}
