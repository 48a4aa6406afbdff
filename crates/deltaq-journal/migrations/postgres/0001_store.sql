-- The first layout: the journal, the checkpoints of keys and queues, the texts that their rows share, and the state of
-- each partition.
--
-- A partition is a complete store: its writer, its epoch and its rows do not depend on other partitions. The number of a partition
-- comes first in every key. Numbers of events and versions are below 2^63. Times are microseconds since the Unix epoch; a time above
-- 2^63 is stored bit for bit, so it reads as a negative number here, and so do checksums. Texts are UTF-8 in `bytea`: a text may
-- contain U+0000, and neither the encoding nor the collation of the database has an effect on them.

DO $$ BEGIN
    IF to_regnamespace('deltaq') IS NULL THEN
        CREATE SCHEMA deltaq;
    END IF;
END $$;

-- The migrations that have run.
CREATE TABLE deltaq.migrations (
    version bigint PRIMARY KEY,
    name text NOT NULL,
    migrated_at timestamptz NOT NULL DEFAULT now()
);

-- One row per partition. `epoch`: grows each time a writer opens the partition. `writer`: a random number that the writer of the epoch has
-- chosen. A failover to a replica that lags can take the database back to an earlier epoch; two writers may then have the same epoch, but
-- never the same number. `clean`: whether the partition was closed cleanly. `last_queue`, `last_version`: the largest id and version of
-- queues whose rows were removed. `floor`: the largest event of these queues, above which new queues start. `node`: the owner of the
-- partition. `probe`: room for a trial write.
CREATE TABLE deltaq.partitions (
    epoch bigint NOT NULL DEFAULT 0,
    writer bigint NOT NULL DEFAULT 0,
    last_queue bigint NOT NULL DEFAULT 0,
    last_version bigint NOT NULL DEFAULT 0,
    floor bigint NOT NULL DEFAULT 0,
    partition smallint PRIMARY KEY CHECK (partition >= 0),
    clean boolean NOT NULL DEFAULT true,
    node text,
    probe bytea
) WITH (fillfactor = 10);

ALTER TABLE deltaq.partitions ALTER COLUMN probe SET STORAGE EXTERNAL;

-- The events, one row per queue and commit. `events` is a JSON array. `prev_rv` is the event before the row, and so the row's number
-- within its queue: at most one row follows an event. The rows of a queue ascend in prev_rv, first_rv and last_rv, so one index serves
-- all three. `epoch` is the tenure of the writer. Rows are appended and removed, and never changed. A row of up to 8 KiB stays in its
-- page: each piece of a row that is stored out of line costs another two rows. `texts` lists the shared texts to which `events` refers,
-- separated by commas, and `text_bytes` is the sum of their bytes.
CREATE TABLE deltaq.journal (
    queue_id bigint NOT NULL,
    epoch bigint NOT NULL,
    prev_rv bigint NOT NULL,
    first_rv bigint NOT NULL,
    last_rv bigint NOT NULL,
    at bigint NOT NULL,
    format integer NOT NULL,
    checksum integer NOT NULL,
    partition smallint NOT NULL,
    text_bytes bigint NOT NULL,
    texts text,
    events bytea NOT NULL,
    PRIMARY KEY (partition, queue_id, prev_rv)
) WITH (
    toast_tuple_target = 8160,
    autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_vacuum_insert_scale_factor = 0.2,
    autovacuum_vacuum_cost_delay = 0
);

-- The rows that refer to shared texts.
CREATE INDEX journal_with_texts ON deltaq.journal (partition, queue_id, prev_rv) WHERE texts IS NOT NULL;

-- The checkpoints: keys and removals of keys, in runs. `entries` is a JSON array, compressed with zstd, and `bytes` is its
-- length. Of all entries of a slot, the one in the newest run counts. `texts` lists the shared texts to which `entries`
-- refers. Runs are appended and removed, and never changed.
CREATE TABLE deltaq.runs (
    queue_id bigint NOT NULL,
    number bigint NOT NULL,
    bytes bigint NOT NULL,
    format integer NOT NULL,
    checksum integer NOT NULL,
    partition smallint NOT NULL,
    texts text,
    entries bytea NOT NULL,
    PRIMARY KEY (partition, queue_id, number)
) WITH (
    toast_tuple_target = 8160,
    autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 0
);

-- The entries are compressed already.
ALTER TABLE deltaq.runs ALTER COLUMN entries SET STORAGE EXTERNAL;

CREATE INDEX runs_with_texts ON deltaq.runs (partition, queue_id, number) WHERE texts IS NOT NULL;

-- Large objects of queues that follow each other. Rows that contain such an object refer to it by its id: the SHA-256 of the text in
-- hexadecimal digits, as a JSON string in the place of the object.
CREATE TABLE deltaq.texts (
    partition smallint NOT NULL,
    id text COLLATE "C" NOT NULL,
    text bytea NOT NULL,
    PRIMARY KEY (partition, id)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- Queues at their last checkpoint, and deleted queues whose rows are not all removed. The checkpoint consists of the runs
-- from `first_run` to the one before `next_run`; earlier runs are obsolete, and later ones belong to a checkpoint that was
-- not completed.
CREATE TABLE deltaq.queues (
    id bigint NOT NULL,
    version bigint NOT NULL,
    incarnation bigint NOT NULL,
    created_at bigint NOT NULL,
    rv bigint NOT NULL,
    first_run bigint NOT NULL,
    next_run bigint NOT NULL,
    format integer NOT NULL,
    checksum integer NOT NULL,
    partition smallint NOT NULL,
    deleted boolean NOT NULL,
    name bytea NOT NULL,
    state bytea NOT NULL,
    PRIMARY KEY (partition, id)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);

CREATE UNIQUE INDEX queues_by_name ON deltaq.queues (partition, name) WHERE NOT deleted;

-- lz4 compresses and reads several times as fast as the default. A server that was built without it keeps the default.
DO $$ BEGIN
    ALTER TABLE deltaq.journal ALTER COLUMN events SET COMPRESSION lz4;
    ALTER TABLE deltaq.texts ALTER COLUMN text SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported THEN NULL;
END $$;
