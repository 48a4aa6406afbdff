//! Resync, purge, promote, redrive, discard and seed: commands over many keys.

use deltaq_engine::delta::DeltaKind;

use super::produce::New;
use super::{Content, Item, Label, Micros, Model, ModelKnown, Name, Place, Refused, Step, Traced, bytes_of};

/// What an operator does with keys that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Promote,
    Redrive,
    Discard,
}

/// The progress of a command that runs in steps.
#[derive(Clone, Debug, Default)]
pub(crate) struct ModelScan {
    after: Option<Name>,
    begun: Option<u64>,
    keys: u64,
    deltas: u64,
    trace: Traced,
}

impl ModelScan {
    pub(crate) fn traced(trace: Traced) -> Self {
        Self { trace, ..Self::default() }
    }
}

impl Model {
    pub(crate) fn resync_step(
        &mut self,
        now: Micros,
        scan: &mut ModelScan,
        budget: usize,
    ) -> Result<Step<u64>, Refused> {
        let now = self.advance(now);
        if self.is_keys() {
            return Err(Refused::WrongMode);
        }
        if self.count(|item| item.known.is_some()) == 0 {
            return Ok(Step::Done(scan.keys));
        }
        let (slice, last) = self.slice(scan.after, budget);
        for key in slice {
            scan.keys += u64::from(self.resync_key(now, key, scan.trace));
        }
        scan.after = last;
        Ok(if last.is_some() { Step::More } else { Step::Done(scan.keys) })
    }

    /// Returns the numbers of purged keys and deltas. The purge keeps changes that arrive while it runs.
    pub(crate) fn purge_step(
        &mut self,
        now: Micros,
        scan: &mut ModelScan,
        budget: usize,
    ) -> Step<(u64, u64)> {
        let now = self.advance(now);
        let begun = *scan.begun.get_or_insert(self.rv);
        let (slice, last) = self.slice(scan.after, budget);
        for key in slice {
            if self.items[key].waiting.last().is_some_and(|delta| delta.rv > begun) {
                self.hit("purge keeps a later change");
                continue;
            }
            let (dropped, deltas) = self.purge_key(now, key);
            scan.keys += u64::from(dropped);
            scan.deltas += deltas;
        }
        scan.after = last;
        if last.is_some() { Step::More } else { Step::Done((scan.keys, scan.deltas)) }
    }

    pub(crate) fn operate_step(
        &mut self,
        now: Micros,
        keys: Option<&[Name]>,
        scan: &mut ModelScan,
        budget: usize,
        operation: Operation,
    ) -> Step<u64> {
        let now = self.advance(now);
        let batch = if let Some(keys) = keys {
            keys.to_vec()
        } else if operation == Operation::Promote {
            let (slice, last) = self.slice(scan.after, budget);
            scan.after = last;
            slice
        } else {
            let after = scan.after.take();
            let behind = |key: &Name| after.is_none_or(|after| *key > after);
            let batch: Vec<Name> = self.parked().into_iter().filter(behind).take(budget).collect();
            scan.after = batch.last().copied().filter(|_| batch.len() == budget);
            batch
        };
        for key in batch {
            let done = match operation {
                Operation::Promote => self.promote_key(now, key),
                Operation::Redrive => self.redrive_key(now, key),
                Operation::Discard => self.discard_key(now, key),
            };
            scan.keys += u64::from(done);
        }
        if scan.after.is_some() { Step::More } else { Step::Done(scan.keys) }
    }

    fn resync_key(&mut self, now: Micros, key: Name, trace: Traced) -> bool {
        let Some(item) = self.get(key).cloned() else { return false };
        let Some(known) = item.known else { return false };
        if !item.waiting.is_empty() || item.is_leased() || item.is_parked() {
            self.hit("Resync skips a busy key");
            return false;
        }
        let kind = DeltaKind::Sync;
        let new = New {
            kind,
            content: known.content,
            source: None,
            owner: known.owner,
            final_state_unknown: false,
            due: None,
            debounce: None,
            start: self.start_of_resync(known.content),
            trace,
        };
        self.append(now, key, &new, false);
        self.hit("Resync delivers a key");
        true
    }

