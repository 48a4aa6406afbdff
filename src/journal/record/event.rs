//! Events as JSON: one flat object for each, with the members that its type has.
//!
//! It is one struct for all types, so that a member means the same wherever it stands, and so that
//! reading needs no copy of the text: objects and names are taken from where they are in the row.

use std::fmt;
use std::sync::Arc;

use serde::de::{self, DeserializeSeed, Deserializer, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::config::WireConfig;
use super::json::{DeltaName, Json, Text, is_default, need, object_of};
use super::names::{Names, Owner, Traceparent};
use super::queue::WireCounts;
use crate::engine::delta::Rv;
use crate::engine::event::{Disposition, Ending, Event, EventKind, Origin};
use crate::engine::key::Key;
use crate::engine::object::Object;
use crate::engine::time::Time;

/// Mirrors [`Event`]. The object comes last, so that what is short can be seen before what is long.
#[derive(Debug, Serialize, Deserialize)]
struct WireEvent<'a> {
    rv: Rv,
    at: u64,
    #[serde(rename = "type")]
    kind: Kind,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    key: Option<Text<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delta: Option<DeltaName>,
    #[serde(default, skip_serializing_if = "is_default")]
    final_state_unknown: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    origin: OriginWord,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<Text<'a>>,
    #[serde(default, skip_serializing_if = "Owner::is_source")]
    owner: Owner<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    traceparent: Option<Traceparent>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<Rv>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ending: Option<EndingWord>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Text<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    then: Option<ThenWord>,
    #[serde(skip_serializing_if = "Option::is_none")]
    due: Option<u64>,
    #[serde(default, skip_serializing_if = "is_default")]
    rate_limited: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    deadline: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    worker: Option<Text<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pop_id: Option<Text<'a>>,
    #[serde(default, skip_serializing_if = "is_default")]
    first: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    aborted: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    counts: Option<WireCounts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    config: Option<Box<WireConfig<'a>>>,
    #[serde(skip_serializing)]
    object: Option<&'a RawValue>,
}

/// Names the variants of [`EventKind`].
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Appended,
    Queued,
    Failed,
    Dropped,
    TakenOver,
    Leased,
    Extended,
    Settled,
    #[serde(rename = "fired")]
    DelayElapsed,
    Forgotten,
    Redriven,
    Removed,
    Seeded,
    Populated,
    Configured,
    Paused,
    Resumed,
    Closed,
    Reopened,
    ResyncDue,
    Recovered,
    ReplaceStarted,
    ReplaceEnded,
}

/// Mirrors [`Origin`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum OriginWord {
    #[default]
    Call,
    Replace,
    InitialReplace,
    Resync,
}

/// Names the variants of [`Ending`]; a failure is `nacked` or `expired`.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum EndingWord {
    Acked,
    Done,
    Nacked,
    Expired,
    Released,
    Rejected,
    #[serde(rename = "returned")]
    Undelivered,
}

/// Names the variants of [`Disposition`].
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ThenWord {
    Tail,
    Wait,
    Delayed,
    Park,
}

/// Adds an event to the text.
pub(super) fn encode(event: &Event, json: &mut Json) {
    json.push_with_object(&WireEvent::of(event), object(&event.kind));
}

/// About how many bytes of text an event takes.
pub(in crate::journal) fn bytes_about(event: &Event) -> usize {
    const BESIDE: usize = 160;
    let error = match &event.kind {
        EventKind::Settled { ending: Ending::Failed { error, .. } | Ending::Rejected { error }, .. } => {
            error.as_ref()
        }
        _ => None,
    };
    BESIDE + object(&event.kind).map_or(0, Object::bytes) + error.map_or(0, |error| error.len())
}

/// Reads an array of events.
pub(super) fn decode(text: &str, names: &mut Names) -> Result<Vec<Event>, String> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let events = Array { names }.deserialize(&mut reader);
    let events = events.and_then(|events| reader.end().map(|()| events));
    events.map_err(|error| format!("events: {error}"))
}

