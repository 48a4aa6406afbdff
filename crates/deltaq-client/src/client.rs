//! The connection to a server.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use deltaq_types::ProblemDocument;
use deltaq_types::range::shown_url;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, ETAG, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Certificate, Identity, StatusCode, Url};
use serde::de::DeserializeOwned;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use crate::call::{Accept, Body, Call};
use crate::error::Error;
use crate::retry::{Backoff, RetryOptions};
use crate::token::Token;

/// Timeout for connecting, including the TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout for the reply to a request, not including the `wait` of the request. If the body is a stream, the time
/// begins after its last piece. The server's own limit, `server.request_timeout`, is shorter by default and does not
/// apply to lists.
const REPLY_TIMEOUT: Duration = Duration::from_mins(1);
/// How much longer a list may take, because it may wait for other lists of its queue.
pub(crate) const LIST_WAIT: Duration = Duration::from_mins(4);
/// How long a connection may be silent before the operating system checks that the peer still exists.
const TCP_KEEPALIVE: Duration = Duration::from_secs(15);

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");
const NDJSON: HeaderValue = HeaderValue::from_static("application/x-ndjson");

/// How to reach a server.
#[derive(Clone, Debug, Default)]
pub struct ClientOptions {
    /// The address, such as `http://127.0.0.1:7070`. A missing scheme means `http`.
    pub url: String,
    /// The token, if the server needs one.
    pub token: Option<String>,
    /// A file with the token, instead of `token`. It is read again when the server refuses the token (401), so a token
    /// can be replaced while workers and informers run.
    pub token_file: Option<PathBuf>,
    /// Certificates of authorities, in PEM, to trust instead of those of the system.
    pub ca_pem: Option<Vec<u8>>,
    /// A certificate and its key, in PEM, if the server asks for one.
    pub identity_pem: Option<Vec<u8>>,
    /// The name of the program in `User-Agent`.
    pub user_agent: Option<String>,
    /// How the typed calls are repeated after failures.
    pub retry: RetryOptions,
}

/// A client of one server. Clones share its connections.
#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    base: Url,
    token: Arc<Token>,
    retry: RetryOptions,
    reply_timeout: Duration,
    list_wait: Duration,
}

/// A successful reply.
#[derive(Debug)]
pub struct Reply {
    address: String,
    response: reqwest::Response,
}

impl Client {
    /// A client of the server at an address, such as `http://127.0.0.1:7070`, with the default options.
    ///
    /// # Errors
    /// The address is not usable.
    pub fn at(url: impl Into<String>) -> Result<Self, Error> {
        Self::new(ClientOptions { url: url.into(), ..ClientOptions::default() })
    }

