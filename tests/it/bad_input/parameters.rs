//! Query parameters and parts of the path.

use deltaq_types::duration;

use super::{Bench, filled, operations, row};

/// The name of the parameter without its last letter.
fn misspelt(name: &str) -> String {
    name.chars().take(name.chars().count() - 1).collect()
}

#[tokio::test]
async fn every_call_refuses_unknown_and_duplicate_parameters() {
    let bench = Bench::new().await;
    for (method, template, operation) in operations(&bench.service).await {
        let path = filled(&template);
        let unknown = row(&method, &format!("{path}?no_such_thing=1"), "invalid-parameter");
        bench.refuses([unknown.has("parameter", "no_such_thing").tells("unknown parameter")]).await;
        let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
        for parameter in parameters.iter().filter(|parameter| parameter["in"] == "query") {
            let name = parameter["name"].as_str().expect("a name");
            let short = misspelt(name);
            let near = row(&method, &format!("{path}?{short}=1"), "invalid-parameter");
            let twice = row(&method, &format!("{path}?{name}=1&{name}=1"), "invalid-parameter");
            bench
                .refuses([
                    near.has("parameter", short).tells(&format!("did you mean {name:?}")),
                    twice.has("parameter", name).tells("twice"),
                ])
                .await;
        }
    }
}

#[tokio::test]
async fn numbers_are_whole_and_in_their_range() {
    let bench = Bench::new().await;
    let bad = ["-1", "1.5", "1e2", "%201", "+1", "0x10", "NaN", "1_000", "99999999999999999999", "%D9%A1"];
    let q = "/v1/queues/q";
    let numbers: [(&str, String, &str, &[&str]); 7] = [
        ("POST", format!("{q}/pop"), "max", &["0", "1001"]),
        ("GET", format!("{q}/items"), "limit", &["0", "5001"]),
        ("GET", format!("{q}/known"), "limit", &["0", "5001"]),
        ("GET", "/v1/queues".to_owned(), "limit", &["0", "5001"]),
        ("POST", format!("{q}/replace"), "count", &[]),
        ("POST", format!("{q}/replace"), "max_deletes", &[]),
        ("POST", format!("{q}/replace"), "max_delete_percent", &["100.5", "inf", "1e3"]),
    ];
    for (method, path, name, more) in numbers {
        let is_percent = name == "max_delete_percent";
        for value in bad.iter().chain(more) {
            if is_percent && matches!(*value, "1.5" | "1e2" | "+1") {
                continue;
            }
            let row = row(method, &format!("{path}?{name}={value}"), "invalid-parameter").body("{}");
            bench.refuses([row.has("parameter", name).tells(name)]).await;
        }
    }
    let bound = row("POST", "/v1/queues/q/pop?max=1001", "invalid-parameter").has("limit", 1_000);
    bench.refuses([bound.tells("from 1 to 1000")]).await;
    for (path, name) in
        [("add", "rate_limited"), ("replace", "only_changed"), ("replace", "dry_run"), ("close", "drain")]
    {
        for value in ["", "1", "yes", "TRUE", "null"] {
            let path = format!("/v1/queues/q/{path}?{name}={value}");
            bench.refuses([row("POST", &path, "invalid-parameter").has("parameter", name)]).await;
        }
    }
}

