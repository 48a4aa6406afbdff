//! Drivers for the other queues. Each connection adds, takes and acknowledges objects in the server's own protocol.
//!
//! All drivers use [`deltaq::bench::Wire`] and send requests that were rendered in advance, as `deltaq bench` does. So the load
//! generator uses about the same CPU time for every server.

pub(crate) mod beanstalkd;
pub(crate) mod nats;
pub(crate) mod postgres;
pub(crate) mod redis;

use std::io;

/// Length of each object.
pub(crate) const OBJECT_BYTES: usize = 256;

/// When a worker acknowledges the objects that it has taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ack {
    /// In a separate request.
    AtOnce,
    /// In one write with the request for the next objects, as a pop of deltaq does.
    WithNext,
}

/// An error for an unexpected reply.
fn refused(reply: &[u8]) -> io::Error {
    io::Error::other(format!("unexpected reply: {}", String::from_utf8_lossy(reply).trim_end()))
}

/// Parses a decimal number.
fn number(text: &[u8]) -> Option<usize> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// The first line without its line break, and the offset of the next line.
fn line(received: &[u8]) -> Option<(&[u8], usize)> {
    let end = memchr::memchr(b'\n', received)?;
    let line = received.get(..end)?;
    Some((line.strip_suffix(b"\r").unwrap_or(line), end + 1))
}

/// The length of `count` consecutive replies, once all of them are complete. `one` returns the length of the first reply.
///
/// The closure remembers the complete replies, so each is scanned only once.
fn several(
    count: usize,
    one: impl Fn(&[u8]) -> io::Result<Option<usize>>,
) -> impl FnMut(&[u8]) -> io::Result<Option<usize>> {
    let (mut left, mut known) = (count, 0);
    move |received| {
        while left > 0 {
            match one(received.get(known..).unwrap_or_default())? {
                Some(length) => known += length,
                None => return Ok(None),
            }
            left -= 1;
        }
        Ok(Some(known))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_with_lf_or_crlf() {
        assert_eq!(line(b"OK\r\nrest"), Some((&b"OK"[..], 4)));
        assert_eq!(line(b"\nrest"), Some((&b""[..], 1)));
        assert_eq!(line(b"half"), None);
        assert_eq!((number(b"17"), number(b"1x"), number(b"")), (Some(17), None, None));
    }

    #[test]
    fn several_replies_are_complete_together() {
        let mut two = several(2, |received| Ok(line(received).map(|(_, end)| end)));
        assert_eq!(two(b"a\n").unwrap(), None);
        assert_eq!(two(b"a\nbc").unwrap(), None);
        assert_eq!(two(b"a\nbc\nd").unwrap(), Some(5));
    }
}
