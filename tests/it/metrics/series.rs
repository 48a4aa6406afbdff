//! The lifetime of series: as long as their queue, and no more than a setting allows.

#![expect(clippy::float_cmp, reason = "counts and whole seconds are floats on a page, and exact")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use deltaq_engine::Queue;
use deltaq_engine::command::{Call, Pop};
use deltaq_engine::config::Config;
use deltaq_engine::delta::DeltaKind;
use deltaq_engine::id::Rv;
use deltaq_engine::key::Key;
use deltaq_engine::object::Object;
use deltaq_engine::time::Time;
use deltaq_service::metrics::{Metrics, Waiting};
use deltaq_service::{Moment, Name};
use serde_json::{Value, json};

use super::page::Page;
use crate::harness::{Client, Service, within};

async fn page(service: &Service) -> Page {
    let mut client = Client::connect(service.metrics).await;
    Page::read(&client.call("GET", "/metrics", &Value::Null).await.text)
}

async fn add(service: &Service, queue: &str, keys: &[&str]) {
    let objects: Value = keys.iter().map(|key| json!({"key": key})).collect();
    service.post(&format!("/v1/queues/{queue}/add"), &objects).await.ok();
}

async fn pop(service: &Service, queue: &str) {
    service.post(&format!("/v1/queues/{queue}/pop"), &Value::Null).await.ok();
}

async fn delete(service: &Service, queue: &str) {
    assert_eq!(service.call("DELETE", &format!("/v1/queues/{queue}"), &Value::Null).await.status, 204);
}

/// Asserts that no counter of `before` is smaller in `after`, unless its series has ended.
fn assert_counters_grow(before: &Page, after: &Page) {
    for (series, value) in &before.values {
        let name = series.split('{').next().unwrap_or_default();
        let counts = ["_total", "_bucket", "_count", "_sum"].iter().any(|end| name.ends_with(end));
        if let Some(now) = after.values.get(series).filter(|_| counts) {
            assert!(now >= value, "{series} fell from {value} to {now}");
        }
    }
}

#[tokio::test]
async fn the_series_of_a_deleted_queue_end_and_a_new_queue_begins_at_zero() {
    let service = Service::start().await;
    let before = page(&service).await.values.len();
    for round in 0..3 {
        for number in 0..20 {
            let queue = format!("q{round}-{number}");
            add(&service, &queue, &["a"]).await;
            pop(&service, &queue).await;
        }
        assert_eq!(page(&service).await.queues().len(), 20);
        for number in 0..20 {
            delete(&service, &format!("q{round}-{number}")).await;
        }
    }
    let after = page(&service).await;
    assert_eq!(after.queues(), Vec::<String>::new());
    let http = |series: &&String| series.starts_with("deltaq_http_");
    let grown = after.values.keys().filter(http).count();
    assert!(after.values.len() <= before + grown, "{} series, {before} before", after.values.len());

    add(&service, "q", &["a", "b"]).await;
    pop(&service, "q").await;
    delete(&service, "q").await;
    add(&service, "q", &["a"]).await;
    let own = page(&service).await.of_queue("q");
    assert_eq!(own["workqueue_adds_total"], 1.0);
    assert_eq!(own["deltaq_deltas_total{type=\"Added\"}"], 1.0);
    assert_eq!(own["workqueue_queue_duration_seconds_count"], 0.0);
    assert_eq!(own["deltaq_items{state=\"leased\"}"], 0.0);
}

