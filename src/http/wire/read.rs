//! Items, sources, and the objects of views.

use std::time::Duration;

use deltaq_engine::excerpt::Excerpt;
use deltaq_engine::indexes::IndexStatus;
use deltaq_engine::object::{ArrayKeys, Object};
use deltaq_engine::schedule::{Lease, Place};
use deltaq_engine::snapshot::KeyState;
use deltaq_engine::time::Time;
use deltaq_engine::view::ViewObject;
use deltaq_service::{Acknowledged, Handle, Moment, ReflectorStatus, SourceStatus, WorkerState};
use deltaq_types::{
    Difference, IndexDocument, IndexState, ItemDocument, ItemState, LeaseDocument, ObjectDocument,
    QueueDocument, QueueWorkerDocument, ReflectorDocument, SourceDocument, SourceProblem, SyncedDocument,
    WorkerDocument,
};
use serde::ser::{Serialize, SerializeMap, Serializer};

use super::difference::{compared, documents};
use super::queue::last_replace;
use super::{delta, millis, raw, timestamp};
use crate::http::problem::Problem;
use crate::http::request::params::wrong;

/// States of an item, in the order in which they are listed.
pub const STATES: [&str; 4] = ["ready", "delayed", "leased", "parked"];

/// A document whose fields a request may select.
pub trait Selectable {
    /// The names of the fields, in the order in which they are written.
    const FIELDS: &'static [&'static str];
    /// The names of the fields that hold objects, which may be large.
    const OBJECTS: &'static [&'static str];

    /// Writes the selected fields.
    ///
    /// # Errors
    /// The errors of the serializer.
    fn write<M: SerializeMap>(&self, fields: Fields, map: &mut M) -> Result<(), M::Error>;
}

macro_rules! selectable {
    ($document:ident, [$($object:literal),*]: $($name:literal $field:ident $(unless $absent:ident)?)*) => {
        impl Selectable for $document {
            const FIELDS: &'static [&'static str] = &[$($name),*];
            const OBJECTS: &'static [&'static str] = &[$($object),*];

            fn write<M: SerializeMap>(&self, fields: Fields, map: &mut M) -> Result<(), M::Error> {
                $(if fields.has::<Self>($name) $(&& !self.$field.$absent())? {
                    map.serialize_entry($name, &self.$field)?;
                })*
                Ok(())
            }
        }
    };
}

selectable! { ItemDocument, ["deltas", "leased_deltas"]:
    "key" key
    "state" state
    "deltas" deltas
    "leased_deltas" leased_deltas
    "lease" lease
    "leased_at" leased_at
    "attempt" attempt
    "failures" failures
    "last_error" last_error
    "due_at" due_at
    "source" source
    "diff" diff unless is_absent
    "diff_omitted" diff_omitted unless is_none
}

selectable! { QueueDocument, []:
    "name" name
    "incarnation" incarnation
    "life" life
    "auto_created" auto_created
    "created_at" created_at
    "settings" settings
    "status" status
    "drained" drained
}

selectable! { ObjectDocument, ["object"]:
    "key" key
    "source" source
    "resource_version" resource_version
    "object" object
}

/// The requested fields of a document, one bit for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fields(u16);

/// A document with some of its fields.
#[derive(Debug)]
pub struct Selected<D> {
    document: D,
    fields: Fields,
}

impl<D: Selectable> Serialize for Selected<D> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        self.document.write(self.fields, &mut map)?;
        map.end()
    }
}

impl Fields {
    /// Reads the parameter `fields`. Without it, all fields are selected.
    ///
    /// # Errors
    /// The unknown name.
    pub fn read<D: Selectable>(text: Option<&str>) -> Result<Self, Problem> {
        let Some(text) = text else { return Ok(Self(u16::MAX)) };
        let mut bits = 0;
        for name in text.split(',') {
            let Some(index) = D::FIELDS.iter().position(|field| *field == name) else {
                let known = format!("{} is none of {}", Excerpt(name), D::FIELDS.join(", "));
                return Err(wrong("fields", &known));
            };
            bits |= 1 << index;
        }
        Ok(Self(bits))
    }

