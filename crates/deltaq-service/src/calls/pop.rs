//! Pops: settle on arrival, then lease keys or wait for them.

use std::sync::Arc;
use std::time::Duration;

use deltaq_engine::Switches;
use deltaq_engine::command::{Item, Pop, Settle, Settled};
use deltaq_engine::time::Time;
use deltaq_journal::Commit;
use deltaq_runtime::lifecycle::Shutdown;
use tokio::sync::oneshot;

use crate::Error;
use crate::author::author;
use crate::queue::delivery::{Delivered, Delivery, Reply};
use crate::queue::waiters::{Ticket, Waiter};
use crate::queue::{Handle, Locked, Loss};

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

/// The answer to a pop. The settles keep their effect regardless of the result of the pop.
#[derive(Debug)]
pub struct PopAnswer {
    /// The outcome of each settle.
    pub settled: Vec<Settled>,
    /// The keys, or why there are none. Empty if the wait ended.
    pub items: Result<Delivered, Error>,
    /// Whether the queue is closed, paused or held.
    pub switches: Switches,
}

/// The state of a pop after its arrival.
enum Arrival {
    /// This pop, or an earlier one with the same id, has leased these keys. If there are none, the pop does not wait.
    Leased(Vec<Item>),
    /// The pop is refused.
    Failed(Error),
    /// The pop waits for keys.
    Waits(Ticket, oneshot::Receiver<Delivery>),
}

/// The answer to a pop that has neither settled nor leased anything.
fn failed(error: Error) -> PopAnswer {
    PopAnswer { settled: Vec::new(), items: Err(error), switches: Switches::default() }
}

impl Handle {
    /// Settles leases, then leases keys or waits for them. The settles are decided on arrival and remain valid
    /// regardless of the result of the pop.
    pub async fn pop(self: &Arc<Self>, call: PopCall) -> PopAnswer {
        self.pop_until(call, std::future::pending()).await
    }

    /// Like [`pop`](Self::pop), but the wait also ends with `ended`.
    pub async fn pop_until(
        self: &Arc<Self>,
        call: PopCall,
        ended: impl Future<Output = ()> + Send,
    ) -> PopAnswer {
        if !self.settles_in_steps(&call.settles) {
            return self.settle_and_pop(call, ended).await;
        }
        match self.settle(&call.settles).await {
            Ok(settled) => {
                let call = PopCall { settles: Vec::new(), ..call };
                PopAnswer { settled, ..self.settle_and_pop(call, ended).await }
            }
            Err(error) => failed(error),
        }
    }

    /// Settles leases and leases keys in one critical section.
    async fn settle_and_pop(
        self: &Arc<Self>,
        call: PopCall,
        ended: impl Future<Output = ()> + Send,
    ) -> PopAnswer {
        let arrived = self.change(|state, now| {
            let settled = state.queue.settle(now, &call.settles);
            // Pops that were already waiting get the keys that the settles made ready first.
            self.grant(state, now);
            state.queue.set_caller(author().token);
            (settled, self.arrive(state, now, &call), state.queue.switches(now))
        });
        let ((settled, arrival, mut switches), commit) = match arrived {
            Ok(arrived) => arrived,
            // Nothing was settled.
            Err(error) => return failed(error),
        };
        let (items, own) = match arrival {
            Arrival::Leased(items) => (Ok(Delivered::new(&self.leftovers, items)), commit),
            Arrival::Failed(error) => (Err(error), commit),
            Arrival::Waits(ticket, answer) => {
                let waiting = Waiting { handle: self, ticket: Some(ticket), answer };
                let Delivery { items, commit: cause } =
                    waiting.until(call.wait, self.shutdown(), ended).await;
                let items = cause.wait().await.map_err(Error::from).and(items);
                switches = self.switches().await;
                // A pop that waited and settled nothing has not emitted any events.
                (items, if call.settles.is_empty() { Commit::done() } else { commit })
            }
        };
        match own.wait().await {
            Ok(()) => PopAnswer { settled, items, switches },
            // In this case, the outcome of the settles is also unknown.
            Err(error) => failed(error.into()),
        }
    }

