//! Rows of a watch, and lines of a stream.

use deltaq_engine::feed::{Row, RowKind};
use deltaq_engine::id::Rv;
use deltaq_types::{RowType, WatchRow};
use serde::Serialize;

use super::raw;
use crate::http::problem::Problem;

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
