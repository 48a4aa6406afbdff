//! `deltaq health`: one `GET /readyz`, so that the health check of a container image needs no curl.
//!
//! Without a URL the command uses the address and TLS settings of the server with the same configuration. It accepts
//! any certificate, because the check sends nothing secret, receives only a status, and must not fail while a
//! certificate is being renewed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use deltaq_types::range::shown_url;
use reqwest::blocking::Client;
use reqwest::redirect::Policy;
use reqwest::{StatusCode, Url};

use crate::config::{self, Flags, Settings};

/// `deltaq health`.
#[derive(Debug, Clone, Args)]
pub struct Health {
    /// Address of the server, such as http://127.0.0.1:7070; without a scheme it is http [default: from the
    /// server's settings; the variable DELTAQ_URL is not read].
    #[arg(long)]
    pub url: Option<String>,
    /// Settings file of the server.
    #[arg(long, value_name = "FILE", env = "DELTAQ_CONFIG")]
    pub config: Option<PathBuf>,
}

/// Timeout for connecting, including the TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Timeout of the whole check.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a server is not considered ready.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The settings, which contain the address, can't be read.
    #[error("can't read the server's address from the settings")]
    Settings {
        /// Why.
        source: config::Error,
    },
    /// The settings have no fixed port.
    #[error("server.listen has port 0, so the port is unknown; give --url")]
    AnyPort,
    /// Not `http://host:port`.
    #[error("invalid server address {url:?}; write it like http://127.0.0.1:7070")]
    Url {
        /// The given URL.
        url: String,
    },
    /// The HTTP client can't be set up.
    #[error("can't set up an HTTP client")]
    Client {
        /// Why.
        source: reqwest::Error,
    },
    /// The host can't be resolved, or the connection is refused or times out.
    #[error("can't connect to {authority}: {cause}")]
    Connect {
        /// Host and port.
        authority: String,
        /// The first cause.
        cause: String,
    },
    /// The connection failed, or the response timed out.
    #[error("no response from {authority}")]
    Response {
        /// Host and port.
        authority: String,
        /// The error of the client.
        source: reqwest::Error,
    },
    /// The response is not HTTP/1.
    #[error("the response of {authority} is not HTTP")]
    NotHttp {
        /// Host and port.
        authority: String,
    },
    /// The server runs but is not ready: it is recovering or draining.
    #[error("{authority} is not ready: status {status}")]
    NotReady {
        /// Host and port.
        authority: String,
        /// The status of `/readyz`.
        status: u16,
    },
}

impl Health {
    /// Checks whether the server is ready.
    ///
    /// # Errors
    ///
    /// Anything except a 200 within a few seconds.
    pub fn run(&self) -> Result<(), Error> {
        let url = if let Some(url) = &self.url {
            parse(url)?
        } else {
            let settings = config::load(self.config.as_deref(), config::variables(), &Flags::default(), None);
            url_of(&settings.map_err(|source| Error::Settings { source })?)?
        };
        check(url)
    }
}

/// The root cause of a failure.
fn first_cause(error: &reqwest::Error) -> String {
    let causes = std::iter::successors(std::error::Error::source(error), |cause| cause.source());
    causes.last().map_or_else(|| error.to_string(), ToString::to_string)
}

/// The URL of a server: scheme, host and port.
fn parse(text: &str) -> Result<Url, Error> {
    let refused = || Error::Url { url: shown_url(text) };
    let with_scheme = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    // The parser silently removes line breaks instead of refusing them.
    let url = Url::parse(&with_scheme).ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_graphic()));
    let url = url.filter(|url| matches!(url.scheme(), "http" | "https")).ok_or_else(refused)?;
    let has_more = url.path() != "/" || url.query().is_some() || url.fragment().is_some();
    let has_user = !url.username().is_empty() || url.password().is_some();
    if has_more || has_user { Err(refused()) } else { Ok(url) }
}

