//! Why a key is not delivered, as a document with a sentence.

use deltaq_engine::excerpt::Excerpt;
use deltaq_engine::explain::Explanation;
use deltaq_engine::groups::GroupTurn;
use deltaq_engine::key::Key;
use deltaq_engine::schedule::{Lease, Place, ScheduleState};
use deltaq_engine::snapshot::KeyState;
use deltaq_engine::time::Time;
use deltaq_service::{Handle, Moment};
use deltaq_types::{ExplainDocument, HoldReason, PauseReason};

use super::{read, timestamp};

/// Why a key is not delivered, as of `moment`.
#[must_use]
pub fn explain(handle: &Handle, key: &Key, explanation: &Explanation, moment: Moment) -> ExplainDocument {
    let state = explanation.key.as_ref();
    let schedule = state.map(|state| &state.schedule_state);
    let floor = schedule.and_then(|schedule| floor(schedule, moment));
    let (reason, sentence) = match state {
        Some(state) => reason(state, explanation, moment),
        None => (HoldReason::Unknown, "the queue does not have it".to_owned()),
    };
    let (class, inside) = explanation.head_start.in_class();
    ExplainDocument {
        key: key.as_str().to_owned(),
        reason,
        explanation: format!("Key {}: {sentence}.", Excerpt(key.as_str())),
        lease: schedule.and_then(ScheduleState::lease).map(|lease| read::lease(handle, lease, moment)),
        leased_at: schedule.and_then(ScheduleState::lease).map(|lease| timestamp(moment.wall(lease.since))),
        due_at: next_delivery(explanation, moment).or(explanation.due).map(|due| timestamp(moment.wall(due))),
        latest_at: explanation.latest.map(|latest| timestamp(moment.wall(latest))),
        floor_at: floor.map(|floor| timestamp(moment.wall(floor))),
        failures: schedule.map_or(0, |schedule| schedule.failures),
        last_error: schedule.and_then(ScheduleState::last_error).map(str::to_owned),
        head_start_ms: (!inside.is_none()).then(|| inside.micros() / 1_000),
        priority: (class != 0).then_some(class),
        ahead: explanation.ahead.map(|ahead| ahead as u64),
        has_more_ahead: explanation.has_more_ahead,
        group: explanation.group.as_ref().and_then(|group| group.name.as_deref()).map(str::to_owned),
        group_share: explanation.group.as_ref().map(share),
    }
}

/// The time before which no change makes the key ready; `None` if that time has passed.
fn floor(schedule: &ScheduleState, moment: Moment) -> Option<Time> {
    schedule.floor().filter(|floor| *floor > moment.now)
}

fn reason(state: &KeyState, explanation: &Explanation, moment: Moment) -> (HoldReason, String) {
    let schedule = &state.schedule_state;
    let failures = failures(schedule);
    let again = match explanation.added_again {
        Some(_) if explanation.has_frozen_delays => {
            ", and its delay does not end, because the queue is closed".to_owned()
        }
        Some(due) => format!("; its delay adds it again at {}", timestamp(moment.wall(due))),
        None => String::new(),
    };
    let floor = floor(schedule, moment).map(|floor| timestamp(moment.wall(floor)));
    let due = explanation.due.map(|due| timestamp(moment.wall(due)));
    match (&schedule.place, due) {
        (Place::Leased(lease), _) => {
            let debounced = explanation.latest.and(due);
            let behind = debounced.map_or_else(String::new, |due| format!(", at the earliest until {due}"));
            (HoldReason::Leased, leased(lease, state.waiting.len(), moment) + &behind + &again)
        }
        (Place::Parked, _) => {
            let way_out = if explanation.wakes_parked_keys {
                match floor {
                    Some(floor) => {
                        format!("a redrive makes it ready again, and a new change not before {floor}")
                    }
                    None => "a new change or a redrive makes it ready again".to_owned(),
                }
            } else {
                "a redrive delivers the delta that failed again, and a discard drops it".to_owned()
            };
            (HoldReason::Parked, format!("it is parked{failures}; {way_out}"))
        }
        (Place::Ready(_), _) => {
            let (reason, sentence) = ready(explanation, moment);
            (reason, sentence + &again)
        }
        (Place::Idle, Some(due)) if explanation.is_debouncing => {
            let latest = explanation.latest.map(|latest| timestamp(moment.wall(latest)));
            let latest =
                latest.map_or_else(String::new, |latest| format!(", and at the latest until {latest}"));
            let sentence = format!("it waits for a pause in its changes until {due}{latest}");
            (HoldReason::Debouncing, sentence + &again)
        }
        (Place::Idle, Some(_)) if explanation.has_frozen_delays => (
            HoldReason::Closed,
            "it is delayed, and the queue is closed, so the delay does not end".to_owned(),
        ),
        (Place::Idle, Some(due)) => {
            let held_until = floor.as_ref().filter(|_| schedule.is_held());
            if let Some(until) = held_until {
                let sentence = format!("a worker has asked that it is not delivered until {until}");
                (HoldReason::KeyHeld, sentence + &again)
            } else if schedule.failures > 0 {
                let firmly =
                    if floor.is_some() { "; its worker asked that no change shortens this" } else { "" };
                (HoldReason::BackingOff, format!("it waits until {due}{failures}{firmly}"))
            } else {
                (HoldReason::Delayed, format!("it is delayed until {due}"))
            }
        }
        (Place::Idle, None) if state.known.is_some() => {
            (HoldReason::NothingWaits, "nothing waits, and its newest change is acknowledged".to_owned())
        }
        (Place::Idle, None) => (HoldReason::NothingWaits, "nothing waits".to_owned()),
    }
}

