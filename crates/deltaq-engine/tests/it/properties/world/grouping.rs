//! The groups of the engine and of the model.

use deltaq_engine::command::Progress;
use deltaq_engine::groups::GroupSort;

use super::{Difference, World, same, step_of, time};
use crate::model::{self, Micros};

impl World {
    /// A step of a walk that moves keys to other groups after a change of the settings.
    pub(super) fn regroup(&mut self, budget: usize) -> Result<(), Difference> {
        let (mut engine_walk, mut model_walk) = self.regroup.take().unwrap_or_default();
        let engine = self.engine.regroup_step(time(self.now), &mut engine_walk, budget);
        let model = self.model.regroup_step(self.now, &mut model_walk, budget);
        if matches!(engine, Progress::More) {
            self.regroup = Some((engine_walk, model_walk));
        }
        same("regroup", step_of(engine, |moved| moved), model)
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
        let groups =
            counts.groups.map(|groups| (groups.with_keys, groups.quiet_oldest_age.map(model::micros)));
        same("ready counts", (counts.keys, groups), model.ready_counts(now))?;
        Ok(())
    }
}
