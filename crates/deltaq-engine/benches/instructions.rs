//! Two workloads whose instructions scripts/instructions.py counts: cycles of known keys, and fill and drain of new keys.

#![expect(clippy::expect_used, reason = "a failed step ends the run with a message")]

use std::sync::Arc;

use deltaq_engine::Queue;
use deltaq_engine::command::{Call, How, Pop, Settle};
use deltaq_engine::config::Config;
use deltaq_engine::delta::DeltaKind;
use deltaq_engine::id::{Rv, Token};
use deltaq_engine::key::Key;
use deltaq_engine::object::Object;
use deltaq_engine::time::Time;

const KEYS: u64 = 20_000;

fn main() {
    let mut bench = Bench::new();
    for call in calls() {
        bench.add(call);
    }
    while bench.has_ready() {
        bench.pop_and_ack();
    }
    cycle(&mut bench, calls());
    fill_drain(&mut Bench::new(), calls());
}

/// Add, pop and ack of each key, one key after the other.
#[inline(never)]
fn cycle(bench: &mut Bench, calls: Vec<Call>) {
    for call in calls {
        bench.add(call);
        bench.pop_and_ack();
    }
}

/// Adds all keys, then pops and acknowledges them.
#[inline(never)]
fn fill_drain(bench: &mut Bench, calls: Vec<Call>) {
    for call in calls {
        bench.add(call);
    }
    while bench.has_ready() {
        bench.pop_and_ack();
    }
}

struct Bench {
    queue: Queue,
    now_us: u64,
}

impl Bench {
    fn new() -> Self {
        let now_us = 1_700_000_000_000_000;
        let queue = Queue::new(Arc::new(Config::default()), Rv::ZERO, Time::from_micros(now_us));
        Self { queue, now_us }
    }

    fn add(&mut self, call: Call) {
        let now = self.tick();
        self.queue.produce(now, &[call]).expect("no refusal");
        drop(std::hint::black_box(self.queue.take_effects()));
    }

    fn pop_and_ack(&mut self) {
        let now = self.tick();
        let pop = Pop {
            max: 1,
            max_bytes: 4 << 20,
            lease: None,
            worker: None,
            id: None,
            with_known: false,
            group: None,
        };
        let items = self.queue.pop(now, &pop).expect("the queue is open");
        drop(std::hint::black_box(self.queue.take_effects()));
        let token: Token = items.first().map(|item| item.token).unwrap_or_default();
        let now = self.tick();
        std::hint::black_box(self.queue.settle(now, &[Settle { token, how: How::Ack }]));
        drop(std::hint::black_box(self.queue.take_effects()));
    }

    fn has_ready(&self) -> bool {
        self.queue.has_ready(Time::from_micros(self.now_us))
    }

    fn tick(&mut self) -> Time {
        self.now_us += 1;
        Time::from_micros(self.now_us)
    }
}

fn calls() -> Vec<Call> {
    (0..KEYS).map(call).collect()
}

fn call(number: u64) -> Call {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24;
    let text = format!(r#"{{"key":"sku-{mixed:010x}","price":1999,"stock":{}}}"#, number % 100);
    Call {
        kind: DeltaKind::Added,
        key: Key::new(&format!("sku-{mixed:010x}")).expect("a key"),
        object: Some(Object::from_valid(&text)),
        source: None,
        delay: None,
        debounce: None,
        head_start: None,
        final_state_unknown: false,
        rate_limited: false,
        trace: None,
        version: None,
    }
}
