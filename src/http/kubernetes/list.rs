//! Reads: one object, and lists in pages.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use deltaq_engine::id::Rv;
use deltaq_service::{
    self, Author, Handle, KeyFilter, ListedObject, PageLimit, WatchFrom, Watcher, author, on_behalf_of,
};
use futures_util::{StreamExt as _, stream};
use tokio::time::Instant;

use super::accept::Form;
use super::options::{ListOptions, ListVersion, version};
use super::resource::Resource;
use super::table::{RowObject, Show, Shown};
use crate::http::gate::in_flight::ReplyBytes;
use crate::http::gate::limits::STREAMED_PAGE_BYTES_MAX;
use crate::http::place::Place;
use crate::http::problem::{Code, Problem};
use crate::http::reply::{RequestCounts, json};
use crate::http::request::call::ReadCall;
use crate::http::request::context::RequestContext;
use crate::http::request::cursor::{self, List};
use crate::http::request::params::Params;
use crate::http::status::{Refused, Status};

/// Maximum number of objects that are read at a time.
const OBJECTS_AT_A_TIME: usize = 1_000;
/// How long a read waits for a version that the queue does not have yet.
const VERSION_WAIT: Duration = Duration::from_secs(3);
/// How often it looks.
const VERSION_CHECK_PERIOD: Duration = Duration::from_millis(10);

/// An object.
pub(in crate::http) async fn get(call: ReadCall) -> Result<Response, Refused> {
    let show = show_of(&call)?;
    let (place, resource) = (call.place(), &show.resource);
    let name = place.name.as_deref().unwrap_or_default();
    if let Some(text) = call.params.text("resourceVersion") {
        reached(&resource.handle, version(text)?).await?;
    }
    let key = resource.key(place.namespace.as_deref(), name)?;
    let (listed, _) = resource.handle.listed_object(resource.view(), &key).await?;
    let listed = listed.ok_or_else(|| Status::no_object(&place, name))?;
    let text = show.document(&shown(&listed), resource.handle.now());
    Ok(json((text + "\n").into()))
}

/// The list of the objects of a resource, or of one of its namespaces.
pub(in crate::http) async fn list(call: ReadCall) -> Result<Response, Refused> {
    let show = show_of(&call)?;
    let options = ListOptions::of(&call.params, show.resource.is_namespaced)?;
    let (place, context) = (call.place(), call.context.clone());
    let resource = &show.resource;
    let view = resource.view();
    let keys = resource.keys(&place, options.selectors.fields.only_name());
    let of_path = resource.keys(&place, None).prefix;
    let begun = options.next.as_deref().map(|next| Begun::read(resource, next, &of_path)).transpose()?;
    if let Some(begun) = &begun {
        resource.check_version(begun.since).await?;
    }
    if let ListVersion::NotOlderThan(version) | ListVersion::Exact(version) = options.version {
        let newest = reached(&resource.handle, version).await?;
        if matches!(options.version, ListVersion::Exact(_)) && newest != version {
            return Err(Status::expired("The resourceVersion for the provided list is too old.").into());
        }
    }
    // The reader keeps the deletions from here on.
    let from = begun.as_ref().map_or(WatchFrom::Now, |begun| WatchFrom::Exact(begun.since));
    let watcher = resource.handle.watch(view, from, KeyFilter::default()).await.map_err(expired)?;
    let mut listing = Listing {
        show,
        options,
        keys,
        of_path,
        context,
        author: author(),
        _watcher: watcher,
        since: begun.as_ref().map(|begun| begun.since),
        remaining: begun.as_ref().and_then(|begun| begun.remaining),
        after: begun.map(|begun| begun.after),
        listed: 0,
        has_items: false,
        held: None,
        is_at_end: false,
    };
    let mut text = listing.show.list_begin();
    listing.read_into(&mut text).await?;
    if listing.is_at_end {
        listing
            .context
            .count(RequestCounts { items: Some(listing.listed as u64), ..RequestCounts::default() });
        return Ok(json(text.into()));
    }
    listing.held = listing.context.reserve_reply(text.len())?;
    let parts = stream::unfold((Some(text), Some(listing)), |(text, listing)| async move {
        let mut listing = listing?;
        if let Some(text) = text {
            return Some((Ok(Bytes::from(text)), (None, Some(listing))));
        }
        listing.held = None;
        // A list that fails in the middle ends the connection, so that the client does not mistake a part for the whole.
        match listing.next().await {
            Ok(text) => Some((Ok(text), (None, Some(listing).filter(|listing| !listing.is_at_end)))),
            Err(why) => Some((Err(std::io::Error::other(why)), (None, None))),
        }
    });
    Ok(json(Body::from_stream(parts.fuse())))
}

