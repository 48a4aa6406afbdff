//! The memory that the queues hold, and the share of each token.
//!
//! A queue counts for the token that has created it. With several tokens, one token may hold three quarters of what the
//! others leave, so there is always room for another token. What a token holds beyond its share does not count against
//! the others. This happens if the settings change, or through changes that are never refused: a Resync and a Delete
//! repeat an object until it is acknowledged.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use deltaq_engine::room::Room;
use parking_lot::Mutex;

use crate::compiled_schemas::CompiledSchemas;
use crate::series::SeriesRoom;

/// One token may hold this many quarters of what the others leave.
const QUARTERS: usize = 3;

/// The compiled schemas may take this part of what the queues may hold.
const SCHEMAS_PART: usize = 4;

/// The series of all queues may take this many bytes.
const SERIES_BYTES_MAX: usize = 64 << 20;

/// The memory of all queues of a server.
#[derive(Debug)]
pub struct Memory {
    /// Maximum number of bytes that the queues may hold.
    max: usize,
    /// The sum of [`Owner::counted`].
    counted: AtomicUsize,
    owners: Mutex<HashMap<Option<Arc<str>>, Weak<Owner>>>,
    /// The compiled schemas of the queues, which take memory of their own.
    pub(crate) schemas: Arc<CompiledSchemas>,
    /// The memory of the series, which is in addition to what the queues hold.
    pub(crate) series: Arc<SeriesRoom>,
}

/// The queues that one token has created, or that were created without a token.
#[derive(Debug)]
struct Owner {
    token: Option<Arc<str>>,
    /// The bytes that the queues hold.
    held: AtomicUsize,
    /// The part of `held` that counts against the others.
    counted: AtomicUsize,
}

/// The bytes that one queue holds. Dropping it returns them.
#[derive(Debug)]
pub(crate) struct HeldBytes {
    memory: Arc<Memory>,
    owner: Arc<Owner>,
    bytes: AtomicUsize,
}

impl Default for Memory {
    fn default() -> Self {
        Self::new(usize::MAX)
    }
}

impl Memory {
    /// Creates the memory of queues that may hold this many bytes.
    #[must_use]
    pub fn new(max: usize) -> Self {
        let schemas = Arc::new(CompiledSchemas::new(max / SCHEMAS_PART));
        let series = Arc::new(SeriesRoom::new(SERIES_BYTES_MAX));
        Self { max, counted: AtomicUsize::new(0), owners: Mutex::default(), schemas, series }
    }

    /// The same memory, but the series of the queues may take `max_bytes`.
    #[must_use]
    pub fn with_series(self, max_bytes: usize) -> Self {
        Self { series: Arc::new(SeriesRoom::new(max_bytes)), ..self }
    }

    /// The bytes of a new queue, which holds none yet.
    pub(crate) fn of_queue(self: &Arc<Self>, creator: Option<&Arc<str>>) -> HeldBytes {
        let mut owners = self.owners.lock();
        let owner = owners.get(&creator.cloned()).and_then(Weak::upgrade).unwrap_or_else(|| {
            let (held, counted) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let owner = Arc::new(Owner { token: creator.cloned(), held, counted });
            owners.retain(|_, owner| owner.strong_count() > 0);
            owners.insert(creator.cloned(), Arc::downgrade(&owner));
            owner
        });
        HeldBytes { memory: self.clone(), owner, bytes: AtomicUsize::new(0) }
    }

    /// What a token may hold if the others leave this much.
    const fn share(left: usize) -> usize {
        left / (QUARTERS + 1) * QUARTERS
    }
}

impl HeldBytes {
    /// Records what the queue holds. `shares` is whether other tokens must find room for their queues. Called under the
    /// queue's lock.
    pub(crate) fn set(&self, bytes: usize, shares: impl FnOnce() -> bool) {
        let before = self.bytes.swap(bytes, Ordering::Relaxed);
        if before == bytes {
            return;
        }
        let Self { memory, owner, .. } = self;
        let is_shared = owner.token.is_some() && shares();
        let change = bytes.wrapping_sub(before);
        let mut held = owner.held.fetch_add(change, Ordering::SeqCst).wrapping_add(change);
        // Another queue of the token may change at once. Whoever is last counts both.
        loop {
            let counted = if is_shared { held.min(self.limit()) } else { held };
            let before = owner.counted.swap(counted, Ordering::SeqCst);
            memory.counted.fetch_add(counted.wrapping_sub(before), Ordering::SeqCst);
            let now = owner.held.load(Ordering::SeqCst);
            if now == held {
                return;
            }
            held = now;
        }
    }

