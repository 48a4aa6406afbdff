//! Bodies that are not JSON, or the wrong JSON.

use serde_json::json;

use super::{Bench, Row, row};
use crate::calls::{DOCUMENTS, OBJECTS};

/// The calls with a body.
fn calls() -> impl Iterator<Item = (&'static str, &'static str)> {
    OBJECTS.into_iter().chain(DOCUMENTS)
}

fn on(call: (&str, &str), code: &'static str) -> Row {
    row(call.0, &format!("/v1/queues/q{}", call.1), code)
}

#[tokio::test]
async fn invalid_json_is_reported_with_its_place() {
    let bench = Bench::new().await;
    let deep = "{\"key\":".repeat(130) + "1" + &"}".repeat(130);
    let bodies: [(&[u8], u64, &str); 14] = [
        (b"{\"key\":\"a\"", 1, "ends inside an object"),
        (b"{\"key\":\"a\",}", 1, "trailing comma"),
        (b"{\"key\" \"a\"}", 1, "expected `:`"),
        (b"{\n\n \"key\": x}", 3, "expected"),
        (b"{'key':1}", 1, "string"),
        (b"{\"key\":\"a\"} {}", 1, "trailing"),
        (b"{\"key\":\"a", 1, "ends inside a string"),
        (b"{\"key\":01}", 1, "number"),
        (b"{\"key\":NaN}", 1, ""),
        (b"{\"key\":\"a\x01b\"}", 1, "control character"),
        (b"{\"key\":\"\\ud800\"}", 1, "hex escape"),
        (b"{\"key\":1,\"key\":2}", 1, "twice"),
        (deep.as_bytes(), 1, "nested deeper than 128"),
        (b"{\"key\":\n\"\xff\"}", 2, "not UTF-8"),
    ];
    for call in calls() {
        for (body, line, tells) in bodies {
            let row = on(call, "invalid-json").body(body).has("line", line).has("column", json!(null));
            bench.refuses([row.tells(tells)]).await;
        }
    }
}

