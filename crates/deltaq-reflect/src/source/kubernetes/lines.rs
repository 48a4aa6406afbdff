//! The lines of a watch. A line that is cut off is dropped: the watch goes on behind the last complete one.

use std::time::Duration;

use reqwest::{Response, Url};
use tokio::time::timeout;

use super::super::{Error, http};

/// The lines of a response that goes on.
#[derive(Debug)]
pub(super) struct Lines {
    url: Url,
    response: Response,
    /// The bytes behind the last complete line.
    buffer: Vec<u8>,
    /// The number of bytes at the start of the buffer that have no line break.
    searched: usize,
    silence: Duration,
    max_bytes: u64,
}

impl Lines {
    /// `silence` is the longest time without a byte, `max_bytes` the longest line.
    pub(super) const fn new(url: Url, response: Response, silence: Duration, max_bytes: u64) -> Self {
        Self { url, response, buffer: Vec::new(), searched: 0, silence, max_bytes }
    }

    /// The next line; `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<u8>>, Error> {
        loop {
            let rest = self.buffer.get(self.searched..).unwrap_or_default();
            if let Some(at) = memchr::memchr(b'\n', rest) {
                let line = self.buffer.drain(..=self.searched + at).collect::<Vec<_>>();
                self.searched = 0;
                if line.iter().all(u8::is_ascii_whitespace) {
                    continue;
                }
                return Ok(Some(line));
            }
            self.searched = self.buffer.len();
            let of = http::shown(&self.url);
            let piece = timeout(self.silence, self.response.chunk()).await;
            let piece = piece.map_err(|_| Error::new(format!("the watch of {of} is silent for too long")))?;
            let Some(piece) = piece.map_err(|error| http::failed(&self.url, error))? else { return Ok(None) };
            if (self.buffer.len() + piece.len()) as u64 > self.max_bytes {
                return Err(Error::new(format!(
                    "an event of {of} has more than {} bytes (max_bytes)",
                    self.max_bytes
                )));
            }
            self.buffer.extend_from_slice(&piece);
        }
    }
}
