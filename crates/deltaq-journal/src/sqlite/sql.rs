//! All SQL statements.
//!
//! The number of different texts is bounded, because each text stays prepared on its connection. Rows are therefore
//! written in chunks of fixed sizes. A query may contain several statements, which saves round trips to the
//! connection's thread; their parameters are numbered consecutively.

use std::fmt::Write;
use std::sync::LazyLock;

/// Maximum number of journal rows in a commit that is a single statement.
pub(super) const SHORT_ROWS_MAX: usize = 8;
/// The sizes of chunks, largest first.
pub(super) const CHUNKS: [usize; 3] = [64, 8, 1];

/// Statements for 64, 8 and 1 rows.
type Chunked = [String; CHUNKS.len()];

pub(super) const BEGIN: &str = "BEGIN IMMEDIATE";
pub(super) const COMMIT: &str = "COMMIT";

const JOURNAL_INSERT_INTO: &str = "INSERT INTO journal (id, queue_id, epoch, prev_rv, first_rv, last_rv, at, format, checksum, texts, text_bytes, events) ";
const JOURNAL_COLUMNS: usize = 12;

/// Inserts 1 to 8 journal rows if the store is in the given epoch, and none otherwise. Nearly every commit is one of
/// these statements. A single statement is its own transaction; adding `BEGIN` and `COMMIT` would cost two more round
/// trips to the connection's thread.
pub(super) static SHORT: LazyLock<[String; SHORT_ROWS_MAX]> = LazyLock::new(|| {
    std::array::from_fn(|index| {
        let rows = rows(JOURNAL_COLUMNS, index + 1);
        format!("{JOURNAL_INSERT_INTO}SELECT * FROM (VALUES {rows}) WHERE (SELECT epoch FROM store) = ?")
    })
});

pub(super) static JOURNAL: LazyLock<Chunked> =
    LazyLock::new(|| chunked(&format!("{JOURNAL_INSERT_INTO}VALUES "), JOURNAL_COLUMNS, ""));

// "OR REPLACE" would silently remove another live queue of the same name.
pub(super) static QUEUES: LazyLock<Chunked> = LazyLock::new(|| {
    chunked(
        "INSERT INTO queues \
         (id, version, name, incarnation, created_at, deleted, rv, first_run, next_run, format, checksum, state) VALUES ",
        12,
        " ON CONFLICT (id) DO UPDATE SET version = excluded.version, name = excluded.name, \
         incarnation = excluded.incarnation, created_at = excluded.created_at, \
         deleted = excluded.deleted, rv = excluded.rv, first_run = excluded.first_run, next_run = excluded.next_run, \
         format = excluded.format, checksum = excluded.checksum, state = excluded.state",
    )
});

pub(super) static RUNS: LazyLock<Chunked> = LazyLock::new(|| {
    chunked("INSERT INTO runs (queue_id, number, format, checksum, texts, bytes, entries) VALUES ", 7, "")
});

// A text that is there is written again, because it may have been damaged.
pub(super) static TEXTS: LazyLock<Chunked> = LazyLock::new(|| {
    chunked("INSERT INTO texts (id, text) VALUES ", 2, " ON CONFLICT (id) DO UPDATE SET text = excluded.text")
});

pub(super) static UNUSED_TEXTS: LazyLock<Chunked> = LazyLock::new(|| {
    CHUNKS.map(|count| format!("DELETE FROM texts WHERE id IN ({})", vec!["?"; count].join(", ")))
});

pub(super) static FORGOTTEN: LazyLock<Chunked> = LazyLock::new(|| {
    CHUNKS.map(|count| {
        format!("DELETE FROM queues WHERE deleted = 1 AND id IN ({})", vec!["?"; count].join(", "))
    })
});

pub(super) static SERIES: LazyLock<Chunked> = LazyLock::new(|| {
    chunked(
        "INSERT INTO series (hour, queue_id, content) VALUES ",
        3,
        " ON CONFLICT (hour, queue_id) DO UPDATE SET content = excluded.content",
    )
});

/// Parameters: the first hour, the hour behind the last one.
pub(super) const SERIES_OUTSIDE: &str = "DELETE FROM series WHERE hour < ?1 OR hour >= ?2";

/// Parameters: hour and queue of the row before which to read, maximum number of rows.
pub(super) const READ_SERIES: &str = "SELECT hour, queue_id, content FROM series WHERE (hour, queue_id) < (?1, ?2) \
     ORDER BY hour DESC, queue_id DESC LIMIT ?3";

/// Parameters: queue, first number, number behind the last one.
pub(super) const REMOVED_RUNS: &str = "DELETE FROM runs WHERE queue_id = ?1 AND number >= ?2 AND number < ?3";

