//! Crashes of the process and restarts from the written rows and events.

use deltaq_engine::Queue;
use deltaq_engine::lives::{Birth, LifeId};

use super::bounds::Bounds;
use super::{Difference, Setup, World, empty, same, time};
use crate::model::Model;

/// A state to which a world can return.
pub(crate) struct SavedState {
    model: Model,
    setup: Setup,
    bounds: Bounds,
    pub(crate) events: usize,
}

impl World {
    /// Restarts the process from the events alone.
    pub(super) fn crash(&mut self, ahead: u64) -> Result<(), Difference> {
        let engine = self.as_of(self.events.len());
        same("after a crash", engine.image(), self.engine.image())?;
        self.restart(engine, ahead);
        Ok(())
    }

    /// `ahead` is how far the floor of the next life is above the newest number.
    fn restart(&mut self, engine: Queue, ahead: u64) {
        self.engine = engine;
        let floor = self.engine.resource_version().plus(ahead);
        let life = u32::try_from(self.engine.queue_state().lives.len()).unwrap_or_default();
        let birth = Birth { id: LifeId::new(life), floor };
        self.engine.recover(time(self.now), birth).expect("there are numbers left");
        self.model.crash(self.now, ahead, life.into());
        self.jobs.clear();
        (self.resync, self.purge, self.redrive, self.discard) = (None, None, None, None);
    }

    /// The queue that the first `events` give.
    pub(crate) fn as_of(&self, events: usize) -> Queue {
        let mut queue = empty(self.first);
        for event in &self.events[..events] {
            queue.apply(event);
        }
        queue
    }

    /// Saves the current state.
    pub(crate) fn save(&self) -> SavedState {
        SavedState {
            model: self.model.clone(),
            setup: self.setup,
            bounds: self.bounds.clone(),
            events: self.events.len(),
        }
    }

    /// Restarts the process with `engine`. All changes after `saved` are lost; the tokens that callers got stay issued.
    pub(crate) fn restore(&mut self, saved: SavedState, engine: Queue, ahead: u64) -> Result<(), Difference> {
        self.rebuilt = self.as_of(saved.events);
        self.events.truncate(saved.events);
        self.readers.roll_back(&self.rebuilt);
        (self.model, self.setup, self.bounds) = (saved.model, saved.setup, saved.bounds);
        self.synced = engine.has_synced();
        self.restart(engine, ahead);
        self.engine.set_committed(self.engine.resource_version());
        self.model.committed = self.model.rv;
        self.replay()?;
        self.compare(true)
    }
}
