//! The checksum of a row: CRC32C over all its other columns.
//!
//! The checksum reveals damage. It is not a signature: anyone can compute it. The layout of the checksummed bytes is
//! independent of the format version, so that a row of any version can be checked before it is read. It consists of a
//! letter for the kind of row, then each column in the order of the struct. An integer or a flag takes eight bytes,
//! little-endian. A text is its length in bytes as an integer, followed by its UTF-8. A nullable column is the
//! integer 0, or the integer 1 followed by its value.

use crate::store::{JournalRow, QueueRow, RunRow, texts_column};

/// The checksum of the columns so far.
struct Sum(u32);

impl Sum {
    fn new(kind: u8) -> Self {
        Self(crc32c::crc32c(&[kind]))
    }

    fn number(self, number: impl Into<u64>) -> Self {
        Self(crc32c::crc32c_append(self.0, &number.into().to_le_bytes()))
    }

    fn text(self, text: &str) -> Self {
        let Self(sum) = self.number(text.len() as u64);
        Self(crc32c::crc32c_append(sum, text.as_bytes()))
    }

    fn optional_text(self, text: Option<&str>) -> Self {
        match text {
            Some(text) => self.number(1_u64).text(text),
            None => self.number(0_u64),
        }
    }
}

/// The checksum of the row's other columns.
pub(super) fn of_journal_row(row: &JournalRow) -> u32 {
    let sum = Sum::new(b'j').number(row.queue.0).number(row.epoch.0).number(row.prev_rv).number(row.first_rv);
    let sum = sum.number(row.last_rv).number(row.at.as_micros()).number(row.format);
    let sum = sum.optional_text(texts_column(&row.texts).as_deref()).number(row.text_bytes);
    sum.text(&row.events).0
}

/// The checksum of the row's other columns.
pub(super) fn of_run_row(row: &RunRow) -> u32 {
    let sum = Sum::new(b'r').number(row.queue.0).number(row.number).number(row.format);
    sum.optional_text(texts_column(&row.texts).as_deref()).text(&row.entries).0
}

/// The checksum of the row's other columns.
pub(super) fn of_queue_row(row: &QueueRow) -> u32 {
    let sum = Sum::new(b'q').number(row.id.0).number(row.version).text(&row.name).number(row.incarnation);
    let sum = sum.number(row.created_at.as_micros()).number(row.deleted).number(row.rv);
    let sum = sum.number(row.first_run).number(row.next_run);
    sum.text(&row.state).number(row.format).0
}