/// Parameters: queue, event, maximum number of rows, maximum bytes. The first row is removed regardless of its size.
pub(super) const TRIMMED: &str = "DELETE FROM journal WHERE id IN (\
     SELECT id FROM (\
         SELECT id, bytes, sum(bytes) OVER (ORDER BY prev_rv) AS total FROM (\
             SELECT id, prev_rv, octet_length(events) AS bytes FROM journal \
             WHERE queue_id = ?1 AND prev_rv < ?2 AND last_rv <= ?2 ORDER BY prev_rv LIMIT ?3\
         )\
     ) WHERE total <= ?4 OR total = bytes)";

/// Parameters: queue, maximum number of rows.
pub(super) const EMPTIED_RUNS: &str =
    "DELETE FROM runs WHERE id IN (SELECT id FROM runs WHERE queue_id = ?1 ORDER BY number LIMIT ?2)";

/// Parameters: queue, maximum number of rows.
pub(super) const EMPTIED_JOURNAL: &str = "DELETE FROM journal WHERE id IN \
     (SELECT id FROM journal WHERE queue_id = ?1 ORDER BY prev_rv LIMIT ?2)";

/// Parameter: queue.
pub(super) const HAS_ROWS: &str = "SELECT EXISTS (SELECT 1 FROM journal WHERE queue_id = ?1) \
     OR EXISTS (SELECT 1 FROM runs WHERE queue_id = ?1)";

/// Parameters: queue and event of the last row, maximum number of rows.
pub(super) const JOURNAL_REFERENCES: &str = "SELECT queue_id, prev_rv, texts FROM journal INDEXED BY journal_with_texts \
     WHERE texts IS NOT NULL AND (queue_id, prev_rv) > (?1, ?2) ORDER BY queue_id, prev_rv LIMIT ?3";

/// Parameters: queue and number of the last run, maximum number of rows.
pub(super) const RUN_REFERENCES: &str = "SELECT queue_id, number, texts FROM runs INDEXED BY runs_with_texts \
     WHERE texts IS NOT NULL AND (queue_id, number) > (?1, ?2) ORDER BY queue_id, number LIMIT ?3";

/// Parameters: the last text, maximum number of rows. `octet_length` does not read the overflow pages of a long text. A row
/// without an id, which is damage, must not keep the others from being listed.
pub(super) const LIST_TEXTS: &str = "SELECT id, octet_length(text) FROM texts \
     WHERE id > ?1 AND length(id) = 64 AND id NOT GLOB '*[^0-9a-f]*' ORDER BY id LIMIT ?2";

pub(super) const NEXT_ROW: &str = "UPDATE store SET next_row = max(next_row, ?1)";
/// Retains the numbers of deleted queues, before their rows are removed.
pub(super) const KEEP_NUMBERS: &str = "UPDATE store SET \
     last_queue = max(last_queue, coalesce((SELECT max(id) FROM queues), 0)), \
     last_version = max(last_version, coalesce((SELECT max(version) FROM queues), 0)), \
     floor = max(floor, coalesce((SELECT max(rv) FROM queues WHERE deleted = 1), 0))";
pub(super) const CLEAN: &str = "UPDATE store SET clean = ?1";

/// Two transactions: one takes room, and one frees it. The blob is random, so that no file system can compress it.
pub(super) const PROBE: &str =
    "UPDATE store SET probe = randomblob(65536); UPDATE store SET probe = NULL WHERE probe IS NOT NULL";

/// The state that the database records about itself, and its largest numbers.
pub(super) const STATE: &str = "SELECT clean, \
     max(next_row, coalesce((SELECT max(id) + 1 FROM journal), 1)), \
     max(last_queue, coalesce((SELECT max(id) FROM queues), 0)), \
     max(last_version, coalesce((SELECT max(version) FROM queues), 0)), \
     max(floor, coalesce((SELECT max(rv) FROM queues WHERE deleted = 1), 0)), epoch FROM store";

/// Begins the epoch after the first parameter, in a store whose epoch is between the two parameters. Repeating the
/// statement changes nothing.
pub(super) const NEXT_EPOCH: &str =
    "UPDATE store SET epoch = ?1 + 1 WHERE epoch BETWEEN ?1 AND ?2 RETURNING epoch";
pub(super) const EPOCH: &str = "SELECT epoch FROM store";

/// The number of tables, and the application id. A store that is being created has only the table of migrations
/// at first.
pub(super) const TABLES: &str = "SELECT (SELECT count(*) FROM sqlite_schema \
     WHERE tbl_name <> '_sqlx_migrations'), application_id FROM pragma_application_id";
