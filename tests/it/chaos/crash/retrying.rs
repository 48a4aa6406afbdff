//! A client of a server that is killed and started again at another address.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;

use crate::harness::blocking::{Connection, Message, Raw};
use crate::harness::waiting::found;

const PAUSE: Duration = Duration::from_millis(5);

/// The address at which the server listens at present, and a connection to it.
#[derive(Debug)]
pub(crate) struct Client<'s> {
    server: &'s Mutex<SocketAddr>,
    connection: Option<Connection>,
}

impl<'s> Client<'s> {
    /// A client without a connection.
    pub(crate) fn new(server: &'s Mutex<SocketAddr>) -> Self {
        Self { server, connection: None }
    }

    /// A new connection to the server.
    pub(crate) fn connect(&self) -> std::io::Result<Connection> {
        Connection::open(*self.server.lock())
    }

    /// Makes a call once. `None` if there is no reply.
    pub(crate) fn exchange(&mut self, message: &Message) -> Option<Raw> {
        let mut open = match self.connection.take() {
            Some(open) => open,
            None => self.connect().ok()?,
        };
        let reply = open.call(message).ok()?;
        self.connection = Some(open);
        Some(reply)
    }

    /// Makes a call once. `None` if there is no reply, or no success.
    pub(crate) fn attempt(&mut self, message: &Message) -> Option<Value> {
        let reply = self.exchange(message)?;
        if reply.status() != Some(200) {
            std::thread::sleep(PAUSE);
            return None;
        }
        serde_json::from_slice(&reply.body).ok()
    }

    /// Makes a call until it succeeds.
    pub(crate) fn call(&mut self, message: &Message) -> Value {
        found(|| self.attempt(message).ok_or_else(|| format!("{message:?} succeeds")))
    }

    /// The objects of a view, by key.
    pub(crate) fn objects(&mut self, queue: &str, view: &str) -> BTreeMap<String, Value> {
        objects(&self.list(queue, view))
    }

    /// The list of a view, which has one page.
    pub(crate) fn list(&mut self, queue: &str, view: &str) -> Value {
        self.call(&Message::get(format!("/v1/queues/{queue}/{view}?limit=1000")))
    }
}

/// The objects of a list, by key.
pub(crate) fn objects(list: &Value) -> BTreeMap<String, Value> {
    let items = list["items"].as_array().expect("items").iter();
    items.map(|item| (item["key"].as_str().expect("a key").to_owned(), item["object"].clone())).collect()
}
