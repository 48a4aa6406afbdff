//! beanstalkd: put, reserve, delete.

use std::io;

use deltaq::bench::{Done, Keys, Objects, Wire, Worker};
use deltaq_runtime::clock::Clock;

use super::{Ack, OBJECT_BYTES, line, number, refused, several};

/// A connection that puts, reserves and deletes jobs.
pub(crate) struct Beanstalkd {
    wire: Wire,
    ack: Ack,
    keys: Keys,
    put: Objects,
    /// The delete command for the reserved job; empty if there is none.
    delete: Vec<u8>,
    request: Vec<u8>,
}

impl Beanstalkd {
    pub(crate) async fn open(address: &str, ack: Ack, keys: Keys) -> io::Result<Self> {
        // Priority 1024, no delay, 30 s to run, which is the length of deltaq's leases.
        let head = format!("put 1024 0 30 {OBJECT_BYTES}\r\n");
        let put = Objects::new(head.as_bytes(), 1, OBJECT_BYTES, b"", b"\r\n");
        Ok(Self { wire: Wire::open(address).await?, ack, keys, put, delete: Vec::new(), request: Vec::new() })
    }

    async fn put(&mut self) -> io::Result<()> {
        self.wire.send(self.put.from(self.keys.take(1))).await?;
        self.expect(b"INSERTED").await
    }

    /// Reserves a job. Deletes the previous job in the same write if that is still to be done.
    async fn reserve(&mut self) -> io::Result<()> {
        let replies = if self.delete.is_empty() { 1 } else { 2 };
        self.request.clear();
        self.request.extend_from_slice(&self.delete);
        self.request.extend_from_slice(b"reserve\r\n");
        self.wire.send(&self.request).await?;
        let mut received = self.wire.receive(several(replies, reply_length)).await?;
        if replies == 2 {
            received = received.strip_prefix(b"DELETED\r\n").ok_or_else(|| refused(received))?;
        }
        let id = reserved(received).ok_or_else(|| refused(received))?;
        self.delete.clear();
        for part in [&b"delete "[..], id, b"\r\n"] {
            self.delete.extend_from_slice(part);
        }
        Ok(())
    }

    async fn delete(&mut self) -> io::Result<()> {
        self.wire.send(&self.delete).await?;
        self.delete.clear();
        self.expect(b"DELETED").await
    }

    async fn expect(&mut self, expected: &[u8]) -> io::Result<()> {
        let reply = self.wire.receive(reply_length).await?;
        if reply.starts_with(expected) { Ok(()) } else { Err(refused(reply)) }
    }
}

impl Worker for Beanstalkd {
    async fn work(&mut self, clock: &Clock) -> io::Result<Done> {
        let begun_us = clock.monotonic_us();
        self.put().await?;
        self.reserve().await?;
        if self.ack == Ack::AtOnce {
            self.delete().await?;
        }
        Ok(Done { requests: 3, objects: 1, begun_us, ended_us: clock.monotonic_us() })
    }
}

/// The length of the first reply, once it is complete: a line, followed by a body if the line begins with RESERVED.
fn reply_length(received: &[u8]) -> io::Result<Option<usize>> {
    let Some((line, mut length)) = line(received) else { return Ok(None) };
    if line.starts_with(b"RESERVED ") {
        let bytes = line.rsplit(|byte| *byte == b' ').next().and_then(number);
        length += bytes.ok_or_else(|| refused(line))? + b"\r\n".len();
    }
    Ok((received.len() >= length).then_some(length))
}

/// The id of the job in a reply to a reserve.
fn reserved(reply: &[u8]) -> Option<&[u8]> {
    reply.strip_prefix(b"RESERVED ")?.split(|byte| *byte == b' ').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_have_the_declared_length() {
        assert_eq!(reply_length(b"INSERTED 7\r\n").unwrap(), Some(12));
        assert_eq!(reply_length(b"INSERTED 7").unwrap(), None);
        assert_eq!(reply_length(b"RESERVED 7 3\r\nabc\r").unwrap(), None);
        assert_eq!(reply_length(b"RESERVED 7 3\r\nabc\r\nDEL").unwrap(), Some(19));
        assert!(reply_length(b"RESERVED 7 x\r\nabc\r\n").is_err());
    }

    #[test]
    fn a_reserved_job_has_an_id() {
        assert_eq!(reserved(b"RESERVED 42 3\r\nabc\r\n"), Some(&b"42"[..]));
        assert_eq!(reserved(b"DEADLINE_SOON\r\n"), None);
    }
}
