//! Followers: queues that take their objects from a view of another queue. Each follower has a task, which reads the
//! change feed of the followed queue and passes the rows to the follower. For a follower in mode `events`, the task
//! reads the events of the followed queue after the list.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use deltaq_engine::command::{Comparison, Taken};
use deltaq_engine::feed::{Row, RowLimit, RowPage};
use deltaq_engine::follow::{Follow, FollowPhase, FollowPosition};
use deltaq_engine::followed::FollowedEvent;
use deltaq_engine::id::Rv;
use deltaq_engine::key::Key;
use futures_util::FutureExt as _;
use tokio::time::Instant;

use super::author::on_behalf_of;
use super::followed_events::{EventPage, EventReader, NoEvents};
use super::queue::Handle;
use super::registry::Registry;
use super::{Author, Error, KeyFilter, Name, WatchFrom, Watcher};
use crate::calls::long_command::compare;
use crate::queue::follow_task::{Activity, Obstacle};

/// Maximum number of rows that are read at once.
const PAGE_ROWS: usize = 1_000;
/// Approximate number of bytes that are read at once.
const PAGE_BYTES: usize = 1 << 20;
/// Maximum number of rows that are applied, or of keys that are swept, in one critical section.
const STEP_ROWS: usize = 256;
/// A follower collects the changes of this period and applies them together, so that its commits leave room for those
/// of producers.
const PAUSE: Duration = Duration::from_millis(10);
/// How often a follower in mode `events` records that it has passed events of which it takes none. After a restart it
/// begins there, and the journal keeps what is newer.
const RECORD_EVERY: Duration = Duration::from_mins(1);
/// How often a follower that waits for changes checks the grant of its token.
const GRANT_CHECK: Duration = Duration::from_secs(1);
/// How long a follower waits before it retries.
const RETRY_WAIT: Duration = Duration::from_millis(500);

/// Why the task stops reading.
enum Stop {
    /// The settings or the state of the follower have changed since the task last read them.
    Again,
    /// The position is too old, or ahead of the followed queue.
    List,
    Blocked(Obstacle),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        match error {
            Error::Expired { .. } | Error::Ahead { .. } | Error::Lost | Error::TooOld => Self::List,
            error => Self::Blocked(Obstacle::Failed(error)),
        }
    }
}

impl Handle {
    /// Whether the token of this name may read a queue.
    fn may_read(&self, token: &str, queue: &str) -> bool {
        self.context.grants.may_read(token, queue)
    }

    /// How many rows the follower accepts now. If it accepts none, its task is woken as soon as it does.
    fn room(&self) -> Result<usize, Error> {
        let mut state = self.open()?;
        let room = state.queue.follow_room();
        state.awaits_room = room == 0;
        Ok(room)
    }
}

impl Registry {
    /// Runs the tasks of all followers, until the shutdown begins.
    pub(super) async fn run_followers(self: Arc<Self>) {
        loop {
            for handle in self.followers_without_task() {
                self.shutdown().spawn("follower", run(self.clone(), handle));
            }
            tokio::select! {
                biased;
                () = self.shutdown().draining().cancelled() => return,
                () = self.followers_changed().notified() => {}
            }
        }
    }

    fn followers_without_task(&self) -> Vec<Arc<Handle>> {
        let mut followers = self.handles();
        followers.retain(|handle| handle.config().follow.is_some() && handle.follow_task.begins());
        followers
    }
}

