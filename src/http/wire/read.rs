//! Items and known objects.

use deltaq_types::{ItemDocument, ItemState, KnownDocument, LeaseDocument, SourceDocument};
use serde::ser::{Serialize, SerializeMap as _, Serializer};

use super::queue::last_replace;
use super::{delta, millis, raw, timestamp};
use crate::engine::excerpt::Excerpt;
use crate::engine::key::Key;
use crate::engine::known::Known;
use crate::engine::schedule::{Lease, Place};
use crate::engine::snapshot::KeyState;
use crate::engine::sources::SourceState;
use crate::http::params::wrong;
use crate::http::problem::Problem;
use crate::service::{Handle, Moment};

/// States of an item, in the order in which they are listed.
pub const STATES: [&str; 4] = ["ready", "delayed", "leased", "parked"];

/// Declares the fields of an item, and how a selection of them is written.
macro_rules! item_fields {
    ($($name:literal $field:ident)*) => {
        /// The fields of an item, in the order in which they are written.
        pub const ITEM_FIELDS: [&str; [$($name),*].len()] = [$($name),*];

        impl Serialize for SelectedItem {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let mut map = serializer.serialize_map(None)?;
                $(if self.fields.has($name) {
                    map.serialize_entry($name, &self.item.$field)?;
                })*
                map.end()
            }
        }
    };
}

item_fields! {
    "key" key
    "state" state
    "deltas" deltas
    "leased_deltas" leased_deltas
    "lease" lease
    "attempt" attempt
    "failures" failures
    "last_error" last_error
    "due_at" due_at
    "owner" owner
}

/// The fields of items that a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ItemFields([bool; ITEM_FIELDS.len()]);

/// An item with some of its fields.
#[derive(Debug)]
pub struct SelectedItem {
    item: ItemDocument,
    fields: ItemFields,
}

impl ItemFields {
    /// The fields of the parameter `fields`; all without it.
    ///
    /// # Errors
    /// The name that no field has.
    pub fn read(text: Option<&str>) -> Result<Self, Problem> {
        let Some(text) = text else { return Ok(Self([true; ITEM_FIELDS.len()])) };
        let mut fields = Self([false; ITEM_FIELDS.len()]);
        for name in text.split(',') {
            let mut named = fields.0.iter_mut().zip(ITEM_FIELDS);
            let Some((is_wanted, _)) = named.find(|(_, field)| *field == name) else {
                let known = format!("{} is none of {}", Excerpt(name), ITEM_FIELDS.join(", "));
                return Err(wrong("fields", &known));
            };
            *is_wanted = true;
        }
        Ok(fields)
    }

    fn has(&self, name: &str) -> bool {
        ITEM_FIELDS.iter().zip(self.0).any(|(field, is_wanted)| is_wanted && *field == name)
    }

    /// Whether the items have objects, which may be large.
    #[must_use]
    pub fn has_objects(&self) -> bool {
        self.has("deltas") || self.has("leased_deltas")
    }

    /// The item with these fields.
    #[must_use]
    pub fn of(&self, item: ItemDocument) -> SelectedItem {
        SelectedItem { item, fields: *self }
    }
}

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

/// A source as of `moment`.
#[must_use]
pub fn source(state: &SourceState, moment: Moment) -> SourceDocument {
    let history = state.history.as_ref();
    let wall = |at| timestamp(moment.wall(at));
    SourceDocument {
        source: state.source.as_str().to_owned(),
        keys: state.keys as u64,
        last_call_at: history.map(|history| wall(history.last_call)),
        last_replaced_at: history.and_then(|history| history.last_replaced).map(wall),
        last_replace: history
            .and_then(|history| history.last_replace.as_ref())
            .map(|last| last_replace(last, moment)),
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

fn lease(handle: &Handle, lease: &Lease, moment: Moment) -> LeaseDocument {
    LeaseDocument {
        id: handle.lease_id(lease.token).to_string(),
        token: lease.token.rv().get(),
        worker: lease.worker.as_deref().map(str::to_owned),
        expires_at: timestamp(moment.wall(lease.deadline)),
        expires_in_ms: millis(lease.deadline.since(moment.now)),
    }
}
