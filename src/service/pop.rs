//! Pops: settle on arrival, take keys, wait in line, give undelivered keys back.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::oneshot;

use super::Error;
use super::queue::{Handle, State};
use super::task::Undelivered;
use super::waiters::{Delivery, Ticket, Waiter};
use crate::engine::command::{Item, Pop, Settle, Settled};
use crate::engine::id::Token;
use crate::engine::time::Time;
use crate::journal::Commit;
use crate::lifecycle::Shutdown;

/// A pop with the settles that come with it.
#[derive(Debug)]
pub struct PopCall {
    /// The arguments of the pop.
    pub pop: Pop,
    /// Leases to settle first.
    pub settles: Vec<Settle>,
    /// How long to wait for a key.
    pub wait: Duration,
}

/// The answer to a pop. The settles stand whatever became of the pop.
#[derive(Debug)]
pub struct PopAnswer {
    /// The outcome of each settle.
    pub settled: Vec<Settled>,
    /// Keys, none when the wait ended, or the reason why there are none.
    pub items: Result<Delivered, Error>,
}

/// Keys that were leased to a pop. Unless [`confirm`](Self::confirm)ed, dropping them has the queue take the keys back as if
/// they had never been leased.
#[derive(Debug, Default)]
pub struct Delivered {
    /// The keys.
    pub items: Vec<Item>,
    commit: Commit,
    undo: Option<Weak<Handle>>,
}

impl Delivered {
    /// Keys that this pop has leased, by events of `commit`.
    pub(super) fn fresh(handle: &Arc<Handle>, items: Vec<Item>, commit: Commit) -> Self {
        let undo = (!items.is_empty()).then(|| Arc::downgrade(handle));
        Self { items, commit, undo }
    }

    /// Keys that an earlier pop has leased. They are not given back.
    fn repeated(items: Vec<Item>) -> Self {
        Self { items, commit: Commit::done(), undo: None }
    }

    /// The keys have reached the caller, as far as the server can tell.
    pub fn confirm(&mut self) {
        self.undo = None;
    }
}

impl Drop for Delivered {
    fn drop(&mut self) {
        if let Some(handle) = self.undo.take().and_then(|handle| handle.upgrade()) {
            let tokens = self.items.iter().map(|item| item.token).collect();
            handle.requests.reclaim(Undelivered { tokens, commit: std::mem::take(&mut self.commit) });
        }
    }
}

/// Keys for a waiting pop, or the reason why there are none.
#[derive(Debug)]
pub(super) struct Grant {
    pub(super) reply: oneshot::Sender<Delivery>,
    pub(super) items: Result<Vec<Item>, Error>,
}

/// What a pop finds when it arrives.
enum Arrival {
    /// Keys that it has leased; none if it does not wait.
    Fresh(Vec<Item>),
    /// Keys that an earlier pop with its id has leased.
    Repeated(Vec<Item>),
    Failed(Error),
    Waits(Ticket, oneshot::Receiver<Delivery>),
}

impl Handle {
    /// Settles, then leases keys or waits for them. The settles are decided on arrival and stand whatever becomes of the
    /// pop.
    pub async fn pop(self: &Arc<Self>, call: PopCall) -> PopAnswer {
        let arrived = self.change(|state, now| {
            let settled = state.queue.settle(now, &call.settles);
            // Pops that wait already come first for what the settles have made ready.
            self.grant(state, now);
            (settled, self.arrive(state, now, &call))
        });
        let ((settled, arrival), commit) = match arrived {
            Ok(arrived) => arrived,
            // Nothing was settled.
            Err(error) => return PopAnswer { settled: Vec::new(), items: Err(error) },
        };
        let (items, own) = match arrival {
            Arrival::Fresh(items) => (Ok(Delivered::fresh(self, items, commit.clone())), commit),
            Arrival::Repeated(items) => (Ok(Delivered::repeated(items)), commit),
            Arrival::Failed(error) => (Err(error), commit),
            Arrival::Waits(ticket, answer) => {
                let waiting = Waiting { handle: self, ticket: Some(ticket), answer };
                let Delivery { items, commit: cause } = waiting.until(call.wait, self.shutdown()).await;
                let items = cause.wait().await.map_err(Error::from).and(items);
                // A pop that has settled nothing and waited has changed nothing that could be lost.
                (items, if call.settles.is_empty() { Commit::done() } else { commit })
            }
        };
        match own.wait().await {
            Ok(()) => PopAnswer { settled, items },
            // The outcome of the settles is unknown, too.
            Err(error) => PopAnswer { settled: Vec::new(), items: Err(error.into()) },
        }
    }

