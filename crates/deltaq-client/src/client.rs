//! The connection to a server.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use deltaq_types::ProblemDocument;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, ETAG, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{StatusCode, Url};
use serde::de::DeserializeOwned;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use crate::call::{Accept, Body, Call};
use crate::error::Error;
use crate::log::{Log, Rows, row};
use crate::middleware::{Answer, Boxed, CallMiddleware};
use crate::retry::{Backoff, RetryOptions};
use crate::servers::Servers;
use crate::tls::{self, Trust};
use crate::token::{Token, TokenSource};

/// Timeout for connecting, including the TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The same for a client of several servers, which goes on at the next one.
const CONNECT_TIMEOUT_OF_SEVERAL: Duration = Duration::from_secs(2);
/// The header with the URL of the node that owns the queue, in the reply to a forwarded call.
const OWNER: &str = "deltaq-owner";
/// How much longer a list may take, because it may wait for other lists of its queue.
pub(crate) const LIST_WAIT: Duration = Duration::from_mins(4);
/// How long a connection may be silent before the operating system checks that the peer still exists.
const TCP_KEEPALIVE: Duration = Duration::from_secs(15);

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");
const NDJSON: HeaderValue = HeaderValue::from_static("application/x-ndjson");

/// How to reach a server.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClientOptions {
    /// The address, such as `http://127.0.0.1:7070`. A missing scheme means `http`. It may be the addresses of several nodes of
    /// one cluster, with commas between them: if a node can't be reached, the client goes on at the next one.
    pub url: String,
    /// The token, if the server needs one.
    pub token: Option<String>,
    /// A file with the token, instead of `token`. It is read again when the server refuses the token (401), so a token
    /// can be replaced while workers and informers run.
    pub token_file: Option<PathBuf>,
    /// Instead of `token`: returns the token of each attempt, and is asked once more when the server refuses a token (401).
    pub token_source: Option<TokenSource>,
    /// Certificates of authorities, in PEM, to trust instead of those of the system.
    pub ca_pem: Option<Vec<u8>>,
    /// A certificate and its key, in PEM, if the server asks for one.
    pub identity_pem: Option<Vec<u8>>,
    /// The name of the program in `User-Agent`.
    pub user_agent: Option<String>,
    /// Functions around each typed call with its repeats, such as those of a trace; the first is the outermost.
    pub middleware: Vec<CallMiddleware>,
    /// How the typed calls are repeated after failures, and the pauses of workers and informers.
    pub retry: RetryOptions,
    /// Timeout for the reply to a request, not including the `wait` of the request; 1 minute by default. If the body is a
    /// stream, the time begins after its last piece. The server's own limit, `server.request_timeout`, is shorter by
    /// default and does not apply to lists.
    pub reply_timeout: Duration,
    /// Where the client writes what no caller gets as an error, such as that a call is repeated; by default standard error.
    pub log: Log,
}

impl ClientOptions {
    /// The defaults, for the server at this address.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            token: None,
            token_file: None,
            token_source: None,
            ca_pem: None,
            identity_pem: None,
            user_agent: None,
            middleware: Vec::new(),
            retry: RetryOptions::default(),
            reply_timeout: Duration::from_mins(1),
            log: Log::default(),
        }
    }
}

/// A client of one server, or of the nodes of one cluster. Clones share its connections.
#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    servers: Arc<Servers>,
    token: Arc<Token>,
    middleware: Arc<[CallMiddleware]>,
    retry: RetryOptions,
    reply_timeout: Duration,
    list_wait: Duration,
    rows: Arc<Rows>,
}

/// A successful reply.
#[derive(Debug)]
pub struct Reply {
    place: Place,
    response: reqwest::Response,
}

/// The server that a call is sent to.
#[derive(Clone, Debug)]
struct Place {
    client: Client,
    base: Url,
    /// The queue of the call, if there are several servers.
    queue: Option<String>,
}

impl Client {
    /// A client of the server at an address, such as `http://127.0.0.1:7070`, with the default options.
    ///
    /// # Errors
    /// The address is not usable.
    pub fn at(url: impl Into<String>) -> Result<Self, Error> {
        Self::new(ClientOptions::new(url))
    }

