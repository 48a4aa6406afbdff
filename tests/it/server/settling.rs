//! Settling leases: late, twice, with forged ids, and in pops that fail.

use serde_json::{Value, json};

use super::{QUEUE, keys, lease, listed, object, objects, results, row, settled, settling, take, waiters};
use crate::harness::Service;

async fn with_key(key: &str) -> Service {
    let service = Service::start().await;
    service.post(&format!("{QUEUE}/add"), &object(key)).await.ok();
    service
}

async fn is_known(service: &Service, key: &str) -> bool {
    service.get(&format!("{QUEUE}/known/{key}")).await.status == 200
}

#[tokio::test]
async fn settles_of_a_waiting_pop_are_decided_on_arrival() {
    let service = with_key("k").await;
    let held = take(&service).await;
    let mut pop = service.send("POST", &format!("{QUEUE}/pop?wait=30s"), &settling(&held, "ack")).await;
    waiters(&service, 1).await;
    assert!(is_known(&service, "k").await, "before the pop has an answer");
    service.post(&format!("{QUEUE}/add"), &object("l")).await.ok();
    let popped = pop.reply().await.ok();
    assert_eq!((keys(&popped), &popped["settled"]), (vec!["l"], &settled(&held, "ack", "ok")));
}

#[tokio::test]
async fn settles_of_a_cut_off_pop_stand() {
    let service = with_key("k").await;
    let held = take(&service).await;
    let pop = service.send("POST", &format!("{QUEUE}/pop?wait=30s"), &settling(&held, "ack")).await;
    waiters(&service, 1).await;
    drop(pop);
    waiters(&service, 0).await;
    assert!(is_known(&service, "k").await);
    // The client does not know the outcome, and settles again.
    let again = service.post(&format!("{QUEUE}/pop"), &settling(&held, "ack")).await.ok();
    assert_eq!(again["settled"], settled(&held, "ack", "repeated"));
}

#[tokio::test]
async fn a_refused_pop_reports_its_settles() {
    let service = with_key("k").await;
    let held = take(&service).await;
    service.post(&format!("{QUEUE}/close"), &Value::Null).await.ok();
    let pop = format!("{QUEUE}/pop?wait=30s");
    let closed = service.post(&pop, &settling(&held, "ack")).await.problem("queue-closed");
    assert_eq!(closed["settled"], settled(&held, "ack", "ok"));

    service.post(&format!("{QUEUE}/reopen"), &Value::Null).await.ok();
    service.post(&format!("{QUEUE}/add"), &object("l")).await.ok();
    let held = take(&service).await;
    let mut waits = service.send("POST", &pop, &settling(&held, "reject")).await;
    waiters(&service, 1).await;
    assert_eq!(service.call("DELETE", QUEUE, &Value::Null).await.status, 204);
    let deleted = waits.reply().await.problem("queue-deleted");
    assert_eq!(results(&deleted["settled"]), settled(&held, "reject", "ok"));

    service.post(&format!("{QUEUE}/add"), &object("m")).await.ok();
    let held = take(&service).await;
    for (query, body, code) in [
        ("?wait=1000h", settling(&held, "ack"), "invalid-parameter"),
        ("?wiat=1s", settling(&held, "ack"), "invalid-parameter"),
        ("", json!({"settle": [{"lease_id": held, "as": "acked"}]}), "invalid-request"),
        ("", json!({"settle": [{"lease_id": held, "as": "ack", "delay": "1s"}]}), "invalid-request"),
    ] {
        let refused = service.post(&format!("{QUEUE}/pop{query}"), &body).await.problem(code);
        assert_eq!(refused["settled"], json!([]), "nothing was settled");
    }
    assert_eq!(listed(&service, "leased").await, ["m"]);
}