fn failures(schedule: &ScheduleState) -> String {
    match (schedule.failures, schedule.last_error()) {
        (0, None) => String::new(),
        (0, Some(error)) => format!(" with the error {}", Excerpt(error)),
        (count, None) => format!(" after {}", counted(count as usize, "failure")),
        (count, Some(error)) => {
            format!(
                " after {}, the last with the error {}",
                counted(count as usize, "failure"),
                Excerpt(error)
            )
        }
    }
}

fn leased(lease: &Lease, waiting: usize, moment: Moment) -> String {
    let worker = match lease.worker.as_deref() {
        Some(worker) => format!("worker {}", Excerpt(worker)),
        None => "a worker without a name".to_owned(),
    };
    let (since, until) = (timestamp(moment.wall(lease.since)), timestamp(moment.wall(lease.deadline)));
    let behind = if waiting == 0 {
        String::new()
    } else {
        format!(", and {} behind the lease", verb(waiting, "newer change"))
    };
    format!("{worker} holds it until {until}, since {since}{behind}")
}

/// The share of a group, in parts of a thousand.
fn share(group: &GroupTurn) -> f64 {
    let thousandths = u64::from(group.weight) * 1_000 / group.weights.max(1);
    u32::try_from(thousandths).map_or(1.0, |thousandths| f64::from(thousandths) / 1_000.0)
}

/// When the holds end and the rates let a ready key through. `None` if it does so now, or if the queue delivers nothing for another reason.
fn next_delivery(explanation: &Explanation, moment: Moment) -> Option<Time> {
    let is_full = explanation.is_full || explanation.group.as_ref().is_some_and(|group| group.is_full);
    let is_paused = explanation.is_paused || explanation.group.as_ref().is_some_and(|group| group.is_paused);
    let is_stopped = is_paused || is_full || explanation.ahead.is_none();
    let of_group = explanation.group.as_ref().and_then(|group| group.held_until.max(group.next_by_rate));
    let next = explanation.held_until.max(explanation.next_by_rate).max(of_group);
    next.filter(|at| !is_stopped && *at > moment.now)
}

fn ready(explanation: &Explanation, moment: Moment) -> (HoldReason, String) {
    let ahead = explanation.ahead.unwrap_or_default();
    let keys = if explanation.has_more_ahead {
        format!("more than {ahead} other keys are")
    } else if ahead == 1 {
        "1 other key is".to_owned()
    } else {
        format!("{ahead} other keys are")
    };
    if explanation.is_paused {
        let why = match explanation.pause_reason {
            Some(PauseReason::EndpointGone) => " by itself, because its endpoint is gone (410)",
            Some(_) => " by itself, because its endpoint has failed for too long",
            None => "",
        };
        let sentence = format!("it is ready, and the queue is paused{why}; {keys} ahead of it");
        return (HoldReason::Paused, sentence);
    }
    if let Some(until) = explanation.held_until {
        let until = timestamp(moment.wall(until));
        let sentence = format!(
            "it is ready, and a worker has asked that nothing is delivered until {until}; {keys} ahead of it"
        );
        return (HoldReason::Held, sentence);
    }
    if explanation.is_full {
        let sentence = format!("it is ready, and workers hold as many keys as they may; {keys} ahead of it");
        return (HoldReason::QueueLimit, sentence);
    }
    if let Some(group) = explanation.group.as_ref().filter(|group| group.is_full) {
        let name = named(group);
        let sentence =
            format!("it is ready, and workers hold as many keys of {name} as they may; {keys} ahead of it");
        return (HoldReason::GroupLimit, sentence);
    }
    if let Some((group, stopped)) =
        explanation.group.as_ref().and_then(|group| Some((group, stop(group, moment)?)))
    {
        let (reason, until) = stopped;
        let name = named(group);
        return (reason, format!("it is ready, and {name} is {until}; {keys} ahead of it"));
    }
    if let Some(at) = next_delivery(explanation, moment) {
        let group = explanation.group.as_ref().filter(|group| group.next_by_rate == Some(at));
        let reason = if group.is_some() { HoldReason::GroupRateLimited } else { HoldReason::RateLimited };
        let (of, at) = (group.map_or_else(|| "the queue".to_owned(), named), timestamp(moment.wall(at)));
        let sentence = format!(
            "it is ready, and the rate of {of} delivers it at {at} at the earliest; {keys} ahead of it"
        );
        return (reason, sentence);
    }
    if let Some(group) = explanation.group.as_ref().filter(|group| group.weights > u64::from(group.weight)) {
        let (name, share) = (named(group), share(group));
        let sentence = format!(
            "it is ready, and {keys} ahead of it in {name}, whose share is {share} of the workers' time"
        );
        return (HoldReason::Queued, sentence);
    }
    match ahead {
        0 => (HoldReason::Next, "it is ready, and the next pop gets it".to_owned()),
        _ => (HoldReason::Queued, format!("it is ready, and {keys} ahead of it")),
    }
}

/// Why the group is not delivered, and until when.
fn stop(group: &GroupTurn, moment: Moment) -> Option<(HoldReason, String)> {
    if group.is_paused {
        return Some((HoldReason::GroupPaused, "paused".to_owned()));
    }
    let until = timestamp(moment.wall(group.held_until?));
    Some((HoldReason::GroupHeld, format!("held until {until}, because a worker has asked for it")))
}

fn named(group: &GroupTurn) -> String {
    let named = |name: &str| format!("the group {}", Excerpt(name));
    group.name.as_deref().map_or_else(|| "the group without a name".to_owned(), named)
}

fn counted(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

fn verb(count: usize, noun: &str) -> String {
    let waits = if count == 1 { "waits" } else { "wait" };
    format!("{} {waits}", counted(count, noun))
}
