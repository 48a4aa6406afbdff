//! How the most recently settled leases ended. If a client did not receive the reply to a settle, it repeats the
//! settle and gets the same reply.
//!
//! Leases are usually settled about in the order of their tokens and end alike, so the records are kept as runs: leases
//! that were settled one after the other, ended alike, and whose tokens have equal distances. A queue whose keys go through
//! one by one has a run for thousands of leases. Workers in parallel end about two leases in a run, which takes three to five bytes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize, Serializer};

use super::id::Token;
use super::limits::{SETTLED_LEASES_MAX, SETTLED_LEASES_SECS};
use super::time::Time;

/// Maximum number of leases of a block. The oldest block is dropped as a whole.
const BLOCK_LEASES: u64 = 8_192;
/// A block with this many bytes is full. A read decodes a block.
const BLOCK_BYTES: usize = 1_024;

/// How a lease ended. The records count the outcomes from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Acknowledged.
    Acked,
    /// Done, without an acknowledgement.
    Done,
    /// Its worker reported a failure.
    Nacked,
    /// Released by its worker.
    Released,
    /// Rejected by its worker.
    Rejected,
    /// Its deadline passed.
    Expired,
    /// The lease never existed, or its record was dropped.
    Unknown,
}

impl Outcome {
    /// The name in the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Acked => "acked",
            Self::Done => "done",
            Self::Nacked => "nacked",
            Self::Released => "released",
            Self::Rejected => "rejected",
            Self::Expired => "expired",
            Self::Unknown => "unknown",
        }
    }
}

/// The outcomes in the order in which [`Outcome`] declares them.
const OUTCOMES: [Outcome; 7] = [
    Outcome::Acked,
    Outcome::Done,
    Outcome::Nacked,
    Outcome::Released,
    Outcome::Rejected,
    Outcome::Expired,
    Outcome::Unknown,
];

/// The last [`SETTLED_LEASES_MAX`] settled leases. Those that are older than [`SETTLED_LEASES_SECS`] may be missing.
///
/// Invariant: `len` is the number of leases in all blocks. It exceeds the limit by less than a block.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(from = "Vec<Stored>")]
pub struct SettledLeases {
    /// Full blocks, the oldest first. A checkpoint shares them.
    full: VecDeque<Arc<Block>>,
    /// The newest block; `None` if no lease is recorded.
    newest: Option<Block>,
    len: u64,
    /// The size of the full blocks.
    full_bytes: usize,
}

/// Leases that were settled one after the other. The JSON has all runs as text.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "StoredBlock")]
struct Block {
    /// When the last of the leases was settled.
    at: Time,
    /// All runs but the last one, as text.
    runs: String,
    /// The last token of `runs`.
    before: u64,
    last: Run,
    leases: u64,
    /// The smallest and the largest token.
    bounds: (u64, u64),
}

/// Leases that ended alike and whose tokens have the distance `step`, in the order in which they were settled.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Run {
    first: u64,
    step: i64,
    count: u64,
    outcome: Outcome,
}

#[derive(Serialize, Deserialize)]
struct StoredBlock {
    at: Time,
    runs: String,
}

/// The stored forms of a block. Older checkpoints have lists of tokens.
#[derive(Deserialize)]
#[serde(untagged)]
enum Stored {
    Block(Block),
    Alike { outcome: Outcome, tokens: Vec<Token> },
}

impl SettledLeases {
    /// Records how the lease ended.
    pub fn record(&mut self, token: Token, outcome: Outcome, at: Time) {
        self.len += 1;
        match &mut self.newest {
            Some(newest) if !newest.is_full() => newest.add(token.rv().get(), outcome, at),
            newest => {
                let run = Run { first: token.rv().get(), step: 0, count: 1, outcome };
                let full = newest.replace(Block::begin(run, at));
                self.push_full(full);
            }
        }
        let age = Duration::from_secs(SETTLED_LEASES_SECS);
        while let Some(oldest) = self.full.front()
            && (self.len - oldest.leases >= SETTLED_LEASES_MAX as u64 || oldest.at.plus(age) < at)
        {
            self.len -= oldest.leases;
            self.full_bytes -= oldest.bytes();
            self.full.pop_front();
        }
    }

    /// How the lease ended; `Unknown` if there is no record of it.
    pub(super) fn get(&self, token: Token) -> Outcome {
        let token = token.rv().get();
        // The oldest block may begin with leases that are too many.
        let mut too_many = self.len.saturating_sub(SETTLED_LEASES_MAX as u64);
        for block in self.full.iter().map(Arc::as_ref).chain(&self.newest) {
            if let Some((position, outcome)) = block.find(token) {
                return if position < too_many { Outcome::Unknown } else { outcome };
            }
            too_many = 0;
        }
        Outcome::Unknown
    }

