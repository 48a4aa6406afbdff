//! Pops: settling on arrival, handing out, waiting in line, and taking back what did not arrive.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::oneshot;

use super::Error;
use super::handle::{Handle, Inner};
use super::waiters::{Delivery, Ticket, Waiter};
use crate::engine::command::{Item, Pop, Settle, Settled};
use crate::engine::delta::Rv;
use crate::engine::time::Time;
use crate::journal::Commit;
use crate::lifecycle::Shutdown;

/// A pop with all that comes with it.
#[derive(Debug)]
pub struct PopCall {
    /// What is asked for.
    pub pop: Pop,
    /// Leases to settle first.
    pub settles: Vec<Settle>,
    /// How long to wait for a key.
    pub wait: Duration,
}

/// The answer to a pop: what was settled stands, whatever became of the pop.
#[derive(Debug)]
pub struct PopAnswer {
    /// What became of each settle.
    pub settled: Vec<Settled>,
    /// Keys, none when the wait ended, or the reason why there are none.
    pub items: Result<Delivered, Error>,
}

/// Keys that were handed out. Unless [`confirm`](Self::confirm)ed, dropping it gives them back as if
/// they had not been.
#[derive(Debug, Default)]
pub struct Delivered {
    /// The keys.
    pub items: Vec<Item>,
    commit: Commit,
    give_back: Option<Weak<Handle>>,
}

impl Delivered {
    /// The keys have reached the caller, as far as can be told.
    pub fn confirm(&mut self) {
        self.give_back = None;
    }
}

impl Drop for Delivered {
    fn drop(&mut self) {
        let Some(handle) = self.give_back.take().and_then(|handle| handle.upgrade()) else { return };
        let mut inner = handle.lock();
        // Leases of a commit that failed are no more; their numbers may be those of others by now. It is asked under the
        // lock: when the queue is loaded again, what is in `unreached` is looked through.
        if self.commit.outcome().is_none_or(|outcome| outcome.is_ok()) {
            inner.unreached.extend(self.items.iter().map(|item| item.token));
            drop(inner);
            // If the journal is down, they are taken back once it is up again.
            let _now_or_later = handle.with_inner(|_, _| ());
        }
    }
}

impl Handle {
    /// Settles, then hands out keys or waits for them. The settles are decided on arrival and stand
    /// whatever becomes of the pop.
    pub async fn pop(self: &Arc<Self>, call: PopCall) -> PopAnswer {
        let (wait, settles) = (call.wait, call.settles.len());
        let keys = settles + call.pop.max;
        let change = move |handle: &Arc<Self>, inner: &mut Inner, now| {
            let settled = inner.queue.settle(now, &call.settles);
            // What these have made ready is for those who wait already.
            handle.serve(inner, now);
            let arrival = handle.arrive(inner, now, &call);
            // It is dropped when the lock is free.
            (settled, arrival, call)
        };
        let arrived = self.together(keys, change, |(_, arrival, _), commit| {
            if let Arrival::Items(delivered) = arrival {
                delivered.commit = commit.clone();
            }
        });
        let ((settled, arrival, _), commit) = match arrived.await {
            Ok(arrived) => arrived,
            // Nothing was settled.
            Err(error) => return PopAnswer { settled: Vec::new(), items: Err(error) },
        };
        let (items, own) = match arrival {
            Arrival::Items(delivered) => (Ok(delivered), commit),
            Arrival::Failed(error) => (Err(error), commit),
            Arrival::Waits(waiting) => {
                let Delivery { items, commit: cause } = waiting.until(wait, self.shutdown()).await;
                let items = cause.wait().await.map_err(Error::from).and(items);
                // A pop that has only come into line has changed nothing that could be lost.
                (items, if settles == 0 { Commit::done() } else { commit })
            }
        };
        match own.wait().await {
            Ok(()) => PopAnswer { settled, items },
            // What became of the settles is unknown, too.
            Err(error) => PopAnswer { settled: Vec::new(), items: Err(error.into()) },
        }
    }

