//! Connections: slow clients, clients that do not read, clients behind proxies, and browsers.

use std::time::Duration;

use deltaq_types::duration::DurationText;
use serde_json::{Value, json};

use super::QUEUE;
use crate::harness::{Client, Service, within};

/// The settings allow this many lists at a time.
const LISTS: usize = 64;
const REPLACE: &str = "/v1/queues/q/replace";

/// Begins a streamed Replace of a queue of its own.
async fn slow_replace(service: &Service, number: usize) -> Client {
    let mut client = service.client().await;
    let head = format!(
        "POST /v1/queues/slow-{number}/replace HTTP/1.1\r\nhost: localhost\r\n\
         content-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n"
    );
    client.send_bytes(head.as_bytes()).await;
    client
}

/// Sends one byte on each connection that has no reply yet. Returns the number of these connections.
async fn send_a_byte_each(slow: &mut [Client]) -> usize {
    let mut silent = 0;
    for client in slow {
        if client.is_silent().await {
            silent += 1;
            client.try_send_bytes(b"1\r\n\n\r\n").await;
        }
    }
    tokio::time::sleep(Duration::from_millis(10)).await;
    silent
}

#[tokio::test]
async fn slow_senders_do_not_keep_the_permits_of_a_working_producer() {
    let service = Service::with(|settings| {
        settings.server.max_lists_in_flight = LISTS;
        settings.server.min_body_bytes_per_second = 1_000;
        settings.server.min_body_rate_grace = DurationText::from_us(200_000);
    })
    .await;
    let mut slow = Vec::new();
    for number in 0..LISTS {
        slow.push(slow_replace(&service, number).await);
    }
    let replace = async || service.post(REPLACE, &json!([{ "key": "a" }])).await.status;
    within(async { while replace().await != 429 {} }).await;
    within(async {
        while replace().await != 200 {
            send_a_byte_each(&mut slow).await;
        }
        while send_a_byte_each(&mut slow).await > 0 {}
    })
    .await;
    for mut client in slow {
        let problem = client.reply().await.problem("request-timeout");
        assert_eq!(problem["limit"], 1_000);
        assert!(
            problem["detail"].as_str().is_some_and(|detail| detail.contains("min_body_bytes_per_second"))
        );
    }
}

#[tokio::test]
async fn unread_replies_to_pops_count_until_they_are_written() {
    /// More than the sockets of a connection can buffer.
    const OBJECT_BYTES: usize = 6 << 20;
    /// Two replies, but not three.
    const LIMIT: usize = 14 << 20;
    let service = Service::with(|settings| {
        settings.server.max_reply_bytes_in_flight = LIMIT;
        settings.queue_defaults.max_object_bytes = 8 << 20;
        settings.queue_defaults.max_bytes_per_key = 16 << 20;
    })
    .await;
    for key in ["a", "b", "c"] {
        let object = json!({ "key": key, "filler": "x".repeat(OBJECT_BYTES) });
        service.post(&format!("{QUEUE}/add"), &object).await.ok();
    }
    let mut unread = Vec::new();
    for id in ["first", "second"] {
        let mut client = service.client_that_buffers(4_096).await;
        client.send("POST", &format!("{QUEUE}/pop?id={id}&wait=1ms"), &Value::Null).await;
        assert_eq!(client.head().await.expect("a head").0, 200);
        unread.push(client);
    }
    let problem = service.post(&format!("{QUEUE}/pop?id=third&wait=1ms"), &Value::Null).await;
    assert_eq!(problem.header("retry-after"), Some("1"));
    let problem = problem.problem("too-many-requests");
    assert_eq!((&problem["limit"], &problem["settled"]), (&json!(LIMIT), &json!([])));
    assert_eq!(service.get(QUEUE).await.ok()["status"]["leased"], 2, "the third key is back in the queue");
    drop(unread);
    within(async { while service.post(&format!("{QUEUE}/pop"), &Value::Null).await.status != 200 {} }).await;
}

