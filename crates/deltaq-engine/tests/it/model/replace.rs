//! Replace, key by key.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use deltaq_engine::command::DefaultLimit;
use deltaq_engine::delta::DeltaKind;

use super::produce::New;
use super::versions::may_merge_deletion;
use super::{
    Content, Item, Label, LastReplace, Micros, Model, Name, Refused, Traced, bytes_of, same_content,
};

#[derive(Clone, Debug)]
pub(crate) struct ModelReplace {
    pub(crate) items: Vec<(Name, Content)>,
    /// Keys that are not deleted although they have no item.
    pub(crate) kept: BTreeSet<Name>,
    pub(crate) keeps_all: bool,
    pub(crate) source: Label,
    pub(crate) sequence: Option<u64>,
    pub(crate) only_changed: bool,
    pub(crate) max_delete_percent: Option<f64>,
    pub(crate) max_deletes: Option<u64>,
    pub(crate) default_limit: DefaultLimit,
    pub(crate) dry_run: bool,
    pub(crate) trace: Traced,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct ModelReplaced {
    pub(crate) replaced: u64,
    pub(crate) deleted: u64,
    pub(crate) unchanged: u64,
    pub(crate) skipped: u64,
    pub(crate) taken_over: u64,
    pub(crate) stale: u64,
}

/// A Replace between its acceptance and its end.
#[derive(Clone, Debug)]
pub(crate) struct ReplaceJob {
    pub(crate) id: usize,
    list: ModelReplace,
    emits_replaced: bool,
    /// The limits on deletions: a number and a percentage.
    deletion_limits: Option<(u64, f64)>,
    /// Whether the list is the initial list: the queue was not populated at the acceptance, and no other Replace has ended since.
    first: bool,
    phase: Phase,
    /// Keys with a produce call since the acceptance: whether a call named a source, and whether all calls had a version.
    calls: BTreeMap<Name, (bool, bool)>,
    /// Whether the queue had the setting `version` at the acceptance.
    pub(super) has_version: bool,
    /// Whether the queue had the setting ever since.
    pub(super) versions_decide: bool,
    /// Number of keys reserved under `max_keys`; may be more than the list needs.
    pub(super) reserved: usize,
    /// Whether the whole list fitted at the acceptance.
    fits: bool,
    /// The listed keys for which the number is reserved.
    reserved_keys: BTreeSet<Name>,
    counts: ModelReplaced,
    owned: u32,
    deletions: u32,
    /// The keys that are not listed, once they have been counted.
    missing: BTreeSet<Name>,
}

/// The phases of a Replace. The rules do not define them. The model uses the engine's phases, so that both have reached the same key
/// when another call arrives.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Duplicate,
    Room { next: usize },
    Count,
    Plan { next: usize },
    Start,
    Items { next: usize },
    Missing,
}

/// The progress of a step.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step<T> {
    More,
    NotYet,
    Done(T),
}

impl<T> Step<T> {
    pub(crate) fn map<U>(self, done: impl FnOnce(T) -> U) -> Step<U> {
        match self {
            Self::More => Step::More,
            Self::NotYet => Step::NotYet,
            Self::Done(answer) => Step::Done(done(answer)),
        }
    }
}

impl ReplaceJob {
    pub(super) fn note_call(&mut self, key: Name, named_a_source: bool, has_version: bool) {
        let (named, versioned) = self.calls.entry(key).or_insert((false, true));
        *named |= named_a_source;
        *versioned &= has_version;
    }

    /// Whether calls for a listed key named a source, if they are newer than the list. If all calls had versions, the version of the
    /// listed object decides.
    fn newer_calls(&self, key: Name) -> Option<bool> {
        let (named, versioned) = *self.calls.get(key)?;
        (!(versioned && self.versions_decide)).then_some(named)
    }

    /// The bytes that a call with a version leaves for the listed object of its key: those of the longest object. `None` if the list no
    /// longer queues an object for the key.
    pub(super) fn room_for(&self, key: Name) -> Option<usize> {
        let is_planned = matches!(self.phase, Phase::Plan { .. } | Phase::Start | Phase::Items { .. });
        let is_listed = self.list.items.iter().any(|(listed, _)| *listed == key);
        let may_queue = is_planned && is_listed && !self.list.dry_run && self.newer_calls(key).is_none();
        let longest = self.list.items.iter().map(|(_, content)| bytes_of(*content)).max();
        longest.filter(|_| may_queue && self.versions_decide)
    }

