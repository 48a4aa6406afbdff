-- What a node says about its loads. `has_loaded`: it owns a partition that it has loaded. `unloadable`: the partitions that it has failed to
-- load lately. Other nodes keep them, or take them back.
ALTER TABLE deltaq.nodes ADD COLUMN has_loaded boolean NOT NULL DEFAULT false;
ALTER TABLE deltaq.nodes ADD COLUMN unloadable smallint[] NOT NULL DEFAULT '{}';
