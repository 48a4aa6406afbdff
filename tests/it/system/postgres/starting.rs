//! Starts while the database is down, comes and goes, or refuses the server.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use deltaq_journal::postgres::{self, Settings};
use rustix::process::Signal;
use serde_json::json;

use super::cluster::Cluster;
use super::nodes::{SECRET, call_at};
use super::pgbouncer::Pooler;
use super::proxy::Proxy;
use crate::harness::blocking::{Connection, Message};
use crate::harness::process::deltaq;
use crate::harness::server::{End, Spawned, Store};
use crate::harness::waiting::{PATIENCE, found, until};

/// How long the database is there and away, in milliseconds, while it comes and goes.
const THERE_MS: std::ops::Range<u64> = 1..40;
const AWAY_MS: std::ops::Range<u64> = 1..10;
const FLAPS_MAX: usize = 4_000;

/// A port that was free a moment ago.
fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    listener.local_addr().expect("an address").port()
}

/// Begins the start of a node with this secret, or of a server alone, at an address of its own.
fn begin(store: &Store, secret: Option<&PathBuf>, metrics: SocketAddr) -> Spawned {
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    Spawned::begin(store, address, |command: &mut Command| {
        command.env("DELTAQ_SERVER__METRICS_LISTEN", metrics.to_string());
        if let Some(secret) = secret {
            command.args(["--node-name", "a", "--advertise", "http://127.0.0.1:0"]);
            command.env("DELTAQ_CLUSTER__SECRET_FILE", secret);
        }
    })
}

/// The secret of a node, in the folder of the database; `None` for a server alone.
fn secret(cluster: &Cluster, is_node: bool) -> Option<PathBuf> {
    let path = cluster.folder().join("secret");
    std::fs::write(&path, SECRET).expect("a file");
    is_node.then_some(path)
}

fn ask(address: SocketAddr, path: &str) -> (u16, serde_json::Value) {
    call_at(address, &Message::get(path.to_owned()))
}

/// Waits until the process waits for its database and says so wherever it is asked.
fn until_it_waits(server: &Spawned, metrics: SocketAddr) {
    until("the process answers", || {
        Connection::open(server.api).is_ok() && ask(server.api, "/livez").0 == 200
    });
    for path in ["/readyz", "/v1/queues", "/v1/queues/q/items", "/v1/nodes"] {
        let (status, problem) = ask(server.api, path);
        assert_eq!((status, &problem["code"]), (503, &json!("recovering")), "{path}: {problem}");
        let detail = problem["detail"].as_str().expect("a detail");
        assert!(detail.contains("waits for its database"), "{detail}");
    }
    assert_eq!(ask(metrics, "/metrics").0, 200);
    let log = server.process.log();
    assert!(log.contains("waiting for the database"), "{log}");
}

#[test]
fn a_server_that_starts_while_its_database_is_down_waits_and_says_so() {
    for (is_node, is_pooled) in [(true, false), (false, false), (false, true)] {
        let mut cluster = Cluster::start();
        let pooler = is_pooled.then(|| Pooler::start(&cluster));
        let url = pooler.as_ref().map_or_else(|| cluster.url(), Pooler::url);
        let (store, secret) = (Store::Url(url), secret(&cluster, is_node));
        let metrics = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let first = begin(&store, secret.as_ref(), metrics);
        until("the server is ready", || {
            Connection::open(first.api).is_ok() && ask(first.api, "/readyz").0 == 200
        });
        let add = Message::post("/v1/queues/q/add".to_owned(), &json!({"key": "kept"}));
        until("the key is added", || call_at(first.api, &add).0 == 200);
        first.end(End::Stop { patience: PATIENCE });
        cluster.end(Signal::INT);
        let server = begin(&store, secret.as_ref(), metrics);
        until_it_waits(&server, metrics);
        cluster.restart();
        until("the server is ready", || ask(server.api, "/readyz").0 == 200);
        until("the queue is there", || ask(server.api, "/v1/queues/q/items").1["items"][0]["key"] == "kept");
        assert_eq!(ask(metrics, "/metrics").0, 200);
    }
}