/// Feeds one follower until it no longer follows a queue.
async fn run(registry: Arc<Registry>, follower: Arc<Handle>) {
    let task = &follower.follow_task;
    let mut lists_again = false;
    loop {
        let Some(follow) = follower.config().follow.clone() else {
            task.set(|activity| *activity = Activity::default());
            task.ends();
            // A PUT may have set `follow` since the check above, and no task was started for it because this one still
            // counted as running.
            if follower.config().follow.is_none() || !task.begins() {
                return;
            }
            continue;
        };
        let token = follower.lock().queue.follow_set_by().cloned();
        let by = Author { token: token.clone(), is_follower: true };
        let fed = on_behalf_of(by, feed(&registry, &follower, (&follow, token), lists_again));
        let stop = tokio::select! {
            biased;
            () = follower.shutdown().draining().cancelled() => return,
            // A panic loses the state of the follower. The task must survive the panic, because the queue is loaded
            // again.
            stop = AssertUnwindSafe(fed).catch_unwind() => {
                stop.unwrap_or(Stop::Blocked(Obstacle::Failed(Error::Broken)))
            }
        };
        lists_again = matches!(stop, Stop::List);
        if let Stop::Blocked(obstacle) = stop {
            if matches!(follower.open(), Err(Error::QueueDeleted)) {
                return;
            }
            let now = follower.now();
            // Only an operator can decide to do without the lost events.
            let can_retry = obstacle != Obstacle::HistoryLost;
            if !can_retry {
                let message =
                    "a follower in mode events is blocked: the followed queue no longer has all events";
                tracing::error!(queue = %follower.name(), follows = &*follow.queue, message);
            }
            task.set(|activity| {
                activity.behind_since.get_or_insert(now);
                if let Obstacle::NotGranted { token } = &obstacle
                    && activity.obstacle.as_ref() != Some(&obstacle)
                {
                    tracing::warn!(queue = %follower.name(), follows = &*follow.queue, token = &**token, "a follower is blocked: the token that has set it up may not read the followed queue");
                }
                activity.obstacle = Some(obstacle);
            });
            tokio::select! {
                biased;
                () = follower.shutdown().draining().cancelled() => return,
                () = task.wake.notified() => {}
                () = tokio::time::sleep(RETRY_WAIT), if can_retry => {}
            }
        }
    }
}

/// Passes rows or events to a follower until something stops it.
async fn feed(
    registry: &Registry,
    follower: &Arc<Handle>,
    (follow, token): (&Arc<Follow>, Option<Arc<str>>),
    lists: bool,
) -> Stop {
    let never = match try_feed(registry, follower, (follow, token), lists).await {
        Ok(never) => never,
        Err(stop) => return stop,
    };
    match never {}
}

async fn try_feed(
    registry: &Registry,
    follower: &Arc<Handle>,
    (follow, token): (&Arc<Follow>, Option<Arc<str>>),
    lists: bool,
) -> Result<Infallible, Stop> {
    check_grant(follower, follow, token.as_ref())?;
    let name = Name::new(&follow.queue).map_err(|_| Error::QueueNotFound)?;
    let parent = registry.get(&name)?;
    let now = follower.now();
    follower.follow_task.set(|activity| {
        activity.behind_since.get_or_insert(now);
        activity.read = Rv::ZERO;
    });
    let is_events = follower.config().rules().keeps_every_delta;
    let incarnation = parent.incarnation().0;
    let position = follower.open()?.queue.follow_position();
    let position = position.filter(|position| !lists && position.incarnation == incarnation);
    if let Some(position) = position.filter(|position| is_events && position.phase == FollowPhase::Changes) {
        let reader = EventReader::begin(parent, follow.prefix.clone(), position.after, PAUSE);
        let recorded = Instant::now();
        let mut feeder = Feeder { follower, follow, token, is_events, reader, recorded, position };
        loop {
            feeder.step().await?;
        }
    }
    let (reader, position) = watch(&parent, follower, follow, position).await?;
    let mut feeder =
        Feeder { follower, follow, token, is_events, reader, recorded: Instant::now(), position };
    loop {
        feeder.step().await?;
    }
}