pub(super) const VERSION: &str = "SELECT coalesce(max(version), 0) FROM _sqlx_migrations";

/// Returns up to 8 problems, or "ok". `quick_check` takes as long and does not detect an index whose entries refer to
/// the wrong rows.
pub(super) const SHORT_CHECK: &str = "PRAGMA integrity_check(8)";
pub(super) const INTEGRITY_CHECK: &str = "PRAGMA integrity_check(100)";

/// Enables the file to shrink. The statement has an effect only before the first table is created.
pub(super) const LAYOUT: &str = "PRAGMA page_size = 4096; PRAGMA auto_vacuum = INCREMENTAL";
/// Switches a new database or a backup to WAL mode.
pub(super) const WAL: &str = "PRAGMA journal_mode = WAL";

/// The number of free pages and the number of all pages of the database.
pub(super) const PAGES: &str =
    "SELECT freelist_count, page_count FROM pragma_freelist_count, pragma_page_count";
/// Returns whether the checkpoint was blocked, the number of pages in the WAL, and how many of them are copied.
pub(super) const CHECKPOINT: &str = "PRAGMA wal_checkpoint(PASSIVE)";
pub(super) const CHECKPOINT_ALL: &str = "PRAGMA wal_checkpoint(TRUNCATE)";
/// Copies the rest of the WAL and lets it start over. Commits wait meanwhile, so this waits for readers of the WAL for 5
/// ms only. If it waits in vain, but the next commit finds no reader, the WAL starts over then.
pub(super) const RESTART: &str = "PRAGMA busy_timeout = 5; PRAGMA wal_checkpoint(RESTART)";
/// Like [`RESTART`], for a WAL that has become so long that commits may wait for readers.
pub(super) const RESTART_PATIENTLY: &str = "PRAGMA busy_timeout = 50; PRAGMA wal_checkpoint(RESTART)";
/// Like [`RESTART`], and makes the file empty.
pub(super) const EMPTY_WAL: &str = "PRAGMA busy_timeout = 5; PRAGMA wal_checkpoint(TRUNCATE)";
/// What a connection has when it is opened.
pub(super) const USUAL_TIMEOUT: &str = "PRAGMA busy_timeout = 5000";
pub(super) const VACUUM_STEP: &str = "PRAGMA incremental_vacuum(128)";
pub(super) const VACUUM_INTO: &str = "VACUUM INTO ?1";

pub(super) const READ_QUEUES: &str = "SELECT id, version, name, incarnation, created_at, deleted, rv, \
     first_run, next_run, format, checksum, state FROM queues ORDER BY id";

/// Parameters: queue, first number, number behind the last one, maximum number of rows.
pub(super) const READ_RUNS: &str = "SELECT queue_id, number, format, checksum, texts, bytes, entries FROM runs \
     WHERE queue_id = ?1 AND number >= ?2 AND number < ?3 ORDER BY number DESC LIMIT ?4";

/// Parameter: queue.
pub(super) const OLDEST_RUN: &str = "SELECT min(number) FROM runs WHERE queue_id = ?1";

/// Parameters: queue, event. Starts at the row that contains the next event.
pub(super) const MEASURE_JOURNAL: &str = "SELECT prev_rv, octet_length(events) + text_bytes FROM journal \
     WHERE queue_id = ?1 AND last_rv > ?2 AND prev_rv >= coalesce((SELECT prev_rv FROM journal \
         WHERE queue_id = ?1 AND prev_rv <= ?2 ORDER BY prev_rv DESC LIMIT 1), 0) \
     ORDER BY prev_rv";

/// Parameters: queue, the `prev_rv` of the first row and of the last row.
pub(super) const READ_JOURNAL: &str = "SELECT queue_id, epoch, prev_rv, first_rv, last_rv, at, format, checksum, \
     texts, text_bytes, events FROM journal WHERE queue_id = ?1 AND prev_rv BETWEEN ?2 AND ?3 ORDER BY prev_rv";

/// Parameters: queue, largest `first_rv`.
pub(super) const MEASURE_HISTORY: &str = "SELECT prev_rv, octet_length(events) + text_bytes FROM journal \
     WHERE queue_id = ?1 AND prev_rv < ?2 AND first_rv <= ?2 ORDER BY prev_rv DESC";

/// Parameters: queue, the `prev_rv` of the first row and of the last row.
pub(super) const READ_HISTORY: &str = "SELECT queue_id, epoch, prev_rv, first_rv, last_rv, at, format, checksum, \
     texts, text_bytes, events FROM journal WHERE queue_id = ?1 AND prev_rv BETWEEN ?2 AND ?3 \
     ORDER BY prev_rv DESC";

