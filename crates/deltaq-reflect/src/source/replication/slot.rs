//! The publication and the slot: how they are made, checked and dropped, and where the slot stands.

use std::hash::Hasher as _;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::pgoutput::Lsn;
use super::session::{Session, get};
use super::snapshot::Snapshot;
use super::table::Table;
use crate::slot::SlotState;
use crate::source::Error;
use crate::source::sql::{literal, quoted};

/// The beginning of the comment of each publication that this program has made. Only such a publication is dropped.
pub(super) const MADE: &str = "made by deltaq reflect";
/// The oldest version whose functions are used.
const VERSION_MIN: i32 = 130_000;
/// The first version whose slots can follow a failover.
const VERSION_FAILOVER: i32 = 170_000;
/// Maximum length of the part of a slot's name that shows the source.
const NAME_MAX: usize = 40;
/// How often the end of earlier writers is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The limit that counts if the server has none.
const KEPT_MAX: u64 = 10 << 30;

const SERVER: &str = "SELECT current_setting('server_version_num')::int4, current_setting('wal_level'), \
    current_setting('server_encoding'), pg_is_in_recovery()";
const PUBLICATION: &str = "SELECT p.puballtables, p.pubviaroot, p.pubinsert AND p.pubupdate AND p.pubdelete AND p.pubtruncate \
      AND NOT EXISTS (SELECT FROM pg_publication_rel r WHERE r.prpubid = p.oid AND coalesce(to_jsonb(r) ->> 'prattrs', to_jsonb(r) ->> 'prqual') IS NOT NULL), \
      (SELECT array_agg(t.relid::int8) FROM pg_get_publication_tables(p.pubname) AS t), \
      coalesce(starts_with(obj_description(p.oid, 'pg_publication'), $2), false) \
    FROM pg_publication p WHERE p.pubname = $1";
const STATUS: &str = "SELECT pg_current_wal_flush_lsn()::text, pg_current_snapshot()::text, \
      (SELECT system_identifier::text FROM pg_control_system()), substr(pg_walfile_name(pg_current_wal_flush_lsn()), 1, 8), \
      s.confirmed_flush_lsn::text, (pg_current_wal_flush_lsn() - s.restart_lsn)::int8, \
      s.wal_status, s.plugin = 'pgoutput' AND s.database = current_database(), \
      pg_size_bytes(current_setting('max_slot_wal_keep_size')), s.active \
    FROM (SELECT 1) AS one LEFT JOIN pg_replication_slots s ON s.slot_name = $1";
/// A commit that waits for the disk of this server, and for no other one.
const MARK: &str = "BEGIN READ WRITE; SET LOCAL synchronous_commit = 'local'; \
    SELECT pg_logical_emit_message(true, 'deltaq', '')::text; COMMIT";
/// The transactions that write to the table or its partitions.
const WRITERS: &str = "SELECT DISTINCT l.virtualtransaction FROM pg_locks l \
    WHERE l.locktype = 'relation' AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) \
      AND l.granted AND l.mode NOT IN ('AccessShareLock', 'RowShareLock') AND l.pid <> pg_backend_pid() \
      AND (l.relation = $1::int8::oid OR l.relation IN (SELECT relid FROM pg_partition_tree($1::int8::oid::regclass)))";

/// The names of the slot and of the publication.
#[derive(Debug, Clone)]
pub(super) struct Names {
    pub(super) slot: String,
    pub(super) publication: String,
    /// Whether the user has named them, so that a slot of this name may be that of another program.
    is_given: bool,
}

impl Names {
    /// The names that the user gives, or those of the source. Two sources have two names, whatever characters they have.
    pub(super) fn new(queue: &str, source: &str, slot: Option<&str>) -> Self {
        let own = || {
            let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
            let shown: String = source.chars().map(plain).take(NAME_MAX).collect();
            let mut hasher = Fnv::default();
            hasher.write(format!("{queue}\0{source}").as_bytes());
            format!("deltaq_{shown}_{:08x}", hasher.finish() & 0xffff_ffff)
        };
        let is_given = slot.is_some();
        let slot = slot.map_or_else(own, str::to_owned);
        Self { publication: slot.clone(), slot, is_given }
    }

    /// The command that drops the slot, for a shell. The URL has no password.
    pub(super) fn command(&self, queue: &str, source: &str, url: &str, table: &str) -> String {
        let [queue, source, url, table] = [queue, source, url, table].map(in_shell);
        let slot = &self.slot;
        format!(
            "deltaq reflect {queue} --source {source} --replicate {url} --table {table} --slot {slot} --drop-slot"
        )
    }
}

