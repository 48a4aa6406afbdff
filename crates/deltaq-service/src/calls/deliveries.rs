//! Deliveries of webhooks and CloudEvents.

use std::sync::Arc;

use deltaq_engine::command::{Call, Delivered, Expected};
use deltaq_engine::config::Config;
use deltaq_engine::deliveries::{DeliveryId, KeptDelivery, UnappliedDelivery};
use deltaq_engine::id::Rv;
use deltaq_engine::refusal::Refusal;

use crate::Error;
use crate::queue::Handle;

impl Handle {
    /// Applies the calls whose ids were not applied before, all or none. Their keys were read with the settings `config`.
    ///
    /// # Errors
    /// Same as [`produce`](Self::produce).
    pub async fn deliver(
        self: &Arc<Self>,
        config: &Config,
        calls: &[Call],
        ids: &[Option<DeliveryId>],
        expected: &[Expected],
    ) -> Result<Delivered, Error> {
        let comparison = self.compared(config, calls).await?;
        let (delivered, commit) = self.change(|state, now| {
            let queue = &mut state.queue;
            queue.check_config(config)?;
            self.set_room(queue);
            if let Some(comparison) = comparison {
                queue.set_comparison(comparison);
            }
            let delivered = queue.deliver(now, calls, ids, expected)?;
            self.note_contacts(state, calls, None, now);
            Ok(delivered)
        })?;
        commit.wait().await?;
        delivered.map_err(|refusal: Refusal| refusal.into())
    }

    /// Keeps a delivery that can't be applied, unless its id was applied before. Returns whether it is kept, and its number or
    /// the version of the queue.
    ///
    /// # Errors
    /// [`Refusal::MemoryFull`]; [`Error::QueueDeleted`] or [`Error::Journal`].
    pub async fn keep_delivery(
        self: &Arc<Self>,
        delivery: Arc<UnappliedDelivery>,
    ) -> Result<(bool, Rv), Error> {
        let kept = self.command(|queue, now| {
            if delivery.id.is_some_and(|id| queue.has_delivered(id)) {
                return Ok((false, queue.resource_version()));
            }
            self.set_room(queue);
            queue.keep_delivery(now, delivery).map(|number| (true, number))
        });
        kept.await?.map_err(|refusal: Refusal| refusal.into())
    }

    /// The version of the queue if a delivery with this id was applied.
    ///
    /// # Errors
    /// [`Error::QueueDeleted`] or [`Error::Journal`].
    pub async fn delivered_by(&self, id: DeliveryId) -> Result<Option<Rv>, Error> {
        self.read(|queue, _| queue.has_delivered(id).then(|| queue.resource_version())).await
    }

    /// Keeps these deliveries no longer. Returns how many there were.
    ///
    /// # Errors
    /// [`Error::QueueDeleted`] or [`Error::Journal`].
    pub async fn drop_deliveries(self: &Arc<Self>, numbers: &[Rv]) -> Result<u64, Error> {
        self.command(|queue, now| queue.drop_deliveries(now, numbers)).await
    }

    /// The kept deliveries, the newest first.
    ///
    /// # Errors
    /// [`Error::QueueDeleted`] or [`Error::Journal`].
    pub async fn kept_deliveries(&self) -> Result<Vec<KeptDelivery>, Error> {
        self.read(|queue, _| queue.kept_deliveries().rev().cloned().collect()).await
    }
}