/// Parameter: an array of ids, in JSON.
pub(super) const READ_TEXTS: &str =
    "SELECT id, text FROM texts WHERE id IN (SELECT value FROM json_each(?1))";

/// `octet_length` does not read the overflow pages of a long text.
pub(super) const SEGMENTS: &str =
    "SELECT last_rv, at, octet_length(events) + text_bytes FROM journal WHERE queue_id = ?1 ORDER BY prev_rv";

/// Begins a read transaction. All its statements see the store as of the first statement.
pub(super) const BEGIN_READING: &str = "BEGIN";

/// Reads a table row by row, including damaged rows.
pub(super) struct Scan {
    /// The name of the table.
    pub(super) table: &'static str,
    /// The columns, with the value types that each may contain.
    pub(super) columns: &'static [(&'static str, &'static str)],
    /// The statement. Selects the columns, then the rowid, then the types of the values, one word each. Indexes are
    /// not used, because they may be damaged.
    pub(super) text: String,
}

impl Scan {
    fn new(table: &'static str, columns: &'static [(&'static str, &'static str)]) -> Self {
        let names: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
        let types: Vec<String> = names.iter().map(|name| format!("typeof({name})")).collect();
        let (names, types) = (names.join(", "), types.join(" || ' ' || "));
        let text = format!("SELECT {names}, rowid, {types} FROM {table} NOT INDEXED ORDER BY rowid");
        Self { table, columns, text }
    }
}

pub(super) static SCAN_QUEUES: LazyLock<Scan> = LazyLock::new(|| {
    Scan::new(
        "queues",
        &[
            ("id", "integer"),
            ("version", "integer"),
            ("name", "text"),
            ("incarnation", "integer"),
            ("created_at", "integer"),
            ("deleted", "integer"),
            ("rv", "integer"),
            ("first_run", "integer"),
            ("next_run", "integer"),
            ("format", "integer"),
            ("checksum", "integer"),
            ("state", "text"),
        ],
    )
});

pub(super) static SCAN_JOURNAL: LazyLock<Scan> = LazyLock::new(|| {
    Scan::new(
        "journal",
        &[
            ("queue_id", "integer"),
            ("epoch", "integer"),
            ("prev_rv", "integer"),
            ("first_rv", "integer"),
            ("last_rv", "integer"),
            ("at", "integer"),
            ("format", "integer"),
            ("checksum", "integer"),
            ("texts", "text or null"),
            ("text_bytes", "integer"),
            ("events", "text or blob"),
        ],
    )
});

pub(super) static SCAN_RUNS: LazyLock<Scan> = LazyLock::new(|| {
    Scan::new(
        "runs",
        &[
            ("queue_id", "integer"),
            ("number", "integer"),
            ("format", "integer"),
            ("checksum", "integer"),
            ("texts", "text or null"),
            ("bytes", "integer"),
            ("entries", "blob"),
        ],
    )
});

pub(super) static SCAN_TEXTS: LazyLock<Scan> =
    LazyLock::new(|| Scan::new("texts", &[("id", "text"), ("text", "text or blob")]));

pub(super) static SCAN_STORE: LazyLock<Scan> = LazyLock::new(|| {
    Scan::new(
        "store",
        &[
            ("id", "integer"),
            ("clean", "integer"),
            ("next_row", "integer"),
            ("last_queue", "integer"),
            ("last_version", "integer"),
            ("floor", "integer"),
            ("epoch", "integer"),
            ("probe", "null or blob"),
        ],
    )
});

/// Parameter: queue.
pub(super) const LINKS: &str =
    "SELECT id, prev_rv, first_rv, last_rv FROM journal WHERE queue_id = ?1 ORDER BY prev_rv";

/// The schema that the migrations have created.
pub(super) const SCHEMA: &str = "SELECT type, name, sql FROM sqlite_schema \
     WHERE name NOT LIKE 'sqlite_%' AND name <> '_sqlx_migrations' ORDER BY type, name";
pub(super) const MIGRATED: &str = "SELECT version, success, checksum FROM _sqlx_migrations ORDER BY version";

fn chunked(head: &str, columns: usize, tail: &str) -> Chunked {
    CHUNKS.map(|count| format!("{head}{}{tail}", rows(columns, count)))
}

/// Placeholders such as `(?, ?), (?, ?)`.
fn rows(columns: usize, count: usize) -> String {
    let row = format!("({})", vec!["?"; columns].join(", "));
    let mut text = String::with_capacity((row.len() + 2) * count);
    for index in 0..count {
        let comma = if index == 0 { "" } else { ", " };
        // Writing to memory can't fail.
        let _ = write!(text, "{comma}{row}");
    }
    text
}
