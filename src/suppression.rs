//! Limits the lines about refused requests per period: in the audit log for each caller, and in the log for each outcome
//! and token.
//! Refusals that exceed the limit are only counted.
//!
//! This limit is separate from the rate of a token. The rate limits requests; this module limits their lines.

use std::collections::BTreeMap;

use parking_lot::{Mutex, MutexGuard};

/// Maximum number of lines per caller or outcome and period.
pub(crate) const LINES_MAX: u32 = 100;

/// Refusals in this period, by caller or outcome. All callers without a known token count as one caller with an empty
/// name, so the map has at most one more entry than there are tokens. With one entry per address, attackers could make
/// the map grow.
#[derive(Debug, Default)]
pub struct Suppression(Mutex<BTreeMap<String, Refusals>>);

#[derive(Debug)]
struct Refusals {
    written: u32,
    suppressed: u64,
}

impl Suppression {
    /// Whether another refusal of this caller or with this outcome may be written. If not, it is counted.
    pub(crate) fn admits(&self, who: Option<&str>) -> bool {
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

    /// Ends the period. Returns the callers or outcomes whose refusals were suppressed, with the number of suppressed
    /// refusals.
    pub(crate) fn take(&self) -> Vec<(Option<String>, u64)> {
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
