//! Followers: queues that take their objects from a view of another queue. Each follower has a task, which reads the
//! change feed of the followed queue and passes the rows to the follower.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use deltaq_engine::command::{Comparison, Taken};
use deltaq_engine::feed::{RowLimit, RowPage};
use deltaq_engine::follow::{Follow, FollowPhase, FollowPosition};
use deltaq_engine::id::Rv;
use deltaq_engine::key::Key;
use futures_util::FutureExt as _;

use super::queue::Handle;
use super::registry::Registry;
use super::{Error, KeyFilter, Name, WatchFrom, Watcher};
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
            // A PUT may have started in the meantime and relied on this task.
            if follower.config().follow.is_none() || !task.begins() {
                return;
            }
            continue;
        };
        let stop = tokio::select! {
            biased;
            () = follower.shutdown().draining().cancelled() => return,
            // A panic loses the state of the follower. The task must survive the panic, because the queue is loaded
            // again.
            stop = AssertUnwindSafe(feed(&registry, &follower, &follow, lists_again)).catch_unwind() => {
                stop.unwrap_or(Stop::Blocked(Obstacle::Failed(Error::Broken)))
            }
        };
        lists_again = matches!(stop, Stop::List);
        if let Stop::Blocked(obstacle) = stop {
            if matches!(follower.open(), Err(Error::QueueDeleted)) {
                return;
            }
            let now = follower.now();
            task.set(|activity| {
                activity.obstacle = Some(obstacle);
                activity.behind_since.get_or_insert(now);
            });
            tokio::select! {
                biased;
                () = follower.shutdown().draining().cancelled() => return,
                () = task.wake.notified() => {}
                () = tokio::time::sleep(RETRY_WAIT) => {}
            }
        }
    }
}

/// Passes rows to a follower until something stops it.
async fn feed(registry: &Registry, follower: &Arc<Handle>, follow: &Arc<Follow>, lists: bool) -> Stop {
    let mut feeder = match Feeder::begin(registry, follower, follow, lists).await {
        Ok(feeder) => feeder,
        Err(stop) => return stop,
    };
    loop {
        if let Err(stop) = feeder.step().await {
            return stop;
        }
    }
}

/// Reads the rows for one follower.
struct Feeder<'f> {
    follower: &'f Arc<Handle>,
    follow: &'f Arc<Follow>,
    watcher: Watcher,
    /// The position of the follower. The watcher may be further ahead if there were no rows.
    position: FollowPosition,
}

impl<'f> Feeder<'f> {
    /// Starts at the position of the follower, or with the list of all keys.
    async fn begin(
        registry: &Registry,
        follower: &'f Arc<Handle>,
        follow: &'f Arc<Follow>,
        lists: bool,
    ) -> Result<Self, Stop> {
        let name = Name::new(&follow.queue).map_err(|_| Error::QueueNotFound)?;
        let parent = registry.get(&name)?;
        let now = follower.now();
        follower.follow_task.set(|activity| {
            activity.behind_since.get_or_insert(now);
            activity.read = Rv::ZERO;
        });
        let incarnation = parent.incarnation().0;
        let position = follower.open()?.queue.follow_position();
        let position = position.filter(|position| !lists && position.incarnation == incarnation);
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
        let watcher = parent.watch(follow.view, from, filter).await?.with_pause(PAUSE);
        let position = if let Some(position) = position {
            position
        } else {
            let since = watcher.listing_since().unwrap_or_default();
            let (begun, _) =
                follower.change(|state, now| state.queue.begin_follow_list(now, incarnation, since))?;
            begun.ok_or(Stop::Blocked(Obstacle::Busy))?
        };
        Ok(Self { follower, follow, watcher, position })
    }

    async fn step(&mut self) -> Result<(), Stop> {
        if let FollowPhase::Sweep { since } = self.position.phase {
            self.sweep(since).await?;
        }
        // Even without room there may be a page without rows, which moves the position.
        let room = self.follower.room()?;
        let before = self.watcher.resource_version();
        let page = self.watcher.read(RowLimit { rows: room.min(PAGE_ROWS), bytes: PAGE_BYTES }).await?;
        self.take(&page).await?;
        // A page of changes that do not concern the follower also has no rows, but its end is after these changes.
        let is_full = room == 0 && !page.is_last && page.next == before;
        self.follower.follow_task.set(|activity| {
            activity.obstacle = is_full.then_some(Obstacle::Full);
            activity.read = page.next;
        });
        if page.is_last {
            self.wait_for_changes().await?;
        } else if is_full {
            self.wait_for_room().await?;
        }
        Ok(())
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

    async fn wait_for_changes(&mut self) -> Result<(), Stop> {
        self.follower.follow_task.set(|activity| activity.behind_since = None);
        tokio::select! {
            biased;
            () = self.watcher.changed() => {}
            () = self.follower.follow_task.wake.notified() => {}
        }
        self.check_settings()?;
        let now = self.follower.now();
        self.follower.follow_task.set(|activity| activity.behind_since = Some(now));
        Ok(())
    }

    fn check_settings(&self) -> Result<(), Stop> {
        if self.follower.config().follow.as_ref() == Some(self.follow) { Ok(()) } else { Err(Stop::Again) }
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
            let (taken, commit) =
                self.follower.change_fairly(|state, at| state.queue.take_rows(at, from, now, to, &pairs))?;
            match taken {
                Taken::All(position) => self.position = position,
                Taken::Full => return Err(Stop::Blocked(Obstacle::Full)),
                Taken::Moved => return Err(Stop::Again),
            }
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
            let gone = self.watcher.handle().read(|queue, _| {
                let has = |key: &Key| queue.table().get(key.as_str())?.version_in(*view);
                keys.retain(|key| !key.as_str().starts_with(&**prefix) || has(key).is_none());
                keys
            });
            let (gone, from) = (gone.await?, self.position);
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
        match self.follower.change(|state, now| state.queue.take_rows(now, from, &[], to, &none))?.0 {
            Taken::All(position) => self.position = position,
            Taken::Full | Taken::Moved => return Err(Stop::Again),
        }
        Ok(())
    }
}
