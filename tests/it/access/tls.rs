//! TLS: certificates of the server and of clients.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use deltaq::config::AuditCalls;
use deltaq::server::Error;
use h2::client::Builder;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{AlertDescription, ClientConfig, RootCertStore};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::root;
use crate::harness::http2::Http2;
use crate::harness::{Client, Service, within};
use crate::server::http2::with_http2;

/// A certificate authority, and a directory for its certificates.
pub(crate) struct Authority {
    folder: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its key, in files.
pub(crate) struct Pair {
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("a certificate");
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("ca.crt"), issuer.pem()).expect("a file");
        Self { folder, issuer }
    }

    pub(crate) fn certificates(&self) -> PathBuf {
        self.folder.path().join("ca.crt")
    }

    /// Writes a certificate for `localhost` to files of this name. Existing files are replaced.
    pub(crate) fn issue(&self, name: &str) -> Pair {
        self.issue_as(name, |_| {})
    }

    /// The same for a certificate whose time is over.
    pub(crate) fn issue_expired(&self, name: &str) -> Pair {
        self.issue_as(name, |params| params.not_after = rcgen::date_time_ymd(2026, 1, 1))
    }

    fn issue_as(&self, name: &str, adapt: impl FnOnce(&mut CertificateParams)) -> Pair {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
        adapt(&mut params);
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        let at = |end: &str| self.folder.path().join(format!("{name}.{end}"));
        let pair = Pair { cert: at("crt"), key: at("key") };
        std::fs::write(&pair.cert, certificate.pem()).expect("a file");
        std::fs::write(&pair.key, key.serialize_pem()).expect("a file");
        pair
    }

    async fn serve(&self, pair: &Pair, clients: Option<&Self>) -> Service {
        Service::with(|settings| {
            settings.server.tls_cert = Some(pair.cert.clone());
            settings.server.tls_key = Some(pair.key.clone());
            settings.server.tls_client_ca = clients.map(Self::certificates);
        })
        .await
    }

    /// A connection that trusts only this authority, and the certificate that the server presented.
    pub(super) async fn connect(
        &self,
        service: &Service,
        own: Option<&Pair>,
    ) -> std::io::Result<(Client, CertificateDer<'static>)> {
        let stream = self.shake_hands(service, own).await?;
        let shown = stream.get_ref().1.peer_certificates().expect("a certificate")[0].clone();
        Ok((Client::over(stream), shown))
    }

    async fn shake_hands(
        &self,
        service: &Service,
        own: Option<&Pair>,
    ) -> std::io::Result<TlsStream<TcpStream>> {
        self.shake_hands_at(service.api, own, &[]).await
    }

    /// A handshake that offers these protocols.
    async fn shake_hands_at(
        &self,
        address: SocketAddr,
        own: Option<&Pair>,
        protocols: &[&str],
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).expect("a root");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().expect("versions");
        let builder = builder.with_root_certificates(roots);
        let mut config = match own {
            None => builder.with_no_client_auth(),
            Some(pair) => {
                let cert = CertificateDer::from_pem_file(&pair.cert).expect("a certificate");
                let key = PrivateKeyDer::from_pem_file(&pair.key).expect("a key");
                builder.with_client_auth_cert(vec![cert], key).expect("the certificate and the key match")
            }
        };
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        let stream = TcpStream::connect(address).await?;
        let name = ServerName::try_from("localhost").expect("a name");
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    }
}

async fn get(client: &mut Client, path: &str) -> u16 {
    client.call("GET", path, &Value::Null).await.status
}

#[tokio::test]
async fn requests_go_over_tls() {
    let authority = Authority::new();
    let service = authority.serve(&authority.issue("server"), None).await;
    let (mut client, _) = authority.connect(&service, None).await.expect("trusted");
    for _ in 0..2 {
        assert_eq!(get(&mut client, "/v1/info").await, 200);
    }
    assert!(Authority::new().connect(&service, None).await.is_err(), "another authority is not trusted");
}

