//! The problems that sources report, their contacts and their thresholds.

use std::time::Duration;

use deltaq_engine::event::EventKind;
use serde_json::{Value, json};

use super::commits::{Bench, read};
use crate::harness::{Service, within};

const QUEUE: &str = "/v1/queues/prices";
const SOURCES: &str = "/v1/queues/prices/sources";

async fn report(service: &Service, source: &str, problem: Value) {
    let reply = service.post(SOURCES, &json!({"source": source, "problem": problem})).await;
    assert_eq!(reply.status, 204, "{}", reply.body);
}

/// The sources with their keys and problems.
async fn listed(service: &Service) -> Vec<Value> {
    let page = service.get(SOURCES).await.ok();
    let items = page["items"].as_array().expect("items").iter();
    items.map(|item| json!([item["source"], item["keys"], item["problem"]["detail"]])).collect()
}

#[tokio::test]
async fn a_problem_is_shown_with_its_source_until_it_has_passed() {
    let service = Service::start().await;
    service.post(&format!("{QUEUE}/add?source=erp"), &json!({"key": "a"})).await.ok();
    // A source that has never sent anything has a problem as well.
    report(&service, "crm", json!("User \"x\" cannot list resource \"prices\"")).await;
    report(&service, "erp", json!("down")).await;
    report(&service, "erp", json!("2 objects are left out")).await;
    let crm = json!(["crm", 0, "User \"x\" cannot list resource \"prices\""]);
    assert_eq!(listed(&service).await, [crm, json!(["erp", 1, "2 objects are left out"])]);
    let first = service.get(&format!("{SOURCES}?limit=1")).await.ok();
    assert!(first["items"][0]["problem"]["reported_at"].is_string(), "{first}");
    let next = first["continue"].as_str().expect("another page");
    let second = service.get(&format!("{SOURCES}?limit=1&continue={next}")).await.ok();
    assert_eq!((&second["items"][0]["source"], &second["continue"]), (&json!("erp"), &Value::Null));

    report(&service, "crm", Value::Null).await;
    report(&service, "erp", Value::Null).await;
    report(&service, "nobody", Value::Null).await;
    assert_eq!(listed(&service).await, [json!(["erp", 1, null])]);
}

#[tokio::test]
async fn wrong_reports_are_refused() {
    let service = Service::start().await;
    let down = json!({"source": "erp", "problem": "down"});
    service.post(SOURCES, &down).await.problem("queue-not-found");
    service.post(&format!("{QUEUE}/add"), &json!({"key": "a"})).await.ok();
    for (report, field) in [
        (json!({"source": "", "problem": "down"}), "source"),
        (json!({"source": "a\n", "problem": "down"}), "source"),
        (json!({"source": "erp", "problem": "x".repeat(5_000)}), "problem"),
    ] {
        assert_eq!(service.post(SOURCES, &report).await.problem("invalid-request")["field"], field);
    }
    for report in
        [json!({}), json!({"problem": "down"}), json!({"source": "erp", "why": 1}), json!({"source": 1})]
    {
        service.post(SOURCES, &report).await.problem("invalid-request");
    }
    assert_eq!(listed(&service).await, [Value::Null; 0]);
}

const MINUTE: Duration = Duration::from_mins(1);

impl Bench {
    async fn source(&self) -> Value {
        read(self.call("GET", "/sources", &Value::Null).await).await["items"][0].clone()
    }

    async fn version(&self) -> Value {
        read(self.call("GET", "/sources", &Value::Null).await).await["resource_version"].clone()
    }

    async fn seen(&self) {
        assert_eq!(self.call("POST", "/sources/erp/seen", &Value::Null).await.status(), 204);
    }

    async fn set_threshold(&self, threshold: &Value) -> Value {
        let answer = self.call("PATCH", "/sources/erp", &json!({"stale_after": threshold})).await;
        assert_eq!(answer.status(), 200);
        read(answer).await
    }
}

