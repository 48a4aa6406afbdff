//! Messages on stderr. A command that runs unattended must not stop because nobody reads them.

use std::io::{self, Write};

use parking_lot::Mutex;

use super::failure::Failure;
use crate::telemetry::buffer::{Buffer, Writer};

/// Where messages go instead of directly to stderr.
static BUFFER: Mutex<Option<Buffer>> = Mutex::new(None);

/// While this exists, messages that nobody reads are dropped once 16 MiB of them wait. Dropping it writes the rest.
#[derive(Debug)]
pub(super) struct NeverBlocks(Option<Writer>);

impl NeverBlocks {
    pub(super) fn start() -> Result<Self, Failure> {
        let report = |pieces| say(&format!("nobody has read stderr, so {pieces} messages were dropped"));
        let (buffer, writer) = Buffer::start(io::stderr(), report).map_err(|error| {
            Failure::Other(format!("can't start the thread that writes to stderr: {error}"))
        })?;
        *BUFFER.lock() = Some(buffer);
        Ok(Self(Some(writer)))
    }
}

impl Drop for NeverBlocks {
    fn drop(&mut self) {
        drop(self.0.take());
        *BUFFER.lock() = None;
    }
}

/// Writes a line that begins with the name of the program.
pub(super) fn say(text: &str) {
    let _unread = Stderr.write_all(format!("deltaq: {text}\n").as_bytes());
}

/// Stderr, or what takes its place.
#[derive(Debug)]
pub(super) struct Stderr;

impl Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let buffer = BUFFER.lock().clone();
        match buffer {
            Some(mut buffer) => buffer.write(bytes),
            None => io::stderr().write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
