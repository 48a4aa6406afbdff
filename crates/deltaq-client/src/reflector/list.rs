//! A list on its way from the source to the server.

use std::io;
use std::pin::Pin;
use std::time::Duration;

use futures_util::stream::{Stream, StreamExt as _, unfold};
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use super::{Event, ReflectorError};
use crate::call::Body;

/// A piece is sent when it has this many bytes.
const PIECE_BYTES: usize = 64 << 10;
/// Maximum number of pieces between the source and the connection.
const PIECES: usize = 4;
/// Maximum time between two pieces. The server refuses bodies that pause for longer than `server.body_read_timeout`.
const PIECE_EVERY: Duration = Duration::from_secs(4);
/// Minimum size of a piece that is sent because of the time; line breaks fill it up. So a list from a slow source
/// arrives at a rate that the server accepts (`server.min_body_bytes_per_second`).
const SLOW_PIECE_BYTES: usize = 2 << 10;

/// Maximum size of a list that is kept until it is sent, so that it can be repeated after a lost reply.
const KEPT_BYTES: usize = 4 << 20;

/// An event of a list.
enum Next {
    Object(Box<RawValue>),
    End,
    /// The source began another list.
    Restart,
}

/// The beginning of a list, or the whole list.
pub(super) struct Begun {
    pub(super) lines: Vec<u8>,
    pub(super) objects: u64,
    pub(super) is_complete: bool,
}

/// The lines of a list, in pieces.
pub(super) struct Lines {
    sender: mpsc::Sender<io::Result<Vec<u8>>>,
    piece: Vec<u8>,
    send_at: Instant,
}

/// The two ends of a list: the writer of its lines, and the body of the request.
pub(super) fn channel() -> (Lines, Body) {
    let (sender, receiver) = mpsc::channel::<io::Result<Vec<u8>>>(PIECES);
    let pieces = unfold(receiver, |mut receiver| async move {
        let piece = receiver.recv().await?;
        Some((piece, receiver))
    });
    let lines =
        Lines { sender, piece: Vec::with_capacity(PIECE_BYTES), send_at: Instant::now() + PIECE_EVERY };
    (lines, Body::lines(pieces))
}

/// Reads a list from the source: all of it, or as much as is kept in memory.
pub(super) async fn begin<S>(mut events: Pin<&mut S>) -> Result<Begun, ReflectorError>
where
    S: Stream<Item = Result<Event, ReflectorError>>,
{
    let mut begun = Begun { lines: Vec::new(), objects: 0, is_complete: false };
    while begun.lines.len() < KEPT_BYTES {
        match next(events.as_mut()).await? {
            Next::Object(object) => {
                begun.objects += 1;
                push(&mut begun.lines, object.get());
            }
            Next::End => {
                push(&mut begun.lines, &end(begun.objects));
                begun.is_complete = true;
                break;
            }
            Next::Restart => begun = Begun { lines: Vec::new(), objects: 0, is_complete: false },
        }
    }
    Ok(begun)
}

/// Moves a list that has begun from the source into the body, and returns the number of objects; `None` if the source
/// began another list. The last line contains the number of objects and tells the server that the list is complete.
pub(super) async fn feed<S>(
    mut events: Pin<&mut S>,
    begun: Begun,
    mut lines: Lines,
) -> Result<Option<u64>, ReflectorError>
where
    S: Stream<Item = Result<Event, ReflectorError>>,
{
    let mut objects = begun.objects;
    lines.piece = begun.lines;
    lines.send().await;
    loop {
        let event = timeout_at(lines.send_at, next(events.as_mut())).await;
        match event {
            Ok(Ok(Next::Object(object))) => {
                objects += 1;
                lines.add(object.get()).await;
            }
            Ok(Ok(Next::End)) => {
                lines.add(&end(objects)).await;
                lines.send().await;
                return Ok(Some(objects));
            }
            Ok(Ok(Next::Restart)) => {
                lines.abort();
                return Ok(None);
            }
            Ok(Err(error)) => {
                lines.abort();
                return Err(error);
            }
            Err(_) => {
                lines.fill();
                lines.send().await;
            }
        }
    }
}

