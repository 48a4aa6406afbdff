//! Items and known objects.

use deltaq_types::{ItemDocument, ItemLease, ItemState, KnownDocument};

use super::{delta, millis, raw, timestamp};
use crate::engine::schedule::{Lease, Place};
use crate::engine::table::Entry;
use crate::service::{Handle, Moment};

/// The known object of a key, if there is one.
#[must_use]
pub fn known(entry: &Entry) -> Option<KnownDocument> {
    let known = entry.known.as_ref()?;
    Some(KnownDocument {
        key: entry.key.as_str().to_owned(),
        source: known.owner.as_deref().map(str::to_owned),
        resource_version: known.rv,
        object: raw(&known.object),
    })
}

/// A key as of `moment`.
#[must_use]
pub fn item(handle: &Handle, entry: &Entry, moment: Moment) -> ItemDocument {
    let schedule_state = &entry.schedule_state;
    let state = match schedule_state.place {
        Place::Leased(_) => Some(ItemState::Leased),
        Place::Parked => Some(ItemState::Parked),
        Place::Ready(_) => Some(ItemState::Ready),
        Place::Idle => schedule_state.delay().map(|_| ItemState::Delayed),
    };
    ItemDocument {
        key: entry.key.as_str().to_owned(),
        state,
        deltas: entry.waiting.iter().map(|waiting| delta(waiting, moment)).collect(),
        leased_deltas: entry.leased.iter().map(|leased| delta(leased, moment)).collect(),
        lease: schedule_state.lease().map(|held| lease(handle, held, moment)),
        attempt: schedule_state.attempt,
        failures: schedule_state.failures,
        last_error: schedule_state.last_error().map(str::to_owned),
        due_at: schedule_state.delay().map(|delay| timestamp(moment.wall(delay.due))),
        owner: entry.owner().map(ToString::to_string),
    }
}

fn lease(handle: &Handle, lease: &Lease, moment: Moment) -> ItemLease {
    ItemLease {
        id: handle.lease_id(lease.token).to_string(),
        token: lease.token.rv(),
        worker: lease.worker.as_deref().map(str::to_owned),
        expires_at: timestamp(moment.wall(lease.deadline)),
        expires_in_ms: millis(lease.deadline.since(moment.now)),
    }
}

/// Whether a key has a state or failures. A key that is only known is not an item.
#[must_use]
pub fn is_item(entry: &Entry) -> bool {
    let schedule_state = &entry.schedule_state;
    schedule_state.place != Place::Idle || schedule_state.delay().is_some() || schedule_state.failures > 0
}
