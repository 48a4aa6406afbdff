//! `deltaq health`: one `GET /readyz`, so that the health check of a container image needs no curl.
//!
//! This is not a general HTTP client: it reads only the status line. Without a URL it uses the address and TLS settings of
//! the server with the same configuration.

mod tls;

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs as _};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::config::{self, Flags, Settings};

/// `deltaq health`.
#[derive(Debug, Clone, Args)]
pub struct Health {
    /// The server's address, such as http://127.0.0.1:7070 or https://.. [default: that of the settings].
    #[arg(long)]
    pub url: Option<String>,
    /// Settings file of the server.
    #[arg(long, value_name = "FILE", env = "DELTAQ_CONFIG")]
    pub config: Option<PathBuf>,
}

/// The server to check.
#[derive(Debug, PartialEq, Eq)]
struct Target {
    /// Host and port.
    authority: String,
    speaks_tls: bool,
}

/// Timeout of the connection, the request, and each read.
const STEP_TIMEOUT: Duration = Duration::from_secs(2);

/// Bytes of the response that are read: `HTTP/1.1 200`.
const STATUS_LINE_BYTES: usize = 12;

/// Why a server is not considered ready.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The settings, which have the address, can't be read.
    #[error("can't read the server's address from the settings")]
    Settings {
        /// Why.
        source: config::Error,
    },
    /// The settings have no fixed port.
    #[error("server.listen has port 0, so the port is unknown; give --url")]
    AnyPort,
    /// Not `http://host:port`.
    #[error("invalid URL {url:?}; write it like http://127.0.0.1:7070")]
    Url {
        /// The given URL.
        url: String,
    },
    /// The host name can't be resolved.
    #[error("can't resolve {authority}")]
    Resolve {
        /// Host and port.
        authority: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The connection is refused or times out.
    #[error("can't connect to {authority}")]
    Connect {
        /// Host and port.
        authority: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The connection failed, or the response timed out.
    #[error("no response from {authority}")]
    Answer {
        /// Host and port.
        authority: String,
        /// The error of the operating system.
        source: io::Error,
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
        let target = if let Some(url) = &self.url {
            Target::of_url(url)?
        } else {
            let settings = config::load(self.config.as_deref(), config::variables(), &Flags::default());
            Target::of_settings(&settings.map_err(|source| Error::Settings { source })?)?
        };
        target.check()
    }
}

impl Target {
    fn of_url(url: &str) -> Result<Self, Error> {
        let speaks_tls = url.starts_with("https://");
        let (scheme, port) = if speaks_tls { ("https://", 443) } else { ("http://", 80) };
        Ok(Self { authority: authority(url, scheme, port)?, speaks_tls })
    }

    /// The server with these settings, on this machine.
    fn of_settings(settings: &Settings) -> Result<Self, Error> {
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
        Ok(Self { authority: address.to_string(), speaks_tls: settings.server.tls_cert.is_some() })
    }

    fn check(self) -> Result<(), Error> {
        let Self { authority, speaks_tls } = self;
        let mut stream = connect(&authority)?;
        let status = if speaks_tls {
            tls::over(stream).and_then(|mut stream| ask(&mut stream, &authority))
        } else {
            ask(&mut stream, &authority)
        };
        match status.map_err(|source| Error::Answer { authority: authority.clone(), source })? {
            Some(200) => Ok(()),
            Some(status) => Err(Error::NotReady { authority, status }),
            None => Err(Error::NotHttp { authority }),
        }
    }
}

/// Host and port of the URL, with the default port of its scheme.
fn authority(url: &str, scheme: &str, port: u16) -> Result<String, Error> {
    let refused = || Error::Url { url: url.to_owned() };
    let rest = url.strip_prefix(scheme).ok_or_else(refused)?;
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    let allowed =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b':' | b'[' | b']');
    if authority.is_empty() || !authority.bytes().all(allowed) {
        return Err(refused());
    }
    let after_ip = authority.rsplit(']').next().unwrap_or(authority);
    Ok(if after_ip.contains(':') { authority.to_owned() } else { format!("{authority}:{port}") })
}

