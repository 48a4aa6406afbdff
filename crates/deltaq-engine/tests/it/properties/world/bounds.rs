//! Mode events: no key gets more deltas than the bound allows, except for one tombstone of a Replace.

use std::collections::BTreeMap;

use deltaq_types::Mode;

use super::{Difference, World};
use crate::model::{ModelDelta, Name};

/// The bound, and how many deltas each key had after the last step.
#[derive(Clone, Debug, Default)]
pub(super) struct Bounds {
    /// The largest `max_deltas_per_key` since no Replace was running.
    bound: usize,
    deltas: BTreeMap<Name, usize>,
}

impl World {
    /// Checks the keys that have more deltas than after the last step.
    pub(super) fn check_bounds(&mut self) -> Result<(), Difference> {
        let config = &self.model.config;
        let before = std::mem::take(&mut self.bounds);
        if config.mode != Mode::Events {
            return Ok(());
        }
        let during = if self.model.jobs.is_empty() { 0 } else { before.bound };
        let bound = config.max_deltas_per_key.max(during);
        for (name, item) in &self.model.items {
            let deltas = item.waiting.len() + item.leased.len();
            let is_tombstone = |newest: &ModelDelta| newest.is_deleted() && newest.final_state_unknown;
            // A bound that became smaller leaves the deltas that the key has.
            let allowed = bound.max(before.deltas.get(name).copied().unwrap_or_default());
            if deltas > allowed + usize::from(item.waiting.last().is_some_and(is_tombstone)) {
                return Err(format!("key {name} has {deltas} deltas, and the bound is {bound}"));
            }
            self.bounds.deltas.insert(name, deltas);
        }
        self.bounds.bound = bound;
        Ok(())
    }
}
