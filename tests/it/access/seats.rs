//! When `server.max_connections` are open, clients without a valid token can't keep the others out.

use deltaq_types::duration::DurationText;
use serde_json::{Value, json};

use super::root;
use super::tls::Authority;
use crate::harness::{Client, Service, eventually};

const MAX: usize = 3;

/// A server with a token and few connections.
async fn server(edit: impl FnOnce(&mut deltaq::config::Settings)) -> Service {
    Service::with(|settings| {
        settings.access.tokens = vec![root()];
        settings.server.max_connections = MAX;
        edit(settings);
    })
    .await
}

async fn occupy(service: &Service, bytes: &[u8]) -> Vec<Client> {
    let mut occupied = Vec::new();
    for _ in 0..2 * MAX {
        let mut client = service.client().await;
        client.try_send_bytes(bytes).await;
        occupied.push(client);
    }
    occupied
}

#[tokio::test]
async fn a_client_with_a_token_gets_a_connection_and_keeps_it() {
    let get = |path: &str, more: &str| format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n{more}\r\n");
    let unread = "content-type: application/json\r\ncontent-length: 9000000\r\n";
    for (occupier, bytes) in [
        ("silent", String::new()),
        ("half a head", "GET /v1/info HTTP/1.1\r\nhost: loc".to_owned()),
        ("no token", get("/v1/info", "")),
        ("a wrong token", get("/v1/info", "authorization: Bearer wrong\r\n")),
        ("half a body", get("/v1/queues/q/add", unread).replace("GET", "POST") + "{"),
        ("a health check", get("/readyz", "")),
        ("no such path", get("/nowhere", "")),
        ("a wrong host", get("/v1/info", "").replace("localhost", "evil.example")),
        ("no HTTP", "\u{16}\u{3}\u{1}".to_owned()),
    ] {
        let service = server(|_| {}).await;
        let before = occupy(&service, bytes.as_bytes()).await;
        let mut client = service.client().await;
        assert_eq!(client.call_as("root", "GET", "/v1/info", &Value::Null).await.status, 200, "{occupier}");
        let _after = occupy(&service, bytes.as_bytes()).await;
        for mut occupied in before {
            occupied.closed().await;
        }
        assert_eq!(client.call_as("root", "GET", "/v1/info", &Value::Null).await.status, 200, "{occupier}");
    }
}

#[tokio::test]
async fn connections_without_a_handshake_or_a_proxy_header_give_way() {
    let authority = Authority::new();
    let pair = authority.issue("server");
    let service = server(|settings| {
        settings.server.tls_cert = Some(pair.cert.clone());
        settings.server.tls_key = Some(pair.key.clone());
        settings.server.header_read_timeout = DurationText::from_us(3_600_000_000);
    })
    .await;
    for mut occupied in occupy(&service, b"\x16\x03").await.into_iter().take(MAX) {
        occupied.closed().await;
    }
    let (mut client, _) = authority.connect(&service, None).await.expect("trusted");
    client.call_as("root", "GET", "/v1/info", &Value::Null).await.ok();

    let service = server(|settings| {
        settings.server.trusted_proxies = vec!["127.0.0.1/32".parse().expect("a network")];
        settings.server.proxy_protocol = true;
        settings.server.header_read_timeout = DurationText::from_us(3_600_000_000);
    })
    .await;
    for mut occupied in occupy(&service, b"PROXY TCP4").await.into_iter().take(MAX) {
        occupied.closed().await;
    }
    let mut client = service.client().await;
    client.send_bytes(b"PROXY TCP4 203.0.113.7 127.0.0.1 4711 7070\r\n").await;
    client.call_as("root", "GET", "/v1/info", &Value::Null).await.ok();
}

#[tokio::test]
async fn idle_clients_with_a_token_keep_their_connections() {
    let service = server(|_| {}).await;
    let mut kept = Vec::new();
    for _ in 0..MAX {
        let mut client = service.client().await;
        client.call_as("root", "GET", "/v1/info", &Value::Null).await.ok();
        kept.push(client);
    }
    for token in ["root", "wrong"] {
        let refused = service.client().await.call_as(token, "GET", "/v1/info", &Value::Null).await;
        refused.problem("too-many-connections");
    }
    for client in &mut kept {
        client.call_as("root", "GET", "/v1/info", &Value::Null).await.ok();
    }
}

/// A client with an answered call. The server counts a connection as busy until it has flushed the reply, so a client
/// that comes before that may be refused.
async fn admitted(service: &Service) -> Client {
    let mut admitted = None;
    eventually(async || {
        let mut client = service.client().await;
        let reply = client.call("GET", "/v1/info", &Value::Null).await;
        if reply.status == 200 {
            admitted = Some(client);
        } else {
            reply.problem("too-many-connections");
        }
        admitted.is_some()
    })
    .await;
    admitted.expect("a client was admitted")
}

#[tokio::test]
async fn the_longest_idle_connection_of_a_server_without_tokens_gives_way() {
    let service = Service::with(|settings| settings.server.max_connections = MAX).await;
    let mut busy = service.busy_client().await;
    let mut idle = Vec::new();
    for _ in 0..2 * MAX {
        idle.push(admitted(&service).await);
    }
    eventually(async || {
        let mut open = Vec::new();
        for mut client in idle.drain(..) {
            if client.is_silent().await {
                open.push(client);
            }
        }
        idle = open;
        idle.len() == MAX - 1
    })
    .await;
    for client in &mut idle {
        client.call("GET", "/v1/info", &Value::Null).await.ok();
    }
    let mut half = admitted(&service).await;
    half.send_bytes(b"GET /v1/info HTTP/1.1\r\nhost: loc").await;
    let mut later = Vec::new();
    eventually(async || {
        later.push(admitted(&service).await);
        !half.is_silent().await
    })
    .await;
    busy.send_bytes(json!({ "key": 1 }).to_string().as_bytes()).await;
    busy.reply().await.ok();
}
