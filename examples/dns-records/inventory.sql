CREATE TABLE hosts (name TEXT PRIMARY KEY, address TEXT NOT NULL, active INTEGER NOT NULL DEFAULT 1);
INSERT INTO hosts VALUES ('ns', '192.0.2.1', 1), ('www', '192.0.2.2', 1), ('old', '192.0.2.3', 0);
