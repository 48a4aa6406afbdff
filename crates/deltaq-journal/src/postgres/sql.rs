//! All SQL statements.
//!
//! Rows are passed as arrays, one per column, so that a statement has one text and takes one round trip for any
//! number of rows. Rows to remove are found by an index and removed by their location (`ctid`), so that bad table
//! statistics can't cause a scan of the whole table. `$1` is the partition.
//!
//! No statement leaves state in its session: a pooler may give each transaction another session.

use super::owner::{Member, Report, TTL, Tenure};
use crate::store::{Epoch, Position, QueueId};
use crate::text_id::TextId;

/// Maximum wait for a lock, in milliseconds.
const LOCK_MS: u32 = 5_000;
/// Maximum duration of each statement in a transaction of several statements, in milliseconds.
const STATEMENT_MS: u32 = 60_000;
/// Maximum duration of a query that can be repeated later, in milliseconds. It is shorter than the wait for the reply, so the database ends
/// the query and the connection can still be used.
const REPEATABLE_MS: u32 = 5_000;
/// Maximum pause between two statements of a transaction, in milliseconds. If a node loses power during a
/// transaction, the lock of the partition is held for this long.
const PAUSE_MS: u32 = 5_000;

/// The start time of the server, in microseconds, for use in `concat!`.
macro_rules! server {
    () => {
        "(extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint"
    };
}
const SERVER: &str = server!();

/// Begins a transaction whose waits have time limits.
pub(super) fn begin() -> String {
    format!(
        "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = {LOCK_MS}; \
         SET LOCAL statement_timeout = {STATEMENT_MS}; \
         SET LOCAL idle_in_transaction_session_timeout = {PAUSE_MS}; "
    )
}

/// A query that can be repeated later. The database runs the text as one transaction.
pub(super) fn limited(query: &str) -> String {
    format!("SET LOCAL statement_timeout = {REPEATABLE_MS}; {query}")
}

/// Begins a transaction, locks the partition, and reads its epoch, its writer and the server.
pub(super) fn begin_write(partition: i16) -> String {
    format!(
        "{}SELECT epoch, writer, {SERVER} FROM deltaq.partitions WHERE partition = {partition} FOR NO KEY UPDATE",
        begin()
    )
}

/// Begins the first epoch of a writer in one transaction, and creates the row of the partition if it is missing.
/// Returns the epoch, the writer of the previous epoch, and the server.
pub(super) fn first_epoch(partition: i16, writer: i64) -> String {
    format!(
        "{}INSERT INTO deltaq.partitions (partition) VALUES ({partition}) ON CONFLICT DO NOTHING; \
         UPDATE deltaq.partitions SET epoch = partitions.epoch + 1, writer = {writer} FROM (\
             SELECT writer FROM deltaq.partitions WHERE partition = {partition} FOR NO KEY UPDATE\
         ) AS before WHERE partition = {partition} RETURNING epoch, before.writer, {SERVER}; COMMIT",
        begin()
    )
}

/// Like [`first_epoch`], but only for a partition that has no owner, whose owner has this member's name, or whose
/// owner was removed. Returns no row otherwise.
pub(super) fn claim(partition: i16, writer: i64, member: &Member) -> String {
    let (name, instance) = (literal(&member.name), member.instance);
    format!(
        "{}UPDATE deltaq.partitions SET epoch = partitions.epoch + 1, writer = {writer}, node = {name} FROM (\
             SELECT writer, node FROM deltaq.partitions WHERE partition = {partition} FOR NO KEY UPDATE\
         ) AS before WHERE partition = {partition} \
             AND (before.node IS NULL OR before.node = {name} \
                 OR NOT EXISTS (SELECT FROM deltaq.nodes WHERE nodes.name = before.node)) \
             AND EXISTS (SELECT FROM deltaq.nodes WHERE nodes.name = {name} AND nodes.instance = {instance}) \
         RETURNING epoch, before.writer, {SERVER}; COMMIT",
        begin()
    )
}

/// Begins a transaction that may take a long time. A server or node that tries to open the store in the meantime
/// waits for one of the locks.
pub(super) fn begin_split() -> String {
    format!(
        "{}SET LOCAL statement_timeout = 0; {LOCK_MIGRATIONS}; \
         UPDATE deltaq.partitions SET epoch = epoch + 1 WHERE partition = 0",
        begin()
    )
}