    fn arrive(self: &Arc<Self>, inner: &mut Inner, now: Time, call: &PopCall) -> Arrival {
        if self.shutdown().is_draining() {
            return Arrival::Failed(Error::Draining);
        }
        // Their commit is known when the lock is free.
        let items = |items, is_fresh| Arrival::Items(self.delivered(items, Commit::done(), is_fresh));
        let again = inner.queue.repeat_pop(now, &call.pop);
        if !again.is_empty() {
            inner.keep(again.iter().map(|item| item.token));
            return items(again, false);
        }
        if inner.waiters.len() == 0 || inner.queue.is_drained() {
            match inner.queue.pop(now, &call.pop) {
                Err(refusal) => return Arrival::Failed(refusal.into()),
                Ok(popped) if !popped.is_empty() || call.wait.is_zero() => return items(popped, true),
                Ok(_) => {}
            }
        } else if call.wait.is_zero() {
            return items(Vec::new(), true);
        }
        if inner.waiters.len() >= self.max_waiters && !inner.waiters.has(call.pop.id.as_ref()) {
            return Arrival::Failed(Error::TooManyWaiters { limit: self.max_waiters });
        }
        let (reply, answer) = oneshot::channel();
        let (ticket, before) = inner.waiters.join(Waiter { pop: call.pop.clone(), reply });
        if let Some(before) = before {
            let commit = inner.commit.clone();
            let _gone = before.reply.send(Delivery { items: Ok(Delivered::default()), commit });
        }
        Arrival::Waits(Waiting { handle: self.clone(), ticket, answer })
    }

    pub(super) fn delivered(self: &Arc<Self>, items: Vec<Item>, commit: Commit, is_fresh: bool) -> Delivered {
        let give_back = (is_fresh && !items.is_empty()).then(|| Arc::downgrade(self));
        Delivered { items, commit, give_back }
    }
}

impl Inner {
    /// Takes keys back that did not reach their caller, unless a repeated pop has answered with them.
    pub(super) fn take_back(&mut self, now: Time) {
        if !self.unreached.is_empty() {
            let mut tokens = std::mem::take(&mut self.unreached);
            tokens.retain(|token| !self.repeated.contains(token));
            self.queue.give_back(now, &tokens);
        }
    }

    fn keep(&mut self, tokens: impl Iterator<Item = Rv>) {
        let Self { queue, repeated, .. } = self;
        if repeated.len() > queue.schedule().leased_len() {
            repeated.retain(|token| queue.schedule().leased_at(*token).is_some());
        }
        repeated.extend(tokens);
    }
}

/// How a pop begins.
enum Arrival {
    /// With keys, or none if it does not wait.
    Items(Delivered),
    /// Not at all.
    Failed(Error),
    /// In the line.
    Waits(Waiting),
}

/// A place in the line of waiting pops; dropping it leaves the line.
struct Waiting {
    handle: Arc<Handle>,
    ticket: Ticket,
    answer: oneshot::Receiver<Delivery>,
}

impl Waiting {
    async fn until(mut self, wait: Duration, shutdown: &Shutdown) -> Delivery {
        tokio::select! {
            biased;
            // A line that ends without a word was ended by a panic.
            answer = &mut self.answer => {
                return answer.unwrap_or_else(|_| Delivery::at_once(Err(Error::Broken)));
            }
            () = tokio::time::sleep(wait) => {}
            () = shutdown.draining().cancelled() => {}
        }
        let commit = self.leave();
        // An answer may have come between the end of the wait and leaving the line.
        self.answer.try_recv().unwrap_or_else(|_| Delivery { items: Ok(Delivered::default()), commit })
    }

    /// The commit is that of the queue in which nothing has come.
    fn leave(&self) -> Commit {
        let mut inner = self.handle.lock();
        inner.waiters.leave(self.ticket);
        inner.commit.clone()
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.leave();
    }
}

pub(super) type Served = (oneshot::Sender<Delivery>, Result<Vec<Item>, Error>);

impl Inner {
    /// Gives ready keys to the pops that wait longest; ends their wait when the queue is drained.
    pub(super) fn serve(&mut self, now: Time) {
        while self.queue.has_ready() || self.queue.is_drained() {
            let Some(waiter) = self.waiters.next() else { break };
            if !waiter.reply.is_closed() {
                let answer = self.queue.hand_out(now, &waiter.pop).map_err(Error::from);
                self.served.push((waiter.reply, answer));
            }
        }
    }

    /// Answers all who wait with `error`.
    pub(super) fn send_home(&mut self, error: &Error) {
        let waiting = self.waiters.take_all().into_iter().map(|waiter| waiter.reply);
        for reply in waiting.chain(self.served.drain(..).map(|(reply, _)| reply)) {
            let _left = reply.send(Delivery::at_once(Err(error.clone())));
        }
    }
}