    fn arrive(&self, state: &mut State, now: Time, call: &PopCall) -> Arrival {
        if self.shutdown().is_draining() {
            return Arrival::Failed(Error::Draining);
        }
        let again = state.queue.repeat_pop(now, &call.pop);
        if !again.is_empty() {
            state.keep(again.iter().map(|item| item.token));
            return Arrival::Repeated(again);
        }
        if state.waiters.len() == 0 || state.queue.is_drained() {
            match state.queue.pop(now, &call.pop) {
                Err(refusal) => return Arrival::Failed(refusal.into()),
                Ok(popped) if !popped.is_empty() || call.wait.is_zero() => return Arrival::Fresh(popped),
                Ok(_) => {}
            }
        } else if call.wait.is_zero() {
            return Arrival::Fresh(Vec::new());
        }
        let limit = self.context.max_waiters;
        if state.waiters.len() >= limit && !state.waiters.has(call.pop.id.as_ref()) {
            return Arrival::Failed(Error::TooManyWaiters { limit });
        }
        let (reply, answer) = oneshot::channel();
        let (ticket, replaced) = state.waiters.join(Waiter { pop: call.pop.clone(), reply });
        if let Some(replaced) = replaced {
            let commit = state.commits.newest.clone();
            let _disconnected = replaced.reply.send(Delivery { items: Ok(Delivered::default()), commit });
        }
        Arrival::Waits(ticket, answer)
    }
}

impl State {
    /// Leases ready keys to the pops that have waited longest, and ends their wait when the queue is drained.
    pub(super) fn grant(&mut self, now: Time) {
        while self.queue.has_ready() || self.queue.is_drained() {
            let Some(waiter) = self.waiters.next() else { break };
            if !waiter.reply.is_closed() {
                let items = self.queue.hand_out(now, &waiter.pop).map_err(Error::from);
                self.grants.push(Grant { reply: waiter.reply, items });
            }
        }
    }

    /// Notes leases that a repeated pop is answered with.
    fn keep(&mut self, tokens: impl Iterator<Item = Token>) {
        let Self { queue, repeated, .. } = self;
        if repeated.len() > queue.schedule().leased_len() {
            repeated.retain(|token| queue.schedule().leased_at(*token).is_some());
        }
        repeated.extend(tokens);
    }
}

/// A pop in line. Dropping it has the queue's task take it off the line.
struct Waiting<'h> {
    handle: &'h Handle,
    /// None once the pop has been answered or has left the line.
    ticket: Option<Ticket>,
    answer: oneshot::Receiver<Delivery>,
}

impl Waiting<'_> {
    async fn until(mut self, wait: Duration, shutdown: &Shutdown) -> Delivery {
        tokio::select! {
            biased;
            answer = &mut self.answer => {
                self.ticket = None;
                // A line without an answer ends by a panic only.
                return answer.unwrap_or_else(|_| Delivery::at_once(Err(Error::Broken)));
            }
            () = tokio::time::sleep(wait) => {}
            () = shutdown.draining().cancelled() => {}
        }
        // The answer "no keys" depends on the queue's existence, which has a commit, too.
        let commit = {
            let mut state = self.handle.lock();
            self.ticket.take().into_iter().for_each(|ticket| state.waiters.leave(ticket));
            state.commits.newest.clone()
        };
        // An answer may have come between the end of the wait and leaving the line.
        self.answer.try_recv().unwrap_or_else(|_| Delivery { items: Ok(Delivered::default()), commit })
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.handle.requests.leave(ticket);
        }
    }
}
