//! Replays recorded DeltaFIFO traces against an implementation of [`Fifo`].
//!
//! The replay does not depend on the engine. The engine and a server behind HTTP both implement [`Fifo`].

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::report::Report;
use super::synced::SyncRule;

/// The operations of a queue that the replay uses.
pub(crate) trait Fifo {
    /// Identifies a delivered key.
    type Lease;

    /// Sets the known objects.
    fn seed(&mut self, objects: &[Value]);
    /// Add. `Err` is the text of a refusal, as in the following methods.
    fn add(&mut self, object: &Value) -> Result<(), String>;
    /// Update.
    fn update(&mut self, object: &Value) -> Result<(), String>;
    /// Delete by object.
    fn delete(&mut self, object: &Value) -> Result<(), String>;
    /// A tombstone: an inferred Delete, by object or by key alone.
    fn delete_tombstone(&mut self, key: &str, object: Option<&Value>) -> Result<(), String>;
    /// Replace by the whole list.
    fn replace(&mut self, list: &[Value]) -> Result<(), String>;
    /// Resync.
    fn resync(&mut self);
    /// Delivers the first ready key.
    fn pop(&mut self) -> Popped<Self::Lease>;
    /// Delivers the first ready keys, at most `max`.
    fn pop_many(&mut self, max: usize) -> Result<Vec<Item<Self::Lease>>, Closed>;
    /// Acknowledges a delivered key. Its newest object becomes known.
    fn ack(&mut self, lease: Self::Lease);
    /// Returns a delivered key unprocessed to the tail.
    fn release(&mut self, lease: Self::Lease);
    /// The ready keys, first to last.
    fn list(&mut self) -> Vec<String>;
    /// The waiting deltas of a key; empty if there are none.
    fn get(&mut self, key: &str) -> Vec<Delta>;
    /// The known objects by key.
    fn known(&mut self) -> BTreeMap<String, Value>;
    /// HasSynced.
    fn synced(&mut self) -> bool;
    /// Close.
    fn close(&mut self);
    /// Checks the queue's own invariants.
    fn check(&mut self) -> Result<(), String> {
        Ok(())
    }
}

/// The result of a pop.
pub(crate) enum Popped<L> {
    /// A key.
    Item(Item<L>),
    /// No key is ready; client-go's Pop would block.
    Empty,
    /// The queue is closed and empty.
    Closed,
}

/// The queue is closed and empty.
pub(crate) struct Closed;

/// A key that was delivered.
pub(crate) struct Item<L> {
    pub(crate) key: String,
    pub(crate) lease: L,
    pub(crate) deltas: Vec<Delta>,
    /// The object that was acknowledged last.
    pub(crate) known: Option<Value>,
    pub(crate) is_in_initial_list: bool,
}

/// A delta in client-go's form.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Delta {
    #[serde(rename = "type")]
    kind: String,
    object: Option<Value>,
    tombstone: Option<Tombstone>,
}

/// client-go's `DeletedFinalStateUnknown`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Tombstone {
    key: String,
    object: Option<Value>,
}

impl Delta {
    /// Converts a delta of this project: an object, and whether the final state is unknown.
    pub(crate) fn new(kind: &str, key: &str, object: Value, final_state_unknown: bool) -> Self {
        let kind = kind.to_owned();
        if final_state_unknown {
            let tombstone = Tombstone { key: key.to_owned(), object: Some(object) };
            return Self { kind, object: None, tombstone: Some(tombstone) };
        }
        Self { kind, object: Some(object), tombstone: None }
    }

    pub(super) fn is_tombstone(&self) -> bool {
        self.tombstone.is_some()
    }

    fn is_deleted(&self) -> bool {
        self.kind == "Deleted"
    }

    fn newest_object(&self) -> Option<&Value> {
        let of_tombstone = || self.tombstone.as_ref().and_then(|tombstone| tombstone.object.as_ref());
        self.object.as_ref().or_else(of_tombstone)
    }
}

/// A notification that a consumer derives from a delta.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Event {
    Add { is_in_initial_list: bool, new: Value },
    Update { new: Value, old: Value },
    Delete { object: Option<Value>, tombstone: Option<Tombstone> },
}

/// client-go's `processDeltas`.
fn events<L>(item: &Item<L>) -> Vec<Event> {
    let mut known = item.known.clone();
    let mut events = Vec::new();
    for delta in &item.deltas {
        if delta.is_deleted() {
            known = None;
            let (object, tombstone) = (delta.object.clone(), delta.tombstone.clone());
            events.push(Event::Delete { object, tombstone });
            continue;
        }
        let new = delta.object.clone().unwrap_or_default();
        events.push(match known.replace(new.clone()) {
            Some(old) => Event::Update { new, old },
            None => Event::Add { is_in_initial_list: item.is_in_initial_list, new },
        });
    }
    events
}

