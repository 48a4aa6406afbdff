-- The servers that share the database.
--
-- `name`: the owner of a partition is a name in this table. `url`: where other nodes reach the node. `instance`: a random number of the
-- process, so that a process finds out that another one has its name. `is_leaving`: the node is stopping and takes no partitions.
-- `heartbeat_at`: by the clock of the database. A node whose last heartbeat is too old is removed by another node; it must join again, and
-- has lost its partitions.
CREATE TABLE deltaq.nodes (
    name text PRIMARY KEY,
    url text NOT NULL,
    instance bigint NOT NULL,
    is_leaving boolean NOT NULL DEFAULT false,
    heartbeat_at timestamptz NOT NULL
) WITH (fillfactor = 10);
