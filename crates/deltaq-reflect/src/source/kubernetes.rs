//! A resource of a Kubernetes API: a list, and a watch from its version on, as client-go's Reflector reads it.
//!
//! If the server supports it (WatchList), the list is a watch with `sendInitialEvents`; otherwise it is read in
//! pages. A watch that has ended continues after its last version, once the server has confirmed that it has this
//! version. A list is read if the server no longer has the version (410) or does not have it yet (504, after a
//! restore of its database), and after every refusal that is not temporary.

mod access;
mod events;
mod lines;
mod short;

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use deltaq_client::Event;
use deltaq_runtime::causes::with_causes;
use reqwest::{StatusCode, Url};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio::time::Instant;
use tracing::{info, warn};

use self::access::Access;
use self::events::{Watched, with_kind};
use self::lines::{Lines, Next};
use self::short::Short;
use super::objects::{document, utf8};
use super::{Error, NextList, Output, http};
use crate::settings;

/// Number of objects in a page of a list, the default of client-go's pager.
const PAGE: u32 = 500;
/// The minimum time in seconds after which the server ends a watch. The actual time is up to twice as long.
const WATCH_SECONDS: u64 = 300;
/// A watch that is silent for longer has lost its connection. This is 2.5 times the interval of bookmarks.
const SILENCE_MAX: Duration = Duration::from_secs(150);
/// Maximum time between two initial objects of a watch. A server that does not support `sendInitialEvents` never ends
/// them.
const INITIAL_SILENCE_MAX: Duration = Duration::from_secs(10);
/// Maximum size of an object in the queue: the API server accepts requests of 3 MiB, and adds some members.
const OBJECT_BYTES_MAX: u64 = 4 << 20;
/// Statuses with which a server refuses to watch a resource: it has no watch, or does not permit one to this user.
const NO_WATCH: [StatusCode; 6] = [
    StatusCode::BAD_REQUEST,
    StatusCode::FORBIDDEN,
    StatusCode::NOT_FOUND,
    StatusCode::METHOD_NOT_ALLOWED,
    StatusCode::UNPROCESSABLE_ENTITY,
    StatusCode::NOT_IMPLEMENTED,
];

/// A resource of a Kubernetes API.
#[derive(Debug)]
pub(crate) struct Kubernetes {
    access: Access,
    settings: settings::Kubernetes,
    /// Whether lists are read as watches. False once the server has shown that it does not support this.
    uses_watch_list: bool,
    /// The version up to which everything has been sent; `None` before a list.
    version: Option<String>,
    /// The watch that has begun with the list.
    watch: Option<Lines>,
    /// Whether no watch has been tried since the list.
    is_fresh: bool,
    short: Short,
    /// Whether the last watch that led to a list ended with an expired version, and no event has arrived since.
    is_expired: bool,
    /// Whether the log already says that the resource can't be watched.
    is_polled: bool,
}

/// A page of a list.
#[derive(Debug, Deserialize)]
struct Page<'p> {
    #[serde(default, rename = "apiVersion")]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    metadata: PageMetadata,
    /// Null for an empty list. A document without this member is not a list.
    #[serde(borrow, default, deserialize_with = "present")]
    items: Option<&'p RawValue>,
    /// The message of a Status that is returned instead of a list.
    #[serde(default)]
    message: String,
}

#[derive(Debug, Default, Deserialize)]
struct PageMetadata {
    #[serde(default, rename = "resourceVersion")]
    resource_version: String,
    #[serde(default, rename = "continue")]
    next: Option<String>,
    /// The number of objects on the pages that follow.
    #[serde(default, rename = "remainingItemCount")]
    remaining: Option<i64>,
}

/// The result of beginning a watch.
enum Begun {
    Open(Box<Lines>),
    /// A list must be read first.
    List(NextList),
}

