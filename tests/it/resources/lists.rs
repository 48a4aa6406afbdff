//! Lists: pages of one version while the queue changes.

use serde_json::json;

use super::{ALL, Events, SHOP, add, delete, names, refused, shop};

/// Lists page by page, with a change between two pages; then the watch from the version of the list must have every change once.
#[tokio::test]
async fn a_list_in_pages_and_the_watch_behind_it_have_every_change_once() {
    let service = shop().await;
    for name in ["a", "b", "c", "d", "e"] {
        add(&service, name, &json!({}), 1).await;
    }
    let first = service.get(&format!("{SHOP}?limit=2")).await.ok();
    assert_eq!(names(&first), ["a", "b"]);
    let version = first["metadata"]["resourceVersion"].as_str().expect("a version").to_owned();
    let next = first["metadata"]["continue"].as_str().expect("a token").to_owned();
    // A key behind the page leaves, one enters and leaves, one enters, one changes, and one behind the next page leaves.
    delete(&service, "c").await;
    add(&service, "ca", &json!({}), 1).await;
    delete(&service, "ca").await;
    add(&service, "cb", &json!({}), 1).await;
    add(&service, "d", &json!({}), 2).await;
    delete(&service, "a").await;
    let rest = service.get(&format!("{SHOP}?limit=500&continue={next}")).await.ok();
    assert_eq!(names(&rest), ["c", "d", "e"]);
    assert_eq!((&rest["items"][0]["n"], &rest["items"][1]["n"]), (&json!(1), &json!(2)));
    assert_eq!(rest["metadata"]["resourceVersion"], version, "that of the first page");
    let mut events = Events::open(&service, &format!("{SHOP}?watch=1&resourceVersion={version}")).await;
    let mut seen = Vec::new();
    for _ in 0..4 {
        seen.push(events.seen().await);
    }
    assert_eq!(seen, ["DELETED c", "ADDED cb", "MODIFIED d", "DELETED a"]);
}

#[tokio::test]
async fn a_page_whose_deletions_are_forgotten_is_expired() {
    let service = crate::harness::Service::with(|settings| {
        settings.kubernetes.enabled = true;
        settings.watch.tombstones = 1;
    })
    .await;
    super::create_prices(&service).await;
    for name in ["a", "b", "c", "d"] {
        add(&service, name, &json!({}), 1).await;
    }
    let first = service.get(&format!("{ALL}?limit=1")).await.ok();
    let next = first["metadata"]["continue"].as_str().expect("a token").to_owned();
    for name in ["b", "c", "d"] {
        delete(&service, name).await;
    }
    refused(service.get(&format!("{ALL}?limit=1&continue={next}")).await, 410, "Expired");
    refused(service.get(&format!("{ALL}?continue=garbage")).await, 400, "BadRequest");
}

#[tokio::test]
async fn a_list_may_wait_for_a_version() {
    let service = shop().await;
    let version = add(&service, "a", &json!({}), 1).await;
    let get = async |query: String| service.get(&format!("{ALL}?{query}")).await;
    assert_eq!(names(&get(format!("resourceVersion={version}")).await.ok()), ["a"]);
    let ahead = refused(get(format!("resourceVersion={}", version + 1)).await, 504, "Timeout");
    assert_eq!(ahead["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
    let exact = |version: u64| format!("resourceVersion={version}&resourceVersionMatch=Exact");
    assert_eq!(names(&get(exact(version)).await.ok()), ["a"]);
    add(&service, "b", &json!({}), 1).await;
    refused(get(exact(version)).await, 410, "Expired");
}

/// More objects than are read at a time, of all sizes of pages.
#[tokio::test]
async fn every_object_is_in_a_list_once() {
    let service = shop().await;
    let objects: Vec<_> = (0..2_500)
        .map(|n| json!({ "metadata": { "namespace": format!("n{}", n % 3), "name": format!("p{n:04}") } }))
        .collect();
    service.post("/v1/queues/prices/replace", &json!(objects)).await.ok();
    let all = service.get(ALL).await.ok();
    assert_eq!(names(&all).len(), 2_500);
    let mut seen = Vec::new();
    let mut next = String::new();
    loop {
        let page = service.get(&format!("{ALL}?limit=700&continue={next}")).await.ok();
        seen.extend(names(&page).into_iter().map(str::to_owned));
        next = page["metadata"]["continue"].as_str().expect("a token").to_owned();
        if next.is_empty() {
            break;
        }
    }
    assert_eq!(seen, names(&all));
    let one = service.get("/apis/shop.example/v1/namespaces/n1/prices").await.ok();
    assert_eq!(names(&one).len(), 833);
}
