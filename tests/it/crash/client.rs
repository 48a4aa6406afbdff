//! A client that writes down every call before anybody can forget it.

use std::net::SocketAddr;
use std::sync::Arc;

use deltaq::clock::Clock;
use serde_json::Value;

use super::alarm::Alarm;
use super::history::{Answer, Call, What};
use super::reading;
use super::wire::{Connection, Message, Raw};

/// One client: a connection, and the calls that it has made.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) clock: Clock,
    pub(crate) rng: fastrand::Rng,
    /// In the order in which they were made.
    pub(crate) calls: Vec<Call>,
    alarm: Arc<Alarm>,
    address: SocketAddr,
    connection: Option<Connection>,
    is_gone: bool,
}

impl Client {
    /// A client that has made no call yet.
    pub(crate) fn new(clock: Clock, seed: u64, alarm: Arc<Alarm>) -> Self {
        Self {
            clock,
            rng: fastrand::Rng::with_seed(seed),
            calls: Vec::new(),
            alarm,
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            connection: None,
            is_gone: true,
        }
    }

    /// Goes on with the server at this address.
    pub(crate) fn turn_to(&mut self, address: SocketAddr) {
        self.address = address;
        self.connection = None;
        self.is_gone = false;
    }

    /// Whether the server did not answer any more.
    pub(crate) fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// Makes a call. Nothing is answered and nothing written down if it could not even be sent.
    pub(crate) fn call(&mut self, queue: &'static str, what: What, message: &Message) -> Option<Answer> {
        self.ask(queue, what, message).map(|(answer, _)| answer)
    }

    /// A call that only looks; its answer as it came, if it came.
    pub(crate) fn read(&mut self, queue: &'static str, message: &Message) -> Option<Value> {
        let (answer, body) = self.ask(queue, What::Read, message)?;
        matches!(answer, Answer::Ok(_)).then_some(body)
    }

    fn ask(&mut self, queue: &'static str, what: What, message: &Message) -> Option<(Answer, Value)> {
        let start = self.clock.monotonic_us();
        if self.connection.is_none() {
            self.connection = Connection::open(self.address).ok();
        }
        let Some(connection) = self.connection.as_mut() else {
            self.is_gone = true;
            return None;
        };
        let raw = connection.call(message);
        let end = self.clock.monotonic_us();
        let (answer, body) = if let Ok(raw) = raw {
            let body = serde_json::from_slice(&raw.body).unwrap_or_default();
            (answer_of(&raw, &what, &body), body)
        } else {
            self.connection = None;
            self.is_gone = true;
            (Answer::Unknown, Value::Null)
        };
        let call = Call { queue, start, end, what, answer: answer.clone() };
        self.alarm.hear(&call);
        self.calls.push(call);
        Some((answer, body))
    }
}

fn answer_of(raw: &Raw, what: &What, body: &Value) -> Answer {
    let lost = body["code"] == "lease-lost";
    match raw.status() {
        Some(503 | 507) => Answer::Unknown,
        Some(status) if (200..300).contains(&status) || lost => {
            reading::reply(what, body).map_or_else(Answer::Refused, Answer::Ok)
        }
        _ => Answer::Refused(format!("{} {body}", raw.first.trim_end())),
    }
}
