//! Events that do not fit.

use std::fmt;

use crate::event::Event;
use crate::id::Rv;

/// An event that does not fit the state of its queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// The event's number.
    pub rv: Rv,
    /// The event's type.
    pub event: String,
    /// The key that the event is about.
    pub key: Option<String>,
    /// The part of the state that the event contradicts.
    pub reason: &'static str,
}

impl Misfit {
    #[cold]
    pub(super) fn new(event: &Event, reason: &'static str) -> Self {
        // The output of `Debug` begins with the name of the variant.
        let mut name = format!("{:?}", event.kind);
        name.truncate(name.find(|c: char| !c.is_alphanumeric()).unwrap_or(name.len()));
        let key = event.kind.key().map(ToString::to_string);
        Self { rv: event.rv, event: name, key, reason }
    }
}

impl std::error::Error for Misfit {}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rv, event, key, reason } = self;
        write!(f, "event {rv} ({event}")?;
        if let Some(key) = key {
            write!(f, " of key {key:?}")?;
        }
        write!(f, ") does not fit the state of the queue: {reason}")
    }
}
