//! What an operator or a reader of a source says about it: its contacts, and how long it may be silent.

use std::time::Duration;

use crate::event::{EventKind, SourceContact};
use crate::id::Source;
use crate::queue::Queue;
use crate::snapshot::{SourceHistory, StaleAfter};
use crate::sources::SourceState;
use crate::time::Time;

impl Queue {
    /// Records contacts with sources that are newer than those that the queue knows.
    pub fn reach_sources(&mut self, now: Time, contacts: impl IntoIterator<Item = (Source, Time)>) {
        let now = self.advance(now);
        let sources = &self.state().sources;
        let known = |source: &Source| sources.history_of(source).and_then(SourceHistory::contact);
        let contacts = contacts.into_iter().filter(|(source, at)| known(source) < Some(*at));
        let contacts: Vec<_> = contacts.map(|(source, at)| SourceContact { source, at }).collect();
        if !contacts.is_empty() {
            self.emit(now, EventKind::SourcesReached { contacts });
        }
    }

    /// Sets how long a source may be silent. The queue remembers the source from now on, even if it was never in contact.
    /// Returns the source; `None` if the queue can't remember more sources.
    pub fn configure_source(
        &mut self,
        now: Time,
        source: &Source,
        stale_after: Option<Duration>,
    ) -> Option<SourceState> {
        let now = self.advance(now);
        let history = self.state().sources.history_of(source);
        let before = history.and_then(|history| history.stale_after).map(|before| before.longest);
        if before != stale_after {
            let stale_after = stale_after.map(|longest| StaleAfter { longest, since: now });
            self.emit(now, EventKind::SourceConfigured { source: source.clone(), stale_after });
        }
        self.state().sources.state_of(source)
    }
}
