//! The port to durable storage: events go in, in order; replies wait until theirs are durable.
//!
//! It is not a store of objects and knows no rule of a queue. A service without a journal keeps
//! everything in memory only.
//!
//! Architecture invariant: nothing but an adapter of this port knows where events are kept.

pub mod memory;

use std::fmt;

use tokio::sync::watch;

use crate::engine::event::Event;
use crate::name::Name;

/// Takes events and says when they are durable.
pub trait Journal: fmt::Debug + Send + Sync + 'static {
    /// Takes the next events of a queue. It is called under the queue's lock, so it only pushes;
    /// for one queue, calls come in the order of the events.
    fn append(&self, queue: &Name, events: Vec<Event>) -> Commit;
}

/// Why a commit did not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The journal failed. Whether the events are durable is unknown.
    #[error("the journal could not confirm the write")]
    OutcomeUnknown,
}

/// A point in the journal that a reply waits for. Cloning it waits for the same point.
#[derive(Clone, Debug, Default)]
pub struct Commit(Option<Point>);

#[derive(Clone, Debug)]
struct Point {
    number: u64,
    progress: watch::Receiver<Progress>,
}

/// How far a journal is: everything up to this number is durable, or nothing more will be.
pub type Progress = Result<u64, Error>;

impl Commit {
    /// A commit that has come already.
    #[must_use]
    pub const fn done() -> Self {
        Self(None)
    }

    /// A commit that comes when `progress` reaches `number`.
    #[must_use]
    pub const fn at(number: u64, progress: watch::Receiver<Progress>) -> Self {
        Self(Some(Point { number, progress }))
    }

    /// Waits until the events are durable.
    ///
    /// # Errors
    /// [`Error::OutcomeUnknown`] if that can't be told.
    pub async fn wait(self) -> Result<(), Error> {
        let Some(Point { number, mut progress }) = self.0 else { return Ok(()) };
        let reached = |progress: &Progress| progress.map_or(true, |durable| durable >= number);
        match progress.wait_for(reached).await {
            Ok(progress) => progress.map(drop),
            Err(_) => Err(Error::OutcomeUnknown),
        }
    }
}