    /// Approximate size of the records in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.full_bytes + self.newest.as_ref().map_or(0, Block::bytes)
    }

    fn push_full(&mut self, block: Option<Block>) {
        self.full_bytes += block.as_ref().map_or(0, Block::bytes);
        self.full.extend(block.map(Arc::new));
    }
}

impl From<Vec<Stored>> for SettledLeases {
    fn from(stored: Vec<Stored>) -> Self {
        let mut settled = Self::default();
        for stored in stored {
            match stored {
                Stored::Block(block) => {
                    settled.len += block.leases;
                    let full = settled.newest.replace(block);
                    settled.push_full(full);
                }
                Stored::Alike { outcome, tokens } => {
                    for token in tokens {
                        settled.record(token, outcome, Time::default());
                    }
                }
            }
        }
        settled
    }
}

impl Serialize for SettledLeases {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.full.iter().map(Arc::as_ref).chain(&self.newest).map(StoredBlock::from))
    }
}

impl Block {
    fn begin(run: Run, at: Time) -> Self {
        let bounds = (run.first.min(run.end()), run.first.max(run.end()));
        Self { at, runs: String::new(), before: 0, last: run, leases: run.count, bounds }
    }

    fn is_full(&self) -> bool {
        self.leases >= BLOCK_LEASES || self.runs.len() >= BLOCK_BYTES
    }

    fn bytes(&self) -> usize {
        size_of::<Self>() + self.runs.capacity()
    }

    fn add(&mut self, token: u64, outcome: Outcome, at: Time) {
        self.at = at;
        if self.last.extend(token, outcome) {
            self.leases += 1;
            self.bounds = (self.bounds.0.min(token), self.bounds.1.max(token));
        } else {
            self.begin_run(Run { first: token, step: 0, count: 1, outcome });
        }
    }

    fn begin_run(&mut self, run: Run) {
        let ended = std::mem::replace(&mut self.last, run);
        ended.write(&mut self.runs, self.before);
        self.before = ended.end();
        self.leases += run.count;
        let (first, end) = (run.first, run.end());
        self.bounds = (self.bounds.0.min(first).min(end), self.bounds.1.max(first).max(end));
    }

    /// The outcome of a lease of the block, and its position in the order in which the leases were settled.
    fn find(&self, token: u64) -> Option<(u64, Outcome)> {
        let (smallest, largest) = self.bounds;
        if !(smallest..=largest).contains(&token) {
            return None;
        }
        let mut before = 0;
        for run in (Runs { text: self.runs.bytes(), before: 0 }).chain([self.last]) {
            if let Some(position) = run.position(token) {
                return Some((before + position, run.outcome));
            }
            before += run.count;
        }
        None
    }
}

impl From<&Block> for StoredBlock {
    fn from(block: &Block) -> Self {
        let mut runs = block.runs.clone();
        block.last.write(&mut runs, block.before);
        Self { at: block.at, runs }
    }
}

impl TryFrom<StoredBlock> for Block {
    type Error = &'static str;

    fn try_from(stored: StoredBlock) -> Result<Self, Self::Error> {
        let mut runs = Runs { text: stored.runs.bytes(), before: 0 };
        let mut block = Self::begin(runs.next().ok_or("a block of settled leases is empty")?, stored.at);
        for run in runs {
            block.begin_run(run);
        }
        // A text that ends in the middle of a run, or has other characters, is written in another way.
        let is_whole = StoredBlock::from(&block).runs == stored.runs;
        if is_whole { Ok(block) } else { Err("the runs of a block of settled leases can't be read") }
    }
}

impl Run {
    /// The last token.
    const fn end(&self) -> u64 {
        let steps = self.step.wrapping_mul(self.count.cast_signed() - 1);
        self.first.wrapping_add_signed(steps)
    }

    /// Adds a lease to the run, if it belongs there.
    fn extend(&mut self, token: u64, outcome: Outcome) -> bool {
        let step = token.wrapping_sub(self.end()).cast_signed();
        if self.outcome != outcome || self.count > 1 && self.step != step {
            return false;
        }
        self.step = step;
        self.count += 1;
        true
    }

