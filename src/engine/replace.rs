//! Replace: a whole set of objects turned into exactly the right changes, in slices.
//!
//! A Replace is accepted at one instant and applied over many; other calls run in between. Whatever
//! a producer says of a key after the acceptance is newer than the list, so the run leaves such a
//! key alone. Runs are volatile: after a crash the events that were queued stand, and the caller
//! repeats the Replace.

use std::collections::HashMap;
use std::sync::Arc;
use std::vec::IntoIter;

use super::command::{ObjectList, Progress, Replace, ReplaceId, Replaced};
use super::comparison::{Comparison, LOCKED_BYTES_MAX, PAIRS_MAX};
use super::config::Mode;
use super::delta::{DeltaKind, Provenance, Source};
use super::event::{Appended, EventKind, Origin, ReplaceCounts, ReplaceEnded};
use super::key::{Key, KeySet};
use super::limits::REPLACES_MAX;
use super::object::Object;
use super::queue::{Initial, Queue};
use super::refusal::Refusal;
use super::sweep::Sweep;
use super::table::Entry;
use super::time::Time;
use super::trace::Trace;

/// One Replace between its acceptance and its end.
#[derive(Debug)]
pub(super) struct Run {
    id: ReplaceId,
    items: IntoIter<(Key, Object)>,
    keys: KeySet,
    source: Option<Source>,
    only_changed: bool,
    trace: Option<Trace>,
    /// What its items are queued as: what the settings said at the acceptance.
    kind: DeltaKind,
    guard: Option<Guard>,
    is_dry: bool,
    phase: Phase,
    sweep: Sweep,
    counts: ReplaceCounts,
    /// The latest comparison of listed objects with the queue's.
    comparison: Arc<Comparison>,
    /// Keys of the list that need room, where it is tight.
    wanted: KeySet,
    /// Room held for keys of the list that it has not come to.
    reserved: usize,
    /// Keys of the list or of the queue with a produce call since the acceptance, and whether one of those named a source.
    called: HashMap<Key, bool>,
    /// Whether it was accepted before the queue had its initial list, and no other has brought it.
    may_be_first: bool,
    deletions: u64,
    owned: u64,
}

/// What an ended Replace leaves behind.
#[derive(Debug)]
pub struct Spent(#[expect(dead_code, reason = "it is only kept to be dropped")] Run);

/// How many deletions a Replace may bring.
#[derive(Clone, Copy, Debug)]
struct Guard {
    max_deletes: u64,
    max_percent: f64,
}

/// What a run does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Counts the keys that need room, from the item at this index on.
    Room { next: usize },
    /// Counts the deletions, for the guard or a dry run.
    Count,
    /// Counts what the items would do, from this index on; then answers or refuses.
    Plan { next: usize, refused: bool },
    /// Says that it starts.
    Start,
    /// Queues the items.
    Items,
    /// Queues the deletions.
    Deletions,
}

/// What the job needs after one of its parts.
enum Next {
    /// Another part.
    More,
    /// Objects compared, and then another part.
    Compare(Arc<Comparison>),
    /// Nothing: that was the last part.
    Done,
}

/// What a listed object means for its key.
enum Verdict {
    Skipped { take_over: bool },
    Unchanged,
    Changed,
}

impl Run {
    /// Whether the queue waits for this run to be synced.
    pub(super) fn may_be_first(&self) -> bool {
        self.may_be_first && !self.is_dry
    }

    fn refuses(&self) -> bool {
        let Some(guard) = self.guard else { return false };
        #[expect(clippy::cast_precision_loss, reason = "counts of keys are far below 2^52")]
        let percent = self.deletions as f64 * 100.0 > guard.max_percent * self.owned as f64;
        self.deletions > guard.max_deletes && percent
    }
}

impl Queue {
    /// Accepts a Replace: from now on calls for its keys count as newer. It runs by
    /// [`replace_step`](Self::replace_step).
    ///
    /// # Errors
    /// [`Refusal::WrongMode`], [`Refusal::ObjectTooLarge`] or [`Refusal::TooManyReplaces`]. What needs a look at every key is
    /// refused by `replace_step`, still before anything changes.
    pub fn accept_replace(&mut self, now: Time, replace: Replace) -> Result<ReplaceId, Refusal> {
        self.advance(now);
        self.check_replace(&replace)?;
        let percent = replace.max_delete_percent.or(self.config.max_delete_percent);
        let deletes = replace.max_deletes.or(self.config.max_deletes);
        let guard = (percent.is_some() || deletes.is_some())
            .then(|| Guard { max_deletes: deletes.unwrap_or(0), max_percent: percent.unwrap_or(0.0) });
        let room = self.config.max_keys.saturating_sub(self.keys() + self.reserved());
        let ObjectList { items, keys, .. } = replace.list;
        let fits = keys.len() <= room;
        self.last_run += 1;
        let id = ReplaceId(self.last_run);
        self.runs.push_back(Run {
            id,
            reserved: if fits && !replace.dry_run { keys.len() } else { 0 },
            phase: if fits { Phase::Count } else { Phase::Room { next: 0 } },
            items: items.into_iter(),
            keys,
            source: replace.source,
            only_changed: replace.only_changed,
            trace: replace.trace,
            kind: if self.config.emit_replaced { DeltaKind::Replaced } else { DeltaKind::Sync },
            guard,
            is_dry: replace.dry_run,
            sweep: Sweep::default(),
            counts: ReplaceCounts::default(),
            comparison: Arc::default(),
            wanted: KeySet::default(),
            called: HashMap::new(),
            may_be_first: !self.populated || self.initial == Initial::Aborted,
            deletions: 0,
            owned: 0,
        });
        Ok(id)
    }

