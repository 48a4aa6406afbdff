//! A blocking HTTP/1.1 client over a plain socket. It distinguishes a request that was never sent from a request whose
//! outcome is unknown.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Far longer than any reply takes, with the waits of the load.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// Longest body that is read, in bytes: a wrong length must not use up the memory.
const BODY_BYTES_MAX: usize = 1 << 30;

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    /// The method.
    pub(crate) method: &'static str,
    /// The path and query.
    pub(crate) path: String,
    /// The content type; `None` is JSON.
    pub(crate) content_type: Option<&'static str>,
    /// The body.
    pub(crate) body: String,
}

impl Message {
    /// A GET.
    pub(crate) fn get(path: String) -> Self {
        Self { method: "GET", path, content_type: None, body: String::new() }
    }

    /// A PUT of JSON.
    pub(crate) fn put(path: String, body: &serde_json::Value) -> Self {
        Self { method: "PUT", ..Self::post(path, body) }
    }

    /// A POST of JSON.
    pub(crate) fn post(path: String, body: &serde_json::Value) -> Self {
        Self { method: "POST", path, content_type: None, body: body.to_string() }
    }
}

/// A persistent connection.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: BufReader<TcpStream>,
}

/// A received message: a reply, or a request in the proxy.
#[derive(Debug)]
pub(crate) struct Raw {
    /// The first line: of a request the method and path, of a reply the status.
    pub(crate) first: String,
    /// The other lines of the head.
    pub(crate) head: String,
    /// The body.
    pub(crate) body: Vec<u8>,
}

impl Raw {
    /// The status of a reply.
    pub(crate) fn status(&self) -> Option<u16> {
        self.first.split(' ').nth(1)?.parse().ok()
    }

    /// Method and path of a request.
    pub(crate) fn target(&self) -> (&str, &str) {
        let mut words = self.first.split(' ');
        (words.next().unwrap_or_default(), words.next().unwrap_or_default())
    }
}

impl Connection {
    /// Connects. An error means that nothing was sent.
    pub(crate) fn open(address: SocketAddr) -> std::io::Result<Self> {
        Self::open_within(address, PATIENCE)
    }

    /// As [`open`](Self::open), and waits this long for each part of a reply.
    pub(crate) fn open_within(address: SocketAddr, patience: Duration) -> std::io::Result<Self> {
        let connection = Self::over(TcpStream::connect_timeout(&address, patience)?)?;
        connection.stream.get_ref().set_read_timeout(Some(patience))?;
        Ok(connection)
    }

    /// A connection over an open stream.
    pub(crate) fn over(stream: TcpStream) -> std::io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Sends a request and reads its reply. After an error the outcome of the request is unknown.
    pub(crate) fn call(&mut self, message: &Message) -> std::io::Result<Raw> {
        self.call_with(message, &[])
    }

    /// As [`call`](Self::call), with lines of the head.
    pub(crate) fn call_with(&mut self, message: &Message, lines: &[&str]) -> std::io::Result<Raw> {
        self.request(message, lines)?;
        self.receive()
    }

    /// Sends a request with lines of the head.
    pub(crate) fn request(&mut self, message: &Message, lines: &[&str]) -> std::io::Result<()> {
        let Message { method, path, content_type, body } = message;
        let mut text = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n");
        for line in lines {
            let _ = write!(text, "{line}\r\n");
        }
        let content_type = content_type.unwrap_or("application/json");
        let _ = write!(text, "content-type: {content_type}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        self.send(text.as_bytes())
    }

    /// Sends bytes.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.get_mut().write_all(bytes)
    }

    /// Closes both directions of the connection.
    pub(crate) fn end(&self) {
        let _ = self.stream.get_ref().shutdown(std::net::Shutdown::Both);
    }

    /// Reads a request or a reply, which must have a length or be chunked.
    pub(crate) fn receive(&mut self) -> std::io::Result<Raw> {
        let (mut raw, length) = self.receive_head()?;
        raw.body = match length {
            Some(length) => self.bytes(length)?,
            None => self.chunks()?,
        };
        Ok(raw)
    }

    /// Reads the head of a request or a reply, and the length of its body; `None` if the body is chunked.
    pub(crate) fn receive_head(&mut self) -> std::io::Result<(Raw, Option<usize>)> {
        let first = self.line()?;
        let mut head = String::new();
        let (mut length, mut is_chunked) = (0, false);
        loop {
            let line = self.line()?;
            if line.trim_end().is_empty() {
                break;
            }
            if let Some((name, value)) = line.split_once(':') {
                is_chunked |= name.eq_ignore_ascii_case("transfer-encoding");
                if name.eq_ignore_ascii_case("content-length") {
                    length = value.trim().parse().expect("a length");
                }
            }
            head.push_str(&line);
        }
        Ok((Raw { first, head, body: Vec::new() }, (!is_chunked).then_some(length)))
    }

    /// Reads the next chunk of a body. The last chunk is empty.
    pub(crate) fn chunk(&mut self) -> std::io::Result<Vec<u8>> {
        let length = usize::from_str_radix(self.line()?.trim_end(), 16).expect("the length of a chunk");
        let chunk = self.bytes(length)?;
        self.line()?;
        Ok(chunk)
    }

    /// Reads a body of this length.
    pub(crate) fn bytes(&mut self, length: usize) -> std::io::Result<Vec<u8>> {
        assert!(length <= BODY_BYTES_MAX, "{length} bytes");
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn chunks(&mut self) -> std::io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let chunk = self.chunk()?;
            if chunk.is_empty() {
                return Ok(body);
            }
            body.extend(chunk);
        }
    }

    fn line(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 || !line.ends_with('\n') {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line)
    }
}
