//! A run: some keys of a queue at a checkpoint, as a JSON array.

use std::borrow::Cow;
use std::sync::Arc;

use deltaq_engine::birth::Birth;
use deltaq_engine::delta::Delta;
use deltaq_engine::id::{Rv, Slot, Source};
use deltaq_engine::key::Key;
use deltaq_engine::known::Known;
use deltaq_engine::object::Object;
use deltaq_engine::omit::is_default;
use deltaq_engine::schedule::{Place, ScheduleState};
use deltaq_engine::snapshot::{KeyState, RemovedKey};
use serde::{Deserialize, Serialize};

use super::checksum;
use super::content::FORMAT;
use super::json::Json;
use super::names::Names;
use super::shared::{is_large, resolve, share};
use crate::store::{QueueId, RunRow, SharedText};

/// A run with this many entries is full.
const ENTRIES_MAX: usize = 128;

/// An entry of a run.
#[derive(Clone, Debug, PartialEq)]
pub enum RunEntry {
    /// A key and its slot in the queue's table.
    Key(Slot, KeyState),
    /// A key that was removed from its slot. Older events of the key must not be replayed.
    Removed(RemovedKey),
}

/// An entry as JSON.
#[derive(Debug, Serialize, Deserialize)]
struct Entry<'a> {
    /// The slot in the queue's table.
    slot: u32,
    /// The key.
    key: Cow<'a, Key>,
    /// The last event of the key that the entry contains, or the event that removed the key.
    rv: Rv,
    /// Whether the key was removed.
    #[serde(default, skip_serializing_if = "is_default")]
    removed: bool,
    /// The last acknowledged object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    known: Option<KnownObject<'a>>,
    /// The key's state in the schedule.
    #[serde(default, skip_serializing_if = "is_default")]
    schedule: Cow<'a, ScheduleState>,
    /// The event that last changed the key's newest object, unless it is [`newest_rv`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    latest_rv: Option<Rv>,
    /// The delta of the initial list that is not acknowledged yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    initial_pending: Option<Rv>,
    /// Deltas that are not leased, oldest first.
    #[serde(default, skip_serializing_if = "<[Delta]>::is_empty")]
    waiting: Cow<'a, [Delta]>,
    /// The name of the key's group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    group: Option<Cow<'a, Arc<str>>>,
    /// When the key entered the view that clients of Kubernetes read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    birth: Option<Birth>,
    /// Deltas that a worker holds, oldest first.
    #[serde(default, skip_serializing_if = "<[Delta]>::is_empty")]
    leased: Cow<'a, [Delta]>,
}

/// A known object as JSON.
#[derive(Debug, Serialize, Deserialize)]
struct KnownObject<'a> {
    /// The event that made the object known, which is an acknowledgement or a seed.
    rv: Rv,
    /// The object, as it was received, or a reference to it.
    object: Cow<'a, Object>,
    /// The owner of the key, as of this object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    owner: Option<Cow<'a, Source>>,
}

/// A run to which entries are added.
#[derive(Debug, Default)]
pub struct NewRun {
    json: Json,
    entries: usize,
    texts: Vec<SharedText>,
    text_bytes: usize,
}

impl NewRun {
    /// Adds a key at its slot. `shares` says whether the queue shares its large objects with others.
    pub fn add_key(&mut self, slot: Slot, state: &KeyState, shares: bool) {
        let KeyState {
            key,
            rv,
            known,
            waiting,
            leased,
            schedule_state,
            initial_pending,
            latest_rv,
            group,
            birth,
        } = state;
        let latest_rv = Some(*latest_rv).filter(|rv| *rv != newest_rv(known.as_ref(), waiting, leased));
        let earlier_texts = self.texts.len();
        let mut texts = shares.then_some(&mut self.texts);
        let known = known.as_ref().map(|known| KnownObject {
            rv: known.rv,
            object: with_reference(&known.object, texts.as_deref_mut()),
            owner: known.owner.as_ref().map(Cow::Borrowed),
        });
        let waiting = with_references(waiting, texts.as_deref_mut());
        let leased = with_references(leased, texts);
        let added = self.texts.get(earlier_texts..).unwrap_or_default();
        self.text_bytes += added.iter().map(|shared| shared.text.len()).sum::<usize>();
        self.push(&Entry {
            slot: slot.get(),
            key: Cow::Borrowed(key),
            rv: *rv,
            removed: false,
            known,
            schedule: Cow::Borrowed(schedule_state),
            latest_rv,
            initial_pending: *initial_pending,
            group: group.as_ref().map(Cow::Borrowed),
            birth: *birth,
            waiting,
            leased,
        });
    }

