//! Changes that are sent in one call.

use std::pin::Pin;

use deltaq_types::{DeltaCall, DeltaCallType};
use futures_util::FutureExt as _;
use futures_util::stream::{Peekable, Stream};

use super::{Event, ReflectorError};

/// Maximum number of bytes of objects in a batch, unless a single object has more.
const BYTES_MAX: usize = 4 << 20;

/// Changes in the order of the source. None of them is an event of a list.
#[derive(Debug)]
pub(super) struct Batch {
    changes: Vec<Event>,
    bytes: usize,
}

impl Batch {
    /// Collects a change and the changes after it that are ready. The first other event stays in the stream.
    pub(super) fn collect<S>(first: Event, mut events: Pin<&mut Peekable<S>>, changes_max: usize) -> Self
    where
        S: Stream<Item = Result<Event, ReflectorError>>,
    {
        let mut batch = Self { bytes: bytes(&first), changes: vec![first] };
        while batch.changes.len() < changes_max && batch.bytes < BYTES_MAX {
            let next = events.as_mut().next_if(|event| event.as_ref().is_ok_and(is_change));
            let Some(Some(Ok(change))) = next.now_or_never() else { break };
            batch.bytes += bytes(&change);
            batch.changes.push(change);
        }
        batch
    }

    /// The number of changes.
    pub(super) const fn len(&self) -> usize {
        self.changes.len()
    }

    /// The number of objects that are new or have changed.
    pub(super) fn applied(&self) -> u64 {
        self.changes.iter().filter(|change| matches!(change, Event::Apply(_))).count() as u64
    }

    /// The changes as entries of a call.
    pub(super) fn deltas(&self) -> Vec<DeltaCall<'_>> {
        self.changes.iter().map(delta).collect()
    }
}

fn is_change(event: &Event) -> bool {
    matches!(event, Event::Apply(_) | Event::Delete(_) | Event::DeleteKey(_))
}

fn bytes(change: &Event) -> usize {
    match change {
        Event::Apply(object) | Event::Delete(object) => object.get().len(),
        Event::DeleteKey(key) => key.len(),
        Event::Init | Event::InitApply(_) | Event::InitDone => 0,
    }
}

fn delta(change: &Event) -> DeltaCall<'_> {
    let (kind, key, object) = match change {
        Event::Apply(object) => (DeltaCallType::Updated, None, Some(object)),
        Event::DeleteKey(key) => (DeltaCallType::Deleted, Some(key.clone()), None),
        Event::Delete(object) | Event::InitApply(object) => (DeltaCallType::Deleted, None, Some(object)),
        Event::Init | Event::InitDone => (DeltaCallType::Deleted, None, None),
    };
    let object = object.map(AsRef::as_ref);
    DeltaCall {
        kind,
        key,
        object,
        source: None,
        delay: None,
        debounce: None,
        head_start: None,
        max_wait: None,
        final_state_unknown: false,
        expected_version: None,
    }
}