/// Whether the store has one partition that is closed, and no nodes.
pub(super) const SPLITTABLE: &str = "SELECT count(*) = 1 AND bool_and(clean) AND NOT EXISTS (SELECT FROM deltaq.nodes) \
     FROM deltaq.partitions";

/// The ids and the names of all queues, including deleted queues.
pub(super) const QUEUES_TO_SPLIT: &str = "SELECT id, name FROM deltaq.queues WHERE partition = 0";

/// Creates the partitions other than the first one, with the numbers of the first one.
pub(super) fn add_partitions(count: i16) -> String {
    format!(
        "INSERT INTO deltaq.partitions (partition, last_queue, last_version, floor) \
         SELECT number, \
             greatest(last_queue, (SELECT max(id) FROM deltaq.queues)), \
             greatest(last_version, (SELECT max(version) FROM deltaq.queues)), \
             greatest(floor, (SELECT max(rv) FROM deltaq.queues WHERE deleted)) \
         FROM deltaq.partitions, generate_series(1, {count} - 1) AS number WHERE partition = 0"
    )
}

/// Move the rows of queues to their partitions. Parameters: the ids of the queues, and their partitions.
pub(super) const SPLITS: [&str; 4] = [
    "UPDATE deltaq.journal AS moved SET partition = target.partition \
     FROM unnest($1::bigint[], $2::smallint[]) AS target (queue, partition) \
     WHERE moved.partition = 0 AND moved.queue_id = target.queue AND target.partition <> 0",
    "UPDATE deltaq.runs AS moved SET partition = target.partition \
     FROM unnest($1::bigint[], $2::smallint[]) AS target (queue, partition) \
     WHERE moved.partition = 0 AND moved.queue_id = target.queue AND target.partition <> 0",
    "UPDATE deltaq.series AS moved SET partition = target.partition \
     FROM unnest($1::bigint[], $2::smallint[]) AS target (queue, partition) \
     WHERE moved.partition = 0 AND moved.queue_id = target.queue AND target.partition <> 0",
    "UPDATE deltaq.queues AS moved SET partition = target.partition \
     FROM unnest($1::bigint[], $2::smallint[]) AS target (queue, partition) \
     WHERE moved.partition = 0 AND moved.id = target.queue AND target.partition <> 0",
];

/// The partitions were together until now, so a server ran for each of them in the same minutes.
pub(super) const SPLIT_MINUTES: &str = "INSERT INTO deltaq.series (partition, hour, queue_id, content) \
     SELECT partitions.partition, hour, queue_id, content FROM deltaq.series, deltaq.partitions \
     WHERE series.partition = 0 AND queue_id = 0 AND partitions.partition <> 0";

/// Copies the texts to the partitions whose rows refer to them. The cleanup of partition 0 removes those that it does not need.
pub(super) const SPLIT_TEXTS: &str = "INSERT INTO deltaq.texts (partition, id, text) SELECT used.partition, texts.id, texts.text FROM (\
         SELECT partition, string_to_table(texts, ',') AS id FROM deltaq.journal WHERE texts IS NOT NULL \
         UNION SELECT partition, string_to_table(texts, ',') FROM deltaq.runs WHERE texts IS NOT NULL\
     ) AS used JOIN deltaq.texts ON texts.partition = 0 AND texts.id = used.id WHERE used.partition <> 0";

/// Gives up a partition.
pub(super) fn release(partition: i16, tenure: &Tenure) -> String {
    let Tenure { writer, epoch: Epoch(epoch), .. } = tenure;
    format!(
        "UPDATE deltaq.partitions SET node = NULL \
         WHERE partition = {partition} AND writer = {writer} AND epoch = {epoch}"
    )
}

/// The nodes, then the partitions, as [`read`](super::nodes) expects them, of nodes that satisfy a condition.
fn nodes_and_owners(condition: &str) -> String {
    format!(
        "SELECT NULL::smallint AS partition, nodes.name, url, instance, is_leaving, has_joined, reached, secrets, queues, \
             (extract(epoch FROM clock_timestamp() - heartbeat_at) * 1000)::bigint AS heartbeat_age_ms, clock_ahead_ms, \
             has_loaded, unloadable, (extract(epoch FROM heartbeat_at) * 1000000)::bigint AS heartbeat_us, {SERVER} AS server \
             FROM deltaq.nodes WHERE {condition} \
         UNION ALL SELECT partition, node, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, {SERVER} \
             FROM deltaq.partitions \
         ORDER BY partition NULLS FIRST, name"
    )
}