    /// The current switches, once they are durable.
    async fn switches(&self) -> Switches {
        let (switches, commit) = {
            let state = self.lock();
            (state.queue.switches(self.now()), state.commits.newest.clone())
        };
        // Usually nothing stops delivery, and then there is no need to wait.
        if switches == Switches::default() || commit.wait().await.is_err() {
            return Switches::default();
        }
        switches
    }

    fn arrive(&self, state: &mut Locked, now: Time, call: &PopCall) -> Arrival {
        if self.shutdown().is_draining() {
            return Arrival::Failed(Error::Draining);
        }
        let again = state.queue.repeat_pop(now, &call.pop);
        if !again.is_empty() {
            return Arrival::Leased(again);
        }
        // What is ready while pops wait belongs to groups of which none of them takes a key.
        if state.waiters.len() == 0 || state.queue.ends_pops() || state.queue.has_ready(now) {
            match state.queue.pop(now, &call.pop) {
                Err(refusal) => return Arrival::Failed(refusal.into()),
                Ok(popped) if !popped.is_empty() => {
                    let given_up = state.waiters.give_up(call.pop.id.as_ref());
                    state.end_replaced(given_up);
                    return Arrival::Leased(popped);
                }
                Ok(_) => {}
            }
        }
        if call.wait.is_zero() {
            let given_up = state.waiters.give_up(call.pop.id.as_ref());
            state.end_replaced(given_up);
            return Arrival::Leased(Vec::new());
        }
        let limit = self.context.max_waiters;
        if state.waiters.len() >= limit && !state.waiters.has(call.pop.id.as_ref()) {
            return Arrival::Failed(Error::TooManyWaiters { limit });
        }
        let (reply, answer) = oneshot::channel();
        let waiter = Waiter { pop: call.pop.clone(), reply, since: now, caller: author().token };
        let (ticket, replaced) = state.waiters.join(waiter);
        state.end_replaced(replaced);
        Arrival::Waits(ticket, answer)
    }
}

impl Locked {
    /// Answers a waiting pop whose client has repeated it. The pop gets no keys.
    fn end_replaced(&self, replaced: Option<Waiter<Reply>>) {
        if let Some(replaced) = replaced {
            let commit = self.commits.newest.clone();
            let _disconnected = replaced.reply.send(Delivery { items: Ok(Delivered::default()), commit });
        }
    }
}

/// A waiting pop. Dropping it requests that the queue removes the pop.
struct Waiting<'h> {
    handle: &'h Handle,
    /// `None` once the pop has been answered or removed.
    ticket: Option<Ticket>,
    answer: oneshot::Receiver<Delivery>,
}

impl Waiting<'_> {
    async fn until(
        mut self,
        wait: Duration,
        shutdown: &Shutdown,
        ended: impl Future<Output = ()>,
    ) -> Delivery {
        tokio::select! {
            biased;
            answer = &mut self.answer => {
                self.ticket = None;
                // The sender is dropped without an answer only after a panic.
                return answer.unwrap_or_else(|_| Delivery::at_once(Err(self.handle.error_of(Loss::Panic))));
            }
            () = tokio::time::sleep(wait) => {}
            () = shutdown.draining().cancelled() => {}
            () = ended => {}
        }
        // The answer "no keys" depends on the queue's creation, which has a commit.
        let commit = {
            let mut state = self.handle.lock();
            self.ticket.take().into_iter().for_each(|ticket| state.waiters.leave(ticket));
            state.commits.newest.clone()
        };
        // An answer may have arrived between the end of the wait and the removal.
        self.answer.try_recv().unwrap_or_else(|_| Delivery { items: Ok(Delivered::default()), commit })
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.handle.leftovers.leave(ticket);
        }
    }
}
