//! Replace: turns a complete list of objects into the necessary changes, in steps.
//!
//! A Replace is accepted at one instant and applied in many steps; other calls run in between. A call that arrives
//! after the acceptance is newer than the list, so the Replace does not touch the key of that call.

use std::cmp::Ordering;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::memory::new_bytes;
use super::version::may_merge_deletion;
use super::{Call, DeletionGuard, ObjectList, Progress, Replace, ReplaceId, Replaced};
use crate::comparison::{Comparison, PAIRS_MAX};
use crate::delta::{DeltaKind, Provenance};
use crate::effects::Garbage;
use crate::event::{Appended, EventKind, Origin, ReplaceCounts, ReplaceEnded};
use crate::id::Source;
use crate::job::{Phase, ReplaceJob};
use crate::key::{Key, KeySet};
use crate::limits::REPLACES_MAX;
use crate::object::{Change, Object};
use crate::object_version::ObjectVersion;
use crate::queue::Queue;
use crate::refusal::Refusal;
use crate::table::Entry;
use crate::time::Time;

/// A step examines this many keys at least to find those that are not listed, which takes little time for each.
const EXAMINED_AT_ONCE: usize = 1_000;

/// The next step of a job.
enum Next {
    /// Run the next part.
    More,
    /// Compare objects, then run the next part.
    Compare(Arc<Comparison>),
    /// Nothing; the job is done.
    Done,
}

/// The effect of a listed object on its key.
enum Verdict {
    Skipped {
        take_over: bool,
    },
    Stale {
        take_over: bool,
    },
    Unchanged,
    /// Only ignored members have changed.
    Refreshed,
    Changed,
}

impl Queue {
    /// Accepts a Replace: from now on, calls for its keys are newer than the list. [`replace_step`](Self::replace_step)
    /// applies the list.
    ///
    /// # Errors
    /// Same as [`check_replace`](Self::check_replace). `replace_step` makes the checks that depend on all keys, before
    /// anything changes.
    pub fn accept_replace(&mut self, now: Time, replace: Replace) -> Result<ReplaceId, Refusal> {
        self.advance(now);
        self.check_replace(&replace)?;
        let sequence = replace.sequence();
        let duplicate = sequence.as_ref().is_some_and(|sequence| self.has_applied(sequence));
        let percent = replace.max_delete_percent.or(self.state().config.max_delete_percent);
        let deletes = replace.max_deletes.or(self.state().config.max_deletes);
        let guard = if percent.is_some() || deletes.is_some() {
            DeletionGuard::Set { max_deletes: deletes, max_percent: percent }
        } else {
            DeletionGuard::Default(replace.default_limit)
        };
        let room =
            self.state().config.max_keys.saturating_sub(self.state().keys() + self.volatile.reserved());
        let ObjectList { items, keys, longest_bytes, new_bytes: held_bytes } = replace.list;
        let fits = keys.len() <= room;
        let phase = match fits {
            _ if duplicate => Phase::Duplicate,
            true => Phase::Count,
            false => Phase::Room { next: 0 },
        };
        self.volatile.last_job += 1;
        let id = ReplaceId(self.volatile.last_job);
        self.volatile.replace_jobs.push_back(ReplaceJob {
            id,
            reserved: if phase == Phase::Count && !replace.dry_run { keys.len() } else { 0 },
            held_bytes,
            fits,
            phase,
            items: items.into_iter(),
            keys,
            kept: replace.kept,
            keeps_all: replace.keeps_all,
            longest_bytes,
            source: replace.source,
            sequence: sequence.filter(|_| !replace.dry_run && !duplicate),
            only_changed: replace.only_changed,
            trace: replace.trace,
            provenance: Provenance::default(),
            kind: if self.state().config.emit_replaced { DeltaKind::Replaced } else { DeltaKind::Sync },
            guard,
            is_dry: replace.dry_run,
            slots: None,
            missing: BTreeSet::new(),
            counts: ReplaceCounts::default(),
            comparison: Arc::default(),
            wanted: KeySet::default(),
            called: HashMap::new(),
            version: self.state().config.version.clone(),
            versions_decide: self.state().config.version.is_some(),
            may_be_first: self.state().initial.is_wanted(),
            owned: 0,
        });
        Ok(id)
    }

