//! The settings that `deltaq export --settings` prints, as `deltaq apply` reads them.

use std::collections::BTreeMap;

use deltaq_types::duration::DurationText;
use serde::Deserialize;

use crate::cli::client::apply::exact::{Exact, Members};
use crate::cli::client::apply::plan::OWNER;
use crate::cli::client::apply::thresholds::SOURCES;
use crate::cli::client::failure::Failure;
use crate::cli::client::pages::all;
use crate::cli::client::session::Session;

/// The thresholds of a queue, by source.
pub(super) type Sources = BTreeMap<String, DurationText>;

/// A source of the list of all sources.
#[derive(Deserialize)]
struct Row {
    queue: String,
    source: String,
    stale_after: Option<DurationText>,
}

/// The sources with a threshold, by queue.
pub(super) async fn thresholds(session: &Session) -> Result<BTreeMap<String, Sources>, Failure> {
    // The list of the queues names those that can't be read.
    let (rows, _) = all::<Row>(session, || session.call("list_all_sources", "", "")).await?;
    let mut found: BTreeMap<String, Sources> = BTreeMap::new();
    for Row { queue, source, stale_after } in rows {
        if let Some(stale_after) = stale_after {
            found.entry(queue).or_default().insert(source, stale_after);
        }
    }
    Ok(found)
}

/// What a file says of a queue: its settings, and its sources as one more member.
///
/// A queue without an owner says nothing of it. Otherwise a file to which an owner is added would create queues without one.
pub(super) fn declared(mut settings: Members, sources: Sources) -> Members {
    if settings.get(OWNER) == Some(&Exact::Null) {
        settings.remove(OWNER);
    }
    let source = |(source, threshold): (String, DurationText)| {
        let threshold = ("stale_after".to_owned(), Exact::Text(threshold.to_string()));
        (source, Exact::Object([threshold].into_iter().collect()))
    };
    if !sources.is_empty() {
        settings.insert(SOURCES, Exact::Object(sources.into_iter().map(source).collect()));
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_owner_is_left_out_and_the_texts_of_numbers_stay() {
        let settings = |text: &str| serde_json::from_str::<Members>(text).unwrap();
        let none = settings(r#"{"mode":"keys","owner":null,"schema":{"maximum":1e400,"minimum":4.90}}"#);
        let sources = Sources::from([("erp".to_owned(), DurationText::from_us(900_000_000))]);
        let text = Exact::Object(declared(none, sources)).to_string();
        let expected = r#"{"mode":"keys","schema":{"maximum":1e400,"minimum":4.90},"sources":{"erp":{"stale_after":"15m"}}}"#;
        assert_eq!(text, expected);
        let owned = settings(r#"{"owner":"shop","version":null}"#);
        assert_eq!(declared(owned.clone(), Sources::new()), owned);
    }
}
