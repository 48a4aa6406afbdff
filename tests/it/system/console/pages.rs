//! The pages over all queues: find, workers, sources, reflectors, endpoints, nodes and activity.

use std::path::Path;

use serde_json::{Value, json};

use super::browser::Browser;
use super::proxy::Proxy;
use super::{Guarded, call, end, objects, post, put, settle};
use crate::system::cli::Server;

/// The texts of the first column.
fn first_column(browser: &Browser) -> Value {
    browser.js("return [...document.querySelectorAll('tbody tr')].map(row => row.cells[0].innerText.trim())")
}

fn answer(proxy: &Proxy, path: &str, document: &Value) {
    proxy.answer(path, 200, "application/json", &document.to_string(), usize::MAX);
}

#[test]
fn a_user_finds_a_key_a_queue_a_source_and_a_worker_from_any_page() {
    let server = Server::in_memory();
    let at = server.address;
    post(at, "prices/add?source=erp", &objects("sku-", 3));
    post(at, "stock/add?source=erp-stock", &objects("sku-", 2));
    post(at, "stock/pop?worker=importer-7", &json!({}));
    let browser = Browser::start(at);
    browser.open("queues/prices/tail");
    let find = |text: &str| {
        browser.js("document.getElementById('find').value = ''");
        browser.type_into("#find", &format!("{text}\u{e007}"));
    };
    // A key in any queue, two clicks from any page.
    find("sku-1");
    browser.until_text("2 matches, as of");
    assert_eq!(first_column(&browser), json!(["sku-1", "sku-1"]));
    assert!(browser.url().contains("find?q=sku-1"), "{}", browser.url());
    browser.click_on("tbody tr:nth-child(2) a.row");
    browser.until("the key", || browser.url().ends_with("#/queues/stock/keys/sku-1"));
    find("price");
    browser.until_text("1 match, as of");
    browser.click_on("tbody a.row");
    browser.until_there(".flow.wide .ready");
    find("erp");
    browser.until_text("2 matches, as of");
    browser.click("erp-stock");
    browser.until("the keys of the source", || browser.url().contains("source=erp-stock"));
    find("importer");
    browser.until_text("1 match, as of");
    browser.click_on("tbody a.row");
    browser.until_text("Keys that the worker importer-7 holds.");
    browser.until_text("1 key, as of");
    end(&browser);

    find("absent");
    browser.until_text("Nothing is found");
    browser.until_text("No key begins with absent");
    // The text is never markup, and the same search can be done again.
    find("<b>x");
    browser.until_text("No key begins with <b>x");
    assert_eq!(browser.count("main b"), 0);
    post(at, "prices/add", &json!({ "key": "<b>x" }));
    browser.type_into("#find", "\u{e007}");
    browser.until_text("1 match, as of");
    browser.open("find");
    browser.until_text("What do you look for?");
    browser.press("f");
    let focused = "return document.activeElement.id";
    browser.until("the field", || browser.js(focused) == "find");
    end(&browser);
}

