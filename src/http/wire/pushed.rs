//! The body of a pushed request.

use deltaq_engine::command::Item;
use deltaq_engine::delta::{Delta, DeltaKind};
use deltaq_engine::lives::Lives;
use deltaq_service::Moment;
use deltaq_types::{Push, PushFormat, PushPayload, Timestamp};

use super::popped::{With, item_text, popped_bytes};

/// The body of a request, the type of what happened, and the version of the newest delta.
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
}

/// The approximate length of the body, in bytes.
#[must_use]
pub fn pushed_bytes(item: &Item, push: &Push) -> usize {
    popped_bytes(std::slice::from_ref(item), &[], &with(push))
}

/// The request for a delivered key. A key without deltas is not pushed.
#[must_use]
pub fn pushed(lives: &Lives, item: &Item, push: &Push, moment: Moment) -> Option<Pushed> {
    let newest = item.deltas.last()?;
    let kind = kind(newest);
    let version = newest.rv.get();
    let body = match (push.format, push.payload) {
        (PushFormat::Raw, _) | (PushFormat::Cloudevents, PushPayload::Full | PushPayload::Known) => {
            newest.object.as_str().to_owned()
        }
        (PushFormat::Cloudevents, PushPayload::Thin) => thin(item, newest),
        (PushFormat::Standard, PushPayload::Full | PushPayload::Known) => {
            envelope(kind, newest, moment, &item_text(lives, item, &with(push), moment))
        }
        (PushFormat::Standard, PushPayload::Thin) => envelope(kind, newest, moment, &thin(item, newest)),
    };
    Some(Pushed { body, kind, version, time: super::timestamp(moment.wall(newest.queued_at)) })
}

/// What is added to the key.
fn with(push: &Push) -> With {
    With { known: push.payload == PushPayload::Known, ..With::default() }
}

fn thin(item: &Item, newest: &Delta) -> String {
    let (key, kind, version) = (item.key.as_str(), newest.kind.as_str(), newest.rv.get());
    serde_json::json!({"key": key, "type": kind, "resource_version": version}).to_string()
}

fn kind(newest: &Delta) -> &'static str {
    if newest.kind == DeltaKind::Deleted { "deltaq.item.deleted" } else { "deltaq.item.updated" }
}

fn envelope(kind: &str, newest: &Delta, moment: Moment, data: &str) -> String {
    let timestamp = super::timestamp(moment.wall(newest.queued_at));
    format!(r#"{{"type":"{kind}","timestamp":"{timestamp}","data":{data}}}"#)
}
