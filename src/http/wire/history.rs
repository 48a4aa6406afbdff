//! Entries of the history of a key.

use std::sync::Arc;

use deltaq_engine::event::{Appended, Disposition, Due, Ending, EventKind, Failure, Leased, Queued};
use deltaq_engine::id::Token;
use deltaq_engine::time::Time;
use deltaq_service::{Handle, Moment, PastEvent};
use deltaq_types::{EventDocument, EventName, LeaseOutcome};

use super::consume::delta_type;
use super::{raw, timestamp};

/// An event of one key as of `moment`; `None` for an event of the queue.
#[must_use]
pub fn event(handle: &Handle, past: &PastEvent, moment: Moment) -> Option<EventDocument> {
    let PastEvent { event, is_object_lost } = past;
    let raw = |object| (!is_object_lost).then(|| raw(object));
    let timestamp = |at| timestamp(moment.wall(at));
    let document = EventDocument::new(event.rv.get(), timestamp(event.at), name(&event.kind)?);
    let lease = |token| Some(handle.lease_id(token).to_string());
    let document = match &event.kind {
        EventKind::Appended(Appended { delta, final_state_unknown, provenance, due, object, .. }) => {
            EventDocument {
                kind: Some(delta_type(*delta)),
                final_state_unknown: *final_state_unknown,
                source: provenance.owner().or(provenance.source()).map(ToString::to_string),
                due_at: due.as_ref().map(Due::time).map(timestamp),
                traceparent: provenance.trace().map(ToString::to_string),
                object: raw(object),
                ..document
            }
        }
        EventKind::Queued(Queued { due, .. }) => {
            EventDocument { due_at: due.as_ref().map(Due::time).map(timestamp), ..document }
        }
        EventKind::Refreshed { provenance, object, .. } => EventDocument {
            source: provenance.owner().map(ToString::to_string),
            object: raw(object),
            ..document
        },
        EventKind::TakenOver { owner, .. } => EventDocument { source: Some(owner.to_string()), ..document },
        EventKind::Leased(Leased { deadline, worker, .. }) => EventDocument {
            lease_id: lease(Token::new(event.rv)),
            worker: worker.as_ref().map(ToString::to_string),
            expires_at: Some(timestamp(*deadline)),
            ..document
        },
        EventKind::Extended { deadline, .. } => {
            EventDocument { expires_at: Some(timestamp(*deadline)), ..document }
        }
        EventKind::Progressed { token, through, .. } => {
            EventDocument { lease_id: lease(*token), through: Some(through.get()), ..document }
        }
        EventKind::Settled { token, ending, .. } => {
            let (outcome, error) = outcome(ending);
            let (parked, due) = parked_or_due(ending);
            let due_at = due.map(timestamp);
            EventDocument {
                lease_id: lease(*token),
                outcome: Some(outcome),
                error,
                parked,
                due_at,
                ..document
            }
        }
        EventKind::Seeded { object, owner, .. } => {
            EventDocument { source: owner.as_ref().map(ToString::to_string), object: raw(object), ..document }
        }
        _ => document,
    };
    Some(document)
}

fn name(kind: &EventKind) -> Option<EventName> {
    Some(match kind {
        EventKind::Appended(_) => EventName::Appended,
        EventKind::Queued(_) => EventName::Queued,
        EventKind::Refreshed { .. } => EventName::Refreshed,
        EventKind::TakenOver { .. } => EventName::TakenOver,
        EventKind::Leased(_) => EventName::Leased,
        EventKind::Extended { .. } => EventName::Extended,
        EventKind::Progressed { .. } => EventName::Progressed,
        EventKind::Settled { .. } => EventName::Settled,
        EventKind::VersionRemembered { .. } => EventName::VersionRemembered,
        EventKind::Seeded { .. } => EventName::Seeded,
        EventKind::Failed { .. } => EventName::Failed,
        EventKind::Dropped { .. } => EventName::Dropped,
        EventKind::DelayElapsed { .. } => EventName::DelayElapsed,
        EventKind::Forgotten { .. } => EventName::Forgotten,
        EventKind::Redriven { .. } => EventName::Redriven,
        EventKind::Removed { .. } => EventName::Removed,
        // An explanation shows the group of a key.
        EventKind::Grouped { .. }
        | EventKind::GroupPaused { .. }
        | EventKind::GroupResumed { .. }
        | EventKind::GroupHeld { .. }
        | EventKind::Populated
        | EventKind::Configured { .. }
        | EventKind::Regrouped
        | EventKind::Paused
        | EventKind::PausedItself { .. }
        | EventKind::Resumed
        | EventKind::Held { .. }
        | EventKind::Closed { .. }
        | EventKind::Reopened
        | EventKind::ResyncDue
        | EventKind::DeliveryReceived { .. }
        | EventKind::DeliveryKept { .. }
        | EventKind::DeliveryDropped { .. }
        | EventKind::Recovered { .. }
        | EventKind::ReplaceStarted { .. }
        | EventKind::ReplaceEnded(_)
        | EventKind::Followed { .. }
        | EventKind::Renumbered { .. }
        | EventKind::SourcesReached { .. }
        | EventKind::SourceConfigured { .. } => return None,
    })
}

fn outcome(ending: &Ending) -> (LeaseOutcome, Option<String>) {
    match ending {
        Ending::Acked => (LeaseOutcome::Acked, None),
        Ending::Done => (LeaseOutcome::Done, None),
        Ending::Expired(Failure { error, .. }) => (LeaseOutcome::Expired, text(error.as_ref())),
        Ending::Nacked(Failure { error, .. }) => (LeaseOutcome::Nacked, text(error.as_ref())),
        Ending::Released | Ending::Held { .. } => (LeaseOutcome::Released, None),
        Ending::Rejected { error, .. } => (LeaseOutcome::Rejected, text(error.as_ref())),
        Ending::Undelivered => (LeaseOutcome::Returned, None),
    }
}

/// Whether the key was parked, and when its backoff ends.
fn parked_or_due(ending: &Ending) -> (bool, Option<Time>) {
    match ending.disposition() {
        Some(Disposition::Park) => (true, None),
        Some(Disposition::Wait { due }) => (false, Some(due)),
        _ => (false, None),
    }
}

fn text(text: Option<&Arc<str>>) -> Option<String> {
    text.map(ToString::to_string)
}
