//! A limit on time for what is mostly there at once.

use std::pin::pin;
use std::time::Duration;

use futures_util::FutureExt as _;

/// It took longer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Elapsed;

/// What comes of `future` within `limit`. No clock is read, and no timer set, for what need not be waited for.
pub(super) async fn in_time<T>(limit: Duration, future: impl Future<Output = T>) -> Result<T, Elapsed> {
    let mut future = pin!(future);
    match future.as_mut().now_or_never() {
        Some(out) => Ok(out),
        None => tokio::time::timeout(limit, future).await.map_err(|_| Elapsed),
    }
}
