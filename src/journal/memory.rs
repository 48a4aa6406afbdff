//! A journal in memory whose commits a test can hold back or fail.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use super::{Commit, Error, Journal, Progress};
use crate::engine::event::Event;
use crate::name::Name;

/// Keeps all events of all queues. Clones are the same journal.
#[derive(Clone, Debug)]
pub struct Memory {
    state: Arc<Mutex<State>>,
    progress: watch::Sender<Progress>,
}

#[derive(Debug, Default)]
struct State {
    events: BTreeMap<Name, Vec<Event>>,
    appended: u64,
    held: bool,
}

impl Memory {
    /// An empty journal that commits at once.
    #[must_use]
    pub fn new() -> Self {
        Self { state: Arc::default(), progress: watch::Sender::new(Ok(0)) }
    }

    /// Commits come no more until [`release`](Self::release) or [`fail`](Self::fail).
    pub fn hold(&self) {
        self.lock().held = true;
    }

    /// Lets the commits come that were held back, and all later ones at once.
    pub fn release(&self) {
        let mut state = self.lock();
        state.held = false;
        let _before = self.progress.send_replace(Ok(state.appended));
    }

    /// Fails every commit that has not come, and all later ones.
    pub fn fail(&self) {
        let _before = self.progress.send_replace(Err(Error::OutcomeUnknown));
    }

    /// All events of a queue, oldest first.
    #[must_use]
    pub fn events(&self, queue: &Name) -> Vec<Event> {
        self.lock().events.get(queue).cloned().unwrap_or_default()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl Journal for Memory {
    fn append(&self, queue: &Name, events: Vec<Event>) -> Commit {
        let mut state = self.lock();
        state.appended += 1;
        let number = state.appended;
        state.events.entry(queue.clone()).or_default().extend(events);
        if !state.held && self.progress.borrow().is_ok() {
            let _before = self.progress.send_replace(Ok(number));
        }
        Commit::at(number, self.progress.subscribe())
    }
}
