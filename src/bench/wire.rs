//! A connection that is written to whole and read from in whole answers, whatever the protocol.

use std::io;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// First size of the buffer of what comes; it grows with the answers.
const BUFFER_BYTES: usize = 16 << 10;

/// A connection.
#[derive(Debug)]
pub struct Wire {
    stream: TcpStream,
    buffer: Vec<u8>,
    /// How much of the buffer has come.
    filled: usize,
    /// How much of that is the answer that was told last.
    told: usize,
}

impl Wire {
    /// Connects to a host and port.
    ///
    /// # Errors
    /// The system's.
    pub async fn open(authority: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(authority).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: vec![0; BUFFER_BYTES], filled: 0, told: 0 })
    }

    /// Sends all of it.
    ///
    /// # Errors
    /// The system's.
    pub async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await
    }

    /// The next answer. `length` is told what has come so far and says how long the answer is, once it is whole.
    ///
    /// # Errors
    /// The system's, those of `length`, and if the other end closes.
    pub async fn receive(
        &mut self,
        mut length: impl FnMut(&[u8]) -> io::Result<Option<usize>>,
    ) -> io::Result<&[u8]> {
        self.buffer.copy_within(self.told..self.filled, 0);
        self.filled -= self.told;
        self.told = 0;
        loop {
            let come = self.buffer.get(..self.filled).unwrap_or_default();
            if let Some(length) = length(come)?.filter(|length| *length > 0 && *length <= self.filled) {
                self.told = length;
                return Ok(self.buffer.get(..length).unwrap_or_default());
            }
            if self.filled == self.buffer.len() {
                self.buffer.resize(2 * self.filled, 0);
            }
            let room = self.buffer.get_mut(self.filled..).unwrap_or_default();
            match self.stream.read(room).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => self.filled += read,
            }
        }
    }
}
