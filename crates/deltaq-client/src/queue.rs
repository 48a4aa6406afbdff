//! A queue of a server.

mod consume;
mod finite;
mod manage;
mod produce;
mod producer;
mod read;
mod watch;

use std::sync::Arc;

use http::Method;

pub use self::consume::{Pop, Selection};
pub(crate) use self::consume::{hold, random_id};
pub use self::manage::{
    Close, DeleteQueue, ListAllSources, ListQueues, ListReflectors, PatchSettings, PutSettings,
};
pub use self::produce::{Add, Delete, Deltas, Update};
pub use self::producer::{Producer, ReplaceOptions};
pub use self::read::{GetGroups, GetObject, Synced};
pub use self::watch::{Rows, View, Watch};
use crate::call::Call;
use crate::client::Client;

/// A queue of a server. Clones share the connections of the client.
#[derive(Clone, Debug)]
pub struct Queue {
    client: Client,
    name: Arc<str>,
}

impl Client {
    /// The queue of this name. No request is sent: a queue that does not exist is created by its first produce call
    /// or by [`Queue::put_settings`].
    #[must_use]
    pub fn queue(&self, name: impl Into<Arc<str>>) -> Queue {
        Queue { client: self.clone(), name: name.into() }
    }
}

impl Queue {
    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name, which jobs share.
    pub(crate) fn shared_name(&self) -> Arc<str> {
        self.name.clone()
    }

    /// The client.
    #[must_use]
    pub const fn client(&self) -> &Client {
        &self.client
    }

    /// A call on this queue, such as `POST` of `["add"]`.
    #[must_use]
    pub fn call<'s>(&'s self, method: Method, path: impl IntoIterator<Item = &'s str>) -> Call {
        Call::on_queue(method, &self.name, path)
    }
}