/// Begins to read rows at the position of the follower, or with the list of all keys.
async fn watch(
    parent: &Arc<Handle>,
    follower: &Arc<Handle>,
    follow: &Follow,
    position: Option<FollowPosition>,
) -> Result<(Watcher, FollowPosition), Stop> {
    let from = match position {
        None => WatchFrom::Start,
        Some(FollowPosition {
            after,
            phase: FollowPhase::Sweep { since } | FollowPhase::List { since },
            ..
        }) => WatchFrom::List { after, since },
        Some(FollowPosition { after, .. }) => WatchFrom::After(after),
    };
    let filter = KeyFilter { prefix: follow.prefix.to_string(), shard: None };
    let watcher = parent.watch(follow.view, from, filter).await?.of_follower(PAUSE);
    let position = if let Some(position) = position {
        position
    } else {
        let since = watcher.listing_since().unwrap_or_default();
        let incarnation = parent.incarnation().0;
        let (begun, _) =
            follower.change(|state, now| state.queue.begin_follow_list(now, incarnation, since))?;
        begun.ok_or(Stop::Blocked(Obstacle::Busy))?
    };
    Ok((watcher, position))
}

/// Checks that the token that has set up the follower may read the followed queue.
fn check_grant(follower: &Handle, follow: &Follow, token: Option<&Arc<str>>) -> Result<(), Stop> {
    match token {
        Some(token) if !follower.may_read(token, &follow.queue) => {
            Err(Stop::Blocked(Obstacle::NotGranted { token: token.clone() }))
        }
        _ => Ok(()),
    }
}

/// Passes what a reader reads to one follower.
struct Feeder<'f, R> {
    follower: &'f Arc<Handle>,
    follow: &'f Arc<Follow>,
    /// The name of the token that has set up the follower.
    token: Option<Arc<str>>,
    /// Whether the follower takes events after the list.
    is_events: bool,
    reader: R,
    /// When the position was recorded.
    recorded: Instant,
    /// The position of the follower. The reader may be further ahead if there was nothing for the follower.
    position: FollowPosition,
}

/// Waits until `changed` completes, because the followed queue has changed, or until the follower's task is woken.
async fn wait_for_changes(follower: &Handle, has_token: bool, changed: impl Future<Output = ()>) {
    follower.follow_task.set(|activity| activity.behind_since = None);
    tokio::select! {
        biased;
        () = changed => {}
        // A follower whose token has lost its grant says so before there are changes.
        () = tokio::time::sleep(GRANT_CHECK), if has_token => {}
        () = follower.follow_task.wake.notified() => {}
    }
    let now = follower.now();
    follower.follow_task.set(|activity| activity.behind_since = Some(now));
}

impl<R> Feeder<'_, R> {
    fn check_settings(&self) -> Result<(), Stop> {
        let config = self.follower.config();
        let are_the_same =
            config.follow.as_ref() == Some(self.follow) && config.rules().keeps_every_delta == self.is_events;
        let are_the_same = are_the_same && self.follower.open()?.queue.follow_set_by() == self.token.as_ref();
        if are_the_same { Ok(()) } else { Err(Stop::Again) }
    }

    /// Waits until the follower may take rows of this size: the journal has room besides that for calls, there is memory, and the
    /// token has its grant.
    async fn wait_for_turn(&self, bytes: usize) -> Result<(), Stop> {
        self.follower.memory().check(bytes).map_err(Error::from)?;
        if let Some((journal, _)) = self.follower.journal() {
            journal.is_half_empty().await;
        }
        check_grant(self.follower, self.follow, self.token.as_ref())
    }

    async fn wait_for_room(&self) -> Result<usize, Stop> {
        loop {
            let room = self.follower.room()?;
            if room > 0 {
                return Ok(room);
            }
            self.follower.follow_task.set(|activity| activity.obstacle = Some(Obstacle::Full));
            self.follower.follow_task.wake.notified().await;
            self.check_settings()?;
        }
    }

    /// Moves to the position that the follower has reached.
    fn moved(&mut self, taken: Taken) -> Result<(), Stop> {
        match taken {
            Taken::All(position) => {
                self.position = position;
                Ok(())
            }
            Taken::Full => Err(Stop::Blocked(Obstacle::Full)),
            Taken::Moved => Err(Stop::Again),
        }
    }
}