/// The URL of the server on this machine that has these settings.
fn url_of(settings: &Settings) -> Result<Url, Error> {
    let mut address = settings.server.listen;
    if address.port() == 0 {
        return Err(Error::AnyPort);
    }
    if address.ip().is_unspecified() {
        address.set_ip(match address.ip() {
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    let scheme = if settings.server.tls_cert.is_some() { "https" } else { "http" };
    parse(&format!("{scheme}://{address}"))
}

/// Host and port.
fn authority(url: &Url) -> String {
    let port = url.port_or_known_default().unwrap_or_default();
    format!("{}:{port}", url.host_str().unwrap_or_default())
}

fn check(mut url: Url) -> Result<(), Error> {
    // An error means that this process has already installed the provider.
    let _installed = rustls::crypto::ring::default_provider().install_default();
    let authority = authority(&url);
    let client = Client::builder()
        .http1_only()
        .no_proxy()
        .redirect(Policy::none())
        .user_agent("deltaq-health")
        .connect_timeout(CONNECT_TIMEOUT)
        .timeout(CHECK_TIMEOUT)
        .tls_danger_accept_invalid_certs(true)
        .build()
        .map_err(|source| Error::Client { source })?;
    url.set_path("/readyz");
    match client.get(url).send() {
        Ok(response) if response.status() == StatusCode::OK => Ok(()),
        Ok(response) => Err(Error::NotReady { authority, status: response.status().as_u16() }),
        Err(error) if error.is_connect() => Err(Error::Connect { authority, cause: first_cause(&error) }),
        Err(error) if is_not_http(&error) => Err(Error::NotHttp { authority }),
        Err(error) => Err(Error::Response { authority, source: error.without_url() }),
    }
}

/// Whether the server sent bytes that are not HTTP, or closed the connection without a response.
fn is_not_http(error: &reqwest::Error) -> bool {
    let mut causes = std::iter::successors(std::error::Error::source(error), |cause| cause.source());
    causes.any(|cause| {
        let cause = cause.downcast_ref::<hyper::Error>();
        cause.is_some_and(|error| error.is_parse() || error.is_incomplete_message())
    })
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use super::*;

    fn check_text(url: &str) -> Result<(), Error> {
        check(parse(url)?)
    }

    /// A server that answers one request with these bytes: its URL, and a thread that returns the request.
    fn answering(answer: &'static [u8]) -> (String, std::thread::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            let mut byte = [0];
            while !request.ends_with(b"\r\n\r\n") {
                stream.read_exact(&mut byte).unwrap();
                request.push(byte[0]);
            }
            stream.write_all(answer).unwrap();
            String::from_utf8(request).unwrap()
        });
        (url, server)
    }

    #[test]
    fn only_200_is_ready() {
        let (url, server) = answering(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
        check_text(&url).unwrap();
        let request = server.join().unwrap();
        assert!(request.starts_with("GET /readyz HTTP/1.1\r\n"), "{request}");
        assert!(request.contains("\r\nhost: 127.0.0.1:"), "{request}");

        let (url, server) = answering(b"HTTP/1.1 503 Service Unavailable\r\n\r\n");
        assert!(matches!(check_text(&url), Err(Error::NotReady { status: 503, .. })));
        server.join().unwrap();
    }

    #[test]
    fn a_response_that_is_not_http_is_reported() {
        for answer in
            [&b"SSH-2.0-OpenSSH_9.9\r\n"[..], b"", b"HTTP/1.1 OK!\r\n\r\n", b"HTTP/1.1 \xff\xff\xff\xff"]
        {
            let (url, server) = answering(answer);
            assert!(matches!(check_text(&url), Err(Error::NotHttp { .. })), "{answer:?}");
            server.join().unwrap();
        }
    }

    #[test]
    fn a_refused_connection_is_reported() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        drop(listener);
        assert!(matches!(check_text(&url), Err(Error::Connect { .. })));
    }

    #[test]
    fn urls() {
        for (url, expected) in [
            ("http://127.0.0.1:7070", "127.0.0.1:7070"),
            ("http://localhost:7070/", "localhost:7070"),
            ("http://deltaq", "deltaq:80"),
            ("http://[::1]:7070", "[::1]:7070"),
            ("http://[::1]", "[::1]:80"),
            ("https://a", "a:443"),
        ] {
            assert_eq!(authority(&parse(url).unwrap()), expected);
        }
        for url in [
            "",
            "127.0.0.1:7070/readyz",
            "ftp://a:1",
            "http://",
            "http:///",
            "http://a/b",
            "http://u@a",
            "http://a?b",
            "http://a\r\nx",
        ] {
            assert!(matches!(parse(url), Err(Error::Url { .. })), "{url:?}");
        }
        for url in ["http://u:SECRET@a", "a?token=SECRET"] {
            assert!(!parse(url).unwrap_err().to_string().contains("SECRET"), "{url}");
        }
    }

    #[test]
    fn the_settings_give_the_address() {
        let mut settings = Settings::default();
        let target = |settings: &Settings| url_of(settings).map(|url| authority(&url));
        for (listen, authority) in [
            ("127.0.0.1:7070", "127.0.0.1:7070"),
            ("0.0.0.0:80", "127.0.0.1:80"),
            ("[::]:80", "[::1]:80"),
            ("10.0.0.7:80", "10.0.0.7:80"),
        ] {
            settings.server.listen = listen.parse().unwrap();
            assert_eq!(target(&settings).unwrap(), authority);
        }
        settings.server.listen = "127.0.0.1:0".parse().unwrap();
        assert!(matches!(target(&settings), Err(Error::AnyPort)));
    }

    #[test]
    fn tls_settings_give_https() {
        let mut settings = Settings::default();
        assert_eq!(url_of(&settings).unwrap().as_str(), "http://127.0.0.1:7070/");
        settings.server.tls_cert = Some(PathBuf::from("/etc/deltaq/tls.crt"));
        assert_eq!(url_of(&settings).unwrap().as_str(), "https://127.0.0.1:7070/");
    }

    #[test]
    fn redirects_are_not_followed() {
        let (url, server) =
            answering(b"HTTP/1.1 302 Found\r\nlocation: /elsewhere\r\ncontent-length: 0\r\n\r\n");
        assert!(matches!(check_text(&url), Err(Error::NotReady { status: 302, .. })));
        server.join().unwrap();
    }
}