/// All series of a queue except the buckets of histograms.
const OF_A_QUEUE: [&str; 47] = [
    "deltaq_clock_lead_seconds",
    "deltaq_debounced_total",
    "deltaq_deltas_coalesced_total",
    r#"deltaq_deltas_ignored_total{reason="absent"}"#,
    r#"deltaq_deltas_ignored_total{reason="closed"}"#,
    r#"deltaq_deltas_ignored_total{reason="duplicate"}"#,
    r#"deltaq_deltas_ignored_total{reason="repeated"}"#,
    r#"deltaq_deltas_ignored_total{reason="stale"}"#,
    r#"deltaq_deltas_ignored_total{reason="superseded"}"#,
    r#"deltaq_deltas_ignored_total{reason="unchanged"}"#,
    "deltaq_deltas_per_delivery_count",
    "deltaq_deltas_per_delivery_sum",
    r#"deltaq_deltas_total{type="Added"}"#,
    r#"deltaq_deltas_total{type="Deleted"}"#,
    r#"deltaq_deltas_total{type="Replaced"}"#,
    r#"deltaq_deltas_total{type="Sync"}"#,
    r#"deltaq_deltas_total{type="Updated"}"#,
    "deltaq_has_synced",
    "deltaq_held_bytes",
    "deltaq_highest_failures",
    r#"deltaq_items{state="delayed"}"#,
    r#"deltaq_items{state="leased"}"#,
    r#"deltaq_items{state="parked"}"#,
    r#"deltaq_items{state="ready"}"#,
    "deltaq_known_objects",
    "deltaq_oldest_ready_age_seconds",
    "deltaq_oldest_unacknowledged_age_seconds",
    r#"deltaq_ready_keys{reason="eligible"}"#,
    r#"deltaq_ready_keys{reason="held"}"#,
    r#"deltaq_ready_keys{reason="limited"}"#,
    r#"deltaq_ready_keys{reason="paused"}"#,
    r#"deltaq_settled_total{outcome="ack"}"#,
    r#"deltaq_settled_total{outcome="expired"}"#,
    r#"deltaq_settled_total{outcome="nack"}"#,
    r#"deltaq_settled_total{outcome="reject"}"#,
    r#"deltaq_settled_total{outcome="release"}"#,
    r#"deltaq_settled_total{outcome="stale"}"#,
    "deltaq_waiters",
    "workqueue_adds_total",
    "workqueue_depth",
    "workqueue_longest_running_processor_seconds",
    "workqueue_queue_duration_seconds_count",
    "workqueue_queue_duration_seconds_sum",
    "workqueue_retries_total",
    "workqueue_unfinished_work_seconds",
    "workqueue_work_duration_seconds_count",
    "workqueue_work_duration_seconds_sum",
];

#[tokio::test]
async fn idle_and_busy_queues_have_the_same_series() {
    let service = Service::start().await;
    add(&service, "busy", &["a", "b"]).await;
    pop(&service, "busy").await;
    service.call("PUT", "/v1/queues/idle", &json!({})).await.ok();
    let page = page(&service).await;
    let names = |queue: &str| page.of_queue(queue).into_keys().collect::<Vec<_>>();
    assert_eq!(names("busy"), names("idle"));
    assert_eq!(names("busy").len(), 86, "config/deltaq.toml and docs/monitoring.md state the number");
    let without_buckets: Vec<_> =
        names("busy").into_iter().filter(|series| !series.contains("_bucket{")).collect();
    assert_eq!(without_buckets, OF_A_QUEUE);
}

#[tokio::test]
async fn every_family_is_documented() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/monitoring.md");
    let text = std::fs::read_to_string(path).expect("the file is there");
    let folder = crate::harness::server::Store::folder("families");
    let path = folder.path();
    let service = Service::with(|settings| {
        settings.storage.in_memory = false;
        path.clone_into(&mut settings.storage.data_dir);
    })
    .await;
    add(&service, "q", &["a"]).await;
    service.post("/v1/queues/q/replace?source=erp", &json!([{"key": "b"}])).await.ok();
    let accept = [("accept", "application/json")];
    service.call("PUT", "/v1/queues/grouped", &json!({"groups": {"by": "source"}})).await.ok();
    let mut client = service.client().await;
    client.send_text("GET", "/v1/queues/q/watch?resource_version=now", &accept, "").await;
    client.reply().await.ok();
    let families = page(&service).await.types;
    assert!(families.contains_key("deltaq_journal_commit_duration_seconds"), "there is a journal");
    for family in families.keys().filter(|family| !family.starts_with("process_")) {
        let explained = text.contains(&format!("`{family}`")) || text.contains(&format!("`{family}{{"));
        assert!(explained, "docs/monitoring.md does not document {family}");
    }
    service.shutdown.signal();
    service.stopped().await;
}

