//! Objects from an argument, a file or stdin.
//!
//! A thread reads and splits the input, so that only a few pieces of a slow or endless input are in memory.

mod objects;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, IsTerminal as _, Read};
use std::path::Path;

use tokio::sync::mpsc;

use self::objects::Objects;
use super::failure::Failure;

/// Maximum number of objects in a piece.
const PIECE_OBJECTS_MAX: u64 = 1_000;
/// A piece with this many bytes is complete.
const PIECE_BYTES: usize = 64 << 10;
/// Maximum number of pieces that wait to be sent.
const PIECES_WAITING: usize = 8;
/// Capacity of the buffer for files and pipes.
const BUFFER_BYTES: usize = 64 << 10;

/// The source of the objects.
pub(super) struct Input {
    reader: Box<dyn BufRead + Send>,
    name: String,
    /// The length in bytes, if it is known.
    pub(super) length: Option<u64>,
}

/// Some objects as NDJSON.
#[derive(Debug, Default)]
pub(super) struct Piece {
    /// The objects, one per line.
    pub(super) lines: Vec<u8>,
    /// The number of objects.
    pub(super) objects: u64,
    /// Whether the objects are elements of an array.
    pub(super) is_list: bool,
    /// Number of input bytes that were read up to the end of the piece.
    pub(super) read: u64,
}

/// The pieces of an input.
pub(super) type Pieces = mpsc::Receiver<Result<Piece, Failure>>;

impl Input {
    /// Opens an input: JSON text, `@FILE` or `FILE`, or `-` for stdin. Without an argument stdin is read, unless it is a terminal.
    pub(super) fn open(argument: Option<&str>) -> Result<Self, Failure> {
        match argument {
            None if io::stdin().is_terminal() => {
                Err(Failure::Usage("no objects: give JSON text, @FILE, or pipe objects to stdin".to_owned()))
            }
            None | Some("-") => Ok(Self::stdin()),
            Some(text) if text.trim_start().starts_with(['{', '[']) => Ok(Self {
                length: Some(text.len() as u64),
                reader: Box::new(Cursor::new(text.to_owned().into_bytes())),
                name: "the argument".to_owned(),
            }),
            Some(path) => Self::file(path.strip_prefix('@').unwrap_or(path)),
        }
    }

    fn stdin() -> Self {
        let reader = BufReader::with_capacity(BUFFER_BYTES, io::stdin());
        Self { reader: Box::new(reader), name: "stdin".to_owned(), length: None }
    }

    fn file(path: &str) -> Result<Self, Failure> {
        let opened = File::open(Path::new(path)).and_then(|file| {
            let metadata = file.metadata()?;
            Ok((file, metadata))
        });
        let (file, metadata) = match opened {
            Ok(opened) => opened,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let why = "an object begins with {, a list with [; a key is given with --key";
                return Err(Failure::Usage(format!("there is no file {path:?} ({why})")));
            }
            Err(source) => return Err(Failure::Read { name: path.to_owned(), source }),
        };
        let length = metadata.is_file().then_some(metadata.len());
        let reader = Box::new(BufReader::with_capacity(BUFFER_BYTES, file));
        Ok(Self { reader, name: path.to_owned(), length })
    }

    /// Whether the input may pause: a pipe or a terminal.
    pub(super) fn may_pause(&self) -> bool {
        self.length.is_none()
    }

    /// The whole input as text.
    pub(super) fn text(mut self) -> Result<String, Failure> {
        let mut text = String::new();
        let read = self.reader.read_to_string(&mut text);
        read.map_err(|source| Failure::Read { name: self.name, source })?;
        Ok(text)
    }

    /// Starts to read. The channel ends after an error or at the end of the input.
    pub(super) fn pieces(self) -> Pieces {
        let (to, pieces) = mpsc::channel(PIECES_WAITING);
        let name = self.name.clone();
        let thread = std::thread::Builder::new().name("input".to_owned());
        // The thread ends with the input, with the receiver, or with the process.
        let started = thread.spawn({
            let to = to.clone();
            move || self.split(&to)
        });
        if let Err(source) = started {
            let _is_empty = to.try_send(Err(Failure::Read { name, source }));
        }
        pieces
    }

    fn split(self, to: &mpsc::Sender<Result<Piece, Failure>>) {
        let Self { reader, name, .. } = self;
        let mut objects = Objects::new(reader);
        loop {
            let (piece, ended) = fill(&mut objects, &name);
            if piece.objects > 0 && to.blocking_send(Ok(piece)).is_err() {
                return;
            }
            match ended {
                Ok(false) => {}
                Ok(true) if objects.is_blank() => {
                    let _ = to.blocking_send(Err(Failure::Usage(format!(
                        "{name} has no text; give JSON text, @FILE, or pipe objects to stdin"
                    ))));
                    return;
                }
                Ok(true) => return,
                Err(failure) => {
                    let _ = to.blocking_send(Err(failure));
                    return;
                }
            }
        }
    }
}

/// Reads the next piece, and returns whether the input has ended. A piece also ends where the reader might have to
/// wait for more input.
fn fill<R: BufRead>(objects: &mut Objects<R>, name: &str) -> (Piece, Result<bool, Failure>) {
    let mut piece = Piece::default();
    loop {
        match objects.next(&mut piece.lines) {
            Ok(true) => (piece.objects, piece.is_list) = (piece.objects + 1, objects.is_list()),
            Ok(false) => return (piece, Ok(true)),
            Err(error) => return (piece, Err(error.into_failure(name))),
        }
        piece.read = objects.read_bytes();
        if piece.objects >= PIECE_OBJECTS_MAX || piece.lines.len() >= PIECE_BYTES || objects.may_wait() {
            return (piece, Ok(false));
        }
    }
}
