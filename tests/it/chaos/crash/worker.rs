//! Workers: pops with and without an id, all kinds of settles, leases that expire, and, after a call without a reply, the
//! repetitions that the API promises to be safe.

use std::collections::VecDeque;

use serde_json::{Value, json};

use super::client::Client;
use super::history::{Answer, Operation, Settle, SettleKind, Settled, Us};
use super::queues::{QUEUES, Spec};
use crate::harness::blocking::Message;

/// Most keys in one pop.
const POP: usize = 20;
/// One in so many pops with an id is sent twice, and the client closes the first connection without reading its reply.
const ABANDONED_ONE_IN: u32 = 8;
/// Length of a lease, in milliseconds, and the additional length of some leases. It is the minimum, because a lease whose
/// reply was lost holds its key until it expires, and every restart renews it.
const LEASE_MS: u64 = 1_000;
const LONGER_MS: u64 = 100;
/// Number of settled leases that a worker remembers, to settle them again: far fewer than the service remembers.
const REMEMBERED: usize = 30;

/// A worker.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) client: Client,
    name: String,
    pops: u64,
    leases: Vec<HeldLease>,
    /// The last pop with an id, and whether it has no reply.
    last_pop: Option<(Pop, bool)>,
    /// Settles without a reply.
    redo: Vec<(&'static Spec, Vec<Settle>)>,
    settled: VecDeque<(&'static Spec, Settle)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct HeldLease {
    queue: &'static str,
    lease: String,
}

#[derive(Clone, Debug)]
struct Pop {
    spec: &'static Spec,
    path: String,
    id: Option<String>,
    since: Us,
    length: Us,
    with_known: bool,
}

impl Worker {
    pub(crate) fn new(client: Client, name: String) -> Self {
        let (leases, redo) = (Vec::new(), Vec::new());
        Self { client, name, pops: 0, leases, last_pop: None, redo, settled: VecDeque::new() }
    }

    /// The first calls after a restart: repeats the calls without a reply, and some calls with a reply.
    pub(crate) fn resume(&mut self) {
        for (spec, settles) in std::mem::take(&mut self.redo) {
            self.settle(spec, settles);
        }
        for _ in 0..3 {
            self.settle_again();
        }
        if let Some((pop, is_unknown)) = self.last_pop.take()
            && (is_unknown || self.client.rng.bool())
        {
            self.pop(pop, Vec::new());
        }
    }

    /// Settles its leases of a queue and pops again.
    pub(crate) fn step(&mut self) {
        let spec = &QUEUES[self.client.rng.usize(..QUEUES.len())];
        match self.client.rng.u32(..50) {
            0 => self.settle_again(),
            1 => {
                let message = Message::post(spec.path("/parked/redrive"), &json!({ "all": true }));
                self.client.call(spec.name, Operation::Redrive, &message);
            }
            _ => {}
        }
        let mut settles = self.decide(spec);
        if self.client.rng.bool() && !settles.is_empty() {
            self.settle(spec, std::mem::take(&mut settles));
        }
        if !self.client.is_disconnected() {
            let pop = self.new_pop(spec);
            // The client of an undelivered reply may repeat its pop before or after the leases have returned.
            if pop.id.is_some() && self.client.rng.u32(..ABANDONED_ONE_IN) == 0 {
                self.client.abandon(&Message::post(pop.path.clone(), &json!({})));
            }
            self.pop(pop, settles);
        }
    }

    /// Chooses how each lease of the queue ends. Some leases are extended, and some are forgotten, so that they expire.
    fn decide(&mut self, spec: &'static Spec) -> Vec<Settle> {
        let (own, others) =
            std::mem::take(&mut self.leases).into_iter().partition(|held| held.queue == spec.name);
        self.leases = others;
        let own: Vec<HeldLease> = own;
        let mut settles = Vec::new();
        for held in own {
            let way = match self.client.rng.u32(..100) {
                0..62 => SettleKind::Ack,
                62..78 => SettleKind::Nack,
                78..86 => SettleKind::Release,
                86..88 => SettleKind::Reject,
                88..94 => {
                    self.extend(spec, &held);
                    self.leases.push(held);
                    continue;
                }
                _ => continue,
            };
            settles.push(Settle { lease: held.lease, way });
        }
        settles
    }

    fn new_pop(&mut self, spec: &'static Spec) -> Pop {
        let rng = &mut self.client.rng;
        self.pops += 1;
        let id = (rng.u32(..10) < 6).then(|| format!("{}-{}", self.name, self.pops));
        let (max, wait) = (1 + rng.usize(..POP), if rng.bool() { 0 } else { rng.u32(..150) });
        let length_ms = LEASE_MS + rng.u64(..2) * LONGER_MS;
        let with_known = rng.bool();
        let query = format!("max={max}&wait={wait}ms&lease_duration={length_ms}ms&worker={}", self.name);
        let mut path = spec.path(&format!("/pop?{query}"));
        if let Some(id) = &id {
            path = format!("{path}&id={id}");
        }
        if with_known {
            path += "&with=known";
        }
        let (since, length) = (self.client.clock.monotonic_us(), length_ms * 1_000);
        Pop { spec, path, id, since, length, with_known }
    }

    fn pop(&mut self, pop: Pop, settles: Vec<Settle>) {
        let body = json!({ "settle": wire(&mut self.client, &settles) });
        let Pop { spec, path, id, since, length, with_known } = pop.clone();
        let operation = Operation::Pop { id, since, length, with_known, settles: settles.clone() };
        let answer = self.client.call(spec.name, operation, &Message::post(path, &body));
        let is_unknown = !matches!(answer, Some(Answer::Ok(_)));
        if let Some(Answer::Ok(reply)) = &answer {
            for lease in &reply.leases {
                let held = HeldLease { queue: spec.name, lease: lease.id.clone() };
                if !self.leases.contains(&held) {
                    self.leases.push(held);
                }
            }
        }
        self.note_settled(spec, settles, answer.as_ref());
        if pop.id.is_some() {
            self.last_pop = Some((pop, is_unknown));
        } else if is_unknown {
            self.last_pop = None;
        }
    }

    fn settle(&mut self, spec: &'static Spec, settles: Vec<Settle>) {
        let way = settles.first().map(|settle| settle.way);
        let alike = settles.iter().all(|settle| Some(settle.way) == way);
        let message = if let Some(way) = way.filter(|_| alike && self.client.rng.bool()) {
            let leases: Vec<&str> = settles.iter().map(|settle| settle.lease.as_str()).collect();
            Message::post(spec.path(&format!("/{}", way.as_str())), &json!({ "lease_ids": leases }))
        } else {
            let body = json!({ "settle": wire(&mut self.client, &settles) });
            Message::post(spec.path("/settle"), &body)
        };
        let operation = Operation::Settle { settles: settles.clone() };
        let answer = self.client.call(spec.name, operation, &message);
        self.note_settled(spec, settles, answer.as_ref());
    }

    /// Settles a settled lease again, in the same way or, like a faulty worker, in another. The service must remember the
    /// first settle.
    fn settle_again(&mut self) {
        if self.settled.is_empty() {
            return;
        }
        let (spec, settle) = self.settled[self.client.rng.usize(..self.settled.len())].clone();
        let way = if self.client.rng.u32(..4) > 0 { settle.way } else { SettleKind::Release };
        let settles = vec![Settle { way, ..settle }];
        let message =
            Message::post(spec.path("/settle"), &json!({ "settle": wire(&mut self.client, &settles) }));
        self.client.call(spec.name, Operation::Settle { settles }, &message);
    }

    fn extend(&mut self, spec: &'static Spec, held: &HeldLease) {
        let length_ms = LEASE_MS + self.client.rng.u64(..2) * LONGER_MS;
        let body = json!({ "lease_ids": [held.lease], "lease_duration": format!("{length_ms}ms") });
        let operation = Operation::Extend { lease: held.lease.clone(), length: length_ms * 1_000 };
        self.client.call(spec.name, operation, &Message::post(spec.path("/extend"), &body));
    }

    fn note_settled(&mut self, spec: &'static Spec, settles: Vec<Settle>, answer: Option<&Answer>) {
        let Some(Answer::Ok(reply)) = answer else {
            if !settles.is_empty() {
                self.redo.push((spec, settles));
            }
            return;
        };
        for (settle, settled) in settles.into_iter().zip(&reply.settled) {
            if matches!(settled, Settled::Ok | Settled::Repeated) {
                self.settled.push_back((spec, settle));
            }
        }
        let superfluous = self.settled.len().saturating_sub(REMEMBERED);
        self.settled.drain(..superfluous);
    }
}

/// The settles of a request. Some nacks have a delay and an error, and some releases hold the queue.
fn wire(client: &mut Client, settles: &[Settle]) -> Vec<Value> {
    let one = |settle: &Settle| {
        let mut call = json!({ "lease_id": settle.lease, "as": settle.way.as_str() });
        if settle.way == SettleKind::Nack && client.rng.bool() {
            call["delay"] = format!("{}ms", client.rng.u32(..100)).into();
            call["error"] = "failed".into();
        }
        if settle.way == SettleKind::Release && client.rng.u32(..4) == 0 {
            call["hold"] = json!({ "scope": "queue", "for": format!("{}ms", client.rng.u32(1..60)) });
        }
        call
    };
    settles.iter().map(one).collect()
}
