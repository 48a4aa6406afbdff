//! Large objects of queues that share them are references in rows, and come back as they were.

use std::sync::Arc;

use super::*;
use crate::store::SharedText;
use crate::text_id::TextId;

/// An object of this many bytes.
fn object(bytes: usize, letter: &str) -> String {
    let frame = r#"{"text":""}"#.len();
    format!(r#"{{"text":"{}"}}"#, letter.repeat(bytes - frame))
}

fn shared_rows(events: &[Event]) -> Vec<JournalRow> {
    journal_rows(QueueId(3), Epoch(812), Rv::new(9), events, true)
}

#[test]
fn large_objects_of_events_become_references() {
    let (large, other) = (object(SHARED_BYTES_MIN, "a"), object(SHARED_BYTES_MIN + 1, "b"));
    let small = object(SHARED_BYTES_MIN - 1, "c");
    let mut kinds = samples::kinds();
    kinds.extend([&large, &small, &other, &large].map(|object| appended(object)));
    kinds.push(EventKind::Seeded { key: samples::key(), owner: None, object: Object::from_valid(&other) });
    let events = samples::events(10, kinds);
    let rows = shared_rows(&events);
    let [row] = rows.as_slice() else { panic!("{} rows", rows.len()) };
    let ids: Vec<_> = row.texts.iter().map(|shared| shared.id).collect();
    assert_eq!(ids, [&large, &other, &large, &other].map(|text| TextId::of(text)));
    assert_eq!(row.text_bytes, 4 * SHARED_BYTES_MIN as u64 + 2);
    assert!(row.events.contains(&small) && !row.events.contains(&large) && !row.events.contains(&other));
    let read = Decoder::new().events(row).unwrap();
    assert_eq!(read, events);
    let last = read.last().and_then(|event| event.kind.object()).unwrap();
    assert!(Arc::ptr_eq(&last.shared(), &row.texts[1].text), "the text is not copied");
    // Queues that do not share have whole objects.
    assert_eq!(one_row(&events).texts, []);
}

/// A reader needs the memory of whole objects.
#[test]
fn rows_are_split_by_the_bytes_of_whole_objects() {
    let kinds = (0..9).map(|_| appended(&object(ROW_BYTES_MAX / 3, "a"))).collect();
    let events = samples::events(10, kinds);
    let rows = shared_rows(&events);
    assert!(rows.len() >= 4 && rows.iter().all(|row| row.bytes() <= ROW_BYTES_MAX as u64), "{}", rows.len());
    let mut prev_rv = Rv::new(9);
    let mut read = Vec::new();
    for row in &rows {
        assert_eq!(row.prev_rv, prev_rv);
        assert_eq!(row.texts.len() as u64, row.last_rv.since(row.first_rv) + 1);
        read.extend(Decoder::new().events(row).unwrap());
        prev_rv = row.last_rv;
    }
    assert_eq!(read, events);
}

#[test]
fn large_objects_of_keys_become_references() {
    let (large, other) = (object(SHARED_BYTES_MIN, "a"), object(9_000, "b"));
    for mut state in samples::key_states() {
        let deltas = state.waiting.iter_mut().chain(&mut state.leased).map(|delta| &mut delta.object);
        let objects = deltas.chain(state.known.as_mut().map(|known| &mut known.object));
        let mut count = 0;
        for object in objects {
            *object = Object::from_valid(if count % 2 == 0 { &large } else { &other });
            count += 1;
        }
        let mut row = run_of(&state, true);
        assert_eq!(row.texts.len(), count);
        assert!(!row.entries.contains(&large) && !row.entries.contains(&other));
        assert!(row.bytes() >= (count * SHARED_BYTES_MIN) as u64, "texts count");
        assert_eq!(read(&row), Ok(state.clone()));
        // A lost object makes the run unreadable, and the error names the key and the text.
        if let Some(id) = row.texts.last().map(|last| last.id) {
            let lost = row.texts.iter_mut().filter(|shared| shared.id == id);
            lost.for_each(|shared| shared.text = "".into());
            let error = read(&row).unwrap_err().to_string();
            assert!(error.starts_with("run 4 (queue 3): unreadable: key "), "{error}");
            for named in [format!("its object is lost: text {id} "), state.key.to_string()] {
                assert!(error.contains(&named), "{error}");
            }
        }
    }
}

#[test]
fn a_reference_needs_its_text() {
    let large = object(SHARED_BYTES_MIN, "a");
    let events = samples::events(10, vec![appended(&large)]);
    let row = shared_rows(&events).remove(0);
    let refused = |change: &dyn Fn(&mut JournalRow)| {
        let mut row = row.clone();
        change(&mut row);
        row.checksum = checksum::of_journal_row(&row);
        reason(&row)
    };
    let id = TextId::of(&large);
    assert_eq!(refused(&|row| row.texts.clear()), format!("it does not list text {id}, to which it refers"));
    assert_eq!(refused(&|row| row.texts[0].text = "[]".into()), "an object is not a JSON object");
    let replace = |row: &mut JournalRow| row.events = row.events.replace(&id.to_string(), "a string");
    assert_eq!(refused(&replace), "an object is not a JSON object");
    // A lost object loses no event, and the error names the row, the event and the text.
    let mut lost = shared_rows(&samples::events(10, vec![EventKind::Paused, appended(&large)])).remove(0);
    lost.texts[0].text = "".into();
    let error = Decoder::new().events(&lost).unwrap_err().to_string();
    let named = format!(
        "journal row of queue 3 (events 10 to 11): unreadable: event 11: its object is lost: text {id} is missing in table \
         texts, or differs"
    );
    assert!(error.starts_with(&named) && error.contains("deltaq check"), "{error}");
    let past = Decoder::new().past_events(&lost).unwrap();
    assert_eq!(past.lost, [LostObject { rv: Rv::new(11), text: id }]);
    assert_eq!(past.events, samples::events(10, vec![EventKind::Paused, appended("{}")]));
    // The checksum covers the list and the bytes.
    let other = SharedText { id: TextId::of("other"), text: "{}".into() };
    let changes: [&dyn Fn(&mut JournalRow); 3] =
        [&|row| row.texts.clear(), &|row| row.text_bytes += 1, &|row| row.texts.push(other.clone())];
    for change in changes {
        let mut row = row.clone();
        change(&mut row);
        assert!(matches!(Decoder::new().events(&row), Err(Error::Damaged { .. })));
    }
}
