//! Bodies are streamed both ways, and nothing is held back.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::cluster::{Cluster, FakeOwner, SECRET, TestNode, queue_of, write};
use crate::harness::{Client, within};

/// The body of a large Replace, in bytes.
const LARGE: usize = 50 << 20;
/// Most bytes that the buffers of two connections and of the node take together.
const BUFFERED_MAX: usize = 24 << 20;

#[tokio::test]
async fn a_large_body_is_never_in_memory() {
    let node = TestNode::start("a", &[], |_| {}).await;
    let owner = FakeOwner::start().await;
    node.sees(1, &owner.peer);
    let path = format!("/v1/queues/{}/replace?count=1", queue_of(&node, 1, 0));
    let mut client = TcpStream::connect(node.api).await.expect("a connection");
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/x-ndjson\r\ncontent-length: {LARGE}\r\n\r\n"
    );
    within(client.write_all(head.as_bytes())).await.expect("the node reads");
    let (mut stream, head) = owner.accept().await;
    assert!(head.contains(&format!("content-length: {LARGE}\r\n")), "{head}");
    assert!(!head.contains("transfer-encoding"), "{head}");
    // The owner reads nothing, so the client can send only what the buffers take.
    let piece = vec![b'x'; 64 << 10];
    let mut sent = 0;
    while let Ok(written) = tokio::time::timeout(
        std::time::Duration::from_millis(300),
        client.write(&piece[..piece.len().min(LARGE - sent)]),
    )
    .await
    {
        sent += written.expect("the connection is open");
        assert!(sent < BUFFERED_MAX, "the node took {sent} bytes that the owner has not read");
    }
    let rest = async {
        while sent < LARGE {
            sent += client.write(&piece[..piece.len().min(LARGE - sent)]).await.expect("the node reads");
        }
    };
    let read = async {
        let mut buffer = vec![0; 64 << 10];
        let mut received = 0;
        while received < LARGE {
            received += stream.read(&mut buffer).await.expect("the node sends");
        }
        write(&mut stream, "HTTP/1.1 200 OK\r\ndeltaq-node: fake\r\ncontent-length: 2\r\n\r\n{}").await;
    };
    within(async { tokio::join!(rest, read) }).await;
    let mut reply = [0; 15];
    within(client.read_exact(&mut reply)).await.expect("a reply");
    assert_eq!(&reply, b"HTTP/1.1 200 OK");
}

#[tokio::test]
async fn a_chunked_replace_reaches_the_owner() {
    let cluster = Cluster::start().await;
    let queue = queue_of(&cluster.a, 1, 0);
    let mut client = cluster.a.client().await;
    let head = format!(
        "POST /v1/queues/{queue}/replace?count=500 HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/x-ndjson\r\n\
         transfer-encoding: chunked\r\n\r\n"
    );
    client.send_bytes(head.as_bytes()).await;
    for n in 0..500 {
        let line = format!("{{\"key\":\"{n}\"}}\n");
        client.send_bytes(format!("{:x}\r\n{line}\r\n", line.len()).as_bytes()).await;
    }
    client.send_bytes(b"0\r\n\r\n").await;
    assert_eq!(client.reply().await.ok()["queued"], 500);
    let status = cluster.b.get(&format!("/v1/queues/{queue}/status")).await.ok();
    assert_eq!(status["ready"], 500, "{status}");
}

#[tokio::test]
async fn a_client_that_ends_in_the_middle_of_a_body_changes_nothing() {
    let cluster = Cluster::start().await;
    let queue = queue_of(&cluster.a, 1, 0);
    cluster.a.call("PUT", &format!("/v1/queues/{queue}"), &json!({})).await.ok();
    let mut client = cluster.a.client().await;
    let head = format!(
        "POST /v1/queues/{queue}/add HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/x-ndjson\r\n\
         transfer-encoding: chunked\r\n\r\n"
    );
    client.send_bytes(head.as_bytes()).await;
    client.send_bytes(b"c\r\n{\"key\":\"a\"}\n\r\n").await;
    cluster.b.until(&queue, |status| status["ready"] == 0).await;
    drop(client);
    let mut other = cluster.a.client().await;
    other.call("POST", &format!("/v1/queues/{queue}/add"), &json!([{"key": "b"}])).await.ok();
    let items = cluster.b.get(&format!("/v1/queues/{queue}/items")).await.ok();
    assert_eq!(items["items"].as_array().expect("items").len(), 1, "{items}");
}

