//! The limits of deliveries: size, address, and a slow body.

use serde_json::json;

use super::{HOOK, QUEUE, SECRET, body, deliver_as, issues, service_with, signature};
use crate::harness::eventually;

#[tokio::test]
async fn a_delivery_has_a_size_of_its_own() {
    let (service, _folder) = service_with(|settings| settings.hooks.max_body_bytes = 2_048).await;
    service.call("PUT", QUEUE, &issues()).await.ok();
    let mut client = service.client().await;
    let large = body("opened", "I_1", 1, &"x".repeat(2_048));
    let problem = deliver_as(&mut client, "issues", "d-1", &large).await.problem("object-too-large");
    assert_eq!(problem["limit"], 2_048);
}

#[tokio::test]
async fn an_address_has_a_rate() {
    let (service, _folder) = service_with(|settings| settings.hooks.max_per_second = 1).await;
    service.call("PUT", QUEUE, &issues()).await.ok();
    let mut client = service.client().await;
    let reply = deliver_as(&mut client, "issues", "d-1", &body("opened", "I_1", 1, "a")).await;
    assert_eq!(reply.status, 202, "{}", reply.text);
    // A slow machine may have earned the next one by now.
    let mut refused = None;
    for number in 0..1_000 {
        let reply = deliver_as(&mut client, "issues", &format!("e-{number}"), "{}").await;
        if reply.status == 429 {
            refused = Some(reply);
            break;
        }
    }
    let refused = refused.expect("a delivery beyond the rate");
    assert!(refused.header("retry-after").is_some());
    refused.problem("too-many-requests");
    service.post(&format!("{QUEUE}/add"), &json!({"node_id": "I_9", "updated_at": "1"})).await.ok();
}

#[tokio::test]
async fn slow_deliveries_of_an_address_stop_nobody_else() {
    let (service, _folder) = service_with(|settings| settings.hooks.max_in_flight = 32).await;
    service.call("PUT", QUEUE, &issues()).await.ok();
    let text = body("opened", "I_1", 1, "slow");
    let head = format!(
        "POST {HOOK} HTTP/1.1\r\nhost: localhost\r\nx-github-event: issues\r\nx-hub-signature-256: {}\r\ncontent-length: {}\r\n\r\n",
        signature(SECRET, &text),
        text.len()
    );
    let (first, rest) = text.split_at(20);
    let mut slow = Vec::new();
    for _ in 0..2 {
        let mut client = service.client().await;
        client.send_bytes(format!("{head}{first}").as_bytes()).await;
        slow.push(client);
    }
    // Two of 32 are a sixteenth.
    let mut third = service.client().await;
    eventually(async || deliver_as(&mut third, "issues", "d-3", &text).await.status == 429).await;
    service.post(&format!("{QUEUE}/add"), &json!({"node_id": "I_9", "updated_at": "1"})).await.ok();
    for client in &mut slow {
        client.send_bytes(rest.as_bytes()).await;
        assert_eq!(client.reply().await.status, 202);
    }
    eventually(async || deliver_as(&mut third, "issues", "d-3", &text).await.status == 202).await;
}