#[test]
fn a_worker_that_hangs_is_marked_in_one_click() {
    let server = Server::in_memory();
    let at = server.address;
    post(at, "quick/add", &objects("k", 14));
    settle(at, "quick", 12, "ack", None);
    put(at, "quick", &json!({ "lease": "1s" }));
    post(at, "quick/pop?worker=stuck&lease_duration=1h", &json!({}));
    post(at, "prices/add", &objects("sku-", 6));
    settle(at, "prices", 2, "ack", None);
    settle(at, "prices", 1, "reject", Some("no route"));
    post(at, "prices/pop?worker=importer", &json!({}));
    // Two leases of one millisecond are as old as each other.
    std::thread::sleep(std::time::Duration::from_millis(2));
    post(at, "prices/pop?max=2", &json!({}));
    let browser = Browser::start(at);
    browser.open("queues");
    browser.clicks();
    browser.click("Workers");
    browser.until_text("1 worker has a lease that is old for its queue.");
    assert_eq!(browser.clicks(), 1);
    // The one that hangs comes first, with how long a lease of its queue may take.
    assert_eq!(first_column(&browser), json!(["stuck", "importer", "without a name"]));
    let rows = browser.js("return [...document.querySelectorAll('tbody tr')].map(row => [...row.cells].map(cell => cell.innerText))");
    let row = &rows[0];
    assert_eq!((&row[1], &row[2], &row[3]), (&json!("quick"), &json!("old lease"), &json!("1")));
    // What each has done in the last ten minutes.
    let done = [&rows[0][8], &rows[0][9], &rows[1][8], &rows[1][9]];
    assert_eq!(done, [&json!("0"), &json!("0"), &json!("2"), &json!("1")]);
    browser.until_text("Acks and failures are those of the last ten minutes.");
    browser.click_on("label.check input");
    browser.until("one worker", || browser.count("tbody tr") == 1);
    browser.click("stuck");
    browser.until_text("Keys that the worker stuck holds.");
    end(&browser);

    browser.open("workers?find=impor");
    browser.until("one worker", || first_column(&browser) == json!(["importer"]));
    browser.type_into("main [data-find]", "x");
    browser.until_text("Nothing matches");
    end(&browser);
    let server = Server::in_memory();
    let browser = Browser::start(server.address);
    browser.open("workers");
    browser.until_text("No worker is there");
    end(&browser);
}

#[test]
fn a_single_server_is_a_row_of_the_nodes() {
    let server = Server::durable();
    post(server.address, "prices/add", &objects("sku-", 3));
    let proxy = Proxy::start(server.address, "");
    let browser = Browser::start(proxy.address);
    browser.open("nodes");
    browser.until_text("One server, without other nodes.");
    assert_eq!(first_column(&browser), json!(["This server"]));
    for part in ["SQLite", env!("CARGO_PKG_VERSION"), "1: 0", "Epoch 1"] {
        assert!(browser.text().contains(part), "{part}: {}", browser.text());
    }
    let free =
        "return /^[0-9]+[.][0-9] [MGT]iB$/.test(document.querySelector('tbody tr').cells[7].innerText)";
    browser.until("the free disk", || browser.js(free) == true);
    end(&browser);

    // Several nodes, of which one is late and has not replied, and a partition has no owner.
    let details = |version: &str, owned: &[u64], free: Value| {
        let owned: Vec<Value> =
            owned.iter().map(|number| json!({ "partition": number, "epoch": 7 })).collect();
        json!({ "version": version, "store": "postgres", "durability": "full", "uptime_ms": 3_600_000, "queues": 2, "owned": owned, "disk_free_bytes": free })
    };
    let node = |name: &str, state: &str, details: Value| {
        json!({ "name": name, "url": format!("http://{name}:7070"), "this": name == "a", "state": state, "partitions": 4, "queues": 2,
                "heartbeat_age_ms": 120, "clock_ahead_ms": -3, "details": details })
    };
    let mut list = json!({
        "nodes": [node("a", "serving", details("1.0.0", &[0, 1, 2, 5], Value::Null)), node("b", "serving", details("1.1.0", &[3, 4], json!(96_636_764_160_u64)))],
        "partitions": 6, "without_owner": 0, "this": details("1.0.0", &[0, 1, 2, 5], Value::Null),
    });
    answer(&proxy, "GET /v1/nodes", &list);
    browser.open("nodes");
    browser.until_text("The nodes run 2 versions.");
    browser.until_text("4: 0–2, 5");
    let free =
        browser.js("return [...document.querySelectorAll('tbody tr')].map(row => row.cells[7].innerText)");
    assert_eq!(free, json!(["–", "90.0 GiB"]));
    list["nodes"][1] = node("b", "late", Value::Null);
    list["without_owner"] = json!(2);
    proxy.pass_all();
    answer(&proxy, "GET /v1/nodes", &list);
    browser.until_text("2 partitions of 6 have no owner.");
    browser.until_text("late");
    proxy.pass_all();
    end(&browser);

    // A token that may not read all queues gets the reason.
    let guarded = Guarded::start(&["prices"]);
    let browser = Browser::start(guarded.server.address);
    browser.open("nodes");
    browser.type_into("#token", "viewer");
    browser.click("Use the token");
    browser.until_text("The token does not permit this");
    end(&browser);
}

