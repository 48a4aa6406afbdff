-- Long events are compressed. This changes no table, but a program that knows only the first layout must not read such rows.
--
-- `events` of `journal` is a JSON array or, as a blob, such an array compressed with zstd. `text_bytes` is what has to be
-- added to the bytes of `events`, as they are stored, to get the bytes of the array and of the shared texts. So it is
-- negative if compression has saved more than the shared texts have.
--
-- A migration needs a statement. This one changes nothing.
UPDATE store SET id = 1;
