//! The operations that the connections of a run repeat.

use std::io;
use std::time::Duration;

use deltaq_runtime::clock::Clock;

use super::Plan;
use super::http::{HttpClient, leases};
use super::keys::{Keys, OBJECT_BYTES_MIN, Objects};
use super::load;
use super::report::Done;

/// Maximum wait of a waiting pop.
const WAIT: &str = "1s";
/// Head start of a pop, so that it reaches the server before an object is added.
const POP_HEAD_START: Duration = Duration::from_millis(2);

/// The operation that each connection repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Scenario {
    /// Add objects.
    Add,
    /// Add objects, pop as many keys, and acknowledge them: three requests.
    AddPopAck,
    /// Add objects, then pop as many keys while acknowledging those of the previous pop: two requests.
    AddPop,
    /// Add an object while a pop on another connection waits for it. The operation ends when the pop returns.
    HandOff,
    /// Replace the whole set of a source; each connection is a source.
    Replace,
    /// Ten requests in sequence: four adds, two updates, a delete, and three pops that acknowledge.
    Mixed,
    /// Update one key while an additional connection pops and acknowledges it.
    HotKey,
}

/// A worker of a scenario.
#[derive(Debug)]
pub(super) enum Actor {
    /// One connection and its operation.
    Single(Operation, Box<Connection>),
    /// The producer adds the object for which the consumer waits.
    HandOff { producer: Box<Connection>, consumer: Box<Connection> },
}

/// The operation of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) enum Operation {
    Send,
    SendPop,
    SendPopAck,
    Mixed,
    /// A pop that waits for a key and acknowledges the keys of the previous pop.
    Consume,
}

/// The requests of [`Scenario::Mixed`] in order: an index into [`Connection::sends`], or `None` for a pop.
const MIXED: [Option<usize>; 10] =
    [Some(0), Some(1), None, Some(0), None, Some(0), Some(2), None, Some(0), Some(1)];

impl Actor {
    /// The worker with this number.
    pub(super) async fn open(plan: &Plan, index: usize, keys: Keys) -> io::Result<Self> {
        let mut connection = Connection::open(plan, index, keys).await?;
        let replace = format!("replace?source=connection-{index}&max_delete_percent=100");
        let (operation, calls): (_, &[&str]) = match plan.scenario {
            Scenario::Add | Scenario::HandOff => (Operation::Send, &["add"]),
            Scenario::AddPop => (Operation::SendPop, &["add"]),
            Scenario::AddPopAck => (Operation::SendPopAck, &["add"]),
            Scenario::Mixed => (Operation::Mixed, &["add", "update", "delete"]),
            Scenario::HotKey => (Operation::Send, &["update"]),
            Scenario::Replace => (Operation::Send, &[&replace]),
        };
        connection.sends = calls.iter().map(|call| connection.objects(plan, call)).collect();
        if plan.scenario == Scenario::HandOff {
            let consumer = Connection::consumer(plan, index).await?;
            return Ok(Self::HandOff { producer: Box::new(connection), consumer: Box::new(consumer) });
        }
        Ok(Self::Single(operation, Box::new(connection)))
    }

    /// A worker that consumes the queue of the worker with this number.
    pub(super) async fn consumer(plan: &Plan, index: usize) -> io::Result<Self> {
        Ok(Self::Single(Operation::Consume, Box::new(Connection::consumer(plan, index).await?)))
    }
}

impl load::Worker for Actor {
    async fn work(&mut self, clock: &Clock) -> io::Result<Done> {
        let begun_us = clock.monotonic_us();
        let (requests, objects) = match self {
            Self::Single(operation, connection) => connection.run(*operation).await?,
            Self::HandOff { producer, consumer } => {
                consumer.send_pop().await?;
                tokio::time::sleep(POP_HEAD_START).await;
                let begun_us = clock.monotonic_us();
                producer.send_objects(0).await?;
                let objects = consumer.take_leases(SETTLE).await?;
                let ended_us = clock.monotonic_us();
                producer.client.response().await?;
                return Ok(Done { requests: 2, objects, begun_us, ended_us });
            }
        };
        Ok(Done { requests, objects, begun_us, ended_us: clock.monotonic_us() })
    }
}

/// A connection and its rendered requests.
#[derive(Debug)]
pub(super) struct Connection {
    client: HttpClient,
    /// Path of the queue.
    path: String,
    keys: Keys,
    batch: usize,
    /// The requests that queue objects.
    sends: Vec<Objects>,
    /// Position in [`MIXED`].
    mixed_at: usize,
    pop_head: String,
    ack_head: String,
    /// The leases of the last pop, in the form of a settle or of an ack.
    leases: Vec<u8>,
    request: Vec<u8>,
}