impl Feeder<'_, EventReader> {
    async fn step(&mut self) -> Result<(), Stop> {
        let page = self.reader.read().await.map_err(|error| match error {
            NoEvents::Lost => Stop::Blocked(Obstacle::HistoryLost),
            NoEvents::Failed(error) => Stop::Blocked(Obstacle::Failed(error)),
        })?;
        self.take(&page).await?;
        self.follower.follow_task.set(|activity| {
            activity.obstacle = None;
            activity.read = page.next;
        });
        self.reader.advance(page.next);
        if page.is_last {
            wait_for_changes(self.follower, self.token.is_some(), self.reader.changed()).await;
            self.check_settings()?;
        }
        Ok(())
    }

    /// Passes a page of events to the follower.
    async fn take(&mut self, page: &EventPage) -> Result<(), Stop> {
        let end = FollowPosition { after: page.next, ..self.position };
        let mut events = page.events.as_slice();
        let mut records = self.recorded.elapsed() >= RECORD_EVERY;
        loop {
            // Without events there is nothing that needs room.
            let room = if events.is_empty() { 0 } else { self.wait_for_room().await? };
            let (now, later) = events.split_at(events.len().min(STEP_ROWS).min(room));
            self.wait_for_turn(now.iter().map(FollowedEvent::new_bytes).sum()).await?;
            let last = now.last().filter(|_| !later.is_empty());
            let to = last.map_or(end, |last| FollowPosition { after: last.rv, ..self.position });
            let from = self.position;
            let pairs = Arc::new(self.follower.open()?.queue.compare_events(now));
            if !pairs.is_empty() {
                compare(pairs.clone()).await;
            }
            let (taken, commit) = self
                .follower
                .change_fairly(|state, at| state.queue.take_events(at, from, now, (to, records), &pairs))?;
            if taken == Taken::Full {
                events = self.after_full(events).await?;
                continue;
            }
            self.moved(taken)?;
            if self.position != from {
                self.recorded = Instant::now();
                records = false;
            }
            events = later;
            if events.is_empty() {
                return commit.wait().await.map_err(|error| Error::from(error).into());
            }
        }
    }

    /// Waits after an event that did not fit, because a key has no room for another delta. Returns the events that the
    /// follower has not taken.
    async fn after_full<'e>(&mut self, events: &'e [FollowedEvent]) -> Result<&'e [FollowedEvent], Stop> {
        self.follower.follow_task.set(|activity| activity.obstacle = Some(Obstacle::Full));
        tokio::select! {
            biased;
            () = self.follower.follow_task.wake.notified() => {}
            () = tokio::time::sleep(RETRY_WAIT) => {}
        }
        self.check_settings()?;
        let goes_on = |position: &FollowPosition| {
            (position.incarnation, position.phase) == (self.position.incarnation, self.position.phase)
                && position.after >= self.position.after
        };
        let position = self.follower.open()?.queue.follow_position();
        self.position = position.filter(goes_on).ok_or(Stop::Again)?;
        let taken = events.iter().take_while(|event| event.rv <= self.position.after).count();
        Ok(events.split_at(taken).1)
    }
}

