//! What events change in the remembered versions and in the deliveries.

use super::Reason;
use crate::deliveries::{KeptDelivery, ReceivedDelivery};
use crate::event::EventKind;
use crate::remembered::RememberedVersions;
use crate::snapshot::RememberedVersion;
use crate::state::State;
use crate::time::Time;

impl State {
    /// Applies the event's effect on the deliveries.
    pub(super) fn apply_to_deliveries(&mut self, kind: &EventKind, at: Time) -> Result<(), Reason> {
        match kind {
            EventKind::DeliveryReceived { id } => {
                let is_new = self.deliveries.receive(ReceivedDelivery { at, id: *id });
                return is_new.then_some(()).ok_or("the delivery has been received before");
            }
            EventKind::DeliveryKept { delivery } => {
                self.deliveries.keep(KeptDelivery { rv: self.rv, at, delivery: delivery.clone() });
            }
            EventKind::DeliveryDropped { number } => self.deliveries.drop_kept(*number),
            _ => {}
        }
        Ok(())
    }

    /// Applies the event's effect on the remembered versions.
    pub(super) fn apply_to_versions(&mut self, kind: &EventKind, at: Time) -> Result<(), Reason> {
        match kind {
            EventKind::VersionRemembered { key, version, before } => {
                let (key, version, before, rv) = (key.clone(), version.clone(), before.clone(), self.rv);
                if !self.versions.remember(RememberedVersion { rv, at, key, version, before }) {
                    return Err("the key has a remembered version that is not older");
                }
            }
            EventKind::Removed { key, keeps_version: false } => self.versions.fall_back(key),
            EventKind::Seeded { key, .. } => drop(self.versions.forget(key)),
            EventKind::Configured { config, .. } if self.config.version != config.version => {
                self.versions = RememberedVersions::default();
            }
            _ => {}
        }
        Ok(())
    }
}
