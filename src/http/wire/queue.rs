//! Queues.

use deltaq_engine::LastReplace;
use deltaq_service::{Document, HookReport, Moment, PushReport};
use deltaq_types::{HookStatus, LastReplaceDocument, PushStatus, QueueDocument, QueueStatus, Timestamp};

use super::follow;
use super::produce::counts;
use super::{millis, timestamp};

/// A queue.
#[must_use]
pub fn queue(document: &Document) -> QueueDocument {
    QueueDocument {
        name: document.name.to_string(),
        incarnation: document.incarnation.to_string(),
        life: document.life.to_string(),
        auto_created: document.auto_created,
        created_at: timestamp(document.created_at),
        settings: document.config.document(),
        status: status(document),
        drained: None,
    }
}

/// The counts and flags of a queue.
#[must_use]
pub fn status(document: &Document) -> QueueStatus {
    let Document { status, waiters, changes, moment, .. } = document;
    QueueStatus {
        ready: status.ready as u64,
        delayed: status.delayed as u64,
        leased: status.leased as u64,
        parked: status.parked as u64,
        known: status.known as u64,
        held_bytes: status.held_bytes as u64,
        waiters: *waiters as u64,
        has_synced: status.has_synced,
        initial_remaining: status.initial_remaining as u64,
        resource_version: status.resource_version.get(),
        changes: *changes,
        oldest_ready_age_ms: status.oldest_ready_age.map_or(0, millis),
        oldest_unacknowledged_age_ms: status.oldest_unacknowledged_age.map_or(0, millis),
        paused: status.paused,
        held_until: status.held_until.map(|until| timestamp(moment.wall(until))),
        pause_reason: status.pause_reason,
        closed: status.closed,
        drained: status.drained,
        building_groups: status.building_groups,
        building_indexes: status.building_indexes.iter().map(ToString::to_string).collect(),
        last_replace: status.last_replace.as_ref().map(|last| last_replace(last, *moment)),
        follow: document.follow.as_ref().map(follow::status),
        push: document.push.as_ref().map(push),
        hook: document.hook.as_ref().map(hook),
        followers: document.followers.iter().map(ToString::to_string).collect(),
    }
}

/// What the sender of a queue does.
fn push(report: &PushReport) -> PushStatus {
    PushStatus {
        state: report.state,
        in_flight: report.in_flight as u64,
        allowed_in_flight: report.allowed as u64,
        last_success_at: report.last_success_us.map(Timestamp::from_micros),
        last_error: report.last_error.as_deref().map(str::to_owned),
    }
}

/// What became of the deliveries of a hook.
fn hook(report: &HookReport) -> HookStatus {
    let rejected = report.last_rejected.as_ref();
    HookStatus {
        kept: report.kept as u64,
        last_applied_at: report.last_applied_us.map(Timestamp::from_micros),
        last_rejected_at: rejected.map(|rejected| Timestamp::from_micros(rejected.at_us)),
        last_rejected: rejected.map(|rejected| format!("{}: {}", rejected.reason.as_str(), rejected.detail)),
    }
}

/// A Replace as of `moment`.
pub(super) fn last_replace(last: &LastReplace, moment: Moment) -> LastReplaceDocument {
    let timestamp = |at| timestamp(moment.wall(at));
    LastReplaceDocument {
        source: last.source.as_deref().map(str::to_owned),
        counts: counts(last.counts),
        started_at: timestamp(last.started),
        ended_at: last.ended.map(timestamp),
        aborted: last.aborted,
    }
}
