//! NATS JetStream: a stream with work-queue retention, and a durable consumer from which workers pull.

use std::io;

use deltaq::bench::{Done, Keys, Objects, Wire, Worker};
use deltaq_runtime::clock::Clock;

use super::{OBJECT_BYTES, line, number, refused};

/// Name of the stream, and of its only subject.
const STREAM: &str = "jobs";
const CONSUMER: &str = "workers";
/// `ack_wait` is the length of deltaq's leases. `max_ack_pending` is above the default of 1,000, so that it never limits the load.
const CONSUMER_CONFIG: &str = concat!(
    r#"{"stream_name":"jobs","config":{"durable_name":"workers","deliver_policy":"all","#,
    r#""ack_policy":"explicit","ack_wait":30000000000,"max_ack_pending":100000,"replay_policy":"instant"}}"#
);

/// A connection that publishes, takes and acknowledges messages.
pub(crate) struct Nats {
    link: Link,
    batch: usize,
    keys: Keys,
    /// One PUB for each object of a batch, sent in one write.
    publishes: Objects,
    /// The request for the next messages.
    next: Vec<u8>,
    acks: Vec<u8>,
}

impl Nats {
    pub(crate) async fn open(address: &str, number: usize, batch: usize, keys: Keys) -> io::Result<Self> {
        let inbox = format!("_INBOX.{number}");
        let link = Link::open(address, &inbox).await?;
        let publish = format!("PUB {STREAM} {inbox} {OBJECT_BYTES}\r\n");
        let between = format!("\r\n{publish}");
        let publishes = Objects::new(publish.as_bytes(), batch, OBJECT_BYTES, between.as_bytes(), b"\r\n");
        let subject = format!("$JS.API.CONSUMER.MSG.NEXT.{STREAM}.{CONSUMER}");
        let next = request(&subject, &inbox, &format!("{{\"batch\":{batch},\"expires\":30000000000}}"));
        Ok(Self { link, batch, keys, publishes, next, acks: Vec::new() })
    }

    /// Creates the stream and the consumer in an empty server.
    pub(crate) async fn prepare(address: &str) -> io::Result<()> {
        let inbox = "_INBOX.prepare";
        let mut link = Link::open(address, inbox).await?;
        let stream = format!(
            "{{\"name\":\"{STREAM}\",\"subjects\":[\"{STREAM}\"],\"retention\":\"workqueue\",\
             \"storage\":\"memory\",\"num_replicas\":1}}"
        );
        let stream = request(&format!("$JS.API.STREAM.CREATE.{STREAM}"), inbox, &stream);
        let subject = format!("$JS.API.CONSUMER.DURABLE.CREATE.{STREAM}.{CONSUMER}");
        for request in [stream, request(&subject, inbox, CONSUMER_CONFIG)] {
            link.send(&request).await?;
            succeeded(link.messages(1).await?)?;
        }
        Ok(())
    }
}

impl Worker for Nats {
    async fn work(&mut self, clock: &Clock) -> io::Result<Done> {
        let begun_us = clock.monotonic_us();
        self.link.send(self.publishes.from(self.keys.take(self.batch))).await?;
        succeeded(self.link.messages(self.batch).await?)?;
        self.link.send(&self.next).await?;
        let inbox = self.link.inbox.clone();
        let taken = self.link.messages(self.batch).await?;
        self.acks.clear();
        for message in messages(taken) {
            let reply = message.reply.ok_or_else(|| refused(message.payload))?;
            // The server confirms an ack that has a reply subject.
            for part in [b"PUB ", reply, b" ", inbox.as_bytes(), b" 4\r\n+ACK\r\n"] {
                self.acks.extend_from_slice(part);
            }
        }
        self.link.send(&self.acks).await?;
        self.link.messages(self.batch).await?;
        Ok(Done { requests: 3, objects: self.batch as u64, begun_us, ended_us: clock.monotonic_us() })
    }
}

/// A connection with one subscription that receives all replies.
struct Link {
    wire: Wire,
    inbox: String,
    /// PINGs of the server that must be answered before the next request.
    pings: usize,
}

impl Link {
    async fn open(address: &str, inbox: &str) -> io::Result<Self> {
        let mut wire = Wire::open(address).await?;
        let hello = format!(
            "CONNECT {{\"verbose\":false,\"pedantic\":false,\"headers\":true,\"no_responders\":true}}\r\n\
             SUB {inbox} 1\r\nPING\r\n"
        );
        wire.send(hello.as_bytes()).await?;
        while wire.receive(frame).await? != b"PONG\r\n" {}
        Ok(Self { wire, inbox: inbox.to_owned(), pings: 0 })
    }