#[tokio::test]
async fn forged_and_expired_leases_settle_nothing() {
    let service = with_key("k").await;
    let held = take(&service).await;
    service.post("/v1/queues/other/add", &object("k")).await.ok();
    let foreign = lease(&service.post("/v1/queues/other/pop", &Value::Null).await.ok(), 0);
    let (incarnation, token) = held.split_once('-').expect("two parts");
    let forged = [
        foreign,
        format!("00000000-{token}"),
        format!("{incarnation}-{}", token.parse::<u64>().expect("a number") + 1),
        format!("{incarnation}-0"),
        format!("{incarnation}-{}", u64::MAX),
        format!("{incarnation}-0{token}"),
        format!(" {held}"),
        String::new(),
        "nonsense".to_owned(),
    ];
    for id in &forged {
        for how in ["ack", "nack", "release", "reject"] {
            let call = format!("{QUEUE}/{how}");
            let lost = service.post(&call, &json!({"lease_ids": [id]})).await.problem("lease-lost");
            assert_eq!(lost["settled"], json!([row(id, how, "stale", &json!("unknown"))]));
        }
        let extend = json!({"lease_ids": [id], "lease_duration": "60s"});
        let lost = service.post(&format!("{QUEUE}/extend"), &extend).await.problem("lease-lost");
        assert_eq!(
            (&lost["settled"][0]["result"], &lost["settled"][0]["outcome"]),
            (&json!("stale"), &json!("unknown"))
        );
    }
    assert_eq!(listed(&service, "leased").await, ["k"]);
    // A pop whose settles are all stale still pops. A good settle among stale ones is still done.
    service.post(&format!("{QUEUE}/add"), &object("l")).await.ok();
    let popped = service.post(&format!("{QUEUE}/pop"), &settling("nonsense", "ack")).await.ok();
    assert_eq!((keys(&popped), &popped["settled"][0]["result"]), (vec!["l"], &json!("stale")));
    let both = service.post(&format!("{QUEUE}/ack"), &json!({"lease_ids": ["nonsense", held]})).await.ok();
    assert_eq!(
        (&both["settled"][0]["result"], &both["settled"][1]["result"]),
        (&json!("stale"), &json!("ok"))
    );
}

#[tokio::test]
async fn a_lease_named_twice_is_refused_and_nothing_is_settled() {
    let service = Service::start().await;
    service.post(&format!("{QUEUE}/add"), &objects(&["a", "b"])).await.ok();
    let (a, b) = (take(&service).await, take(&service).await);
    let ack = |id: &str| json!({"lease_id": id, "as": "ack"});
    for twice in [
        json!([ack(&a), ack(&b), {"lease_id": a, "as": "nack"}]),
        json!([ack(&b), {"lease_ids": [], "as": "release"}, {"lease_ids": [a, b], "as": "extend"}]),
    ] {
        for call in ["settle", "pop"] {
            let refused = service.post(&format!("{QUEUE}/{call}"), &json!({"settle": twice})).await;
            assert_eq!(refused.problem("invalid-request")["index"], 2, "the index of the entry");
        }
    }
    for call in ["ack", "nack", "release", "reject", "extend"] {
        let refused = service.post(&format!("{QUEUE}/{call}"), &json!({"lease_ids": [a, a]})).await;
        assert_eq!(refused.status, 400, "{call}");
    }
    assert_eq!(listed(&service, "leased").await.len(), 2);
}

