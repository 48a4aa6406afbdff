//! Lines that gather while those before are written, so that whoever logs waits for nobody.
//!
//! A thread writes what has gathered, some milliseconds after the first line came: waking it for each line
//! would cost more than the line. If whoever reads stands still until too many bytes wait, lines are dropped
//! and counted, and when there is room again the log is told how many, in a line like all others.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;

/// Most bytes that wait.
const BYTES_MAX: usize = 16 << 20;
/// How long lines gather.
const GATHER: Duration = Duration::from_millis(5);
/// Longest time that the end waits for a reader that stands still.
const END_MAX: Duration = Duration::from_secs(1);

/// Lines that were dropped since the start: a process has one log.
pub(super) static DROPPED: AtomicU64 = AtomicU64::new(0);

/// Where lines gather. Clones are the same place.
#[derive(Clone, Debug, Default)]
pub(super) struct Gathering(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    lines: Mutex<Lines>,
    /// Lines have come, or were dropped, or the end has come.
    come: Condvar,
    /// The thread has written all there was and is no more.
    done: Condvar,
}

#[derive(Debug, Default)]
struct Lines {
    waiting: Vec<u8>,
    dropped: u64,
    is_ending: bool,
    is_done: bool,
}

/// The thread that writes. Dropping it writes what is left.
#[derive(Debug)]
pub(super) struct Writer {
    gathering: Gathering,
    _thread: JoinHandle<()>,
}

impl Gathering {
    /// Starts the thread that writes to `out`. It has `tell` tell the log how many lines were dropped.
    pub(super) fn start(
        out: impl Write + Send + 'static,
        tell: impl Fn(u64) + Send + 'static,
    ) -> io::Result<(Self, Writer)> {
        let gathering = Self::default();
        let own = gathering.clone();
        let thread =
            std::thread::Builder::new().name("log".to_owned()).spawn(move || own.write_to(out, tell))?;
        Ok((gathering.clone(), Writer { gathering, _thread: thread }))
    }

    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.0.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_to(&self, mut out: impl Write, tell: impl Fn(u64)) {
        let mut batch = Vec::new();
        loop {
            let mut lines = self.lock();
            while lines.waiting.is_empty() && lines.dropped == 0 && !lines.is_ending {
                lines = self.0.come.wait(lines).unwrap_or_else(PoisonError::into_inner);
            }
            if lines.waiting.is_empty() && lines.dropped == 0 {
                lines.is_done = true;
                self.0.done.notify_all();
                return;
            }
            if !lines.is_ending {
                drop(lines);
                std::thread::sleep(GATHER);
                lines = self.lock();
            }
            std::mem::swap(&mut lines.waiting, &mut batch);
            let dropped = std::mem::take(&mut lines.dropped);
            drop(lines);
            // It comes back as a line that waits: behind those that came before the ones that were dropped.
            if dropped > 0 {
                tell(dropped);
            }
            // Nobody could be told of a log that can't be written.
            let _unwritten = out.write_all(&batch);
            batch.clear();
        }
    }
}

/// A line at a time, whole.
impl Write for Gathering {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut lines = self.lock();
        let was_empty = lines.waiting.is_empty() && lines.dropped == 0;
        if lines.waiting.len() + line.len() > BYTES_MAX {
            lines.dropped += 1;
            DROPPED.fetch_add(1, Ordering::Relaxed);
        } else {
            lines.waiting.extend_from_slice(line);
        }
        drop(lines);
        if was_empty {
            self.0.come.notify_one();
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Gathering {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let mut lines = self.gathering.lock();
        lines.is_ending = true;
        self.gathering.0.come.notify_one();
        let waiting = |lines: &mut Lines| !lines.is_done;
        let _ended = self.gathering.0.done.wait_timeout_while(lines, END_MAX, waiting);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    use tracing::{Dispatch, dispatcher};

    use super::super::tell_dropped;
    use super::*;

    /// Takes a piece only when it is let.
    struct Slow {
        leave: Receiver<()>,
        taken: SyncSender<Vec<u8>>,
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.leave.recv().map_err(io::Error::other)?;
            self.taken.send(bytes.to_vec()).map_err(io::Error::other)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_stands_still_costs_lines_and_not_time() {
        let (let_go, leave) = sync_channel(10);
        let (taken, written) = sync_channel(10);
        let format = Arc::new(OnceLock::<Dispatch>::new());
        let formatted = format.clone();
        let tell = move |lines| dispatcher::with_default(formatted.get().unwrap(), || tell_dropped(lines));
        let (mut log, writer) = Gathering::start(Slow { leave, taken }, tell).unwrap();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(log.clone()).finish();
        format.set(subscriber.into()).unwrap();
        log.write_all(b"first\n").unwrap();
        let_go.send(()).unwrap();
        assert_eq!(written.recv().unwrap(), b"first\n");
        let line = vec![b'x'; 1 << 20];
        log.write_all(b"taken by the thread\n").unwrap();
        // The thread takes what there is, and is stuck with it.
        while !log.lock().waiting.is_empty() {
            std::thread::yield_now();
        }
        for _ in 0..20 {
            log.write_all(&line).unwrap();
        }
        assert_eq!(log.lock().dropped, 4, "16 MiB wait, and no more");
        assert_eq!(DROPPED.load(Ordering::Relaxed), 4);
        let_go.send(()).unwrap();
        let_go.send(()).unwrap();
        assert_eq!(written.recv().unwrap(), b"taken by the thread\n");
        assert_eq!(written.recv().unwrap().len(), 16 << 20);
        log.write_all(b"last\n").unwrap();
        for _ in 0..2 {
            let_go.send(()).unwrap();
        }
        drop(writer);
        let end = written.try_iter().flatten().collect();
        let end = String::from_utf8(end).unwrap();
        let (told, last) = end.split_once('\n').unwrap();
        assert!(told.contains("ERROR deltaq::telemetry: lines of the log were dropped lines=4"), "{end}");
        assert!(told.starts_with("20") && told.contains('T'), "with the time, as every line: {end}");
        assert_eq!(last, "last\n");
    }
}
