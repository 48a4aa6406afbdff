//! Items and known objects.

use deltaq_types::{ItemDocument, ItemLease, ItemState, KnownDocument};

use super::{delta, millis, raw, timestamp};
use crate::engine::key::Key;
use crate::engine::known::Known;
use crate::engine::schedule::{Lease, Place};
use crate::engine::snapshot::KeyState;
use crate::service::{Handle, Moment};

/// States of an item, in the order in which they are listed.
pub const STATES: [&str; 4] = ["ready", "delayed", "leased", "parked"];

/// The known object of a key.
#[must_use]
pub fn known(key: &Key, known: &Known) -> KnownDocument {
    KnownDocument {
        key: key.as_str().to_owned(),
        source: known.owner.as_deref().map(str::to_owned),
        resource_version: known.rv.get(),
        object: raw(&known.object),
    }
}

/// A key as of `moment`.
#[must_use]
pub fn item(handle: &Handle, key: &KeyState, moment: Moment) -> ItemDocument {
    let schedule_state = &key.schedule_state;
    let state = match schedule_state.place {
        Place::Leased(_) => Some(ItemState::Leased),
        Place::Parked => Some(ItemState::Parked),
        Place::Ready(_) => Some(ItemState::Ready),
        Place::Idle => schedule_state.delay().map(|_| ItemState::Delayed),
    };
    ItemDocument {
        key: key.key.as_str().to_owned(),
        state,
        deltas: key.waiting.iter().map(|waiting| delta(waiting, moment)).collect(),
        leased_deltas: key.leased.iter().map(|leased| delta(leased, moment)).collect(),
        lease: schedule_state.lease().map(|held| lease(handle, held, moment)),
        attempt: schedule_state.attempt,
        failures: schedule_state.failures,
        last_error: schedule_state.last_error().map(str::to_owned),
        due_at: schedule_state.delay().map(|delay| timestamp(moment.wall(delay.due))),
        owner: key.owner().map(ToString::to_string),
    }
}

fn lease(handle: &Handle, lease: &Lease, moment: Moment) -> ItemLease {
    ItemLease {
        id: handle.lease_id(lease.token).to_string(),
        token: lease.token.rv().get(),
        worker: lease.worker.as_deref().map(str::to_owned),
        expires_at: timestamp(moment.wall(lease.deadline)),
        expires_in_ms: millis(lease.deadline.since(moment.now)),
    }
}
