//! What the connections of a run do.

use std::io;
use std::time::Duration;

use super::Plan;
use super::http::{Caller, leases};
use super::keys::{Keys, OBJECT_BYTES_MIN, Objects};
use super::load::{self, Done};
use crate::clock::Clock;

/// Longest wait of a pop that waits, as the API writes it.
const WAIT: &str = "1s";
/// How long a pop is given to be waiting before something is added.
const SETTLE_IN: Duration = Duration::from_millis(2);

/// What each connection does again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Scenario {
    /// Add objects.
    Add,
    /// Add objects, pop as many keys, and acknowledge them: three requests.
    AddPopAck,
    /// Add objects, and pop as many keys while acknowledging those of the pop before: two requests.
    AddPop,
    /// Add an object for which a pop on another connection waits, until that has it.
    HandOff,
    /// Replace the whole set of a source of its own.
    Replace,
    /// Of ten requests four adds, two updates, a delete, and three pops that acknowledge.
    Mixed,
    /// Update one key, while one more connection pops and acknowledges it.
    HotKey,
}

/// Who plays a scenario.
#[derive(Debug)]
pub(super) enum Actor {
    /// One connection, and what it does.
    One(Part, Box<Connection>),
    /// One that adds what the other waits for.
    HandOff { giver: Box<Connection>, taker: Box<Connection> },
}

/// What a connection does.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part {
    Send,
    SendPop,
    SendPopAck,
    Mixed,
    /// Takes what there is, and waits for it.
    Consume,
}

/// The turns of [`Scenario::Mixed`]: which of its requests is sent, or none for a pop.
const MIXED: [Option<usize>; 10] =
    [Some(0), Some(1), None, Some(0), None, Some(0), Some(2), None, Some(0), Some(1)];

impl Actor {
    /// The one of this number.
    pub(super) async fn open(plan: &Plan, index: usize, keys: Keys) -> io::Result<Self> {
        let mut connection = Connection::open(plan, index, keys).await?;
        let replace = format!("replace?source=connection-{index}");
        let (part, calls): (_, &[&str]) = match plan.scenario {
            Scenario::Add | Scenario::HandOff => (Part::Send, &["add"]),
            Scenario::AddPop => (Part::SendPop, &["add"]),
            Scenario::AddPopAck => (Part::SendPopAck, &["add"]),
            Scenario::Mixed => (Part::Mixed, &["add", "update", "delete"]),
            Scenario::HotKey => (Part::Send, &["update"]),
            Scenario::Replace => (Part::Send, &[&replace]),
        };
        connection.sends = calls.iter().map(|call| connection.objects(plan, call)).collect();
        if plan.scenario == Scenario::HandOff {
            let taker = Connection::consumer(plan, index).await?;
            return Ok(Self::HandOff { giver: Box::new(connection), taker: Box::new(taker) });
        }
        Ok(Self::One(part, Box::new(connection)))
    }

    /// One that takes what those of this queue send.
    pub(super) async fn consumer(plan: &Plan, index: usize) -> io::Result<Self> {
        Ok(Self::One(Part::Consume, Box::new(Connection::consumer(plan, index).await?)))
    }
}

impl load::Worker for Actor {
    async fn work(&mut self, clock: &Clock) -> io::Result<Done> {
        let begun_us = clock.monotonic_us();
        let (requests, objects) = match self {
            Self::One(part, connection) => connection.play(*part).await?,
            Self::HandOff { giver, taker } => {
                taker.ask().await?;
                tokio::time::sleep(SETTLE_IN).await;
                let begun_us = clock.monotonic_us();
                giver.post(0).await?;
                let objects = taker.take(SETTLE).await?;
                let ended_us = clock.monotonic_us();
                giver.caller.answer().await?;
                return Ok(Done { requests: 2, objects, begun_us, ended_us });
            }
        };
        Ok(Done { requests, objects, begun_us, ended_us: clock.monotonic_us() })
    }
}

/// A connection, and what is sent over it.
#[derive(Debug)]
pub(super) struct Connection {
    caller: Caller,
    /// Path of the queue.
    path: String,
    keys: Keys,
    batch: usize,
    /// The requests that queue objects.
    sends: Vec<Objects>,
    turn: usize,
    pop_head: String,
    ack_head: String,
    /// The leases of the last pop, as the next one settles them or as an ack names them.
    held: Vec<u8>,
    request: Vec<u8>,
}

/// What is written before and behind a lease.
type Around = (&'static [u8], &'static [u8]);
const SETTLE: Around = (b"{\"lease\":\"", b"\",\"as\":\"ack\"}");
const ACK: Around = (b"\"", b"\"");

