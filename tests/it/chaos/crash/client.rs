//! A client that records every call.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use deltaq_runtime::clock::Clock;
use serde_json::Value;

use super::alarm::Alarm;
use super::history::{Answer, Call, Operation};
use super::reading;
use crate::harness::blocking::{Connection, Message, PATIENCE, Raw};

/// A client: a connection and its recorded calls.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) clock: Clock,
    pub(crate) rng: fastrand::Rng,
    /// In the order of their start.
    pub(crate) calls: Vec<Call>,
    /// How long it waits for a reply.
    pub(crate) patience: Duration,
    alarm: Arc<Alarm>,
    address: SocketAddr,
    connection: Option<Connection>,
    is_disconnected: bool,
}

impl Client {
    /// A client without calls.
    pub(crate) fn new(clock: Clock, seed: u64, alarm: Arc<Alarm>) -> Self {
        Self {
            clock,
            rng: fastrand::Rng::with_seed(seed),
            calls: Vec::new(),
            patience: PATIENCE,
            alarm,
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            connection: None,
            is_disconnected: true,
        }
    }

    /// Continues with the server at this address.
    pub(crate) fn connect_to(&mut self, address: SocketAddr) {
        self.address = address;
        self.connection = None;
        self.is_disconnected = false;
    }

    /// Whether a call got no reply.
    pub(crate) fn is_disconnected(&self) -> bool {
        self.is_disconnected
    }

    /// Makes a call. Returns `None` and records nothing if the request could not be sent.
    pub(crate) fn call(
        &mut self,
        queue: &'static str,
        operation: Operation,
        message: &Message,
    ) -> Option<Answer> {
        self.ask(queue, operation, message).map(|(answer, _)| answer)
    }

    /// Sends a request on a connection of its own, and closes it without reading the reply.
    pub(crate) fn abandon(&self, message: &Message) {
        let connection = Connection::open_within(self.address, self.patience);
        let _not_sent = connection.and_then(|mut connection| connection.request(message, &[]));
    }

    /// Makes a read and returns the body of its reply, if there is one.
    pub(crate) fn read(&mut self, queue: &'static str, message: &Message) -> Option<Value> {
        let (answer, body) = self.ask(queue, Operation::Read, message)?;
        matches!(answer, Answer::Ok(_)).then_some(body)
    }

    fn ask(
        &mut self,
        queue: &'static str,
        mut operation: Operation,
        message: &Message,
    ) -> Option<(Answer, Value)> {
        let start = self.clock.monotonic_us();
        if self.connection.is_none() {
            self.connection = Connection::open_within(self.address, self.patience).ok();
        }
        let Some(connection) = self.connection.as_mut() else {
            self.is_disconnected = true;
            return None;
        };
        let raw = connection.call(message);
        let end = self.clock.monotonic_us();
        let (answer, body) = if let Ok(raw) = raw {
            let body: Value = serde_json::from_slice(&raw.body).unwrap_or_default();
            // Of a list with more pages, the judge would take the keys of the later pages for missing.
            if matches!(operation, Operation::Items) && body["continue"].is_string() {
                operation = Operation::Read;
            }
            (answer_of(&raw, &operation, &body), body)
        } else {
            self.connection = None;
            self.is_disconnected = true;
            (Answer::Unknown, Value::Null)
        };
        let call = Call { queue, start, end, operation, answer: answer.clone() };
        self.alarm.observe(&call);
        self.calls.push(call);
        Some((answer, body))
    }
}

fn answer_of(raw: &Raw, operation: &Operation, body: &Value) -> Answer {
    let lost = body["code"] == "lease-lost";
    match raw.status() {
        Some(503 | 507) => Answer::Unknown,
        Some(status) if (200..300).contains(&status) || lost => {
            reading::reply(operation, body).map_or_else(Answer::Refused, Answer::Ok)
        }
        _ => Answer::Refused(format!("{} {body}", raw.first.trim_end())),
    }
}
