//! HTTP for the sources: GET requests with limits on time and size, pages that are requested again after failures,
//! and errors without secrets.

mod patience;

use std::borrow::Cow;
use std::error::Error as StdError;
use std::io::{self, Read as _};
use std::path::Path;
use std::time::Duration;

use deltaq_runtime::clock;
use deltaq_types::duration::DurationText;
use flate2::read::MultiGzDecoder;
use reqwest::header::{
    ACCEPT, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION,
    TRANSFER_ENCODING,
};
use reqwest::redirect::Policy;
use reqwest::{Certificate, Response, StatusCode, Url, Version};
use serde_json::Value;

use self::patience::retry_after;
pub(super) use self::patience::{Patience, may_pass};
use super::{Error, Refusal};

/// Timeout for connecting, including the TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The time of silence after which the operating system checks that a connection still exists.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// Maximum number of redirects of a request.
const REDIRECTS_MAX: usize = 5;
/// Maximum number of bytes that are read from the body of a refusal.
const SAID_BYTES_MAX: usize = 16 << 10;
/// Maximum number of characters of that body that an error shows.
const SAID_CHARS_SHOWN: usize = 300;
/// Maximum number of characters of any other reply that an error shows.
const SHOWN_CHARS: usize = 100;
/// Minimum length of a value that is hidden. A shorter one may be a part of any text.
const SECRET_MIN: usize = 5;
/// The first bytes of gzip, which no JSON begins with.
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// How often a body may be packed: by a server, and again by a proxy in front of it.
const PACKED_MAX: usize = 2;
/// Names that some servers send as an encoding although the content is not changed by it.
const NO_ENCODINGS: [&str; 9] =
    ["", "7bit", "8bit", "aws-chunked", "binary", "identity", "none", "utf-8", "utf8"];
const ACCEPTED: HeaderValue =
    HeaderValue::from_static("application/json, application/x-ndjson;q=0.9, */*;q=0.1");

/// A client of a source.
#[derive(Debug, Clone)]
pub(super) struct Client {
    http: reqwest::Client,
    timeout: DurationText,
    max_bytes: u64,
}

/// A complete reply that is a success or has status 304.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: StatusCode,
    /// The URL of the reply, after redirects.
    pub(super) url: Url,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
    /// Whether the end of the body is marked. Otherwise a body that is cut off may look complete.
    pub(super) has_length: bool,
    secrets: Secrets,
}

impl Client {
    /// A client that trusts the authorities of a file, or those of the system.
    pub(super) fn new(ca_file: Option<&Path>, timeout: DurationText, max_bytes: u64) -> Result<Self, Error> {
        let mut http = builder().http1_only();
        if let Some(path) = ca_file {
            http = http.tls_certs_only(authorities(path)?);
        }
        Self::of(http, timeout, max_bytes)
    }

    /// A client from a builder with other options.
    pub(super) fn of(
        builder: reqwest::ClientBuilder,
        timeout: DurationText,
        max_bytes: u64,
    ) -> Result<Self, Error> {
        let http = builder.build().map_err(|error| Error::because("can't set up HTTP", error))?;
        Ok(Self { http, timeout, max_bytes })
    }

    /// Gets a URL with a streamed body. A status other than a success is an error.
    pub(super) async fn stream(&self, url: &Url, headers: HeaderMap) -> Result<Response, Error> {
        let secrets = Secrets::new(url, &headers);
        let request = self.http.get(url.clone()).header(ACCEPT, ACCEPTED).headers(headers);
        let sent = async {
            let response = request.send().await.map_err(|error| failed(url, error))?;
            checked(url, response, &secrets).await
        };
        let late = |_| Error::new(format!("no reply in time (timeout) from {}", shown(url)));
        let response = tokio::time::timeout(self.timeout.get(), sent).await.map_err(late)??;
        if is_packed(url, &response)? {
            let what = format!("{} has the encoding gzip, without being asked for it", shown(url));
            return Err(Error::new(what));
        }
        Ok(response)
    }