/// Begins the transaction in which a node joins: creates the partitions of a database that has none, and reads the nodes
/// and the partitions.
pub(super) fn begin_join(partitions: u16) -> String {
    format!(
        "{}{LOCK_MIGRATIONS}; \
         INSERT INTO deltaq.partitions (partition) SELECT generate_series(0, {partitions} - 1) \
             WHERE NOT EXISTS (SELECT FROM deltaq.partitions); {}",
        begin(),
        nodes_and_owners("true")
    )
}

/// Adds the node, and ends the transaction. A node of the same name is replaced.
pub(super) fn join(member: &Member, url: &str, secrets: &[String]) -> String {
    format!(
        "INSERT INTO deltaq.nodes (name, url, instance, heartbeat_at, secrets) \
             VALUES ({name}, {url}, {instance}, clock_timestamp(), {secrets}) \
             ON CONFLICT (name) DO UPDATE SET url = excluded.url, instance = excluded.instance, is_leaving = false, \
                 heartbeat_at = excluded.heartbeat_at, has_loaded = excluded.has_loaded, unloadable = excluded.unloadable, \
                 has_joined = false, reached = excluded.reached, secrets = excluded.secrets, queues = excluded.queues; \
         COMMIT",
        name = literal(&member.name),
        url = literal(url),
        instance = member.instance,
        secrets = texts(secrets)
    )
}

/// Joins the nodes again, unless another process than `former` has the name.
pub(super) fn join_again(member: &Member, url: &str, former: Option<i64>) -> String {
    format!(
        "INSERT INTO deltaq.nodes (name, url, instance, heartbeat_at) \
         VALUES ({}, {}, {}, clock_timestamp()) \
         ON CONFLICT (name) DO UPDATE SET url = excluded.url, instance = excluded.instance, is_leaving = false, \
             heartbeat_at = excluded.heartbeat_at, has_joined = false WHERE nodes.instance = {}",
        literal(&member.name),
        literal(url),
        member.instance,
        former.map_or_else(|| "NULL".to_owned(), |former| former.to_string())
    )
}

/// The statement of a heartbeat: renews the membership, then reads the nodes and the partitions. It also gives up
/// partitions, without waiting for locks on their rows. With `removes`, it also removes the nodes whose last
/// heartbeat is older than the TTL.
pub(super) fn heartbeat(member: &Member, report: &Report, removes: bool) -> String {
    let (name, instance, ttl) = (literal(&member.name), member.instance, TTL.as_secs());
    let Report { is_leaving, has_joined, has_loaded, queues, wall_us, .. } = report;
    let (unloadable, given_up) = (list(&report.unloadable), list(&report.given_up));
    let (reached, secrets) = (list(&report.reached), texts(&report.secrets));
    let read = nodes_and_owners(&format!(
        "nodes.name NOT IN (SELECT name FROM removed) \
             AND (nodes.name <> {name} OR nodes.instance <> {instance} OR EXISTS (SELECT FROM renewed))"
    ));
    format!(
        "WITH renewed AS (\
             UPDATE deltaq.nodes SET heartbeat_at = clock_timestamp(), is_leaving = {is_leaving}, \
                 has_joined = {has_joined}, reached = '{{{reached}}}', secrets = {secrets}, queues = {queues}, \
                 clock_ahead_ms = {wall_us} / 1000 - (extract(epoch FROM clock_timestamp()) * 1000)::bigint, \
                 has_loaded = {has_loaded}, unloadable = '{{{unloadable}}}' \
             WHERE name = {name} AND instance = {instance} RETURNING name\
         ), removed AS (\
             DELETE FROM deltaq.nodes WHERE {removes} AND name <> {name} \
                 AND heartbeat_at < clock_timestamp() - interval '{ttl} seconds' RETURNING name\
         ), given_up AS (\
             UPDATE deltaq.partitions SET node = NULL WHERE EXISTS (SELECT FROM renewed) AND partition IN (\
                 SELECT partition FROM deltaq.partitions WHERE node = {name} AND partition = ANY ('{{{given_up}}}') \
                 FOR NO KEY UPDATE SKIP LOCKED)\
         ) {read}"
    )
}

