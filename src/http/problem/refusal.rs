//! The problems of refusals of the engine.

use std::borrow::Cow;

use deltaq_engine::command::{DefaultLimit, DeletionGuard};
use deltaq_engine::event::ReplaceCounts;
use deltaq_engine::id::Rv;
use deltaq_engine::refusal::Refusal;

use super::{Code, Problem, REPEAT};

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let (detail, hint) = (refusal.to_string(), hint_of(&refusal));
        let problem = match refusal {
            Refusal::QueueFull { limit, .. } => Self::new(Code::QueueFull, detail).with("limit", limit),
            Refusal::KeyFull { field, limit, key, index } => Self::new(Code::KeyFull, detail)
                .with("limit", limit)
                .with("field", field)
                .with("key", key.as_str())
                .with("index", index),
            Refusal::ObjectTooLarge { limit, index, .. } => {
                Self::new(Code::ObjectTooLarge, detail).with("limit", limit).with("index", index)
            }
            Refusal::WrongMode { mode, .. } => Self::new(Code::WrongMode, detail).with("mode", mode.as_str()),
            Refusal::TooManyReplaces { limit } => {
                Self::new(Code::TooManyRequests, detail).with("limit", limit)
            }
            Refusal::TooManySequences { limit } => {
                Self::new(Code::TooManySequences, detail).with("limit", limit)
            }
            Refusal::SequenceBusy { number } => {
                Self::new(Code::TooManyRequests, detail).with("sequence", number)
            }
            Refusal::ConfigChanged => Self::new(Code::TooManyRequests, detail),
            Refusal::Follower { follows } => Self::new(Code::Follower, detail).with("follows", &*follows),
            Refusal::Closed => Self::new(Code::QueueClosed, detail),
            Refusal::MassDelete { deletions, owned, guard, counts } => {
                let problem =
                    Self::new(Code::MassDelete, detail).with("deletions", deletions).with("owned", owned);
                let problem = match guard {
                    DeletionGuard::Set { max_deletes, max_percent } => problem
                        .with_some("max_deletes", max_deletes)
                        .with_some("max_delete_percent", max_percent),
                    DeletionGuard::Default(limit) => problem.with("default_limit", limit.as_str()),
                };
                with_counts(problem, counts)
            }
            Refusal::NoKnownObjects => Self::new(Code::NoKnownObjects, detail),
            Refusal::NotEmpty { waiting } => Self::new(Code::NotEmpty, detail).with("waiting", waiting),
            Refusal::PreconditionFailed { key, version, index } => {
                Self::new(Code::PreconditionFailed, detail)
                    .with("key", key.as_str())
                    .with("resource_version", version.map(Rv::get))
                    .with("index", index)
            }
            Refusal::CountChanged { count, .. } => Self::new(Code::CountChanged, detail).with("count", count),
            Refusal::ImmutableConfig { field, .. } => {
                Self::new(Code::ImmutableConfig, detail).with("field", field)
            }
        };
        problem.hint_some(hint)
    }
}

/// The hint for a refusal of the engine, in terms of the API.
fn hint_of(refusal: &Refusal) -> Option<Cow<'static, str>> {
    Some(Cow::Borrowed(match refusal {
        Refusal::TooManySequences { .. } => "leave sequence out",
        Refusal::TooManyReplaces { .. } | Refusal::SequenceBusy { .. } | Refusal::ConfigChanged => REPEAT,
        Refusal::Follower { follows } => {
            let hint = format!("send the call to {follows:?}, or detach this queue with follow: null");
            return Some(hint.into());
        }
        Refusal::PreconditionFailed { .. } => {
            "nothing was changed; read the object again (GET .../latest/{key}), and repeat the change on it"
        }
        Refusal::CountChanged { .. } => "look at the keys again before you repeat the call",
        Refusal::ImmutableConfig { .. } => "delete the queue first, or use another",
        Refusal::MassDelete { guard, .. } => match guard {
            DeletionGuard::Default(DefaultLimit::EmptyList) => {
                "if the source has ended, repeat the call with allow_empty=true"
            }
            DeletionGuard::Default(DefaultLimit::SingleObject) => {
                "send the whole list as an array, or repeat the call with max_delete_percent=100"
            }
            DeletionGuard::Set { .. } | DeletionGuard::Default(_) => {
                "if the list is complete, repeat the call with max_delete_percent=100"
            }
        },
        Refusal::WrongMode { call: "done", .. } => "settle with ack, which applies the deltas",
        _ => return None,
    }))
}

fn with_counts(problem: Problem, counts: ReplaceCounts) -> Problem {
    problem
        .with("replaced", counts.replaced)
        .with("deleted", counts.deleted)
        .with("unchanged", counts.unchanged)
        .with("skipped", counts.skipped)
        .with("taken_over", counts.taken_over)
        .with_some("stale", Some(counts.stale).filter(|stale| *stale > 0))
}