    /// Gets a URL. A status other than a success or 304 is an error.
    pub(super) async fn get(&self, url: &Url, headers: HeaderMap) -> Result<Reply, Error> {
        let secrets = Secrets::new(url, &headers);
        let request = self.http.get(url.clone()).header(ACCEPT, ACCEPTED).headers(headers);
        let response = request.timeout(self.timeout.get()).send().await;
        let response = checked(url, response.map_err(|error| failed(url, error))?, &secrets).await?;
        let (status, headers) = (response.status(), response.headers().clone());
        if ![StatusCode::OK, StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED].contains(&status) {
            let why = "the list is not complete, or not the answer of its server";
            let error = Error::new(format!("{} answered with status {status}: {why}", shown(url)));
            let retry_after = retry_after(status, &headers, clock::wall_us());
            return Err(Error { refusal: Some(Refusal::Status(status)), ..error }.retry_after(retry_after));
        }
        let (from, is_packed) = (response.url().clone(), is_packed(url, &response)?);
        let is_framed = headers.contains_key(CONTENT_LENGTH) || headers.contains_key(TRANSFER_ENCODING);
        let has_length = is_packed || is_framed || response.version() > Version::HTTP_11;
        let mut body = self.body(url, response).await?;
        if is_packed && !body.is_empty() && !body.starts_with(&GZIP) {
            return Err(Error::new(format!("the reply of {} can't be unpacked as gzip", shown(url))));
        }
        // A file that is served as it is may also be compressed.
        for _ in 0..PACKED_MAX {
            if body.starts_with(&GZIP) {
                body = self.unpacked(url, &body)?;
            }
        }
        Ok(Reply { status, url: from, headers, body, has_length, secrets })
    }

    /// The content of a body in gzip format. It is not requested, but some servers and caches send it anyway.
    fn unpacked(&self, url: &Url, body: &[u8]) -> Result<Vec<u8>, Error> {
        let mut content = Vec::new();
        let limited =
            MultiGzDecoder::new(body).take(self.max_bytes.saturating_add(1)).read_to_end(&mut content);
        limited.map_err(|error| {
            Error::because(format!("the reply of {} can't be unpacked as gzip", shown(url)), error)
        })?;
        if content.len() as u64 > self.max_bytes { Err(self.too_long(url)) } else { Ok(content) }
    }

    fn too_long(&self, url: &Url) -> Error {
        let (url, max_bytes) = (shown(url), self.max_bytes);
        Error::new(format!("the reply of {url} has more than {max_bytes} bytes (max_bytes)"))
    }

    /// Gets a page after the first one of a list. After a failure that may pass, only this page is requested again,
    /// because a list that starts over could reach the same rate limit at the same page forever. `headers` is called
    /// for each request, so that credentials that were replaced in the meantime are used. Other failures, such as an
    /// expired cursor, are returned to the caller.
    pub(super) async fn page(
        &self,
        url: &Url,
        headers: impl Fn() -> Result<HeaderMap, Error>,
        patience: &mut Patience<'_>,
    ) -> Result<Reply, Error> {
        let mut page = patience.page();
        loop {
            let sent = headers()?;
            let error = match self.get(url, sent.clone()).await {
                Ok(reply) => return Ok(reply),
                Err(error) => error,
            };
            let are_new = error.status() == Some(StatusCode::UNAUTHORIZED) && headers()? != sent;
            page.wait(error, are_new).await?;
        }
    }

    async fn body(&self, url: &Url, mut response: Response) -> Result<Vec<u8>, Error> {
        let mut body = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(|error| failed(url, error))? {
            if (body.len() + piece.len()) as u64 > self.max_bytes {
                return Err(self.too_long(url));
            }
            body.extend_from_slice(&piece);
        }
        Ok(body)
    }
}

impl Reply {
    /// What an error says about an unexpected reply: its type, its URL, and how it begins.
    pub(super) fn clue(&self, asked: &Url) -> String {
        let kind =
            self.headers.get(CONTENT_TYPE).map(|kind| in_one_line(&String::from_utf8_lossy(kind.as_bytes())));
        let kind = kind.unwrap_or_else(|| "no content type".to_owned());
        let from = if self.url == *asked { String::new() } else { format!(" from {}", shown(&self.url)) };
        // A secret that begins in the shown part must not be cut, or it would not be found.
        let begin = self.body.get(..self.body.len().min(SAID_BYTES_MAX)).unwrap_or_default();
        let begin = self.secrets.hide(&in_one_line(&String::from_utf8_lossy(begin)));
        let begin: String = begin.chars().take(SHOWN_CHARS).collect();
        format!("{kind}{from}, which begins with {begin:?}")
    }

