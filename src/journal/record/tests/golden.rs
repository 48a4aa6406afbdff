//! Rows of version 1 as they were released: they are read for ever, and written the same for as long as
//! this is the version.
//!
//! In the fixtures a column with JSON is JSON: the pieces of it that stand on a line of their own are
//! byte for byte what is in the row.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::samples;
use crate::engine::time::Time;
use crate::journal::record::{
    self, Decoder, FORMAT, QueueRecord, deleted_queue_row, journal_rows, key_row, queue_row,
};
use crate::journal::store::{Gravestone, JournalRow, KeyRow, QueueId, QueueRow};

const JOURNAL: &str = include_str!("../../../../tests/fixtures/journal/v1/journal.json");
const KEYS: &str = include_str!("../../../../tests/fixtures/journal/v1/keys.json");
const GRAVESTONES: &str = include_str!("../../../../tests/fixtures/journal/v1/gravestones.json");
const QUEUES: &str = include_str!("../../../../tests/fixtures/journal/v1/queues.json");

#[derive(Deserialize)]
struct JournalColumns<'a> {
    id: u64,
    queue: u32,
    prev_rv: u64,
    first_rv: u64,
    last_rv: u64,
    at: u64,
    format: u32,
    #[serde(borrow)]
    events: Vec<&'a RawValue>,
    checksum: u32,
}

#[derive(Deserialize)]
struct KeyColumns<'a> {
    queue: u32,
    slot: u32,
    key: Arc<str>,
    rv: u64,
    known_rv: Option<u64>,
    #[serde(borrow)]
    known_object: Option<&'a RawValue>,
    owner: Option<Arc<str>>,
    item: Option<&'a RawValue>,
    format: u32,
    checksum: u32,
}

#[derive(Deserialize)]
struct GravestoneColumns {
    queue: u32,
    slot: u32,
    key: Arc<str>,
    rv: u64,
    checksum: u32,
}

#[derive(Deserialize)]
struct QueueColumns<'a> {
    id: u32,
    version: u64,
    name: Arc<str>,
    incarnation: u32,
    created_at: u64,
    deleted: bool,
    rv: u64,
    #[serde(borrow)]
    state: &'a RawValue,
    format: u32,
    checksum: u32,
}

fn rows<'a, C: Deserialize<'a>, R>(text: &'a str, row: impl Fn(C) -> R) -> Vec<R> {
    serde_json::from_str::<Vec<C>>(text).unwrap().into_iter().map(row).collect()
}

fn journal(text: &str) -> Vec<JournalRow> {
    rows(text, |row: JournalColumns<'_>| JournalRow {
        id: row.id,
        queue: QueueId(row.queue),
        prev_rv: row.prev_rv,
        first_rv: row.first_rv,
        last_rv: row.last_rv,
        at: Time::from_micros(row.at),
        format: row.format,
        events: format!("[{}]", row.events.iter().map(|event| event.get()).collect::<Vec<_>>().join(",")),
        checksum: row.checksum,
    })
}

fn keys(text: &str) -> Vec<KeyRow> {
    rows(text, |row: KeyColumns<'_>| KeyRow {
        queue: QueueId(row.queue),
        slot: row.slot,
        key: row.key,
        rv: row.rv,
        known_rv: row.known_rv,
        known_object: row.known_object.map(|object| object.get().into()),
        owner: row.owner,
        item: row.item.map(|item| item.get().to_owned()),
        format: row.format,
        checksum: row.checksum,
    })
}

fn gravestones(text: &str) -> Vec<Gravestone> {
    rows(text, |row: GravestoneColumns| Gravestone {
        queue: QueueId(row.queue),
        slot: row.slot,
        key: row.key,
        rv: row.rv,
        checksum: row.checksum,
    })
}

fn queues(text: &str) -> Vec<QueueRow> {
    rows(text, |row: QueueColumns<'_>| QueueRow {
        id: QueueId(row.id),
        version: row.version,
        name: row.name,
        incarnation: row.incarnation,
        created_at: Time::from_micros(row.created_at),
        deleted: row.deleted,
        rv: row.rv,
        state: row.state.get().to_owned(),
        format: row.format,
        checksum: row.checksum,
    })
}

#[test]
fn journal_rows_of_version_1() {
    let (rows, events) = (journal(JOURNAL), samples::events(10, samples::whats()));
    assert_eq!(FORMAT, 1, "once the version grows, the files are read only");
    assert_eq!(journal_rows(QueueId(3), 812, 9, &events), rows);
    let read: Vec<_> = rows.iter().map(|row| Decoder::new().events(row).unwrap()).collect();
    assert_eq!(read, [events]);
}

#[test]
fn key_rows_of_version_1() {
    let (rows, states) = (keys(KEYS), samples::key_states());
    let written: Vec<_> = (7..).zip(&states).map(|(slot, state)| key_row(QueueId(3), slot, state)).collect();
    assert_eq!(written, rows);
    let read: Vec<_> = rows.iter().map(|row| Decoder::new().key(row).unwrap()).collect();
    assert_eq!(read, (7..).zip(states).collect::<Vec<_>>());
}

#[test]
fn gravestones_of_version_1() {
    let rows = gravestones(GRAVESTONES);
    assert_eq!([record::gravestone(QueueId(3), &samples::gone())], *rows);
    let read: Vec<_> = rows.iter().map(|row| Decoder::new().gravestone(row).unwrap()).collect();
    assert_eq!(read, [samples::gone()]);
}

#[test]
fn queue_rows_of_version_1() {
    let (rows, identity) = (queues(QUEUES), samples::identity());
    let mut written: Vec<_> =
        samples::queue_states().iter().map(|state| queue_row(&identity, state)).collect();
    written.push(deleted_queue_row(&identity, 99));
    assert_eq!(written, rows);
    let read: Vec<_> = rows.iter().map(|row| Decoder::new().queue(row).unwrap()).collect();
    let states = samples::queue_states().into_iter().map(|state| (state.rv, Some(state)));
    let expected = states.chain([(99, None)]);
    let expected: Vec<_> =
        expected.map(|(rv, state)| QueueRecord { identity: identity.clone(), rv, state }).collect();
    assert_eq!(read, expected);
}
