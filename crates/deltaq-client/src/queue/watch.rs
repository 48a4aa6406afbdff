//! Watches: the changes of a view as a stream of rows.
//!
//! A watch is read as server-sent events, because the id of an event contains the life of its version. A position in
//! a deleted queue is therefore refused even if a new queue of the same name has reached the same version.

use std::time::Duration;

use deltaq_types::WatchRow;
use deltaq_types::duration::format;
use futures_util::stream::{Stream, try_unfold};
use http::Method;
use tokio::time::{Instant, sleep, timeout};

use super::Queue;
use crate::client::Reply;
use crate::error::Error;
use crate::log::row;
use crate::retry::{Backoff, RetryOptions};

/// The interval of bookmarks unless the watch sets one.
const BOOKMARK: Duration = Duration::from_secs(15);

/// A view of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum View {
    /// The newest objects.
    #[default]
    Latest,
    /// The objects that workers have acknowledged.
    Known,
}

/// A watch that has not begun. It begins with all keys, unless [`Watch::after`] sets a position.
#[derive(Clone, Debug)]
#[must_use = "a watch begins when it is connected or streamed"]
pub struct Watch {
    queue: Queue,
    view: View,
    prefix: Option<String>,
    shard: Option<String>,
    bookmark: Duration,
    position: Option<String>,
}

/// A running watch: one connection.
#[derive(Debug)]
pub struct Rows {
    reply: Reply,
    address: String,
    /// The bytes of incomplete events.
    buffer: Vec<u8>,
    /// The number of bytes at the start of the buffer that have been read.
    read: usize,
    position: Option<String>,
    silence: Duration,
}

impl Queue {
    /// Watches the view `latest`, or the view that [`Watch::view`] sets.
    pub fn watch(&self) -> Watch {
        Watch {
            queue: self.clone(),
            view: View::Latest,
            prefix: None,
            shard: None,
            bookmark: BOOKMARK,
            position: None,
        }
    }
}

impl Watch {
    /// The view.
    pub const fn view(mut self, view: View) -> Self {
        self.view = view;
        self
    }

    /// Only keys that begin with this text.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = Some(prefix.into());
        self
    }

    /// Only one part of all keys, such as `0/4`: the keys whose CRC-32C modulo 4 is 0.
    pub fn shard(mut self, shard: impl Into<String>) -> Self {
        self.shard = Some(shard.into());
        self
    }

    /// Begins with the changes after a position: the [position](Rows::position) of another watch, a version of the
    /// queue, or `now`.
    pub fn after(mut self, position: impl Into<String>) -> Self {
        self.position = Some(position.into());
        self
    }

    pub(crate) fn go_on_after(&mut self, position: &str) {
        position.clone_into(self.position.get_or_insert_default());
    }

    /// The interval of bookmarks while nothing changes, from 1s to 1m; 15s by default. A connection that is silent
    /// for two and a half intervals is considered lost.
    pub const fn bookmark(mut self, interval: Duration) -> Self {
        self.bookmark = interval;
        self
    }

    /// The name of the watches of the queue in the log.
    fn row(&self) -> String {
        row(&self.queue.call(Method::GET, ["watch"]))
    }

    /// Logs that a connection has failed and is repeated.
    pub(crate) fn failed(&self, error: &Error, limit: Option<&RetryOptions>) {
        self.queue.client().rows().failed(&self.row(), error, limit);
    }

    /// Connects once.
    ///
    /// # Errors
    /// The call failed. After the error `expired`, the watch must begin with all keys again.
    pub async fn connect(&self) -> Result<Rows, Error> {
        let view = match self.view {
            View::Latest => "latest",
            View::Known => "known",
        };
        let call = self.queue.call(Method::GET, ["watch"]).query("view", Some(view));
        let call = call.query("prefix", self.prefix.as_ref()).query("shard", self.shard.as_ref());
        let call = call.query("bookmark", Some(format(self.bookmark)));
        let call = call.query("resource_version", self.position.as_ref()).events();
        let silence = self.bookmark * 5 / 2;
        let (client, address) = (self.queue.client(), self.queue.client().address());
        let Ok(reply) = timeout(silence, client.send(call)).await else {
            client.leave(self.queue.name());
            return Err(Error::Silence { address, silence });
        };
        let position = self.position.clone();
        let reply = reply?;
        self.queue.client().rows().answered(&self.row());
        Ok(Rows { reply, address, buffer: Vec::new(), read: 0, position, silence })
    }

    /// All rows, over as many connections as necessary: when a connection ends, the next one continues after the last
    /// row. After retryable errors, and after connections that end without a row, the stream connects again as the
    /// options of the client say; the attempts are counted from the last row. The stream ends with its first other
    /// error. After the error `expired`, the watch must begin with all keys again.
    pub fn stream(self) -> impl Stream<Item = Result<WatchRow, Error>> + Send {
        let retry = self.queue.client().retry();
        let watching = Watching {
            watch: self,
            rows: None,
            has_had_rows: false,
            has_progress: false,
            backoff: retry.into(),
            last_row: Instant::now(),
        };
        try_unfold(watching, move |mut watching| async move {
            loop {
                let error = match watching.next().await {
                    Ok(Some(row)) => return Ok(Some((row, watching))),
                    Ok(None) if watching.has_progress => continue,
                    Ok(None) if watching.has_had_rows => {
                        sleep(watching.backoff.pause()).await;
                        continue;
                    }
                    Ok(None) => watching.silence(),
                    Err(error) => error,
                };
                let pause = watching.backoff.after_failure(&error);
                let may_repeat = retry.allow(watching.backoff.failures(), watching.last_row, pause);
                if !may_repeat || !error.is_retryable() {
                    return Err(error);
                }
                watching.watch.failed(&error, Some(&retry));
                sleep(pause).await;
            }
        })
    }
}