    pub(super) fn waits_for_initial_list(&self) -> bool {
        self.first && !self.list.dry_run && self.phase != Phase::Duplicate
    }

    /// The source and the number that the end of the Replace records.
    pub(super) fn sequence(&self) -> Option<(&'static str, u64)> {
        let counts = !self.list.dry_run && self.phase != Phase::Duplicate;
        self.list.source.zip(self.list.sequence).filter(|_| counts)
    }

    fn refuses(&self) -> bool {
        let Some((max_deletes, percent)) = self.deletion_limits else {
            return match self.list.default_limit {
                DefaultLimit::None => false,
                DefaultLimit::Half => self.owned >= 10 && 2 * self.deletions > self.owned,
                DefaultLimit::EmptyList | DefaultLimit::SingleObject => self.deletions != 0,
            };
        };
        let share = 100.0 * f64::from(self.deletions);
        u64::from(self.deletions) > max_deletes && share > percent * f64::from(self.owned)
    }
}

impl Model {
    /// A listed key that the queue loses before its list is through needs room again.
    pub(super) fn keep_room(&mut self, key: Name) {
        for job in &mut self.jobs {
            let is_over = matches!(job.phase, Phase::Duplicate | Phase::Missing);
            let is_listed = job.list.items.iter().any(|(listed, _)| *listed == key);
            if job.fits || is_over || !is_listed || !job.reserved_keys.insert(key) {
                continue;
            }
            if !job.list.dry_run && !matches!(job.phase, Phase::Room { .. }) {
                job.reserved += 1;
            }
        }
    }

    pub(super) fn reserved(&self) -> usize {
        self.jobs.iter().map(|job| job.reserved).sum()
    }

    /// Keys that Replaces have reserved and not reached yet.
    pub(crate) fn reserved_keys(&self) -> BTreeSet<Name> {
        let mut reserved_keys = BTreeSet::new();
        for job in &self.jobs {
            let next = if let Phase::Items { next } = job.phase { next } else { 0 };
            if matches!(job.phase, Phase::Count | Phase::Start | Phase::Items { .. }) {
                let left = job.list.items[next..].iter().map(|(key, _)| *key);
                reserved_keys.extend(
                    left.filter(|key| job.reserved_keys.contains(key) && job.newer_calls(key).is_none()),
                );
            }
        }
        reserved_keys
    }

    pub(crate) fn accept_replace(
        &mut self,
        now: Micros,
        list: &ModelReplace,
        id: usize,
    ) -> Result<(), Refused> {
        self.advance(now);
        if self.is_keys() {
            return Err(Refused::WrongMode);
        }
        let sequence = list.source.zip(list.sequence);
        let duplicate = sequence.is_some_and(|(source, number)| self.has_applied(source, number));
        if self.jobs.len() >= 16 && !duplicate {
            self.hit("too many Replaces wait");
            return Err(Refused::TooManyReplaces);
        }
        if let Some((source, _)) = sequence.filter(|_| !duplicate && !list.dry_run) {
            self.check_sequence(source)?;
        }
        for (index, (_, content)) in list.items.iter().enumerate() {
            if bytes_of(*content) > self.config.max_object_bytes && !duplicate {
                return Err(Refused::TooLarge { index });
            }
        }
        let percent = list.max_delete_percent.or(self.config.max_delete_percent);
        let deletes = list.max_deletes.or(self.config.max_deletes);
        let is_limited = percent.is_some() || deletes.is_some();
        let listed: BTreeSet<Name> = list.items.iter().map(|(key, _)| *key).collect();
        let taken = self.held().len() + self.reserved();
        let fits = listed.is_empty() || taken + listed.len() <= self.config.max_keys;
        let reserves = fits && !list.dry_run && !duplicate;
        self.jobs.push(ReplaceJob {
            id,
            list: list.clone(),
            emits_replaced: self.config.emit_replaced,
            deletion_limits: is_limited.then(|| (deletes.unwrap_or(0), percent.unwrap_or(0.0))),
            first: !self.populated || self.aborted,
            phase: match fits {
                _ if duplicate => Phase::Duplicate,
                true => Phase::Count,
                false => Phase::Room { next: 0 },
            },
            calls: BTreeMap::new(),
            has_version: self.config.version.is_some(),
            versions_decide: self.config.version.is_some(),
            fits,
            reserved: if reserves { listed.len() } else { 0 },
            reserved_keys: if reserves { listed } else { BTreeSet::new() },
            counts: ModelReplaced::default(),
            owned: 0,
            deletions: 0,
            missing: BTreeSet::new(),
        });
        Ok(())
    }

