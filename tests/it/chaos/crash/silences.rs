//! How long the clients had to do without a reply, for each fault.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use deltaq_journal::postgres::TTL;

use super::history::{Answer, Call, Us};

/// The longest time until a call is answered in a long run: the time until a node is removed, plus a second.
const ANSWER_MAX: Us = (TTL.as_secs() + 1) * 1_000_000;

/// The longest times of one fault, in microseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Silence {
    /// Without a successful call on a queue.
    queue: Us,
    /// From the beginning of a call to its answer, without the time for which a process was frozen.
    answer: Us,
}

/// The longest times of each fault.
#[derive(Debug, Default)]
pub(super) struct Silences(BTreeMap<String, Silence>);

impl Silences {
    /// Adds the calls of a round with this fault. A process was frozen for the time `frozen_us`.
    pub(super) fn add(&mut self, fault: String, frozen_us: Us, calls: &[Call]) {
        let silence = self.0.entry(fault).or_default();
        let mut succeeded: BTreeMap<&str, Vec<Us>> = BTreeMap::new();
        for Call { queue, start, end, answer, .. } in calls {
            silence.answer = silence.answer.max((end - start).saturating_sub(frozen_us));
            if matches!(answer, Answer::Ok(_)) {
                succeeded.entry(queue).or_default().push(*end);
            }
        }
        for mut ends in succeeded.into_values() {
            ends.sort_unstable();
            let longest = ends.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default();
            silence.queue = silence.queue.max(longest);
        }
    }

    /// The times as text.
    pub(super) fn summary(&self) -> String {
        let mut text =
            "longest times in ms: without a successful call on a queue, until an answer\n".to_owned();
        for (fault, Silence { queue, answer }) in &self.0 {
            let _ = writeln!(text, "{:>8} {:>8}  {fault}", queue / 1_000, answer / 1_000);
        }
        text
    }

    /// The faults after which a call took longer to be answered than it may.
    pub(super) fn too_long(&self) -> Vec<&str> {
        let is_too_long = |silence: &Silence| silence.answer > ANSWER_MAX;
        self.0.iter().filter(|(_, silence)| is_too_long(silence)).map(|(fault, _)| fault.as_str()).collect()
    }
}