/// A recorded trace.
#[derive(Debug, Deserialize)]
pub(crate) struct Trace {
    name: String,
    pub(crate) options: Options,
    steps: Vec<Step>,
}

/// The configuration of the recorded queue.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Options {
    pub(crate) known_objects: bool,
    pub(crate) emit_replaced: bool,
    initial_known: Vec<Value>,
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
    Add { object: Value },
    Update { object: Value },
    Delete { object: Value },
    DeleteTombstone { object: Tombstone },
    Replace { list: Vec<Value> },
    AddIfNotPresent { deltas: Vec<Delta> },
    Resync,
    Pop,
    PopRequeue,
    ListKeys,
    Get { key: String },
    KnownList,
    HasSynced,
    Close,
}

/// The recorded state after a step.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct State {
    pub(super) queue: Vec<String>,
    deltas: BTreeMap<String, Vec<Delta>>,
    /// `None` without a store.
    pub(super) known: Option<BTreeMap<String, Value>>,
    pub(super) has_synced: bool,
}

impl State {
    fn known_object(&self, key: &str) -> Option<&Value> {
        self.known.as_ref()?.get(key)
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PopResult {
    key: Option<String>,
    deltas: Option<Vec<Delta>>,
    events: Option<Vec<Event>>,
    is_in_initial_list: Option<bool>,
    requeued: Option<bool>,
    error: Option<String>,
    #[serde(default)]
    empty: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GetResult {
    exists: bool,
    #[serde(default)]
    deltas: Vec<Delta>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CallResult {
    error: Option<String>,
}

/// Names of the differences that the README of the recorded files allows.
pub(super) mod expected {
    pub(crate) const REQUEUE: &str =
        "1. has_synced and is_in_initial_list after a requeue in the initial list";
    pub(crate) const REFUSED: &str = "2. a refused call does not populate";
    pub(crate) const ADD_IF_NOT_PRESENT: &str = "3. add_if_not_present, emulated";
    pub(crate) const STOPPED: &str = "3. add_if_not_present, trace stopped";
    pub(crate) const NIL_TOMBSTONE: &str = "4. a tombstone without object carries the newest one";
    pub(crate) const DUPLICATE: &str = "5. a Replace that names a key twice is refused, trace stopped";
}

/// Replays every trace on a queue of its own.
pub(crate) fn replay<F: Fifo>(traces: &[Trace], mut queue: impl FnMut(&Options) -> F) -> Report {
    let mut report = Report::default();
    for trace in traces {
        let mut replay = Replay {
            queue: queue(&trace.options),
            before: State { known: trace.options.known_objects.then(BTreeMap::new), ..State::default() },
            sync: SyncRule::default(),
            report: &mut report,
        };
        replay.run(trace);
    }
    report
}

/// Whether the replay continues after a step.
enum Next {
    Step,
    Stop,
}

struct Replay<'r, F> {
    queue: F,
    /// The recorded state before the step. Tombstones without an object have got the newest object.
    before: State,
    sync: SyncRule,
    report: &'r mut Report,
}

impl<F: Fifo> Replay<'_, F> {
    fn run(&mut self, trace: &Trace) {
        if !trace.options.initial_known.is_empty() {
            self.queue.seed(&trace.options.initial_known);
            let keyed = |object: &Value| (key_of(object), object.clone());
            self.before.known = Some(trace.options.initial_known.iter().map(keyed).collect());
        }
        for (index, step) in trace.steps.iter().enumerate() {
            let left = (trace.steps.len() - index) as u64;
            match self.step(step) {
                Ok(Next::Step) => self.report.compared += 1,
                Ok(Next::Stop) => {
                    self.report.ignored += left;
                    return;
                }
                Err(error) => {
                    self.report.wrong.push(format!("{}, step {index}, {:?}: {error}", trace.name, step.op));
                    self.report.ignored += left;
                    return;
                }
            }
        }
    }

    fn step(&mut self, step: &Step) -> Result<Next, String> {
        let queue = &mut self.queue;
        match &step.op {
            Op::Add { object } => {
                let result = queue.add(object);
                self.called(step, &result)?;
            }
            Op::Update { object } => {
                let result = queue.update(object);
                self.called(step, &result)?;
            }
            Op::Delete { object } => {
                let result = queue.delete(object);
                self.called(step, &result)?;
            }
            Op::DeleteTombstone { object: tombstone } => {
                let result = queue.delete_tombstone(&tombstone.key, tombstone.object.as_ref());
                self.called(step, &result)?;
            }
            Op::Replace { list } => {
                let result = queue.replace(list);
                if result.as_ref().is_err_and(|code| code.contains("duplicate-key")) {
                    self.report.expect(expected::DUPLICATE);
                    return Ok(Next::Stop);
                }
                self.replaced(step, list, &result)?;
            }
            Op::AddIfNotPresent { deltas } => {
                if !self.add_if_not_present(deltas)? {
                    self.report.expect(expected::STOPPED);
                    return Ok(Next::Stop);
                }
            }
            Op::Resync => {
                queue.resync();
                accepted(step)?;
            }
            Op::Pop => self.pop(step, true)?,
            Op::PopRequeue => self.pop(step, false)?,
            Op::ListKeys => same("list_keys", &queue.list(), &typed(&step.result)?)?,
            Op::Get { key } => self.get(key, &typed(&step.result)?)?,
            Op::KnownList => {
                let known: Vec<Value> = queue.known().into_values().collect();
                same("known_list", &known, &typed(&step.result)?)?;
            }
            Op::HasSynced => {
                let synced = queue.synced();
                let flag = ("has_synced", synced, self.sync.has_synced(), typed(&step.result)?);
                self.flag(flag)?;
            }
            Op::Close => queue.close(),
        }
        self.state(&step.state)?;
        Ok(Next::Step)
    }

    /// An Add, Update or Delete.
    fn called(&mut self, step: &Step, result: &Result<(), String>) -> Result<(), String> {
        let recorded: CallResult = typed(&step.result)?;
        match (result, recorded.error) {
            (Ok(()), None) => self.sync.called(),
            (Err(_), Some(_)) => self.sync.refused(&self.before),
            (ours, theirs) => return Err(format!("result: {ours:?} instead of {theirs:?}")),
        }
        Ok(())
    }

    fn replaced(&mut self, step: &Step, list: &[Value], result: &Result<(), String>) -> Result<(), String> {
        if result.is_ok() {
            accepted(step)?;
            self.sync.replaced(&self.before, list.iter().map(key_of));
            return Ok(());
        }
        self.called(step, result)
    }

    /// Emulates `AddIfNotPresent`, which client-go uses to requeue a key, by producing its deltas. Returns false for deltas that
    /// no call can produce.
    fn add_if_not_present(&mut self, deltas: &[Delta]) -> Result<bool, String> {
        self.report.expect(expected::ADD_IF_NOT_PRESENT);
        self.sync.requeued(&self.before);
        let key = |delta: &Delta| match &delta.tombstone {
            Some(tombstone) => tombstone.key.clone(),
            None => delta.object.as_ref().map(key_of).unwrap_or_default(),
        };
        let key = deltas.first().map(key).unwrap_or_default();
        if self.before.queue.contains(&key) {
            return Ok(true);
        }
        let is_unknown = self.before.known_object(&key).is_none();
        for (index, delta) in deltas.iter().enumerate() {
            match (delta.kind.as_str(), &delta.object, &delta.tombstone) {
                ("Added", Some(object), None) => self.queue.add(object)?,
                ("Updated", Some(object), None) => self.queue.update(object)?,
                ("Deleted", _, _) if index == 0 && is_unknown => return Ok(false),
                ("Deleted", Some(object), None) => self.queue.delete(object)?,
                ("Deleted", None, Some(tombstone)) => {
                    self.queue.delete_tombstone(&tombstone.key, tombstone.object.as_ref())?;
                }
                _ => return Ok(false),
            }
            self.sync.called();
        }
        Ok(true)
    }

    fn pop(&mut self, step: &Step, processed: bool) -> Result<(), String> {
        let recorded: PopResult = typed(&step.result)?;
        let item = match self.queue.pop() {
            Popped::Item(item) => item,
            Popped::Empty => return same("pop is empty", &true, &recorded.empty),
            Popped::Closed => {
                let error = recorded.error.as_deref().unwrap_or_default();
                return same("pop reports closed", &true, &error.contains("closed"));
            }
        };
        same("popped key", &Some(&item.key), &recorded.key.as_ref())?;
        let deltas = self.fill(&item.key, recorded.deltas.as_deref().unwrap_or_default());
        same("popped deltas", &item.deltas, &deltas)?;
        let rule = self.sync.is_initial(&item.key);
        let theirs = recorded.is_in_initial_list.ok_or("pop without is_in_initial_list")?;
        self.flag(("is_in_initial_list", item.is_in_initial_list, rule, theirs))?;
        if let Some(theirs) = recorded.events {
            let ours = events(&item);
            let theirs = self.align(theirs, &ours, &deltas)?;
            same("events", &ours, &theirs)?;
        }
        same("requeued", &recorded.requeued, &Some(!processed))?;
        same("error", &recorded.error.is_some(), &!processed)?;
        if processed {
            self.queue.ack(item.lease);
            self.sync.acked(&item.key);
        } else {
            self.queue.release(item.lease);
            self.sync.requeued(&self.before);
        }
        Ok(())
    }

    /// Applies the expected differences to the recorded events, so that the events can be compared.
    fn align(&mut self, theirs: Vec<Event>, ours: &[Event], deltas: &[Delta]) -> Result<Vec<Event>, String> {
        let mut aligned = Vec::with_capacity(theirs.len());
        for (index, event) in theirs.into_iter().enumerate() {
            let (ours, delta) = (ours.get(index), deltas.get(index));
            aligned.push(match (event, ours) {
                (
                    Event::Add { is_in_initial_list, new },
                    Some(Event::Add { is_in_initial_list: flag, .. }),
                ) => {
                    self.flag(("is_in_initial_list of an event", *flag, *flag, is_in_initial_list))?;
                    Event::Add { is_in_initial_list: *flag, new }
                }
                (Event::Delete { object: None, tombstone: Some(tombstone) }, _) => {
                    let filled = delta.and_then(Delta::newest_object).cloned();
                    let object = tombstone.object.or_else(|| {
                        self.report.expect(expected::NIL_TOMBSTONE);
                        filled
                    });
                    Event::Delete { object: None, tombstone: Some(Tombstone { object, ..tombstone }) }
                }
                (event, _) => event,
            });
        }
        Ok(aligned)
    }

    fn get(&mut self, key: &str, recorded: &GetResult) -> Result<(), String> {
        let ours = self.queue.get(key);
        same("exists", &!ours.is_empty(), &recorded.exists)?;
        let theirs = self.fill(key, &recorded.deltas);
        same("deltas", &ours, &theirs)
    }

    fn state(&mut self, recorded: &State) -> Result<(), String> {
        let mut after = recorded.clone();
        same("queue", &self.queue.list(), &after.queue)?;
        let mut deltas = BTreeMap::new();
        for key in &after.queue {
            deltas.insert(key.clone(), self.queue.get(key));
        }
        for (key, list) in &mut after.deltas {
            *list = self.fill(key, list);
        }
        same("deltas", &deltas, &after.deltas)?;
        same("known", &self.queue.known(), after.known.as_ref().unwrap_or(&BTreeMap::new()))?;
        let synced = self.queue.synced();
        self.flag(("has_synced", synced, self.sync.has_synced(), after.has_synced))?;
        self.queue.check()?;
        self.before = after;
        Ok(())
    }

    /// Compares a flag of the initial list with the rule and with the recorded value. The recorded value may differ from the
    /// rule after a requeue or a refused call.
    fn flag(&mut self, (name, ours, rule, theirs): (&str, bool, bool, bool)) -> Result<(), String> {
        if ours == theirs && ours == rule {
            return Ok(());
        }
        match self.sync.excuse() {
            Some(difference) if ours == rule => self.report.expect(difference),
            excuse => {
                return Err(format!(
                    "{name}: {ours}, by the rule {rule}, recorded {theirs}, excuse {excuse:?}"
                ));
            }
        }
        Ok(())
    }

    /// Fills the newest object at that time into recorded tombstones of `key` that have none.
    fn fill(&mut self, key: &str, recorded: &[Delta]) -> Vec<Delta> {
        let before = self.before.deltas.get(key).map(Vec::as_slice).unwrap_or_default();
        let newest = before.last().and_then(Delta::newest_object).or_else(|| self.before.known_object(key));
        let mut filled = recorded.to_vec();
        for (index, delta) in filled.iter_mut().enumerate() {
            let Some(tombstone) = delta.tombstone.as_mut().filter(|tombstone| tombstone.object.is_none())
            else {
                continue;
            };
            // Lists only grow, so a deletion at the same index is the same deletion or has replaced it.
            let same_index = before.get(index).filter(|delta| delta.is_deleted());
            tombstone.object = same_index.and_then(Delta::newest_object).or(newest).cloned();
            self.report.expect(expected::NIL_TOMBSTONE);
        }
        filled
    }
}

/// The key of a recorded object; empty for an object without a key.
fn key_of(object: &Value) -> String {
    object.get("key").and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn typed<T: serde::de::DeserializeOwned>(value: &Value) -> Result<T, String> {
    T::deserialize(value).map_err(|error| format!("recorded result {value}: {error}"))
}

fn accepted(step: &Step) -> Result<(), String> {
    same("recorded error", &None, &typed::<CallResult>(&step.result)?.error)
}

pub(super) fn same<T: PartialEq + std::fmt::Debug>(name: &str, ours: &T, theirs: &T) -> Result<(), String> {
    if ours == theirs { Ok(()) } else { Err(format!("{name}:\n  ours   {ours:?}\n  theirs {theirs:?}")) }
}