    /// A client with these options. Nothing is sent yet.
    ///
    /// # Errors
    /// The address, the token, its file or a certificate is not usable.
    pub fn new(options: ClientOptions) -> Result<Self, Error> {
        let servers = Servers::parse(&options.url)?;
        let connect_timeout = if servers.count() > 1 { CONNECT_TIMEOUT_OF_SEVERAL } else { CONNECT_TIMEOUT };
        let trust = match &options.ca_pem {
            Some(pem) => Trust::Only(pem),
            None if servers.bases().all(|base| base.scheme() == "http") => Trust::Nobody,
            None => Trust::System,
        };
        let tls = tls::config(trust, options.identity_pem.as_deref())?;
        let http = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .http1_only()
            .redirect(Policy::none())
            .connect_timeout(connect_timeout)
            .tcp_keepalive(TCP_KEEPALIVE)
            .tcp_nodelay(true)
            .user_agent(
                options.user_agent.as_deref().unwrap_or(concat!("deltaq-client/", env!("CARGO_PKG_VERSION"))),
            );
        let token = match (options.token_source, options.token_file) {
            (Some(source), _) => Ok(Token::of_source(source)),
            (None, Some(path)) => Token::of_file(path),
            (None, None) => Token::of_text(options.token),
        };
        Ok(Self {
            http: http.build().map_err(|error| Error::Tls { source: error.into() })?,
            servers: Arc::new(servers),
            token: Arc::new(token?),
            middleware: options.middleware.into(),
            retry: options.retry,
            reply_timeout: options.reply_timeout,
            list_wait: LIST_WAIT,
            rows: Arc::new(Rows::new(options.log)),
        })
    }

    /// Sends a request once. If the client has several servers, and one of them can't be reached, drains, refuses every call
    /// or is no deltaq server, the request goes to the next one. If the server refuses the token, and there is another one now, the request is
    /// sent again with that one. Neither applies to a request whose body is a stream.
    ///
    /// # Errors
    /// The connection failed, or the server refused the request.
    pub async fn send(&self, mut call: Call) -> Result<Reply, Error> {
        let queue = call.queue().filter(|_| self.servers.count() > 1).map(str::to_owned);
        let queue = queue.as_deref();
        let mut others = self.servers.count() - 1;
        loop {
            let again = if others > 0 { call.try_clone() } else { None };
            let base = self.servers.next(queue).clone();
            let place = Place { client: self.clone(), base, queue: queue.map(str::to_owned) };
            let result = self.send_to(&place, call).await;
            match &result {
                Ok(reply) => self.servers.note_owner(queue, reply.header(OWNER)),
                Err(error) if error.is_of_server() => place.leave(),
                Err(_) => {}
            }
            call = match (&result, again) {
                (Err(error), Some(again)) if error.is_undone_here() => again,
                _ => return result,
            };
            others -= 1;
        }
    }

    async fn send_to(&self, place: &Place, mut call: Call) -> Result<Reply, Error> {
        let mut again = if self.token.may_change() { call.try_clone() } else { None };
        let mut header = self.token.header().await?;
        loop {
            let error = match self.attempt(place, call, header.clone()).await {
                Ok(reply) => return Ok(reply),
                Err(error) => error,
            };
            if !error.is_unauthorized() {
                return Err(error);
            }
            self.token.refresh();
            let present = self.token.header().await?;
            let Some(again) = again.take().filter(|_| present != header) else { return Err(error) };
            (call, header) = (again, present);
        }
    }