/// Connects to the first address of the host that accepts.
fn connect(authority: &str) -> Result<TcpStream, Error> {
    let resolve = |source| Error::Resolve { authority: authority.to_owned(), source };
    let connect = |source| Error::Connect { authority: authority.to_owned(), source };
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in authority.to_socket_addrs().map_err(resolve)? {
        match open(address) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(connect(last))
}

fn open(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, STEP_TIMEOUT)?;
    stream.set_read_timeout(Some(STEP_TIMEOUT))?;
    stream.set_write_timeout(Some(STEP_TIMEOUT))?;
    Ok(stream)
}

/// The status of the response, if it is HTTP.
fn ask(stream: &mut (impl Read + Write), authority: &str) -> io::Result<Option<u16>> {
    let request = format!(
        "GET /readyz HTTP/1.1\r\nhost: {authority}\r\nuser-agent: deltaq-health\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes())?;
    let mut line = [0; STATUS_LINE_BYTES];
    match stream.read_exact(&mut line) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    let line = std::str::from_utf8(&line).unwrap_or_default();
    Ok(line
        .strip_prefix("HTTP/1.")
        .and_then(|rest| rest.split_once(' '))
        .and_then(|(_, status)| status.parse().ok()))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn check(url: &str) -> Result<(), Error> {
        Target::of_url(url)?.check()
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
        check(&url).unwrap();
        let request = server.join().unwrap();
        assert!(request.starts_with("GET /readyz HTTP/1.1\r\nhost: 127.0.0.1:"), "{request}");

        let (url, server) = answering(b"HTTP/1.1 503 Service Unavailable\r\n\r\n");
        assert!(matches!(check(&url), Err(Error::NotReady { status: 503, .. })));
        server.join().unwrap();
    }

    #[test]
    fn a_response_that_is_not_http_is_reported() {
        for answer in
            [&b"SSH-2.0-OpenSSH_9.9\r\n"[..], b"", b"HTTP/1.1 OK!\r\n\r\n", b"HTTP/1.1 \xff\xff\xff\xff"]
        {
            let (url, server) = answering(answer);
            assert!(matches!(check(&url), Err(Error::NotHttp { .. })), "{answer:?}");
            server.join().unwrap();
        }
    }

    #[test]
    fn a_refused_connection_is_reported() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        drop(listener);
        assert!(matches!(check(&url), Err(Error::Connect { .. })));
    }

    #[test]
    fn urls() {
        for (url, expected) in [
            ("http://127.0.0.1:7070", "127.0.0.1:7070"),
            ("http://localhost:7070/", "localhost:7070"),
            ("http://deltaq", "deltaq:80"),
            ("http://[::1]:7070", "[::1]:7070"),
            ("http://[::1]", "[::1]:80"),
        ] {
            assert_eq!(authority(url, "http://", 80).unwrap(), expected);
        }
        for url in [
            "",
            "127.0.0.1:7070",
            "https://a:1",
            "http://",
            "http:///",
            "http://a/b",
            "http://u@a",
            "http://a\r\nx",
        ] {
            assert!(matches!(authority(url, "http://", 80), Err(Error::Url { .. })), "{url:?}");
        }
    }

    #[test]
    fn the_settings_give_the_address() {
        let mut settings = Settings::default();
        let target = |settings: &Settings| Target::of_settings(settings).map(|target| target.authority);
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
    fn https_has_its_own_default_port() {
        let target = |url: &str| Target::of_url(url).unwrap();
        assert_eq!(target("https://a"), Target { authority: "a:443".to_owned(), speaks_tls: true });
        assert_eq!(target("http://a"), Target { authority: "a:80".to_owned(), speaks_tls: false });
    }
}
