//! The threads that serve connections.

use std::io;
use std::num::NonZero;
use std::sync::{Arc, mpsc};
use std::thread;

use tokio::net::TcpStream;
use tokio::runtime::{Builder, Handle};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::service::gather_here;

/// Threads with a runtime each. A connection stays on its thread: in one runtime, whose threads hand connections to one
/// another, a request computes 1.4 times as long, for memory that the other processor had last and for waking each
/// other. All on a thread wait for what computes there, so requests that may take long are answered elsewhere
/// (`Api::answer`).
#[derive(Debug)]
pub struct Threads {
    first: Thread,
    others: Vec<Thread>,
}

/// A thread, as each connection that it serves holds it. It ends when nobody does any more.
#[derive(Clone, Debug)]
pub(super) struct Thread {
    pub(super) runtime: Handle,
    held: Arc<DropGuard>,
}

impl Threads {
    /// Starts one for each processor.
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
        // The runtime is made by its thread, so that it never has to be dropped by another.
        thread::Builder::new().name("connections".to_owned()).spawn(move || {
            match Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => {
                    let _gathering = gather_here();
                    let _told = begun.send(Ok(runtime.handle().clone()));
                    runtime.block_on(over.cancelled());
                    // What runs aside is not waited for.
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

    /// The stream, which from now on wakes this thread.
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
    use crate::service::is_gathering;

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
    async fn a_connection_is_served_by_its_thread_which_ends_with_it() {
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
            (byte[0], std::thread::current().name().map(str::to_owned), is_gathering())
        });
        // Goes when its runtime does.
        runtime.spawn(async move {
            std::future::pending::<()>().await;
            drop(ended);
        });
        near.write_all(&[7]).await.unwrap();
        assert_eq!(serving.await.unwrap(), (7, Some("connections".to_owned()), true));
        assert!(end.await.is_err());
    }
}
