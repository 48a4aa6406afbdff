//! The errors of the parked keys of a queue.

use std::cmp::Ordering;
use std::fmt;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use deltaq_engine::Queue;
use deltaq_engine::id::Rv;
use deltaq_engine::key::Key;
use hashbrown::HashMap;

use crate::Error;
use crate::queue::{Handle, PART_KEYS};

/// Maximum number of different errors that are counted. Keys with further errors are counted together.
const ERRORS_MAX: usize = 50_000;

/// The parked keys with one error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParkedGroup {
    /// The error of the last failure of these keys; empty for keys without an error.
    pub error: Arc<str>,
    /// The number of the keys.
    pub keys: usize,
    /// The first of the keys, in key order.
    pub first_key: Key,
}

/// The position of a group in the list. Groups are ordered by size, largest first, and then by their first keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParkedPosition {
    keys: usize,
    first_key: Key,
}

impl ParkedPosition {
    /// Reads the text that `Display` writes.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (keys, first_key) = text.split_once(':')?;
        Some(Self { keys: keys.parse().ok()?, first_key: Key::new(first_key).ok()? })
    }
}

impl fmt::Display for ParkedPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.keys, self.first_key.as_str())
    }
}

/// A page of the parked keys, grouped by error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParkedGroups {
    /// The groups, the largest one first.
    pub groups: Vec<ParkedGroup>,
    /// The position of the last group; `None` on the last page.
    pub next: Option<ParkedPosition>,
    /// The number of keys that are not in any group on any page.
    pub other_keys: usize,
    /// The queue's newest event when the last key was read.
    pub resource_version: Rv,
}

impl ParkedGroup {
    fn position(&self) -> ParkedPosition {
        ParkedPosition { keys: self.keys, first_key: self.first_key.clone() }
    }
}

fn order(group: &ParkedGroup, position: &ParkedPosition) -> Ordering {
    position.keys.cmp(&group.keys).then_with(|| group.first_key.cmp(&position.first_key))
}

#[derive(Debug, Default)]
struct Counting {
    groups: HashMap<Arc<str>, (usize, Key)>,
    other_keys: usize,
    /// The last key that was counted, if there may be further ones.
    counted: Option<Key>,
}

impl Counting {
    /// Counts the next parked keys. Returns the queue's newest event if there are no further keys.
    fn visit(&mut self, queue: &Queue) -> ControlFlow<Rv> {
        let after = self.counted.take();
        let from = after.as_ref().map_or(Bound::Unbounded, |key| Bound::Excluded(key.as_str()));
        let (mut visited, mut last) = (0, None);
        for (key, slot) in queue.schedule().parked_from(from).take(PART_KEYS) {
            let entry = queue.table().at(slot);
            let error = entry.and_then(|entry| entry.schedule_state.shared_last_error());
            self.count(error, key);
            (visited, last) = (visited + 1, Some(key));
        }
        self.counted = last.filter(|_| visited == PART_KEYS).cloned();
        if self.counted.is_some() {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(queue.resource_version())
        }
    }

    fn count(&mut self, error: Option<&Arc<str>>, key: &Key) {
        let text = error.map_or("", |error| error);
        if let Some((keys, _)) = self.groups.get_mut(text) {
            *keys += 1;
        } else if self.groups.len() < ERRORS_MAX {
            let error = error.cloned().unwrap_or_default();
            self.groups.insert(error, (1, key.clone()));
        } else {
            self.other_keys += 1;
        }
    }
}

impl Handle {
    /// The parked keys grouped by error: at most `limit` groups after `after`. The keys are counted again for each
    /// page, in parts. So a key that is parked or unparked during the count may or may not be counted, and a group
    /// whose size changes may be on two pages or on none.
    ///
    /// # Errors
    /// As for reads.
    pub async fn parked_errors(
        &self,
        after: Option<ParkedPosition>,
        limit: usize,
    ) -> Result<ParkedGroups, Error> {
        let (counting, resource_version) =
            self.read_in_parts(Counting::default, |counting, state| counting.visit(&state.queue)).await?;
        let groups = counting.groups.into_iter();
        let mut groups: Vec<_> =
            groups.map(|(error, (keys, first_key))| ParkedGroup { error, keys, first_key }).collect();
        groups.retain(|group| after.as_ref().is_none_or(|after| order(group, after).is_gt()));
        groups.sort_unstable_by(|a, b| order(a, &b.position()));
        let has_more = groups.len() > limit;
        groups.truncate(limit);
        let next = groups.last().filter(|_| has_more).map(ParkedGroup::position);
        Ok(ParkedGroups { groups, next, other_keys: counting.other_keys, resource_version })
    }
}
