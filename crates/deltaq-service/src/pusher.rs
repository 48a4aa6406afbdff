//! What pushes the keys of queues. The service knows no HTTP.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::queue::Handle;

/// Pushes the keys of queues.
pub trait Pusher: fmt::Debug + Send + Sync {
    /// Pushes the keys of a queue while it has the setting `push`. Begins nothing new once the setting is gone, the queue has ended or the
    /// shutdown has begun, and ends when no request is in flight.
    fn push(&self, handle: Arc<Handle>) -> BoxFuture<'static, ()>;
}
