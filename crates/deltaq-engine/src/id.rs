//! The numbers and names in a queue. Each has its own type, so that the compiler distinguishes them.

use std::borrow::Borrow;
use std::fmt;
use std::num::ParseIntError;
use std::ops::Deref;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The number of an event of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rv(u64);

impl Rv {
    /// The number before the first event. No event has this number.
    pub const ZERO: Self = Self(0);
    /// The last possible number.
    pub const MAX: Self = Self(u64::MAX);

    /// Creates an event number.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number, for replies, rows and metrics.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The next number.
    #[must_use]
    pub const fn next(self) -> Self {
        self.plus(1)
    }

    /// The number `count` above this one.
    #[must_use]
    pub const fn plus(self, count: u64) -> Self {
        Self(self.0 + count)
    }

    /// Like [`plus`](Self::plus), but saturates at [`MAX`](Self::MAX). For a number that may come from a damaged
    /// store.
    #[must_use]
    pub const fn saturating_plus(self, count: u64) -> Self {
        Self(self.0.saturating_add(count))
    }

    /// The difference between this number and `earlier`; 0 if this number is not larger.
    #[must_use]
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The number `count` before this one.
    #[must_use]
    pub const fn minus(self, count: u64) -> Self {
        Self(self.0.saturating_sub(count))
    }

    /// Whether this number is `before` plus one.
    #[must_use]
    pub fn follows(self, before: Self) -> bool {
        before.0.checked_add(1) == Some(self.0)
    }
}

impl From<Rv> for u64 {
    fn from(rv: Rv) -> Self {
        rv.0
    }
}

impl FromStr for Rv {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        text.parse().map(Self)
    }
}

impl fmt::Display for Rv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The sequence number of a source's call. The numbers of a source only increase.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sequence {
    /// The source.
    pub source: Source,
    /// The number.
    pub number: u64,
}

/// The fencing token of a lease: the number of the event that created the lease. The tokens of a queue only increase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Token(Rv);

impl Token {
    /// The token of the lease that this event created. No event has the number 0, so no lease has the token 0.
    #[must_use]
    pub const fn new(rv: Rv) -> Self {
        Self(rv)
    }

    /// The event that created the lease.
    #[must_use]
    pub const fn rv(self) -> Rv {
        self.0
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Index of a key's entry in the queue's table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(u32);

impl Slot {
    /// The first slot.
    pub const MIN: Self = Self(0);
    /// The last possible slot.
    pub const MAX: Self = Self(u32::MAX);

    /// The slot with this number.
    #[must_use]
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// The slot with this index; `None` if the index exceeds [`MAX`](Self::MAX).
    #[must_use]
    pub fn at(index: usize) -> Option<Self> {
        u32::try_from(index).ok().map(Self)
    }

    /// The slot's number.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The slot's number as an index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A name provided by a client. Its copies share the text.
macro_rules! names {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The name's text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// The text, which copies of the name share.
            #[must_use]
            pub fn shared(&self) -> &Arc<str> {
                &self.0
            }
        }

        impl Deref for $name {
            type Target = str;

            fn deref(&self) -> &str {
                &self.0
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl AsMut<Arc<str>> for $name {
            fn as_mut(&mut self) -> &mut Arc<str> {
                &mut self.0
            }
        }

        impl From<Arc<str>> for $name {
            fn from(text: Arc<str>) -> Self {
                Self(text)
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.into())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text.into())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    )*};
}

names! {
    /// The name of a producer, such as `erp`.
    Source
    /// The name of a worker.
    Worker
}