    /// Checks what can be told of a Replace without a look at every key.
    ///
    /// # Errors
    /// [`Refusal::WrongMode`], [`Refusal::TooManyReplaces`] or [`Refusal::ObjectTooLarge`].
    pub fn check_replace(&self, replace: &Replace) -> Result<(), Refusal> {
        if self.config.mode == Mode::Keys {
            return Err(self.wrong_mode("replace", "a queue of mode keys has no objects, only add"));
        }
        if self.runs.len() >= REPLACES_MAX {
            return Err(Refusal::TooManyReplaces { limit: REPLACES_MAX });
        }
        let limit = self.config.max_object_bytes;
        if replace.list.longest_bytes <= limit {
            return Ok(());
        }
        let mut sizes = replace.list.items.iter().map(|(_, object)| object.bytes()).enumerate();
        let too_large = sizes.find(|(_, bytes)| *bytes > limit);
        too_large.map_or(Ok(()), |(index, bytes)| Err(Refusal::ObjectTooLarge { limit, bytes, index }))
    }

    /// Does the next part of a Replace, at most `budget` keys of it.
    ///
    /// # Errors
    /// [`Refusal::QueueFull`] or [`Refusal::MassDelete`]; nothing has changed then.
    pub fn replace_step(
        &mut self,
        now: Time,
        id: ReplaceId,
        budget: usize,
    ) -> Result<Progress<Replaced>, Refusal> {
        let now = self.advance(now);
        // A seeding would put what is older in place of what this brings.
        let is_next = |run: &mut Run| run.id == id && self.seeding.is_none();
        let Some(mut run) = self.runs.pop_front_if(is_next) else { return Ok(Progress::NotYet) };
        let next = self.next_part(now, &mut run, budget);
        let progress = match next {
            Ok(Next::More) => Progress::More,
            Ok(Next::Compare(comparison)) => Progress::Compare(comparison),
            ended => {
                let replaced = ended.map(|_| Progress::Done(self.end_run(now, &run)));
                self.spent.push(Spent(run));
                return replaced;
            }
        };
        self.runs.push_front(run);
        Ok(progress)
    }

    /// What ended Replaces leave behind: up to a million objects, to be dropped off the queue's lock.
    pub fn take_spent(&mut self) -> Vec<Spent> {
        std::mem::take(&mut self.spent)
    }

    fn next_part(&mut self, now: Time, run: &mut Run, budget: usize) -> Result<Next, Refusal> {
        match run.phase {
            Phase::Room { next } => self.count_room(run, next, budget)?,
            Phase::Count => self.count_deletions(run, budget),
            Phase::Plan { next, refused } => return self.plan_items(run, next, refused, budget),
            Phase::Start => {
                let first = run.may_be_first;
                self.emit(now, EventKind::ReplaceStarted { source: run.source.clone(), first });
                run.phase = Phase::Items;
            }
            Phase::Items => return Ok(self.queue_items(now, run, budget)),
            Phase::Deletions => {
                if self.queue_deletions(now, run, budget) {
                    return Ok(Next::Done);
                }
            }
        }
        Ok(Next::More)
    }

    fn end_run(&mut self, now: Time, run: &Run) -> Replaced {
        if !run.is_dry {
            let (source, counts, first) = (run.source.clone(), run.counts, run.may_be_first);
            self.emit(now, EventKind::ReplaceEnded(ReplaceEnded { source, first, aborted: false, counts }));
            for later in &mut self.runs {
                later.may_be_first = false;
            }
        }
        Replaced { resource_version: self.rv, counts: run.counts }
    }

    /// A producer has said something of `key`, which the Replaces that are on their way did not see.
    pub(super) fn note_call(&mut self, key: &Key, named_source: bool) {
        if let Some(seeding) = &mut self.seeding {
            seeding.called.insert(key.clone());
        }
        let is_held = self.holds(key);
        for run in &mut self.runs {
            // Others are neither queued nor deleted by it.
            if is_held || run.keys.contains(key) {
                *run.called.entry(key.clone()).or_default() |= named_source;
            }
        }
    }