/// The next event of a list. Dropping the future loses no event.
async fn next<S>(mut events: Pin<&mut S>) -> Result<Next, ReflectorError>
where
    S: Stream<Item = Result<Event, ReflectorError>>,
{
    match events.next().await {
        Some(Ok(Event::InitApply(object))) => Ok(Next::Object(object)),
        Some(Ok(Event::InitDone)) => Ok(Next::End),
        Some(Ok(Event::Init)) => Ok(Next::Restart),
        Some(Ok(Event::Apply(_))) => Err(ReflectorError::OutOfOrder("Apply")),
        Some(Ok(Event::Delete(_) | Event::DeleteKey(_))) => Err(ReflectorError::OutOfOrder("Delete")),
        Some(Err(error)) => Err(error),
        None => Err(ReflectorError::IncompleteList),
    }
}

/// The line that ends a list.
fn end(objects: u64) -> String {
    format!("{{\"$end\":{objects}}}")
}

/// Adds a line. Inside an object, line breaks can only be between tokens, so they are replaced with spaces.
fn push(lines: &mut Vec<u8>, object: &str) {
    lines.extend(object.bytes().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { byte }));
    lines.push(b'\n');
}

impl Lines {
    async fn add(&mut self, object: &str) {
        push(&mut self.piece, object);
        if self.piece.len() >= PIECE_BYTES {
            self.send().await;
        } else if Instant::now() >= self.send_at {
            self.fill();
            self.send().await;
        }
    }

    fn fill(&mut self) {
        self.piece.resize(self.piece.len().max(SLOW_PIECE_BYTES), b'\n');
    }

    async fn send(&mut self) {
        let piece = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE_BYTES));
        self.send_at = Instant::now() + PIECE_EVERY;
        // The send fails if the request has already ended. The reply to the request says why.
        let _ended = self.sender.send(Ok(piece)).await;
    }

    /// Aborts the request.
    fn abort(self) {
        let _ended = self.sender.try_send(Err(io::Error::other("the list is not complete")));
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use futures_util::stream;

    use super::*;

    fn object(text: &str) -> Event {
        Event::InitApply(RawValue::from_string(text.to_owned()).unwrap())
    }

    fn begin_with(events: Vec<Event>) -> Result<Begun, ReflectorError> {
        let events = stream::iter(events.into_iter().map(Ok::<_, ReflectorError>)).chain(stream::pending());
        let mut events = Box::pin(events);
        begin(events.as_mut()).now_or_never().expect("the list ends")
    }

    #[test]
    fn a_list_is_lines_and_their_number() {
        let begun = begin_with(vec![
            object(r#"{"key":"old"}"#),
            Event::Init,
            object("{\"key\":\r\n \"a\"}"),
            object(r#"{"key":"b\n"}"#),
            Event::InitDone,
        ]);
        let begun = begun.expect("a list");
        let lines = String::from_utf8(begun.lines).unwrap();
        assert_eq!(lines, "{\"key\":   \"a\"}\n{\"key\":\"b\\n\"}\n{\"$end\":2}\n");
        assert!(begun.is_complete && begun.objects == 2);
    }

    #[test]
    fn a_change_in_a_list_is_refused() {
        let events = vec![object("{}"), Event::DeleteKey("a".to_owned()), Event::InitDone];
        assert!(matches!(begin_with(events), Err(ReflectorError::OutOfOrder("Delete"))));
    }

    #[test]
    fn a_long_list_is_not_kept() {
        let text = format!("{{\"text\":\"{}\"}}", "x".repeat(KEPT_BYTES / 2));
        let begun = begin_with((0..5).map(|_| object(&text)).collect()).expect("a list");
        assert!(!begun.is_complete && begun.objects == 2);
    }

    #[test]
    fn a_stream_that_ends_in_a_list_is_an_error() {
        let events = stream::iter([Ok(object("{}"))]);
        let begun = begin(Box::pin(events).as_mut()).now_or_never().expect("the stream ends");
        assert!(matches!(begun, Err(ReflectorError::IncompleteList)));
    }
}
