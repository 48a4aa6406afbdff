//! Splits a stream of bytes into lines, each with one JSON document.

use bytes::Bytes;
use deltaq_engine::limits::ENVELOPE_BYTES_MAX;

use super::body::{Account, Incoming, Start, text_of};
use crate::http::problem::{Code, Problem};

/// The lines of a body as they arrive. The maximum length of a line limits the memory.
pub(in crate::http) struct Lines {
    incoming: Incoming,
    /// The start of a line that has not ended.
    partial: Vec<u8>,
    /// The part of the last piece that has not been read.
    rest: Bytes,
    number: usize,
    /// The number of lines that were not blank.
    given: usize,
    object_bytes_max: usize,
    ended: bool,
}

impl Lines {
    pub(in crate::http) fn new(incoming: Incoming, object_bytes_max: usize) -> Self {
        let (partial, rest) = (Vec::new(), Bytes::new());
        Self { incoming, partial, rest, number: 0, given: 0, object_bytes_max, ended: false }
    }

    /// The number of the last line, from 1.
    pub(in crate::http) fn number(&self) -> usize {
        self.number
    }

    /// Maximum size of an object on a line, in bytes.
    pub(in crate::http) fn object_bytes_max(&self) -> usize {
        self.object_bytes_max
    }

    /// The account that counts the bytes of the lines.
    pub(in crate::http) fn account(&self) -> Account {
        self.incoming.account()
    }

    /// The next line that is not blank, without its end; `None` at the end of the stream.
    pub(in crate::http) async fn next(&mut self) -> Result<Option<String>, Problem> {
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
                let index = self.given;
                self.given += 1;
                let text = text_of(line, Start { line: self.number, column: 1 });
                return text.map(Some).map_err(|problem| problem.in_item(index, Some(self.number)));
            }
        }
    }

    fn grow(&mut self, piece: &[u8]) -> Result<(), Problem> {
        let (line, limit) = (self.number + 1, self.object_bytes_max);
        if self.partial.len() + piece.len() > limit.saturating_add(ENVELOPE_BYTES_MAX) {
            let detail = format!(
                "line {line} is too long: an object may have {limit} bytes, and the other fields {ENVELOPE_BYTES_MAX}"
            );
            return Err(Problem::new(Code::ObjectTooLarge, detail).with("limit", limit).with("line", line));
        }
        self.partial.extend_from_slice(piece);
        Ok(())
    }
}