#[tokio::test]
async fn a_client_that_sends_everything_first_reads_its_refusal() {
    let service = Service::start().await;
    let body = vec![b'x'; 9 << 20];
    for _ in 0..20 {
        let mut client = service.client().await;
        let head = format!(
            "POST {QUEUE}/add HTTP/1.1\r\nhost: localhost\r\ncontent-type: text/plain\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        client.send_bytes(head.as_bytes()).await;
        client.send_bytes(&body).await;
        client.reply().await.problem("unsupported-media-type");
        client.closed().await;
    }
}

#[tokio::test]
async fn a_refused_transfer_encoding_ends_the_connection() {
    let service = Service::start().await;
    for encodings in ["gzip, chunked", "chunked, chunked"] {
        let mut client = service.client().await;
        let head = format!(
            "POST {QUEUE}/add HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: {encodings}\r\n\r\n0\r\n\r\n"
        );
        client.send_bytes(head.as_bytes()).await;
        let reply = client.reply().await;
        assert!((400..500).contains(&reply.status), "{encodings}: {}", reply.text);
        assert_eq!(reply.header("connection"), Some("close"), "{encodings}");
        client.closed().await;
    }
}

#[tokio::test]
async fn lists_are_compressed_and_pops_are_not() {
    let service = Service::start().await;
    for key in 0..50 {
        service.post(&format!("{QUEUE}/add"), &json!({ "key": key, "filler": "x".repeat(100) })).await.ok();
    }
    for encoding in ["gzip", "br", "zstd"] {
        for path in ["/v1/queues/q/items", "/openapi.json"] {
            let mut client = service.client().await;
            client.send_text("GET", path, &[("accept-encoding", encoding)], "").await;
            let (status, headers) = client.head().await.expect("a head");
            let header =
                |wanted: &str| headers.iter().any(|(name, value)| name == wanted && value == encoding);
            assert_eq!((status, header("content-encoding")), (200, true), "{encoding} {path} {headers:?}");
        }
    }
    let mut client = service.client().await;
    client.send_text("POST", "/v1/queues/q/pop?max=50", &[("accept-encoding", "gzip, br, zstd")], "").await;
    let reply = client.reply().await;
    assert_eq!(reply.header("content-encoding"), None);
    assert_eq!(reply.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(reply.ok()["items"].as_array().map(Vec::len), Some(50));
}

#[tokio::test]
async fn gzip_replies_hold_the_same_bytes() {
    let service = Service::start().await;
    for key in 0..50 {
        service.post(&format!("{QUEUE}/add"), &json!({ "key": key, "filler": "x".repeat(100) })).await.ok();
    }
    let items = service.get("/v1/queues/q/items").await.text;
    let mut client = service.client().await;
    client.send_text("GET", "/v1/queues/q/items", &[("accept-encoding", "gzip")], "").await;
    let packed = client.reply_bytes().await;
    let mut unpacked = String::new();
    std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(&*packed), &mut unpacked).expect("gzip");
    assert_eq!(unpacked, items);
}

#[tokio::test]
async fn pages_of_an_allowed_origin_may_call_and_others_may_not() {
    const ORIGIN: &str = "https://console.example";
    let service = Service::with(|settings| settings.server.allowed_origins = vec![ORIGIN.to_owned()]).await;
    let allowed = [("origin", ORIGIN), ("sec-fetch-site", "cross-site")];
    let mut client = service.client().await;
    let preflight = [
        ("origin", ORIGIN),
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "authorization,content-type"),
    ];
    client.send_text("OPTIONS", &format!("{QUEUE}/add"), &preflight, "").await;
    let reply = client.reply().await;
    assert_eq!((reply.status, reply.header("access-control-allow-origin")), (200, Some(ORIGIN)));
    assert!(
        reply.header("access-control-allow-headers").is_some_and(|names| names.contains("authorization"))
    );
    client.send_text("POST", &format!("{QUEUE}/add"), &allowed, "{\"key\":1}").await;
    let reply = client.reply().await;
    assert_eq!(reply.header("access-control-allow-origin"), Some(ORIGIN));
    reply.ok();
    client.send_text("POST", &format!("{QUEUE}/add"), &[("origin", "https://evil.example")], "{}").await;
    let reply = client.reply().await;
    assert_eq!(reply.header("access-control-allow-origin"), None);
    reply.problem("cross-site");
    let service = Service::start().await;
    let mut client = service.client().await;
    client.send_text("OPTIONS", "/v1/info", &[("origin", "http://localhost")], "").await;
    client.reply().await.problem("method-not-allowed");
}

/// The addresses in the audit log after a request with these bytes.
async fn audited(proxy_protocol: bool, trusted: &str, bytes: &[u8]) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("audit.jsonl");
    let service = Service::with(|settings| {
        settings.audit.file = Some(file.clone());
        settings.audit.calls = deltaq::config::AuditCalls::All;
        settings.server.trusted_proxies = vec![trusted.parse().expect("a network")];
        settings.server.proxy_protocol = proxy_protocol;
    })
    .await;
    let mut client = service.client().await;
    client.send_bytes(bytes).await;
    client.reply().await.ok();
    within(async {
        loop {
            let text = std::fs::read_to_string(&file).unwrap_or_default();
            if let Some(line) = text.lines().next() {
                let line: Value = serde_json::from_str(line).expect("a line of JSON");
                return line["from"].as_str().expect("an address").to_owned();
            }
            tokio::task::yield_now().await;
        }
    })
    .await
}

#[tokio::test]
async fn the_audit_log_names_the_client_behind_a_trusted_proxy() {
    let get = "GET /v1/info HTTP/1.1\r\nhost: localhost\r\n";
    let forwarded = format!("{get}x-forwarded-for: 198.51.100.1, 203.0.113.7\r\n\r\n");
    assert_eq!(audited(false, "127.0.0.1/32", forwarded.as_bytes()).await, "203.0.113.7");
    assert!(audited(false, "10.0.0.0/8", forwarded.as_bytes()).await.starts_with("127.0.0.1:"));
    let header = format!("PROXY TCP4 203.0.113.7 127.0.0.1 4711 7070\r\n{get}\r\n");
    assert_eq!(audited(true, "127.0.0.0/8", header.as_bytes()).await, "203.0.113.7:4711");
}

#[tokio::test]
async fn a_connection_of_a_trusted_proxy_without_its_header_is_closed() {
    let service = Service::with(|settings| {
        settings.server.trusted_proxies = vec!["127.0.0.1/32".parse().expect("a network")];
        settings.server.proxy_protocol = true;
    })
    .await;
    let mut client = service.client().await;
    client.send_bytes(b"GET /v1/info HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    assert!(client.try_reply().await.is_err());
}