/// A watch over several connections.
struct Watching {
    watch: Watch,
    rows: Option<Rows>,
    /// Whether the last connection has had rows. A connection without rows is a failure, because the next one might
    /// also end at once.
    has_had_rows: bool,
    /// Whether these rows have brought something new. If not, the next connection waits, because it might also bring
    /// nothing and end at once.
    has_progress: bool,
    backoff: Backoff,
    last_row: Instant,
}

impl Watching {
    /// The next row; `None` at the end of a connection.
    async fn next(&mut self) -> Result<Option<WatchRow>, Error> {
        let mut rows = if let Some(rows) = self.rows.take() {
            rows
        } else {
            (self.has_had_rows, self.has_progress) = (false, false);
            self.watch.connect().await?
        };
        let Some(row) = rows.next().await? else { return Ok(None) };
        self.has_had_rows = true;
        self.backoff.reset();
        self.last_row = Instant::now();
        self.has_progress |= self.watch.position != rows.position;
        self.watch.position.clone_from(&rows.position);
        self.rows = Some(rows);
        Ok(Some(row))
    }

    fn silence(&self) -> Error {
        let address = self.watch.queue.client().address();
        Error::Silence { address, silence: self.last_row.elapsed() }
    }
}

impl Rows {
    /// The position after the last row, for [`Watch::after`].
    #[must_use]
    pub fn position(&self) -> Option<&str> {
        self.position.as_deref()
    }

    /// The next row; `None` at the end of the connection. Another watch can continue from the
    /// [position](Self::position). Dropping the future loses no row.
    ///
    /// # Errors
    /// The connection broke or was silent for too long, or the server ended the watch with a problem.
    pub async fn next(&mut self) -> Result<Option<WatchRow>, Error> {
        loop {
            if let Some(event) = self.next_event() {
                if let Some(row) = self.row(&event)? {
                    return Ok(Some(row));
                }
                continue;
            }
            self.buffer.drain(..std::mem::take(&mut self.read));
            let silence = self.silence;
            let Ok(piece) = timeout(silence, self.reply.piece()).await else {
                self.reply.leave();
                return Err(Error::Silence { address: self.address.clone(), silence });
            };
            match piece? {
                Some(piece) => self.buffer.extend_from_slice(&piece),
                None => return Ok(None),
            }
        }
    }

    /// The next complete event: its lines up to an empty line.
    fn next_event(&mut self) -> Option<String> {
        let rest = self.buffer.get(self.read..)?;
        let end = end_of_event(rest)?;
        let event = String::from_utf8_lossy(rest.get(..end)?).into_owned();
        self.read += end + 2;
        Some(event)
    }

    fn row(&mut self, event: &str) -> Result<Option<WatchRow>, Error> {
        let mut row: Option<WatchRow> = None;
        let mut id = None;
        for line in event.lines() {
            match line.split_once(": ") {
                Some(("id", text)) => id = Some(text.to_owned()),
                Some(("data", text)) => {
                    row = Some(serde_json::from_str(text).map_err(|source| Error::Reply { source })?);
                }
                _ => {}
            }
        }
        // After the row `Expired`, the server would continue with all keys. Instead, the caller begins a new watch,
        // as after any other error `expired`.
        if let Some(problem) = row.as_mut().and_then(|row| row.problem.take()) {
            return Err(Error::Problem(Box::new(problem)));
        }
        self.position = id.or_else(|| self.position.take());
        Ok(row)
    }
}

/// The end of the first event: the line break before an empty line.
fn end_of_event(text: &[u8]) -> Option<usize> {
    text.windows(2).position(|pair| pair == b"\n\n")
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::net::TcpListener;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::stream::StreamExt as _;

    use super::*;
    use crate::client::{Client, ClientOptions};

    #[test]
    fn streams_may_be_shared_between_threads() {
        const fn is_sync(_: &impl Sync) {}
        is_sync(&Client::at("http://localhost:7070").unwrap().queue("q").watch().stream());
    }

    #[tokio::test]
    async fn connections_that_end_without_a_row_are_repeated_with_pauses_and_then_an_error() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = listener.local_addr().unwrap().to_string();
        let requests = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&requests);
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                let mut connection = connection.unwrap();
                let lines = BufReader::new(connection.try_clone().unwrap()).lines();
                lines.map_while(Result::ok).take_while(|line| !line.is_empty()).for_each(drop);
                count.fetch_add(1, Ordering::Relaxed);
                let reply = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
                connection.write_all(reply.as_bytes()).unwrap();
            }
        });
        let second = Duration::from_secs(1);
        let retry = RetryOptions { first: second, max: second, attempts: 4, total: second * 60 };
        let client = Client::new(ClientOptions { retry, ..ClientOptions::new(url) }).unwrap();
        let mut rows = Box::pin(client.queue("q").watch().stream());
        assert!(matches!(rows.next().await, Some(Err(Error::Silence { .. }))));
        assert_eq!(requests.load(Ordering::Relaxed), 4);
    }
}
