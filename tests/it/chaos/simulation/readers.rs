//! Readers of the views of all queues, which go on over faults, restarts and lost positions. Each keeps a copy of its view.
//!
//! Each page is checked against the durable events: it has every change that it must have, and nothing else. So a reader never
//! gets a change that is not durable, and no older change after a newer one. A reader may lose its position only if the journal
//! no longer has the events since, or if the limit of tombstones is small. At the end, the copy is the list of the view.

use std::collections::BTreeMap;
use std::sync::Arc;

use deltaq_engine::feed::{Position, RowKind, RowLimit, RowPage};
use deltaq_engine::id::Rv;
use deltaq_engine::key::Key;
use deltaq_service::{Error, Handle, KeyFilter, PageLimit, Registry, ViewFilter, WatchFrom, Watcher};
use fastrand::Rng;
use parking_lot::{Mutex, MutexGuard};

use super::Violation;
use super::disk::Disk;
use super::plan::{ReaderSetup, millis};
use super::world::World;
use crate::view_history::NaiveView;

/// Most rows of a page: few, so that pages end between changes.
const ROWS: usize = 4;
/// Most entries of a page of a list.
const ENTRIES: usize = 5;
/// More pages than a reader needs at the end.
const PAGES: usize = 10_000;

/// The version and the object of each key.
type Copy = BTreeMap<Key, (Rv, String)>;

/// A reader.
#[derive(Debug)]
pub(super) struct Reader {
    pub(super) world: Arc<World>,
    pub(super) setup: ReaderSetup,
    /// Whether the node remembers all tombstones.
    pub(super) forgets_nothing: bool,
    state: Mutex<State>,
}

/// The part of a reader that changes. It outlives the node.
#[derive(Debug)]
struct State {
    rng: Rng,
    /// The queue of the copy.
    incarnation: u32,
    /// The position; `None` before the first page.
    position: Option<Position>,
    copy: Copy,
}

/// The result of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Read {
    /// The last page had all changes, and there were none.
    Nothing,
    /// There may be more.
    More,
}

