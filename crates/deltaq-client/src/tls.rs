//! TLS with a provider of its own. The program that uses this library may have installed another one, or none.

use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::Verifier;

use crate::error::{BoxError, Error};

/// Which servers are trusted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Trust<'a> {
    /// Those of the authorities of the system.
    System,
    /// Those of these authorities, in PEM.
    Only(&'a [u8]),
    /// None: no connection uses TLS. A machine without certificates of authorities can use plain HTTP.
    Nobody,
}

/// The configuration of connections, with a certificate and its key in PEM if the server asks for one.
pub(crate) fn config(trust: Trust<'_>, identity_pem: Option<&[u8]>) -> Result<ClientConfig, Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions();
    let builder = builder.map_err(failed)?;
    let builder = match trust {
        Trust::System => {
            let verifier = Verifier::new(provider).map_err(failed)?;
            builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
        }
        Trust::Only(pem) => builder.with_root_certificates(authorities(pem)?),
        Trust::Nobody => builder.with_root_certificates(RootCertStore::empty()),
    };
    let mut config = match identity_pem {
        None => builder.with_no_client_auth(),
        Some(pem) => {
            let chain = certificates(pem)?;
            let key = PrivateKeyDer::from_pem_slice(pem).map_err(failed)?;
            builder.with_client_auth_cert(chain, key).map_err(failed)?
        }
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn authorities(pem: &[u8]) -> Result<RootCertStore, Error> {
    let mut store = RootCertStore::empty();
    for certificate in certificates(pem)? {
        store.add(certificate).map_err(failed)?;
    }
    if store.is_empty() { Err(Error::NoAuthority) } else { Ok(store) }
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Error> {
    CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(failed)
}

fn failed(source: impl Into<BoxError>) -> Error {
    Error::Tls { source: source.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Client, ClientOptions};

    const AUTHORITY: &str = "\
-----BEGIN CERTIFICATE-----
MIIBfzCCASWgAwIBAgIUTKVb6hTqbtzRIFPi61aZigsUEjowCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJYXV0aG9yaXR5MCAXDTI2MTEyOTE3NDkwMVoYDzIxMjYxMTA1
MTc0OTAxWjAUMRIwEAYDVQQDDAlhdXRob3JpdHkwWTATBgcqhkjOPQIBBggqhkjO
PQMBBwNCAARs8OV0Uxoj//v58hvdcvHOhx+PuFlhRvG3xm+zZXPxFTlaRmMD8DtR
HCJjI+pZ7xiPQY9qZ7cVyqWBTs8z6cS1o1MwUTAdBgNVHQ4EFgQUUnN/RAKOF2rU
SRLpdTeJ2//XSH4wHwYDVR0jBBgwFoAUUnN/RAKOF2rUSRLpdTeJ2//XSH4wDwYD
VR0TAQH/BAUwAwEB/zAKBggqhkjOPQQDAgNIADBFAiEA0V0BlTijRiBjrM2DTJQc
PFjOc3e0a2jDr+wEon06dvQCIAx6tlaCi7ZY0ck4DmpyuMECFAPckmVv0cjhPnLz
7Det
-----END CERTIFICATE-----
";

    #[test]
    fn no_provider_is_installed_for_the_process() {
        let mut options = ClientOptions::new("https://queues.example");
        options.ca_pem = Some(AUTHORITY.into());
        Client::new(options).expect("a client");
        assert!(rustls::crypto::CryptoProvider::get_default().is_none());
    }

    #[test]
    fn what_is_no_certificate_is_refused() {
        assert!(matches!(config(Trust::Only(b""), None), Err(Error::NoAuthority)));
        assert!(matches!(config(Trust::Nobody, Some(b"")), Err(Error::Tls { .. })));
        let broken = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert!(matches!(config(Trust::Only(broken), None), Err(Error::Tls { .. })));
    }
}