    /// The position of a token in the run.
    fn position(&self, token: u64) -> Option<u64> {
        let distance = token.wrapping_sub(self.first).cast_signed();
        if distance == 0 {
            return Some(0);
        }
        let steps =
            distance.checked_div(self.step).filter(|steps| steps.wrapping_mul(self.step) == distance)?;
        u64::try_from(steps).ok().filter(|steps| *steps < self.count)
    }

    /// Appends the run to a text whose last token is `before`.
    fn write(&self, text: &mut String, before: u64) {
        write_number(text, (self.count - 1) << 3 | self.outcome as u64);
        write_signed(text, self.first.wrapping_sub(before).cast_signed());
        if self.count > 1 {
            write_signed(text, self.step);
        }
    }
}

/// The runs of a text.
struct Runs<'t> {
    text: std::str::Bytes<'t>,
    before: u64,
}

impl Runs<'_> {
    fn number(&mut self) -> Option<u64> {
        let (mut number, mut shift) = (0, 0);
        loop {
            let char = self.text.next()?;
            let digit = char.checked_sub(FIRST_DIGIT + u8::from(char > b'\\'))?;
            number |= u64::from(digit & 31).checked_shl(shift)?;
            shift += 5;
            if digit & 32 == 0 {
                return Some(number);
            }
        }
    }

    fn signed(&mut self) -> Option<i64> {
        let number = self.number()?;
        Some((number >> 1).cast_signed() ^ -(number & 1).cast_signed())
    }
}

impl Iterator for Runs<'_> {
    type Item = Run;

    fn next(&mut self) -> Option<Run> {
        let head = self.number()?;
        let outcome = *OUTCOMES.get(usize::try_from(head & 7).ok()?)?;
        let count = Some((head >> 3) + 1).filter(|count| *count <= BLOCK_LEASES)?;
        let first = self.before.wrapping_add_signed(self.signed()?);
        let step = if count > 1 { self.signed()? } else { 0 };
        let run = Run { first, step, count, outcome };
        self.before = run.end();
        Some(run)
    }
}

/// The character of the digit 0. A digit has five bits, and a sixth if another digit follows. The characters from the
/// backslash on are moved by one, because JSON would escape it.
const FIRST_DIGIT: u8 = b'#';

fn write_number(text: &mut String, number: u64) {
    let mut rest = number;
    loop {
        let digit = u8::try_from(rest & 31).unwrap_or_default();
        rest >>= 5;
        let char = FIRST_DIGIT + digit + if rest > 0 { 32 } else { 0 };
        text.push(char::from(char + u8::from(char >= b'\\')));
        if rest == 0 {
            return;
        }
    }
}

