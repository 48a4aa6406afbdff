//! Compressed bodies: accepted, damaged, and of unknown encodings. `memory` tests bodies that inflate without end.

use serde_json::{Value, json};

use super::{Bench, Row, row};
use crate::calls::{DOCUMENTS, EMPTY, OBJECTS};
use crate::compression::{ALL, Encoding, compressed};
use crate::harness::Service;

fn on(call: (&str, &str), code: &'static str) -> Row {
    row(call.0, &format!("/v1/queues/q{}", call.1), code)
}

/// The row of a `call` with a compressed body.
fn damaged(call: (&str, &str), encoding: Encoding, body: &[u8], detail: &str) -> Row {
    on(call, "invalid-request").header("content-encoding", encoding.name()).body(body).tells(detail)
}

#[tokio::test]
async fn compressed_bodies_equal_plain_ones() {
    let calls = [
        ("add", json!([{ "key": "a", "n": 1 }, { "key": "b" }])),
        ("update", json!({ "key": "a", "n": 2 })),
        ("delete", json!({ "key": "b" })),
        ("deltas", json!([{ "type": "Added", "object": { "key": "c" } }])),
        ("replace?source=s", json!([{ "key": "d" }])),
        ("seed", json!([{ "object": { "key": "e" } }])),
    ];
    let service = Service::start().await;
    for (call, body) in calls {
        let mut replies = Vec::new();
        for encoding in [None].into_iter().chain(ALL.map(Some)) {
            let name = encoding.map_or("plain", Encoding::name);
            let text = match encoding {
                None => body.to_string().into_bytes(),
                Some(encoding) => compressed(encoding, body.to_string().as_bytes()).await,
            };
            let mut row =
                row("POST", &format!("/v1/queues/{name}{}", if call == "seed" { "2" } else { "" }), "");
            row.path = format!("{}/{call}", row.path);
            row = row.body(text);
            if let Some(encoding) = encoding {
                row = row.header("content-encoding", encoding.name());
            }
            let mut client = service.client().await;
            client.send_bytes(&row.text()).await;
            let mut reply = client.reply().await.ok();
            // Each queue has numbers and ids of its own.
            for member in ["resource_version", "incarnation", "life"] {
                reply[member].take();
            }
            replies.push(reply);
        }
        assert!(
            replies.iter().all(|reply| *reply == replies[0] && reply["queued"] != Value::Null),
            "{replies:?}"
        );
    }
}

#[tokio::test]
async fn damaged_bodies_change_nothing() {
    let bench = Bench::new().await;
    let text = json!([{ "key": "new" }, { "key": "other" }]).to_string();
    for encoding in ALL {
        let whole = compressed(encoding, text.as_bytes()).await;
        let name = encoding.name();
        let (half, trailing) = (&whole[..whole.len() / 2], [&whole[..], b"{}"].concat());
        for call in OBJECTS {
            bench
                .refuses([
                    damaged(call, encoding, half, &format!("the body ends before its {name} data")),
                    damaged(call, encoding, &trailing, &format!("after the end of its {name} data")),
                    damaged(call, encoding, &[&whole[..], &whole[..]].concat(), "after the end"),
                    damaged(call, encoding, b"\xff{}{}{}{}{}{}", &format!("not valid {name} data")),
                ])
                .await;
        }
    }
}

#[tokio::test]
async fn unknown_encodings_are_named_with_the_accepted_ones() {
    let bench = Bench::new().await;
    let refused = |call, encoding: &str, accepted: &str| {
        let row = on(call, "unsupported-media-type").header("content-encoding", encoding).body("{}");
        row.has("accept_encoding", accepted).replies_with("accept-encoding", accepted)
    };
    for call in OBJECTS {
        let all = ["deflate", "gzip, br", "gzip,gzip", "compress", ""];
        bench.refuses(all.map(|encoding| refused(call, encoding, "gzip, br, zstd"))).await;
    }
    for call in DOCUMENTS.into_iter().chain(EMPTY) {
        bench
            .refuses(["gzip", "br", "zstd", "deflate"].map(|encoding| refused(call, encoding, "identity")))
            .await;
    }
}
