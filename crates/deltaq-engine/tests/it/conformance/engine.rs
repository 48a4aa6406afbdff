//! The engine as a [`Fifo`].

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use deltaq_engine::Queue;
use deltaq_engine::command::{Call, How, Item as EngineItem, Pop, Progress, Replace, Settle};
use deltaq_engine::config::Config;
use deltaq_engine::delta::{Delta as EngineDelta, DeltaKind};
use deltaq_engine::id::{Rv, Token};
use deltaq_engine::key::Key;
use deltaq_engine::object::{Object, scan};
use deltaq_engine::refusal::Refusal;
use deltaq_engine::schedule::Turn;
use deltaq_engine::table::Entry;
use deltaq_engine::time::Time;
use deltaq_types::Mode;
use serde_json::Value;

use super::fifo::{Closed, Delta, Fifo, Item, Options, Popped};

/// Keys per slice of a sliced command: few, so that even short lists take several.
const SLICE_KEYS: usize = 3;
/// A lease that is longer than any trace.
const LEASE: Duration = Duration::from_hours(365 * 24);

/// A queue, and a second one that is rebuilt from its events.
pub(crate) struct EngineFifo {
    queue: Queue,
    rebuilt: Queue,
    now: Time,
    /// Whether keys may be leased between steps.
    holds_leases: bool,
}

impl EngineFifo {
    /// An empty queue of mode delta.
    pub(crate) fn new(options: &Options) -> Self {
        let (known_objects, emit_replaced) = (options.known_objects, options.emit_replaced);
        let config = Config { known_objects, emit_replaced, lease: LEASE, ..Config::default() };
        Self { holds_leases: false, ..Self::of(config) }
    }

    /// An empty queue of mode events.
    pub(crate) fn events() -> Self {
        Self::of(Config { mode: Mode::Events, lease: LEASE, ..Config::default() })
    }

    fn of(config: Config) -> Self {
        let (config, now) = (Arc::new(config), Time::from_micros(1));
        Self {
            queue: Queue::new(config.clone(), Rv::ZERO, now),
            rebuilt: Queue::new(config, Rv::ZERO, now),
            now,
            holds_leases: true,
        }
    }

    /// The instant of the next command.
    fn tick(&mut self) -> Time {
        self.now = self.now.plus(Duration::from_micros(1));
        self.now
    }

    fn scan(&self, object: &Value) -> Result<(Key, Object), String> {
        let spec = &self.queue.config().key;
        let scanned = scan(&object.to_string(), spec).map_err(|error| error.to_string())?;
        Ok((scanned.key.map_err(|error| error.to_string())?, scanned.object))
    }

    fn call(&mut self, kind: DeltaKind, object: &Value, final_state_unknown: bool) -> Result<(), String> {
        let (key, object) = self.scan(object)?;
        self.produce(kind, key, Some(object), final_state_unknown)
    }

    fn produce(
        &mut self,
        kind: DeltaKind,
        key: Key,
        object: Option<Object>,
        final_state_unknown: bool,
    ) -> Result<(), String> {
        let call = Call { kind, object, final_state_unknown, ..Call::of_key(key, None) };
        let now = self.tick();
        self.queue.produce(now, &[call]).map(|_| ()).map_err(|refusal| refusal.to_string())
    }

    fn settle(&mut self, token: Token, how: How) {
        let now = self.tick();
        self.queue.settle(now, &[Settle { token, how }]);
    }

    fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.queue.table().from(Bound::Unbounded).map(|(_, entry)| entry)
    }
}

impl Fifo for EngineFifo {
    type Lease = Token;

    fn seed(&mut self, objects: &[Value]) {
        let keyed = |object| self.scan(object).map(|(key, object)| (key, object, None));
        let seeds: Vec<_> = objects.iter().map(keyed).collect::<Result<_, _>>().expect("seeds have keys");
        let now = self.tick();
        self.queue.advance(now);
        self.queue.check_seed(&seeds).expect("seeds fit");
        self.queue.seed_step(now, seeds);
    }

    fn add(&mut self, object: &Value) -> Result<(), String> {
        self.call(DeltaKind::Added, object, false)
    }

    fn update(&mut self, object: &Value) -> Result<(), String> {
        self.call(DeltaKind::Updated, object, false)
    }

    fn delete(&mut self, object: &Value) -> Result<(), String> {
        self.call(DeltaKind::Deleted, object, false)
    }