    fn has<D: Selectable>(self, name: &str) -> bool {
        D::FIELDS.iter().position(|field| *field == name).is_some_and(|index| self.0 & (1 << index) != 0)
    }

    /// Whether a field has objects, which may be large.
    #[must_use]
    pub fn has_objects<D: Selectable>(self) -> bool {
        D::OBJECTS.iter().any(|name| self.has::<D>(name))
    }

    /// The document with these fields.
    #[must_use]
    pub fn of<D>(self, document: D) -> Selected<D> {
        Selected { document, fields: self }
    }
}

/// The object of a key in a view.
#[must_use]
pub fn object(found: &ViewObject) -> ObjectDocument {
    ObjectDocument {
        key: found.key.as_str().to_owned(),
        source: found.owner.as_deref().map(str::to_owned),
        resource_version: found.rv.get(),
        object: raw(&found.object),
    }
}

/// Whether a queue has synced and, for a call with a version, whether everything up to the version is acknowledged.
#[must_use]
pub fn synced(synced: bool, remaining: usize, acknowledged: Option<Acknowledged>) -> SyncedDocument {
    SyncedDocument {
        synced,
        remaining: remaining as u64,
        reached: acknowledged.map(|acknowledged| acknowledged.reached),
        resource_version: acknowledged.map(|acknowledged| acknowledged.version.get()),
        parked: acknowledged.map(|acknowledged| acknowledged.parked as u64),
    }
}

/// A source as of `moment`.
#[must_use]
pub fn source(status: &SourceStatus, moment: Moment) -> SourceDocument {
    let SourceStatus { state, contact, is_stale, report } = status;
    let history = state.history.as_ref();
    let wall = |at| timestamp(moment.wall(at));
    let stale_after = history.and_then(|history| history.stale_after);
    SourceDocument {
        source: state.source.as_str().to_owned(),
        keys: state.keys as u64,
        last_call_at: history.map(|history| history.last_call).filter(|at| *at > Time::default()).map(wall),
        last_contact_at: contact.map(wall),
        last_replaced_at: history.and_then(|history| history.last_replaced).map(wall),
        last_replace: history
            .and_then(|history| history.last_replace.as_ref())
            .map(|last| last_replace(last, moment)),
        sequence: history.and_then(|history| history.sequence),
        stale_after: stale_after.map(|threshold| threshold.longest.into()),
        is_stale: is_stale.unwrap_or_default(),
        problem: report
            .as_ref()
            .map(|report| SourceProblem { detail: report.problem.clone(), reported_at: wall(report.at) }),
    }
}

/// A reflector of a queue as of `moment`.
#[must_use]
pub fn reflector(queue: &str, status: ReflectorStatus, moment: Moment) -> ReflectorDocument {
    let ReflectorStatus { report, at, state } = status;
    let last_heartbeat_at = timestamp(moment.wall(at));
    let sent_at = report.sent_at.unwrap_or(last_heartbeat_at);
    let lag_us = match report.last_success_at {
        Some(success) if report.failing => sent_at.as_micros().saturating_sub(success.as_micros()),
        _ => 0,
    };
    ReflectorDocument {
        queue: queue.to_owned(),
        source: report.source,
        instance: report.instance,
        version: report.version,
        kind: report.kind,
        state,
        last_heartbeat_at,
        interval: report.interval,
        last_success_at: report.last_success_at,
        last_error: report.last_error,
        last_error_at: report.last_error_at,
        next_list_at: report.next_list_at,
        lag_ms: lag_us / 1_000,
    }
}

/// An index.
#[must_use]
pub fn index(status: &IndexStatus) -> IndexDocument {
    IndexDocument {
        name: status.name.to_string(),
        pointer: status.pointer.to_string(),
        state: if status.is_ready { IndexState::Ready } else { IndexState::Building },
        values: status.values as u64,
        keys: status.keys as u64,
        omitted_values: status.omitted as u64,
    }
}

