//! The time of a queue while the wall clock is set back and forward.

use std::time::Duration;

use deltaq_engine::event::EventKind;
use serde_json::{Value, json};

use super::commits::{Bench, read};
use super::{keys, lease, object};

const DAY: Duration = Duration::from_hours(24);
const SECOND: Duration = Duration::from_secs(1);
/// The wall clock of [`Bench::new`].
const START_US: u64 = 1_700_000_000_000_000;
const START: &str = "2023-11-14T22:13:20.000Z";

/// A server that ran with its wall clock ten days ahead and was restarted with the right time.
async fn set_back(before: &[(&str, Value)]) -> Bench {
    let bench = Bench::new().await;
    bench.hand.set_wall(START_US + 10 * 86_400_000_000);
    let ahead = bench.restarted().await;
    for (call, body) in before {
        ahead.post(call, body).await;
    }
    ahead.hand.set_wall(START_US);
    ahead.restarted().await
}

async fn ready_keys(bench: &Bench) -> Vec<String> {
    let page = read(bench.call("GET", "/items?state=ready", &Value::Null).await).await;
    keys(&page).into_iter().map(str::to_owned).collect()
}

/// Lets everything happen that is due.
async fn advance(bench: &Bench, by: Duration) {
    bench.hand.advance(by);
    bench.post("/resume", &Value::Null).await;
}

#[tokio::test]
async fn a_lease_expires_on_time_if_the_wall_clock_is_ten_days_behind_the_last_event() {
    let bench = set_back(&[("/add", object("a"))]).await;
    let popped = bench.post("/pop?lease_duration=2s", &Value::Null).await;
    let held = &popped["items"][0]["lease"];
    assert_eq!(
        (&held["expires_in_ms"], &held["expires_at"]),
        (&json!(2_000), &json!("2023-11-14T22:13:22.000Z"))
    );
    advance(&bench, SECOND).await;
    let item = read(bench.call("GET", "/items/a", &Value::Null).await).await;
    assert_eq!((&item["state"], &item["lease"]["expires_in_ms"]), (&json!("leased"), &json!(1_000)));
    assert_eq!(item["lease"]["expires_at"], "2023-11-14T22:13:22.000Z");
    advance(&bench, SECOND).await;
    let item = read(bench.call("GET", "/items/a", &Value::Null).await).await;
    assert_eq!((&item["lease"], &item["failures"]), (&Value::Null, &json!(1)));
}

#[tokio::test]
async fn a_lease_that_is_live_during_a_restart_gets_its_full_length_once_more() {
    let bench = set_back(&[("/add", object("a")), ("/pop?lease_duration=2s", Value::Null)]).await;
    let item = read(bench.call("GET", "/items/a", &Value::Null).await).await;
    assert_eq!(item["lease"]["expires_in_ms"], 2_000);
    advance(&bench, 2 * SECOND).await;
    let item = read(bench.call("GET", "/items/a", &Value::Null).await).await;
    assert_eq!((&item["lease"], &item["failures"]), (&Value::Null, &json!(1)));
}

#[tokio::test]
async fn delays_and_backoff_end_on_time_if_the_wall_clock_is_behind() {
    let bench = set_back(&[("/add?delay=3s", object("old")), ("/add", object("failed"))]).await;
    bench.post("/add?delay=3s", &object("new")).await;
    let held = lease(&bench.post("/pop", &Value::Null).await, 0);
    bench.post("/nack", &json!({"lease_ids": [held], "delay": "2s"})).await;
    let delayed = read(bench.call("GET", "/items?state=delayed", &Value::Null).await).await;
    let due = |index: usize| delayed["items"][index]["due_at"].as_str();
    assert_eq!((keys(&delayed), due(0)), (vec!["failed", "old", "new"], Some("2023-11-14T22:13:22.000Z")));
    advance(&bench, 2 * SECOND).await;
    assert_eq!(ready_keys(&bench).await, ["failed"]);
    advance(&bench, SECOND).await;
    assert_eq!(ready_keys(&bench).await, ["failed", "old", "new"]);
}

#[tokio::test]
async fn a_periodic_resync_runs_on_time_if_the_wall_clock_is_behind() {
    let bench = set_back(&[("/add", object("a"))]).await;
    let put = bench.call("PUT", "", &json!({"resync_period": "5s"})).await;
    assert_eq!(put.status(), 200);
    let resyncs = |bench: &Bench| bench.events().iter().filter(|kind| **kind == EventKind::ResyncDue).count();
    advance(&bench, 4 * SECOND).await;
    assert_eq!(resyncs(&bench), 0);
    advance(&bench, SECOND).await;
    assert_eq!(resyncs(&bench), 1);
}

#[tokio::test]
async fn replies_show_wall_times_if_the_time_of_the_queue_is_ten_days_ahead() {
    let bench = set_back(&[("/replace", json!([{"key": "a"}]))]).await;
    bench.post("/add", &object("b")).await;
    let popped = bench.post("/pop?max=2", &Value::Null).await;
    for item in [0, 1] {
        assert_eq!(popped["items"][item]["deltas"][0]["queued_at"], START, "{popped}");
    }
    let listed = read(bench.call("GET", "/items/b", &Value::Null).await).await;
    assert_eq!(listed["leased_deltas"][0]["queued_at"], START);
    let history = read(bench.call("GET", "/history/b", &Value::Null).await).await;
    assert_eq!((&history["items"][0]["at"], &history["items"][1]["at"]), (&json!(START), &json!(START)));
    let queue = read(bench.call("GET", "", &Value::Null).await).await;
    assert_eq!(queue["status"]["last_replace"]["ended_at"], START);
    let held = lease(&popped, 0);
    let extended = bench.post("/extend", &json!({"lease_ids": [held], "lease_duration": "5s"})).await;
    assert_eq!(extended["settled"][0]["expires_at"], "2023-11-14T22:13:25.000Z");
    assert_eq!(extended["settled"][0]["expires_in_ms"], 5_000);
}

#[tokio::test]
async fn setting_the_wall_clock_of_a_running_server_ends_no_lease() {
    let bench = Bench::new().await;
    bench.post("/add", &object("a")).await;
    bench.post("/pop?lease_duration=1m", &Value::Null).await;
    for wall_us in [START_US + 10 * 86_400_000_000, START_US - 10 * 86_400_000_000] {
        bench.hand.set_wall(wall_us);
        advance(&bench, SECOND).await;
        let item = read(bench.call("GET", "/items/a", &Value::Null).await).await;
        assert_eq!(item["state"], "leased");
    }
    bench.hand.set_wall(START_US + 2 * 86_400_000_000);
    let item = read(bench.call("GET", "/items/a", &Value::Null).await).await;
    let expires_at = item["lease"]["expires_at"].as_str().expect("a lease");
    assert!(expires_at.starts_with("2023-11-16T22:14:18"), "{expires_at}");
    assert_eq!(item["lease"]["expires_in_ms"], 58_000);
    advance(&bench, DAY).await;
    let item = read(bench.call("GET", "/items/a", &Value::Null).await).await;
    assert_eq!(item["failures"], 1);
}
