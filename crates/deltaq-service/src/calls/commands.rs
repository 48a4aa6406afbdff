//! The commands of a queue, except pops. Each returns once the events that its result depends on are durable.

use std::sync::Arc;

use deltaq_engine::command::{
    Call, Comparison, Expected, FailureState, Produced, Progress, Purged, RegroupWalk, Replace, Replaced,
    SelectedKeys, Settle, Settled,
};
use deltaq_engine::config::Config;
use deltaq_engine::id::{Rv, Sequence, Source};
use deltaq_engine::refusal::Refusal;
use deltaq_engine::time::Time;
use deltaq_engine::trace::Trace;
use deltaq_engine::{Queue, ScanCursor, Seed};
use deltaq_journal::Commit;
use deltaq_types::PauseReason;

use super::long_command::{STEP_KEYS, compare};
use crate::Error;
use crate::author::author;
use crate::queue::Handle;

/// Approximate maximum size of the objects in a step of a seed, in bytes. Large objects take milliseconds to index.
const STEP_BYTES: usize = 256 << 10;

/// How many of these objects a step of a seed takes.
fn in_a_step(seeds: &[Seed]) -> usize {
    let mut room = Some(STEP_BYTES);
    let fits = |(_, object, _): &&Seed| {
        let fits = room.is_some();
        room = room.and_then(|room| room.checked_sub(object.bytes()));
        fits
    };
    seeds.iter().take(STEP_KEYS).take_while(fits).count()
}

/// A dry run of a Replace on a queue that does not exist.
#[derive(Debug)]
pub struct DryRun {
    pub(crate) queue: Queue,
    pub(crate) replace: Replace,
}

impl DryRun {
    /// Runs the Replace on an empty queue. A long list takes a while.
    ///
    /// # Errors
    /// A refusal of the engine.
    pub fn run(self) -> Result<Replaced, Refusal> {
        let Self { mut queue, replace } = self;
        let now = queue.last_at();
        let id = queue.accept_replace(now, replace)?;
        loop {
            if let Progress::Done(replaced) = queue.replace_step(now, id, STEP_KEYS)? {
                return Ok(replaced);
            }
        }
    }
}

impl Handle {
    /// Makes one change and waits for its commit.
    pub(super) async fn command<T>(
        self: &Arc<Self>,
        command: impl FnOnce(&mut Queue, Time) -> T,
    ) -> Result<T, Error> {
        let (out, commit) = self.change(|state, now| command(&mut state.queue, now))?;
        commit.wait().await?;
        Ok(out)
    }

    /// Applies all calls or none. Their keys were read with the settings `config`.
    ///
    /// # Errors
    /// [`Refusal::ConfigChanged`] if the settings have changed since the keys were read; other refusals of the engine;
    /// [`Error::QueueDeleted`] or [`Error::Journal`].
    pub async fn produce(self: &Arc<Self>, config: &Config, calls: &[Call]) -> Result<Produced, Error> {
        self.produce_and_read(config, calls, None, &[]).await.map(|(produced, _)| produced)
    }

    /// Like [`produce`](Self::produce), but applies each number of a sequence only once, and only if all of `expected`
    /// holds. The second result has the failure state of each key of a rate-limited call, in the order of the calls.
    ///
    /// # Errors
    /// Same as [`produce`](Self::produce).
    pub async fn produce_and_read(
        self: &Arc<Self>,
        config: &Config,
        calls: &[Call],
        sequence: Option<&Sequence>,
        expected: &[Expected],
    ) -> Result<(Produced, Vec<FailureState>), Error> {
        let comparison = self.compared(config, calls).await?;
        let (produced, commit) = self.change(|state, now| {
            let queue = &mut state.queue;
            queue.check_config(config)?;
            self.set_room(queue);
            if let Some(comparison) = comparison {
                queue.set_comparison(comparison);
            }
            let produced = queue.produce_once(now, calls, sequence, expected)?;
            let limited = calls.iter().filter(|call| call.rate_limited);
            let failures = limited.map(|call| queue.failure_state(&call.key)).collect();
            self.note_contacts(state, calls, sequence, now);
            Ok((produced, failures))
        })?;
        commit.wait().await?;
        produced.map_err(|refusal: Refusal| refusal.into())
    }

    /// The compared objects of the calls, if the queue ignores members.
    pub(super) async fn compared(
        &self,
        config: &Config,
        calls: &[Call],
    ) -> Result<Option<Arc<Comparison>>, Error> {
        if config.ignored.is_empty() {
            return Ok(None);
        }
        let pairs = Arc::new(self.open()?.queue.compare_calls(calls));
        if !pairs.is_empty() {
            compare(pairs.clone()).await;
        }
        Ok(Some(pairs))
    }

