//! Engine values as rows of a store, and back: format version 1.
//!
//! Events, deltas and the states of queues derive their JSON in the engine (see [`event`](deltaq_engine::event) for the
//! rules of its form). The state of a key has a form in this module. A store carries rows as they are.
//!
//! For a person with `sqlite3` and `json_each`:
//! - `events` of a journal row is an array with one object per event, `item` of a key row and `state` of a queue row
//!   are objects.
//! - Instants (`at`, `due`, `deadline`, `since`, ...) are whole microseconds since the Unix epoch; spans are named with
//!   their unit, as in `length_us`. The settings of a queue are the document of the API, whose lengths are texts.
//! - A field that has its default value is left out.
//! - An object is the text that the producer sent.
//!
//! Rules of the format:
//! - Every row has a format version and a checksum over all its columns.
//! - A reader ignores fields that it does not know, so a record may gain an optional field without a new version. A
//!   change that a reader must not ignore takes a new version.
//! - Golden files hold every format from the first release on. Until then a format may change at any time, and a
//!   snapshot of today's form shows each change.

mod checksum;
mod content;
mod decode;
mod encode;
mod event;
mod json;
mod key;
mod names;

#[cfg(test)]
mod tests;

pub use self::content::{Error, FORMAT, Identity, QueueRecord};
pub use self::decode::Decoder;
pub use self::encode::{
    ROW_BYTES_MAX, deleted_queue_row, in_epoch, journal_rows, key_row, may_tell_of, queue_row, tombstone,
};
pub(super) use self::event::bytes_about;
