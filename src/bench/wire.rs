//! A TCP connection that sends complete requests and receives complete responses of any protocol.

use std::io;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Initial size of the receive buffer, which grows with the responses.
const BUFFER_BYTES: usize = 16 << 10;

/// A connection.
#[derive(Debug)]
pub struct Wire {
    stream: TcpStream,
    buffer: Vec<u8>,
    /// Number of received bytes in the buffer.
    filled: usize,
    /// Length of the last response, which is at the start of the buffer.
    returned: usize,
}

impl Wire {
    /// Connects to a host and port.
    ///
    /// # Errors
    /// The connection fails.
    pub async fn open(authority: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(authority).await.map_err(|error| {
            io::Error::new(error.kind(), format!("can't connect to {authority}: {error}"))
        })?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: vec![0; BUFFER_BYTES], filled: 0, returned: 0 })
    }

    /// Sends all bytes.
    ///
    /// # Errors
    /// The connection fails.
    pub async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await
    }

    /// The next response. `length` gets the bytes received so far, and returns the length of the response once it is known.
    ///
    /// # Errors
    /// The connection fails or ends, or `length` fails.
    pub async fn receive(
        &mut self,
        mut length: impl FnMut(&[u8]) -> io::Result<Option<usize>>,
    ) -> io::Result<&[u8]> {
        self.buffer.copy_within(self.returned..self.filled, 0);
        self.filled -= self.returned;
        self.returned = 0;
        loop {
            let received = self.buffer.get(..self.filled).unwrap_or_default();
            if let Some(length) = length(received)?.filter(|length| *length > 0 && *length <= self.filled) {
                self.returned = length;
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