    /// Keys that Replaces and a seeding on their way may still bring.
    pub(super) fn reserved(&self) -> usize {
        let seeding = self.seeding.as_ref().map_or(0, |seeding| seeding.reserved);
        seeding + self.runs.iter().map(|run| run.reserved).sum::<usize>()
    }

    fn count_room(&self, run: &mut Run, next: usize, budget: usize) -> Result<(), Refusal> {
        let items = run.items.as_slice();
        let slice = items.iter().skip(next).take(budget).map(|(key, _)| key);
        slice.filter(|key| !self.holds(key)).for_each(|key| run.wanted.insert(key.clone()));
        let next = next.saturating_add(budget);
        run.phase = Phase::Room { next };
        if next >= items.len() {
            let (keys, limit) = (self.keys() + self.reserved(), self.config.max_keys);
            let wanted = run.wanted.len();
            if wanted > limit.saturating_sub(keys) {
                return Err(Refusal::QueueFull { limit, keys, wanted });
            }
            run.reserved = if run.is_dry { 0 } else { wanted };
            run.phase = Phase::Count;
        }
        Ok(())
    }

    fn count_deletions(&self, run: &mut Run, budget: usize) {
        if run.guard.is_some() || run.is_dry {
            let source = run.source.clone();
            let owned = |entry: &Entry| is_owned_by(entry, source.as_ref());
            let mut sweep = std::mem::take(&mut run.sweep);
            let keys = self.next_keys(&mut sweep, budget, owned);
            run.sweep = sweep;
            run.owned += keys.len() as u64;
            let goes = |key: &&Key| !run.keys.contains(key) && !run.called.contains_key(*key);
            run.deletions += keys.iter().filter(goes).count() as u64;
            if run.sweep.is_under_way() {
                return;
            }
        }
        let refused = run.refuses();
        run.phase = if refused || run.is_dry { Phase::Plan { next: 0, refused } } else { Phase::Start };
    }

    fn plan_items(&self, run: &mut Run, next: usize, refused: bool, budget: usize) -> Result<Next, Refusal> {
        let mut counts = run.counts;
        let mut next = next;
        let mut left = budget;
        while left > 0 {
            let Some((key, object)) = run.items.as_slice().get(next) else { break };
            let Some(verdict) = self.verdict(run, key, object) else { break };
            next += 1;
            left = left.saturating_sub(cost(object));
            let taken_over = self.is_taken_over(run, key, &verdict);
            count(&mut counts, &verdict, taken_over);
        }
        run.counts = counts;
        run.phase = Phase::Plan { next, refused };
        if next < run.items.as_slice().len() {
            return Ok(if left > 0 { self.compare(run, next) } else { Next::More });
        }
        run.counts.deleted = run.deletions;
        match run.guard {
            Some(guard) if refused => Err(Refusal::MassDelete {
                deletions: run.deletions,
                owned: run.owned,
                max_deletes: guard.max_deletes,
                max_percent: guard.max_percent,
                counts: run.counts,
            }),
            _ => Ok(Next::Done),
        }
    }

    fn queue_items(&mut self, now: Time, run: &mut Run, budget: usize) -> Next {
        let mut left = budget;
        while left > 0 {
            let Some((key, object)) = run.items.as_slice().first() else { break };
            let Some(verdict) = self.verdict(run, key, object) else { return self.compare(run, 0) };
            let Some((key, object)) = run.items.next() else { break };
            left = left.saturating_sub(cost(&object));
            run.reserved = run.reserved.saturating_sub(usize::from(!self.holds(&key)));
            let taken_over = self.is_taken_over(run, &key, &verdict);
            count(&mut run.counts, &verdict, taken_over);
            match verdict {
                Verdict::Changed => {
                    let owner = run.source.clone().or_else(|| self.owner_of(&key));
                    let appended = Appended {
                        key,
                        delta: run.kind,
                        final_state_unknown: false,
                        origin: Origin::replace(run.may_be_first),
                        provenance: self.provenance(run.source.as_ref(), owner.as_ref(), run.trace.as_ref()),
                        due: None,
                        object,
                    };
                    self.emit(now, EventKind::Appended(appended));
                }
                Verdict::Unchanged => {
                    self.tally.ignored_unchanged += 1;
                    self.take_over(now, run, key);
                }
                Verdict::Skipped { take_over } => {
                    self.tally.ignored_superseded += 1;
                    if take_over {
                        self.take_over(now, run, key);
                    }
                }
            }
        }
        // Room may be held for more: for keys that the queue had already, or that were in the list twice.
        run.reserved = run.reserved.min(run.items.len());
        if run.items.len() == 0 {
            run.phase = Phase::Deletions;
        }
        Next::More
    }

