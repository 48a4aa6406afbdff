-- The first layout: the journal, the checkpoints of keys and queues, the texts that their rows share, and the state of
-- the store.
--
-- Numbers of events, rows and versions are below 2^63. Times are microseconds since the Unix epoch; a time
-- above 2^63 is stored bit for bit, so it reads as a negative number here.

-- Tells a deltaq store ("delq") from any other SQLite database.
PRAGMA application_id = 1684368497;

-- The events, one row per queue and commit. `events` is a JSON array. `prev_rv` is the event before the row, and so the
-- row's number within its queue. `epoch` is the tenure of the writer. `id` counts rows in the order of their commits; only
-- the file `deltaq.mark` refers to it. `texts` lists the shared texts to which `events` refers, separated by commas, and
-- `text_bytes` is the sum of their bytes.
CREATE TABLE journal (
    id INTEGER PRIMARY KEY,
    queue_id INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    prev_rv INTEGER NOT NULL,
    first_rv INTEGER NOT NULL,
    last_rv INTEGER NOT NULL,
    at INTEGER NOT NULL,
    format INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    texts TEXT,
    text_bytes INTEGER NOT NULL,
    events TEXT NOT NULL
);

-- At most one row follows an event. The rows of a queue ascend in prev_rv, first_rv and last_rv, so one index serves all
-- three.
CREATE UNIQUE INDEX journal_by_queue ON journal (queue_id, prev_rv);

-- The rows that refer to shared texts.
CREATE INDEX journal_with_texts ON journal (queue_id, prev_rv) WHERE texts IS NOT NULL;

-- The checkpoints: keys and removals of keys, in runs. `entries` is a JSON array, compressed with zstd, and `bytes` is its
-- length. Of all entries of a slot, the one in the newest run counts. `texts` lists the shared texts to which `entries`
-- refers. Runs are appended and removed, and never changed.
CREATE TABLE runs (
    id INTEGER PRIMARY KEY,
    queue_id INTEGER NOT NULL,
    number INTEGER NOT NULL,
    format INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    texts TEXT,
    bytes INTEGER NOT NULL,
    entries BLOB NOT NULL
);

CREATE UNIQUE INDEX runs_by_queue ON runs (queue_id, number);

CREATE INDEX runs_with_texts ON runs (queue_id, number) WHERE texts IS NOT NULL;

-- Large objects of queues that follow each other. Rows that contain such an object refer to it by its id: the SHA-256 of
-- the text in hexadecimal digits, as a JSON string in the place of the object.
CREATE TABLE texts (
    id TEXT PRIMARY KEY,
    text TEXT NOT NULL
);

-- Queues at their last checkpoint, and deleted queues whose rows are not all removed. The checkpoint consists of the runs
-- from `first_run` to the one before `next_run`; earlier runs are obsolete, and later ones belong to a checkpoint that was
-- not completed.
CREATE TABLE queues (
    id INTEGER PRIMARY KEY,
    version INTEGER NOT NULL,
    name TEXT NOT NULL,
    incarnation INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    deleted INTEGER NOT NULL,
    rv INTEGER NOT NULL,
    first_run INTEGER NOT NULL,
    next_run INTEGER NOT NULL,
    format INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    state TEXT NOT NULL
);

CREATE UNIQUE INDEX queues_by_name ON queues (name) WHERE deleted = 0;

-- One row. `clean`: whether the store was closed cleanly. `next_row`: no later journal row has a smaller id, also
-- after the removal of earlier rows. `last_queue`, `last_version`: the largest id and version of queues whose
-- rows were removed. `floor`: the largest event of these queues, above which new queues start. `epoch`: grows each
-- time a writer opens the store. `probe`: room for a trial write.
CREATE TABLE store (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    clean INTEGER NOT NULL,
    next_row INTEGER NOT NULL,
    last_queue INTEGER NOT NULL,
    last_version INTEGER NOT NULL,
    floor INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    probe BLOB
);

INSERT INTO store (id, clean, next_row, last_queue, last_version, floor, epoch) VALUES (1, 1, 1, 0, 0, 0, 0);