#[tokio::test]
async fn a_contact_is_no_event_of_its_own_and_is_durable_within_a_minute() {
    let bench = Bench::with_queue().await;
    bench.post("/add?source=erp", &json!({"key": "a"})).await;
    assert_eq!(bench.source().await["last_contact_at"], "2023-11-14T22:13:20.000Z");
    let version = bench.version().await;
    bench.hand.advance(MINUTE);
    // A call that queues nothing is a contact, and so is the report that there is no change.
    bench.post("/delete?source=erp", &json!({"key": "unknown"})).await;
    assert_eq!(bench.source().await["last_contact_at"], "2023-11-14T22:14:20.000Z");
    for _ in 0..100 {
        bench.hand.advance(Duration::from_millis(500));
        bench.seen().await;
    }
    assert_eq!(bench.source().await["last_contact_at"], "2023-11-14T22:15:10.000Z");
    assert_eq!(bench.version().await, version, "a hundred contacts are no event");
    // After a crash, the contact is older, and never newer.
    let after = bench.restarted().await;
    assert_eq!(after.source().await["last_contact_at"], "2023-11-14T22:13:20.000Z");

    bench.hand.advance(Duration::from_secs(10));
    bench.seen().await;
    let written = async {
        while bench.version().await == version {
            tokio::task::yield_now().await;
        }
    };
    within(written).await;
    let reached = |kind: &EventKind| matches!(kind, EventKind::SourcesReached { .. });
    assert_eq!(bench.events().iter().filter(|kind| reached(kind)).count(), 1);
    let after = bench.restarted().await;
    assert_eq!(after.source().await["last_contact_at"], "2023-11-14T22:15:20.000Z");
}

#[tokio::test]
async fn a_source_is_stale_once_it_is_silent_for_longer_than_its_threshold() {
    let bench = Bench::with_queue().await;
    // A reader may set the threshold before it has sent anything.
    let set = bench.set_threshold(&json!("15m")).await;
    assert_eq!(
        json!([set["stale_after"], set["is_stale"], set["last_contact_at"], set["last_call_at"]]),
        json!(["15m", false, null, null])
    );
    bench.hand.advance(MINUTE * 16);
    assert_eq!(bench.source().await["is_stale"], true);
    bench.seen().await;
    assert_eq!(bench.source().await["is_stale"], false);
    bench.hand.advance(MINUTE * 15);
    assert_eq!(bench.source().await["is_stale"], false);
    bench.hand.advance(Duration::from_micros(1));
    let restarted = bench.restarted().await;
    let source = restarted.source().await;
    assert_eq!((&source["is_stale"], &source["stale_after"]), (&json!(true), &json!("15m")));
    let cleared = restarted.set_threshold(&Value::Null).await;
    assert_eq!((&cleared["is_stale"], &cleared["stale_after"]), (&json!(false), &Value::Null));
    for wrong in [
        json!({}),
        json!({"stale_after": "10ms"}),
        json!({"stale_after": 5}),
        json!({"stale_after": "9000h"}),
    ] {
        assert_eq!(bench.call("PATCH", "/sources/erp", &wrong).await.status(), 400, "{wrong}");
    }
}

#[tokio::test]
async fn the_list_of_all_sources_has_pages_and_filters() {
    let service = Service::start().await;
    for (queue, sources) in
        [("b", vec!["x", "y"]), ("a", vec!["x"]), ("c", vec!["x", "y", "z"]), ("d", vec![])]
    {
        service.call("PUT", &format!("/v1/queues/{queue}"), &json!({})).await.ok();
        for source in sources {
            service
                .post(&format!("/v1/queues/{queue}/add?source={source}"), &json!({"key": source}))
                .await
                .ok();
        }
    }
    let names = |page: &Value| -> Vec<String> {
        let items = page["items"].as_array().expect("items").iter();
        items
            .map(|item| format!("{}{}", item["queue"].as_str().unwrap(), item["source"].as_str().unwrap()))
            .collect()
    };
    for limit in [1, 2, 3, 4, 5, 6, 7, 100] {
        let (mut found, mut after) = (Vec::new(), String::new());
        loop {
            let page = service.get(&format!("/v1/sources?limit={limit}{after}")).await.ok();
            assert!(names(&page).len() <= limit && page["unavailable"] == json!([]), "{page}");
            found.extend(names(&page));
            let Some(next) = page["continue"].as_str() else { break };
            after = format!("&continue={next}");
        }
        assert_eq!(found, ["ax", "bx", "by", "cx", "cy", "cz"], "{limit}");
    }
    assert_eq!(names(&service.get("/v1/sources?queue=c").await.ok()), ["cx", "cy", "cz"]);
    assert_eq!(names(&service.get("/v1/sources?stale=true").await.ok()), [""; 0]);
    service.get("/v1/sources?continue=00").await.problem("expired");
}

