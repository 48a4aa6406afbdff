//! Limits the log lines of one kind about a queue, because its callers could otherwise fill the log.

use parking_lot::Mutex;

/// The shortest time between two lines, in microseconds.
const PERIOD_US: u64 = 1_000_000;

/// What has happened since the last line, and when the next line may be written.
#[derive(Debug, Default)]
pub(crate) struct LineLimit(Mutex<(u64, u64)>);

impl LineLimit {
    /// The count for a line, if something has happened and a line may be written. Otherwise it counts for the next line.
    pub(crate) fn admit(&self, count: u64, now_us: u64) -> Option<u64> {
        if count == 0 {
            return None;
        }
        let (counted, next_us) = &mut *self.0.lock();
        *counted += count;
        if now_us < *next_us {
            return None;
        }
        *next_us = now_us + PERIOD_US;
        Some(std::mem::take(counted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_has_one_line_a_second() {
        let lines = LineLimit::default();
        assert_eq!(lines.admit(0, 5), None);
        assert_eq!(lines.admit(2, 5), Some(2));
        assert_eq!(lines.admit(3, 6), None);
        assert_eq!(lines.admit(4, PERIOD_US + 4), None);
        assert_eq!(lines.admit(1, PERIOD_US + 5), Some(8), "what has no line is counted");
    }
}
