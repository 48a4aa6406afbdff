//! Applying what concerns the sources of the queue.

use crate::delta::Provenance;
use crate::event::EventKind;
use crate::state::State;
use crate::time::Time;

impl State {
    /// Records that the source of a change, if it has one, has called.
    pub(super) fn note_caller(&mut self, provenance: &Provenance, at: Time) {
        if let Some(source) = provenance.source() {
            self.sources.called(source, at);
        }
    }

    /// Applies what only sources notice.
    pub(super) fn apply_to_sources(&mut self, kind: &EventKind) {
        match kind {
            EventKind::Renumbered { source, sequence } => self.sources.renumber(source, *sequence),
            EventKind::SourcesReached { contacts } => {
                for contact in contacts {
                    self.sources.reached(&contact.source, contact.at);
                }
            }
            EventKind::SourceConfigured { source, stale_after } => {
                self.sources.configure(source, *stale_after);
            }
            _ => {}
        }
    }
}
