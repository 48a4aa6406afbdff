-- The first layout: the journal, the checkpoint of keys and queues, and what the store says of itself.
--
-- Numbers of events, rows and versions stay below 2^63. Times are microseconds since the Unix epoch; one
-- above 2^63 is kept bit for bit, so it reads as a negative number here.

-- Tells a deltaq store ("delq") from any other SQLite database.
PRAGMA application_id = 1684368497;

-- What happened, a row for each queue and commit. `events` is a JSON array.
CREATE TABLE journal (
    id INTEGER PRIMARY KEY,
    queue_id INTEGER NOT NULL,
    prev_rv INTEGER NOT NULL,
    first_rv INTEGER NOT NULL,
    last_rv INTEGER NOT NULL,
    at INTEGER NOT NULL,
    format INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    events TEXT NOT NULL
);

-- The rows of a queue ascend in first_rv and last_rv alike, so one index finds both.
CREATE UNIQUE INDEX journal_by_queue ON journal (queue_id, first_rv);

-- Keys as of the last checkpoint. `id` is queue_id * 2^32 + the key's slot: rows of a queue lie together
-- and there is no other index, because writing an index in random order is what makes checkpoints slow.
CREATE TABLE keys (
    id INTEGER PRIMARY KEY,
    rv INTEGER NOT NULL,
    known_rv INTEGER,
    format INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    key TEXT NOT NULL,
    owner TEXT,
    item TEXT,
    known_object TEXT
);

-- Keys that are gone, until no replay starts before that.
CREATE TABLE gravestones (
    queue_id INTEGER NOT NULL,
    slot INTEGER NOT NULL,
    rv INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    key TEXT NOT NULL
);

CREATE INDEX gravestones_by_rv ON gravestones (queue_id, rv);

-- Queues as of their last checkpoint, and what is left of deleted ones.
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

-- One row: whether the store was closed in good order; `next_row`, below which id no journal row comes any
-- more, also when those before it were removed; what rows of deleted queues said before they were removed:
-- the largest id and version of a queue, and `floor`, the largest event, above which new queues start; and
-- room for writing on trial.
CREATE TABLE store (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    clean INTEGER NOT NULL,
    next_row INTEGER NOT NULL,
    last_queue INTEGER NOT NULL,
    last_version INTEGER NOT NULL,
    floor INTEGER NOT NULL,
    probe BLOB
);

INSERT INTO store (id, clean, next_row, last_queue, last_version, floor) VALUES (1, 1, 1, 0, 0, 0);

-- For people: the last acknowledged objects as of the last checkpoint.
CREATE VIEW known_objects (queue, key, owner, resource_version, object) AS
SELECT queues.name, keys.key, keys.owner, keys.known_rv, keys.known_object
FROM queues
JOIN keys ON keys.id BETWEEN queues.id << 32 AND (queues.id << 32) + 4294967295
WHERE queues.deleted = 0 AND keys.known_object IS NOT NULL;
