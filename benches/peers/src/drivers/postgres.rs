//! PostgreSQL: a table of jobs, from which workers take rows with FOR UPDATE SKIP LOCKED. The driver speaks version 3 of the
//! protocol with prepared statements and binary parameters. Each statement is a transaction of its own.

use std::io;

use deltaq::bench::{Done, Keys, Objects, Wire, Worker};
use deltaq_runtime::clock::Clock;

use super::{OBJECT_BYTES, refused};

const TABLE: &str = "CREATE TABLE jobs (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body text NOT NULL, \
                     taken_until timestamptz NOT NULL DEFAULT '-infinity')";
const INSERT: &str = "INSERT INTO jobs (body) VALUES ($1)";
const INSERT_BATCH: &str = "INSERT INTO jobs (body) SELECT unnest($1::text[])";
const TAKE: &str = "UPDATE jobs SET taken_until = now() + '30s' WHERE id = (SELECT id FROM jobs \
                    WHERE taken_until < now() ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED) RETURNING id, body";
const TAKE_BATCH: &str = "UPDATE jobs SET taken_until = now() + '30s' WHERE id = ANY(ARRAY(SELECT id FROM jobs \
                          WHERE taken_until < now() ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED)) \
                          RETURNING id, body";
const DELETE: &str = "DELETE FROM jobs WHERE id = $1";
const DELETE_BATCH: &str = "DELETE FROM jobs WHERE id = ANY($1::bigint[])";

/// Object ids of types in pg_type.
const TEXT: u32 = 25;
const BIGINT: u32 = 20;
/// The version of the protocol, 3.0.
const VERSION: u32 = 3 << 16;
/// The Sync message: the server executes the preceding messages and reports when it is ready for the next query.
const SYNC: &[u8] = b"S\0\0\0\x04";

/// A connection that inserts, takes and deletes rows.
pub(crate) struct Postgres {
    wire: Wire,
    batch: usize,
    keys: Keys,
    /// The insert of a batch.
    inserts: Objects,
    take: Vec<u8>,
    delete: Vec<u8>,
}

impl Postgres {
    pub(crate) async fn open(address: &str, batch: usize, keys: Keys) -> io::Result<Self> {
        let mut wire = connect(address).await?;
        let statements =
            if batch == 1 { [INSERT, TAKE, DELETE] } else { [INSERT_BATCH, TAKE_BATCH, DELETE_BATCH] };
        let mut prepare = Vec::new();
        for (name, statement) in ["insert", "take", "delete"].iter().zip(statements) {
            message(&mut prepare, b'P', &[name.as_bytes(), b"\0", statement.as_bytes(), b"\0\0\0"]);
        }
        prepare.extend_from_slice(SYNC);
        ask(&mut wire, &prepare).await?;
        let mut take = Vec::new();
        call(&mut take, "take", &u64_of(batch).to_be_bytes());
        Ok(Self { wire, batch, keys, inserts: inserts(batch), take, delete: Vec::new() })
    }

    /// Creates the table in an empty server.
    pub(crate) async fn prepare(address: &str) -> io::Result<()> {
        let mut wire = connect(address).await?;
        let mut query = Vec::new();
        message(&mut query, b'Q', &[TABLE.as_bytes(), b"\0"]);
        ask(&mut wire, &query).await.map(drop)
    }
}

impl Worker for Postgres {
    async fn work(&mut self, clock: &Clock) -> io::Result<Done> {
        let begun_us = clock.monotonic_us();
        ask(&mut self.wire, self.inserts.from(self.keys.take(self.batch))).await?;
        let taken: Vec<&[u8]> = ids(ask(&mut self.wire, &self.take).await?).collect();
        let objects = u64_of(taken.len());
        self.delete.clear();
        match (self.batch, taken.as_slice()) {
            (_, []) => {}
            (1, [id]) => call(&mut self.delete, "delete", id),
            _ => call(&mut self.delete, "delete", &array(BIGINT, &taken)),
        }
        if !self.delete.is_empty() {
            ask(&mut self.wire, &self.delete).await?;
        }
        Ok(Done { requests: 3, objects, begun_us, ended_us: clock.monotonic_us() })
    }
}

/// Opens a session. Fails if the server is not ready.
pub(crate) async fn connect(address: &str) -> io::Result<Wire> {
    let mut wire = Wire::open(address).await?;
    let parameters = b"user\0postgres\0database\0postgres\0\0";
    let length = length_of(8 + parameters.len());
    let hello = [&length.to_be_bytes()[..], &VERSION.to_be_bytes(), parameters].concat();
    ask(&mut wire, &hello).await?;
    Ok(wire)
}

/// Sends a request and reads until the server is ready for the next query.
async fn ask<'a>(wire: &'a mut Wire, request: &[u8]) -> io::Result<&'a [u8]> {
    wire.send(request).await?;
    let mut known = 0;
    wire.receive(move |received| {
        loop {
            let rest = received.get(known..).unwrap_or_default();
            let Some((kind, _, length)) = reply(rest) else { return Ok(None) };
            known += length;
            match kind {
                b'E' => return Err(refused(rest.get(..length).unwrap_or_default())),
                b'Z' => return Ok(Some(known)),
                _ => {}
            }
        }
    })
    .await
}