/// An array of events, turned into the engine's one by one.
struct Array<'n> {
    names: &'n mut Names,
}

impl<'de> DeserializeSeed<'de> for Array<'_> {
    type Value = Vec<Event>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Array<'_> {
    type Value = Vec<Event>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of events")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<Self::Value, A::Error> {
        let mut events = Vec::new();
        while let Some(wire) = array.next_element::<WireEvent<'de>>()? {
            let (rv, at) = (wire.rv, Time::from_micros(wire.at));
            match wire.what(self.names) {
                Ok(kind) => events.push(Event { rv, at, kind }),
                Err(reason) => return Err(de::Error::custom(format_args!("event {rv}: {reason}"))),
            }
        }
        Ok(events)
    }
}

/// The object that an event carries.
fn object(what: &EventKind) -> Option<&Object> {
    match what {
        EventKind::Appended { object, .. } | EventKind::Seeded { object, .. } => Some(object),
        _ => None,
    }
}

impl<'a> WireEvent<'a> {
    fn of(event: &'a Event) -> Self {
        let new = |kind| Self::new(event, kind);
        let keyed = |kind, key: &'a Key| Self { key: Some(Text::of(key.as_str())), ..new(kind) };
        match &event.kind {
            EventKind::Appended { .. } => Self::appended(event, new(Kind::Appended)),
            EventKind::Queued { key, due, rate_limited } => Self {
                due: due.map(Time::as_micros),
                rate_limited: *rate_limited,
                ..keyed(Kind::Queued, key)
            },
            EventKind::Failed { key } => keyed(Kind::Failed, key),
            EventKind::Dropped { key, origin } => {
                Self { origin: OriginWord::of(*origin), ..keyed(Kind::Dropped, key) }
            }
            EventKind::TakenOver { key, owner } => {
                Self { owner: Owner::of(Some(owner), None), ..keyed(Kind::TakenOver, key) }
            }
            EventKind::Leased { key, deadline, worker, pop_id } => Self {
                deadline: Some(deadline.as_micros()),
                worker: worker.as_deref().map(Text::of),
                pop_id: pop_id.as_deref().map(Text::of),
                ..keyed(Kind::Leased, key)
            },
            EventKind::Extended { key, deadline } => {
                Self { deadline: Some(deadline.as_micros()), ..keyed(Kind::Extended, key) }
            }
            EventKind::Settled { key, token, ending } => {
                Self { token: Some(*token), ..keyed(Kind::Settled, key) }.with_ending(ending)
            }
            EventKind::DelayElapsed { key } => keyed(Kind::DelayElapsed, key),
            EventKind::Forgotten { key } => keyed(Kind::Forgotten, key),
            EventKind::Redriven { key } => keyed(Kind::Redriven, key),
            EventKind::Removed { key } => keyed(Kind::Removed, key),
            EventKind::Seeded { key, object: _, owner } => {
                Self { owner: Owner::of(owner.as_ref(), None), ..keyed(Kind::Seeded, key) }
            }
            EventKind::Populated => new(Kind::Populated),
            EventKind::Configured { config } => {
                Self { config: Some(Box::new(WireConfig::of(config))), ..new(Kind::Configured) }
            }
            EventKind::Paused => new(Kind::Paused),
            EventKind::Resumed => new(Kind::Resumed),
            EventKind::Closed => new(Kind::Closed),
            EventKind::Reopened => new(Kind::Reopened),
            EventKind::ResyncDue => new(Kind::ResyncDue),
            EventKind::Recovered => new(Kind::Recovered),
            EventKind::ReplaceStarted { source, first } => {
                Self { source: source.as_deref().map(Text::of), first: *first, ..new(Kind::ReplaceStarted) }
            }
            EventKind::ReplaceEnded { source, first, counts, aborted } => Self {
                source: source.as_deref().map(Text::of),
                first: *first,
                counts: Some(WireCounts::of(*counts)),
                aborted: *aborted,
                ..new(Kind::ReplaceEnded)
            },
        }
    }

