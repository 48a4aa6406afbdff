//! Reads the log of changes: looks for new ones, sends them, and moves the slot once the queue has stored them.

use std::pin::pin;
use std::time::Duration;

use futures_util::TryStreamExt as _;
use tokio::time::{Instant, sleep};

use super::Position;
use super::changes::Changes;
use super::pgoutput::{Lsn, decode};
use super::session::{Session, get, refused, within};
use super::slot::{self, Names, Status};
use super::transactions::{Point, Reason, Step};
use crate::source::{Error, NextList, Output};

/// The pause after changes, and its maximum while there are none. Only the end of the log is read after it, which costs the database some
/// hundredths of a millisecond.
const PAUSE_MIN: Duration = Duration::from_millis(2);
const PAUSE_MAX: Duration = Duration::from_millis(10);
/// How often the slot and the place are looked at while the log does not grow.
const STATUS_EVERY: Duration = Duration::from_secs(1);
/// The pause is at least this many times as long as a look takes, so that the database spends at most a third of
/// one processor on it.
const PAUSE_TIMES: u32 = 2;
/// How often the slot is moved while there are changes, and while there are none.
const CONFIRM_EVERY: Duration = Duration::from_secs(1);
const CONFIRM_IDLE_EVERY: Duration = Duration::from_secs(10);
/// A look ends with the transaction that reaches this many rows.
const ROWS_MAX: usize = 1_000;
/// If a look returns this many rows, the slot is moved, so that the next one does not return them again.
const ROWS_CONFIRM: usize = 500;
/// How many changes are converted at once, and their size in bytes, unless a single one has more.
const CHUNK: usize = 500;
const CHUNK_BYTES: usize = 4 << 20;
const PEEK: &str = "SELECT data FROM pg_logical_slot_peek_binary_changes($1, NULL, $2::text::int4, 'proto_version', '1', 'publication_names', $3)";

/// Why the stream has ended.
pub(super) enum Ended {
    /// The connection has failed. The stream can continue where it was.
    Broken(Error),
    /// The place in the log is lost: a list is needed.
    Lost(Error),
    /// The process stops. The queue has everything that was read.
    Stopped,
}

impl From<Error> for Ended {
    fn from(error: Error) -> Self {
        Self::Broken(error)
    }
}

/// The stream while its connections last.
pub(super) struct Reading<'r> {
    log: Session,
    rows: Session,
    names: &'r Names,
    drop: &'r str,
    output: &'r Output,
    position: &'r mut Position,
    confirmed_at: Instant,
    /// The limit of a look. It grows while the slot can't be moved.
    rows_max: usize,
    /// Whether the slot is to be moved soon.
    is_due: bool,
}

/// What a look has found.
struct Look {
    /// The rows that the log has returned, and those that were new.
    rows: usize,
    changes: usize,
    /// How long the database has decoded.
    decoding: Duration,
    reason: Option<Reason>,
}

impl<'r> Reading<'r> {
    pub(super) fn new(
        log: Session,
        rows: Session,
        of: (&'r Names, &'r str),
        output: &'r Output,
        position: &'r mut Position,
    ) -> Self {
        let (names, drop) = of;
        position.transactions.return_to(position.done);
        let (confirmed_at, rows_max, is_due) = (Instant::now(), ROWS_MAX, false);
        Self { log, rows, names, drop, output, position, confirmed_at, rows_max, is_due }
    }

    /// Sends changes until a list is needed.
    pub(super) async fn run(mut self) -> Result<NextList, Ended> {
        let mut pause = PAUSE_MAX;
        loop {
            let status = Status::read(&mut self.log, self.names).await?;
            if let Some(why) = self.position.misfit(&status) {
                return Err(Ended::Lost(Error::new(format!("a whole list is needed: {why}"))));
            }
            self.confirm(&status).await?;
            self.tell(&status);
            let mut decoding = Duration::ZERO;
            if status.end > self.position.read_to {
                let look = self.look().await?;
                if let Some(reason) = look.reason {
                    self.output.needs_list(reason.text());
                    // The next list may have the same columns.
                    return Ok(if reason == Reason::Columns { NextList::AfterPause } else { NextList::Now });
                }
                self.output.settled().await;
                self.note(&look, &status);
                decoding = look.decoding;
                if look.changes > 0 {
                    pause = PAUSE_MIN;
                }
            }
            self.output.read();
            let mut rest = decoding * PAUSE_TIMES;
            let status_at = Instant::now() + STATUS_EVERY;
            loop {
                tokio::select! {
                    () = self.output.stopping() => return Err(Ended::Stopped),
                    () = sleep(pause.max(rest)) => {}
                }
                (pause, rest) = ((pause * 2).min(PAUSE_MAX), Duration::ZERO);
                if slot::end(&mut self.log).await? > self.position.read_to || Instant::now() >= status_at {
                    break;
                }
            }
        }
    }

