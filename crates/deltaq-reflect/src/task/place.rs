//! The place of a source that outlives the process: noted at a clean stop, and taken up by the next start.

use std::time::Duration;

use tokio::time::{Instant, timeout};
use tracing::debug;

use super::Task;
use crate::Error;
use crate::source::QueueState;

/// How long a stop may take to note the place.
const NOTE_MAX: Duration = Duration::from_secs(3);

impl Task {
    /// Continues where the last process has stopped, if the source can, and the queue has had no other call of it since. After a
    /// failure, a list follows, which reports it.
    pub(super) async fn resume(&mut self) {
        if self.source.keeps_place()
            && let Err(error) = self.try_resume().await
        {
            debug!(source = self.name, %error, "the place of the last process can't be read");
        }
    }

    async fn try_resume(&mut self) -> Result<(), Error> {
        let Some(queue) = self.queue_state().await? else { return Ok(()) };
        self.prepare().await?;
        let now_us = self.health.now_us();
        if let Some(relist_at_us) = self.source.resume(&queue, now_us).await? {
            let left = Duration::from_micros(relist_at_us.saturating_sub(now_us));
            self.relist_at = Instant::now() + left.min(self.settings.relist());
            self.health.resumed();
        }
        Ok(())
    }

    /// Notes the place for the next start. If this fails, the next start begins with a list.
    pub(super) async fn keep_place(&mut self) {
        if !self.source.keeps_place() || !self.source.has_position() {
            return;
        }
        match timeout(NOTE_MAX, self.try_keep_place()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => debug!(source = self.name, %error, "the place can't be noted"),
            Err(_) => debug!(source = self.name, "the place was not noted in time"),
        }
    }

    async fn try_keep_place(&mut self) -> Result<(), Error> {
        let Some(queue) = self.queue_state().await? else { return Ok(()) };
        let left = self.relist_at.saturating_duration_since(Instant::now());
        let left_us = u64::try_from(left.as_micros()).unwrap_or(u64::MAX);
        let relist_at_us = self.health.now_us().saturating_add(left_us);
        Ok(self.source.keep_place(queue, relist_at_us).await?)
    }

    /// What the queue has from the source; `None` if it knows neither the queue nor a call of the source.
    async fn queue_state(&mut self) -> Result<Option<QueueState>, Error> {
        let queue = self.client.queue(self.settings.queue.as_str());
        let found = match queue.get().await {
            Err(error) if error.code() == Some("queue-not-found") => return Ok(None),
            found => found.map_err(|error| self.queue_error(error))?,
        };
        let source = queue.source(self.name.as_str()).await.map_err(|error| self.queue_error(error))?;
        let sequence = source.and_then(|source| source.sequence);
        Ok(sequence.map(|sequence| QueueState { incarnation: found.incarnation, sequence }))
    }
}
