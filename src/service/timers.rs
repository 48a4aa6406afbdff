//! One timer per queue: it sleeps until the engine's next deadline, then lets time pass.

use std::sync::Arc;

use super::handle::Handle;
use super::{Error, SLICE_KEYS};
use crate::engine::Sweep;

/// Lets everything happen at its time, until the queue is gone or the service drains.
pub(super) async fn run(handle: Arc<Handle>) {
    while let Ok((resync_due, next)) = handle.tick() {
        if resync_due {
            resync(&handle).await;
            continue;
        }
        let sleep = next.map(|next| handle.clock().until(next.as_micros()));
        tokio::select! {
            () = handle.timer.notified() => {}
            () = tokio::time::sleep(sleep.unwrap_or_default()), if sleep.is_some() => {}
            () = handle.shutdown().draining().cancelled() => return,
        }
    }
}

async fn resync(handle: &Arc<Handle>) {
    let mut sweep = Sweep::default();
    let resynced = handle.sliced(move |queue, now| queue.resync_step(now, &mut sweep, SLICE_KEYS)).await;
    if let Err(error) = resynced
        && error != Error::QueueDeleted
    {
        tracing::warn!(queue = %handle.name(), %error, "the periodic resync failed");
    }
}
