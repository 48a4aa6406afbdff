//! The end of the process, and its start from what was written until then.

use deltaq::engine::Queue;

use super::{Difference, Setup, World, empty, same, time};
use crate::model::Model;

/// A point to which a world can return.
pub(crate) struct Past {
    model: Model,
    setup: Setup,
    pub(crate) events: usize,
}

impl World {
    /// The process ends and starts again: what is not in the events is lost.
    pub(super) fn crash(&mut self, unclean: bool) -> Result<(), Difference> {
        let engine = self.as_of(self.events.len());
        same("after a crash", engine.image(), self.engine.image())?;
        self.start_again(engine, unclean);
        Ok(())
    }

    fn start_again(&mut self, engine: Queue, unclean: bool) {
        self.engine = engine;
        self.engine.recover(time(self.now), unclean);
        self.model.crash(self.now, unclean);
        self.runs.clear();
        (self.resync, self.purge, self.redrive, self.discard) = (None, None, None, None);
    }

    /// The queue that the first events give.
    pub(crate) fn as_of(&self, events: usize) -> Queue {
        let mut queue = empty(self.first);
        for event in &self.events[..events] {
            queue.apply(event);
        }
        queue
    }

    /// What returning to this point needs.
    pub(crate) fn past(&self) -> Past {
        Past { model: self.model.clone(), setup: self.setup, events: self.events.len() }
    }

    /// The process ends and starts again with `engine`. What happened after `past` is forgotten, except by callers that got a reply.
    pub(crate) fn fall_back(&mut self, past: Past, engine: Queue, unclean: bool) -> Result<(), Difference> {
        self.twin = self.as_of(past.events);
        self.events.truncate(past.events);
        (self.model, self.setup) = (past.model, past.setup);
        self.synced = engine.has_synced();
        self.start_again(engine, unclean);
        self.engine.set_committed(self.engine.resource_version());
        self.model.committed = self.model.rv;
        self.replay()?;
        self.compare(true)
    }
}
