//! The first bytes of a connection over HTTP/2 without TLS.

use std::io;

use tokio::net::TcpStream;

use super::overload::send_and_close;

/// First byte of the connection preface, `PRI * HTTP/2.0` (RFC 9113, 3.4). No method of the API
/// begins with `PR`.
const BEGINNING: &[u8] = b"PRI ";
/// The response to any other client. It is not a problem document, because the caller uses the wrong port.
const RESPONSE: &str = "HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\n\
     content-length: 121\r\n\r\nThis port speaks HTTP/2 (server.http2_listen): use prior knowledge, or server.listen for HTTP/1.1, which all calls take.\n";

/// Whether the client begins with HTTP/2. Reads none of its bytes. A client whose first bytes come one by one is left to h2, which
/// ends a connection that begins in another way.
pub(super) async fn begins(stream: &TcpStream) -> io::Result<bool> {
    let mut first = [0; BEGINNING.len()];
    let read = stream.peek(&mut first).await?;
    match first.get(..read) {
        None | Some([]) => Err(io::ErrorKind::UnexpectedEof.into()),
        Some(bytes) => Ok(BEGINNING.starts_with(bytes)),
    }
}

/// Answers a client that speaks another protocol.
pub(super) async fn refuse(stream: TcpStream) -> io::Result<()> {
    send_and_close(stream, RESPONSE.as_bytes()).await
}