    fn new(event: &Event, kind: Kind) -> Self {
        Self {
            rv: event.rv,
            at: event.at.as_micros(),
            kind,
            key: None,
            delta: None,
            final_state_unknown: false,
            origin: OriginWord::Call,
            source: None,
            owner: Owner::Source,
            traceparent: None,
            token: None,
            ending: None,
            error: None,
            then: None,
            due: None,
            rate_limited: false,
            deadline: None,
            worker: None,
            pop_id: None,
            first: false,
            aborted: false,
            counts: None,
            config: None,
            object: None,
        }
    }

    fn appended(event: &'a Event, new: Self) -> Self {
        let EventKind::Appended {
            key,
            kind,
            object: _,
            source,
            owner,
            final_state_unknown,
            due,
            origin,
            trace,
        } = &event.kind
        else {
            return new;
        };
        Self {
            key: Some(Text::of(key.as_str())),
            delta: Some(DeltaName(*kind)),
            source: source.as_deref().map(Text::of),
            owner: Owner::of(owner.as_ref(), source.as_ref()),
            final_state_unknown: *final_state_unknown,
            due: due.map(Time::as_micros),
            origin: OriginWord::of(*origin),
            traceparent: trace.as_deref().map(Traceparent::of),
            ..new
        }
    }

    fn with_ending(mut self, ending: &'a Ending) -> Self {
        self.ending = Some(match ending {
            Ending::Acked => EndingWord::Acked,
            Ending::Done => EndingWord::Done,
            Ending::Failed { expired: false, .. } => EndingWord::Nacked,
            Ending::Failed { expired: true, .. } => EndingWord::Expired,
            Ending::Released => EndingWord::Released,
            Ending::Rejected { .. } => EndingWord::Rejected,
            Ending::Undelivered => EndingWord::Undelivered,
        });
        if let Ending::Failed { expired: _, error, then, rate_limited } = ending {
            let (then, due) = match then {
                Disposition::Tail { due } => (ThenWord::Tail, *due),
                Disposition::Wait { due } => (ThenWord::Wait, Some(*due)),
                Disposition::Delayed => (ThenWord::Delayed, None),
                Disposition::Park => (ThenWord::Park, None),
            };
            self.error = error.as_deref().map(Text::of);
            self.then = Some(then);
            self.due = due.map(Time::as_micros);
            self.rate_limited = *rate_limited;
        } else if let Ending::Rejected { error } = ending {
            self.error = error.as_deref().map(Text::of);
        }
        self
    }

    fn what(&self, names: &mut Names) -> Result<EventKind, String> {
        Ok(match self.kind {
            Kind::Appended => {
                let source = names.share_some(self.source.as_ref());
                EventKind::Appended {
                    key: self.key()?,
                    kind: need(self.delta, "delta")?.0,
                    object: object_of(self.object)?,
                    owner: self.owner.read(source.as_ref(), names),
                    source,
                    final_state_unknown: self.final_state_unknown,
                    due: self.due.map(Time::from_micros),
                    origin: self.origin.read(),
                    trace: self.traceparent.map(|traceparent| traceparent.read(names)),
                }
            }
            Kind::Queued => EventKind::Queued {
                key: self.key()?,
                due: self.due.map(Time::from_micros),
                rate_limited: self.rate_limited,
            },
            Kind::Failed => EventKind::Failed { key: self.key()? },
            Kind::Dropped => EventKind::Dropped { key: self.key()?, origin: self.origin.read() },
            Kind::TakenOver => {
                EventKind::TakenOver { key: self.key()?, owner: need(self.owner.read(None, names), "owner")? }
            }
            Kind::Leased => EventKind::Leased {
                key: self.key()?,
                deadline: self.deadline()?,
                worker: names.share_some(self.worker.as_ref()),
                pop_id: names.share_some(self.pop_id.as_ref()),
            },
            Kind::Extended => EventKind::Extended { key: self.key()?, deadline: self.deadline()? },
            Kind::Settled => {
                let (key, token) = (self.key()?, need(self.token, "token")?);
                EventKind::Settled { key, token, ending: self.ending()? }
            }
            Kind::DelayElapsed => EventKind::DelayElapsed { key: self.key()? },
            Kind::Forgotten => EventKind::Forgotten { key: self.key()? },
            Kind::Redriven => EventKind::Redriven { key: self.key()? },
            Kind::Removed => EventKind::Removed { key: self.key()? },
            Kind::Seeded => EventKind::Seeded {
                key: self.key()?,
                object: object_of(self.object)?,
                owner: self.owner.read(None, names),
            },
            _ => return self.what_of_queue(names),
        })
    }

