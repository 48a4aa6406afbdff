//! The naive history of the views of a queue: a list of all changes. Readers of the change feeds are checked against it.

use std::collections::BTreeMap;

use deltaq_engine::Queue;
use deltaq_engine::delta::DeltaKind;
use deltaq_engine::event::{Appended, Ending, Event, EventKind, Origin};
use deltaq_engine::feed::{Position, Row, RowKind};
use deltaq_engine::id::Rv;
use deltaq_engine::key::Key;
use deltaq_engine::view::{Passage, View};

/// A difference between the history and the service, in words.
pub(crate) type Difference = String;

/// One change of a view.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) rv: Rv,
    pub(crate) key: Key,
    /// The new object; `None` if the key left the view.
    pub(crate) object: Option<String>,
    pub(crate) passage: Option<Passage>,
    /// For a key that left: its last object, and whether that may be outdated.
    last: Option<(String, bool)>,
    pub(crate) at: u64,
}

/// A view as of the last event, with all changes.
#[derive(Debug, Default)]
pub(crate) struct NaiveView {
    pub(crate) changes: Vec<Change>,
    pub(crate) content: BTreeMap<Key, String>,
}

/// The histories of the views of a queue.
#[derive(Debug, Default)]
pub(crate) struct ViewHistory {
    views: [NaiveView; 2],
}

fn same<E: std::fmt::Debug + PartialEq>(name: &str, engine: &E, expected: &E) -> Result<(), Difference> {
    if engine == expected { Ok(()) } else { Err(format!("{name}: {engine:?}, not {expected:?}")) }
}

impl ViewHistory {
    /// The history of a view.
    pub(crate) fn of(&self, view: View) -> &NaiveView {
        &self.views[view as usize]
    }

    /// Notes an event, which `queue` has just applied.
    pub(crate) fn note(&mut self, event: &Event, queue: &Queue) -> Result<(), Difference> {
        let Some(key) = event.kind.key() else { return Ok(()) };
        let entry = queue.table().get(key.as_str());
        let newest = entry.and_then(|entry| entry.waiting.newest().or(entry.leased.newest()));
        let known = entry.and_then(|entry| entry.known.as_deref());
        let latest = match newest {
            Some(delta) if delta.kind == DeltaKind::Deleted => None,
            Some(delta) => Some(&delta.object),
            None => known.map(|known| &known.object),
        };
        let is_new_change = match &event.kind {
            EventKind::Appended(Appended { origin, .. }) => *origin != Origin::Resync,
            EventKind::Seeded { .. } => true,
            _ => false,
        };
        let is_new_known = matches!(
            &event.kind,
            EventKind::Seeded { .. }
                | EventKind::Progressed { .. }
                | EventKind::Settled { ending: Ending::Acked, .. }
        );
        let known = known.map(|known| &known.object);
        for (view, now, is_change) in
            [(View::Latest, latest, is_new_change), (View::Known, known, is_new_known)]
        {
            let now = now.map(|object| object.as_str().to_owned());
            let naive = &mut self.views[view as usize];
            let before = naive.content.get(key).cloned();
            let passage = match (&before, &now) {
                (None, Some(_)) => Some(Passage::Entered),
                (Some(_), None) => Some(Passage::Left),
                _ => None,
            };
            same("the passage of the event", &event.views.of(view), &passage)?;
            let differs = before != now;
            if !(differs || (is_change && now.is_some())) {
                continue;
            }
            let last = event.kind.object().map(|object| object.as_str().to_owned());
            let is_unknown = event.kind.is_final_state_unknown();
            let last = last.filter(|_| view == View::Latest).map(|last| (last, is_unknown));
            let last = last.or_else(|| before.filter(|_| view == View::Latest).map(|last| (last, false)));
            let last = last.filter(|_| now.is_none());
            match &now {
                Some(object) => naive.content.insert(key.clone(), object.clone()),
                None => naive.content.remove(key),
            };
            let at = event.at.as_micros();
            naive.changes.push(Change { rv: event.rv, key: key.clone(), object: now, passage, last, at });
        }
        Ok(())
    }

    /// The changes after this event are undone.
    pub(crate) fn roll_back(&mut self, rv: Rv) {
        for naive in &mut self.views {
            naive.changes.retain(|change| change.rv <= rv);
            naive.content.clear();
            for change in &naive.changes {
                match &change.object {
                    Some(object) => naive.content.insert(change.key.clone(), object.clone()),
                    None => naive.content.remove(&change.key),
                };
            }
        }
    }
}

impl NaiveView {
    /// The last change of a key, which has changed.
    pub(crate) fn last_change(&self, key: &Key) -> &Change {
        self.changes.iter().rev().find(|change| change.key == *key).expect("the key has changed")
    }

    /// The changes after a reader's position up to an event: of each key the last one, by number.
    pub(crate) fn rows(&self, position: Position, up_to: Rv) -> Vec<&Change> {
        let mut last = BTreeMap::new();
        let begin = self.changes.partition_point(|change| change.rv <= position.after);
        for change in self.changes[begin..].iter().take_while(|change| change.rv <= up_to) {
            last.insert(&change.key, change);
        }
        let is_listed = |change: &&Change| {
            change.object.is_some() || position.listing_since.is_none_or(|since| change.rv > since)
        };
        let mut rows: Vec<&Change> = last.into_values().filter(is_listed).collect();
        rows.sort_by_key(|change| change.rv);
        rows
    }

    /// Compares a row with the change that it is about. `may_lack_object`: the key left before its feed began.
    pub(crate) fn compare(
        &self,
        row: &Row,
        change: &Change,
        position: Position,
        may_lack_object: bool,
    ) -> Result<(), Difference> {
        same("key and version", &(&row.key, row.rv), &(&change.key, change.rv))?;
        let text = row.object.as_ref().map(|object| object.as_str().to_owned());
        if change.object.is_some() {
            let enters = |other: &Change| {
                let is_since = other.rv > position.after && other.rv <= change.rv;
                is_since && other.passage == Some(Passage::Entered) && other.key == change.key
            };
            let is_new = position.listing_since.is_some() || self.changes.iter().rev().any(enters);
            same("kind", &row.kind, &if is_new { RowKind::Added } else { RowKind::Updated })?;
            same("final_state_unknown", &row.final_state_unknown, &false)?;
            return same("object", &text, &change.object);
        }
        same("kind", &row.kind, &RowKind::Deleted)?;
        match text {
            None if may_lack_object => same("final_state_unknown", &row.final_state_unknown, &true),
            None => Err(String::from("a deleted key has no object")),
            Some(text) => {
                let is_unknown = row.final_state_unknown;
                // The object of a key that left the known objects is that of the deletion.
                change.last.as_ref().map_or(Ok(()), |last| same("last object", &(text, is_unknown), last))
            }
        }
    }
}
