//! Shutdown of a server while leases are live.

use deltaq_types::duration::DurationText;
use serde_json::{Value, json};

use super::{QUEUE, keys, object, objects, settled, settling, take, waiters};
use crate::harness::{Service, within};

#[tokio::test]
async fn the_first_signal_drains_and_the_server_ends_when_leases_are_settled() {
    let service = Service::start().await;
    service.post(&format!("{QUEUE}/add"), &objects(&["a", "b", "c"])).await.ok();
    let (a, b) = (take(&service).await, take(&service).await);
    let c = take(&service).await;
    let pop = format!("{QUEUE}/pop?wait=30s");
    let mut waits = service.send("POST", &pop, &Value::Null).await;
    waiters(&service, 1).await;
    let mut drain = service.send("POST", &format!("{QUEUE}/close?drain=true&wait=30s"), &Value::Null).await;
    within(async { while service.get(QUEUE).await.body["status"]["closed"] != true {} }).await;
    assert_eq!(service.get("/readyz").await.status, 200);

    service.shutdown.signal();
    let nothing = json!({"items": [], "settled": [], "closed": true, "paused": false});
    assert_eq!(waits.reply().await.ok(), nothing, "at once");
    assert_eq!(drain.reply().await.ok()["drained"], false, "at once");
    service.get("/readyz").await.problem("draining");
    assert_eq!(service.get("/livez").await.status, 200);
    let refused = service.post(&pop, &settling(&a, "ack")).await;
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(refused.problem("draining")["settled"], settled(&a, "ack", "ok"));
    let answer = service.post(&format!("{QUEUE}/settle"), &settling(&b, "release")).await.ok();
    assert_eq!(answer["settled"], settled(&b, "release", "ok"));
    assert_eq!(
        keys(&service.get(&format!("{QUEUE}/items?state=ready")).await.ok()),
        ["b"],
        "not delivered again"
    );
    let mut kept = service.client().await;
    kept.call("POST", &format!("{QUEUE}/ack"), &json!({"lease_ids": [c]})).await.ok();
    kept.closed().await;
    service.stopped().await;
}

#[tokio::test]
async fn no_queue_is_created_while_draining_and_the_pop_reports_its_settles() {
    let service = Service::start().await;
    service.post(&format!("{QUEUE}/add"), &object("k")).await.ok();
    let held = take(&service).await;
    service.shutdown.signal();
    let refused =
        service.post("/v1/queues/other/pop", &settling(&held, "ack")).await.problem("queue-not-found");
    assert_eq!(refused["settled"], json!([]));
    service.post("/v1/queues/other/add", &object("k")).await.problem("draining");
}

#[tokio::test]
async fn a_lease_without_a_settle_delays_the_end_until_its_deadline_at_most() {
    let service = Service::start().await;
    service.post(&format!("{QUEUE}/add"), &object("k")).await.ok();
    service.post(&format!("{QUEUE}/pop?lease_duration=1s"), &Value::Null).await.ok();
    service.shutdown.signal();
    service.stopped().await;
}

#[tokio::test]
async fn connections_are_accepted_for_a_while_after_readyz_fails() {
    let service = Service::with(|settings| {
        settings.server.drain_delay = DurationText::from_secs(20);
    })
    .await;
    service.call("PUT", QUEUE, &json!({})).await.ok();
    service.shutdown.signal();
    for _ in 0..3 {
        service.get("/readyz").await.problem("draining");
        service.post(&format!("{QUEUE}/pop?wait=30s"), &Value::Null).await.problem("draining");
    }
    service.get("/v1/info").await.ok();
    service.shutdown.signal();
    service.stopped().await;
}

#[tokio::test]
async fn a_client_that_has_sent_half_a_head_does_not_delay_the_end() {
    let service = Service::with(|settings| {
        settings.server.header_read_timeout = DurationText::from_secs(1);
    })
    .await;
    let mut stuck = service.client().await;
    stuck.send_bytes(b"GET /livez HTTP/1.1\r\n").await;
    service.get("/livez").await.ok();
    service.shutdown.signal();
    service.stopped().await;
}

#[tokio::test]
async fn the_second_signal_ends_the_server_at_once() {
    let service = Service::start().await;
    service.post(&format!("{QUEUE}/add"), &object("k")).await.ok();
    take(&service).await;
    // A request that never ends by itself, because its body does not arrive.
    let mut stuck = service.client().await;
    stuck
        .send_bytes(b"POST /v1/queues/q/add HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n{")
        .await;
    service.shutdown.signal();
    service.get("/readyz").await.problem("draining");
    service.shutdown.signal();
    stuck.closed().await;
    service.stopped().await;
}
