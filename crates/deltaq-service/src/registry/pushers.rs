//! Which queues push.

use std::sync::Arc;

use tokio::sync::Notify;

use super::Registry;
use crate::pusher::Pusher;
use crate::queue::Handle;

/// The pushers of the queues.
#[derive(Debug, Default)]
pub(crate) struct Pushers {
    /// Wakes the task that runs them.
    pub(crate) changed: Notify,
    /// What pushes the keys of a queue; `None` in a registry that only stores.
    pub(crate) pusher: Option<Arc<dyn Pusher>>,
}

impl Registry {
    /// The same registry, whose queues are pushed by `pusher`.
    #[must_use]
    pub fn with_pusher(self, pusher: Arc<dyn Pusher>) -> Self {
        let pushers = Pushers { pusher: Some(pusher), ..Pushers::default() };
        Self { pushers, ..self }
    }

    /// Starts the task of a queue that now has the setting `push`.
    pub(super) fn note_push(&self, handle: &Handle) {
        if handle.config().push.is_some() {
            self.pushers.changed.notify_one();
        }
    }
}