#[tokio::test]
async fn a_client_that_sends_everything_first_reads_its_refusal_over_tls() {
    let authority = Authority::new();
    let service = authority.serve(&authority.issue("server"), None).await;
    let body = vec![b'x'; 9 << 20];
    let (mut client, _) = authority.connect(&service, None).await.expect("trusted");
    let head = format!(
        "POST /v1/queues/q/add HTTP/1.1\r\nhost: localhost\r\ncontent-type: text/plain\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    client.send_bytes(head.as_bytes()).await;
    client.send_bytes(&body).await;
    let refused = client.reply().await.problem("unsupported-media-type");
    assert_eq!(refused["type"], "https://localhost/problems/unsupported-media-type");
}

#[tokio::test]
async fn a_reloaded_certificate_applies_to_new_connections() {
    let authority = Authority::new();
    let pair = authority.issue("server");
    let service = authority.serve(&pair, None).await;
    let (mut early, first) = authority.connect(&service, None).await.expect("trusted");
    authority.issue("server");
    let reloaded = service.reloadable.reload().expect("both files are valid");
    assert!(reloaded.certificate_changed);
    let (mut late, second) = authority.connect(&service, None).await.expect("trusted");
    assert_ne!(first, second);
    assert_eq!((get(&mut early, "/v1/info").await, get(&mut late, "/v1/info").await), (200, 200));

    std::fs::copy(authority.issue("other").key, &pair.key).expect("a file");
    let error = service.reloadable.reload().expect_err("the certificate and the key do not match");
    assert!(matches!(error[..], [Error::Tls { .. }]), "{error:?}");
    let (_, third) = authority.connect(&service, None).await.expect("trusted");
    assert_eq!(second, third, "a pair that does not match changes nothing");
}

#[tokio::test]
async fn each_listener_negotiates_its_version_of_http() {
    let authority = Authority::new();
    let pair = authority.issue("server");
    let service = Service::with(|settings| {
        with_http2(settings);
        settings.server.tls_cert = Some(pair.cert.clone());
        settings.server.tls_key = Some(pair.key.clone());
    })
    .await;
    let http2 = service.http2.expect("a listener for HTTP/2");
    let (both, old) = (["h2", "http/1.1"], ["http/1.1"]);
    for (address, version) in [(service.api, "http/1.1"), (http2, "h2")] {
        let stream = authority.shake_hands_at(address, None, &both).await.expect("trusted");
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(version.as_bytes()));
    }
    assert!(authority.shake_hands_at(http2, None, &old).await.is_err(), "no version in common");
    authority.issue("server");
    let before = authority.shake_hands_at(http2, None, &both).await.expect("trusted");
    service.reloadable.reload().expect("both files are valid");
    let after = authority.shake_hands_at(http2, None, &both).await.expect("trusted");
    let certificate = |stream: &TlsStream<TcpStream>| {
        stream.get_ref().1.peer_certificates().expect("a certificate")[0].clone().into_owned()
    };
    assert_ne!(certificate(&before), certificate(&after), "the new certificate applies");
    for stream in [before, after] {
        let mut client = Http2::over(stream, &Builder::new(), "https").await.expect("HTTP/2");
        let unknown = client.get("/v1/queues/absent").await.problem("queue-not-found");
        assert_eq!(unknown["type"], "https://localhost/problems/queue-not-found");
    }
}

