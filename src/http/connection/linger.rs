//! The lingering close: the handling of request bytes that arrive after the request was refused.
//!
//! Many clients read the response only after they have sent the whole request. If a socket with unread bytes is
//! closed, the connection is reset. Such a client would see a broken pipe instead of the refusal, and would repeat
//! the request forever. So the server closes only its sending side, and reads and drops what still arrives, within
//! limits. nginx does the same (`lingering_time`, `lingering_timeout`).

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep};

/// Maximum time that a connection lingers.
const TIME_MAX: Duration = Duration::from_secs(30);
/// Maximum time that a lingering connection waits for more bytes.
const SILENCE_MAX: Duration = Duration::from_secs(5);
/// The same for a connection whose client sends no more than updates of its flow control. The shutdown waits for it.
const SHORT_SILENCE_MAX: Duration = Duration::from_secs(1);
/// Maximum number of lingering connections of a listener. Further connections are closed at once.
const CONNECTIONS_MAX: usize = 256;
/// Number of bytes that are read and dropped at once.
const PIECE_BYTES: usize = 16 << 10;

/// The limit on lingering connections, which all connections of a listener share.
#[derive(Clone, Debug)]
pub(super) struct LingerRoom(Arc<Semaphore>);

/// A connection that lingers.
#[derive(Debug)]
pub(super) struct Linger {
    end: Pin<Box<Sleep>>,
    silence: Pin<Box<Sleep>>,
    silence_max: Duration,
    _permit: OwnedSemaphorePermit,
}

impl LingerRoom {
    pub(super) fn new() -> Self {
        Self::of(CONNECTIONS_MAX)
    }

    pub(super) fn of(connections: usize) -> Self {
        Self(Arc::new(Semaphore::new(connections)))
    }

    /// Starts to linger; `None` if too many connections are lingering.
    pub(super) fn enter(&self, is_short: bool) -> Option<Linger> {
        let permit = self.0.clone().try_acquire_owned().ok()?;
        let silence_max = if is_short { SHORT_SILENCE_MAX } else { SILENCE_MAX };
        let (end, silence) = (Box::pin(sleep(TIME_MAX)), Box::pin(sleep(silence_max)));
        Some(Linger { end, silence, silence_max, _permit: permit })
    }
}

impl Linger {
    /// Reads and drops what arrives. Ready when the peer has closed its sending side or a limit is reached.
    pub(super) fn poll(
        &mut self,
        mut stream: Pin<&mut impl AsyncRead>,
        context: &mut Context<'_>,
    ) -> Poll<()> {
        let mut piece = [0; PIECE_BYTES];
        while self.end.as_mut().poll(context).is_pending() {
            let mut piece = ReadBuf::new(&mut piece);
            match stream.as_mut().poll_read(context, &mut piece) {
                Poll::Ready(Ok(())) if !piece.filled().is_empty() => {
                    self.silence.as_mut().reset(Instant::now() + self.silence_max);
                }
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return self.silence.as_mut().poll(context),
            }
        }
        Poll::Ready(())
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::{AsyncWriteExt as _, DuplexStream, duplex};

    use super::*;

    async fn finish(mut linger: Linger, mut stream: DuplexStream) {
        poll_fn(|context| linger.poll(Pin::new(&mut stream), context)).await;
    }

    #[tokio::test]
    async fn a_connection_lingers_until_its_peer_has_sent_everything() {
        let (mut near, far) = duplex(64);
        let linger = LingerRoom::of(1).enter(false).expect("room");
        let send = async {
            near.write_all(&vec![b'x'; 100_000]).await.expect("everything is read");
            drop(near);
        };
        tokio::join!(send, finish(linger, far));
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_peer_does_not_hold_a_connection() {
        let (near, far) = duplex(64);
        let begun = Instant::now();
        finish(LingerRoom::of(1).enter(false).expect("room"), far).await;
        assert_eq!(begun.elapsed().as_secs(), SILENCE_MAX.as_secs());
        drop(near);
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_sends_for_ever_does_not_hold_a_connection() {
        let (mut near, far) = duplex(64);
        let begun = Instant::now();
        let send = async {
            while near.write_all(b"x").await.is_ok() {
                sleep(Duration::from_secs(1)).await;
            }
        };
        tokio::join!(send, finish(LingerRoom::of(1).enter(false).expect("room"), far));
        assert!(begun.elapsed() >= TIME_MAX, "{:?}", begun.elapsed());
    }

    #[tokio::test]
    async fn few_connections_linger_at_a_time() {
        let room = LingerRoom::of(1);
        let first = room.enter(false);
        assert!(first.is_some());
        assert!(room.enter(false).is_none(), "the second is closed at once");
        drop(first);
        assert!(room.enter(false).is_some());
    }
}
