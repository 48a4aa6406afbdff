//! Indexes beside the random commands: built in small slices, and compared with a naive search through all known objects.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;

use deltaq_engine::Queue;
use deltaq_engine::index_settings::IndexSettings;
use deltaq_engine::indexes::NoIndex;
use deltaq_engine::room::Room;
use fastrand::Rng;
use serde_json::value::RawValue;

use super::Hits;
use super::same::same;
use super::world::Difference;

/// Settings that replace each other: other names, other pointers of the same name, and none.
const SETTINGS: [&[(&str, &str)]; 4] = [
    &[],
    &[("v", "/v")],
    &[("v", "/v"), ("w", "/w"), ("x", "/v/x")],
    &[("first", "/w/0"), ("nowhere", "/v/0/1"), ("v", "/w"), ("w", "/w")],
];

/// The settings with this number.
pub(super) fn settings(number: u8) -> IndexSettings {
    let settings = SETTINGS[usize::from(number) % SETTINGS.len()];
    IndexSettings::new(settings.iter().copied()).expect("the settings are valid")
}

/// The keys of each value.
type Naive = BTreeMap<String, Vec<String>>;

#[derive(Debug, Default)]
pub(super) struct Indexes {
    pub(super) hits: Hits,
}

impl Indexes {
    /// Builds a part of the indexes, and queries those that are complete.
    pub(super) fn step(&mut self, engine: &mut Queue, events: usize) -> Result<(), Difference> {
        let mut rng = Rng::with_seed(!engine.resource_version().get() ^ (events as u64) << 20);
        let was_building = engine.is_building_indexes();
        if was_building && rng.bool() {
            let is_built = engine.build_indexes(rng.usize(1..5));
            same("is_building_indexes", engine.is_building_indexes(), !is_built)?;
            self.hit(if is_built { "indexes are built" } else { "a part of the indexes is built" });
        }
        if rng.u8(..8) == 0 {
            self.drop_contents(engine)?;
        }
        let settings = engine.config().indexes.clone();
        let statuses = engine.indexes();
        same("indexes", statuses.len(), settings.iter().len())?;
        for (status, setting) in statuses.iter().zip(settings.iter()) {
            let name = &*setting.name;
            same("name and pointer", (&*status.name, &*status.pointer), (name, &*setting.pointer.text))?;
            let naive = naive(engine, &setting.pointer.text);
            if !status.is_ready {
                same("a query while the index is built", engine.check_index(name), Err(NoIndex::Building))?;
                self.hit("a query of an index that is built");
                continue;
            }
            same("number of values", status.values, naive.len())?;
            self.query(engine, name, &naive, &mut rng)
                .map_err(|difference| format!("index {name}: {difference}"))?;
        }
        same("an unknown index", engine.check_index("unknown").is_err(), true)
    }

    /// Leaves no room for indexes that have grown, and then room.
    fn drop_contents(&mut self, engine: &mut Queue) -> Result<(), Difference> {
        let no_room = Room { held: 1, limit: 0, max: 0, token: None };
        let before = engine.held_bytes();
        if engine.limit_indexes(|_| no_room.clone()).is_none() {
            return Ok(());
        }
        same("room for indexes", engine.room_for_indexes(|| no_room), false)?;
        same("indexes without room", engine.indexes().iter().any(|index| index.is_ready), false)?;
        same("less memory", engine.held_bytes() < before, true)?;
        engine.check().map_err(|rule| format!("without indexes: {rule}"))?;
        same("room for indexes again", engine.room_for_indexes(Room::default), true)?;
        self.hit("indexes are dropped");
        Ok(())
    }

    fn query(&mut self, engine: &Queue, name: &str, naive: &Naive, rng: &mut Rng) -> Result<(), Difference> {
        let start = naive.keys().nth(rng.usize(..=naive.len())).cloned().unwrap_or_default();
        let from = [Bound::Unbounded, Bound::Included(start.as_str()), Bound::Excluded(start.as_str())];
        for from in from {
            let values = engine.index_values(name, from).map_err(|_| "the index is ready")?;
            let values: Vec<(&str, usize)> = values.collect();
            let expected = naive.range::<str, _>((from, Bound::Unbounded));
            same("values", values, expected.map(|(text, keys)| (text.as_str(), keys.len())).collect())?;
        }
        let some = naive.get(&start).cloned().unwrap_or_default();
        for key in ["", "c", some.first().map_or("x", String::as_str)] {
            for from in [Bound::Unbounded, Bound::Included(key), Bound::Excluded(key)] {
                let found =
                    engine.entries_with_value(name, &start, from).map_err(|_| "the index is ready")?;
                let found: Vec<&str> = found.map(|entry| entry.key.as_str()).collect();
                let is_from = |other: &&str| match from {
                    Bound::Unbounded => true,
                    Bound::Included(key) => *other >= key,
                    Bound::Excluded(key) => *other > key,
                };
                same("keys", found, some.iter().map(String::as_str).filter(is_from).collect())?;
            }
        }
        self.hit(if some.len() > 1 { "a value has keys" } else { "a value has one key or none" });
        Ok(())
    }

    fn hit(&mut self, what: &'static str) {
        *self.hits.entry(what).or_default() += 1;
    }
}

/// The keys of each value, by a search through all known objects.
fn naive(engine: &Queue, pointer: &str) -> Naive {
    let mut naive = Naive::new();
    for (_, entry) in engine.table().from(Bound::Unbounded) {
        let Some(known) = &entry.known else { continue };
        for text in texts_at(known.object.as_str(), pointer) {
            let keys = naive.entry(text).or_default();
            if keys.last().is_none_or(|last| last != entry.key.as_str()) {
                keys.push(entry.key.as_str().to_owned());
            }
        }
    }
    naive
}

fn texts_at(json: &str, pointer: &str) -> Vec<String> {
    let Some((token, rest)) = pointer.strip_prefix('/').map(|rest| match rest.find('/') {
        Some(end) => rest.split_at(end),
        None => (rest, ""),
    }) else {
        let list: Result<Vec<Box<RawValue>>, _> = serde_json::from_str(json);
        let list = list.map(|list| list.iter().filter_map(|element| text_of(element.get())).collect());
        return list.unwrap_or_else(|_| text_of(json).into_iter().collect());
    };
    let members: HashMap<String, Box<RawValue>> = serde_json::from_str(json).unwrap_or_default();
    let elements: Vec<Box<RawValue>> = serde_json::from_str(json).unwrap_or_default();
    let element = token.parse().ok().and_then(|index: usize| elements.get(index));
    members.get(token).or(element).map_or_else(Vec::new, |value| texts_at(value.get(), rest))
}

fn text_of(json: &str) -> Option<String> {
    match json.chars().next() {
        Some('"') => serde_json::from_str(json).ok(),
        Some('{' | '[' | 'n') | None => None,
        Some(_) => Some(json.to_owned()),
    }
}
