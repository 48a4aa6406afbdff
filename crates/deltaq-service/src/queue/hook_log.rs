//! What a queue has done with the deliveries of its hook since this server has the queue.

use deltaq_types::DeliveryReason;
use parking_lot::Mutex;

use crate::metrics::{HookReport, HookResult, Rejected};

/// The report of a queue.
#[derive(Debug, Default)]
pub struct HookLog(Mutex<HookReport>);

impl HookLog {
    /// Counts a delivery that was read.
    pub fn count(&self, result: HookResult, now_us: u64) {
        let mut report = self.0.lock();
        match result {
            HookResult::Applied => {
                report.applied += 1;
                report.last_applied_us = Some(now_us);
            }
            HookResult::Duplicate => report.duplicate += 1,
            HookResult::Stale => report.stale += 1,
        }
    }

    /// Counts a delivery that was not applied.
    pub fn reject(&self, rejected: Rejected) {
        let mut report = self.0.lock();
        let position = DeliveryReason::ALL.iter().position(|reason| *reason == rejected.reason);
        if let Some(count) = position.and_then(|position| report.rejected.get_mut(position)) {
            *count += 1;
        }
        // Vendors send everything, so a delivery that `only` leaves out is nothing to worry about. Anybody can send a wrong signature, so it
        // does not hide another reason.
        let last = report.last_rejected.as_ref().map(|last| last.reason);
        let hides = rejected.reason == DeliveryReason::Signature
            && last.is_some_and(|last| last != DeliveryReason::Signature);
        if rejected.reason != DeliveryReason::Filtered && !hides {
            report.last_rejected = Some(rejected);
        }
    }

    /// The report, with the number of kept deliveries.
    pub(crate) fn report(&self, kept: usize) -> HookReport {
        HookReport { kept, ..self.0.lock().clone() }
    }
}
