//! TLS: the certificate of the server and the authorities for client certificates. Both come from files. A reload
//! reads the files again without interrupting connections.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::RwLock;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::Protocol;
use super::overload::send_and_close;
use crate::private_file::report_readable;

/// First byte of a TLS handshake record (RFC 8446, 5.1).
const HANDSHAKE_RECORD: u8 = 22;
/// The response to a plain HTTP request. It is not a problem document, because the caller uses the wrong port or
/// scheme, and a browser may show only the text.
const PLAIN_HTTP_RESPONSE: &str = "HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\n\
     content-length: 65\r\n\r\nThis is plain HTTP, and this port speaks TLS: use https instead.\n";

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file can't be read or has the wrong content.
    #[error("can't read {what} from {}", path.display())]
    File {
        /// What the file should contain.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        source: pem::Error,
    },
    /// A file contains no certificate.
    #[error("no certificate in {}", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// The certificate and the key do not belong together, or one of them can't be used.
    #[error("can't use the certificate in {} with the key in {}", cert.display(), key.display())]
    Pair {
        /// The file of the certificate.
        cert: PathBuf,
        /// The file of the key.
        key: PathBuf,
        /// The cause.
        source: rustls::Error,
    },
    /// The authorities of client certificates can't be used.
    #[error("can't use the certificates in {} to verify client certificates", path.display())]
    Trust {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: VerifierBuilderError,
    },
    /// One authority of client certificates can't be used.
    #[error("can't use a certificate in {}", path.display())]
    Root {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: rustls::Error,
    },
}

/// The files with certificates and keys.
#[derive(Clone, Debug)]
pub struct Files {
    /// The certificate of the server, followed by its chain.
    pub cert: PathBuf,
    /// The key of that certificate.
    pub key: PathBuf,
    /// The authorities of client certificates; `None` requests no client certificate.
    pub client_ca: Option<PathBuf>,
}

/// TLS as configured by the files when they were last read.
#[derive(Debug)]
pub struct Tls {
    files: Files,
    loaded: RwLock<Loaded>,
}

#[derive(Debug)]
struct Loaded {
    /// The configuration of the listeners with HTTP/1.1.
    config: Arc<ServerConfig>,
    /// The same for HTTP/2.
    http2: Arc<ServerConfig>,
    /// The certificate of the server, followed by its chain.
    chain: Vec<CertificateDer<'static>>,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// [`Error`] names the file.
    pub fn new(files: Files) -> Result<Self, Error> {
        let loaded = RwLock::new(read(&files)?);
        Ok(Self { files, loaded })
    }

    /// Reads the files again, and returns whether the certificate has changed. Existing connections do not change. An error
    /// changes nothing.
    ///
    /// # Errors
    /// [`Error`] names the file.
    pub fn reload(&self) -> Result<bool, Error> {
        let read = read(&self.files)?;
        let mut loaded = self.loaded.write();
        let changed = loaded.chain != read.chain;
        *loaded = read;
        Ok(changed)
    }

    /// When the certificate of the server expires, in microseconds since the Unix epoch; `None` if it can't be read.
    #[must_use]
    pub fn expires_us(&self) -> Option<u64> {
        let loaded = self.loaded.read();
        let (_, certificate) = x509_parser::parse_x509_certificate(loaded.chain.first()?).ok()?;
        let seconds = certificate.validity().not_after.timestamp();
        // An expiry before 1970 is as good as one in 1970.
        u64::try_from(seconds).unwrap_or_default().checked_mul(1_000_000)
    }

    /// The acceptor for the next connection.
    pub(super) fn acceptor(&self, protocol: Protocol) -> TlsAcceptor {
        let loaded = self.loaded.read();
        let config = match protocol {
            Protocol::Http1 => &loaded.config,
            Protocol::Http2 => &loaded.http2,
        };
        config.clone().into()
    }
}

/// Performs the handshake of a connection. A client that speaks plain HTTP gets a response that says so.
pub(super) async fn handshake(acceptor: TlsAcceptor, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
    let mut first = [0];
    let read = stream.peek(&mut first).await?;
    if read > 0 && first != [HANDSHAKE_RECORD] {
        send_and_close(stream, PLAIN_HTTP_RESPONSE.as_bytes()).await?;
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the first byte begins no TLS handshake"));
    }
    acceptor.accept(stream).await
}

/// The server requests a client certificate but accepts a connection without one. Health checks have no certificate,
/// and a response explains a missing certificate better than a failed handshake.
fn read(files: &Files) -> Result<Loaded, Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let chain = certificates(&files.cert)?;
    if let Ok(metadata) = fs::metadata(&files.key) {
        report_readable("server.tls_key", &files.key, &metadata);
    }
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|source| Error::File {
        what: "a private key",
        path: files.key.clone(),
        source,
    })?;
    let pair = |source| Error::Pair { cert: files.cert.clone(), key: files.key.clone(), source };
    let builder = ServerConfig::builder_with_provider(provider.clone());
    let builder = builder.with_safe_default_protocol_versions().map_err(pair)?;
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(path)? {
                roots.add(certificate).map_err(|source| Error::Root { path: path.clone(), source })?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
            let verifier = verifier.allow_unauthenticated().build();
            builder.with_client_cert_verifier(
                verifier.map_err(|source| Error::Trust { path: path.clone(), source })?,
            )
        }
    };
    let mut config = builder.with_single_cert(chain.clone(), key).map_err(pair)?;
    let mut http2 = config.clone();
    http2.alpn_protocols = vec![b"h2".to_vec()];
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Loaded { config: Arc::new(config), http2: Arc::new(http2), chain })
}

/// The certificates in a file, at least one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let failed = |source| Error::File { what: "certificates", path: path.to_owned(), source };
    let all = CertificateDer::pem_file_iter(path).map_err(failed)?;
    let all: Vec<_> = all.collect::<Result<_, _>>().map_err(failed)?;
    if all.is_empty() {
        return Err(Error::Empty { path: path.to_owned() });
    }
    Ok(all)
}