    /// Makes the checks that need no scan of the queue's keys.
    ///
    /// # Errors
    /// [`Refusal::WrongMode`], [`Refusal::TooManyReplaces`], [`Refusal::MemoryFull`] or [`Refusal::ObjectTooLarge`]; with a sequence
    /// [`Refusal::SequenceBusy`] or [`Refusal::TooManySequences`].
    pub fn check_replace(&self, replace: &Replace) -> Result<(), Refusal> {
        self.check_takes_calls()?;
        if !self.state().config.rules().has_objects {
            return Err(self.wrong_mode("replace", "a queue of mode keys has no objects, only add"));
        }
        let sequence = replace.sequence();
        if sequence.as_ref().is_some_and(|sequence| self.has_applied(sequence)) {
            return Ok(());
        }
        if self.volatile.replace_jobs.len() >= REPLACES_MAX {
            return Err(Refusal::TooManyReplaces { limit: REPLACES_MAX });
        }
        if let Some(sequence) = sequence.filter(|_| !replace.dry_run) {
            self.check_sequence(&sequence)?;
        }
        if !replace.dry_run {
            self.volatile.room.check(replace.list.new_bytes)?;
        }
        let limit = self.state().config.max_object_bytes;
        if replace.list.longest_bytes <= limit {
            return Ok(());
        }
        let mut sizes = replace.list.items.iter().map(|(_, object)| object.bytes()).enumerate();
        let too_large = sizes.find(|(_, bytes)| *bytes > limit);
        too_large.map_or(Ok(()), |(index, bytes)| Err(Refusal::ObjectTooLarge { limit, bytes, index }))
    }

    /// Runs the next step of a Replace, for at most `budget` keys.
    ///
    /// # Errors
    /// [`Refusal::QueueFull`], [`Refusal::KeyFull`] or [`Refusal::MassDelete`]; the Replace has then changed nothing.
    pub fn replace_step(
        &mut self,
        now: Time,
        id: ReplaceId,
        budget: usize,
    ) -> Result<Progress<Replaced>, Refusal> {
        let now = self.advance(now);
        let Some(mut job) = self.take_job(id) else { return Ok(Progress::NotYet) };
        let next = self.next_part(now, &mut job, budget);
        let progress = match next {
            Ok(Next::More) => Progress::More,
            Ok(Next::Compare(comparison)) => Progress::Compare(comparison),
            ended => {
                let replaced = ended.map(|_| Progress::Done(self.end_job(now, &job)));
                self.volatile.effects.garbage.push(Garbage::new(job));
                return replaced;
            }
        };
        self.volatile.replace_jobs.push_front(job);
        Ok(progress)
    }

    /// Drops a Replace that has changed nothing yet. Returns whether it did; a Replace that has begun to change keys must
    /// run to its end.
    pub fn withdraw_replace(&mut self, id: ReplaceId) -> bool {
        let jobs = &mut self.volatile.replace_jobs;
        let has_begun = |job: &ReplaceJob| matches!(job.phase, Phase::Items | Phase::Deletions);
        let waiting = jobs.iter().position(|job| job.id == id && !has_begun(job));
        let Some(job) = waiting.and_then(|index| jobs.remove(index)) else { return false };
        self.volatile.effects.garbage.push(Garbage::new(job));
        true
    }

    /// Removes a job from the list of jobs, if the job may continue: it is the first job, or it has nothing to do.
    fn take_job(&mut self, id: ReplaceId) -> Option<ReplaceJob> {
        let jobs = &mut self.volatile.replace_jobs;
        let index = jobs.iter().position(|job| job.id == id)?;
        let is_duplicate = jobs.get(index).is_some_and(|job| job.phase == Phase::Duplicate);
        // A seed would overwrite the objects of this Replace with older ones.
        let is_next = index == 0 && self.volatile.seeding.is_none();
        if is_next || is_duplicate { jobs.remove(index) } else { None }
    }

    fn next_part(&mut self, now: Time, job: &mut ReplaceJob, budget: usize) -> Result<Next, Refusal> {
        match job.phase {
            Phase::Duplicate => {
                self.volatile.effects.counters.ignored_repeated += job.items.len() as u64;
                return Ok(Next::Done);
            }
            Phase::Room { next } => self.count_room(job, next, budget)?,
            Phase::Count => self.count_deletions(job, budget),
            Phase::Plan { next, refused } => return self.plan_items(job, next, refused, budget),
            Phase::Start => {
                let first = job.may_be_first;
                self.emit(now, EventKind::ReplaceStarted { source: job.source.clone(), first });
                job.phase = Phase::Items;
            }
            Phase::Items => return Ok(self.queue_items(now, job, budget)),
            Phase::Deletions => {
                if self.queue_deletions(now, job, budget) {
                    return Ok(Next::Done);
                }
            }
        }
        Ok(Next::More)
    }

