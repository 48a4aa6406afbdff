//! Deliveries of webhooks and CloudEvents: each id is applied once, and what can't be applied is kept.

use std::collections::HashSet;
use std::sync::Arc;

use super::{Call, Expected, Produced};
use crate::deliveries::{DeliveryId, KeptDelivery, UnappliedDelivery};
use crate::event::EventKind;
use crate::id::Rv;
use crate::queue::Queue;
use crate::refusal::Refusal;
use crate::time::Time;

/// The result of a delivery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delivered {
    /// The result of the calls that were applied.
    pub produced: Produced,
    /// Number of calls whose id had been applied.
    pub repeated: u64,
}

impl Queue {
    /// Like [`produce`](Self::produce), but applies each id once, and only if all of `expected` holds. The ids
    /// are those of the calls, in their order.
    ///
    /// # Errors
    /// Same as [`produce`](Self::produce).
    pub fn deliver(
        &mut self,
        now: Time,
        calls: &[Call],
        ids: &[Option<DeliveryId>],
        expected: &[Expected],
    ) -> Result<Delivered, Refusal> {
        let mut fresh = HashSet::new();
        let is_fresh = |id: &Option<DeliveryId>| {
            id.is_none_or(|id| !self.state().deliveries.has(id) && fresh.insert(id))
        };
        let are_fresh: Vec<bool> = ids.iter().map(is_fresh).collect();
        let some: Vec<Call>;
        let applied = if are_fresh.iter().all(|is_fresh| *is_fresh) {
            calls
        } else {
            let pairs = calls.iter().zip(&are_fresh);
            some = pairs.filter(|(_, is_fresh)| **is_fresh).map(|(call, _)| call.clone()).collect();
            &some
        };
        let repeated = (calls.len() - applied.len()) as u64;
        if applied.is_empty() {
            self.volatile.comparison = None;
            self.volatile.effects.counters.ignored_repeated += repeated;
            let resource_version = self.state().rv;
            let produced = Produced { resource_version, duplicate: true, ..Produced::default() };
            return Ok(Delivered { produced, repeated });
        }
        let produced = self.produce_once(now, applied, None, expected);
        let produced = produced.map_err(|refusal| in_request(refusal, &are_fresh))?;
        self.volatile.effects.counters.ignored_repeated += repeated;
        let now = self.advance(now);
        for id in ids.iter().zip(are_fresh).filter_map(|(id, is_fresh)| id.filter(|_| is_fresh)) {
            self.emit(now, EventKind::DeliveryReceived { id });
        }
        let resource_version = self.state().rv;
        Ok(Delivered { produced: Produced { resource_version, ..produced }, repeated })
    }

    /// Keeps a delivery that can't be applied. Returns its number.
    ///
    /// # Errors
    /// [`Refusal::MemoryFull`].
    pub fn keep_delivery(&mut self, now: Time, delivery: Arc<UnappliedDelivery>) -> Result<Rv, Refusal> {
        self.check_memory_of_delivery(&delivery)?;
        let now = self.advance(now);
        self.emit(now, EventKind::DeliveryKept { delivery });
        Ok(self.state().rv)
    }

    /// Keeps deliveries no longer. Returns how many there were.
    pub fn drop_deliveries(&mut self, now: Time, numbers: &[Rv]) -> u64 {
        let now = self.advance(now);
        let mut dropped = 0;
        for number in numbers {
            if self.state().deliveries.kept().any(|kept| kept.rv == *number) {
                self.emit(now, EventKind::DeliveryDropped { number: *number });
                dropped += 1;
            }
        }
        dropped
    }

    /// The kept deliveries, oldest first.
    pub fn kept_deliveries(&self) -> impl DoubleEndedIterator<Item = &KeptDelivery> + ExactSizeIterator {
        self.state().deliveries.kept()
    }

    /// Number of kept deliveries, apart from those that are left out on purpose.
    #[must_use]
    pub fn unapplied_deliveries(&self) -> usize {
        self.state().deliveries.kept().filter(|kept| !kept.delivery.is_filtered).count()
    }

    /// Whether a delivery with this id was applied.
    #[must_use]
    pub fn has_delivered(&self, id: DeliveryId) -> bool {
        self.state().deliveries.has(id)
    }
}

/// Names a call by its index in the request: the command counts only those whose ids are new.
fn in_request(mut refusal: Refusal, are_fresh: &[bool]) -> Refusal {
    if let Refusal::KeyFull { index, .. } | Refusal::ObjectTooLarge { index, .. } = &mut refusal {
        let fresh = are_fresh.iter().enumerate().filter(|(_, is_fresh)| **is_fresh);
        *index = fresh.map(|(at, _)| at).nth(*index).unwrap_or(*index);
    }
    refusal
}
