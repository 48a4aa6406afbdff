//! Resync, purge, redrive, discard and seed: commands over many keys.

use deltaq::engine::delta::DeltaKind;

use super::produce::New;
use super::{Item, Micros, Model, ModelKnown, Name, Place, Refused, Step, Thing, Traced, Who, bytes_of};

/// The progress of a command that runs in steps.
#[derive(Clone, Debug, Default)]
pub(crate) struct ModelSweep {
    after: Option<Name>,
    begun: Option<u64>,
    keys: u64,
    deltas: u64,
    trace: Traced,
}

impl ModelSweep {
    pub(crate) fn traced(trace: Traced) -> Self {
        Self { trace, ..Self::default() }
    }
}

impl Model {
    pub(crate) fn resync_step(
        &mut self,
        now: Micros,
        sweep: &mut ModelSweep,
        budget: usize,
    ) -> Result<Step<u64>, Refused> {
        let now = self.advance(now);
        if self.is_keys() {
            return Err(Refused::WrongMode);
        }
        if self.count(|item| item.known.is_some()) == 0 {
            return Ok(Step::Done(sweep.keys));
        }
        let (slice, last) = self.slice(sweep.after, budget);
        for key in slice {
            sweep.keys += u64::from(self.resync_key(now, key, sweep.trace));
        }
        sweep.after = last;
        Ok(if last.is_some() { Step::More } else { Step::Done(sweep.keys) })
    }

    /// Returns the numbers of keys and deltas. A change that arrives during the purge stays.
    pub(crate) fn purge_step(
        &mut self,
        now: Micros,
        sweep: &mut ModelSweep,
        budget: usize,
    ) -> Step<(u64, u64)> {
        let now = self.advance(now);
        let begun = *sweep.begun.get_or_insert(self.rv);
        let (slice, last) = self.slice(sweep.after, budget);
        for key in slice {
            if self.items[key].waiting.last().is_some_and(|delta| delta.rv > begun) {
                self.hit("purge leaves what came in while it runs");
                continue;
            }
            let (dropped, deltas) = self.purge_key(now, key);
            sweep.keys += u64::from(dropped);
            sweep.deltas += deltas;
        }
        sweep.after = last;
        if last.is_some() { Step::More } else { Step::Done((sweep.keys, sweep.deltas)) }
    }

    pub(crate) fn parked_step(
        &mut self,
        now: Micros,
        keys: Option<&[Name]>,
        sweep: &mut ModelSweep,
        budget: usize,
        redrive: bool,
    ) -> Step<u64> {
        let now = self.advance(now);
        let batch = if let Some(keys) = keys {
            keys.to_vec()
        } else {
            let after = sweep.after.take();
            let behind = |key: &Name| after.is_none_or(|after| *key > after);
            let batch: Vec<Name> = self.parked().into_iter().filter(behind).take(budget).collect();
            sweep.after = batch.last().copied().filter(|_| batch.len() == budget);
            batch
        };
        for key in batch {
            let done = if redrive { self.redrive_key(now, key) } else { self.discard_key(now, key) };
            sweep.keys += u64::from(done);
        }
        if sweep.after.is_some() { Step::More } else { Step::Done(sweep.keys) }
    }

    fn resync_key(&mut self, now: Micros, key: Name, trace: Traced) -> bool {
        let Some(item) = self.get(key).cloned() else { return false };
        let Some(known) = item.known else { return false };
        if !item.waiting.is_empty() || item.is_leased() || item.is_parked() {
            self.hit("Resync passes a key that is busy");
            return false;
        }
        let kind = DeltaKind::Sync;
        let new = New {
            kind,
            thing: known.thing,
            source: None,
            owner: known.owner,
            final_state_unknown: false,
            due: None,
            trace,
        };
        self.append(now, key, &new, false);
        self.hit("Resync delivers a key");
        true
    }

    /// Returns whether a ready or delayed key was dropped, and how many deltas.
    fn purge_key(&mut self, now: Micros, key: Name) -> (bool, u64) {
        let item = self.item(key).clone();
        if item.is_parked() {
            return (false, 0);
        }
        let deltas = item.waiting.len() as u64;
        if let Some(lease) = item.lease() {
            if item.waiting.is_empty() && lease.new_change.is_none() && item.delay.is_none() {
                return (false, 0);
            }
            self.event(now);
            let item = self.item(key);
            item.waiting.clear();
            item.delay = None;
            if let Place::Leased(lease) = &mut item.place {
                lease.new_change = None;
                if item.mark.is_some_and(|mark| mark > lease.token) {
                    item.mark = None;
                }
            }
            self.hit("purge behind a lease");
            return (false, deltas);
        }
        if item.place == Place::Idle && item.delay.is_none() {
            return (false, 0);
        }
        self.event(now);
        let (known, marked) = (item.known, item.mark.is_some());
        *self.item(key) = Item { known, ..Item::default() };
        self.tidy(key);
        self.hit(if marked { "purge drops a key with its mark" } else { "purge drops a key" });
        (true, deltas)
    }

    fn redrive_key(&mut self, now: Micros, key: Name) -> bool {
        if !self.get(key).is_some_and(Item::is_parked) {
            return false;
        }
        let stamp = self.event(now);
        self.item(key).wake(stamp);
        self.tidy(key);
        self.hit("redrive");
        true
    }

    fn discard_key(&mut self, now: Micros, key: Name) -> bool {
        if !self.get(key).is_some_and(Item::is_parked) {
            return false;
        }
        self.event(now);
        let item = self.item(key);
        let known = item.known;
        *item = Item { known, ..Item::default() };
        self.tidy(key);
        self.hit("discard");
        true
    }

    pub(crate) fn check_seed(&mut self, now: Micros, seeds: &[(Name, Thing, Who)]) -> Result<(), Refused> {
        self.advance(now);
        if self.is_keys() || !self.config.known_objects {
            return Err(Refused::WrongMode);
        }
        let waits = |item: &Item| item.place != Place::Idle || item.delay.is_some();
        let waiting = self.count(waits);
        if waiting > 0 || !self.runs.is_empty() {
            self.hit("seed is refused");
            return Err(Refused::NotEmpty { waiting });
        }
        for (index, (_, thing, _)) in seeds.iter().enumerate() {
            if bytes_of(*thing) > self.config.max_object_bytes {
                return Err(Refused::TooLarge { index });
            }
        }
        self.check_room(seeds.iter().map(|(key, _, _)| *key))
    }

    pub(crate) fn seed(&mut self, now: Micros, seeds: &[(Name, Thing, Who)]) {
        let now = self.advance(now);
        for (key, thing, owner) in seeds {
            let (rv, _) = self.event(now);
            self.item(key).known = Some(ModelKnown { thing: *thing, rv, owner: *owner });
            self.hit("seed");
        }
    }
}