    /// Adds a key that was removed.
    pub fn add_removed(&mut self, removed: &RemovedKey) {
        self.push(&Entry {
            slot: removed.slot.get(),
            key: Cow::Borrowed(&removed.key),
            rv: removed.rv,
            removed: true,
            known: None,
            schedule: Cow::default(),
            latest_rv: None,
            initial_pending: None,
            group: None,
            birth: None,
            waiting: Cow::default(),
            leased: Cow::default(),
        });
    }

    fn push(&mut self, entry: &Entry<'_>) {
        self.json.push(if self.entries == 0 { "[" } else { "," });
        self.json.push_value(entry);
        self.entries += 1;
    }

    /// Whether there are no entries.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Whether the run should be closed, because it has many entries or at least this many bytes.
    #[must_use]
    pub fn is_full(&self, bytes: usize) -> bool {
        self.entries >= ENTRIES_MAX || self.json.len() + self.text_bytes >= bytes
    }

    /// The row of the run.
    #[must_use]
    pub fn close(self, queue: QueueId, number: u64) -> RunRow {
        let Self { mut json, texts, .. } = self;
        json.push("]");
        let entries = json.into_string();
        let mut row = RunRow { queue, number, format: FORMAT, texts, entries, checksum: 0 };
        row.checksum = checksum::of_run_row(&row);
        row
    }
}

/// The object or, if it is large and the row shares texts, a reference.
fn with_reference<'a>(object: &'a Object, texts: Option<&mut Vec<SharedText>>) -> Cow<'a, Object> {
    match texts.filter(|_| is_large(object)) {
        None => Cow::Borrowed(object),
        Some(texts) => {
            let mut object = object.clone();
            share(&mut object, texts);
            Cow::Owned(object)
        }
    }
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
fn newest_rv(known: Option<&Known>, waiting: &[Delta], leased: &[Delta]) -> Rv {
    let newest = waiting.last().or_else(|| leased.last()).map(|delta| delta.rv);
    newest.or_else(|| known.map(|known| known.rv)).unwrap_or_default()
}

/// Reads entries that refer to `texts`.
pub(super) fn decode(json: &str, texts: &[SharedText], names: &mut Names) -> Result<Vec<RunEntry>, String> {
    let entries: Vec<Entry<'static>> = serde_json::from_str(json).map_err(|error| error.to_string())?;
    if entries.is_empty() {
        return Err("it has no entries".to_owned());
    }
    entries.into_iter().map(|entry| read(entry, texts, names)).collect()
}

fn read(entry: Entry<'static>, texts: &[SharedText], names: &mut Names) -> Result<RunEntry, String> {
    let (slot, key) = (Slot::new(entry.slot), entry.key.into_owned());
    if entry.removed {
        return Ok(RunEntry::Removed(RemovedKey { key, slot, rv: entry.rv }));
    }
    let of_key = |reason: String| format!("key {:?}: {reason}", key.as_str());
    let known = entry.known.map(|known| {
        let mut object = known.object.into_owned();
        resolve(&mut object, texts).map_err(|reason| of_key(format!("known: {reason}")))?;
        let mut owner = known.owner.map(Cow::into_owned);
        names.share_some(owner.as_mut().map(AsMut::as_mut));
        Ok::<_, String>(Known { object, rv: known.rv, owner })
    });
    let known = known.transpose()?;
    let mut schedule_state = entry.schedule.into_owned();
    if let Place::Leased(lease) = &mut schedule_state.place {
        names.share_some(lease.worker.as_mut().map(AsMut::as_mut));
    }
    let (mut waiting, mut leased) = (entry.waiting.into_owned(), entry.leased.into_owned());
    for delta in waiting.iter_mut().chain(&mut leased) {
        names.share_provenance(&mut delta.provenance);
        resolve(&mut delta.object, texts).map_err(of_key)?;
    }
    let latest_rv = entry.latest_rv.unwrap_or_else(|| newest_rv(known.as_ref(), &waiting, &leased));
    let (rv, initial_pending, birth) = (entry.rv, entry.initial_pending, entry.birth);
    let mut group = entry.group.map(Cow::into_owned);
    names.share_some(group.as_mut());
    let state = KeyState {
        key,
        rv,
        latest_rv,
        known,
        waiting,
        leased,
        schedule_state,
        initial_pending,
        group,
        birth,
    };
    Ok(RunEntry::Key(slot, state))
}
