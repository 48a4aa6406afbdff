#![expect(clippy::disallowed_methods, reason = "the tasks of a test end with it")]

use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt as _;
use http_body_util::StreamBody;
use hyper::body::Frame;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use rcgen::{CertificateParams, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::super::super::Refusal;
use super::super::lines::{Lines, Next};
use super::*;

fn chosen(text: &str, context: Option<&str>) -> Result<(Cluster, User), String> {
    serde_saphyr::from_str::<Kubeconfig>(text).unwrap().chosen(context)
}

const FILE: &str = "
apiVersion: v1
kind: Config
current-context: main
preferences: {}
clusters:
- name: east
  cluster: {server: 'https://east:6443', certificate-authority: ca.crt}
contexts:
- {name: main, context: {cluster: east, user: robot, namespace: shop}}
- {name: bare, context: {cluster: east, user: human}}
users:
- name: robot
  user:
    token: abc
- name: human
  user:
    exec: {command: login, apiVersion: client.authentication.k8s.io/v1}
";

#[test]
fn a_context_leads_to_a_cluster_and_a_user() {
    let (cluster, user) = chosen(FILE, None).unwrap();
    assert_eq!(
        (cluster.server.as_deref().unwrap_or_default(), user.token.as_deref()),
        ("https://east:6443", Some("abc"))
    );
    assert_eq!(cluster.certificate_authority.as_deref(), Some(Path::new("ca.crt")));
    let refused = chosen(FILE, Some("bare")).unwrap_err();
    assert!(refused.starts_with("the user \"human\" has exec, which deltaq does not support"), "{refused}");
    assert_eq!(chosen(FILE, Some("west")).unwrap_err(), "it has no context \"west\"");
    assert!(chosen("{}", None).unwrap_err().contains("current-context"));
}

/// A server behind a proxy whose connections can fall silent.
struct Server {
    credentials: Credentials,
    /// The connections of the proxy. They stay open, but no byte passes on them, once their task is aborted.
    passing: Arc<Mutex<Vec<tokio::task::AbortHandle>>>,
}

impl Server {
    /// A server with these protocols. Each reply is a line and never ends.
    async fn start(protocols: &[&str]) -> Self {
        let _installed = rustls::crypto::ring::default_provider().install_default();
        let key = KeyPair::generate().unwrap();
        let certificate =
            CertificateParams::new(["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
        let (chain, der) =
            (vec![certificate.der().clone()], PrivateKeyDer::try_from(key.serialize_der()).unwrap());
        let mut config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, der).unwrap();
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(acceptor.clone(), stream));
            }
        });

        let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = parse(&format!("https://localhost:{}", proxy.local_addr().unwrap().port())).unwrap();
        let passing = Arc::new(Mutex::new(Vec::new()));
        let begun = Arc::clone(&passing);
        tokio::spawn(async move {
            let mut kept = Vec::new();
            while let Ok((client, _)) = proxy.accept().await {
                let pair =
                    Arc::new(tokio::sync::Mutex::new((client, TcpStream::connect(address).await.unwrap())));
                kept.push(Arc::clone(&pair));
                let passing = tokio::spawn(async move {
                    let (client, server) = &mut *pair.lock().await;
                    copy_bidirectional(client, server).await
                });
                begun.lock().push(passing.abort_handle());
            }
        });
        let authorities = Some(certificate.pem().into_bytes());
        let credentials =
            Credentials { server, authorities, trusts_all: false, identity: None, token: Token::None };
        Self { credentials, passing }
    }

    fn client(&self, pings: Pings) -> http::Client {
        self.credentials.client(Duration::from_mins(1).into(), 1_000, pings).unwrap()
    }

    /// The lines of a new request.
    async fn lines(&self, client: &http::Client) -> Lines {
        let response = client.stream(&self.credentials.server, HeaderMap::new()).await.unwrap();
        Lines::new(self.credentials.server.clone(), response, 1_000)
    }

    /// Lets the present connections fall silent. Returns their number.
    fn silence(&self) -> usize {
        let passing = self.passing.lock();
        passing.iter().for_each(tokio::task::AbortHandle::abort);
        passing.len()
    }
}

/// Serves a connection with the protocol that was chosen.
async fn serve(acceptor: TlsAcceptor, stream: TcpStream) {
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let protocol = stream.get_ref().1.alpn_protocol().map(<[u8]>::to_vec);
    let service = service_fn(|request: hyper::Request<hyper::body::Incoming>| async move {
        let line = Bytes::from(format!("{:?}\n", request.version()));
        let line = futures_util::stream::iter([Ok::<_, std::io::Error>(Frame::data(line))]);
        Ok::<_, std::io::Error>(hyper::Response::new(StreamBody::new(
            line.chain(futures_util::stream::pending()),
        )))
    });
    let _ended = match protocol.as_deref() {
        Some(b"h2") => {
            http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await
        }
        _ => http1::Builder::new().serve_connection(TokioIo::new(stream), service).await,
    };
}

async fn version(lines: &mut Lines) -> String {
    let Ok(Next::Line(line)) = lines.next(Duration::from_hours(1)).await else { panic!("no line") };
    String::from_utf8_lossy(&line).trim().to_owned()
}

#[tokio::test]
async fn a_connection_that_is_lost_without_a_word_is_not_used_again() {
    let server = Server::start(&["h2", "http/1.1"]).await;
    let client =
        server.client(Pings { after: Duration::from_millis(50), timeout: Duration::from_millis(300) });
    for connections in 1..=3 {
        let (mut first, mut second) = (server.lines(&client).await, server.lines(&client).await);
        assert_eq!(
            (version(&mut first).await.as_str(), version(&mut second).await.as_str()),
            ("HTTP/2.0", "HTTP/2.0")
        );
        // Both use one connection.
        assert_eq!(server.silence(), connections);
        for mut lines in [first, second] {
            let end = lines.next(Duration::from_mins(1)).await;
            assert!(
                matches!(&end, Ok(Next::Broken(error)) if error.refusal == Some(Refusal::Broken)),
                "{end:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_server_without_http_2_is_read_by_http_1() {
    for protocols in [&["http/1.1"][..], &[]] {
        let server = Server::start(protocols).await;
        let mut lines = server.lines(&server.client(PINGS)).await;
        assert_eq!(version(&mut lines).await, "HTTP/1.1");
    }
}

#[tokio::test]
async fn sources_of_other_kinds_are_read_by_http_1() {
    let server = Server::start(&["h2", "http/1.1"]).await;
    let folder = tempfile::tempdir().unwrap();
    let ca_file = folder.path().join("ca.crt");
    std::fs::write(&ca_file, server.credentials.authorities.as_deref().unwrap()).unwrap();
    let client = http::Client::new(Some(&ca_file), Duration::from_mins(1).into(), 1_000).unwrap();
    assert_eq!(version(&mut server.lines(&client).await).await, "HTTP/1.1");
}