    /// A client with these options. Nothing is sent yet.
    ///
    /// # Errors
    /// The address, the token, its file or a certificate is not usable.
    pub fn new(options: ClientOptions) -> Result<Self, Error> {
        // An error means that this process has installed a provider before.
        let _installed = rustls::crypto::ring::default_provider().install_default();
        let base = parse(&options.url)?;
        let tls = |source| Error::Tls { source };
        let mut http = reqwest::Client::builder()
            .http1_only()
            .redirect(Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_keepalive(TCP_KEEPALIVE)
            .tcp_nodelay(true)
            .user_agent(
                options.user_agent.as_deref().unwrap_or(concat!("deltaq-client/", env!("CARGO_PKG_VERSION"))),
            );
        if let Some(pem) = &options.ca_pem {
            let authorities = Certificate::from_pem_bundle(pem).map_err(tls)?;
            if authorities.is_empty() {
                return Err(Error::NoAuthority);
            }
            http = http.tls_certs_only(authorities);
        } else if base.scheme() == "http" {
            // A machine without certificates of authorities can use plain HTTP.
            http = http.tls_certs_only([]);
        }
        if let Some(pem) = &options.identity_pem {
            http = http.identity(Identity::from_pem(pem).map_err(tls)?);
        }
        let token = match options.token_file {
            Some(path) => Token::of_file(path),
            None => Token::of_text(options.token),
        };
        Ok(Self {
            http: http.build().map_err(tls)?,
            base,
            token: Arc::new(token?),
            retry: options.retry,
            reply_timeout: REPLY_TIMEOUT,
            list_wait: LIST_WAIT,
        })
    }

    /// Sends a request once. If the server refuses the token, and its file has another one now, the request is sent again
    /// with that one, unless its body is a stream.
    ///
    /// # Errors
    /// The connection failed, or the server refused the request.
    pub async fn send(&self, mut call: Call) -> Result<Reply, Error> {
        let mut again = if self.token.is_in_file() { call.try_clone() } else { None };
        loop {
            let header = self.token.header();
            let error = match self.attempt(call, header.clone()).await {
                Ok(reply) => return Ok(reply),
                Err(error) => error,
            };
            let is_replaced = error.is_unauthorized() && self.token.is_replaced(header.as_ref());
            call = match again.take() {
                Some(again) if is_replaced => again,
                _ => return Err(error),
            };
        }
    }

    async fn attempt(&self, call: Call, authorization: Option<HeaderValue>) -> Result<Reply, Error> {
        let mut request = self.http.request(call.method.clone(), call.url(&self.base)?);
        if let Some(authorization) = authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        let sends_stream = matches!(call.body, Body::Ndjson(_) | Body::Pieces(_));
        let wait = if sends_stream { call.wait.max(self.list_wait) } else { call.wait };
        let patience = self.reply_timeout.saturating_add(wait);
        if call.accept == Accept::Json && !sends_stream {
            request = request.timeout(patience);
        }
        request = request.header(
            ACCEPT,
            match call.accept {
                Accept::Json => JSON,
                Accept::Lines => NDJSON,
                Accept::Events => EVENTS,
            },
        );
        for (name, value) in &call.headers {
            request = request.header(*name, value);
        }
        let mut body_ended = None;
        request = match call.body {
            Body::Empty => request,
            Body::Json(text) => request.header(CONTENT_TYPE, JSON).body(text),
            Body::Lines(text) => request.header(CONTENT_TYPE, NDJSON).body(text),
            Body::Ndjson(body) => request.header(CONTENT_TYPE, NDJSON).body(body),
            Body::Pieces(pieces) => {
                body_ended = Some(pieces.ended);
                request.header(CONTENT_TYPE, NDJSON).body(pieces.body)
            }
        };
        let address = self.address();
        let response = tokio::select! {
            response = request.send() => response.map_err(|error| self.failed(error))?,
            () = silence(body_ended, patience) => return Err(Error::Silence { address, silence: patience }),
        };
        let status = response.status();
        if status.is_success() || status == StatusCode::NOT_MODIFIED {
            return Ok(Reply { address, response });
        }
        let retry_after = retry_after(response.headers());
        let text = response.bytes().await.map_err(|error| self.failed(error))?;
        match serde_json::from_slice::<ProblemDocument>(&text) {
            Ok(problem) => Err(Error::Problem(Box::new(problem))),
            Err(_) => Err(Error::NotDeltaq { address, status: status.as_u16(), retry_after }),
        }
    }

    /// Sends a request once and reads the document of the reply.
    ///
    /// # Errors
    /// The errors of [`Client::send`], or the reply is not the expected document.
    pub async fn fetch<T: DeserializeOwned>(&self, call: Call) -> Result<T, Error> {
        self.send(call).await?.document().await
    }

    /// Sends a request, and repeats it as the options of the client say. After a failure whose outcome is unknown, only a
    /// [repeatable](Call::repeatable) call is repeated; a call whose body is a stream never is.
    ///
    /// # Errors
    /// The error of the last attempt.
    pub async fn request<T: DeserializeOwned>(&self, call: Call) -> Result<T, Error> {
        self.request_counted(call).await.map(|(document, _)| document)
    }

    /// Like [`Client::request`], with the number of attempts.
    pub(crate) async fn request_counted<T: DeserializeOwned>(&self, call: Call) -> Result<(T, u32), Error> {
        let (_, text, attempts) = self.repeat(call).await?;
        Ok((document(&text)?, attempts))
    }

    /// Like [`Client::request`], but also returns the entity tag of the document, which is empty if there is none.
    pub(crate) async fn request_tagged<T: DeserializeOwned>(&self, call: Call) -> Result<(T, String), Error> {
        let (headers, text, _) = self.repeat(call).await?;
        let etag = headers.get(ETAG).and_then(|etag| etag.to_str().ok()).unwrap_or_default();
        Ok((document(&text)?, etag.to_owned()))
    }

    /// Like [`Client::request`], for a call whose reply has no document.
    pub(crate) async fn request_nothing(&self, call: Call) -> Result<(), Error> {
        self.repeat(call).await.map(drop)
    }

    /// Like [`Client::request`] and [`Client::fetch_results`].
    pub(crate) async fn request_results<T: DeserializeOwned>(&self, call: Call) -> Result<T, Error> {
        results(self.repeat(call).await.map(|(_, text, _)| text))
    }

    /// Makes attempts until one succeeds, or its error forbids another one. Returns the headers and the body of the reply, and the
    /// number of attempts.
    async fn repeat(&self, mut call: Call) -> Result<(HeaderMap, Bytes, u32), Error> {
        let began = Instant::now();
        let mut backoff = Backoff::from(self.retry);
        loop {
            let again = call.try_clone();
            let is_repeatable = call.is_repeatable;
            let error = match self.fetch_bytes(call).await {
                Ok((headers, text)) => return Ok((headers, text, backoff.failures() + 1)),
                Err(error) => error,
            };
            let may_repeat = error.is_retryable() && (is_repeatable || !error.is_outcome_unknown());
            let pause = backoff.after_failure(&error);
            let may_repeat = may_repeat && self.retry.allow(backoff.failures(), began, pause);
            let Some(again) = again.filter(|_| may_repeat) else {
                return Err(error);
            };
            sleep(pause).await;
            call = again;
        }
    }

    async fn fetch_bytes(&self, call: Call) -> Result<(HeaderMap, Bytes), Error> {
        let reply = self.send(call).await?;
        Ok((reply.response.headers().clone(), reply.bytes().await?))
    }

    /// Sends a settle or an extend once and reads the results. If all leases had ended, the server refuses the call
    /// (`lease-lost`) with the same results.
    ///
    /// # Errors
    /// Same as [`Client::fetch`], except for `lease-lost`.
    pub async fn fetch_results<T: DeserializeOwned>(&self, call: Call) -> Result<T, Error> {
        results(self.fetch_bytes(call).await.map(|(_, text)| text))
    }

    /// How typed calls are repeated.
    pub(crate) const fn retry(&self) -> RetryOptions {
        self.retry
    }

    /// The address of the server.
    #[must_use]
    pub fn address(&self) -> String {
        self.base.as_str().trim_end_matches('/').to_owned()
    }

    fn failed(&self, error: reqwest::Error) -> Error {
        let address = self.address();
        if error.is_connect() {
            Error::Connect { address, source: error.without_url() }
        } else {
            Error::NoReply { address, source: error.without_url() }
        }
    }
}

impl Reply {
    /// The status of the reply.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    /// The whole body.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn text(self) -> Result<String, Error> {
        Ok(String::from_utf8_lossy(&self.bytes().await?).into_owned())
    }

