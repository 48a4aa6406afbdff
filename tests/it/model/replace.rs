//! Replace, key by key.

use std::collections::{BTreeMap, BTreeSet};

use deltaq::engine::delta::DeltaKind;

use super::produce::New;
use super::{Item, LastReplace, Micros, Model, Name, Refused, Thing, Traced, Who, bytes_of, same_content};

#[derive(Clone, Debug)]
pub(crate) struct ModelReplace {
    pub(crate) items: Vec<(Name, Thing)>,
    pub(crate) source: Who,
    pub(crate) only_changed: bool,
    pub(crate) max_delete_percent: Option<f64>,
    pub(crate) max_deletes: Option<u64>,
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
}

/// A Replace between its acceptance and its end.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) id: usize,
    list: ModelReplace,
    emits_replaced: bool,
    guard: Option<(u64, f64)>,
    /// Whether it was accepted while the queue was not populated, and no other Replace brought the initial list since.
    first: bool,
    phase: Phase,
    /// Keys with a produce call since the acceptance, and whether the call named a source.
    calls: BTreeMap<Name, bool>,
    /// Room that is reserved for listed keys; it may be more than the list needs.
    pub(super) reserved: usize,
    /// The keys for which room is reserved.
    promised: BTreeSet<Name>,
    counts: ModelReplaced,
    owned: u32,
    deletions: u32,
}

/// The steps of a Replace. The rules do not define them: these are the engine's, so that both are at the same key when another call
/// comes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Room { next: usize },
    Count { after: Option<Name> },
    Plan { next: usize },
    Start,
    Items { next: usize },
    Missing { after: Option<Name> },
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

impl Run {
    pub(super) fn note_call(&mut self, key: Name, named_a_source: bool) {
        let named = self.calls.entry(key).or_default();
        *named |= named_a_source;
    }

    pub(super) fn waits_for_initial_list(&self) -> bool {
        self.first && !self.list.dry_run
    }

    fn refuses(&self) -> bool {
        let Some((max_deletes, percent)) = self.guard else { return false };
        let share = 100.0 * f64::from(self.deletions);
        u64::from(self.deletions) > max_deletes && share > percent * f64::from(self.owned)
    }
}

impl Model {
    pub(super) fn reserved(&self) -> usize {
        self.runs.iter().map(|run| run.reserved).sum()
    }

    /// Keys for which Replaces have reserved room and which they have not reached.
    pub(crate) fn promised(&self) -> BTreeSet<Name> {
        let mut promised = BTreeSet::new();
        for run in &self.runs {
            let next = if let Phase::Items { next } = run.phase { next } else { 0 };
            if matches!(run.phase, Phase::Count { .. } | Phase::Start | Phase::Items { .. }) {
                let left = run.list.items[next..].iter().map(|(key, _)| *key);
                promised
                    .extend(left.filter(|key| run.promised.contains(key) && !run.calls.contains_key(key)));
            }
        }
        promised
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
        if self.runs.len() >= 16 {
            self.hit("too many Replaces wait");
            return Err(Refused::TooManyReplaces);
        }
        for (index, (_, thing)) in list.items.iter().enumerate() {
            if bytes_of(*thing) > self.config.max_object_bytes {
                return Err(Refused::TooLarge { index });
            }
        }
        let percent = list.max_delete_percent.or(self.config.max_delete_percent);
        let deletes = list.max_deletes.or(self.config.max_deletes);
        let guarded = percent.is_some() || deletes.is_some();
        let listed: BTreeSet<Name> = list.items.iter().map(|(key, _)| *key).collect();
        let taken = self.held().len() + self.reserved();
        let fits = listed.is_empty() || taken + listed.len() <= self.config.max_keys;
        let promises = fits && !list.dry_run;
        self.runs.push(Run {
            id,
            list: list.clone(),
            emits_replaced: self.config.emit_replaced,
            guard: guarded.then(|| (deletes.unwrap_or(0), percent.unwrap_or(0.0))),
            first: !self.populated || self.aborted,
            phase: if fits { Phase::Count { after: None } } else { Phase::Room { next: 0 } },
            calls: BTreeMap::new(),
            reserved: if promises { listed.len() } else { 0 },
            promised: if promises { listed } else { BTreeSet::new() },
            counts: ModelReplaced::default(),
            owned: 0,
            deletions: 0,
        });
        Ok(())
    }