impl Kubernetes {
    pub(super) fn new(settings: &settings::Kubernetes, source: &settings::Source) -> Result<Self, Error> {
        let access = Access::new(settings, source)?;
        Ok(Self {
            access,
            settings: settings.clone(),
            uses_watch_list: settings.watch_list,
            version: None,
            watch: None,
            is_fresh: false,
            short: Short::default(),
            is_expired: false,
            is_polled: false,
        })
    }

    /// The settings of a queue that can take the objects.
    pub(super) fn queue_settings() -> Map<String, Value> {
        let namespace = json!({ "pointer": "/metadata/namespace", "optional": true });
        let settings = json!({ "key": [namespace, "/metadata/name"], "max_object_bytes": OBJECT_BYTES_MAX });
        settings.as_object().cloned().unwrap_or_default()
    }

    pub(super) fn forget(&mut self) {
        (self.version, self.watch, self.is_fresh) = (None, None, false);
    }

    pub(super) fn has_position(&self) -> bool {
        self.version.is_some()
    }

    pub(super) async fn list(&mut self, output: &Output) -> Result<(), Error> {
        self.forget();
        self.access.refresh()?;
        match self.whole(output).await {
            Err(error) if error.is_about_credentials() && self.access.refresh()? => self.whole(output).await,
            listed => listed,
        }
    }

    async fn whole(&mut self, output: &Output) -> Result<(), Error> {
        if self.uses_watch_list && self.watch_list(output).await? {
            return Ok(());
        }
        output.send(Event::Init).await?;
        let mut version = self.pages(output, Some(PAGE)).await?;
        if version.is_none() {
            // The remaining pages have expired. This can't happen to a list without pages.
            output.send(Event::Init).await?;
            version = self.pages(output, None).await?;
            if version.is_none() {
                return Err(Error::new(
                    "the rest of the list has expired (410), although no pages were asked for",
                ));
            }
        }
        output.send(Event::InitDone).await?;
        (self.version, self.is_fresh) = (version, true);
        Ok(())
    }

    /// Sends the changes after the list.
    pub(super) async fn stream(&mut self, output: &Output) -> Result<NextList, Error> {
        loop {
            let mut lines = match self.watch.take() {
                Some(lines) => lines,
                None => match self.resume().await {
                    Ok(Begun::Open(lines)) => *lines,
                    Ok(Begun::List(end)) => return Ok(end),
                    Err(error) => return Err(self.refused(error)),
                },
            };
            output.read();
            let began = Instant::now();
            let (begun_at, mut had_bookmark) = (self.version.clone(), false);
            let why = loop {
                let line = match lines.next(SILENCE_MAX).await {
                    Ok(Next::Line(line)) => line,
                    Ok(Next::End) if is_list(&lines.rest(Vec::new()).await) => {
                        return Ok(self.polls(&ignored()));
                    }
                    Ok(Next::End) => break None,
                    Ok(Next::Broken(error)) => break Some(error),
                    Err(error) => return Err(self.refused(error)),
                };
                match Watched::read(&line) {
                    Err(_) if is_list(&lines.rest(line).await) => return Ok(self.polls(&ignored())),
                    Ok(Watched::Applied { object, version }) => {
                        output.send(Event::Apply(object)).await?;
                        self.version = Some(version);
                    }
                    Ok(Watched::Deleted { object, version }) => {
                        output.send(Event::Delete(object)).await?;
                        self.version = Some(version);
                    }
                    Ok(Watched::Bookmark { version, .. }) => {
                        (self.version, had_bookmark) = (Some(version), true);
                        output.read();
                    }
                    Ok(Watched::Expired) => return Ok(self.expired("the version has expired (410)")),
                    Ok(Watched::Failed(error)) if error.status() == Some(StatusCode::GATEWAY_TIMEOUT) => {
                        return Ok(self.expired(&error.to_string()));
                    }
                    Ok(Watched::Failed(error)) | Err(error) => return Err(self.refused(error)),
                }
                (self.is_expired, self.is_polled) = (false, false);
            };
            // If a server sends the same objects again and again, the watch makes no progress.
            let had_event = had_bookmark || self.version != begun_at;
            if had_event {
                self.short.had_event();
            }
            if let Some(error) = &why {
                let error = with_causes(error);
                info!(resource = self.settings.resource, %error, "the watch goes on with a new connection");
            }
            let lived = began.elapsed();
            if !had_event && lived < short::AT_ONCE {
                let at_once = || Error::new("the watch has ended at once, without an event");
                return Err(self.refused(why.unwrap_or_else(at_once)));
            }
            if self.short.needs_list(lived, had_event) {
                info!(
                    resource = self.settings.resource,
                    "several watches have ended early without an event; a list follows"
                );
                self.forget();
                return Ok(NextList::Now);
            }
            tokio::time::sleep(short::AT_ONCE.saturating_sub(lived) / 4).await;
        }
    }

