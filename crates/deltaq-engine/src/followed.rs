//! The events of a followed queue, as a follower in mode `events` takes them.

use super::delta::{DeltaKind, Provenance};
use super::event::{Appended, Event, EventKind, Origin};
use super::id::Rv;
use super::key::Key;
use super::object::Object;
use super::table::Table;
use super::view::{Passage, View, ViewObject};

/// An event of a followed queue that a follower in mode `events` takes.
#[derive(Clone, Debug)]
pub struct FollowedEvent {
    /// The number of the event in the followed queue.
    pub rv: Rv,
    /// The key.
    pub key: Key,
    /// What happened to the key.
    pub change: FollowedChange,
}

/// What an event of a followed queue did to a key.
#[derive(Clone, Debug)]
pub enum FollowedChange {
    /// A delta was queued, or an object became known.
    Queued(FollowedDelta),
    /// The key left the view `latest` without a delta.
    Left,
    /// An operator dropped waiting deltas. The key may have an earlier object again.
    Dropped,
}

/// A delta of a followed queue.
#[derive(Clone, Debug)]
pub struct FollowedDelta {
    /// The type of the delta.
    pub kind: DeltaKind,
    /// The object.
    pub object: Object,
    /// Whether the object of a deletion may be older than the last state.
    pub final_state_unknown: bool,
    /// The producer, the owner and the trace.
    pub provenance: Provenance,
}

impl FollowedEvent {
    /// The part of an event that a follower takes. `None` if the event changes no object, like a lease, or repeats an
    /// object, like a Resync.
    #[must_use]
    pub fn of(event: &Event) -> Option<Self> {
        let passage = event.views.of(View::Latest);
        let change = match &event.kind {
            EventKind::Appended(Appended { origin: Origin::Resync, .. }) => return None,
            EventKind::Appended(Appended { delta, object, final_state_unknown, provenance, .. }) => {
                FollowedChange::Queued(FollowedDelta {
                    kind: *delta,
                    object: object.clone(),
                    final_state_unknown: *final_state_unknown,
                    provenance: provenance.clone(),
                })
            }
            EventKind::Refreshed { provenance, object, .. } => FollowedChange::Queued(FollowedDelta {
                kind: DeltaKind::Updated,
                object: object.clone(),
                final_state_unknown: false,
                provenance: provenance.clone(),
            }),
            EventKind::Seeded { object, owner, .. } => {
                let is_new = passage == Some(Passage::Entered);
                FollowedChange::Queued(FollowedDelta {
                    kind: if is_new { DeltaKind::Added } else { DeltaKind::Updated },
                    object: object.clone(),
                    final_state_unknown: false,
                    provenance: Provenance::new(owner.clone(), owner.clone(), None),
                })
            }
            _ if passage == Some(Passage::Left) => FollowedChange::Left,
            EventKind::Removed { .. } => FollowedChange::Dropped,
            _ => return None,
        };
        Some(Self { rv: event.rv, key: event.kind.key()?.clone(), change })
    }

    /// Completes [`FollowedChange::Dropped`] with the earlier object, if the key still has it. Otherwise a later event
    /// has the newer state. `table` is that of the followed queue.
    pub fn look_up(&mut self, table: &Table) {
        if !matches!(self.change, FollowedChange::Dropped) {
            return;
        }
        let found = table.get(self.key.as_str()).and_then(|entry| entry.object_in(View::Latest));
        if let Some(ViewObject { object, owner, .. }) = found.filter(|found| found.rv == self.rv) {
            let provenance = Provenance::new(owner.clone(), owner, None);
            let kind = DeltaKind::Updated;
            self.change = FollowedChange::Queued(FollowedDelta {
                kind,
                object,
                final_state_unknown: false,
                provenance,
            });
        }
    }
}