/// The client has sent all of its request, so a problem of the connection between the nodes must not look like its mistake.
#[tokio::test]
async fn a_body_that_breaks_off_between_two_nodes_can_be_sent_again() {
    let cluster = Cluster::start().await;
    let queue = queue_of(&cluster.a, 1, 0);
    for encoding in ["", "content-encoding: gzip\r\n"] {
        let mut forwarding = TcpStream::connect(cluster.b.api).await.expect("a connection");
        let head = format!(
            "POST /v1/queues/{queue}/add HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{encoding}\
             content-length: 100\r\ndeltaq-forwarded: a\r\ndeltaq-node-secret: {SECRET}\r\n\r\n"
        );
        within(forwarding.write_all(head.as_bytes())).await.expect("the node reads");
        within(forwarding.write_all(&[0x1f, 0x8b, 8])).await.expect("the node reads");
        within(forwarding.shutdown()).await.expect("one direction can be closed");
        let mut reply = String::new();
        within(forwarding.read_to_string(&mut reply)).await.expect("a reply");
        assert!(
            reply.starts_with("HTTP/1.1 503 ") && reply.contains("\"code\":\"not-owner\""),
            "{encoding}{reply}"
        );
    }
}

#[tokio::test]
async fn each_row_of_a_watch_passes_at_once() {
    for accept in ["application/x-ndjson", "text/event-stream"] {
        let cluster = Cluster::start().await;
        let queue = queue_of(&cluster.a, 1, 0);
        cluster.a.call("PUT", &format!("/v1/queues/{queue}"), &json!({})).await.ok();
        let mut watch = cluster.a.client().await;
        let path = format!("/v1/queues/{queue}/watch?view=latest");
        watch.send_text("GET", &path, &[("accept", accept)], "").await;
        let (status, headers) = watch.head().await.expect("a head");
        assert_eq!(status, 200);
        assert!(
            headers.iter().any(|(name, value)| name == "content-type" && value.starts_with(accept)),
            "{headers:?}"
        );
        for key in ["first", "second"] {
            cluster.a.post(&format!("/v1/queues/{queue}/add"), &json!([{ "key": key }])).await.ok();
            let mut rows = String::new();
            while !rows.contains(key) {
                let row = watch.chunk().await.expect("a row").expect("the watch goes on");
                rows.push_str(&String::from_utf8(row).expect("text"));
            }
        }
    }
}

#[tokio::test]
async fn a_long_poll_waits_at_the_owner() {
    let cluster = Cluster::start().await;
    let queue = queue_of(&cluster.a, 1, 0);
    cluster.b.call("PUT", &format!("/v1/queues/{queue}"), &json!({})).await.ok();
    let mut client = cluster.a.client().await;
    client.send("POST", &format!("/v1/queues/{queue}/pop?wait=30s"), &Value::Null).await;
    cluster.b.until(&queue, |status| status["waiters"] == 1).await;
    cluster.b.post(&format!("/v1/queues/{queue}/add"), &json!([{"key": "x"}])).await.ok();
    assert_eq!(client.reply().await.ok()["items"][0]["key"], "x");
}

#[tokio::test]
async fn the_framing_of_a_forwarded_request_is_checked_like_that_of_any_other() {
    let cluster = Cluster::start().await;
    let queues = [queue_of(&cluster.a, 0, 0), queue_of(&cluster.a, 1, 0)];
    for queue in &queues {
        cluster.a.call("PUT", &format!("/v1/queues/{queue}"), &json!({})).await;
    }
    let chunked = "transfer-encoding: chunked\r\n";
    for headers in [
        format!("{chunked}{chunked}"),
        format!("content-length: 2\r\n{chunked}"),
        "transfer-encoding: chunked, chunked\r\n".to_owned(),
        "transfer-encoding: gzip, chunked\r\n".to_owned(),
        format!("content-type: application/json\r\ncontent-type: application/x-ndjson\r\n{chunked}"),
        format!("content-encoding: gzip\r\ncontent-encoding: identity\r\n{chunked}"),
        format!("connection: content-encoding\r\ncontent-encoding: gzip\r\n{chunked}"),
        format!("connection: content-type\r\ncontent-type: text/plain\r\n{chunked}"),
        format!("connection: Content-Encoding, x\r\ncontent-encoding: br\r\n{chunked}"),
        chunked.to_owned(),
    ] {
        let mut statuses = Vec::new();
        for queue in &queues {
            let mut client = Client::connect(cluster.a.api).await;
            let head =
                format!("POST /v1/queues/{queue}/add?key=t HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n");
            client.send_bytes(format!("{head}2\r\n{{}}\r\n0\r\n\r\n").as_bytes()).await;
            statuses.push(client.reply().await.status);
        }
        assert_eq!(statuses[0], statuses[1], "{headers}");
        assert_eq!(
            statuses[0] == 200,
            headers == chunked || headers.starts_with("content-length"),
            "{headers}"
        );
    }
}
