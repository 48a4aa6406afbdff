//! A client of HTTP/2 with control over its streams.

use std::net::SocketAddr;

use axum::http::Request;
use bytes::Bytes;
use h2::client::{Builder, ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::{Duplex, Reply, spawn, within};

/// A connection over HTTP/2. Dropping it closes it.
pub(crate) struct Http2 {
    requests: SendRequest<Bytes>,
    connection: JoinHandle<Result<(), h2::Error>>,
    scheme: &'static str,
}

/// A request whose reply was not read.
pub(crate) struct Stream {
    response: ResponseFuture,
    pub(crate) body: SendStream<Bytes>,
}

impl Http2 {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        Self::connect_as(address, &Builder::new()).await
    }

    /// A connection with other settings.
    pub(crate) async fn connect_as(address: SocketAddr, settings: &Builder) -> Self {
        let stream = within(TcpStream::connect(address)).await.expect("the server accepts");
        Self::over(stream, settings, "http").await.expect("the server speaks HTTP/2")
    }

    pub(crate) async fn over(
        stream: impl Duplex + 'static,
        settings: &Builder,
        scheme: &'static str,
    ) -> Result<Self, h2::Error> {
        let (requests, connection) = within(settings.handshake(stream)).await?;
        Ok(Self { requests, connection: spawn(connection), scheme })
    }

    /// Begins a request. With `ends`, it has no body.
    pub(crate) async fn begin(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        ends: bool,
    ) -> Result<Stream, h2::Error> {
        self.begin_at("localhost", method, path, headers, ends).await
    }

    /// The same with another authority.
    pub(crate) async fn begin_at(
        &mut self,
        authority: &str,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        ends: bool,
    ) -> Result<Stream, h2::Error> {
        let mut request =
            Request::builder().method(method).uri(format!("{}://{authority}{path}", self.scheme));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut ready = within(self.requests.clone().ready()).await?;
        let request = request.body(()).expect("a request");
        let (response, body) = ready.send_request(request, ends)?;
        Ok(Stream { response, body })
    }

    /// Makes a request. `body` is JSON; `Null` means no body.
    pub(crate) async fn try_call(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &Value,
    ) -> Result<Reply, h2::Error> {
        let text = if body.is_null() { String::new() } else { body.to_string() };
        let mut stream = self.begin(method, path, headers, text.is_empty()).await?;
        if !text.is_empty() {
            stream.body.send_data(text.into(), true)?;
        }
        stream.reply().await
    }

    pub(crate) async fn call(&mut self, method: &str, path: &str, body: &Value) -> Reply {
        self.try_call(method, path, &[], body).await.expect("a complete reply")
    }

    pub(crate) async fn get(&mut self, path: &str) -> Reply {
        self.call("GET", path, &Value::Null).await
    }

    pub(crate) async fn post(&mut self, path: &str, body: &Value) -> Reply {
        self.call("POST", path, body).await
    }

    /// Waits until the server ends the connection.
    pub(crate) async fn ended(self) -> Result<(), h2::Error> {
        let Self { requests, connection, .. } = self;
        let ended = within(connection).await.expect("no panic");
        drop(requests);
        ended
    }
}

impl Stream {
    /// Reads the head of the reply.
    pub(crate) async fn head(self) -> Result<(u16, Vec<(String, String)>, RecvStream), h2::Error> {
        let (head, body) = within(self.response).await?.into_parts();
        let headers = head.headers.iter().map(|(name, value)| {
            (name.as_str().to_owned(), value.to_str().expect("headers are text").to_owned())
        });
        Ok((head.status.as_u16(), headers.collect(), body))
    }

    /// Reads the reply.
    pub(crate) async fn reply(self) -> Result<Reply, h2::Error> {
        let (status, headers, mut body) = self.head().await?;
        let mut bytes = Vec::new();
        while let Some(piece) = piece(&mut body).await? {
            bytes.extend_from_slice(&piece);
        }
        let text = String::from_utf8(bytes).expect("answers are UTF-8");
        let body = serde_json::from_str(&text).unwrap_or_default();
        Ok(Reply { status, headers, text, body })
    }
}

/// The next piece of a reply; `None` at its end.
pub(crate) async fn piece(body: &mut RecvStream) -> Result<Option<Bytes>, h2::Error> {
    let Some(piece) = within(body.data()).await.transpose()? else { return Ok(None) };
    let _ended = body.flow_control().release_capacity(piece.len());
    Ok(Some(piece))
}
