//! Changes of a queue that come at the same time, made under one lock.
//!
//! Threads that take a queue's lock for each request pass the queue's memory from processor to processor with each, and wait
//! for one another. So a thread that serves connections first lets everybody come who has something at hand, and then makes
//! the changes of a queue one after the other: who has the next turn makes them all.
//! With 64 connections on two threads that is a tenth more adds a second, and a fifth of the waits for the lock.
//!
//! A turn more costs a request that is alone on its thread about two microseconds. So after one with which nobody came, the
//! next few are made at once.

use std::any::Any;
use std::cell::RefCell;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::task::Poll;
use std::thread;

use tokio::sync::oneshot;

use super::Error;
use super::handle::{Handle, Inner};
use crate::engine::command::{Call, Produced, Settle, Settled};
use crate::engine::config::Config;
use crate::engine::time::Time;
use crate::journal::Commit;

/// How many changes are made at once after one with which nobody came.
const AT_ONCE: u8 = 8;
/// How many keys at most are changed together, but for a change that has more by itself: nobody else has the lock meanwhile,
/// and the journal takes it in one piece.
const MOST_KEYS: usize = 64;

thread_local! {
    /// None on a thread that gathers nothing.
    static HERE: RefCell<Option<Here>> = const { RefCell::new(None) };
}

/// What a thread has gathered.
#[derive(Default)]
struct Here {
    queues: Vec<Gathered>,
    /// How many of the next changes are made at once.
    at_once: u8,
}

/// What is to be changed in a queue.
struct Gathered {
    handle: Arc<Handle>,
    keys: usize,
    changes: Vec<Box<dyn Change>>,
}

/// A change that somebody waits for.
trait Change {
    /// Makes it, under the queue's lock.
    fn make(&mut self, handle: &Arc<Handle>, inner: &mut Inner, now: Time);
    /// Tells who waits what came of it, when the lock is free.
    fn answer(self: Box<Self>, made: Result<Commit, Error>);
    /// Passes its panic on to who waits.
    fn panicked(self: Box<Self>, panic: Panic);
}

type Panic = Box<dyn Any + Send>;

struct Waited<F, T> {
    change: Option<F>,
    out: Option<T>,
    tell: fn(&mut T, &Commit),
    reply: oneshot::Sender<thread::Result<Result<(T, Commit), Error>>>,
}

impl<T, F: FnOnce(&Arc<Handle>, &mut Inner, Time) -> T> Change for Waited<F, T> {
    fn make(&mut self, handle: &Arc<Handle>, inner: &mut Inner, now: Time) {
        self.out = self.change.take().map(|change| change(handle, inner, now));
    }

    fn answer(self: Box<Self>, made: Result<Commit, Error>) {
        let Self { out, tell, reply, .. } = *self;
        let made = made.and_then(|commit| {
            let mut out = out.ok_or(Error::Broken)?;
            tell(&mut out, &commit);
            Ok((out, commit))
        });
        // Of a caller that has gone it is dropped here, which gives back what was handed out.
        drop(reply.send(Ok(made)));
    }

    fn panicked(self: Box<Self>, panic: Panic) {
        drop(self.reply.send(Err(panic)));
    }
}

/// For as long as it is kept, its thread gathers changes. The tasks that make some must not leave the thread.
#[derive(Debug)]
#[must_use]
pub struct Gathering(PhantomData<*const ()>);

/// Has this thread gather changes.
pub fn gather_here() -> Gathering {
    HERE.set(Some(Here::default()));
    Gathering(PhantomData)
}

/// Whether this thread does.
#[cfg(test)]
pub fn is_gathering() -> bool {
    HERE.with_borrow(Option::is_some)
}

impl Drop for Gathering {
    fn drop(&mut self) {
        drop(HERE.take());
    }
}

/// Makes what was gathered for a queue if whoever brought some of it leaves before its turn: no change comes later than others that
/// were sent after it was given up.
struct IfItLeaves<'h>(Option<&'h Arc<Handle>>);

impl Drop for IfItLeaves<'_> {
    fn drop(&mut self) {
        if let Some(handle) = self.0 {
            handle.make_gathered();
        }
    }
}

impl Here {
    /// Whether what comes for this queue is made with others: with some that have come, or with those that will.
    fn gathers(&mut self, handle: &Arc<Handle>) -> bool {
        if self.queues.iter().any(|queue| Arc::ptr_eq(&queue.handle, handle)) {
            return true;
        }
        let gathers = self.at_once == 0;
        self.at_once = self.at_once.saturating_sub(1);
        gathers
    }

