//! A value for each of the threads that count.

use std::cell::Cell;
use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::available_parallelism;

thread_local! {
    static NUMBER: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Threads that write to the same place, or next to each other, hand its memory back and forth between their processors.
/// Here each has a place apart; who reads adds them up. There may be more threads than places, so these are atomic all the same.
#[derive(Debug)]
pub(super) struct Striped<T> {
    first: Apart<T>,
    others: Box<[Apart<T>]>,
}

/// What processors hand to each other is 64 bytes long, or twice that.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Apart<T>(T);

impl<T: Default> Default for Striped<T> {
    fn default() -> Self {
        // Each processor has a thread for connections, and one for all else.
        let places = 2 * available_parallelism().map_or(1, NonZero::get);
        Self { first: Apart::default(), others: (1..places).map(|_| Apart::default()).collect() }
    }
}

impl<T> Striped<T> {
    /// That of this thread.
    pub(super) fn here(&self) -> &T {
        static THREADS: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.get().unwrap_or_else(|| {
            let number = THREADS.fetch_add(1, Ordering::Relaxed);
            NUMBER.set(Some(number));
            number
        });
        &self.others.get(number % (self.others.len() + 1)).unwrap_or(&self.first).0
    }

    /// Those of all.
    pub(super) fn all(&self) -> impl Iterator<Item = &T> {
        std::iter::once(&self.first).chain(&self.others).map(|apart| &apart.0)
    }
}