/// Quotes a word for a shell.
fn in_shell(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+=,".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// A hash that is the same in each build, because it is part of a name.
#[derive(Debug)]
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl std::hash::Hasher for Fnv {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

/// Where the server and the slot stand.
#[derive(Debug, Clone)]
pub(super) struct Status {
    /// The end of the log on the disk.
    pub(super) end: Lsn,
    pub(super) snapshot: Snapshot,
    pub(super) system: String,
    pub(super) timeline: String,
    /// The position that was confirmed; `None` if there is no slot.
    pub(super) confirmed: Option<Lsn>,
    /// How many bytes of the log the slot keeps back.
    pub(super) kept: u64,
    /// How many bytes it may keep back.
    pub(super) limit: u64,
    pub(super) is_lost: bool,
    pub(super) is_ours: bool,
    /// Whether a process reads the slot now.
    pub(super) is_active: bool,
}

impl Status {
    pub(super) async fn read(session: &mut Session, names: &Names) -> Result<Self, Error> {
        let row = session.plain_row(&STATUS.replace("$1", &literal(&names.slot))).await?;
        let invalid = unknown_form;
        let confirmed: Option<String> = get(&row, 4)?;
        let status: Option<String> = get(&row, 6)?;
        // -1 is no limit.
        let limit = get::<Option<i64>>(&row, 8)?.and_then(|bytes| u64::try_from(bytes).ok());
        Ok(Self {
            end: Lsn::parse(&get::<String>(&row, 0)?).ok_or_else(invalid)?,
            snapshot: Snapshot::parse(&get::<String>(&row, 1)?).ok_or_else(invalid)?,
            system: get(&row, 2)?,
            timeline: get(&row, 3)?,
            confirmed: confirmed.map(|text| Lsn::parse(&text).ok_or_else(invalid)).transpose()?,
            kept: get::<Option<i64>>(&row, 5)?.and_then(|kept| u64::try_from(kept).ok()).unwrap_or_default(),
            limit: limit.filter(|bytes| *bytes > 0).unwrap_or(KEPT_MAX),
            is_lost: status.is_some_and(|status| status == "lost"),
            is_ours: get::<Option<bool>>(&row, 7)?.unwrap_or(true),
            is_active: get::<Option<bool>>(&row, 9)?.unwrap_or_default(),
        })
    }
}

impl Status {
    /// Where the slot stands, if everything before a position was read.
    pub(super) fn slot<'s>(&self, names: &'s Names, drop: &'s str, read_to: Lsn) -> SlotState<'s> {
        let lag_bytes = self.end.0.saturating_sub(read_to.0);
        SlotState { name: &names.slot, drop, lag_bytes, kept_bytes: self.kept, limit_bytes: self.limit }
    }
}

/// The end of the log on the disk.
pub(super) async fn end(session: &mut Session) -> Result<Lsn, Error> {
    let row = session.plain_row("SELECT pg_current_wal_flush_lsn()::text").await?;
    Lsn::parse(&get::<String>(&row, 0)?).ok_or_else(unknown_form)
}

/// Makes the publication and the slot if they do not exist. If the set-up fails, what it has made is dropped.
pub(super) async fn set_up(session: &mut Session, names: &Names, table: &Table) -> Result<(), Error> {
    let row = session.row(SERVER, &[]).await?;
    let (version, level): (i32, String) = (get(&row, 0)?, get(&row, 1)?);
    let (encoding, is_standby): (String, bool) = (get(&row, 2)?, get(&row, 3)?);
    if version < VERSION_MIN {
        return Err(Error::new("PostgreSQL 13 or newer is required for replicate"));
    }
    if is_standby {
        return Err(Error::new("the server is a standby; connect to its primary"));
    }
    if level != "logical" {
        return Err(Error::new(format!(
            "the server has wal_level = {level}: run ALTER SYSTEM SET wal_level = 'logical', and restart it"
        )));
    }
    if encoding == "SQL_ASCII" {
        return Err(Error::new("the database has the encoding SQL_ASCII, so its texts may have any bytes"));
    }
    let is_new = publish(session, names, table).await?;
    let made = make_slot(session, names, table, version, is_new).await;
    if made.is_err() && is_new {
        session.run(&format!("DROP PUBLICATION IF EXISTS {}", quoted(&names.publication))).await?;
    }
    made
}

/// Makes the publication, or checks the one that exists. Returns whether it was made.
pub(super) async fn publish(session: &mut Session, names: &Names, table: &Table) -> Result<bool, Error> {
    let name = &names.publication;
    let found = session.rows(PUBLICATION, &[name, MADE]).await?;
    let Some(found) = found.first() else {
        let via_root = if table.is_partitioned { " WITH (publish_via_partition_root = true)" } else { "" };
        let (publication, rows, limit_ms) = (quoted(name), table.of_rows(), lock_ms(session));
        let made = session
            .run(&format!(
                "BEGIN; SET LOCAL lock_timeout = {limit_ms}; CREATE PUBLICATION {publication} FOR TABLE {rows}{via_root}; \
                 COMMENT ON PUBLICATION {publication} IS '{MADE}'; COMMIT"
            ))
            .await;
        let what = || {
            format!(
                "can't make the publication {name}, which needs the owner of {rows}, who may create in the database; or its owner makes it, and --slot has its name"
            )
        };
        return made.map(|()| true).map_err(|error| Error::because(what(), error));
    };
    let (is_of_all, is_via_root, has_all): (bool, bool, bool) =
        (get(found, 0)?, get(found, 1)?, get(found, 2)?);
    let tables: Option<Vec<i64>> = get(found, 3)?;
    if tables.as_deref() == Some(&[table.id])
        && !is_of_all
        && has_all
        && (is_via_root || !table.is_partitioned)
    {
        return Ok(false);
    }
    if tables.is_none() && !is_of_all && get(found, 4)? {
        // The table was dropped and made again, and took its place in the publication with it.
        drop_slot(session, names).await?;
        return Box::pin(publish(session, names, table)).await;
    }
    Err(Error::new(format!(
        "the publication {name} exists, and is not one of exactly the table {} with all columns, rows and kinds of changes{}",
        table.name,
        if table.is_partitioned { " and publish_via_partition_root" } else { "" }
    )))
}

/// How long a step of the set-up may wait for other transactions, in milliseconds. The server ends it, so nothing is made after this process has
/// given up.
fn lock_ms(session: &Session) -> u128 {
    session.limit().get().as_millis() / 2
}

/// Makes the slot, unless there is one that can be used.
async fn make_slot(
    session: &mut Session,
    names: &Names,
    table: &Table,
    version: i32,
    is_new: bool,
) -> Result<(), Error> {
    let status = Status::read(session, names).await?;
    if !status.is_ours {
        return Err(Error::new(format!(
            "the slot {} belongs to another program or database: give another --slot",
            names.slot
        )));
    }
    if status.confirmed.is_some() {
        // A slot does not know a publication that is younger.
        if !status.is_lost && !is_new {
            return Ok(());
        }
        if names.is_given && is_new {
            return Err(Error::new(format!(
                "the slot {0} exists without a publication of its name, so it may be that of another program: \
                 give another --slot, or end it with SELECT pg_drop_replication_slot('{0}')",
                names.slot
            )));
        }
        session.rows("SELECT pg_drop_replication_slot($1)", &[&names.slot]).await?;
    }
    let limit_ms = lock_ms(session);
    let limits = format!("SET LOCAL lock_timeout = {limit_ms}; SET LOCAL statement_timeout = {limit_ms}");
    session.run(&format!("BEGIN; {limits}")).await?;
    let made = session.rows(creation(version), &[&names.slot]).await;
    if let Err(error) = made {
        let _failed = session.run("ROLLBACK").await;
        return Err(Error::because(
            format!(
                "can't make the slot {}, which needs a role with REPLICATION, and waits for the end of all transactions that write",
                names.slot
            ),
            error,
        ));
    }
    session.commit().await?;
    let waited = writers_end(session, table).await;
    if waited.is_err() {
        session.rows("SELECT pg_drop_replication_slot($1)", &[&names.slot]).await?;
    }
    waited
}

/// The statement that makes a slot. Where the server can, the slot follows a failover to a standby.
const fn creation(version: i32) -> &'static str {
    if version >= VERSION_FAILOVER {
        "SELECT pg_create_logical_replication_slot($1, 'pgoutput', failover => true)"
    } else {
        "SELECT pg_create_logical_replication_slot($1, 'pgoutput')"
    }
}

/// Waits for the end of the transactions that write to the table now. One of them may have committed before the slot
/// begins, while others do not see it yet, such as when it waits for a synchronous standby. Then neither the copy nor
/// the stream would have it.
async fn writers_end(session: &mut Session, table: &Table) -> Result<(), Error> {
    let (began, id) = (Instant::now(), table.id.to_string());
    let mut before: Option<Vec<String>> = None;
    loop {
        let rows = session.rows(WRITERS, &[&id]).await?;
        let now = rows.iter().map(|row| get(row, 0)).collect::<Result<Vec<String>, _>>()?;
        let before = before.get_or_insert_with(|| now.clone());
        before.retain(|writer| now.contains(writer));
        if before.is_empty() {
            return Ok(());
        }
        if began.elapsed() >= session.limit().get() {
            return Err(Error::new(format!("transactions that write to {} have not ended", table.name)));
        }
        sleep(LOOK_EVERY).await;
    }
}

/// Whether the publication exists and this program has made it.
async fn is_made(session: &mut Session, names: &Names) -> Result<bool, Error> {
    let found = session.rows(PUBLICATION, &[&names.publication, MADE]).await?;
    found.first().map_or(Ok(false), |found| get(found, 4))
}

/// Drops the slot and the publication, unless somebody else may have made them.
pub(super) async fn drop_own(session: &mut Session, names: &Names) -> Result<(), Error> {
    if !names.is_given || is_made(session, names).await? {
        drop_slot(session, names).await?;
    }
    Ok(())
}

/// Drops the slot, and the publication if this program has made it. Returns whether there was a slot.
pub(super) async fn drop_slot(session: &mut Session, names: &Names) -> Result<bool, Error> {
    let dropped = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots \
                   WHERE slot_name = $1 AND plugin = 'pgoutput' AND database = current_database()";
    let dropped = session.rows(dropped, &[&names.slot]).await?;
    if is_made(session, names).await? {
        session.run(&format!("DROP PUBLICATION {}", quoted(&names.publication))).await?;
    }
    Ok(!dropped.is_empty())
}

/// Moves the slot to a position whose transactions the queue has stored. The server decodes all up to it, which may take long.
pub(super) async fn confirm(session: &mut Session, names: &Names, position: Lsn) -> Result<(), Error> {
    let (advance, position) =
        ("SELECT end_lsn::text FROM pg_replication_slot_advance($1, $2::pg_lsn)", position.to_string());
    session.rows_without_limit(advance, &[&names.slot, &position]).await.map(drop)
}

/// Writes a message to the log, and returns its position when it is on the disk, as is everything before it.
pub(super) async fn mark(session: &mut Session) -> Result<Lsn, Error> {
    let row = session.plain_row(MARK).await?;
    Lsn::parse(&get::<String>(&row, 0)?).ok_or_else(unknown_form)
}

fn unknown_form() -> Error {
    Error::new("the database has a position or a snapshot of an unknown form")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_follows_a_failover_where_the_server_can() {
        let plain = "SELECT pg_create_logical_replication_slot($1, 'pgoutput')";
        assert_eq!([130_000, 150_014, 169_999].map(creation), [plain; 3]);
        let followed = "SELECT pg_create_logical_replication_slot($1, 'pgoutput', failover => true)";
        assert_eq!([170_000, 180_001].map(creation), [followed; 2]);
    }

    #[test]
    fn the_command_that_ends_a_slot_can_be_pasted() {
        let names = Names::new("prices", "erp", None);
        let command = names.command("prices", "erp", "postgres://u@localhost/d?host=/run", "public.\"It's\"");
        assert_eq!(
            command,
            format!(
                "deltaq reflect prices --source erp --replicate 'postgres://u@localhost/d?host=/run' \
                 --table 'public.\"It'\\''s\"' --slot {} --drop-slot",
                names.slot
            )
        );
    }

    #[test]
    fn names_are_valid_and_stable() {
        let name = |source: &str| Names::new("q", source, None).slot;
        assert_ne!(name("a b"), name("a_b"));
        assert_ne!(name("s"), Names::new("r", "s", None).slot);
        assert_eq!(name("s"), name("s"));
        for source in ["Ünïcode/erp", &"long".repeat(64)] {
            let name = name(source);
            assert!(
                name.len() <= 63
                    && name.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_'),
                "{name}"
            );
        }
        assert_eq!(Names::new("q", "s", Some("mine")).slot, "mine");
    }
}