    fn end_job(&mut self, now: Time, job: &ReplaceJob) -> Replaced {
        let duplicate = job.phase == Phase::Duplicate;
        if !job.is_dry && !duplicate {
            self.volatile.sequence.clone_from(&job.sequence);
            let (source, counts, first) = (job.source.clone(), job.counts, job.may_be_first);
            self.emit(now, EventKind::ReplaceEnded(ReplaceEnded { source, first, aborted: false, counts }));
            for later in &mut self.volatile.replace_jobs {
                later.may_be_first = false;
            }
        }
        Replaced { resource_version: self.state().rv, counts: job.counts, duplicate }
    }

    /// Records a produce call. Unless versions decide, the call is newer than the lists of all accepted Replaces.
    pub(crate) fn note_call(&mut self, call: &Call) {
        let (key, named_source) = (&call.key, call.source.is_some());
        if let Some(seeding) = &mut self.volatile.seeding {
            seeding.called.insert(key.clone());
        }
        let (jobs, is_listed) = (&self.volatile.replace_jobs, |job: &ReplaceJob| job.keys.contains(key));
        // A Replace neither queues nor deletes any other key.
        if jobs.is_empty() || !jobs.iter().any(is_listed) && !self.state().holds(key) {
            return;
        }
        for job in &mut self.volatile.replace_jobs {
            job.note_call(key, named_source, call.version.is_some());
        }
    }

    fn count_room(&self, job: &mut ReplaceJob, next: usize, budget: usize) -> Result<(), Refusal> {
        let items = job.items.as_slice();
        let slice = items.iter().skip(next).take(budget).map(|(key, _)| key);
        slice.filter(|key| !self.state().holds(key)).for_each(|key| job.wanted.insert(key.clone()));
        let next = next.saturating_add(budget);
        job.phase = Phase::Room { next };
        if next >= items.len() {
            let (keys, limit) =
                (self.state().keys() + self.volatile.reserved(), self.state().config.max_keys);
            let wanted = job.wanted.len();
            if wanted > limit.saturating_sub(keys) {
                return Err(Refusal::QueueFull { limit, keys, wanted });
            }
            job.reserved = if job.is_dry { 0 } else { wanted };
            job.phase = Phase::Count;
        }
        Ok(())
    }

    /// Finds the keys that are not listed, among those that the source has now. A key that becomes one of the source's later
    /// does so by a call, which is newer than the list, or because an operator drops newer deltas.
    fn count_deletions(&self, job: &mut ReplaceJob, budget: usize) {
        let source = job.source.as_ref();
        let slots = job.slots.take();
        let mut slots = slots.unwrap_or_else(|| self.state().slots_of(source).into_iter());
        let examined = slots.by_ref().take(budget.max(EXAMINED_AT_ONCE));
        let entries = examined.filter_map(|slot| self.state().table.at(slot));
        for entry in entries.filter(|entry| is_owned_by(entry, source)) {
            job.owned += 1;
            if job.deletes(&entry.key) {
                job.missing.insert(entry.key.clone());
            }
        }
        if slots.len() > 0 {
            job.slots = Some(slots);
            return;
        }
        let refused = job.guard.refuses(job.missing.len() as u64, job.owned);
        let plans = refused || job.is_dry || self.state().config.rules().keeps_every_delta;
        job.phase = if plans { Phase::Plan { next: 0, refused } } else { Phase::Start };
    }

    fn plan_items(
        &self,
        job: &mut ReplaceJob,
        next: usize,
        refused: bool,
        budget: usize,
    ) -> Result<Next, Refusal> {
        let mut counts = job.counts;
        let mut next = next;
        let mut left = budget;
        while left > 0 {
            let Some((key, object)) = job.items.as_slice().get(next) else { break };
            let Some(verdict) = self.verdict(job, key, object) else { break };
            if matches!(verdict, Verdict::Changed) && !refused {
                self.check_bounds_of_item(key, object, next)?;
            }
            next += 1;
            left = left.saturating_sub(cost(object));
            let taken_over = self.is_taken_over(job, key, &verdict);
            count(&mut counts, &verdict, taken_over);
        }
        job.counts = counts;
        job.phase = Phase::Plan { next, refused };
        if next < job.items.as_slice().len() {
            return Ok(if left > 0 { self.compare(job, next) } else { Next::More });
        }
        job.counts.deleted = job.missing.len() as u64;
        if refused {
            let (deletions, owned, guard, counts) = (job.counts.deleted, job.owned, job.guard, job.counts);
            return Err(Refusal::MassDelete { deletions, owned, guard, counts });
        }
        if job.is_dry {
            return Ok(Next::Done);
        }
        job.counts = ReplaceCounts::default();
        job.phase = Phase::Start;
        Ok(Next::More)
    }