    pub(crate) fn replace_step(
        &mut self,
        now: Micros,
        id: usize,
        budget: usize,
    ) -> Result<Step<ModelReplaced>, Refused> {
        let now = self.advance(now);
        if self.runs.first().is_none_or(|run| run.id != id) {
            return Ok(Step::NotYet);
        }
        let mut run = self.runs.remove(0);
        let done = match run.phase {
            Phase::Room { next } => self.replace_room(&mut run, next, budget)?,
            Phase::Count { after } => self.replace_count(&mut run, after, budget),
            Phase::Plan { next } => self.replace_plan(&mut run, next, budget)?,
            Phase::Start => {
                let (_, started) = self.event(now);
                let (source, counts) = (run.list.source, ModelReplaced::default());
                self.last_replace =
                    Some(LastReplace { source, counts, started, ended: None, aborted: false });
                run.phase = Phase::Items { next: 0 };
                self.hit(if run.first { "the first Replace starts" } else { "a later Replace starts" });
                false
            }
            Phase::Items { next } => {
                let slice: Vec<_> = run.list.items.iter().skip(next).take(budget).copied().collect();
                for item in slice {
                    let is_new = !self.held().contains(item.0);
                    run.reserved = run.reserved.saturating_sub(usize::from(is_new));
                    self.replace_item(now, &mut run, item);
                }
                let next = (next + budget).min(run.list.items.len());
                run.reserved = run.reserved.min(run.list.items.len() - next);
                let more = next < run.list.items.len();
                run.phase = if more { Phase::Items { next } } else { Phase::Missing { after: None } };
                false
            }
            Phase::Missing { after } => {
                let (slice, last) = self.slice(after, budget);
                for key in slice {
                    self.replace_missing(now, &mut run, key);
                }
                run.phase = Phase::Missing { after: last };
                last.is_none()
            }
        };
        if !done {
            self.runs.insert(0, run);
            return Ok(Step::More);
        }
        if !run.list.dry_run {
            let (_, ended) = self.event(now);
            self.populated = true;
            if let Some(last) = &mut self.last_replace {
                (last.counts, last.ended) = (run.counts, Some(ended));
            }
            if run.first {
                self.aborted = false;
            }
            for later in &mut self.runs {
                later.first = false;
            }
            self.hit("a Replace ends");
        }
        Ok(Step::Done(run.counts))
    }

    /// A crash: accepted Replaces that have not ended are lost; those that had begun are recorded as aborted.
    pub(crate) fn crash(&mut self, now: Micros, unclean: bool) {
        let runs = std::mem::take(&mut self.runs);
        self.resync_due = false;
        let now = now.max(self.last_at);
        if unclean {
            self.rv += (1 << 20) - 1;
            self.event(now);
        }
        self.renew_leases(now);
        let began = |run: &&Run| matches!(run.phase, Phase::Items { .. } | Phase::Missing { .. });
        if let Some(run) = runs.iter().find(began) {
            let (_, ended) = self.event(now);
            self.aborted |= run.first;
            if let Some(last) = &mut self.last_replace {
                (last.ended, last.aborted) = (Some(ended), true);
            }
            self.hit(if run.first { "the first Replace is aborted" } else { "a later Replace is aborted" });
        }
    }

    /// The next keys behind `after`, and the key to continue behind if there may be more.
    pub(super) fn slice(&self, after: Option<Name>, budget: usize) -> (Vec<Name>, Option<Name>) {
        let behind = |key: &&Name| after.is_none_or(|after| **key > after);
        let keys: Vec<Name> = self.items.keys().filter(behind).take(budget).copied().collect();
        let last = keys.last().copied().filter(|_| keys.len() == budget);
        (keys, last)
    }

    fn replace_room(&mut self, run: &mut Run, next: usize, budget: usize) -> Result<bool, Refused> {
        let held = self.held();
        let slice: BTreeSet<Name> =
            run.list.items.iter().skip(next).take(budget).map(|(key, _)| *key).collect();
        let new: BTreeSet<Name> = slice.difference(&held).copied().collect();
        run.promised.extend(new);
        let wanted = run.promised.len();
        let next = next + budget;
        run.phase = Phase::Room { next };
        if next >= run.list.items.len() {
            let keys = held.len() + self.reserved();
            if wanted > 0 && keys + wanted > self.config.max_keys {
                self.hit("max_keys refuses a Replace");
                return Err(Refused::Full { keys, wanted });
            }
            run.reserved = if run.list.dry_run { 0 } else { wanted };
            if run.list.dry_run {
                run.promised.clear();
            }
            run.phase = Phase::Count { after: None };
            self.hit("a Replace fits in exactly counted room");
        }
        Ok(false)
    }

    /// Counts the deletions, if a guard or a dry run needs the number.
    fn replace_count(&mut self, run: &mut Run, after: Option<Name>, budget: usize) -> bool {
        if run.guard.is_some() || run.list.dry_run {
            let (slice, last) = self.slice(after, budget);
            for key in slice {
                let item = &self.items[key];
                let lives = item.newest_thing().is_some() && !item.newest_is_deleted();
                run.owned += u32::from(lives && item.owner() == run.list.source);
                run.deletions += u32::from(Self::is_missing(run, key, item));
            }
            if last.is_some() {
                run.phase = Phase::Count { after: last };
                return false;
            }
        }
        let plan = run.refuses() || run.list.dry_run;
        run.phase = if plan { Phase::Plan { next: 0 } } else { Phase::Start };
        false
    }

