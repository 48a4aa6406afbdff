//! The setting `ignore`: members of objects whose change alone queues nothing.

use serde_json::{Value, json};

use super::{QUEUE, keys, lease, status};
use crate::harness::{Client, Service, within};

const FOLLOWER: &str = "/v1/queues/follower";

async fn ignoring(pointers: Value) -> Service {
    let service = Service::start().await;
    service.call("PUT", QUEUE, &json!({ "ignore": pointers })).await.ok();
    service
}

/// An object of a Kubernetes API. `round` is in everything that a controller changes without a change of what is wanted.
fn pod(name: usize, round: usize, bytes: usize) -> Value {
    let fields = json!({"f:status": {"f:phase": {}, "f:text": "x".repeat(bytes)}});
    json!({
        "key": name.to_string(),
        "metadata": {
            "generation": 7,
            "resourceVersion": (1_000 * round + name).to_string(),
            "managedFields": [{"manager": "kubelet", "time": round, "fieldsV1": fields}],
        },
        "spec": {"image": "a"},
        "status": {"phase": if round.is_multiple_of(2) { "Running" } else { "Pending" }, "restarts": round},
    })
}

fn pods(round: usize) -> Vec<Value> {
    // The objects are of all sizes: small ones are compared at once, large ones and many ones on another thread.
    (0..80).map(|name| pod(name, round, name * 60)).collect()
}

async fn work_through(service: &Service) -> usize {
    let popped = service.post(&format!("{QUEUE}/pop?max=1000"), &json!({})).await.ok();
    let count = keys(&popped).len();
    let leases: Vec<_> = (0..count).map(|index| lease(&popped, index)).collect();
    service.post(&format!("{QUEUE}/ack"), &json!({ "lease_ids": leases })).await.ok();
    count
}

async fn object_in(service: &Service, view: &str, name: usize) -> Value {
    service.get(&format!("{QUEUE}/{view}/{name}")).await.ok()["object"].take()
}

#[tokio::test]
async fn the_noise_of_a_kubernetes_dump_queues_nothing() {
    let noise = json!(["/metadata/resourceVersion", "/metadata/managedFields", "/status"]);
    let service = ignoring(noise).await;
    service.post(&format!("{QUEUE}/replace?source=s"), &json!(pods(0))).await.ok();
    assert_eq!(work_through(&service).await, 80);

    let updated = service.post(&format!("{QUEUE}/update"), &json!(pods(1))).await.ok();
    assert_eq!((&updated["queued"], &updated["ignored"]), (&json!(0), &json!(80)));
    for pod in pods(2) {
        let updated = service.post(&format!("{QUEUE}/update?source=s"), &pod).await.ok();
        assert_eq!(updated["ignored"], 1);
    }
    let deltas: Vec<_> =
        pods(3).into_iter().map(|object| json!({"type": "Updated", "object": object})).collect();
    assert_eq!(service.post(&format!("{QUEUE}/deltas"), &json!(deltas)).await.ok()["ignored"], 80);
    let replaced =
        service.post(&format!("{QUEUE}/replace?source=s&only_changed=true"), &json!(pods(4))).await.ok();
    assert_eq!((&replaced["unchanged"], &replaced["replaced"]), (&json!(80), &json!(0)));
    assert_eq!((status(&service, "ready").await, work_through(&service).await), (json!(0), 0));
    for view in ["latest", "known"] {
        for name in [0, 9, 79] {
            assert_eq!(
                object_in(&service, view, name).await,
                pod(name, 4, name * 60),
                "{view}: no text is lost"
            );
        }
    }
    let page = Client::connect(service.metrics).await.call("GET", "/metrics", &Value::Null).await.text;
    let counted = page.lines().find(|line| line.contains("reason=\"unchanged\"") && line.contains("\"q\""));
    assert!(counted.is_some_and(|line| line.ends_with(" 320")), "{counted:?}");

    // What is wanted, and the beginning of a deletion, count.
    let mut wanted = pod(3, 5, 180);
    wanted["spec"]["image"] = json!("b");
    let mut deleting = pod(70, 5, 4_200);
    deleting["metadata"]["deletionTimestamp"] = json!("2026-01-02T03:04:05Z");
    service.post(&format!("{QUEUE}/update"), &json!([pod(2, 5, 120), wanted, deleting])).await.ok();
    let popped = service.post(&format!("{QUEUE}/pop?max=9"), &json!({})).await.ok();
    assert_eq!(keys(&popped), ["3", "70"]);
}

#[tokio::test]
async fn several_updates_of_a_key_in_one_call_are_compared_with_each_other() {
    let service = ignoring(json!(["/at"])).await;
    let text = "x".repeat(3_000);
    let object = |n: u32, at: u32| json!({"key": "a", "n": n, "at": at, "text": text});
    let calls = json!([object(1, 1), object(1, 2), object(2, 3), object(2, 4), object(1, 5)]);
    let updated = service.post(&format!("{QUEUE}/update"), &calls).await.ok();
    assert_eq!((&updated["queued"], &updated["ignored"]), (&json!(3), &json!(2)));
    let popped = service.post(&format!("{QUEUE}/pop"), &json!({})).await.ok();
    let deltas = popped["items"][0]["deltas"].as_array().expect("deltas");
    let seen: Vec<_> = deltas.iter().map(|delta| (&delta["object"]["n"], &delta["object"]["at"])).collect();
    assert_eq!(seen, [(&json!(1), &json!(2)), (&json!(2), &json!(4)), (&json!(1), &json!(5))]);
}

