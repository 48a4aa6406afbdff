//! Sends one signed request and judges nothing: the answer is a status with the beginning of its body, or none.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, Method, Response, header};
use bytes::Bytes;
use deltaq_runtime::causes::with_causes;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use super::connector::{Connection, Connector, Failure};
use super::policy::Endpoint;

/// How many bytes of an answer are read at most.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// How many more for each further key of the request, which the answer may name.
const KEY_ANSWER_BYTES: usize = 1 << 10;
/// How many bytes of an answer are kept, for the error of the key.
const EXCERPT_BYTES: usize = 500;
/// How long a connection may be idle. Some servers close one after 5 s, and a request may not meet that.
const IDLE: Duration = Duration::from_secs(4);
/// How long after an answer a connection may need until it can take the next request. An endpoint that answers before it has read the request may
/// never read the rest.
const READY_WITHIN: Duration = Duration::from_millis(100);

/// Sends requests to one endpoint. A request takes a connection that is kept, or opens one for itself, so there are never more of them than requests at once.
#[derive(Debug)]
pub struct Sender {
    connector: Connector,
    endpoint: Endpoint,
    /// The connections that no request uses, and since when. The newest is the last. `None` once the sender has been retired.
    kept: Mutex<Option<Vec<(Instant, Connection)>>>,
}

/// A request.
#[derive(Debug)]
pub struct Call {
    /// Identifies the content: a receiver that has seen it may ignore the request.
    pub id: String,
    /// When the request is sent, in seconds since 1970.
    pub timestamp: u64,
    /// Further headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
    /// The number of keys in it.
    pub keys: usize,
}

/// How an endpoint has answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A whole answer.
    Status {
        /// The status.
        status: u16,
        /// The status and the beginning of the body, for people.
        text: String,
        /// The header `Retry-After`.
        retry_after: Option<String>,
        /// What may say something about single keys.
        json: Body,
    },
    /// No answer, or not a whole one.
    None {
        /// Why.
        why: String,
    },
}

/// The body of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// JSON.
    Json(Vec<u8>),
    /// JSON that is too long to be read.
    LongJson,
    /// No JSON.
    Other,
}

impl Sender {
    /// A sender to an endpoint that the policy of the connector permits.
    #[must_use]
    pub const fn new(connector: Connector, endpoint: Endpoint) -> Self {
        Self { connector, endpoint, kept: Mutex::new(Some(Vec::new())) }
    }

    /// Sends a request. `within` ends with the last byte of the answer.
    pub async fn send(&self, call: Call, within: Duration) -> Answer {
        match timeout(within, self.exchange(call)).await {
            Ok(Ok((answer, connection))) => {
                if let Some(connection) = connection {
                    self.keep(connection).await;
                }
                answer
            }
            Ok(Err(failure)) => Answer::None { why: with_causes(&failure) },
            Err(_) => Answer::None {
                why: format!("no whole answer within {}", deltaq_types::duration::format(within)),
            },
        }
    }

    /// Sends the validation request of CloudEvents webhooks. Returns the least time between two requests.
    ///
    /// # Errors
    /// Why the endpoint does not permit requests.
    pub async fn validate(&self, within: Duration) -> Result<Duration, String> {
        let headers = self.endpoint.headers.clone();
        let (response, _connection) =
            match timeout(within, self.begin(Method::OPTIONS, headers, Bytes::new())).await {
                Ok(Ok(begun)) => begun,
                Ok(Err(failure)) => return Err(with_causes(&failure)),
                Err(_) => return Err(format!("no answer within {}", deltaq_types::duration::format(within))),
            };
        if !response.status().is_success() {
            return Err(response.status().to_string());
        }
        permission(response.headers(), self.endpoint.origin.as_deref().unwrap_or_default())
    }