#[tokio::test]
async fn clients_present_certificates_where_required() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let service = authority.serve(&authority.issue("server"), Some(&clients)).await;
    let (mut anonymous, _) =
        authority.connect(&service, None).await.expect("a handshake without a certificate");
    assert_eq!((get(&mut anonymous, "/livez").await, get(&mut anonymous, "/readyz").await), (200, 200));
    let refused = anonymous.call("GET", "/v1/info", &Value::Null).await.problem("unauthorized");
    assert!(refused["detail"].as_str().is_some_and(|detail| detail.contains("certificate")), "{refused}");
    let own = clients.issue("worker");
    let (mut worker, _) = authority.connect(&service, Some(&own)).await.expect("trusted");
    assert_eq!(get(&mut worker, "/v1/info").await, 200);
    let alert = refusal(&authority, &service, &authority.issue("foreign")).await;
    assert!(
        matches!(alert, AlertDescription::UnknownCA | AlertDescription::DecryptError),
        "a certificate of another authority is refused: {alert:?}"
    );
    let (mut again, _) = authority.connect(&service, Some(&own)).await.expect("trusted");
    assert_eq!(get(&mut again, "/v1/info").await, 200, "a valid certificate is still accepted");
}

/// The alert with which the server refuses the certificate `own`. In TLS 1.3 the client completes the handshake before the
/// server checks the certificate, so the alert may arrive only at the first read.
async fn refusal(authority: &Authority, service: &Service, own: &Pair) -> AlertDescription {
    let error = match authority.shake_hands(service, Some(own)).await {
        Err(error) => error,
        Ok(mut stream) => within(stream.read_u8()).await.expect_err("the certificate must be refused"),
    };
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::AlertReceived(alert)) => *alert,
        _ => panic!("the server has not sent an alert: {error:?}"),
    }
}

#[tokio::test]
async fn a_certificate_does_not_replace_a_token() {
    let authority = Authority::new();
    let pair = authority.issue("server");
    let service = Service::with(|settings| {
        settings.server.tls_cert = Some(pair.cert.clone());
        settings.server.tls_key = Some(pair.key.clone());
        settings.server.tls_client_ca = Some(authority.certificates());
        settings.access.tokens = vec![root()];
    })
    .await;
    let (mut client, _) = authority.connect(&service, Some(&pair)).await.expect("trusted");
    assert_eq!(get(&mut client, "/v1/info").await, 401);
    assert_eq!(client.call_as("root", "GET", "/v1/info", &Value::Null).await.status, 200);
}

#[tokio::test]
async fn plain_http_on_a_tls_port_gets_a_hint_to_use_https() {
    let authority = Authority::new();
    let service = authority.serve(&authority.issue("server"), None).await;
    let mut client = service.client().await;
    client.send_bytes(b"GET /v1/info HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    let reply = client.reply().await;
    assert_eq!((reply.status, reply.header("content-type")), (400, Some("text/plain; charset=utf-8")));
    assert!(reply.text.contains("use https"), "{}", reply.text);
    drop(client);
    let mut silent = service.client().await;
    silent.end_sending().await;
    silent.closed().await;
}

#[tokio::test]
async fn the_audit_log_has_the_fingerprint_of_the_clients_certificate() {
    let authority = Authority::new();
    let pair = authority.issue("server");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("audit.jsonl");
    let service = Service::with(|settings| {
        settings.server.tls_cert = Some(pair.cert.clone());
        settings.server.tls_key = Some(pair.key.clone());
        settings.server.tls_client_ca = Some(authority.certificates());
        settings.audit.file = Some(path.clone());
        settings.audit.calls = AuditCalls::All;
    })
    .await;
    let own = authority.issue("worker");
    let (mut client, _) = authority.connect(&service, Some(&own)).await.expect("trusted");
    assert_eq!(get(&mut client, "/v1/info").await, 200);
    let (mut client, _) = authority.connect(&service, None).await.expect("TLS");
    assert_eq!(get(&mut client, "/v1/info").await, 401);
    service.shutdown.signal();
    service.stopped().await;
    let text = std::fs::read_to_string(path).expect("a file");
    let fingerprints = text.lines().map(|line| {
        let line: Value = serde_json::from_str(line).expect("JSON");
        line["certificate"].clone()
    });
    let own = CertificateDer::from_pem_file(&own.cert).expect("a certificate");
    let own = deltaq::access::hex(&Sha256::digest(own));
    assert_eq!(fingerprints.collect::<Vec<_>>(), [Value::from(own), Value::Null]);
}