    /// What the event says, if it is about no key.
    fn what_of_queue(&self, names: &mut Names) -> Result<EventKind, String> {
        Ok(match self.kind {
            Kind::Populated => EventKind::Populated,
            Kind::Configured => {
                EventKind::Configured { config: Arc::new(need(self.config.as_ref(), "config")?.read()?) }
            }
            Kind::Paused => EventKind::Paused,
            Kind::Resumed => EventKind::Resumed,
            Kind::Closed => EventKind::Closed,
            Kind::Reopened => EventKind::Reopened,
            Kind::ResyncDue => EventKind::ResyncDue,
            Kind::Recovered => EventKind::Recovered,
            Kind::ReplaceStarted => EventKind::ReplaceStarted {
                source: names.share_some(self.source.as_ref()),
                first: self.first,
            },
            Kind::ReplaceEnded => EventKind::ReplaceEnded {
                source: names.share_some(self.source.as_ref()),
                first: self.first,
                counts: need(self.counts, "counts")?.read(),
                aborted: self.aborted,
            },
            keyed => return Err(format!("{keyed:?} is about a key")),
        })
    }

    fn key(&self) -> Result<Key, String> {
        Key::new(need(self.key.as_ref(), "key")?.as_str()).map_err(|error| error.to_string())
    }

    fn deadline(&self) -> Result<Time, String> {
        need(self.deadline, "deadline").map(Time::from_micros)
    }

    fn ending(&self) -> Result<Ending, String> {
        let error = || self.error.as_ref().map(|error| error.as_str().into());
        let failed = |expired| -> Result<Ending, String> {
            let (then, rate_limited) = (self.then()?, self.rate_limited);
            Ok(Ending::Failed { expired, error: error(), then, rate_limited })
        };
        Ok(match need(self.ending, "ending")? {
            EndingWord::Acked => Ending::Acked,
            EndingWord::Done => Ending::Done,
            EndingWord::Nacked => failed(false)?,
            EndingWord::Expired => failed(true)?,
            EndingWord::Released => Ending::Released,
            EndingWord::Rejected => Ending::Rejected { error: error() },
            EndingWord::Undelivered => Ending::Undelivered,
        })
    }

    fn then(&self) -> Result<Disposition, String> {
        let due = self.due.map(Time::from_micros);
        Ok(match need(self.then, "then")? {
            ThenWord::Tail => Disposition::Tail { due },
            ThenWord::Wait => Disposition::Wait { due: need(due, "due")? },
            ThenWord::Delayed => Disposition::Delayed,
            ThenWord::Park => Disposition::Park,
        })
    }
}

impl OriginWord {
    const fn of(origin: Origin) -> Self {
        match origin {
            Origin::Call => Self::Call,
            Origin::Replace { initial: false } => Self::Replace,
            Origin::Replace { initial: true } => Self::InitialReplace,
            Origin::Resync => Self::Resync,
        }
    }

    const fn read(self) -> Origin {
        match self {
            Self::Call => Origin::Call,
            Self::Replace => Origin::Replace { initial: false },
            Self::InitialReplace => Origin::Replace { initial: true },
            Self::Resync => Origin::Resync,
        }
    }
}