/// The elements of an SQL array of numbers.
fn list(numbers: &[impl ToString]) -> String {
    numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// Texts as an SQL array.
fn texts(texts: &[String]) -> String {
    let texts: Vec<String> = texts.iter().map(|text| literal(text)).collect();
    format!("ARRAY[{}]::text[]", texts.join(", "))
}

/// Ends a membership.
pub(super) fn leave(member: &Member) -> String {
    let (name, instance) = (literal(&member.name), member.instance);
    format!("DELETE FROM deltaq.nodes WHERE name = {name} AND instance = {instance}")
}

/// The names of the nodes, and the number of partitions.
pub(super) const SHARING: &str = "SELECT (SELECT string_agg(name, ', ' ORDER BY name) FROM deltaq.nodes), \
     (SELECT count(*) FROM deltaq.partitions)";

/// A text as an SQL literal. The statement contains only the hexadecimal digits of the text.
fn literal(text: &str) -> String {
    let hex = text.bytes().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
    format!("convert_from('\\x{hex}'::bytea, 'UTF8')")
}

/// Begins the epoch after `tenure` in one transaction, which waits for the lock of a transaction in doubt. The
/// partition must belong to this writer, or be in the state from before this writer opened it. In the latter case, a
/// failover has lost the epochs of this writer. Repeating the statement changes nothing.
pub(super) fn next_epoch(partition: i16, tenure: &Tenure) -> String {
    let Tenure { writer, epoch: Epoch(own), before: (Epoch(epoch_before), writer_before), .. } = tenure;
    let next = own + 1;
    format!(
        "{}UPDATE deltaq.partitions SET epoch = {next}, writer = {writer}, clean = false WHERE partition = {partition} AND (\
             writer = {writer} AND epoch <= {next} OR writer = {writer_before} AND epoch = {epoch_before}\
         ) RETURNING epoch, {SERVER}; COMMIT",
        begin()
    )
}

/// The epoch of the partition, and the server.
pub(super) fn owner(partition: i16) -> String {
    format!("SELECT epoch, {SERVER} FROM deltaq.partitions WHERE partition = {partition}")
}

/// The epoch and the writer of the partition, and whether the server is a standby.
pub(super) fn reads(partition: i16) -> String {
    format!("SELECT epoch, writer, pg_is_in_recovery() FROM deltaq.partitions WHERE partition = {partition}")
}

/// The state that the partition's row records, and its largest numbers.
pub(super) fn state(partition: i16) -> String {
    format!(
        "SELECT clean, epoch, \
         greatest(last_queue, (SELECT max(id) FROM deltaq.queues WHERE partition = {partition})), \
         greatest(last_version, (SELECT max(version) FROM deltaq.queues WHERE partition = {partition})), \
         greatest(floor, (SELECT max(rv) FROM deltaq.queues WHERE partition = {partition} AND deleted)), \
         (extract(epoch FROM clock_timestamp()) * 1000000)::bigint \
         FROM deltaq.partitions WHERE partition = {partition}"
    )
}

/// The epoch and the writer of the partition, the server, and the size of all tables.
pub(super) fn upkeep(partition: i16) -> String {
    format!(
        "SELECT epoch, writer, {SERVER}, pg_total_relation_size('deltaq.journal') + pg_total_relation_size('deltaq.runs') \
         + pg_total_relation_size('deltaq.texts') + pg_total_relation_size('deltaq.queues') \
         FROM deltaq.partitions WHERE partition = {partition}"
    )
}

/// Takes room for a test write: 256 KiB of incompressible data.
pub(super) fn take_room(partition: i16) -> String {
    format!(
        "UPDATE deltaq.partitions SET probe = (\
             SELECT decode(string_agg(md5(random()::text), ''), 'hex') FROM generate_series(1, 16384)\
         ) WHERE partition = {partition}"
    )
}

/// Frees the room of the test write.
pub(super) fn free_room(partition: i16) -> String {
    format!("UPDATE deltaq.partitions SET probe = NULL WHERE partition = {partition}")
}

/// Whether the queue has any rows other than its own row.
pub(super) fn has_rows(partition: i16, queue: QueueId) -> String {
    let exists = |table| {
        format!("EXISTS (SELECT 1 FROM deltaq.{table} WHERE partition = {partition} AND queue_id = {queue})")
    };
    format!("SELECT {} OR {}", exists("journal"), exists("runs"))
}

/// The last event of each queue, in the journal or at its checkpoint, the event of its checkpoint, and the name of the queue.
pub(super) fn reached(partition: i16, queues: &[String]) -> String {
    format!(
        "SELECT asked.queue_id, greatest(0, q.rv, (\
             SELECT j.last_rv FROM deltaq.journal j WHERE j.partition = {partition} AND j.queue_id = asked.queue_id \
             ORDER BY j.prev_rv DESC LIMIT 1)), coalesce(q.rv, 0), q.name \
         FROM unnest('{{{}}}'::bigint[]) AS asked (queue_id) \
         LEFT JOIN deltaq.queues q ON q.partition = {partition} AND q.id = asked.queue_id",
        queues.join(",")
    )
}

/// Whether the server is read-only.
pub(super) const IS_READ_ONLY: &str =
    "SELECT pg_is_in_recovery() OR current_setting('transaction_read_only')::bool";

/// The failures that an acknowledged commit survives.
pub(super) const PROTECTION: &str = "SELECT current_setting('server_version'), current_setting('fsync')::bool, \
     current_setting('synchronous_commit'), current_setting('synchronous_standby_names') <> ''";

/// Serialises the migrations until the end of the transaction; "delq" in ASCII.
pub(super) const LOCK_MIGRATIONS: &str = "SELECT pg_advisory_xact_lock(1684368497)";
/// Whether the table of migrations exists. The catalog is read as a table, because `to_regclass` may return the state
/// from before the transaction waited for its lock.
pub(super) const HAS_MIGRATIONS: &str = "SELECT EXISTS (\
         SELECT FROM pg_catalog.pg_tables WHERE schemaname = 'deltaq' AND tablename = 'migrations')";
pub(super) const VERSION: &str = "SELECT coalesce(max(version), 0) FROM deltaq.migrations";
/// Parameters: version, name.
pub(super) const MIGRATED: &str = "INSERT INTO deltaq.migrations (version, name) VALUES ($1, $2)";

/// Parameters: partition, epoch, writer, the columns of the rows, and the server. Inserts no row if another writer
/// has the partition, or if the server is a different one. Nearly every commit consists of this statement alone.
/// Because of the lock, a statement that begins another epoch waits until this commit has ended. After such a
/// statement, this one finds no row to lock.
pub(super) const JOURNAL: &str = concat!(
    "WITH own AS (\
         SELECT partition FROM deltaq.partitions WHERE partition = $1 AND epoch = $2 AND writer = $3 \
             AND ",
    server!(),
    " = $15 FOR SHARE\
     ) INSERT INTO deltaq.journal \
         (partition, queue_id, epoch, prev_rv, first_rv, last_rv, at, format, checksum, texts, text_bytes, events) \
     SELECT own.partition, added.* FROM own, unnest($4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], \
         $8::bigint[], $9::bigint[], $10::integer[], $11::integer[], $12::text[], $13::bigint[], $14::bytea[]) AS added"
);

/// A text that is there is written again, because it may have been damaged.
pub(super) const TEXTS: &str = "INSERT INTO deltaq.texts (partition, id, text) \
     SELECT $1, added.* FROM unnest($2::text[], $3::bytea[]) AS added \
     ON CONFLICT (partition, id) DO UPDATE SET text = excluded.text";

/// Parameter: ids.
pub(super) const UNUSED_TEXTS: &str =
    "DELETE FROM deltaq.texts WHERE partition = $1 AND id = ANY ($2::text[])";

/// Parameter: ids.
pub(super) const READ_TEXTS: &str =
    "SELECT id, text FROM deltaq.texts WHERE partition = $1 AND id = ANY ($2::text[])";

/// The next rows that refer to texts, after the row of this queue at `position`.
pub(super) fn references(
    partition: i16,
    (table, column): (&str, &str),
    (queue, position): Position,
    limit: u32,
) -> String {
    format!(
        "SELECT queue_id, {column}, texts FROM deltaq.{table} WHERE partition = {partition} AND texts IS NOT NULL \
         AND (queue_id, {column}) > ('{queue}'::bigint, '{position}'::bigint) \
         ORDER BY queue_id, {column} LIMIT {limit}"
    )
}

/// The ids and the bytes of the next texts. `octet_length` does not read a text that is stored out of line. A row without an
/// id, which is damage, must not keep the others from being listed.
pub(super) fn list_texts(partition: i16, after: Option<TextId>, limit: u32) -> String {
    let after = after.map(|id| id.to_string()).unwrap_or_default();
    format!(
        "SELECT id, octet_length(text)::bigint FROM deltaq.texts WHERE partition = {partition} AND id > '{after}' \
         AND id ~ '^[0-9a-f]{{64}}$' ORDER BY id LIMIT {limit}"
    )
}

/// Replacing by name as well would silently remove another live queue of the same name.
pub(super) const QUEUES: &str = "INSERT INTO deltaq.queues \
         (partition, id, version, name, incarnation, created_at, deleted, rv, first_run, next_run, format, checksum, state) \
     SELECT $1, added.* FROM unnest($2::bigint[], $3::bigint[], $4::bytea[], $5::bigint[], $6::bigint[], \
         $7::boolean[], $8::bigint[], $9::bigint[], $10::bigint[], $11::integer[], $12::integer[], $13::bytea[]) AS added \
     ON CONFLICT (partition, id) DO UPDATE SET version = excluded.version, name = excluded.name, \
         incarnation = excluded.incarnation, created_at = excluded.created_at, deleted = excluded.deleted, \
         rv = excluded.rv, first_run = excluded.first_run, next_run = excluded.next_run, format = excluded.format, \
         checksum = excluded.checksum, state = excluded.state";

pub(super) const RUNS: &str = "INSERT INTO deltaq.runs \
         (partition, queue_id, number, format, checksum, texts, bytes, entries) \
     SELECT $1, added.* FROM unnest($2::bigint[], $3::bigint[], $4::integer[], $5::integer[], $6::text[], $7::bigint[], \
         $8::bytea[]) AS added";

/// Parameters: hours, queues, contents.
pub(super) const SERIES: &str = "INSERT INTO deltaq.series (partition, hour, queue_id, content) \
     SELECT $1, added.* FROM unnest($2::bigint[], $3::bigint[], $4::bytea[]) AS added \
     ON CONFLICT (partition, hour, queue_id) DO UPDATE SET content = excluded.content";

/// Parameters: the first hour, the hour behind the last one.
pub(super) const SERIES_OUTSIDE: &str =
    "DELETE FROM deltaq.series WHERE partition = $1 AND (hour < $2 OR hour >= $3)";

/// Parameters: hour and queue of the row before which to read, maximum number of rows.
pub(super) const READ_SERIES: &str = "SELECT hour, queue_id, content FROM deltaq.series \
     WHERE partition = $1 AND (hour, queue_id) < ($2::bigint, $3::bigint) ORDER BY hour DESC, queue_id DESC LIMIT $4";

/// Parameters: queues, first numbers, numbers behind the last ones.
pub(super) const REMOVED_RUNS: &str = "DELETE FROM deltaq.runs WHERE ctid = ANY (ARRAY(\
     SELECT found.ctid FROM unnest($2::bigint[], $3::bigint[], $4::bigint[]) AS removed (queue_id, first, behind), LATERAL (\
         SELECT r.ctid FROM deltaq.runs r WHERE r.partition = $1 AND r.queue_id = removed.queue_id \
             AND r.number >= removed.first AND r.number < removed.behind\
     ) AS found))";

/// Parameters: queues, events, maximum rows per queue, maximum bytes per queue. The first row is removed regardless of its size.
pub(super) const TRIMMED: &str = "DELETE FROM deltaq.journal WHERE ctid = ANY (ARRAY(\
     SELECT found.ctid FROM unnest($2::bigint[], $3::bigint[]) AS trimmed (queue_id, rv), LATERAL (\
         SELECT measured.ctid, measured.bytes, sum(measured.bytes) OVER (ORDER BY measured.prev_rv) AS total FROM (\
             SELECT j.ctid, j.prev_rv, octet_length(j.events)::bigint AS bytes FROM deltaq.journal j \
             WHERE j.partition = $1 AND j.queue_id = trimmed.queue_id \
                 AND j.prev_rv < trimmed.rv AND j.last_rv <= trimmed.rv ORDER BY j.prev_rv LIMIT $4\
         ) AS measured\
     ) AS found WHERE found.total <= $5 OR found.total = found.bytes))";

/// Parameters: queues, numbers of rows.
pub(super) const EMPTIED_RUNS: &str = "DELETE FROM deltaq.runs WHERE ctid = ANY (ARRAY(\
     SELECT found.ctid FROM unnest($2::bigint[], $3::bigint[]) AS emptied (queue_id, most), LATERAL (\
         SELECT r.ctid FROM deltaq.runs r WHERE r.partition = $1 AND r.queue_id = emptied.queue_id \
         ORDER BY r.number LIMIT emptied.most\
     ) AS found))";

/// Parameters: queues, numbers of rows.
pub(super) const EMPTIED_JOURNAL: &str = "DELETE FROM deltaq.journal WHERE ctid = ANY (ARRAY(\
     SELECT found.ctid FROM unnest($2::bigint[], $3::bigint[]) AS emptied (queue_id, most), LATERAL (\
         SELECT j.ctid FROM deltaq.journal j WHERE j.partition = $1 AND j.queue_id = emptied.queue_id \
         ORDER BY j.prev_rv LIMIT emptied.most\
     ) AS found))";

/// Retains the numbers of deleted queues, before their rows are removed.
pub(super) const KEEP_NUMBERS: &str = "UPDATE deltaq.partitions SET \
     last_queue = greatest(last_queue, (SELECT max(id) FROM deltaq.queues WHERE partition = $1)), \
     last_version = greatest(last_version, (SELECT max(version) FROM deltaq.queues WHERE partition = $1)), \
     floor = greatest(floor, (SELECT max(rv) FROM deltaq.queues WHERE partition = $1 AND deleted)) \
     WHERE partition = $1";

/// Parameter: queues.
pub(super) const FORGOTTEN: &str =
    "DELETE FROM deltaq.queues WHERE partition = $1 AND deleted AND id = ANY ($2::bigint[])";

/// Parameter: whether the partition is cleanly closed.
pub(super) const CLEAN: &str = "UPDATE deltaq.partitions SET clean = $2 WHERE partition = $1";

pub(super) const READ_QUEUES: &str = "SELECT id, version, name, incarnation, created_at, deleted, rv, first_run, \
     next_run, format, checksum, state FROM deltaq.queues WHERE partition = $1 ORDER BY id";

/// Parameters: queue, first number, number behind the last one, maximum number of rows.
pub(super) const READ_RUNS: &str = "SELECT queue_id, number, format, checksum, texts, bytes, entries FROM deltaq.runs \
     WHERE partition = $1 AND queue_id = $2 AND number >= $3 AND number < $4 ORDER BY number DESC LIMIT $5";

/// Parameter: queue.
pub(super) const OLDEST_RUN: &str =
    "SELECT min(number) FROM deltaq.runs WHERE partition = $1 AND queue_id = $2";

/// Parameters: queue, event, maximum number of rows. Starts at the row that contains the next event.
pub(super) const MEASURE_JOURNAL: &str = "SELECT prev_rv, octet_length(events) + text_bytes FROM deltaq.journal \
     WHERE partition = $1 AND queue_id = $2 AND last_rv > $3 AND prev_rv >= coalesce((\
         SELECT prev_rv FROM deltaq.journal WHERE partition = $1 AND queue_id = $2 AND prev_rv <= $3 \
         ORDER BY prev_rv DESC LIMIT 1), 0) \
     ORDER BY prev_rv LIMIT $4";

/// Parameters: queue, the `prev_rv` of the last measured row, maximum number of rows.
pub(super) const MEASURE_MORE_JOURNAL: &str = "SELECT prev_rv, octet_length(events) + text_bytes FROM deltaq.journal \
     WHERE partition = $1 AND queue_id = $2 AND prev_rv > $3 ORDER BY prev_rv LIMIT $4";

/// Parameters: queue, the `prev_rv` of the first row and of the last row.
pub(super) const READ_JOURNAL: &str = "SELECT queue_id, epoch, prev_rv, first_rv, last_rv, at, format, checksum, texts, \
     text_bytes, events FROM deltaq.journal WHERE partition = $1 AND queue_id = $2 AND prev_rv BETWEEN $3 AND $4 ORDER BY prev_rv";

/// Parameters: queue, largest `first_rv`, maximum number of rows.
pub(super) const MEASURE_HISTORY: &str = "SELECT prev_rv, octet_length(events) + text_bytes FROM deltaq.journal \
     WHERE partition = $1 AND queue_id = $2 AND prev_rv < $3 AND first_rv <= $3 ORDER BY prev_rv DESC LIMIT $4";

/// Parameters: queue, the `prev_rv` of the last measured row, maximum number of rows.
pub(super) const MEASURE_MORE_HISTORY: &str = "SELECT prev_rv, octet_length(events) + text_bytes FROM deltaq.journal \
     WHERE partition = $1 AND queue_id = $2 AND prev_rv < $3 ORDER BY prev_rv DESC LIMIT $4";

/// Parameters: queue, the `prev_rv` of the oldest row and of the newest row.
pub(super) const READ_HISTORY: &str = "SELECT queue_id, epoch, prev_rv, first_rv, last_rv, at, format, checksum, texts, \
     text_bytes, events FROM deltaq.journal WHERE partition = $1 AND queue_id = $2 AND prev_rv BETWEEN $3 AND $4 ORDER BY prev_rv DESC";

/// Parameter: queue. `octet_length` does not read a text that is stored out of line.
pub(super) const SEGMENTS: &str = "SELECT last_rv, at, octet_length(events) + text_bytes FROM deltaq.journal \
     WHERE partition = $1 AND queue_id = $2 ORDER BY prev_rv";

/// Begins a read-only transaction that sees the commits of one instant. It has no time limit.
pub(super) const BEGIN_SNAPSHOT: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL statement_timeout = 0; \
     SET LOCAL idle_in_transaction_session_timeout = 0";
/// After an error, a transaction continues from its savepoint. The rollback also reverts settings made since the
/// savepoint.
pub(super) const SAVEPOINT: &str = "SAVEPOINT look";
pub(super) const ROLLBACK_TO_SAVEPOINT: &str = "ROLLBACK TO SAVEPOINT look; RELEASE SAVEPOINT look";
/// Makes statements read tables sequentially.
pub(super) const WITHOUT_INDEXES: &str = "SET LOCAL enable_indexscan = off; SET LOCAL enable_indexonlyscan = off; \
     SET LOCAL enable_bitmapscan = off";
/// Makes statements use indexes.
pub(super) const BY_INDEXES: &str = "SET LOCAL enable_seqscan = off";

/// The indexes that the migrations create.
pub(super) const INDEX_NAMES: [&str; 11] = [
    "journal_pkey",
    "journal_with_texts",
    "migrations_pkey",
    "nodes_pkey",
    "partitions_pkey",
    "queues_by_name",
    "queues_pkey",
    "runs_pkey",
    "runs_with_texts",
    "series_pkey",
    "texts_pkey",
];
/// The indexes in the schema, and whether each can be used.
pub(super) const INDEXES: &str = "SELECT class.relname::text, index.indisvalid AND index.indisready FROM pg_index AS index \
     JOIN pg_class AS class ON class.oid = index.indexrelid \
     WHERE class.relnamespace = 'deltaq'::regnamespace";
/// Counts the rows of each table that has an index over all its rows.
pub(super) const COUNTS: [(&str, &str); 4] = [
    ("journal", "SELECT count(*) FROM deltaq.journal WHERE partition = $1"),
    ("queues", "SELECT count(*) FROM deltaq.queues WHERE partition = $1"),
    ("runs", "SELECT count(*) FROM deltaq.runs WHERE partition = $1"),
    ("texts", "SELECT count(*) FROM deltaq.texts WHERE partition = $1"),
];

// The last column of the following statements is the location of the row (`ctid`) as one number. Its low 16 bits are
// the position in the page.
pub(super) const SCAN_QUEUES: &str = "SELECT id, version, name, incarnation, created_at, deleted, rv, first_run, next_run, \
     format, checksum, state, (ctid::text::point)[0]::bigint << 16 | (ctid::text::point)[1]::bigint FROM deltaq.queues WHERE partition = $1";
pub(super) const SCAN_JOURNAL: &str = "SELECT queue_id, epoch, prev_rv, first_rv, last_rv, at, format, checksum, \
     texts, text_bytes, events, \
     (ctid::text::point)[0]::bigint << 16 | (ctid::text::point)[1]::bigint FROM deltaq.journal WHERE partition = $1";
pub(super) const SCAN_RUNS: &str = "SELECT queue_id, number, format, checksum, texts, bytes, entries, \
     (ctid::text::point)[0]::bigint << 16 | (ctid::text::point)[1]::bigint FROM deltaq.runs WHERE partition = $1";
pub(super) const SCAN_TEXTS: &str = "SELECT id, text, \
     (ctid::text::point)[0]::bigint << 16 | (ctid::text::point)[1]::bigint FROM deltaq.texts WHERE partition = $1";
/// Parameter: queue.
pub(super) const LINKS: &str = "SELECT prev_rv, first_rv, last_rv, \
     (ctid::text::point)[0]::bigint << 16 | (ctid::text::point)[1]::bigint FROM deltaq.journal \
     WHERE partition = $1 AND queue_id = $2 ORDER BY prev_rv";