    async fn bytes(self) -> Result<Bytes, Error> {
        let Self { address, response } = self;
        let bytes = response.bytes().await;
        bytes.map_err(|error| Error::NoReply { address, source: error.without_url() })
    }

    /// The next piece of the body; `None` at its end.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn piece(&mut self) -> Result<Option<Vec<u8>>, Error> {
        let piece = self.response.chunk().await;
        let failed = |error: reqwest::Error| Error::NoReply {
            address: self.address.clone(),
            source: error.without_url(),
        };
        Ok(piece.map_err(failed)?.map(Into::into))
    }

    /// The body as a document.
    ///
    /// # Errors
    /// The connection broke, or the body is another document.
    pub async fn document<T: DeserializeOwned>(self) -> Result<T, Error> {
        document(&self.bytes().await?)
    }
}

/// Completes when the server has been silent for too long after the last piece of a streamed body. For any other
/// body, it never completes.
async fn silence(body_ended: Option<oneshot::Receiver<()>>, patience: Duration) {
    let has_ended = match body_ended {
        Some(ended) => ended.await.is_ok(),
        None => false,
    };
    if !has_ended {
        std::future::pending::<()>().await;
    }
    sleep(patience).await;
}

fn document<T: DeserializeOwned>(text: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(text).map_err(|source| Error::Reply { source })
}

