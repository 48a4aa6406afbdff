//! A TLS connection to the one server that has a certificate which is known beforehand. Its name and who
//! signed it do not matter, so that a health check reaches `127.0.0.1` whatever the certificate is for.

use std::io;
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme,
    StreamOwned,
};

use crate::http::server::tls::{self, certificates};

/// What the connection is wrapped in.
pub(super) type Stream = StreamOwned<ClientConnection, TcpStream>;

/// The certificate that a server must show.
#[derive(Debug)]
struct Pinned {
    certificate: CertificateDer<'static>,
    provider: Arc<CryptoProvider>,
}

/// How to connect to the server that shows the first certificate of this file.
pub(super) fn trusting(file: &Path) -> Result<Arc<ClientConfig>, tls::Error> {
    let all = certificates(file)?;
    let Some(certificate) = all.into_iter().next() else {
        return Err(tls::Error::Empty { path: file.to_owned() });
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let pinned = Arc::new(Pinned { certificate, provider: provider.clone() });
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder
        .with_safe_default_protocol_versions()
        .map_err(|source| tls::Error::Root { path: file.to_owned(), source })?;
    Ok(Arc::new(builder.dangerous().with_custom_certificate_verifier(pinned).with_no_client_auth()))
}

/// Wraps a connection; the handshake is made when it is first written to.
pub(super) fn over(stream: TcpStream, config: Arc<ClientConfig>) -> io::Result<Stream> {
    let name = ServerName::from(stream.peer_addr()?.ip());
    let connection = ClientConnection::new(config, name).map_err(io::Error::other)?;
    Ok(StreamOwned::new(connection, stream))
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if *end_entity == self.certificate {
            return Ok(ServerCertVerified::assertion());
        }
        Err(CertificateError::ApplicationVerificationFailure.into())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