    /// The error of a watch. Unless the error is temporary, a list is read, because another watch from the same
    /// version might fail forever.
    fn refused(&mut self, error: Error) -> Error {
        if !error.is_passing() {
            self.forget();
        }
        error
    }

    /// The version can't be watched, so a list is read. The first time, it is read at once.
    fn expired(&mut self, why: &str) -> NextList {
        warn!(resource = self.settings.resource, version = self.version, "{why}; a list follows");
        self.forget();
        if std::mem::replace(&mut self.is_expired, true) { NextList::AfterPause } else { NextList::Now }
    }

    /// The resource can't be watched, so a list is read after the interval.
    fn polls(&mut self, error: &Error) -> NextList {
        if !std::mem::replace(&mut self.is_polled, true) {
            let error = with_causes(error);
            warn!(resource = self.settings.resource, %error, "the resource can't be watched; it is listed once per interval");
        }
        self.forget();
        NextList::AfterInterval
    }

    /// Begins a watch after the version. Credentials that have been replaced are read again.
    async fn resume(&mut self) -> Result<Begun, Error> {
        match self.begin().await {
            Err(error) if error.is_about_credentials() && self.access.refresh()? => self.begin().await,
            begun => begun,
        }
    }

    async fn begin(&mut self) -> Result<Begun, Error> {
        let Some(version) = self.version.clone() else { return Ok(Begun::List(NextList::Now)) };
        let is_fresh = std::mem::take(&mut self.is_fresh);
        if !is_fresh && let Some(why) = self.lacks(&version).await? {
            return Ok(Begun::List(self.expired(&why)));
        }
        match self.watch(&[("resourceVersion", version.as_str())]).await {
            Ok(lines) => Ok(Begun::Open(Box::new(lines))),
            Err(error) if error.status() == Some(StatusCode::GONE) => {
                Ok(Begun::List(self.expired("the version has expired (410)")))
            }
            Err(error) if error.status() == Some(StatusCode::GATEWAY_TIMEOUT) => {
                Ok(Begun::List(self.expired("the server does not have the version (504)")))
            }
            Err(error) if is_fresh && error.status().is_some_and(|status| NO_WATCH.contains(&status)) => {
                Ok(Begun::List(self.polls(&error)))
            }
            Err(error) => Err(error),
        }
    }

