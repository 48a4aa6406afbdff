mod damage;
mod random;
mod samples;
mod sharing;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;

use deltaq_engine::delta::{DeltaKind, Provenance};
use deltaq_engine::event::Event;
use deltaq_engine::event::{Appended, EventKind, Origin, ViewChanges};
use deltaq_engine::id::{Rv, Sequence, Slot};
use deltaq_engine::limits::JSON_DEPTH_MAX;
use deltaq_engine::object::Object;
use deltaq_engine::schedule::HeadStart;
use deltaq_engine::snapshot::KeyState;
use deltaq_engine::time::Time;

use super::encode::split;
use super::*;
use crate::store::{Epoch, JournalRow, QueueId, RunRow};

/// A run with one key, at slot 7.
fn run_of(state: &KeyState, shares: bool) -> RunRow {
    let mut run = NewRun::default();
    run.add_key(Slot::new(7), state, shares);
    run.close(QueueId(3), 4)
}

/// The only key of a run.
fn read(row: &RunRow) -> Result<KeyState, Error> {
    let mut entries = Decoder::new().run(row)?;
    assert_eq!(entries.len(), 1);
    match entries.remove(0) {
        RunEntry::Key(slot, state) if slot == Slot::new(7) => Ok(state),
        other => panic!("{other:?}"),
    }
}

fn one_row(events: &[Event]) -> JournalRow {
    let mut rows = journal_rows(QueueId(3), Epoch(812), Rv::new(9), events, false);
    assert_eq!(rows.len(), 1);
    rows.remove(0)
}

fn appended(object: &str) -> EventKind {
    EventKind::Appended(Appended {
        key: samples::key(),
        delta: DeltaKind::Added,
        final_state_unknown: false,
        origin: Origin::Call,
        provenance: Provenance::new(Some("erp".into()), Some("erp".into()), None),
        due: None,
        head_start: HeadStart::NONE,
        object: Object::from_valid(object),
    })
}

/// The row with a change in its text, and the checksum of the changed row.
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
fn every_event_is_read_back() {
    let events = samples::events(10, samples::kinds());
    assert_eq!(Decoder::new().events(&one_row(&events)), Ok(events.clone()));
    for mut event in events {
        event.rv = Rv::MAX;
        event.at = Time::from_micros(u64::MAX);
        let row = one_row(std::slice::from_ref(&event));
        assert_eq!(Decoder::new().events(&row), Ok(vec![event]));
    }
}

/// The names of all event types, as the error about an unknown one lists them.
fn all_types() -> BTreeSet<String> {
    let unknown = changed(one_row(&samples::events(10, vec![EventKind::Paused])), "paused", "none");
    let reason = reason(&unknown);
    let names = reason.split('`').skip(3).step_by(2).map(str::to_owned);
    names.collect()
}

fn types(events: &[Event]) -> BTreeSet<String> {
    #[derive(serde::Deserialize)]
    struct Typed {
        r#type: String,
    }
    let name = |event: &Event| {
        let json = serde_json::to_string(event).unwrap();
        serde_json::from_str::<Typed>(&json).unwrap().r#type
    };
    events.iter().map(name).collect()
}

#[test]
fn the_samples_hold_every_event() {
    let all = all_types();
    assert_eq!(all.len(), 40, "{all:?}");
    assert_eq!(types(&samples::events(10, samples::kinds())), all);
}

/// Pins the records as they are written today, so that any change of their form is noticed. Before the first release
/// such a change is free; afterwards it needs a new format version.
#[test]
fn the_form_of_records_is_known() {
    let mut text = String::new();
    let mut line = |line: &str| writeln!(text, "{line}").unwrap();
    line("# events");
    for event in samples::events(10, samples::kinds()) {
        line(&one_row(&[event]).events);
    }
    line("# runs");
    for state in samples::key_states() {
        line(&run_of(&state, false).entries);
    }
    let mut removals = NewRun::default();
    removals.add_removed(&samples::removed());
    line(&removals.close(QueueId(3), 4).entries);
    line("# queues");
    for state in samples::queue_states() {
        line(&queue_row(&samples::identity(), &state, 4..9).state);
    }
    insta::assert_snapshot!(text);
}

