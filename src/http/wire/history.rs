//! What has happened to a key, as its history tells.

use serde::Serialize;
use utoipa::ToSchema;

use super::{RawObject, instant};
use crate::engine::event::{Appended, Disposition, Ending, Event, EventKind, Failure, Leased, Queued};
use crate::engine::id::Token;
use crate::engine::time::Time;
use crate::http::openapi::terms;
use crate::service::{Handle, Moment};

/// One thing that happened to a key. A member is there where the event has it.
#[derive(Debug, Default, Serialize, ToSchema)]
pub struct EventDocument {
    /// The event's number.
    pub resource_version: u64,
    /// When it happened.
    #[schema(format = DateTime)]
    pub at: String,
    /// What happened: `appended` (a delta), `queued` and `failed` (mode keys), `dropped`, `taken_over`,
    /// `leased`, `extended`, `settled`, `fired` (a delay or backoff ended), `forgotten`, `redriven`,
    /// `removed`, `seeded`.
    pub event: &'static str,
    /// Appended: the type of the delta.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<&'static str>,
    /// Appended: a tombstone.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub final_state_unknown: bool,
    /// Appended: who sent it, if it said so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Appended, taken over, seeded: who owns the key from then on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Appended: the trace of the call, if it named one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// Leased, settled: the lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
    /// Leased: who got it, if it said so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// Leased, extended: when it expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub expires_at: Option<String>,
    /// Settled: `acked`, `nacked`, `expired`, `released`, `rejected`, or `returned` (it never arrived).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<&'static str>,
    /// Settled: what the worker said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Settled: the key is out of circulation from then on.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub parked: bool,
    /// Appended, queued, settled: when the key becomes ready at the latest, if not at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub due_at: Option<String>,
    /// Appended, seeded: the object as it was sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<terms::RawObject>)]
    pub object: Option<RawObject>,
}

impl EventDocument {
    /// The document of an event of one key, as it is shown at `moment`.
    #[must_use]
    pub fn new(handle: &Handle, event: &Event, moment: Moment) -> Self {
        let instant = |at| instant(moment.wall(at));
        let document = Self { resource_version: event.rv, at: instant(event.at), ..Self::default() };
        let lease = |token| Some(handle.lease_id(token).to_string());
        match &event.kind {
            EventKind::Appended(Appended { delta, final_state_unknown, provenance, due, object, .. }) => {
                Self {
                    event: "appended",
                    kind: Some(delta.as_str()),
                    final_state_unknown: *final_state_unknown,
                    source: provenance.source().map(ToString::to_string),
                    owner: provenance.owner().map(ToString::to_string),
                    due_at: due.map(instant),
                    traceparent: provenance.trace().map(ToString::to_string),
                    object: Some(RawObject(object.clone())),
                    ..document
                }
            }
            EventKind::Queued(Queued { due, .. }) => {
                Self { event: "queued", due_at: due.map(instant), ..document }
            }
            EventKind::TakenOver { owner, .. } => {
                Self { event: "taken_over", owner: Some(owner.to_string()), ..document }
            }
            EventKind::Leased(Leased { deadline, worker, .. }) => Self {
                event: "leased",
                lease: lease(Token::new(event.rv)),
                worker: worker.as_ref().map(ToString::to_string),
                expires_at: Some(instant(*deadline)),
                ..document
            },
            EventKind::Extended { deadline, .. } => {
                Self { event: "extended", expires_at: Some(instant(*deadline)), ..document }
            }
            EventKind::Settled { token, ending, .. } => {
                let (outcome, error) = of_ending(ending);
                let (parked, due_at) = whereto(ending);
                Self {
                    event: "settled",
                    lease: lease(*token),
                    outcome: Some(outcome),
                    error,
                    parked,
                    due_at: due_at.map(instant),
                    ..document
                }
            }
            EventKind::Seeded { object, owner, .. } => Self {
                event: "seeded",
                owner: owner.as_ref().map(ToString::to_string),
                object: Some(RawObject(object.clone())),
                ..document
            },
            other => Self { event: plain(other), ..document },
        }
    }
}

/// Events that say nothing but that they happened.
fn plain(kind: &EventKind) -> &'static str {
    match kind {
        EventKind::Failed { .. } => "failed",
        EventKind::Dropped { .. } => "dropped",
        EventKind::DelayElapsed { .. } => "fired",
        EventKind::Forgotten { .. } => "forgotten",
        EventKind::Redriven { .. } => "redriven",
        _ => "removed",
    }
}

fn of_ending(ending: &Ending) -> (&'static str, Option<String>) {
    match ending {
        Ending::Acked | Ending::Done => ("acked", None),
        Ending::Expired(Failure { error, .. }) => ("expired", text(error.as_ref())),
        Ending::Nacked(Failure { error, .. }) => ("nacked", text(error.as_ref())),
        Ending::Released => ("released", None),
        Ending::Rejected { error } => ("rejected", text(error.as_ref())),
        Ending::Undelivered => ("returned", None),
    }
}

/// Whether the key is parked, and until when it waits.
fn whereto(ending: &Ending) -> (bool, Option<Time>) {
    match ending.failure().map(|failure| failure.disposition) {
        Some(Disposition::Park) => (true, None),
        Some(Disposition::Wait { due }) => (false, Some(due)),
        _ => (matches!(ending, Ending::Rejected { .. }), None),
    }
}

fn text(text: Option<&std::sync::Arc<str>>) -> Option<String> {
    text.map(ToString::to_string)
}
