//! Limits the refusals in the audit log per caller and second. Refusals that exceed the limit are only counted.
//!
//! This limit is separate from the rate of a token. The rate limits requests; this module limits the audit lines of
//! refused requests.

use std::collections::BTreeMap;

use parking_lot::{Mutex, MutexGuard};

/// Maximum number of refusal lines per caller and period. A period is one second.
pub(super) const LINES_MAX: u32 = 100;

/// Refusals by caller in this period. All callers without a known token count as one caller with an empty name, so
/// the map has at most one more entry than there are tokens. With one entry per address, attackers could make the map
/// grow.
#[derive(Debug, Default)]
pub(super) struct Suppression(Mutex<BTreeMap<String, Refusals>>);

#[derive(Debug)]
struct Refusals {
    written: u32,
    suppressed: u64,
}

impl Suppression {
    /// Whether another refusal of this caller may be written. If not, it is counted.
    pub(super) fn admits(&self, who: Option<&str>) -> bool {
        let (mut callers, who) = (self.lock(), who.unwrap_or_default());
        let Some(refusals) = callers.get_mut(who) else {
            callers.insert(who.to_owned(), Refusals { written: 1, suppressed: 0 });
            return true;
        };
        if refusals.written == LINES_MAX {
            refusals.suppressed += 1;
            return false;
        }
        refusals.written += 1;
        true
    }

    /// Ends the period. Returns the callers whose refusals were suppressed, with the number of suppressed refusals.
    pub(super) fn take(&self) -> Vec<(Option<String>, u64)> {
        let callers = std::mem::take(&mut *self.lock());
        let suppressed = callers.into_iter().filter(|(_, refusals)| refusals.suppressed > 0);
        suppressed
            .map(|(who, refusals)| (Some(who).filter(|who| !who.is_empty()), refusals.suppressed))
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Refusals>> {
        self.0.lock()
    }
}