#[test]
fn a_common_event_is_short() {
    let event = Event {
        rv: Rv::new(1042),
        at: samples::at(0),
        kind: appended("{\"a\": 1}"),
        views: ViewChanges::default(),
        sequence: None,
        by: None,
    };
    assert_eq!(
        one_row(&[event]).events,
        concat!(
            r#"[{"rv":1042,"at":1763704800000000,"type":"appended","data":{"key":"sku-1","delta":"Added","#,
            r#""provenance":{"source":"erp","owner":"erp"},"object":{"a": 1}}}]"#
        )
    );
}

#[test]
fn the_sequence_of_a_call_is_an_optional_field_of_the_envelope() {
    let text =
        r#"{"rv":1042,"at":1763704800000000,"type":"populated","sequence":{"source":"erp","number":7}}"#;
    let event: Event = serde_json::from_str(text).unwrap();
    assert_eq!(event.sequence, Some(Sequence { source: "erp".into(), number: 7 }));
    assert_eq!(one_row(&[event]).events, format!("[{text}]"));
}

#[test]
fn the_token_of_a_call_is_an_optional_field_of_the_envelope() {
    let text = r#"{"rv":1042,"at":1763704800000000,"type":"populated","by":"erp"}"#;
    let event: Event = serde_json::from_str(text).unwrap();
    assert_eq!(event.by.as_deref(), Some("erp"));
    assert_eq!(one_row(&[event]).events, format!("[{text}]"));
}

#[test]
fn objects_are_read_back_byte_for_byte() {
    let deep = "{\"a\":".repeat(JSON_DEPTH_MAX) + "[ ]" + &"}".repeat(JSON_DEPTH_MAX);
    for text in ["{}", "{\n}", samples::ODD_OBJECT, r#"{"\ud83e\udd80":"\/\u0000"}"#, &deep] {
        let events = samples::events(10, vec![appended(text)]);
        let row = one_row(&events);
        assert!(row.events.contains(text));
        assert_eq!(Decoder::new().events(&row), Ok(events));
        let mut state = samples::key_states().pop().unwrap();
        state.waiting.push(samples::delta(1, DeltaKind::Added));
        state.waiting[0].object = Object::from_valid(text);
        assert_eq!(read(&run_of(&state, false)), Ok(state));
    }
}

#[test]
fn long_lists_are_split_by_bytes() {
    let events = samples::events(10, samples::kinds());
    let whole = one_row(&events).events.len();
    for bytes_max in [1, 100, 200, 500, 1_000, whole - 1, whole] {
        let rows = split((QueueId(3), Epoch(812), Rv::new(9)), &events, false, bytes_max);
        assert_eq!(rows.len() == 1, bytes_max == whole, "{bytes_max}");
        let (mut decoder, mut read, mut prev_rv) = (Decoder::new(), Vec::new(), Rv::new(9));
        for row in &rows {
            assert_eq!((row.epoch, row.prev_rv, row.queue), (Epoch(812), prev_rv, QueueId(3)));
            let part = decoder.events(row).unwrap();
            assert!(row.events.len() <= bytes_max || part.len() == 1, "{bytes_max}");
            prev_rv = row.last_rv;
            read.extend(part);
        }
        assert_eq!(read, events);
        // No two adjacent rows would have fit into one row, in which a comma would replace their brackets.
        for pair in rows.windows(2) {
            let first = pair[1]
                .events
                .len()
                .min(decoder.events(&pair[1]).map_or(0, |part| one_row(&[part[0].clone()]).events.len()));
            assert!(pair[0].events.len() + first > bytes_max, "{bytes_max}");
        }
    }
    assert_eq!(split((QueueId(3), Epoch(812), Rv::new(9)), &[], false, 100), []);
}

#[test]
fn a_row_is_at_most_a_mebibyte_unless_one_event_is_more() {
    let object = |bytes: usize| appended(&format!("{{\"a\":\"{}\"}}", "x".repeat(bytes)));
    let events = samples::events(10, vec![object(600_000), object(600_000), object(2_000_000), object(1)]);
    let rows = journal_rows(QueueId(3), Epoch(1), Rv::new(9), &events, false);
    assert_eq!(
        rows.iter().map(|row| (row.first_rv.get(), row.last_rv.get())).collect::<Vec<_>>(),
        [(10, 10), (11, 11), (12, 12), (13, 13)]
    );
    assert!(rows[2].events.len() > ROW_BYTES_MAX);
}

