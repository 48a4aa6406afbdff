//! The shared texts of a store: which of them new rows need, and the cleanup, which removes those that no row refers to.
//!
//! Texts have no counts. A cleanup reads all references to texts, page by page, while the writer continues. Then it goes
//! through the texts and removes those without a reference. A page is small enough that calls do not wait for it.
//!
//! Invariant: a text is removed only if no row refers to it. Only the writer adds rows, and it tells this module of
//! every row before it writes it. A row that exists when a text is removed was either there during the whole cleanup, so
//! the cleanup has read it, or was written since the cleanup began, so its texts are marked. A writer that has lost the
//! store to another one can't remove anything, because its epoch has ended.

use std::collections::HashMap;
use std::time::Duration;

use deltaq_runtime::clock::whole_us;

use super::store::{BEFORE_ALL_ROWS, Error, LISTED_ROWS_MAX, Position, Referring, SharedText, Store, Writes};
use super::text_id::TextId;

/// The shortest time between two cleanups that are not due to new texts.
const PAUSE: Duration = Duration::from_mins(1);
/// Cleanups that are not due to new texts take at most one part in this many of the writer's time.
const PAUSE_FACTOR: u64 = 20;
/// Target time of a step.
const STEP_TIME: Duration = Duration::from_millis(2);
/// The smallest number of rows in a step.
const ROWS_MIN: u32 = 8;
/// A step removes about this many bytes of texts for each of its rows.
const ROW_BYTES: u64 = 4 << 10;

/// What the writer knows about the texts.
#[derive(Debug)]
pub(super) struct Texts {
    /// Texts that the store has, each with the number of the last cleanup at which a row was known to refer to it.
    used: HashMap<TextId, u64>,
    /// The number of the last cleanup.
    cleanup: u64,
    running: Option<Phase>,
    /// The number of rows in a step. It adapts so that a step takes about [`STEP_TIME`].
    rows: u32,
    /// Bytes of texts that were added since the last cleanup began.
    added: u64,
    /// Bytes of texts that the last cleanup has kept.
    kept: u64,
    /// Bytes of texts that the running cleanup has kept so far.
    keeping: u64,
    /// A cleanup is due when at least this many bytes were added, and as many as the last one has kept.
    added_min: u64,
    /// Whether the store may have texts that are not in `used`.
    may_have_others: bool,
    /// Whether texts may have lost references since the last cleanup began.
    has_removed: bool,
    /// The time that the running cleanup has taken.
    spent_us: u64,
    /// No cleanup that is not due to new texts begins before this instant.
    next_us: u64,
}

/// How far a cleanup has come.
#[derive(Clone, Copy, Debug)]
enum Phase {
    References(Referring, Position),
    Texts(Option<TextId>),
}

impl Texts {
    pub(super) fn new(now_us: u64, added_min: u64) -> Self {
        Self {
            used: HashMap::new(),
            cleanup: 0,
            running: None,
            rows: ROWS_MIN,
            added: 0,
            kept: 0,
            keeping: 0,
            added_min,
            // An earlier writer may have left texts.
            may_have_others: true,
            has_removed: true,
            spent_us: 0,
            next_us: now_us.saturating_add(whole_us(PAUSE)),
        }
    }

    /// Completes a write by the texts to which its rows refer and which the store may not have. If the write fails,
    /// [`forget`](Self::forget) must follow.
    pub(super) fn complete(&mut self, writes: &mut Writes) {
        let Writes { texts, journal, runs, removed_runs, trimmed, emptied, .. } = writes;
        let referred =
            journal.iter().flat_map(|row| &row.texts).chain(runs.iter().flat_map(|row| &row.texts));
        for shared in referred {
            if self.used.insert(shared.id, self.cleanup).is_none() {
                self.added += shared.text.len() as u64;
                texts.push(shared.clone());
            }
        }
        let removes = [removed_runs.len(), trimmed.len(), emptied.len()];
        self.has_removed |= removes.into_iter().any(|rows| rows > 0);
    }

