#![doc = include_str!("../README.md")]
#![warn(missing_docs, clippy::missing_errors_doc, clippy::must_use_candidate)]

mod call;
mod client;
pub mod deltaqtest;
mod error;
mod informer;
mod list;
mod log;
mod middleware;
#[cfg(feature = "otel")]
pub mod otel;
mod panic;
mod queue;
mod reflector;
mod request;
mod retry;
mod server;
mod servers;
#[cfg(test)]
mod table;
mod tls;
mod token;
mod worker;

pub use self::call::{Body, Call};
pub use self::client::{Client, ClientOptions, Reply};
pub use self::error::{BoxError, Error};
pub use self::informer::{
    Deleted, DeletedFinalStateUnknown, Handler, Handlers, Informer, InformerError, InformerNotice, Object,
    Registration, Store, SyncSignal, wait_for_cache_sync,
};
pub use self::list::List;
pub use self::log::{Level, Log};
pub use self::middleware::{Answer, Boxed, CallMiddleware, Middleware, Next};
pub use self::queue::{
    Add, Close, Delete, DeleteQueue, Deltas, GetGroups, GetObject, ListAllSources, ListQueues,
    ListReflectors, PatchSettings, Pop, Producer, PutSettings, Queue, ReplaceOptions, Rows, Selection,
    Synced, Update, View, Watch,
};
pub use self::reflector::{Event, Reflector, ReflectorError, ReflectorOptions, Report, Step};
pub use self::retry::{Backoff, ReflectorBackoff, RetryOptions, pauses_without_queue};
pub use self::token::TokenSource;
pub use self::worker::{HandlerMiddleware, Job, Loss, Notice, Outcome, Worker, WorkerReport};
pub use deltaq_types as types;
pub use http::Method;
pub use serde_json::value::RawValue;
pub use tokio_util::sync::CancellationToken;