    pub(crate) fn replace_step(
        &mut self,
        now: Micros,
        id: usize,
        budget: usize,
    ) -> Result<Step<(ModelReplaced, bool)>, Refused> {
        let now = self.advance(now);
        let Some(index) = self.jobs.iter().position(|job| job.id == id) else { return Ok(Step::NotYet) };
        if index > 0 && self.jobs[index].phase != Phase::Duplicate {
            return Ok(Step::NotYet);
        }
        let mut job = self.jobs.remove(index);
        let done = match job.phase {
            Phase::Duplicate => {
                self.hit("a repeated Replace");
                return Ok(Step::Done((ModelReplaced::default(), true)));
            }
            Phase::Room { next } => self.replace_capacity(&mut job, next, budget)?,
            Phase::Count => self.replace_count(&mut job),
            Phase::Plan { next } => self.replace_plan(&mut job, next, budget)?,
            Phase::Start => {
                let (_, started) = self.event(now);
                let (source, counts) = (job.list.source, ModelReplaced::default());
                self.last_replace =
                    Some(LastReplace { source, counts, started, ended: None, aborted: false });
                self.note_source(source);
                self.note_replace();
                job.phase = Phase::Items { next: 0 };
                self.hit(if job.first { "the first Replace starts" } else { "a later Replace starts" });
                false
            }
            Phase::Items { next } => {
                self.replace_items(now, &mut job, next, budget);
                false
            }
            Phase::Missing => {
                let next: Vec<Name> = job.missing.iter().take(budget).copied().collect();
                for key in &next {
                    job.missing.remove(key);
                    self.replace_missing(now, &mut job, key);
                }
                next.len() < budget
            }
        };
        if !done {
            self.jobs.insert(0, job);
            return Ok(Step::More);
        }
        if !job.list.dry_run {
            let (_, ended) = self.event(now);
            self.populated = true;
            if let Some(last) = &mut self.last_replace {
                (last.counts, last.ended) = (job.counts, Some(ended));
            }
            self.note_replace();
            if let Some((source, number)) = job.sequence() {
                self.sources.entry(source).or_default().sequence = Some(number);
                self.hit("a Replace with a sequence number ends");
            }
            if job.first {
                self.aborted = false;
            }
            for later in &mut self.jobs {
                later.first = false;
            }
            self.hit("a Replace ends");
        }
        Ok(Step::Done((job.counts, false)))
    }

    /// Takes over the next items of the list.
    fn replace_items(&mut self, now: Micros, job: &mut ReplaceJob, next: usize, budget: usize) {
        let slice: Vec<_> = job.list.items.iter().skip(next).take(budget).copied().collect();
        for item in slice {
            let is_new = !self.held().contains(item.0);
            job.reserved = job.reserved.saturating_sub(usize::from(is_new));
            self.replace_item(now, job, item);
        }
        let next = (next + budget).min(job.list.items.len());
        job.reserved = job.reserved.min(job.list.items.len() - next);
        let more = next < job.list.items.len();
        job.phase = if more { Phase::Items { next } } else { Phase::Missing };
    }

    /// A crash loses the accepted Replaces that have not ended. A Replace that had begun is recorded as aborted.
    pub(crate) fn crash(&mut self, now: Micros, ahead: u64, life: u64) {
        let jobs = std::mem::take(&mut self.jobs);
        let now = now.max(self.last_at);
        (self.resync_due, self.now) = (false, now);
        // The number before the first one of the life: the floor, or a distance while the clock is behind.
        self.rv += if ahead == 0 { (1 << 20) + life - 1 } else { ahead };
        self.renew_leases(now);
        let began = |job: &&ReplaceJob| matches!(job.phase, Phase::Items { .. } | Phase::Missing);
        if let Some(job) = jobs.iter().find(began) {
            let (_, ended) = self.event(now);
            self.aborted |= job.first;
            if let Some(last) = &mut self.last_replace {
                (last.ended, last.aborted) = (Some(ended), true);
            }
            self.note_replace();
            self.hit(if job.first { "the first Replace is aborted" } else { "a later Replace is aborted" });
        }
    }

    /// The next keys after `after`, and the last of them if more keys may follow.
    pub(super) fn slice(&self, after: Option<Name>, budget: usize) -> (Vec<Name>, Option<Name>) {
        let is_after = |key: &&Name| after.is_none_or(|after| **key > after);
        let keys: Vec<Name> = self.items.keys().filter(is_after).take(budget).copied().collect();
        let last = keys.last().copied().filter(|_| keys.len() == budget);
        (keys, last)
    }

