//! What a caller can do about a refusal.

use std::borrow::Cow;

use deltaq_engine::command::{DefaultLimit, DeletionGuard};
use deltaq_engine::refusal::Refusal;

use super::REPEAT;

/// The hint if the queues hold as much memory as they may.
pub(super) const MAKE_ROOM: &str =
    "let workers drain queues, delete keys or queues, or raise queues.max_held_bytes";

/// The hint for a refusal of the engine, in terms of the API.
pub(super) fn hint_of(refusal: &Refusal) -> Option<Cow<'static, str>> {
    Some(Cow::Borrowed(match refusal {
        Refusal::TooManySequences { .. } => "leave sequence out",
        Refusal::TooManyReplaces { .. } | Refusal::SequenceBusy { .. } | Refusal::ConfigChanged => REPEAT,
        Refusal::Follower { follows } => {
            let hint = format!("send the call to {follows:?}, or detach this queue with follow: null");
            return Some(hint.into());
        }
        Refusal::MemoryFull { .. } => MAKE_ROOM,
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
