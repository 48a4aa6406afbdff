//! Converts engine values to rows of a store and back: format version 1.
//!
//! Events, deltas and the states of queues derive their JSON in the engine (see [`event`](deltaq_engine::event) for
//! the rules of its form). The JSON form of a key's state is defined in this module. A store does not change rows.
//!
//! For reading rows by hand with `sqlite3` and `json_each`:
//! - `events` of a journal row is an array with one object per event, and `entries` of a run an array with one object
//!   per key. `state` of a queue row is an object. A store may compress `entries`.
//! - Instants (`at`, `due`, `deadline`, `since`, ...) are whole microseconds since the Unix epoch. Names of spans end
//!   in their unit, as in `length_us`. The settings of a queue are stored as in the API, where durations are text.
//! - A field that has its default value is left out.
//! - An object is the text that the producer sent. In the rows of a follower and of a followed queue, a large object is a
//!   string instead: the id of a row of table `texts`.
//!
//! Rules of the format:
//! - Every row has a format version and a checksum over all its columns.
//! - A reader ignores unknown fields, so an optional field can be added to a record without a new version. A change
//!   that a reader must not ignore needs a new version.
//! - From the first release on, golden files contain every format. Until then a format may change at any time, and a
//!   snapshot of the current form makes each change visible.

mod checksum;
mod content;
mod decode;
mod encode;
mod event;
mod json;
mod names;
mod run;
mod shared;

#[cfg(test)]
mod tests;

pub use self::content::{Error, FORMAT, Identity, LostObject, PastEvents, QueueRecord};
pub use self::decode::{Decoder, lost_object};
pub use self::encode::{ROW_BYTES_MAX, deleted_queue_row, in_epoch, journal_rows, may_tell_of, queue_row};
pub(super) use self::event::bytes_about;
pub use self::run::{NewRun, RunEntry};
pub use self::shared::SHARED_BYTES_MIN;
