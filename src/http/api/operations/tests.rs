//! Compares the table with the router and with the OpenAPI document.

use std::collections::BTreeSet;

use axum::body::Body;
use serde_json::Value;

use super::*;
use crate::http::api::document;
use crate::http::operation::BodyKind;
use crate::http::operation::Operation;

fn operations() -> impl Iterator<Item = &'static Operation> {
    table::ALL.iter().map(|endpoint| &endpoint.operation)
}

/// The template in the form of the OpenAPI document.
fn described(path: &str) -> String {
    path.replace("{*", "{")
}

#[test]
fn the_document_describes_the_table() {
    let document = document::document(true);
    let mut documented = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let query = |parameter: &&Value| parameter["in"] == "query";
            let parameters = operation["parameters"].as_array().into_iter().flatten().filter(query);
            let names: Vec<_> =
                parameters.map(|parameter| parameter["name"].as_str().unwrap().to_owned()).collect();
            let id = operation["operationId"].as_str().unwrap().to_owned();
            let is_open = operation["security"] == serde_json::json!([{}]);
            let has_body = operation.get("requestBody").is_some();
            documented.insert((method.to_uppercase(), path.clone(), id, names, is_open, has_body));
        }
    }
    let tabled = operations().filter_map(|operation| {
        let has_body = !matches!(operation.body, BodyKind::Ignored | BodyKind::Empty);
        let names = operation.query.iter().map(|name| (*name).to_owned()).collect();
        let is_open = operation.permission.is_anonymous();
        let (method, path) = (operation.method.to_owned(), described(operation.path));
        Some((method, path, operation.id?.to_owned(), names, is_open, has_body))
    });
    assert_eq!(tabled.collect::<BTreeSet<_>>(), documented);
}

#[test]
fn the_router_finds_every_row_of_the_table() {
    let all = Operations::all(Served { metrics: true, console: true, kubernetes: true });
    for operation in operations() {
        let path = operation
            .path
            .replace("{queue}", "q")
            .replace("{*key}", "a/b")
            .replace("{*file}", "a/b")
            .replace("{number}", "7")
            .replace("{name}", "x");
        let request = |method: &str, path: &str| {
            Request::builder().method(method).uri(path).body(Body::empty()).unwrap()
        };
        let (target, handler) = all.find(&request(operation.method, &path));
        assert!(target.operation.is_some_and(|found| std::ptr::eq(found, operation)), "{path}");
        assert!(handler.is_some(), "{path}");
        assert_eq!(target.path, Some(operation.path));
        assert_eq!(target.queue.is_some(), operation.path.contains("{queue}"), "{path}");
        let (other, handler) = all.find(&request("BREW", &path));
        assert!(
            handler.is_none() && other.operation.is_none() && other.path == Some(operation.path),
            "{path}"
        );
        let method = operation.method.replace(WATCH, "GET");
        assert!(other.allow.is_some_and(|allow| allow.contains(&method)), "{path}");
        let (longer, _) = all.find(&request(operation.method, &format!("{path}/")));
        let takes_longer = |found: &Operation| {
            found.path.contains("{*") || found.path == "/console/" || found.is_kubernetes()
        };
        assert!(longer.operation.is_none_or(takes_longer));
    }
}

#[test]
fn a_listener_of_the_metrics_offers_nothing_else() {
    let paths = |offered: Operations| {
        let found = |operation: &&Operation| {
            let request = Request::builder().uri(operation.path).body(Body::empty()).unwrap();
            offered.find(&request).0.path.is_some()
        };
        operations().filter(found).map(|operation| operation.path).collect::<BTreeSet<_>>()
    };
    assert_eq!(paths(Operations::of_metrics()), BTreeSet::from(["/metrics"]));
    assert!(
        !paths(Operations::all(Served { metrics: false, console: true, kubernetes: true }))
            .contains("/metrics")
    );
    assert!(
        paths(Operations::all(Served { metrics: true, console: true, kubernetes: true }))
            .contains("/metrics")
    );
}

#[test]
fn a_server_without_console_has_none_of_its_paths() {
    for path in ["/", "/console", "/console/", "/console/main.js"] {
        let request = Request::builder().uri(path).body(Body::empty()).unwrap();
        assert!(
            Operations::all(Served { metrics: true, console: true, kubernetes: true })
                .find(&request)
                .0
                .operation
                .is_some(),
            "{path}"
        );
        assert!(
            Operations::all(Served { metrics: true, console: false, kubernetes: true })
                .find(&request)
                .0
                .path
                .is_none(),
            "{path}"
        );
    }
}

#[test]
fn an_encoded_name_of_a_queue_is_decoded() {
    let all = Operations::all(Served { metrics: false, console: true, kubernetes: true });
    let queue = |path: &str| {
        let request = Request::builder().uri(path).body(Body::empty()).unwrap();
        all.find(&request).0.queue.map(|name| name.as_str().to_owned())
    };
    assert_eq!(queue("/v1/queues/a"), Some("a".to_owned()));
    assert_eq!(queue("/v1/queues/%71/items"), Some("q".to_owned()));
    assert_eq!(queue("/v1/queues/%ff"), None);
    assert_eq!(queue("/v1/queues/A"), None);
}