    /// Returns whether a ready or delayed key was dropped, and the number of dropped deltas.
    fn purge_key(&mut self, now: Micros, key: Name) -> (bool, u64) {
        let item = self.item(key).clone();
        if item.is_parked() {
            return (false, 0);
        }
        let deltas = item.waiting.len() as u64;
        if let Some(lease) = item.lease() {
            if item.waiting.is_empty() && lease.new_change.is_none() && !item.waits() {
                return (false, 0);
            }
            self.event(now);
            let events = self.is_events();
            self.drop_versions(key, &item.waiting);
            let item = self.item(key);
            item.waiting.clear();
            item.delay = None;
            item.debounced.clear();
            item.starts.clear();
            if let Place::Leased(lease) = &mut item.place {
                lease.new_change = None;
                item.changes.truncate(lease.changes);
                let covered = item.leased.last().filter(|_| events).map_or(lease.token, |delta| delta.rv);
                if item.initial_pending.is_some_and(|initial_pending| initial_pending > covered) {
                    item.initial_pending = None;
                }
            }
            self.hit("purge of a leased key");
            return (false, deltas);
        }
        if item.place == Place::Idle && !item.waits() {
            return (false, 0);
        }
        self.event(now);
        self.drop_versions(key, &item.waiting);
        let (known, was_initial) = (item.known, item.initial_pending.is_some());
        *self.item(key) = Item { known, ..Item::default() };
        self.tidy(key);
        self.hit(if was_initial {
            "purge drops a pending key of the initial list"
        } else {
            "purge drops a key"
        });
        (true, deltas)
    }

    fn promote_key(&mut self, now: Micros, key: Name) -> bool {
        let keys = self.is_keys();
        // In mode keys a delay is an add of its own, also of a key that is ready or leased.
        let is_promoted = |item: &Item| item.is_delayed() || (keys && item.delay.is_some());
        if !self.get(key).is_some_and(is_promoted) {
            return false;
        }
        if self.is_shut_down() {
            self.hit("promote skips a frozen delay");
            return false;
        }
        let was_idle = self.get(key).is_some_and(Item::is_delayed);
        self.delay_elapses(key, now);
        self.hit(if was_idle { "promote" } else { "promote of a delay of a ready or leased key" });
        true
    }

    fn redrive_key(&mut self, now: Micros, key: Name) -> bool {
        if !self.get(key).is_some_and(Item::is_parked) {
            return false;
        }
        let (rv, at) = self.event(now);
        let stamp = (self.position(key, rv), at);
        let had_floor = self.item(key).floor.take().is_some();
        self.item(key).wake(stamp);
        self.tidy(key);
        self.hit(if had_floor { "redrive before the floor" } else { "redrive" });
        true
    }

    fn discard_key(&mut self, now: Micros, key: Name) -> bool {
        if !self.get(key).is_some_and(Item::is_parked) {
            return false;
        }
        let stamp = self.event(now);
        let events = self.is_events();
        let waiting = self.item(key).waiting.clone();
        // In mode events the deltas behind the dropped one stay.
        if !events || waiting.len() == 1 {
            self.drop_versions(key, &waiting);
        }
        let item = self.item(key);
        let known = item.known;
        let behind = if events { 1 } else { item.waiting.len() };
        let waiting = item.waiting.split_off(behind);
        let changes = if events { item.changes.split_off(1) } else { Vec::new() };
        let starts = if waiting.is_empty() { Vec::new() } else { item.starts.clone() };
        *item = Item { waiting, known, changes, starts, ..Item::default() };
        self.go_on(key, stamp);
        self.tidy(key);
        self.hit("discard");
        true
    }

    pub(crate) fn check_seed(
        &mut self,
        now: Micros,
        seeds: &[(Name, Content, Label)],
    ) -> Result<(), Refused> {
        self.advance(now);
        if self.is_keys() {
            return Err(Refused::WrongMode);
        }
        if !self.config.known_objects {
            return Err(Refused::NoKnownObjects);
        }
        let waits = |item: &Item| item.place != Place::Idle || item.waits();
        let waiting = self.count(waits);
        if waiting > 0 || !self.jobs.is_empty() {
            self.hit("seed is refused");
            return Err(Refused::NotEmpty { waiting });
        }
        for (index, (_, content, _)) in seeds.iter().enumerate() {
            if bytes_of(*content) > self.config.max_object_bytes {
                return Err(Refused::TooLarge { index });
            }
        }
        self.check_capacity(seeds.iter().map(|(key, _, _)| *key))
    }

    pub(crate) fn seed(&mut self, now: Micros, seeds: &[(Name, Content, Label)]) {
        let now = self.advance(now);
        for (key, content, owner) in seeds {
            let (rv, _) = self.event(now);
            self.remembered.remove(key);
            self.item(key).known = Some(ModelKnown { content: *content, rv, owner: *owner });
            self.hit("seed");
        }
    }
}