#[tokio::test]
async fn a_queue_with_groups_has_series_for_what_stops_them() {
    let service = Service::start().await;
    let groups = json!({"groups": {"by": "/t", "max_leased": 1, "rate": {"per_second": 0.001, "burst": 5}}});
    service.call("PUT", "/v1/queues/q", &groups).await.ok();
    let objects = json!([{"key": "a1", "t": "a"}, {"key": "a2", "t": "a"}, {"key": "b1", "t": "b"}, {"key": "b2", "t": "b"}, {"key": "c1", "t": "c"}]);
    service.post("/v1/queues/q/add", &objects).await.ok();
    service.post("/v1/queues/q/pop", &Value::Null).await.ok();
    service.post("/v1/queues/q/pause", &json!({"group": "c"})).await.ok();
    let of_queue = page(&service).await.of_queue("q");
    let numbers = |name: &str, label: &str, words: &[&str]| -> Vec<f64> {
        words.iter().map(|word| of_queue[&format!(r#"{name}{{{label}="{word}"}}"#)]).collect()
    };
    let words = ["eligible", "limited", "held", "paused"];
    assert_eq!(numbers("deltaq_ready_keys", "reason", &words), [2.0, 1.0, 0.0, 1.0]);
    assert_eq!(numbers("deltaq_groups", "state", &words), [1.0, 1.0, 0.0, 1.0]);
    assert_eq!(numbers("deltaq_groups", "state", &["idle"]), [1.0], "the group without a name");
    assert_eq!(of_queue.len(), 86 + 6);
    let age = async || page(&service).await.of_queue("q")["deltaq_quiet_oldest_ready_age_seconds"];
    // The clock may not have moved since the add.
    while age().await <= 0.0 {}
    service.post("/v1/queues/q/pause", &Value::Null).await.ok();
    assert!(age().await <= 0.0, "nothing of a paused queue waits without a reason");
}

#[tokio::test]
async fn a_queue_with_watches_has_series_for_them() {
    let service = Service::start().await;
    add(&service, "q", &["a"]).await;
    let of_watches = |page: &Page| {
        let series = page.of_queue("q").into_iter();
        let is_of_watches = |name: &str| name.contains("_watch") || name.contains("_feed_");
        series.filter(|(name, _)| is_of_watches(name)).collect::<BTreeMap<_, _>>()
    };
    assert_eq!(of_watches(&page(&service).await), BTreeMap::new());
    let accept = [("accept", "application/json")];
    let mut client = service.client().await;
    client.send_text("GET", "/v1/queues/q/watch?resource_version=now", &accept, "").await;
    let mut version = client.reply().await.ok()["resource_version"].clone();
    let (mut rows, mut delivered) = (0.0, 0.0);
    // A watch that had no time to wait for the change has no time of delivery.
    while delivered < 1.0 {
        let path = format!("/v1/queues/q/watch?resource_version={version}&wait=20s");
        client.send_text("GET", &path, &accept, "").await;
        until(&service, |page| of_watches(page)["deltaq_watches{view=\"latest\"}"] == 1.0).await;
        service.post("/v1/queues/q/add", &json!({"key": "b"})).await.ok();
        let reply = client.reply().await.ok();
        assert_eq!(reply["items"].as_array().map(Vec::len), Some(1), "{reply}");
        version = reply["resource_version"].clone();
        rows += 1.0;
        delivered = of_watches(&page(&service).await)["deltaq_watch_delivery_seconds_count"];
    }
    service.post("/v1/queues/q/delete", &json!({"key": "a"})).await.ok();
    service.get("/v1/queues/q/watch?resource_version=9007199254740991").await.problem("expired");
    service.get("/v1/queues/q/watch?resource_version=99999").await.problem("expired");
    service.get("/v1/queues/q/watch?resource_version=6f2c01ab-1").await.problem("expired");
    service.get("/v1/queues/q/watch?resource_version=6f2c01ab-1-1").await.problem("expired");
    let found = of_watches(&page(&service).await);
    assert_eq!(found["deltaq_watches{view=\"latest\"}"], 0.0);
    assert_eq!(found["deltaq_watch_rows_total{view=\"latest\"}"], rows);
    assert_eq!(found["deltaq_watch_rows_total{view=\"known\"}"], 0.0);
    assert_eq!(found["deltaq_watch_lost_total{reason=\"ahead\"}"], 1.0);
    assert_eq!(found["deltaq_watch_lost_total{reason=\"lost\"}"], 3.0);
    assert_eq!(found["deltaq_watch_lost_total{reason=\"too_old\"}"], 0.0);
    assert_eq!(found["deltaq_feed_keys{view=\"latest\"}"], 1.0);
    assert_eq!(found["deltaq_feed_tombstones{view=\"latest\"}"], 1.0);
    assert!(found["deltaq_feed_tombstone_bytes{view=\"latest\"}"] > 0.0);
    assert_eq!(delivered, 1.0);
    assert!(found["deltaq_watch_delivery_seconds_sum"] > 0.0);
}

#[tokio::test]
async fn queues_past_the_limit_share_their_series() {
    let service = Service::with(|settings| settings.metrics.max_queues = 2).await;
    for queue in ["one", "two", "three", "four"] {
        add(&service, queue, &["a", "b", "c"]).await;
        pop(&service, queue).await;
    }
    let full = page(&service).await;
    assert_eq!(full.queues(), ["_other", "one", "two"]);
    let others = full.of_queue("_other");
    assert_eq!(others["workqueue_adds_total"], 6.0);
    assert_eq!(others["workqueue_queue_duration_seconds_count"], 2.0);
    assert_eq!(others["workqueue_queue_duration_seconds_bucket{le=\"+Inf\"}"], 2.0);
    assert_eq!(others["deltaq_items{state=\"ready\"}"], 4.0);
    assert_eq!(others["workqueue_depth"], 4.0);

    // The oldest of the other queues gets series of its own, which begin at zero. Its earlier counts stay in the shared
    // series.
    add(&service, "three", &["d"]).await;
    let grown = page(&service).await;
    assert_counters_grow(&full, &grown);
    delete(&service, "one").await;
    let moved = page(&service).await;
    assert_counters_grow(&grown, &moved);
    assert_eq!(moved.queues(), ["_other", "three", "two"]);
    assert_eq!(moved.of_queue("_other")["workqueue_adds_total"], 7.0);
    assert_eq!(moved.of_queue("_other")["workqueue_depth"], 2.0);
    assert_eq!(moved.of_queue("three")["workqueue_adds_total"], 0.0);
    assert_eq!(moved.of_queue("three")["workqueue_depth"], 3.0);
    add(&service, "three", &["e"]).await;
    pop(&service, "three").await;
    let counted = page(&service).await;
    assert_eq!(counted.of_queue("three")["workqueue_adds_total"], 1.0);
    assert_eq!(counted.of_queue("three")["workqueue_queue_duration_seconds_count"], 1.0);

    // The last counts of a deleted queue stay in the shared series.
    add(&service, "five", &["a"]).await;
    add(&service, "four", &["d"]).await;
    delete(&service, "four").await;
    let fewer = page(&service).await;
    assert_counters_grow(&counted, &fewer);
    assert_eq!(fewer.of_queue("_other")["workqueue_adds_total"], 9.0);
    assert_eq!(fewer.of_queue("_other")["workqueue_depth"], 1.0);
    delete(&service, "five").await;
    assert_eq!(page(&service).await.queues(), ["three", "two"]);
}

/// A queue with one key that was added at `added_s` and leased at `popped_s`, and ready keys added at `ready`.
fn queue(config: &Arc<Config>, added_s: u64, popped_s: u64, ready: &[u64]) -> Queue {
    let at = |seconds: u64| Time::from_micros(seconds * 1_000_000);
    let mut queue = Queue::new(config.clone(), Rv::ZERO, Time::default());
    let add = |queue: &mut Queue, key: &str, seconds: u64| {
        let object = Object::from_valid(&json!({"key": key}).to_string());
        let call = Call {
            kind: DeltaKind::Added,
            key: Key::new(key).expect("a key"),
            object: Some(object),
            source: None,
            delay: None,
            debounce: None,
            head_start: None,
            final_state_unknown: false,
            rate_limited: false,
            trace: None,
            version: None,
        };
        queue.produce(at(seconds), &[call]).expect("there is room");
    };
    add(&mut queue, "leased", added_s);
    let (lease, worker, id) = (Some(Duration::from_hours(1)), None, None);
    let pop = Pop { max: 1, max_bytes: usize::MAX, lease, worker, id, with_known: false, group: None };
    assert_eq!(queue.pop(at(popped_s), &pop).expect("the queue is open").len(), 1);
    for (number, seconds) in ready.iter().enumerate() {
        add(&mut queue, &format!("ready-{number}"), *seconds);
    }
    queue
}

#[test]
fn gauges_of_several_queues_are_summed_and_ages_are_the_oldest() {
    let config = Arc::new(Config::default());
    let metrics = Metrics::new(0).expect("metrics");
    let mut queues = [
        queue(&config, 1, 4, &[5, 6]),
        queue(&config, 2, 3, &[7]),
        Queue::new(config, Rv::ZERO, Time::default()),
    ];
    let slots = ["x", "y", "z"].map(|name| metrics.of_queue(&Name::new(name).expect("a name")));
    let mut page = || {
        let now = Moment::at(Time::from_micros(10_000_000));
        let samples: Vec<_> = slots
            .iter()
            .zip(&mut queues)
            .map(|(slot, queue)| {
                slot.absorb(&mut queue.take_effects().counters);
                slot.sample(queue, Waiting { pops: 2, watches: [1, 0] }, now, Duration::from_secs(9))
            })
            .collect();
        Page::read(&metrics.render(&samples)).of_queue("_other")
    };
    let expected = BTreeMap::from([
        ("workqueue_depth", 3.0),
        ("workqueue_unfinished_work_seconds", 13.0),
        ("workqueue_longest_running_processor_seconds", 7.0),
        ("workqueue_adds_total", 5.0),
        ("deltaq_items{state=\"ready\"}", 3.0),
        ("deltaq_items{state=\"leased\"}", 2.0),
        ("deltaq_oldest_ready_age_seconds", 5.0),
        // The first key is leased since 4 s, and was added at 1 s.
        ("deltaq_oldest_unacknowledged_age_seconds", 9.0),
        ("deltaq_waiters", 6.0),
        ("deltaq_clock_lead_seconds", 9.0),
        ("deltaq_watches{view=\"latest\"}", 3.0),
        ("deltaq_watches{view=\"known\"}", 0.0),
        // The third queue had no call yet.
        ("deltaq_has_synced", 0.0),
    ]);
    let found = page();
    assert_eq!(expected, expected.keys().map(|series| (*series, found[*series])).collect());
    assert_eq!(found, page(), "a second scrape counts nothing twice");
    queues[2] = queue(queues[0].config(), 1, 2, &[]);
    let samples = slots.iter().zip(&mut queues).map(|(slot, queue)| {
        slot.sample(queue, Waiting::default(), Moment::at(Time::default()), Duration::ZERO)
    });
    let text = metrics.render(&samples.collect::<Vec<_>>());
    assert_eq!(Page::read(&text).of_queue("_other")["deltaq_has_synced"], 1.0);
}

#[tokio::test]
async fn each_source_has_the_time_of_its_last_complete_list() {
    let service = Service::with(|settings| settings.metrics.max_queues = 1).await;
    let series = |page: &Page| {
        let own = page.values.iter().filter(|(series, _)| series.starts_with("deltaq_source_last_replace"));
        own.map(|(series, at)| (series.clone(), *at)).collect::<Vec<_>>()
    };
    service.post("/v1/queues/own/add?source=shop", &json!({"key": "a"})).await.ok();
    assert_eq!(series(&page(&service).await), [], "an add is no list");
    for queue in ["own", "shares"] {
        service.post(&format!("/v1/queues/{queue}/replace?source=erp"), &json!([{"key": "b"}])).await.ok();
    }
    let sources = service.get("/v1/queues/own/sources").await.ok();
    let ended = sources["items"][0]["last_replaced_at"].as_str().expect("a time").to_owned();
    let found = series(&page(&service).await);
    let name = "deltaq_source_last_replace_timestamp_seconds{queue=\"own\",source=\"erp\"}";
    assert_eq!(found.iter().map(|(series, _)| series.as_str()).collect::<Vec<_>>(), [name]);
    let shown = u64::try_from(Duration::from_secs_f64(found[0].1).as_micros()).expect("a time");
    let shown = deltaq_types::Timestamp::from_micros(shown).to_string();
    assert_eq!(shown[..19], ended[..19]);
    for number in 0..100 {
        service.post(&format!("/v1/queues/own/replace?source=f-{number:03}"), &json!([])).await.ok();
    }
    let found = series(&page(&service).await);
    assert_eq!(found.len(), 100, "the first by name");
    assert!(found.last().is_some_and(|(series, _)| series.ends_with("source=\"f-098\"}")), "{found:?}");
}

#[tokio::test]
async fn each_source_has_its_last_contact_and_one_with_a_threshold_whether_it_is_stale() {
    let service = Service::start().await;
    service.post("/v1/queues/q/add?source=erp", &json!({"key": "a"})).await.ok();
    assert_eq!(service.post("/v1/queues/q/sources/crm/seen", &Value::Null).await.status, 204);
    let threshold = json!({"stale_after": "1h"});
    service.call("PATCH", "/v1/queues/q/sources/crm", &threshold).await.ok();
    let page = page(&service).await;
    for source in ["erp", "crm"] {
        let name = format!("deltaq_source_last_contact_timestamp_seconds{{queue=\"q\",source=\"{source}\"}}");
        assert!(page.value(&name) > 1e9, "{name}");
    }
    assert_eq!(page.value("deltaq_source_stale{queue=\"q\",source=\"crm\"}"), 0.0);
    let stale = page.values.keys().filter(|series| series.starts_with("deltaq_source_stale"));
    assert_eq!(stale.count(), 1, "a source without a threshold is never stale");
}

/// Only the first hundred sources by threshold and name had series, so the alert of a later one never fired.
#[tokio::test]
async fn a_stale_source_has_its_alert_among_many() {
    let service = Service::start().await;
    service.call("PUT", "/v1/queues/q", &json!({})).await.ok();
    let mut sources: serde_json::Map<String, Value> =
        (0..120).map(|number| (format!("s-{number:03}"), json!({"stale_after": "1h"}))).collect();
    sources.insert("z-late".to_owned(), json!({"stale_after": "1s"}));
    service.call("PATCH", "/v1/queues/q/sources", &json!({ "sources": sources })).await;
    let series = "deltaq_source_stale{queue=\"q\",source=\"z-late\"}";
    until(&service, |page| page.values.get(series) == Some(&1.0)).await;
}

#[tokio::test]
async fn a_paused_queue_has_no_age() {
    let service = Service::start().await;
    for queue in ["open", "paused"] {
        add(&service, queue, &["a"]).await;
    }
    service.post("/v1/queues/paused/pause", &Value::Null).await.ok();
    let ages = page(&service).await;
    assert!(ages.value("deltaq_oldest_ready_age_seconds{queue=\"open\"}") > 0.0);
    assert_eq!(ages.value("deltaq_oldest_ready_age_seconds{queue=\"paused\"}"), 0.0);
    assert!(service.get("/v1/queues/paused").await.ok()["status"]["oldest_ready_age_ms"].is_u64());
    // The content of its consumers grows old all the same.
    assert!(ages.value("deltaq_oldest_unacknowledged_age_seconds{queue=\"paused\"}") > 0.0);
    service.post("/v1/queues/paused/resume", &Value::Null).await.ok();
    assert!(page(&service).await.value("deltaq_oldest_ready_age_seconds{queue=\"paused\"}") > 0.0);
}

/// Scrapes until the page satisfies the condition.
async fn until(service: &Service, is_reached: impl Fn(&Page) -> bool) -> Page {
    within(async {
        loop {
            let page = page(service).await;
            if is_reached(&page) {
                return page;
            }
        }
    })
    .await
}

#[tokio::test]
async fn callers_that_leave_before_their_answer_are_counted() {
    let service = Service::start().await;
    service.call("PUT", "/v1/queues/q", &json!({})).await.ok();
    let gone = r#"deltaq_http_requests_gone_total{method="POST",route="/v1/queues/{queue}/pop"}"#;
    for disconnected in [1.0, 2.0] {
        let client = service.send("POST", "/v1/queues/q/pop?wait=30s", &Value::Null).await;
        let before =
            until(&service, |page| page.values.get("deltaq_waiters{queue=\"q\"}") == Some(&1.0)).await;
        assert_eq!(before.values.get(gone).copied().unwrap_or_default(), disconnected - 1.0);
        drop(client);
        let after = until(&service, |page| page.values.get(gone) == Some(&disconnected)).await;
        // No pop was answered.
        assert!(
            !after.values.keys().any(|series| series.starts_with("deltaq_http_requests_total{method=\"POST"))
        );
        assert_eq!(after.value("deltaq_http_requests_in_flight"), 1.0, "this scrape is the only request");
    }
}

#[tokio::test]
async fn connections_and_their_limit_are_shown() {
    let service = Service::with(|settings| settings.server.max_connections = 2).await;
    let open = |wanted: f64| move |page: &Page| page.value("deltaq_http_connections") == wanted;
    let before = page(&service).await;
    assert_eq!(before.value("deltaq_http_connections"), 0.0, "scrapes use another listener");
    assert_eq!(before.value("deltaq_http_connections_limit"), 2.0);
    let first = service.busy_client().await;
    until(&service, open(1.0)).await;
    let second = service.busy_client().await;
    until(&service, open(2.0)).await;
    service.get("/v1/info").await.problem("too-many-connections");
    let full = page(&service).await;
    assert_eq!(full.value("deltaq_http_connections"), 2.0, "a refused connection does not count");
    assert_eq!(
        full.value(r#"deltaq_http_requests_total{method="other",route="unmatched",status="503"}"#),
        1.0
    );
    drop(first);
    until(&service, open(1.0)).await;
    drop(second);
    until(&service, open(0.0)).await;
}

#[tokio::test]
async fn callers_cannot_invent_labels_of_requests() {
    let service = Service::start().await;
    let requests = ["GET", "POST", "BREW", "OPTIONS"].iter().flat_map(|method| {
        ["/nowhere/a", "/nowhere/b", "/v1/queues/a/items/x", "/v1/queues/b/items/y/z", "/v1/queues/a/nothing"]
            .map(|path| (*method, path))
    });
    for (method, path) in requests {
        service.call(method, path, &Value::Null).await;
    }
    let seen: Vec<String> = page(&service)
        .await
        .values
        .into_keys()
        .filter(|series| series.starts_with("deltaq_http_requests_total"))
        .map(|series| series.replace("deltaq_http_requests_total", ""))
        .collect();
    assert_eq!(
        seen,
        [
            r#"{method="GET",route="/v1/queues/{queue}/items/{*key}",status="404"}"#,
            r#"{method="GET",route="unmatched",status="404"}"#,
            r#"{method="POST",route="/v1/queues/{queue}/items/{*key}",status="405"}"#,
            r#"{method="POST",route="unmatched",status="404"}"#,
            r#"{method="other",route="/v1/queues/{queue}/items/{*key}",status="405"}"#,
            r#"{method="other",route="unmatched",status="404"}"#,
            // Connections past the limit: from the start, at 0.
            r#"{method="other",route="unmatched",status="503"}"#,
        ]
    );
}