    /// Adds a change of so many keys; whether those that come next need not be waited for.
    fn add(&mut self, handle: &Arc<Handle>, keys: usize, change: Box<dyn Change>) -> bool {
        let Some(queue) = self.queues.iter_mut().find(|queue| Arc::ptr_eq(&queue.handle, handle)) else {
            self.queues.push(Gathered { handle: handle.clone(), keys, changes: vec![change] });
            return keys >= MOST_KEYS;
        };
        queue.changes.push(change);
        queue.keys += keys;
        queue.keys >= MOST_KEYS
    }

    fn take(&mut self, handle: &Arc<Handle>) -> Option<Vec<Box<dyn Change>>> {
        let place = self.queues.iter().position(|queue| Arc::ptr_eq(&queue.handle, handle))?;
        Some(self.queues.swap_remove(place).changes)
    }
}

impl Handle {
    /// Applies calls whose keys were read by `config`.
    ///
    /// # Errors
    /// [`Refusal::ConfigChanged`](crate::engine::refusal::Refusal::ConfigChanged) if the queue has other settings for keys by now.
    pub async fn produce(self: &Arc<Self>, config: Arc<Config>, calls: Vec<Call>) -> Result<Produced, Error> {
        let keys = calls.len();
        let change = move |_: &Arc<Self>, inner: &mut Inner, now| {
            let produced = inner.queue.check_config(&config).and_then(|()| inner.queue.produce(now, &calls));
            // They are dropped when the lock is free.
            (produced, calls)
        };
        let ((produced, _), commit) = self.together(keys, change, |_, _| {}).await?;
        commit.wait().await?;
        Ok(produced?)
    }

    /// Ends leases, each for itself.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub async fn settle(self: &Arc<Self>, settles: Vec<Settle>) -> Result<Vec<Settled>, Error> {
        let keys = settles.len();
        let change =
            move |_: &Arc<Self>, inner: &mut Inner, now| (inner.queue.settle(now, &settles), settles);
        let ((settled, _), commit) = self.together(keys, change, |_, _| {}).await?;
        commit.wait().await?;
        Ok(settled)
    }

    /// Makes a change of so many keys: together with others that come now, if this thread gathers them. What comes of it is told
    /// its commit by `tell`, also if nobody is there any more to take it.
    pub(super) async fn together<T: Send + 'static>(
        self: &Arc<Self>,
        keys: usize,
        change: impl FnOnce(&Arc<Self>, &mut Inner, Time) -> T + Send + 'static,
        tell: fn(&mut T, &Commit),
    ) -> Result<(T, Commit), Error> {
        if !HERE.with_borrow_mut(|here| here.as_mut().is_some_and(|here| here.gathers(self))) {
            let (mut out, commit) = self.with_inner(|inner, now| change(self, inner, now))?;
            tell(&mut out, &commit);
            return Ok((out, commit));
        }
        let (reply, answer) = oneshot::channel();
        let change = Box::new(Waited { change: Some(change), out: None, tell, reply });
        if HERE.with_borrow_mut(|here| here.as_mut().is_some_and(|here| here.add(self, keys, change))) {
            self.make_gathered();
        } else {
            let mut if_it_leaves = IfItLeaves(Some(self));
            next_turn().await;
            if_it_leaves.0 = None;
            if answer.is_empty() {
                let came = self.make_gathered();
                HERE.with_borrow_mut(|here| {
                    if let Some(here) = here.as_mut().filter(|_| came == 1) {
                        here.at_once = AT_ONCE;
                    }
                });
            }
        }
        match answer.await {
            Ok(Ok(made)) => made,
            Ok(Err(panic)) => resume_unwind(panic),
            Err(_) => Err(Error::Broken),
        }
    }

    /// Makes what has come; tells how many changes that was.
    fn make_gathered(self: &Arc<Self>) -> usize {
        let changes = HERE.with_borrow_mut(|here| here.as_mut()?.take(self));
        let Some(mut changes) = changes else { return 0 };
        let (came, mut made) = (changes.len(), 0);
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            self.with_inner(|inner, now| {
                for change in &mut changes {
                    change.make(self, inner, now);
                    self.serve(inner, now);
                    made += 1;
                }
            })
        }));
        match outcome {
            Ok(outcome) => {
                let outcome = outcome.map(|((), commit)| commit);
                for change in changes {
                    change.answer(outcome.clone());
                }
            }
            // The queue is closed by it, and of the others nobody knows what became of them.
            Err(panic) => changes.swap_remove(made.min(came - 1)).panicked(panic),
        }
        came
    }
}

/// Ends when all tasks have had a turn that are ready now. tokio's `yield_now` would look for I/O first.
async fn next_turn() {
    let mut has_come = false;
    poll_fn(|context| {
        if std::mem::replace(&mut has_come, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[cfg(test)]
mod tests;
