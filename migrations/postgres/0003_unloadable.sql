-- `unloadable`: the partitions that the node has failed to load lately. Other nodes keep them, or take them back.
ALTER TABLE deltaq.nodes ADD COLUMN unloadable smallint[] NOT NULL DEFAULT '{}';