    fn replace_capacity(
        &mut self,
        job: &mut ReplaceJob,
        next: usize,
        budget: usize,
    ) -> Result<bool, Refused> {
        let held = self.held();
        let slice: BTreeSet<Name> =
            job.list.items.iter().skip(next).take(budget).map(|(key, _)| *key).collect();
        let new: BTreeSet<Name> = slice.difference(&held).copied().collect();
        job.reserved_keys.extend(new);
        let wanted = job.reserved_keys.len();
        let next = next + budget;
        job.phase = Phase::Room { next };
        if next >= job.list.items.len() {
            let keys = held.len() + self.reserved();
            if wanted > 0 && keys + wanted > self.config.max_keys {
                self.hit("max_keys refuses a Replace");
                return Err(Refused::Full { keys, wanted });
            }
            job.reserved = if job.list.dry_run { 0 } else { wanted };
            if job.list.dry_run {
                job.reserved_keys.clear();
            }
            job.phase = Phase::Count;
            self.hit("a Replace fits after an exact count of its keys");
        }
        Ok(false)
    }

    /// Finds the keys that the source has and does not list. The engine examines 1,000 keys at once.
    fn replace_count(&mut self, job: &mut ReplaceJob) -> bool {
        for (key, item) in &self.items {
            let lives = item.newest_content().is_some() && !item.newest_is_deleted();
            job.owned += u32::from(lives && item.owner() == job.list.source);
            if Self::is_missing(job, key, item) {
                job.deletions += 1;
                job.missing.insert(key);
            }
        }
        let plan = job.refuses() || job.list.dry_run || self.is_events();
        job.phase = if plan { Phase::Plan { next: 0 } } else { Phase::Start };
        false
    }

    fn replace_plan(&mut self, job: &mut ReplaceJob, next: usize, budget: usize) -> Result<bool, Refused> {
        let slice: Vec<_> = job.list.items.iter().skip(next).take(budget).copied().collect();
        for (index, (key, content)) in slice.into_iter().enumerate() {
            let item = self.get(key).cloned().unwrap_or_default();
            let called = job.newer_calls(key);
            let refuses = job.refuses();
            let staleness = self.staleness_in(job, key, content);
            let is_unchanged = job.list.only_changed && is_unchanged(&item, content);
            let is_ignored = job.list.only_changed && self.ignores(&item, content);
            let counts = &mut job.counts;
            if called.is_some() {
                counts.skipped += 1;
            } else if staleness.is_some_and(|order| order.is_lt() || !is_unchanged) {
                counts.stale += 1;
            } else if is_unchanged || is_ignored {
                counts.unchanged += 1;
            } else {
                counts.replaced += 1;
                let exceeded = self.exceeded(&item.all_bytes(), bytes_of(content));
                if let Some(field) = exceeded.filter(|_| self.is_events() && !refuses) {
                    self.hit("a bound of a key refuses a Replace");
                    return Err(Refused::KeyFull { field, index: next + index });
                }
            }
            let is_older = called.is_none() && staleness.is_some_and(Ordering::is_lt);
            let takes = called != Some(true) && !is_older && is_from_another(&item, job.list.source);
            counts.taken_over += u64::from(takes);
        }
        let next = next + budget;
        job.phase = Phase::Plan { next };
        if next < job.list.items.len() {
            return Ok(false);
        }
        job.counts.deleted = u64::from(job.deletions);
        if job.refuses() {
            self.hit(match job.deletion_limits {
                _ if job.list.dry_run => "a dry run is refused",
                None => "the default limit refuses",
                Some(_) => "a deletion limit refuses",
            });
            return Err(Refused::MassDelete {
                deletions: u64::from(job.deletions),
                owned: u64::from(job.owned),
                counts: job.counts,
            });
        }
        if !job.list.dry_run {
            job.counts = ModelReplaced::default();
            job.phase = Phase::Start;
            return Ok(false);
        }
        self.hit("a dry run");
        Ok(true)
    }

