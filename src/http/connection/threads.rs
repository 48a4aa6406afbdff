//! The threads that serve connections.

use std::io;
use std::num::NonZero;
use std::sync::{Arc, mpsc};
use std::thread;

use tokio::net::TcpStream;
use tokio::runtime::{Builder, Handle};
use tokio_util::sync::{CancellationToken, DropGuard};

/// One thread with its own runtime for each processor. A connection stays on its thread. In a single work-stealing
/// runtime, a request takes 1.4 times as much processor time, because of cache misses and wake-ups between threads. A
/// long computation on a thread delays all of its connections, so requests that may take a long time run on the main
/// runtime (`Api::answer`).
#[derive(Debug)]
pub struct Threads {
    first: Thread,
    others: Vec<Thread>,
}

/// A handle to a thread. Each connection of the thread holds a handle, and the thread ends with the last one.
#[derive(Clone, Debug)]
pub(super) struct Thread {
    pub(super) runtime: Handle,
    held: Arc<DropGuard>,
}

impl Threads {
    /// Starts one thread for each processor.
    ///
    /// # Errors
    /// A thread can't be started.
    pub fn start() -> io::Result<Self> {
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        let others = (1..processors).map(|_| Thread::start());
        Ok(Self { first: Thread::start()?, others: others.collect::<Result<_, _>>()? })
    }

    /// The thread with the fewest connections.
    pub(super) fn least_busy(&self) -> &Thread {
        let least = self.others.iter().min_by_key(|thread| thread.load());
        least.filter(|thread| thread.load() < self.first.load()).unwrap_or(&self.first)
    }
}

impl Thread {
    fn start() -> io::Result<Self> {
        let over = CancellationToken::new();
        let held = Arc::new(over.clone().drop_guard());
        let (begun, beginning) = mpsc::sync_channel(1);
        // The thread builds its own runtime, because a runtime must not be dropped in an asynchronous context.
        thread::Builder::new().name("connections".to_owned()).spawn(move || {
            match Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => {
                    let _told = begun.send(Ok(runtime.handle().clone()));
                    runtime.block_on(over.cancelled());
                    // Blocking work may still be running and must not delay the shutdown.
                    runtime.shutdown_background();
                }
                Err(error) => {
                    let _told = begun.send(Err(error));
                }
            }
        })?;
        let runtime = beginning.recv().map_err(io::Error::other)??;
        Ok(Self { runtime, held })
    }

    fn load(&self) -> usize {
        Arc::strong_count(&self.held)
    }

    /// Moves a stream to the runtime of this thread.
    pub(super) fn take_over(&self, stream: TcpStream) -> io::Result<TcpStream> {
        let stream = stream.into_std()?;
        let _here = self.runtime.enter();
        TcpStream::from_std(stream)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::sync::oneshot;

    use super::*;

    fn two() -> Threads {
        Threads { first: Thread::start().unwrap(), others: vec![Thread::start().unwrap()] }
    }

    #[test]
    fn connections_are_spread() {
        let threads = two();
        let numbers = |held: &[Thread]| -> Vec<bool> {
            held.iter().map(|thread| thread.runtime.id() == threads.first.runtime.id()).collect()
        };
        let mut held = Vec::new();
        for _ in 0..4 {
            held.push(threads.least_busy().clone());
        }
        assert_eq!(numbers(&held), [true, false, true, false]);
        drop(held.remove(1));
        held.push(threads.least_busy().clone());
        assert_eq!(numbers(&held), [true, true, false, false]);
    }

    #[tokio::test]
    async fn a_thread_serves_its_connection_and_ends_with_it() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (far, _) = listener.accept().await.unwrap();
        let threads = two();
        let thread = threads.least_busy().clone();
        drop(threads);
        let mut far = thread.take_over(far).unwrap();
        let runtime = thread.runtime.clone();
        let (ended, end) = oneshot::channel::<()>();
        let serving = runtime.spawn(async move {
            let mut byte = [0];
            far.read_exact(&mut byte).await.unwrap();
            drop(thread);
            (byte[0], std::thread::current().name().map(str::to_owned))
        });
        // This task is dropped with the runtime.
        runtime.spawn(async move {
            std::future::pending::<()>().await;
            drop(ended);
        });
        near.write_all(&[7]).await.unwrap();
        assert_eq!(serving.await.unwrap(), (7, Some("connections".to_owned())));
        assert!(end.await.is_err());
    }
}