impl Connection {
    async fn open(plan: &Plan, index: usize, keys: Keys) -> io::Result<Self> {
        let caller = Caller::open(&plan.authority, plan.token.as_deref()).await?;
        let queue = plan.queues.get(index % plan.queues.len().max(1)).map_or("", String::as_str);
        let path = format!("/v1/queues/{queue}");
        Ok(Self {
            keys,
            batch: plan.batch,
            sends: Vec::new(),
            turn: index,
            pop_head: caller.head("POST", &format!("{path}/pop?max={}", plan.batch)),
            ack_head: caller.head("POST", &format!("{path}/ack")),
            held: Vec::new(),
            request: Vec::new(),
            path,
            caller,
        })
    }

    /// One whose pops wait.
    async fn consumer(plan: &Plan, index: usize) -> io::Result<Self> {
        let mut connection = Self::open(plan, index, Keys::default()).await?;
        let pop = format!("{}/pop?max={}&wait={WAIT}", connection.path, plan.batch);
        connection.pop_head = connection.caller.head("POST", &pop);
        Ok(connection)
    }

    /// A request that carries the objects of one operation: one bare, or a list.
    fn objects(&self, plan: &Plan, call: &str) -> Objects {
        let bytes = plan.object_bytes.max(OBJECT_BYTES_MIN);
        let (open, close) = if plan.batch == 1 { ("", "") } else { ("[", "]") };
        let length = open.len() + plan.batch * (bytes + 1) - 1 + close.len();
        let head = self.caller.head("POST", &format!("{}/{call}", self.path));
        let before = format!("{head}{length}\r\n\r\n{open}");
        Objects::new(before.as_bytes(), plan.batch, bytes, b",", close.as_bytes())
    }

    /// Plays its part once; answers how many requests and objects that were.
    async fn play(&mut self, part: Part) -> io::Result<(u64, u64)> {
        Ok(match part {
            Part::Send => (1, self.send(0).await?),
            Part::Consume => (1, self.pop().await?),
            Part::SendPop => {
                self.send(0).await?;
                (2, self.pop().await?)
            }
            Part::SendPopAck => {
                self.send(0).await?;
                self.ask().await?;
                let objects = self.take(ACK).await?;
                self.acknowledge().await?;
                (3, objects)
            }
            Part::Mixed => {
                self.turn = (self.turn + 1) % MIXED.len();
                match MIXED.get(self.turn).copied().flatten() {
                    Some(which) => (1, self.send(which).await?),
                    None => (1, self.pop().await?),
                }
            }
        })
    }

    async fn send(&mut self, which: usize) -> io::Result<u64> {
        self.post(which).await?;
        self.caller.answer().await?;
        Ok(self.batch as u64)
    }

    async fn post(&mut self, which: usize) -> io::Result<()> {
        let first = self.keys.take(self.batch);
        match self.sends.get_mut(which) {
            Some(objects) => self.caller.send(objects.from(first)).await,
            None => Ok(()),
        }
    }

    /// Takes keys, and acknowledges those that it took before; answers how many it took.
    async fn pop(&mut self) -> io::Result<u64> {
        self.ask().await?;
        self.take(SETTLE).await
    }

    /// Sends a pop.
    async fn ask(&mut self) -> io::Result<()> {
        let body: [&[u8]; 3] =
            if self.held.is_empty() { [b""; 3] } else { [b"{\"settle\":[", &self.held, b"]}"] };
        render(&mut self.request, &self.pop_head, body);
        self.caller.send(&self.request).await
    }

    /// Acknowledges what it holds.
    async fn acknowledge(&mut self) -> io::Result<()> {
        render(&mut self.request, &self.ack_head, [b"{\"leases\":[", &self.held, b"]}"]);
        self.held.clear();
        self.caller.send(&self.request).await?;
        self.caller.answer().await.map(drop)
    }

    /// Reads the answer of a pop, and keeps its leases; answers how many there are.
    async fn take(&mut self, (before, behind): Around) -> io::Result<u64> {
        let popped = self.caller.answer().await?;
        self.held.clear();
        let mut count = 0;
        for lease in leases(popped) {
            if count > 0 {
                self.held.push(b',');
            }
            for part in [before, lease, behind] {
                self.held.extend_from_slice(part);
            }
            count += 1;
        }
        Ok(count)
    }
}

fn render(request: &mut Vec<u8>, head: &str, body: [&[u8]; 3]) {
    let length: usize = body.iter().map(|part| part.len()).sum();
    request.clear();
    request.extend_from_slice(head.as_bytes());
    request.extend_from_slice(length.to_string().as_bytes());
    request.extend_from_slice(b"\r\n\r\n");
    for part in body {
        request.extend_from_slice(part);
    }
}
