//! Samples of what a queue remembers of its sources.

use std::time::Duration;

use deltaq_engine::event::{EventKind, SourceContact};
use deltaq_engine::snapshot::{LastReplace, SourceHistory, SourceRecord, StaleAfter};

use super::at;

/// The events of sources.
pub(super) fn kinds() -> Vec<EventKind> {
    vec![
        EventKind::Renumbered { source: "erp".into(), sequence: Some(7) },
        EventKind::Renumbered { source: "erp".into(), sequence: None },
        EventKind::SourcesReached { contacts: vec![SourceContact { source: "erp".into(), at: at(40) }] },
        EventKind::SourceConfigured { source: "erp".into(), stale_after: Some(stale_after()) },
        EventKind::SourceConfigured { source: "erp".into(), stale_after: None },
    ]
}

pub(super) fn histories(replace: &LastReplace) -> Vec<SourceRecord> {
    let last_replace = Some(replace.clone());
    let erp = SourceHistory {
        last_call: at(1),
        last_contact: Some(at(2)),
        last_replace,
        last_replaced: Some(at(0)),
        sequence: Some(7),
        stale_after: Some(stale_after()),
        by: Some("erp".into()),
    };
    let shop = SourceHistory { last_call: at(41), ..SourceHistory::default() };
    let record = |source: &str, history| SourceRecord { source: source.into(), history };
    vec![record("erp", erp), record("shop", shop)]
}

fn stale_after() -> StaleAfter {
    StaleAfter { longest: Duration::from_mins(15), since: at(3), is_proposed: true }
}
