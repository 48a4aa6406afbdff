//! Lists over all queues of all nodes, of what the queues have: sources and reflectors.

use std::sync::Arc;

use deltaq_service::{self, Handle};
use deltaq_types::{PageOfQueues, QueueSourceDocument, ReflectorDocument, UnavailableQueue};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::gather::{gather, unavailable};
use crate::config::access::Verb;
use crate::http::problem::Problem;
use crate::http::request::context::RequestContext;
use crate::http::request::cursor;
use crate::http::wire;

/// Maximum number of entries that a server examines for a page. A page may have fewer entries than its limit, because a filter
/// skips entries.
const EXAMINED_MAX: usize = 5_000;

/// The queue of an entry, and its name in the queue.
type Position = (String, String);

/// An entry of a list over all queues.
pub(in crate::http) trait Entry: Serialize + DeserializeOwned + Send {
    /// The name of the list in its cursors.
    const LIST: &'static str;
    /// The path of the list.
    const PATH: &'static str;

    /// The place of the entry in the list.
    fn position(&self) -> Position;

    /// Whether the filter includes the entry.
    fn is_wanted(&self, filter: &Filter) -> bool;

    /// Entries of a queue after a name, at most `limit`, and whether the queue has more.
    fn of_queue(
        handle: &Arc<Handle>,
        after: Option<String>,
        limit: usize,
    ) -> impl Future<Output = Result<(Vec<Self>, bool), deltaq_service::Error>> + Send;
}

/// The entries that a list has.
#[derive(Clone, Debug, Default)]
pub(in crate::http) struct Filter {
    /// Only those of this queue.
    pub(in crate::http) queue: Option<String>,
    /// Only those that are stale.
    pub(in crate::http) stale: bool,
}

/// A part of a list, up to the limit or up to the entry at which the owner's next page starts.
struct Part<T> {
    entries: Vec<T>,
    unavailable: Vec<UnavailableQueue>,
    ends_at: Option<Position>,
}

/// A page after this cursor.
pub(in crate::http) async fn page<T: Entry>(
    context: Arc<RequestContext>,
    filter: Filter,
    after: Option<String>,
    limit: u64,
) -> Result<PageOfQueues<T>, Problem> {
    let position = after.as_deref().map(|after| cursor::decode_across(T::LIST, after)).transpose()?;
    let limit_entries = usize::try_from(limit).unwrap_or(usize::MAX);
    let path = path::<T>(&filter, after.as_deref(), limit);
    let own = || own_part::<T>(&context, &filter, position, limit_entries);
    let (own, pages) = gather::<_, PageOfQueues<T>, _>(&context, &path, own).await?;
    let mut parts = vec![own];
    for page in pages {
        let ends_at = page.next.as_deref().map(|next| cursor::decode_across(T::LIST, next)).transpose()?;
        parts.push(Part { entries: page.items, unavailable: page.unavailable, ends_at });
    }
    Ok(merged(parts, limit_entries))
}

/// The path of the same page on another node.
fn path<T: Entry>(filter: &Filter, after: Option<&str>, limit: u64) -> String {
    let text = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let queue = filter.queue.as_deref().map_or(String::new(), |queue| format!("&queue={}", text(queue)));
    let stale = if filter.stale { "&stale=true" } else { "" };
    let after = after.map_or(String::new(), |after| format!("&continue={after}"));
    format!("{}?limit={limit}{queue}{stale}{after}", T::PATH)
}

