//! Splitting a stream of bytes into lines, one JSON document each.

use bytes::Bytes;

use super::body::{Incoming, not_utf8};
use super::problem::{Code, Problem};

/// Lines as they come in. Memory is bounded by the longest line that is allowed.
pub(super) struct Lines {
    incoming: Incoming,
    /// What has come of a line that is not complete.
    partial: Vec<u8>,
    /// What of the last piece has not been looked at.
    rest: Bytes,
    number: usize,
    line_bytes_max: usize,
    ended: bool,
}

impl Lines {
    pub(super) fn new(incoming: Incoming, line_bytes_max: usize) -> Self {
        let (partial, rest) = (Vec::new(), Bytes::new());
        Self { incoming, partial, rest, number: 0, line_bytes_max, ended: false }
    }

    /// The number of the last line, from 1.
    pub(super) fn number(&self) -> usize {
        self.number
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
        if self.partial.len() + piece.len() > self.line_bytes_max {
            let limit = self.line_bytes_max;
            let line = self.number + 1;
            let detail = format!("line {line} has more than {limit} bytes");
            return Err(Problem::new(Code::ObjectTooLarge, detail).with("limit", limit).with("line", line));
        }
        self.partial.extend_from_slice(piece);
        Ok(())
    }

    fn text(&self, line: Vec<u8>) -> Result<String, Problem> {
        String::from_utf8(line).map_err(|error| {
            not_utf8(error.as_bytes(), error.utf8_error().valid_up_to()).with("line", self.number)
        })
    }
}