    async fn attempt(
        &self,
        place: &Place,
        call: Call,
        authorization: Option<HeaderValue>,
    ) -> Result<Reply, Error> {
        let mut request = self.http.request(call.method.clone(), call.url(&place.base)?);
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
            Body::Lines(text) | Body::Ndjson(text) => request.header(CONTENT_TYPE, NDJSON).body(text),
            Body::Pieces(pieces) => {
                body_ended = Some(pieces.ended);
                request.header(CONTENT_TYPE, NDJSON).body(pieces.body)
            }
        };
        let address = place.address();
        let response = tokio::select! {
            response = place.answer(request.send()) => response?,
            () = silence(body_ended, patience) => return Err(Error::Silence { address, silence: patience }),
        };
        self.servers.note_answer(&place.base);
        let status = response.status();
        if status.is_success() || status == StatusCode::NOT_MODIFIED {
            return Ok(Reply { place: place.clone(), response });
        }
        let retry_after = retry_after(response.headers());
        let text = place.answer(response.bytes()).await?;
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
        let answer = self.repeat(call).await?;
        Ok((document(&answer.body)?, answer.attempts))
    }

    /// Like [`Client::request`], but also returns the entity tag of the document, which is empty if there is none.
    pub(crate) async fn request_tagged<T: DeserializeOwned>(&self, call: Call) -> Result<(T, String), Error> {
        let Answer { headers, body, .. } = self.repeat(call).await?;
        let etag = headers.get(ETAG).and_then(|etag| etag.to_str().ok()).unwrap_or_default();
        Ok((document(&body)?, etag.to_owned()))
    }

    /// Like [`Client::request`], for a call whose reply has no document.
    pub(crate) async fn request_nothing(&self, call: Call) -> Result<(), Error> {
        self.repeat(call).await.map(drop)
    }

    /// Like [`Client::request`] and [`Client::fetch_results`].
    pub(crate) async fn request_results<T: DeserializeOwned>(&self, call: Call) -> Result<T, Error> {
        results(self.repeat(call).await.map(|answer| answer.body))
    }

    /// Makes a call with its repeats inside the middleware.
    async fn repeat(&self, call: Call) -> Result<Answer, Error> {
        if self.middleware.is_empty() {
            return self.attempts(call).await;
        }
        let client = self.clone();
        let inner = move |call| -> Boxed<Result<Answer, Error>> {
            Box::pin(async move { client.attempts(call).await })
        };
        CallMiddleware::wrap(&self.middleware, inner).run(call).await
    }

    /// Makes attempts until one succeeds, or its error forbids another one.
    async fn attempts(&self, mut call: Call) -> Result<Answer, Error> {
        let began = Instant::now();
        let mut backoff = Backoff::from(self.retry);
        let mut failing = self.rows.is_open().then(|| row(&call));
        loop {
            let again = call.try_clone();
            let is_repeatable = call.is_repeatable;
            let error = match self.fetch_bytes(call).await {
                Ok((headers, body)) => {
                    if let Some(row) = failing {
                        self.rows.answered(&row);
                    }
                    return Ok(Answer { headers, body, attempts: backoff.failures() + 1 });
                }
                Err(error) => error,
            };
            let may_repeat = error.is_retryable() && (is_repeatable || !error.is_outcome_unknown());
            let pause = backoff.after_failure(&error);
            let may_repeat = may_repeat && self.retry.allow(backoff.failures(), began, pause);
            let Some(again) = again.filter(|_| may_repeat) else {
                return Err(error);
            };
            let row = failing.get_or_insert_with(|| row(&again));
            self.rows.failed(row, &error, Some(&self.retry));
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

    /// What is logged of calls that are repeated.
    pub(crate) fn rows(&self) -> &Rows {
        &self.rows
    }

    /// How typed calls are repeated.
    pub(crate) const fn retry(&self) -> RetryOptions {
        self.retry
    }

    /// The address of the server that gets the next call.
    #[must_use]
    pub fn address(&self) -> String {
        address_of(self.servers.next(None))
    }

    /// The addresses of all servers, as [`ClientOptions::url`] has them.
    #[must_use]
    pub fn addresses(&self) -> String {
        self.servers.bases().map(address_of).collect::<Vec<_>>().join(",")
    }

    /// Records that the caller has given up a call on a queue, because it has waited for too long: the next call goes to
    /// the next server.
    pub(crate) fn leave(&self, queue: &str) {
        self.servers.leave(self.servers.next(Some(queue)), Some(queue));
    }
}

fn address_of(base: &Url) -> String {
    base.as_str().trim_end_matches('/').to_owned()
}

impl Place {
    fn address(&self) -> String {
        address_of(&self.base)
    }

    /// What the server sends. If there are others, a server that no longer answers is not waited for.
    async fn answer<T>(&self, answer: impl Future<Output = reqwest::Result<T>>) -> Result<T, Error> {
        let (address, servers) = (self.address(), &self.client.servers);
        let error = tokio::select! {
            answer = answer => match answer {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            },
            () = servers.lost(&self.client.http, &self.base) => {
                return Err(Error::Silence { address, silence: servers.silence });
            }
        };
        let is_connect = error.is_connect();
        let source = error.without_url().into();
        Err(if is_connect { Error::Connect { address, source } } else { Error::NoReply { address, source } })
    }

    /// Records that a call has failed here.
    fn leave(&self) {
        self.client.servers.leave(&self.base, self.queue.as_deref());
    }
}

impl Reply {
    fn header(&self, name: &str) -> Option<&str> {
        self.response.headers().get(name)?.to_str().ok()
    }

    /// Records that the rest of the reply does not come.
    pub(crate) fn leave(&self) {
        self.place.leave();
    }

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
        let Self { place, response } = self;
        place.answer(response.bytes()).await.inspect_err(|_| place.leave())
    }

    /// The next piece of the body; `None` at its end.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn piece(&mut self) -> Result<Option<Vec<u8>>, Error> {
        let piece = self.place.answer(self.response.chunk()).await.inspect_err(|_| self.place.leave());
        Ok(piece?.map(Into::into))
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

#[cfg(test)]
mod tests;
