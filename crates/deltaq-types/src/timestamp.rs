//! Instants as text.

use std::error::Error;
use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use utoipa::ToSchema;

/// The last instant that RFC 3339 can write, in microseconds since the Unix epoch: the end of the year 9999.
pub const LAST_US: u64 = 253_402_300_799_999_999;

// Microseconds since the Unix epoch.
/// An instant: RFC 3339 in UTC with milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ToSchema)]
#[schema(value_type = String, format = DateTime)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The instant at this many microseconds since the Unix epoch, at most [`LAST_US`].
    #[must_use]
    pub const fn from_micros(us: u64) -> Self {
        Self(if us < LAST_US { us } else { LAST_US })
    }

    /// Microseconds since the Unix epoch. A timestamp that was read from text has whole milliseconds.
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0
    }
}

impl From<Timestamp> for SystemTime {
    fn from(timestamp: Timestamp) -> Self {
        UNIX_EPOCH + Duration::from_micros(timestamp.0)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_rfc3339_millis((*self).into()).fmt(f)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A text that is no instant since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotATimestamp(String);

impl fmt::Display for NotATimestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for NotATimestamp {}

impl FromStr for Timestamp {
    type Err = NotATimestamp;

    fn from_str(text: &str) -> Result<Self, NotATimestamp> {
        let wrong = |error: &dyn fmt::Display| NotATimestamp(error.to_string());
        let instant = humantime::parse_rfc3339(text).map_err(|error| wrong(&error))?;
        let since_epoch = instant.duration_since(UNIX_EPOCH).map_err(|error| wrong(&error))?;
        u64::try_from(since_epoch.as_micros()).map(Self::from_micros).map_err(|error| wrong(&error))
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}
