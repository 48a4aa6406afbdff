//! Compares the objects of a list with those of the queue, without holding the queue's lock.
//!
//! A Replace with `only_changed`, and a follower that reads a list, compare every listed object with the newest state of
//! its key. If two large objects differ in their text, both must be parsed, which takes milliseconds. So the engine
//! returns such pairs to the caller, which compares them while other calls use the queue. A result is valid only for
//! those two objects. If the newest state of the key has changed in the meantime, the engine finds no result for the new
//! pair: a Replace asks again, and a follower takes the object as changed.

use std::sync::OnceLock;

use super::object::Object;

/// Maximum size of a pair that is compared under the queue's lock, in bytes of both objects. Parsing that much takes
/// about 10 µs.
const LOCKED_BYTES_MAX: usize = 2_048;
/// Maximum number of pairs in one comparison.
pub(super) const PAIRS_MAX: usize = 256;

/// Pairs of objects to compare, in the order of the list.
#[derive(Debug, Default)]
pub struct Comparison {
    pairs: Vec<Pair>,
}

#[derive(Debug)]
struct Pair {
    stored: Object,
    listed: Object,
    is_same: OnceLock<bool>,
}

impl Comparison {
    /// Compares all pairs. This takes as long as parsing the objects.
    pub fn run(&self) {
        for pair in &self.pairs {
            pair.is_same();
        }
    }

    /// Whether there is nothing to compare.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// Adds a pair, unless it may be compared under the lock.
    pub(super) fn push(&mut self, stored: &Object, listed: &Object) {
        if is_cheap(stored, listed) {
            return;
        }
        self.pairs.push(Pair { stored: stored.clone(), listed: listed.clone(), is_same: OnceLock::new() });
    }

    /// Whether these two objects have the same content. `None` if they are too large to be compared under the lock, and
    /// are not a pair of this comparison.
    pub(super) fn result(&self, stored: &Object, listed: &Object) -> Option<bool> {
        if is_cheap(stored, listed) {
            return Some(stored.same_content(listed));
        }
        let is_it = |pair: &&Pair| pair.listed.is_shared_with(listed) && pair.stored.is_shared_with(stored);
        self.pairs.iter().find(is_it).map(Pair::is_same)
    }
}

/// Whether two objects may be compared under the lock.
fn is_cheap(stored: &Object, listed: &Object) -> bool {
    stored.is_shared_with(listed) || stored.bytes() + listed.bytes() <= LOCKED_BYTES_MAX
}

impl Pair {
    fn is_same(&self) -> bool {
        *self.is_same.get_or_init(|| self.stored.same_content(&self.listed))
    }
}
