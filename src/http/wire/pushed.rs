//! The body of a pushed request, and the CloudEvents of pops and watches.

use deltaq_engine::command::Item;
use deltaq_engine::delta::{Delta, DeltaKind};
use deltaq_engine::feed::{Row, RowKind};
use deltaq_engine::lives::Lives;
use deltaq_engine::object::Object;
use deltaq_service::{LeaseId, Moment};
use deltaq_types::{Push, PushFormat, PushPayload, Timestamp};
use serde_json::json;

use super::cloud_event::{CloudEvent, EventLease};
use super::popped::{With, item_text, popped_bytes};

/// What names a queue in the ids of its keys.
#[derive(Clone, Copy, Debug)]
pub struct QueueIdentity<'a> {
    /// The queue.
    pub queue: &'a str,
    /// Its incarnation.
    pub incarnation: &'a str,
    /// Its lives.
    pub lives: &'a Lives,
}

/// A request for one key.
#[derive(Debug)]
pub struct Pushed {
    /// The body.
    pub body: String,
    /// `deltaq.item.updated` or `deltaq.item.deleted`.
    pub kind: &'static str,
    /// The version of the newest delta.
    pub version: u64,
    /// The time of the newest delta.
    pub time: Timestamp,
    /// The trace of the newest delta.
    pub trace: Option<String>,
}

/// The approximate length of the body, in bytes.
#[must_use]
pub fn pushed_bytes(items: &[Item], push: &Push) -> usize {
    popped_bytes(items, &[], &with(push))
}

/// The id of an event: the same while the content of the key is the same.
#[must_use]
pub fn event_id(incarnation: &str, version: u64) -> String {
    format!("{incarnation}-{version}")
}

/// The request for a delivered key. A key without deltas is not pushed.
#[must_use]
pub fn pushed(lives: &Lives, item: &Item, push: &Push, moment: Moment) -> Option<Pushed> {
    let newest = item.deltas.last()?;
    let kind = kind(newest.kind == DeltaKind::Deleted);
    let body = match push.format {
        PushFormat::Raw | PushFormat::Cloudevents => data(lives, item, newest, push),
        PushFormat::Standard => {
            let data = standard(lives, item, newest, push, moment);
            envelope(kind, time(newest, moment), &data)
        }
    };
    Some(Pushed { body, kind, version: newest.rv.get(), time: time(newest, moment), trace: trace(newest) })
}

/// The body of the request for several delivered keys: a list. Keys without deltas are not pushed.
#[must_use]
pub fn pushed_list(
    identity: QueueIdentity<'_>,
    items: &[Item],
    push: &Push,
    moment: Moment,
) -> Option<String> {
    let newest = items.iter().map(|item| Some((item, item.deltas.last()?))).collect::<Option<Vec<_>>>()?;
    let joined = |texts: Vec<String>| texts.join(",");
    if push.format == PushFormat::Cloudevents {
        let event = |(item, newest): &(&Item, &Delta)| {
            let data = data(identity.lives, item, newest, push);
            event(identity, item, newest, &data, push.is_async, moment)
        };
        return Some(format!("[{}]", joined(newest.iter().map(event).collect())));
    }
    let text = |(item, newest): &(&Item, &Delta)| standard(identity.lives, item, newest, push, moment);
    let items = joined(newest.iter().map(text).collect());
    let last = newest.iter().map(|(_, newest)| time(newest, moment)).max()?;
    Some(envelope("deltaq.items", last, &format!(r#"{{"items":[{items}]}}"#)))
}

/// The reply to a pop as CloudEvents. Keys without deltas are left out.
#[must_use]
pub fn popped_events(identity: QueueIdentity<'_>, items: &[Item], moment: Moment) -> String {
    let event = |item: &Item| {
        let newest = item.deltas.last()?;
        Some(event(identity, item, newest, newest.object.as_str(), true, moment))
    };
    format!("[{}]\n", items.iter().filter_map(event).collect::<Vec<_>>().join(","))
}

/// The rows of a watch as CloudEvents.
#[must_use]
pub fn watched_events(queue: &str, incarnation: &str, rows: &[Row]) -> String {
    let event = |row: &Row| {
        let (kind, version) = (kind(row.kind == RowKind::Deleted), row.rv.get());
        let id = event_id(incarnation, version);
        let item = Some((row.key.as_str(), version));
        let event = CloudEvent { kind, queue, id: &id, time: None, item, traceparent: None };
        event.json(None, row.object.as_ref().map_or("null", Object::as_str))
    };
    format!("[{}]\n", rows.iter().map(event).collect::<Vec<_>>().join(","))
}

/// What is added to the key.
fn with(push: &Push) -> With {
    With { known: push.payload == PushPayload::Known, ..With::default() }
}

/// The key in the format `standard`.
fn standard(lives: &Lives, item: &Item, newest: &Delta, push: &Push, moment: Moment) -> String {
    match push.payload {
        PushPayload::Thin => thin(lives, item, newest),
        PushPayload::Full | PushPayload::Known => item_text(lives, item, &with(push), moment),
    }
}

/// The key in the formats without an envelope.
fn data(lives: &Lives, item: &Item, newest: &Delta, push: &Push) -> String {
    match push.payload {
        PushPayload::Thin => thin(lives, item, newest),
        PushPayload::Full | PushPayload::Known => newest.object.as_str().to_owned(),
    }
}

/// The key as an event in JSON.
fn event(
    identity: QueueIdentity<'_>,
    item: &Item,
    newest: &Delta,
    data: &str,
    has_lease: bool,
    moment: Moment,
) -> String {
    let version = newest.rv.get();
    let trace = trace(newest);
    let lease_id = lease_id(identity.lives, item);
    let lease = EventLease {
        token: item.token.rv().get(),
        attempt: item.attempt.into(),
        id: has_lease.then_some(&*lease_id),
    };
    let event = CloudEvent {
        kind: kind(newest.kind == DeltaKind::Deleted),
        queue: identity.queue,
        id: &event_id(identity.incarnation, version),
        time: Some(time(newest, moment)),
        item: Some((item.key.as_str(), version)),
        traceparent: trace.as_deref(),
    };
    event.json(Some(lease), data)
}

fn thin(lives: &Lives, item: &Item, newest: &Delta) -> String {
    let (key, kind, version) = (item.key.as_str(), newest.kind.as_str(), newest.rv.get());
    let lease = json!({"id": lease_id(lives, item), "token": item.token.rv().get()});
    json!({"key": key, "type": kind, "resource_version": version, "lease": lease}).to_string()
}

fn lease_id(lives: &Lives, item: &Item) -> String {
    LeaseId { life: lives.id_of(item.token.rv()), token: item.token }.to_string()
}

fn kind(is_deleted: bool) -> &'static str {
    if is_deleted { "deltaq.item.deleted" } else { "deltaq.item.updated" }
}

fn trace(newest: &Delta) -> Option<String> {
    newest.provenance.trace().map(ToString::to_string)
}

fn time(newest: &Delta, moment: Moment) -> Timestamp {
    super::timestamp(moment.wall(newest.queued_at))
}

fn envelope(kind: &str, time: Timestamp, data: &str) -> String {
    format!(r#"{{"type":"{kind}","timestamp":"{time}","data":{data}}}"#)
}
