//! The documents that go over the wire, apart from the engine's types so that each can change alone.

pub mod admission;
pub mod config;
pub mod strict;

mod consuming;
mod history;
mod looking;
mod operating;
mod popped;
mod producing;
mod queues;

use std::fmt;
use std::time::Duration;

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

pub use self::consuming::*;
pub use self::history::*;
pub use self::looking::*;
pub use self::operating::*;
pub use self::popped::{popped, popped_bytes};
pub use self::producing::*;
pub use self::queues::*;
use crate::engine::object::Object;
use crate::engine::time::Time;
use crate::instant::LAST_US;

/// An object exactly as it was sent.
#[derive(Clone, Debug)]
pub struct RawObject(pub Object);

impl Serialize for RawObject {
    /// Writes the text as it is. `serde_json` knows raw text by the name of this struct, which is how
    /// its own `RawValue` is written; going through `RawValue` would parse every object once more.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        const TOKEN: &str = "$serde_json::private::RawValue";
        let mut raw = serializer.serialize_struct(TOKEN, 1)?;
        raw.serialize_field(TOKEN, self.0.as_str())?;
        raw.end()
    }
}

/// An instant that is written as [`instant`] does, straight into its document.
#[derive(Clone, Copy, Debug)]
pub struct Instant(pub Time);

impl Serialize for Instant {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&rfc3339(self.0))
    }
}

/// An instant as RFC 3339 with milliseconds.
#[must_use]
pub fn instant(at: Time) -> String {
    rfc3339(at).to_string()
}

fn rfc3339(at: Time) -> impl fmt::Display {
    let since_epoch = Duration::from_micros(at.as_micros().min(LAST_US));
    humantime::format_rfc3339_millis(std::time::UNIX_EPOCH + since_epoch)
}

/// Whole milliseconds.
#[must_use]
pub fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
