//! Readers: lists of items, known objects and the state of queues, while other clients change them.

use super::client::Client;
use super::history::Operation;
use super::queues::QUEUES;
use crate::harness::blocking::Message;

/// A reader.
#[derive(Debug)]
pub(crate) struct Reader {
    pub(crate) client: Client,
}

impl Reader {
    pub(crate) fn new(client: Client) -> Self {
        Self { client }
    }

    /// Makes one call.
    pub(crate) fn step(&mut self) {
        let spec = &QUEUES[self.client.rng.usize(..QUEUES.len())];
        let (operation, path) = match self.client.rng.u32(..4) {
            0 => (Operation::Read, ""),
            1 => (Operation::Read, "/known?limit=5000"),
            _ => (Operation::Items, "/items?limit=5000"),
        };
        self.client.call(spec.name, operation, &Message::get(spec.path(path)));
    }
}