#[tokio::test]
async fn one_lost_lease_and_several_have_the_same_answer() {
    let service = Service::start().await;
    service.post(&format!("{QUEUE}/add"), &objects(&["a", "b"])).await.ok();
    let (a, b) = (take(&service).await, take(&service).await);
    let stale = |id: &str| row(id, "ack", "stale", &json!("unknown"));
    // A call that changed nothing is refused, however many leases it has.
    for ids in [vec!["x"], vec!["x", "y"]] {
        let entries: Vec<Value> = ids.iter().map(|id| stale(id)).collect();
        let settles: Vec<Value> = ids.iter().map(|id| json!({"lease_id": id, "as": "ack"})).collect();
        for (call, body) in [("ack", json!({"lease_ids": ids})), ("settle", json!({"settle": settles}))] {
            let lost = service.post(&format!("{QUEUE}/{call}"), &body).await.problem("lease-lost");
            assert_eq!((&lost["settled"], &lost["stale"]), (&json!(entries), &json!(ids.len())));
        }
        let lost = service.post(&format!("{QUEUE}/extend"), &json!({"lease_ids": ids})).await;
        let lost = lost.problem("lease-lost");
        assert_eq!(
            (lost["settled"].as_array().map(Vec::len), &lost["stale"]),
            (Some(ids.len()), &json!(ids.len()))
        );
    }
    // A call that changed something has the same fields.
    let some = service.post(&format!("{QUEUE}/extend"), &json!({"lease_ids": ["x", a]})).await.ok();
    assert_eq!((&some["settled"][0]["result"], &some["stale"]), (&json!("stale"), &json!(1)));
    let some = service.post(&format!("{QUEUE}/ack"), &json!({"lease_ids": ["x", a]})).await.ok();
    assert_eq!((&some["settled"][0], &some["stale"]), (&stale("x"), &json!(1)));
    let all = service.post(&format!("{QUEUE}/ack"), &json!({"lease_ids": [b]})).await.ok();
    assert_eq!(all["stale"], 0);
    let none = service.post(&format!("{QUEUE}/ack"), &json!({"lease_ids": null})).await.ok();
    assert_eq!(none, json!({"settled": [], "stale": 0}));
}

#[tokio::test]
async fn a_part_of_a_lease_is_acknowledged() {
    let service = Service::start().await;
    for number in 1..=3 {
        service.post(&format!("{QUEUE}/update"), &json!({"key": "k", "n": number})).await.ok();
    }
    let popped = service.post(&format!("{QUEUE}/pop"), &Value::Null).await.ok();
    let (item, id) = (&popped["items"][0], lease(&popped, 0));
    let through = |delta: usize| item["deltas"][delta]["resource_version"].clone();
    let ack = |through: Value| json!({"lease_id": id, "as": "ack", "through": through, "keep": true});
    let call = format!("{QUEUE}/settle");

    let part = service.post(&call, &json!({"settle": [ack(through(0))]})).await.ok();
    assert_eq!(part["settled"], settled(&id, "ack", "ok"));
    let again = service.post(&call, &json!({"settle": [ack(through(0))]})).await.ok();
    assert_eq!(again["settled"], settled(&id, "ack", "repeated"));
    let known = service.get(&format!("{QUEUE}/known/k")).await.ok();
    assert_eq!(known["object"]["n"], 1);
    let item = service.get(&format!("{QUEUE}/items/k")).await.ok();
    assert_eq!((&item["lease"]["id"], item["leased_deltas"].as_array().map(Vec::len)), (&json!(id), Some(2)));

    // A number that no delta of the lease has changes nothing.
    let far = json!(u64::MAX >> 11);
    for leases in [vec![ack(far.clone())], vec![ack(far.clone()), json!({"lease_id": "x", "as": "ack"})]] {
        let refused = service.post(&call, &json!({"settle": leases})).await.problem("not-leased");
        assert_eq!(refused["settled"][0]["result"], "not_leased");
    }
    service.post(&format!("{QUEUE}/add"), &object("l")).await.ok();
    let other = take(&service).await;
    let both = json!({"settle": [ack(far), {"lease_id": other, "as": "ack"}]});
    let both = service.post(&call, &both).await.ok();
    assert_eq!(
        (&both["settled"][0]["result"], &both["settled"][1]["result"], &both["stale"]),
        (&json!("not_leased"), &json!("ok"), &json!(0))
    );

    let nack = json!({"lease_id": id, "through": through(1), "error": "no route"});
    let failed = service.post(&format!("{QUEUE}/nack"), &nack).await.ok();
    assert_eq!(failed["settled"][0]["failures"], 1, "only the rest has failed");
    let item = service.get(&format!("{QUEUE}/items/k")).await.ok();
    assert_eq!(
        (&item["deltas"][0]["object"]["n"], item["deltas"].as_array().map(Vec::len)),
        (&json!(3), Some(1))
    );
}