#[tokio::test]
async fn durations_have_units_and_are_in_their_range() {
    let bench = Bench::new().await;
    let bad =
        ["-1s", "1,5s", "30", "s", "1%20s", "1S", "1h30", "1h%2030m", "99999999999999999999d", "1e3s", "inf"];
    let q = "/v1/queues/q";
    let durations: [(&str, String, &str, &[&str], &str); 6] = [
        ("POST", format!("{q}/pop?"), "wait", &["56s", "55001ms", "1m"], "55s"),
        ("GET", format!("{q}/synced?"), "wait", &["56s"], "55s"),
        ("POST", format!("{q}/close?drain=true&"), "wait", &["56s"], "55s"),
        ("POST", format!("{q}/pop?"), "lease_duration", &["0s", "999ms", "13h", "1d"], "12h"),
        ("POST", format!("{q}/add?"), "delay", &["367d"], "366d"),
        ("POST", format!("{q}/update?"), "delay", &["367d"], "366d"),
    ];
    for (method, path, name, outside, limit) in durations {
        for value in bad {
            let row = row(method, &format!("{path}{name}={value}"), "invalid-parameter");
            bench.refuses([row.has("parameter", name).tells(name)]).await;
        }
        for value in outside {
            let row = row(method, &format!("{path}{name}={value}"), "invalid-parameter");
            let limit_ms = duration::whole_ms(duration::parse(limit).expect("a duration"));
            bench.refuses([row.has("parameter", name).has("limit_ms", limit_ms).tells(limit)]).await;
        }
    }
    bench
        .refuses([
            row("POST", "/v1/queues/q/close?wait=1s", "invalid-parameter")
                .has("parameter", "wait")
                .tells("drain=true"),
            row("POST", "/v1/queues/q/add?delay=1s&rate_limited=true", "invalid-parameter")
                .has("parameter", "rate_limited"),
            row("POST", "/v1/queues/q/add?rate_limited=true", "wrong-mode")
                .body(r#"{"key":"a"}"#)
                .has("mode", "delta"),
        ])
        .await;
}

#[tokio::test]
async fn names_and_words_are_checked() {
    let bench = Bench::new().await;
    let long = "x".repeat(257);
    let names = [
        ("POST", "add", "source"),
        ("POST", "update", "source"),
        ("POST", "delete", "source"),
        ("POST", "replace", "source"),
        ("POST", "pop", "worker"),
        ("POST", "pop", "id"),
        ("GET", "items", "worker"),
        ("GET", "known", "source"),
    ];
    for (method, call, name) in names {
        for value in ["a%0Ab", "%00", "%C2%9F", &long] {
            let path = format!("/v1/queues/q/{call}?{name}={value}");
            let row = row(method, &path, "invalid-parameter").has("parameter", name).has("limit", 256);
            bench.refuses([row]).await;
        }
        let path = format!("/v1/queues/q/{call}?{name}=%FF");
        bench.refuses([row(method, &path, "invalid-parameter").tells("not UTF-8")]).await;
    }
    let wrong = |path: &str, name: &str| row("GET", path, "invalid-parameter").has("parameter", name);
    bench
        .refuses([
            row("POST", "/v1/queues/q/pop?with=knwon", "invalid-parameter").has("parameter", "with"),
            wrong("/v1/queues/q/items?state=redy", "state").tells("did you mean \"ready\""),
            wrong("/v1/queues/q/items?state=ready,,leased", "state"),
            wrong("/v1/queues/q/items?continue=xyz", "continue"),
            wrong("/v1/queues/q/items?continue=abc", "continue"),
            wrong("/v1/queues/q/known?continue=%2Bf%2Bf", "continue"),
            wrong("/v1/queues?continue=AB", "continue"),
            row("GET", "/v1/queues/q/items?continue=abcd", "expired").has("parameter", "continue"),
            row("GET", "/v1/queues/q/known?continue=00", "expired").has("parameter", "continue"),
            row("GET", "/v1/queues?continue=00", "expired").has("parameter", "continue"),
            wrong("/v1/queues/q/items?continue=abc", "continue").header("accept", "application/x-ndjson"),
            row("GET", "/v1/queues/q/known?continue=00", "expired").header("accept", "application/x-ndjson"),
        ])
        .await;
}

#[tokio::test]
async fn an_empty_parameter_is_absent_unless_empty_text_means_something() {
    let bench = Bench::new().await;
    bench
        .refuses([
            row("GET", "/v1/queues/q/history?key=", "invalid-parameter").has("parameter", "key"),
            row("POST", "/v1/queues/q/replace?dry_run=", "invalid-parameter").has("parameter", "dry_run"),
            row("GET", "/v1/queues/q/known?value=", "invalid-parameter").tells("needs index"),
        ])
        .await;
    let add = |query: &str| {
        let row = row("POST", &format!("/v1/queues/q/add?{query}"), "invalid-parameter");
        row.body(r#"{"key":"a"}"#)
    };
    bench
        .refuses([
            add("max_wait=2s").has("parameter", "max_wait").tells("requires debounce"),
            add("debounce=2s&max_wait=1s").has("parameter", "max_wait").tells("shorter"),
            add("head_start=8d").has("parameter", "head_start").tells("-7d to 7d"),
            add("head_start=-8d").has("parameter", "head_start").tells("-7d to 7d"),
            add("head_start=soon").has("parameter", "head_start").tells("duration"),
            add("debounce=2s&rate_limited=true").has("parameter", "rate_limited"),
        ])
        .await;
    let mut client = bench.service.client().await;
    for (method, path) in [
        ("POST", "pop?wait=&max=&lease_duration=&worker=&id=&with="),
        ("GET", "items?state=&worker=&prefix=&source=&key=&fields=&limit=&continue="),
        ("POST", "replace?source=s&sequence=&max_deletes=&max_delete_percent=&duplicates=&count=0"),
        ("GET", "synced?resource_version=&wait="),
    ] {
        client.call(method, &format!("/v1/queues/q/{path}"), &serde_json::Value::Null).await.ok();
    }
}

#[tokio::test]
async fn a_single_key_is_a_list_of_one_or_none() {
    let bench = Bench::new().await;
    let of_one = |list: &str| row("GET", &format!("/v1/queues/q/{list}?key=none"), "not-acceptable");
    bench.refuses(["items", "known"].map(|list| of_one(list).header("accept", "text/html"))).await;
    let mut client = bench.service.client().await;
    for list in ["items", "known"] {
        let lines = [("accept", "application/x-ndjson")];
        client.send_text("GET", &format!("/v1/queues/q/{list}?key=none"), &lines, "").await;
        assert_eq!(client.reply().await.text, "");
    }
}

#[tokio::test]
async fn names_of_queues_are_checked_on_every_call() {
    let bench = Bench::new().await;
    let long = "x".repeat(129);
    let names =
        ["..", ".", "%2e%2e", "A", "-a", "a-", "a%20b", "%C3%BC", "a%2Fb", "%FF", "%", "%zz", "a%00", &long];
    for (method, template, _) in operations(&bench.service).await {
        if !template.contains("{queue}") {
            continue;
        }
        for name in names {
            let path = template.replace("{queue}", name).replace("{key}", "a");
            let row =
                row(&method, &path, "invalid-parameter").has("parameter", "queue").tells("a queue name");
            bench.refuses([row]).await;
        }
    }
    bench
        .refuses([
            row("GET", "/v1/queues/", "not-found"),
            row("GET", "/v1/queues//items", "invalid-parameter"),
        ])
        .await;
}

#[tokio::test]
async fn keys_in_path_and_query_are_checked() {
    let bench = Bench::new().await;
    let long = "x".repeat(1_025);
    let keys = [("a%0Ab", "control"), ("%00", "control"), ("%C2%85", "control"), (&long, "1025 bytes")];
    for place in ["items", "known"] {
        for (key, tells) in keys {
            let rows = [format!("/v1/queues/q/{place}/{key}"), format!("/v1/queues/q/{place}?key={key}")];
            let rows = rows.map(|path| row("GET", &path, "invalid-key").has("parameter", "key").tells(tells));
            bench.refuses(rows).await;
        }
        bench
            .refuses([
                row("GET", &format!("/v1/queues/q/{place}/%FF"), "invalid-parameter").has("parameter", "key"),
                row("GET", &format!("/v1/queues/q/{place}?key=%FF"), "invalid-parameter").tells("not UTF-8"),
                row("GET", &format!("/v1/queues/q/{place}/absent"), "key-not-found").tells("absent"),
                row("GET", &format!("/v1/queues/q/{place}/a%2Fb%20c"), "key-not-found").tells("\"a/b c\""),
                row("GET", &format!("/v1/queues/q/{place}/a/../b"), "key-not-found").tells("\"a/../b\""),
                row("GET", &format!("/v1/queues/q/{place}/"), "not-found"),
            ])
            .await;
    }
    for call in ["add", "update", "delete"] {
        for (key, tells) in keys {
            let path = format!("/v1/queues/q/{call}?key={key}");
            let row = row("POST", &path, "invalid-key").body("{}").has("parameter", "key");
            bench.refuses([row.tells(tells)]).await;
        }
    }
}
