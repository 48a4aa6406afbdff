-- What a node says to the others before it gets partitions, and what it says to operators. `has_joined`: the node and the others have called each
-- other, so it takes partitions. `reached`: the instances of the nodes that it has called. `secrets`: digests of the secrets that it accepts,
-- with the name and the instance as salt; the first one is of the secret that it sends. `queues`: the number of its queues. `clock_ahead_ms`:
-- how far its wall clock is ahead of the clock of the database.
ALTER TABLE deltaq.nodes ADD COLUMN has_joined boolean NOT NULL DEFAULT false;
ALTER TABLE deltaq.nodes ADD COLUMN reached bigint[] NOT NULL DEFAULT '{}';
ALTER TABLE deltaq.nodes ADD COLUMN secrets text[] NOT NULL DEFAULT '{}';
ALTER TABLE deltaq.nodes ADD COLUMN queues bigint NOT NULL DEFAULT 0;
ALTER TABLE deltaq.nodes ADD COLUMN clock_ahead_ms bigint NOT NULL DEFAULT 0;
