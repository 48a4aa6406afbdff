//! Promote, redrive and discard.

use deltaq_engine::command::{KeySelection, Progress, SelectedKeys};

use super::*;

impl World {
    pub(super) fn operate(
        &mut self,
        names: Option<&[Name]>,
        budget: usize,
        operation: Operation,
    ) -> Result<(), Difference> {
        let place = match operation {
            Operation::Promote => &mut self.promote,
            Operation::Redrive => &mut self.redrive,
            Operation::Discard => &mut self.discard,
        };
        let fresh = || {
            let keys = names.map(|names| names.iter().map(|name| key(name)).collect::<Vec<_>>());
            (KeySelection::named(keys).into(), ModelScan::default())
        };
        let under_way = names.is_none().then(|| place.take()).flatten();
        let (mut keys, mut model_scan): (SelectedKeys, _) = under_way.unwrap_or_else(fresh);
        let now = time(self.now);
        let mut step = || {
            let progress = match operation {
                Operation::Promote => self.engine.promote_step(now, &mut keys, budget),
                Operation::Redrive => self.engine.redrive_step(now, &mut keys, budget),
                Operation::Discard => self.engine.discard_step(now, &mut keys, budget),
            };
            progress.expect("no number of keys is expected")
        };
        let mut engine = step();
        while names.is_some() && matches!(engine, Progress::More) {
            engine = step();
        }
        let model = self.model.operate_step(self.now, names, &mut model_scan, budget, operation);
        if matches!(engine, Progress::More) {
            *place = Some((keys, model_scan));
        }
        same("promote, redrive or discard", step_of(engine, |selected| selected.keys), model)
    }
}