    /// The reason why the server does not have a version; `None` if it has the version. A server accepts a watch from
    /// a future version without an error. So a server whose database was restored would be silent for a long time.
    async fn lacks(&self, version: &str) -> Result<Option<String>, Error> {
        let mut url = self.url();
        url.query_pairs_mut()
            .append_pair("limit", "1")
            .append_pair("resourceVersion", version)
            .append_pair("resourceVersionMatch", "NotOlderThan");
        let reply = match self.access.client().get(&url, self.access.headers()?).await {
            Ok(reply) => reply,
            Err(error) if error.status() == Some(StatusCode::GATEWAY_TIMEOUT) => {
                return Ok(Some("the server does not have the version (504)".to_owned()));
            }
            Err(error) if error.status() == Some(StatusCode::GONE) => {
                return Ok(Some("the version has expired (410)".to_owned()));
            }
            // A server that does not know these parameters.
            Err(error)
                if [StatusCode::BAD_REQUEST, StatusCode::UNPROCESSABLE_ENTITY]
                    .iter()
                    .any(|status| error.status() == Some(*status)) =>
            {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let page = page(&reply.body, &http::shown(&url))?;
        let number = |text: &str| text.parse::<u64>().ok();
        let (has, of) = (number(&page.metadata.resource_version), number(version));
        let is_behind = has.zip(of).is_some_and(|(has, of)| has < of);
        Ok(is_behind
            .then(|| format!("the server has gone back to version {}", page.metadata.resource_version)))
    }

    /// Reads a list as a watch. Returns false if pages are needed instead.
    async fn watch_list(&mut self, output: &Output) -> Result<bool, Error> {
        let parameters = [
            ("sendInitialEvents", "true"),
            ("resourceVersionMatch", "NotOlderThan"),
            ("resourceVersion", ""),
        ];
        let mut lines = match self.watch(&parameters).await {
            Ok(lines) => lines,
            Err(error) if error.is_passing() || error.is_about_credentials() => return Err(error),
            Err(error) => {
                let refused = [StatusCode::BAD_REQUEST, StatusCode::UNPROCESSABLE_ENTITY];
                self.uses_watch_list = !error.status().is_some_and(|status| refused.contains(&status));
                return Ok(self.no_watch_list(&error));
            }
        };
        output.send(Event::Init).await?;
        // The objects that were deleted while the initial objects were sent.
        let mut deleted = BTreeMap::new();
        let mut had_object_at = Instant::now();
        loop {
            let left = INITIAL_SILENCE_MAX.saturating_sub(had_object_at.elapsed());
            let line = match lines.next(left).await? {
                _ if had_object_at.elapsed() >= INITIAL_SILENCE_MAX => {
                    self.uses_watch_list = false;
                    let seconds = INITIAL_SILENCE_MAX.as_secs();
                    return Ok(self.no_watch_list(&Error::new(format!("no initial object for {seconds} s"))));
                }
                Next::Line(line) => line,
                Next::End => {
                    self.uses_watch_list = false;
                    return Ok(
                        self.no_watch_list(&Error::new("the watch has ended before its initial objects"))
                    );
                }
                Next::Broken(error) => return Ok(self.no_watch_list(&error)),
            };
            let event = match Watched::read(&line) {
                Ok(event) => event,
                Err(error) => {
                    self.uses_watch_list = !is_list(&lines.rest(line).await);
                    return Ok(self.no_watch_list(&error));
                }
            };
            match event {
                Watched::Applied { object, .. } => {
                    deleted.remove(&events::name(&object)?);
                    output.send(Event::InitApply(object)).await?;
                    had_object_at = Instant::now();
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
                    return Ok(self
                        .no_watch_list(&Error::new("the watch has ended within its initial objects (410)")));
                }
                Watched::Failed(error) if error.is_passing() => return Err(error),
                Watched::Failed(error) => return Ok(self.no_watch_list(&error)),
            }
        }
    }

    /// Logs that a list can't be read as a watch. Always returns false.
    fn no_watch_list(&self, error: &Error) -> bool {
        let error = with_causes(error);
        info!(resource = self.settings.resource, %error, "the list can't be read as a watch (sendInitialEvents); pages are read instead");
        false
    }

    /// Sends all pages. Returns the version of the list; `None` if the remaining pages have expired.
    async fn pages(&self, output: &Output, limit: Option<u32>) -> Result<Option<String>, Error> {
        let (mut next, mut patience) = (String::new(), http::Patience::new(output));
        let mut seen = HashSet::new();
        loop {
            let mut url = self.url();
            if let Some(limit) = limit {
                url.query_pairs_mut().append_pair("limit", &limit.to_string());
            }
            if !next.is_empty() {
                url.query_pairs_mut().append_pair("continue", &next);
            }
            let (client, headers) = (self.access.client(), || self.access.headers());
            let reply = if next.is_empty() {
                client.get(&url, headers()?).await?
            } else {
                match client.page(&url, headers, &mut patience).await {
                    Err(error) if error.status() == Some(StatusCode::GONE) => return Ok(None),
                    reply => reply?,
                }
            };
            let of = http::shown(&url);
            let page = page(&reply.body, &of)?;
            let kind = page.kind.strip_suffix("List").unwrap_or_default();
            for object in page.objects(&of)? {
                output.send(Event::InitApply(with_kind(object, &page.api_version, kind)?)).await?;
            }
            match page.metadata.next.filter(|next| !next.is_empty()) {
                Some(continued) if !seen.insert(continued.clone()) => {
                    return Err(Error::new(format!(
                        "{of} names a page that was read before as the next one"
                    )));
                }
                Some(continued) => next = continued,
                None => return Ok(Some(page.metadata.resource_version)),
            }
        }
    }

    /// Begins a watch.
    async fn watch(&self, parameters: &[(&str, &str)]) -> Result<Lines, Error> {
        let seconds = WATCH_SECONDS + fastrand::u64(..=WATCH_SECONDS);
        let mut url = self.url();
        url.query_pairs_mut()
            .append_pair("watch", "true")
            .append_pair("allowWatchBookmarks", "true")
            .append_pair("timeoutSeconds", &seconds.to_string())
            .extend_pairs(parameters);
        let response = self.access.client().stream(&url, self.access.headers()?).await?;
        Ok(Lines::new(url, response, self.access.max_bytes()))
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

/// The error if a server has answered a watch with a list: it does not know the parameter `watch`.
fn ignored() -> Error {
    Error::new("the server has answered the watch with a list")
}

/// Whether a body is a list and not a watch.
fn is_list(body: &[u8]) -> bool {
    page(body, "the watch").is_ok()
}

/// Parses a page of a list. A single object, a Status or a Table is not a page.
fn page<'p>(body: &'p [u8], of: &str) -> Result<Page<'p>, Error> {
    let wrong = |error: serde_json::Error| Error::because(format!("{of} is not a list of Kubernetes"), error);
    let page: Page<'p> = serde_json::from_str(document(utf8(body, of)?, of)?.get()).map_err(wrong)?;
    if page.kind.ends_with("List") {
        return Ok(page);
    }
    let message = if page.message.is_empty() { String::new() } else { format!(": {}", page.message) };
    Err(Error::new(format!("{of} is not a list of Kubernetes, but has the kind {:?}{message}", page.kind)))
}

impl<'p> Page<'p> {
    fn objects(&self, of: &str) -> Result<Vec<&'p RawValue>, Error> {
        let (remaining, next) = (self.metadata.remaining.unwrap_or_default(), self.metadata.next.as_deref());
        if remaining > 0 && next.unwrap_or_default().is_empty() {
            return Err(Error::new(format!("{of} lacks {remaining} more objects, and names no next page")));
        }
        let items =
            self.items.ok_or_else(|| Error::new(format!("{of} is a list of Kubernetes without items")))?;
        let objects: Result<Option<Vec<_>>, _> = serde_json::from_str(items.get());
        let wrong = |error| Error::because(format!("{of} has items that are no array"), error);
        objects.map(Option::unwrap_or_default).map_err(wrong)
    }
}

/// A value that may be null. An absent value is `None`.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    Deserialize::deserialize(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_lacks_objects_names_the_next_one() {
        let objects = |metadata: &str| {
            let text = format!("{{\"kind\":\"PodList\",\"metadata\":{metadata},\"items\":[{{}}]}}");
            page(text.as_bytes(), "it").unwrap().objects("it").map(|objects| objects.len())
        };
        for whole in ["{}", "{\"continue\":\"x\",\"remainingItemCount\":7}", "{\"remainingItemCount\":0}"] {
            assert_eq!(objects(whole).unwrap(), 1, "{whole}");
        }
        for cut in ["{\"remainingItemCount\":7}", "{\"continue\":\"\",\"remainingItemCount\":1}"] {
            assert!(objects(cut).unwrap_err().to_string().contains("names no next page"), "{cut}");
        }
    }
}