    fn queue_deletions(&mut self, now: Time, run: &mut Run, budget: usize) -> bool {
        let goes = |entry: &Entry| {
            is_owned_by(entry, run.source.as_ref())
                && !run.keys.contains(&entry.key)
                && !run.called.contains_key(&entry.key)
        };
        let mut sweep = std::mem::take(&mut run.sweep);
        let keys = self.next_keys(&mut sweep, budget, goes);
        run.sweep = sweep;
        let origin = Origin::replace(run.may_be_first);
        let provenance = Provenance::new(run.source.clone(), None, run.trace.clone());
        for key in keys {
            let Some(entry) = self.table.get(key.as_str()) else { continue };
            let Some(object) = entry.newest_object().cloned() else { continue };
            let kind = if self.drops(entry) {
                EventKind::Dropped { key, origin }
            } else {
                EventKind::Appended(Appended {
                    key,
                    delta: DeltaKind::Deleted,
                    final_state_unknown: true,
                    origin,
                    provenance: provenance.clone(),
                    due: None,
                    object,
                })
            };
            self.emit(now, kind);
            run.counts.deleted += 1;
        }
        !run.sweep.is_under_way()
    }

    /// What the listed object means for its key; `None` if the objects must be compared first, without the lock.
    fn verdict(&self, run: &Run, key: &Key, object: &Object) -> Option<Verdict> {
        if let Some(named_source) = run.called.get(key) {
            return Some(Verdict::Skipped { take_over: !named_source });
        }
        let Some(newest) = self.newest_to_compare(run, key) else { return Some(Verdict::Changed) };
        let is_same = if is_cheap(newest, object) {
            Some(newest.same_content(object))
        } else {
            run.comparison.result(newest, object)
        };
        is_same.map(|is_same| if is_same { Verdict::Unchanged } else { Verdict::Changed })
    }

    /// The newest object of the key, if the Replace queues nothing for an equal one.
    fn newest_to_compare(&self, run: &Run, key: &Key) -> Option<&Object> {
        let state = self.table.get(key.as_str()).filter(|_| run.only_changed);
        state.filter(|entry| !entry.is_deleted()).and_then(Entry::newest_object)
    }

    /// Collects the pairs of large objects among the next items, from the item at this index on.
    fn compare(&self, run: &mut Run, next: usize) -> Next {
        let mut comparison = Comparison::default();
        let next_items = run.items.as_slice().iter().skip(next).take(PAIRS_MAX);
        for (key, object) in next_items.filter(|(key, _)| !run.called.contains_key(key)) {
            if let Some(newest) = self.newest_to_compare(run, key).filter(|newest| !is_cheap(newest, object))
            {
                comparison.push(newest, object);
            }
        }
        run.comparison = Arc::new(comparison);
        Next::Compare(run.comparison.clone())
    }

    /// Whether the run's source gets the key from another one.
    fn is_taken_over(&self, run: &Run, key: &Key, verdict: &Verdict) -> bool {
        let owner = self.table.get(key.as_str()).and_then(Entry::owner);
        let stays = matches!(verdict, Verdict::Skipped { take_over: false });
        !stays && run.source.is_some() && owner.is_some() && owner != run.source.as_ref()
    }

    /// Gives the newest state of a key that the list names, but does not change, to its source.
    fn take_over(&mut self, now: Time, run: &Run, key: Key) {
        let (Some(owner), Some(entry)) = (run.source.clone(), self.table.get(key.as_str())) else { return };
        if entry.has_state() && !entry.is_deleted() && entry.owner() != Some(&owner) {
            self.emit(now, EventKind::TakenOver { key, owner });
        }
    }
}

/// Whether `source` answers for the key, and the key is not deleted already.
fn is_owned_by(entry: &Entry, source: Option<&Source>) -> bool {
    entry.has_state() && !entry.is_deleted() && entry.owner() == source
}

/// Whether two objects may be compared under the lock.
fn is_cheap(newest: &Object, listed: &Object) -> bool {
    newest.is_shared_with(listed) || newest.bytes() + listed.bytes() <= LOCKED_BYTES_MAX
}

/// How much of a step's budget an object takes.
fn cost(object: &Object) -> usize {
    1 + object.bytes() / 4_096
}

fn count(counts: &mut ReplaceCounts, verdict: &Verdict, taken_over: bool) {
    match verdict {
        Verdict::Skipped { .. } => counts.skipped += 1,
        Verdict::Unchanged => counts.unchanged += 1,
        Verdict::Changed => counts.replaced += 1,
    }
    counts.taken_over += u64::from(taken_over);
}