    /// Handles one listed item.
    fn replace_item(&mut self, now: Micros, job: &mut ReplaceJob, (key, content): (Name, Content)) {
        let item = self.get(key).cloned().unwrap_or_default();
        let source = job.list.source;
        let takes_over = source.is_some() && item.owner() != source;
        let from_another = is_from_another(&item, source);
        // A deletion has no owner, and an absent key has no state to own.
        let has_state = item.newest_content().is_some() && !item.newest_is_deleted();
        if let Some(named_a_source) = job.newer_calls(key) {
            job.counts.skipped += 1;
            self.hit("Replace skips a key with a newer call");
            if takes_over && has_state && !named_a_source {
                self.take_over(now, key, source, "a skipped key is taken over");
                job.counts.taken_over += u64::from(from_another);
            }
            return;
        }
        let staleness = self.staleness_in(job, key, content);
        let is_unchanged = job.list.only_changed && is_unchanged(&item, content);
        if let Some(order) = staleness.filter(|order| order.is_lt() || !is_unchanged) {
            job.counts.stale += 1;
            self.hit("a stale listed object");
            if order.is_eq() {
                job.counts.taken_over += u64::from(from_another);
                if takes_over && has_state {
                    self.take_over(now, key, source, "a key with the listed version is taken over");
                }
            }
            return;
        }
        if is_unchanged {
            job.counts.unchanged += 1;
            self.hit("Replace skips an unchanged object");
            if takes_over {
                self.take_over(now, key, source, "an unchanged key is taken over");
                job.counts.taken_over += u64::from(from_another);
            }
            return;
        }
        if job.list.only_changed && self.ignores(&item, content) {
            job.counts.unchanged += 1;
            self.hit("Replace skips an ignored change");
            job.counts.taken_over += u64::from(from_another);
            self.refresh(now, key, content, source);
            return;
        }
        let kind = if job.emits_replaced { DeltaKind::Replaced } else { DeltaKind::Sync };
        let owner = source.or(item.owner());
        let new = New {
            kind,
            content,
            source,
            owner,
            final_state_unknown: false,
            due: None,
            debounce: self.debounce_of_list(kind),
            start: self.start_of_list(job.first, content),
            trace: job.list.trace,
        };
        self.append(now, key, &new, true);
        self.add_to_initial_list(job, key);
        job.counts.replaced += 1;
        if from_another {
            job.counts.taken_over += 1;
            self.hit("Replace takes over a key");
        }
        self.hit(if item.is_leased() { "Replace of a leased key" } else { "Replace of a key" });
    }

    fn add_to_initial_list(&mut self, job: &ReplaceJob, key: Name) {
        if job.first {
            let pending = self.item(key).waiting.last().map(|delta| delta.rv);
            self.item(key).initial_pending = pending;
            self.hit("the first Replace adds a pending key");
        }
    }

    /// Whether the Replace deletes `key`.
    fn is_missing(job: &ReplaceJob, key: Name, item: &Item) -> bool {
        let has_state = item.newest_content().is_some();
        has_state
            && !item.newest_is_deleted()
            && item.owner() == job.list.source
            && !job.calls.contains_key(key)
            && !job.list.keeps_all
            && !job.list.kept.contains(key)
            && job.list.items.iter().all(|(listed, _)| *listed != key)
    }

    /// Handles a key that is not listed.
    fn replace_missing(&mut self, now: Micros, job: &mut ReplaceJob, key: Name) {
        let Some(item) = self.get(key).cloned() else { return };
        if !Self::is_missing(job, key, &item) {
            if item.newest_is_deleted() {
                self.hit("Replace ignores a deleted key");
            }
            return;
        }
        job.counts.deleted += 1;
        let drops = self.drops_unseen(&item);
        if drops || may_merge_deletion(&item) {
            self.remember_deletion(now, key, None);
        }
        if drops {
            self.drop_unseen(now, key);
            self.hit("Replace drops an unseen key");
            return;
        }
        let content = item.newest_content().expect("a key of the queue has an object");
        let source = job.list.source;
        let kind = DeltaKind::Deleted;
        let new = New {
            kind,
            content,
            source,
            owner: None,
            final_state_unknown: true,
            due: None,
            debounce: self.debounce_of_list(kind),
            start: self.start_of_list(job.first, content),
            trace: job.list.trace,
        };
        self.append(now, key, &new, true);
        self.add_to_initial_list(job, key);
        self.hit(if item.is_leased() { "Replace deletes a leased key" } else { "Replace deletes a key" });
    }
}

/// Whether the key's newest state is this object.
fn is_unchanged(item: &Item, content: Content) -> bool {
    !item.newest_is_deleted() && item.newest_content().is_some_and(|newest| same_content(newest, content))
}

/// Whether the key is owned by a source other than `source`.
fn is_from_another(item: &Item, source: Label) -> bool {
    source.is_some() && item.owner().is_some() && item.owner() != source
}
