//! The last calls of operators on the queues that the caller may read.

use deltaq_types::{ActivityEntry, ActivityPage, Timestamp};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::audit::Entry;
use crate::config::access::Verb;
use crate::http::cluster::details::all_others;
use crate::http::gate::limits::{PAGE_DEFAULT, PAGE_MAX};
use crate::http::openapi::params::ActivityQuery;
use crate::http::openapi::responses::{Always, Unavailable};
use crate::http::problem::Problem;
use crate::http::reply::Json;
use crate::http::request::call::ReadCall;
use crate::http::request::context::RequestContext;
use crate::http::request::cursor;

/// The name of the list in its cursors.
const LIST: &str = "activity";

/// The time and the request of an entry.
type Position = (Timestamp, String);

/// The entries that a list has.
struct Wanted {
    queue: Option<String>,
    by: Option<String>,
    operation: Option<String>,
    /// Only entries that are older than this one.
    before: Option<Position>,
}

/// List the last calls that needed the grant admin or set a threshold of a source, newest first: who paused, purged, redrove or configured what.
#[utoipa::path(
    get, path = "/v1/activity", tag = "reading", operation_id = "list_activity",
    params(ActivityQuery),
    responses(
        (status = 200, description = "A page.", body = ActivityPage),
        Always, Unavailable,
    )
)]
pub(in crate::http) async fn activity(
    ReadCall { params, context, .. }: ReadCall,
) -> Result<Json<ActivityPage>, Problem> {
    let limit = params.count("limit", 1..=PAGE_MAX)?.unwrap_or(PAGE_DEFAULT);
    let rows = usize::try_from(limit).unwrap_or(usize::MAX);
    let after = params.text("continue").map(str::to_owned);
    let before = after.as_deref().map(position_of).transpose()?;
    let wanted = Wanted {
        queue: params.queue()?.map(str::to_owned),
        by: params.name("by")?.map(str::to_owned),
        operation: params.name("operation")?.map(str::to_owned),
        before,
    };
    let path = wanted.path(limit, after.as_deref());
    let (others, missing_nodes) = all_others::<ActivityPage>(&context, &path).await;
    let own = own_page(&context, &wanted, rows);
    let page = others.into_iter().fold(own, |page, other| merged(page, other, rows));
    Ok(Json(ActivityPage { missing_nodes, ..page }))
}

/// The entries of this node.
fn own_page(context: &RequestContext, wanted: &Wanted, rows: usize) -> ActivityPage {
    let caller = context.caller();
    let may_see = |queue: Option<&str>| {
        caller.is_none_or(|caller| {
            queue.map_or_else(|| caller.may_everywhere(Verb::Read), |queue| caller.may(Verb::Read, queue))
        })
    };
    let is_wanted = |entry: &Entry| may_see(entry.queue.as_deref()) && wanted.includes(entry);
    let entries = context.state.audit.activity().newest(rows.saturating_add(1), is_wanted);
    shortened(entries.into_iter().map(document).collect(), false, rows)
}

/// The entries of two pages.
fn merged(page: ActivityPage, other: ActivityPage, rows: usize) -> ActivityPage {
    let has_more = page.next.is_some() || other.next.is_some();
    let mut items: Vec<ActivityEntry> = page.items.into_iter().chain(other.items).collect();
    items.sort_by(|a, b| (b.at, &b.request_id).cmp(&(a.at, &a.request_id)));
    shortened(items, has_more, rows)
}

fn shortened(mut items: Vec<ActivityEntry>, has_more: bool, rows: usize) -> ActivityPage {
    let has_more = has_more || items.len() > rows;
    items.truncate(rows);
    let last = items.last().filter(|_| has_more);
    let next =
        last.map(|last| cursor::encode_across(LIST, (&last.at.as_micros().to_string(), &last.request_id)));
    ActivityPage { items, next, ..ActivityPage::default() }
}

fn document(entry: Entry) -> ActivityEntry {
    let Entry { at, request_id, by, operation, queue, keys, outcome, status } = entry;
    ActivityEntry {
        at,
        by: by.as_deref().map(str::to_owned),
        operation: operation.to_string(),
        queue: queue.as_deref().map(str::to_owned),
        keys,
        outcome: outcome.to_string(),
        status,
        request_id: request_id.to_string(),
    }
}

fn position_of(cursor: &str) -> Result<Position, Problem> {
    let (at, request) = cursor::decode_across(LIST, cursor)?;
    let at = at.parse().map_err(|_| cursor::of_another_list())?;
    Ok((Timestamp::from_micros(at), request))
}

impl Wanted {
    fn includes(&self, entry: &Entry) -> bool {
        let is = |wanted: &Option<String>, text: Option<&str>| wanted.is_none() || wanted.as_deref() == text;
        is(&self.queue, entry.queue.as_deref())
            && is(&self.by, entry.by.as_deref())
            && is(&self.operation, Some(&entry.operation))
            && self
                .before
                .as_ref()
                .is_none_or(|(at, request)| (entry.at, &*entry.request_id) < (*at, request))
    }

    /// The path of the same page on another node.
    fn path(&self, limit: u64, after: Option<&str>) -> String {
        let given = [
            ("queue", self.queue.as_deref()),
            ("by", self.by.as_deref()),
            ("operation", self.operation.as_deref()),
            ("continue", after),
        ];
        let given = given.into_iter().filter_map(|(name, text)| {
            Some(format!("&{name}={}", utf8_percent_encode(text?, NON_ALPHANUMERIC)))
        });
        format!("/v1/activity?limit={limit}{}", given.collect::<String>())
    }
}
