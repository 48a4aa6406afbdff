//! Replies to workers, except the reply to a pop.

use deltaq_engine::command::{Extended, Outcome, Settled};
use deltaq_engine::delta::{Delta, DeltaKind};
use deltaq_service::Moment;
use deltaq_types::{
    DeltaDocument, DeltaType, ExtendedDocument, LeaseOutcome, SettleAs, SettleResult, SettledDocument,
};

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

/// The id of a lease in a request, which its result repeats under the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseRef {
    /// In the field `lease_id`.
    LeaseId(String),
    /// In the field `lease`, the former name.
    Lease(String),
}

impl LeaseRef {
    /// The id.
    #[must_use]
    pub fn id(&self) -> &str {
        let (Self::LeaseId(id) | Self::Lease(id)) = self;
        id
    }

    /// The values of the fields `lease_id` and `lease`.
    fn fields(self) -> (Option<String>, Option<String>) {
        match self {
            Self::LeaseId(id) => (Some(id), None),
            Self::Lease(id) => (None, Some(id)),
        }
    }
}

/// The result of a settle of `lease`.
#[must_use]
pub fn settled(lease: LeaseRef, how: SettleAs, settled: Settled, moment: Moment) -> SettledDocument {
    let (result, outcome, failed) = match settled {
        Settled::Ok { failed, .. } => (SettleResult::Ok, None, failed),
        Settled::Repeated => (SettleResult::Repeated, None, None),
        Settled::Stale { outcome } => (SettleResult::Stale, Some(lease_outcome(outcome)), None),
    };
    let (lease_id, lease) = lease.fields();
    SettledDocument {
        lease_id,
        lease,
        how,
        result,
        outcome,
        failures: failed.map(|failed| failed.failures),
        due_at: failed.and_then(|failed| failed.due).map(|due| timestamp(moment.wall(due))),
        parked: failed.map(|failed| failed.is_parked),
    }
}

/// The result of the extension of `lease`, as of `moment`.
#[must_use]
pub fn extended(lease: LeaseRef, extended: Extended, moment: Moment) -> ExtendedDocument {
    let (lease_id, lease) = lease.fields();
    let document = ExtendedDocument {
        lease_id,
        lease,
        result: SettleResult::Stale,
        expires_at: None,
        expires_in_ms: None,
        pending_deltas: None,
        deleted: None,
        outcome: None,
    };
    match extended {
        Extended::Stale { outcome } => ExtendedDocument { outcome: Some(lease_outcome(outcome)), ..document },
        Extended::Ok { deadline, pending_deltas, deleted } => ExtendedDocument {
            result: SettleResult::Ok,
            expires_at: Some(timestamp(moment.wall(deadline))),
            expires_in_ms: Some(millis(deadline.since(moment.now))),
            pending_deltas: Some(pending_deltas as u64),
            deleted: Some(deleted),
            ..document
        },
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
