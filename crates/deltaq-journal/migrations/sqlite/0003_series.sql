-- What happened to the queues in the minutes of an hour. These rows are measurements: nothing depends on them, and they are
-- replaced once a minute and removed after a day.
--
-- `hour` counts from 1970. `content` are the buckets of the queue in that hour; its first byte is the version of its form.
-- The row of queue 0 has the minutes in which a server ran, one bit each. Rows of deleted queues stay for a day.
CREATE TABLE series (
    hour INTEGER NOT NULL,
    queue_id INTEGER NOT NULL,
    content BLOB NOT NULL,
    PRIMARY KEY (hour, queue_id)
) WITHOUT ROWID;
