//! Waiting pops, and clients that disconnect.

use std::io::Write as _;
use std::net::Shutdown;

use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::{QUEUE, keys, lease, listed, object, objects, status, take, waiters};
use crate::harness::{Client, Service};

/// A pop that already waits, as number `place`.
async fn waiting(service: &Service, query: &str, place: u64) -> Client {
    let client = service.send("POST", &format!("{QUEUE}/pop?wait=30s{query}"), &Value::Null).await;
    waiters(service, place).await;
    client
}

#[tokio::test]
async fn one_key_wakes_the_pop_that_has_waited_longest() {
    let service = Service::start().await;
    service.call("PUT", QUEUE, &json!({})).await.ok();
    let mut line = Vec::new();
    for place in 1..=4 {
        line.push(waiting(&service, "", place).await);
    }
    for (index, mut client) in line.into_iter().enumerate() {
        let key = format!("k{index}");
        service.post(&format!("{QUEUE}/add"), &object(&key)).await.ok();
        assert_eq!(keys(&client.reply().await.ok()), [key]);
        assert_eq!(status(&service, "waiters").await, 3 - index, "only one was woken");
    }
}

#[tokio::test]
async fn the_longest_waiting_pop_takes_its_max_and_then_the_next_pop() {
    let service = Service::start().await;
    service.call("PUT", QUEUE, &json!({})).await.ok();
    let mut first = waiting(&service, "&max=2", 1).await;
    let mut second = waiting(&service, "&max=2", 2).await;
    service.post(&format!("{QUEUE}/add"), &objects(&["a", "b", "c"])).await.ok();
    assert_eq!(keys(&first.reply().await.ok()), ["a", "b"]);
    assert_eq!(keys(&second.reply().await.ok()), ["c"]);
}

#[tokio::test]
async fn a_disconnected_waiting_pop_gets_no_keys() {
    let service = Service::start().await;
    service.call("PUT", QUEUE, &json!({})).await.ok();
    let first = waiting(&service, "", 1).await;
    let mut second = waiting(&service, "", 2).await;
    drop(first);
    waiters(&service, 1).await;
    service.post(&format!("{QUEUE}/add"), &object("k")).await.ok();
    let popped = second.reply().await.ok();
    assert_eq!((keys(&popped), &popped["items"][0]["attempt"]), (vec!["k"], &json!(1)));
}

/// Sends requests and closes the sending side before the server accepts the connection: the server accepts on the thread of
/// the test, which does not yield here.
fn send_and_close(service: &Service, requests: &str) -> Client {
    let mut stream = std::net::TcpStream::connect(service.api).expect("the server listens");
    stream.write_all(requests.as_bytes()).expect("the requests fit the buffers");
    stream.shutdown(Shutdown::Write).expect("an open connection");
    stream.set_nonblocking(true).expect("a socket option");
    Client::over(TcpStream::from_std(stream).expect("a runtime"))
}

#[tokio::test]
async fn a_pop_whose_client_has_closed_before_the_reply_takes_no_lease() {
    let service = Service::start().await;
    service.post(&format!("{QUEUE}/add"), &object("k")).await.ok();
    let pop = format!("POST {QUEUE}/pop?id=one HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\n{{}}");
    let pipelined = format!("{pop}GET /v1/info HTTP/1.1\r\nhost: localhost\r\n\r\n");
    for requests in [pop, pipelined] {
        send_and_close(&service, &requests).closed().await;
        let popped = service.post(&format!("{QUEUE}/pop?wait=20s"), &Value::Null).await.ok();
        assert_eq!((keys(&popped), &popped["items"][0]["attempt"]), (vec!["k"], &json!(1)));
        let settle = json!({"settle": [{"lease_id": lease(&popped, 0), "as": "ack"}]});
        service.post(&format!("{QUEUE}/settle"), &settle).await.ok();
        service.post(&format!("{QUEUE}/add"), &object("k")).await.ok();
    }
}

#[tokio::test]
async fn a_repeat_without_wait_ends_the_waiting_pop() {
    let service = Service::start().await;
    service.call("PUT", QUEUE, &json!({})).await.ok();
    let mut first = waiting(&service, "&id=one", 1).await;
    let none = service.post(&format!("{QUEUE}/pop?id=one"), &Value::Null).await.ok();
    assert_eq!(keys(&none), Vec::<&str>::new());
    service.post(&format!("{QUEUE}/add"), &object("k")).await.ok();
    assert_eq!(status(&service, "ready").await, 1, "the first pop takes no late lease");
    assert_eq!(keys(&first.reply().await.ok()), Vec::<&str>::new());
}

