//! The thresholds of a queue's sources: how long a source may be silent before it counts as stale.
//!
//! They are no settings of the queue, so they have no entity tag. One call sets all thresholds of a queue, if the queue has the settings of
//! the file. So the thresholds of two files that are applied at once are not mixed, and not with the settings of the other file.

use std::collections::BTreeMap;
use std::fmt::Display;

use deltaq_types::SourceThreshold;
use deltaq_types::duration::DurationText;
use deltaq_types::name::Name;
use serde::Deserialize;
use serde_json::json;

use super::difference::Change;
use super::exact::{Exact, Members};
use crate::cli::client::failure::Failure;
use crate::cli::client::pages::all;
use crate::cli::client::session::Session;
use crate::http::check_name;

/// The member of a queue in the file that has its sources.
pub(in crate::cli::client) const SOURCES: &str = "sources";

/// Thresholds by source.
pub(super) type Thresholds = BTreeMap<String, Option<DurationText>>;

/// The thresholds of a queue in the file. All of them are set when anything of the queue changes: one that has the value of the file in the plan
/// may have been set by another caller by then.
#[derive(Debug, Default)]
pub(super) struct ThresholdPlan(Thresholds);

/// A source of the server. One that is older than the thresholds has none.
#[derive(Deserialize)]
struct Listed {
    source: String,
    #[serde(default)]
    stale_after: Option<DurationText>,
}

/// Takes the sources out of the members of a queue. The others are its settings.
pub(super) fn take(members: &mut Members) -> Result<Thresholds, Failure> {
    let given = members.remove(SOURCES).unwrap_or_default();
    let wrong = |error: serde_json::Error| Failure::Other(format!("{SOURCES}: {error}"));
    let given: serde_json::Value = serde_json::from_str(&given.to_string()).map_err(wrong)?;
    // The errors of a value have no place in a text that the user has not written.
    let given: Option<BTreeMap<String, serde_json::Value>> = serde_json::from_value(given).map_err(wrong)?;
    given.unwrap_or_default().into_iter().map(threshold).collect()
}

/// The threshold of a source in the file, if the server takes it.
fn threshold(
    (source, given): (String, serde_json::Value),
) -> Result<(String, Option<DurationText>), Failure> {
    let at = |why: &dyn Display| Failure::Other(format!("{SOURCES}.{source}: {why}"));
    check_name(&source).map_err(|wrong| at(&wrong.why))?;
    let is_empty = given.is_null() || given.as_object().is_some_and(serde_json::Map::is_empty);
    if is_empty {
        return Ok((source, None));
    }
    let given: SourceThreshold = serde_json::from_value(given).map_err(|error| at(&error))?;
    Ok((source, given.stale_after))
}

/// Compares the thresholds of the file with those of the queue, if it exists. Sources that the file does not name are left alone.
pub(super) async fn plan(
    session: &Session,
    queue: &Name,
    exists: bool,
    wanted: Thresholds,
) -> Result<(ThresholdPlan, Vec<Change>), Failure> {
    if wanted.is_empty() {
        return Ok((ThresholdPlan::default(), Vec::new()));
    }
    let seen = if exists { present(session, queue).await? } else { Thresholds::new() };
    let threshold = |source: &str| seen.get(source).copied().flatten();
    let differing = wanted.iter().filter(|(source, wanted)| threshold(source) != **wanted);
    let change = |(source, _): (&String, _)| {
        Change::new(setting(source), value(&seen, source), value(&wanted, source))
    };
    let changes = differing.map(change).collect();
    Ok((ThresholdPlan(wanted), changes))
}

/// The name of a threshold in the plan.
fn setting(source: &str) -> String {
    format!("{SOURCES}.{source}.stale_after")
}

/// The threshold of a source as the plan shows it.
fn value(thresholds: &Thresholds, source: &str) -> Exact {
    let threshold = thresholds.get(source).copied().flatten();
    threshold.map_or(Exact::Null, |threshold| Exact::Text(threshold.to_string()))
}

async fn present(session: &Session, queue: &Name) -> Result<Thresholds, Failure> {
    let (sources, _) = all::<Listed>(session, || session.on_queue("list_sources", queue)).await?;
    Ok(sources.into_iter().map(|source| (source.source, source.stale_after)).collect())
}

impl ThresholdPlan {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Sets the thresholds if the queue has the settings of this entity tag.
    ///
    /// # Errors
    /// The queue has other settings by now.
    pub(super) async fn apply(&self, session: &Session, queue: &Name, etag: &str) -> Result<(), Failure> {
        let sources = self.0.iter();
        let sources: BTreeMap<_, _> =
            sources.map(|(source, threshold)| (source, json!({ "stale_after": threshold }))).collect();
        let call = session.on_queue("patch_sources", queue)?.json(&json!({ "sources": sources }));
        match session.client.send(call.condition("if-match", etag).repeatable()).await {
            Err(error) if error.code() == Some("precondition-failed") => Err(self.lost()),
            done => Ok(done.map(drop)?),
        }
    }

    /// Another caller has changed the settings.
    pub(super) fn lost(&self) -> Failure {
        let threshold = |source: &String| format!("{} {}", setting(source), value(&self.0, source));
        let sources = self.0.keys().map(threshold).collect::<Vec<_>>().join(", ");
        Failure::Other(format!(
            "precondition-failed: another caller has changed the settings of the queue; not applied: {sources}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::super::exact::members;
    use super::*;

    fn thresholds(text: &serde_json::Value) -> Thresholds {
        take(&mut members(&json!({ "sources": text }))).unwrap()
    }

    #[test]
    fn sources_are_taken_out_of_the_settings() {
        let mut given =
            members(&json!({"lease": "1m", "sources": {"erp": {"stale_after": "15m"}, "b": null}}));
        let taken = take(&mut given).unwrap();
        assert_eq!(given, members(&json!({"lease": "1m"})));
        assert_eq!(
            (value(&taken, "erp").to_string(), value(&taken, "b")),
            ("\"15m\"".to_owned(), Exact::Null)
        );
        let wrong = |sources: serde_json::Value| {
            let wrong = take(&mut members(&json!({ "sources": sources }))).unwrap_err().to_string();
            assert!(!wrong.contains("line"), "{wrong}");
            wrong
        };
        assert!(wrong(json!({"erp": {"stale_for": "1m"}})).starts_with("sources.erp: unknown field"));
        assert!(wrong(json!({"erp": {"stale_after": "0s"}})).contains("from 1s to 366d"));
        assert!(wrong(json!({"erp": "5m"})).contains("expected an object with stale_after"));
        assert!(wrong(json!({"a\u{7}": {"stale_after": "1m"}})).contains("without control characters"));
    }

    #[test]
    fn what_was_not_applied_is_named() {
        let text = ThresholdPlan(thresholds(&json!({"b": {"stale_after": "1m"}}))).lost().to_string();
        assert!(text.ends_with("not applied: sources.b.stale_after \"1m\""), "{text}");
    }
}