/// The text before and after the id of a lease.
type Enclosing = (&'static [u8], &'static [u8]);
const SETTLE: Enclosing = (b"{\"lease_id\":\"", b"\",\"as\":\"ack\"}");
const ACK: Enclosing = (b"\"", b"\"");

impl Connection {
    async fn open(plan: &Plan, index: usize, keys: Keys) -> io::Result<Self> {
        let client = HttpClient::open(&plan.authority, plan.token.as_deref()).await?;
        let queue = plan.queues.get(index % plan.queues.len().max(1)).map_or("", String::as_str);
        let path = format!("/v1/queues/{queue}");
        Ok(Self {
            keys,
            batch: plan.batch,
            sends: Vec::new(),
            mixed_at: index,
            pop_head: client.head("POST", &format!("{path}/pop?max={}", plan.batch)),
            ack_head: client.head("POST", &format!("{path}/ack")),
            leases: Vec::new(),
            request: Vec::new(),
            path,
            client,
        })
    }

    /// A connection whose pops wait.
    async fn consumer(plan: &Plan, index: usize) -> io::Result<Self> {
        let mut connection = Self::open(plan, index, Keys::default()).await?;
        let pop = format!("{}/pop?max={}&wait={WAIT}", connection.path, plan.batch);
        connection.pop_head = connection.client.head("POST", &pop);
        Ok(connection)
    }

    /// A request with the objects of one operation: a list, or a single object that is not in a list.
    fn objects(&self, plan: &Plan, call: &str) -> Objects {
        let bytes = plan.object_bytes.max(OBJECT_BYTES_MIN);
        let (open, close) = if plan.batch == 1 { ("", "") } else { ("[", "]") };
        let length = open.len() + plan.batch * (bytes + 1) - 1 + close.len();
        let head = self.client.head("POST", &format!("{}/{call}", self.path));
        let before = format!("{head}{length}\r\n\r\n{open}");
        Objects::new(before.as_bytes(), plan.batch, bytes, b",", close.as_bytes())
    }

    /// Runs the operation once. Returns the numbers of its requests and objects.
    async fn run(&mut self, operation: Operation) -> io::Result<(u64, u64)> {
        Ok(match operation {
            Operation::Send => (1, self.send(0).await?),
            Operation::Consume => (1, self.pop().await?),
            Operation::SendPop => {
                self.send(0).await?;
                (2, self.pop().await?)
            }
            Operation::SendPopAck => {
                self.send(0).await?;
                self.send_pop().await?;
                let objects = self.take_leases(ACK).await?;
                self.acknowledge().await?;
                (3, objects)
            }
            Operation::Mixed => {
                self.mixed_at = (self.mixed_at + 1) % MIXED.len();
                match MIXED.get(self.mixed_at).copied().flatten() {
                    Some(which) => (1, self.send(which).await?),
                    None => (1, self.pop().await?),
                }
            }
        })
    }

    async fn send(&mut self, which: usize) -> io::Result<u64> {
        self.send_objects(which).await?;
        self.client.response().await?;
        Ok(self.batch as u64)
    }

    async fn send_objects(&mut self, which: usize) -> io::Result<()> {
        let first = self.keys.take(self.batch);
        match self.sends.get_mut(which) {
            Some(objects) => self.client.send(objects.from(first)).await,
            None => Ok(()),
        }
    }

    /// Pops keys and acknowledges those of the previous pop. Returns the number of popped keys.
    async fn pop(&mut self) -> io::Result<u64> {
        self.send_pop().await?;
        self.take_leases(SETTLE).await
    }

    async fn send_pop(&mut self) -> io::Result<()> {
        let body: [&[u8]; 3] =
            if self.leases.is_empty() { [b""; 3] } else { [b"{\"settle\":[", &self.leases, b"]}"] };
        render(&mut self.request, &self.pop_head, body);
        self.client.send(&self.request).await
    }

    /// Acknowledges the leases of the last pop.
    async fn acknowledge(&mut self) -> io::Result<()> {
        render(&mut self.request, &self.ack_head, [b"{\"lease_ids\":[", &self.leases, b"]}"]);
        self.leases.clear();
        self.client.send(&self.request).await?;
        self.client.response().await.map(drop)
    }

    /// Reads the response to a pop and stores its leases. Returns their number.
    async fn take_leases(&mut self, (before, after): Enclosing) -> io::Result<u64> {
        let popped = self.client.response().await?;
        self.leases.clear();
        let mut count = 0;
        for lease in leases(popped) {
            if count > 0 {
                self.leases.push(b',');
            }
            for part in [before, lease, after] {
                self.leases.extend_from_slice(part);
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