    fn delete_tombstone(&mut self, key: &str, object: Option<&Value>) -> Result<(), String> {
        if let Some(object) = object {
            return self.call(DeltaKind::Deleted, object, true);
        }
        let key = Key::new(key).map_err(|error| error.to_string())?;
        self.produce(DeltaKind::Deleted, key, None, true)
    }

    fn replace(&mut self, list: &[Value]) -> Result<(), String> {
        let items = list.iter().map(|object| self.scan(object)).collect::<Result<_, _>>()?;
        let now = self.tick();
        let text = |refusal: Refusal| refusal.to_string();
        let id = self.queue.accept_replace(now, Replace::new(items, None)).map_err(text)?;
        loop {
            let now = self.tick();
            if let Progress::Done(_) = self.queue.replace_step(now, id, SLICE_KEYS).map_err(text)? {
                return Ok(());
            }
        }
    }

    fn resync(&mut self) {
        let mut cursor = deltaq_engine::ScanCursor::default();
        loop {
            let now = self.tick();
            let step = self.queue.resync_step(now, &mut cursor, SLICE_KEYS);
            if let Progress::Done(_) = step.expect("mode delta has a resync") {
                return;
            }
        }
    }

    fn pop(&mut self) -> Popped<Token> {
        match self.pop_many(1) {
            Ok(items) => items.into_iter().next().map_or(Popped::Empty, Popped::Item),
            Err(Closed) => Popped::Closed,
        }
    }

    fn pop_many(&mut self, max: usize) -> Result<Vec<Item<Token>>, Closed> {
        let now = self.tick();
        let (lease, worker, id) = (None, None, None);
        let pop = Pop { max, max_bytes: usize::MAX, lease, worker, id, with_known: true, group: None };
        let items = match self.queue.pop(now, &pop) {
            Ok(items) => items,
            Err(Refusal::Closed) => return Err(Closed),
            Err(refusal) => panic!("a pop was refused: {refusal}"),
        };
        let item = |item: EngineItem| Item {
            key: item.key.to_string(),
            lease: item.token,
            deltas: item.deltas.iter().map(|delta| delta_of(&item.key, delta)).collect(),
            known: item.known.map(|known| value(&known.object)),
            is_in_initial_list: item.is_in_initial_list,
        };
        Ok(items.into_iter().map(item).collect())
    }

    fn ack(&mut self, lease: Token) {
        self.settle(lease, How::Ack);
    }

    fn release(&mut self, lease: Token) {
        self.settle(lease, How::Release);
    }

    fn list(&mut self) -> Vec<String> {
        let slots = self.queue.ready_after(Turn::START);
        slots.filter_map(|(_, slot)| Some(self.queue.table().at(slot)?.key.to_string())).collect()
    }

    fn get(&mut self, key: &str) -> Vec<Delta> {
        let Some(entry) = self.queue.table().get(key) else { return Vec::new() };
        entry.waiting.iter().map(|delta| delta_of(&entry.key, delta)).collect()
    }

    fn known(&mut self) -> BTreeMap<String, Value> {
        let known = |entry: &Entry| Some((entry.key.to_string(), value(&entry.known.as_ref()?.object)));
        self.entries().filter_map(known).collect()
    }

    fn synced(&mut self) -> bool {
        self.queue.has_synced()
    }

    fn close(&mut self) {
        let now = self.tick();
        self.queue.set_closed(now, true);
    }

    /// Checks the invariants, that no key is leased or delayed between steps, and that the events rebuild the state.
    fn check(&mut self) -> Result<(), String> {
        self.queue.check()?;
        let leased = if self.holds_leases { 0 } else { self.queue.schedule().leased_len() };
        if leased + self.queue.schedule().delayed_len() > 0 {
            return Err("a key is leased or delayed between steps".to_owned());
        }
        for event in self.queue.take_effects().events {
            self.rebuilt.apply(&event);
        }
        if self.queue.image() == self.rebuilt.image() {
            Ok(())
        } else {
            Err("the state rebuilt from the events differs".to_owned())
        }
    }
}

fn value(object: &Object) -> Value {
    serde_json::from_str(object.as_str()).expect("objects are JSON")
}

fn delta_of(key: &Key, delta: &EngineDelta) -> Delta {
    Delta::new(delta.kind.as_str(), key.as_str(), value(&delta.object), delta.final_state_unknown)
}