/// A worker as of `moment`.
#[must_use]
pub fn worker(name: &str, state: &WorkerState, moment: Moment) -> WorkerDocument {
    let wall = |at: Time| timestamp(moment.wall(at));
    WorkerDocument {
        worker: Some(name).filter(|name| !name.is_empty()).map(str::to_owned),
        leased: state.leased as u64,
        oldest_leased_at: state.oldest_lease.map(wall),
        next_expires_at: state.next_expiry.map(wall),
        next_expires_in_ms: state.next_expiry.map(|at| millis(at.since(moment.now))),
        waiting: state.waiting as u64,
        oldest_waiting_at: state.waiting_since.map(wall),
        recent_acks: state.recent.acked,
        recent_failures: state.recent.failed,
    }
}

/// A worker of this queue as of `moment`, with the age from which its leases are slow.
#[must_use]
pub fn queue_worker(
    queue: &str,
    name: &str,
    state: &WorkerState,
    moment: Moment,
    slow_after: Duration,
) -> QueueWorkerDocument {
    let WorkerDocument {
        worker,
        leased,
        oldest_leased_at,
        next_expires_in_ms,
        waiting,
        oldest_waiting_at,
        recent_acks,
        recent_failures,
        ..
    } = worker(name, state, moment);
    let age = state.oldest_lease.map(|since| moment.now.since(since));
    QueueWorkerDocument {
        queue: queue.to_owned(),
        worker,
        leased,
        oldest_leased_at,
        oldest_lease_age_ms: age.map(millis),
        is_slow: age.is_some_and(|age| age > slow_after),
        slow_after_ms: millis(slow_after),
        next_expires_in_ms,
        waiting,
        oldest_waiting_at,
        recent_acks,
        recent_failures,
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
        Place::Idle => schedule_state.waits().then_some(ItemState::Delayed),
    };
    ItemDocument {
        key: key.key.as_str().to_owned(),
        state,
        deltas: key.waiting.iter().map(|waiting| delta(waiting, moment)).collect(),
        leased_deltas: key.leased.iter().map(|leased| delta(leased, moment)).collect(),
        lease: schedule_state.lease().map(|held| lease(handle, held, moment)),
        leased_at: schedule_state.lease().map(|held| timestamp(moment.wall(held.since))),
        attempt: schedule_state.attempt,
        failures: schedule_state.failures,
        last_error: schedule_state.last_error().map(str::to_owned),
        due_at: schedule_state.due().map(|due| timestamp(moment.wall(due))),
        source: key.owner().map(ToString::to_string),
        diff: Difference::Absent,
        diff_omitted: None,
    }
}

/// A key with the difference from its known object to the newest one.
#[must_use]
pub fn item_with_diff(document: ItemDocument, key: &KeyState, array_keys: &ArrayKeys) -> ItemDocument {
    let (diff, diff_omitted) = documents(compared_of(key), array_keys);
    ItemDocument { diff, diff_omitted, ..document }
}

/// The bytes of the objects that the difference compares.
#[must_use]
pub fn compared_bytes(key: &KeyState) -> usize {
    compared_of(key).map_or(0, |(old, new)| old.bytes() + new.bytes())
}

fn compared_of(key: &KeyState) -> Option<(&Object, &Object)> {
    compared(key.known.as_ref(), key.waiting.last().or_else(|| key.leased.last()))
}

pub(super) fn lease(handle: &Handle, lease: &Lease, moment: Moment) -> LeaseDocument {
    LeaseDocument {
        id: handle.lease_id(lease.token).to_string(),
        token: lease.token.rv().get(),
        worker: lease.worker.as_deref().map(str::to_owned),
        expires_at: timestamp(moment.wall(lease.deadline)),
        expires_in_ms: millis(lease.deadline.since(moment.now)),
    }
}
