//! Events as the JSON text of a journal row.

use deltaq_engine::event::{Appended, Event, EventKind, Leased, ReplaceEnded};
use deltaq_engine::object::Object;

use super::content::{LostObject, PastEvents};
use super::json::Json;
use super::names::Names;
use super::shared::{is_large, resolve_or_empty, share};
use crate::store::SharedText;

/// Adds an event to the text. If the row shares texts, a large object becomes a reference.
pub(super) fn encode(event: &Event, json: &mut Json, texts: Option<&mut Vec<SharedText>>) {
    match texts.filter(|_| event.kind.object().is_some_and(is_large)) {
        None => json.push_value(event),
        Some(texts) => {
            let mut event = event.clone();
            if let Some(object) = object_of(&mut event.kind) {
                share(object, texts);
            }
            json.push_value(&event);
        }
    }
}

fn object_of(kind: &mut EventKind) -> Option<&mut Object> {
    match kind {
        EventKind::Appended(Appended { object, .. })
        | EventKind::Refreshed { object, .. }
        | EventKind::Seeded { object, .. } => Some(object),
        _ => None,
    }
}

/// Approximate size of an event in bytes of text.
pub(crate) fn bytes_about(event: &Event) -> usize {
    const BESIDE: usize = 160;
    let error = match &event.kind {
        EventKind::Settled { ending, .. } => ending.error().map_or(0, |error| error.len()),
        _ => 0,
    };
    let by = event.by.as_ref().map_or(0, |by| by.len());
    BESIDE + event.kind.object().map_or(0, Object::bytes) + error + by
}

/// Reads an array of events that refer to `texts`.
pub(super) fn decode(text: &str, texts: &[SharedText], names: &mut Names) -> Result<PastEvents, String> {
    let mut events: Vec<Event> = serde_json::from_str(text).map_err(|error| format!("events: {error}"))?;
    let mut lost = Vec::new();
    for event in &mut events {
        share_names(&mut event.kind, names);
        names.share_some(event.by.as_mut());
        if let Some(object) = object_of(&mut event.kind) {
            let text = resolve_or_empty(object, texts)?;
            lost.extend(text.map(|text| LostObject { rv: event.rv, text }));
        }
    }
    Ok(PastEvents { events, lost })
}

/// Makes equal names in different events share memory. The replayed state of a million keys then holds the name of
/// their source only once.
fn share_names(kind: &mut EventKind, names: &mut Names) {
    match kind {
        EventKind::Appended(Appended { provenance, .. }) | EventKind::Refreshed { provenance, .. } => {
            names.share_provenance(provenance);
        }
        EventKind::TakenOver { owner, .. } => names.share(owner.as_mut()),
        EventKind::Leased(Leased { worker, charged, .. }) => {
            names.share_some(worker.as_mut().map(AsMut::as_mut));
            names.share_some(charged.as_mut().and_then(|charged| charged.group.as_mut()));
        }
        EventKind::Grouped { group, .. }
        | EventKind::GroupPaused { group }
        | EventKind::GroupResumed { group }
        | EventKind::GroupHeld { group, .. } => names.share_some(group.as_mut()),
        EventKind::Seeded { owner: Some(name), .. }
        | EventKind::ReplaceStarted { source: Some(name), .. }
        | EventKind::ReplaceEnded(ReplaceEnded { source: Some(name), .. }) => names.share(name.as_mut()),
        _ => {}
    }
}