/// A list that is being written.
struct Listing {
    show: Show,
    options: ListOptions,
    keys: KeyFilter,
    /// The beginning of the keys of the path.
    of_path: String,
    context: Arc<RequestContext>,
    author: Author,
    /// Keeps the deletions since the list began.
    _watcher: Watcher,
    /// The version of the first page, once it is known.
    since: Option<Rv>,
    /// Number of objects behind the page before; `None` if it is not known.
    remaining: Option<usize>,
    /// The last examined key.
    after: Option<String>,
    /// Number of objects so far.
    listed: usize,
    has_items: bool,
    /// The counted bytes of the last part, until the connection has taken it.
    held: Option<ReplyBytes>,
    is_at_end: bool,
}

impl Listing {
    /// The next part of the text.
    async fn next(&mut self) -> Result<Bytes, String> {
        // A slow client may read for hours, and its token may be revoked in the meantime.
        self.context.authorize_again().map_err(|problem| problem.to_string())?;
        let mut text = String::new();
        let author = self.author.clone();
        let read = on_behalf_of(author, self.read_into(&mut text)).await;
        read.map_err(|refused| refused.status(&Place::default()).document())?;
        let held = self.context.reserve_reply(text.len());
        self.held = held.map_err(|problem| problem.to_string())?;
        Ok(text.into())
    }

