//! A buffer of log lines, so that logging never blocks.
//!
//! A thread writes the buffer a few milliseconds after its first line. tracing-appender wakes its thread for each
//! line, which reduced the throughput by a tenth. If stderr is not read, the buffer fills up to a limit; after that,
//! lines are dropped and counted. When there is room again, a line reports their number.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use tracing_subscriber::fmt::MakeWriter;

/// Maximum number of bytes in the buffer.
const BYTES_MAX: usize = 16 << 20;
/// How long lines are collected before they are written.
const COLLECT: Duration = Duration::from_millis(5);
/// Maximum time that the process waits for a stalled reader when it ends.
const END_MAX: Duration = Duration::from_secs(1);

/// The number of lines dropped since the start. A process has one log.
pub(super) static DROPPED: AtomicU64 = AtomicU64::new(0);

/// The buffer. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Buffer(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    lines: Mutex<Lines>,
    /// Signals that lines were added or dropped, or that the log ends.
    changed: Condvar,
    /// Signals that the thread has written all lines and ended.
    done: Condvar,
}

#[derive(Debug, Default)]
struct Lines {
    waiting: Vec<u8>,
    dropped: u64,
    is_ending: bool,
    is_done: bool,
}

/// The thread that writes the buffer. Dropping it writes the remaining lines.
#[derive(Debug)]
pub(crate) struct Writer {
    buffer: Buffer,
    _thread: JoinHandle<()>,
}

impl Buffer {
    /// Starts the thread that writes to `out`. The thread calls `report` with the number of dropped lines.
    pub(crate) fn start(
        out: impl Write + Send + 'static,
        report: impl Fn(u64) + Send + 'static,
    ) -> io::Result<(Self, Writer)> {
        let buffer = Self::default();
        let own = buffer.clone();
        let thread =
            std::thread::Builder::new().name("log".to_owned()).spawn(move || own.write_to(out, report))?;
        Ok((buffer.clone(), Writer { buffer, _thread: thread }))
    }

    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.0.lines.lock()
    }

    fn write_to(&self, mut out: impl Write, report: impl Fn(u64)) {
        let mut batch = Vec::new();
        loop {
            let mut lines = self.lock();
            while lines.waiting.is_empty() && lines.dropped == 0 && !lines.is_ending {
                self.0.changed.wait(&mut lines);
            }
            if lines.waiting.is_empty() && lines.dropped == 0 {
                lines.is_done = true;
                self.0.done.notify_all();
                return;
            }
            if !lines.is_ending {
                drop(lines);
                std::thread::sleep(COLLECT);
                lines = self.lock();
            }
            std::mem::swap(&mut lines.waiting, &mut batch);
            let dropped = std::mem::take(&mut lines.dropped);
            drop(lines);
            // The report becomes a line in the buffer, after the lines that preceded the dropped ones.
            if dropped > 0 {
                report(dropped);
            }
            // A failure to write the log can't be logged.
            let _unwritten = out.write_all(&batch);
            batch.clear();
        }
    }
}

/// Takes one whole line per write.
impl Write for Buffer {
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
            self.0.changed.notify_one();
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Buffer {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let mut lines = self.buffer.lock();
        lines.is_ending = true;
        self.buffer.0.changed.notify_one();
        let waiting = |lines: &mut Lines| !lines.is_done;
        let _ended = self.buffer.0.done.wait_while_for(&mut lines, waiting, END_MAX);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    use tracing::{Dispatch, dispatcher};

    use super::super::report_dropped;
    use super::*;

    /// Accepts a write when the test permits one.
    struct Slow {
        permits: Receiver<()>,
        taken: SyncSender<Vec<u8>>,
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.permits.recv().map_err(io::Error::other)?;
            self.taken.send(bytes.to_vec()).map_err(io::Error::other)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_stalled_reader_drops_lines_and_blocks_nothing() {
        let (permit, permits) = sync_channel(10);
        let (taken, written) = sync_channel(10);
        let format = Arc::new(OnceLock::<Dispatch>::new());
        let formatted = format.clone();
        let report =
            move |lines| dispatcher::with_default(formatted.get().unwrap(), || report_dropped(lines));
        let (mut log, writer) = Buffer::start(Slow { permits, taken }, report).unwrap();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(log.clone()).finish();
        format.set(subscriber.into()).unwrap();
        log.write_all(b"first\n").unwrap();
        permit.send(()).unwrap();
        assert_eq!(written.recv().unwrap(), b"first\n");
        let line = vec![b'x'; 1 << 20];
        log.write_all(b"taken by the thread\n").unwrap();
        // The thread takes the line and blocks on it.
        while !log.lock().waiting.is_empty() {
            std::thread::yield_now();
        }
        for _ in 0..20 {
            log.write_all(&line).unwrap();
        }
        assert_eq!(log.lock().dropped, 4, "the buffer holds 16 MiB");
        assert_eq!(DROPPED.load(Ordering::Relaxed), 4);
        permit.send(()).unwrap();
        permit.send(()).unwrap();
        assert_eq!(written.recv().unwrap(), b"taken by the thread\n");
        assert_eq!(written.recv().unwrap().len(), 16 << 20);
        log.write_all(b"last\n").unwrap();
        for _ in 0..2 {
            permit.send(()).unwrap();
        }
        drop(writer);
        let end = written.try_iter().flatten().collect();
        let end = String::from_utf8(end).unwrap();
        let (report, last) = end.split_once('\n').unwrap();
        assert!(report.contains("ERROR deltaq::telemetry: lines of the log were dropped lines=4"), "{end}");
        assert!(report.starts_with("20") && report.contains('T'), "with a timestamp: {end}");
        assert_eq!(last, "last\n");
    }
}
