//! One timer per queue: it sleeps until the engine's next deadline, then lets time pass.

use std::sync::Arc;
use std::time::Duration;

use super::handle::{Handle, Tick};
use super::{Error, JournalError, SLICE_KEYS};
use crate::engine::ScanCursor;

/// How long the timer waits while the journal has no room for events.
const BACKLOG_WAIT: Duration = Duration::from_millis(100);

/// Lets everything happen at its time, until the queue is gone or the service drains.
pub(super) async fn run(handle: Arc<Handle>) {
    loop {
        let (next, commit) = match handle.tick() {
            Ok(Tick { resync_due: true, .. }) => {
                resync(&handle).await;
                continue;
            }
            Ok(Tick { next, commit, .. }) => (next, commit),
            // Nothing tells when there is room again.
            Err(Error::Journal(JournalError::Backlog { .. })) => {
                tokio::select! {
                    biased;
                    () = tokio::time::sleep(BACKLOG_WAIT) => {}
                    () = handle.shutdown().draining().cancelled() => return,
                }
                continue;
            }
            // It is woken once the journal is back.
            Err(Error::Journal(_)) => (None, None),
            Err(_) => return,
        };
        let sleep = next.map(|next| handle.until(next));
        tokio::select! {
            biased;
            () = handle.timer.notified() => {}
            () = tokio::time::sleep(sleep.unwrap_or_default()), if sleep.is_some() => {}
            _ = commit.clone().unwrap_or_default().wait(), if commit.is_some() => {}
            () = handle.shutdown().draining().cancelled() => return,
        }
    }
}

async fn resync(handle: &Arc<Handle>) {
    let mut cursor = ScanCursor::default();
    let resynced = handle.sliced(move |queue, now| queue.resync_step(now, &mut cursor, SLICE_KEYS)).await;
    if let Err(error) = resynced
        && error != Error::QueueDeleted
    {
        tracing::warn!(queue = %handle.name(), %error, "the periodic resync failed");
    }
}