    /// The next `count` messages, and other frames between them.
    async fn messages(&mut self, count: usize) -> io::Result<&[u8]> {
        let (mut left, mut known, mut pings) = (count, 0, 0);
        let receiving = self.wire.receive(|received| {
            while left > 0 {
                let rest = received.get(known..).unwrap_or_default();
                let Some(length) = frame(rest)? else { return Ok(None) };
                match rest.first() {
                    Some(b'M') => left -= 1,
                    // A status: there is no responder, or no message arrived in time.
                    Some(b'H') => return Err(refused(rest.get(..length).unwrap_or_default())),
                    _ => pings += usize::from(rest.starts_with(b"PING")),
                }
                known += length;
            }
            Ok(Some(known))
        });
        let frames = receiving.await?;
        self.pings += pings;
        Ok(frames)
    }

    async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        for _ in 0..std::mem::take(&mut self.pings) {
            self.wire.send(b"PONG\r\n").await?;
        }
        self.wire.send(bytes).await
    }
}

/// A message of the server to a subscription.
struct Message<'a> {
    reply: Option<&'a [u8]>,
    payload: &'a [u8],
}

/// Renders a request whose reply goes to `inbox`.
fn request(subject: &str, inbox: &str, body: &str) -> Vec<u8> {
    format!("PUB {subject} {inbox} {}\r\n{body}\r\n", body.len()).into_bytes()
}

/// The length of the first frame, once it is complete: a line, followed by a payload if the frame is a message.
fn frame(received: &[u8]) -> io::Result<Option<usize>> {
    let Some((line, mut length)) = line(received) else { return Ok(None) };
    if line.starts_with(b"-ERR") {
        return Err(refused(line));
    }
    if line.starts_with(b"MSG ") || line.starts_with(b"HMSG ") {
        let bytes = line.rsplit(|byte| *byte == b' ').next().and_then(number);
        length += bytes.ok_or_else(|| refused(line))? + b"\r\n".len();
    }
    Ok((received.len() >= length).then_some(length))
}

/// The messages among complete frames: `MSG subject sid [reply] bytes`.
fn messages(mut frames: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        loop {
            let length = frame(frames).ok().flatten()?;
            let (whole, rest) = frames.split_at_checked(length)?;
            frames = rest;
            let (line, start) = line(whole)?;
            if let Some(words) = line.strip_prefix(b"MSG ") {
                let words: Vec<&[u8]> = words.split(|byte| *byte == b' ').collect();
                let reply = if words.len() == 4 { words.get(2).copied() } else { None };
                let payload = whole.get(start..)?.strip_suffix(b"\r\n")?;
                return Some(Message { reply, payload });
            }
        }
    })
}

/// Fails if one of the replies, which are JSON, has a member `error`.
fn succeeded(replies: &[u8]) -> io::Result<()> {
    match messages(replies).find(|reply| memchr::memmem::find(reply.payload, b"\"error\":").is_some()) {
        Some(failed) => Err(refused(failed.payload)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAMES: &[u8] = b"PING\r\nMSG jobs 1 $JS.ACK.jobs.1 3\r\nabc\r\n+OK\r\nMSG _INBOX.1 1 0\r\n\r\n";

    #[test]
    fn frames_have_the_declared_length() {
        assert_eq!(frame(b"PING\r\nMSG").unwrap(), Some(6));
        assert_eq!(frame(b"MSG a 1 3\r\nab").unwrap(), None);
        assert_eq!(frame(b"MSG a 1 3\r\nabc\r\nMSG").unwrap(), Some(16));
        assert_eq!(frame(b"HMSG a 1 12 12\r\nNATS/1.0\r\n\r\n\r\n").unwrap(), Some(30));
        assert!(frame(b"MSG a 1 x\r\n").is_err());
        assert!(frame(b"-ERR 'Unknown Protocol Operation'\r\n").is_err());
    }

    #[test]
    fn messages_are_distinguished_from_other_frames() {
        let found: Vec<_> = messages(FRAMES).map(|message| (message.reply, message.payload)).collect();
        assert_eq!(found, [(Some(&b"$JS.ACK.jobs.1"[..]), &b"abc"[..]), (None, b"")]);
    }

    #[test]
    fn replies_with_an_error_fail() {
        assert!(succeeded(b"MSG i 1 12\r\n{\"seq\":1234}\r\n").is_ok());
        assert!(succeeded(b"MSG i 1 22\r\n{\"error\":{\"code\":503}}\r\n").is_err());
    }
}
