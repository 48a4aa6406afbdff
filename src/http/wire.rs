//! Conversions between the engine's types and the documents of the API, which `deltaq-types` defines.

pub mod settings;

mod cloud_event;
mod consume;
mod difference;
mod explain;
mod follow;
mod history;
mod nodes;
mod popped;
mod produce;
mod pushed;
mod queue;
mod read;
mod series;
mod watch;

use deltaq_engine::object::Object;
use deltaq_engine::time::Time;
pub use deltaq_types::duration::whole_ms as millis;
use deltaq_types::{RawObject, Timestamp};

pub use self::cloud_event::{CloudEvent, EventLease};
pub use self::consume::{delta, settled};
pub use self::explain::explain;
pub use self::history::event;
pub use self::nodes::node;
pub use self::popped::{With, popped, popped_bytes};
pub use self::produce::{failed_key, place, produced, replaced};
pub use self::pushed::{
    Pushed, QueueIdentity, event_id, popped_events, pushed, pushed_bytes, pushed_list, watched_events,
};
pub use self::queue::{queue, status};
pub use self::read::{
    Fields, STATES, Selectable, Selected, compared_bytes, index, item, item_with_diff, object, queue_worker,
    reflector, source, synced, worker,
};
pub use self::series::series;
pub use self::watch::{
    RETRY, push_event, push_line, refused_events, retry_line, row_bytes_max, watch_bookmark, watch_error,
    watch_expired, watch_row,
};

/// An instant of the wall clock.
#[must_use]
pub fn timestamp(at: Time) -> Timestamp {
    Timestamp::from_micros(at.as_micros())
}

/// An object. Its text is shared, not copied.
fn raw(object: &Object) -> RawObject {
    RawObject::from_valid(object.shared())
}