/// A connection that ends while the server opens its store is no reason to exit either.
#[test]
fn a_server_whose_database_comes_and_goes_at_the_start_waits() {
    for is_node in [true, false] {
        let cluster = Cluster::start();
        let (proxy, secret) = (Proxy::start(cluster.socket()), secret(&cluster, is_node));
        let (store, is_over) = (Store::Url(proxy.url()), AtomicBool::new(false));
        let metrics = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let server = std::thread::scope(|scope| {
            scope.spawn(|| {
                // Bounded, so that the failure of the test ends it.
                for _ in 0..FLAPS_MAX {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    for (act, time) in [(Proxy::refuse as fn(&Proxy), AWAY_MS), (Proxy::release, THERE_MS)] {
                        act(&proxy);
                        std::thread::sleep(Duration::from_millis(fastrand::u64(time)));
                    }
                }
                proxy.release();
            });
            let server = found(|| {
                let mut server = begin(&store, secret.as_ref(), metrics);
                let is_lost = found(|| {
                    let log = server.process.log();
                    let is_lost = log.contains("was lost during the start");
                    let has_ended = server.process.status().is_some();
                    if is_lost || has_ended || log.contains("\"listening\"") {
                        return Ok(is_lost);
                    }
                    Err(log)
                });
                // A server that had opened the database before the connection was lost does not count.
                if is_lost { Ok(server) } else { Err(server.last_words()) }
            });
            is_over.store(true, Ordering::Relaxed);
            server
        });
        until("the server is ready", || {
            Connection::open(server.api).is_ok() && ask(server.api, "/readyz").0 == 200
        });
    }
}

/// An error that waiting can't end is reported at once.
#[test]
fn a_server_whose_database_refuses_it_does_not_wait() {
    let cluster = Cluster::start();
    for (url, what) in [
        (cluster.url_of("nowhere"), "database \"nowhere\" does not exist"),
        (cluster.url().replace("deltaq@", "nobody@"), "role \"nobody\" does not exist"),
    ] {
        let log = Spawned::try_start(&Store::Url(url), deltaq(&[]), "127.0.0.1:0", |_| {}).expect_err(what);
        assert!(log.contains(what), "{log}");
    }
}

/// A server that answers the startup message of a client with this SQLSTATE.
fn refuse_with(listener: &TcpListener, code: &str) {
    let (mut client, _) = listener.accept().expect("a connection");
    let mut length = [0; 4];
    client.read_exact(&mut length).expect("a startup message");
    let mut rest = vec![0; u32::from_be_bytes(length) as usize - length.len()];
    client.read_exact(&mut rest).expect("a startup message");
    let fields = format!("SFATAL\0C{code}\0Mrefused\0\0");
    let length = u32::try_from(4 + fields.len()).expect("a short message").to_be_bytes();
    client.write_all(&[b"E", &length[..], fields.as_bytes()].concat()).expect("the client reads");
}

#[tokio::test]
async fn the_class_of_a_refusal_says_whether_waiting_may_help() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let address = listener.local_addr().expect("an address");
    let settings = Settings::parse(&format!("postgres://deltaq@{address}/deltaq?sslmode=disable"));
    let settings = settings.expect("an address");
    for (code, may_help) in [
        ("08000", true),
        ("08006", true),
        ("08P01", true),
        ("57P01", true),
        ("57P03", true),
        ("53300", true),
        ("28000", false),
        ("28P01", false),
        ("3D000", false),
        ("53200", false),
        ("42501", false),
    ] {
        let listener = listener.try_clone().expect("a listener");
        let server = std::thread::spawn(move || refuse_with(&listener, code));
        let away = postgres::away(&settings).await;
        server.join().expect("no panic");
        assert_eq!(away.is_some(), may_help, "{code}: {away:?}");
        assert!(away.is_none_or(|away| away.contains("refused")), "{code}");
    }
}

/// `PgBouncer` reports every refusal of the database as 08P01.
#[tokio::test]
async fn a_refusal_that_a_pooler_reports_may_pass() {
    let cluster = Cluster::start();
    cluster.sql("ALTER ROLE deltaq CONNECTION LIMIT 0");
    let pooler = Pooler::start(&cluster);
    let settings = Settings::parse(&pooler.url()).expect("an address");
    let away = postgres::away(&settings).await.expect("it may pass");
    assert!(away.contains("too many connections for role"), "{away}");
}
