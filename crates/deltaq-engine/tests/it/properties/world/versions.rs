//! The versions of objects.

use deltaq_engine::object_version::ObjectVersion;

use super::{Difference, World, object, same};

impl World {
    /// The version of an object by the present settings.
    pub(super) fn version(&self, content: u8) -> Option<ObjectVersion> {
        ObjectVersion::read(self.engine.config().version.as_ref()?, &object(content)).ok()
    }

    /// Compares the remembered versions.
    pub(super) fn compare_versions(&self) -> Result<(), Difference> {
        let engine = self.engine.queue_state().versions;
        let engine = engine
            .iter()
            .map(|one| (one.key.to_string(), one.rv.get(), one.at.as_micros(), one.before.is_some()));
        let mut engine: Vec<_> = engine.collect();
        engine.sort();
        let model = self.model.remembered.iter();
        let model = model.map(|(key, one)| ((*key).to_owned(), one.rv, one.at, one.before.is_some()));
        same("remembered versions", engine, model.collect())
    }
}
