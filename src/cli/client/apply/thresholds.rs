//! The thresholds of a queue's sources: how long a source may be silent before it counts as stale.
//!
//! They are no settings of the queue, so they have no entity tag. Each is one value, and the last call counts.

use std::collections::BTreeMap;

use deltaq_types::duration::DurationText;
use deltaq_types::name::Name;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::difference::Change;
use crate::cli::client::failure::Failure;
use crate::cli::client::pages::all;
use crate::cli::client::session::Session;

/// The member of a queue in the file that has its sources.
pub(in crate::cli::client) const SOURCES: &str = "sources";

/// The thresholds of a file, by source.
pub(super) type Thresholds = BTreeMap<String, Option<DurationText>>;

/// A threshold that changes.
#[derive(Debug)]
pub(super) struct ThresholdPlan {
    source: String,
    after: Option<DurationText>,
}

/// A source in the file.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Given {
    stale_after: Option<DurationText>,
}

/// A source of the server. One that is older than the thresholds has none.
#[derive(Deserialize)]
struct Listed {
    source: String,
    #[serde(default)]
    stale_after: Option<DurationText>,
}

/// Takes the sources out of the members of a queue. The others are its settings.
pub(super) fn take(members: &mut Map<String, Value>) -> Result<Thresholds, Failure> {
    let given = members.remove(SOURCES).unwrap_or_default();
    let given: Option<BTreeMap<String, Option<Given>>> =
        serde_json::from_value(given).map_err(|error| Failure::Other(format!("{SOURCES}: {error}")))?;
    let threshold =
        |(source, given): (String, Option<Given>)| (source, given.unwrap_or_default().stale_after);
    Ok(given.unwrap_or_default().into_iter().map(threshold).collect())
}

/// Compares the thresholds of the file with those of the queue, if it exists. Sources that the file does not name are left alone.
pub(super) async fn plan(
    session: &Session,
    queue: &Name,
    exists: bool,
    wanted: Thresholds,
) -> Result<(Vec<ThresholdPlan>, Vec<Change>), Failure> {
    if wanted.is_empty() {
        return Ok((Vec::new(), Vec::new()));
    }
    let present = if exists { present(session, queue).await? } else { Thresholds::new() };
    let mut plans = Vec::new();
    let mut changes = Vec::new();
    for (source, after) in wanted {
        let before = present.get(&source).copied().flatten();
        if before != after {
            let setting = format!("{SOURCES}.{source}.stale_after");
            changes.push(Change::new(setting, json!(before), json!(after)));
            plans.push(ThresholdPlan { source, after });
        }
    }
    Ok((plans, changes))
}

async fn present(session: &Session, queue: &Name) -> Result<Thresholds, Failure> {
    let (sources, _) = all::<Listed>(session, || session.on_queue("list_sources", queue)).await?;
    Ok(sources.into_iter().map(|source| (source.source, source.stale_after)).collect())
}

impl ThresholdPlan {
    /// Sets the threshold.
    pub(super) async fn apply(&self, session: &Session, queue: &Name) -> Result<(), Failure> {
        let call = session.call("patch_source", queue.as_str(), &self.source)?;
        let call = call.json(&json!({ "stale_after": self.after })).repeatable();
        session.client.send(call).await?;
        Ok(())
    }
}