/// The first reply message, once it is complete: its type, its content, and its length.
fn reply(received: &[u8]) -> Option<(u8, &[u8], usize)> {
    let length = 1 + usize::try_from(u32::from_be_bytes(*received.get(1..)?.first_chunk()?)).ok()?;
    Some((*received.first()?, received.get(5..length)?, length))
}

/// The first column of all rows among the reply messages, in binary. A row has the number of its columns, then the length and the
/// bytes of each.
fn ids(mut replies: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        loop {
            let (kind, row, length) = reply(replies)?;
            replies = replies.get(length..)?;
            if kind == b'D' {
                return row.get(6..14);
            }
        }
    })
}

/// The insert of a batch: a Bind with the objects, an Execute and a Sync. The messages are rendered with placeholders, and the
/// objects take their place.
fn inserts(batch: usize) -> Objects {
    let placeholder = [b'x'; OBJECT_BYTES];
    let mut text = Vec::new();
    if batch == 1 {
        call(&mut text, "insert", &placeholder);
    } else {
        call(&mut text, "insert", &array(TEXT, &vec![&placeholder[..]; batch]));
    }
    let between = length_of(OBJECT_BYTES).to_be_bytes();
    let all = batch * OBJECT_BYTES + (batch - 1) * between.len();
    let start = memchr::memmem::find(&text, &placeholder).unwrap_or_default();
    let (before, rest) = text.split_at(start);
    Objects::new(before, batch, OBJECT_BYTES, &between, rest.get(all..).unwrap_or_default())
}

/// Renders a call of a prepared statement with one binary parameter and binary result columns.
fn call(into: &mut Vec<u8>, statement: &str, parameter: &[u8]) {
    let length = length_of(parameter.len()).to_be_bytes();
    let ones: [u8; 6] = [0, 1, 0, 1, 0, 1];
    let bind: [&[u8]; 7] = [b"\0", statement.as_bytes(), b"\0", &ones, &length, parameter, &[0, 1, 0, 1]];
    message(into, b'B', &bind);
    // All rows of the unnamed portal.
    message(into, b'E', &[b"\0", &0u32.to_be_bytes()]);
    into.extend_from_slice(SYNC);
}

/// Renders a message: its type, its length, and its content.
fn message(into: &mut Vec<u8>, kind: u8, parts: &[&[u8]]) {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    into.push(kind);
    into.extend_from_slice(&length_of(4 + length).to_be_bytes());
    for part in parts {
        into.extend_from_slice(part);
    }
}

/// A one-dimensional array without nulls, with lower bound 1, in binary.
fn array(kind: u32, elements: &[&[u8]]) -> Vec<u8> {
    let head = [1, 0, kind, length_of(elements.len()), 1];
    let mut array: Vec<u8> = head.iter().flat_map(|number| number.to_be_bytes()).collect();
    for element in elements {
        array.extend_from_slice(&length_of(element.len()).to_be_bytes());
        array.extend_from_slice(element);
    }
    array
}

/// All lengths in this driver are far below 4 GiB.
fn length_of(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

fn u64_of(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_binds_executes_and_syncs() {
        let mut text = Vec::new();
        call(&mut text, "take", &7u64.to_be_bytes());
        let bind = b"B\0\0\0\x20\0take\0\0\x01\0\x01\0\x01\0\0\0\x08\0\0\0\0\0\0\0\x07\0\x01\0\x01";
        let rest = b"E\0\0\0\x09\0\0\0\0\0S\0\0\0\x04";
        assert_eq!(text, [&bind[..], rest].concat());
    }

    #[test]
    fn inserts_carry_their_objects() {
        for batch in [1, 3] {
            let mut inserts = inserts(batch);
            let text = inserts.from(41).to_vec();
            let (kind, _, bind) = reply(&text).unwrap();
            let (_, _, execute) = reply(&text[bind..]).unwrap();
            assert_eq!((kind, &text[bind + execute..]), (b'B', SYNC));
            let keys = memchr::memmem::find_iter(&text, b"{\"key\":\"0000000000").count();
            assert_eq!(keys, batch);
        }
    }

    #[test]
    fn arrays_are_binary() {
        let array = array(BIGINT, &[&[0, 0, 0, 0, 0, 0, 0, 9]]);
        assert_eq!(array, b"\0\0\0\x01\0\0\0\0\0\0\0\x14\0\0\0\x01\0\0\0\x01\0\0\0\x08\0\0\0\0\0\0\0\x09");
    }

    #[test]
    fn ids_are_taken_from_rows() {
        let row = b"D\0\0\0\x16\0\x02\0\0\0\x08\0\0\0\0\0\0\0\x05\0\0\0\0";
        let replies = [b"2\0\0\0\x04", &row[..], b"C\0\0\0\x0dUPDATE 1\0", b"Z\0\0\0\x05I"].concat();
        assert_eq!(ids(&replies).collect::<Vec<_>>(), [[0, 0, 0, 0, 0, 0, 0, 5]]);
        assert!(reply(b"Z\0\0\0\x05").is_none());
    }
}
