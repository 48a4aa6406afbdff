//! TLS: the certificate that the server shows, and whose certificates it trusts. Both are files, and can be
//! read again while connections go on.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file can't be read, or is not what it should be.
    #[error("can't read {what} from {}", path.display())]
    File {
        /// What should be in it.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        source: pem::Error,
    },
    /// There is nothing in a file.
    #[error("there is no certificate in {}", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// Certificate and key do not go together, or can't be used.
    #[error("can't use the certificate of {} with the key of {}", cert.display(), key.display())]
    Pair {
        /// The file of the certificate.
        cert: PathBuf,
        /// The file of the key.
        key: PathBuf,
        /// Why not.
        source: rustls::Error,
    },
    /// The certificates for callers can't be used.
    #[error("can't trust the certificates of {}", path.display())]
    Trust {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: VerifierBuilderError,
    },
    /// One of the certificates for callers can't be used.
    #[error("a certificate of {} can't be used", path.display())]
    Root {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: rustls::Error,
    },
}

/// Where certificates and keys are.
#[derive(Clone, Debug)]
pub struct Files {
    /// The server's certificate, with those that it is signed by.
    pub cert: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// What callers' certificates must be signed by; none asks for none.
    pub client_ca: Option<PathBuf>,
}

/// TLS with what the files said when they were last read.
#[derive(Debug)]
pub struct Tls {
    files: Files,
    config: RwLock<Arc<ServerConfig>>,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// [`Error`] names the file.
    pub fn new(files: Files) -> Result<Self, Error> {
        let config = RwLock::new(read(&files)?);
        Ok(Self { files, config })
    }

    /// Reads the files again. Connections that are there stay as they are; after an error everything does.
    ///
    /// # Errors
    /// [`Error`] names the file.
    pub fn reload(&self) -> Result<(), Error> {
        let config = read(&self.files)?;
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = config;
        Ok(())
    }

    /// Takes the next connection.
    pub(super) fn acceptor(&self) -> TlsAcceptor {
        self.config.read().unwrap_or_else(PoisonError::into_inner).clone().into()
    }
}

/// A server asks for a caller's certificate, but takes a connection without one: the health checks have none,
/// and a caller who should have one is better told so in an answer.
fn read(files: &Files) -> Result<Arc<ServerConfig>, Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let chain = certificates(&files.cert)?;
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|source| Error::File {
        what: "a key",
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
    let mut config = builder.with_single_cert(chain, key).map_err(pair)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// The certificates of a file, of which there is at least one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let failed = |source| Error::File { what: "certificates", path: path.to_owned(), source };
    let all = CertificateDer::pem_file_iter(path).map_err(failed)?;
    let all: Vec<_> = all.collect::<Result<_, _>>().map_err(failed)?;
    if all.is_empty() {
        return Err(Error::Empty { path: path.to_owned() });
    }
    Ok(all)
}