/// Writes a number so that small negative numbers are short, too.
fn write_signed(text: &mut String, number: i64) {
    write_number(text, (number << 1 ^ number >> 63).cast_unsigned());
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::id::Rv;

    const LEASES: usize = SETTLED_LEASES_MAX + 3 * 8_192;

    fn token(number: u64) -> Token {
        Token::new(Rv::new(number))
    }

    fn settled(leases: impl IntoIterator<Item = (u64, Outcome)>) -> SettledLeases {
        let mut settled = SettledLeases::default();
        leases
            .into_iter()
            .for_each(|(number, outcome)| settled.record(token(number), outcome, Time::default()));
        settled
    }

    fn stored_bytes(settled: &SettledLeases) -> usize {
        serde_json::to_string(settled).unwrap().len()
    }

    /// Batches of keys that are popped and acknowledged at once.
    fn in_batches(len: u64) -> impl Iterator<Item = (u64, Outcome)> {
        (0..).flat_map(move |batch| (0..len).map(move |n| (1 + batch * 2 * len + n, Outcome::Acked)))
    }

    /// Leases of workers in parallel: tokens in disorder, at different distances.
    fn in_parallel(workers: usize, failures: f64) -> Vec<(u64, Outcome)> {
        let mut random = fastrand::Rng::with_seed(workers as u64);
        let (mut live, mut number) = (Vec::new(), 1);
        std::iter::repeat_with(|| {
            while live.len() < workers {
                number += random.u64(1..5);
                live.push(number);
            }
            number += 1;
            let failed = OUTCOMES[random.usize(0..6)];
            let outcome = if random.f64() < failures { failed } else { Outcome::Acked };
            (live.swap_remove(random.usize(..workers)), outcome)
        })
        .take(LEASES)
        .collect()
    }

    #[test]
    fn the_records_equal_those_of_a_list() {
        let shapes: [Vec<(u64, Outcome)>; 6] = [
            (0..).map(|n| (2 + 3 * n, Outcome::Acked)).take(LEASES).collect(),
            (0..)
                .map(|n| (10_000_000 - 7 * n, OUTCOMES[usize::try_from(n / 5 % 7).unwrap()]))
                .take(LEASES)
                .collect(),
            in_batches(100).take(LEASES).collect(),
            in_parallel(1, 0.0),
            in_parallel(16, 0.1),
            in_parallel(300, 0.9),
        ];
        for leases in shapes {
            let (mut settled, mut model) = (SettledLeases::default(), VecDeque::new());
            let mut random = fastrand::Rng::with_seed(7);
            for (at, (number, outcome)) in (1..).zip(leases.iter().copied()) {
                settled.record(token(number), outcome, Time::from_micros(at));
                model.push_back((number, outcome));
                if model.len() > SETTLED_LEASES_MAX {
                    model.pop_front();
                }
                if at % 7_001 == 0 {
                    let again: SettledLeases =
                        serde_json::from_str(&serde_json::to_string(&settled).unwrap()).unwrap();
                    assert_eq!(again, settled);
                    let first = usize::try_from(at).unwrap() - model.len();
                    for _ in 0..20 {
                        let (number, outcome) = model[random.usize(..model.len())];
                        assert_eq!(again.get(token(number)), outcome, "{number}");
                    }
                    for (number, _) in leases[first.saturating_sub(9_000)..first].iter().step_by(97) {
                        assert_eq!(again.get(token(*number)), Outcome::Unknown, "{number} is too old");
                    }
                }
            }
            let all: std::collections::HashMap<u64, Outcome> = model.into_iter().collect();
            for number in leases.iter().map(|(number, _)| *number + random.u64(..3)).step_by(31) {
                let outcome = all.get(&number).copied().unwrap_or(Outcome::Unknown);
                assert_eq!(settled.get(token(number)), outcome, "{number}");
            }
        }
    }

    #[test]
    fn alike_leases_take_few_bytes() {
        let one_by_one = settled((0..).map(|n| (2 + 3 * n, Outcome::Acked)).take(LEASES));
        let batches = settled(in_batches(100).take(LEASES));
        let parallel = settled(in_parallel(64, 0.01));
        let failing = settled(in_parallel(64, 0.5));
        for (what, settled, most) in [
            ("one by one", one_by_one, 600),
            ("batches of 100", batches, 5_000),
            ("in parallel", parallel, 190_000),
            ("in parallel with failures", failing, 250_000),
        ] {
            assert!(stored_bytes(&settled) < most, "{what}: {} bytes", stored_bytes(&settled));
            assert!(settled.bytes() < 2 * most + 1_000, "{what}: {} bytes in memory", settled.bytes());
        }
    }

    #[test]
    fn old_leases_are_forgotten_when_others_end() {
        let mut settled = SettledLeases::default();
        let times = [0, SETTLED_LEASES_SECS * 1_000_000, SETTLED_LEASES_SECS * 1_000_000 + 2];
        for (number, at) in (1..).zip(times) {
            let first = number * 1_000_000;
            for n in 0..BLOCK_LEASES {
                settled.record(token(first + n), Outcome::Nacked, Time::from_micros(at));
            }
        }
        assert_eq!(settled.get(token(1_000_000)), Outcome::Unknown);
        assert_eq!(settled.get(token(2_000_000)), Outcome::Nacked, "a difference of numbers does not count");
        assert_eq!(settled.get(token(3_000_000)), Outcome::Nacked);
    }

    #[test]
    fn the_lists_of_older_checkpoints_are_read() {
        let text = r#"[{"outcome":"acked","tokens":[11,10]},{"outcome":"nacked","tokens":[12]}]"#;
        let settled: SettledLeases = serde_json::from_str(text).unwrap();
        assert_eq!(
            [9, 10, 11, 12].map(|number| settled.get(token(number)).as_str()),
            ["unknown", "acked", "acked", "nacked"]
        );
    }

    #[test]
    fn a_damaged_text_is_refused() {
        let text = serde_json::to_string(&settled(in_parallel(3, 0.5))).unwrap();
        let runs = text.split('"').nth(5).unwrap();
        for bad in ["", "~", "C", &runs[..runs.len() - 1], &format!("{runs} "), "bbbbbbbbbbbbbbbb"] {
            let stored = format!(r#"[{{"at":1,"runs":"{bad}"}}]"#);
            assert!(serde_json::from_str::<SettledLeases>(&stored).is_err(), "{bad}");
        }
    }
}