#[tokio::test]
async fn a_pop_without_wait_does_not_overtake_and_a_pop_whose_wait_ends_is_empty() {
    let service = Service::start().await;
    service.call("PUT", QUEUE, &json!({})).await.ok();
    let mut first = waiting(&service, "", 1).await;
    let none = service.post(&format!("{QUEUE}/pop"), &Value::Null).await.ok();
    assert_eq!(none, json!({"items": [], "settled": [], "closed": false, "paused": false}));
    let none = service.post(&format!("{QUEUE}/pop?wait=1ms"), &Value::Null).await.ok();
    assert_eq!(none, json!({"items": [], "settled": [], "closed": false, "paused": false}));
    assert_eq!(status(&service, "waiters").await, 1, "who stopped waiting has left the line");
    service.post(&format!("{QUEUE}/add"), &object("k")).await.ok();
    assert_eq!(keys(&first.reply().await.ok()), ["k"]);
}

#[tokio::test]
async fn keys_return_to_their_positions_if_the_client_disconnects_during_a_large_reply() {
    let service = Service::start().await;
    let filler = "x".repeat(200_000);
    let names: Vec<String> = (0..70).map(|index| format!("k{index:02}")).collect();
    for name in &names {
        let large = json!({"key": name, "filler": filler});
        service.post(&format!("{QUEUE}/add"), &large).await.ok();
    }
    service.post(&format!("{QUEUE}/add"), &object("last")).await.ok();
    let mut leaver = service.send("POST", &format!("{QUEUE}/pop?max=70"), &Value::Null).await;
    leaver.head().await.expect("the answer has begun");
    assert_eq!(status(&service, "leased").await, 70);
    // The next waiting pop gets the returned keys.
    let mut taker = service.send("POST", &format!("{QUEUE}/pop?max=1"), &Value::Null).await;
    assert_eq!(keys(&taker.reply().await.ok()), ["last"]);
    let mut next = waiting(&service, "&max=1", 1).await;
    drop(leaver);
    let popped = next.reply().await.ok();
    assert_eq!(keys(&popped), ["k00"]);
    let item = &popped["items"][0];
    assert_eq!((&item["attempt"], &item["failures"]), (&json!(1), &json!(0)), "as if it had not been");
    assert_eq!(listed(&service, "ready").await, names.get(1..).expect("many"));
}

#[tokio::test]
async fn keys_that_a_pop_settles_go_to_waiting_pops_first() {
    let service = Service::start().await;
    service.post(&format!("{QUEUE}/add"), &objects(&["a", "b"])).await.ok();
    let held = service.post(&format!("{QUEUE}/pop?max=2"), &Value::Null).await.ok();
    let mut waits = waiting(&service, "&max=1", 1).await;
    let released = [0, 1].map(|index| json!({"lease_id": lease(&held, index), "as": "release"}));
    let settle = json!({"settle": released});
    let popped = service.post(&format!("{QUEUE}/pop?max=1"), &settle).await.ok();
    assert_eq!((keys(&waits.reply().await.ok()), keys(&popped)), (vec!["a"], vec!["b"]));
}

#[tokio::test]
async fn a_repeated_pop_takes_the_position_of_the_waiting_one() {
    let service = Service::start().await;
    service.call("PUT", QUEUE, &json!({})).await.ok();
    let mut first = waiting(&service, "&id=one", 1).await;
    let mut other = waiting(&service, "", 2).await;
    let mut again = service.send("POST", &format!("{QUEUE}/pop?wait=30s&id=one"), &Value::Null).await;
    assert_eq!(keys(&first.reply().await.ok()), Vec::<&str>::new(), "it was given up");
    drop(first);
    assert_eq!(status(&service, "waiters").await, 2);
    service.post(&format!("{QUEUE}/add"), &object("k")).await.ok();
    assert_eq!(keys(&again.reply().await.ok()), ["k"]);
    service.post(&format!("{QUEUE}/add"), &object("l")).await.ok();
    assert_eq!(keys(&other.reply().await.ok()), ["l"]);
}

#[tokio::test]
async fn waiting_pops_are_bounded_and_a_repeated_pop_does_not_count_again() {
    let service = Service::with(|settings| settings.queues.max_waiters = 1).await;
    service.post(&format!("{QUEUE}/add"), &object("k")).await.ok();
    let held = take(&service).await;
    let mut first = waiting(&service, "&id=one", 1).await;
    let pop = format!("{QUEUE}/pop?wait=30s");
    let refused = service.post(&pop, &super::settling(&held, "ack")).await.problem("too-many-waiters");
    assert_eq!(refused["settled"], super::settled(&held, "ack", "ok"));
    assert_eq!(refused["limit"], 1);
    let mut again = service.send("POST", &format!("{QUEUE}/pop?wait=30s&id=one"), &Value::Null).await;
    first.reply().await.ok();
    service.post(&format!("{QUEUE}/add"), &object("l")).await.ok();
    assert_eq!(keys(&again.reply().await.ok()), ["l"]);
}