#[tokio::test]
async fn an_ignored_change_has_a_version_of_its_own() {
    let service = ignoring(json!(["/at"])).await;
    let object = |at: u32| json!({"key": "1", "at": at});
    service.post(&format!("{QUEUE}/add"), &object(1)).await.ok();
    assert_eq!(work_through(&service).await, 1);
    let before = service.get(&format!("{QUEUE}/latest/1")).await;
    let tag = before.header("etag").expect("a tag").to_owned();
    let update = async |tag: &str, at| {
        let path = format!("{QUEUE}/update");
        service.call_with("POST", &path, &[("if-match", tag)], &object(at)).await
    };
    let mut watches = Vec::new();
    for view in ["latest", "known"] {
        let path = format!("{QUEUE}/watch?view={view}&resource_version=now");
        let mut watch = service.send("GET", &path, &Value::Null).await;
        assert_eq!(watch.head().await.expect("a head").0, 200);
        watches.push((view, watch));
    }
    let changed = update(&tag, 2).await.ok();
    update(&tag, 3).await.problem("precondition-failed");
    for (view, mut watch) in watches {
        let now = service.get(&format!("{QUEUE}/{view}/1")).await.ok();
        assert_eq!((&now["object"], &now["resource_version"]), (&object(2), &changed["resource_version"]));
        let mut row = String::new();
        while !row.contains("\"at\"") {
            row = String::from_utf8(watch.chunk().await.expect("a chunk").expect("a row")).expect("text");
        }
        assert!(row.contains("\"at\":2"), "{view}: {row}");
    }
}

#[tokio::test]
async fn a_follower_has_its_own_ignored_members() {
    for mode in ["delta", "latest", "events"] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().to_owned();
        let service = Service::with(|settings| {
            settings.storage.in_memory = false;
            settings.storage.data_dir = path;
        })
        .await;
        service.call("PUT", QUEUE, &json!({"ignore": ["/at"]})).await.ok();
        let follower = json!({"mode": mode, "ignore": ["/n"], "follow": {"queue": "q"}});
        service.call("PUT", FOLLOWER, &follower).await.ok();
        let catch_up = async || {
            let newest = service.get(QUEUE).await.ok()["status"]["resource_version"].as_u64();
            let position = async || service.get(FOLLOWER).await.ok()["status"]["follow"].take();
            within(async { while position().await["resource_version"].as_u64() < newest {} }).await;
        };
        let drain = async || {
            let mut seen = Vec::new();
            loop {
                let popped = service.post(&format!("{FOLLOWER}/pop"), &json!({})).await.ok();
                let Some(delta) = popped["items"].pointer("/0/deltas/0") else { return seen };
                seen.push((delta["object"]["n"].clone(), delta["object"]["at"].clone()));
                let ack = json!({"lease_id": lease(&popped, 0)});
                service.post(&format!("{FOLLOWER}/ack"), &ack).await.ok();
            }
        };
        let update = async |n: u32, at: u32| {
            let body = json!({"key": "a", "n": n, "at": at, "text": "x".repeat(3_000)});
            service.post(&format!("{QUEUE}/update"), &body).await.ok();
            catch_up().await;
        };
        update(1, 1).await;
        assert_eq!(drain().await, [(json!(1), json!(1))], "{mode}");
        // The followed queue ignores this change and the follower does not, and the other way round.
        update(1, 2).await;
        assert_eq!(drain().await, [(json!(1), json!(2))], "{mode}");
        update(2, 2).await;
        assert_eq!(drain().await, [], "{mode}");
        let newest = service.get(&format!("{FOLLOWER}/latest/a")).await.ok();
        assert_eq!(newest["object"]["n"], 2, "{mode}");
    }
}

#[tokio::test]
async fn wrong_pointers_are_refused() {
    let service = Service::start().await;
    let put = async |settings: Value| service.call("PUT", QUEUE, &settings).await;
    for (settings, detail) in [
        (json!({"ignore": ["status"]}), "must begin with '/'"),
        (json!({"ignore": "/status"}), "expected a list of JSON pointers"),
        (json!({"ignore": vec!["/a"; 101]}), "at most 100"),
        (json!({"mode": "keys", "ignore": ["/a"]}), "has no objects"),
    ] {
        let problem = put(settings.clone()).await.problem("invalid-config");
        let said = crate::harness::said(&problem);
        assert!(said.contains(detail), "{settings}: {said}");
    }
    // The settings of a queue in mode keys can be sent as they are.
    let created = put(json!({"mode": "keys"})).await.ok();
    assert_eq!(put(created["settings"].clone()).await.ok()["settings"], created["settings"]);
}
