//! Splitting a stream of bytes into lines, one JSON document each.

use bytes::Bytes;

use super::body::{Incoming, Start, not_utf8};
use super::problem::{Code, Problem};

/// Lines as they come in. Memory is bounded by the longest line that is allowed.
pub(super) struct Lines {
    incoming: Incoming,
    /// What has come of a line that is not complete.
    partial: Vec<u8>,
    /// What of the last piece has not been looked at.
    rest: Bytes,
    number: usize,
    object_bytes_max: usize,
    ended: bool,
}

/// How much longer than an object the line around it may be, in bytes: what stands beside it in a document, or blanks.
const ENVELOPE_BYTES_MAX: usize = 16 << 10;

impl Lines {
    pub(super) fn new(incoming: Incoming, object_bytes_max: usize) -> Self {
        let (partial, rest) = (Vec::new(), Bytes::new());
        Self { incoming, partial, rest, number: 0, object_bytes_max, ended: false }
    }

    /// The number of the last line, from 1.
    pub(super) fn number(&self) -> usize {
        self.number
    }

    /// Longest object of a line, in bytes.
    pub(super) fn object_bytes_max(&self) -> usize {
        self.object_bytes_max
    }

    /// The next line that is not blank, without its end; `None` at the end of the stream.
    pub(super) async fn next(&mut self) -> Result<Option<String>, Problem> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let piece = self.rest.split_to(end + 1);
                let piece = piece.get(..end).unwrap_or_default();
                self.grow(piece)?;
                self.number += 1;
            } else if self.ended {
                if self.partial.is_empty() {
                    return Ok(None);
                }
                self.number += 1;
            } else {
                let rest = std::mem::take(&mut self.rest);
                self.grow(&rest)?;
                match self.incoming.next().await? {
                    Some(piece) => self.rest = piece,
                    None => self.ended = true,
                }
                continue;
            }
            let line = std::mem::take(&mut self.partial);
            if !line.iter().all(u8::is_ascii_whitespace) {
                return self.text(line).map(Some);
            }
        }
    }

    fn grow(&mut self, piece: &[u8]) -> Result<(), Problem> {
        let (line, limit) = (self.number + 1, self.object_bytes_max);
        if self.partial.len() + piece.len() > limit.saturating_add(ENVELOPE_BYTES_MAX) {
            let detail = format!(
                "line {line} is longer than an object of {limit} bytes, the most, with {ENVELOPE_BYTES_MAX} beside it"
            );
            return Err(Problem::new(Code::ObjectTooLarge, detail).with("limit", limit).with("line", line));
        }
        self.partial.extend_from_slice(piece);
        Ok(())
    }

    fn text(&self, line: Vec<u8>) -> Result<String, Problem> {
        String::from_utf8(line).map_err(|error| not_utf8(&error, Start { line: self.number, column: 1 }))
    }
}
