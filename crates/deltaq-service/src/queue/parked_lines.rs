//! Limits the log lines about parked keys of a queue, because its workers could otherwise fill the log.

use parking_lot::Mutex;

/// The shortest time between two lines, in microseconds.
const PERIOD_US: u64 = 1_000_000;

/// The keys that were parked since the last line, and when the next line may be written.
#[derive(Debug, Default)]
pub(crate) struct ParkedLines(Mutex<(u64, u64)>);

impl ParkedLines {
    /// The number of keys for a line, if there are new ones and one may be written. Other keys count for the next line.
    pub(crate) fn admit(&self, parked: u64, now_us: u64) -> Option<u64> {
        if parked == 0 {
            return None;
        }
        let (keys, next_us) = &mut *self.0.lock();
        *keys += parked;
        if now_us < *next_us {
            return None;
        }
        *next_us = now_us + PERIOD_US;
        Some(std::mem::take(keys))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_has_one_line_a_second() {
        let lines = ParkedLines::default();
        assert_eq!(lines.admit(0, 5), None);
        assert_eq!(lines.admit(2, 5), Some(2));
        assert_eq!(lines.admit(3, 6), None);
        assert_eq!(lines.admit(4, PERIOD_US + 4), None);
        assert_eq!(lines.admit(1, PERIOD_US + 5), Some(8), "the keys without a line are counted");
    }
}