impl Reader {
    pub(super) fn new(world: &Arc<World>, setup: ReaderSetup, forgets_nothing: bool, seed: u64) -> Self {
        let (rng, copy) = (Rng::with_seed(seed), Copy::new());
        let state = Mutex::new(State { rng, incarnation: 0, position: None, copy });
        Self { world: world.clone(), setup, forgets_nothing, state }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn hit(&self, what: &'static str) {
        self.world.ledger(|ledger| ledger.hit(what));
    }

    /// Reads until the node ends. Returns only with a broken promise.
    pub(super) async fn run(&self, disk: &Disk, registry: &Registry) -> Violation {
        let mut has_restarted = self.state().position.is_some();
        loop {
            let (pause, pages) = {
                let rng = &mut self.state().rng;
                (millis(rng, 0..self.setup.pause_ms), rng.usize(1..12))
            };
            tokio::time::sleep(pause).await;
            let Some(handle) = registry.find(&self.setup.queue) else { continue };
            match self.connect(disk, &handle, pages).await {
                Ok(_) if std::mem::take(&mut has_restarted) => self.hit("a reader connected after a restart"),
                Ok(_) => {}
                Err(violation) => return self.violation(&violation),
            }
        }
    }

    fn violation(&self, violation: &str) -> Violation {
        format!("a reader of {} {}: {violation}", self.setup.queue, self.setup.view.as_str())
    }

    fn filter(&self) -> KeyFilter {
        KeyFilter { prefix: self.setup.prefix.to_owned(), shard: None }
    }

    /// Connects, and reads some pages.
    async fn connect(&self, disk: &Disk, handle: &Arc<Handle>, pages: usize) -> Result<Read, Violation> {
        let incarnation = handle.incarnation().0;
        let lists = {
            let mut state = self.state();
            if state.incarnation != incarnation {
                (state.incarnation, state.position) = (incarnation, None);
            }
            state.position.is_none() && state.rng.bool()
        };
        if lists {
            self.list(disk, handle).await?;
        }
        let position = self.state().position;
        let from = match position {
            None => WatchFrom::Start,
            Some(Position { after, listing_since: None, .. }) => WatchFrom::After(after),
            Some(Position { after, listing_since: Some(since), .. }) => WatchFrom::List { after, since },
        };
        let mut watcher = match handle.watch(self.setup.view, from, self.filter()).await {
            Ok(watcher) => watcher,
            Err(error) => return self.refused(disk, position, &error),
        };
        if position.is_none() {
            self.state().copy.clear();
        }
        let mut last = Read::More;
        for _ in 0..pages {
            let (after, listing_since) = (watcher.resource_version(), watcher.listing_since());
            let position = Position { listing_since, ..Position::after(after) };
            let rows = self.state().rng.usize(1..=ROWS);
            let page = match watcher.read(RowLimit { rows, bytes: usize::MAX }).await {
                Ok(page) => page,
                Err(error) => return self.refused(disk, Some(position), &error),
            };
            self.take(disk, position, &watcher, &page)?;
            last = if page.is_last && page.rows.is_empty() { Read::Nothing } else { Read::More };
            if page.is_last {
                let longest = millis(&mut self.state().rng, 1..2_000);
                let _in_time = tokio::time::timeout(longest, watcher.changed()).await;
            }
        }
        Ok(last)
    }

    /// Checks a page, and applies it to the copy.
    fn take(
        &self,
        disk: &Disk,
        before: Position,
        watcher: &Watcher,
        page: &RowPage,
    ) -> Result<(), Violation> {
        let filter = self.filter();
        let incarnation = watcher.handle().incarnation().0;
        let copy = self.state().copy.clone();
        disk.check_history(incarnation, self.setup.view, |history| {
            check_page(history, before, page, &copy, |key| filter.includes(key))
        })?;
        self.world.note(format_args!(
            "a reader of {} {} at {before:?} gets {} rows up to {}",
            self.setup.queue,
            self.setup.view.as_str(),
            page.rows.len(),
            page.next
        ));
        let mut state = self.state();
        for row in &page.rows {
            match &row.object {
                Some(object) if row.kind != RowKind::Deleted => {
                    state.copy.insert(row.key.clone(), (row.rv, object.as_str().to_owned()))
                }
                _ => state.copy.remove(&row.key),
            };
        }
        let listing_since = watcher.listing_since();
        state.position = Some(Position { listing_since, ..Position::after(page.next) });
        drop(state);
        if !page.rows.is_empty() {
            self.hit(if page.is_last { "a reader caught up" } else { "a reader got a part" });
        }
        Ok(())
    }

    /// Checks that a refusal is allowed. Afterwards, the reader begins again if it must.
    fn refused(&self, disk: &Disk, position: Option<Position>, error: &Error) -> Result<Read, Violation> {
        match error {
            Error::Expired { .. } => {
                let needed =
                    position.map(|position| position.listing_since.unwrap_or_default().max(position.after));
                let incarnation = self.state().incarnation;
                // The version at which a list begins is not known here.
                if let Some(needed) = needed.filter(|_| self.forgets_nothing)
                    && disk.has_events_after(incarnation, needed)?
                {
                    return Err(format!(
                        "{needed} has expired, and the journal has all events since: {error}"
                    ));
                }
                self.hit("a reader lost its position");
                self.state().position = None;
            }
            Error::Ahead { .. } | Error::Lost => {
                return Err(format!("{position:?} is none of the queue: {error}"));
            }
            // The queue is deleted, or its commits fail at present.
            _ => self.hit("a reader was refused"),
        }
        Ok(Read::More)
    }

    /// Begins with a list of the view, which may change meanwhile.
    async fn list(&self, disk: &Disk, handle: &Arc<Handle>) -> Result<(), Violation> {
        let (mut copy, mut first, mut after) = (Copy::new(), None, None);
        let filter = ViewFilter { keys: self.filter(), source: None };
        loop {
            let limit = PageLimit { entries: self.state().rng.usize(1..=ENTRIES), bytes: usize::MAX };
            let Ok(page) = handle.view_objects(self.setup.view, &filter, after, limit).await else {
                return Ok(());
            };
            let objects = page
                .entries
                .into_iter()
                .map(|found| (found.key, (found.rv, found.object.as_str().to_owned())));
            let objects: Copy = objects.collect();
            self.check_list(disk, handle, &objects, page.resource_version)?;
            copy.extend(objects);
            let version = *first.get_or_insert(page.resource_version);
            let Some(next) = page.next else {
                self.hit("a reader has a list");
                let mut state = self.state();
                state.position = Some(Position::after(version));
                state.copy = copy;
                return Ok(());
            };
            after = Some(next.as_str().to_owned());
            let pause = millis(&mut self.state().rng, 0..20);
            tokio::time::sleep(pause).await;
        }
    }

    /// Checks that these are objects of the view after an event.
    fn check_list(&self, disk: &Disk, handle: &Handle, objects: &Copy, rv: Rv) -> Result<(), Violation> {
        disk.check_history(handle.incarnation().0, self.setup.view, |history| {
            let expected = objects_at(history, rv);
            let differs = |(key, (rv, object)): (&Key, &(Rv, String))| {
                (expected.get(key) != Some(&(*rv, object.as_str()))).then(|| key.clone())
            };
            match objects.iter().find_map(differs) {
                Some(key) => {
                    let (listed, expected) = (objects.get(&key), expected.get(&key));
                    Err(format!("the list at {rv} has {key} as {listed:?}, not {expected:?}"))
                }
                None => Ok(()),
            }
        })
    }

    /// Reads the rest of a view that does not change any more, and compares the copy with the list of the view.
    pub(super) async fn finish(&self, disk: &Disk, registry: &Registry) -> Result<(), Violation> {
        let Some(handle) = registry.find(&self.setup.queue) else { return Ok(()) };
        let compared = self.compare(disk, &handle).await;
        compared.map_err(|violation| self.violation(&violation))
    }

    async fn compare(&self, disk: &Disk, handle: &Arc<Handle>) -> Result<(), Violation> {
        let mut pages = 0;
        while self.connect(disk, handle, 2).await? != Read::Nothing {
            pages += 1;
            if pages == PAGES {
                return Err("it has no end".to_owned());
            }
        }
        let filter = ViewFilter { keys: self.filter(), source: None };
        let limit = PageLimit { entries: usize::MAX, bytes: usize::MAX };
        let list = handle.view_objects(self.setup.view, &filter, None, limit).await;
        let list = list.map_err(|error| error.to_string())?.entries.into_iter();
        let list: Copy =
            list.map(|found| (found.key, (found.rv, found.object.as_str().to_owned()))).collect();
        let state = self.state();
        if state.copy != list {
            return Err(format!(
                "the copy at {:?} is {:?}, and the list {list:?}",
                state.position, state.copy
            ));
        }
        drop(state);
        self.hit("a reader has the whole view");
        Ok(())
    }
}

/// The objects of the view after an event, with their versions.
fn objects_at(view: &NaiveView, rv: Rv) -> BTreeMap<&Key, (Rv, &str)> {
    let position = Position::listing(Rv::ZERO, rv);
    let rows = view.rows(position, rv).into_iter();
    rows.filter_map(|change| Some((&change.key, (change.rv, change.object.as_deref()?)))).collect()
}

/// Checks a page that a reader has got for a position, if the filter of the reader includes these keys.
///
/// A key whose last change is missing in a page that is not the last one must have changed again later. A deletion may be missing if
/// the reader does not have the key in its `copy`.
fn check_page(
    view: &NaiveView,
    position: Position,
    page: &RowPage,
    copy: &Copy,
    includes: impl Fn(&Key) -> bool,
) -> Result<(), String> {
    let mut rows = page.rows.iter().peekable();
    for change in view.rows(position, page.next).into_iter().filter(|change| includes(&change.key)) {
        if let Some(row) = rows.next_if(|row| row.rv == change.rv) {
            view.compare(row, change, position, true)?;
        } else if (change.object.is_some() || copy.contains_key(&change.key))
            && (page.is_last || view.last_change(&change.key).rv <= page.next)
        {
            return Err(format!("{change:?} is missing in {page:?} for {position:?}"));
        }
    }
    match rows.next() {
        Some(row) => Err(format!("{row:?} is no durable change, or an older one, for {position:?}")),
        None => Ok(()),
    }
}