#[test]
fn a_run_has_its_entries_in_order() {
    let mut run = NewRun::default();
    assert!(run.is_empty());
    let mut expected = vec![RunEntry::Removed(samples::removed())];
    run.add_removed(&samples::removed());
    for (slot, state) in (0..).map(Slot::new).zip(samples::key_states()) {
        run.add_key(slot, &state, false);
        expected.push(RunEntry::Key(slot, state));
    }
    assert!(!run.is_empty() && !run.is_full(usize::MAX));
    assert_eq!(Decoder::new().run(&run.close(QueueId(3), 4)), Ok(expected));
}

#[test]
fn a_run_is_full_by_entries_or_by_bytes() {
    let mut state = samples::key_states().remove(0);
    let added = |state: &KeyState, shares| {
        let mut run = NewRun::default();
        let mut count = 0;
        while !run.is_full(64 << 10) {
            run.add_key(Slot::new(count), state, shares);
            count += 1;
        }
        count
    };
    assert_eq!(added(&state, false), 128);
    state.known.as_mut().unwrap().object =
        Object::from_valid(&format!("{{\"a\":\"{}\"}}", "x".repeat(20_000)));
    assert_eq!((added(&state, false), added(&state, true)), (4, 4), "shared texts count, too");
}

/// The rule for fields that a newer version writes under the same format version: a reader ignores them.
#[test]
fn unknown_fields_are_ignored() {
    let fields = r#""actor":{"id":[1,null]},"ordinal":7,"wall_time":1,"#;
    let events = samples::events(10, samples::kinds());
    for (before, after) in [
        ("\"type\":", format!("{fields}\"type\":")),
        ("\"data\":{\"", format!("{fields}\"data\":{{{fields}\"")),
        ("\"provenance\":{", format!("\"provenance\":{{{fields}")),
        ("\"nacked\":{", format!("\"nacked\":{{{fields}")),
        ("\"wait\":{", format!("\"wait\":{{{fields}")),
        ("\"counts\":{", format!("\"counts\":{{{fields}")),
        ("\"config\":{", format!("\"config\":{{{fields}")),
    ] {
        let row = changed(one_row(&events), before, &after);
        assert_eq!(Decoder::new().events(&row), Ok(events.clone()), "{before}");
    }

    let state = samples::key_states().remove(6);
    let mut row = run_of(&state, false);
    for before in ["{\"slot\"", "{\"place\"", "{\"rv\":42,"] {
        assert!(row.entries.contains(before), "{before}: {}", row.entries);
        row.entries = row.entries.replace(before, &format!("{{{fields}{}", &before[1..]));
    }
    row.checksum = checksum::of_run_row(&row);
    assert_eq!(read(&row), Ok(state));

    let state = samples::queue_states().remove(2);
    let mut row = queue_row(&samples::identity(), &state, 4..9);
    row.state = row.state.replace("{\"last_at\"", &format!("{{{fields}\"last_at\""));
    row.state = row.state.replace("{\"mode\"", &format!("{{{fields}\"mode\""));
    row.checksum = checksum::of_queue_row(&row);
    assert_eq!(Decoder::new().queue(&row).unwrap().state, Some(state));
}

#[test]
fn an_unreadable_event_is_refused_and_named() {
    let row = one_row(&samples::events(10, vec![appended("{}"), EventKind::Paused]));
    let refused = |from: &str, to: &str| reason(&changed(row.clone(), from, to));
    let contains = |from: &str, to: &str, expected: &str| {
        let found = refused(from, to);
        assert!(found.contains(expected), "{from:?} to {to:?}: {found}");
    };
    contains("\"key\":\"sku-1\",", "", "event 10: missing field `key`");
    contains("sku-1", "", "event 10: the key is empty");
    contains("\"delta\":\"Added\",", "", "event 10: missing field `delta`");
    contains(",\"object\":{}", "", "event 10: missing field `object`");
    contains("{}", "[]", "event 10: the object is not a JSON object");
    contains("\"owner\":\"erp\"", "\"traceparent\":\"00-1\"", "event 10: \"00-1\" is no traceparent");
    contains("Added", "Adopted", "event 10: unknown variant `Adopted`");
    contains("paused", "posed", "event 11: unknown variant `posed`");
    contains("paused", "configured", "event 11: missing field `data`");
    contains("\"rv\":11,", "", "missing field `rv`");
    contains("\"rv\":11", "\"rv\":12", "events 10 to 12");
    contains("\"rv\":11", "\"rv\":11.5", "floating point");
    contains("}]", "}", "EOF");
    contains("}]", "}]]", "trailing");
    assert_eq!(refused(&row.events, "[]"), "it holds no events");
    let message = Decoder::new().events(&changed(row.clone(), "paused", "")).unwrap_err().to_string();
    assert!(message.starts_with("journal row of queue 3 (events 10 to 11): unreadable: "), "{message}");
}

