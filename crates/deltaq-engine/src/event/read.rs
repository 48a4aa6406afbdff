//! Reading an event from its JSON.

use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::value::{BorrowedStrDeserializer, MapAccessDeserializer};
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, Visitor};

use super::{Event, EventKind, ViewChanges};
use crate::id::Sequence;

/// Reads the envelope by hand, because a derived `flatten` would copy every payload into a tree first.
impl<'de> Deserialize<'de> for Event {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(EventVisitor)
    }
}

struct EventVisitor;

impl<'de> Visitor<'de> for EventVisitor {
    type Value = Event;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an event: an object that begins with `rv`, `at` and `type`")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Event, A::Error> {
        let rv = first_field(&mut map, "rv")?;
        let named = |error: A::Error| de::Error::custom(format_args!("event {rv}: {error}"));
        let at = first_field(&mut map, "at").map_err(named)?;
        let (mut views, mut sequence, mut by) = (ViewChanges::default(), None, None);
        let rest = BesideEnvelope { map, views: &mut views, sequence: &mut sequence, by: &mut by };
        let kind = EventKind::deserialize(MapAccessDeserializer::new(rest)).map_err(named)?;
        Ok(Event { rv, at, kind, views, sequence, by })
    }
}

/// The fields of an event's kind, without the optional fields of the envelope.
struct BesideEnvelope<'e, A> {
    map: A,
    views: &'e mut ViewChanges,
    sequence: &'e mut Option<Sequence>,
    by: &'e mut Option<Arc<str>>,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for BesideEnvelope<'_, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        while let Some(name) = self.map.next_key::<&str>()? {
            match name {
                "latest" => self.views.latest = Some(self.map.next_value()?),
                "known" => self.views.known = Some(self.map.next_value()?),
                "birth" => self.views.birth = Some(self.map.next_value()?),
                "sequence" => *self.sequence = Some(self.map.next_value()?),
                "by" => *self.by = Some(self.map.next_value()?),
                name => return seed.deserialize(BorrowedStrDeserializer::new(name)).map(Some),
            }
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.map.next_value_seed(seed)
    }
}

/// Reads the next field, which must have this name.
fn first_field<'de, A: MapAccess<'de>, T: Deserialize<'de>>(
    map: &mut A,
    name: &'static str,
) -> Result<T, A::Error> {
    match map.next_key::<&str>()? {
        Some(found) if found == name => map.next_value(),
        _ => Err(de::Error::missing_field(name)),
    }
}
