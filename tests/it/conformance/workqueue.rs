//! Replays recorded workqueue traces on the engine in mode keys, with a microsecond clock, and compares client-go's seven metrics
//! after every step.

mod metrics;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use deltaq_engine::command::{Call, How, Pop, Settle, Settled};
use deltaq_engine::config::Config;
use deltaq_engine::id::{Rv, Token};
use deltaq_engine::key::Key;
use deltaq_engine::rate_limit::{ItemExponential, RateLimiter};
use deltaq_engine::refusal::Refusal;
use deltaq_engine::schedule::{Place, Turn};
use deltaq_engine::table::Entry;
use deltaq_engine::time::Time;
use deltaq_engine::{Effects, Queue};
use deltaq_types::Mode;
use serde::Deserialize;
use serde_json::{Value, json};

use self::metrics::{Measured, Model};
use super::report::Report;

/// A recorded trace.
#[derive(Debug, Deserialize)]
pub(crate) struct Trace {
    name: String,
    options: Options,
    steps: Vec<Step>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    limiter: String,
    base_us: u64,
    max_us: u64,
    tick_us: u64,
}

#[derive(Debug, Deserialize)]
struct Step {
    #[serde(flatten)]
    op: Op,
    result: Value,
    state: State,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
enum Op {
    Add { item: String },
    AddAfter { item: String, ms: u64 },
    AddRateLimited { item: String },
    Get,
    Done { item: String },
    Forget { item: String },
    NumRequeues { item: String },
    Len,
    Shutdown,
    AdvanceClock { ms: u64 },
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct State {
    now_us: u64,
    queue: Vec<String>,
    dirty: BTreeSet<String>,
    processing: BTreeSet<String>,
    num_requeues: BTreeMap<String, u32>,
    shutting_down: bool,
}

/// Replays every trace on a queue of its own.
pub(crate) fn replay(traces: &[Trace]) -> Report {
    let mut report = Report::default();
    for trace in traces {
        let mut queue = Workqueue::new(&trace.options);
        for (index, step) in trace.steps.iter().enumerate() {
            if let Err(error) = queue.step(step) {
                report.wrong.push(format!("{}, step {index}, {:?}: {error}", trace.name, step.op));
                report.ignored += (trace.steps.len() - index) as u64;
                break;
            }
            report.compared += 1;
        }
    }
    report
}

struct Workqueue {
    queue: Queue,
    rebuilt: Queue,
    now: Time,
    tick: Duration,
    processing: HashMap<String, Token>,
    measured: Measured,
    model: Model,
}

impl Workqueue {
    fn new(options: &Options) -> Self {
        assert_eq!(options.limiter, "item_exponential", "the traces use only this limiter");
        let base = Duration::from_micros(options.base_us);
        let max = Duration::from_micros(options.max_us);
        let item_exponential = Some(ItemExponential { base, max });
        let config = Arc::new(Config {
            mode: Mode::Keys,
            lease: Duration::MAX,
            rate_limiter: RateLimiter { item_exponential, jitter: 0.0, ..RateLimiter::default() },
            ..Config::default()
        });
        Self {
            queue: Queue::new(config.clone(), Rv::ZERO, Time::default()),
            rebuilt: Queue::new(config, Rv::ZERO, Time::default()),
            now: Time::default(),
            tick: Duration::from_micros(options.tick_us),
            processing: HashMap::new(),
            measured: Measured::new(),
            model: Model::new(options),
        }
    }

    fn step(&mut self, step: &Step) -> Result<(), String> {
        self.move_clock(self.tick);
        self.model.move_clock(self.tick);
        let result = self.perform(&step.op);
        self.model.perform(&step.op);
        if result != step.result {
            return Err(format!("result {result} instead of {}", step.result));
        }
        let state = self.state();
        if state != step.state {
            return Err(format!("state\n  ours   {state:?}\n  theirs {:?}", step.state));
        }
        let effects = self.check()?;
        self.measured.compare(&self.queue, effects, self.now, &self.model)
    }

