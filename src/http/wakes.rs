//! Wakes of a connection that it need not follow.
//!
//! A handler runs while its connection is polled. When it takes a piece of a body, hyper wakes the connection so that
//! the next piece is read, even when that was the last: then the connection is polled once more for nothing.
//!
//! Nothing is lost by not following that wake: of a body whose length is known, hyper has the last piece before the handler
//! can take it, has given up its own end of the body with that, and has asked to be woken for what comes next.

use std::cell::RefCell;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

thread_local! {
    static HELD: RefCell<Held> = const { RefCell::new(Held::Not) };
}

/// Whether wakes are held back on this thread, and one that was.
enum Held {
    Not,
    Nothing,
    One(Arc<Holdable>),
}

/// A waker whose wakes can be held back by the thread that they come from.
struct Holdable(Waker);

impl Wake for Holdable {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let is_held = HELD.with_borrow_mut(|held| match held {
            Held::Not => false,
            Held::Nothing => {
                *held = Held::One(self.clone());
                true
            }
            Held::One(other) => Arc::ptr_eq(other, self),
        });
        if !is_held {
            self.0.wake_by_ref();
        }
    }
}

/// A future whose wakes can be held back.
pub(super) struct Sleeper<F> {
    future: Pin<Box<F>>,
    own: Option<(Arc<Holdable>, Waker)>,
}

impl<F: Future> Sleeper<F> {
    pub(super) fn new(future: F) -> Self {
        Self { future: Box::pin(future), own: None }
    }

    /// The future itself.
    pub(super) fn inner(&mut self) -> Pin<&mut F> {
        self.future.as_mut()
    }
}

impl<F: Future> Future for Sleeper<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let Self { future, own } = &mut *self;
        // A task keeps its waker, as a rule.
        let kept = own.take_if(|(holdable, _)| holdable.0.will_wake(context.waker()));
        let (_, waker) = own.insert(kept.unwrap_or_else(|| {
            let holdable = Arc::new(Holdable(context.waker().clone()));
            (holdable.clone(), holdable.into())
        }));
        future.as_mut().poll(&mut Context::from_waker(waker))
    }
}

/// Takes the next of something by `take`, which tells, too, whether that was the last: then nobody need be woken for
/// more. It must not call this again.
pub(super) fn taking<T>(take: impl FnOnce() -> (T, bool)) -> T {
    HELD.set(Held::Nothing);
    let _if_it_panics = Holding;
    let (taken, was_last) = take();
    match HELD.replace(Held::Not) {
        Held::One(holdable) if !was_last => holdable.0.wake_by_ref(),
        _ => {}
    }
    taken
}

/// Ends the holding if the taking panics.
struct Holding;

impl Drop for Holding {
    fn drop(&mut self) {
        HELD.set(Held::Not);
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How often a task is woken whose one poll is this.
    fn wakes(mut poll: impl FnMut(&Waker)) -> usize {
        let count = Arc::new(Count::default());
        let mut sleeper = Sleeper::new(poll_fn(|context| {
            poll(context.waker());
            Poll::<()>::Pending
        }));
        let waker = Waker::from(count.clone());
        assert!(Pin::new(&mut sleeper).poll(&mut Context::from_waker(&waker)).is_pending());
        count.0.load(Ordering::Relaxed)
    }

    #[test]
    fn only_what_is_woken_for_the_last_piece_sleeps_on() {
        let take = |waker: &Waker, times: usize, was_last: bool| {
            taking(|| ((0..times).for_each(|_| waker.wake_by_ref()), was_last));
        };
        assert_eq!(wakes(Waker::wake_by_ref), 1);
        assert_eq!(wakes(|waker| take(waker, 1, true)), 0);
        assert_eq!(wakes(|waker| take(waker, 2, false)), 1);
        assert_eq!(wakes(|waker| take(waker, 0, false)), 0);
        let and_then_another = |waker: &Waker| {
            take(waker, 1, true);
            waker.wake_by_ref();
        };
        assert_eq!(wakes(and_then_another), 1);
    }

    #[test]
    fn what_others_wake_meanwhile_wakes() {
        let from_elsewhere = |waker: &Waker| {
            let waker = waker.clone();
            taking(|| (std::thread::spawn(|| waker.wake()).join().unwrap(), true));
        };
        assert_eq!(wakes(from_elsewhere), 1);
        let of_another_task = |waker: &Waker| {
            taking(|| {
                waker.wake_by_ref();
                (assert_eq!(wakes(Waker::wake_by_ref), 1), true)
            });
        };
        assert_eq!(wakes(of_another_task), 0);
    }

    #[test]
    fn a_panic_holds_nothing_back_for_good() {
        let panics = || taking::<()>(|| panic!("on purpose"));
        assert!(std::panic::catch_unwind(panics).is_err());
        assert_eq!(wakes(Waker::wake_by_ref), 1);
    }
}