    fn queue_items(&mut self, now: Time, job: &mut ReplaceJob, budget: usize) -> Next {
        let mut left = budget;
        while left > 0 {
            let Some((key, object)) = job.items.as_slice().first() else { break };
            let Some(verdict) = self.verdict(job, key, object) else { return self.compare(job, 0) };
            let Some((key, object)) = job.items.next() else { break };
            left = left.saturating_sub(cost(&object));
            job.reserved = job.reserved.saturating_sub(usize::from(!self.state().holds(&key)));
            job.held_bytes = job.held_bytes.saturating_sub(new_bytes(&key, Some(&object)));
            let taken_over = self.is_taken_over(job, &key, &verdict);
            count(&mut job.counts, &verdict, taken_over);
            match verdict {
                Verdict::Changed => {
                    let owner = job.source.clone().or_else(|| self.state().owner_of(&key));
                    let slot = self.state().table.find(key.as_str());
                    let due = self.due_of_list(now, slot, job.kind);
                    let appended = Appended {
                        key,
                        delta: job.kind,
                        final_state_unknown: false,
                        origin: Origin::replace(job.may_be_first),
                        provenance: job.provenance.same_or_next(
                            job.source.as_ref(),
                            owner.as_ref(),
                            job.trace.as_ref(),
                        ),
                        due,
                        head_start: self.head_start_of_list(job.may_be_first, &object),
                        object,
                    };
                    self.emit_at(now, slot, EventKind::Appended(appended));
                }
                Verdict::Refreshed => {
                    self.refresh(now, &key, Some(&object), job.source.as_ref());
                }
                Verdict::Unchanged => {
                    self.volatile.effects.counters.ignored_unchanged += 1;
                    self.take_over(now, job.source.as_ref(), key);
                }
                Verdict::Stale { take_over } => {
                    self.volatile.effects.counters.ignored_stale += 1;
                    if take_over {
                        self.take_over(now, job.source.as_ref(), key);
                    }
                }
                Verdict::Skipped { take_over } => {
                    self.volatile.effects.counters.ignored_superseded += 1;
                    if take_over {
                        self.take_over(now, job.source.as_ref(), key);
                    }
                }
            }
        }
        // The reservation may be too large, because some keys were already in the queue or were listed twice.
        job.reserved = job.reserved.min(job.items.len());
        if job.items.len() == 0 {
            job.phase = Phase::Deletions;
        }
        Next::More
    }

    /// Queues the next deletions, in the order of keys. Returns whether they were the last ones.
    fn queue_deletions(&mut self, now: Time, job: &mut ReplaceJob, budget: usize) -> bool {
        let origin = Origin::replace(job.may_be_first);
        let provenance = Provenance::new(job.source.clone(), None, job.trace.clone());
        for _ in 0..budget {
            let Some(key) = job.missing.pop_first() else { return true };
            let Some(slot) = self.state().table.find(key.as_str()) else { continue };
            let entry = self.state().entry(slot);
            if !is_owned_by(entry, job.source.as_ref()) || !job.deletes(&key) {
                continue;
            }
            let Some(object) = entry.newest_object().cloned() else {
                panic!("key {key} must be deleted but has no object");
            };
            let is_dropped = self.state().drops(entry);
            if is_dropped || may_merge_deletion(entry) {
                self.remember_deletion(now, &key, None);
            }
            let kind = if is_dropped {
                EventKind::Dropped { key, origin }
            } else {
                let due = self.due_of_list(now, Some(slot), DeltaKind::Deleted);
                EventKind::Appended(Appended {
                    key,
                    delta: DeltaKind::Deleted,
                    final_state_unknown: true,
                    origin,
                    provenance: provenance.clone(),
                    due,
                    head_start: self.head_start_of_list(job.may_be_first, &object),
                    object,
                })
            };
            self.emit_at(now, Some(slot), kind);
            job.counts.deleted += 1;
        }
        false
    }