    /// What the queues of the token may hold, if there are others.
    fn limit(&self) -> usize {
        let Self { memory, owner, .. } = self;
        let own = owner.counted.load(Ordering::Relaxed);
        let others = memory.counted.load(Ordering::Relaxed).saturating_sub(own);
        Memory::share(memory.max.saturating_sub(others))
    }

    /// The room that the queue has. With `shares`, other tokens must find room for their queues.
    pub(crate) fn room(&self, shares: bool) -> Room {
        let Self { memory, owner, .. } = self;
        let max = memory.max;
        match owner.token.clone().filter(|_| shares && max < usize::MAX) {
            None => Room { held: memory.counted.load(Ordering::Relaxed), limit: max, max, token: None },
            token => Room { held: owner.held.load(Ordering::Relaxed), limit: self.limit(), max, token },
        }
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.set(0, || true);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    const MAX: usize = 1_600;

    fn token(name: &str) -> Arc<str> {
        Arc::from(name)
    }

    fn has_room(queue: &HeldBytes, wanted: usize) -> bool {
        queue.room(true).check(wanted).is_ok()
    }

    #[test]
    fn a_token_leaves_room_for_others() {
        let memory = Arc::new(Memory::new(MAX));
        let [first, second] = [memory.of_queue(Some(&token("a"))), memory.of_queue(Some(&token("a")))];
        assert!(has_room(&first, 1_200) && !has_room(&first, 1_201));
        first.set(800, || true);
        assert!(has_room(&second, 400) && !has_room(&second, 401), "all queues of a token count");
        second.set(400, || true);
        let other = memory.of_queue(Some(&token("b")));
        assert!(has_room(&other, 300) && !has_room(&other, 301), "three quarters of what is left");
        other.set(300, || true);
        let third = memory.of_queue(Some(&token("c")));
        assert!(has_room(&third, 75) && !has_room(&third, 76));
        assert!(!has_room(&second, 1), "the token may hold 975 now");
        first.set(500, || true);
        assert!(has_room(&second, 75) && !has_room(&second, 76));
        drop((first, second));
        assert!(has_room(&other, 900) && !has_room(&other, 901));
    }

    #[test]
    fn what_a_token_holds_beyond_its_share_does_not_count_against_others() {
        let memory = Arc::new(Memory::new(MAX));
        let (large, other) = (memory.of_queue(Some(&token("a"))), memory.of_queue(Some(&token("b"))));
        large.set(10 * MAX, || true);
        assert!(has_room(&other, 300) && !has_room(&large, 1));
        large.set(1_199, || true);
        assert!(has_room(&large, 1) && !has_room(&large, 2));
        drop(large);
        assert_eq!(memory.counted.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_single_token_may_hold_everything() {
        let memory = Arc::new(Memory::new(MAX));
        let (queue, without) = (memory.of_queue(Some(&token("a"))), memory.of_queue(None));
        assert!(queue.room(false).check(MAX).is_ok() && queue.room(false).check(MAX + 1).is_err());
        queue.set(1_000, || false);
        without.set(500, || false);
        assert!(queue.room(false).check(100).is_ok() && queue.room(false).check(101).is_err());
        assert!(without.room(true).check(100).is_ok() && without.room(true).check(101).is_err());
        assert!(queue.room(false).check(0).is_ok());
    }

    #[test]
    fn queues_that_change_at_once_are_all_counted() {
        let memory = Arc::new(Memory::new(usize::MAX));
        let queues = [memory.of_queue(Some(&token("a"))), memory.of_queue(Some(&token("a")))];
        let (together, wrong) = (Barrier::new(queues.len()), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for queue in &queues {
                scope.spawn(|| {
                    for bytes in 1..=50_000 {
                        together.wait();
                        queue.set(bytes, || false);
                        together.wait();
                        let is_exact = memory.counted.load(Ordering::SeqCst) == 2 * bytes;
                        wrong.fetch_add(usize::from(!is_exact), Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!(wrong.into_inner(), 0);
    }

    #[test]
    fn tokens_without_queues_are_forgotten() {
        let memory = Arc::new(Memory::new(MAX));
        for name in 0..100 {
            drop(memory.of_queue(Some(&token(&name.to_string()))));
        }
        assert!(memory.owners.lock().len() <= 2);
    }
}
