//! A value per thread.

use std::cell::Cell;
use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::available_parallelism;

thread_local! {
    static NUMBER: Cell<Option<usize>> = const { Cell::new(None) };
}

/// A value for each thread, on its own cache line. If several threads write to one cache line, it moves between their
/// processors with each write. A reader adds up all values. There may be more threads than values, so the values must
/// be atomic.
#[derive(Debug)]
pub(super) struct Striped<T> {
    first: Apart<T>,
    others: Box<[Apart<T>]>,
}

/// A value that shares no cache line with other values. Processors exchange 64 or 128 bytes at a time.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Apart<T>(T);

impl<T: Default> Default for Striped<T> {
    fn default() -> Self {
        // Each processor has a thread for connections and a thread for everything else.
        let places = 2 * available_parallelism().map_or(1, NonZero::get);
        Self { first: Apart::default(), others: (1..places).map(|_| Apart::default()).collect() }
    }
}

impl<T> Striped<T> {
    /// The value of this thread.
    pub(super) fn here(&self) -> &T {
        static THREADS: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.get().unwrap_or_else(|| {
            let number = THREADS.fetch_add(1, Ordering::Relaxed);
            NUMBER.set(Some(number));
            number
        });
        &self.others.get(number % (self.others.len() + 1)).unwrap_or(&self.first).0
    }

    /// The values of all threads.
    pub(super) fn all(&self) -> impl Iterator<Item = &T> {
        std::iter::once(&self.first).chain(&self.others).map(|apart| &apart.0)
    }
}
