//! The connection to a server.

use std::time::Duration;

use deltaq_types::ProblemDocument;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Certificate, Identity, StatusCode, Url};
use serde::de::DeserializeOwned;

use crate::call::{Body, Call};
use crate::error::Error;

/// Timeout of a connection, the TLS handshake included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the server may take for a request, on top of the `wait` of the request. The server itself gives up after
/// `server.request_timeout`, which is shorter by default.
const REPLY_TIMEOUT: Duration = Duration::from_mins(1);

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const NDJSON: HeaderValue = HeaderValue::from_static("application/x-ndjson");

/// How to reach a server.
#[derive(Clone, Debug, Default)]
pub struct ClientOptions {
    /// The address, such as `http://127.0.0.1:7070`. A missing scheme means `http`.
    pub url: String,
    /// The token, if the server needs one.
    pub token: Option<String>,
    /// Certificates of authorities, in PEM, to trust instead of those of the system.
    pub ca_pem: Option<Vec<u8>>,
    /// A certificate and its key, in PEM, if the server asks for one.
    pub identity_pem: Option<Vec<u8>>,
    /// The name of the program in `User-Agent`.
    pub user_agent: Option<String>,
}

/// A client of one server. Clones share its connections.
#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    base: Url,
    authorization: Option<HeaderValue>,
}

/// A successful reply.
#[derive(Debug)]
pub struct Reply {
    address: String,
    response: reqwest::Response,
}

impl Client {
    /// A client with these options. Nothing is sent yet.
    ///
    /// # Errors
    /// The address, the token or a certificate is not usable.
    pub fn new(options: ClientOptions) -> Result<Self, Error> {
        // An error means that this process has installed a provider before.
        let _installed = rustls::crypto::ring::default_provider().install_default();
        let base = parse(&options.url)?;
        let tls = |source| Error::Tls { source };
        let mut http = reqwest::Client::builder()
            .redirect(Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
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
        let authorization = options.token.map(|token| {
            let mut value =
                HeaderValue::try_from(format!("Bearer {}", token.trim())).map_err(|_| Error::Token)?;
            value.set_sensitive(true);
            Ok(value)
        });
        Ok(Self { http: http.build().map_err(tls)?, base, authorization: authorization.transpose()? })
    }

    /// Sends a request once.
    ///
    /// # Errors
    /// The connection failed, or the server refused the request.
    pub async fn send(&self, call: Call) -> Result<Reply, Error> {
        let mut request = self.http.request(call.method.clone(), call.url(&self.base));
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization.clone());
        }
        let sends_list = matches!(call.body, Body::Ndjson(_));
        if !call.streams && !sends_list {
            request = request.timeout(REPLY_TIMEOUT.saturating_add(call.wait));
        }
        request = request.header(ACCEPT, if call.streams { NDJSON } else { JSON });
        request = match call.body {
            Body::Empty => request,
            Body::Json(text) => request.header(CONTENT_TYPE, JSON).body(text),
            Body::Ndjson(body) => request.header(CONTENT_TYPE, NDJSON).body(body),
        };
        let address = self.address();
        let response = request.send().await.map_err(|error| self.failed(error))?;
        let status = response.status();
        if status.is_success() || status == StatusCode::NOT_MODIFIED {
            return Ok(Reply { address, response });
        }
        let text = response.bytes().await.map_err(|error| self.failed(error))?;
        match serde_json::from_slice::<ProblemDocument>(&text) {
            Ok(problem) => Err(Error::Problem(Box::new(problem))),
            Err(_) => Err(Error::NotDeltaq { address, status: status.as_u16() }),
        }
    }

    /// Sends a request once and reads the document of the reply.
    ///
    /// # Errors
    /// As [`Client::send`], or the reply is not the expected document.
    pub async fn fetch<T: DeserializeOwned>(&self, call: Call) -> Result<T, Error> {
        self.send(call).await?.document().await
    }

    /// Sends a settle or an extend once and reads the results. If all leases had ended, the server refuses the call
    /// (`lease-lost`) with the same results.
    ///
    /// # Errors
    /// As [`Client::fetch`], except for `lease-lost`.
    pub async fn fetch_results<T: DeserializeOwned>(&self, call: Call) -> Result<T, Error> {
        match self.send(call).await {
            Ok(reply) => reply.document().await,
            Err(Error::Problem(problem)) if problem.code == "lease-lost" => {
                let text = serde_json::to_string(&problem);
                let results = text.and_then(|text| serde_json::from_str(&text));
                results.map_err(|source| Error::Reply { source })
            }
            Err(error) => Err(error),
        }
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
        let Self { address, response } = self;
        let bytes = response.bytes().await;
        let bytes = bytes.map_err(|error| Error::NoReply { address, source: error.without_url() })?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
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
        serde_json::from_str(&self.text().await?).map_err(|source| Error::Reply { source })
    }
}

/// The URL of a server: scheme, host, port, and perhaps the path at which a proxy serves the API.
fn parse(address: &str) -> Result<Url, Error> {
    let refused = || Error::Address { address: address.to_owned() };
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
}