    fn replace_plan(&mut self, run: &mut Run, next: usize, budget: usize) -> Result<bool, Refused> {
        let slice: Vec<_> = run.list.items.iter().skip(next).take(budget).copied().collect();
        for (key, thing) in slice {
            let item = self.get(key).cloned().unwrap_or_default();
            let called = run.calls.get(key).copied();
            let counts = &mut run.counts;
            if called.is_some() {
                counts.skipped += 1;
            } else if run.list.only_changed && is_unchanged(&item, thing) {
                counts.unchanged += 1;
            } else {
                counts.replaced += 1;
            }
            let takes = called != Some(true) && is_from_another(&item, run.list.source);
            counts.taken_over += u64::from(takes);
        }
        let next = next + budget;
        run.phase = Phase::Plan { next };
        if next < run.list.items.len() {
            return Ok(false);
        }
        run.counts.deleted = u64::from(run.deletions);
        if run.refuses() {
            self.hit(if run.list.dry_run { "a dry run is refused" } else { "the guard refuses" });
            return Err(Refused::MassDelete {
                deletions: u64::from(run.deletions),
                owned: u64::from(run.owned),
                counts: run.counts,
            });
        }
        self.hit("a dry run");
        Ok(true)
    }

    /// Handles one listed item.
    fn replace_item(&mut self, now: Micros, run: &mut Run, (key, thing): (Name, Thing)) {
        let item = self.get(key).cloned().unwrap_or_default();
        let source = run.list.source;
        let takes_over = source.is_some() && item.owner() != source;
        let from_another = is_from_another(&item, source);
        // A deletion has no owner, and an absent key has no state to own.
        let has_state = item.newest_thing().is_some() && !item.newest_is_deleted();
        if let Some(named_a_source) = run.calls.get(key).copied() {
            run.counts.skipped += 1;
            self.hit("Replace skips a key that was called");
            if takes_over && has_state && !named_a_source {
                self.take_over(now, key, source, "a skipped key is taken over");
                run.counts.taken_over += u64::from(from_another);
            }
            return;
        }
        if run.list.only_changed && is_unchanged(&item, thing) {
            run.counts.unchanged += 1;
            self.hit("Replace leaves an unchanged object");
            if takes_over {
                self.take_over(now, key, source, "an unchanged key is taken over");
                run.counts.taken_over += u64::from(from_another);
            }
            return;
        }
        let kind = if run.emits_replaced { DeltaKind::Replaced } else { DeltaKind::Sync };
        let owner = source.or(item.owner());
        let new =
            New { kind, thing, source, owner, final_state_unknown: false, due: None, trace: run.list.trace };
        self.append(now, key, &new, true);
        self.mark(run, key);
        run.counts.replaced += 1;
        if from_another {
            run.counts.taken_over += 1;
            self.hit("Replace takes a key over");
        }
        self.hit(if item.is_leased() { "Replace of a leased key" } else { "Replace of a key" });
    }

    fn mark(&mut self, run: &Run, key: Name) {
        if run.first {
            self.item(key).mark = Some(self.rv);
            self.hit("the initial list marks a key");
        }
    }

    fn take_over(&mut self, now: Micros, key: Name, source: Who, rule: &'static str) {
        self.event(now);
        self.item(key).set_owner(source);
        self.hit(rule);
    }

    /// Whether the Replace deletes `key`.
    fn is_missing(run: &Run, key: Name, item: &Item) -> bool {
        let has_state = item.newest_thing().is_some();
        has_state
            && !item.newest_is_deleted()
            && item.owner() == run.list.source
            && !run.calls.contains_key(key)
            && run.list.items.iter().all(|(listed, _)| *listed != key)
    }

    /// Handles a key that is not listed.
    fn replace_missing(&mut self, now: Micros, run: &mut Run, key: Name) {
        let Some(item) = self.get(key).cloned() else { return };
        if !Self::is_missing(run, key, &item) {
            if item.newest_is_deleted() {
                self.hit("Replace leaves a key that is deleted already");
            }
            return;
        }
        run.counts.deleted += 1;
        if self.drops_unseen(&item) {
            self.drop_unseen(now, key);
            self.hit("Replace drops an unseen key");
            return;
        }
        let thing = item.newest_thing().expect("a key that is held has an object");
        let source = run.list.source;
        let kind = DeltaKind::Deleted;
        let new = New {
            kind,
            thing,
            source,
            owner: None,
            final_state_unknown: true,
            due: None,
            trace: run.list.trace,
        };
        self.append(now, key, &new, true);
        self.mark(run, key);
        self.hit(if item.is_leased() { "Replace deletes a leased key" } else { "Replace deletes a key" });
    }
}

/// Whether the key's newest state is this object.
fn is_unchanged(item: &Item, thing: Thing) -> bool {
    !item.newest_is_deleted() && item.newest_thing().is_some_and(|newest| same_content(newest, thing))
}

/// Whether the key belongs to another source than the one that names it.
fn is_from_another(item: &Item, source: Who) -> bool {
    source.is_some() && item.owner().is_some() && item.owner() != source
}