    fn perform(&mut self, op: &Op) -> Value {
        match op {
            Op::Add { item } => self.add(item, None, false),
            Op::AddAfter { item, ms } => self.add(item, Some(Duration::from_millis(*ms)), false),
            Op::AddRateLimited { item } => self.add(item, None, true),
            Op::Get => return self.get(),
            Op::Done { item } => {
                if let Some(token) = self.processing.remove(item) {
                    let settled =
                        self.queue.settle(self.now, &[Settle { token, how: How::Done { delay: None } }]);
                    assert!(matches!(settled.first(), Some(Settled::Ok { .. })), "{settled:?}");
                }
            }
            Op::Forget { item } => {
                self.queue.forget(self.now, [item.as_str()]);
            }
            Op::NumRequeues { item } => return json!(self.failures(item)),
            Op::Len => return json!(self.queue.schedule().ready_len()),
            Op::Shutdown => self.queue.close_at_once(self.now),
            Op::AdvanceClock { ms } => self.move_clock(Duration::from_millis(*ms)),
        }
        Value::Null
    }

    /// Advances time. Due delays elapse at their time, without a command.
    fn move_clock(&mut self, span: Duration) {
        self.now = self.now.plus(span);
        self.queue.advance(self.now);
    }

    fn add(&mut self, item: &str, delay: Option<Duration>, rate_limited: bool) {
        let key = Key::new(item).expect("items are keys");
        let call = Call { rate_limited, ..Call::of_key(key, delay) };
        self.queue.produce(self.now, &[call]).expect("an add is never refused");
    }

    fn get(&mut self) -> Value {
        let (lease, worker, id) = (None, None, None);
        let pop = Pop { max: 1, max_bytes: usize::MAX, lease, worker, id, with_known: false, group: None };
        let items = match self.queue.pop(self.now, &pop) {
            Ok(items) => items,
            Err(Refusal::Closed) => return json!({ "shutdown": true }),
            Err(refusal) => panic!("a pop was refused: {refusal}"),
        };
        let Some(item) = items.first() else { return json!({ "empty": true }) };
        self.processing.insert(item.key.to_string(), item.token);
        json!({ "item": item.key.as_str(), "shutdown": false })
    }

    fn failures(&self, item: &str) -> u32 {
        self.queue.table().get(item).map_or(0, |entry| entry.schedule_state.failures)
    }

    fn state(&self) -> State {
        let table = self.queue.table();
        let name = |entry: &Entry| entry.key.to_string();
        let ready = self.queue.ready_after(Turn::START).filter_map(|(_, slot)| table.at(slot));
        let mut state = State {
            now_us: self.now.as_micros(),
            queue: ready.map(name).collect(),
            dirty: BTreeSet::new(),
            processing: BTreeSet::new(),
            num_requeues: BTreeMap::new(),
            shutting_down: self.queue.status(self.now).closed,
        };
        for (_, entry) in table.from(Bound::Unbounded) {
            if entry.schedule_state.failures > 0 {
                state.num_requeues.insert(name(entry), entry.schedule_state.failures);
            }
            match &entry.schedule_state.place {
                Place::Ready(_) => {
                    state.dirty.insert(name(entry));
                }
                Place::Leased(lease) => {
                    state.processing.insert(name(entry));
                    if lease.new_change.is_some() {
                        state.dirty.insert(name(entry));
                    }
                }
                Place::Idle | Place::Parked => {}
            }
        }
        state
    }

    /// Checks the invariants, and that the events rebuild the state.
    fn check(&mut self) -> Result<Effects, String> {
        self.queue.check()?;
        let effects = self.queue.take_effects();
        for event in &effects.events {
            self.rebuilt.apply(event);
        }
        if self.queue.image() == self.rebuilt.image() {
            Ok(effects)
        } else {
            Err("the state rebuilt from the events differs".to_owned())
        }
    }
}
