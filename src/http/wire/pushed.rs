//! The body of a pushed request.

use deltaq_engine::command::Item;
use deltaq_engine::delta::{Delta, DeltaKind};
use deltaq_engine::lives::Lives;
use deltaq_service::Moment;
use deltaq_types::{Push, PushFormat, PushPayload};

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
}

/// The approximate length of the body, in bytes.
#[must_use]
pub fn pushed_bytes(item: &Item) -> usize {
    popped_bytes(std::slice::from_ref(item), &[], &With::default())
}

/// The request for a delivered key. A key without deltas is not pushed.
#[must_use]
pub fn pushed(lives: &Lives, item: &Item, push: &Push, moment: Moment) -> Option<Pushed> {
    let newest = item.deltas.last()?;
    let kind = kind(newest);
    let version = newest.rv.get();
    let body = match (push.format, push.payload) {
        (PushFormat::Raw, _) => newest.object.as_str().to_owned(),
        (PushFormat::Standard, PushPayload::Full) => {
            envelope(kind, newest, moment, &item_text(lives, item, moment))
        }
        (PushFormat::Standard, PushPayload::Thin) => {
            let data = serde_json::json!({
                "key": item.key.as_str(), "type": newest.kind.as_str(), "resource_version": version,
            });
            envelope(kind, newest, moment, &data.to_string())
        }
    };
    Some(Pushed { body, kind, version })
}

fn kind(newest: &Delta) -> &'static str {
    if newest.kind == DeltaKind::Deleted { "deltaq.item.deleted" } else { "deltaq.item.updated" }
}

fn envelope(kind: &str, newest: &Delta, moment: Moment, data: &str) -> String {
    let timestamp = super::timestamp(moment.wall(newest.queued_at));
    format!(r#"{{"type":"{kind}","timestamp":"{timestamp}","data":{data}}}"#)
}