#[tokio::test]
async fn duplicate_members_are_found_at_every_depth() {
    let bench = Bench::new().await;
    let twice = |call, body: &str| on(call, "invalid-json").body(body).tells("twice");
    bench
        .refuses([
            twice(("POST", "/add"), r#"{"key":"a","b":{"c":[{"d":1,"\u0064":2}]}}"#),
            twice(("POST", "/deltas"), r#"[{"type":"Added","object":{"key":"a"},"type":"Added"}]"#),
            twice(("POST", "/seed"), r#"{"object":{"key":"a","b":{"c":1,"c":1}}}"#),
            twice(("POST", "/settle"), r#"{"settle":[{"lease_id":"1","as":"ack","as":"nack"}]}"#),
            twice(("PUT", ""), r#"{"rate_limiter":{"jitter":0,"jitter":1}}"#),
            twice(("PUT", ""), r#"{"mode":"delta","mode":"keys"}"#),
        ])
        .await;
}

#[tokio::test]
async fn values_that_are_not_objects_are_refused() {
    let bench = Bench::new().await;
    let objects = ["/add", "/update", "/delete", "/replace?source=s&count=1"];
    for body in ["1", "\"text\"", "true", "[1]", "[[]]", "[{\"key\":\"a\"},2]"] {
        let rows = objects.map(|call| on(("POST", call), "invalid-object").body(body).has("line", 1));
        bench.refuses(rows.map(|row| row.tells("expected a JSON object"))).await;
        for call in calls().filter(|(_, call)| !objects.contains(call)) {
            bench.refuses([on(call, "invalid-request").body(body)]).await;
        }
    }
    for call in objects {
        let second = |code, body: &str| on(("POST", call), code).body(body).has("index", 1).tells("object 1");
        let bodies = [
            second("invalid-object", "[{\"key\":\"a\"},2]"),
            second("invalid-json", "[{\"key\":\"a\"},\n{\"a\":x}]").has("line", 2),
        ];
        bench.refuses(bodies).await;
    }
    // Where a list is expected, null is an empty one.
    let lists = ["/deltas", "/seed"];
    for call in calls().filter(|(_, call)| !objects.contains(call) && !lists.contains(call)) {
        bench.refuses([on(call, "invalid-request").body("null")]).await;
    }
    let null = on(("POST", "/seed"), "invalid-object").body(r#"{"object":null}"#);
    bench.refuses([null, on(("POST", "/seed"), "invalid-object").body(r#"{"object":[]}"#)]).await;
}

#[tokio::test]
async fn an_empty_body_is_refused_where_one_is_needed() {
    let bench = Bench::new().await;
    let long_group = format!("{{\"group\":\"{}\"}}", "x".repeat(257));
    let rows = [
        on(("POST", "/add"), "invalid-json").has("line", 1),
        on(("POST", "/add?key=a"), "invalid-json").has("line", 1),
        on(("POST", "/update"), "invalid-json").body(" \n").has("line", 1).tells("empty"),
        on(("POST", "/delete"), "no-key").tells("empty"),
        on(("POST", "/replace?source=s"), "incomplete-list").tells("empty"),
        on(("POST", "/replace?source=s&count=1"), "incomplete-list"),
        on(("POST", "/replace?source=s"), "incomplete-list").ndjson("").tells("count=N"),
        on(("POST", "/deltas"), "invalid-json").tells("empty"),
        on(("POST", "/seed"), "invalid-json").tells("empty"),
        on(("POST", "/forget"), "invalid-request").has("field", "keys").tells("the body is empty"),
        on(("POST", "/settle"), "invalid-request").has("field", "settle").tells("the body is empty"),
        on(("POST", "/ack"), "invalid-request").has("field", "lease_id").tells("the body is empty"),
        on(("POST", "/extend"), "invalid-request").has("field", "lease_id").tells("the body is empty"),
        on(("POST", "/close"), "invalid-request").body("1").tells("no body"),
        on(("POST", "/pause"), "invalid-request").body("1").tells("expected a JSON object"),
        on(("POST", "/pause"), "invalid-request").body("{\"queue\":\"q\"}").tells("unknown field `queue`"),
        on(("POST", "/resume"), "invalid-request").body("{\"group\":7}").tells("group"),
        on(("POST", "/pause"), "invalid-request").body("{\"group\":\"a\"}").tells("no setting groups"),
        on(("POST", "/pause"), "invalid-request").body(&long_group).has("limit", 256),
        on(("POST", "/resync"), "invalid-request").body("{\"a\":1}").tells("no body"),
    ];
    bench.refuses(rows).await;
}

#[tokio::test]
async fn lines_are_reported_by_their_number() {
    let bench = Bench::new().await;
    let good = "{\"key\":\"a\"}\n";
    let longest = "x".repeat(1 << 20);
    for call in ["/add", "/replace?source=s&count=3", "/delete"] {
        let on = |code| on(("POST", call), code);
        bench
            .refuses([
                on("invalid-json")
                    .ndjson(format!("{good}\n{{\"key\":}}\n"))
                    .has("line", 3)
                    .has("column", 8)
                    .has("index", 1)
                    .tells("object 1")
                    .tells("line 3, column 8"),
                on("invalid-json")
                    .ndjson(format!("{good}{good}{{\"key\":\"a\""))
                    .has("line", 3)
                    .has("index", 2),
                on("invalid-json")
                    .ndjson(b"{\"key\":\"a\"}\n{\"key\":\"\xc3\"}\n")
                    .has("line", 2)
                    .has("column", 9)
                    .has("index", 1)
                    .tells("object 1")
                    .tells("UTF-8 at line 2"),
                on("invalid-object").ndjson(format!("{good}[]\n")).has("line", 2).has("index", 1),
                on("no-key").ndjson(format!("{good}{{}}\n")).has("line", 2).has("pointer", "/key"),
                on("object-too-large")
                    .ndjson(format!("{good}{{\"key\":\"{longest}\"}}\n"))
                    .has("line", 2)
                    .has("limit", 1 << 20),
                on("object-too-large")
                    .ndjson(format!("{good}{}", " ".repeat(2 << 20)))
                    .has("line", 2)
                    .has("limit", 1 << 20)
                    .tells("the other fields 16384"),
            ])
            .await;
    }
    let replace = |query: &str, body: &str| {
        on(("POST", &format!("/replace?source=s{query}")), "incomplete-list").ndjson(body)
    };
    bench
        .refuses([
            replace("", good).tells("$end"),
            replace("&count=2", good).tells("2 objects"),
            replace("", "{\"key\":\"a\"}\n{\"$end\":2}\n").tells("2 objects"),
            replace("&count=1", "{\"key\":\"a\"}\n{\"$end\":2}\n"),
            replace("", "{\"key\":\"a\"}\n{\"$end\":1}\n{\"key\":\"b\"}\n").tells("line 3"),
            replace("", "{\"key\":\"a\"}\n{\"$end\":-1}\n").tells("line 2: $end takes the number"),
            replace("", "{\"key\":\"a\"}\n{\"$end\":\"1\"}\n").tells("line 2: $end takes the number"),
        ])
        .await;
}

#[tokio::test]
async fn places_are_relative_to_the_whole_body() {
    let bench = Bench::new().await;
    let placed = |row: Row, line: u64, column: u64| {
        let row = row.has("index", 1).has("line", line).has("column", column);
        row.tells(&format!("at line {line}, column {column}"))
    };
    let deltas = |code, second: &str| {
        let first = r#"{"type":"Added","object":{"key":"a"}}"#;
        let list = on(("POST", "/deltas"), code).body(format!("[\n {first},\n {second}\n]"));
        let lines = on(("POST", "/deltas"), code).ndjson(format!("{first}\n{}\n", second.replace('\n', " ")));
        (list, lines)
    };
    let (list, lines) = deltas("invalid-object", r#"{"type":"Added","object":5}"#);
    bench.refuses([placed(list, 3, 27), placed(lines, 2, 26)]).await;
    let (list, lines) = deltas("invalid-json", "{\"type\":\"Added\",\n\"type\":\"Added\"}");
    bench.refuses([placed(list, 4, 1), placed(lines, 2, 18)]).await;
    let (list, lines) = deltas("invalid-request", "{\"type\":\"Added\",\n\"delay\":5}");
    bench.refuses([placed(list, 4, 9), placed(lines, 2, 26)]).await;
    let seeds =
        on(("POST", "/seed"), "invalid-object").body("[{\"object\":{\"key\":\"a\"}}, {\"object\":5}]");
    bench.refuses([placed(seeds, 1, 36)]).await;
    let large = format!("{{\"object\":{{\"key\":\"{}\"}}}}\n", "x".repeat(1 << 20));
    let seeds = on(("POST", "/seed"), "object-too-large").ndjson(format!("\n{large}"));
    bench.refuses([seeds.has("index", 0).has("line", 2).has("limit", 1 << 20)]).await;
    let open = on(("POST", "/deltas"), "invalid-json").body("[\n").has("line", 2).has("column", 1);
    bench.refuses([open]).await;
}

#[tokio::test]
async fn invalid_keys_are_refused() {
    let bench = Bench::new().await;
    let long = "x".repeat(1_025);
    let objects = [
        (json!({}), "no-key", "/key"),
        (json!({ "key": null }), "no-key", "/key"),
        (json!({ "key": "" }), "no-key", "/key"),
        (json!({ "key": 1.5 }), "invalid-key", "a number"),
        (json!({ "key": true }), "invalid-key", "a boolean"),
        (json!({ "key": {} }), "invalid-key", "an object"),
        (json!({ "key": ["a"] }), "invalid-key", "an array"),
        (json!({ "key": long }), "invalid-key", "1025 bytes"),
        (json!({ "key": "a\nb" }), "invalid-key", "control character"),
        (json!({ "key": "a\u{0}" }), "invalid-key", "control character"),
        (json!({ "key": "\u{9f}" }), "invalid-key", "control character"),
    ];
    for (object, code, tells) in objects {
        let many = json!([{ "key": "a" }, object]);
        for call in ["/add", "/update", "/delete", "/replace?source=s"] {
            let row = on(("POST", call), code).body(many.to_string()).tells(tells);
            bench.refuses([row.has("index", 1)]).await;
        }
        let delta = json!([{ "type": "Added", "object": object }]).to_string();
        let seed = json!({ "object": object }).to_string();
        bench
            .refuses([
                on(("POST", "/deltas"), code).body(delta).tells(tells).has("index", 0),
                on(("POST", "/seed"), code).body(seed).tells(tells).has("index", 0),
            ])
            .await;
    }
    for key in ["", "a\u{7f}", &long] {
        let code = if key.is_empty() { "no-key" } else { "invalid-key" };
        let keys = json!({ "keys": ["a", key] }).to_string();
        for call in ["/forget", "/delayed/promote", "/parked/redrive", "/parked/discard"] {
            bench.refuses([on(("POST", call), code).body(&keys).has("index", 1)]).await;
        }
        let delta = json!({ "type": "Deleted", "key": key }).to_string();
        bench.refuses([on(("POST", "/deltas"), code).body(delta)]).await;
    }
    let differs = json!([{ "type": "Added", "key": "b", "object": { "key": "a" } }]).to_string();
    bench
        .refuses([
            on(("POST", "/add?key=b"), "invalid-key").body(r#"{"key":"a"}"#).tells("differs"),
            on(("POST", "/add?key=b"), "invalid-key").body(r#"[{"key":"a"}]"#).has("parameter", "key"),
            on(("POST", "/deltas"), "invalid-key").body(differs).tells("differs"),
            on(("POST", "/forget"), "invalid-request").body(r#"{"keys":[1]}"#).tells("string"),
            on(("POST", "/deltas"), "invalid-request").body(r#"{"type":"Deleted","key":1}"#),
            on(("POST", "/deltas"), "no-key").body(r#"{"type":"Deleted"}"#),
            on(("POST", "/deltas"), "invalid-object").body(r#"{"type":"Added","key":"a"}"#),
        ])
        .await;
}

#[tokio::test]
async fn unknown_fields_are_reported_with_the_nearest() {
    let bench = Bench::new().await;
    let field = |call, body: &str, field: &str, near: &str| {
        let row = on(call, "invalid-request").body(body).has("field", field);
        if near.is_empty() { row } else { row.tells(&format!("did you mean {near:?}")) }
    };
    bench
        .refuses([
            field(("POST", "/settle"), r#"{"setle":[]}"#, "setle", ""),
            field(
                ("POST", "/settle"),
                r#"{"settle":[{"lease_id":"1","as":"nack","dely":"1s"}]}"#,
                "dely",
                "delay",
            ),
            field(("POST", "/pop"), r#"{"settle":[{"lease":"1","as":"ack"}]}"#, "lease", "lease_id"),
            field(("POST", "/pop"), r#"{"setle":[]}"#, "setle", ""),
            field(("POST", "/ack"), r#"{"lease_ids":[],"eror":"x"}"#, "eror", "error"),
            field(("POST", "/extend"), r#"{"leases":[]}"#, "leases", "lease_ids"),
            field(("POST", "/extend"), r#"{"lease_ids":[],"duration":"1s"}"#, "duration", "lease_duration"),
            field(("POST", "/forget"), r#"{"keys":[],"key":"a"}"#, "key", ""),
            field(("POST", "/parked/redrive"), r#"{"key":["a"]}"#, "key", ""),
            field(("POST", "/parked/discard"), r#"{"kees":["a"]}"#, "kees", ""),
            field(("POST", "/deltas"), r#"[{"type":"Added","objekt":{"key":"a"}}]"#, "objekt", "object"),
            field(
                ("POST", "/deltas"),
                r#"[{"type":"Added","object":{"key":"a"},"max_wait":"1s"}]"#,
                "max_wait",
                "",
            ),
            field(
                ("POST", "/deltas"),
                r#"[{"type":"Added","object":{"key":"a"},"debounce":"2s","max_wait":"1s"}]"#,
                "max_wait",
                "",
            ),
            field(
                ("POST", "/deltas"),
                r#"[{"type":"Added","object":{"key":"a"},"head_start":"169h"}]"#,
                "head_start",
                "",
            ),
            field(("POST", "/deltas"), r#"[{"typ":"Added","object":{"key":"a"}}]"#, "typ", "type"),
            field(("POST", "/seed"), r#"{"sorce":"s","object":{"key":"a"}}"#, "sorce", "source"),
            field(("PUT", ""), r#"{"max_kees":1}"#, "max_kees", "max_keys"),
            field(
                ("PUT", ""),
                r#"{"rate_limiter":{"item_exponentail":{"base":"1s","max":"2s"}}}"#,
                "rate_limiter.item_exponentail",
                "rate_limiter.item_exponential",
            ),
            field(
                ("PUT", ""),
                r#"{"rate_limiter":{"bucket":{"qps":1,"brust":1}}}"#,
                "rate_limiter.bucket.brust",
                "rate_limiter.bucket.burst",
            ),
            field(("PUT", ""), r#"{"retention":{"ages":"1d"}}"#, "retention.ages", "retention.age"),
            field(("PUT", ""), r#"{"max_kees":null}"#, "max_kees", "max_keys"),
            field(
                ("PUT", ""),
                r#"{"rate_limiter":{"jiter":null}}"#,
                "rate_limiter.jiter",
                "rate_limiter.jitter",
            ),
        ])
        .await;
}

#[tokio::test]
async fn a_selection_of_keys_that_is_none_or_two_is_refused() {
    let bench = Bench::new().await;
    let request = |call, body: &str| on(call, "invalid-request").body(body);
    let long = "x".repeat(4_097);
    bench
        .refuses([
            request(("POST", "/parked/redrive"), &format!(r#"{{"error":"{long}"}}"#)).has("limit", 4_096),
            request(("POST", "/parked/discard"), &format!(r#"{{"error":"{long}"}}"#)).has("field", "error"),
            request(("POST", "/parked/discard"), r#"{"error":null}"#).has("field", "keys"),
            request(("POST", "/parked/discard"), "{}").tells("selects no keys"),
            request(("POST", "/parked/redrive"), "").tells("selects no keys"),
            request(("POST", "/delayed/promote"), r#"{"all":false,"keys":null,"error":"x"}"#)
                .has("field", "error"),
            request(("POST", "/delayed/promote"), r#"{"all":true,"keys":null}"#).has("field", "all"),
            request(("POST", "/parked/discard"), r#"{"all":true,"expected_count":-1}"#).tells("from 0"),
        ])
        .await;
}

#[tokio::test]
async fn fields_with_a_wrong_value_are_named() {
    let bench = Bench::new().await;
    let settle = |fields: &str| format!("{{\"settle\":[{{\"lease_id\":\"1\",{fields}}}]}}");
    let request = |call, body: &str| on(call, "invalid-request").body(body);
    let long = "x".repeat(4_097);
    bench
        .refuses([
            request(("POST", "/settle"), r#"{"settle":{}}"#)
                .tells("settle: invalid type: map, expected a list"),
            request(("POST", "/settle"), r#"{"settle":[["1","ack"]]}"#).tells("an object"),
            request(("POST", "/settle"), r#"{"settle":[{"lease_id":1,"as":"ack"}]}"#).tells("string"),
            request(("POST", "/settle"), r#"{"settle":[{"lease_id":"1"}]}"#).has("field", "as"),
            request(("POST", "/settle"), &settle(r#""as":"finished""#))
                .tells("expected one of `ack`")
                .has("field", "as"),
            request(("POST", "/settle"), &settle(r#""as":{"ack":null}"#)).tells("string"),
            request(("POST", "/settle"), &settle(r#""as":"ack","delay":"1s""#))
                .tells("nack and done only")
                .has("index", 0),
            request(("POST", "/settle"), &settle(r#""as":"release","error":"x""#)).tells("nack and reject"),
            request(("POST", "/settle"), &settle(r#""as":"reject","floor":true"#)).has("field", "floor"),
            request(("POST", "/settle"), &settle(r#""as":"nack","floor":"1h""#)).tells("floor: invalid type"),
            request(("POST", "/done"), r#"{"lease_id":"1","floor":true}"#).tells("nack only"),
            request(("POST", "/settle"), &settle(r#""as":"nack","hold":{"scope":"queue","for":"1s"}"#))
                .tells("ack and release only"),
            request(("POST", "/settle"), &settle(r#""as":"ack","hold":["queue","1s"]"#))
                .tells("hold: invalid type"),
            request(("POST", "/settle"), &settle(r#""as":"ack","hold":{"scope":"queue"}"#))
                .tells("missing field `for`"),
            request(("POST", "/settle"), &settle(r#""as":"ack","hold":{"scope":"all","for":"1s"}"#))
                .tells("scope"),
            request(("POST", "/release"), r#"{"lease_id":"1","hold":{"scope":"queue","for":"-1s"}}"#)
                .has("field", "hold.for"),
            request(("POST", "/release"), r#"{"lease_id":"1","hold":{"scope":"queue","for":""}}"#)
                .has("field", "hold.for"),
            request(("POST", "/settle"), &settle(r#""as":"reject","through":1"#)).has("field", "through"),
            request(("POST", "/settle"), &settle(r#""as":"nack","through":1,"keep":true"#))
                .has("field", "keep"),
            request(("POST", "/ack"), r#"{"lease_id":"1","keep":true}"#).has("field", "keep"),
            request(("POST", "/ack"), r#"{"lease_id":"1","through":-1}"#).tells("through: invalid value"),
            request(("POST", "/ack"), r#"{"lease_ids":["1","2"],"through":1}"#).has("field", "through"),
            request(("POST", "/ack"), r#"{"lease_ids":["1","2","1"]}"#).tells("twice").has("index", 2),
            request(("POST", "/extend"), r#"{"lease_ids":["1","1"]}"#).tells("twice").has("index", 1),
            request(("POST", "/ack"), r#"{"lease_ids":"1"}"#),
            request(("POST", "/ack"), r#"{"lease_id":"1","lease_ids":["2"]}"#).has("field", "lease_ids"),
            request(("POST", "/ack"), r#"{"lease_id":""}"#).has("field", "lease_id"),
            request(("POST", "/ack"), r#"{"lease_ids":[],"lease_duration":"1m"}"#).tells("extend only"),
            request(("POST", "/settle"), r#"{"settle":[{"as":"ack"}]}"#)
                .has("field", "lease_id")
                .has("index", 0),
            request(("POST", "/ack"), r#"{"lease_ids":[],"delay":"1s"}"#).has("field", "delay"),
            request(("POST", "/release"), r#"{"lease_ids":[],"error":"x"}"#).has("field", "error"),
            request(("POST", "/nack"), &format!(r#"{{"lease_ids":[],"error":"{long}"}}"#))
                .has("limit", 4_096),
        ])
        .await;
}

#[tokio::test]
async fn fields_of_entries_with_a_wrong_value_are_named() {
    let bench = Bench::new().await;
    let request = |call, body: &str| on(call, "invalid-request").body(body);
    bench
        .refuses([
            request(("POST", "/deltas"), r#"{"type":"Sync","object":{"key":"a"}}"#).tells("expected one of"),
            request(("POST", "/deltas"), r#"{"object":{"key":"a"}}"#).has("field", "type"),
            request(
                ("POST", "/deltas"),
                r#"{"type":"Added","final_state_unknown":true,"object":{"key":"a"}}"#,
            )
            .has("field", "final_state_unknown"),
            request(("POST", "/deltas"), r#"{"type":"Added","source":"a\nb","object":{"key":"a"}}"#)
                .has("field", "source"),
            request(("POST", "/deltas"), r#"{"type":"Added","delay":5,"object":{"key":"a"}}"#)
                .has("field", "delay"),
            request(("POST", "/seed"), r#"{"source":"a\nb","object":{"key":"a"}}"#).has("field", "source"),
            request(("POST", "/seed"), r#"{"resource_version":-1,"object":{"key":"a"}}"#).tells("from 0"),
            request(("POST", "/seed"), r#"{"resource_version":1.5,"object":{"key":"a"}}"#).tells("from 0"),
            request(("POST", "/seed"), r#"{"key":"a"}"#).has("field", "object"),
        ])
        .await;
    for version in ["-1", "1.5", "1e300", "\"7\"", "true", "[]"] {
        let delta =
            format!(r#"[{{"type":"Added","expected_version":{version},"object":{{"key":"ready"}}}}]"#);
        let row = request(("POST", "/deltas"), &delta).has("field", "expected_version").has("index", 0);
        bench.refuses([row.tells("expected_version")]).await;
        let skips = request(("POST", "/deltas?skip_invalid=true"), &delta);
        bench.refuses([skips.has("field", "expected_version")]).await;
    }
}

#[tokio::test]
async fn durations_with_a_wrong_value_are_named() {
    let bench = Bench::new().await;
    let request = |call, body: &str| on(call, "invalid-request").body(body);
    for delay in ["-1s", "1.s", "30", "367d", "99999999999999999999d", "1h30", " 1s"] {
        let nack = format!(r#"{{"settle":[{{"lease_id":"1","as":"nack","delay":"{delay}"}}]}}"#);
        let delta = format!(r#"{{"type":"Added","delay":"{delay}","object":{{"key":"a"}}}}"#);
        let nacks = format!(r#"{{"lease_ids":[],"delay":"{delay}"}}"#);
        let rows = [("/settle", nack.clone()), ("/pop", nack), ("/deltas", delta), ("/nack", nacks)];
        let rows =
            rows.map(|(call, body)| request(("POST", call), &body).has("field", "delay").tells("delay"));
        bench.refuses(rows).await;
    }
    for lease in ["0s", "999ms", "0.9s", "12h1s", "-1s", "1,5s", "60", "99999999999999999999d"] {
        let body = format!(r#"{{"lease_ids":["1"],"lease_duration":"{lease}"}}"#);
        bench.refuses([request(("POST", "/extend"), &body).has("field", "lease_duration")]).await;
    }
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "a table")]
async fn settings_with_a_wrong_value_are_named() {
    let bench = Bench::new().await;
    let numbers = ["-1", "1.5", "1e300", "\"1\"", "[]"];
    let durations =
        ["\"-1s\"", "\"1,5s\"", "\"30\"", "\"\"", "30", "\"99999999999999999999d\"", "\"1h30\"", "[]"];
    let whole = [
        "max_failures",
        "max_keys",
        "max_object_bytes",
        "max_deltas_per_key",
        "max_bytes_per_key",
        "max_deletes",
    ];
    let mut wrong: Vec<(String, String)> = Vec::new();
    let mut add = |field: &str, values: &[&str]| {
        wrong.extend(values.iter().map(|value| (field.to_owned(), (*value).to_owned())));
    };
    for field in whole {
        add(field, &numbers);
    }
    add("max_keys", &["0", "1000000001"]);
    add("max_failures", &["4294967296"]);
    add("max_object_bytes", &["0", "1", "1073741825"]);
    add("max_deltas_per_key", &["1", "1000000001"]);
    add("max_bytes_per_key", &["0"]);
    add("max_deletes", &["9223372036854775808"]);
    add("max_delete_percent", &["-0.1", "100.1", "1e300", "\"1\""]);
    add("lease", &durations);
    add("lease", &["\"0s\"", "\"13h\""]);
    add("resync_period", &durations);
    add("resync_period", &["\"0s\"", "\"36501d\""]);
    add("rate_limiter.jitter", &["-0.1", "1.1", "\"1\""]);
    add("rate_limiter.max_wait", &durations);
    add("debounce.quiet", &durations);
    add("debounce.quiet", &["\"367d\""]);
    add("debounce.max_wait", &["\"367d\""]);
    add("retention.age", &durations);
    add("retention.bytes", &numbers);
    add("mode", &["\"fifo\"", "1"]);
    add("known_objects", &["\"true\"", "1"]);
    for field in ["max_keys", "lease", "mode", "known_objects", "rate_limiter.jitter", "retention.age"] {
        add(field, &["{}", "{\"a\":1}", "{\"a\":null}", "[]", "[1]"]);
    }
    add("emit_replaced", &["0"]);
    add("key", &["\"key\"", "[]", "[\"key\"]", "[\"/a~2\"]", "[1]", "[null]"]);
    for (field, value) in wrong {
        let body = match field.split_once('.') {
            Some((table, member)) => format!("{{\"{table}\":{{\"{member}\":{value}}}}}"),
            None => format!("{{\"{field}\":{value}}}"),
        };
        bench
            .refuses([on(("PUT", ""), "invalid-config").body(body).has("field", field.clone()).tells(&field)])
            .await;
    }
    let limiters = [
        (r#"{"item_exponential":{"base":"0s","max":"1s"}}"#, "rate_limiter.item_exponential.base"),
        (r#"{"item_exponential":{"base":"1s"}}"#, "rate_limiter.item_exponential.max"),
        (r#"{"item_exponential":{}}"#, "rate_limiter.item_exponential.base"),
        (
            r#"{"item_fast_slow":{"fast":"1s","slow":"1,5s","max_fast":1}}"#,
            "rate_limiter.item_fast_slow.slow",
        ),
        (
            r#"{"item_fast_slow":{"fast":"1s","slow":"1s","max_fast":-1}}"#,
            "rate_limiter.item_fast_slow.max_fast",
        ),
        (r#"{"bucket":{"qps":0,"burst":1}}"#, "rate_limiter.bucket.qps"),
        (r#"{"bucket":{"qps":-1,"burst":1}}"#, "rate_limiter.bucket.qps"),
        (r#"{"bucket":{"qps":1,"burst":0}}"#, "rate_limiter.bucket.burst"),
    ];
    for (limiter, field) in limiters {
        let body = format!("{{\"rate_limiter\":{limiter}}}");
        bench.refuses([on(("PUT", ""), "invalid-config").body(body).has("field", field)]).await;
    }
    let debounces = [
        (r#"{"debounce":{"quiet":"2s","max_wait":"1s"}}"#, "debounce.max_wait"),
        (r#"{"debounce":{"max_wait":"1s"}}"#, "debounce.quiet"),
        (r#"{"debounce":{"quiet":"2s","deletes":"never"}}"#, "debounce.deletes"),
        (r#"{"debounce":{"quiet":"2s","lists":1}}"#, "debounce.lists"),
        (r#"{"mode":"events","debounce":{"quiet":"2s"}}"#, "debounce"),
    ];
    let orders = [
        (r#"{"order":{"head_start":{"pointer":"urgent"}}}"#, "order.head_start.pointer"),
        (r#"{"order":{"head_start":{"pointer":"/a","default":"8d"}}}"#, "order.head_start.default"),
        (r#"{"order":{"head_start":{}}}"#, "order.head_start.pointer"),
        (r#"{"order":{"priority":{"pointer":"/a~2"}}}"#, "order.priority.pointer"),
        (r#"{"order":{"priority":{"pointer":"/a","step":"61m"}}}"#, "order.priority.step"),
        (r#"{"order":{"priority":{"pointer":"/a","step":"0s"}}}"#, "order.priority.step"),
        (r#"{"order":{"initial_list":"-169h"}}"#, "order.initial_list"),
        (r#"{"order":{"resync":5}}"#, "order.resync"),
        (r#"{"order":{"head_start":{"pointer":"/a"},"priority":{"pointer":"/b"}}}"#, "order.priority"),
    ];
    let limits = [
        (r#"{"groups":{}}"#, "groups.by"),
        (r#"{"groups":{"by":"tenant"}}"#, "groups.by"),
        (r#"{"groups":{"by":{"key_prefix":""}}}"#, "groups.by"),
        (r#"{"groups":{"by":"source","max_leased":0}}"#, "groups.max_leased"),
        (r#"{"groups":{"by":"source","overrides":{"a":{"weight":0}}}}"#, "groups.overrides"),
        (r#"{"groups":{"by":"source","overrides":{"a":{"wait":1}}}}"#, "groups.overrides"),
        (r#"{"max_leased":0}"#, "max_leased"),
        (r#"{"max_leased":1000000001}"#, "max_leased"),
        (r#"{"rate":5}"#, "rate"),
        (r#"{"rate":{"per_second":5}}"#, "rate.burst"),
        (r#"{"rate":{"burst":5}}"#, "rate.per_second"),
        (r#"{"rate":{"per_second":0,"burst":1}}"#, "rate.per_second"),
        (r#"{"rate":{"per_second":0.0009,"burst":1}}"#, "rate.per_second"),
        (r#"{"rate":{"per_second":0.3333,"burst":1}}"#, "rate.per_second"),
        (r#"{"rate":{"per_second":1000000.001,"burst":1}}"#, "rate.per_second"),
        (r#"{"rate":{"per_second":1,"burst":0}}"#, "rate.burst"),
        (r#"{"rate":{"per_second":1,"burst":1000001}}"#, "rate.burst"),
        (r#"{"rate":{"per_second":1,"burst":1.5}}"#, "rate.burst"),
    ];
    for (body, field) in debounces.into_iter().chain(orders).chain(limits) {
        bench.refuses([on(("PUT", ""), "invalid-config").body(body).has("field", field)]).await;
    }
    let resync = on(("PUT", ""), "invalid-config").body(r#"{"mode":"keys","resync_period":"1h"}"#);
    bench.refuses([resync.has("field", "resync_period")]).await;
    let immutable = [("mode", "\"keys\""), ("key", "[\"/name\"]"), ("known_objects", "false")];
    for (field, value) in immutable {
        let body = format!("{{\"{field}\":{value}}}");
        bench.refuses([on(("PUT", ""), "immutable-config").body(body).has("field", field)]).await;
    }
}