    /// Forgets everything after a failed write, because its outcome is unknown.
    pub(super) fn forget(&mut self) {
        self.used.clear();
        self.running = None;
        (self.may_have_others, self.has_removed) = (true, true);
    }

    /// Does a step of a cleanup. Returns the texts to remove at once, before any other write.
    pub(super) async fn step(&mut self, store: &mut impl Store) -> Result<Vec<TextId>, Error> {
        let phase = self.running.unwrap_or_else(|| self.begin());
        let mut unused = Vec::new();
        match phase {
            Phase::References(table, after) => {
                let found = store.references(table, after, self.rows).await?;
                for SharedText { id, .. } in found.iter().flat_map(|(_, texts)| texts) {
                    self.used.insert(*id, self.cleanup);
                }
                self.running = Some(match (found.last(), table) {
                    (Some((position, _)), table) => Phase::References(table, *position),
                    (None, Referring::Journal) => Phase::References(Referring::Runs, BEFORE_ALL_ROWS),
                    (None, Referring::Runs) => Phase::Texts(None),
                });
            }
            Phase::Texts(after) => {
                let (mut bytes_left, mut last) = (u64::from(self.rows) * ROW_BYTES, None);
                for (id, bytes) in store.texts(after, self.rows).await? {
                    last = Some(id);
                    if self.used.get(&id) == Some(&self.cleanup) {
                        self.keeping += bytes;
                        continue;
                    }
                    self.used.remove(&id);
                    unused.push(id);
                    bytes_left = bytes_left.saturating_sub(bytes);
                    if bytes_left == 0 {
                        break;
                    }
                }
                self.running = last.map(|id| Phase::Texts(Some(id)));
                if self.running.is_none() {
                    self.kept = self.keeping;
                }
            }
        }
        Ok(unused)
    }

    /// Gives up a running cleanup after a failed read. It begins again after a pause.
    pub(super) fn give_up(&mut self) {
        self.running = None;
        (self.may_have_others, self.has_removed) = (true, true);
    }

    /// Records the end of a step that took `took_us`, including the removal of the texts.
    pub(super) fn stepped(&mut self, now_us: u64, took_us: u64) {
        let rows = if took_us > whole_us(STEP_TIME) { self.rows / 2 } else { self.rows * 3 / 2 };
        self.rows = rows.clamp(ROWS_MIN, LISTED_ROWS_MAX);
        self.spent_us += took_us;
        let pause = whole_us(PAUSE).max(self.spent_us * PAUSE_FACTOR);
        self.next_us = now_us.saturating_add(pause);
    }

    /// Whether a cleanup is running or due.
    pub(super) fn has_work(&self, now_us: u64) -> bool {
        let has_texts = self.may_have_others || !self.used.is_empty();
        let has_grown = self.added > 0 && self.added >= self.added_min.max(self.kept);
        self.running.is_some() || has_grown || (self.has_removed && has_texts && now_us >= self.next_us)
    }

