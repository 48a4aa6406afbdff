//! Replies to workers, except the reply to a pop.

use deltaq_engine::command::{Outcome, Settled};
use deltaq_engine::delta::{Delta, DeltaKind};
use deltaq_service::Moment;
use deltaq_types::{DeltaDocument, DeltaType, LeaseOutcome, SettleAs, SettleResult, SettledDocument};

use super::{millis, raw, timestamp};

/// A delta as of `moment`.
#[must_use]
pub fn delta(delta: &Delta, moment: Moment) -> DeltaDocument {
    DeltaDocument {
        kind: delta_type(delta.kind),
        resource_version: delta.rv.get(),
        queued_at: timestamp(moment.wall(delta.queued_at)),
        object: raw(&delta.object),
        final_state_unknown: delta.final_state_unknown,
        source: delta.provenance.source().map(ToString::to_string),
        coalesced: delta.coalesced,
        traceparent: delta.provenance.trace().map(ToString::to_string),
    }
}

pub(super) const fn delta_type(kind: DeltaKind) -> DeltaType {
    match kind {
        DeltaKind::Added => DeltaType::Added,
        DeltaKind::Updated => DeltaType::Updated,
        DeltaKind::Deleted => DeltaType::Deleted,
        DeltaKind::Replaced => DeltaType::Replaced,
        DeltaKind::Sync => DeltaType::Sync,
    }
}

/// The result of a settle of the lease, as of `moment`.
#[must_use]
pub fn settled(lease_id: String, how: SettleAs, settled: Settled, moment: Moment) -> SettledDocument {
    let document = |result| SettledDocument::new(lease_id, how, result);
    match settled {
        Settled::Ok { failed, .. } => SettledDocument {
            failures: failed.map(|failed| failed.failures),
            due_at: failed.and_then(|failed| failed.due).map(|due| timestamp(moment.wall(due))),
            parked: failed.map(|failed| failed.is_parked),
            ..document(SettleResult::Ok)
        },
        Settled::Held { until, .. } => {
            SettledDocument { held_until: Some(timestamp(moment.wall(until))), ..document(SettleResult::Ok) }
        }
        Settled::Extended { deadline, pending_deltas, deleted } => SettledDocument {
            expires_at: Some(timestamp(moment.wall(deadline))),
            expires_in_ms: Some(millis(deadline.since(moment.now))),
            pending_deltas: Some(pending_deltas as u64),
            deleted: Some(deleted),
            ..document(SettleResult::Ok)
        },
        Settled::Repeated => document(SettleResult::Repeated),
        Settled::NotLeased => document(SettleResult::NotLeased),
        Settled::Stale { outcome } => {
            SettledDocument { outcome: Some(lease_outcome(outcome)), ..document(SettleResult::Stale) }
        }
    }
}

const fn lease_outcome(outcome: Outcome) -> LeaseOutcome {
    match outcome {
        Outcome::Acked => LeaseOutcome::Acked,
        Outcome::Done => LeaseOutcome::Done,
        Outcome::Nacked => LeaseOutcome::Nacked,
        Outcome::Released => LeaseOutcome::Released,
        Outcome::Rejected => LeaseOutcome::Rejected,
        Outcome::Expired => LeaseOutcome::Expired,
        Outcome::Unknown => LeaseOutcome::Unknown,
    }
}
