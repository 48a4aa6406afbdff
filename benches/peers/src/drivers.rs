//! The other queues: a connection to each that adds what it takes and acknowledges, in the server's own protocol.
//!
//! All go over [`deltaq::bench::Wire`] and send texts that were rendered before, as `deltaq bench` does, so that what
//! the generator takes of the machine is about the same for all.

pub(crate) mod beanstalkd;
pub(crate) mod nats;
pub(crate) mod postgres;
pub(crate) mod redis;

use std::io;

/// Length of each object.
pub(crate) const OBJECT_BYTES: usize = 256;

/// When a worker acknowledges what it has taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ack {
    /// By a request of its own.
    AtOnce,
    /// In one write with the request that takes the next, as a pop of deltaq does.
    WithNext,
}

/// An answer that was not expected, as an error.
fn refused(answer: &[u8]) -> io::Error {
    io::Error::other(format!("unexpected answer: {}", String::from_utf8_lossy(answer).trim_end()))
}

/// A decimal number, if that is all of the text.
fn number(text: &[u8]) -> Option<usize> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// The first line without its end, and where the next one begins.
fn line(come: &[u8]) -> Option<(&[u8], usize)> {
    let end = memchr::memchr(b'\n', come)?;
    let line = come.get(..end)?;
    Some((line.strip_suffix(b"\r").unwrap_or(line), end + 1))
}

/// The length of `count` answers in a row, once they are whole; `one` tells the length of the first of them.
///
/// It remembers how far it has come, so that a long row is not read anew with each piece of it.
fn several(
    count: usize,
    one: impl Fn(&[u8]) -> io::Result<Option<usize>>,
) -> impl FnMut(&[u8]) -> io::Result<Option<usize>> {
    let (mut left, mut known) = (count, 0);
    move |come| {
        while left > 0 {
            match one(come.get(known..).unwrap_or_default())? {
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
    fn lines_end_in_either_way() {
        assert_eq!(line(b"OK\r\nrest"), Some((&b"OK"[..], 4)));
        assert_eq!(line(b"\nrest"), Some((&b""[..], 1)));
        assert_eq!(line(b"half"), None);
        assert_eq!((number(b"17"), number(b"1x"), number(b"")), (Some(17), None, None));
    }

    #[test]
    fn several_answers_are_whole_together() {
        let mut two = several(2, |come| Ok(line(come).map(|(_, end)| end)));
        assert_eq!(two(b"a\n").unwrap(), None);
        assert_eq!(two(b"a\nbc").unwrap(), None);
        assert_eq!(two(b"a\nbc\nd").unwrap(), Some(5));
    }
}