    fn begin(&mut self) -> Phase {
        self.cleanup += 1;
        (self.added, self.keeping, self.spent_us) = (0, 0, 0);
        (self.may_have_others, self.has_removed) = (false, false);
        Phase::References(Referring::Journal, BEFORE_ALL_ROWS)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use deltaq_engine::id::Rv;
    use deltaq_engine::time::Time;
    use fastrand::Rng;

    use super::super::store::{Epoch, JournalRow, QueueId, References, RunRow, Size};
    use super::*;

    /// The largest number of rows that are listed at a time, so that a short cleanup takes many steps.
    const PAGE: usize = 2;

    /// The rows of a store, with a text each.
    #[derive(Debug, Default)]
    struct Rows {
        journal: BTreeMap<i64, SharedText>,
        runs: BTreeMap<i64, SharedText>,
        texts: BTreeMap<TextId, u64>,
        /// The limits of the lists that were asked for.
        limits: Vec<u32>,
    }

    impl Rows {
        fn apply(&mut self, writes: Writes) {
            let added = writes.texts.iter().map(|shared| (shared.id, shared.text.len() as u64));
            self.texts.extend(added);
            for row in writes.journal {
                self.journal.insert(row.prev_rv.get().cast_signed(), row.texts[0].clone());
            }
            for row in writes.runs {
                self.runs.insert(row.number.cast_signed(), row.texts[0].clone());
            }
            self.texts.retain(|id, _| !writes.unused_texts.contains(id));
            let lost = self.referred().find(|id| !self.texts.contains_key(id));
            assert_eq!(lost, None, "a row refers to a text that was removed");
        }

        fn referred(&self) -> impl Iterator<Item = TextId> {
            self.journal.values().chain(self.runs.values()).map(|shared| shared.id)
        }
    }

    impl Store for Rows {
        async fn write(&mut self, writes: Writes) -> Result<(), Error> {
            self.apply(writes);
            Ok(())
        }

        async fn has_rows(&mut self, _: QueueId) -> Result<bool, Error> {
            Ok(true)
        }

        async fn references(
            &mut self,
            table: Referring,
            after: Position,
            limit: u32,
        ) -> Result<References, Error> {
            self.limits.push(limit);
            let rows = match table {
                Referring::Journal => &self.journal,
                Referring::Runs => &self.runs,
            };
            let next = rows.iter().map(|(at, shared)| ((0, *at), vec![shared.clone()]));
            Ok(next.filter(|(at, _)| *at > after).take(PAGE).collect())
        }

        async fn texts(&mut self, after: Option<TextId>, limit: u32) -> Result<Vec<(TextId, u64)>, Error> {
            self.limits.push(limit);
            let next = self.texts.iter().filter(|(id, _)| after.is_none_or(|after| **id > after));
            Ok(next.take(PAGE).map(|(id, bytes)| (*id, *bytes)).collect())
        }

        async fn reopen(&mut self) -> Result<Epoch, Error> {
            Ok(Epoch(1))
        }

        async fn upkeep(&mut self) -> Result<Size, Error> {
            Ok(Size::default())
        }

        async fn close(self) {}
    }

    fn text(number: u64) -> SharedText {
        let text: Arc<str> = format!("{{\"n\":{number}}}").into();
        SharedText { id: TextId::of(&text), text }
    }

    fn journal_row(prev_rv: u64, text: SharedText) -> Writes {
        let row = JournalRow {
            queue: QueueId(1),
            epoch: Epoch(1),
            prev_rv: Rv::new(prev_rv),
            first_rv: Rv::new(prev_rv + 1),
            last_rv: Rv::new(prev_rv + 1),
            at: Time::from_micros(1),
            format: 1,
            text_bytes: text.text.len() as u64,
            texts: vec![text],
            events: String::new(),
            checksum: 0,
        };
        Writes { journal: vec![row], ..Writes::default() }
    }

    fn run_row(number: u64, text: SharedText) -> Writes {
        let (queue, texts, entries) = (QueueId(1), vec![text], String::new());
        let row = RunRow { queue, number, format: 1, texts, entries, checksum: 0 };
        Writes { runs: vec![row], ..Writes::default() }
    }

    /// Rows come and go between the steps of the cleanups.
    async fn history(seed: u64) -> usize {
        let (mut rng, mut rows, mut texts) = (Rng::with_seed(seed), Rows::default(), Texts::new(0, 20));
        let (mut now_us, mut removed) = (0, 0);
        let mut next = 1;
        while texts.cleanup < 6 {
            now_us += rng.u64(..2 * whole_us(PAUSE));
            // Few texts, so that one is often used again after its last row has gone.
            let text = text(rng.u64(..8));
            let mut writes = match rng.u8(..8) {
                0 | 1 => {
                    next += 1;
                    journal_row(next, text)
                }
                2 => {
                    next += 1;
                    run_row(next, text)
                }
                3 => {
                    rows.journal.pop_first();
                    Writes { trimmed: vec![(QueueId(1), Rv::new(1))], ..Writes::default() }
                }
                4 => {
                    rows.runs.pop_first();
                    Writes { removed_runs: vec![(QueueId(1), 0..1)], ..Writes::default() }
                }
                5 if rng.u8(..20) == 0 => {
                    // The outcome of a write is unknown.
                    texts.forget();
                    continue;
                }
                _ => {
                    if !texts.has_work(now_us) {
                        continue;
                    }
                    let unused_texts = texts.step(&mut rows).await.unwrap();
                    texts.stepped(now_us, rng.u64(..2 * whole_us(STEP_TIME)));
                    removed += unused_texts.len();
                    Writes { unused_texts, ..Writes::default() }
                }
            };
            texts.complete(&mut writes);
            rows.apply(writes);
        }
        // Nothing happens any more: another cleanup leaves what rows refer to.
        for _ in 0..2 {
            texts.has_removed = true;
            now_us += 2 * whole_us(PAUSE);
            texts.next_us = 0;
            while texts.has_work(now_us) {
                let unused_texts = texts.step(&mut rows).await.unwrap();
                let mut writes = Writes { unused_texts, ..Writes::default() };
                texts.complete(&mut writes);
                rows.apply(writes);
            }
        }
        let referred: std::collections::BTreeSet<_> = rows.referred().collect();
        assert!(rows.texts.keys().eq(referred.iter()), "seed {seed}: {rows:?}");
        removed
    }

    #[tokio::test]
    async fn a_cleanup_removes_exactly_the_texts_that_no_row_refers_to() {
        let mut removed = 0;
        for seed in 0..300 {
            removed += history(seed).await;
        }
        assert!(removed > 300, "{removed} texts were removed");
    }

    #[tokio::test]
    async fn a_store_without_texts_is_cleaned_once() {
        let (mut rows, mut texts) = (Rows::default(), Texts::new(0, 20));
        let mut steps = 0;
        for minute in 0..100 {
            let mut writes = Writes { trimmed: vec![(QueueId(1), Rv::new(1))], ..Writes::default() };
            texts.complete(&mut writes);
            if texts.has_work(minute * whole_us(PAUSE)) {
                assert_eq!(texts.step(&mut rows).await.unwrap(), []);
                steps += 1;
            }
        }
        assert_eq!(steps, 3, "the journal, the runs, and the texts");
    }

    /// Calls wait for a step, so a step must stay short however slow the store is and however large the texts are.
    #[tokio::test]
    async fn the_steps_of_a_cleanup_adapt_to_their_time() {
        let (mut rows, mut texts) = (Rows::default(), Texts::new(0, 20));
        let large = (0..100).map(|number| (text(number).id, 100 * ROW_BYTES));
        rows.texts.extend(large);
        let (short, long) = (whole_us(STEP_TIME), whole_us(STEP_TIME) + 1);
        for took_us in [[short; 20], [long; 20]].concat() {
            texts.step(&mut rows).await.unwrap();
            texts.stepped(0, took_us);
        }
        assert_eq!(rows.limits[..4], [8, 12, 18, 27]);
        assert_eq!(rows.limits[20..24], [250, 125, 62, 31]);
        assert_eq!(rows.limits[39], ROWS_MIN);
        // A step removes texts of a few bytes, or one text.
        texts.running = Some(Phase::Texts(None));
        assert_eq!(texts.step(&mut rows).await.unwrap().len(), 1);
    }

    #[tokio::test]
    async fn a_text_is_written_once_until_the_outcome_of_a_write_is_unknown() {
        let mut texts = Texts::new(0, 20);
        let written = |texts: &mut Texts, mut writes: Writes| {
            texts.complete(&mut writes);
            writes.texts.len()
        };
        let twice = Writes {
            journal: [1, 2].map(|rv| journal_row(rv, text(1)).journal.remove(0)).into(),
            ..run_row(1, text(1))
        };
        assert_eq!(written(&mut texts, twice), 1);
        assert_eq!(written(&mut texts, run_row(2, text(1))), 0);
        texts.forget();
        assert_eq!(written(&mut texts, run_row(2, text(1))), 1);
    }
}
