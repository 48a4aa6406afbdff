//! Redis Streams: XADD, XREADGROUP, XACK in RESP2.

use std::io;

use deltaq::bench::{Done, Keys, Objects, Wire, Worker};
use deltaq_runtime::clock::Clock;
use memchr::memmem;

use super::{Ack, OBJECT_BYTES, line, number, refused, several};

const STREAM: &[u8] = b"jobs";
const GROUP: &[u8] = b"workers";

/// A connection that adds, reads and acknowledges entries, as a consumer of its own.
pub(crate) struct Redis {
    wire: Wire,
    ack: Ack,
    batch: usize,
    keys: Keys,
    /// One XADD for each object of a batch, sent in one write.
    adds: Objects,
    /// The XREADGROUP command.
    read: Vec<u8>,
    /// The XACK command for the entries that were read; empty if there are none.
    acks: Vec<u8>,
    request: Vec<u8>,
}

impl Redis {
    pub(crate) async fn open(
        address: &str,
        number: usize,
        batch: usize,
        ack: Ack,
        keys: Keys,
    ) -> io::Result<Self> {
        let mut add = Vec::new();
        command(&mut add, &[b"XADD", STREAM, b"*", b"o", &[b'x'; OBJECT_BYTES]]);
        // The placeholder is removed: `Objects` inserts the object.
        add.truncate(add.len() - OBJECT_BYTES - b"\r\n".len());
        let adds = Objects::new(&add, batch, OBJECT_BYTES, &[b"\r\n", &add[..]].concat(), b"\r\n");
        let (name, count) = (format!("worker-{number}"), batch.to_string());
        let mut read = Vec::new();
        let words: [&[u8]; 9] = [
            b"XREADGROUP",
            b"GROUP",
            GROUP,
            name.as_bytes(),
            b"COUNT",
            count.as_bytes(),
            b"STREAMS",
            STREAM,
            b">",
        ];
        command(&mut read, &words);
        let wire = Wire::open(address).await?;
        Ok(Self { wire, ack, batch, keys, adds, read, acks: Vec::new(), request: Vec::new() })
    }

    /// Creates the stream and its group in an empty server.
    pub(crate) async fn prepare(address: &str) -> io::Result<()> {
        let mut request = Vec::new();
        command(&mut request, &[b"XGROUP", b"CREATE", STREAM, GROUP, b"$", b"MKSTREAM"]);
        let mut wire = Wire::open(address).await?;
        wire.send(&request).await?;
        wire.receive(reply_length).await.map(drop)
    }

    /// Reads entries. Acknowledges the previous entries in the same write if that is still to be done. Returns the number of entries.
    async fn read(&mut self) -> io::Result<u64> {
        let replies = if self.acks.is_empty() { 1 } else { 2 };
        self.request.clear();
        self.request.extend_from_slice(&self.acks);
        self.request.extend_from_slice(&self.read);
        self.acks.clear();
        self.wire.send(&self.request).await?;
        let received = self.wire.receive(several(replies, reply_length)).await?;
        let mut words: Vec<&[u8]> = vec![b"XACK", STREAM, GROUP];
        words.extend(ids(received));
        let count = words.len() - 3;
        if count > 0 {
            command(&mut self.acks, &words);
        }
        Ok(count as u64)
    }

    async fn acknowledge(&mut self) -> io::Result<()> {
        if self.acks.is_empty() {
            return Ok(());
        }
        self.wire.send(&self.acks).await?;
        self.acks.clear();
        self.wire.receive(reply_length).await.map(drop)
    }
}

impl Worker for Redis {
    async fn work(&mut self, clock: &Clock) -> io::Result<Done> {
        let begun_us = clock.monotonic_us();
        self.wire.send(self.adds.from(self.keys.take(self.batch))).await?;
        self.wire.receive(several(self.batch, reply_length)).await?;
        let objects = self.read().await?;
        if self.ack == Ack::AtOnce {
            self.acknowledge().await?;
        }
        Ok(Done { requests: 3, objects, begun_us, ended_us: clock.monotonic_us() })
    }
}

/// Renders a command in RESP: an array of bulk strings.
fn command(into: &mut Vec<u8>, words: &[&[u8]]) {
    into.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        into.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        into.extend_from_slice(word);
        into.extend_from_slice(b"\r\n");
    }
}

/// The length of the first reply, once it is complete. Fails if the reply is an error.
fn reply_length(received: &[u8]) -> io::Result<Option<usize>> {
    let Some((line, mut length)) = line(received) else { return Ok(None) };
    let Some((kind, rest)) = line.split_first() else { return Err(refused(line)) };
    // A null has the length -1.
    let count = || if rest == b"-1" { Some(None) } else { number(rest).map(Some) };
    match kind {
        b'+' | b':' => {}
        b'$' => length += count().ok_or_else(|| refused(line))?.map_or(0, |bytes| bytes + b"\r\n".len()),
        b'*' => {
            for _ in 0..count().ok_or_else(|| refused(line))?.unwrap_or_default() {
                match reply_length(received.get(length..).unwrap_or_default())? {
                    Some(inner) => length += inner,
                    None => return Ok(None),
                }
            }
        }
        _ => return Err(refused(line)),
    }
    Ok((received.len() >= length).then_some(length))
}

/// The ids of the entries in the reply to a read of one stream. An entry is an array of two elements that begins with its id. Two
/// other arrays of two elements begin with a string: the stream's and the field's. Only ids contain a dash.
fn ids(reply: &[u8]) -> impl Iterator<Item = &[u8]> {
    const BEFORE: &[u8] = b"*2\r\n$";
    memmem::find_iter(reply, BEFORE).filter_map(|found| {
        let text = reply.get(found + BEFORE.len()..)?;
        let (_, start) = line(text)?;
        let (id, _) = line(text.get(start..)?)?;
        id.contains(&b'-').then_some(id)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: &[u8] = b"*1\r\n*2\r\n$4\r\njobs\r\n*2\r\n\
        *2\r\n$3\r\n9-0\r\n*2\r\n$1\r\no\r\n$2\r\n{}\r\n\
        *2\r\n$4\r\n10-1\r\n*2\r\n$1\r\no\r\n$2\r\n{}\r\n";

    #[test]
    fn commands_are_arrays_of_bulk_strings() {
        let mut text = Vec::new();
        command(&mut text, &[b"XACK", b"jobs"]);
        assert_eq!(text, b"*2\r\n$4\r\nXACK\r\n$4\r\njobs\r\n");
    }

    #[test]
    fn replies_have_the_declared_length() {
        for whole in [&b"+OK\r\n"[..], b":12\r\n", b"$-1\r\n", b"*-1\r\n", b"$2\r\n\r\n\r\n", READ] {
            let text = String::from_utf8_lossy(whole);
            assert_eq!(reply_length(whole).unwrap(), Some(whole.len()), "{text}");
            assert_eq!(reply_length(&whole[..whole.len() - 1]).unwrap(), None, "{text}");
        }
        assert!(reply_length(b"-ERR no such key\r\n").is_err());
        assert!(reply_length(b"\r\n").is_err());
    }

    #[test]
    fn ids_are_taken_from_entries() {
        assert_eq!(ids(READ).collect::<Vec<_>>(), [b"9-0".as_slice(), b"10-1"]);
        assert_eq!(ids(b"*-1\r\n").count(), 0);
    }
}
