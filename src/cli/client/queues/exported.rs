//! The thresholds of sources in the settings that `deltaq export --settings` prints.

use std::collections::BTreeMap;

use deltaq_types::duration::DurationText;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::cli::client::apply::thresholds::SOURCES;
use crate::cli::client::failure::Failure;
use crate::cli::client::pages::all;
use crate::cli::client::session::Session;

/// The sources of a queue that have a threshold.
pub(super) type Sources = BTreeMap<String, Threshold>;

/// A source of the list of all sources.
#[derive(Deserialize)]
struct Row {
    queue: String,
    source: String,
    stale_after: Option<DurationText>,
}

/// A source in a file of `deltaq apply`.
#[derive(Serialize)]
pub(super) struct Threshold {
    stale_after: DurationText,
}

/// The sources with a threshold, by queue.
pub(super) async fn thresholds(session: &Session) -> Result<BTreeMap<String, Sources>, Failure> {
    // The list of the queues names those that can't be read.
    let (rows, _) = all::<Row>(session, || session.call("list_all_sources", "", "")).await?;
    let mut found: BTreeMap<String, Sources> = BTreeMap::new();
    for Row { queue, source, stale_after } in rows {
        if let Some(stale_after) = stale_after {
            found.entry(queue).or_default().insert(source, Threshold { stale_after });
        }
    }
    Ok(found)
}

/// Settings with their sources as one more member. The text of the settings stays as it is.
pub(super) fn with_sources(settings: &RawValue, sources: &Sources) -> Result<Box<RawValue>, Failure> {
    let unprintable = |error: serde_json::Error| Failure::Other(format!("can't print the settings: {error}"));
    let sources = serde_json::to_string(sources).map_err(unprintable)?;
    let text = settings.get().trim_end();
    let members = text.strip_suffix('}').unwrap_or(text);
    RawValue::from_string(format!("{members},\"{SOURCES}\":{sources}}}")).map_err(unprintable)
}
