//! A list on its way from the source to the server.

use std::io;
use std::pin::Pin;
use std::time::Duration;

use futures_util::stream::{Stream, StreamExt as _, unfold};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use super::{Event, ReflectorError};
use crate::call::Body;

/// Bytes after which a piece is sent.
const PIECE_BYTES: usize = 64 << 10;
/// Pieces between the source and the connection.
const PIECES: usize = 4;
/// Longest time between two pieces. The server refuses bodies that pause for longer than `server.body_read_timeout`.
const PIECE_EVERY: Duration = Duration::from_secs(4);
/// Fewest bytes of a piece that is sent because of the time: line breaks fill it. So a slow source has a rate that the server
/// accepts (`server.min_body_bytes_per_second`).
const SLOW_PIECE_BYTES: usize = 2 << 10;

/// The end of a list.
#[derive(Debug)]
pub(super) enum Fed {
    /// The whole list is on its way.
    Complete {
        /// The number of objects.
        objects: u64,
    },
    /// The source began another list.
    Restarted,
}

/// The lines of a list, in pieces.
pub(super) struct Lines {
    sender: mpsc::Sender<io::Result<Vec<u8>>>,
    piece: Vec<u8>,
    send_at: Instant,
}

/// The two ends of a list: where its lines go in, and the body of the request.
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

/// Moves a list from the source into the body. Its last line, the number of objects, tells the server that the list is complete.
pub(super) async fn feed<S>(mut events: Pin<&mut S>, mut lines: Lines) -> Result<Fed, ReflectorError>
where
    S: Stream<Item = Result<Event, ReflectorError>>,
{
    let mut objects = 0_u64;
    loop {
        let Ok(event) = timeout_at(lines.send_at, events.next()).await else {
            lines.fill();
            lines.send().await;
            continue;
        };
        let end = match event {
            Some(Ok(Event::InitApply(object))) => {
                objects += 1;
                lines.add(object.get()).await;
                continue;
            }
            Some(Ok(Event::InitDone)) => {
                lines.add(&format!("{{\"$end\":{objects}}}")).await;
                lines.send().await;
                return Ok(Fed::Complete { objects });
            }
            Some(Ok(Event::Init)) => Ok(Fed::Restarted),
            Some(Ok(Event::Apply(_))) => Err(ReflectorError::OutOfOrder("Apply")),
            Some(Ok(Event::Delete(_) | Event::DeleteKey(_))) => Err(ReflectorError::OutOfOrder("Delete")),
            Some(Err(error)) => Err(error),
            None => Err(ReflectorError::IncompleteList),
        };
        lines.abort();
        return end;
    }
}

impl Lines {
    /// Adds an object. Line breaks inside an object can only be between its tokens, so a space takes their place.
    async fn add(&mut self, object: &str) {
        self.piece.extend(object.bytes().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { byte }));
        self.piece.push(b'\n');
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
        // A request that has ended drops its body; the reply says why.
        let _ended = self.sender.send(Ok(piece)).await;
    }

    /// Breaks the request off.
    fn abort(self) {
        let _ended = self.sender.try_send(Err(io::Error::other("the list is not complete")));
    }
}
