//! Rows of a watch, as lines and as server-sent events.

use std::time::Duration;

use deltaq_engine::feed::{Row, RowKind};
use deltaq_engine::id::Rv;
use deltaq_engine::object::Object;
use deltaq_types::{RowType, WatchRow, duration::whole_ms};
use serde::Serialize;

use super::raw;
use crate::http::problem::Problem;

/// How long a browser waits before it connects again.
pub const RETRY: Duration = Duration::from_secs(1);
/// The same after a problem that does not say how long to wait.
const RETRY_AFTER_FAILURE: Duration = Duration::from_secs(10);

const EMPTY: WatchRow = WatchRow {
    kind: RowType::Bookmark,
    key: None,
    resource_version: None,
    object: None,
    source: None,
    final_state_unknown: None,
    initial_events_end: None,
    problem: None,
};

/// A change of a key.
#[must_use]
pub fn watch_row(row: &Row) -> WatchRow {
    let kind = match row.kind {
        RowKind::Added => RowType::Added,
        RowKind::Updated => RowType::Updated,
        RowKind::Deleted => RowType::Deleted,
    };
    WatchRow {
        kind,
        key: Some(row.key.as_str().to_owned()),
        resource_version: Some(row.rv.get()),
        object: row.object.as_ref().map(raw),
        source: row.source.as_deref().map(str::to_owned),
        final_state_unknown: Some(row.final_state_unknown),
        ..EMPTY
    }
}

/// Maximum size of the line or the event of a row, in bytes. A text may have an escape for each of its bytes.
#[must_use]
pub fn row_bytes_max(row: &Row) -> usize {
    /// The names of the members, the id of the event and the numbers.
    const REST: usize = 512;
    const ESCAPE: usize = 6;
    let texts = row.key.as_str().len() + row.source.as_deref().map_or(0, str::len);
    REST + ESCAPE * texts + row.object.as_ref().map_or(0, Object::bytes)
}

/// A bookmark: the watch has sent everything up to `rv`.
#[must_use]
pub fn watch_bookmark(rv: Rv, ends_list: bool) -> WatchRow {
    WatchRow { resource_version: Some(rv.get()), initial_events_end: Some(ends_list), ..EMPTY }
}

/// The problem that ends a watch.
#[must_use]
pub fn watch_error(problem: &Problem, server_url: &str, request_id: &str) -> WatchRow {
    let problem = serde_json::from_str(&problem.document(server_url, request_id)).ok();
    WatchRow { kind: RowType::Error, problem, ..EMPTY }
}

/// The position of an `EventSource` can't be continued: the watch continues after `rv`, or with all keys if `rv` is 0.
#[must_use]
pub fn watch_expired(problem: &Problem, server_url: &str, request_id: &str, rv: Rv) -> WatchRow {
    let row = watch_error(problem, server_url, request_id);
    WatchRow { kind: RowType::Expired, resource_version: Some(rv.get()), ..row }
}

/// Writes a row as a server-sent event. An empty id makes a browser forget the id that it has.
///
/// # Errors
/// The row can't be encoded.
pub fn push_event(text: &mut Vec<u8>, id: Option<&str>, row: &WatchRow) -> serde_json::Result<()> {
    let id = id.map(|id| if id.is_empty() { "id:\n".to_owned() } else { format!("id: {id}\n") });
    let id = id.unwrap_or_default();
    text.extend_from_slice(format!("{id}event: {}\ndata: ", row.kind.as_str()).as_bytes());
    push_line(text, row)?;
    text.push(b'\n');
    Ok(())
}

/// The line by which a browser knows how long to wait before it connects again.
#[must_use]
pub fn retry_line(wait: Duration) -> String {
    format!("retry: {}\n\n", whole_ms(wait))
}

/// The stream for an `EventSource` that is refused for now: how long to wait before it connects again, and the
/// problem. The waits differ, so that clients that are refused together return at different times.
#[must_use]
pub fn refused_events(problem: &Problem, server_url: &str, request_id: &str) -> Vec<u8> {
    let wait = problem.wait().unwrap_or(RETRY_AFTER_FAILURE).max(RETRY);
    let mut text = retry_line(wait.mul_f64(1.0 + fastrand::f64())).into_bytes();
    if let Err(error) = push_event(&mut text, None, &watch_error(problem, server_url, request_id)) {
        tracing::error!(%error, "a row could not be encoded");
    }
    text
}

/// Writes a document as a line.
///
/// # Errors
/// The document can't be encoded.
pub fn push_line(text: &mut Vec<u8>, document: &impl Serialize) -> serde_json::Result<()> {
    let start = text.len();
    serde_json::to_writer(&mut *text, document)?;
    // An object may contain line breaks, because its text is kept as it was sent. They occur only between tokens,
    // where a space has the same meaning, because JSON escapes line breaks in strings.
    for byte in text.iter_mut().skip(start).filter(|byte| matches!(**byte, b'\n' | b'\r')) {
        *byte = b' ';
    }
    text.push(b'\n');
    Ok(())
}
