//! A client of deltaq's HTTP API.
//!
//! [`Client`] knows how to reach a server: its address, its certificate authority, a token. [`Client::queue`] is a queue with typed
//! calls, which are repeated after failures that may pass. A [`Reflector`] keeps a queue in step with a source. A [`Call`] is any
//! other request. [`Error`] tells a refusal by the server, with its problem document, from a failed connection.

mod call;
mod client;
mod error;
mod list;
mod queue;
mod reflector;
mod request;
mod retry;
mod server;

pub use self::call::{Body, Call};
pub use self::client::{Client, ClientOptions, Reply};
pub use self::error::Error;
pub use self::list::List;
pub use self::queue::{
    Add, Close, Delete, Deltas, GetObject, ListQueues, Pop, Producer, Queue, ReplaceOptions, Rows, Synced,
    Update, View, Watch,
};
pub use self::reflector::{Event, Reflector, ReflectorError, ReflectorOptions, Report, Step};
pub use self::retry::{Backoff, RetryOptions};
pub use deltaq_types as types;
pub use reqwest::Method;
pub use serde_json::value::RawValue;
