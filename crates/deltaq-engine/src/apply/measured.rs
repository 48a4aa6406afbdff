//! The memory that an event may change.

use crate::event::EventKind;
use crate::table::Entry;

/// The part of a key's memory that an event may change.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Measured {
    Nothing,
    /// The waiting deltas.
    Waiting,
    /// The names of a lease.
    Names,
    /// All of its [content](Entry::content_bytes).
    Content,
}

impl Measured {
    pub(super) const fn of(kind: &EventKind) -> Self {
        match kind {
            EventKind::Appended(_) => Self::Waiting,
            EventKind::Leased(leased) if leased.worker.is_some() || leased.pop_id.is_some() => Self::Names,
            EventKind::Dropped { .. }
            | EventKind::Refreshed { .. }
            | EventKind::TakenOver { .. }
            | EventKind::Progressed { .. }
            | EventKind::Settled { .. }
            | EventKind::Forgotten { .. }
            | EventKind::Removed { .. }
            | EventKind::Seeded { .. } => Self::Content,
            _ => Self::Nothing,
        }
    }

    pub(super) fn bytes(self, entry: &Entry) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Waiting => entry.waiting.held_bytes(),
            Self::Names => entry.schedule_state.text_bytes(),
            Self::Content => entry.content_bytes(),
        }
    }
}
