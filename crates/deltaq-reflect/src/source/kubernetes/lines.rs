//! The lines of a watch. An incomplete line at the end is dropped, because the watch continues after the last
//! complete line.

use std::time::Duration;

use reqwest::{Response, Url};
use tokio::time::{Instant, timeout, timeout_at};

use super::super::{Error, http};

/// Maximum time to read the rest of a response that is not a watch.
const REST_MAX: Duration = Duration::from_secs(30);

/// The lines of a streamed response.
#[derive(Debug)]
pub(super) struct Lines {
    url: Url,
    response: Response,
    /// The bytes after the last complete line.
    buffer: Vec<u8>,
    /// The number of bytes at the start of the buffer that are known to contain no line break.
    searched: usize,
    max_bytes: u64,
}

/// The next part of a watch.
#[derive(Debug)]
pub(super) enum Next {
    Line(Vec<u8>),
    /// The server has ended the watch.
    End,
    /// The connection broke, or was silent for too long.
    Broken(Error),
}

impl Lines {
    /// Creates the lines of a response. `max_bytes` is the maximum length of a line.
    pub(super) const fn new(url: Url, response: Response, max_bytes: u64) -> Self {
        Self { url, response, buffer: Vec::new(), searched: 0, max_bytes }
    }

    /// The next line. `silence` is the maximum time without a byte.
    pub(super) async fn next(&mut self, silence: Duration) -> Result<Next, Error> {
        loop {
            let rest = self.buffer.get(self.searched..).unwrap_or_default();
            if let Some(at) = memchr::memchr(b'\n', rest) {
                let line = self.buffer.drain(..=self.searched + at).collect::<Vec<_>>();
                self.searched = 0;
                if line.iter().all(u8::is_ascii_whitespace) {
                    continue;
                }
                return Ok(Next::Line(line));
            }
            self.searched = self.buffer.len();
            let of = http::shown(&self.url);
            let piece = match timeout(silence, self.response.chunk()).await {
                Ok(Ok(Some(piece))) => piece,
                Ok(Ok(None)) => return Ok(Next::End),
                Ok(Err(error)) => return Ok(Next::Broken(http::failed(&self.url, error))),
                Err(_) => {
                    let seconds = silence.as_secs();
                    return Ok(Next::Broken(Error::new(format!(
                        "the watch of {of} was silent for {seconds} s"
                    ))));
                }
            };
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

impl Lines {
    /// A line and everything after it, in a response that may not be a watch. It is cut off if it is too long, broken
    /// or slow.
    pub(super) async fn rest(&mut self, mut line: Vec<u8>) -> Vec<u8> {
        line.append(&mut self.buffer);
        let end = Instant::now() + REST_MAX;
        while let Ok(Ok(Some(piece))) = timeout_at(end, self.response.chunk()).await
            && (line.len() + piece.len()) as u64 <= self.max_bytes
        {
            line.extend_from_slice(&piece);
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use reqwest::Body;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_watch_without_a_byte_has_lost_its_connection() {
        let pieces = futures_util::stream::iter([Ok::<_, Error>("{}\n{"), Ok("}\n")]);
        let open = futures_util::StreamExt::chain(pieces, futures_util::stream::pending());
        let response = Response::from(hyper::Response::new(Body::wrap_stream(open)));
        let url = Url::parse("http://a/b").unwrap();
        let mut lines = Lines::new(url, response, 100);
        for _ in 0..2 {
            assert!(
                matches!(lines.next(Duration::from_secs(9)).await, Ok(Next::Line(line)) if line == b"{}\n")
            );
        }
        let Ok(Next::Broken(error)) = lines.next(Duration::from_secs(9)).await else {
            panic!("it is silent")
        };
        assert_eq!(error.to_string(), "the watch of http://a/b was silent for 9 s");
    }
}
