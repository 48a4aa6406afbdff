//! A limit on time for what is mostly there at once.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use tokio::time::{Sleep, sleep};

/// It took longer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Elapsed;

/// What comes of `future` within `limit`, from when it has to be waited for. No clock is read, and no timer set, for what need
/// not be, or is there as soon as its task has its next turn.
pub(super) async fn in_time<T>(limit: Duration, future: impl Future<Output = T>) -> Result<T, Elapsed> {
    let mut future = pin!(future);
    let mut timer = pin!(None::<Sleep>);
    let mut is_first = true;
    poll_fn(|context| {
        if let Poll::Ready(out) = future.as_mut().poll(context) {
            return Poll::Ready(Ok(out));
        }
        if std::mem::replace(&mut is_first, false) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        if timer.is_none() {
            timer.set(Some(sleep(limit)));
        }
        let timer = timer.as_mut().as_pin_mut();
        timer.map_or(Poll::Pending, |timer| timer.poll(context).map(|()| Err(Elapsed)))
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_waits_too_long_ends() {
        let limit = Duration::from_secs(10);
        assert!(in_time(limit, sleep(Duration::from_secs(9))).await.is_ok());
        assert!(in_time(limit, sleep(Duration::from_secs(11))).await.is_err());
        assert!(matches!(in_time(Duration::ZERO, async { 7 }).await, Ok(7)));
    }

    #[tokio::test]
    async fn each_wait_is_one() {
        let mut polls = 0;
        let twice = poll_fn(|context| {
            polls += 1;
            context.waker().wake_by_ref();
            if polls < 3 { Poll::Pending } else { Poll::Ready(()) }
        });
        let mut limited = pin!(in_time(Duration::from_mins(1), twice));
        for _ in 0..2 {
            let polled = poll_fn(|context| Poll::Ready(limited.as_mut().poll(context))).await;
            assert!(polled.is_pending(), "who yields gets no second poll at once");
        }
        assert!(limited.await.is_ok());
    }
}
