//! The state of a key without its known object, as JSON.

use std::borrow::Cow;

use deltaq_engine::delta::Delta;
use deltaq_engine::id::Rv;
use deltaq_engine::known::Known;
use deltaq_engine::schedule::{Place, ScheduleState};
use deltaq_engine::snapshot::KeyState;
use serde::{Deserialize, Serialize};

use super::json::Json;
use super::names::Names;
use super::shared::{is_large, resolve, share};
use crate::store::SharedText;

/// A [`KeyState`] without the key, its `rv` and its known object, which have their own columns. A key without an item
/// has the defaults.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Item<'a> {
    /// The key's state in the schedule.
    pub(super) schedule: Cow<'a, ScheduleState>,
    /// The event that last changed the key's newest object, unless it is [`newest_rv`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) latest_rv: Option<Rv>,
    /// The delta of the initial list that is not acknowledged yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) initial_pending: Option<Rv>,
    /// Deltas that are not leased, oldest first.
    #[serde(default, skip_serializing_if = "<[Delta]>::is_empty")]
    pub(super) waiting: Cow<'a, [Delta]>,
    /// Deltas that a worker holds, oldest first.
    #[serde(default, skip_serializing_if = "<[Delta]>::is_empty")]
    pub(super) leased: Cow<'a, [Delta]>,
}

/// The item of a key; none if all its fields have their defaults. If the row shares texts, large objects become
/// references.
pub(super) fn encode(state: &KeyState, mut texts: Option<&mut Vec<SharedText>>) -> Option<String> {
    let KeyState { key: _, rv: _, known, waiting, leased, schedule_state, initial_pending, latest_rv } =
        state;
    let latest_rv = Some(*latest_rv).filter(|rv| *rv != newest_rv(known.as_ref(), waiting, leased));
    if latest_rv.is_none()
        && initial_pending.is_none()
        && waiting.is_empty()
        && leased.is_empty()
        && *schedule_state == ScheduleState::default()
    {
        return None;
    }
    let waiting = with_references(waiting, texts.as_deref_mut());
    let leased = with_references(leased, texts);
    let mut json = Json::with_capacity(ITEM_BYTES + deltas_bytes(&waiting) + deltas_bytes(&leased));
    json.push_value(&Item {
        schedule: Cow::Borrowed(schedule_state),
        latest_rv,
        initial_pending: *initial_pending,
        waiting,
        leased,
    });
    Some(json.into_string())
}

/// The deltas with a reference for each large object, if the row shares texts.
fn with_references<'a>(deltas: &'a [Delta], texts: Option<&mut Vec<SharedText>>) -> Cow<'a, [Delta]> {
    match texts.filter(|_| deltas.iter().any(|delta| is_large(&delta.object))) {
        None => deltas.into(),
        Some(texts) => {
            let mut deltas = deltas.to_owned();
            for delta in &mut deltas {
                share(&mut delta.object, texts);
            }
            deltas.into()
        }
    }
}

/// The event that queued the key's newest delta or, for a key without deltas, that made its object known.
pub(super) fn newest_rv(known: Option<&Known>, waiting: &[Delta], leased: &[Delta]) -> Rv {
    let newest = waiting.last().or_else(|| leased.last()).map(|delta| delta.rv);
    newest.or_else(|| known.map(|known| known.rv)).unwrap_or_default()
}

/// Approximate size of an item or a delta without objects, in bytes of text.
const ITEM_BYTES: usize = 128;

fn deltas_bytes(deltas: &[Delta]) -> usize {
    deltas.iter().map(|delta| ITEM_BYTES + delta.object.bytes()).sum()
}

/// Reads an item that refers to `texts`.
pub(super) fn decode(text: &str, texts: &[SharedText], names: &mut Names) -> Result<Item<'static>, String> {
    let item: Item<'static> = serde_json::from_str(text).map_err(|error| format!("item: {error}"))?;
    let mut schedule = item.schedule.into_owned();
    if let Place::Leased(lease) = &mut schedule.place {
        names.share_some(lease.worker.as_mut().map(AsMut::as_mut));
    }
    let (mut waiting, mut leased) = (item.waiting.into_owned(), item.leased.into_owned());
    for delta in waiting.iter_mut().chain(&mut leased) {
        names.share_provenance(&mut delta.provenance);
        resolve(&mut delta.object, texts)?;
    }
    let (schedule, waiting, leased) = (Cow::Owned(schedule), Cow::Owned(waiting), Cow::Owned(leased));
    Ok(Item { schedule, latest_rv: item.latest_rv, initial_pending: item.initial_pending, waiting, leased })
}
