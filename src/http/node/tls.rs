//! TLS for calls between nodes: the authorities that sign the certificates of other nodes, and the certificate of
//! this node.

use std::error::Error as StdError;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::private_file::report_readable;

/// Why calls between nodes can't use TLS.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file can't be read or has the wrong content.
    #[error("can't read the file of cluster.{setting}, {}", path.display())]
    File {
        /// The setting that names the file.
        setting: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        source: pem::Error,
    },
    /// A certificate can't be used.
    #[error("can't use a certificate of cluster.{setting}")]
    Certificate {
        /// The setting that names the file.
        setting: &'static str,
        /// The cause.
        source: rustls::Error,
    },
}

/// The files with certificates and keys.
#[derive(Clone, Debug, Default)]
pub(super) struct Files {
    /// The authorities; `None` uses those of the system.
    pub(super) authorities: Option<PathBuf>,
    /// The certificate of this node with its chain, and its key; `None` presents no certificate.
    pub(super) own: Option<(PathBuf, PathBuf)>,
}

impl Files {
    pub(super) fn read(&self) -> Result<ClientConfig, Error> {
        let mut roots = RootCertStore::empty();
        if let Some(path) = &self.authorities {
            let setting = "ca_file";
            for certificate in certificates(setting, path)? {
                roots.add(certificate).map_err(|source| Error::Certificate { setting, source })?;
            }
        } else {
            // A machine without authorities can use plain HTTP.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        let setting = "tls_cert";
        let unusable = |source| Error::Certificate { setting, source };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.map_err(unusable)?.with_root_certificates(roots);
        let Some((cert, key)) = &self.own else { return Ok(builder.with_no_client_auth()) };
        let chain = certificates(setting, cert)?;
        if let Ok(metadata) = fs::metadata(key) {
            report_readable("cluster.tls_key", key, &metadata);
        }
        let key = PrivateKeyDer::from_pem_file(key).map_err(|source| Error::File {
            setting: "tls_key",
            path: key.clone(),
            source,
        })?;
        builder.with_client_auth_cert(chain, key).map_err(unusable)
    }
}

/// The certificates in a file, at least one.
fn certificates(setting: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let failed = |source| Error::File { setting, path: path.to_owned(), source };
    let all = CertificateDer::pem_file_iter(path).map_err(failed)?;
    let all: Vec<_> = all.collect::<Result<_, _>>().map_err(failed)?;
    if all.is_empty() {
        let source = io::Error::new(io::ErrorKind::InvalidData, "the file has no certificate");
        return Err(failed(pem::Error::Io(source)));
    }
    Ok(all)
}

/// Whether a call has failed because of the certificate of the other node or of this node.
pub(super) fn is_refused(error: &(dyn StdError + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(rustls::Error::InvalidCertificate(_) | rustls::Error::AlertReceived(_)) =
            error.downcast_ref()
        {
            return true;
        }
        // The source of an I/O error is not the error that it contains, but the source of the contained error.
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        cause = inner.map_or_else(|| error.source(), |inner| Some(inner));
    }
    false
}
