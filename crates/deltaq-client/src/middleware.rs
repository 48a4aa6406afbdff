//! Functions around the calls of a client and around the handler of a worker.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use reqwest::header::HeaderMap;

use crate::call::Call;
use crate::error::Error;

/// A future of middleware.
pub type Boxed<R> = Pin<Box<dyn Future<Output = R> + Send>>;
/// Middleware around each call of a client, with its repeats: [`ClientOptions::middleware`](crate::ClientOptions::middleware). Streams, such as
/// a watch, and the calls of workers have none.
pub type CallMiddleware = Middleware<Call, Result<Answer, Error>>;

type Around<T, R> = dyn Fn(T, Next<T, R>) -> Boxed<R> + Send + Sync;

/// A function around another one.
pub struct Middleware<T, R>(Arc<Around<T, R>>);

/// What middleware is around: the next middleware, or the call or the handler itself.
pub struct Next<T, R>(Box<dyn FnOnce(T) -> Boxed<R> + Send>);

/// The reply to a call, as middleware passes it on.
#[derive(Debug)]
pub struct Answer {
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) attempts: u32,
}

impl Answer {
    /// How often the call was sent.
    #[must_use]
    pub const fn attempts(&self) -> u32 {
        self.attempts
    }
}

impl<T: Send + 'static, R: 'static> Middleware<T, R> {
    /// Middleware that runs a function, which calls [`Next::run`] once.
    pub fn new<A, F>(around: A) -> Self
    where
        A: Fn(T, Next<T, R>) -> F + Send + Sync + 'static,
        F: Future<Output = R> + Send + 'static,
    {
        Self(Arc::new(move |value, next| Box::pin(around(value, next))))
    }

    /// A function inside all middleware, of which the first is the outermost.
    pub(crate) fn wrap(all: &[Self], inner: impl FnOnce(T) -> Boxed<R> + Send + 'static) -> Next<T, R> {
        all.iter().rev().cloned().fold(Next(Box::new(inner)), |next, Self(around)| {
            Next(Box::new(move |value| around(value, next)))
        })
    }
}

impl<T, R> Next<T, R> {
    /// Runs it.
    pub fn run(self, value: T) -> Boxed<R> {
        (self.0)(value)
    }
}

impl<T, R> Clone for Middleware<T, R> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T, R> fmt::Debug for Middleware<T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Middleware")
    }
}

impl<T, R> fmt::Debug for Next<T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Next")
    }
}
