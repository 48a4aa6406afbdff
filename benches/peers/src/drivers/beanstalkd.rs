//! beanstalkd: put, reserve, delete.

use std::io;

use deltaq::bench::{Done, Keys, Objects, Wire, Worker};
use deltaq::clock::Clock;

use super::{Ack, OBJECT_BYTES, line, number, refused, several};

/// A worker that also puts.
pub(crate) struct Beanstalkd {
    wire: Wire,
    ack: Ack,
    keys: Keys,
    put: Objects,
    /// The delete of the job that it has reserved, or nothing.
    delete: Vec<u8>,
    request: Vec<u8>,
}

impl Beanstalkd {
    pub(crate) async fn open(address: &str, ack: Ack, keys: Keys) -> io::Result<Self> {
        // Priority 1024, no delay, 30 s to run: a lease as long as deltaq's.
        let head = format!("put 1024 0 30 {OBJECT_BYTES}\r\n");
        let put = Objects::new(head.as_bytes(), 1, OBJECT_BYTES, b"", b"\r\n");
        Ok(Self { wire: Wire::open(address).await?, ack, keys, put, delete: Vec::new(), request: Vec::new() })
    }

    async fn put(&mut self) -> io::Result<()> {
        self.wire.send(self.put.from(self.keys.take(1))).await?;
        self.answer(b"INSERTED").await
    }

    /// Reserves a job; deletes the one before, if that is still to be done.
    async fn reserve(&mut self) -> io::Result<()> {
        let answers = if self.delete.is_empty() { 1 } else { 2 };
        self.request.clear();
        self.request.extend_from_slice(&self.delete);
        self.request.extend_from_slice(b"reserve\r\n");
        self.wire.send(&self.request).await?;
        let mut answer = self.wire.receive(several(answers, reply)).await?;
        if answers == 2 {
            answer = answer.strip_prefix(b"DELETED\r\n").ok_or_else(|| refused(answer))?;
        }
        let id = reserved(answer).ok_or_else(|| refused(answer))?;
        self.delete.clear();
        for part in [&b"delete "[..], id, b"\r\n"] {
            self.delete.extend_from_slice(part);
        }
        Ok(())
    }

    async fn delete(&mut self) -> io::Result<()> {
        self.wire.send(&self.delete).await?;
        self.delete.clear();
        self.answer(b"DELETED").await
    }

    async fn answer(&mut self, expected: &[u8]) -> io::Result<()> {
        let answer = self.wire.receive(reply).await?;
        if answer.starts_with(expected) { Ok(()) } else { Err(refused(answer)) }
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

/// The length of the first reply, once it is whole: a line, and behind RESERVED a body.
fn reply(come: &[u8]) -> io::Result<Option<usize>> {
    let Some((line, mut length)) = line(come) else { return Ok(None) };
    if line.starts_with(b"RESERVED ") {
        let bytes = line.rsplit(|byte| *byte == b' ').next().and_then(number);
        length += bytes.ok_or_else(|| refused(line))? + b"\r\n".len();
    }
    Ok((come.len() >= length).then_some(length))
}

/// The id of the job in a reply to a reserve.
fn reserved(answer: &[u8]) -> Option<&[u8]> {
    answer.strip_prefix(b"RESERVED ")?.split(|byte| *byte == b' ').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_end_where_they_say() {
        assert_eq!(reply(b"INSERTED 7\r\n").unwrap(), Some(12));
        assert_eq!(reply(b"INSERTED 7").unwrap(), None);
        assert_eq!(reply(b"RESERVED 7 3\r\nabc\r").unwrap(), None);
        assert_eq!(reply(b"RESERVED 7 3\r\nabc\r\nDEL").unwrap(), Some(19));
        assert!(reply(b"RESERVED 7 x\r\nabc\r\n").is_err());
    }

    #[test]
    fn a_reserved_job_has_an_id() {
        assert_eq!(reserved(b"RESERVED 42 3\r\nabc\r\n"), Some(&b"42"[..]));
        assert_eq!(reserved(b"DEADLINE_SOON\r\n"), None);
    }
}