    /// Reads the next objects, and the end of the list behind the last one.
    async fn read_into(&mut self, text: &mut String) -> Result<(), Refused> {
        let left = self.options.limit.map_or(usize::MAX, |limit| limit.saturating_sub(self.listed));
        let selects = !self.options.selectors.are_empty();
        let entries = if selects { OBJECTS_AT_A_TIME } else { left.min(OBJECTS_AT_A_TIME) };
        let limit = PageLimit { entries, bytes: STREAMED_PAGE_BYTES_MAX };
        let resource = &self.show.resource;
        let (handle, view) = (&resource.handle, resource.view());
        let position = (self.after.take(), self.since);
        let page = handle.listed_objects(view, &self.keys, position, limit).await.map_err(expired)?;
        let since = *self.since.get_or_insert(page.resource_version);
        let now = page.moment.now;
        let mut next = page.next.map(|key| key.as_str().to_owned());
        let mut entries = page.entries.iter().peekable();
        while let Some(listed) = entries.next() {
            if !self.options.selectors.include(resource, listed) {
                continue;
            }
            if std::mem::replace(&mut self.has_items, true) {
                text.push(',');
            }
            self.listed += 1;
            self.show.push_item(text, &shown(listed), now);
            if self.options.limit.is_some_and(|limit| self.listed >= limit) && entries.peek().is_some() {
                next = Some(listed.object.key.as_str().to_owned());
                break;
            }
        }
        let is_full = self.options.limit.is_some_and(|limit| self.listed >= limit);
        self.after = next;
        if self.after.is_some() && !is_full {
            return Ok(());
        }
        self.is_at_end = true;
        // Only the first page counts: a count reads the keys of the namespace.
        let counts = self.options.next.is_none() && self.options.selectors.are_empty();
        let remaining = match (&self.after, self.remaining) {
            (Some(_), Some(before)) => Some(before.saturating_sub(self.listed).max(1)),
            (Some(after), None) if counts => {
                Some(handle.count_objects(view, &self.keys, after.clone()).await?.max(1))
            }
            _ => None,
        };
        let next =
            self.after.take().map(|after| Begun { since, remaining, after }.token(resource, &self.of_path));
        let next = match next {
            Some(token) => format!(r#""continue":"{token}","#),
            None if self.show.form == Form::Objects => r#""continue":"","#.to_owned(),
            None => String::new(),
        };
        let remaining = remaining.map(|count| format!(r#""remainingItemCount":{count},"#));
        let remaining = remaining.unwrap_or_default();
        let metadata = format!(r#"{{{next}{remaining}"resourceVersion":"{since}"}}"#);
        let kind = match self.show.form {
            Form::Objects => format!(r#","kind":"{}List""#, resource.settings.kind),
            _ => String::new(),
        };
        // The kind follows the items, as the API server writes it, and the metadata follows, because the next page is known only now.
        text.push(']');
        text.push_str(&kind);
        text.push_str(r#","metadata":"#);
        text.push_str(&metadata);
        text.push_str("}\n");
        Ok(())
    }
}

/// What a `continue` token has of the pages before.
struct Begun {
    /// The version of the first page.
    since: Rv,
    /// Number of objects behind them; `None` if it is not known.
    remaining: Option<usize>,
    /// The last key.
    after: String,
}

impl Begun {
    fn read(resource: &Resource, token: &str, of_path: &str) -> Result<Self, Refused> {
        let list = List::Kubernetes(resource.view());
        let decoded = cursor::decode(list, &resource.handle.lives(), token);
        let decoded = decoded.map_err(|problem| match problem.code() {
            Code::Expired => Status::expired(problem.to_string()),
            _ => Status::bad_request(format!("invalid continue token: {problem}")),
        })?;
        let mut parts = decoded.splitn(4, ':');
        let (since, remaining) = (parts.next(), parts.next());
        let (length, after) = (parts.next().and_then(|length| length.parse().ok()), parts.next());
        if length != Some(of_path.len()) || after.is_some_and(|after| !after.starts_with(of_path)) {
            return Err(Status::expired("the continue token belongs to another list").into());
        }
        let since = since.and_then(|since| since.parse().ok());
        match (since, remaining, after) {
            (Some(since), Some(remaining), Some(after)) => {
                Ok(Self { since: Rv::new(since), remaining: remaining.parse().ok(), after: after.to_owned() })
            }
            _ => Err(Status::bad_request("invalid continue token").into()),
        }
    }

    fn token(&self, resource: &Resource, of_path: &str) -> String {
        let Self { since, remaining, after } = self;
        let remaining = remaining.map(|count| count.to_string()).unwrap_or_default();
        let position = format!("{since}:{remaining}:{}:{after}", of_path.len());
        cursor::encode(List::Kubernetes(resource.view()), &resource.handle.lives(), *since, &position)
    }
}

/// Waits until the queue has a version. Returns its newest one.
pub(super) async fn reached(handle: &Handle, version: Rv) -> Result<Rv, Refused> {
    let ends = Instant::now() + VERSION_WAIT;
    loop {
        let newest = handle.read(|queue, _| queue.resource_version()).await?;
        if newest >= version {
            return Ok(newest);
        }
        if Instant::now() >= ends || handle.shutdown().is_draining() {
            return Err(Status::too_new(version.get(), newest.get()).into());
        }
        tokio::time::sleep(VERSION_CHECK_PERIOD).await;
    }
}

/// The refusal of a list that can't be continued.
fn expired(error: deltaq_service::Error) -> Refused {
    let problem = Problem::from(error);
    if problem.code() == Code::Expired {
        let message = "The provided continue parameter is too old to display a consistent list result. You must start a new list without the continue parameter.";
        return Status::expired(message).into();
    }
    problem.into()
}

pub(super) fn shown(listed: &ListedObject) -> Shown<'_> {
    let ListedObject { object, state } = listed;
    Shown {
        key: &object.key,
        version: object.rv.get(),
        birth: object.birth,
        object: object.object.as_str(),
        state: *state,
    }
}

/// How the reply to a read shows objects.
pub(super) fn show_of(call: &ReadCall) -> Result<Show, Refused> {
    let resource = Resource::of(&call.state, &call.name()?, &call.place())?;
    Ok(Show { resource, form: Form::of(&call.headers)?, rows: rows_of(&call.params)? })
}

/// What the rows of a table have of their objects.
pub(super) fn rows_of(params: &Params) -> Result<RowObject, Status> {
    match params.text("includeObject") {
        None | Some("Metadata") => Ok(RowObject::Metadata),
        Some("None") => Ok(RowObject::None),
        Some("Object") => Ok(RowObject::Object),
        Some(other) => Err(Status::bad_request(format!("unrecognized includeObject value: {other:?}"))),
    }
}