    /// The sequence number of the source's last call that had one.
    ///
    /// # Errors
    /// [`Error::QueueDeleted`] or [`Error::Journal`].
    pub async fn last_sequence(self: &Arc<Self>, source: &Source) -> Result<Option<u64>, Error> {
        self.read(|queue, _| queue.last_sequence(source)).await
    }

    /// Settles leases, each one independently.
    ///
    /// # Errors
    /// [`Error::QueueDeleted`] or [`Error::Journal`].
    pub async fn settle(self: &Arc<Self>, settles: &[Settle]) -> Result<Vec<Settled>, Error> {
        let has_errors = settles.iter().any(Settle::has_error);
        if !self.settles_in_steps(settles) {
            return self
                .command(|queue, now| {
                    if has_errors {
                        self.set_room(queue);
                    }
                    queue.settle(now, settles)
                })
                .await;
        }
        let (settles, mut settled) = (settles.to_vec(), Vec::with_capacity(settles.len()));
        let handle = self.clone();
        self.long_command(move |queue, now| {
            if has_errors {
                handle.set_room(queue);
            }
            let next = settles.get(settled.len()..).and_then(<[Settle]>::first);
            settled.extend(queue.settle(now, next.map_or(&[], std::slice::from_ref)));
            Ok(if settled.len() < settles.len() {
                Progress::More
            } else {
                Progress::Done(std::mem::take(&mut settled))
            })
        })
        .await
    }

    /// Whether these settles are a long command. An ack indexes an object, which takes milliseconds if the object is
    /// large.
    pub(crate) fn settles_in_steps(&self, settles: &[Settle]) -> bool {
        settles.len() > 1 && !self.config().indexes.is_empty()
    }