/// The entries of the queues of this server.
async fn own_part<T: Entry>(
    context: &RequestContext,
    filter: &Filter,
    after: Option<Position>,
    limit: usize,
) -> Part<T> {
    let caller = context.caller();
    let (first, mut after) = after.map_or((String::new(), None), |(queue, name)| (queue, Some(name)));
    let handles = context.state.partitions.list(None, usize::MAX, |name| {
        let name = name.as_str();
        caller.is_none_or(|caller| caller.may(Verb::Read, name))
            && filter.queue.as_deref().is_none_or(|queue| queue == name)
            && name >= first.as_str()
    });
    let mut part = Part { entries: Vec::new(), unavailable: Vec::new(), ends_at: None };
    let mut examined = 0;
    for (_, handle) in &handles {
        let name = handle.name().to_string();
        // The position is that of an entry of the first queue only.
        let mut behind = after.take().filter(|_| name == first);
        loop {
            let asked = limit.min(EXAMINED_MAX.saturating_sub(examined)).max(1);
            let (entries, has_more) = match T::of_queue(handle, behind.take(), asked).await {
                Ok(found) => found,
                // The queue was deleted in the meantime, which is not an error.
                Err(deltaq_service::Error::QueueDeleted) => break,
                Err(error) => {
                    part.unavailable.push(unavailable(name.clone(), error));
                    break;
                }
            };
            examined += entries.len().max(1);
            let last = entries.last().map(T::position);
            part.entries.extend(entries.into_iter().filter(|entry| entry.is_wanted(filter)));
            if part.entries.len() > limit || examined >= EXAMINED_MAX {
                // The page ends behind the last entry that was examined; `merged` shortens it to the limit.
                part.ends_at = last.or(Some((name, String::new())));
                return part;
            }
            behind = last.filter(|_| has_more).map(|(_, name)| name);
            if behind.is_none() {
                break;
            }
        }
    }
    part
}

/// Merges all parts into one page. An entry after the end of a part is left for the next page, because that part may have
/// entries before it.
fn merged<T: Entry>(parts: Vec<Part<T>>, limit: usize) -> PageOfQueues<T> {
    let mut ends_at = parts.iter().filter_map(|part| part.ends_at.clone()).min();
    let (mut entries, mut unavailable) = (Vec::new(), Vec::new());
    for part in parts {
        entries.extend(part.entries);
        unavailable.extend(part.unavailable);
    }
    entries.sort_by_cached_key(T::position);
    entries.retain(|entry| ends_at.as_ref().is_none_or(|end| entry.position() <= *end));
    if entries.len() > limit {
        entries.truncate(limit);
        ends_at = entries.last().map(T::position);
    }
    unavailable.retain(|queue: &UnavailableQueue| ends_at.as_ref().is_none_or(|(end, _)| queue.name <= *end));
    unavailable.sort_by(|a, b| a.name.cmp(&b.name));
    let next = ends_at.map(|(queue, name)| cursor::encode_across(T::LIST, (&queue, &name)));
    PageOfQueues { items: entries, unavailable, next, resource_version: None }
}

impl Entry for QueueSourceDocument {
    const LIST: &'static str = "sources";
    const PATH: &'static str = "/v1/sources";

    fn position(&self) -> Position {
        (self.queue.clone(), self.source.source.clone())
    }

    fn is_wanted(&self, filter: &Filter) -> bool {
        self.source.is_stale || !filter.stale
    }

    async fn of_queue(
        handle: &Arc<Handle>,
        after: Option<String>,
        limit: usize,
    ) -> Result<(Vec<Self>, bool), deltaq_service::Error> {
        let page = handle.sources(after, limit).await?;
        let queue = handle.name().as_str();
        let entry = |source| Self { queue: queue.to_owned(), source: wire::source(source, page.moment) };
        Ok((page.entries.iter().map(entry).collect(), page.next.is_some()))
    }
}

impl Entry for ReflectorDocument {
    const LIST: &'static str = "reflectors";
    const PATH: &'static str = "/v1/reflectors";

    fn position(&self) -> Position {
        // No name contains a line break, and it is smaller than every character of a name.
        (self.queue.clone(), format!("{}\n{}", self.source, self.instance))
    }

    fn is_wanted(&self, _: &Filter) -> bool {
        true
    }

    async fn of_queue(
        handle: &Arc<Handle>,
        after: Option<String>,
        limit: usize,
    ) -> Result<(Vec<Self>, bool), deltaq_service::Error> {
        let after = after.map(|after| match after.split_once('\n') {
            Some((source, instance)) => (source.to_owned(), instance.to_owned()),
            None => (after, String::new()),
        });
        let (mut found, moment) = handle.reflectors(after, limit.saturating_add(1)).await?;
        let has_more = found.len() > limit;
        found.truncate(limit);
        let queue = handle.name().as_str();
        let entry = |status| wire::reflector(queue, status, moment);
        Ok((found.into_iter().map(entry).collect(), has_more))
    }
}
