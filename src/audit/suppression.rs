//! Limits the refusals in the audit log, per caller and second. Refusals past the limit are counted.
//!
//! This is not the rate of a token: that limits requests, and a refusal past it is limited here.

use std::collections::BTreeMap;

use parking_lot::{Mutex, MutexGuard};

/// Most lines of refusals per caller and period, which is a second.
pub(super) const LINES_MAX: u32 = 100;

/// Refusals by caller in this period. All callers without a known token count as one, with an empty name, so the map has at
/// most one entry per token and one more. One entry per address would be a list that attackers can extend.
#[derive(Debug, Default)]
pub(super) struct Suppression(Mutex<BTreeMap<String, Refusals>>);

#[derive(Debug)]
struct Refusals {
    written: u32,
    suppressed: u64,
}

impl Suppression {
    /// Whether one more refusal of this caller is written; otherwise it is counted.
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

    /// Ends the period: the callers whose refusals were suppressed, and how many.
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