/// The results in a reply, or in the refusal of a call whose leases had all ended.
fn results<T: DeserializeOwned>(reply: Result<Bytes, Error>) -> Result<T, Error> {
    match reply {
        Err(Error::Problem(problem)) if problem.code == "lease-lost" => {
            let text = serde_json::to_vec(&problem).map_err(|source| Error::Reply { source })?;
            document(&text)
        }
        reply => document(&reply?),
    }
}

/// The time that a reply asks to wait, in seconds.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// The URL of a server: scheme, host, port, and the path at which a proxy serves the API, if there is one.
fn parse(address: &str) -> Result<Url, Error> {
    let refused = || Error::Address { address: shown_url(address) };
    let with_scheme = if address.contains("://") { address.to_owned() } else { format!("http://{address}") };
    // The parser drops line breaks instead of refusing them.
    let url = Url::parse(&with_scheme).ok().filter(|_| address.bytes().all(|byte| byte.is_ascii_graphic()));
    let url = url.filter(|url| matches!(url.scheme(), "http" | "https")).ok_or_else(refused)?;
    let has_more = url.query().is_some() || url.fragment().is_some();
    let has_user = !url.username().is_empty() || url.password().is_some();
    if has_more || has_user { Err(refused()) } else { Ok(url) }
}

#[cfg(test)]
mod tests {
    use std::io::{self, BufRead as _, BufReader, Write as _};
    use std::net::TcpListener;

    use futures_util::stream::iter;
    use parking_lot::Mutex;
    use reqwest::Method;
    use tokio::time::timeout;

    use super::*;

    #[test]
    fn addresses_are_checked() {
        for good in [
            "localhost:7070",
            "http://127.0.0.1:7070",
            "https://queues.example/",
            "https://proxy.example/deltaq",
        ] {
            assert!(parse(good).is_ok(), "{good}");
        }
        for bad in ["", "ftp://a", "http://", "http://a?b", "http://a#b", "http://user@a", "http://a\n"] {
            assert!(matches!(parse(bad), Err(Error::Address { .. })), "{bad}");
        }
        assert_eq!(parse("localhost:7070").unwrap().as_str(), "http://localhost:7070/");
    }

    #[test]
    fn a_token_with_a_line_break_is_refused() {
        let options = |token: &str| ClientOptions {
            url: "localhost:1".to_owned(),
            token: Some(token.to_owned()),
            ..ClientOptions::default()
        };
        assert!(Client::new(options("abc\n")).is_ok(), "the line break at the end of a file is ignored");
        assert!(matches!(Client::new(options("a\nb")), Err(Error::Token)));
    }

