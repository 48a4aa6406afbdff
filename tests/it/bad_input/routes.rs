//! Routes and their methods.

use std::collections::{BTreeMap, BTreeSet};

use deltaq::http::problem::Code;
use serde_json::Value;

use super::{Bench, filled, operations, row};

const METHODS: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"];

/// The methods of each path of the document.
async fn described(bench: &Bench) -> BTreeMap<String, BTreeSet<String>> {
    let mut paths = BTreeMap::<String, BTreeSet<String>>::new();
    for (method, path, _) in operations(&bench.service).await {
        paths.entry(path).or_default().insert(method);
    }
    paths
}

#[tokio::test]
async fn other_methods_are_refused_with_the_allowed_ones() {
    let bench = Bench::new().await;
    for (template, methods) in described(&bench).await {
        let mut allowed = methods.clone();
        if methods.contains("GET") {
            allowed.insert("HEAD".to_owned());
        }
        let path = filled(&template);
        for method in METHODS.into_iter().filter(|method| !allowed.contains(*method)) {
            let mut client = bench.service.client().await;
            client.send_bytes(&row(method, &path, "method-not-allowed").text()).await;
            let reply = if method == "HEAD" {
                let (status, headers) = client.head().await.expect("a head");
                assert_eq!(status, 405, "{method} {path}");
                assert!(headers.iter().any(|(name, _)| name == "x-request-id"));
                headers.into_iter().find(|(name, _)| name == "allow").map(|(_, value)| value)
            } else {
                let reply = client.reply().await;
                let allow = reply.header("allow").map(str::to_owned);
                row(method, &path, "method-not-allowed").tells("the path takes").judge(reply);
                allow
            };
            let allow = reply.unwrap_or_else(|| panic!("{method} {path} has no Allow"));
            let listed: BTreeSet<String> = allow.split(',').map(|method| method.trim().to_owned()).collect();
            assert_eq!(listed, allowed, "{method} {path}");
        }
        bench.unchanged(&path).await;
    }
}

#[tokio::test]
async fn the_document_has_every_path_and_no_other() {
    let bench = Bench::new().await;
    for (template, methods) in described(&bench).await {
        if methods.contains("GET") {
            let path = filled(&template);
            for method in ["GET", "HEAD"] {
                let mut client = bench.service.client().await;
                client.send_bytes(&row(method, &path, "").text()).await;
                let (status, headers) = client.head().await.expect("a head");
                let is_missing = status == 404
                    && !template.contains("{key}")
                    && !template.contains("/indexes/")
                    && !template.contains("{number}");
                assert!(status < 500 && status != 405 && !is_missing, "{method} {path}: {status}");
                assert!(headers.iter().any(|(name, _)| name == "x-request-id"), "{method} {path}");
            }
        }
        // A key and the name of a source may end with a slash.
        if !template.ends_with("/{key}") && !template.ends_with("/{source}") {
            bench
                .refuses([row("GET", &format!("{}/", filled(&template)), "not-found").tells("no route")])
                .await;
        }
    }
    let nowhere =
        ["/v1", "/v2/queues", "/v1/queues/q/nothing", "/v1/queues/q/dead-letters", "//livez", "/metrics"];
    for path in nowhere {
        bench.refuses([row("GET", path, "not-found").tells(path), row("POST", path, "not-found")]).await;
    }
    // Only browsers are led from the root to the console.
    bench
        .refuses([
            row("GET", "/", "not-found").tells("no route"),
            row("GET", "/console/none.js", "not-found"),
        ])
        .await;
}

#[tokio::test]
async fn every_problem_has_a_page_and_a_response_in_the_document() {
    let bench = Bench::new().await;
    let document = bench.service.get("/openapi.json").await.ok();
    for code in Code::ALL {
        let page = bench.service.get(&format!("/problems/{}", code.name())).await;
        assert_eq!((page.status, page.header("content-type")), (200, Some("text/plain; charset=utf-8")));
        assert!(page.text.starts_with(&format!("{} ({})", code.name(), code.status())), "{}", page.text);
        assert!(page.text.contains(code.title()) && page.text.contains(code.help()));
        let shared = &document["components"]["responses"][format!("Problem{}", code.status())];
        assert!(shared["description"].as_str().is_some_and(|text| text.contains(code.name())));
    }
    bench
        .refuses([
            row("GET", "/problems/none", "not-found").tells("lease-lost"),
            row("GET", "/problems/%FF", "not-found"),
        ])
        .await;
}

#[tokio::test]
async fn ids_of_operations_are_unique_and_references_lead_somewhere() {
    let bench = Bench::new().await;
    let document = bench.service.get("/openapi.json").await.ok();
    let all = operations(&bench.service).await;
    let ids: BTreeSet<&str> =
        all.iter().filter_map(|(_, _, operation)| operation["operationId"].as_str()).collect();
    assert_eq!(ids.len(), all.len());
    let mut rest = vec![&document];
    while let Some(value) = rest.pop() {
        if let Some(reference) = value.get("$ref").and_then(Value::as_str) {
            let target = document.pointer(reference.trim_start_matches('#'));
            assert!(target.is_some(), "{reference}");
        }
        match value {
            Value::Array(values) => rest.extend(values),
            Value::Object(members) => rest.extend(members.values()),
            _ => {}
        }
    }
}
