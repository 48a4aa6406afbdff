-- What happened to the queues in the minutes of an hour. These rows are measurements: nothing depends on them, and they are
-- replaced once a minute and removed after a day.
--
-- `hour` counts from 1970. `content` are the buckets of the queue in that hour; its first byte is the version of its form.
-- The row of queue 0 has the minutes in which a server ran, one bit each. Rows of deleted queues stay for a day.
CREATE TABLE deltaq.series (
    hour bigint NOT NULL,
    queue_id bigint NOT NULL,
    partition smallint NOT NULL,
    content bytea NOT NULL,
    PRIMARY KEY (partition, hour, queue_id)
) WITH (fillfactor = 50, toast_tuple_target = 8160, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