    /// The content type without its parameters; empty if there is none.
    pub(super) fn kind(&self) -> String {
        kind(&self.headers)
    }

    /// Whether the reply declares that it has one object per line.
    pub(super) fn has_lines(&self) -> bool {
        let kind = self.kind();
        kind.contains("ndjson") || kind.contains("jsonl") || kind.contains("json-lines")
    }
}

/// A client that follows redirects only within one server, because headers with secrets are for no other server.
pub(super) fn builder() -> reqwest::ClientBuilder {
    // An error means that this process has installed a provider before.
    let _installed = rustls::crypto::ring::default_provider().install_default();
    let policy = Policy::custom(|attempt| {
        let is_same = attempt.previous().iter().all(|url| url.origin() == attempt.url().origin());
        if !is_same || attempt.previous().len() > REDIRECTS_MAX { attempt.stop() } else { attempt.follow() }
    });
    reqwest::Client::builder()
        .redirect(policy)
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_keepalive(KEEPALIVE)
        .user_agent(concat!("deltaq-reflect/", env!("CARGO_PKG_VERSION")))
}

/// A text from a server for display: on one line and without control characters.
fn in_one_line(text: &str) -> String {
    let words = text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join(" ")
}

/// The certificates of a PEM file.
pub(super) fn authorities(path: &Path) -> Result<Vec<Certificate>, Error> {
    let file = path.display();
    let pem =
        std::fs::read(path).map_err(|error| Error::because(format!("can't read {file} (ca_file)"), error))?;
    certificates(&pem, &format!("{file} (ca_file)"))
}

/// The certificates in a PEM text, at least one.
pub(super) fn certificates(pem: &[u8], of: &str) -> Result<Vec<Certificate>, Error> {
    let certificates = Certificate::from_pem_bundle(pem).unwrap_or_default();
    if certificates.is_empty() {
        return Err(Error::new(format!("{of} has no certificate in PEM")));
    }
    Ok(certificates)
}

/// The response, if it is a success or has status 304.
async fn checked(url: &Url, response: Response, secrets: &Secrets) -> Result<Response, Error> {
    let status = response.status();
    if status.is_success() || status == StatusCode::NOT_MODIFIED {
        return Ok(response);
    }
    let advice = match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => "; check its credentials",
        status if status.is_redirection() && leads_away(&response) => {
            "; a redirect to another server is not followed"
        }
        _ => "",
    };
    let retry_after = retry_after(status, response.headers(), clock::wall_us());
    let kind = kind(response.headers());
    let said = said(response, secrets).await.map_or(String::new(), |said| format!(": {said}"));
    let error = Error::new(format!("{} answered with status {status}{advice}{said}", shown(url)));
    Err(Error { refusal: Some(Refusal::Status(status)), kind, ..error }.retry_after(retry_after))
}