#[test]
fn a_stale_source_and_a_reflector_that_fails_come_first() {
    let server = Server::in_memory();
    let at = server.address;
    post(at, "prices/add", &objects("sku-", 3));
    let proxy = Proxy::start(at, "");
    let source = |name: &str, is_stale: bool| {
        json!({ "queue": "prices", "source": name, "keys": 3, "last_contact_at": "2026-11-21T04:20:03.491Z", "last_replaced_at": null,
                "last_replace": null, "sequence": 9_007_199_254_740_993_u64, "stale_after": "15m", "is_stale": is_stale, "problem": null })
    };
    let sources = [source("a-well", false), source("erp", true)];
    answer(
        &proxy,
        "GET /v1/sources",
        &json!({ "items": sources, "continue": null, "unavailable": [{ "name": "broken", "code": "journal", "detail": "it is lost" }] }),
    );
    let reflector = |name: &str, state: &str, error: Option<&str>| {
        json!({ "instance": name, "version": "1.0.0", "queue": "prices", "source": "erp", "kind": "sql", "last_heartbeat_at": "2026-11-21T04:20:03.491Z", "lag_ms": 4_000,
                "last_success_at": null, "last_error": error, "next_list_at": null, "state": state })
    };
    let reflectors = [
        reflector("one", "ok", None),
        reflector("two", "failing", Some("<b>refused")),
        reflector("three", "silent", None),
    ];
    answer(&proxy, "GET /v1/reflectors", &json!({ "items": reflectors, "continue": null }));
    let browser = Browser::start(proxy.address);
    browser.open("queues");
    browser.clicks();
    browser.click("Sources");
    browser.until_text("1 source has not been heard from for longer than its threshold.");
    assert_eq!(browser.clicks(), 1);
    assert_eq!(first_column(&browser), json!(["erp", "a-well"]));
    browser.until_text("Queue broken can't be read: it is lost");
    // Of its three reflectors, the worst.
    let reflectors = "return [...document.querySelectorAll('tbody tr')].map(row => row.querySelector('[data-label=Reflector]').innerText)";
    assert_eq!(browser.js(reflectors), json!(["silent", "–"]));
    assert_eq!(browser.axe(), Vec::<String>::new());
    browser.click_on("label.check input");
    browser.until("one source", || first_column(&browser) == json!(["erp"]));
    browser.click("Reflectors");
    browser.until_text("1 reflector fails. 1 reflector is silent.");
    assert_eq!(first_column(&browser), json!(["two", "three", "one"]));
    browser.until_text("<b>refused");
    assert_eq!(browser.count("main b"), 0);
    assert_eq!(browser.axe(), Vec::<String>::new());
    proxy.pass_all();
    end(&browser);

    // A server without these operations.
    for (page, path) in [
        ("sources", "GET /v1/sources"),
        ("reflectors", "GET /v1/reflectors"),
        ("activity", "GET /v1/activity"),
    ] {
        proxy.refuse(path, 404, "not-found", usize::MAX);
        browser.open(page);
        browser.until_text("This server does not");
        proxy.pass_all();
    }
    end(&browser);
}