    /// A server that takes requests and never answers.
    fn silent_server() -> (Client, Arc<Mutex<Vec<String>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = Client::at(listener.local_addr().unwrap().to_string()).unwrap();
        client.reply_timeout = Duration::from_millis(200);
        client.list_wait = Duration::from_millis(100);
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&requests);
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                let (connection, seen) = (connection.unwrap(), Arc::clone(&seen));
                std::thread::spawn(move || {
                    let mut lines = BufReader::new(connection).lines().map_while(Result::ok);
                    seen.lock().extend(lines.next());
                    lines.for_each(drop);
                });
            }
        });
        (client, requests)
    }

    #[tokio::test]
    async fn a_server_that_takes_a_stream_and_never_answers_is_silent() {
        let (client, _) = silent_server();
        let pieces = iter([Ok::<_, io::Error>(b"{}\n".to_vec()), Ok(b"{}\n".to_vec())]);
        let call = Call::on_queue(Method::POST, "q", ["replace"]).body(Body::lines(pieces));
        let reply = timeout(Duration::from_secs(20), client.send(call)).await.expect("it ends");
        assert!(
            reply.is_err_and(|error| matches!(error, Error::Silence { .. }) && error.is_outcome_unknown())
        );
    }

    type Shared<T> = Arc<Mutex<T>>;

    /// A server that accepts one token. Returns its address, this token, and the tokens of the requests.
    fn server_with_token() -> (String, Shared<String>, Shared<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (accepted, seen) = (Arc::new(Mutex::new(String::new())), Arc::new(Mutex::new(Vec::new())));
        let (known, requests) = (Arc::clone(&accepted), Arc::clone(&seen));
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                let mut connection = connection.unwrap();
                let lines = BufReader::new(connection.try_clone().unwrap()).lines().map_while(Result::ok);
                let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
                let token = head.iter().find_map(|line| line.strip_prefix("authorization: Bearer "));
                let status = if token == Some(&*known.lock()) { 200 } else { 401 };
                requests.lock().push(token.unwrap_or_default().to_owned());
                let reply =
                    format!("HTTP/1.1 {status} Status\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{{}}");
                connection.write_all(reply.as_bytes()).unwrap();
            }
        });
        (address, accepted, seen)
    }

    #[tokio::test]
    async fn a_token_that_is_replaced_in_its_file_is_used_after_a_refusal() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        let (url, accepted, seen) = server_with_token();
        let options = ClientOptions { url, token_file: Some(file.clone()), ..ClientOptions::default() };
        assert!(matches!(Client::new(options.clone()), Err(Error::TokenFile { .. })), "there is no file");
        std::fs::write(&file, "one\n").unwrap();
        let client = Client::new(options.clone()).unwrap();
        let call = || client.fetch::<serde_json::Value>(Call::new(Method::GET, ["v1", "info"]));
        let is_refused = |reply: Result<serde_json::Value, Error>| reply.unwrap_err().is_unauthorized();
        let tokens = || std::mem::take(&mut *seen.lock());

        "one".clone_into(&mut accepted.lock());
        call().await.unwrap();
        "two".clone_into(&mut accepted.lock());
        assert!(is_refused(call().await), "the file has the old token");
        for moment in ["", "a\nb"] {
            std::fs::write(&file, moment).unwrap();
            assert!(is_refused(call().await), "{moment:?}");
        }
        std::fs::remove_file(&file).unwrap();
        assert!(is_refused(call().await), "the file is absent");
        assert_eq!(tokens(), ["one"; 5]);

        std::fs::write(&file, "two").unwrap();
        for _ in 0..2 {
            call().await.unwrap();
        }
        assert_eq!(tokens(), ["one", "two", "two"]);

        // A stream can't be sent again. The next call has the new token.
        "three".clone_into(&mut accepted.lock());
        std::fs::write(&file, "three").unwrap();
        let lines = Body::lines(iter([Ok::<_, io::Error>(b"{}\n".to_vec())]));
        let streamed = client.send(Call::on_queue(Method::POST, "q", ["replace"]).body(lines)).await;
        assert!(streamed.is_err_and(|error| error.is_unauthorized()));
        call().await.unwrap();
        assert_eq!(tokens(), ["two", "three"]);

        let fixed = Client::new(ClientOptions { token: Some("old".to_owned()), token_file: None, ..options });
        assert!(fixed.unwrap().info().await.unwrap_err().is_unauthorized());
        assert_eq!(tokens(), ["old"]);
    }

    #[tokio::test]
    async fn a_queue_is_not_deleted_twice() {
        let (client, requests) = silent_server();
        let reply = client.queue("q").delete_queue(false).await;
        assert!(reply.is_err_and(|error| error.is_outcome_unknown()));
        while requests.lock().is_empty() {
            sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(*requests.lock(), ["DELETE /v1/queues/q HTTP/1.1"]);
    }
}