#[test]
fn events_out_of_order_are_refused() {
    let events = samples::events(
        10,
        vec![EventKind::Paused, EventKind::Resumed, EventKind::Closed { at_once: false }],
    );
    let refused = |change: fn(&mut JournalRow)| {
        let mut row = one_row(&events);
        change(&mut row);
        row.checksum = checksum::of_journal_row(&row);
        reason(&row)
    };
    assert_eq!(refused(|row| row.prev_rv = Rv::new(10)), "event 10 follows event 10");
    assert_eq!(refused(|row| row.first_rv = Rv::new(9)), "it holds events 10 to 12");
    assert_eq!(refused(|row| row.last_rv = Rv::new(13)), "it holds events 10 to 12");
    assert!(
        refused(|row| row.at = samples::at(1)).starts_with("its last event is of the time 1763704802000000")
    );
    for number in ["10", "12", "13"] {
        let row = changed(one_row(&events), "\"rv\":11", &format!("\"rv\":{number}"));
        assert!(reason(&row).contains("follows event"), "{number}");
    }
}

#[test]
fn an_unreadable_run_is_refused_and_named() {
    fn refused(change: impl FnOnce(String) -> String) -> String {
        let mut row = run_of(&samples::key_states()[6], false);
        let before = row.entries.clone();
        row.entries = change(row.entries);
        assert_ne!(row.entries, before);
        row.checksum = checksum::of_run_row(&row);
        Decoder::new().run(&row).unwrap_err().to_string()
    }
    let contains = |from: &str, to: &str, expected: &str| {
        let found = refused(|entries| entries.replacen(from, to, 1));
        assert!(found.starts_with("run 4 (queue 3): unreadable: ") && found.contains(expected), "{found}");
    };
    contains("\"slot\":7,", "", "missing field `slot`");
    contains("\"key\":\"sku-1\",", "", "missing field `key`");
    contains("sku-1", "a\\nb", "the key contains a control character");
    contains("\"known\":{\"rv\":", "\"known\":{\"r\":", "missing field `rv`");
    contains("\"object\":{", "\"object\":[],\"x\":{", "the object is not a JSON object");
    contains("\"since\":", "\"sinc\":", "missing field `since`");
    assert!(refused(|_| "[]".to_owned()).ends_with("it has no entries"));
    assert!(refused(|entries| entries[..entries.len() - 1].to_owned()).contains("EOF"));
}

#[test]
fn names_are_held_once() {
    let mut decoder = Decoder::new();
    let state = samples::key_states().remove(6);
    let owner = |state: KeyState| state.known.unwrap().owner.unwrap();
    let mut key = |state: &KeyState| match decoder.run(&run_of(state, false)).unwrap().remove(0) {
        RunEntry::Key(_, state) => state,
        removed @ RunEntry::Removed(_) => panic!("{removed:?}"),
    };
    let first = owner(key(&state));
    let again = key(&state);
    assert!(Arc::ptr_eq(first.shared(), again.waiting[0].provenance.source().unwrap().shared()));
    assert!(Arc::ptr_eq(first.shared(), again.leased[1].provenance.owner().unwrap().shared()));
    assert!(Arc::ptr_eq(first.shared(), owner(again).shared()));
    for other in 0..10_000 {
        let owner: Arc<str> = format!("{other}").into();
        let mut state = state.clone();
        state.known.as_mut().unwrap().owner = Some(owner.into());
        assert_eq!(key(&state), state);
    }
}
