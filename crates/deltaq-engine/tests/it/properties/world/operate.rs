//! Promote, redrive and discard.

use deltaq_engine::command::{KeySelection, Progress};

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
        let (mut cursor, mut model_scan) =
            if names.is_none() { place.take().unwrap_or_default() } else { Default::default() };
        let keys = names.map(|names| names.iter().map(|name| key(name)).collect::<Vec<_>>());
        let (now, mut keys) = (time(self.now), KeySelection::named(keys));
        let mut step = || match operation {
            Operation::Promote => self.engine.promote_step(now, &mut keys, &mut cursor, budget),
            Operation::Redrive => self.engine.redrive_step(now, &mut keys, &mut cursor, budget),
            Operation::Discard => self.engine.discard_step(now, &mut keys, &mut cursor, budget),
        };
        let mut engine = step();
        while names.is_some() && matches!(engine, Progress::More) {
            engine = step();
        }
        let model = self.model.operate_step(self.now, names, &mut model_scan, budget, operation);
        if matches!(engine, Progress::More) {
            *place = Some((cursor, model_scan));
        }
        same("promote, redrive or discard", step_of(engine, |count| count), model)
    }
}
