//! The list of the queues of all nodes.
//!
//! Each partition has one owner, and each owner lists its own queues. The node that the client has called merges the
//! pages. If a partition is missing, the list is refused, because a client must not mistake a part for the whole.

use std::borrow::Cow;
use std::sync::Arc;

use deltaq_engine::config::Config;
use deltaq_service::{self, Name};
use deltaq_types::{QueueDocument, QueuePage, UnavailableQueue};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::gather::{gather, unavailable};
use crate::config::access::Verb;
use crate::http::gate::limits::PAGE_BYTES_MAX;
use crate::http::problem::{Code, Problem};
use crate::http::request::context::RequestContext;
use crate::http::request::cursor;
use crate::http::wire;

/// The list of the queues whose names begin with a prefix and that the caller may read.
#[derive(Clone, Debug)]
pub(in crate::http) struct QueueList {
    context: Arc<RequestContext>,
    prefix: String,
}

/// A part of the list, up to the limit or up to the name at which the owner's next page starts.
struct Part {
    /// The queues, by name.
    rows: Vec<(String, Result<QueueDocument, UnavailableQueue>)>,
    /// The last name of this part, if the list of its owner has more.
    ends_at: Option<String>,
}

/// The page, if all its queues can be read.
pub(in crate::http) fn complete(mut page: QueuePage) -> Result<QueuePage, Problem> {
    match page.unavailable.pop() {
        Some(UnavailableQueue { name, code, detail, hint }) => {
            let problem = Problem::new(Code::named(&code).unwrap_or(Code::Internal), detail);
            Err(problem.hint_some(hint.map(Cow::from)).with("queue", name))
        }
        None => Ok(page),
    }
}

impl QueueList {
    pub(in crate::http) fn new(context: &Arc<RequestContext>, prefix: &str) -> Self {
        Self { context: context.clone(), prefix: prefix.to_owned() }
    }

    /// A page after this cursor.
    pub(in crate::http) async fn page(
        &self,
        after: Option<String>,
        limit: u64,
    ) -> Result<QueuePage, Problem> {
        let name = after.as_deref().map(position).transpose()?;
        let limit_rows = usize::try_from(limit).unwrap_or(usize::MAX);
        let path = self.path(after.as_deref(), limit);
        let (own, pages) = gather(&self.context, &path, || self.own(name.as_ref(), limit_rows)).await?;
        let mut parts = vec![own];
        for page in pages {
            parts.push(Part::of(page)?);
        }
        Ok(merged(parts, limit_rows))
    }

    /// The queues of this server.
    async fn own(&self, after: Option<&Name>, limit: usize) -> Part {
        let partitions = &self.context.state.partitions;
        let caller = self.context.caller();
        let wanted = |name: &Name| {
            let may_see = caller.is_none_or(|caller| caller.may(Verb::Read, name.as_str()));
            may_see && name.as_str().starts_with(&self.prefix)
        };
        // One more than the limit shows whether another page follows.
        let handles = partitions.list(after, limit.saturating_add(1), wanted);
        let mut part = Part { rows: Vec::with_capacity(handles.len()), ends_at: None };
        let (mut bytes, mut last) = (0, None);
        for (index, (registry, handle)) in handles.iter().enumerate() {
            if index == limit || bytes >= PAGE_BYTES_MAX {
                part.ends_at = last;
                break;
            }
            let name = handle.name().to_string();
            last = Some(name.clone());
            let row = match registry.document(handle).await {
                Ok(document) => {
                    bytes += schema_bytes(&document.config);
                    Ok(wire::queue(&self.context.shown_document(document)))
                }
                // The queue was deleted in the meantime, which is not an error.
                Err(deltaq_service::Error::QueueDeleted) => continue,
                Err(error) => Err(unavailable(name.clone(), error)),
            };
            part.rows.push((name, row));
        }
        part
    }

    /// The path of the same page on another node.
    fn path(&self, after: Option<&str>, limit: u64) -> String {
        let prefix = utf8_percent_encode(&self.prefix, NON_ALPHANUMERIC);
        let after = after.map_or(String::new(), |after| format!("&continue={after}"));
        format!("/v1/queues?limit={limit}&prefix={prefix}{after}")
    }
}

impl Part {
    /// The part of another node.
    fn of(page: QueuePage) -> Result<Self, Problem> {
        let ends_at = page.next.as_deref().map(position).transpose()?.map(|name| name.to_string());
        let items = page.items.into_iter().map(|queue| (queue.name.clone(), Ok(queue)));
        let unavailable = page.unavailable.into_iter().map(|queue| (queue.name.clone(), Err(queue)));
        Ok(Self { rows: items.chain(unavailable).collect(), ends_at })
    }
}

/// The name at which a page ended. Names outlive queues, so a cursor in the list of queues never expires.
fn position(cursor: &str) -> Result<Name, Problem> {
    let name = cursor::decode_queues(cursor)?;
    Name::new(&name).map_err(|_| cursor::of_another_list())
}

/// Merges all parts into one page. A name after the end of a part is left for the next page, because that part may
/// have names before it.
fn merged(parts: Vec<Part>, limit: usize) -> QueuePage {
    let mut ends_at = parts.iter().filter_map(|part| part.ends_at.clone()).min();
    let mut rows: Vec<_> = parts.into_iter().flat_map(|part| part.rows).collect();
    rows.sort_by(|(a, _), (b, _)| a.cmp(b));
    rows.retain(|(name, _)| ends_at.as_ref().is_none_or(|end| name <= end));
    if rows.len() > limit {
        rows.truncate(limit);
        ends_at = rows.last().map(|(name, _)| name.clone());
    }
    let (mut items, mut unavailable) = (Vec::with_capacity(rows.len()), Vec::new());
    for (_, row) in rows {
        match row {
            Ok(queue) => items.push(queue),
            Err(queue) => unavailable.push(queue),
        }
    }
    let next = ends_at.map(|name| cursor::encode_queues(&name));
    QueuePage { items, unavailable, next, resource_version: None }
}

/// The size of the schema in bytes. The schema is the only part of a queue's document that may be large.
fn schema_bytes(config: &Config) -> usize {
    let schema = config.admission.as_ref().and_then(|admission| admission.schema_text());
    schema.map_or(0, str::len)
}
