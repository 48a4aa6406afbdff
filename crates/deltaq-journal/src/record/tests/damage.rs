//! Damage to any column of any row is found.

use deltaq_engine::id::Rv;
use deltaq_engine::time::Time;

use super::{run_of, samples};
use crate::record::{Decoder, Error, checksum, journal_rows, queue_row};
use crate::store::{Epoch, QueueId, SharedText};
use crate::text_id::TextId;

/// The text with one bit flipped, for every bit that leaves valid UTF-8.
fn flipped(text: &str) -> Vec<String> {
    let mut all = Vec::new();
    for index in 0..text.len() {
        for bit in 0..7 {
            let mut bytes = text.as_bytes().to_vec();
            bytes[index] ^= 1 << bit;
            all.extend(String::from_utf8(bytes).ok());
        }
    }
    assert!(!all.is_empty());
    all
}

/// Copies of a row, each with one change.
struct Damage<R> {
    row: R,
    damaged: Vec<R>,
}

impl<R: Clone + PartialEq + std::fmt::Debug> Damage<R> {
    fn new(row: R) -> Self {
        Self { row, damaged: Vec::new() }
    }

    fn with(&mut self, change: impl FnOnce(&mut R)) {
        let mut row = self.row.clone();
        change(&mut row);
        assert_ne!(row, self.row);
        self.damaged.push(row);
    }

    fn text(&mut self, text: &str, set: impl Fn(&mut R, String)) {
        for text in flipped(text) {
            self.with(|row| set(row, text));
        }
        self.with(|row| set(row, format!("{text} ")));
        self.with(|row| set(row, text[1..].to_owned()));
    }

    fn number(&mut self, bits: u32, flip: impl Fn(&mut R, u64)) {
        for bit in 0..bits {
            self.with(|row| flip(row, 1 << bit));
        }
        self.with(|row| flip(row, u64::MAX >> (64 - bits)));
    }

    fn must_be_found<T: std::fmt::Debug>(self, read: impl Fn(&R) -> Result<T, Error>) {
        read(&self.row).unwrap();
        for row in self.damaged {
            assert!(matches!(read(&row), Err(Error::Damaged { .. })), "{row:?}");
        }
    }
}

fn low(number: u64) -> u32 {
    u32::try_from(number).unwrap()
}

fn flip(rv: Rv, mask: u64) -> Rv {
    Rv::new(rv.get() ^ mask)
}

#[test]
fn damage_to_a_journal_row_is_found() {
    let events = samples::events(10, samples::kinds().split_off(1));
    let mut damage = Damage::new(journal_rows(QueueId(3), Epoch(812), Rv::new(9), &events, false).remove(0));
    let text = damage.row.events.clone();
    damage.text(&text, |row, text| row.events = text);
    damage.number(64, |row, mask| row.epoch.0 ^= mask);
    damage.number(32, |row, mask| row.queue.0 ^= low(mask));
    damage.number(64, |row, mask| row.prev_rv = flip(row.prev_rv, mask));
    damage.number(64, |row, mask| row.first_rv = flip(row.first_rv, mask));
    damage.number(64, |row, mask| row.last_rv = flip(row.last_rv, mask));
    damage.number(64, |row, mask| {
        row.at = Time::from_micros(row.at.as_micros() ^ mask);
    });
    damage.number(32, |row, mask| row.format ^= low(mask));
    damage.number(32, |row, mask| row.checksum ^= low(mask));
    damage.must_be_found(|row| Decoder::new().events(row));
}

#[test]
fn damage_to_a_run_is_found() {
    let mut damage = Damage::new(run_of(&samples::key_states()[6], false));
    let text = damage.row.entries.clone();
    damage.text(&text, |row, text| row.entries = text);
    damage.number(32, |row, mask| row.queue.0 ^= low(mask));
    damage.number(64, |row, mask| row.number ^= mask);
    damage.number(32, |row, mask| row.format ^= low(mask));
    damage.number(32, |row, mask| row.checksum ^= low(mask));
    damage.with(|row| row.texts.push(SharedText { id: TextId::of("{}"), text: "{}".into() }));
    damage.must_be_found(|row| Decoder::new().run(row));
}

#[test]
fn damage_to_a_queue_row_is_found() {
    let mut damage = Damage::new(queue_row(&samples::identity(), &samples::queue_states()[2], 4..9));
    let row = damage.row.clone();
    damage.text(&row.name, |row, text| row.name = text.into());
    damage.text(&row.state, |row, text| row.state = text);
    damage.number(32, |row, mask| row.id.0 ^= low(mask));
    damage.number(64, |row, mask| row.version ^= mask);
    damage.number(32, |row, mask| row.incarnation ^= low(mask));
    damage.number(64, |row, mask| {
        row.created_at = Time::from_micros(row.created_at.as_micros() ^ mask);
    });
    damage.with(|row| row.deleted = true);
    damage.number(64, |row, mask| row.rv = flip(row.rv, mask));
    damage.number(64, |row, mask| row.first_run ^= mask);
    damage.number(64, |row, mask| row.next_run ^= mask);
    damage.number(32, |row, mask| row.format ^= low(mask));
    damage.number(32, |row, mask| row.checksum ^= low(mask));
    damage.must_be_found(|row| Decoder::new().queue(row));
}

#[test]
fn the_error_names_the_damaged_row() {
    let events = samples::events(10, samples::kinds());
    let mut row = journal_rows(QueueId(3), Epoch(812), Rv::new(9), &events, false).remove(0);
    let checksum = row.checksum;
    row.checksum ^= 1;
    let last = row.last_rv;
    assert_eq!(
        Decoder::new().events(&row).unwrap_err().to_string(),
        format!(
            "journal row of queue 3 (events 10 to {last}): damaged: the checksum is {:08x}, and that of the \
             other columns {checksum:08x}",
            row.checksum
        )
    );
    let mut row = run_of(&samples::key_states()[6], false);
    row.number += 1;
    let message = Decoder::new().run(&row).unwrap_err().to_string();
    assert!(message.starts_with("run 5 (queue 3): damaged"), "{message}");
    let mut row = queue_row(&samples::identity(), &samples::queue_states()[0], 4..9);
    row.rv = row.rv.next();
    let message = Decoder::new().queue(&row).unwrap_err().to_string();
    assert!(message.starts_with("queue row 3 (name \"prices\"): damaged"), "{message}");
}

#[test]
fn a_row_of_an_unknown_version_is_refused() {
    let mut row = run_of(&samples::key_states()[0], false);
    row.format = 2;
    row.checksum = checksum::of_run_row(&row);
    assert_eq!(
        Decoder::new().run(&row).unwrap_err().to_string(),
        "run 4 (queue 3): its format is version 2, and the newest that can be read here is 1"
    );
    row.format = 0;
    row.checksum = checksum::of_run_row(&row);
    assert!(matches!(Decoder::new().run(&row), Err(Error::Unreadable { .. })));
}
