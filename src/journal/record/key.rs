//! All of a key but its known object, as JSON.

use std::borrow::Cow;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::json::{Json, Text, is_default, micros, need};
use super::names::Names;
use crate::engine::delta::{Delta, Rv};
use crate::engine::schedule::{Backoff, Delay, Lease, Place, ReadyPosition, ScheduleState};
use crate::engine::snapshot::KeyState;
use crate::engine::time::Time;

/// Mirrors what [`KeyState`] has beside the key, its `rv` and the known object, which have columns.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct WireItem<'a> {
    place: PlaceWord,
    /// Ready keys only.
    #[serde(skip_serializing_if = "Option::is_none")]
    turn: Option<WireTurn>,
    /// Leased keys only.
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    lease: Option<WireLease<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay: Option<WireDelay>,
    #[serde(default, skip_serializing_if = "is_default")]
    failures: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    attempt: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<Text<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<WireMemory>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mark: Option<Rv>,
    #[serde(default, skip_serializing_if = "is_empty")]
    waiting: Cow<'a, [Delta]>,
    #[serde(default, skip_serializing_if = "is_empty")]
    leased: Cow<'a, [Delta]>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum PlaceWord {
    Idle,
    Ready,
    Leased,
    Parked,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct WireTurn {
    rv: Rv,
    since: u64,
    /// Left out where it is `since`.
    #[serde(skip_serializing_if = "Option::is_none")]
    added: Option<u64>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct WireDelay {
    due: u64,
    rv: Rv,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct WireMemory {
    until: u64,
    rv: Rv,
}

#[derive(Debug, Serialize, Deserialize)]
struct WireLease<'a> {
    token: Rv,
    since: u64,
    deadline: u64,
    length_us: u64,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    worker: Option<Text<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pop_id: Option<Text<'a>>,
    former: WireTurn,
    #[serde(skip_serializing_if = "Option::is_none")]
    dropped_delay: Option<WireDelay>,
    #[serde(skip_serializing_if = "Option::is_none")]
    news: Option<u64>,
}

fn is_empty(deltas: &Cow<'_, [Delta]>) -> bool {
    deltas.is_empty()
}

/// The item of a key; none if all of it is at its default.
pub(super) fn encode(state: &KeyState) -> Option<String> {
    let KeyState { key: _, rv: _, known: _, waiting, leased, schedule_state, initial_pending: mark } = state;
    if mark.is_none()
        && waiting.is_empty()
        && leased.is_empty()
        && *schedule_state == ScheduleState::default()
    {
        return None;
    }
    let mut json = Json::with_capacity(ITEM_BYTES + deltas_bytes(waiting) + deltas_bytes(leased));
    json.push_value(&WireItem {
        waiting: waiting.into(),
        leased: leased.into(),
        ..WireItem::of(schedule_state, *mark)
    });
    Some(json.into_string())
}

/// About how many bytes of text an item or a delta takes, without objects.
const ITEM_BYTES: usize = 128;

fn deltas_bytes(deltas: &[Delta]) -> usize {
    deltas.iter().map(|delta| ITEM_BYTES + delta.object.bytes()).sum()
}

/// The parts of a key that an item tells; all at their defaults without one.
#[derive(Default)]
pub(super) struct Item {
    /// Deltas that are not handed out.
    pub(super) waiting: Vec<Delta>,
    /// Deltas in the hands of a worker.
    pub(super) leased: Vec<Delta>,
    /// Where the key stands in the schedule.
    pub(super) schedule_state: ScheduleState,
    /// The delta of the initial list.
    pub(super) mark: Option<Rv>,
}

/// Reads an item.
pub(super) fn decode(text: &str, names: &mut Names) -> Result<Item, String> {
    let wire: WireItem<'_> = serde_json::from_str(text).map_err(|error| format!("item: {error}"))?;
    let schedule_state = wire.schedule_state(names)?;
    let (mut waiting, mut leased) = (wire.waiting.into_owned(), wire.leased.into_owned());
    waiting.iter_mut().chain(&mut leased).for_each(|delta| names.share_provenance(&mut delta.provenance));
    Ok(Item { waiting, leased, schedule_state, mark: wire.mark })
}

impl<'a> WireItem<'a> {
    fn of(schedule_state: &'a ScheduleState, mark: Option<Rv>) -> Self {
        let Backoff { delay, last_error, failure_expiry: memory } = schedule_state.backoff();
        let (place, turn, lease) = match &schedule_state.place {
            Place::Idle => (PlaceWord::Idle, None, None),
            Place::Ready(turn) => (PlaceWord::Ready, Some(WireTurn::of(*turn)), None),
            Place::Leased(lease) => (PlaceWord::Leased, None, Some(WireLease::of(lease))),
            Place::Parked => (PlaceWord::Parked, None, None),
        };
        Self {
            place,
            turn,
            lease,
            delay: delay.map(WireDelay::of),
            failures: schedule_state.failures,
            attempt: schedule_state.attempt,
            last_error: last_error.as_deref().map(Text::of),
            memory: memory.map(|(until, rv)| WireMemory { until: until.as_micros(), rv }),
            mark,
            waiting: Cow::default(),
            leased: Cow::default(),
        }
    }

    fn schedule_state(&self, names: &mut Names) -> Result<ScheduleState, String> {
        let place = match self.place {
            PlaceWord::Idle => Place::Idle,
            PlaceWord::Ready => Place::Ready(need(self.turn, "turn")?.read()),
            PlaceWord::Leased => Place::Leased(Box::new(need(self.lease.as_ref(), "lease")?.read(names))),
            PlaceWord::Parked => Place::Parked,
        };
        let backoff = Backoff {
            delay: self.delay.map(WireDelay::read),
            last_error: self.last_error.as_ref().map(|error| error.as_str().into()),
            failure_expiry: self.memory.map(|memory| (Time::from_micros(memory.until), memory.rv)),
        };
        Ok(ScheduleState::new(place, self.failures, self.attempt, backoff))
    }
}

impl WireTurn {
    fn of(turn: ReadyPosition) -> Self {
        let ReadyPosition { rv, since, added } = turn;
        Self { rv, since: since.as_micros(), added: (added != since).then_some(added.as_micros()) }
    }

    fn read(self) -> ReadyPosition {
        let added = Time::from_micros(self.added.unwrap_or(self.since));
        ReadyPosition { rv: self.rv, since: Time::from_micros(self.since), added }
    }
}

impl WireDelay {
    fn of(delay: Delay) -> Self {
        Self { due: delay.due.as_micros(), rv: delay.rv }
    }

    fn read(self) -> Delay {
        Delay { due: Time::from_micros(self.due), rv: self.rv }
    }
}

impl<'a> WireLease<'a> {
    fn of(lease: &'a Lease) -> Self {
        Self {
            token: lease.token,
            since: lease.since.as_micros(),
            deadline: lease.deadline.as_micros(),
            length_us: micros(lease.length),
            worker: lease.worker.as_deref().map(Text::of),
            pop_id: lease.pop_id.as_deref().map(Text::of),
            former: WireTurn::of(lease.former),
            dropped_delay: lease.dropped_delay.map(WireDelay::of),
            news: lease.new_change.map(Time::as_micros),
        }
    }

    fn read(&self, names: &mut Names) -> Lease {
        Lease {
            token: self.token,
            deadline: Time::from_micros(self.deadline),
            since: Time::from_micros(self.since),
            length: Duration::from_micros(self.length_us),
            worker: names.shared(self.worker.as_ref()),
            pop_id: self.pop_id.as_ref().map(|id| id.as_str().into()),
            former: self.former.read(),
            dropped_delay: self.dropped_delay.map(WireDelay::read),
            new_change: self.news.map(Time::from_micros),
        }
    }
}
