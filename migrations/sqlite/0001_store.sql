-- The first layout: the journal, the checkpoint of keys and queues, the texts that their rows share, and the state of
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

-- Keys at the last checkpoint. `id` is queue_id * 2^32 + the key's slot, so the rows of a queue are adjacent.
-- There is no other index over all rows, because writing an index in random order makes checkpoints slow. `texts` lists
-- the shared texts to which `item` and `known_object` refer.
CREATE TABLE keys (
    id INTEGER PRIMARY KEY,
    rv INTEGER NOT NULL,
    known_rv INTEGER,
    format INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    key TEXT NOT NULL,
    owner TEXT,
    texts TEXT,
    item TEXT,
    known_object TEXT
);

CREATE INDEX keys_with_texts ON keys (id) WHERE texts IS NOT NULL;

-- Large objects of queues that follow each other. Rows that contain such an object refer to it by its id: the SHA-256 of
-- the text in hexadecimal digits, as a JSON string in the place of the object.
CREATE TABLE texts (
    id TEXT PRIMARY KEY,
    text TEXT NOT NULL
);

-- Removed keys, until no replay starts before their removal.
CREATE TABLE tombstones (
    queue_id INTEGER NOT NULL,
    slot INTEGER NOT NULL,
    rv INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    key TEXT NOT NULL
);

CREATE INDEX tombstones_by_rv ON tombstones (queue_id, rv);

-- Queues at their last checkpoint, and deleted queues whose rows are not all removed.
CREATE TABLE queues (
    id INTEGER PRIMARY KEY,
    version INTEGER NOT NULL,
    name TEXT NOT NULL,
    incarnation INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    deleted INTEGER NOT NULL,
    rv INTEGER NOT NULL,
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

-- For people: the last acknowledged objects at the last checkpoint.
CREATE VIEW known_objects (queue, key, owner, resource_version, object) AS
SELECT
    queues.name,
    keys.key,
    keys.owner,
    keys.known_rv,
    CASE substr(keys.known_object, 1, 1)
        WHEN '"' THEN (SELECT texts.text FROM texts WHERE texts.id = trim(keys.known_object, '"'))
        ELSE keys.known_object
    END
FROM queues
JOIN keys ON keys.id BETWEEN queues.id << 32 AND (queues.id << 32) + 4294967295
WHERE queues.deleted = 0 AND keys.known_object IS NOT NULL;
