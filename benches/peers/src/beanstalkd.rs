//! beanstalkd: put, reserve, delete.

use std::io;

use deltaq::bench::{Done, Keys, Wire, Worker};
use deltaq::clock::Clock;

use crate::object;

/// A worker that also puts.
pub(crate) struct Beanstalkd {
    wire: Wire,
    keys: Keys,
    request: Vec<u8>,
}

impl Beanstalkd {
    pub(crate) async fn open(address: &str, keys: Keys) -> io::Result<Self> {
        Ok(Self { wire: Wire::open(address).await?, keys, request: Vec::new() })
    }

    async fn ask(&mut self, expected: &[u8]) -> io::Result<&[u8]> {
        self.wire.send(&self.request).await?;
        self.request.clear();
        let answer = self.wire.receive(reply).await?;
        if answer.starts_with(expected) { Ok(answer) } else { Err(io::Error::other(String::from_utf8_lossy(answer).into_owned())) }
    }
}

impl Worker for Beanstalkd {
    async fn work(&mut self, clock: &Clock) -> io::Result<Done> {
        let begun_us = clock.now_us();
        let object = object(self.keys.take(1));
        self.request.extend_from_slice(b"put 1024 0 30 ");
        self.request.extend_from_slice(object.len().to_string().as_bytes());
        self.request.extend_from_slice(b"\r\n");
        self.request.extend_from_slice(&object);
        self.request.extend_from_slice(b"\r\n");
        self.ask(b"INSERTED").await?;
        self.request.extend_from_slice(b"reserve\r\n");
        let answer = self.ask(b"RESERVED").await?;
        let id = answer.split(|byte| *byte == b' ').nth(1).unwrap_or_default().to_vec();
        self.request.extend_from_slice(b"delete ");
        self.request.extend_from_slice(&id);
        self.request.extend_from_slice(b"\r\n");
        self.ask(b"DELETED").await?;
        Ok(Done { requests: 3, objects: 1, begun_us, ended_us: clock.now_us() })
    }
}

/// The length of a reply, once it is whole: a line, and behind RESERVED a body.
fn reply(come: &[u8]) -> io::Result<Option<usize>> {
    let Some(end) = memchr::memchr(b'\n', come) else { return Ok(None) };
    let line = &come[..end - 1];
    let mut length = end + 1;
    if line.starts_with(b"RESERVED") {
        let bytes = line.rsplit(|byte| *byte == b' ').next().unwrap_or_default();
        length += std::str::from_utf8(bytes).ok().and_then(|text| text.parse::<usize>().ok()).unwrap_or(0) + 2;
    }
    Ok((come.len() >= length).then_some(length))
}
