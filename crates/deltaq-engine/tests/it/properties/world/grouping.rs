//! The groups of the engine and of the model.

use deltaq_engine::ScanCursor;
use deltaq_engine::command::Progress;
use deltaq_engine::groups::GroupSort;

use super::{Difference, World, same, time};
use crate::model::{self, Micros};

impl World {
    /// Moves keys to other groups after a change of the settings.
    pub(super) fn regroup(&mut self, budget: usize) -> Result<(), Difference> {
        let mut cursor = ScanCursor::default();
        let engine = loop {
            let step = self.engine.regroup_step(time(self.now), &mut cursor, budget);
            if let Progress::Done(moved) = step {
                break moved;
            }
        };
        same("regroup", engine, self.model.regroup_all(self.now))
    }

    pub(super) fn compare_groups(&self, now: Micros) -> Result<(), Difference> {
        let model = &self.model;
        let groups = self.engine.groups(time(now), GroupSort::Ready, usize::MAX).map(|list| {
            let counts = list
                .groups
                .into_iter()
                .map(|group| (group.name.as_deref().map(str::to_owned), (group.ready, group.leased)));
            counts.filter(|(_, counts)| *counts != (0, 0)).collect()
        });
        same("groups", groups, model.config.groups.as_ref().map(|_| model.group_counts()))?;
        let counts = self.engine.ready_counts(time(now));
        let groups = counts
            .groups
            .map(|groups| (groups.with_keys.numbers(), groups.quiet_oldest_age.map(model::micros)));
        same("ready counts", (counts.keys.numbers(), groups), model.ready_counts(now))?;
        Ok(())
    }
}