#[test]
fn activity_says_who_did_what_and_is_filtered() {
    let server = Server::in_memory();
    let at = server.address;
    post(at, "prices/add", &objects("sku-", 3));
    let proxy = Proxy::start(at, "");
    let entry = |by: Value, operation: &str, keys: Value| json!({ "at": "2026-11-21T04:20:03.491Z", "by": by, "operation": operation, "queue": "prices", "keys": keys, "outcome": "ok", "status": 200, "request_id": "a-1" });
    let entries = json!([
        entry(json!("<i>ops"), "purge_queue", json!(3)),
        entry(Value::Null, "pause_queue", Value::Null)
    ]);
    answer(
        &proxy,
        "continue=2",
        &json!({ "items": [entry(json!("old"), "put_queue", json!(7))], "continue": null }),
    );
    answer(&proxy, "GET /v1/activity", &json!({ "items": entries, "continue": "2" }));
    let browser = Browser::start(proxy.address);
    browser.open("queues");
    browser.clicks();
    browser.click("Activity");
    browser.until_text("2 entries, and there are older ones, as of");
    assert_eq!(browser.clicks(), 1);
    let rows = "return [...document.querySelectorAll('tbody tr')].map(row => [1, 2, 4].map(cell => row.cells[cell].innerText))";
    assert_eq!(browser.js(rows), json!([["<i>ops", "purge_queue", "3"], ["no token", "pause_queue", "–"]]));
    assert_eq!(browser.count("main i"), 0);
    assert_eq!(browser.axe(), Vec::<String>::new());
    browser.click("Older entries");
    browser.until("the older entry", || browser.js(rows)[2] == json!(["old", "put_queue", "7"]));
    browser.type_into("[aria-label=Token]", "ops");
    browser.until("the filter", || proxy.requests("by=ops") > 0 && browser.url().contains("by=ops"));
    proxy.pass_all();
    answer(&proxy, "GET /v1/activity", &json!({ "items": [], "continue": null }));
    browser.click("Read again");
    browser.until_text("No entry matches");
    end(&browser);
}

#[test]
fn an_endpoint_that_fails_is_found() {
    let server = Server::in_memory();
    let at = server.address;
    post(at, "prices/add", &objects("sku-", 3));
    let proxy = Proxy::start(at, "");
    let browser = Browser::start(proxy.address);
    browser.open("endpoints");
    browser.until_text("No queue has an endpoint");
    let mut page = call(at, "GET", "/v1/queues", "");
    let push = json!({ "state": "failing", "in_flight": 1, "allowed_in_flight": 2, "last_success_at": null, "last_error": "503 <b>" });
    page["items"][0]["status"]["push"] = push;
    page["items"][0]["status"]["hook"] = json!({ "kept": 2, "last_applied_at": null, "last_rejected_at": "2026-11-21T04:20:03.491Z", "last_rejected": "no_key" });
    answer(&proxy, "GET /v1/queues?", &page);
    browser.until_text("1 endpoint fails. 2 deliveries could not be applied.");
    browser.until_text("503 <b>");
    assert_eq!(browser.axe(), Vec::<String>::new());
    proxy.pass_all();
    browser.until_text("No queue has an endpoint");
    end(&browser);
}

#[test]
fn a_queue_links_to_its_dashboard_and_to_the_runbook() {
    let server = Server::with_settings(&[
        ("DELTAQ_CONSOLE__GRAFANA_URL", Path::new("https://grafana.example/d/deltaq?var-queue={queue}")),
        ("DELTAQ_CONSOLE__DOCS_URL", Path::new("https://deltaq.example/docs")),
    ]);
    let at = server.address;
    post(at, "a.b/add", &objects("sku-", 3));
    settle(at, "a.b", 1, "reject", Some("no route"));
    let browser = Browser::start(at);
    browser.open("queues/a.b");
    browser.until_text("Runbook: keys are parked");
    let links = "return [...document.querySelectorAll('.links a')].map(link => [link.innerText, link.href])";
    assert_eq!(
        browser.js(links),
        json!([
            ["Dashboard", "https://grafana.example/d/deltaq?var-queue=a.b"],
            ["Runbook: keys are parked", "https://deltaq.example/docs/runbook.md#deltaqkeysparked"],
            ["Runbook: no worker takes the keys", "https://deltaq.example/docs/runbook.md#deltaqnoworker"],
            ["Documents", "https://deltaq.example/docs/console.md"],
            ["Simulator", "https://deltaq.example/docs/simulator.md"],
        ])
    );
    // An entry of the runbook that a page links to is there.
    let runbook = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/runbook.md"))
        .expect("the runbook");
    let script =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/console/links.js")).expect("the links");
    let entries: Vec<&str> = script.split('"').filter(|text| text.starts_with("Deltaq")).collect();
    assert!(entries.len() >= 5);
    for entry in entries {
        assert!(runbook.contains(&format!("### {entry}\n")), "{entry}");
    }
    end(&browser);
}