#[tokio::test]
async fn a_reflector_is_listed_until_it_stops() {
    let service = Service::start().await;
    service.call("PUT", QUEUE, &json!({})).await.ok();
    let report = format!("{QUEUE}/reflectors");
    let beat = |failing: bool, stopped: bool| {
        let last_error = if failing { json!("down") } else { Value::Null };
        json!({
            "source": "erp", "instance": "host:1", "version": "1", "kind": "rest", "interval": "1m",
            "failing": failing, "stopped": stopped, "last_error": last_error,
        })
    };
    for (failing, state) in [(false, "ok"), (true, "failing")] {
        assert_eq!(service.post(&report, &beat(failing, false)).await.status, 204);
        let listed = service.get("/v1/reflectors?queue=prices").await.ok();
        let item = &listed["items"][0];
        let found = [&item["queue"], &item["source"], &item["state"], &item["interval"]];
        assert_eq!(found, [&json!("prices"), &json!("erp"), &json!(state), &json!("1m")]);
    }
    assert_eq!(service.get("/v1/reflectors?queue=other").await.ok()["items"], json!([]));
    assert_eq!(service.post(&report, &beat(false, true)).await.status, 204);
    assert_eq!(service.get("/v1/reflectors").await.ok()["items"], json!([]));
    for (member, wrong) in [("source", json!("")), ("instance", json!("a\n")), ("interval", json!("soon"))] {
        let mut wrong_report = beat(false, false);
        wrong_report[member] = wrong;
        service.post(&report, &wrong_report).await.problem("invalid-request");
    }
    let absent = "/v1/queues/absent/reflectors";
    service.post(absent, &beat(false, false)).await.problem("queue-not-found");
}

#[tokio::test]
async fn several_thresholds_are_set_at_once_or_not_at_all() {
    let service = Service::start().await;
    service.call("PUT", QUEUE, &json!({"lease": "1m"})).await.ok();
    let path = format!("{QUEUE}/sources");
    let etag =
        service.get(&format!("{QUEUE}/settings")).await.header("etag").expect("an entity tag").to_owned();
    let mut client = service.client().await;
    let thresholds = json!({"sources": {"erp": {"stale_after": "15m"}, "crm": {"stale_after": "2h"}}});
    let with_tag = [("if-match", etag.as_str())];
    assert_eq!(client.call_with("PATCH", &path, &with_tag, &thresholds).await.status, 204);
    let listed = |list: &Value| -> Vec<(String, Value)> {
        let sources = list["items"].as_array().expect("a list").iter();
        sources
            .map(|one| (one["source"].as_str().expect("a name").to_owned(), one["stale_after"].clone()))
            .collect()
    };
    let set = [("crm".to_owned(), json!("2h")), ("erp".to_owned(), json!("15m"))];
    assert_eq!(listed(&service.get(&path).await.ok()), set);
    // The settings have changed since.
    service.call("PATCH", QUEUE, &json!({"lease": "2m"})).await.ok();
    let other = json!({"sources": {"erp": {"stale_after": null}, "crm": {"stale_after": null}}});
    client.call_with("PATCH", &path, &with_tag, &other).await.problem("precondition-failed");
    for wrong in [
        json!({"sources": {"erp": {"stale_after": null}, "crm": {"stale_after": "soon"}}}),
        json!({"sources": {"erp": {"stale_after": null}, "": {"stale_after": "1m"}}}),
        json!({"sources": {"erp": {}}}),
        json!({}),
    ] {
        service.call("PATCH", &path, &wrong).await.problem("invalid-request");
    }
    let twice =
        r#"{"sources":{"erp":{"stale_after":null},"crm":{"stale_after":null},"erp":{"stale_after":"1m"}}}"#;
    client.send_text("PATCH", &path, &[], twice).await;
    let twice = client.reply().await;
    assert!(twice.problem("invalid-json")["detail"].as_str().expect("a text").contains("\"erp\""));
    assert_eq!(listed(&service.get(&path).await.ok()), set, "nothing is half done");
    assert_eq!(service.call("PATCH", &path, &other).await.status, 204);
    assert!(listed(&service.get(&path).await.ok()).iter().all(|(_, threshold)| threshold.is_null()));
    service.call("PATCH", "/v1/queues/absent/sources", &other).await.problem("queue-not-found");
}
