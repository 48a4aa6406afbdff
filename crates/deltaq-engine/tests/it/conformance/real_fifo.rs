//! Replays recorded RealFIFO traces against a [`Fifo`] of mode events.
//!
//! A recorded delta may be delivered later than others here: RealFIFO puts the tombstones of a Replace before its list, and a
//! queue behind its list, so that a crash during a Replace deletes nothing. The replay then leases the keys in between and holds
//! them, and acknowledges every delta at its recorded step. So known objects, HasSynced and the flags of the initial list are
//! compared at every step. All other deltas must be delivered in the recorded order.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::Value;

use super::fifo::{Closed, Delta, Fifo, Item, same};
use super::report::Report;

const TOMBSTONE: &str = "7. a tombstone of a Replace is delivered behind the list";

/// A recorded trace.
#[derive(Debug, Deserialize)]
pub(crate) struct Trace {
    name: String,
    initial_known: Vec<Value>,
    steps: Vec<Step>,
}

#[derive(Debug, Deserialize)]
struct Step {
    #[serde(flatten)]
    op: Op,
    result: Option<Popped>,
    state: State,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
enum Op {
    Add { object: Value },
    Update { object: Value },
    Delete { object: Value },
    Replace { list: Vec<Value> },
    Resync,
    Pop,
    PopBatch,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Popped {
    #[serde(default)]
    deltas: Vec<Queued>,
    #[serde(default)]
    is_in_initial_list: bool,
    #[serde(default)]
    empty: bool,
}

/// The recorded state after a step.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct State {
    items: Vec<Queued>,
    known: BTreeMap<String, Value>,
    has_synced: bool,
}

/// A delta and its key.
#[derive(Debug, Deserialize)]
struct Queued {
    key: String,
    #[serde(flatten)]
    fields: BTreeMap<String, Value>,
}

impl Queued {
    fn delta(&self) -> Delta {
        let fields = self.fields.clone().into_iter().collect();
        serde_json::from_value(Value::Object(fields)).expect("a recorded delta")
    }
}

/// Replays every trace on a queue of its own.
pub(crate) fn replay<F: Fifo>(traces: &[Trace], mut queue: impl FnMut() -> F) -> Report {
    let mut report = Report::default();
    for trace in traces {
        let mut replay = Replay { queue: queue(), held: Vec::new(), report: &mut report };
        if !trace.initial_known.is_empty() {
            replay.queue.seed(&trace.initial_known);
        }
        for (index, step) in trace.steps.iter().enumerate() {
            if let Err(error) = replay.step(step) {
                replay.report.wrong.push(format!("{}, step {index}, {:?}: {error}", trace.name, step.op));
                replay.report.ignored += (trace.steps.len() - index) as u64;
                break;
            }
            replay.report.compared += 1;
        }
    }
    report
}

struct Replay<'r, F: Fifo> {
    queue: F,
    /// Leased keys whose delta was recorded to be delivered later, in the order of their delivery.
    held: Vec<Item<F::Lease>>,
    report: &'r mut Report,
}

impl<F: Fifo> Replay<'_, F> {
    fn step(&mut self, step: &Step) -> Result<(), String> {
        let queue = &mut self.queue;
        match &step.op {
            Op::Add { object } => queue.add(object)?,
            Op::Update { object } => queue.update(object)?,
            Op::Delete { object } => queue.delete(object)?,
            Op::Replace { list } => queue.replace(list)?,
            Op::Resync => queue.resync(),
            Op::Pop | Op::PopBatch => {
                let recorded = step.result.as_ref().ok_or("a pop without a result")?;
                self.pop(recorded, &step.state.items)?;
            }
        }
        self.state(&step.state)
    }

    /// Delivers and acknowledges the recorded deltas. Where no tombstones are near, a batch is one pop of as many keys.
    fn pop(&mut self, recorded: &Popped, left: &[Queued]) -> Result<(), String> {
        if recorded.empty {
            same("held keys", &0, &self.held.len())?;
            return same("delivered keys", &0, &self.pop_many(1)?);
        }
        let mut near = recorded.deltas.iter().chain(left);
        if self.held.is_empty() && !near.any(|queued| queued.delta().is_tombstone()) {
            self.pop_many(recorded.deltas.len())?;
            same("batch", &self.held.len(), &recorded.deltas.len())?;
        }
        for queued in &recorded.deltas {
            let item = self.take(queued)?;
            same("initial list", &item.is_in_initial_list, &recorded.is_in_initial_list)?;
            self.queue.ack(item.lease);
        }
        Ok(())
    }

    /// Leases and holds the next keys. Returns their number.
    fn pop_many(&mut self, max: usize) -> Result<usize, String> {
        let items = self.queue.pop_many(max).map_err(|Closed| "the queue is closed")?;
        let count = items.len();
        self.held.extend(items);
        Ok(count)
    }

    /// The item with a recorded delta, and no other delta. The deltas that are not tombstones come in the recorded order.
    fn take(&mut self, queued: &Queued) -> Result<Item<F::Lease>, String> {
        let index = loop {
            if let Some(index) = self.held.iter().position(|item| item.key == queued.key) {
                break index;
            }
            if self.pop_many(1)? == 0 {
                return Err(format!("key {} is not delivered", queued.key));
            }
        };
        let is_tombstone = |item: &Item<F::Lease>| item.deltas.iter().all(Delta::is_tombstone);
        let before = self.held.iter().take(index).filter(|item| !is_tombstone(item));
        let keys: Vec<String> = before.map(|item| item.key.clone()).collect();
        let item = self.held.remove(index);
        same("deltas", &item.deltas, &vec![queued.delta()])?;
        if !keys.is_empty() {
            if !is_tombstone(&item) {
                return Err(format!("keys {keys:?} are delivered before {}", queued.key));
            }
            self.report.expect(TOMBSTONE);
        }
        Ok(item)
    }

    fn state(&mut self, recorded: &State) -> Result<(), String> {
        let mut theirs: BTreeMap<&str, Vec<Delta>> = BTreeMap::new();
        for queued in &recorded.items {
            theirs.entry(&queued.key).or_default().push(queued.delta());
        }
        // The keys that are not held, in the order of their oldest deltas, except those whose oldest delta is a tombstone.
        let held: BTreeSet<&str> = self.held.iter().map(|item| item.key.as_str()).collect();
        let mut seen = BTreeSet::new();
        let mut heads: Vec<String> = Vec::new();
        for Queued { key, .. } in &recorded.items {
            let is_head = seen.insert(key.as_str()) && !held.contains(key.as_str());
            if is_head && !theirs[key.as_str()][0].is_tombstone() {
                heads.push(key.clone());
            }
        }

        let mut ours = self.queue.list();
        let mut deltas: BTreeMap<&str, Vec<Delta>> = BTreeMap::new();
        for item in &self.held {
            deltas.entry(&item.key).or_default().extend(item.deltas.iter().cloned());
        }
        for key in theirs.keys() {
            deltas.entry(key).or_default().extend(self.queue.get(key));
        }
        same("deltas", &deltas, &theirs)?;
        ours.retain(|key| deltas.get(key.as_str()).is_none_or(|list| !list[0].is_tombstone()));
        same("queue", &ours, &heads)?;
        same("known", &self.queue.known(), &recorded.known)?;
        same("has_synced", &self.queue.synced(), &recorded.has_synced)?;
        self.queue.check()
    }
}
