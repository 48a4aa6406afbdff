//! The views in both schemes and at both widths, with axe-core.

use serde_json::json;

use super::browser::Browser;
use super::proxy::Proxy;
use super::{Guarded, call, end, objects, post, put, settle};
use crate::system::cli::Server;

/// The views with content.
const VIEWS: &[&str] = &[
    "queues",
    "queues/prices",
    "queues/prices/keys",
    "queues/prices/keys/sku-1",
    "queues/prices/keys/sku-21",
    "queues/prices/parked",
    "queues/prices/tail",
    "queues/mails/groups",
    "queues/prices/settings",
    "find?q=sku-1",
    "workers",
    "sources",
    "reflectors",
    "endpoints",
    "nodes",
    "activity",
];
/// Views without content.
const EMPTY: &[&str] = &[
    "find?q=absent",
    "queues/prices/keys?find=absent",
    "queues/search/parked",
    "queues/prices/groups",
    "queues/absent",
];

#[test]
fn every_view_is_accessible_and_fits_every_width() {
    let server = Server::in_memory();
    let at = server.address;
    put(at, "prices", &json!({ "max_failures": 1, "indexes": { "by_n": "/n" } }));
    put(at, "search", &json!({ "follow": { "queue": "prices" } }));
    post(at, "prices/add?source=erp", &objects("sku-", 60));
    settle(at, "prices", 20, "ack", None);
    settle(
        at,
        "prices",
        5,
        "nack",
        Some("a long error without a place to break: https://erp.example/v1/prices/of/the/whole/catalogue"),
    );
    post(at, "prices/pop?max=3&worker=importer", &json!({}));
    post(at, "prices/update?source=shop", &json!({ "key": "sku-1", "n": 1, "new": [1, 2, { "a": null }] }));
    put(
        at,
        "mails",
        &json!({ "groups": { "by": "/tenant", "max_leased": 1, "overrides": { "bolt": { "rate": { "per_second": 0.5, "burst": 1 } } } } }),
    );
    post(
        at,
        "mails/add",
        &json!([{ "key": "a", "tenant": "acme" }, { "key": "b", "tenant": "bolt" }, { "key": "c" }]),
    );
    let browser = Browser::start(at);
    let mut wrong = Vec::new();
    for scheme in ["light", "dark"] {
        for width in [1280, 360] {
            browser.show_as(width, scheme);
            // Two of the four combinations have both widths and both schemes.
            let more: &[&str] = if (scheme == "dark") == (width == 360) { EMPTY } else { &[] };
            for &view in VIEWS.iter().chain(more) {
                browser.open(view);
                browser.until("the view", || {
                    browser.count("[aria-busy]") == 0 && browser.count(".view > *") > 0
                });
                if view == "queues/prices" {
                    browser.until_text("Followers");
                }
                wrong
                    .extend(browser.axe().into_iter().map(|rule| format!("{view} {scheme} {width}: {rule}")));
                if browser.js("return document.documentElement.scrollWidth > innerWidth") == true {
                    wrong.push(format!("{view} {scheme} {width}: the page is wider than the window"));
                }
            }
        }
    }
    for (button, content) in [("Purge…", "#typed"), ("?", "dialog kbd")] {
        browser.open("queues/prices");
        browser.click(button);
        browser.until_there(content);
        wrong.extend(browser.axe());
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    end(&browser);
}

/// The rules that the page breaks, wide and light, and narrow and dark.
fn broken(browser: &Browser, what: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    for (width, scheme) in [(1280, "light"), (360, "dark")] {
        browser.show_as(width, scheme);
        wrong.extend(browser.axe().into_iter().map(|rule| format!("{what} {scheme} {width}: {rule}")));
    }
    wrong
}

#[test]
fn every_state_is_accessible() {
    let server = Server::in_memory();
    let at = server.address;
    post(at, "prices/add", &objects("sku-", 20));
    settle(at, "prices", 20, "reject", Some("no route"));
    post(at, "done/add", &json!({ "key": "k" }));
    settle(at, "done", 1, "ack", None);
    call(at, "POST", "/v1/queues/done/close", "");
    let proxy = Proxy::start(at, "");
    let browser = Browser::start(proxy.address);
    let mut wrong = Vec::new();
    browser.open("queues/done");
    browser.until_text("Drained: the queue is closed");
    wrong.extend(broken(&browser, "drained"));
    browser.open("queues/prices/parked");
    browser.until_there("tbody tr");
    browser.click_on("tbody input");
    browser.click("Discard 20 keys…");
    browser.until_there("#typed");
    wrong.extend(broken(&browser, "discard"));
    browser.click("Cancel");
    browser.click("Redrive 20 keys");
    browser.click_on("dialog [type=submit]");
    browser.until_text("Redriven: 20 keys");
    wrong.extend(broken(&browser, "progress"));
    proxy.refuse("GET /v1/queues/prices ", 503, "not-owner", usize::MAX);
    browser.open("queues/prices");
    browser.until_text("Refused as not-owner");
    wrong.extend(broken(&browser, "error"));
    proxy.pass_all();
    browser.until_there(".flow .ready");
    proxy.refuse("GET /v1/queues/prices ", 503, "not-owner", usize::MAX);
    browser.until_text("What you see is from before");
    wrong.extend(broken(&browser, "from before"));
    end(&browser);

    let guarded = Guarded::start(&["prices"]);
    let browser = Browser::start(guarded.server.address);
    browser.open("queues");
    browser.until_there("dialog[open] #token");
    wrong.extend(broken(&browser, "token"));
    browser.type_into("#token", "viewer");
    browser.click("Use the token");
    browser.until_text("1 queue");
    browser.open("queues/secrets");
    browser.until_text("The token does not permit this");
    wrong.extend(broken(&browser, "not permitted"));
    browser.open("queues/prices");
    browser.until_text("Read only: the token viewer");
    wrong.extend(broken(&browser, "read only"));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    end(&browser);
}