#[tokio::test]
async fn a_hold_goes_with_a_part_that_is_everything() {
    let service = Service::start().await;
    service.post(&format!("{QUEUE}/add"), &object("k")).await.ok();
    let popped = service.post(&format!("{QUEUE}/pop"), &Value::Null).await.ok();
    let through = popped["items"][0]["deltas"][0]["resource_version"].clone();
    let hold = json!({"scope": "queue", "for": "30s"});
    let release = json!({"lease_id": lease(&popped, 0), "through": through, "hold": hold});
    let settled = service.post(&format!("{QUEUE}/release"), &release).await.ok();
    assert!(settled["settled"][0]["held_until"].is_string(), "{settled}");
    assert!(service.get(&format!("{QUEUE}/status")).await.ok()["held_until"].is_string());
    assert_eq!(service.get(&format!("{QUEUE}/known/k")).await.status, 200);
}

#[tokio::test]
async fn only_mode_delta_has_parts_of_a_lease() {
    let service = Service::start().await;
    for mode in ["latest", "events"] {
        let queue = format!("/v1/queues/{mode}");
        service.call("PUT", &queue, &json!({"mode": mode})).await.ok();
        service.post(&format!("{queue}/add"), &object("k")).await.ok();
        let popped = service.post(&format!("{queue}/pop"), &Value::Null).await.ok();
        let body = json!({"lease_id": lease(&popped, 0), "through": 1});
        service.post(&format!("{queue}/ack"), &body).await.problem("wrong-mode");
    }
}

#[tokio::test]
async fn a_lease_has_one_shape_and_its_id_and_length_have_names_of_their_own() {
    let service = with_key("k").await;
    let popped = service.post(&format!("{QUEUE}/pop?lease_duration=1h&worker=w"), &Value::Null).await.ok();
    let item = service.get(&format!("{QUEUE}/items/k")).await.ok();
    let names = |lease: &Value| lease.as_object().expect("an object").keys().cloned().collect::<Vec<_>>();
    let lease = &popped["items"][0]["lease"];
    assert_eq!(names(lease), names(&item["lease"]));
    assert_eq!((&lease["worker"], &lease["id"]), (&json!("w"), &item["lease"]["id"]));
    assert!(lease["expires_in_ms"].as_u64() > Some(3_000_000), "{lease}");
    let extend = json!({"lease_ids": [lease["id"]], "lease_duration": "2h"});
    let extended = service.post(&format!("{QUEUE}/extend"), &extend).await.ok();
    assert_eq!(extended["settled"][0]["lease_id"], lease["id"]);
    assert!(extended["settled"][0]["expires_in_ms"].as_u64() > Some(7_000_000), "{extended}");
    let settle = json!({"settle": [{"lease_id": lease["id"], "as": "release"}]});
    let settled = service.post(&format!("{QUEUE}/pop"), &settle).await.ok();
    assert_eq!(settled["settled"][0]["lease_id"], lease["id"]);
    assert_eq!(settled["items"][0]["lease"]["worker"], Value::Null);
}

#[tokio::test]
async fn former_names_are_unknown() {
    let service = with_key("k").await;
    let id = take(&service).await;
    for (call, body) in [
        ("pop?lease=1h", Value::Null),
        ("ack", json!({"leases": [id]})),
        ("settle", json!({"settle": [{"lease": id, "as": "ack"}]})),
        ("extend", json!({"lease_ids": [id], "lease": "1h"})),
    ] {
        let refused = service.post(&format!("{QUEUE}/{call}"), &body).await;
        assert_eq!(refused.status, 400, "{call}");
        assert!(refused.text.contains("unknown"), "{}", refused.text);
    }
    assert_eq!(listed(&service, "leased").await, ["k"]);
}

