//! The contacts with sources since the last event that has them.
//!
//! A source may be in contact many times a second, so a contact is no event. The queue's task makes the contacts of about a
//! minute durable with one event. After a crash or a takeover, the last contacts are therefore up to [`HELD`] older than they
//! were, and never newer.

use std::collections::BTreeMap;
use std::time::Duration;

use deltaq_engine::command::Call;
use deltaq_engine::id::{Sequence, Source};
use deltaq_engine::limits::SOURCES_MAX;
use deltaq_engine::snapshot::SourceHistory;
use deltaq_engine::time::Time;

use super::{Handle, Locked};

/// How long contacts are held in memory before an event makes them durable.
const HELD: Duration = Duration::from_mins(1);

/// The contacts that are not durable yet.
#[derive(Debug, Default)]
pub(crate) struct Contacts {
    /// Invariant: at most [`SOURCES_MAX`] sources.
    newest: BTreeMap<Source, Time>,
    /// When the task makes the contacts durable; `None` if there are none.
    pub(crate) due: Option<Time>,
}

impl Contacts {
    /// Notes a contact. Returns whether the task must be woken, because it does not know that contacts wait, or they are due.
    fn note(&mut self, source: &Source, now: Time) -> bool {
        if let Some(at) = self.newest.get_mut(source) {
            *at = now;
        } else if self.newest.len() < SOURCES_MAX {
            self.newest.insert(source.clone(), now);
        }
        let is_first = self.due.is_none();
        let due = *self.due.get_or_insert(now.plus(HELD));
        due <= now || is_first
    }

    /// The contact with a source that is not durable yet.
    pub(crate) fn of(&self, source: &Source) -> Option<Time> {
        self.newest.get(source).copied()
    }
}

impl Locked {
    /// The last contact with a source.
    pub(crate) fn contact(&self, source: &Source) -> Option<Time> {
        let durable = self.queue.source_history(source).and_then(SourceHistory::contact);
        durable.max(self.contacts.of(source))
    }

    /// Makes the contacts durable if they are due.
    pub(crate) fn write_contacts(&mut self, now: Time) {
        if self.contacts.due.is_some_and(|due| due <= now) {
            let contacts = std::mem::take(&mut self.contacts).newest;
            self.queue.reach_sources(now, contacts);
        }
    }
}

impl Handle {
    /// Notes that a source is in contact. The first contact of a source that the queue does not know is an event, and of one that
    /// it does not remember, because it remembers too many others, the first contact in about a minute.
    pub(crate) fn note_contact(&self, state: &mut Locked, source: &Source, now: Time) {
        let contact = state.queue.source_history(source).and_then(SourceHistory::contact);
        if contact >= Some(now) {
            return;
        }
        if contact.is_none() && state.contacts.of(source).is_none() {
            state.queue.reach_sources(now, [(source.clone(), now)]);
        }
        if state.contacts.note(source, now) {
            self.leftovers.wake();
        }
    }

    /// Notes that the sources of calls that were applied are in contact, also if the calls have queued nothing.
    pub(crate) fn note_contacts(
        &self,
        state: &mut Locked,
        calls: &[Call],
        sequence: Option<&Sequence>,
        now: Time,
    ) {
        let mut last = None;
        let sources = calls.iter().filter_map(|call| call.source.as_ref());
        for source in sources.chain(sequence.map(|sequence| &sequence.source)) {
            if last != Some(source) {
                self.note_contact(state, source, now);
                last = Some(source);
            }
        }
    }
}
