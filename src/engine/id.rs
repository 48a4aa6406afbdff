//! The numbers and names in a queue, each with a type of its own, so that the compiler tells them apart.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The number of an event of a queue.
pub type Rv = u64;

/// The fencing token of a lease: the number of the event that created the lease. Tokens of a queue only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Token(Rv);

impl Token {
    /// The token of the lease that this event created. No event has the number 0, so no lease has the token of 0.
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

    /// The slot with this index; `None` behind [`MAX`](Self::MAX).
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

/// A name that a client gives. Its copies share the text.
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
