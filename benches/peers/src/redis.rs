//! Redis Streams: XADD, XREADGROUP, XACK in RESP2.

use std::io;

use deltaq::bench::{Done, Keys, Wire, Worker};
use deltaq::clock::Clock;

use crate::object;

const STREAM: &str = "jobs";
const GROUP: &str = "workers";

/// A consumer of its own, which also adds.
pub(crate) struct Redis {
    wire: Wire,
    name: String,
    batch: usize,
    keys: Keys,
    /// The ids of the entries that it has read.
    held: Vec<Vec<u8>>,
    request: Vec<u8>,
}

impl Redis {
    pub(crate) async fn open(address: &str, number: usize, batch: usize, keys: Keys) -> io::Result<Self> {
        let (wire, name) = (Wire::open(address).await?, format!("worker-{number}"));
        Ok(Self { wire, name, batch, keys, held: Vec::new(), request: Vec::new() })
    }

    /// Empties the server and makes the stream with its group.
    pub(crate) async fn prepare(&mut self) -> io::Result<()> {
        for command in [&["FLUSHALL"][..], &["XGROUP", "CREATE", STREAM, GROUP, "$", "MKSTREAM"]] {
            command_of(&mut self.request, &command.iter().map(|text| text.as_bytes()).collect::<Vec<_>>());
            self.ask(1).await?;
        }
        Ok(())
    }

    /// Sends what has been rendered and reads so many replies, whole.
    async fn ask(&mut self, replies: usize) -> io::Result<&[u8]> {
        self.wire.send(&self.request).await?;
        self.request.clear();
        let mut known = 0;
        let mut left = replies;
        self.wire
            .receive(move |come| {
                while left > 0 {
                    match reply(come.get(known..).unwrap_or_default())? {
                        Some(length) => known += length,
                        None => return Ok(None),
                    }
                    left -= 1;
                }
                Ok(Some(known))
            })
            .await
    }
}

impl Worker for Redis {
    async fn work(&mut self, clock: &Clock) -> io::Result<Done> {
        let begun_us = clock.now_us();
        let first = self.keys.take(self.batch);
        for number in (0..self.batch).zip(first..).map(|(_, number)| number) {
            command_of(&mut self.request, &[b"XADD", STREAM.as_bytes(), b"*", b"o", &object(number)]);
        }
        self.ask(self.batch).await?;
        let count = self.batch.to_string();
        let name = self.name.clone();
        command_of(
            &mut self.request,
            &[b"XREADGROUP", b"GROUP", GROUP.as_bytes(), name.as_bytes(), b"COUNT", count.as_bytes(), b"STREAMS",
              STREAM.as_bytes(), b">"],
        );
        let held = ids(self.ask(1).await?);
        self.held = held;
        if !self.held.is_empty() {
            let mut words: Vec<&[u8]> = vec![b"XACK", STREAM.as_bytes(), GROUP.as_bytes()];
            words.extend(self.held.iter().map(Vec::as_slice));
            command_of(&mut self.request, &words);
            self.ask(1).await?;
        }
        let objects = self.held.len() as u64;
        Ok(Done { requests: 3, objects, begun_us, ended_us: clock.now_us() })
    }
}

fn command_of(into: &mut Vec<u8>, words: &[&[u8]]) {
    into.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        into.extend_from_slice(b"$");
        into.extend_from_slice(word.len().to_string().as_bytes());
        into.extend_from_slice(b"\r\n");
        into.extend_from_slice(word);
        into.extend_from_slice(b"\r\n");
    }
}

/// The length of the first reply, once it is whole.
fn reply(come: &[u8]) -> io::Result<Option<usize>> {
    let Some(end) = memchr::memchr(b'\n', come) else { return Ok(None) };
    let line = &come[..end - 1];
    let number = || std::str::from_utf8(&line[1..]).ok().and_then(|text| text.parse::<i64>().ok()).unwrap_or(-1);
    match line.first() {
        Some(b'+' | b':') => Ok(Some(end + 1)),
        Some(b'$') => {
            let length = if number() < 0 { end + 1 } else { end + 1 + number() as usize + 2 };
            Ok((come.len() >= length).then_some(length))
        }
        Some(b'*') => {
            let mut length = end + 1;
            for _ in 0..number().max(0) {
                match reply(come.get(length..).unwrap_or_default())? {
                    Some(inner) => length += inner,
                    None => return Ok(None),
                }
            }
            Ok(Some(length))
        }
        _ => Err(io::Error::other(String::from_utf8_lossy(line).into_owned())),
    }
}

/// The ids of the entries in the answer to a read of one stream: an entry is an id and a list of two texts.
fn ids(answer: &[u8]) -> Vec<Vec<u8>> {
    const BEFORE: &[u8] = b"*2\r\n$";
    // The first is the stream itself.
    memchr::memmem::find_iter(answer, BEFORE)
        .skip(1)
        .filter_map(|found| {
            let rest = answer.get(found + BEFORE.len()..)?;
            let start = memchr::memchr(b'\n', rest)? + 1;
            let id = rest.get(start..)?;
            let id = id.get(..memchr::memchr(b'\r', id)?)?;
            id.contains(&b'-').then(|| id.to_vec())
        })
        .collect()
}