/// The content type without its parameters; empty if there is none.
fn kind(headers: &HeaderMap) -> String {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// The message in the body of a refusal: that of a JSON document, or the beginning of a text.
async fn said(mut response: Response, secrets: &Secrets) -> Option<String> {
    let mut body = Vec::new();
    while body.len() < SAID_BYTES_MAX
        && let Ok(Some(piece)) = response.chunk().await
    {
        body.extend_from_slice(&piece);
    }
    let said = serde_json::from_slice::<Value>(&body).ok().as_ref().and_then(message);
    let text = said.unwrap_or_else(|| String::from_utf8_lossy(&body).into_owned());
    let shown: String = secrets.hide(&in_one_line(&text)).chars().take(SAID_CHARS_SHOWN).collect();
    (!shown.is_empty()).then_some(shown)
}

/// The message of a JSON document that describes an error, found by the member names that APIs use.
fn message(document: &Value) -> Option<String> {
    let found = ["message", "detail", "error_description", "error", "title"].iter().find_map(|name| {
        let found = document.get(name)?;
        found.as_str().map(str::to_owned).or_else(|| message(found))
    })?;
    Some(found).filter(|found| !found.is_empty())
}

/// Whether the body is in gzip format. Other encodings are refused.
fn is_packed(url: &Url, response: &Response) -> Result<bool, Error> {
    let encodings = response.headers().get_all(CONTENT_ENCODING);
    let texts =
        encodings.iter().map(|encoding| String::from_utf8_lossy(encoding.as_bytes()).to_ascii_lowercase());
    let all = texts.collect::<Vec<_>>().join(",");
    let encodings = all.split(',').map(str::trim).filter(|encoding| !NO_ENCODINGS.contains(encoding));
    let encodings: Vec<_> = encodings.collect();
    if encodings.len() > PACKED_MAX || !encodings.iter().all(|encoding| ["gzip", "x-gzip"].contains(encoding))
    {
        let what = format!("{} has the encoding {all:?}, without being asked for it", shown(url));
        return Err(Error::new(what));
    }
    Ok(!encodings.is_empty())
}

/// Whether a redirect leads to another server.
fn leads_away(response: &Response) -> bool {
    let location = response.headers().get(LOCATION).and_then(|location| location.to_str().ok());
    let target = location.and_then(|location| response.url().join(location).ok());
    target.is_some_and(|target| target.origin() != response.url().origin())
}

/// The error of a request, without its URL, because the query may contain a secret.
pub(super) fn failed(url: &Url, error: reqwest::Error) -> Error {
    let what = if error.is_timeout() {
        "no reply in time (timeout) from"
    } else if error.is_connect() {
        "can't connect to"
    } else {
        "the connection broke to"
    };
    let of_tls = cause::<rustls::Error>(&error);
    let is_plain = matches!(of_tls, Some(rustls::Error::InvalidMessage(_)));
    let is_no_http =
        cause::<hyper::Error>(&error).is_some_and(|error| error.is_parse() || error.is_incomplete_message());
    let advice = match url.scheme() {
        "https" if is_plain => "; a server without TLS needs http://",
        "http" if is_no_http => "; a server with TLS needs https://",
        _ => "",
    };
    let refusal = match of_tls {
        Some(_) => Refusal::Tls,
        None if error.is_connect() => Refusal::NoConnection,
        None => Refusal::Broken,
    };
    let error = Error::because(format!("{what} {}{advice}", shown(url)), error.without_url());
    Error { refusal: Some(refusal), ..error }
}

/// The first error of this type among an error and its causes.
fn cause<'e, E: StdError + 'static>(error: &'e (dyn StdError + 'static)) -> Option<&'e E> {
    // An I/O error does not include the error that it contains in the chain of its causes.
    let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    error
        .downcast_ref()
        .or_else(|| inner.and_then(|inner| cause(inner)))
        .or_else(|| error.source().and_then(|error| cause(error)))
}

/// The values of a request that may be secrets: those of its query and of its headers. A reply may repeat them.
#[derive(Debug)]
struct Secrets(Vec<String>);

impl Secrets {
    fn new(url: &Url, headers: &HeaderMap) -> Self {
        let pairs = url.query().unwrap_or_default().split('&');
        let raw = pairs.map(|pair| pair.split_once('=').map_or(pair, |(_, value)| value));
        let mut found: Vec<String> = raw.map(str::to_owned).collect();
        let decoded = url.query_pairs().map(|(name, value)| if value.is_empty() { name } else { value });
        found.extend(decoded.map(Cow::into_owned));
        for value in headers.values().filter_map(|value| value.to_str().ok()) {
            // The credentials behind their scheme, and each cookie.
            found.push(value.to_owned());
            found.extend(value.split_once(' ').map(|(_, rest)| rest.to_owned()));
            found.extend(
                value.split([';', ',', ' ']).filter_map(|part| Some(part.split_once('=')?.1.to_owned())),
            );
        }
        found.retain(|value| value.len() >= SECRET_MIN);
        found.sort_by_key(|value| std::cmp::Reverse(value.len()));
        Self(found)
    }

    /// The text without these values.
    fn hide(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, value| text.replace(value, "***"))
    }
}

/// A URL for display, without its user and its query.
pub(super) fn shown(url: &Url) -> String {
    let mut url = url.clone();
    // These fail for URLs that can't have a user.
    let _user = url.set_username("").and_then(|()| url.set_password(None));
    url.set_query(None);
    url.set_fragment(None);
    url.to_string()
}