impl Feeder<'_, Watcher> {
    async fn step(&mut self) -> Result<(), Stop> {
        match self.position.phase {
            FollowPhase::Sweep { since } => self.sweep(since).await?,
            FollowPhase::Changes if self.is_events => return Err(Stop::Again),
            FollowPhase::List { .. } | FollowPhase::Changes => {}
        }
        // Even without room there may be a page without rows, which moves the position.
        let room = self.follower.room()?;
        let before = self.reader.resource_version();
        let mut page = self.reader.read(RowLimit { rows: room.min(PAGE_ROWS), bytes: PAGE_BYTES }).await?;
        if self.is_events {
            self.end_list(&mut page);
        }
        self.take(&page).await?;
        // A page of changes that do not concern the follower also has no rows, but its end is after these changes.
        let is_full = room == 0 && !page.is_last && page.next == before;
        self.follower.follow_task.set(|activity| {
            activity.obstacle = is_full.then_some(Obstacle::Full);
            activity.read = page.next;
        });
        if page.is_last && !self.is_events {
            wait_for_changes(self.follower, self.token.is_some(), self.reader.changed()).await;
            self.check_settings()?;
        } else if is_full {
            self.wait_for_room().await?;
        }
        Ok(())
    }

    /// Mode `events`: ends the list with the events that happened before it. The task reads later ones from the
    /// journal.
    fn end_list(&self, page: &mut RowPage) {
        let FollowPhase::List { since } = self.position.phase else { return };
        page.is_last = page.next >= since;
        if page.is_last {
            page.rows.retain(|row| row.rv <= since);
            page.next = since;
        }
    }

    /// Passes a page of rows to the follower.
    async fn take(&mut self, page: &RowPage) -> Result<(), Stop> {
        let phase = match self.position.phase {
            FollowPhase::List { .. } if page.is_last => FollowPhase::Changes,
            phase => phase,
        };
        let end = FollowPosition { after: page.next, phase, ..self.position };
        let mut rows = page.rows.as_slice();
        loop {
            let (now, later) = rows.split_at(rows.len().min(STEP_ROWS));
            let last = now.last().filter(|_| !later.is_empty());
            let to = last.map_or(end, |last| FollowPosition { after: last.rv, ..self.position });
            let from = self.position;
            let pairs = Arc::new(self.follower.open()?.queue.compare_rows(from.phase, now));
            if !pairs.is_empty() {
                compare(pairs.clone()).await;
            }
            self.wait_for_turn(now.iter().map(Row::new_bytes).sum()).await?;
            let (taken, commit) =
                self.follower.change_fairly(|state, at| state.queue.take_rows(at, from, now, to, &pairs))?;
            self.moved(taken)?;
            rows = later;
            if rows.is_empty() {
                return commit.wait().await.map_err(|error| Error::from(error).into());
            }
        }
    }

    /// Deletes the keys that the followed queue does not have. A key that leaves or enters the view during the sweep
    /// has a row after `since`.
    async fn sweep(&mut self, since: Rv) -> Result<(), Stop> {
        let Follow { view, prefix, .. } = &**self.follow;
        let mut after: Option<Key> = None;
        loop {
            let room = self.wait_for_room().await?;
            let (mut keys, next) =
                self.follower.open()?.queue.keys_to_sweep(after.as_ref(), room.min(STEP_ROWS));
            let is_events = self.is_events;
            let gone = self.reader.handle().read(|queue, _| {
                let has = |key: &Key| queue.table().get(key.as_str())?.version_in(*view);
                // The deletion of a key since the list began is an event of its own.
                let is_event = |key: &Key| is_events && queue.has_left_after(*view, key, since);
                keys.retain(|key| {
                    !key.as_str().starts_with(&**prefix) || (has(key).is_none() && !is_event(key))
                });
                keys
            });
            let (gone, from) = (gone.await?, self.position);
            self.wait_for_turn(0).await?;
            if !gone.is_empty() {
                let (swept, commit) =
                    self.follower.change_fairly(|state, now| state.queue.sweep_keys(now, from, &gone))?;
                if !swept {
                    return Err(Stop::Again);
                }
                commit.wait().await.map_err(Error::from)?;
            }
            self.follower.follow_task.set(|activity| activity.obstacle = None);
            tokio::task::yield_now().await;
            after = next;
            if after.is_none() {
                break;
            }
        }
        let (from, to) =
            (self.position, FollowPosition { phase: FollowPhase::List { since }, ..self.position });
        let none = Comparison::default();
        let (taken, _) =
            self.follower.change(|state, now| state.queue.take_rows(now, from, &[], to, &none))?;
        self.moved(taken)
    }
}
