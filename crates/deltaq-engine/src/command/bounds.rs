//! The bounds of a key in a queue that keeps every delta: a delta that does not fit is refused.
//!
//! Leased deltas count toward the bounds, so a failed delta always fits when its lease ends. The first delta of a key
//! always fits, and a Resync queues only first deltas. The tombstone of a Replace may exceed the bounds. A key has at
//! most one such tombstone, because a Replace does not delete a key that is already deleted.
//!
//! A Replace checks its whole list before it queues anything. While the Replace runs, a call with a version leaves
//! room for the listed object of its key, because that object may be newer than the call. The reserved size is that
//! of the longest object in the list.

use std::collections::HashMap;

use super::Call;
use crate::config::Config;
use crate::key::Key;
use crate::object::Object;
use crate::queue::Queue;
use crate::refusal::Refusal;

/// The size of a key's waiting and leased deltas.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HeldDeltas {
    deltas: usize,
    bytes: usize,
    /// Size in bytes of the newest object, which a Delete by key repeats in its delta.
    newest_bytes: usize,
}

impl HeldDeltas {
    /// Adds a delta, if the bounds allow it.
    fn add(&mut self, bytes: usize, key: &Key, config: &Config, index: usize) -> Result<(), Refusal> {
        let is_over = |limit: usize, size: usize| self.deltas > 0 && size > limit;
        let bounds = [
            ("max_deltas_per_key", config.max_deltas_per_key, self.deltas + 1),
            ("max_bytes_per_key", config.max_bytes_per_key, self.bytes + bytes),
        ];
        if let Some((field, limit, _)) = bounds.into_iter().find(|(_, limit, size)| is_over(*limit, *size)) {
            return Err(Refusal::KeyFull { field, limit, key: key.clone(), index });
        }
        self.deltas += 1;
        self.bytes += bytes;
        self.newest_bytes = bytes;
        Ok(())
    }
}

impl Queue {
    /// Refuses calls whose deltas do not fit, if the queue keeps every delta. Each call is paired with its index.
    pub(super) fn check_bounds<'c>(
        &self,
        calls: impl Iterator<Item = (usize, &'c Call)>,
    ) -> Result<(), Refusal> {
        let config = &self.state().config;
        if !config.rules().keeps_every_delta {
            return Ok(());
        }
        let mut held: HashMap<&Key, HeldDeltas> = HashMap::new();
        for (index, call) in calls {
            let held = held.entry(&call.key).or_insert_with(|| self.held_and_planned(call));
            let bytes = call.object.as_ref().map_or(held.newest_bytes, Object::bytes);
            held.add(bytes, &call.key, config, index)?;
        }
        Ok(())
    }

    /// Refuses a listed object of a Replace that does not fit, if the queue keeps every delta.
    pub(super) fn check_bounds_of_item(
        &self,
        key: &Key,
        object: &Object,
        index: usize,
    ) -> Result<(), Refusal> {
        let config = &self.state().config;
        if !config.rules().keeps_every_delta {
            return Ok(());
        }
        self.held_deltas(key).add(object.bytes(), key, config, index)
    }

    /// The deltas of the key of a call, and the object of a running Replace for which the call leaves room. A call
    /// without a version is newer than the list, so it leaves no room.
    fn held_and_planned(&self, call: &Call) -> HeldDeltas {
        let mut held = self.held_deltas(&call.key);
        let running = self.volatile.replace_jobs.front().filter(|_| call.version.is_some());
        if let Some(job) = running.filter(|job| job.needs_room(&call.key)) {
            held.deltas += 1;
            held.bytes += job.longest_bytes;
        }
        held
    }

    fn held_deltas(&self, key: &Key) -> HeldDeltas {
        self.state().table.get(key.as_str()).map_or_else(HeldDeltas::default, |entry| HeldDeltas {
            deltas: entry.waiting.len() + entry.leased.len(),
            bytes: entry.waiting.bytes() + entry.leased.bytes(),
            newest_bytes: entry.newest_object().map_or(0, Object::bytes),
        })
    }
}