    /// Sends a request and reads its answer. Returns the connection if the answer was read to its end.
    async fn exchange(&self, call: Call) -> Result<(Answer, Option<Connection>), Failure> {
        let Call { id, timestamp, headers: own, body, keys } = call;
        let bytes_max = ANSWER_BYTES_MAX + KEY_ANSWER_BYTES * keys.saturating_sub(1);
        let mut headers = self.endpoint.headers.clone();
        headers.extend(own);
        let signatures: Vec<_> =
            self.endpoint.secrets.iter().map(|secret| secret.sign(&id, timestamp, &body)).collect();
        let mut insert = |name, text: &str| {
            if let Ok(value) = HeaderValue::from_str(text) {
                headers.insert(name, value);
            }
        };
        insert("webhook-id", &id);
        insert("webhook-timestamp", &timestamp.to_string());
        if !signatures.is_empty() {
            insert("webhook-signature", &signatures.join(" "));
        }
        let (mut response, connection) = self.begin(Method::POST, headers, body).await?;
        let status = response.status();
        let retry_after = response.headers().get(header::RETRY_AFTER);
        let retry_after = retry_after.and_then(|text| text.to_str().ok()).map(str::to_owned);
        let is_json = is_json(response.headers());
        let mut kept = Vec::new();
        while kept.len() < bytes_max
            && let Some(frame) = response.frame().await
        {
            if let Ok(chunk) = frame?.into_data() {
                let room = bytes_max - kept.len();
                kept.extend_from_slice(chunk.get(..room.min(chunk.len())).unwrap_or_default());
            }
        }
        let is_whole = kept.len() < bytes_max;
        // An endpoint that shows the headers that it got must not show a secret to whoever reads the queue.
        let kept = self.endpoint.hide(String::from_utf8_lossy(&kept).into_owned());
        let text = format!("{status}: {}", excerpt(kept.as_bytes()));
        let text = text.trim_end_matches([':', ' ']).to_owned();
        let json = match (is_json, is_whole) {
            (true, true) => Body::Json(kept.into_bytes()),
            (true, false) => Body::LongJson,
            (false, _) => Body::Other,
        };
        let answer = Answer::Status { status: status.as_u16(), text, retry_after, json };
        Ok((answer, is_whole.then_some(connection)))
    }

    /// Sends a request and waits for the head of its answer. An endpoint may close a kept connection at the moment at which a request arrives.
    /// Such a request is sent once more, on a new connection.
    async fn begin(
        &self,
        method: Method,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<(Response<Incoming>, Connection), Failure> {
        let request = self.connector.request(method, &self.endpoint, headers, body);
        if let Some(mut connection) = self.take()
            && let Ok(response) = connection.send(request.clone()).await
        {
            return Ok((response, connection));
        }
        let mut connection = self.connector.open(&self.endpoint).await?;
        let response = connection.send(request).await?;
        Ok((response, connection))
    }

    /// The connection that was used last, if it is still open.
    fn take(&self) -> Option<Connection> {
        self.close_idle(Instant::now());
        let mut kept = self.kept.lock();
        let kept = kept.as_mut()?;
        std::iter::from_fn(|| kept.pop()).map(|(_since, connection)| connection).find(Connection::is_ready)
    }

    /// Keeps a connection for the next request, once it can take one.
    async fn keep(&self, mut connection: Connection) {
        if timeout(READY_WITHIN, connection.becomes_ready()).await != Ok(true) {
            return;
        }
        match &mut *self.kept.lock() {
            Some(kept) => kept.push((Instant::now(), connection)),
            None => connection.close(),
        }
    }

    /// Closes the connections that have been idle for too long. Returns when the next one will have been.
    pub fn close_idle(&self, now: Instant) -> Option<Instant> {
        let mut kept = self.kept.lock();
        let kept = kept.as_mut()?;
        let closed = kept.partition_point(|(since, _)| *since + IDLE <= now);
        kept.drain(..closed).for_each(|(_since, connection)| connection.close());
        kept.first().map(|(since, _)| *since + IDLE)
    }

    /// Closes the connections that no request uses, and the others after their requests: new requests have another sender.
    pub fn retire(&self) {
        let kept = self.kept.lock().take();
        kept.into_iter().flatten().for_each(|(_since, connection)| connection.close());
    }
}

/// Reads the answer to a validation request. Returns the least time between two requests.
fn permission(headers: &HeaderMap, origin: &str) -> Result<Duration, String> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let allowed = text("webhook-allowed-origin");
    if !allowed.is_some_and(|allowed| allowed == "*" || allowed.eq_ignore_ascii_case(origin)) {
        return Err(format!("its webhook-allowed-origin is not {origin:?} or \"*\""));
    }
    match text("webhook-allowed-rate") {
        None | Some("*") => Ok(Duration::ZERO),
        Some(rate) => {
            let per_minute: Option<u32> = rate.parse().ok().filter(|rate| *rate > 0);
            let per_minute =
                per_minute.ok_or("its webhook-allowed-rate is no number of requests per minute")?;
            Ok(Duration::from_mins(1) / per_minute)
        }
    }
}

/// The start of a text of the endpoint, for errors, logs and terminals.
pub(super) fn excerpt(text: &[u8]) -> String {
    let start = text.get(..EXCERPT_BYTES.min(text.len())).unwrap_or_default();
    String::from_utf8_lossy(start).replace(char::is_control, " ").trim().to_owned()
}

/// Whether the body of an answer is JSON.
fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    kind == "application/json" || kind.starts_with("application/") && kind.ends_with("+json")
}
