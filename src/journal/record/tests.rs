mod damage;
mod golden;
mod random;
mod samples;

use std::collections::BTreeSet;
use std::sync::Arc;

use super::*;
use crate::engine::delta::DeltaKind;
use crate::engine::event::{Disposition, Ending, EventKind, Origin};
use crate::engine::limits::JSON_DEPTH_MAX;
use crate::engine::object::Object;
use crate::engine::schedule::Place;

fn one_row(events: &[Event]) -> JournalRow {
    let mut rows = journal_rows(QueueId(3), 812, 9, events);
    assert_eq!(rows.len(), 1);
    rows.remove(0)
}

fn appended(object: &str) -> EventKind {
    EventKind::Appended {
        key: samples::key(),
        kind: DeltaKind::Added,
        object: Object::from_valid(object),
        source: Some("erp".into()),
        owner: Some("erp".into()),
        final_state_unknown: false,
        due: None,
        origin: Origin::Call,
        trace: None,
    }
}

/// A row whose text was changed by someone who knows how to compute a checksum.
fn changed(mut row: JournalRow, from: &str, to: &str) -> JournalRow {
    assert!(row.events.contains(from), "{from}");
    row.events = row.events.replace(from, to);
    row.checksum = checksum::of_journal_row(&row);
    row
}