    /// The effect of the listed object on its key; `None` if the objects must be compared first, without the lock.
    fn verdict(&self, job: &ReplaceJob, key: &Key, object: &Object) -> Option<Verdict> {
        if let Some(calls) = job.newer_calls(key) {
            return Some(Verdict::Skipped { take_over: !calls.named_source });
        }
        let stale = self.stale_verdict(job, key, object);
        if matches!(stale, Some(Verdict::Stale { take_over: false })) {
            return stale;
        }
        let otherwise = stale.unwrap_or(Verdict::Changed);
        let Some(newest) = self.newest_to_compare(job, key) else { return Some(otherwise) };
        Some(match job.comparison.result(&self.state().config.ignored, newest, object)? {
            Change::None => Verdict::Unchanged,
            Change::Ignored if matches!(otherwise, Verdict::Changed) => Verdict::Refreshed,
            Change::Ignored | Change::Relevant => otherwise,
        })
    }

    /// The verdict on a listed object that is not newer than the newest state of its key. If the versions are equal,
    /// the list contains the current state of the key, so the source of the list owns the key.
    fn stale_verdict(&self, job: &ReplaceJob, key: &Key, object: &Object) -> Option<Verdict> {
        let pointer = job.version.as_ref()?;
        let version = ObjectVersion::read(pointer, object).ok()?;
        let held = self.held_version(key, pointer);
        let remembered = self.state().versions.of(key).filter(|_| job.versions_decide).cloned();
        match version.cmp(&held.max(remembered)?) {
            Ordering::Greater => None,
            Ordering::Equal
                if self.applies_tie(self.present_object(key), Some(object), DeltaKind::Replaced) =>
            {
                None
            }
            order => Some(Verdict::Stale { take_over: order == Ordering::Equal }),
        }
    }

    /// The newest object of the key, if the Replace skips an equal listed object.
    fn newest_to_compare(&self, job: &ReplaceJob, key: &Key) -> Option<&Object> {
        let state = self.state().table.get(key.as_str()).filter(|_| job.only_changed);
        state.filter(|entry| !entry.is_deleted()).and_then(Entry::newest_object)
    }

    /// Collects the pairs of large objects among the next items, starting at this index.
    fn compare(&self, job: &mut ReplaceJob, next: usize) -> Next {
        let mut comparison = Comparison::new(&self.state().config.ignored);
        let next_items = job.items.as_slice().iter().skip(next).take(PAIRS_MAX);
        for (key, object) in next_items.filter(|(key, _)| job.newer_calls(key).is_none()) {
            if let Some(newest) = self.newest_to_compare(job, key) {
                comparison.push(newest, object);
            }
        }
        job.comparison = Arc::new(comparison);
        Next::Compare(job.comparison.clone())
    }

    /// Whether the owner of the key changes to the source of the job.
    fn is_taken_over(&self, job: &ReplaceJob, key: &Key, verdict: &Verdict) -> bool {
        let owner = self.state().table.get(key.as_str()).and_then(Entry::owner);
        let stays =
            matches!(verdict, Verdict::Skipped { take_over: false } | Verdict::Stale { take_over: false });
        !stays && job.source.is_some() && owner.is_some() && owner != job.source.as_ref()
    }

    /// Makes the source the owner of a key whose object it has sent, and which is not queued.
    pub(super) fn take_over(&mut self, now: Time, source: Option<&Source>, key: Key) {
        let (Some(owner), Some(entry)) = (source.cloned(), self.state().table.get(key.as_str())) else {
            return;
        };
        if entry.has_state() && !entry.is_deleted() && entry.owner() != Some(&owner) {
            self.emit(now, EventKind::TakenOver { key, owner });
        }
    }
}

/// Whether the key belongs to `source` and is not deleted.
fn is_owned_by(entry: &Entry, source: Option<&Source>) -> bool {
    entry.has_state() && !entry.is_deleted() && entry.owner() == source
}

/// How much of a step's budget processing the object uses.
fn cost(object: &Object) -> usize {
    1 + object.bytes() / 4_096
}

fn count(counts: &mut ReplaceCounts, verdict: &Verdict, taken_over: bool) {
    match verdict {
        Verdict::Skipped { .. } => counts.skipped += 1,
        Verdict::Stale { .. } => counts.stale += 1,
        Verdict::Unchanged | Verdict::Refreshed => counts.unchanged += 1,
        Verdict::Changed => counts.replaced += 1,
    }
    counts.taken_over += u64::from(taken_over);
}