    /// Moves the slot, if it is time. Every new snapshot sees what is before the position.
    async fn confirm(&mut self, status: &Status) -> Result<(), Error> {
        let position = &mut *self.position;
        position.settle(status);
        let has_changes = position.transactions.reached() > position.place.confirmed();
        let every = if has_changes { CONFIRM_EVERY } else { CONFIRM_IDLE_EVERY };
        if position.safe > position.place.confirmed() && (self.is_due || self.confirmed_at.elapsed() >= every)
        {
            // If the reply is lost, the slot may have moved.
            position.place.confirm(position.safe);
            let (session, names, read_to) = (&mut self.rows, self.names, position.read_to);
            let mut watch = Watch { session, names, drop: self.drop, output: self.output, read_to };
            watch.wait(slot::confirm(&mut self.log, names, position.safe)).await??;
            (self.confirmed_at, self.is_due, self.rows_max) = (Instant::now(), false, ROWS_MAX);
        }
        Ok(())
    }

    fn tell(&self, status: &Status) {
        self.output.slot(&status.slot(self.names, self.drop, self.position.read_to));
    }

    fn note(&mut self, look: &Look, status: &Status) {
        self.is_due |= look.rows >= ROWS_CONFIRM;
        let reached = self.position.transactions.reached();
        self.position.done = Point { reached, changes: 0 };
        if look.rows < self.rows_max {
            self.position.read_to = reached.max(status.end);
        } else {
            self.position.read_to = self.position.read_to.max(reached);
            // All of it was read before, and the slot waits for other sessions to see it.
            if look.changes == 0 {
                self.rows_max *= 2;
            }
        }
    }

    /// Sends what the log has after the position of the slot.
    async fn look(&mut self) -> Result<Look, Error> {
        let Position { table, shape, transactions, unseen, done, read_to, .. } = &mut *self.position;
        let began = Instant::now();
        let mut look = Look { rows: 0, changes: 0, decoding: Duration::ZERO, reason: None };
        let row = self.log.begin_with(&table.shape(&self.names.publication)).await?;
        if get::<String>(&row, 0)? != *shape {
            look.reason = Some(Reason::Shape);
            return Ok(look);
        }
        let mut changes = Changes::new(table, self.output, done);
        let (mut chunk, mut bytes) = (Vec::new(), 0);
        {
            let peek =
                sqlx::query(PEEK).persistent(false).bind(&self.names.slot).bind(self.rows_max.to_string());
            let mut found = peek.bind(&self.names.publication).fetch(&mut self.log.connection);
            loop {
                let (session, read_to) = (&mut self.rows, *read_to);
                let (names, drop, output) = (self.names, self.drop, self.output);
                let mut watch = Watch { session, names, drop, output, read_to };
                let Some(row) = watch.wait(found.try_next()).await?.map_err(refused)? else { break };
                if look.rows == 0 {
                    look.decoding = began.elapsed();
                }
                look.rows += 1;
                let message = decode(get(&row, 0)?)
                    .map_err(|error| Error::because("the log can't be read", error).permanent())?;
                let step = transactions.take(message);
                let invalid = || Error::new("the log has a message where it has no place").permanent();
                match step.ok_or_else(invalid)? {
                    Step::Nothing => {}
                    Step::Commit { xid, is_new, .. } => unseen.extend(is_new.then_some(xid)),
                    Step::List(reason) => {
                        look.reason = Some(reason);
                        return Ok(look);
                    }
                    Step::Change(change, point) => {
                        look.changes += 1;
                        bytes += change.bytes();
                        chunk.push((change, point));
                        if chunk.len() >= CHUNK || bytes >= CHUNK_BYTES {
                            bytes = 0;
                            changes.send(&mut self.rows, std::mem::take(&mut chunk)).await?;
                        }
                    }
                }
            }
        }
        if look.rows == 0 {
            look.decoding = began.elapsed();
        }
        changes.send(&mut self.rows, chunk).await?;
        self.log.commit().await?;
        Ok(look)
    }
}

/// Watches the slot while the database is busy with it: a large transaction is decoded before its first row is shown.
struct Watch<'w> {
    session: &'w mut Session,
    names: &'w Names,
    drop: &'w str,
    output: &'w Output,
    read_to: Lsn,
}

impl Watch<'_> {
    /// Waits for the database as long as it reads the slot, and otherwise not longer than the limit.
    async fn wait<T>(&mut self, answer: impl Future<Output = T>) -> Result<T, Error> {
        let (limit, mut answer) = (self.session.limit(), pin!(answer));
        loop {
            if let Ok(answer) = within(limit, answer.as_mut()).await {
                return Ok(answer);
            }
            let status = Status::read(self.session, self.names).await?;
            self.output.slot(&status.slot(self.names, self.drop, self.read_to));
            if !status.is_active {
                return within(limit, answer).await;
            }
        }
    }
}
