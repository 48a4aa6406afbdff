//! Malformed HTTP, and connections that end or stall in the middle of a request.

use deltaq_types::duration::DurationText;

use super::{Bench, Row, row};
use crate::harness::{Client, Service};

const HEAD: &str = "POST /v1/queues/q/add HTTP/1.1\r\nhost: localhost\r\n";
const NEW: &str = "POST /v1/queues/new/add HTTP/1.1\r\nhost: localhost\r\n";

/// Sends exactly these bytes and expects a problem.
async fn refuses(bench: &Bench, bytes: &[u8], row: Row) -> Client {
    let mut client = bench.service.client().await;
    client.send_bytes(bytes).await;
    row.judge(client.reply().await);
    bench.unchanged(&String::from_utf8_lossy(bytes)).await;
    client
}

fn any(code: &'static str) -> Row {
    row("raw", "bytes", code)
}

#[tokio::test]
async fn a_malformed_request_gets_a_problem_and_ends_the_connection() {
    let bench = Bench::new().await;
    let wrong: [&[u8]; 9] = [
        b"garbage\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET\r\n\r\n",
        b"GET /v1/info HTTP/9.9\r\n\r\n",
        b"GET /v1/info HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET /v1/info HTTP/1.1\r\nhost: localhost\r\nx\x00y: 1\r\n\r\n",
        b"POST /v1/queues/q/add HTTP/1.1\r\nhost: localhost\r\ncontent-length: abc\r\n\r\n",
        b"POST /v1/queues/q/add HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\n",
        b"POST /v1/queues/q/add HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n{}",
    ];
    for bytes in wrong {
        refuses(&bench, bytes, any("invalid-request")).await.closed().await;
    }
}

#[tokio::test]
async fn http_2_ends_the_connection() {
    let bench = Bench::new().await;
    let mut client = bench.service.client().await;
    client.send_bytes(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
    client.closed().await;
    bench.unchanged("HTTP/2").await;
}

#[tokio::test]
async fn malformed_chunks_change_nothing() {
    let bench = Bench::new().await;
    let bodies =
        ["zz\r\n{}\r\n0\r\n\r\n", "-1\r\n{}\r\n", "2\r\n{}garbage", "ffffffffffffffffff\r\n{}\r\n0\r\n\r\n"];
    for body in bodies {
        let text = format!("{NEW}transfer-encoding: chunked\r\n\r\n{body}");
        refuses(&bench, text.as_bytes(), any("invalid-request").tells("broke off")).await.closed().await;
    }
    let both = format!("{NEW}transfer-encoding: gzip\r\n\r\n{{}}");
    refuses(&bench, both.as_bytes(), any("invalid-request")).await.closed().await;
    let chunked = "transfer-encoding: chunked\r\n";
    let twice = format!("{NEW}{chunked}{chunked}\r\n0\r\n\r\n");
    refuses(&bench, twice.as_bytes(), any("invalid-request").tells("transfer-encoding occurs twice")).await;
}

#[tokio::test]
async fn truncated_bodies_change_nothing() {
    let bench = Bench::new().await;
    let starts = [
        format!("{NEW}content-length: 100\r\n\r\n{{\"key\":\"a\"}}"),
        format!("{NEW}content-length: 100\r\ncontent-type: application/x-ndjson\r\n\r\n{{\"key\":\"a\"}}\n"),
        format!("{NEW}transfer-encoding: chunked\r\n\r\nb\r\n{{\"key\":\"a\"}}\r\n"),
    ];
    for start in starts {
        let mut client = bench.service.client().await;
        client.send_bytes(start.as_bytes()).await;
        client.end_sending().await;
        if let Ok(reply) = client.try_reply().await {
            any("invalid-request").tells("broke off").judge(reply);
        }
        bench.unchanged(&start).await;
        let mut client = bench.service.client().await;
        client.send_bytes(start.as_bytes()).await;
        drop(client);
        bench.unchanged(&start).await;
    }
}

#[tokio::test]
async fn a_half_closed_client_still_gets_its_reply() {
    let bench = Bench::new().await;
    let mut client = bench.service.client().await;
    client.send_bytes(format!("{HEAD}content-length: 2\r\n\r\n{{}}").as_bytes()).await;
    client.end_sending().await;
    any("no-key").judge(client.reply().await);
    client.closed().await;
    bench.unchanged("half-closed").await;
}

#[tokio::test]
async fn a_half_closed_client_gets_the_reply_to_an_accepted_request() {
    let service = Service::start().await;
    for queue in 0..20 {
        let mut client = service.client().await;
        let body = format!("{{\"key\":\"{queue}\"}}");
        let head = format!(
            "POST /v1/queues/q{queue}/add HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}",
            body.len()
        );
        client.send_bytes(format!("{head}\r\n\r\n{body}").as_bytes()).await;
        client.end_sending().await;
        assert_eq!(client.reply().await.status, 200, "queue {queue}");
        client.closed().await;
    }
}

#[tokio::test]
async fn a_paused_body_times_out() {
    let service = Service::with(|settings| settings.server.body_read_timeout = DurationText::from_us(50_000));
    let bench = Bench::on(service.await).await;
    for (query, kind) in [("", "json"), ("", "x-ndjson")] {
        let text = format!(
            "POST /v1/queues/new/add{query} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\
             content-type: application/{kind}\r\n\r\n{{\"key\":\"a\"}}\n"
        );
        let row = any("request-timeout").tells("50ms").has("limit_ms", 50);
        refuses(&bench, text.as_bytes(), row).await.closed().await;
    }
}

#[tokio::test]
async fn a_slow_head_times_out() {
    let service =
        Service::with(|settings| settings.server.header_read_timeout = DurationText::from_us(50_000));
    let bench = Bench::on(service.await).await;
    for requests_before in [0, 1, 2] {
        let mut client = bench.service.client().await;
        for _ in 0..requests_before {
            client.send_bytes(b"GET /v1/info HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
            client.reply().await.ok();
        }
        client.send_bytes(b"GET /v1/info HTTP/1.1\r\nhost: loc").await;
        client.closed().await;
    }
    bench.unchanged("slow head").await;
}

#[tokio::test]
async fn a_refused_request_leaves_the_connection_usable_without_its_body() {
    let bench = Bench::new().await;
    let mut client = bench.service.client().await;
    client.send_bytes(b"POST /v1/queues/q/add?x=1 HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n").await;
    let reply = client.reply().await;
    assert_eq!(reply.header("connection"), Some("close"));
    any("invalid-parameter").judge(reply);
    client.closed().await;

    let mut client = bench.service.client().await;
    client.send_bytes(b"POST /v1/queues/q/add HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n").await;
    assert_eq!(client.head().await.expect("a head").0, 100);
    client.send_bytes(b"{}").await;
    any("no-key").judge(client.reply().await);

    for _ in 0..20 {
        client
            .send_bytes(b"POST /v1/queues/q/add?x=1 HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\n")
            .await;
        tokio::task::yield_now().await;
        client.send_bytes(b"{}").await;
        any("invalid-parameter").judge(client.reply().await);
    }
    bench.unchanged("expect").await;
}

#[tokio::test]
async fn a_large_body_refused_early_still_gets_its_reply() {
    let bench = Bench::new().await;
    let body = vec![b'x'; 512 << 10];
    let mut client = bench.service.client().await;
    let head = format!(
        "POST /v1/queues/q/add?x=1 HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    client.send_bytes(head.as_bytes()).await;
    client.send_bytes(&body).await;
    any("invalid-parameter").judge(client.reply().await);
    bench.unchanged("large").await;
}
