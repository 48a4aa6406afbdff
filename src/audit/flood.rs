//! How many lines there are of what comes in floods: the rest of a second is counted, and the count is told.
//!
//! It is not the rate of a token: that bounds what is answered, and here are those that were refused, for it or for want of a
//! grant.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Most lines of one caller between two looks, which are a second apart.
pub(super) const LINES_MAX: u32 = 100;

/// Who floods, since the last look. All callers without a known token are one, whose name is empty, so there are no more of
/// them than names of tokens.
#[derive(Debug, Default)]
pub(super) struct Floods(Mutex<BTreeMap<String, Flood>>);

#[derive(Debug)]
struct Flood {
    lines: u32,
    suppressed: u64,
}

impl Floods {
    /// Whether one more line of this caller is written; it is counted otherwise.
    pub(super) fn admits(&self, who: Option<&str>) -> bool {
        let (mut floods, who) = (self.lock(), who.unwrap_or_default());
        let Some(flood) = floods.get_mut(who) else {
            floods.insert(who.to_owned(), Flood { lines: 1, suppressed: 0 });
            return true;
        };
        if flood.lines == LINES_MAX {
            flood.suppressed += 1;
            return false;
        }
        flood.lines += 1;
        true
    }

    /// Begins anew, and tells of whom lines were not written, and how many.
    pub(super) fn take(&self) -> Vec<(Option<String>, u64)> {
        let floods = std::mem::take(&mut *self.lock());
        let suppressed = floods.into_iter().filter(|(_, flood)| flood.suppressed > 0);
        suppressed.map(|(who, flood)| (Some(who).filter(|who| !who.is_empty()), flood.suppressed)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Flood>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
