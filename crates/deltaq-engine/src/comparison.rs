//! Compares objects with those of the queue, without holding the queue's lock.
//!
//! A Replace with `only_changed`, and a follower that reads a list, compare every listed object with the newest state of
//! its key, and so does an update of a queue that ignores members. If two large objects differ in their text, both must
//! be parsed, which takes milliseconds. So the engine returns such pairs to the caller, which compares them while other
//! calls use the queue. A result is valid only for those two objects. If the newest state of the key has changed in the
//! meantime, the engine finds no result for the new pair: a Replace asks again, and all others take the object as
//! changed.

use std::collections::HashMap;
use std::sync::OnceLock;

use super::object::{Change, Ignored, Object};

/// Maximum size of a pair that is compared under the queue's lock, in bytes of both objects. Parsing that much takes
/// about 10 µs.
const LOCKED_BYTES_MAX: usize = 2_048;
/// Maximum number of updates of one call whose objects are compared under the queue's lock.
const LOCKED_UPDATES_MAX: usize = 32;
/// Maximum number of pairs in one comparison.
pub(super) const PAIRS_MAX: usize = 256;

/// Pairs of objects to compare.
#[derive(Debug, Default)]
pub struct Comparison {
    ignored: Ignored,
    /// The pairs by the addresses of their texts, which stay as long as the pair.
    pairs: HashMap<[usize; 2], Pair>,
    /// Number of updates whose objects are compared under the lock.
    locked_updates: usize,
}

#[derive(Debug)]
struct Pair {
    stored: Object,
    listed: Object,
    change: OnceLock<Change>,
}

impl Comparison {
    /// A comparison without pairs.
    pub(super) fn new(ignored: &Ignored) -> Self {
        Self { ignored: ignored.clone(), ..Self::default() }
    }

    /// Compares all pairs. This takes as long as parsing the objects.
    pub fn run(&self) {
        for pair in self.pairs.values() {
            pair.change(&self.ignored);
        }
    }

    /// Whether there is nothing to compare.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// Adds a pair, unless it may be compared under the lock.
    pub(super) fn push(&mut self, stored: &Object, listed: &Object) {
        if !is_cheap(stored, listed) {
            self.insert(stored, listed);
        }
    }

    /// Adds the pair of an update, unless it may be compared under the lock. A call may have thousands of updates, of which only
    /// the first ones may.
    pub(super) fn push_update(&mut self, stored: &Object, updated: &Object) {
        if is_cheap(stored, updated) && self.locked_updates < LOCKED_UPDATES_MAX {
            self.locked_updates += 1;
        } else {
            self.insert(stored, updated);
        }
    }

    fn insert(&mut self, stored: &Object, listed: &Object) {
        let pair = Pair { stored: stored.clone(), listed: listed.clone(), change: OnceLock::new() };
        self.pairs.insert([stored.address(), listed.address()], pair);
    }

    /// How the listed object differs from the stored one. `None` if they are too large to be compared under the lock, and
    /// are not a pair of this comparison.
    pub(super) fn result(&self, ignored: &Ignored, stored: &Object, listed: &Object) -> Option<Change> {
        match self.pairs.get(&[stored.address(), listed.address()]) {
            Some(pair) => Some(pair.change(&self.ignored)),
            None => is_cheap(stored, listed).then(|| stored.change_to(listed, ignored)),
        }
    }
}

/// Whether two objects may be compared under the lock.
fn is_cheap(stored: &Object, listed: &Object) -> bool {
    stored.is_shared_with(listed) || stored.bytes() + listed.bytes() <= LOCKED_BYTES_MAX
}

impl Pair {
    fn change(&self, ignored: &Ignored) -> Change {
        *self.change.get_or_init(|| self.stored.change_to(&self.listed, ignored))
    }
}