fn reason(row: &JournalRow) -> String {
    match Decoder::new().events(row) {
        Err(Error::Unreadable { reason, .. }) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_event_comes_back() {
    let events = samples::events(10, samples::whats());
    assert_eq!(Decoder::new().events(&one_row(&events)), Ok(events.clone()));
    for mut event in events {
        event.rv = u64::MAX;
        event.at = Time::from_micros(u64::MAX);
        let row = one_row(std::slice::from_ref(&event));
        assert_eq!(Decoder::new().events(&row), Ok(vec![event]));
    }
}

/// The next functions fail to compile when a variant is added, and this test until the samples have it.
#[test]
fn the_samples_hold_every_variant() {
    let all = |seen: BTreeSet<u32>, count: u32| assert_eq!(seen, (0..count).collect());
    let (whats, endings) = (samples::whats(), samples::endings());
    all(whats.iter().map(number_of_what).collect(), 23);
    all(whats.iter().filter_map(number_of_origin).collect(), 4);
    all(endings.iter().map(number_of_ending).collect(), 7);
    all(endings.iter().filter_map(number_of_then).collect(), 4);
    all(samples::key_states().iter().map(number_of_place).collect(), 4);
}

fn number_of_what(what: &EventKind) -> u32 {
    match what {
        EventKind::Appended { .. } => 0,
        EventKind::Queued { .. } => 1,
        EventKind::Failed { .. } => 2,
        EventKind::Dropped { .. } => 3,
        EventKind::TakenOver { .. } => 4,
        EventKind::Leased { .. } => 5,
        EventKind::Extended { .. } => 6,
        EventKind::Settled { .. } => 7,
        EventKind::DelayElapsed { .. } => 8,
        EventKind::Forgotten { .. } => 9,
        EventKind::Redriven { .. } => 10,
        EventKind::Removed { .. } => 11,
        EventKind::Seeded { .. } => 12,
        EventKind::Populated => 13,
        EventKind::Configured { .. } => 14,
        EventKind::Paused => 15,
        EventKind::Resumed => 16,
        EventKind::Closed => 17,
        EventKind::Reopened => 18,
        EventKind::ResyncDue => 19,
        EventKind::Recovered => 20,
        EventKind::ReplaceStarted { .. } => 21,
        EventKind::ReplaceEnded { .. } => 22,
    }
}

fn number_of_ending(ending: &Ending) -> u32 {
    match ending {
        Ending::Acked => 0,
        Ending::Done => 1,
        Ending::Failed { expired: false, .. } => 2,
        Ending::Failed { expired: true, .. } => 3,
        Ending::Released => 4,
        Ending::Rejected { .. } => 5,
        Ending::Undelivered => 6,
    }
}

fn number_of_then(ending: &Ending) -> Option<u32> {
    let Ending::Failed { then, .. } = ending else { return None };
    Some(match then {
        Disposition::Tail { .. } => 0,
        Disposition::Wait { .. } => 1,
        Disposition::Delayed => 2,
        Disposition::Park => 3,
    })
}

fn number_of_origin(what: &EventKind) -> Option<u32> {
    let EventKind::Appended { origin, .. } = what else { return None };
    Some(match origin {
        Origin::Call => 0,
        Origin::Replace { initial: false } => 1,
        Origin::Replace { initial: true } => 2,
        Origin::Resync => 3,
    })
}

fn number_of_place(state: &KeyState) -> u32 {
    match state.standing.place {
        Place::Idle => 0,
        Place::Ready(_) => 1,
        Place::Leased(_) => 2,
        Place::Parked => 3,
    }
}

#[test]
fn a_common_event_is_short() {
    let event = Event { rv: 1042, at: samples::at(0), kind: appended("{\"a\": 1}") };
    assert_eq!(
        one_row(&[event]).events,
        concat!(
            r#"[{"rv":1042,"at":1763704800000000,"type":"appended","key":"sku-1","delta":"Added","#,
            r#""source":"erp","object":{"a": 1}}]"#
        )
    );
}

#[test]
fn objects_come_back_byte_for_byte() {
    let deep = "{\"a\":".repeat(JSON_DEPTH_MAX) + "[ ]" + &"}".repeat(JSON_DEPTH_MAX);
    for text in ["{}", "{\n}", samples::ODD_OBJECT, r#"{"\ud83e\udd80":"\/\u0000"}"#, &deep] {
        let events = samples::events(10, vec![appended(text)]);
        let row = one_row(&events);
        assert!(row.events.contains(text));
        assert_eq!(Decoder::new().events(&row), Ok(events));
        let mut state = samples::key_states().pop().unwrap();
        state.waiting.push(samples::delta(1, DeltaKind::Added));
        state.waiting[0].object = Object::from_valid(text);
        let row = key_row(QueueId(1), 0, &state);
        assert_eq!(Decoder::new().key(&row), Ok((0, state)));
    }
}

#[test]
fn long_lists_are_split_by_bytes() {
    let events = samples::events(10, samples::whats());
    let whole = one_row(&events).events.len();
    for bytes_max in [1, 100, 200, 500, 1_000, whole - 1, whole] {
        let rows = split(QueueId(3), 812, 9, &events, bytes_max);
        assert_eq!(rows.len() == 1, bytes_max == whole, "{bytes_max}");
        let (mut decoder, mut read, mut prev_rv) = (Decoder::new(), Vec::new(), 9);
        for (id, row) in (812..).zip(&rows) {
            assert_eq!((row.id, row.prev_rv, row.queue), (id, prev_rv, QueueId(3)));
            let part = decoder.events(row).unwrap();
            assert!(row.events.len() <= bytes_max || part.len() == 1, "{bytes_max}");
            prev_rv = row.last_rv;
            read.extend(part);
        }
        assert_eq!(read, events);
        // No two rows that stand side by side would have fit in one: the brackets become a comma.
        for pair in rows.windows(2) {
            let first = pair[1]
                .events
                .len()
                .min(decoder.events(&pair[1]).map_or(0, |part| one_row(&[part[0].clone()]).events.len()));
            assert!(pair[0].events.len() + first > bytes_max, "{bytes_max}");
        }
    }
    assert_eq!(split(QueueId(3), 812, 9, &[], 100), []);
}

#[test]
fn a_row_is_at_most_a_mebibyte_unless_one_event_is_more() {
    let object = |bytes: usize| appended(&format!("{{\"a\":\"{}\"}}", "x".repeat(bytes)));
    let events = samples::events(10, vec![object(600_000), object(600_000), object(2_000_000), object(1)]);
    let rows = journal_rows(QueueId(3), 1, 9, &events);
    assert_eq!(
        rows.iter().map(|row| (row.first_rv, row.last_rv)).collect::<Vec<_>>(),
        [(10, 10), (11, 11), (12, 12), (13, 13)]
    );
    assert!(rows[2].events.len() > ROW_BYTES_MAX);
}

#[test]
fn a_key_of_which_only_the_object_is_known_has_no_item() {
    let items: Vec<_> =
        samples::key_states().iter().map(|state| key_row(QueueId(1), 0, state).item).collect();
    assert_eq!(items.iter().take_while(|item| item.is_none()).count(), 2);
    assert!(items[2..].iter().all(Option::is_some));
}

#[test]
fn members_that_are_not_known_are_skipped() {
    let more = r#"{"actor":{"id":[1,null]},"tracestate":"vendor=1","idempotency_key":"x","version":7,"wall_time":1,"#;
    let events = samples::events(10, samples::whats());
    let row = changed(one_row(&events), "{\"rv\":10", &format!("{more}\"rv\":10"));
    assert_eq!(Decoder::new().events(&row), Ok(events));

    let state = samples::key_states().remove(6);
    let mut row = key_row(QueueId(1), 0, &state);
    let item = row.item.unwrap().replace("{\"place\"", &format!("{more}\"place\""));
    row.item = Some(item.replace("{\"rv\":42,", &format!("{more}\"rv\":42,")));
    row.checksum = checksum::of_key_row(&row);
    assert_eq!(Decoder::new().key(&row), Ok((0, state)));

    let state = samples::queue_states().remove(2);
    let mut row = queue_row(&samples::identity(), &state);
    row.state = row.state.replace("{\"last_at\"", &format!("{more}\"last_at\""));
    row.state = row.state.replace("{\"mode\"", &format!("{more}\"mode\""));
    row.checksum = checksum::of_queue_row(&row);
    assert_eq!(Decoder::new().queue(&row).unwrap().state, Some(state));
}

#[test]
fn what_makes_no_sense_is_refused_and_named() {
    let whats = vec![appended("{}"), EventKind::Paused];
    let row = one_row(&samples::events(10, whats));
    let told = |from: &str, to: &str| reason(&changed(row.clone(), from, to));
    assert!(told("\"key\":\"sku-1\",", "").contains("event 10: \"key\" is missing"));
    assert!(told("sku-1", "").contains("event 10: the key is empty"));
    assert!(told("\"delta\":\"Added\",", "").contains("\"delta\" is missing"));
    assert!(told(",\"object\":{}", "").contains("\"object\" is missing"));
    assert!(told("{}", "[]").contains("its object is none"));
    assert!(told("\"delta\"", "\"traceparent\":\"00-1\",\"delta\"").contains("\"00-1\" is no traceparent"));
    assert!(told("Added", "Adopted").contains("unknown variant `Adopted`"));
    assert!(told("paused", "posed").contains("unknown variant `posed`"));
    assert!(told("paused", "configured").contains("event 11: \"config\" is missing"));
    assert!(told("\"rv\":11", "\"rv\":12").contains("events 10 to 12"));
    assert!(told("\"rv\":11", "\"rv\":11.5").contains("floating point"));
    assert!(told("}]", "}").contains("EOF"));
    assert!(told("}]", "}]]").contains("trailing"));
    assert_eq!(
        reason(&{
            let mut row = changed(row.clone(), &row.events, "[]");
            row.checksum = checksum::of_journal_row(&row);
            row
        }),
        "it holds no events"
    );
    let message = Decoder::new().events(&changed(row.clone(), "paused", "")).unwrap_err().to_string();
    assert!(message.starts_with("journal row 812 (queue 3, events 10 to 11): unreadable: "), "{message}");
}

#[test]
fn events_without_order_are_refused() {
    let events = samples::events(10, vec![EventKind::Paused, EventKind::Resumed, EventKind::Closed]);
    let told = |change: fn(&mut JournalRow)| {
        let mut row = one_row(&events);
        change(&mut row);
        row.checksum = checksum::of_journal_row(&row);
        reason(&row)
    };
    assert_eq!(told(|row| row.prev_rv = 10), "event 10 stands behind event 10");
    assert_eq!(told(|row| row.first_rv = 9), "it holds events 10 to 12");
    assert_eq!(told(|row| row.last_rv = 13), "it holds events 10 to 12");
    assert!(told(|row| row.at = samples::at(1)).starts_with("its last event is of 1763704802000000"));
    for number in ["10", "12", "13"] {
        let row = changed(one_row(&events), "\"rv\":11", &format!("\"rv\":{number}"));
        assert!(reason(&row).contains("stands behind event"), "{number}");
    }
}

#[test]
fn a_key_with_a_part_missing_is_refused() {
    let told = |change: fn(&mut KeyRow)| {
        let mut row = key_row(QueueId(3), 7, &samples::key_states()[6]);
        change(&mut row);
        row.checksum = checksum::of_key_row(&row);
        Decoder::new().key(&row).unwrap_err().to_string()
    };
    let part = "key row 7 (queue 3, key \"sku-1\"): unreadable: a part of its known object is missing";
    assert_eq!(told(|row| row.known_rv = None), part);
    assert_eq!(told(|row| row.known_object = None), part);
    assert!(told(|row| row.known_object = Some("[]".into())).ends_with("its object is none"));
    assert!(told(|row| row.item = Some("{\"place\":\"ready\"}".into())).ends_with("\"turn\" is missing"));
    assert!(told(|row| row.item = Some("{\"place\":\"leased\"}".into())).ends_with("\"lease\" is missing"));
    assert!(told(|row| row.key = "a\nb".into()).ends_with("the key contains a control character"));
}

#[test]
fn names_are_held_once() {
    let mut decoder = Decoder::new();
    let state = samples::key_states().remove(6);
    let owner = |(_, state): (Slot, KeyState)| state.known.unwrap().owner.unwrap();
    let first = owner(decoder.key(&key_row(QueueId(1), 0, &state)).unwrap());
    let (_, again) = decoder.key(&key_row(QueueId(1), 1, &state)).unwrap();
    assert!(Arc::ptr_eq(&first, again.waiting[0].provenance.source().unwrap()));
    assert!(Arc::ptr_eq(&first, again.leased[1].provenance.owner().unwrap()));
    assert!(Arc::ptr_eq(&first, &owner((1, again))));
    for other in 0..10_000 {
        let owner: Arc<str> = format!("{other}").into();
        let mut state = state.clone();
        state.known.as_mut().unwrap().owner = Some(owner);
        let row = key_row(QueueId(1), 1, &state);
        assert_eq!(decoder.key(&row), Ok((1, state)));
    }
}
