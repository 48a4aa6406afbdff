//! The transport of a connection: a TCP stream, with or without TLS.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

/// A byte stream whose peer may close its sending side.
pub(super) trait Transport: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// Whether the stream is encrypted.
    const IS_TLS: bool;

    /// Whether the peer has closed the connection or its sending side, even if unread bytes come before the end.
    ///
    /// tokio knows only the last event of the socket, so this asks the kernel.
    fn is_closed_by_peer(&self) -> bool;
}

impl Transport for TcpStream {
    const IS_TLS: bool = false;

    fn is_closed_by_peer(&self) -> bool {
        let mut socket = [PollFd::new(self, PollFlags::RDHUP)];
        // The kernel also reports HUP and ERR, for a connection that was reset.
        poll(&mut socket, Some(&Timespec::default())).is_ok_and(|closed| closed > 0)
    }
}

impl Transport for TlsStream<TcpStream> {
    const IS_TLS: bool = true;

    fn is_closed_by_peer(&self) -> bool {
        self.get_ref().0.is_closed_by_peer()
    }
}

#[cfg(test)]
impl Transport for tokio::io::DuplexStream {
    const IS_TLS: bool = false;

    fn is_closed_by_peer(&self) -> bool {
        false
    }
}
