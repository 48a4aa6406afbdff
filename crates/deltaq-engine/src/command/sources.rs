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

    /// Sets how long a source may be silent. A threshold that is only proposed does not replace one that was set otherwise. The queue
    /// remembers the source from now on, even if it was never in contact. Returns the source; `None` if the queue can't remember more
    /// sources.
    pub fn configure_source(
        &mut self,
        now: Time,
        source: &Source,
        stale_after: Option<Duration>,
        is_proposed: bool,
    ) -> Option<SourceState> {
        let now = self.advance(now);
        let before = self.state().sources.history_of(source).and_then(|history| history.stale_after);
        let is_kept = is_proposed && before.is_some_and(|before| !before.is_proposed);
        let wanted = stale_after.map(|longest| (longest, is_proposed));
        if !is_kept && before.map(|before| (before.longest, before.is_proposed)) != wanted {
            let stale_after = stale_after.map(|longest| StaleAfter { longest, since: now, is_proposed });
            self.emit(now, EventKind::SourceConfigured { source: source.clone(), stale_after });
        }
        self.state().sources.state_of(source)
    }

    /// Sets how long several sources may be silent. Returns false, and changes nothing, if the queue can't remember all of them.
    pub fn configure_sources(&mut self, now: Time, thresholds: &[(Source, Option<Duration>)]) -> bool {
        let sources = &self.state().sources;
        let set = thresholds
            .iter()
            .filter(|(source, stale_after)| stale_after.is_some() || sources.history_of(source).is_some());
        let of = |longest| StaleAfter { longest, since: now, is_proposed: false };
        let set: Vec<_> = set.map(|(source, stale_after)| (source.clone(), stale_after.map(of))).collect();
        if !sources.can_remember(&set, self.caller()) {
            return false;
        }
        for (source, stale_after) in thresholds {
            let _remembered = self.configure_source(now, source, *stale_after, false);
        }
        true
    }
}