#[tokio::test]
async fn a_call_names_one_lease_or_several() {
    let service = Service::start().await;
    service.post(&format!("{QUEUE}/add"), &objects(&["a", "b", "c", "d"])).await.ok();
    let popped = service.post(&format!("{QUEUE}/pop?max=4"), &Value::Null).await.ok();
    let [a, b, c, d] = [0, 1, 2, 3].map(|index| lease(&popped, index));
    for (call, body) in [
        ("ack", json!({"lease_id": a, "lease_ids": [b]})),
        ("ack", json!({})),
        ("ack", json!({"lease_id": null})),
        ("settle", json!({"settle": [{"lease_id": a, "lease_ids": [b], "as": "ack"}]})),
        ("settle", json!({"settle": [{"lease_id": "", "as": "ack"}]})),
    ] {
        service.post(&format!("{QUEUE}/{call}"), &body).await.problem("invalid-request");
    }
    // Encoders of typed languages write members that are not set.
    let one = json!({"lease_id": a, "lease_ids": null, "delay": "", "error": "", "lease_duration": ""});
    assert_eq!(service.post(&format!("{QUEUE}/ack"), &one).await.ok()["settled"], settled(&a, "ack", "ok"));
    let several = json!({"settle": [
        {"lease_id": "", "lease_ids": [b, c], "as": "reject", "error": "no route"},
        {"lease_ids": null, "as": "ack"},
        {"lease_id": d, "as": "release", "error": null},
    ]});
    let reply = service.post(&format!("{QUEUE}/settle"), &several).await.ok();
    let expected = [row(&b, "reject", "ok", &Value::Null), row(&c, "reject", "ok", &Value::Null)];
    let expected = json!([expected[0], expected[1], row(&d, "release", "ok", &Value::Null)]);
    assert_eq!((results(&reply["settled"]), &reply["stale"]), (expected, &json!(0)));
    assert_eq!(service.get(&format!("{QUEUE}/items/c")).await.ok()["last_error"], "no route");
}

#[tokio::test]
async fn a_pop_extends_leases_beside_other_settles() {
    let service = Service::start().await;
    service.post(&format!("{QUEUE}/add"), &objects(&["a", "b", "c"])).await.ok();
    let popped = service.post(&format!("{QUEUE}/pop?max=2"), &Value::Null).await.ok();
    let (a, b) = (lease(&popped, 0), lease(&popped, 1));
    service.post(&format!("{QUEUE}/update"), &object("a")).await.ok();
    let settle = json!({"settle": [
        {"lease_id": a, "as": "extend", "lease_duration": "2h"},
        {"lease_id": b, "as": "ack"},
        {"lease_id": "x", "as": "extend"},
    ]});
    let popped = service.post(&format!("{QUEUE}/pop"), &settle).await.ok();
    assert_eq!(keys(&popped), ["c"]);
    let extended = &popped["settled"][0];
    let names: Vec<&String> = extended.as_object().expect("an object").keys().collect();
    let members =
        ["lease_id", "as", "result", "outcome", "expires_at", "expires_in_ms", "pending_deltas", "deleted"];
    assert_eq!(names, members);
    assert!(extended["expires_in_ms"].as_u64() > Some(7_000_000), "{extended}");
    assert_eq!((&extended["result"], &extended["pending_deltas"]), (&json!("ok"), &json!(1)));
    assert_eq!(popped["settled"][1], row(&b, "ack", "ok", &Value::Null));
    let unknown = &popped["settled"][2];
    assert_eq!((&unknown["result"], &unknown["outcome"]), (&json!("stale"), &json!("unknown")));
    assert_eq!((&unknown["expires_at"], &unknown["deleted"]), (&Value::Null, &Value::Null));
    let item = service.get(&format!("{QUEUE}/items/a")).await.ok();
    assert!(item["lease"]["expires_in_ms"].as_u64() > Some(7_000_000), "{item}");
    let alone = service.post(&format!("{QUEUE}/settle"), &settle).await.ok();
    assert_eq!((&alone["settled"][0]["result"], &alone["stale"]), (&json!("ok"), &json!(1)));
}