#[tokio::test]
async fn waiting_pops_keep_their_order_while_the_queue_is_paused() {
    let service = Service::start().await;
    service.call("PUT", QUEUE, &json!({})).await.ok();
    let mut first = waiting(&service, "", 1).await;
    let mut second = waiting(&service, "", 2).await;
    service.post(&format!("{QUEUE}/pause"), &Value::Null).await.ok();
    service.post(&format!("{QUEUE}/add"), &objects(&["a", "b"])).await.ok();
    assert_eq!((status(&service, "waiters").await, status(&service, "ready").await), (json!(2), json!(2)));
    let none = service.post(&format!("{QUEUE}/pop"), &Value::Null).await.ok();
    assert_eq!(keys(&none), Vec::<&str>::new());
    service.post(&format!("{QUEUE}/resume"), &Value::Null).await.ok();
    assert_eq!(keys(&first.reply().await.ok()), ["a"]);
    assert_eq!(keys(&second.reply().await.ok()), ["b"]);
}

#[tokio::test]
async fn a_lease_expires_by_the_timer_and_wakes_a_waiting_pop() {
    let service = Service::start().await;
    let config = json!({"rate_limiter": {"item_exponential": {"base": "1ms", "max": "1ms"}}});
    service.call("PUT", QUEUE, &config).await.ok();
    service.post(&format!("{QUEUE}/add"), &object("k")).await.ok();
    let popped = service.post(&format!("{QUEUE}/pop?lease_duration=5s"), &Value::Null).await.ok();
    let expires_in_ms = popped["items"][0]["lease"]["expires_in_ms"].as_u64().expect("a number");
    assert!((1..=5_000).contains(&expires_in_ms), "{expires_in_ms}");
    let mut next = waiting(&service, "", 1).await;
    let again = next.reply().await.ok();
    let item = &again["items"][0];
    assert_eq!((&item["key"], &item["attempt"], &item["failures"]), (&json!("k"), &json!(2), &json!(1)));
    assert!(item["lease"]["token"].as_u64() > popped["items"][0]["lease"]["token"].as_u64());
    let late = json!({"lease_ids": [lease(&popped, 0)]});
    let lost = service.post(&format!("{QUEUE}/ack"), &late).await.problem("lease-lost");
    assert_eq!(lost["settled"][0]["outcome"], "expired");
}

#[tokio::test]
async fn a_delay_ends_by_the_timer_and_wakes_a_waiting_pop() {
    let service = Service::start().await;
    service.call("PUT", QUEUE, &json!({})).await.ok();
    let mut waiter = waiting(&service, "", 1).await;
    service.post(&format!("{QUEUE}/add?delay=1h"), &object("later")).await.ok();
    service.post(&format!("{QUEUE}/add?delay=20ms"), &object("soon")).await.ok();
    assert_eq!(keys(&waiter.reply().await.ok()), ["soon"]);
    assert_eq!(listed(&service, "ready,delayed").await, ["later"]);
}

#[tokio::test]
async fn a_nacked_key_is_redelivered_by_the_timer() {
    let service = Service::start().await;
    service.post(&format!("{QUEUE}/add"), &object("k")).await.ok();
    let held = take(&service).await;
    let nack = json!({"settle": [{"lease_id": held, "as": "nack", "delay": "20ms", "error": "no luck"}]});
    let again = service.post(&format!("{QUEUE}/pop?wait=30s"), &nack).await.ok();
    assert_eq!((keys(&again), &again["items"][0]["failures"]), (vec!["k"], &json!(1)));
    assert_eq!(super::results(&again["settled"]), super::settled(&held, "nack", "ok"));
}

#[tokio::test]
async fn a_periodic_resync_runs_by_the_timer() {
    let service = Service::start().await;
    service.call("PUT", QUEUE, &json!({"resync_period": "1s"})).await.ok();
    service.post(&format!("{QUEUE}/seed"), &json!([{"object": {"key": "k"}}])).await.ok();
    let popped = service.post(&format!("{QUEUE}/pop?wait=30s"), &Value::Null).await.ok();
    assert_eq!(popped["items"][0]["deltas"][0]["type"], "Sync");
}