    /// Resets the failures of keys. Returns how many of the keys had failures.
    ///
    /// # Errors
    /// [`Error::QueueDeleted`] or [`Error::Journal`].
    pub async fn forget<'k>(self: &Arc<Self>, keys: impl IntoIterator<Item = &'k str>) -> Result<u64, Error> {
        self.command(|queue, now| queue.forget(now, keys)).await
    }

    /// Stops or resumes delivery.
    ///
    /// # Errors
    /// [`Error::QueueDeleted`] or [`Error::Journal`].
    pub async fn set_paused(self: &Arc<Self>, paused: bool) -> Result<(), Error> {
        self.command(|queue, now| queue.set_paused(now, paused)).await?;
        // Its report says whether the queue has paused itself.
        self.push_task().wake.notify_one();
        Ok(())
    }

    /// Moves keys to the groups that the settings name.
    ///
    /// # Errors
    /// [`Error::QueueDeleted`] or [`Error::Journal`].
    pub(crate) async fn regroup(self: &Arc<Self>) -> Result<u64, Error> {
        let mut walk = RegroupWalk::default();
        self.long_command(move |queue, now| Ok(queue.regroup_step(now, &mut walk, STEP_KEYS))).await
    }

    /// Stops or resumes the delivery of a group. Returns false if there is no such group and no room for it.
    ///
    /// # Errors
    /// [`Error::QueueDeleted`] or [`Error::Journal`].
    pub async fn set_group_paused(self: &Arc<Self>, group: &str, paused: bool) -> Result<bool, Error> {
        self.command(|queue, now| queue.set_group_paused(now, group, paused)).await
    }

    /// Stops delivery because the queue can't deliver.
    ///
    /// # Errors
    /// [`Error::QueueDeleted`] or [`Error::Journal`].
    pub async fn pause_itself(self: &Arc<Self>, reason: PauseReason) -> Result<(), Error> {
        self.command(|queue, now| queue.pause_itself(now, reason)).await
    }

    /// Closes the queue. If `at_once` is true, pops end as soon as no key is ready.
    pub(crate) async fn switch_closed(self: &Arc<Self>, at_once: bool) -> Result<(), Error> {
        let close = |queue: &mut Queue, now| {
            if at_once { queue.close_at_once(now) } else { queue.set_closed(now, true) }
        };
        self.command(close).await
    }

    /// Reopens the queue.
    ///
    /// # Errors
    /// [`Error::QueueDeleted`] or [`Error::Journal`].
    pub async fn reopen(self: &Arc<Self>) -> Result<(), Error> {
        self.command(|queue, now| queue.set_closed(now, false)).await
    }

    /// The token that has set what the queue follows with these settings: the caller's, or the former one if nothing
    /// changed and that token may still read the followed queue.
    fn follow_setter(&self, queue: &Queue, config: &Config) -> Option<Arc<str>> {
        let (former, caller) = (queue.follow_set_by().cloned(), author().token);
        let follow = config.follow.as_ref()?;
        if queue.config().follow.as_ref() != Some(follow) {
            return caller;
        }
        let may_read = |token: &Arc<str>| self.context.grants.may_read(token, &follow.queue);
        if former.as_ref().is_none_or(may_read) {
            return former;
        }
        caller.filter(may_read).or(former)
    }

    /// Replaces the settings with the result of `edit`, which gets the current settings. The result depends on the
    /// commit, even if it is a refusal. The caller must check what the queue follows, as
    /// [`Registry::configure`](crate::Registry::configure) does.
    ///
    /// # Errors
    /// The error of `edit`, or a refusal of the engine; [`Error::QueueDeleted`] or [`Error::Journal`].
    pub fn configure<E: From<Error>>(
        self: &Arc<Self>,
        edit: impl FnOnce(&Config) -> Result<Config, E>,
    ) -> (Result<(), E>, Commit) {
        let configured = self.change(|state, now| -> Result<(), E> {
            let config = edit(state.queue.config())?;
            let setter = self.follow_setter(&state.queue, &config);
            state.queue.configure(now, Arc::new(config), setter).map_err(Error::from)?;
            Ok(())
        });
        configured.unwrap_or_else(|error| (Err(error.into()), Commit::done()))
    }

    /// Checks that the queue may have these settings now.
    ///
    /// # Errors
    /// A refusal of the engine; [`Error::QueueDeleted`] or [`Error::Journal`].
    pub async fn check_configure(&self, config: &Config) -> Result<(), Error> {
        Ok(self.read(|queue, _| queue.check_configure(config)).await??)
    }

    /// Replaces the objects of a source with a list whose keys were read with the settings `config`.
    ///
    /// # Errors
    /// [`Refusal::ConfigChanged`] if the settings have changed since the keys were read; other refusals of the engine;
    /// [`Error::QueueDeleted`] or [`Error::Journal`].
    pub async fn replace(
        self: &Arc<Self>,
        config: Arc<Config>,
        replace: Replace,
        kept: impl Send + 'static,
    ) -> Result<Replaced, Error> {
        self.replace_if(config, replace, || Ok(()), kept).await
    }

    /// Like [`replace`](Self::replace), but changes nothing if `permitted` fails before the first change. A Replace may wait for
    /// others, and its caller may lose the permission meanwhile.
    ///
    /// # Errors
    /// Same as [`replace`](Self::replace), and the error of `permitted`.
    pub async fn replace_if<E: From<Error> + Send + 'static>(
        self: &Arc<Self>,
        config: Arc<Config>,
        replace: Replace,
        permitted: impl Fn() -> Result<(), E> + Send + 'static,
        kept: impl Send + 'static,
    ) -> Result<Replaced, E> {
        let mut replace = replace;
        self.count_changed(&mut replace).await?;
        let mut waiting = Some(replace);
        let mut id = None;
        let handle = self.clone();
        let replaced = self.long_command(move |queue, now| {
            let _kept = &kept;
            // A refused list stays in `waiting`, so it is not dropped under the lock.
            if let Some(replace) = &waiting {
                queue.check_config(&config)?;
                handle.set_room(queue);
                queue.check_replace(replace)?;
            }
            if let Some(replace) = waiting.take() {
                id = Some(queue.accept_replace(now, replace)?);
            }
            let Some(id) = id else { return Ok(Progress::NotYet) };
            if let Err(error) = permitted()
                && queue.withdraw_replace(id)
            {
                return Ok(Progress::Done(Err(error)));
            }
            queue.replace_step(now, id, STEP_KEYS).map(|progress| progress.map(Ok))
        });
        replaced.await?
    }

    /// If there is not enough memory for a whole list that queues only changed objects, counts only those.
    async fn count_changed(&self, replace: &mut Replace) -> Result<(), Error> {
        if !replace.only_changed || self.memory().check(replace.list.new_bytes()).is_ok() {
            return Ok(());
        }
        let (mut added, mut from) = (0, 0);
        while from < replace.list.len() {
            let (bytes, next) = self.read(|queue, _| queue.changed_bytes(&replace.list, from)).await?;
            (added, from) = (added + bytes, next);
            tokio::task::yield_now().await;
        }
        replace.list.set_new_bytes(added);
        Ok(())
    }

    /// Queues a `Sync` delta for every known object whose key has no waiting deltas.
    ///
    /// # Errors
    /// A refusal of the engine; [`Error::QueueDeleted`] or [`Error::Journal`].
    pub async fn resync(self: &Arc<Self>, trace: Option<Trace>) -> Result<Produced, Error> {
        let mut cursor = ScanCursor::traced(trace);
        self.long_command(move |queue, now| queue.resync_step(now, &mut cursor, STEP_KEYS)).await
    }

    /// Drops ready and delayed keys, and deltas that arrived during a lease.
    ///
    /// # Errors
    /// [`Error::QueueDeleted`] or [`Error::Journal`].
    pub async fn purge(self: &Arc<Self>) -> Result<Purged, Error> {
        let mut cursor = ScanCursor::default();
        self.long_command(move |queue, now| Ok(queue.purge_step(now, &mut cursor, STEP_KEYS))).await
    }

    /// Makes delayed keys ready before they are due. Returns the number of keys.
    ///
    /// # Errors
    /// A refusal of the engine, which changes nothing; [`Error::QueueDeleted`] or [`Error::Journal`].
    pub async fn promote(self: &Arc<Self>, mut keys: SelectedKeys) -> Result<u64, Error> {
        self.long_command(move |queue, now| queue.promote_step(now, &mut keys, STEP_KEYS)).await
    }

    /// Makes parked keys ready. Returns the number of keys.
    ///
    /// # Errors
    /// A refusal of the engine, which changes nothing; [`Error::QueueDeleted`] or [`Error::Journal`].
    pub async fn redrive(self: &Arc<Self>, mut keys: SelectedKeys) -> Result<u64, Error> {
        self.long_command(move |queue, now| queue.redrive_step(now, &mut keys, STEP_KEYS)).await
    }

    /// Drops parked keys and their deltas. Returns the number of keys.
    ///
    /// # Errors
    /// A refusal of the engine, which changes nothing; [`Error::QueueDeleted`] or [`Error::Journal`].
    pub async fn discard_parked(self: &Arc<Self>, mut keys: SelectedKeys) -> Result<u64, Error> {
        self.long_command(move |queue, now| queue.discard_step(now, &mut keys, STEP_KEYS)).await
    }

    /// Makes objects known without queuing deltas. Their keys were read with the settings `config`. Other calls can
    /// run in between. `kept` is dropped when the command ends. Returns the last event.
    ///
    /// # Errors
    /// A refusal of the engine, which changes nothing; [`Error::QueueDeleted`] or [`Error::Journal`].
    pub async fn seed(
        self: &Arc<Self>,
        config: Arc<Config>,
        seeds: Vec<Seed>,
        kept: impl Send + 'static,
    ) -> Result<Rv, Error> {
        self.seed_by(config, seeds, STEP_KEYS, kept).await
    }

    /// Like [`seed`](Self::seed), but in a single commit: either all objects are durable or none.
    ///
    /// # Errors
    /// Same as [`seed`](Self::seed).
    pub async fn seed_at_once(self: &Arc<Self>, config: Arc<Config>, seeds: Vec<Seed>) -> Result<Rv, Error> {
        self.seed_by(config, seeds, usize::MAX, ()).await
    }

    async fn seed_by(
        self: &Arc<Self>,
        config: Arc<Config>,
        seeds: Vec<Seed>,
        step_keys: usize,
        kept: impl Send + 'static,
    ) -> Result<Rv, Error> {
        let mut seeds = seeds.into_iter();
        let mut is_checked = false;
        let handle = self.clone();
        self.long_command(move |queue, now| {
            let _kept = &kept;
            if !is_checked {
                queue.advance(now);
                queue.check_config(&config)?;
                handle.set_room(queue);
                queue.check_seed(seeds.as_slice())?;
                queue.begin_seed(seeds.as_slice());
                is_checked = true;
            }
            let step = if step_keys == STEP_KEYS { in_a_step(seeds.as_slice()) } else { step_keys };
            queue.seed_step(now, seeds.by_ref().take(step));
            if seeds.len() > 0 {
                return Ok(Progress::More);
            }
            queue.end_seed();
            Ok(Progress::Done(queue.resource_version()))
        })
        .await
    }

    /// Checks that the queue can be seeded now.
    ///
    /// # Errors
    /// A refusal of the engine; [`Error::QueueDeleted`] or [`Error::Journal`].
    pub async fn check_seed(&self) -> Result<(), Error> {
        Ok(self.read(|queue, _| queue.check_seed(&[])).await??)
    }
}
